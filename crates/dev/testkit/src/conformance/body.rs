//! The promises, each a small play. See `trainyard_backend` for the rules behind them.

use super::Conduct;
use super::arm::Arm;
use super::play::{Id, Play};
use crate::orders::Orders;
use trainyard_backend::{Found, LaunchOrder};
use trainyard_types::{Attempt, JobId};

/// A grace that is never used up.
const LONG: f64 = 600.0;

/// Far less than that.
const SOON: f64 = 100.0;

const FIRST: Id = (JobId(1), Attempt(1));

pub(super) fn a_job_starts_ends_and_its_code_is_told(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    for (number, code) in [(1, 0), (2, 7)] {
        let id = (JobId(number), Attempt(1));
        play.launch(id, Conduct::Exits(code), &[0]);
        play.until_started(id);
        let exit = play.until_ended(id);
        assert_eq!((exit.code, exit.signal), (Some(code), None), "{exit:?}");
        assert!(!exit.asked_to_stop && !exit.killed && !exit.lost, "{exit:?}");
        assert_eq!(exit.launch_error, None);
    }
    play.clear();
}

pub(super) fn a_signal_that_ends_a_job_is_told(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    play.launch(FIRST, Conduct::Dies(11), &[0]);
    let exit = play.until_ended(FIRST);
    assert_eq!((exit.code, exit.signal, exit.killed), (None, Some(11), false), "{exit:?}");
    play.clear();
}

pub(super) fn the_code_that_means_saved_means_nothing_where_nobody_asked(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    play.launch(FIRST, Conduct::Exits(85), &[0]);
    let exit = play.until_ended(FIRST);
    assert_eq!((exit.code, exit.asked_to_stop), (Some(85), false), "{exit:?}");
    play.clear();
}

pub(super) fn what_cannot_start_says_why_and_never_ran(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    play.launch(FIRST, Conduct::CannotStart, &[0]);
    let exit = play.until_ended(FIRST);
    assert!(exit.launch_error.as_ref().is_some_and(|why| !why.is_empty()), "{exit:?}");
    assert_eq!(exit.code, None, "what never ran has no code: {exit:?}");
    assert_eq!(play.arm.times_run(FIRST), 0);
    play.clear();
}

pub(super) fn an_attempt_runs_once_however_often_it_is_ordered(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    let order = play.launch(FIRST, Conduct::Waits(4), &[0]);
    for _ in 0..5 {
        play.repeat(&order);
    }
    play.until_started(FIRST);
    let before = play.heard(FIRST);
    play.repeat(&order);
    play.until_answered(FIRST, before);
    play.restart();
    play.repeat(&order);
    play.arm.open_gate(FIRST.0);
    assert_eq!(play.until_ended(FIRST).code, Some(4));
    // Over, over and asked again after a start, over and forgotten: each time the end is told, and nothing runs.
    let before = play.heard(FIRST);
    play.repeat(&order);
    play.until_answered(FIRST, before);
    play.restart();
    let before = play.heard(FIRST);
    play.repeat(&order);
    play.until_answered(FIRST, before);
    play.forget(FIRST);
    let before = play.heard(FIRST);
    play.repeat(&order);
    play.until_answered(FIRST, before);
    assert_eq!(play.until_ended(FIRST).code, Some(4));
    assert_eq!(play.arm.times_run(FIRST), 1);
    play.arm.backend().withdraw(FIRST.0);
    play.leave_nothing();
}

pub(super) fn an_end_is_kept_until_it_is_forgotten(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    play.launch(FIRST, Conduct::Exits(7), &[0]);
    play.until_ended(FIRST);
    for _ in 0..2 {
        let stock = play.restart();
        let Some(Found::Ended { exit, .. }) = stock.get(&FIRST) else { panic!("{stock:?}") };
        assert_eq!(exit.code, Some(7), "{exit:?}");
    }
    play.forget(FIRST);
    assert!(play.stock().is_empty(), "it is forgotten");
    play.arm.backend().withdraw(FIRST.0);
    assert!(play.restart().is_empty(), "and stays so");
    play.leave_nothing();
}

pub(super) fn a_job_outlives_the_backend(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    play.launch(FIRST, Conduct::Waits(3), &[0]);
    play.until_ready(FIRST);
    for _ in 0..2 {
        let stock = play.restart();
        assert!(
            matches!(stock.get(&FIRST), Some(Found::Running { started: true, .. })),
            "{stock:?}"
        );
    }
    play.arm.open_gate(FIRST.0);
    assert_eq!(play.until_ended(FIRST).code, Some(3));
    assert_eq!(play.arm.times_run(FIRST), 1);
    play.clear();
}

pub(super) fn an_end_while_nobody_looks_is_found(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    play.launch(FIRST, Conduct::Waits(9), &[0]);
    play.until_ready(FIRST);
    play.arm.go_down();
    play.arm.open_gate(FIRST.0);
    for _ in 0..20 {
        play.arm.pause();
    }
    play.come_up();
    let exit = play.until_ended(FIRST);
    assert_eq!((exit.code, exit.lost), (Some(9), false), "{exit:?}");
    play.clear();
}

pub(super) fn a_job_that_saves_on_request_is_waited_for(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    for (number, code) in [(1, 85), (2, 0)] {
        let id = (JobId(number), Attempt(1));
        play.launch(id, Conduct::Saves(code), &[0]);
        play.until_ready(id);
        play.stop(id, LONG);
        let exit = play.until_ended(id);
        assert_eq!((exit.code, exit.signal), (Some(code), None), "{exit:?}");
        assert!(exit.asked_to_stop && !exit.killed, "{exit:?}");
        assert!(
            exit.save_seconds.is_some_and(|seconds| (0.0..SOON).contains(&seconds)),
            "{exit:?}"
        );
    }
    play.clear();
}

pub(super) fn an_acknowledgement_ends_the_grace_early(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    play.launch(FIRST, Conduct::Acknowledges(250), &[0]);
    play.until_ready(FIRST);
    play.stop(FIRST, LONG);
    let exit = play.until_ended(FIRST);
    assert_eq!(
        (exit.saved, exit.killed, exit.asked_to_stop),
        (Some(250.0), false, true),
        "{exit:?}"
    );
    assert!(exit.save_seconds.is_some_and(|seconds| seconds < SOON), "{exit:?}");
    play.clear();
}

pub(super) fn an_acknowledgement_counts_after_the_request_and_not_before(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    for (number, conduct, acknowledged, checkpoint) in [
        (1, Conduct::AcknowledgesAndExits(0), true, true),
        (2, Conduct::AcknowledgesAndExits(1), true, true),
        (3, Conduct::SavedBefore(0), false, true),
        (4, Conduct::Saves(0), false, false),
        (5, Conduct::Saves(85), true, true),
    ] {
        let id = (JobId(number), Attempt(1));
        play.launch(id, conduct, &[0]);
        play.until_ready(id);
        play.stop(id, LONG);
        let exit = play.until_ended(id);
        assert!(exit.asked_to_stop && !exit.killed, "{conduct:?}: {exit:?}");
        assert_eq!(exit.acknowledged, Some(acknowledged), "{conduct:?}: {exit:?}");
        assert_eq!(exit.checkpoint, checkpoint, "{conduct:?}: {exit:?}");
        assert_eq!(exit.saved, None, "the job told no amount: {exit:?}");
    }
    play.clear();
}

pub(super) fn an_end_before_the_request_is_no_answer_to_it(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    for (number, code) in [(1, 1), (2, 0), (3, 85)] {
        let id = (JobId(number), Attempt(1));
        play.launch(id, Conduct::Waits(code), &[0]);
        play.until_ready(id);
        play.arm.open_gate(id.0);
        play.until_left(id);
        // The end has not been reported yet.
        play.stop(id, LONG);
        let exit = play.until_ended(id);
        assert_eq!((exit.code, exit.asked_to_stop), (Some(code), false), "{exit:?}");
        assert_ne!(exit.acknowledged, Some(true), "{exit:?}");
    }
    play.clear();
}

pub(super) fn a_rank_that_failed_before_the_request_failed_by_itself(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    // The other rank does not hear, and has a while.
    let patient = |order: &mut LaunchOrder| order.checkpoint.grace_seconds = 8.0;
    play.launch_with(FIRST, Conduct::OneRankFails(3), &[0, 1], patient);
    play.until_left(FIRST);
    play.stop(FIRST, 0.0);
    let exit = play.until_ended(FIRST);
    assert_eq!((exit.code, exit.asked_to_stop), (Some(3), false), "{exit:?}");
    play.clear();
}

pub(super) fn a_rank_that_saves_speaks_for_the_checkpoint(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    play.launch(FIRST, Conduct::OneRankSaves(85), &[0, 1]);
    play.until_ready(FIRST);
    play.stop(FIRST, LONG);
    let exit = play.until_ended(FIRST);
    assert_eq!((exit.signal, exit.asked_to_stop), (Some(15), true), "{exit:?}");
    assert_eq!((exit.acknowledged, exit.checkpoint), (Some(true), true), "{exit:?}");
    play.clear();
}

pub(super) fn a_checkpoint_is_handed_on_also_where_nobody_told_its_work(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    for (number, has_checkpoint, work, code) in
        [(1, true, 0.0, 0), (2, false, 0.0, 3), (3, false, 5.0, 0)]
    {
        let id = (JobId(number), Attempt(2));
        play.launch_with(id, Conduct::Restores, &[0], |order| {
            (order.has_checkpoint, order.resumes_from) = (has_checkpoint, work);
        });
        let exit = play.until_ended(id);
        assert_eq!(exit.code, Some(code), "checkpoint {has_checkpoint}, work {work}: {exit:?}");
    }
    play.clear();
}

pub(super) fn a_job_that_ignores_requests_is_killed_after_its_grace(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    play.launch(FIRST, Conduct::Ignores, &[0]);
    play.until_ready(FIRST);
    play.stop(FIRST, 2.0);
    let exit = play.until_ended(FIRST);
    assert!(exit.asked_to_stop && exit.killed && exit.signal == Some(9), "{exit:?}");
    let waited = exit.save_seconds.expect("it was asked");
    assert!((2.0..SOON).contains(&waited), "after its grace and not before: {exit:?}");
    play.clear();
}

pub(super) fn a_second_request_shortens_the_grace(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    play.launch(FIRST, Conduct::Ignores, &[0]);
    play.until_ready(FIRST);
    play.stop(FIRST, LONG);
    play.arm.pause();
    play.stop(FIRST, 0.0);
    let exit = play.until_ended(FIRST);
    assert!(exit.asked_to_stop && exit.killed, "{exit:?}");
    assert!(exit.save_seconds.is_some_and(|seconds| seconds < SOON), "{exit:?}");
    play.clear();
}

pub(super) fn a_request_before_the_start_is_not_lost(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    play.launch(FIRST, Conduct::Waits(0), &[0]);
    play.stop(FIRST, 5.0);
    let exit = play.until_ended(FIRST);
    assert!(exit.asked_to_stop && exit.code != Some(0), "{exit:?}");
    assert!(play.arm.times_run(FIRST) <= 1);
    play.clear();
}

pub(super) fn a_request_outlives_the_backend(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    play.launch(FIRST, Conduct::Ignores, &[0]);
    play.until_ready(FIRST);
    play.stop(FIRST, 3.0);
    // The order is taken before the daemon is killed: it answers only once it is.
    play.stock();
    play.restart();
    let exit = play.until_ended(FIRST);
    assert!(exit.asked_to_stop && exit.killed, "{exit:?}");
    play.clear();
}

pub(super) fn orders_for_attempts_that_are_not_there_do_nothing(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    let stranger = (JobId(77), Attempt(3));
    play.stop(stranger, 0.0);
    play.forget(stranger);
    play.arm.backend().set_batch(stranger.0, stranger.1, 64);
    play.arm.backend().withdraw(stranger.0);
    assert!(play.stock().is_empty());
    play.launch(FIRST, Conduct::Exits(5), &[0]);
    assert_eq!(play.until_ended(FIRST).code, Some(5));
    // Over, and asked to stop: its end stays what it was.
    play.stop(FIRST, 0.0);
    let stock = play.stock();
    let Some(Found::Ended { exit, .. }) = stock.get(&FIRST) else { panic!("{stock:?}") };
    assert_eq!((exit.code, exit.asked_to_stop), (Some(5), false), "{exit:?}");
    play.clear();
}

pub(super) fn an_old_attempt_is_neither_run_again_nor_in_the_way_of_a_new_one(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    let second = (FIRST.0, Attempt(2));
    let old = play.launch(FIRST, Conduct::Exits(3), &[0]);
    play.until_ended(FIRST);
    play.forget(FIRST);
    play.launch(second, Conduct::Waits(0), &[1]);
    play.until_ready(second);
    let before = play.heard(FIRST);
    play.repeat(&old);
    play.until_answered(FIRST, before);
    play.stop(FIRST, 0.0);
    play.arm.backend().set_batch(FIRST.0, FIRST.1, 64);
    play.forget(FIRST);
    let stock = play.stock();
    assert!(matches!(stock.get(&second), Some(Found::Running { started: true, .. })), "{stock:?}");
    play.arm.open_gate(FIRST.0);
    let exit = play.until_ended(second);
    assert_eq!((exit.code, exit.asked_to_stop), (Some(0), false), "{exit:?}");
    assert_eq!((play.arm.times_run(FIRST), play.arm.times_run(second)), (1, 1));
    play.clear();
}

pub(super) fn a_batch_size_harms_nobody(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    play.launch(FIRST, Conduct::Waits(6), &[0]);
    play.until_ready(FIRST);
    // A job that does not listen, or a backend that cannot tell it, goes on with the size it has.
    play.arm.backend().set_batch(FIRST.0, FIRST.1, 64);
    play.stock();
    play.arm.open_gate(FIRST.0);
    assert_eq!(play.until_ended(FIRST).code, Some(6));
    play.clear();
}

pub(super) fn one_rank_that_fails_ends_the_gang(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    play.launch(FIRST, Conduct::OneRankFails(3), &[0, 1]);
    let exit = play.until_ended(FIRST);
    assert_eq!((exit.code, exit.signal), (Some(3), None), "the first that failed counts: {exit:?}");
    assert!(!exit.asked_to_stop && !exit.killed, "no stop was asked for: {exit:?}");
    assert_eq!(play.arm.times_run(FIRST), 1);
    play.clear();
}

pub(super) fn many_jobs_end_once_each_in_any_order(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    let ids: Vec<Id> = (1..=4).map(|job| (JobId(job), Attempt(1))).collect();
    for (gpu, id) in ids.iter().enumerate() {
        play.launch(*id, Conduct::Waits(10 + gpu as i32), &[gpu as u8]);
    }
    ids.iter().for_each(|id| play.until_ready(*id));
    // The last that came is the first to go.
    for (gpu, id) in ids.iter().enumerate().rev() {
        play.arm.open_gate(id.0);
        assert_eq!(play.until_ended(*id).code, Some(10 + gpu as i32));
    }
    let stock = play.stock();
    assert_eq!(stock.len(), ids.len(), "{stock:?}");
    assert!(ids.iter().all(|id| play.arm.times_run(*id) == 1));
    play.clear();
}

pub(super) fn nothing_is_left_of_a_job_that_is_withdrawn(arm: &mut dyn Arm) {
    let mut play = Play::on(arm);
    play.launch(FIRST, Conduct::Exits(0), &[0]);
    play.until_ended(FIRST);
    play.clear();
    // Not even for a daemon that starts again.
    assert!(play.restart().is_empty());
    play.leave_nothing();
}
