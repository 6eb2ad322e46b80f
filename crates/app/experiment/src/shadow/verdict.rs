//! What each policy would have gained, how sure that is, and what was assumed.

use super::lengths::Basis;
use super::rebuilt::{Counts, Rebuilt};
use serde::Serialize;
use trainyard_report::Run;
use trainyard_report::units::span_text;
use trainyard_sim::Outcome;
use trainyard_slurm::{History, Inventory};

/// Below this many jobs nothing is concluded.
const JOBS_MIN: usize = 20;
/// The quantile of the normal distribution for an interval of 95 %.
const SIGMAS: f64 = 1.96;

/// One policy against reality.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShadowVerdict {
    /// The policy.
    pub policy: String,
    /// Mean completion time of reality over that of the policy: above 1 is a gain.
    pub gain: f64,
    /// Where the gain lies, by the spread over jobs and by what the length of unfinished jobs may be.
    pub gain_between: (f64, f64),
    /// In words.
    pub says: Says,
}

/// What can be concluded.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Says {
    /// Jobs would have been done sooner.
    Better,
    /// Jobs would have been done later.
    Worse,
    /// The difference may be chance, or due to jobs whose length is not known.
    Open,
    /// Too few jobs ended.
    TooFew,
}

impl Says {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Says::Better => "better",
            Says::Worse => "worse",
            Says::Open => "no significant difference",
            Says::TooFew => "too few jobs",
        }
    }
}

impl ShadowVerdict {
    /// By a run in which unfinished jobs are as long as expected.
    pub fn new(run: &Run, rebuilt: &Rebuilt, both: (&Outcome, &Outcome)) -> ShadowVerdict {
        let (gain, gain_between) = gain(rebuilt, both);
        let mut verdict =
            ShadowVerdict { policy: run.policy.clone(), gain, gain_between, says: Says::TooFew };
        verdict.conclude(both.0.jobs.len());
        verdict
    }

    /// Takes in a run in which unfinished jobs are longer or shorter.
    pub fn widen(&mut self, rebuilt: &Rebuilt, both: (&Outcome, &Outcome)) {
        let (_, (low, high)) = gain(rebuilt, both);
        self.gain_between = (self.gain_between.0.min(low), self.gain_between.1.max(high));
        self.conclude(both.0.jobs.len());
    }

    fn conclude(&mut self, jobs: usize) {
        self.says = match self.gain_between {
            _ if jobs < JOBS_MIN => Says::TooFew,
            (low, _) if low > 1.0 => Says::Better,
            (_, high) if high < 1.0 => Says::Worse,
            _ => Says::Open,
        };
    }
}

/// The gain, and its interval by the paired differences of jobs.
fn gain(rebuilt: &Rebuilt, (real, other): (&Outcome, &Outcome)) -> (f64, (f64, f64)) {
    let submitted = |index: usize| rebuilt.given.workload.jobs[index].job.submitted;
    let jct =
        |one: &trainyard_sim::JobOutcome| one.ended.since(submitted(one.job.index())).as_secs_f64();
    // Both lists are by id and over the same jobs, but for those that a policy left unfinished.
    let mut others = other.jobs.iter().peekable();
    let mut pairs: Vec<(f64, f64)> = Vec::new();
    for one in &real.jobs {
        while others.next_if(|other| other.job < one.job).is_some() {}
        if let Some(other) = others.next_if(|other| other.job == one.job) {
            pairs.push((jct(one), jct(other)));
        }
    }
    let count = pairs.len().max(1) as f64;
    let mean = pairs.iter().map(|pair| pair.0).sum::<f64>() / count;
    let saved = pairs.iter().map(|pair| pair.0 - pair.1).sum::<f64>() / count;
    let spread = pairs.iter().map(|pair| (pair.0 - pair.1 - saved).powi(2)).sum::<f64>();
    let error = SIGMAS * (spread / (count - 1.0).max(1.0) / count).sqrt();
    // A saving of the whole time would be an infinite gain.
    let factor = |saved: f64| mean / (mean - saved).max(mean / 1000.0).max(1e-3);
    (factor(saved), (factor(saved - error), factor(saved + error)))
}

/// What must be known to judge the figures.
pub fn notes(
    history: &History,
    inventory: &Inventory,
    (counts, keeps_running): (&Counts, bool),
) -> Vec<String> {
    let span = span_text((history.to - history.from) as f64);
    let widest = span_text(history.widest as f64);
    let mut notes = vec![format!(
        "watched for {span}, {} looks, at most {widest} apart; Slurm did not answer {} times",
        history.looks, history.away
    )];
    if (counts.measured as usize) < JOBS_MIN {
        notes.push(format!("{} jobs are too few to conclude from; watch on", counts.measured));
    }
    notes.push(format!(
        "{} jobs ran when the watch began: they come first everywhere, with the work they had left",
        counts.ran_before
    ));
    notes.extend(not_ended(counts));
    notes.extend(taken_otherwise(history, counts));
    let out = history.out_at_times.intersection(&history.in_at_times).count();
    if out > 0 {
        notes.push(format!("{out} nodes were out of service for a part of the watch; the simulations have them throughout"));
    }
    if inventory.cluster.kinds.len() > 1 {
        notes.push(
            "a job is taken to be as fast on every type of GPU it accepts: Slurm knows no speeds"
                .to_owned(),
        );
    }
    notes.push(match keeps_running {
        true => "no job is stopped once it runs".to_owned(),
        false => "policies may stop and resume jobs at the usual costs, which needs checkpoints; --keep-running forbids it".to_owned(),
    });
    notes.push("policies that know sizes are told what could be known at submission: the user's own past, or else the time limit".to_owned());
    notes.push(
        "jobs of one queue depend on each other, so the interval is rather too narrow".to_owned(),
    );
    notes.extend(inventory.warnings.iter().cloned());
    notes
}

/// Jobs that had not ended when the watch did, and how long they are taken to be.
fn not_ended(counts: &Counts) -> Option<String> {
    let open = counts.running + counts.waiting;
    let from = counts.bases.iter().map(|(basis, count)| format!("{count} {}", named(*basis)));
    (open > 0).then(|| {
        format!(
            "{open} jobs had not ended ({} ran, {} waited): they are load and not measured; their length is estimated: {}; \
             the interval also holds if what is left of them is half or double",
            counts.running,
            counts.waiting,
            from.collect::<Vec<_>>().join(", ")
        )
    })
}

/// Jobs that are left out, or not taken as they are, by why.
fn taken_otherwise(history: &History, counts: &Counts) -> impl Iterator<Item = String> {
    let all = [
        (counts.without_gpus, "asked for no GPU and are left out"),
        (counts.never_ran, "went away or were held back without having run and are left out"),
        (counts.too_large, "asked for more than these nodes have and are left out"),
        (
            counts.requeued,
            "were started more than once; all the time they ran counts as their work",
        ),
        (
            counts.shorter_than_a_start,
            "were shorter than a start is taken to cost, so policies look worse than they are: see --costs",
        ),
        (
            history.vanished,
            "were gone before their end was seen; the next look is taken for it: look more often",
        ),
    ];
    all.into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} jobs {what}"))
}

fn named(basis: Basis) -> &'static str {
    match basis {
        Basis::OwnPast => "by their users' own past",
        Basis::Limit => "by time limit",
        Basis::AllPast => "by all users' past",
        Basis::Again => "as long again as they have run",
    }
}
