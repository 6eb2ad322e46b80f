//! Our rules: credits in seconds.
//!
//! Each choice has a credit: the seconds it was owed by its share, less those it received. At the start of a round
//! those with the largest credit run. Between, a job that comes takes what is idle.
//!
//! What differs from Gavel's rules, and why:
//! - Shares are worked out whenever the jobs changed, so that no job waits for a reset.
//! - Seconds of a restart are no seconds received.
//! - A choice that runs is ahead by what it would cost to stop it and to start it again, so that a switch happens only
//!   when the other one is further behind than that.
//! - There is no barrier: rounds begin at multiples of their length, whatever jobs do.
//!
//! A choice that is met for the first time, or again after forgetting, has the credit that the state of its job tells:
//! forgetting costs a little accuracy and nothing else.

use super::{Asked, Choice, RateTable, RoundSettings, group};
use crate::{GrantOutcome, JobRef, Offer, View};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use trainyard_types::{Config, JobId, Span, Time};

/// No choice is ahead or behind by more rounds than this, so that what was long ago does not count for ever.
const CREDIT_ROUNDS_MAX: f64 = 8.0;

/// Shares below this are no reason to begin a round.
const SHARE_MIN: f64 = 1e-3;

/// Tells choices apart.
type Key = (SmallVec<[JobId; 2]>, SmallVec<[(u16, u32); 1]>, u16);

fn key(choice: &Choice) -> Key {
    (SmallVec::from_slice(&choice.jobs), SmallVec::from_slice(&choice.uses), choice.nodes_max)
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
        let order = self.order(settings, view, offer);
        // A job that keeps a grant here was not lifted: it is the middle of a round, or it may not be stopped.
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
                Err(GrantOutcome::Full) => break,
                Err(_) => {}
            }
        }
        for (entry, runs) in self.entries.iter_mut().zip(runs) {
            entry.since = entry.since.filter(|_| runs);
        }
        // Where every job has what it should have for ever, or nothing runs and time alone changes nothing, no further
        // call is needed before something happens.
        let behind = self.entries.iter().any(|one| one.share > SHARE_MIN && one.since.is_none());
        if behind && self.entries.iter().any(|entry| entry.since.is_some()) {
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
        let mut known = Met::new(std::mem::take(&mut self.entries));
        let answer = if table.jobs.is_empty() { None } else { ask.shares(&table) };
        let failed = answer.is_none();
        let shares = answer.unwrap_or_default();
        let of = shares.of.into_iter().map(Some).chain(std::iter::repeat(None));
        let in_table = table.choices.iter().cloned().zip(of);
        for (choice, share) in in_table.chain(shares.more.into_iter().map(|(c, s)| (c, Some(s)))) {
            let old = known.take(&choice);
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
            let mut beyond: Vec<Entry> = known.rest().filter(stays).collect();
            beyond.sort_by_cached_key(|one| key(&one.choice));
            self.entries.append(&mut beyond);
        }
        self.failed = failed;
        self.table = table;
    }

    /// All choices that can run and none of whose jobs has a grant: those with a share first, the largest credit first.
    fn order(&self, settings: &RoundSettings, view: &View<'_>, offer: &Offer<'_>) -> Vec<usize> {
        let mut all: Vec<(bool, f64, usize)> = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            if entry.choice.jobs.iter().any(|job| offer.plan(*job).is_some()) {
                continue;
            }
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

/// The choices of the shares before, to be found again.
///
/// Both lists are by job as a rule, so that a choice is looked for from where the last was found; where one of them is
/// not, all places are put into a map first.
struct Met {
    old: Vec<Option<Entry>>,
    /// Whether each is that of one job, in order of jobs.
    by_job: bool,
    /// Where to look from, and the job that was looked for last.
    at: usize,
    last: Option<JobId>,
    places: Option<FxHashMap<Key, usize>>,
}

impl Met {
    fn new(entries: Vec<Entry>) -> Met {
        let job = |entry: &Entry| entry.choice.jobs.first().copied();
        let by_job = entries.iter().all(|entry| entry.choice.jobs.len() == 1)
            && entries.is_sorted_by_key(job);
        let old = entries.into_iter().map(Some).collect();
        Met { old, by_job, at: 0, last: None, places: None }
    }

    /// Takes a choice out, if it was met.
    fn take(&mut self, choice: &Choice) -> Option<Entry> {
        if let [job] = *choice.jobs
            && self.by_job
            && self.places.is_none()
            && self.last.is_none_or(|last| last <= job)
        {
            self.last = Some(job);
            return self.take_next(job, choice);
        }
        let places = self.places.get_or_insert_with(|| {
            let met = self.old.iter().enumerate();
            met.filter_map(|(at, entry)| Some((key(&entry.as_ref()?.choice), at))).collect()
        });
        places.remove(&key(choice)).and_then(|at| self.old[at].take())
    }

    /// The same for a job that does not come before the last one.
    fn take_next(&mut self, job: JobId, choice: &Choice) -> Option<Entry> {
        let is_before =
            |entry: &Option<Entry>| entry.as_ref().is_none_or(|entry| entry.choice.jobs[0] < job);
        self.at += self.old[self.at..].iter().take_while(|entry| is_before(entry)).count();
        for entry in &mut self.old[self.at..] {
            match entry {
                Some(one) if one.choice.jobs[0] != job => break,
                Some(one) if is_same(&one.choice, choice) => return entry.take(),
                Some(_) | None => {}
            }
        }
        None
    }

    /// What was not taken out.
    fn rest(self) -> impl Iterator<Item = Entry> {
        self.old.into_iter().flatten()
    }
}

/// Whether two choices differ in nothing but their rates.
fn is_same(one: &Choice, other: &Choice) -> bool {
    one.jobs == other.jobs && one.uses == other.uses && one.nodes_max == other.nodes_max
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
            let cost = view.preemption_where_it_is(job, &config);
            Some((cost.save + cost.start).as_secs_f64())
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

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    fn choice(jobs: &[u32], kind: u16) -> Choice {
        let jobs: SmallVec<[JobId; 2]> = jobs.iter().copied().map(JobId).collect();
        let rates = jobs.iter().map(|_| 1.0).collect();
        Choice { jobs, uses: smallvec![(kind, 1)], nodes_max: 0, rates }
    }

    fn entry(choice: Choice, credit: f64) -> Entry {
        Entry { choice, share: 0.5, credit, since: None }
    }

    /// The credits with which some choices are found among others that were met with the credits 0, 1, 2 and so on.
    fn found(met: &[Choice], asked: &[Choice]) -> (Vec<Option<f64>>, usize) {
        let entries = met.iter().cloned().zip(0..).map(|(one, at)| entry(one, f64::from(at)));
        let mut known = Met::new(entries.collect());
        let credits = asked.iter().map(|one| known.take(one).map(|entry| entry.credit)).collect();
        (credits, known.rest().count())
    }

    #[test]
    fn a_choice_is_found_again_whatever_the_order() {
        let met = [choice(&[1], 0), choice(&[1], 1), choice(&[2], 0), choice(&[4], 1)];
        let in_order = [choice(&[1], 1), choice(&[3], 0), choice(&[4], 0), choice(&[4], 1)];
        assert_eq!(found(&met, &in_order), (vec![Some(1.0), None, None, Some(3.0)], 2));
        let back = [choice(&[4], 1), choice(&[1], 1), choice(&[1], 0), choice(&[1], 0)];
        assert_eq!(found(&met, &back), (vec![Some(3.0), Some(1.0), Some(0.0), None], 1));
        let pairs = [choice(&[1, 2], 0), choice(&[2], 0), choice(&[1], 0)];
        assert_eq!(found(&pairs, &pairs), (vec![Some(0.0), Some(1.0), Some(2.0)], 0));
        assert_eq!(found(&met, &pairs), (vec![None, Some(2.0), Some(0.0)], 2));
    }
}
