//! What tests of the whole house share.
//!
//! - [`scenario`]: runs a scenario text and gives back its stable text.
//! - [`conformance`]: what every backend must do, as one body of tests for all of them.
//! - [`machine`], [`dice`]: a backend without processes, and chance from a seed.
//! - [`calibration`]: a trace replayed with forecasts along the way.
//! - [`forgetful`]: wraps a policy so that it loses its memory now and then.
//! - [`gavel`]: recorded runs of Gavel's own simulator.
//! - [`hosts`]: the host that waits and the one that goes on, compared; policies in trouble.
//! - [`host`]: an engine whose events a test says one by one.
//! - [`waste`]: GPU time that is idle though a job waits that could use it.
//! - [`places`]: where the repository is, and what lies beside it.
//! - [`say!`]: prints past the capture of the test harness; [`skip!`]: a test that cannot run here.
//!
//! The tests themselves are under `tests/`: scenarios, conformance over the registry, properties, references to
//! published simulators, and the rules of the house.

/// Prints a line past the capture of the test harness, so that it is seen.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {{
        use ::std::io::Write as _;
        let _ = writeln!(::std::io::stderr(), $($text)*);
    }};
}

/// Says that a test was skipped because something is not here: `data`, `slurm`, `root`, `mount`, `users`, `python`,
/// `torch`, `cc` or `browser`. Where `TRAINYARD_REQUIRE` names it, separated by commas, the test fails instead.
#[macro_export]
macro_rules! skip {
    ($need:literal, $($text:tt)*) => {
        $crate::skipped($need, &::std::format!($($text)*))
    };
}

/// See [`skip!`].
pub fn skipped(need: &str, why: &str) {
    let required = std::env::var("TRAINYARD_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|one| one.trim() == need);
    assert!(!is_required, "TRAINYARD_REQUIRE names `{need}`, and it is not here: {why}");
    say!("skipped: {why}");
}

pub mod calibration;
pub mod conformance;
pub mod dice;
pub mod forgetful;
pub mod gavel;
pub mod host;
pub mod hosts;
pub mod machine;
pub mod orders;
pub mod places;
pub mod scenario;
pub mod waste;
