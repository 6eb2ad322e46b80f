//! A deterministic simulation of the daemon's durable core: thousands of small worlds in which everything goes wrong
//! that can, each from one seed.
//!
//! - [`world`]: a case: time, crashes, full disks, late outcomes, and the order in which a daemon deals with a turn.
//! - [`disk`]: the store, in memory. The backend without processes is `trainyard_testkit::machine`. [`people`]: users and operators.
//! - [`promises`]: what must hold, and when.
//!
//! `DST_SEED=123 cargo test -p trainyard-daemon --test dst` replays one case and tells every step;
//! `DST_SEEDS=100000` runs more of them, `DST_FROM=5000` others.

mod disk;
mod people;
mod promises;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use trainyard_profile::Catalog;
use trainyard_store::{Store, Write};
use world::{Seen, World};

/// How many cases a plain run makes.
const SEEDS: u64 = 1200;
/// How many cases write to a real store too, which syncs at every turn.
const MIRRORED: u64 = 3;
/// How many failures are told.
const TOLD_MAX: usize = 5;

#[test]
fn nothing_acknowledged_is_lost_and_nothing_runs_twice() {
    let catalog = Arc::new(Catalog::default());
    if let Some(seed) = number("DST_SEED") {
        let mut world = World::new(seed, &catalog, true);
        world.run();
        eprintln!("{:?}", world.seen);
        return;
    }
    let from = number("DST_FROM").unwrap_or(0);
    let until = from + number("DST_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(from);
    let failures = Mutex::new(Vec::new());
    let seen = Mutex::new(Seen::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= until || failures.lock().expect("no panic here").len() >= TOLD_MAX {
                return;
            }
            match case(seed, &catalog) {
                Ok(case) => seen.lock().expect("no panic here").add(&case),
                Err(failure) => {
                    // At once too, for a run that is cut off.
                    eprintln!("{failure}");
                    failures.lock().expect("no panic here").push(failure);
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().expect("no panic here");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let seen = seen.into_inner().expect("no panic here");
    println!("seeds {from} to {}: {seen:?}", until - 1);
    seen.assert_eventful(until - from);
}

/// The simulation is worth what its disk is worth.
#[test]
fn the_disk_of_the_simulation_keeps_what_a_real_store_keeps() {
    let catalog = Arc::new(Catalog::default());
    for seed in 0..MIRRORED {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("dst-mirror-{seed}"));
        let _ = std::fs::remove_dir_all(&folder);
        let mut world = World::new(seed, &catalog, false);
        world.mirror = Some(Store::open(&folder.join("store.db")).expect("a new store"));
        world.run();
        let mut store = world.mirror.take().expect("still there");
        assert_eq!(store.load().expect("a sound store"), world.disk.load());
        refuse_the_same(&mut store, &mut world.disk);
        std::fs::remove_dir_all(&folder).expect("our own folder");
    }
}

/// A list with one write that cannot be kept leaves nothing behind, here and there.
fn refuse_the_same(store: &mut Store, disk: &mut disk::Disk) {
    let row = disk.jobs.values().next().expect("every case has jobs").row.clone();
    let taken = Write::AddJob {
        job: row.job,
        user: row.user,
        tenant: row.tenant,
        spec: row.spec,
        state: row.state.clone(),
        wall: row.wall,
    };
    let missing = Write::SetState { job: u32::MAX, state: row.state, end: None };
    let unknown = Write::DropToken { name: "nobody's".to_owned() };
    for bad in [taken, missing, unknown] {
        let good = Write::SetMeta { name: "good".to_owned(), value: "1".to_owned() };
        let list = [good, bad];
        assert!(store.commit(&list).is_err() && disk.commit(&list).is_err(), "{list:?}");
    }
    assert_eq!(store.load().expect("a sound store"), disk.load());
}

/// Runs one case; a failure comes with the command that replays it.
fn case(seed: u64, catalog: &Arc<Catalog>) -> Result<Seen, String> {
    let mut world = World::new(seed, catalog, false);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    outcome.map(|()| world.seen.clone()).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        format!(
            "seed {seed}, step {}: {text}\n  DST_SEED={seed} cargo test -p trainyard-daemon --test dst -- --nocapture",
            world.step
        )
    })
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is `{text}`: expected a whole number")))
}
