//! What the end of an attempt means. The table of all cases is in `docs/guide/jobs.md`.

use trainyard_backend::Exit;
use trainyard_types::Cause;

/// An attempt that says "saved, start me again" without being asked, sooner than this, counts as failed: it would
/// start for ever.
const SHORTEST_TURN_SECONDS: f64 = 1.0;

/// What the end of an attempt means for its job.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All work is done: no other attempt follows.
    Finished,
    /// It stopped because it was asked to, or to be started again.
    Stopped {
        /// It said that its state is saved.
        saved: bool,
    },
    /// It failed.
    Failed(Cause),
}

/// What an end is judged by, beside the end itself.
#[derive(Copy, Clone, Debug)]
pub struct Terms {
    /// The exit code that means "saved, start me again".
    pub saved_code: i32,
    /// The job is to end when it has stopped: it was cancelled, is past its time limit, or was given up.
    pub for_good: bool,
}

/// What an end means.
///
/// An exit with 0 is the job's own end. It is a stop only if the job said so after it was asked, for then it speaks of
/// a checkpoint and not of a result. Whether a request came before the end only the backend knows.
pub fn judge(exit: &Exit, terms: &Terms) -> Ending {
    let by_code = exit.code == Some(terms.saved_code);
    // An older keeper does not tell when its job saved: work that was told is not given up for it.
    let answered = exit.acknowledged.unwrap_or(exit.saved.is_some());
    match exit.code {
        _ if exit.launch_error.is_some() && exit.lost => Ending::Failed(Cause::Machine),
        _ if exit.launch_error.is_some() => Ending::Failed(Cause::Job),
        _ if exit.finished => Ending::Finished,
        _ if exit.lost => Ending::Failed(Cause::Machine),
        Some(0) if !exit.asked_to_stop || is_complete(exit) => Ending::Finished,
        Some(0) if by_code || answered => Ending::Stopped { saved: true },
        Some(0) if terms.for_good => Ending::Stopped { saved: false },
        Some(0) => Ending::Finished,
        _ if exit.asked_to_stop => Ending::Stopped { saved: by_code || answered },
        _ if by_code && exit.ran_seconds >= SHORTEST_TURN_SECONDS => {
            Ending::Stopped { saved: true }
        }
        _ => Ending::Failed(Cause::Job),
    }
}

/// Whether the job itself said that nothing is left to do.
fn is_complete(exit: &Exit) -> bool {
    exit.done.zip(exit.total).is_some_and(|(done, total)| done >= total)
}

#[cfg(test)]
mod tests {
    use super::Ending::{Failed, Finished};
    use super::*;

    const SAVED: Ending = Ending::Stopped { saved: true };
    const UNSAVED: Ending = Ending::Stopped { saved: false };
    const FAILED: Ending = Failed(Cause::Job);
    const LOST: Ending = Failed(Cause::Machine);
    const TERMS: Terms = Terms { saved_code: 85, for_good: false };

    fn exit(code: i32) -> Exit {
        let code = Some(code);
        Exit { code, acknowledged: Some(false), ran_seconds: 60.0, ..Exit::default() }
    }

    fn signal(signal: i32) -> Exit {
        Exit { code: None, signal: Some(signal), ..exit(0) }
    }

    fn asked(exit: Exit) -> Exit {
        Exit { asked_to_stop: true, ..exit }
    }

    /// Asked, and then said that it saved.
    fn answered(exit: Exit) -> Exit {
        Exit { acknowledged: Some(true), checkpoint: true, ..asked(exit) }
    }

    /// Told of checkpoints while it ran, as jobs do that save every so often.
    fn saving(exit: Exit) -> Exit {
        Exit { saved: Some(7.0), checkpoint: true, ..exit }
    }

    fn finished(exit: Exit) -> Exit {
        Exit { finished: true, ..exit }
    }

    fn complete(exit: Exit) -> Exit {
        Exit { done: Some(9.0), total: Some(9.0), ..exit }
    }

    fn killed(exit: Exit) -> Exit {
        Exit { killed: true, ..asked(exit) }
    }

    fn lost(exit: Exit) -> Exit {
        Exit { code: None, lost: true, ..exit }
    }

    /// In the order of the table in the guide.
    #[test]
    fn an_end_means_what_the_table_of_the_guide_says() {
        let short = |code: i32| Exit { ran_seconds: 0.2, ..exit(code) };
        let unstarted = Exit { launch_error: Some("no such file".to_owned()), ..Exit::default() };
        let never_ran = asked(Exit::default());
        let out_of_memory = Exit { out_of_memory: true, ..signal(9) };
        let cases = [
            ("exit 0, not asked", exit(0), Finished),
            ("exit 0, not asked, saves every so often", saving(exit(0)), Finished),
            ("exit 0 in a moment, not asked", short(0), Finished),
            ("exit 0, asked, no answer", asked(exit(0)), Finished),
            ("exit 0, asked, told of a checkpoint before", saving(asked(exit(0))), Finished),
            ("exit 0, asked, answered", answered(exit(0)), SAVED),
            ("exit 0, asked, answered, said finished", finished(answered(exit(0))), Finished),
            ("exit 0, asked, answered, all work done", complete(answered(exit(0))), Finished),
            ("exit 85, asked", asked(exit(85)), SAVED),
            ("exit 85, asked, all work done", complete(answered(exit(85))), SAVED),
            ("exit 85, not asked", exit(85), SAVED),
            ("exit 85 in a moment, not asked", short(85), FAILED),
            ("exit 1, not asked", exit(1), FAILED),
            ("exit 1, not asked, saves every so often", saving(exit(1)), FAILED),
            ("exit 1, not asked, said finished", finished(exit(1)), Finished),
            ("exit 1, asked, no answer", asked(exit(1)), UNSAVED),
            ("exit 1, asked, answered", answered(exit(1)), SAVED),
            ("signal, not asked", signal(11), FAILED),
            ("out of memory, not asked", out_of_memory, FAILED),
            ("signal, asked, no answer", asked(signal(15)), UNSAVED),
            ("signal, asked, answered", answered(signal(9)), SAVED),
            ("signal, asked, all work done", complete(asked(signal(15))), UNSAVED),
            ("signal, asked, said finished", finished(asked(signal(15))), Finished),
            ("killed after its grace", killed(signal(9)), UNSAVED),
            ("killed after its grace, said finished", finished(killed(signal(9))), Finished),
            ("stopped before it ran", never_ran, UNSAVED),
            ("lost", lost(exit(0)), LOST),
            ("not started, by its place", lost(unstarted.clone()), LOST),
            ("lost, asked, answered", lost(answered(exit(0))), LOST),
            ("lost, said finished", finished(lost(exit(0))), Finished),
            ("could not be started", unstarted.clone(), FAILED),
            ("could not be started, asked", asked(unstarted), FAILED),
        ];
        for (name, exit, expected) in cases {
            assert_eq!(judge(&exit, &TERMS), expected, "{name}");
        }
    }

    #[test]
    fn a_job_that_is_to_end_for_good_ends_as_asked_unless_it_came_first_or_says_more() {
        let terms = Terms { for_good: true, ..TERMS };
        for (name, exit, expected) in [
            ("exit 0, not asked", exit(0), Finished),
            ("exit 0, asked, no answer", asked(exit(0)), UNSAVED),
            ("exit 0, asked, answered", answered(exit(0)), SAVED),
            ("exit 0, asked, said finished", finished(asked(exit(0))), Finished),
            ("exit 0, asked, all work done", complete(asked(exit(0))), Finished),
            ("exit 1, not asked", exit(1), FAILED),
            ("signal, asked", asked(signal(15)), UNSAVED),
        ] {
            assert_eq!(judge(&exit, &terms), expected, "{name}");
        }
    }

    #[test]
    fn another_code_can_mean_saved_and_0_means_it_only_in_answer_to_a_request() {
        let terms = Terms { saved_code: 3, ..TERMS };
        assert_eq!(judge(&asked(exit(3)), &terms), SAVED);
        assert_eq!(judge(&exit(85), &terms), FAILED);
        let terms = Terms { saved_code: 0, ..TERMS };
        assert_eq!(judge(&asked(exit(0)), &terms), SAVED);
        assert_eq!(judge(&exit(0), &terms), Finished);
    }

    #[test]
    fn an_end_that_an_older_keeper_wrote_is_a_stop_if_it_was_asked_and_told_of_a_checkpoint() {
        let old = |exit: Exit| Exit { acknowledged: None, checkpoint: false, ..exit };
        assert_eq!(judge(&old(saving(asked(exit(0)))), &TERMS), SAVED);
        assert_eq!(judge(&old(asked(exit(0))), &TERMS), Finished);
        assert_eq!(judge(&old(saving(exit(0))), &TERMS), Finished);
    }
}
