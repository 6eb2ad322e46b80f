//! Our rules: credits in seconds.
//!
//! Each choice has a credit: the seconds it was owed by its share, less those it received. At the start of a round
//! those with the largest credit run. Between, whoever comes takes what is idle.
//!
//! What differs from Gavel's rules, and why:
//! - Shares are worked out whenever the jobs changed, so that nobody waits for a reset.
//! - Seconds of a restart are no seconds received.
//! - Who runs is ahead by what it would cost to stop it and to start it again, so that a switch happens only when the
//!   other one is further behind than that.
//! - There is no barrier: rounds begin at multiples of their length, whatever anyone does.
//!
//! A choice that is met for the first time, or again after forgetting, has the credit that the state of its job tells:
//! forgetting costs a little accuracy and nothing else.

use super::{Asked, Choice, RateTable, RoundSettings, group};
use crate::{Answer, JobRef, Offer, View};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use trainyard_types::{Config, JobId, Span, Time};

/// Nobody is ahead or behind by more rounds than this, so that what was long ago does not count for ever.
const CREDIT_ROUNDS_MAX: f64 = 8.0;

/// Shares below this are no reason to begin a round.
const SHARE_MIN: f64 = 1e-3;

/// Tells choices apart.
type Key = (SmallVec<[JobId; 2]>, SmallVec<[(u16, u32); 1]>, u16);

fn key(choice: &Choice) -> Key {
    (choice.jobs.clone(), choice.uses.clone(), choice.nodes_max)
}

/// The credits between two decisions.
#[derive(Default)]
pub(super) struct Ours {
    /// The table of the newest shares.
    table: RateTable,
    /// All choices with their credit, those beyond the table too.
    entries: Vec<Entry>,
    /// The round of the last decision.
    round: Option<u64>,
    /// Whether the newest shares could not be worked out, which is tried again with the next round.
    failed: bool,
    /// Up to when credits are counted.
    counted: Time,
}

/// A choice, its share and its credit.
struct Entry {
    choice: Choice,
    share: f64,
    /// Seconds owed, less those received.
    credit: f64,
    /// From when on it receives time, if it runs: once its start is over.
    since: Option<Time>,
}

impl Ours {
    /// Begins a round if it is time, and fills what is idle in any case.
    pub(super) fn decide(
        &mut self,
        settings: &RoundSettings,
        (table, fresh): (&RateTable, bool),
        ask: &mut Asked<'_, '_>,
        offer: &mut Offer<'_>,
    ) {
        let view = ask.view;
        self.count(settings, view.now);
        let round = view.now.0 / settings.round.0;
        let begins = self.round.replace(round) != Some(round) || view.keeps_rounds();
        if (fresh && self.table != *table) || (begins && self.failed) {
            self.solve(settings, table.clone(), ask);
        }
        if begins {
            offer.everything();
        }
        let order = self.order(settings, view);
        // Who keeps a grant here was not lifted: it is the middle of a round, or it may not be stopped.
        let goes_on =
            |entry: &Entry| entry.choice.jobs.iter().all(|job| offer.plan(*job).is_some());
        let mut runs: Vec<bool> =
            self.entries.iter().map(|entry| entry.since.is_some() && goes_on(entry)).collect();
        for index in order {
            let choice = &self.entries[index].choice;
            if choice.jobs.iter().any(|job| offer.plan(*job).is_some()) {
                continue;
            }
            match group::offer_choice(choice, &self.table.kinds, None, (view, offer)) {
                Ok(_) => {
                    self.entries[index].begin(view, offer);
                    runs[index] = true;
                }
                Err(Answer::Full) => break,
                Err(_) => {}
            }
        }
        for (entry, runs) in self.entries.iter_mut().zip(runs) {
            entry.since = entry.since.filter(|_| runs);
        }
        // Everyone has what it should have for ever: nobody need be asked again before something happens.
        if self.entries.iter().any(|entry| entry.share > SHARE_MIN && entry.since.is_none()) {
            offer.wake_at(Time((round + 1).saturating_mul(settings.round.0)));
        }
    }

    /// Counts credits up to now.
    fn count(&mut self, settings: &RoundSettings, now: Time) {
        let most = CREDIT_ROUNDS_MAX * settings.round.as_secs_f64();
        let passed = now.since(self.counted).as_secs_f64();
        for entry in &mut self.entries {
            let from = entry.since.map(|since| since.max(self.counted));
            let received = from.map_or(0.0, |from| now.since(from).as_secs_f64());
            let credit = entry.credit + entry.share * passed - received;
            entry.credit = credit.clamp(-most, most);
        }
        self.counted = now;
    }

    /// Works the shares out anew; credits stay with their choices. After an error the last shares stay, and choices
    /// that are new have none.
    fn solve(&mut self, settings: &RoundSettings, table: RateTable, ask: &mut Asked<'_, '_>) {
        let mut known: FxHashMap<Key, Entry> = std::mem::take(&mut self.entries)
            .into_iter()
            .map(|one| (key(&one.choice), one))
            .collect();
        let answer = if table.jobs.is_empty() { None } else { ask.shares(&table) };
        let failed = answer.is_none();
        let shares = answer.unwrap_or_default();
        let of = shares.of.into_iter().map(Some).chain(std::iter::repeat(None));
        let in_table = table.choices.iter().cloned().zip(of);
        for (choice, share) in in_table.chain(shares.more.into_iter().map(|(c, s)| (c, Some(s)))) {
            let old = known.remove(&key(&choice));
            let last = old.as_ref().map_or(0.0, |old| old.share);
            let mut entry =
                Entry { share: share.unwrap_or(last), choice, credit: 0.0, since: None };
            match old {
                Some(old) => (entry.credit, entry.since) = (old.credit, old.since),
                None => entry.meet(settings, &table, ask.view),
            }
            self.entries.push(entry);
        }
        if failed {
            let stays =
                |one: &Entry| one.choice.jobs.iter().all(|job| table.position(*job).is_some());
            let mut beyond: Vec<Entry> = known.into_values().filter(stays).collect();
            beyond.sort_by_cached_key(|one| key(&one.choice));
            self.entries.append(&mut beyond);
        }
        self.failed = failed;
        self.table = table;
    }

    /// All choices that can run: those with a share first, the largest credit first.
    fn order(&self, settings: &RoundSettings, view: &View<'_>) -> Vec<usize> {
        let mut all: Vec<(bool, f64, usize)> = Vec::with_capacity(self.entries.len());
        for (index, entry) in self.entries.iter().enumerate() {
            if !entry.choice.runs() || (!settings.fill && entry.share <= 0.0) {
                continue;
            }
            let ahead = if entry.since.is_some() { entry.restart(&self.table, view) } else { 0.0 };
            let soon = entry.share * settings.round.as_secs_f64();
            all.push((entry.share > 0.0, entry.credit + soon + ahead, index));
        }
        all.sort_by(|a, b| {
            let newest = |index: usize| self.entries[index].choice.jobs.iter().max();
            let by_credit = b.0.cmp(&a.0).then(b.1.total_cmp(&a.1));
            by_credit.then_with(|| newest(a.2).cmp(&newest(b.2))).then(a.2.cmp(&b.2))
        });
        all.into_iter().map(|(_, _, index)| index).collect()
    }
}

impl Entry {
    /// What the state of its job tells about a choice that is met for the first time, or again after forgetting.
    fn meet(&mut self, settings: &RoundSettings, table: &RateTable, view: &View<'_>) {
        let kind = table.kinds[self.choice.kind()];
        let [id] = self.choice.jobs.as_slice() else { return };
        let Some(job) = view.job(*id) else { return };
        let before = job.state.time_on.iter().find(|(other, _)| *other == kind);
        let mut on = before.map_or(Span::ZERO, |(_, span)| *span);
        if runs_on(job, &self.choice, table, view) {
            on += view.now.since(job.state.since);
            self.since = Some(view.now);
        }
        let round = settings.round.as_secs_f64();
        let lived = view.now.since(job.spec.submitted).as_secs_f64();
        self.credit = (self.share * lived - on.as_secs_f64()).clamp(-round, round);
    }

    /// It was granted: it receives time from now on, or once its start is over.
    fn begin(&mut self, view: &View<'_>, offer: &Offer<'_>) {
        let mut start = Span::ZERO;
        for id in &self.choice.jobs {
            let (Some(job), Some(plan)) = (view.job(*id), offer.plan(*id)) else { continue };
            let stays = job.state.held.as_ref().is_some_and(|held| held.same_place(plan));
            if !stays {
                let config = plan.config(view.cluster());
                start = start.max(view.change(job, None, Some(&config)).start);
            }
        }
        let from = view.now + start;
        self.since = Some(self.since.filter(|_| start == Span::ZERO).unwrap_or(from));
    }

    /// Seconds that stopping and starting it again would cost.
    fn restart(&self, table: &RateTable, view: &View<'_>) -> f64 {
        let (kind, gpus) = self.choice.uses[0];
        let config = Config::packed(table.kinds[usize::from(kind)], gpus, gpus);
        let cost = |id: &JobId| {
            let job = view.job(*id)?;
            let save = view.change(job, Some(&config), None).save;
            Some((save + view.change(job, None, Some(&config)).start).as_secs_f64())
        };
        self.choice.jobs.iter().filter_map(cost).fold(0.0, f64::max)
    }
}

/// Whether a job runs as a choice says, as far as its state tells.
fn runs_on(job: JobRef<'_>, choice: &Choice, table: &RateTable, view: &View<'_>) -> bool {
    let Some(held) = &job.state.held else { return false };
    let Some((node, _)) = held.placement.masks().first() else { return false };
    let kind = view.cluster().node(*node).kind;
    kind == table.kinds[choice.kind()] && held.placement.gpus() == choice.gpus()
}
