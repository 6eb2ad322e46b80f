//! Which part of a lane's time each of its jobs has.

use super::lanes::{Lanes, Resident};
use crate::prelude::*;
use trainyard_types::{Config, GpuAt, Phase};

/// Whose iteration is next in a lane.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    /// The job with the least time left.
    Srtf,
    /// The job that has had the least memory times time since a job last came.
    Fair,
    /// Each in turn.
    Pack,
    /// The job that arrived first.
    Fifo,
}

/// How often a start that takes longer than expected is looked at.
const LATE: Span = Span::secs(1);

/// A lane's time as a whole, in thousandths.
const WHOLE: f64 = 1000.0;

/// The part of its lane's time that each job of a GPU has, in thousandths, in the order of the jobs.
///
/// What a lane does in the long run: an order by time left or arrival serves one job alone, which then has all of it.
/// The least memory times time is the same for all as long as all have iterations to give, so that time goes by the
/// inverse of memory. In turn, time goes by the length of iterations.
pub(super) fn turns(order: Order, lanes: &Lanes, gpu: GpuAt, view: &View<'_>) -> Vec<u16> {
    let runs = |one: &Resident| starts_at(one.job, gpu, view).is_none();
    // A job that is still being started has no iteration to give, and the lane does not wait for it.
    let takes_part = |one: &Resident| runs(one) || !lanes.members(one.lane).any(runs);
    let weight = |one: &Resident| match order {
        _ if !takes_part(one) => 0.0,
        Order::Srtf | Order::Fifo => {
            f64::from(u8::from(leads(order, one, lanes, (view, &takes_part))))
        }
        Order::Fair => 1.0 / (one.footprint.whole_mib() as f64).max(1.0),
        Order::Pack => iteration_seconds(one.job, gpu, view),
    };
    let all = lanes.residents();
    let weights: Vec<f64> = all.iter().map(weight).collect();
    let part = |(one, weight): (&Resident, &f64)| {
        let of_lane = all.iter().zip(&weights).filter(|(other, _)| other.lane == one.lane);
        let sum: f64 = of_lane.map(|(_, weight)| weight).sum();
        (weight / sum * WHOLE) as u16
    };
    all.iter().zip(&weights).map(part).collect()
}

/// When a job that is being started is expected to run, so that turns are dealt anew; nothing for one that runs or needs
/// no time to start. A start that takes longer than expected is looked at again and again.
pub(super) fn starts_at(job: JobId, gpu: GpuAt, view: &View<'_>) -> Option<Time> {
    let job = view.job(job).filter(|job| job.state.phase != Phase::Running)?;
    let config = Config::packed(view.cluster().node(gpu.node).kind, 1, 1);
    let start = view.change(job, None, Some(&config)).start;
    let launched = job.state.last_start.filter(|_| job.state.phase == Phase::Starting);
    let expected = launched.unwrap_or(view.now) + start;
    match expected > view.now {
        true => Some(expected),
        false => launched.map(|_| view.now + LATE),
    }
}

/// Whether a job is the one that its lane serves.
fn leads(
    order: Order,
    one: &Resident,
    lanes: &Lanes,
    (view, takes_part): (&View<'_>, &dyn Fn(&Resident) -> bool),
) -> bool {
    let key = |id: JobId| {
        let time = view.job(id).map(|job| match order {
            Order::Srtf => view.time_left(job).unwrap_or(Span::MAX).0,
            Order::Fair | Order::Pack | Order::Fifo => job.spec.submitted.0,
        });
        (time.unwrap_or(u64::MAX), id)
    };
    let first =
        lanes.members(one.lane).filter(|other| takes_part(other)).map(|other| key(other.job)).min();
    first.is_some_and(|first| first.1 == one.job)
}

/// How long an iteration takes alone; as long as any other where that is not known.
fn iteration_seconds(job: JobId, gpu: GpuAt, view: &View<'_>) -> f64 {
    let config = Config::packed(view.cluster().node(gpu.node).kind, 1, 1);
    let rate = view.job(job).and_then(|job| view.rate(job, &config));
    rate.map_or(1.0, |rate| 1.0 / rate.0.max(1e-9))
}
