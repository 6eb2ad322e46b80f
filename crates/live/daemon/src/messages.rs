//! Reasons in words.

use jiff::Timestamp;
use trainyard_backend::SharingSeen;
use trainyard_types::{JobId, Reason, Span, Tenants, Time};

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
        Reason::OwnGpu { gpu, by, until } => {
            own_gpu(&format!("node {}", gpu.node.0), gpu.gpu, *by)
                + &format!("; it may go on elsewhere in {}", in_seconds(now, *until))
        }
        Reason::BackOff { until } => {
            format!("failed, and is tried again in {}", in_seconds(now, *until))
        }
        Reason::DeadlineLost { late } => {
            format!("would end {:.0} s after its deadline", late.as_secs_f64())
        }
        Reason::Undecided => "was just submitted and is looked at now".to_owned(),
    }
}

/// Where a job goes on that is put aside, and who is there.
pub fn own_gpu(node: &str, gpu: u8, by: Option<JobId>) -> String {
    let who = match by {
        Some(by) => format!("which job {} holds", by.0),
        None => "which is free and not granted to it".to_owned(),
    };
    format!("is put aside in host memory and goes on where it was: on GPU {gpu} of {node}, {who}")
}

/// What a job on a shared GPU is promised and gets, and for whom it waits. In whole percents and mebibytes, so that it
/// changes when something happens.
pub fn sharing(seen: &SharingSeen) -> String {
    let mib = |bytes: u64| bytes >> 20;
    let mut text = match seen.threads {
        Some(threads) => {
            format!("shares GPU {}: a client of MPS with {threads} % of its threads", seen.gpu)
        }
        None => format!(
            "shares GPU {}: promised {} to {} % of its time, used {} % of late",
            seen.gpu,
            seen.request / 10,
            seen.limit / 10,
            seen.usage_us / 100_000,
        ),
    };
    match seen.memory_cap {
        Some(cap) => {
            text.push_str(&format!(", {} of {} MiB", mib(seen.memory_used), mib(cap)));
        }
        None => text.push_str(&format!(", {} MiB", mib(seen.memory_used))),
    }
    if seen.memory_refusals > 0 {
        text.push_str(&format!(", {} allocations refused", seen.memory_refusals));
    }
    let most = seen.behind_us.iter().max_by_key(|(job, us)| (**us, std::cmp::Reverse(**job)));
    if let Some((other, us)) = most.filter(|(_, us)| **us >= 1_000_000) {
        text.push_str(&format!("; waited {} s behind job {}", us / 1_000_000, other.0));
    }
    if seen.limited_us >= 1_000_000 {
        text.push_str(&format!("; its own limit kept it for {} s", seen.limited_us / 1_000_000));
    }
    if seen.hellos == 0 && seen.threads.is_some() {
        text.push_str("; none of its programs said hello, so its cap is left to MPS");
    } else if seen.hellos == 0 {
        text.push_str("; none of its programs said hello, so nothing of this is enforced");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::sharing;
    use trainyard_backend::SharingSeen;
    use trainyard_types::{Attempt, JobId};

    #[test]
    fn a_job_on_a_shared_gpu_is_told_what_it_gets_and_behind_whom_it_waits() {
        let seen = SharingSeen {
            job: JobId(4),
            attempt: Attempt(1),
            gpu: 2,
            request: 300,
            limit: 1000,
            threads: None,
            usage_us: 2_950_000,
            held_us: 60_000_000,
            waited_us: 140_000_000,
            limited_us: 0,
            behind_us: [(JobId(7), 120_000_000), (JobId(9), 20_000_000)].into(),
            memory_used: 3 << 30,
            memory_peak: 5 << 30,
            memory_cap: Some(20 << 30),
            memory_refusals: 0,
            revocations: 0,
            hellos: 2,
        };
        assert_eq!(
            sharing(&seen),
            "shares GPU 2: promised 30 to 100 % of its time, used 29 % of late, 3072 of 20480 MiB; \
             waited 120 s behind job 7"
        );
        let client = SharingSeen { threads: Some(30), ..seen.clone() };
        let text = sharing(&client);
        assert!(
            text.starts_with("shares GPU 2: a client of MPS with 30 % of its threads"),
            "{text}"
        );
        let silent = SharingSeen { hellos: 0, behind_us: [].into(), limited_us: 5_000_000, ..seen };
        let text = sharing(&SharingSeen { memory_cap: None, memory_refusals: 3, ..silent });
        assert_eq!(
            text,
            "shares GPU 2: promised 30 to 100 % of its time, used 29 % of late, 3072 MiB, \
             3 allocations refused; its own limit kept it for 5 s; none of its programs said hello, so nothing of this \
             is enforced"
        );
    }
}
