//! `kill -9` of the daemon at random moments under load.

use crate::audit::{audit, running};
use crate::load::Load;
use crate::yard::{Dice, PATIENCE, Yard};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Kills in a usual run; `CHAOS_KILLS` asks for another number.
const KILLS: u64 = 50;

/// Policies in turn, each for so many lives of the daemon; with turns short enough for such jobs.
const POLICIES: [&str; 5] = [
    "srtf",
    "las:quantum=300ms,turn=200ms",
    "gandiva:quantum=1s,overhead=1",
    "fifo",
    "sia:round=1s",
];
const LIVES_EACH: usize = 5;

/// Clients at once.
const CLIENTS: u64 = 4;

#[test]
fn nothing_is_lost_or_done_twice_when_the_daemon_is_killed_at_random_moments() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let kills = number("CHAOS_KILLS").unwrap_or(KILLS);
    let seed = number("CHAOS_SEED").unwrap_or(1);
    let begun = Instant::now();
    let mut yard = Yard::new("kills", &["--gpus", "4"]);
    let mut dice = Dice(seed);
    let load = Load::start(&yard.folder, CLIENTS, seed);
    let mut outlived = BTreeSet::new();
    for kill in 0..kills {
        yard.policy = Some(POLICIES[kill as usize / LIVES_EACH % POLICIES.len()]);
        yard.spawn();
        // Now and then the daemon is still about to start; now and then it has done a lot.
        let life = dice.below(if kill % 5 == 0 { 60 } else { 700 });
        sleep(Duration::from_millis(life));
        if let Some(why) = yard.gave_up() {
            panic!("the daemon gave up after {kill} kills: {why}");
        }
        yard.kill();
        outlived.extend(running(&yard));
        // And now and then no daemon runs for a while, and jobs end unseen.
        sleep(Duration::from_millis(if dice.below(4) == 0 { dice.below(300) } else { 0 }));
    }
    // Jobs that save nothing may take each other's place for ever under a policy that stops them.
    yard.policy = Some("fifo");
    yard.start();
    let told = load.stop();
    let mut quiet = Instant::now();
    loop {
        let status = yard.get("/v1/status");
        if status["jobs"].as_object().is_none_or(|jobs| jobs.is_empty()) {
            break;
        }
        assert!(quiet.elapsed() < PATIENCE, "jobs never end: {}", yard.get("/v1/jobs"));
        sleep(Duration::from_millis(100));
    }
    let drained = std::mem::replace(&mut quiet, Instant::now()).elapsed();
    let findings = audit(&yard, &told, &outlived);
    let epoch = yard.get("/v1/status")["epoch"].clone();
    assert!(!yard.log().contains("panicked"), "{}", yard.log());
    println!(
        "seed {seed}: {kills} kills ({epoch} starts reached the store) in {:.0} s, {:.1} s to drain, {:.1} s to audit\n\
         {findings:?}\n{} running at a kill, {} requests repeated, {} keys sent once more",
        begun.elapsed().as_secs_f64(),
        drained.as_secs_f64(),
        quiet.elapsed().as_secs_f64(),
        outlived.len(),
        told.repeated.load(Ordering::Relaxed),
        told.echoed.load(Ordering::Relaxed),
    );
    assert!(findings.jobs > kills as usize / 2, "there was load: {findings:?}");
    assert!(
        findings.survivors > 0 && findings.stopped > 0,
        "jobs outlived and were stopped: {findings:?}"
    );
    assert!(findings.restored > 0, "what was saved was handed on: {findings:?}");
}
