//! The ordered index behind [`crate::Ranked`]: keys are kept, and recomputed only for jobs that changed.

use crate::{JobRef, Key, Offer, Rank, View};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Bound;
use trainyard_types::{
    Grant, JobId, ModelId, Placement, Share, Span, TenantId, Time, Want, WindowId,
};

/// Waiting jobs that fit or fail alike: same wish, same profile or none, same tenant where ceilings matter, the same
/// time to be gone in where there are windows, and put aside at the same place if at all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Class {
    want: Want,
    model: Option<ModelId>,
    tenant: Option<TenantId>,
    leaving: Option<Box<Leaving>>,
    home: Option<Box<Placement>>,
}

impl Class {
    /// The class of a job.
    pub(crate) fn of(job: JobRef<'_>, view: &View<'_>) -> Class {
        Class {
            want: job.spec.want.clone(),
            model: view.profiled(job),
            tenant: view.state().has_ceilings.then_some(job.spec.tenant),
            leaving: Leaving::of(job, view),
            home: home(job).map(|home| Box::new(home.clone())),
        }
    }

    /// Whether a job is of this class.
    fn is_of(&self, job: JobRef<'_>, view: &View<'_>) -> bool {
        self.want == job.spec.want
            && self.model == view.profiled(job)
            && self.tenant == view.state().has_ceilings.then_some(job.spec.tenant)
            && self.leaving == Leaving::of(job, view)
            && self.home.as_deref() == home(job)
    }
}

/// Where a job that is put aside was.
fn home(job: JobRef<'_>) -> Option<&Placement> {
    crate::aside::put_aside(job).map(|own| &own.home.placement)
}

/// What decides before which windows a job can be gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Leaving {
    ends_in: Option<Span>,
    preemptible: bool,
    spans: (Span, Span),
    tenant: TenantId,
    named: SmallVec<[WindowId; 1]>,
}

impl Leaving {
    fn of(job: JobRef<'_>, view: &View<'_>) -> Option<Box<Leaving>> {
        let (spec, windows) = (job.spec, &view.state().windows);
        if windows.is_empty() {
            return None;
        }
        Some(Box::new(Leaving {
            ends_in: spec.run_max.map(|limit| limit.minus(job.state.ran(view.now))),
            preemptible: spec.preemptible,
            spans: (spec.min_run, spec.grace),
            tenant: spec.tenant,
            named: windows.that_name(spec),
        }))
    }
}

#[derive(Copy, Clone, Debug)]
enum Seat {
    Waiting {
        class: usize,
    },
    /// Whether it stands in the order of those that run.
    Running {
        fall: u32,
        seated: bool,
    },
}

#[derive(Copy, Clone, Debug)]
struct Entry {
    seat: Seat,
    key: Key,
    changes_at: Option<Time>,
}

type Ordered = BTreeSet<(Key, JobId)>;

/// Waiting jobs by class, running ones by the pace their key falls at, and the moments when keys change.
#[derive(Default)]
pub(crate) struct RankIndex {
    /// The number of the decision this index is valid for.
    valid_for: Option<u64>,
    /// The windows it was made for.
    windows: u64,
    entries: FxHashMap<JobId, Entry>,
    /// Classes by number. Where there are more than a few, one without jobs is vacant and its number is given to the
    /// next.
    classes: Vec<(Class, Ordered)>,
    class_of: FxHashMap<Class, usize>,
    vacant: Vec<usize>,
    running: BTreeMap<u32, Ordered>,
    /// Running jobs that may not stand in the order yet: it is only needed when one of them must go, and most jobs come
    /// and end without that.
    unseated: Vec<JobId>,
    /// When keys change; void where the entry of the job says another moment.
    changes: BinaryHeap<Reverse<(Time, JobId)>>,
}

/// Up to so many classes are searched by looking at each, and kept when they have no job.
const FEW_CLASSES: usize = 16;
/// How many void moments and jobs to be seated there may be beside twice those that are not.
const VOID_MAX: usize = 64;

/// A walk over the waiting jobs in order of their keys, class by class.
pub(crate) struct Turn {
    /// The first job of each class that is still open.
    heads: BinaryHeap<Reverse<(Key, JobId, usize)>>,
    /// The job told last; the next of its class follows unless the class is closed.
    last: Option<(Key, JobId, usize)>,
}

impl RankIndex {
    /// Brings the index up to the view: what changed since the last decision, or everything.
    pub(crate) fn refresh<R: Rank>(&mut self, rank: &mut R, view: &View<'_>, running: bool) {
        let valid = self.valid_for == Some(view.decision());
        let windows = view.state().windows.version();
        if valid && self.windows == windows && !rank.renewed() {
            // One event changes a job in several ways, each of which is told.
            let mut last = None;
            for &job in view.changed() {
                if last.replace(job) != Some(job) {
                    self.update(rank, view, job, running);
                }
            }
            while let Some(&Reverse((time, job))) = self.changes.peek() {
                if time > view.now {
                    break;
                }
                self.changes.pop();
                if self.changes_then(job, time) {
                    self.update(rank, view, job, running);
                }
            }
        } else {
            *self = RankIndex { windows, ..RankIndex::default() };
            if !valid {
                rank.forget();
            }
            for job in view.waiting().chain(view.granted()) {
                self.update(rank, view, job.id(), running);
            }
        }
        self.valid_for = Some(view.decision() + 1);
    }

    /// When the next key changes by itself.
    pub(crate) fn next_change(&mut self, now: Time) -> Option<Time> {
        loop {
            let &Reverse((time, job)) = self.changes.peek()?;
            if time > now && self.changes_then(job, time) {
                return Some(time);
            }
            self.changes.pop();
        }
    }

    /// Whether that is when the key of a job changes, and not what was said of it before.
    fn changes_then(&self, job: JobId, time: Time) -> bool {
        self.entries.get(&job).is_some_and(|entry| entry.changes_at == Some(time))
    }

    /// Whether any waiting job asks for less than a whole GPU.
    pub(crate) fn has_fractions(&self) -> bool {
        self.classes.iter().any(|(class, jobs)| class.want.permille < 1000 && !jobs.is_empty())
    }

    /// A walk over the waiting jobs.
    pub(crate) fn turn(&self) -> Turn {
        let heads = self.classes.iter().enumerate().filter_map(|(class, (_, jobs))| {
            jobs.first().map(|&(key, job)| Reverse((key, job, class)))
        });
        Turn { heads: heads.collect(), last: None }
    }

    /// Whether what is free and what runs behind `key` could make room for the grant, by count.
    pub(crate) fn enough_behind(
        &mut self,
        key: &Key,
        grant: &Grant,
        view: &View<'_>,
        offer: &Offer<'_>,
    ) -> bool {
        if grant.members.iter().any(|member| member.share != Share::Whole) {
            return true;
        }
        let need = grant.count();
        let mut room = offer.free().total();
        if room >= need {
            return true;
        }
        self.seat_running();
        for job in self.worst_first(*key, view.now) {
            let Some(planned) = offer.plan(job) else { continue };
            room += planned.placement.gpus();
            if room >= need {
                return true;
            }
        }
        false
    }

    /// Puts the running jobs in order that do not stand there yet.
    pub(crate) fn seat_running(&mut self) {
        for id in self.unseated.drain(..) {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            if let Seat::Running { fall, seated: seated @ false } = &mut entry.seat {
                *seated = true;
                self.running.entry(*fall).or_default().insert((entry.key, id));
            }
        }
    }

    /// Running jobs that `key` beats, worst first; all of them must be seated.
    pub(crate) fn worst_first(&self, key: Key, now: Time) -> impl Iterator<Item = JobId> + '_ {
        let mut lanes: Vec<_> =
            self.running.iter().map(|(&fall, jobs)| (fall, jobs.iter().rev().peekable())).collect();
        std::iter::from_fn(move || {
            let worst = lanes
                .iter_mut()
                .enumerate()
                .filter_map(|(lane, (fall, jobs))| {
                    let &&(anchored, job) = jobs.peek()?;
                    Some((at(anchored, *fall, now), job, lane))
                })
                .max()?;
            if !key.beats(&worst.0) {
                return None;
            }
            lanes[worst.2].1.next();
            Some(worst.1)
        })
    }

    fn update<R: Rank>(&mut self, rank: &mut R, view: &View<'_>, id: JobId, running: bool) {
        let Some(job) = view.job(id) else {
            self.remove(id);
            rank.over(id, view);
            return;
        };
        let state = view.state();
        let waiting = state.waiting.contains(id);
        if !(waiting || running && state.granted.contains(id)) {
            self.remove(id);
            return;
        }
        let mut key = rank.rank(job, view);
        let fall = if waiting { 0 } else { rank.fall(job, view) };
        let changes_at = rank.changes_at(job, view).filter(|time| *time > view.now);
        if waiting {
            self.remove(id);
            let class = self.class(job, view);
            self.classes[class].1.insert((key, id));
            self.entries.insert(id, Entry { seat: Seat::Waiting { class }, key, changes_at });
        } else {
            key.value = key.value.saturating_add(shift(fall, view.now));
            if self.runs_as(id, (fall, key, changes_at)) {
                return;
            }
            self.remove(id);
            let seat = Seat::Running { fall, seated: false };
            self.entries.insert(id, Entry { seat, key, changes_at });
            self.unseated.push(id);
        }
        if let Some(time) = changes_at {
            self.changes.push(Reverse((time, id)));
        }
        self.drop_void();
    }

    /// Whether a job is known to run with this key, as after an event that changed nothing its key depends on.
    fn runs_as(&self, id: JobId, new: (u32, Key, Option<Time>)) -> bool {
        let Some(Entry { seat, key, changes_at }) = self.entries.get(&id) else { return false };
        matches!(seat, Seat::Running { fall, .. } if (*fall, *key, *changes_at) == new)
    }

    /// Drops what is void once it is most of what there is.
    fn drop_void(&mut self) {
        let most = 2 * self.entries.len() + VOID_MAX;
        if self.unseated.len() > most {
            let stands_aside =
                |entry: &Entry| matches!(entry.seat, Seat::Running { seated: false, .. });
            self.unseated.retain(|job| self.entries.get(job).is_some_and(stands_aside));
            self.unseated.sort_unstable();
            self.unseated.dedup();
        }
        if self.changes.len() > most {
            let mut kept = std::mem::take(&mut self.changes).into_vec();
            kept.retain(|Reverse((time, job))| self.changes_then(*job, *time));
            kept.sort_unstable();
            kept.dedup();
            self.changes = BinaryHeap::from(kept);
        }
    }

    fn remove(&mut self, id: JobId) {
        let Some(entry) = self.entries.remove(&id) else { return };
        match entry.seat {
            Seat::Waiting { class } => {
                let jobs = &mut self.classes[class].1;
                jobs.remove(&(entry.key, id));
                if jobs.is_empty() && self.classes.len() > FEW_CLASSES {
                    let alike = &self.classes[class].0;
                    self.class_of.remove(alike);
                    self.vacant.push(class);
                }
            }
            Seat::Running { seated: false, .. } => {}
            Seat::Running { fall, seated: true } => {
                if let Some(jobs) = self.running.get_mut(&fall) {
                    jobs.remove(&(entry.key, id));
                    if jobs.is_empty() {
                        self.running.remove(&fall);
                    }
                }
            }
        }
    }

    fn class(&mut self, job: JobRef<'_>, view: &View<'_>) -> usize {
        if self.classes.len() <= FEW_CLASSES {
            let mut known = self.classes.iter();
            if let Some(number) = known.position(|(class, _)| class.is_of(job, view)) {
                return number;
            }
        }
        let class = Class::of(job, view);
        if let Some(&number) = self.class_of.get(&class) {
            return number;
        }
        let number = self.vacant.pop().unwrap_or(self.classes.len());
        match self.classes.get_mut(number) {
            Some(vacant) => vacant.0 = class.clone(),
            None => self.classes.push((class.clone(), Ordered::new())),
        }
        self.class_of.insert(class, number);
        number
    }
}

impl Turn {
    /// The best job whose class is still open. Looks at one job of each class at a time.
    pub(crate) fn next(&mut self, index: &RankIndex) -> Option<JobId> {
        if let Some((key, job, class)) = self.last.take() {
            let after = (Bound::Excluded((key, job)), Bound::Unbounded);
            if let Some(&(key, job)) = index.classes[class].1.range(after).next() {
                self.heads.push(Reverse((key, job, class)));
            }
        }
        let Reverse(head) = self.heads.pop()?;
        self.last = Some(head);
        Some(head.1)
    }

    /// Leaves the class of the job told last out from here on: none behind it can fit either.
    pub(crate) fn close(&mut self) {
        self.last = None;
    }

    /// Leaves all out, and tells the heads of the classes.
    pub(crate) fn close_all(&mut self, mut tell: impl FnMut(JobId)) {
        for Reverse((_, job, _)) in self.heads.drain() {
            tell(job);
        }
    }
}

/// What a falling value has to be raised by, so that it can be stored as if the clock stood at zero.
fn shift(fall: u32, now: Time) -> i64 {
    let shift = u128::from(fall) * u128::from(now.0) / 1000;
    shift.min(i64::MAX as u128) as i64
}

fn at(mut anchored: Key, fall: u32, now: Time) -> Key {
    anchored.value = anchored.value.saturating_sub(shift(fall, now));
    anchored
}
