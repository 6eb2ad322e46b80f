//! In which order a stage does its forward and backward passes.

use crate::PlanError;
use serde::Serialize;

/// A schedule of micro-batches.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "name")]
pub enum Schedule {
    /// All forward passes, then all backward passes (GPipe).
    AllForward,
    /// One forward, one backward: a stage holds as many micro-batches as there are stages from it to the last.
    OneForwardOneBackward,
    /// The same over `chunks` parts of the model on each group of devices (Megatron-LM, section 2.2).
    Interleaved {
        /// Parts of the model on each group.
        chunks: u32,
    },
    /// DAPPLE's early backward: `min(S - i, depth)` forward passes first, or about twice as many where `wide`.
    EarlyBackward {
        /// Micro-batches for which there is memory.
        depth: u32,
        /// The policy for much communication: `min(2 (S - i) - 1, depth)`.
        wide: bool,
    },
}

/// One pass of one chunk.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Which part of the model on this group, from 0.
    pub chunk: u32,
    /// Which micro-batch.
    pub micro_batch: u32,
    /// Whether it is the backward pass.
    pub is_backward: bool,
}

impl Schedule {
    /// Parts of the model on each group of devices.
    pub fn chunks(self) -> u32 {
        match self {
            Schedule::Interleaved { chunks } => chunks,
            _ => 1,
        }
    }

    /// What group `group` of `groups` does, in order.
    pub fn passes(
        self,
        (group, groups): (u32, u32),
        micro_batches: u32,
    ) -> Result<Vec<Pass>, PlanError> {
        let left = groups - group;
        Ok(match self {
            Schedule::AllForward => one_by_one(micro_batches, micro_batches),
            Schedule::OneForwardOneBackward => one_by_one(left, micro_batches),
            Schedule::EarlyBackward { depth, wide } => {
                let first = if wide { 2 * left - 1 } else { left };
                one_by_one(first.min(depth).max(1), micro_batches)
            }
            Schedule::Interleaved { chunks: 1 } => one_by_one(left, micro_batches),
            Schedule::Interleaved { chunks } => {
                if !micro_batches.is_multiple_of(groups) {
                    return Err(PlanError::Indivisible {
                        what: "the number of micro-batches".to_owned(),
                        whole: u64::from(micro_batches),
                        by: "the pipeline stages of an interleaved schedule".to_owned(),
                        parts: u64::from(groups),
                    });
                }
                interleaved((group, groups), chunks, micro_batches)
            }
        })
    }
}

/// So many forward passes first, then backward and forward by turns.
fn one_by_one(first: u32, micro_batches: u32) -> Vec<Pass> {
    let pass = |micro_batch, is_backward| Pass { chunk: 0, micro_batch, is_backward };
    let first = first.min(micro_batches);
    let mut passes: Vec<Pass> = (0..first).map(|micro| pass(micro, false)).collect();
    for micro in 0..micro_batches {
        passes.push(pass(micro, true));
        if first + micro < micro_batches {
            passes.push(pass(first + micro, false));
        }
    }
    passes
}

/// The interleaved schedule: groups of as many micro-batches as there are stages go through one chunk after the other.
fn interleaved((group, groups): (u32, u32), chunks: u32, micro_batches: u32) -> Vec<Pass> {
    let total = micro_batches * chunks;
    let at = |step: u32, is_backward: bool| {
        let within = step % (groups * chunks);
        let chunk = within / groups;
        Pass {
            chunk: if is_backward { chunks - 1 - chunk } else { chunk },
            micro_batch: step / (groups * chunks) * groups + within % groups,
            is_backward,
        }
    };
    let first = ((groups - group - 1) * 2 + (chunks - 1) * groups).min(total);
    let mut passes: Vec<Pass> = (0..first).map(|step| at(step, false)).collect();
    for step in 0..total - first {
        passes.push(at(first + step, false));
        passes.push(at(step, true));
    }
    passes.extend((total - first..total).map(|step| at(step, true)));
    passes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(passes: &[Pass]) -> String {
        let one = |pass: &Pass| {
            let kind = if pass.is_backward { 'b' } else { 'f' };
            format!("{kind}{}", pass.micro_batch)
        };
        passes.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_last_stage_goes_back_at_once_and_the_first_fills_the_pipeline() {
        let schedule = Schedule::OneForwardOneBackward;
        assert_eq!(text(&schedule.passes((1, 2), 3).unwrap()), "f0 b0 f1 b1 f2 b2");
        assert_eq!(text(&schedule.passes((0, 2), 3).unwrap()), "f0 f1 b0 f2 b1 b2");
        let wide = Schedule::EarlyBackward { depth: 9, wide: true };
        assert_eq!(text(&wide.passes((0, 2), 3).unwrap()), "f0 f1 f2 b0 b1 b2");
        let shallow = Schedule::EarlyBackward { depth: 1, wide: true };
        assert_eq!(text(&shallow.passes((0, 2), 2).unwrap()), "f0 b0 f1 b1");
    }

    #[test]
    fn every_pass_is_done_once_whatever_the_schedule() {
        for chunks in 1..4 {
            for group in 0..3 {
                let schedule = Schedule::Interleaved { chunks };
                let mut passes = schedule.passes((group, 3), 6).unwrap();
                assert_eq!(passes.len() as u32, 2 * 6 * chunks);
                passes.sort_by_key(|pass| (pass.is_backward, pass.chunk, pass.micro_batch));
                passes.dedup();
                assert_eq!(passes.len() as u32, 2 * 6 * chunks);
            }
        }
    }

    #[test]
    fn micro_batches_that_do_not_divide_are_refused() {
        let error = Schedule::Interleaved { chunks: 2 }.passes((0, 4), 6).unwrap_err();
        assert!(error.to_string().contains("(6) cannot be divided"), "{error}");
    }
}
