//! Stages after the placer: they choose among whole plans that hold what the policy granted, and turn knobs.

pub mod cassini;
