//! Files that something else wrote into.

use crate::place::{Place, add_job, attempt, audit, end_job, event, key};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::fs;
use trainyard_store::{Loaded, RepairReport, Store, StoreError, Write, repair};

const PAGE: usize = 4096;

/// A store with rows in every table, closed; its bytes and what it held.
fn sound() -> (Vec<u8>, Loaded) {
    let place = Place::new();
    let mut store = place.open();
    for job in 0..200 {
        let wall = i64::from(job);
        let key = key(&job.to_string(), wall);
        let launch = attempt(job, 0, (wall, None));
        store.commit(&[add_job(job), launch, key, event(wall), audit(wall)]).unwrap();
        if job % 2 == 0 {
            store.commit(&[end_job(job)]).unwrap();
        }
    }
    store.commit(&[Write::SetMeta { name: "epoch".into(), value: "7".into() }]).unwrap();
    let loaded = store.load().unwrap();
    store.close().unwrap();
    (fs::read(place.store()).unwrap(), loaded)
}

fn saved(report: &RepairReport, table: &str) -> u64 {
    report.tables.iter().find(|(name, _)| *name == table).unwrap().1.kept
}

#[test]
fn flipped_bits_never_cause_a_panic_and_a_repair_gives_a_sound_store() {
    let (bytes, _) = sound();
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let mut outcomes: BTreeMap<String, u32> = BTreeMap::new();
    let begin = std::time::Instant::now();
    let mut rounds = 0;
    while rounds < 120 && begin.elapsed().as_secs() < 30 {
        let place = Place::new();
        let mut damaged = bytes.clone();
        spoil(&mut damaged, &mut random, rounds);
        fs::write(place.store(), &damaged).unwrap();
        let dry = repair(&place.store(), true);
        assert_eq!(fs::read(place.store()).unwrap(), damaged, "a dry run changes nothing");
        assert_eq!(place.names(), ["store.db", "store.db.lock"], "a dry run leaves nothing behind");
        let opened = Store::open(&place.store()).and_then(|mut store| store.load());
        let word = match &opened {
            Ok(_) => "opens",
            Err(error) => named(error, &place),
        };
        *outcomes.entry(format!("open: {word}")).or_default() += 1;
        fs::write(place.store(), &damaged).unwrap();
        let word = match (repair(&place.store(), false), dry) {
            (Ok(report), Ok(dry)) => {
                assert_eq!((&report.faults, &report.tables), (&dry.faults, &dry.tables));
                let sound = report.is_sound();
                place.open().load().unwrap_or_else(|error| panic!("{error}: {report:#?}"));
                if sound { "sound" } else { "repaired" }
            }
            (Err(error), _) => named(&error, &place),
            (Ok(_), Err(error)) => panic!("only the dry run failed: {error}"),
        };
        *outcomes.entry(format!("repair: {word}")).or_default() += 1;
        rounds += 1;
    }
    println!("{rounds} rounds: {outcomes:?}");
    assert!(rounds >= 12, "too slow to be a test");
}

/// Some bits, a page of nothing, a page of noise, or the end of the file gone.
fn spoil(bytes: &mut Vec<u8>, random: &mut ChaCha8Rng, round: u32) {
    let mut below = |bound: usize| (random.next_u64() % bound as u64) as usize;
    let page = below(bytes.len() / PAGE) * PAGE;
    match round % 6 {
        0 => {
            for _ in 0..64 {
                bytes[below(PAGE) + page] ^= 1 << below(8);
            }
        }
        1 => bytes[page..page + PAGE].fill(0),
        2 => random.fill_bytes(&mut bytes[page..page + PAGE]),
        3 => bytes.truncate(page + below(PAGE)),
        4 => bytes[below(100)] ^= 1 << below(8),
        _ => {
            for _ in 0..=below(8) {
                let at = below(bytes.len());
                bytes[at] ^= 1 << below(8);
            }
        }
    }
}

/// What sort of failure it is; every one names the file.
fn named(error: &StoreError, place: &Place) -> &'static str {
    let text = error.to_string();
    assert!(text.contains(place.store().to_str().unwrap()), "{text}");
    match error {
        StoreError::Damaged { .. } => {
            assert!(text.contains("trainyard store repair --dry-run /"), "{text}");
            "damaged"
        }
        StoreError::Newer { .. } => "newer",
        StoreError::Foreign { .. } => "foreign",
        StoreError::Io { .. } => "io",
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_repair_saves_all_but_the_damaged_page() {
    let (bytes, before) = sound();
    let leaf = (0..bytes.len() / PAGE)
        .filter(|page| bytes[page * PAGE] == 0x0d)
        .find(|page| {
            let page = &bytes[page * PAGE..][..PAGE];
            page.windows(8).any(|window| window == b"train-99")
        })
        .expect("a leaf of the table of jobs");
    let place = Place::new();
    let mut damaged = bytes.clone();
    damaged[leaf * PAGE..][..PAGE].fill(0xff);
    fs::write(place.store(), &damaged).unwrap();
    let refused = Store::open(&place.store()).unwrap_err();
    assert!(matches!(refused, StoreError::Damaged { .. }), "{refused:?}");

    let report = repair(&place.store(), false).unwrap();
    let (_, jobs) = &report.tables[0];
    println!("{jobs:?}");
    assert_eq!(jobs.gaps.len(), 1, "one stretch of jobs is lost");
    let gap = jobs.gaps[0];
    assert!(gap.first <= 99 && 99 <= gap.last && gap.last - gap.first < 20, "{gap:?}");
    assert_eq!(jobs.kept, 200 - (gap.last - gap.first + 1) as u64);
    assert_eq!(["attempts", "keys", "events", "audit"].map(|name| saved(&report, name)), [200; 4]);
    assert_eq!(fs::read(report.set_aside.unwrap()).unwrap(), damaged, "the damaged file is kept");
    let after = place.open().load().unwrap();
    let lost = |job: u32| (gap.first..=gap.last).contains(&i64::from(job));
    let expected: Vec<_> = before.jobs.iter().filter(|row| !lost(row.job)).cloned().collect();
    assert_eq!(after.jobs, expected);
    assert_eq!((after.meta, after.next_job, after.last_event), (before.meta, 200, 200));
}

#[test]
fn a_repair_reads_the_log_and_keeps_it_with_the_damaged_file() {
    let (from, place) = (Place::new(), Place::new());
    let mut store = from.open();
    store.commit(&[add_job(1)]).unwrap();
    let log = fs::read(from.path("store.db-wal")).unwrap();
    let mut damaged = fs::read(from.store()).unwrap();
    damaged[..100].fill(0);
    fs::write(place.store(), &damaged).unwrap();
    fs::write(place.path("store.db-wal"), &log).unwrap();
    let report = repair(&place.store(), false).unwrap();
    assert_eq!(saved(&report, "jobs"), 1, "{report:#?}");
    assert_eq!(fs::read(place.path("store.db.damaged")).unwrap(), damaged);
    assert_eq!(fs::read(place.path("store.db.damaged-wal")).unwrap(), log);
    assert_eq!(place.open().load().unwrap().jobs.len(), 1);
}

#[test]
fn a_repair_after_a_lost_header_saves_every_row() {
    let (bytes, before) = sound();
    let place = Place::new();
    let mut damaged = bytes;
    damaged[..100].fill(0);
    fs::write(place.store(), &damaged).unwrap();
    let refused = Store::open(&place.store()).unwrap_err();
    assert!(matches!(refused, StoreError::Damaged { .. }), "{refused:?}");
    let report = repair(&place.store(), false).unwrap();
    assert!(report.header_replaced && !report.loses_rows(), "{report:#?}");
    assert_eq!(place.open().load().unwrap(), before);
}

#[test]
fn a_repair_never_gives_a_number_again_that_something_still_mentions() {
    let place = Place::new();
    let mut store = place.open();
    store.commit(&[add_job(1), attempt(41, 0, (0, None))]).unwrap();
    store.close().unwrap();
    let mut bytes = fs::read(place.store()).unwrap();
    bytes[40..44].fill(0x77);
    bytes[..16].fill(0);
    fs::write(place.store(), bytes).unwrap();
    repair(&place.store(), false).unwrap();
    assert_eq!(place.open().load().unwrap().next_job, 42);
}

#[test]
fn a_sound_store_is_left_alone_and_one_in_use_is_not_touched() {
    let place = Place::new();
    let mut store = place.open();
    store.commit(&[add_job(1)]).unwrap();
    assert!(matches!(repair(&place.store(), false), Err(StoreError::Locked { .. })));
    store.close().unwrap();
    let before = fs::read(place.store()).unwrap();
    let report = repair(&place.store(), false).unwrap();
    assert!(report.is_sound() && report.set_aside.is_none() && report.kept() == 1);
    assert_eq!(fs::read(place.store()).unwrap(), before);
}

#[test]
fn a_file_that_is_empty_or_gone_while_its_log_is_there_is_not_a_new_store() {
    let place = Place::new();
    fs::write(place.store(), "").unwrap();
    let refused = Store::open(&place.store()).unwrap_err();
    assert!(refused.to_string().contains("the file is empty"), "{refused}");
    fs::remove_file(place.store()).unwrap();
    fs::write(place.path("store.db-wal"), "log").unwrap();
    let refused = Store::open(&place.store()).unwrap_err();
    assert!(refused.to_string().contains("the file is gone"), "{refused}");
}
