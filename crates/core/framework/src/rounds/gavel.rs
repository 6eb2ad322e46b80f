//! The rules of Gavel's own simulator (OSDI 2020; `scheduler/scheduler.py` of its repository at c4fa4009), so that its
//! numbers can be met. `docs/guide/rounds.md` tells them in words.
//!
//! Sums are taken in the order and in the real seconds of the original: which of two equals comes first can hang on
//! the last bit. The clock of the engine counts microseconds, so exact moments are recovered from whole steps.

mod port;

use super::shuffle::Shuffler;
use super::{Asked, Choice, Mechanism, RateTable, RoundSettings, Shares, group};
use crate::{Offer, View};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use trainyard_types::placement::lowest_bits;
use trainyard_types::{GpuType, IdSet, JobId, NodeId, Placement, Time};

/// Moments closer than this are one moment of the clock, which counts microseconds.
const SAME_MOMENT: f64 = 1.5e-6;
/// The priority of a share that nothing was received of, for each unit of share.
const UNTOUCHED: f64 = 1e9;

/// The accounts between two decisions.
pub(super) struct Gavel {
    /// One for each choice, in the order in which Gavel would have met them.
    accounts: Vec<Account>,
    /// By type: the time of all choices since the last reset, of those that ended too.
    kind_time: Vec<f64>,
    last_reset: f64,
    /// Whether jobs came or went since the last reset.
    changed: bool,
    /// When the newest round should be over, on a host that keeps no rounds.
    round_until: Time,
    /// The end of the round before, from which time is charged.
    charged_to: f64,
    tasks: Vec<Task>,
    /// Where the choices of the newest round run, by their jobs.
    places: BTreeMap<SmallVec<[JobId; 2]>, (usize, Placement)>,
    newest: Option<JobId>,
    started: bool,
    shuffler: Option<Shuffler>,
}

/// What is known of one choice.
struct Account {
    key: Key,
    choice: Choice,
    /// Seconds received since the last reset, and half a round.
    time: f64,
    /// Seconds that it was owed and did not receive until the last reset.
    deficit: f64,
    /// Its share; nothing if it came after the last reset.
    share: Option<f64>,
    /// Sia's port only: whether the time it began with counts in that of its type.
    counted: bool,
}

/// Tells choices apart, and orders them: by the job that came last, alone before in company.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    last: JobId,
    size: usize,
    jobs: SmallVec<[JobId; 2]>,
    uses: SmallVec<[(u16, u32); 1]>,
    nodes_max: u16,
}

impl Key {
    fn new(choice: &Choice) -> Key {
        Key {
            last: choice.jobs.iter().copied().max().unwrap_or(JobId(0)),
            size: choice.jobs.len(),
            jobs: choice.jobs.clone(),
            uses: choice.uses.clone(),
            nodes_max: choice.nodes_max,
        }
    }
}

/// A choice that was taken in the newest round.
struct Task {
    key: Key,
    kind: usize,
    began: f64,
    rates: SmallVec<[f64; 2]>,
}

impl Gavel {
    pub(super) fn new(settings: &RoundSettings) -> Gavel {
        Gavel {
            accounts: Vec::new(),
            kind_time: Vec::new(),
            last_reset: 0.0,
            changed: false,
            round_until: Time::ZERO,
            charged_to: 0.0,
            tasks: Vec::new(),
            places: BTreeMap::new(),
            newest: None,
            started: false,
            shuffler: settings.shuffle.map(Shuffler::new),
        }
    }

    /// Begins a round, or waits for the end of the present one.
    pub(super) fn decide(
        &mut self,
        settings: &RoundSettings,
        (table, fresh): (&RateTable, bool),
        ask: &mut Asked<'_, '_>,
        offer: &mut Offer<'_>,
    ) {
        let view = ask.view;
        let runs =
            self.tasks.iter().any(|task| task.key.jobs.iter().any(|job| view.job(*job).is_some()));
        if !view.keeps_rounds() && runs && view.now < self.round_until {
            offer.wake_at(self.round_until);
            return;
        }
        offer.everything();
        offer.leave_idle();
        if settings.mechanism == Mechanism::Sia {
            self.decide_as_sia(settings, table, ask, offer);
            return;
        }
        let idle = std::mem::replace(&mut self.started, true) && self.tasks.is_empty();
        let now = self.settle(settings, view);
        let came = fresh && self.update(settings, table);
        if idle && !came {
            // Nothing ran and no job came: the wait for the next reset would last for ever.
            self.last_reset = 0.0;
        }
        // A reset at the very beginning does not count as one, by the letter of the original.
        let due =
            now - self.last_reset >= settings.reset_min.as_secs_f64() || self.last_reset == 0.0;
        if self.changed && due {
            self.reset(settings, now);
            let is_empty = table.jobs.is_empty();
            let shares = if is_empty { Some(Shares::default()) } else { ask.shares(table) };
            self.take_shares(settings, table, shares);
        }
        let picked = self.pick(settings, table, (view, offer));
        self.place(now, table, picked, (view, offer));
        self.wake(settings, view, offer);
    }

    /// Charges what ran since the last decision, and gives the exact moment.
    fn settle(&mut self, settings: &RoundSettings, view: &View<'_>) -> f64 {
        let clock = view.now.as_secs_f64();
        let mut ends: Vec<(f64, Task)> = std::mem::take(&mut self.tasks)
            .into_iter()
            .map(|task| (task.ended(settings, view), task))
            .collect();
        let Some(slowest) = ends.iter().map(|(end, _)| *end).max_by(f64::total_cmp) else {
            return clock;
        };
        let now = if (slowest - clock).abs() <= SAME_MOMENT { slowest } else { clock };
        // The original takes the latest end first.
        ends.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.key.cmp(&b.1.key)));
        for (end, task) in ends {
            let received = end.min(now) - self.charged_to;
            if let Ok(index) = self.accounts.binary_search_by(|one| one.key.cmp(&task.key)) {
                self.accounts[index].time += received;
            }
            if let Some(time) = self.kind_time.get_mut(task.kind) {
                *time += received;
            }
        }
        self.charged_to = now;
        now
    }

    /// Lets jobs come and go. True if one came.
    fn update(&mut self, settings: &RoundSettings, table: &RateTable) -> bool {
        let half = settings.round.as_secs_f64() / 2.0;
        self.kind_time.resize(table.kinds.len(), 0.0);
        let newest = table.jobs.last().copied();
        let came = newest > self.newest;
        self.newest = self.newest.max(newest);
        let known = |job: &JobId| table.position(*job).is_some();
        let before = self.accounts.len();
        self.accounts.retain(|account| account.key.jobs.iter().all(known));
        self.changed |= came || self.accounts.len() < before;
        let mut fresh = Vec::new();
        for choice in &table.choices {
            let key = Key::new(choice);
            match self.accounts.binary_search_by(|one| one.key.cmp(&key)) {
                Ok(index) => self.accounts[index].choice.rates.clone_from(&choice.rates),
                Err(_) => {
                    // Those in company begin with nothing, which the first reset takes for half a round owed.
                    let time = if choice.jobs.len() > 1 { 0.0 } else { half };
                    let choice = choice.clone();
                    fresh.push(Account {
                        key,
                        choice,
                        time,
                        deficit: 0.0,
                        share: None,
                        counted: false,
                    });
                }
            }
        }
        if !fresh.is_empty() {
            self.changed = true;
            self.accounts.append(&mut fresh);
            self.accounts.sort_by(|a, b| a.key.cmp(&b.key));
        }
        came
    }

    /// Turns what was received since the last reset into deficits, and begins to count anew.
    fn reset(&mut self, settings: &RoundSettings, now: f64) {
        let half = settings.round.as_secs_f64() / 2.0;
        let elapsed = now - self.last_reset;
        self.kind_time.fill(0.0);
        for account in &mut self.accounts {
            let owed = account.share.unwrap_or(0.0) * elapsed;
            account.deficit += owed - (account.time - half);
            account.time = half;
            self.kind_time[account.choice.kind()] += half;
        }
        self.last_reset = now;
    }

    /// Takes new shares over. After an error the last ones stay, and a job that has none fills what is idle.
    fn take_shares(&mut self, settings: &RoundSettings, table: &RateTable, shares: Option<Shares>) {
        self.changed = shares.is_none();
        let Some(shares) = shares else {
            for account in &mut self.accounts {
                account.share = account.share.or(Some(0.0));
            }
            return;
        };
        let half = settings.round.as_secs_f64() / 2.0;
        let mut fresh = Vec::new();
        let mut named: Vec<(Key, f64)> = (table.choices.iter().zip(&shares.of))
            .map(|(choice, share)| (Key::new(choice), *share))
            .collect();
        for (choice, share) in shares.more {
            let key = Key::new(&choice);
            if self.accounts.binary_search_by(|one| one.key.cmp(&key)).is_err() {
                self.kind_time[choice.kind()] += half;
                fresh.push(Account {
                    key: key.clone(),
                    choice,
                    time: half,
                    deficit: half,
                    share: None,
                    counted: true,
                });
            }
            named.push((key, share));
        }
        self.accounts.append(&mut fresh);
        self.accounts.sort_by(|a, b| a.key.cmp(&b.key));
        named.sort_by(|a, b| a.0.cmp(&b.0));
        self.accounts.retain_mut(|account| {
            let found = named.binary_search_by(|one| one.0.cmp(&account.key));
            account.share = found.ok().map(|index| named[index].1);
            found.is_ok()
        });
    }

    /// Which jobs run on which type: types in order, and on each the highest priority first. Indices of accounts by
    /// type.
    fn pick(
        &mut self,
        settings: &RoundSettings,
        table: &RateTable,
        (view, offer): (&View<'_>, &Offer<'_>),
    ) -> Vec<(usize, Vec<usize>)> {
        let mut left: Vec<u32> = table.kinds.iter().map(|kind| offer.free().gpus(*kind)).collect();
        // A job that may not be stopped keeps its GPUs, whatever its priority.
        let mut taken: IdSet<JobId> =
            view.granted().map(|job| job.id()).filter(|job| offer.plan(*job).is_some()).collect();
        let mut queues: Vec<Vec<usize>> = vec![Vec::new(); table.kinds.len()];
        for (index, account) in self.accounts.iter().enumerate() {
            queues[account.choice.kind()].push(index);
        }
        let mut picked = Vec::new();
        for kind in self.order_of_kinds(settings, table, view) {
            let mut queue: Vec<([f64; 3], usize)> =
                queues[kind].iter().map(|index| (self.precedence(*index), *index)).collect();
            // The highest first; equals stay in order.
            queue.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal));
            let mut here = Vec::new();
            for ([priority, ..], index) in queue {
                if left[kind] == 0 {
                    break;
                }
                let wanted = settings.fill || priority > 0.0;
                if wanted && take(&self.accounts[index].choice, &mut left, &mut taken) {
                    here.push(index);
                }
            }
            picked.push((kind, here));
        }
        picked
    }

    /// The named types first, then the others; shuffled where the settings say so.
    fn order_of_kinds(
        &mut self,
        settings: &RoundSettings,
        table: &RateTable,
        view: &View<'_>,
    ) -> Vec<usize> {
        let name = |kind: GpuType| view.cluster().kinds[kind.index()].name.as_str();
        let place = |kind: GpuType| {
            let first = settings.kinds_first.iter();
            first.clone().position(|first| first == name(kind)).unwrap_or(first.len())
        };
        let mut order: Vec<usize> = (0..table.kinds.len()).collect();
        order.sort_by_key(|kind| place(table.kinds[*kind]));
        if let Some(shuffler) = &mut self.shuffler {
            shuffler.shuffle(&mut order);
        }
        order
    }

    /// The share over the part of the type's time that was received.
    fn priority(&self, index: usize) -> f64 {
        let account = &self.accounts[index];
        let share = account.share.unwrap_or(0.0);
        let whole = self.kind_time[account.choice.kind()];
        let fraction = if whole == 0.0 { 0.0 } else { account.time / whole };
        match (share > 0.0 && account.choice.runs(), fraction == 0.0) {
            (false, _) => 0.0,
            (true, true) => share * UNTOUCHED,
            (true, false) => share / fraction,
        }
    }

    /// Its priority, then its deficit, then its share.
    fn precedence(&self, index: usize) -> [f64; 3] {
        let account = &self.accounts[index];
        [self.priority(index), account.deficit, account.share.unwrap_or(0.0)]
    }

    /// GPUs for the jobs that run: type by type, the largest first, where they were before if that is free, else the
    /// first free ones. A job that came after the last reset has no share and stays out, though its GPUs were set
    /// aside.
    fn place(
        &mut self,
        now: f64,
        table: &RateTable,
        picked: Vec<(usize, Vec<usize>)>,
        (view, offer): (&View<'_>, &mut Offer<'_>),
    ) {
        let before = std::mem::take(&mut self.places);
        for (kind, here) in picked {
            let mut free_gpus = FreeGpus::new(table.kinds[kind], view, offer);
            let (plain, other): (Vec<usize>, Vec<usize>) = here.into_iter().partition(|index| {
                let choice = &self.accounts[*index].choice;
                choice.uses.len() == 1 && choice.nodes_max == 0
            });
            let mut sizes: Vec<u32> =
                plain.iter().map(|index| self.accounts[*index].choice.gpus()).collect();
            sizes.sort_unstable_by(|a, b| b.cmp(a));
            sizes.dedup();
            let mut found: Vec<(usize, Placement)> = Vec::new();
            for size in sizes {
                let of_size: Vec<usize> = (plain.iter().copied())
                    .filter(|index| self.accounts[*index].choice.gpus() == size)
                    .collect();
                let mut rest = Vec::new();
                for index in of_size {
                    match before.get(&self.accounts[index].key.jobs) {
                        Some((on, place)) if *on == kind && free_gpus.take(place) => {
                            found.push((index, place.clone()));
                        }
                        _ => rest.push(index),
                    }
                }
                for index in rest {
                    if self.accounts[index].share.is_some()
                        && let Some(place) = free_gpus.first(size)
                    {
                        found.push((index, place));
                    }
                }
            }
            let exact = found.into_iter().map(|(index, place)| (index, Some(place)));
            let placed = other.into_iter().map(|index| (index, None));
            for (index, place) in exact.chain(placed).collect::<Vec<_>>() {
                self.launch((index, kind), now, (table, place), (view, offer));
            }
        }
    }

    fn launch(
        &mut self,
        (index, kind): (usize, usize),
        now: f64,
        (table, place): (&RateTable, Option<Placement>),
        (view, offer): (&View<'_>, &mut Offer<'_>),
    ) {
        let account = &self.accounts[index];
        if account.share.is_none() {
            return;
        }
        let choice = &account.choice;
        let exact = place.is_some();
        let mut found = group::offer_choice(choice, &table.kinds, place, (view, offer));
        if found.is_err() && exact {
            // A pool, a host or a ceiling is in the way, of which the original knows nothing.
            found = group::offer_choice(choice, &table.kinds, None, (view, offer));
        }
        let Ok(place) = found else { return };
        self.places.insert(choice.jobs.clone(), (kind, place));
        let (key, rates) = (account.key.clone(), choice.rates.clone());
        self.tasks.push(Task { key, kind, began: now, rates });
    }

    /// On a host that keeps no rounds: asks to be called at the end of this one, or when the next reset may be.
    fn wake(&mut self, settings: &RoundSettings, view: &View<'_>, offer: &mut Offer<'_>) {
        self.round_until = view.now + settings.round;
        if view.keeps_rounds() {
            return;
        }
        if !self.tasks.is_empty() {
            offer.wake_at(self.round_until);
        } else if self.changed {
            let reset = self.last_reset + settings.reset_min.as_secs_f64();
            offer.wake_at(Time::from_secs_f64(reset).max(view.now + settings.round));
        }
    }
}

impl Task {
    /// When its part of the round was done: all steps that fit into a round, or fewer if a job ended on the way.
    fn ended(&self, settings: &RoundSettings, view: &View<'_>) -> f64 {
        let round = settings.round.as_secs_f64();
        let whole = |rate: f64| self.began + (rate * round).floor().max(1.0) / rate;
        let mut end = self.began;
        for (job, rate) in self.key.jobs.iter().zip(&self.rates) {
            let Some((_, at)) = view.ended().iter().find(|(ended, _)| ended == job) else {
                end = end.max(whole(*rate));
                continue;
            };
            let at = at.as_secs_f64();
            let steps = |rate: f64| self.began + ((at - self.began) * rate).round() / rate;
            // Jobs in company end with the slowest of them, so the step that was last may be the other's.
            let exact = self.rates.iter().map(|rate| steps(*rate));
            let near = |moment: &f64| (moment - at).abs() <= SAME_MOMENT;
            end = end.max(exact.into_iter().find(near).unwrap_or(at));
        }
        end
    }
}

/// Takes a choice into the round, if it runs at all, its GPUs are left and none of its jobs was taken.
fn take(choice: &Choice, left: &mut [u32], taken: &mut IdSet<JobId>) -> bool {
    let fits = choice.uses.iter().all(|(kind, gpus)| *gpus <= left[usize::from(*kind)]);
    let idle = choice.jobs.iter().all(|job| !taken.contains(*job));
    if !idle || !choice.runs() || !fits {
        return false;
    }
    for (kind, gpus) in &choice.uses {
        left[usize::from(*kind)] -= gpus;
    }
    for job in &choice.jobs {
        taken.insert(*job);
    }
    true
}

/// The free GPUs of a type, in order of nodes.
struct FreeGpus {
    free: Vec<(NodeId, u64)>,
}

impl FreeGpus {
    fn new(kind: GpuType, view: &View<'_>, offer: &Offer<'_>) -> FreeGpus {
        let nodes = view.cluster().nodes.iter().filter(|node| node.kind == kind);
        let free = nodes.map(|node| (node.id, offer.free().mask(node.id)));
        FreeGpus { free: free.collect() }
    }

    /// Takes exactly these, if all are free.
    fn take(&mut self, place: &Placement) -> bool {
        let at = |node: NodeId| self.free.binary_search_by_key(&node, |(id, _)| *id);
        let all = place
            .masks()
            .iter()
            .all(|(node, mask)| at(*node).is_ok_and(|index| self.free[index].1 & mask == *mask));
        if all {
            for (node, mask) in place.masks() {
                if let Ok(index) = self.free.binary_search_by_key(node, |(id, _)| *id) {
                    self.free[index].1 &= !mask;
                }
            }
        }
        all
    }

    /// Takes the first so many.
    fn first(&mut self, count: u32) -> Option<Placement> {
        let mut rest = count;
        let mut masks: SmallVec<[(NodeId, u64); 4]> = SmallVec::new();
        for (node, free) in &self.free {
            let here = free.count_ones().min(rest);
            if here > 0 {
                masks.push((*node, lowest_bits(*free, here)));
                rest -= here;
            }
            if rest == 0 {
                break;
            }
        }
        let place = (rest == 0).then(|| Placement::from_masks(masks))?;
        self.take(&place).then_some(place)
    }
}
