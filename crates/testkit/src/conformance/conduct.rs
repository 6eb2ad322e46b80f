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
    /// Runs on, whatever it is asked.
    Ignores,
    /// Its command does not exist.
    CannotStart,
    /// A gang: the second rank exits with a code, and the others run on.
    OneRankFails(i32),
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

    /// Puts it into an order: as data for a simulation, as a script for everybody else.
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

    /// The code with which it leaves when it is asked to stop; nothing where it does not leave.
    pub fn leaves_with(self) -> Option<i32> {
        match self {
            Conduct::Saves(code) => Some(code),
            Conduct::Ignores => None,
            // The signal ends it, or it is ended once it said that it saved.
            Conduct::Exits(_)
            | Conduct::Dies(_)
            | Conduct::Waits(_)
            | Conduct::Acknowledges(_)
            | Conduct::CannotStart
            | Conduct::OneRankFails(_) => Some(0),
        }
    }

    fn script(self, desk: &Path, (job, attempt): (JobId, Attempt)) -> String {
        let desk = desk.display();
        let name = format!("{}.{}", job.0, attempt.0);
        let ready = format!("touch {desk}/ready.{name}");
        let forever = format!("{ready}; while :; do sleep 0.05; done");
        let rest = match self {
            Conduct::Exits(code) => format!("exit {code}"),
            Conduct::Dies(signal) => format!("kill -{signal} $$; sleep 60"),
            Conduct::Waits(code) => {
                format!(
                    "{ready}; until [ -e {desk}/gate.{} ]; do sleep 0.05; done; exit {code}",
                    job.0
                )
            }
            Conduct::Saves(code) => format!("trap 'exit {code}' TERM; {forever}"),
            Conduct::Acknowledges(work) => {
                let file = "$TRAINYARD_ACK_FILE";
                format!("trap 'echo {work} > {file}.x; mv {file}.x {file}' TERM; {forever}")
            }
            Conduct::Ignores => format!("trap '' TERM INT HUP USR1 USR2 QUIT; {forever}"),
            Conduct::OneRankFails(code) => {
                // It waits for the other, which may otherwise be stopped before it has begun.
                let fails =
                    format!("until [ -e {desk}/ready.{name} ]; do sleep 0.05; done; exit {code}");
                format!("if [ $RANK = 1 ]; then {fails}; fi; trap '' TERM; {forever}")
            }
            Conduct::CannotStart => unreachable!("it has no script"),
        };
        format!("echo ${{RANK:-0}} >> {desk}/ran.{name}; {rest}")
    }
}
