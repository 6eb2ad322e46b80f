//! How long things take, printed; the bounds are wide, because other tests run beside.

use crate::place::{Place, add_job, attempt};
use std::time::Instant;
use trainyard_store::{Store, Write, fsync_rate};

#[test]
fn a_hundred_thousand_open_jobs_are_back_in_moments() {
    let place = Place::new();
    let mut store = place.open();
    for begin in (0..100_000).step_by(5_000) {
        let mut list: Vec<Write> = (begin..begin + 5_000).map(add_job).collect();
        list.extend((begin..begin + 5_000).step_by(10).map(|job| attempt(job, 0, (1, None))));
        store.commit(&list).unwrap();
    }
    store.close().unwrap();
    let begin = Instant::now();
    let mut store = Store::open(&place.store()).unwrap();
    let opened = begin.elapsed();
    let loaded = store.load().unwrap();
    let whole = begin.elapsed();
    let bytes = std::fs::metadata(place.store()).unwrap().len();
    println!("{} MiB: open {opened:.1?}, open and load {whole:.1?}", bytes >> 20);
    assert_eq!((loaded.jobs.len(), loaded.attempts.len()), (100_000, 10_000));
    assert!(whole.as_secs_f64() < 5.0, "{whole:?}");
    let begin = Instant::now();
    assert_eq!(store.reader().unwrap().check().unwrap(), Vec::<String>::new());
    println!("full check {:.1?}", begin.elapsed());
}

#[test]
fn the_disks_own_rate_is_measured_and_leaves_nothing_behind() {
    let place = Place::new();
    let begin = Instant::now();
    let rate = fsync_rate(place.folder()).unwrap();
    assert!(rate > 1.0 && rate.is_finite(), "{rate}");
    assert!(begin.elapsed().as_secs() < 5);
    assert_eq!(place.names(), Vec::<String>::new());
    assert!(fsync_rate(&place.path("nowhere")).is_err());
}
