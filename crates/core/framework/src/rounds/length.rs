//! How long a round is, given or chosen.
//!
//! The model: of n GPUs asked for there are m, so that a job runs in f = m / n of all rounds. With rounds of r seconds
//! a job that has T seconds to run starts T / r times and pays c seconds each time, which takes it T c / (r f) longer;
//! and when it is about to end it waits for its last turn, r (1 / f - 1) / 2 on average. Both together are least at
//! r = sqrt(2 T c / (1 - f)): costly restarts and long jobs ask for long rounds, short jobs and free restarts for short
//! ones, and where every job has its GPUs none is stopped at all.

use super::RateTable;
use crate::{JobRef, View};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use trainyard_types::{Config, GpuType, Span};

/// The shortest round that is chosen; the others are its doublings, so that a small change of jobs changes nothing.
const SHORTEST: Span = Span::secs(60);
/// Doublings up to the longest round that is chosen, of 64 minutes.
const DOUBLINGS_MAX: u32 = 6;

/// How long a round is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Length {
    /// Always the same.
    Every(Span),
    /// Such that restarts and late turns together cost least, chosen anew when the jobs changed.
    Auto,
}

impl Serialize for Length {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Length::Every(span) => span.serialize(serializer),
            Length::Auto => serializer.serialize_str("auto"),
        }
    }
}

impl<'de> Deserialize<'de> for Length {
    /// `auto`, or a length of time as everywhere.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Length, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Length;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "\"auto\", a length of time such as \"6m\", or a number of seconds")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Length, E> {
                match text {
                    "auto" => Ok(Length::Auto),
                    text => text.parse().map(Length::Every).map_err(E::custom),
                }
            }
            fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Length, E> {
                Span::deserialize(de::value::F64Deserializer::new(seconds)).map(Length::Every)
            }
            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Length, E> {
                self.visit_f64(seconds as f64)
            }
            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Length, E> {
                self.visit_f64(seconds as f64)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// The length that the model asks for, for the jobs of a table.
pub(super) fn best(table: &RateTable, view: &View<'_>) -> Span {
    let gpus = table.capacity.iter().map(|gpus| f64::from(*gpus)).sum();
    Length::of(table.jobs.iter().filter_map(|id| view.job(*id)), gpus, view)
}

impl Length {
    /// The length that the model asks for, for jobs that take turns on so many GPUs.
    pub fn of<'v>(jobs: impl Iterator<Item = JobRef<'v>>, gpus: f64, view: &View<'_>) -> Span {
        let on_first_kind = |job: JobRef<'_>| {
            let mut shapes = view.state().shapes.iter();
            shapes.find(|(kind, _)| job.spec.want.accepts(*kind)).copied()
        };
        let jobs: Vec<(JobRef<'v>, (GpuType, u32))> =
            jobs.filter_map(|job| Some((job, on_first_kind(job)?))).collect();
        if jobs.is_empty() {
            return SHORTEST;
        }
        let asked: f64 = jobs.iter().map(|(job, _)| f64::from(job.spec.want.gpus)).sum();
        if gpus / asked >= 1.0 {
            // No job waits, however long jobs are and whatever restarts cost.
            return SHORTEST.times(1 << DOUBLINGS_MAX);
        }
        let (mut left, mut cost) = (0.0, 0.0);
        for &(job, (kind, per_node)) in &jobs {
            let config = Config::packed(kind, job.spec.want.gpus, per_node);
            let change = view.preemption_where_it_is(job, &config);
            cost += (change.save + change.start).as_secs_f64();
            // A job whose length is not known is best taken to be half done.
            let lived = view.now.since(job.spec.submitted);
            left += view.time_left(job).unwrap_or(lived).as_secs_f64();
        }
        let count = jobs.len() as f64;
        of_model(left / count, cost / count, gpus / asked)
    }
}

/// The doubling nearest to what the model says.
fn of_model(left: f64, cost: f64, served: f64) -> Span {
    let late = 1.0 - served;
    let longest = f64::from(DOUBLINGS_MAX);
    if late <= 0.0 {
        return SHORTEST.times(1 << DOUBLINGS_MAX);
    }
    let seconds = libm::sqrt(2.0 * left * cost / late);
    let doublings = libm::round(libm::log2(seconds / SHORTEST.as_secs_f64()));
    // No time left or no cost: the logarithm of zero is below every bound, and of nothing by nothing it is no number.
    let doublings = if doublings.is_nan() { 0.0 } else { doublings.clamp(0.0, longest) };
    SHORTEST.times(1 << doublings as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costly_restarts_and_long_jobs_ask_for_long_rounds() {
        let minutes = |left, cost, served| of_model(left, cost, served).as_secs_f64() / 60.0;
        assert_eq!(minutes(3600.0, 0.0, 0.5), 1.0, "nothing is lost by a switch");
        assert_eq!(minutes(3600.0, 10.0, 0.5), 8.0, "sqrt(2 x 3600 x 10 / 0.5) is 379 s");
        assert_eq!(minutes(36_000.0, 60.0, 0.5), 64.0);
        assert_eq!(minutes(300.0, 10.0, 0.5), 2.0);
        assert_eq!(minutes(3600.0, 10.0, 1.0), 64.0, "no job waits");
        assert_eq!(minutes(0.0, 0.0, 0.5), 1.0);
    }

    #[test]
    fn a_length_is_a_word_or_a_time() {
        let read = |text: &str| {
            toml::from_str::<toml::Table>(text).unwrap()["x"].clone().try_into::<Length>()
        };
        assert_eq!(read("x = \"auto\""), Ok(Length::Auto));
        assert_eq!(read("x = \"6m\""), Ok(Length::Every(Span::secs(360))));
        assert_eq!(read("x = 90"), Ok(Length::Every(Span::secs(90))));
        assert!(read("x = \"now\"").is_err() && read("x = -1").is_err());
    }
}
