//! Recorded fractions of time, replayed through our rounds, give the recorded rounds of Gavel's own simulator: the same
//! jobs on the same GPUs at the same moments, and the same completion times.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use trainyard_framework::{
    Choice, Cx, JobRef, Needs, Offer, Pipeline, Policy, PolicyError, RateTable, RoundSettings,
    Rounds, Shares, TimeShare, View,
};
use trainyard_policies::place::FewestNodes;
use trainyard_sim::{Outcome, Quiet, Semantics, simulate};
use trainyard_testkit::gavel::{Call, KINDS, PairRates, Recording, jobs, numbers, shared};
use trainyard_types::{Cluster, JobId};
use trainyard_workload::Workload;

/// How far a moment may be off, in seconds; the issue allows a thousandth.
const OFF_MAX: f64 = 1e-5;

/// Says what was recorded, call by call.
struct Replay {
    calls: std::vec::IntoIter<Call>,
    pairs: Option<PairRates>,
}

impl Replay {
    fn new(recording: &mut Recording) -> Replay {
        let calls = std::mem::take(&mut recording.calls).into_iter();
        let pairs = recording.is_packed().then(|| recording.pair_rates().expect("speeds are read"));
        Replay { calls, pairs }
    }
}

impl TimeShare for Replay {
    fn table(&mut self, view: &View<'_>, offer: &Offer<'_>) -> RateTable {
        let mut table = RateTable::singles(view, offer);
        if let Some(rates) = &self.pairs {
            add_pairs(&mut table, view, rates);
        }
        table
    }

    fn shares(
        &mut self,
        table: &RateTable,
        view: &View<'_>,
        _cx: &mut Cx,
    ) -> Result<Shares, PolicyError> {
        let call = self.calls.next().expect("no more calls than were recorded");
        let now = view.now.as_secs_f64();
        assert!((call.t - now).abs() < OFF_MAX, "called at {now} instead of {}", call.t);
        for (job, asked) in &call.jobs {
            let job = view.job(jobs(job)[0]).expect("it is not over");
            let left = view.work_left(job).expect("sizes are shown").0;
            assert_eq!(left, asked.steps_left, "steps left of {} at {now}", job.id());
        }
        let recorded: BTreeMap<Vec<JobId>, &BTreeMap<String, f64>> =
            call.alloc.iter().map(|(text, by_kind)| (jobs(text), by_kind)).collect();
        let share = |choice: &Choice| {
            let kind = KINDS[table.kinds[choice.kind()].index()];
            recorded.get(choice.jobs.as_slice()).map_or(0.0, |by_kind| by_kind[kind])
        };
        Ok(Shares::from(table.choices.iter().map(share).collect::<Vec<f64>>()))
    }
}

/// All pairs, as the original has them: also those that were never measured, at no speed.
fn add_pairs(table: &mut RateTable, view: &View<'_>, rates: &PairRates) {
    let all: Vec<JobRef<'_>> = table.jobs.iter().filter_map(|job| view.job(*job)).collect();
    for (index, b) in all.iter().enumerate() {
        for a in &all[..index] {
            for (number, kind) in table.kinds.iter().enumerate() {
                table.choices.push(Choice {
                    jobs: [a.id(), b.id()].into_iter().collect(),
                    uses: [(number as u16, b.spec.want.gpus)].into_iter().collect(),
                    nodes_max: 0,
                    rates: rates.get(KINDS[kind.index()], a.id(), b.id()).into_iter().collect(),
                });
            }
        }
    }
}

/// Jobs together on GPUs by number, at a moment.
type Seen = (f64, BTreeMap<Vec<JobId>, Vec<u32>>);

/// Takes down what a policy plans.
struct Watched<P> {
    inner: P,
    cluster: Arc<Cluster>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl<P: Policy> Policy for Watched<P> {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        self.inner.allocate(view, offer, cx)?;
        let mut by_place: BTreeMap<Vec<u32>, Vec<JobId>> = BTreeMap::new();
        for job in view.waiting().chain(view.granted()) {
            if let Some(plan) = offer.plan(job.id()) {
                by_place.entry(numbers(&plan.placement, &self.cluster)).or_default().push(job.id());
            }
        }
        let mut together: BTreeMap<Vec<JobId>, Vec<u32>> = BTreeMap::new();
        for (place, mut jobs) in by_place {
            jobs.sort();
            together.insert(jobs, place);
        }
        if !together.is_empty() {
            self.seen.lock().expect("one thread").push((view.now.as_secs_f64(), together));
        }
        Ok(())
    }
}

fn replay(recording: &mut Recording) -> (Vec<Seen>, Workload, Outcome) {
    let settings = RoundSettings {
        shuffle: recording.is_blind().then_some(0),
        fill: !recording.is_fifo(),
        ..RoundSettings::gavel()
    };
    let cluster = Arc::new(recording.cluster());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let policy = Watched {
        inner: Rounds::new(Replay::new(recording), settings),
        cluster: Arc::clone(&cluster),
        seen: Arc::clone(&seen),
    };
    let pipeline = Pipeline::new(policy, FewestNodes, Needs { rates: true, ..Needs::ESTIMATE });
    let workload = recording.workload().expect("the trace is read");
    let options = Semantics::Gavel.options();
    let outcome = simulate(&workload, &cluster, pipeline, &options, &mut Quiet);
    let seen = std::mem::take(&mut *seen.lock().expect("one thread"));
    (seen, workload, outcome)
}

/// The first round that differs, in words.
fn difference(recording: &Recording, seen: &[Seen]) -> Option<String> {
    let recorded: Vec<Seen> = (recording.rounds.iter())
        .filter(|round| !round.assign.is_empty())
        .map(|round| {
            let places = round.assign.iter().map(|(text, (_, gpus))| {
                let mut gpus = gpus.clone();
                gpus.sort_unstable();
                (jobs(text), gpus)
            });
            (round.t, places.collect())
        })
        .collect();
    for (number, (want, got)) in recorded.iter().zip(seen).enumerate() {
        if (want.0 - got.0).abs() > OFF_MAX {
            return Some(format!("round {number} at {} instead of {}", got.0, want.0));
        }
        if want.1 != got.1 {
            let jobs = want.1.keys().chain(got.1.keys());
            let odd = jobs.filter(|jobs| want.1.get(*jobs) != got.1.get(*jobs));
            let odd = odd.map(|jobs| {
                format!("{jobs:?}: {:?} instead of {:?}", got.1.get(jobs), want.1.get(jobs))
            });
            return Some(format!("round {number}: {}", odd.collect::<Vec<_>>().join("; ")));
        }
    }
    (recorded.len() != seen.len())
        .then(|| format!("{} rounds instead of {}", seen.len(), recorded.len()))
}

fn jct_off(recording: &Recording, workload: &Workload, outcome: &Outcome) -> f64 {
    let off = |(job, jct): (&String, &f64)| {
        let job = jobs(job)[0];
        let ours = outcome.finished().find(|one| one.job == job);
        ours.map_or(f64::INFINITY, |one| {
            let submitted = workload.jobs[job.index()].job.submitted.as_secs_f64();
            (one.ended.as_secs_f64() - submitted - jct).abs()
        })
    };
    recording.about.jct_s.iter().map(off).fold(0.0, f64::max)
}

#[test]
fn every_recorded_run_comes_out_round_by_round() {
    let Some(shared) = shared() else { return };
    let mut wrong = Vec::new();
    let mut table = format!("{:<52} {:>6} {:>14}  equal\n", "run", "rounds", "worst JCT off");
    for mut recording in Recording::all(&shared).expect("the recordings are read") {
        let (seen, workload, outcome) = replay(&mut recording);
        let difference = difference(&recording, &seen);
        let off = jct_off(&recording, &workload, &outcome);
        let stats = &outcome.stats;
        let bad = stats.faults + stats.policy_panics + stats.policy_errors;
        let equal = difference.is_none() && off <= OFF_MAX && bad == 0;
        let mark = if equal { "yes" } else { "NO" };
        table += &format!("{:<52} {:>6} {:>12.1e} s  {mark}\n", recording.name, seen.len(), off);
        if !equal {
            wrong.push(format!("{}: {difference:?}, off by {off} s, {stats:?}", recording.name));
        }
    }
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{table}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_recorded_shuffle_of_types_is_ours() {
    let Some(shared) = shared() else { return };
    let text = std::fs::read_to_string(shared.join("golden/gavel/worker_type_shuffle_seed0.csv"));
    let text = text.expect("the recorded shuffle is read");
    let mut shuffler = trainyard_framework::Shuffler::new(0);
    for row in text.lines().skip(1) {
        let mut kinds = ["v100", "p100", "k80"];
        shuffler.shuffle(&mut kinds);
        let recorded: Vec<&str> = row.split(',').skip(1).collect();
        assert_eq!(kinds.as_slice(), recorded, "row {row}");
    }
}
