//! What `serving` is given: requests, models and GPUs.

use crate::args::serving::ServingGiven;
use crate::failure::Failure;
use std::io::BufRead;
use std::path::Path;
use trainyard_diagnostic::InputError;
use trainyard_experiment::files::{open, unreadable};
use trainyard_serving::latency::Model;
use trainyard_serving::load::Load;
use trainyard_serving::registry::{Choice, DISCIPLINES, choose};
use trainyard_serving::run::{Served, serves, slo};
use trainyard_serving::trace::{self, Filling, Form};
use trainyard_serving::{Fleet, LlmFleet, Trace, zoo};
use trainyard_types::{Span, Time};

/// The most rates of a curve.
const RATES_MAX: usize = 64;

/// What was given.
pub struct Given<'a> {
    args: &'a ServingGiven,
    models: Vec<String>,
    load: Load,
    /// GPUs.
    pub gpus: u32,
    /// What one costs in an hour.
    pub price: f64,
    /// The seed of requests and latencies.
    pub seed: u64,
}

impl<'a> Given<'a> {
    /// Reads what the flags say; files are opened later.
    pub fn read(args: &'a ServingGiven) -> Result<Given<'a>, Failure> {
        let words = args.generate.as_deref().unwrap_or_default();
        let load = Load::parse(words).map_err(|fault| Failure::input("--generate", fault))?;
        let models = match &args.models {
            Some(names) => names.split(',').map(|name| name.trim().to_owned()).collect(),
            None if !load.models.is_empty() => load.models.clone(),
            None => {
                zoo::models().keys().filter(|name| !name.ends_with("-eager")).cloned().collect()
            }
        };
        let gpus = whole("--gpus", args.gpus.as_deref(), 1, (1, 65_536))? as u32;
        let price = args.price.as_deref().map_or(Ok(0.0), |text| {
            let price = text.parse::<f64>().ok().filter(|price| (0.0..=1e9).contains(price));
            price.ok_or_else(|| Failure::flag("--price", text, "a price from 0, such as 2.5"))
        })?;
        let seed = load.seed;
        Ok(Given { args, models, load, gpus, price, seed })
    }

    /// The requests, at another rate than the stated one if one is named.
    pub fn trace(&self, rate: Option<f64>) -> Result<Trace, Failure> {
        if let Some(path) = &self.args.trace {
            return self.recorded(path);
        }
        let llm = zoo::llm_8b().name.as_str();
        let has_tokens = self.models.iter().any(|name| name == llm);
        if has_tokens && self.models.len() > 1 {
            let expected = format!("`{llm}` alone: a language model is simulated by itself");
            return Err(Failure::flag("--models", &self.models.join(","), expected));
        }
        if !has_tokens {
            self.profiles(&self.models)?;
        }
        let rate = rate.unwrap_or(self.load.rate);
        let load = Load { models: self.models.clone(), rate, ..self.load.clone() };
        let alone =
            |name: &str| zoo::models().get(name).map_or(Span::secs(1), |model| model.span(1));
        Ok(load.trace(&alone, has_tokens))
    }

    fn recorded(&self, path: &Path) -> Result<Trace, Failure> {
        let mut reader = open(path)?;
        let form = match &self.args.format {
            Some(name) => Form::named(name).map_err(|fault| Failure::input("--format", fault))?,
            None => {
                let buffer = reader.fill_buf().map_err(|error| unreadable(path, &error))?;
                let line = buffer.split(|byte| *byte == b'\n').next().unwrap_or_default();
                let heading = String::from_utf8_lossy(line).into_owned();
                Form::of_heading(heading.trim_start_matches('\u{feff}')).ok_or_else(|| {
                    let expected = "the heading of a known form; see `trainyard serving trace --help`, or name it with --format";
                    Failure::input(path.display(), InputError::wrong(1, "heading", &heading, expected))
                })?
            }
        };
        let slo = match &self.args.slo {
            None => Span::MAX,
            Some(text) => {
                let wrong = |_| Failure::flag("--slo", text, "a length of time such as 100ms");
                text.parse::<Span>().map_err(wrong)?
            }
        };
        // Without a name, what has tokens is for the one language model that was measured.
        let models = match form {
            Form::AzureLlm if self.args.models.is_none() => vec![zoo::llm_8b().name.clone()],
            _ => self.models.clone(),
        };
        let filling =
            Filling { models, slo, output_max: self.load.output_max, seed: self.load.seed };
        let read = trace::read(form, &mut reader, &filling);
        let mut trace = read.map_err(|fault| Failure::input(path.display(), fault))?;
        let limit = whole("--limit", self.args.limit.as_deref(), u64::MAX, (1, u64::MAX))?;
        trace.requests.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        trace.outputs.truncate(trace.requests.len());
        if let Some(at) =
            trace.requests.iter().position(|one| (one.prompt > 0) != trace.has_tokens())
        {
            let expected = "prompts in every request or in none";
            let fault = InputError::wrong(at as u64 + 2, "prompt", "a mixture", expected);
            return Err(Failure::input(path.display(), fault));
        }
        Ok(trace)
    }

    fn profiles(&self, names: &[String]) -> Result<Vec<Model>, Failure> {
        let one = |name: &String| {
            let known =
                zoo::models().keys().map(String::as_str).chain([zoo::llm_8b().name.as_str()]);
            let found = zoo::models().get(name).cloned();
            found.ok_or_else(|| Failure::input("", InputError::unknown(0, "model", name, known)))
        };
        names.iter().map(one).collect()
    }

    /// The GPUs with the models of a trace.
    pub fn served(&self, trace: &Trace) -> Result<Served, Failure> {
        let waiting =
            whole("--waiting", self.args.waiting.as_deref(), 100_000, (1, 1 << 30))? as u32;
        let memory = match self.args.memory_mib.as_deref() {
            None => None,
            Some(text) => Some(whole("--memory-mib", Some(text), 0, (1, 1 << 40))?),
        };
        if trace.has_tokens() {
            let name = &trace.models[0];
            if *name != zoo::llm_8b().name {
                let known = [zoo::llm_8b().name.as_str()];
                return Err(Failure::input(
                    "",
                    InputError::unknown(0, "language model", name, known),
                ));
            }
            let mut fleet = LlmFleet::measured(self.gpus);
            if let Some(mib) = memory {
                // 0.1311 MB for a token, as `LlmFleet::measured` has it.
                fleet.blocks = (mib as f64 / 0.1311 / 16.0).clamp(1.0, f64::from(u32::MAX)) as u32;
            }
            (fleet.waiting_max, fleet.price_per_hour, fleet.seed) =
                (waiting, self.price, self.seed);
            return Ok(Served::Tokens(fleet));
        }
        let models = self.profiles(&trace.models)?;
        let mut fleet =
            Fleet::new(models, zoo::slowdowns(&self.profiles(&trace.models)?), self.gpus);
        fleet.memory_mib = memory.unwrap_or(fleet.memory_mib);
        (fleet.waiting_max, fleet.price_per_hour, fleet.seed) = (waiting, self.price, self.seed);
        fleet.jitter = !self.args.median;
        Ok(Served::Whole(fleet))
    }

    /// The disciplines that were named, or all that serve such requests.
    pub fn choices(&self, trace: &Trace) -> Result<Vec<Choice>, Failure> {
        let read = |text: &str| choose(text).map_err(|fault| Failure::input("", fault));
        if self.args.disciplines.is_empty() || self.args.disciplines.iter().any(|one| one == "all")
        {
            let all: Result<Vec<Choice>, Failure> =
                DISCIPLINES.iter().map(|entry| read(entry.name)).collect();
            let serving = all?.into_iter().filter(|choice| serves(choice, trace));
            // One that needs two GPUs at least is left out of `all` on one.
            return Ok(serving.filter(|choice| self.gpus > 1 || !choice.entry.needs_two).collect());
        }
        self.args.disciplines.iter().map(|text| read(text)).collect()
    }

    /// The target that a picture shows.
    pub fn target(&self, trace: &Trace) -> Option<Span> {
        match trace.has_tokens() {
            true => Some(LlmFleet::measured(1).slo_first),
            false => {
                trace.requests.iter().any(|one| one.deadline != Time::NEVER).then(|| slo(trace))
            }
        }
    }
}

fn whole(
    flag: &str,
    text: Option<&str>,
    otherwise: u64,
    range: (u64, u64),
) -> Result<u64, Failure> {
    let Some(text) = text else { return Ok(otherwise) };
    let number = text.parse::<u64>().ok().filter(|number| (range.0..=range.1).contains(number));
    number.ok_or_else(|| {
        Failure::flag(flag, text, format!("a whole number from {} to {}", range.0, range.1))
    })
}

/// The rates of a curve.
pub fn rates(text: &str) -> Result<Vec<f64>, Failure> {
    let numbers: Option<Vec<f64>> = text.split(',').map(|one| one.trim().parse().ok()).collect();
    let sound = |all: &Vec<f64>| {
        (2..=RATES_MAX).contains(&all.len()) && all.iter().all(|rate| (1e-3..=1e7).contains(rate))
    };
    let expected = "2 to 64 rates with commas between them, such as 100,200,400";
    numbers.filter(sound).ok_or_else(|| Failure::flag("--rates", text, expected))
}
