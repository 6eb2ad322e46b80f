//! What is to be done next for a job, from what is known: a table without input or output.
//!
//! Every step may be taken twice: the decision depends on the present state, and not on earlier steps.

use crate::ledger::Stage;
use crate::seen::SlurmJob;

/// How often Slurm may end an attempt before it ran, until it counts as one that cannot be started.
pub const TRIES_MAX: u32 = 3;

/// How often Slurm may forget the job of an attempt before it ran, until the attempt counts as lost.
pub const FORGOTTEN_MAX: u32 = 8;

/// What is known of a Slurm job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// There is none.
    Absent,
    /// Slurm was not asked about it yet.
    Unknown,
    /// It waits and is held.
    Held,
    /// It waits and may be started.
    Waiting,
    /// It runs.
    Running,
    /// It has ended and its processes have not all gone.
    Leaving,
    /// It is over, in this state.
    Dead(String),
    /// Slurm knows nothing of it any more.
    Missing,
}

impl Known {
    /// What Slurm says of a job.
    pub fn of(job: &SlurmJob) -> Known {
        let leaving = job.flags.iter().any(|flag| flag == "COMPLETING");
        match job.state.as_str() {
            _ if leaving => Known::Leaving,
            "COMPLETING" => Known::Leaving,
            "PENDING" if job.priority == 0 => Known::Held,
            "REQUEUE_HOLD" | "SPECIAL_EXIT" => Known::Held,
            "PENDING" | "REQUEUED" | "REQUEUE_FED" => Known::Waiting,
            "RUNNING" | "SUSPENDED" | "CONFIGURING" | "RESIZING" | "SIGNALING" | "STAGE_OUT"
            | "STOPPED" => Known::Running,
            state => Known::Dead(state.to_owned()),
        }
    }

    fn is_cancelled(&self) -> bool {
        matches!(self, Known::Dead(state) if state.starts_with("CANCELLED") || state == "REVOKED")
    }
}

/// All that a decision depends on.
#[derive(Clone, Debug)]
pub struct Sight {
    /// The Slurm job.
    pub known: Known,
    /// How far the attempt is, if there is one.
    pub stage: Option<Stage>,
    /// The script has taken the attempt.
    pub taken: bool,
    /// The script has written how it ended.
    pub exit: bool,
    /// A stop was asked for.
    pub stop: bool,
    /// Slurm was told of it.
    pub stop_told: bool,
    /// Its grace is over, and more.
    pub overdue: bool,
    /// What is known of the Slurm job has been so for a while: files that tell more would have arrived.
    pub settled: bool,
    /// How often Slurm ended it before it ran.
    pub tries: u32,
    /// How often Slurm forgot its job before it ran.
    pub forgotten: u32,
    /// The Slurm job ended on a node that is out of service: what ended it may have been the node.
    pub bad_node: bool,
    /// The Slurm job was over within seconds of its start: a slurmd that cannot start a job cancels it.
    pub cut_short: bool,
    /// It was cancelled by our own clean-up.
    pub cancelled_by_us: bool,
    /// It has waited in Slurm for longer than any job should.
    pub stuck: bool,
    /// Slurm lets it wait for a time that it set itself, as it does after it requeued a job.
    pub postponed: bool,
    /// Slurm has had it run for a while, and no attempt does.
    pub lingers: bool,
    /// It has ended and Slurm takes it back: the next attempt can have the same Slurm job.
    pub requeueable: bool,
    /// The job is over.
    pub withdrawn: bool,
    /// slurmctld does not answer.
    pub down: bool,
}

impl Sight {
    /// Whether a user or an operator cancelled the job in Slurm: not we, and not a node that could not start it.
    fn was_cancelled(&self) -> bool {
        let at_launch = !self.taken && (self.bad_node || self.cut_short);
        self.known.is_cancelled() && !self.cancelled_by_us && !at_launch
    }
}

/// What is to be done.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, for now.
    Nothing,
    /// Submit it, held.
    Submit,
    /// Put the held job in its place and release it.
    Place,
    /// Hold it.
    Hold,
    /// Tell Slurm that it may be requeued, and poke its script.
    TellStop,
    /// Requeue it, held: this ends what runs.
    Requeue,
    /// Cancel it.
    Cancel,
    /// Forget this Slurm job: it is of no use any more.
    Again,
    /// A user or an operator cancelled it in Slurm.
    Gone,
    /// The attempt ended.
    End(End),
    /// Nothing is left of the job.
    Drop,
}

/// How an attempt is over.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// As its script says.
    Told,
    /// It was stopped before it ran.
    NeverRan,
    /// Slurm ended it too often before it ran, or never started it.
    CannotStart,
    /// As Slurm's state says: its script had no time to say anything.
    ByState,
    /// It never ran and the job is not to blame: its node could not start it, or Slurm forgot it again and again.
    Lost,
}

/// What is to be done next.
pub fn decide(sight: &Sight) -> Step {
    match sight.stage {
        None => without_attempt(sight),
        Some(Stage::Wanted) => wanted(sight),
        Some(Stage::Released) if sight.exit => ended(sight),
        Some(Stage::Released) if sight.taken => taken(sight),
        Some(Stage::Released) => released(sight),
        Some(Stage::Over) => match sight.known {
            // Slurm requeued it by itself.
            Known::Waiting => Step::Hold,
            Known::Dead(_) if sight.requeueable && sight.settled => Step::Requeue,
            // A slurmctld that forgot the end counts it as running for ever, on GPUs that no process uses.
            Known::Running if sight.lingers => Step::Requeue,
            _ => Step::Nothing,
        },
    }
}

fn without_attempt(sight: &Sight) -> Step {
    match (&sight.known, sight.withdrawn) {
        (Known::Absent | Known::Dead(_) | Known::Missing, true) => Step::Drop,
        (Known::Unknown | Known::Leaving, true) => Step::Nothing,
        (Known::Held | Known::Waiting | Known::Running, true) => Step::Cancel,
        (Known::Absent, false) if sight.settled => Step::Submit,
        (_, false) if sight.was_cancelled() => Step::Gone,
        (Known::Dead(_), false) if sight.requeueable && sight.settled => Step::Requeue,
        (Known::Dead(_), false) if sight.requeueable => Step::Nothing,
        (Known::Dead(_) | Known::Missing, false) => Step::Again,
        // A user or an operator released it, or Slurm requeued it: without an order it would end without having run.
        (Known::Waiting, false) => Step::Hold,
        (_, false) => Step::Nothing,
    }
}

fn wanted(sight: &Sight) -> Step {
    if sight.stop {
        return Step::End(End::NeverRan);
    }
    match &sight.known {
        Known::Absent => Step::Submit,
        Known::Held => Step::Place,
        Known::Waiting => Step::Hold,
        _ if sight.was_cancelled() => Step::Gone,
        Known::Dead(_) if sight.requeueable => Step::Requeue,
        Known::Dead(_) | Known::Missing => Step::Again,
        Known::Running if sight.lingers => Step::Requeue,
        // Of the attempt before; soon it is held.
        Known::Running | Known::Leaving | Known::Unknown => Step::Nothing,
    }
}

fn ended(sight: &Sight) -> Step {
    match &sight.known {
        _ if sight.was_cancelled() && !sight.stop => Step::Gone,
        Known::Running if sight.stop => Step::Requeue,
        // While Slurm does not answer, the script is believed.
        Known::Running | Known::Leaving | Known::Unknown if sight.down => Step::End(End::Told),
        Known::Running | Known::Leaving | Known::Unknown => Step::Nothing,
        Known::Waiting => Step::Hold,
        Known::Held | Known::Dead(_) | Known::Missing | Known::Absent => Step::End(End::Told),
    }
}

fn taken(sight: &Sight) -> Step {
    match &sight.known {
        Known::Running if sight.overdue => Step::Requeue,
        Known::Running if sight.stop && !sight.stop_told => Step::TellStop,
        Known::Running | Known::Leaving | Known::Unknown => Step::Nothing,
        // Slurm requeued it by itself, as it does when a node fails.
        Known::Waiting => Step::Hold,
        Known::Held | Known::Dead(_) | Known::Missing | Known::Absent if sight.settled => {
            if sight.was_cancelled() && !sight.stop {
                return Step::Gone;
            }
            Step::End(End::ByState)
        }
        Known::Held | Known::Dead(_) | Known::Missing | Known::Absent => Step::Nothing,
    }
}

fn released(sight: &Sight) -> Step {
    match &sight.known {
        Known::Held if sight.stop => Step::End(End::NeverRan),
        Known::Held if sight.stuck => Step::End(End::CannotStart),
        // The release got lost, or the daemon was killed before it.
        Known::Held => Step::Place,
        Known::Waiting if sight.stop || sight.stuck => Step::Hold,
        // Held, it is put in its place again, with the present as its begin.
        Known::Waiting if sight.postponed => Step::Hold,
        Known::Running if sight.overdue => Step::Requeue,
        Known::Running if sight.stop && !sight.stop_told => Step::TellStop,
        Known::Waiting | Known::Running | Known::Leaving | Known::Unknown => Step::Nothing,
        known if !sight.settled => {
            debug_assert!(matches!(known, Known::Dead(_) | Known::Missing | Known::Absent));
            Step::Nothing
        }
        _ if sight.stop => Step::End(End::NeverRan),
        _ if sight.was_cancelled() => Step::Gone,
        // The same place would end it in the same way.
        Known::Dead(_) if sight.bad_node => Step::End(End::Lost),
        known if known.is_cancelled() && sight.cut_short => Step::End(End::Lost),
        Known::Missing | Known::Absent if sight.forgotten < FORGOTTEN_MAX => Step::Again,
        Known::Missing | Known::Absent => Step::End(End::Lost),
        _ if sight.tries < TRIES_MAX => Step::Again,
        _ => Step::End(End::CannotStart),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(known: Known, stage: Option<Stage>) -> Sight {
        Sight {
            known,
            stage,
            taken: false,
            exit: false,
            stop: false,
            stop_told: false,
            overdue: false,
            settled: true,
            tries: 0,
            forgotten: 0,
            bad_node: false,
            cut_short: false,
            cancelled_by_us: false,
            stuck: false,
            postponed: false,
            lingers: false,
            requeueable: false,
            withdrawn: false,
            down: false,
        }
    }

    fn dead(state: &str) -> Known {
        Known::Dead(state.to_owned())
    }

    const RELEASED: Option<Stage> = Some(Stage::Released);

    #[test]
    fn a_waiting_job_has_one_held_place_and_nothing_else_in_slurm() {
        for (known, step) in [
            (Known::Absent, Step::Submit),
            (Known::Held, Step::Nothing),
            (Known::Waiting, Step::Hold),
            (Known::Unknown, Step::Nothing),
            (Known::Missing, Step::Again),
            (dead("FAILED"), Step::Again),
            (dead("CANCELLED"), Step::Gone),
        ] {
            assert_eq!(decide(&sight(known.clone(), None)), step, "{known:?}");
        }
    }

    #[test]
    fn a_job_that_is_over_leaves_nothing_behind() {
        for (known, step) in [
            (Known::Held, Step::Cancel),
            (Known::Running, Step::Cancel),
            (Known::Leaving, Step::Nothing),
            (dead("CANCELLED"), Step::Drop),
            (Known::Missing, Step::Drop),
        ] {
            let sight = Sight { withdrawn: true, ..sight(known.clone(), None) };
            assert_eq!(decide(&sight), step, "{known:?}");
        }
    }

    #[test]
    fn an_attempt_is_placed_only_on_a_job_that_is_surely_held() {
        for (known, step) in [
            (Known::Held, Step::Place),
            (Known::Absent, Step::Submit),
            (Known::Unknown, Step::Nothing),
            (Known::Leaving, Step::Nothing),
            (Known::Running, Step::Nothing),
            (Known::Waiting, Step::Hold),
            (dead("NODE_FAIL"), Step::Again),
        ] {
            assert_eq!(decide(&sight(known.clone(), Some(Stage::Wanted))), step, "{known:?}");
        }
        let stopped = sight(dead("FAILED"), Some(Stage::Wanted));
        assert_eq!(decide(&Sight { requeueable: true, ..stopped }), Step::Requeue);
    }

    #[test]
    fn a_stop_comes_by_requeue_after_the_script_has_ended_or_is_overdue() {
        let stop = |known: Known| Sight { taken: true, stop: true, ..sight(known, RELEASED) };
        assert_eq!(decide(&stop(Known::Running)), Step::TellStop);
        assert_eq!(decide(&Sight { stop_told: true, ..stop(Known::Running) }), Step::Nothing);
        assert_eq!(decide(&Sight { overdue: true, ..stop(Known::Running) }), Step::Requeue);
        assert_eq!(decide(&Sight { exit: true, ..stop(Known::Running) }), Step::Requeue);
        assert_eq!(decide(&Sight { exit: true, ..stop(Known::Leaving) }), Step::Nothing);
        assert_eq!(decide(&Sight { exit: true, ..stop(Known::Held) }), Step::End(End::Told));
        assert_eq!(decide(&stop(Known::Held)), Step::End(End::ByState));
    }

    #[test]
    fn what_slurm_does_by_itself_is_undone_and_what_its_user_does_counts() {
        let taken = |known: Known| Sight { taken: true, ..sight(known, RELEASED) };
        assert_eq!(decide(&taken(Known::Waiting)), Step::Hold, "requeued after a node failed");
        assert_eq!(decide(&taken(dead("NODE_FAIL"))), Step::End(End::ByState));
        assert_eq!(decide(&taken(dead("CANCELLED"))), Step::Gone);
        let fresh = Sight { settled: false, ..taken(dead("NODE_FAIL")) };
        assert_eq!(decide(&fresh), Step::Nothing, "its last words may still arrive");
        let never = |tries| Sight { tries, ..sight(dead("FAILED"), RELEASED) };
        assert_eq!(decide(&never(0)), Step::Again);
        assert_eq!(decide(&never(TRIES_MAX)), Step::End(End::CannotStart));
    }

    #[test]
    fn a_job_that_slurm_forgot_is_submitted_again_and_does_not_fail_for_it() {
        for known in [Known::Missing, Known::Absent] {
            let lost = |forgotten| Sight { forgotten, ..sight(known.clone(), RELEASED) };
            let worn = Sight { tries: TRIES_MAX, ..lost(0) };
            assert_eq!(decide(&worn), Step::Again, "it is not the job's fault");
            assert_eq!(decide(&lost(FORGOTTEN_MAX)), Step::End(End::Lost));
        }
    }

    #[test]
    fn a_job_killed_at_launch_by_a_bad_node_is_not_one_that_somebody_cancelled() {
        for stage in [RELEASED, Some(Stage::Wanted)] {
            let bad = Sight { bad_node: true, ..sight(dead("CANCELLED"), stage) };
            assert_ne!(decide(&bad), Step::Gone, "{stage:?}");
        }
        let bad = |state| Sight { bad_node: true, ..sight(dead(state), RELEASED) };
        assert_eq!(decide(&bad("CANCELLED")), Step::End(End::Lost));
        assert_eq!(decide(&bad("NODE_FAIL")), Step::End(End::Lost));
        let short = Sight { cut_short: true, ..sight(dead("CANCELLED"), RELEASED) };
        assert_eq!(decide(&short), Step::End(End::Lost), "no slurmd says that it was one");
        let refused = Sight { cut_short: true, ..sight(dead("COMPLETED"), RELEASED) };
        assert_eq!(decide(&refused), Step::Again, "its script found no order");
        let taken = Sight { taken: true, ..bad("CANCELLED") };
        assert_eq!(decide(&taken), Step::Gone, "it ran, so a user cancelled it");
    }

    #[test]
    fn what_we_cancel_ourselves_is_not_cancelled_by_somebody() {
        for stage in [None, RELEASED, Some(Stage::Wanted)] {
            let ours = Sight { cancelled_by_us: true, ..sight(dead("CANCELLED"), stage) };
            assert_ne!(decide(&ours), Step::Gone, "{stage:?}");
        }
    }

    #[test]
    fn a_job_that_slurm_has_run_for_ever_after_its_end_is_taken_back() {
        for stage in [Some(Stage::Over), Some(Stage::Wanted)] {
            let over = sight(Known::Running, stage);
            assert_eq!(decide(&over), Step::Nothing, "{stage:?}: its script may still be leaving");
            assert_eq!(decide(&Sight { lingers: true, ..over }), Step::Requeue, "{stage:?}");
        }
    }

    #[test]
    fn an_end_waits_for_slurm_unless_slurm_is_away() {
        let exit = |known: Known| Sight { exit: true, taken: true, ..sight(known, RELEASED) };
        assert_eq!(decide(&exit(Known::Running)), Step::Nothing);
        assert_eq!(decide(&exit(dead("COMPLETED"))), Step::End(End::Told));
        assert_eq!(decide(&Sight { down: true, ..exit(Known::Running) }), Step::End(End::Told));
    }

    #[test]
    fn states_of_slurm_are_told_apart() {
        let of = |state: &str, flags: &[&str], priority: u64| {
            Known::of(&SlurmJob {
                state: state.to_owned(),
                flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
                priority,
                ..SlurmJob::default()
            })
        };
        assert_eq!(of("PENDING", &[], 0), Known::Held);
        assert_eq!(of("PENDING", &["REQUEUED"], 5), Known::Waiting);
        assert_eq!(of("PENDING", &["COMPLETING"], 0), Known::Leaving);
        assert_eq!(of("COMPLETED", &["COMPLETING"], 5), Known::Leaving);
        assert_eq!(of("RUNNING", &[], 5), Known::Running);
        assert_eq!(of("NODE_FAIL", &[], 5), dead("NODE_FAIL"));
    }
}
