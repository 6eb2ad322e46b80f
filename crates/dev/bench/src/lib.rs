//! What benches share: their flags, the least of several runs, and a reference beside it.

use anyhow::{Result, bail};
use cpu_time::ProcessTime;

/// The flags of a bench.
#[derive(Copy, Clone, Debug, clap::Parser)]
#[command(about)]
pub struct Flags {
    /// How many runs; the least counts.
    #[arg(long, default_value_t = 5)]
    pub runs: u32,
    /// Fail when a bound is missed.
    #[arg(long)]
    pub gate: bool,
}

impl Flags {
    /// The end of a bench in which so many bounds were missed.
    pub fn conclude(&self, missed: usize) -> Result<()> {
        if self.gate && missed > 0 {
            bail!("{missed} bounds were missed");
        }
        Ok(())
    }
}

/// What several runs of one piece of work took.
#[derive(Copy, Clone, Debug)]
pub struct Least<T> {
    /// The least CPU seconds.
    pub seconds: f64,
    /// The least CPU seconds of the reference, measured between the runs.
    pub reference: f64,
    /// What the last run gave.
    pub found: T,
}

impl<T> Least<T> {
    /// How many times as long as the reference it took.
    pub fn times_reference(&self) -> f64 {
        self.seconds / self.reference
    }
}

/// Runs a piece of work several times, at least once.
pub fn least<T>(runs: u32, mut run: impl FnMut() -> Result<T>) -> Result<Least<T>> {
    let mut best: Option<Least<T>> = None;
    for _ in 0..runs.max(1) {
        let reference = reference_seconds();
        let start = ProcessTime::now();
        let found = run()?;
        let seconds = start.elapsed().as_secs_f64();
        best = Some(match best {
            Some(before) => Least {
                seconds: before.seconds.min(seconds),
                reference: before.reference.min(reference),
                found,
            },
            None => Least { seconds, reference, found },
        });
    }
    Ok(best.expect("it ran at least once"))
}

/// The mark of a row whose bound is missed.
pub fn mark(is_missed: bool) -> &'static str {
    if is_missed { "  MISSED" } else { "" }
}

/// A fixed piece of work, dependent loads and integer arithmetic, to tell a slow machine from slow code: its CPU seconds.
pub fn reference_seconds() -> f64 {
    let start = ProcessTime::now();
    let mut table: Vec<u32> = (0..1 << 16).collect();
    let mut x = 1u32;
    for i in 0..20_000_000u32 {
        let slot = (x as usize) & 0xffff;
        x = table[slot].wrapping_mul(1_664_525).wrapping_add(x ^ i);
        table[slot] = x;
    }
    assert_ne!(std::hint::black_box(x), 0);
    start.elapsed().as_secs_f64()
}
