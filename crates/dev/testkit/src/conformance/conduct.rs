//! What a job does, in words that a script and a simulation both understand.

use serde::{Deserialize, Serialize};
use std::path::Path;
use trainyard_backend::LaunchOrder;
use trainyard_types::{Attempt, JobId};

/// The variable that carries it.
const VARIABLE: &str = "TRAINYARD_TEST_CONDUCT";

/// What a job does.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Conduct {
    /// Exits with a code after a moment.
    Exits(i32),
    /// Ends by a signal after a moment.
    Dies(i32),
    /// Runs until its gate is opened, then exits with a code.
    Waits(i32),
    /// Runs until it is asked to stop, then exits with a code.
    Saves(i32),
    /// When it is asked to stop, says that so much work is saved, and runs on.
    Acknowledges(u32),
    /// When it is asked to stop, says without a number that it saved, and exits with a code.
    AcknowledgesAndExits(i32),
    /// Says without a number that it saved, then runs until it is asked to stop and exits with a code.
    SavedBefore(i32),
    /// Exits with 0 if it was told of a checkpoint to resume from, and with 3 otherwise.
    Restores,
    /// Runs on, whatever it is asked.
    Ignores,
    /// Its command does not exist.
    CannotStart,
    /// A gang: the second rank exits with a code, and the others run on.
    OneRankFails(i32),
    /// A gang: asked to stop, the second rank ends by the signal, and then the first exits with a code.
    OneRankSaves(i32),
}

impl Conduct {
    /// What an order carries.
    pub fn of(order: &LaunchOrder) -> Option<Conduct> {
        serde_json::from_str(order.env.get(VARIABLE)?).ok()
    }

    /// The variable that carries it, with its value.
    pub fn as_variable(self) -> (String, String) {
        (VARIABLE.to_owned(), serde_json::to_string(&self).expect("a conduct is JSON"))
    }

    /// Puts it into an order: as data for a simulation, as a script for all other backends.
    pub(super) fn into_order(self, order: &mut LaunchOrder, desk: &Path) {
        order.env.extend([self.as_variable()]);
        order.argv = match self {
            Conduct::CannotStart => vec!["no-such-program".to_owned()],
            _ => {
                let script = self.script(desk, (order.job, order.attempt));
                vec!["/bin/bash".to_owned(), "-c".to_owned(), script]
            }
        };
    }

    fn script(self, desk: &Path, (job, attempt): (JobId, Attempt)) -> String {
        let desk = desk.display();
        let name = format!("{}.{}", job.0, attempt.0);
        let ready = format!("touch {desk}/ready.{name}");
        let left = format!("touch {desk}/left.{name}");
        let forever = format!("{ready}; while :; do sleep 0.05; done");
        let rest = match self {
            Conduct::Exits(code) => format!("exit {code}"),
            Conduct::Dies(signal) => format!("kill -{signal} $$; sleep 60"),
            Conduct::Waits(code) => {
                format!(
                    "{ready}; until [ -e {desk}/gate.{} ]; do sleep 0.05; done; {left}; exit {code}",
                    job.0
                )
            }
            Conduct::Saves(code) => format!("trap 'exit {code}' TERM; {forever}"),
            Conduct::Acknowledges(work) => {
                let file = "$TRAINYARD_ACK_FILE";
                format!("trap 'echo {work} > {file}.x; mv {file}.x {file}' TERM; {forever}")
            }
            Conduct::AcknowledgesAndExits(code) => {
                format!("trap ': > $TRAINYARD_ACK_FILE; exit {code}' TERM; {forever}")
            }
            Conduct::SavedBefore(code) => {
                format!(": > $TRAINYARD_ACK_FILE; trap 'exit {code}' TERM; {forever}")
            }
            Conduct::Restores => {
                "[ -n \"${TRAINYARD_RESTORE_FROM+x}\" ] || exit 3; exit 0".to_owned()
            }
            Conduct::OneRankSaves(code) => {
                // The other one is ready first, so that no request meets it before.
                let waits = format!("until [ -e {desk}/other.{name} ]; do sleep 0.05; done");
                let other = format!("touch {desk}/other.{name}; while :; do sleep 0.05; done");
                let saves = format!("trap 'sleep 0.5; exit {code}' TERM; {waits}; {forever}");
                format!("if [ $RANK = 1 ]; then {other}; fi; {saves}")
            }
            Conduct::Ignores => format!("trap '' TERM INT HUP USR1 USR2 QUIT; {forever}"),
            Conduct::OneRankFails(code) => {
                // It waits for the other, which may otherwise be stopped before it has begun.
                let fails = format!(
                    "until [ -e {desk}/ready.{name} ]; do sleep 0.05; done; {left}; exit {code}"
                );
                format!("if [ $RANK = 1 ]; then {fails}; fi; trap '' TERM; {forever}")
            }
            Conduct::CannotStart => unreachable!("it has no script"),
        };
        format!("echo ${{RANK:-0}} >> {desk}/ran.{name}; {rest}")
    }
}
