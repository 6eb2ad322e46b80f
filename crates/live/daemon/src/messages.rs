//! Reasons in words.

use jiff::Timestamp;
use trainyard_types::{Reason, Span, Tenants, Time};

/// A moment in seconds from now, for sentences.
fn in_seconds(now: Time, then: Time) -> String {
    let seconds = then.since(now).as_secs_f64();
    if seconds < 120.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

/// GPUs that no job has and no job can get.
pub fn unaccounted(gpus: u32) -> String {
    let (noun, they) = if gpus == 1 { ("GPU", "it") } else { ("GPUs", "them") };
    format!(
        "{gpus} {noun} set aside: Slurm counts {they} as used, and no job has {they}; `scontrol reconfigure` frees {they}"
    )
}

/// A length of time with as many digits as matter.
pub fn rounded(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 10.0 => format!("{seconds:.1} s"),
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds => format!("{:.0} min", seconds / 60.0),
    }
}

/// What is told of a job that hangs.
pub fn hang(silent: Span, usual: Span, rank: Option<u32>) -> String {
    let seconds = |span: Span| rounded(span.as_secs_f64());
    let rank = rank.map_or_else(String::new, |rank| format!("; rank {rank} is behind the others"));
    format!("no step for {}, usually one told every {}{rank}", seconds(silent), seconds(usual))
}

/// A moment of the wall clock in UTC, for sentences: `2026-11-20T08:00:00Z`.
pub fn moment(unix_seconds: f64) -> String {
    let at = Timestamp::from_second(unix_seconds as i64);
    at.map_or_else(|_| format!("{unix_seconds:.0}"), |at| at.to_string())
}

/// One sentence that says why a job does not run.
pub fn sentence(reason: &Reason, now: Time, tenants: &Tenants) -> String {
    match reason {
        Reason::NoRoom { need, free } => {
            let word = if *need == 1 { "GPU" } else { "GPUs" };
            match free {
                0 => format!("needs {need} {word}, and none that it could use is free"),
                1 => format!("needs {need} {word}, and 1 that it could use is free"),
                free => format!("needs {need} {word}, and {free} that it could use are free"),
            }
        }
        Reason::Fragmented { need, free } => {
            format!("needs {need} GPUs together; {free} are free, but not together")
        }
        Reason::Uneven { need, free } => format!(
            "needs {need} GPUs; {free} are free, but not in a shape that can be launched here: the same number on each \
             node"
        ),
        Reason::Outranked { by } => format!("job {} comes first", by.0),
        Reason::Reserved { by, until } => {
            let when = in_seconds(now, *until);
            format!("GPUs are kept free for job {}, expected to start in {when}", by.0)
        }
        Reason::Quota { tenant, ceiling, used } => {
            let name = &tenants.get(*tenant).name;
            format!("`{name}` uses {used} of the {ceiling} GPUs it may use at once")
        }
        Reason::Overload { demand, allowed } => {
            format!("jobs that ask for {demand} GPUs are admitted, and the policy allows {allowed}")
        }
        Reason::FirstRuns { used, allowed } => {
            format!(
                "new jobs run on {used} of {allowed} GPUs for first runs, and it is one of the next"
            )
        }
        Reason::NoSpeed => "no usable speed is known for it on any type of GPU".to_owned(),
        Reason::NoBatch { least, most } => {
            format!("needs a batch of at least {least}, and its limits allow {most} at most")
        }
        Reason::NeverFits { need, most } => {
            format!("needs {need} GPUs, and there could never be more than {most} for it")
        }
        Reason::After { job } => format!("waits until job {} has finished", job.0),
        Reason::NotBefore { time } => {
            format!("may not start before its begin time, in {}", in_seconds(now, *time))
        }
        Reason::Window { node, from, until, .. } => {
            let (when, long) = (in_seconds(now, *from), in_seconds(*from, *until));
            format!("node {} is under maintenance or reserved in {when}, for {long}", node.0)
        }
        Reason::HeldByUser => "is held; `trainyard release` lets it go on".to_owned(),
        Reason::ArrayFull => "as many jobs of its array run as may at once".to_owned(),
        Reason::Freeing { by } => format!("is next, as soon as job {} has given its GPUs up", by.0),
        Reason::BackOff { until } => {
            format!("failed, and is tried again in {}", in_seconds(now, *until))
        }
        Reason::DeadlineLost { late } => {
            format!("would end {:.0} s after its deadline", late.as_secs_f64())
        }
        Reason::Undecided => "was just submitted and is looked at now".to_owned(),
    }
}
