//! What the generator is asked for.

use serde::{Deserialize, Serialize};
use trainyard_diagnostic::InputError;
use trainyard_types::Span;

/// The laws of a generated workload. The same spec gives the same jobs, to the last bit.
///
/// ```
/// # use trainyard_workload::{Spec, Arrival};
/// let spec: Spec = toml::from_str("jobs = 50\narrival = { load = 0.9 }\nduration = \"gavel\"").unwrap();
/// assert_eq!((spec.jobs, spec.arrival), (50, Arrival::Load(0.9)));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spec {
    /// Whose generator draws them; one of others brings its own laws, and all but `jobs`, `seed` and `arrival` stay unset.
    pub like: Like,
    /// How many jobs.
    pub jobs: u32,
    /// The seed of every draw.
    pub seed: u64,
    /// When they come.
    pub arrival: Arrival,
    /// How strongly arrivals follow the time of day, from 0 to 0.95: a sine over 24 hours, from its mean upwards.
    pub daily: f64,
    /// How long they run as asked for.
    pub duration: DurationLaw,
    /// Shorter ones are made so long.
    pub duration_min: Span,
    /// Longer ones are made so short.
    pub duration_max: Span,
    /// On how many GPUs; more than the cluster has of its most frequent type become that many.
    pub size: SizeLaw,
    /// Names of models, drawn alike; `gavel-*` stands for all that begin so. Empty means the generic model.
    pub models: Vec<String>,
    /// How many tenants.
    pub tenants: u32,
    /// The k-th tenant has jobs in proportion to 1 / k to this power.
    pub tenant_skew: f64,
    /// The share of jobs with a deadline.
    pub deadline_share: f64,
    /// A deadline is the submission plus the duration times one of these, drawn alike.
    pub deadline_slack: Vec<f64>,
    /// The share of deadlines that are soft: worth less and less up to a delay that their user accepts.
    pub soft_share: f64,
    /// Delays that users accept, as parts of the time from submission to the deadline, with weights.
    pub soft_tolerance: Vec<(f64, f64)>,
    /// The share of jobs with priority 1 instead of 0.
    pub priority_share: f64,
    /// The share of jobs that run on 1 to 4 times the GPUs asked for.
    pub elastic_share: f64,
    /// The share of jobs that fail by their own fault, at a moment drawn evenly over their work.
    pub failure_share: f64,
    /// The share of jobs that ask for a part of one GPU instead of the GPUs drawn.
    pub fraction_share: f64,
    /// Parts of a GPU, with weights.
    pub fractions: Vec<(f64, f64)>,
    /// The share of jobs of the opportunistic class.
    pub opportunistic_share: f64,
    /// The share of jobs of the guaranteed class, of those that are not opportunistic.
    pub guaranteed_share: f64,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            like: Like::Laws,
            jobs: 1000,
            seed: 0,
            arrival: Arrival::Load(0.85),
            daily: 0.0,
            duration: DurationLaw::Gavel,
            duration_min: Span::secs(1),
            duration_max: Span::secs(60 * 86_400),
            size: SizeLaw::Gavel,
            models: Vec::new(),
            tenants: 1,
            tenant_skew: 1.0,
            deadline_share: 0.0,
            // The three thirds of Gavel's workloads with deadlines.
            deadline_slack: vec![1.2, 2.0, 10.0],
            soft_share: 0.0,
            // The survey of Chronus (SoCC 2021): 3, 12, 21 and 22 of 100 users accept no delay, 5, 10 and 20 %. What
            // the other 42 accept is not printed; they are read as those who accept more, and given half as much
            // again as the deadline.
            soft_tolerance: vec![(0.0, 3.0), (0.05, 12.0), (0.1, 21.0), (0.2, 22.0), (0.5, 42.0)],
            priority_share: 0.0,
            elastic_share: 0.0,
            failure_share: 0.0,
            fraction_share: 0.0,
            fractions: vec![(0.25, 1.0), (0.5, 1.0)],
            opportunistic_share: 0.0,
            guaranteed_share: 0.0,
        }
    }
}

/// Whose generator draws the jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Like {
    /// Ours, by the laws of the spec.
    #[default]
    Laws,
    /// Gavel's for its continuous-single workload: jobs of one GPU.
    GavelSingle,
    /// Gavel's for its continuous-multiple and static-multiple workloads: jobs of 1, 2, 4 and 8 GPUs.
    GavelMultiple,
    /// ElasticFlow's for its Figure 10: elastic jobs of fourteen types with deadlines; their speeds must be known.
    Elasticflow,
    /// Ours for clusters that train large models: transformers divided in three dimensions, elastic in their copies,
    /// beside small measured jobs; some of both fail.
    Llm,
}

/// When jobs come. All but the last are Poisson.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// So many jobs an hour.
    PerHour(f64),
    /// So that this part of the cluster is asked for between the first submission and the last.
    Load(f64),
    /// All at time zero.
    AtOnce,
}

/// How long jobs run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum DurationLaw {
    /// Gavel: 60 s times ten to the power of U(1.5, 3) for four jobs of five, of U(3, 4) for the fifth.
    Gavel,
    /// Log-normal as in the public ElasticFlow traces: median 10,537 s, sigma 1.21.
    Elasticflow,
    /// Log-normal as in Philly: median 1,186 s, sigma 2.18.
    Philly,
    /// Log-normal as in Helios: median 206 s, mean 6,652 s.
    Helios,
    /// Log-normal.
    LogNormal {
        /// Half of all are shorter.
        median: Span,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
    /// Exponential.
    Exponential {
        /// The mean.
        mean: Span,
    },
    /// Pareto, with a heavy tail; bound it by `duration_max`.
    Pareto {
        /// The shortest.
        least: Span,
        /// Below 2 the variance is infinite, below 1 the mean too.
        shape: f64,
    },
    /// Even between two bounds.
    Uniform {
        /// The shortest.
        least: Span,
        /// The longest.
        most: Span,
    },
    /// All alike.
    Fixed {
        /// So long.
        length: Span,
    },
}

/// How many GPUs jobs ask for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizeLaw {
    /// Always one.
    One,
    /// Gavel: 1, 2, 4, 8 with 0.7, 0.1, 0.15, 0.05.
    Gavel,
    /// Powers of two up to 64, with the shares of the public ElasticFlow traces.
    Elasticflow,
    /// Numbers of GPUs with weights.
    Weights(Vec<(u32, f64)>),
}

impl Spec {
    /// Whether the numbers make sense.
    pub fn validate(&self) -> Result<(), InputError> {
        let share = |field: &str, value: f64, most: f64| match (0.0..=most).contains(&value) {
            true => Ok(()),
            false => Err(wrong(field, value, format!("a number from 0 to {most}"))),
        };
        share("daily", self.daily, 0.95)?;
        share("tenant_skew", self.tenant_skew, 10.0)?;
        share("deadline_share", self.deadline_share, 1.0)?;
        share("soft_share", self.soft_share, 1.0)?;
        share("priority_share", self.priority_share, 1.0)?;
        share("elastic_share", self.elastic_share, 1.0)?;
        share("failure_share", self.failure_share, 1.0)?;
        share("fraction_share", self.fraction_share, 1.0)?;
        share("opportunistic_share", self.opportunistic_share, 1.0)?;
        share("guaranteed_share", self.guaranteed_share, 1.0)?;
        if self.jobs > 100_000_000 {
            return Err(wrong("jobs", self.jobs, "at most 100000000".to_owned()));
        }
        if self.tenants > 1_000_000 {
            return Err(wrong("tenants", self.tenants, "at most 1000000".to_owned()));
        }
        if self.duration_min > self.duration_max || self.duration_min == Span::ZERO {
            let expected = format!("more than 0 and at most `duration_max`, {}", self.duration_max);
            return Err(wrong("duration_min", self.duration_min, expected));
        }
        let slack_ok = self.deadline_slack.iter().all(|slack| (0.0..=1e6).contains(slack));
        if !slack_ok || (self.deadline_slack.is_empty() && self.deadline_share > 0.0) {
            let found = format!("{:?}", self.deadline_slack);
            return Err(wrong("deadline_slack", found, "numbers from 0 to 1000000".to_owned()));
        }
        let range = 0.0..=1e6;
        let tolerance = &self.soft_tolerance;
        let numbers_ok =
            |&(delay, weight): &(f64, f64)| range.contains(&delay) && range.contains(&weight);
        let is_drawn = tolerance.iter().any(|(_, weight)| *weight > 0.0) || self.soft_share == 0.0;
        if !tolerance.iter().all(numbers_ok) || !is_drawn {
            let found = format!("{tolerance:?}");
            let expected = "pairs of a delay and its weight from 0 to 1000000, one weight above 0";
            return Err(wrong("soft_tolerance", found, expected.to_owned()));
        }
        self.validate_fractions()?;
        self.validate_laws()
    }

    fn validate_fractions(&self) -> Result<(), InputError> {
        let sound = |&(part, weight): &(f64, f64)| {
            (0.001..=1.0).contains(&part) && (0.0..=1e6).contains(&weight)
        };
        let is_drawn =
            self.fraction_share == 0.0 || self.fractions.iter().any(|(_, weight)| *weight > 0.0);
        if self.fractions.iter().all(sound) && is_drawn {
            return Ok(());
        }
        let expected = "parts of a GPU from 0.001 to 1 with weights from 0, one of them above 0";
        Err(wrong("fractions", format!("{:?}", self.fractions), expected.to_owned()))
    }

    /// Refuses laws that the generator of others would not look at.
    pub(crate) fn validate_like(&self) -> Result<(), InputError> {
        let known = Spec { like: self.like, jobs: self.jobs, seed: self.seed, ..Spec::default() };
        let fields = |spec: &Spec| match serde_json::to_value(spec) {
            Ok(serde_json::Value::Object(fields)) => fields,
            _ => serde_json::Map::new(),
        };
        let (given, known) = (fields(self), fields(&known));
        for (field, value) in given.iter().filter(|(field, _)| *field != "arrival") {
            if known.get(field) != Some(value) {
                let expected = "nothing: with `like`, only `jobs`, `seed` and arrivals can be told";
                return Err(wrong(field, value, expected.to_owned()));
            }
        }
        match self.arrival {
            Arrival::PerHour(_) | Arrival::AtOnce => Ok(()),
            Arrival::Load(load) => {
                let expected = "jobs an hour (`per-hour=5.6`) or `arrival=at-once` with `like`";
                Err(wrong("arrival", format!("load={load}"), expected.to_owned()))
            }
        }
    }

    fn validate_laws(&self) -> Result<(), InputError> {
        if let Arrival::PerHour(value) | Arrival::Load(value) = self.arrival
            && !(1e-9..=1e9).contains(&value)
        {
            return Err(wrong("arrival", value, "more than 0 and at most 1e9".to_owned()));
        }
        let factor = match self.duration {
            DurationLaw::LogNormal { sigma, .. } => Some(sigma),
            DurationLaw::Pareto { shape, .. } => Some(shape),
            _ => None,
        };
        if let Some(factor) = factor.filter(|factor| !(0.01..=20.0).contains(factor)) {
            return Err(wrong("duration", factor, "sigma or shape from 0.01 to 20".to_owned()));
        }
        if let DurationLaw::Uniform { least, most } = self.duration
            && least > most
        {
            return Err(wrong("duration", least, format!("`least` up to `most`, {most}")));
        }
        let weights = self.size.weights();
        let sound = |(gpus, weight): &(u32, f64)| *gpus > 0 && (0.0..=1e9).contains(weight);
        if !weights.iter().all(sound) || weights.iter().all(|(_, weight)| *weight == 0.0) {
            let found = format!("{weights:?}");
            return Err(wrong(
                "size",
                found,
                "GPUs from 1 with weights that are not all 0".to_owned(),
            ));
        }
        Ok(())
    }
}

fn wrong(field: &str, value: impl ToString, expected: String) -> InputError {
    InputError::wrong(0, field, &value.to_string(), expected)
}
