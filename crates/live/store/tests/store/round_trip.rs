//! What was committed is what is read, now and after opening again.

use crate::place::{Place, add_job, attempt, audit, end_job, event, key};
use proptest::prelude::*;
use std::collections::BTreeMap;
use trainyard_store::{AttemptRow, JobRow, Loaded, StoreError, Taken, TokenRow, Write};

/// The store in memory: a plain model to compare with.
#[derive(Clone, Default)]
struct Model {
    jobs: BTreeMap<u32, JobRow>,
    attempts: BTreeMap<(u32, u32), AttemptRow>,
    keys: BTreeMap<(String, String), (String, String)>,
    meta: BTreeMap<String, String>,
    tokens: BTreeMap<String, TokenRow>,
    events: u64,
    audits: usize,
}

impl Model {
    /// Whether a list fits; nothing changes when it does not.
    fn commit(&mut self, writes: &[Write]) -> bool {
        let mut next = self.clone();
        let fits = writes.iter().all(|write| next.apply(write.clone()));
        if fits {
            *self = next;
        }
        fits
    }

    fn apply(&mut self, write: Write) -> bool {
        match write {
            Write::AddJob { job, user, tenant, spec, state, wall } => {
                let row = JobRow { job, user, tenant, spec, state, end: None, wall };
                self.jobs.insert(job, row).is_none()
            }
            Write::SetState { job, state, end } => self.jobs.get_mut(&job).is_some_and(|row| {
                (row.state, row.end) = (state, end);
                true
            }),
            Write::SetAttempt { job, attempt, gpus, launched, ended, price_per_hour, data } => {
                let row = AttemptRow { job, attempt, gpus, launched, ended, price_per_hour, data };
                self.attempts.insert((job, attempt), row);
                true
            }
            Write::AddKey { user, key, digest, answer, .. } => {
                self.keys.insert((user, key), (digest, answer)).is_none()
            }
            Write::AddEvent { .. } => {
                self.events += 1;
                true
            }
            Write::AddAudit { .. } => {
                self.audits += 1;
                true
            }
            Write::SetMeta { name, value } => {
                self.meta.insert(name, value);
                true
            }
            Write::AddToken { name, digest, user, role, created, expires } => {
                let digest_taken = self.tokens.values().any(|token| token.digest == digest);
                let row = TokenRow { name: name.clone(), digest, user, role, created, expires };
                self.tokens.insert(name, row).is_none() && !digest_taken
            }
            Write::DropToken { name } => self.tokens.remove(&name).is_some(),
        }
    }

    fn loaded(&self) -> Loaded {
        let open: Vec<JobRow> =
            self.jobs.values().filter(|row| row.end.is_none()).cloned().collect();
        let newest = open
            .iter()
            .filter_map(|row| self.attempts.range((row.job, 0)..=(row.job, u32::MAX)).next_back());
        Loaded {
            attempts: newest.map(|(_, row)| row.clone()).collect(),
            jobs: open.clone(),
            meta: self.meta.clone(),
            next_job: self.jobs.keys().next_back().map_or(0, |job| job + 1),
            last_event: self.events,
            tokens: self.tokens.values().cloned().collect(),
        }
    }
}

/// Texts of any kind: quotes, nothing, a NUL, letters of several bytes.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("{\"a\":\"it's\"}".to_owned()),
        Just("nul \0 within".to_owned()),
        "\\PC{0,12}",
    ]
}

fn write() -> impl Strategy<Value = Write> {
    let job = || 0..12u32;
    let name = || "[ab]";
    let wall = || any::<i64>();
    prop_oneof![
        4 => (job(), text(), text(), text(), text(), wall()).prop_map(
            |(job, user, tenant, spec, state, wall)| Write::AddJob { job, user, tenant, spec, state, wall }
        ),
        4 => (job(), text(), proptest::option::of(text()))
            .prop_map(|(job, state, end)| Write::SetState { job, state, end }),
        4 => (job(), 0..4u32, any::<u32>(), wall(), proptest::option::of(wall()), -1e300..1e300, text()).prop_map(
            |(job, attempt, gpus, launched, ended, price_per_hour, data)| Write::SetAttempt {
                job, attempt, gpus, launched, ended, price_per_hour, data,
            }
        ),
        1 => (name(), name(), text(), text(), wall())
            .prop_map(|(user, key, digest, answer, wall)| Write::AddKey { user, key, digest, answer, wall }),
        2 => (wall(), text(), proptest::option::of(job()), proptest::option::of(text()), text())
            .prop_map(|(wall, kind, job, user, data)| Write::AddEvent { wall, kind, job, user, data }),
        1 => (wall(), text(), text(), text(), any::<bool>())
            .prop_map(|(wall, user, action, target, allowed)| Write::AddAudit { wall, user, action, target, allowed }),
        2 => (name(), text()).prop_map(|(name, value)| Write::SetMeta { name, value }),
        1 => (name(), name(), text(), text(), wall(), proptest::option::of(wall())).prop_map(
            |(name, digest, user, role, created, expires)| Write::AddToken { name, digest, user, role, created, expires }
        ),
        1 => name().prop_map(|name| Write::DropToken { name }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_loaded_is_what_was_committed(
        lists in proptest::collection::vec(proptest::collection::vec(write(), 1..5), 1..30),
    ) {
        let place = Place::new();
        let mut store = place.open();
        let mut model = Model::default();
        for (number, list) in lists.iter().enumerate() {
            let fits = model.commit(list);
            match store.commit(list) {
                Ok(committed) => prop_assert_eq!((committed.last_event, fits), (model.events, true)),
                Err(StoreError::Conflict { .. } | StoreError::Missing { .. }) => prop_assert!(!fits),
                Err(other) => prop_assert!(false, "{}", other),
            }
            if number % 10 == 9 {
                store.close().unwrap();
                store = place.open();
            }
        }
        prop_assert_eq!(store.load().unwrap(), model.loaded());
        let reader = store.reader().unwrap();
        for job in 0..12 {
            prop_assert_eq!(reader.job(job).unwrap(), model.jobs.get(&job).cloned());
            let attempts: Vec<AttemptRow> =
                model.attempts.range((job, 0)..=(job, u32::MAX)).map(|(_, row)| row.clone()).collect();
            prop_assert_eq!(reader.attempts(job).unwrap(), attempts);
        }
        for ((user, key), kept) in &model.keys {
            prop_assert_eq!(reader.key(user, key).unwrap(), Some(kept.clone()));
        }
        prop_assert_eq!(reader.events(0, usize::MAX).unwrap().len() as u64, model.events);
        prop_assert_eq!(reader.audit(usize::MAX).unwrap().len(), model.audits);
        prop_assert_eq!(reader.check().unwrap(), Vec::<String>::new());
    }
}

#[test]
fn a_taken_id_or_key_fails_the_whole_list_and_says_which() {
    let place = Place::new();
    let mut store = place.open();
    store.commit(&[add_job(1), key("k", 0), event(0)]).unwrap();
    let refused = store.commit(&[event(1), add_job(2), add_job(1)]);
    assert_eq!(refused, Err(StoreError::Conflict { index: 2, taken: Taken::Job(1) }));
    let refused = store.commit(&[add_job(3), key("k", 1)]).unwrap_err();
    assert_eq!(refused.to_string(), "write 1: key `k` of user `ada` is taken already");
    let loaded = store.load().unwrap();
    assert_eq!((loaded.jobs.len(), loaded.next_job, loaded.last_event), (1, 2, 1));
    assert_eq!(store.commit(&[event(2)]).unwrap().last_event, 2, "numbers have no gaps");
}

#[test]
fn a_write_about_nothing_or_with_no_number_is_refused() {
    let place = Place::new();
    let mut store = place.open();
    let missing = store.commit(&[add_job(1), end_job(9)]).unwrap_err();
    assert_eq!(missing.to_string(), "write 1: there is no job 9");
    let mut priced = attempt(1, 0, (0, None));
    if let Write::SetAttempt { price_per_hour, .. } = &mut priced {
        *price_per_hour = f64::NAN;
    }
    assert!(matches!(store.commit(&[priced]), Err(StoreError::Invalid { index: 0, .. })));
    assert_eq!(store.load().unwrap(), Loaded::default());
}

#[test]
fn a_reader_on_another_thread_sees_each_commit() {
    let place = Place::new();
    let mut store = place.open();
    store.commit(&(0..6).map(add_job).collect::<Vec<_>>()).unwrap();
    let ended = [1, 2, 4, 5];
    store.commit(&ended.map(end_job)).unwrap();
    let reader = store.reader().unwrap();
    std::thread::spawn(move || {
        let ids = |before, user, limit| -> Vec<u32> {
            let rows = reader.ended_jobs(before, user, limit).unwrap();
            rows.iter().map(|row| row.job).collect()
        };
        assert_eq!(ids(None, None, 10), [5, 4, 2, 1]);
        assert_eq!(ids(Some(5), None, 2), [4, 2]);
        assert_eq!(ids(None, Some("user2"), 10), [2]);
        assert_eq!(reader.end_of(5).unwrap().as_deref(), Some("{\"kind\":\"finished\"}"));
        assert_eq!(reader.end_of(3).unwrap(), None);
        assert_eq!(reader.end_of(99).unwrap(), None);
    })
    .join()
    .unwrap();
}

#[test]
fn usage_counts_what_overlaps_the_time_asked_for() {
    let place = Place::new();
    let mut store = place.open();
    store.commit(&[add_job(1), add_job(2), audit(3), audit(4)]).unwrap();
    let launches =
        [attempt(1, 0, (10, Some(20))), attempt(1, 1, (30, Some(40))), attempt(2, 0, (15, None))];
    store.commit(&launches).unwrap();
    let reader = store.reader().unwrap();
    let found = |since, until, user| -> Vec<(u32, u32, String)> {
        let rows = reader.attempts_between(since, until, user).unwrap();
        rows.into_iter().map(|row| (row.attempt.job, row.attempt.attempt, row.tenant)).collect()
    };
    let (one, two) = ("team1".to_owned(), "team2".to_owned());
    let all = [(1, 0, one.clone()), (2, 0, two.clone()), (1, 1, one.clone())];
    assert_eq!(found(0, 100, None), all);
    assert_eq!(found(20, 30, None), [(2, 0, two)], "neither end belongs to the time");
    assert_eq!(found(0, 100, Some("user1")), [(1, 0, one.clone()), (1, 1, one)]);
    let walls: Vec<i64> = reader.audit(1).unwrap().iter().map(|row| row.wall).collect();
    assert_eq!(walls, [4], "the newest comes first");
}

#[test]
fn an_ended_job_can_be_opened_again() {
    let place = Place::new();
    let mut store = place.open();
    store.commit(&[add_job(1), end_job(1)]).unwrap();
    let again = Write::SetState { job: 1, state: "{}".to_owned(), end: None };
    store.commit(&[again]).unwrap();
    let ids: Vec<u32> = store.load().unwrap().jobs.iter().map(|row| row.job).collect();
    assert_eq!(ids, [1]);
}
