//! Why something cannot be planned, always with the name of what is at fault.

use trainyard_diagnostic::InputError;

/// Why something cannot be planned.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Nothing was given.
    #[error("{0}: nothing to plan")]
    Empty(String),
    /// Operators that wait for each other.
    #[error("the graph has a cycle: {}", .0.join(" -> "))]
    Cycle(Vec<String>),
    /// Two operators have one name.
    #[error("operator `{0}` is there twice")]
    Twice(String),
    /// A figure of an operator that is no size or length of time.
    #[error("operator `{operator}`: `{field}` cannot be {value}: expected a number from 0")]
    Figure {
        /// The operator.
        operator: String,
        /// Which figure.
        field: &'static str,
        /// What was given.
        value: f64,
    },
    /// One operator is larger than every device.
    #[error("operator `{operator}` needs {} and the largest device has {}: {} are lacking", gib(*.needed), gib(*.largest), gib(.needed - .largest))]
    FitsNoDevice {
        /// The operator.
        operator: String,
        /// What it needs, in bytes.
        needed: f64,
        /// What the largest device has, in bytes.
        largest: f64,
    },
    /// The whole does not fit, however it is divided.
    #[error("{what} fits nowhere here: the best division needs {} on one device that has {}: {} are lacking", gib(*.needed), gib(*.capacity), gib(.needed - .capacity))]
    NoRoom {
        /// What was to be placed.
        what: String,
        /// What the fullest device would need, in bytes.
        needed: f64,
        /// What that device has, in bytes.
        capacity: f64,
    },
    /// A number that cannot be divided as asked.
    #[error("{what} ({whole}) cannot be divided by {by} ({parts})")]
    Indivisible {
        /// What is divided.
        what: String,
        /// How much there is of it.
        whole: u64,
        /// By what.
        by: String,
        /// Into how many parts.
        parts: u64,
    },
    /// A planner that cannot answer what it was asked.
    #[error("planner `{planner}` cannot plan this: {reason}")]
    NotFor {
        /// The planner.
        planner: &'static str,
        /// Why not.
        reason: String,
    },
    /// A plan in which steps wait for each other.
    #[error("the plan comes to a stand: `{0}` waits for what never ends")]
    Stuck(String),
    /// A text that cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
}

/// A size as it is shown.
pub fn gib(bytes: f64) -> String {
    format!("{:.2} GiB", bytes / (1u64 << 30) as f64)
}
