//! The ordered index behind [`crate::Ranked`]: keys are kept, and recomputed only for jobs that changed.

use crate::{JobRef, Key, Offer, Rank, View};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Bound;
use trainyard_types::{Grant, JobId, ModelId, Share, Span, TenantId, Time, Want, WindowId};

/// Waiting jobs that fit or fail alike: same wish, same profile or none, same tenant where ceilings matter, and the same
/// time to be gone in where there are windows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Class {
    want: Want,
    model: Option<ModelId>,
    tenant: Option<TenantId>,
    leaving: Option<Box<Leaving>>,
}

impl Class {
    /// The class of a job.
    pub(crate) fn of(job: JobRef<'_>, view: &View<'_>) -> Class {
        Class {
            want: job.spec.want.clone(),
            model: view.profiled(job),
            tenant: view.state().has_ceilings.then_some(job.spec.tenant),
            leaving: Leaving::of(job, view),
        }
    }
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
    Waiting { class: usize },
    Running { fall: u32 },
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
    /// Classes by number; one without jobs is vacant and its number is given to the next.
    classes: Vec<(Class, Ordered)>,
    class_of: FxHashMap<Class, usize>,
    vacant: Vec<usize>,
    running: BTreeMap<u32, Ordered>,
    changes: BTreeSet<(Time, JobId)>,
}

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
            while let Some(&(time, job)) = self.changes.first() {
                if time > view.now {
                    break;
                }
                self.update(rank, view, job, running);
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
    pub(crate) fn next_change(&self, now: Time) -> Option<Time> {
        self.changes.iter().map(|(time, _)| *time).find(|time| *time > now)
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
        &self,
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
        for job in self.worst_first(key, view.now) {
            let Some(planned) = offer.plan(job) else { continue };
            room += planned.placement.gpus();
            if room >= need {
                return true;
            }
        }
        false
    }

    /// Running jobs that `key` beats, worst first.
    pub(crate) fn worst_first(&self, key: &Key, now: Time) -> impl Iterator<Item = JobId> + '_ {
        let key = *key;
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
        self.remove(id);
        let Some(job) = view.job(id) else {
            rank.over(id, view);
            return;
        };
        let state = view.state();
        let waiting = state.waiting.contains(id);
        if !(waiting || running && state.granted.contains(id)) {
            return;
        }
        let mut key = rank.rank(job, view);
        let seat = if waiting {
            let class = self.class(job, view);
            self.classes[class].1.insert((key, id));
            Seat::Waiting { class }
        } else {
            let fall = rank.fall(job, view);
            key.value = key.value.saturating_add(shift(fall, view.now));
            self.running.entry(fall).or_default().insert((key, id));
            Seat::Running { fall }
        };
        let changes_at = rank.changes_at(job, view).filter(|time| *time > view.now);
        if let Some(time) = changes_at {
            self.changes.insert((time, id));
        }
        self.entries.insert(id, Entry { seat, key, changes_at });
    }

    fn remove(&mut self, id: JobId) {
        let Some(entry) = self.entries.remove(&id) else { return };
        match entry.seat {
            Seat::Waiting { class } => {
                let (alike, jobs) = &mut self.classes[class];
                jobs.remove(&(entry.key, id));
                if jobs.is_empty() {
                    self.class_of.remove(alike);
                    self.vacant.push(class);
                }
            }
            Seat::Running { fall } => {
                if let Some(jobs) = self.running.get_mut(&fall) {
                    jobs.remove(&(entry.key, id));
                    if jobs.is_empty() {
                        self.running.remove(&fall);
                    }
                }
            }
        }
        if let Some(time) = entry.changes_at {
            self.changes.remove(&(time, id));
        }
    }

    fn class(&mut self, job: JobRef<'_>, view: &View<'_>) -> usize {
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
