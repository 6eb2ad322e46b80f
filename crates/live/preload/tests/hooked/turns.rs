//! Turns on the device.

use crate::device::{Device, Finds, Running, WAYS, quick};
use std::time::{Duration, Instant};
use trainyard_sharing::{ServerOptions, Settings};
use trainyard_token::NO_CAP;
use trainyard_types::Span;

/// A machine that is busy with other tests may spoil a measurement; one in three must do.
const TRIES: u32 = 3;

/// What two jobs got of the device between two moments at which both were at work, in permille of both.
fn measured(device: &Device, length: Duration) -> (u64, u64) {
    device.wait_for("both at work", |device| {
        [0, 1].iter().all(|job| device.executed(*job) > Span(50_000))
    });
    let before = [0, 1].map(|job| device.executed(job).0);
    let start = Instant::now();
    std::thread::sleep(length);
    let after = [0, 1].map(|job| device.executed(job).0);
    let wall = start.elapsed().as_micros() as u64;
    let both = [after[0] - before[0], after[1] - before[1]];
    let sum = both[0] + both[1];
    (both[0] * 1000 / sum.max(1), sum * 1000 / wall)
}

fn held(shares: (u32, u32), finds: (Finds, Finds)) {
    held_by(shares, finds, "work:1000:20000");
}

fn held_by(shares: (u32, u32), finds: (Finds, Finds), work: &str) {
    let mut seen = Vec::new();
    // A small request gets up to half a turn more in each window: with turns of 20 ms a point at most.
    let settings = Settings { window: Span::secs(1), ..quick().settings };
    for _ in 0..TRIES {
        let Some(device) = Device::new(ServerOptions { settings, ..quick() }) else { return };
        device.job(0, (shares.0, 1000), NO_CAP);
        device.job(1, (shares.1, 1000), NO_CAP);
        let _first = device.start(0, finds.0, &[work]);
        let _second = device.start(1, finds.1, &[work]);
        device.wait_for("a window of work", |device| {
            device.executed(0) + device.executed(1) > settings.window
        });
        let (share, busy) = measured(&device, Duration::from_secs(3));
        if share.abs_diff(u64::from(shares.0)) <= 30 && busy >= 700 {
            let (first, second) = (device.stats(0), device.stats(1));
            let behind = &second.counters.throttled_by[&first.client];
            assert!(*behind > Span::ZERO && *behind <= first.counters.held, "{second:?}");
            return;
        }
        seen.push((share, busy));
    }
    panic!("{shares:?} were not held in {TRIES} tries: (share of the first, busy) {seen:?}");
}

#[test]
fn halves_are_held_within_three_points() {
    held((500, 500), (Finds::Linked, Finds::ByDlsym));
}

#[test]
fn thirty_and_seventy_are_held_within_three_points() {
    held((300, 700), (Finds::ByProcAddress, Finds::ByDlsym));
}

#[test]
fn ten_and_ninety_are_held_within_three_points() {
    held((100, 900), (Finds::Linked, Finds::ByProcAddress));
}

#[test]
fn programs_that_wait_for_each_step_get_their_shares() {
    // Five kernels of a millisecond, and then half a millisecond on the host, as training does it.
    held_by((300, 700), (Finds::Linked, Finds::ByDlsym), "work:1000:20000:5:500");
    held_by((100, 900), (Finds::ByDlsym, Finds::Linked), "work:1000:20000:5:500");
}

#[test]
fn a_neighbour_that_pauses_leaves_the_device_to_the_other() {
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let Some(device) = Device::new(quick()) else { return };
        device.job(0, (100, 1000), NO_CAP);
        device.job(1, (900, 1000), NO_CAP);
        // The second has most of the device, and uses 5 ms of each 105.
        let _second = device.start(1, Finds::ByDlsym, &["work:1000:20000:5:100000"]);
        let _first = device.start(0, Finds::Linked, &["work:1000:20000"]);
        let (share, busy) = measured(&device, Duration::from_secs(1));
        seen.push((share, busy));
        if share >= 850 && busy >= 700 {
            return;
        }
    }
    panic!("the device lay idle: (share of the busy one, busy) {seen:?}");
}

#[test]
fn a_limit_holds_where_nobody_else_is() {
    let Some(device) = Device::new(quick()) else { return };
    device.job(0, (100, 300), NO_CAP);
    let _alone = device.start(0, Finds::ByProcAddress, &["work:1000:20000"]);
    device.wait_for("it is at work", |device| device.executed(0) > Span(150_000));
    let (before, start) = (device.executed(0).0, Instant::now());
    std::thread::sleep(Duration::from_millis(1500));
    let permille = (device.executed(0).0 - before) * 1000 / start.elapsed().as_micros() as u64;
    // Three windows at most 300 permille each, and a turn of 20 ms in each of them.
    assert!(permille <= 345, "{permille}");
    assert!(permille >= 150, "{permille}");
}

#[test]
fn everything_that_gives_the_device_work_waits_for_a_turn() {
    let Some(device) = Device::new(quick()) else { return };
    let kinds = ["launch", "cooperative", "ex", "graph", "copy", "fetch"];
    for (number, kind) in kinds.iter().enumerate() {
        device.job(number as u32, (0, 1000), NO_CAP);
        for (turns, finds) in WAYS.into_iter().enumerate() {
            let lines = device.run(number as u32, finds, &[&format!("{kind}:1000")]);
            assert_eq!(lines, [format!("{kind} 0")]);
            assert_eq!(device.stats(number).counters.grants, turns as u64 + 1, "{kind} {finds:?}");
        }
    }
}

#[test]
fn a_turn_that_is_not_used_goes_back_at_once() {
    let Some(device) = Device::new(quick()) else { return };
    device.job(0, (500, 1000), NO_CAP);
    let _idle = device.start(0, Finds::Linked, &["launch:1000", "sleep:20000"]);
    device.wait_for("a turn", |device| device.stats(0).counters.grants == 1);
    device.wait_for("its end", |device| device.server().stats().holder.is_none());
    let counters = device.stats(0).counters;
    assert_eq!((counters.grants, counters.revocations), (1, 0));
}

#[test]
fn a_turn_ends_soon_after_its_quota_however_much_is_launched() {
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let Some(device) = Device::new(quick()) else { return };
        device.job(0, (500, 1000), NO_CAP);
        // 200 kernels of 5 ms could be on the device at once: a second of work.
        let lines = device.run(0, Finds::ByDlsym, &["work:5000:1000"]);
        assert!(lines[0].starts_with("worked 0 "), "{lines:?}");
        let stats = device.stats(0);
        let counters = stats.counters;
        assert!(stats.drained > Span::ZERO && stats.drained <= counters.held, "{counters:?}");
        // The first turn launches eight before it knows how long they take.
        let late = counters.overrun.0 / counters.grants.max(1);
        if late <= 10_000 {
            return;
        }
        seen.push(late);
    }
    panic!("turns were late by {seen:?} us");
}

#[test]
fn threads_of_one_program_share_its_turns() {
    let Some(device) = Device::new(quick()) else { return };
    device.job(0, (500, 1000), NO_CAP);
    device.job(1, (500, 1000), NO_CAP);
    let neighbour = device.start(1, Finds::Linked, &["work:1000:600"]);
    let lines = device.run(0, Finds::ByDlsym, &["threads:500"]);
    let worked = lines.iter().filter(|line| line.starts_with("worked 0 ")).count();
    assert_eq!((worked, lines.last().map(String::as_str)), (4, Some("threads 0")), "{lines:?}");
    assert!(neighbour.lines()[0].starts_with("worked 0 "));
    assert!(device.stats(0).counters.grants >= 2);
    assert_eq!(device.stats(0).faults + device.stats(1).faults, 0);
}

#[test]
fn recording_a_graph_is_not_spoiled() {
    let Some(device) = Device::new(quick()) else { return };
    device.job(0, (500, 1000), NO_CAP);
    for finds in WAYS {
        let words = ["launch:3000", "capture", "graph:2000", "capture", "launch:1000", "sync"];
        let expected = ["launch 0", "capture 0", "graph 0", "capture 0", "launch 0", "sync 0"];
        assert_eq!(device.run(0, finds, &words), expected, "{finds:?}");
    }
}

#[test]
fn a_share_that_changes_is_held_from_then_on() {
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let Some(device) = Device::new(quick()) else { return };
        device.job(0, (800, 1000), NO_CAP);
        device.job(1, (200, 1000), NO_CAP);
        let programs: [Running; 2] =
            [0, 1].map(|job| device.start(job, Finds::ByDlsym, &["work:1000:20000"]));
        device.wait_for("work", |device| device.executed(1) > Span(50_000));
        let share = |request| trainyard_sharing::Share { request, limit: 1000 };
        let (first, second) = (device.stats(0).client, device.stats(1).client);
        device.server().adjust(first, share(300), NO_CAP).unwrap();
        device.server().adjust(second, share(700), NO_CAP).unwrap();
        std::thread::sleep(Duration::from_millis(600));
        let (share, _) = measured(&device, Duration::from_secs(1));
        drop(programs);
        seen.push(share);
        if share.abs_diff(300) <= 50 {
            return;
        }
    }
    panic!("{seen:?}");
}

#[test]
fn a_job_that_is_held_by_other_means_takes_no_turns_and_keeps_its_cap() {
    let Some(device) = Device::new(quick()) else { return };
    device.job_without_turns(0, (300, 300), 1 << 20);
    device.job_without_turns(1, (700, 700), NO_CAP);
    for finds in WAYS {
        let lines = device.run(0, finds, &["alloc:2097152", "work:200:100"]);
        assert_eq!(lines[0], "alloc 2", "{finds:?}: {lines:?}");
    }
    let seen = device.stats(0);
    assert!(seen.hellos >= 4 && device.executed(0) > Span::ZERO, "{seen:?}");
    assert_eq!((seen.counters.grants, seen.counters.held), (0, Span::ZERO), "{seen:?}");
}
