//! AFS-L: GPUs one by one to whichever of two jobs makes both end sooner, with lengths as estimated.

use crate::afs::{NextStep, divide, second_wins, serve};
use crate::ladder::{
    Charge, Contest, Ladder, Player, all_jobs, change_seconds, largest_first, packed, sizes,
};
use crate::prelude::*;
use crate::wires::{Wires, place};
use rustc_hash::FxHashMap;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "afs-l",
    about: "GPUs go one by one to the job of each pair that makes both end sooner, by estimated lengths and speeds.",
    paper: "Hwang et al., Elastic Resource Sharing for Distributed Deep Learning, NSDI 2021",
    needs: Needs { rates: true, ..Needs::ESTIMATE },
    class: Taxonomy {
        elastic: true,
        ..Taxonomy::rigid(Objective::CompletionTime, Family::Elastic).preemptive()
    },
    settings: &[
        (
            "resize_cost",
            "whether the time that a change of size takes counts in the rule; the paper leaves it out",
        ),
        (
            "bandwidth",
            "whether each size is valued with the wires that it would get, and GPUs are placed by `mapa`; not in the paper",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    resize_cost: bool,
    bandwidth: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { resize_cost: true, bandwidth: false }
    }
}

/// O(n + m log n) for n jobs and m GPUs at each event where ladders are concave, else O(n s + m log n) with up to s sizes.
///
/// With `bandwidth`, what [`Wires::value`] takes comes on top.
struct AfsL {
    settings: Settings,
    known: KnownLadders,
    wires: Option<Wires>,
}

/// The ladders of speeds of jobs that were met, as long as beliefs about speeds stay as they are.
#[derive(Default)]
struct KnownLadders {
    beliefs: Option<u64>,
    of: FxHashMap<(JobId, GpuType), Known>,
    /// Seconds of a change of jobs that have GPUs, and where these are.
    changes: FxHashMap<JobId, (Placement, f64)>,
}

/// A ladder, or that there is none, for GPUs so many to a node and so many in all.
struct Known {
    per_node: u32,
    there: u32,
    ladder: Option<Ladder>,
}

impl KnownLadders {
    /// Forgets what no longer holds, and jobs that ended.
    fn refresh(&mut self, view: &View<'_>) {
        let beliefs = view.beliefs_version();
        if beliefs.is_none() || beliefs != self.beliefs {
            self.of.clear();
            self.changes.clear();
            self.beliefs = beliefs;
        }
        let active = view.waiting_len() + view.granted_len();
        if self.of.len() > 2 * active * view.state().shapes.len() + 64 {
            let state = view.state();
            let is_active = |id: JobId| state.waiting.contains(id) || state.granted.contains(id);
            self.of.retain(|(id, _), _| is_active(*id));
            self.changes.retain(|id, _| is_active(*id));
        }
    }

    /// Seconds that a job loses by a change of what it has.
    fn change_seconds(&mut self, job: JobRef<'_>, view: &View<'_>) -> f64 {
        let Some(planned) = &job.state.planned else { return 0.0 };
        let known = self.changes.get(&job.id());
        if let Some((_, seconds)) = known.filter(|(place, _)| *place == planned.placement) {
            return *seconds;
        }
        let seconds = change_seconds(job, view);
        self.changes.insert(job.id(), (planned.placement.clone(), seconds));
        seconds
    }

    fn get(
        &mut self,
        job: JobRef<'_>,
        shape: (GpuType, u32),
        there: u32,
        view: &View<'_>,
    ) -> Option<Ladder> {
        let key = (job.id(), shape.0);
        let holds = |known: &&Known| known.per_node == shape.1 && known.there == there;
        if let Some(known) = self.of.get(&key).filter(holds) {
            return known.ladder.clone();
        }
        let ladder = rates(job, shape, there, view, |rate| rate);
        let known = Known { per_node: shape.1, there, ladder: ladder.clone() };
        self.of.insert(key, known);
        ladder
    }
}

impl Policy for AfsL {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let left = |job: JobRef<'_>| {
            view.work_left(job).map(|work| work.0).filter(|work| *work > 0.0 && work.is_finite())
        };
        let jobs = all_jobs(view);
        // A job whose length is not known counts as the longest there is.
        let longest = jobs.iter().copied().filter_map(left).fold(1.0, f64::max);
        self.known.refresh(view);
        let known = &mut self.known;
        let mut contest =
            Contest::new(view, offer, jobs, |job, shape, there| known.get(job, shape, there, view));
        if let Some(wires) = &mut self.wires {
            wires.value(&mut contest, offer.free(), view);
        }
        let told: Vec<Option<f64>> = contest.players.iter().map(|one| left(one.job)).collect();
        let players = contest.players.iter().zip(&told);
        let changes: Vec<Option<Change>> =
            players.map(|(player, left)| self.change(player, *left, view)).collect();
        for (player, change) in contest.players.iter_mut().zip(&changes) {
            if let Some(change) = change.filter(Change::outlasts_job) {
                change.pin(player);
            }
        }
        let stand = |player: &Player<'_>, at: usize, next| {
            NextStep::of(player, next, told[at].unwrap_or(longest))
        };
        if changes.iter().any(Option::is_some) {
            // Which jobs are served at all follows the paper's rule: the cost of a change would make one step of all
            // GPUs that a job has, and no other job could come in between. It counts in how the rest is divided.
            if !contest.serve_all() {
                serve(&mut contest, stand, second_wins);
                contest.shrink_to_least();
            }
            for (player, change) in contest.players.iter_mut().zip(&changes) {
                if let Some(change) = change {
                    change.charge(player);
                }
            }
        }
        divide(&mut contest, stand, second_wins);
        contest.settle(offer, largest_first);
        Ok(())
    }

    fn forget(&mut self) {
        self.known = KnownLadders::default();
    }
}

impl AfsL {
    /// What another size would cost a job that has GPUs, if that counts.
    fn change(
        &mut self,
        player: &Player<'_>,
        left: Option<f64>,
        view: &View<'_>,
    ) -> Option<Change> {
        let (kind, gpus) = player.held.filter(|_| self.settings.resize_cost)?;
        let seconds = self.known.change_seconds(player.job, view);
        let rate = player.ladders.iter().find(|one| one.kind == kind)?.at(gpus);
        if !(seconds > 0.0 && rate > 0.0) {
            return None;
        }
        // A job that ran for long may well run for as long again: it is never taken for one that is about to end.
        let again = player.job.state.ran(view.now).as_secs_f64().max(seconds / COST_MAX);
        Some(Change { held: (kind, gpus), rate, seconds, left: left.unwrap_or(rate * again) })
    }
}

/// Of a job whose length is not known, a change is taken to cost at most this part of what it does after it.
const COST_MAX: f64 = 0.1;

/// What another size than its own costs a job that has GPUs.
#[derive(Copy, Clone)]
struct Change {
    held: (GpuType, u32),
    /// Its speed where it is.
    rate: f64,
    seconds: f64,
    /// Work that is left, as told or as guessed.
    left: f64,
}

impl Change {
    /// Whether the job would be done before its change is.
    fn outlasts_job(&self) -> bool {
        self.left / self.rate <= self.seconds
    }

    /// The job has its own size or none.
    fn pin(&self, player: &mut Player<'_>) {
        let (kind, gpus) = self.held;
        player.ladders.clear();
        player.ladders.push(Ladder::only(kind, gpus, self.rate));
    }

    /// Each other size is worth what it comes to with the time that the change takes.
    fn charge(&self, player: &mut Player<'_>) {
        let Change { held: (kind, gpus), seconds, left, .. } = *self;
        for ladder in &mut player.ladders {
            let held = if ladder.kind == kind { gpus } else { 0 };
            *ladder = ladder.charged(Charge { held, left, seconds });
        }
    }
}

/// The ladder of speeds of a job on a type. Where it is, it has its speed; anywhere else what `moved` makes of it.
pub(crate) fn rates(
    job: JobRef<'_>,
    shape: (GpuType, u32),
    there: u32,
    view: &View<'_>,
    moved: impl Fn(f64) -> f64,
) -> Option<Ladder> {
    let held = job.state.planned.as_ref().map_or(0, |planned| planned.placement.gpus());
    let sizes = sizes(&job.spec.want, there);
    let first = *sizes.start();
    let speed = |gpus: u32| {
        let rate = view.rate(job, &packed(job, shape, gpus))?.0;
        let usable = rate > 0.0 && rate.is_finite();
        usable.then(|| if gpus == held { rate } else { moved(rate) })
    };
    Ladder::new(shape.0, first, sizes.map(speed))
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    let wires = if settings.bandwidth { Some(Wires::new()?) } else { None };
    let needs = Needs { topology: ENTRY.needs.topology || wires.is_some(), ..ENTRY.needs };
    let place = place(wires.is_some())?;
    let policy = AfsL { settings, known: KnownLadders::default(), wires };
    let mut pipeline = Pipeline::new(policy, FewestNodes, needs);
    pipeline.place = place;
    Ok(pipeline)
}
