//! Chronus: deadlines are promised lease by lease, and what no lease needs goes to the jobs that can use it.
//!
//! - `book`: what is known and promised of each job.
//! - `admission`: whether one more deadline can be promised.
//! - `lease`: which jobs hold the lease that begins now, `length` how long it is.
//! - `fill`: which jobs get what no lease needs.
//! - `allocator`: on which nodes; `search` betters what its greedy orders find, `speeds` tells what was not profiled.
//! - `profiler`: the stage before, in which short and failing jobs end.
//! - `rules`: where a choice of rules decides; `authors` are the answers of the authors' program.
//!
//! Names in `code` of comments that speak of the authors are those of their repository, ChronusArtifact.

mod admission;
mod allocator;
mod authors;
mod book;
mod fill;
mod lease;
mod length;
mod profiler;
mod rules;
mod search;
pub mod speeds;
#[cfg(test)]
mod tests;

use crate::prelude::*;
use allocator::Allocator;
use book::{Book, Facts};
use profiler::Profiler;
use rules::Rules;
use trainyard_framework::{Knowledge, Length};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "chronus",
    about: "Deadlines are admitted and promised in leases; best-effort and refused jobs run on what no lease needs.",
    paper: "Gao et al., Chronus, SoCC 2021",
    needs: Needs { work_left: Knowledge::Estimate, rates: true, ..Needs::NOTHING },
    class: Taxonomy::rigid(Objective::Deadline, Family::Deadline)
        .preemptive()
        .partial("gangs rounded up"),
    settings: &[
        (
            "lease",
            "the length of a lease; a job that holds one runs to its end; `auto` weighs restarts against late turns, for deadlines and for best effort apart",
        ),
        ("slot", "how often newcomers and idle GPUs are looked at between leases"),
        ("margin", "what an estimated duration is multiplied with before it is promised"),
        (
            "tolerance",
            "how far beyond its last deadline a job may be promised, as a factor of the time from submission to it",
        ),
        (
            "objective",
            "of the lease that begins now promises use: `maximise` as much, `minimise` as little as they can, `adaptive` as little while a job is refused",
        ),
        (
            "allocator",
            "`local-search`, `best-of-four` greedy orders, or `consolidate`: on as few nodes as possible",
        ),
        (
            "rules",
            "`ours`, or `authors`: slots by the clock, all but leases stopped at a boundary, whole minutes, only first deadlines admitted",
        ),
        (
            "profile",
            "whether newcomers run on reserved nodes first, where short and failing ones end",
        ),
        ("profile_time", "how long a newcomer is profiled"),
        ("profile_nodes", "how many nodes are reserved for that"),
        ("work", "the limit of one plan, and of one search for places, in units of work"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Clone, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    lease: Length,
    slot: Span,
    margin: f64,
    tolerance: f64,
    objective: Goal,
    allocator: allocator::Method,
    rules: Rules,
    profile: bool,
    profile_time: Span,
    profile_nodes: u32,
    work: u64,
    /// The lease that holds now.
    #[serde(skip)]
    present: Span,
}

/// The authors' lease.
const LEASE: Span = Span::secs(20 * 60);

impl Settings {
    /// How long the lease is that holds now.
    fn lease(&self) -> Span {
        self.present
    }

    /// How long a slot is; never longer than a lease.
    fn slot(&self) -> Span {
        self.slot.min(self.present)
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            lease: Length::Every(LEASE),
            present: LEASE,
            slot: Span::secs(5 * 60),
            margin: 1.1,
            tolerance: 1.0,
            objective: Goal::Adaptive,
            allocator: allocator::Method::LocalSearch,
            rules: Rules::Ours,
            profile: false,
            profile_time: Span::secs(5 * 60),
            profile_nodes: 1,
            work: 200_000,
        }
    }
}

/// What to do with the lease that begins now.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Goal {
    /// Little of it while a job is refused, else much.
    #[default]
    Adaptive,
    /// Much of it.
    Maximise,
    /// Little of it.
    Minimise,
}

/// O(n h) for each newcomer and for a plan that needs no choice, with n promised jobs and a horizon of h leases; a
/// plan that needs one, and a search for places, are limited by `work`.
struct Chronus {
    settings: Settings,
    allocator: Allocator,
    profiler: Option<Profiler>,
    book: Book,
    /// The lease and the slot that were begun last.
    lease: Option<u64>,
    slot: Option<u64>,
    /// How long best effort keeps what it was given, and when it began last, where lengths are chosen.
    turn_length: Span,
    turn: Option<u64>,
    /// When the next of them begins, while there are jobs.
    due: Option<Time>,
    /// Whether a job was refused since the last plan.
    refused: bool,
}

/// A moment as a decision sees it.
struct Moment<'m, 'v> {
    /// Every job that takes part, by id.
    facts: &'m [Facts<'v>],
    view: &'m View<'v>,
    /// GPUs that leases can be given on.
    capacity: u32,
    /// The same by type.
    kinds: &'m [(GpuType, u32)],
}

impl Moment<'_, '_> {
    /// Whether a job is not wider than what leases can be given on.
    fn fits(&self, one: &Facts<'_>) -> bool {
        one.gpus <= self.capacity
    }
}

/// What begins at a moment.
#[derive(Copy, Clone)]
struct Turn {
    lease: bool,
    slot: bool,
    /// A turn of best effort.
    best_effort: bool,
}

impl Chronus {
    /// The length of time until the lease of a moment ends.
    fn lease_left(&self, now: Time) -> Span {
        let lease = self.settings.lease().0;
        Span(lease - now.0 % lease)
    }

    /// GPUs of each type that leases can be given on.
    fn kinds(&self, free: &Free) -> Vec<(GpuType, u32)> {
        let reserved = |kind: GpuType| {
            self.profiler.as_ref().map_or(0, |profiler| profiler.reserved_of(kind, free))
        };
        free.kinds().iter().map(|kind| (*kind, free.in_service(*kind) - reserved(*kind))).collect()
    }

    /// Every job that takes part, with what is believed of each, by id.
    fn facts<'a>(&self, view: &View<'a>) -> Vec<Facts<'a>> {
        let mut active: Vec<JobRef<'a>> = view.waiting().chain(view.granted()).collect();
        active.sort_unstable_by_key(JobRef::id);
        active.into_iter().map(|job| self.book.facts(job, view, &self.settings)).collect()
    }

    /// Whether a moment is in another lease than the one before it was.
    fn enters_lease(&mut self, now: Time) -> bool {
        let lease = now.0 / self.settings.lease().0;
        self.lease.replace(lease) != Some(lease)
    }

    /// The same of slots.
    fn enters_slot(&mut self, now: Time) -> bool {
        let slot = now.0 / self.settings.slot().0;
        self.slot.replace(slot) != Some(slot)
    }

    /// Whether any job is being profiled or waits for it.
    fn profiles(&self) -> bool {
        self.profiler.as_ref().is_some_and(Profiler::is_busy)
    }

    /// Asks to be called at the next slot, if there is a job it could be of use to.
    fn wake(&mut self, moment: &Moment<'_, '_>, offer: &mut Offer<'_>) {
        if self.settings.rules.set().is_slot_of_use(self, moment) {
            let now = moment.view.now.0;
            let next = |span: Span| Time((now / span.0 + 1).saturating_mul(span.0));
            let due = next(self.settings.slot()).min(next(self.settings.lease()));
            let due = if self.chooses() { due.min(next(self.turn_length)) } else { due };
            offer.wake_at(due);
            self.due = Some(due);
        }
    }
}

impl Policy for Chronus {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let mut facts = self.facts(view);
        self.book.retain(&facts);
        if facts.is_empty() {
            self.due = None;
            return Ok(());
        }
        if let Some(profiler) = &mut self.profiler {
            facts = profiler.stage(facts, view, offer);
        }
        let kinds = self.kinds(offer.free());
        let capacity = kinds.iter().map(|(_, gpus)| gpus).sum();
        let rules = self.settings.rules.set();
        let begins = rules.begins(self, view.now);
        let moment = Moment { facts: &facts, view, capacity, kinds: &kinds };
        rules.decide(self, &moment, begins, offer);
        Ok(())
    }

    fn forget(&mut self) {
        self.book.clear();
        self.lease = None;
        self.slot = None;
        self.turn = None;
        self.due = None;
        self.refused = false;
        if let Some(profiler) = &mut self.profiler {
            profiler.forget();
        }
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let mut settings: Settings = raw.read(ENTRY.name)?;
    match settings.lease {
        Length::Every(lease) if lease < Span::secs(1) => {
            return Err(ENTRY.bad_value("lease", lease, "at least a second, or `auto`"));
        }
        Length::Every(lease) => settings.present = lease,
        // By the authors' rules a lease has one length.
        Length::Auto if settings.rules == Rules::Authors => settings.lease = Length::Every(LEASE),
        Length::Auto => {}
    }
    if settings.slot < Span::secs(1) || settings.slot > settings.present {
        return Err(ENTRY.bad_value("slot", settings.slot, "from a second to a lease"));
    }
    if !(1.0..=100.0).contains(&settings.margin) {
        return Err(ENTRY.bad_value("margin", settings.margin, "from 1 to 100"));
    }
    if !(1.0..=100.0).contains(&settings.tolerance) {
        return Err(ENTRY.bad_value("tolerance", settings.tolerance, "from 1 to 100"));
    }
    if settings.profile && settings.profile_nodes == 0 {
        return Err(ENTRY.bad_value("profile_nodes", settings.profile_nodes, "at least 1 node"));
    }
    let profiler = settings.profile.then(|| Profiler::new(&settings));
    let policy = Chronus {
        allocator: Allocator::new(&settings),
        turn_length: settings.present,
        settings,
        profiler,
        book: Book::default(),
        lease: None,
        slot: None,
        turn: None,
        due: None,
        refused: false,
    };
    Ok(Pipeline::new(policy, FewestNodes, ENTRY.needs))
}
