//! Space sharing by trial and error: under load random pairs share GPUs, and those that gain stay together. Gandiva's
//! packing as Gavel's authors compare with it.

use super::paired::kept;
use super::{NEEDS, class};
use crate::prelude::*;
use rand_chacha::rand_core::Rng;
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;
use trainyard_framework::{Choice, Mechanism, RateTable, RoundSettings, Rounds, Shares, TimeShare};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "gavel-gandiva",
    about: "Equal time for all; when GPUs are short, random pairs share them, and those that gain stay together.",
    paper: "Xiao et al., Gandiva, OSDI 2018, as compared with in Narayanan et al., Gavel, OSDI 2020, section 7",
    needs: Needs { shared_rates: true, ..NEEDS },
    class: class(Objective::Fairness).by_setting(""),
    settings: &[
        ("round", "how long a round is: at its start those furthest behind their share run"),
        ("rounds", "`ours`, or `gavel`: the rules of the authors' simulator"),
        ("reset", "Gavel's rules only: the least time between two computations of shares"),
        (
            "keep",
            "a pair stays together if the parts of their speeds that both keep add up to this, over all types",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    round: Span,
    rounds: Mechanism,
    reset: Span,
    keep: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            round: Span::secs(360),
            rounds: Mechanism::Ours,
            reset: Span::secs(1920),
            keep: 1.0,
        }
    }
}

/// O(n log n + n k) for each computation of shares.
struct RandomPairs {
    keep: f64,
    /// Which job shares with which, both ways.
    partner: BTreeMap<JobId, JobId>,
}

/// Jobs that run together: one, or two.
type Group = SmallVec<[JobId; 2]>;

impl RandomPairs {
    /// Parts the jobs that lose by sharing, and those whose partner is gone.
    fn part(&mut self, table: &RateTable, view: &View<'_>) {
        let keep = self.keep;
        let stays = |job: JobId, other: JobId| {
            let both = table.position(job).is_some() && table.position(other).is_some();
            both && worth(table, view, [job, other]) >= keep
        };
        self.partner.retain(|job, other| stays(*job, *other));
    }

    /// Pairs jobs of one size at random until all fit, or no job is left to pair.
    fn pair(&mut self, table: &RateTable, view: &View<'_>, cx: &Cx) {
        let size = |job: JobId| view.job(job).map_or(0, |job| job.spec.want.gpus);
        let whole = |job: JobId| view.job(job).is_some_and(|job| job.spec.want.permille == 1000);
        let gpus: u64 = table.capacity.iter().map(|gpus| u64::from(*gpus)).sum();
        let mut demand: u64 = groups(table, &self.partner).map(|one| u64::from(size(one[0]))).sum();
        let single = |job: &JobId| !self.partner.contains_key(job) && whole(*job);
        let mut free: Vec<JobId> = table.jobs.iter().copied().filter(single).collect();
        let mut rng = cx.rng();
        for last in (1..free.len()).rev() {
            free.swap(last, (rng.next_u64() % (last as u64 + 1)) as usize);
        }
        let mut waiting: BTreeMap<u32, JobId> = BTreeMap::new();
        for job in free {
            if demand <= gpus {
                break;
            }
            match waiting.remove(&size(job)) {
                Some(other) => {
                    self.partner.insert(job, other);
                    self.partner.insert(other, job);
                    demand -= u64::from(size(job));
                }
                None => {
                    waiting.insert(size(job), job);
                }
            }
        }
    }
}

/// Pairs and jobs that are alone, by the lower id.
fn groups<'a>(
    table: &'a RateTable,
    partner: &'a BTreeMap<JobId, JobId>,
) -> impl Iterator<Item = Group> + 'a {
    table.jobs.iter().filter_map(|job| match partner.get(job) {
        Some(other) if other < job => None,
        Some(other) => Some(smallvec![*job, *other]),
        None => Some(smallvec![*job]),
    })
}

/// The choice of a job alone on a type. A table of single choices has one for each job and type, in this order.
fn single(table: &RateTable, job: JobId, kind: usize) -> Option<usize> {
    let at = table.position(job)? * table.kinds.len() + kind;
    let choice = table.choices.get(at)?;
    (choice.jobs[0] == job && choice.kind() == kind).then_some(at)
}

/// The ways of a group: on each type where all of it can run.
fn ways(table: &RateTable, view: &View<'_>, group: &[JobId]) -> Vec<Choice> {
    let alone = |job: JobId, kind: usize| single(table, job, kind).map(|at| &table.choices[at]);
    let mut found = Vec::new();
    for kind in 0..table.kinds.len() {
        let mut rates: SmallVec<[f64; 2]> = SmallVec::new();
        for (at, job) in group.iter().enumerate() {
            let rate = alone(*job, kind).map_or(0.0, |choice| choice.rates[0]);
            let others = group.iter().enumerate().filter(|(other, _)| *other != at);
            let kept = others.map(|(_, other)| match (view.job(*job), view.job(*other)) {
                (Some(job), Some(other)) => kept((job, other), view.state().shapes[kind], view),
                _ => 0.0,
            });
            rates.push(rate * kept.product::<f64>());
        }
        let Some(first) = alone(group[0], kind) else { continue };
        if rates.iter().all(|rate| *rate > 0.0) {
            found.push(Choice { jobs: group.into(), rates, ..first.clone() });
        }
    }
    found
}

/// What two jobs keep of their speeds beside each other, added up, in the mean over the types on which both run.
fn worth(table: &RateTable, view: &View<'_>, pair: [JobId; 2]) -> f64 {
    let shapes = &view.state().shapes;
    let (Some(one), Some(other)) = (view.job(pair[0]), view.job(pair[1])) else { return 0.0 };
    let together = ways(table, view, &pair);
    let kept = |choice: &Choice| {
        let shape = shapes[choice.kind()];
        kept((one, other), shape, view) + kept((other, one), shape, view)
    };
    together.iter().map(kept).sum::<f64>() / together.len().max(1) as f64
}

impl TimeShare for RandomPairs {
    fn shares(
        &mut self,
        table: &RateTable,
        view: &View<'_>,
        cx: &mut Cx,
    ) -> Result<Shares, PolicyError> {
        self.part(table, view);
        self.pair(table, view, cx);
        let mut shares = Shares::from(vec![0.0; table.choices.len()]);
        let number = groups(table, &self.partner).count().max(1) as f64;
        for group in groups(table, &self.partner) {
            let mut ways = ways(table, view, &group);
            if ways.is_empty() {
                // They do not fit together at all: each for itself until they are parted.
                ways = group.iter().flat_map(|job| self::ways(table, view, &[*job])).collect();
            }
            let each = |choice: &Choice| {
                let gpus = f64::from(table.capacity[choice.kind()]);
                gpus / (number * f64::from(choice.gpus().max(1)))
            };
            let whole = ways.iter().map(each).sum::<f64>().max(1.0);
            for choice in ways {
                let share = each(&choice) / whole;
                match choice.jobs.len() {
                    1 => {
                        if let Some(at) = single(table, choice.jobs[0], choice.kind()) {
                            shares.of[at] = share;
                        }
                    }
                    _ => shares.more.push((choice, share)),
                }
            }
        }
        Ok(shares)
    }

    fn forget(&mut self) {
        self.partner.clear();
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { round, rounds, reset, keep } = raw.read(ENTRY.name)?;
    if round < Span::secs(1) {
        return Err(ENTRY.bad_value("round", round, "at least a second"));
    }
    if !(0.0..=2.0).contains(&keep) {
        return Err(ENTRY.bad_value("keep", keep, "a sum of two parts, from 0 to 2"));
    }
    let share = RandomPairs { keep, partner: BTreeMap::new() };
    let settings =
        RoundSettings { mechanism: rounds, reset_min: reset, ..RoundSettings::every(round) };
    Ok(Pipeline::new(Rounds::new(share, settings), FewestNodes, ENTRY.needs))
}
