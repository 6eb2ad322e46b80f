//! Chronus: deadlines are promised lease by lease, and what no lease needs goes to whoever can use it.
//!
//! - `book`: what is known and promised of each job.
//! - `admission`: whether one more deadline can be promised.
//! - `lease`: who holds the lease that begins now.
//! - `fill`: who gets what no lease needs.
//! - `allocator`: on which nodes; `search` betters what its greedy orders find.
//! - `profiler`: the stage before, in which short and failing jobs end.

mod admission;
mod allocator;
mod book;
mod fill;
mod lease;
mod profiler;
mod search;
#[cfg(test)]
mod tests;

use crate::prelude::*;
use allocator::Allocator;
use book::{Book, Facts, MINUTE};
use profiler::Profiler;
use trainyard_framework::Knowledge;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "chronus",
    about: "Deadlines are admitted and promised in leases; best effort and whoever was refused live on what no lease needs.",
    paper: "Gao et al., Chronus, SoCC 2021",
    needs: Needs { work_left: Knowledge::Estimate, rates: true, ..Needs::NOTHING },
    class: Taxonomy::rigid(Objective::Deadline, Family::Deadline).preemptive(),
    settings: &[
        ("lease", "the length of a lease; who holds one runs to its end"),
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
    lease: Span,
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
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            lease: Span::secs(20 * 60),
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

/// In what we and the authors' program differ.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Rules {
    /// Newcomers are answered at once, and whoever goes on after a boundary was never stopped.
    #[default]
    Ours,
    /// Newcomers are answered at slots, and everyone without a lease is stopped at a boundary.
    Authors,
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
    /// When the next of them begins, while there are jobs.
    due: Option<Time>,
    /// Whether a job was refused since the last plan.
    refused: bool,
}

impl Chronus {
    /// The length of time until the lease of a moment ends.
    fn lease_left(&self, now: Time) -> Span {
        let lease = self.settings.lease.0;
        Span(lease - now.0 % lease)
    }

    /// GPUs that leases can be given on.
    fn capacity(&self, offer: &Offer<'_>) -> u32 {
        let all = offer.free().in_service_total();
        all - self.profiler.as_ref().map_or(0, |profiler| profiler.reserved(offer.free()))
    }

    /// Everyone who takes part, with what is believed of each, by id.
    fn facts<'a>(&self, view: &View<'a>) -> Vec<Facts<'a>> {
        let mut active: Vec<JobRef<'a>> = view.waiting().chain(view.granted()).collect();
        active.sort_unstable_by_key(JobRef::id);
        active.into_iter().map(|job| self.book.facts(job, view, &self.settings)).collect()
    }

    /// What begins at a moment: a lease, a slot, both or none.
    ///
    /// By the authors' rules a slot that nobody waited for is none, so that whoever comes first waits for the next.
    fn turn(&mut self, now: Time) -> (bool, bool) {
        let lease = now.0 / self.settings.lease.0;
        let slot = now.0 / self.settings.slot.0;
        if self.settings.rules == Rules::Ours {
            let new_lease = self.lease.replace(lease) != Some(lease);
            return (new_lease, self.slot.replace(slot) != Some(slot));
        }
        if self.due.is_none_or(|due| now < due) {
            return (false, false);
        }
        let new_lease = self.lease.replace(lease) != Some(lease);
        // The rest of a boundary follows when everyone has stopped.
        (new_lease, !new_lease && self.slot.replace(slot) != Some(slot))
    }

    /// Asks to be called at the next slot, if there is anyone it could be of use to.
    fn wake(
        &mut self,
        view: &View<'_>,
        (facts, capacity): (&[Facts<'_>], u32),
        offer: &mut Offer<'_>,
    ) {
        let fits = |one: &&Facts<'_>| one.gpus <= capacity;
        let needed = match self.settings.rules {
            Rules::Ours => {
                let profiles = self.profiler.as_ref().is_some_and(Profiler::is_busy);
                profiles || facts.iter().filter(fits).any(|one| one.job.state.planned.is_none())
            }
            Rules::Authors => facts.iter().any(|one| fits(&one)),
        };
        if needed {
            let next = |span: Span| Time((view.now.0 / span.0 + 1).saturating_mul(span.0));
            let due = next(self.settings.slot).min(next(self.settings.lease));
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
        let capacity = self.capacity(offer);
        let (new_lease, new_slot) = self.turn(view.now);
        match self.settings.rules {
            Rules::Ours => {
                // Newcomers take part in the plan of a lease that begins with them.
                self.admit(&facts, view, (capacity, u64::from(!new_lease)));
                if new_lease {
                    self.begin_lease(&facts, view, capacity);
                    offer.everything();
                    self.restore_profiles(view, offer);
                }
                self.settle(&facts, view, capacity);
                self.grant_leases(&facts, view, offer);
                self.fill(&facts, (view, false), offer);
            }
            Rules::Authors if new_lease => {
                self.begin_lease(&facts, view, capacity);
                offer.everything();
                offer.leave_idle();
                self.restore_profiles(view, offer);
                self.grant_leases(&facts, view, offer);
                offer.wake_at(Time(view.now.0 + 1));
                return Ok(());
            }
            Rules::Authors => {
                if new_slot {
                    self.admit(&facts, view, (capacity, 1));
                    self.settle(&facts, view, capacity);
                }
                self.grant_leases(&facts, view, offer);
                if new_slot || is_odd_minute(view.now) {
                    self.fill(&facts, (view, !new_slot), offer);
                } else {
                    offer.wake_at(next_odd_minute(view.now));
                }
            }
        }
        self.wake(view, (&facts, capacity), offer);
        Ok(())
    }

    fn forget(&mut self) {
        self.book.clear();
        self.lease = None;
        self.slot = None;
        self.due = None;
        self.refused = false;
        if let Some(profiler) = &mut self.profiler {
            profiler.forget();
        }
    }
}

/// Between slots the authors' program looks for idle GPUs every other minute.
fn is_odd_minute(now: Time) -> bool {
    now.0.is_multiple_of(MINUTE.0) && now.0 / MINUTE.0 % 2 == 1
}

fn next_odd_minute(now: Time) -> Time {
    let minute = now.0 / MINUTE.0 + 1;
    Time(minute.saturating_add(1 - minute % 2).saturating_mul(MINUTE.0))
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    if settings.lease < Span::secs(1) {
        return Err(ENTRY.bad_value("lease", settings.lease, "at least a second"));
    }
    if settings.slot < Span::secs(1) || settings.slot > settings.lease {
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
        settings,
        profiler,
        book: Book::default(),
        lease: None,
        slot: None,
        due: None,
        refused: false,
    };
    Ok(Pipeline::new(policy, FewestNodes, ENTRY.needs))
}
