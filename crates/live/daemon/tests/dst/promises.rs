//! What must hold, and when.

use crate::disk::Disk;
use crate::world::{World, pipeline};
use std::collections::{BTreeMap, BTreeSet};
use trainyard_api::{JobSpec, OnHang};
use trainyard_backend::Order;
use trainyard_backend::{Exit, LaunchOrder};
use trainyard_daemon::core::{Ask, Core, Input, beliefs};
use trainyard_daemon::flight::{self, Line, Replayed};
use trainyard_engine::{PolicyOutcome, SavedState};
use trainyard_types::{Attempt, JobId, JobState, Phase, Time};

/// An attempt may be started: it is on disk, new or known, and nothing forbids it.
pub fn may_launch(world: &World, order: &LaunchOrder) {
    let (job, attempt) = (order.job, order.attempt);
    let World { disk, machine, people, .. } = world;
    let name = format!("job {} attempt {}", job.0, attempt.0);
    let row = disk.attempts.get(&(job.0, attempt.0));
    assert!(row.is_some_and(|row| row.ended.is_none()), "{name} is launched and not on disk");
    let own = &disk.jobs[&job.0];
    assert!(own.row.end.is_none(), "{name} is launched, and the job is over");
    if machine.runs.contains_key(&(job, attempt)) {
        return;
    }
    let newest = machine.ran.range((job, Attempt(0))..=(job, Attempt(u32::MAX))).next_back();
    assert!(newest.is_none_or(|(_, newest)| *newest < attempt), "{name} comes after {newest:?}");
    let other = world.runs_of(job).next();
    assert!(other.is_none(), "{name} starts while {other:?} still runs");
    let before = people.cancelled.get(&job.0);
    assert!(before.is_none_or(|last| attempt.0 <= *last), "{name} starts after its cancel");
    let before = people.held.get(&job.0);
    assert!(before.is_none_or(|last| attempt.0 <= *last), "{name} starts though it is held");
    let released = !own.submission.spec.hold || people.wanted_released(job.0);
    assert!(released, "{name} starts though it was submitted to be held");
    for first in &own.submission.spec.after {
        let end = disk.end_of(*first);
        assert_eq!(end, Some("finished"), "{name} starts before job {first} has finished");
    }
    follows_from_its_ends(world, order, own.submission.spec.retries.into());
    let held = own.course.kept.state.held.as_ref();
    let gpus = held.map_or(0, |held| held.placement.gpus());
    assert_eq!(gpus as usize, order.gpus.len(), "{name} gets other GPUs than are on disk");
}

/// New attempts that are sent to GPUs that were ill before the turn. The disk is as it was then.
pub fn on_ill_gpus(disk: &Disk, orders: &[Order]) -> Vec<(JobId, String)> {
    let ill = ill_gpus(disk);
    let mut found = Vec::new();
    for order in orders {
        let Order::Launch(order) = order else { continue };
        let known = disk.attempts.contains_key(&(order.job.0, order.attempt.0));
        let there = order.devices.iter().filter(|device| !known && ill.contains(*device));
        found.extend(there.map(|device| (order.job, device.clone())));
    }
    found
}

/// None of them is: a job that is sent there was sent after an operator returned the GPU in the same turn.
pub fn not_on_ill_gpus(disk: &Disk, sent: Vec<(JobId, String)>) {
    let ill = ill_gpus(disk);
    for (job, device) in sent {
        assert!(!ill.contains(&device), "{job} starts on {device}, which is ill");
    }
}

fn ill_gpus(disk: &Disk) -> BTreeSet<String> {
    let ill = disk.charts().into_iter().filter(|chart| chart.illness.is_some());
    ill.map(|chart| chart.device).collect()
}

/// What attempts before this one ended with allows it, and is handed on to it.
fn follows_from_its_ends(world: &World, order: &LaunchOrder, retries: u32) {
    let (job, attempt) = (order.job, order.attempt);
    let name = format!("job {} attempt {}", job.0, attempt.0);
    let before = world.machine.exits.range((job, Attempt(0))..(job, attempt));
    let mut failures = 0;
    for ((_, earlier), exit) in before {
        assert!(!is_own_end(exit), "{name} runs after the job's own end, {earlier:?}: {exit:?}");
        let saved = exit.has_checkpoint(order.checkpoint.exit_code);
        assert!(order.restores() || !saved, "{name} does not restore what {earlier:?} saved");
        assert!(
            exit.saved.is_none() || order.resumes_from > 0.0 || exit.saved == Some(0.0),
            "{name} is not told of the work that {earlier:?} saved: {exit:?}"
        );
        let row = world.disk.attempts.get(&(job.0, earlier.0));
        let excused = row.is_some_and(|row| row.data.contains("lost with GPU"));
        failures += u32::from(is_own_failure(exit) && !excused);
    }
    assert!(failures <= retries, "{name} is tried again after {failures} failures of {retries}");
}

/// Whether a job came to its end: it said so, or exited well for another reason than a request that it answered.
fn is_own_end(exit: &Exit) -> bool {
    let complete = exit.done.zip(exit.total).is_some_and(|(done, total)| done >= total);
    let answered = exit.asked_to_stop && exit.acknowledged == Some(true) && !complete;
    exit.finished || exit.code == Some(0) && !answered
}

/// Whether a job failed, and had not been asked to stop.
fn is_own_failure(exit: &Exit) -> bool {
    let badly = exit.signal.is_some() || exit.code.is_some_and(|code| code != 0 && code != 85);
    !exit.asked_to_stop && !exit.finished && (badly || exit.launch_error.is_some())
}

/// The end of an attempt is on disk before it is forgotten.
pub fn may_forget(world: &World, job: JobId, attempt: Attempt) {
    let Some(run) = world.machine.runs.get(&(job, attempt)) else { return };
    assert!(run.is_over(), "{job} {attempt:?} is forgotten while it runs");
    let row = world.disk.attempts.get(&(job.0, attempt.0));
    let ended = row.is_some_and(|row| row.ended.is_some());
    assert!(ended, "{job} {attempt:?} is forgotten before its end is on disk");
}

/// What the backend holds each job to is what was granted, also after a change that a crash cut off: once all orders
/// of a turn were given.
pub fn held_to_what_was_granted(world: &World) {
    for ((job, _), run) in world.machine.runs.iter().filter(|(_, run)| !run.is_over()) {
        let held = world.disk.jobs[&job.0].course.kept.state.held.as_ref();
        let Some(held) = held else { continue };
        let told = run.order.sharing.as_ref().map_or(1000, |sharing| sharing.request);
        let granted = (0..run.order.gpus.len()).map(|index| held.share(index).permille()).min();
        let granted = granted.unwrap_or(1000);
        assert_eq!(told, granted, "{job} is held to another share than it was granted");
    }
}

/// What runs is known, within its limits, and alone on its GPUs.
pub fn at_any_time(world: &World) {
    let mut used: BTreeMap<u8, u32> = BTreeMap::new();
    let mut arrays: BTreeMap<JobId, u32> = BTreeMap::new();
    for ((job, attempt), run) in &world.machine.runs {
        if run.is_over() {
            continue;
        }
        let own = &world.disk.jobs[&job.0];
        let state = &own.course.kept.state;
        assert!(own.row.end.is_none(), "{job} is over, and {attempt:?} runs");
        assert_eq!(state.attempt, *attempt, "{job} runs another attempt than is on disk");
        let held = state.held.as_ref();
        if held.is_none() && run.is_aside() {
            // In host memory it uses no GPU, and the disk says where it goes on.
            assert!(state.suspended.is_some(), "{job} is put aside, and the disk does not know");
            continue;
        }
        let held = held.unwrap_or_else(|| panic!("{job} runs, and holds nothing"));
        for (index, gpu) in run.order.gpus.iter().enumerate() {
            *used.entry(*gpu).or_default() += u32::from(held.share(index).permille());
        }
        if let Some(element) = own.submission.array.filter(|element| element.at_once > 0) {
            let running = arrays.entry(element.first).or_default();
            *running += 1;
            assert!(*running <= element.at_once, "too many of array {} run", element.first);
        }
    }
    let crowded = used.iter().find(|(_, permille)| **permille > 1000);
    assert!(crowded.is_none(), "GPU and thousandths in use: {crowded:?}");
    world.core().engine().assert_invariants();
}

/// What the engine knows and must not forget is on disk.
pub fn kept(core: &Core, disk: &Disk) {
    let open = core.engine().state().jobs.len();
    assert_eq!(open, disk.open().count(), "other jobs are open than on disk");
    for job in disk.open() {
        let id = JobId(job.row.job);
        let kept = core.engine().kept(id).unwrap_or_else(|| panic!("{id} is open on disk alone"));
        let now = core.engine().state().now;
        let (ours, stored) = (lasting(kept, now), lasting(job.course.kept.clone(), now));
        assert_eq!(ours, stored, "{id}: in memory and on disk");
    }
}

/// Without what is told again by the next report, or follows from the rest at the next start.
fn lasting(mut kept: SavedState, now: Time) -> SavedState {
    kept.state.progress = JobState::submitted(Time::ZERO).progress;
    kept.retry_at = kept.retry_at.filter(|time| *time > now);
    if !kept.state.is_placed() {
        kept.state.phase = Phase::Blocked;
    }
    kept
}

/// After a while without mishaps every stop is done.
pub fn when_calm(world: &World) {
    for job in world.people.cancelled.keys() {
        let end = world.disk.end_of(*job);
        assert!(end.is_some(), "job {job} was cancelled and is not over");
    }
    for job in world.people.held.keys() {
        let runs = |attempt: &Attempt| !world.machine.runs[&(JobId(*job), *attempt)].is_aside();
        let running = world.runs_of(JobId(*job)).find(runs);
        assert!(running.is_none(), "job {job} is held and runs as {running:?}");
    }
    for (job, attempt) in &world.people.requeued {
        let runs = world.runs_of(JobId(*job)).any(|running| running.0 == *attempt);
        assert!(!runs, "job {job} was sent back to the queue and still runs as {attempt}");
    }
}

/// All jobs ended, every caller has an answer, and nothing is left behind.
pub fn at_the_end(world: &World) {
    let World { disk, machine, people, .. } = world;
    assert!(!people.is_waiting(), "a caller still waits for an answer");
    hangs_follow_their_jobs(disk, &machine.exits);
    assert!(machine.runs.is_empty(), "never forgotten: {:?}", machine.runs.keys());
    let again = &machine.asked_in_vain;
    assert!(again.is_empty(), "launched again after they were forgotten: {again:?}");
    let open = disk.attempts.values().find(|row| row.ended.is_none());
    assert!(open.is_none(), "never closed: {open:?}");
    for ((job, attempt), exit) in &machine.exits {
        let end = disk.end_of(job.0);
        if exit.code == Some(0) && !exit.asked_to_stop || exit.finished {
            assert_eq!(end, Some("finished"), "{job} ended well by itself as {attempt:?}");
        } else if is_own_end(exit) {
            // A job that was asked to end for good did so, if it did not say more.
            let for_good = ["cancelled", "time-limit", "pruned"];
            let given_up = disk.jobs[&job.0].course.said.as_deref().is_some_and(is_of_hang);
            let right = end.is_some_and(|end| {
                end == "finished" || for_good.contains(&end) || end == "failed" && given_up
            });
            assert!(right, "{job} exited well as {attempt:?} and is {end:?}");
        }
    }
    for (job, row) in &disk.jobs {
        let well =
            machine.exits.range((JobId(*job), Attempt(0))..=(JobId(*job), Attempt(u32::MAX)));
        let well = well.filter(|(_, exit)| is_own_end(exit)).count();
        assert!(well > 0 || row.row.end.as_deref() != Some("finished"), "job {job} never finished");
    }
}

fn is_of_hang(said: &str) -> bool {
    said.starts_with("hung: ")
}

/// Only who told of steps hangs, and then what its user wrote follows, and nothing else.
fn hangs_follow_their_jobs(disk: &Disk, exits: &BTreeMap<(JobId, Attempt), Exit>) {
    for (job, row) in &disk.jobs {
        let then = row.submission.spec.on_hang;
        let given_up = row.course.said.as_deref().is_some_and(is_of_hang);
        assert!(!given_up || then == OnHang::Fail, "job {job} was given up, and wants {then:?}");
    }
    for ((job, attempt), row) in &disk.attempts {
        if !row.data.contains("\"hung, no step") {
            continue;
        }
        let then = disk.jobs[job].submission.spec.on_hang;
        assert_eq!(then, OnHang::Restart, "job {job} attempt {attempt} was restarted");
        let exit = exits.get(&(JobId(*job), Attempt(*attempt)));
        let told = exit.is_some_and(|exit| exit.done.is_some());
        assert!(told, "job {job} attempt {attempt} hung and never told of a step");
    }
}

/// The flight record of a life leads to the same decisions again, but for those that no policy took.
pub fn replays(world: &World, lines: Vec<Line>, nonsense: u64) -> Replayed {
    let factory = |name: &str| Ok(pipeline(name));
    let options = world.options();
    let believer = |cluster: &trainyard_types::Cluster, learnt: Option<&str>| {
        beliefs(&options.catalog, cluster, learnt)
    };
    let through_text = |line: Line| {
        let text = serde_json::to_string(&line).expect("a line becomes text");
        serde_json::from_str(&text).expect("and a line again")
    };
    let as_text = world.is_thorough();
    let lines = lines.into_iter().map(|line| Ok(if as_text { through_text(line) } else { line }));
    let replayed = flight::replay(lines, &factory, &believer).expect("a record can be replayed");
    let first = &replayed.first;
    assert!(replayed.different <= nonsense, "another decision in a replay: {first:?}");
    replayed
}

/// What is not over, for a message.
pub fn left(world: &World) -> String {
    let engine = world.core().engine();
    let jobs = world.disk.open().take(6).map(|job| {
        let id = JobId(job.row.job);
        let runs: Vec<Attempt> = world.runs_of(id).collect();
        format!("\n{id}: {:?}, runs as {runs:?}, {:?}", engine.explain(id), engine.kept(id))
    });
    let count = world.disk.open().count();
    format!("{count} jobs under {}{}", world.policy(), jobs.collect::<String>())
}

/// Inputs in short.
pub fn inputs(inputs: &[Input]) -> String {
    let short = |input: &Input| match input {
        Input::Ask { ticket, caller, ask } => {
            let what = match ask {
                Ask::Submit { request, known, .. } => {
                    let known = if known.is_some() { ", known" } else { "" };
                    let jobs = request.jobs.iter().map(|spec| {
                        let JobSpec { gpus, after, hold, array, .. } = spec;
                        format!("{gpus} GPUs after {after:?} hold {hold} array {array:?}")
                    });
                    let jobs: Vec<String> = jobs.collect();
                    format!("submit {:?}{known} [{}]", request.jobs[0].name, jobs.join("; "))
                }
                Ask::Act { job, act } => format!("{act:?} {job}"),
                Ask::Node { node, act } => format!("{act:?} {node}"),
                Ask::AddWindow(request) => format!("window {request:?}"),
                Ask::RemoveWindow(id) => format!("no window {id}"),
                Ask::NeedNodes { pool, needed } => format!("pool {pool} needs {needed}"),
                Ask::TryPolicy(asked) => format!("try {asked:?}"),
                Ask::EndTrial { keep } => format!("end of the trial, keep {keep}"),
                Ask::SetPolicy { label, .. } => format!("policy {label}"),
                Ask::AddToken(token) => format!("add {}", token.info.name),
                Ask::DropToken(name) => format!("drop {name}"),
                Ask::Refused { .. } => "refused".to_owned(),
            };
            format!("\n       {ticket} {}: {what}", caller.user)
        }
        Input::Report(report) => format!("\n       {report:?}"),
        Input::Outcome(PolicyOutcome::Decided(decision)) => {
            format!("\n       {:?}", decision.changes)
        }
        Input::Outcome(PolicyOutcome::Failed(_)) => "\n       the policy fails".to_owned(),
        Input::Outcome(PolicyOutcome::Panicked) => "\n       the policy panics".to_owned(),
        Input::Outcome(PolicyOutcome::Stuck) => "\n       the policy is stuck".to_owned(),
    };
    inputs.iter().map(short).collect()
}

/// An order in short.
pub fn order(order: &Order) -> String {
    match order {
        Order::Launch(order) => {
            format!(
                "launch {} {:?} on {:?} from {}",
                order.job, order.attempt, order.gpus, order.resumes_from
            )
        }
        other => format!("{other:?}"),
    }
}
