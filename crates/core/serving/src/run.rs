//! A discipline that was chosen, on a trace.

use crate::discipline::Fleet;
use crate::llm::{LlmFleet, TokenTally, simulate_tokens};
use crate::measures::Tally;
use crate::registry::{Choice, Serves, Told};
use crate::request::Trace;
use crate::simulate::{Fault, simulate};
use trainyard_diagnostic::InputError;
use trainyard_types::{Span, Time};

/// GPUs with what they serve.
#[derive(Clone, Debug)]
pub enum Served {
    /// Models that answer as a whole.
    Whole(Fleet),
    /// A language model.
    Tokens(LlmFleet),
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Ran {
    /// Of whole inferences.
    Whole(Box<Tally>),
    /// Of tokens.
    Tokens(Box<TokenTally>),
}

impl Ran {
    /// What every run counts.
    pub fn tally(&self) -> &Tally {
        match self {
            Ran::Whole(tally) => tally,
            Ran::Tokens(tally) => &tally.whole,
        }
    }
}

/// Why there is no outcome.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RunError {
    /// A setting, or a discipline that serves something else.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A fault of the discipline.
    #[error("{discipline}: {fault}")]
    Fault {
        /// Which one.
        discipline: &'static str,
        /// What.
        fault: Fault,
    },
}

/// Whether a discipline serves such a trace.
pub fn serves(choice: &Choice, trace: &Trace) -> bool {
    matches!(choice.entry.serves, Serves::Tokens(_)) == trace.has_tokens()
}

/// The least time that a request of a trace has; an hour where none has a deadline.
pub fn slo(trace: &Trace) -> Span {
    let deadlines = trace.requests.iter().filter(|one| one.deadline != Time::NEVER);
    deadlines.map(|one| one.deadline.since(one.arrived)).min().unwrap_or(Span::secs(3600))
}

/// Runs a trace. `progress` is told the number of requests that came, now and then.
pub fn run(
    choice: &Choice,
    served: &Served,
    trace: &Trace,
    progress: &mut dyn FnMut(usize),
) -> Result<Ran, RunError> {
    let discipline = choice.entry.name;
    let failed = |fault| RunError::Fault { discipline, fault };
    match (served, choice.entry.serves) {
        (Served::Whole(fleet), Serves::Whole(make)) => {
            let rates = trace.rates();
            let told = Told { fleet, rates: &rates, slo: slo(trace) };
            let mut made = make(&told, &choice.settings)?;
            let tally = simulate(fleet, trace, made.as_mut(), progress);
            tally.map(|tally| Ran::Whole(Box::new(tally))).map_err(failed)
        }
        (Served::Tokens(fleet), Serves::Tokens(make)) => {
            let mut made = make(fleet, &choice.settings)?;
            let tally = simulate_tokens(fleet, trace, made.as_mut(), progress);
            tally.map(|tally| Ran::Tokens(Box::new(tally))).map_err(failed)
        }
        (Served::Whole(_), Serves::Tokens(_)) => {
            let expected = "a discipline of whole inferences for these models";
            Err(InputError::wrong(0, "discipline", discipline, expected).into())
        }
        (Served::Tokens(_), Serves::Whole(_)) => {
            let expected = "a discipline of language models for requests with tokens";
            Err(InputError::wrong(0, "discipline", discipline, expected).into())
        }
    }
}
