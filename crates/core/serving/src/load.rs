//! Generated requests: arrivals by a law, models by popularity, lengths of prompts and answers. The same text, the same bytes.

use crate::draws::Draws;
use crate::request::{ModelId, Request, Trace};
use std::f64::consts::PI;
use trainyard_diagnostic::InputError;
use trainyard_types::{Span, Time};

/// How requests come.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// Independently of each other.
    Poisson,
    /// With gaps of a gamma law of this coefficient of variation; 1 is Poisson.
    Gamma(f64),
    /// By a Markov-modulated Poisson process: `burst` times the rate of the quiet state while it is on.
    OnOff {
        /// How many times the quiet rate.
        burst: f64,
        /// The mean length of a burst, in seconds.
        on: f64,
        /// The mean length of quiet, in seconds.
        off: f64,
    },
    /// By a sine over a day.
    Diurnal {
        /// From 0 to 1.
        depth: f64,
        /// The length of a day, in seconds.
        day: f64,
    },
}

/// How long requests have.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Slo {
    /// So long.
    Fixed(Span),
    /// So many times the latency of the model alone.
    Times(f64),
}

/// What is generated.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// How many requests.
    pub requests: u32,
    /// Requests a second, on average.
    pub rate: f64,
    /// How they come.
    pub arrivals: Arrivals,
    /// Models, the most popular first.
    pub models: Vec<String>,
    /// The k-th model has requests in proportion to 1 / k to this power.
    pub skew: f64,
    /// How long they have; nothing for as long as it takes.
    pub slo: Option<Slo>,
    /// How many clients.
    pub clients: u32,
    /// The parts of priorities 0, 1, and so on.
    pub priorities: Vec<f64>,
    /// The median prompt, in tokens.
    pub prompt: f64,
    /// The median answer, in tokens.
    pub output: f64,
    /// The spread of the logarithm of both.
    pub spread: f64,
    /// The most tokens of an answer.
    pub output_max: u32,
    /// How many shared beginnings of prompts there are.
    pub prefixes: u32,
    /// Tokens of each.
    pub prefix_tokens: u32,
    /// The seed.
    pub seed: u64,
}

impl Default for Load {
    fn default() -> Load {
        Load {
            requests: 10_000,
            rate: 500.0,
            arrivals: Arrivals::Poisson,
            models: Vec::new(),
            skew: 0.0,
            slo: None,
            clients: 1,
            priorities: vec![1.0],
            // Medians of the conversations of Azure's trace of 2023, as Splitwise (ISCA 2024) tells them.
            prompt: 1020.0,
            output: 129.0,
            spread: 0.8,
            output_max: 1024,
            prefixes: 0,
            prefix_tokens: 512,
            seed: 1,
        }
    }
}

const KEYS: [&str; 20] = [
    "requests",
    "rate",
    "like",
    "cv",
    "burst",
    "on",
    "off",
    "depth",
    "day",
    "models",
    "skew",
    "slo",
    "clients",
    "priorities",
    "prompt",
    "output",
    "spread",
    "output-max",
    "prefixes",
    "prefix-tokens",
];
const LAWS: [&str; 4] = ["poisson", "gamma", "on-off", "diurnal"];

impl Load {
    /// Reads words `key=value`.
    ///
    /// ```
    /// let load = trainyard_serving::load::Load::parse("requests=100 rate=50 like=on-off burst=8").unwrap();
    /// assert_eq!(load.requests, 100);
    /// ```
    pub fn parse(text: &str) -> Result<Load, InputError> {
        let mut load = Load::default();
        let (mut law, mut cv, mut burst, mut on, mut off) = (0, 2.0, 5.0, 1.0, 4.0);
        let (mut depth, mut day) = (0.8, 86_400.0);
        for word in text.split_whitespace() {
            let Some((key, value)) = word.split_once('=') else {
                return Err(InputError::wrong(0, "load", word, "words `key=value`"));
            };
            let real = |range| real(key, value, range);
            match key {
                "requests" => load.requests = real((1.0, 1e8))? as u32,
                "rate" => load.rate = real((1e-3, 1e7))?,
                "like" => law = word_of(key, value)?,
                "cv" => cv = real((0.1, 20.0))?,
                "burst" => burst = real((1.0, 1000.0))?,
                "on" => on = real((1e-3, 1e6))?,
                "off" => off = real((1e-3, 1e6))?,
                "depth" => depth = real((0.0, 1.0))?,
                "day" => day = real((1.0, 1e7))?,
                "models" => load.models = value.split(',').map(str::to_owned).collect(),
                "skew" => load.skew = real((0.0, 10.0))?,
                "slo" => load.slo = Some(slo(value)?),
                "clients" => load.clients = real((1.0, 1e6))? as u32,
                "priorities" => load.priorities = parts(value)?,
                "prompt" => load.prompt = real((1.0, 1e6))?,
                "output" => load.output = real((1.0, 1e6))?,
                "spread" => load.spread = real((0.0, 5.0))?,
                "output-max" => load.output_max = real((1.0, 1e6))? as u32,
                "prefixes" => load.prefixes = real((0.0, 1e6))? as u32,
                "prefix-tokens" => load.prefix_tokens = real((1.0, 1e6))? as u32,
                "seed" => load.seed = real((0.0, 1e15))? as u64,
                _ => {
                    return Err(InputError::unknown(
                        0,
                        "load",
                        key,
                        KEYS.into_iter().chain(["seed"]),
                    ));
                }
            }
        }
        load.arrivals = match law {
            0 => Arrivals::Poisson,
            1 => Arrivals::Gamma(cv),
            2 => Arrivals::OnOff { burst, on, off },
            _ => Arrivals::Diurnal { depth, day },
        };
        Ok(load)
    }

    /// The requests; `alone` is the latency of each model alone, for targets that are stated as multiples of it.
    pub fn trace(&self, alone: &dyn Fn(&str) -> Span, has_tokens: bool) -> Trace {
        let mut arrivals = Clock::new(self);
        let mut draws = Draws::new(self.seed, 2);
        let weights = (0..self.models.len()).map(|at| libm::pow((at + 1) as f64, -self.skew));
        let popularity = sums(weights);
        let urgency = sums(self.priorities.iter().copied());
        let slos: Vec<Span> = (self.models.iter())
            .map(|model| match self.slo {
                None => Span::MAX,
                Some(Slo::Fixed(span)) => span,
                Some(Slo::Times(times)) => alone(model).scaled(times),
            })
            .collect();
        let mut trace = Trace { models: self.models.clone(), ..Trace::default() };
        for _ in 0..self.requests {
            let arrived = Time::from_secs_f64(arrivals.next());
            let model = draws.index(&popularity);
            let mut request = Request::whole(ModelId(model as u32), arrived, slos[model]);
            request.client = draws.below(self.clients as usize) as u32;
            request.priority = draws.index(&urgency) as u8;
            let mut output = 0;
            if has_tokens {
                output = self.tokens(&mut request, &mut draws);
            }
            trace.requests.push(request);
            trace.outputs.push(output);
        }
        trace
    }

    /// Lengths of a request for tokens; how long its answer really is.
    fn tokens(&self, request: &mut Request, draws: &mut Draws) -> u32 {
        let mut length =
            |median: f64| (median * libm::exp(self.spread * draws.normal())).max(1.0) as u32;
        request.prompt = length(self.prompt).min(32_768);
        let output = length(self.output).min(self.output_max);
        request.output_max = self.output_max;
        if self.prefixes > 0 {
            request.prefix = 1 + draws.below(self.prefixes as usize) as u32;
            request.prefix_tokens = self.prefix_tokens;
            request.prompt += self.prefix_tokens;
        }
        output
    }
}

/// Moments of arrival: gaps of mean 1 in a time that goes as fast as the rate.
struct Clock {
    arrivals: Arrivals,
    rate: f64,
    now: f64,
    draws: Draws,
    /// For bursts: whether one is on, and when that ends.
    state: (bool, f64),
}

impl Clock {
    fn new(load: &Load) -> Clock {
        let draws = Draws::new(load.seed, 1);
        let mut clock =
            Clock { arrivals: load.arrivals, rate: load.rate, now: 0.0, draws, state: (true, 0.0) };
        if let Arrivals::OnOff { off, .. } = load.arrivals {
            clock.state = (false, off * clock.draws.exponential());
        }
        clock
    }

    fn next(&mut self) -> f64 {
        match self.arrivals {
            Arrivals::Poisson => self.now += self.draws.exponential() / self.rate,
            Arrivals::Gamma(variation) => self.now += self.draws.gamma(variation) / self.rate,
            Arrivals::OnOff { burst, on, off } => {
                // The quiet rate such that the mean over both states is what was asked for.
                let quiet = self.rate * (on + off) / (burst * on + off);
                let mut left = self.draws.exponential();
                // Each round ends a state; a gap holds few of them unless the rate is far below their pace.
                loop {
                    let rate = if self.state.0 { quiet * burst } else { quiet };
                    let gap = left / rate;
                    if self.now + gap <= self.state.1 {
                        self.now += gap;
                        break;
                    }
                    left -= (self.state.1 - self.now) * rate;
                    self.now = self.state.1;
                    let is_on = !self.state.0;
                    let mean = if is_on { on } else { off };
                    self.state = (is_on, self.now + mean * self.draws.exponential().max(1e-9));
                }
            }
            Arrivals::Diurnal { depth, day } => {
                // Arrivals at the highest rate, of which as many are kept as the time of day asks for.
                let peak = self.rate * (1.0 + depth);
                for _ in 0..10_000 {
                    self.now += self.draws.exponential() / peak;
                    let rate = self.rate * (1.0 + depth * libm::sin(2.0 * PI * self.now / day));
                    if self.draws.unit() * peak < rate {
                        break;
                    }
                }
            }
        }
        self.now
    }
}

fn sums(weights: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sum = 0.0;
    weights
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect()
}

fn real(key: &str, value: &str, (least, most): (f64, f64)) -> Result<f64, InputError> {
    let number = value.parse::<f64>().ok().filter(|number| (least..=most).contains(number));
    number
        .ok_or_else(|| InputError::wrong(0, key, value, format!("a number from {least} to {most}")))
}

fn word_of(key: &str, value: &str) -> Result<usize, InputError> {
    let found = LAWS.iter().position(|law| *law == value);
    found.ok_or_else(|| InputError::unknown(0, key, value, LAWS))
}

fn slo(value: &str) -> Result<Slo, InputError> {
    if let Some(times) = value.strip_suffix('x') {
        return Ok(Slo::Times(real("slo", times, (1.0, 1e6))?));
    }
    let span = value.parse::<Span>().ok().filter(|span| *span > Span::ZERO);
    let expected = "a length of time such as 100ms, or a multiple of the latency alone such as 5x";
    span.map(Slo::Fixed).ok_or_else(|| InputError::wrong(0, "slo", value, expected))
}

fn parts(value: &str) -> Result<Vec<f64>, InputError> {
    let numbers: Option<Vec<f64>> = value.split(',').map(|one| one.parse().ok()).collect();
    let sound = |all: &Vec<f64>| {
        let is_part = |part: &f64| (0.0..=1e9).contains(part);
        !all.is_empty()
            && all.len() <= 16
            && all.iter().all(is_part)
            && all.iter().sum::<f64>() > 0.0
    };
    let expected = "parts of priorities 0, 1, ..., such as 0.2,0.8";
    numbers.filter(sound).ok_or_else(|| InputError::wrong(0, "priorities", value, expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(text: &str) -> Trace {
        Load::parse(&format!("{text} models=a,b requests=50000 rate=1000"))
            .unwrap()
            .trace(&|_| Span(1000), false)
    }

    #[test]
    fn every_law_has_the_rate_that_was_asked_for_and_the_burstier_ones_spread_more() {
        let mut spreads = Vec::new();
        for law in [
            "like=diurnal day=10",
            "like=poisson",
            "like=gamma cv=3",
            "like=on-off burst=10 on=0.2 off=1",
        ] {
            let trace = trace(law);
            let rate: f64 = trace.rates().iter().sum();
            assert!((rate / 1000.0 - 1.0).abs() < 0.15, "{law}: {rate}");
            // The variance over the mean of counts in 20 ms: 1 for Poisson.
            let mut counts = vec![0.0; (trace.length().0 / 20_000) as usize + 1];
            trace.requests.iter().for_each(|one| counts[(one.arrived.0 / 20_000) as usize] += 1.0);
            let mean = counts.iter().sum::<f64>() / counts.len() as f64;
            let variance = counts.iter().map(|count| (count - mean) * (count - mean)).sum::<f64>();
            spreads.push(variance / counts.len() as f64 / mean);
        }
        assert!((spreads[1] - 1.0).abs() < 0.15, "{spreads:?}");
        assert!(spreads[0] > 3.0 && spreads[2] > 3.0 && spreads[3] > 5.0, "{spreads:?}");
    }

    #[test]
    fn the_same_text_gives_the_same_requests_and_another_seed_others() {
        assert_eq!(trace("seed=3"), trace("seed=3"));
        assert_ne!(trace("seed=3"), trace("seed=4"));
    }

    #[test]
    fn wrong_words_are_refused_by_name() {
        let refused = |text: &str| Load::parse(text).unwrap_err().to_string();
        assert!(refused("rat=3").contains("did you mean `rate`"));
        assert!(refused("like=poison").contains("did you mean `poisson`"));
        assert!(refused("rate=-3").contains("a number from"));
        assert!(refused("slo=fast").contains("100ms"));
        assert!(refused("priorities=0,0").contains("parts of priorities"));
        assert!(refused("many").contains("key=value"));
    }
}
