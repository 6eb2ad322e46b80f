//! A plan of an all-reduce: steps of transfers, and whether they add up.

/// Bytes `start..start + bytes` of the data go from one rank to another.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Who sends.
    pub from: usize,
    /// Who receives.
    pub to: usize,
    /// The first byte.
    pub start: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Whether the receiver adds it to what it holds, or replaces what it holds.
    pub reduces: bool,
}

/// Steps that leave the sum over all workers with each of them.
///
/// The transfers of a step go at the same time, and show what their senders held before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Ranks below this bring data and want the sum.
    pub workers: usize,
    /// All ranks; those that are no workers help.
    pub ranks: usize,
    /// Bytes of data of each worker.
    pub bytes: u64,
    /// What happens, in order.
    pub steps: Vec<Vec<Transfer>>,
}

/// Why a plan is no all-reduce.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanFault {
    /// A transfer names a rank or a byte that is not there.
    #[error("step {step} names a rank or bytes that are not there")]
    OutOfRange {
        /// The step.
        step: usize,
    },
    /// A contribution is added where it is already.
    #[error("step {step} adds byte {byte} to rank {rank}, which has a part of that sum already")]
    CountedTwice {
        /// The step.
        step: usize,
        /// The receiver.
        rank: usize,
        /// The first such byte.
        byte: u64,
    },
    /// A copy replaces what has more in it.
    #[error("step {step} replaces byte {byte} of rank {rank} by a sum that lacks a part of it")]
    Lost {
        /// The step.
        step: usize,
        /// The receiver.
        rank: usize,
        /// The first such byte.
        byte: u64,
    },
    /// A worker ends without the sum.
    #[error("rank {rank} ends without the sum of byte {byte}")]
    Incomplete {
        /// The worker.
        rank: usize,
        /// The first such byte.
        byte: u64,
    },
}

impl Plan {
    /// A plan whose second half sends what the first half reduced back the same ways.
    ///
    /// A reduction of one byte is a tree that leads to one rank; the same tree the other way round spreads it.
    pub fn mirrored(workers: usize, ranks: usize, bytes: u64, scatter: Vec<Vec<Transfer>>) -> Plan {
        let mut steps = scatter;
        for at in (0..steps.len()).rev() {
            let back =
                |one: &Transfer| Transfer { from: one.to, to: one.from, reduces: false, ..*one };
            steps.push(steps[at].iter().map(back).collect());
        }
        steps.retain(|step| !step.is_empty());
        Plan { workers, ranks, bytes, steps }
    }

    /// Follows every byte through the steps: each worker must end with the sum of all workers, none counted twice.
    pub fn check(&self) -> Result<(), PlanFault> {
        let mut cuts = vec![0, self.bytes];
        for (step, transfer) in self.transfers() {
            let end = transfer.start.saturating_add(transfer.bytes);
            if end > self.bytes || transfer.from.max(transfer.to) >= self.ranks {
                return Err(PlanFault::OutOfRange { step });
            }
            cuts.extend([transfer.start, end]);
        }
        cuts.sort_unstable();
        cuts.dedup();
        let words = self.workers.div_ceil(64);
        let mut held = vec![vec![0u64; words]; self.ranks * (cuts.len() - 1)];
        let at = |rank: usize, cell: usize| rank * (cuts.len() - 1) + cell;
        for rank in 0..self.workers {
            (0..cuts.len() - 1).for_each(|cell| held[at(rank, cell)][rank / 64] = 1 << (rank % 64));
        }
        for (number, step) in self.steps.iter().enumerate() {
            let before = held.clone();
            for one in step {
                let cells = cuts.partition_point(|cut| *cut < one.start)
                    ..cuts.partition_point(|cut| *cut < one.start + one.bytes);
                for cell in cells {
                    let fault = (number, one.to, cuts[cell]);
                    add(&mut held[at(one.to, cell)], &before[at(one.from, cell)], one, fault)?;
                }
            }
        }
        for rank in 0..self.workers {
            for cell in 0..cuts.len() - 1 {
                let parts: u32 = held[at(rank, cell)].iter().map(|word| word.count_ones()).sum();
                if parts as usize != self.workers {
                    return Err(PlanFault::Incomplete { rank, byte: cuts[cell] });
                }
            }
        }
        Ok(())
    }

    /// All transfers with the number of their step.
    pub fn transfers(&self) -> impl Iterator<Item = (usize, &Transfer)> {
        let steps = self.steps.iter().enumerate();
        steps.flat_map(|(number, step)| step.iter().map(move |transfer| (number, transfer)))
    }
}

fn add(
    held: &mut [u64],
    sent: &[u64],
    transfer: &Transfer,
    (step, rank, byte): (usize, usize, u64),
) -> Result<(), PlanFault> {
    for (held, sent) in held.iter_mut().zip(sent) {
        if transfer.reduces && *held & sent != 0 {
            return Err(PlanFault::CountedTwice { step, rank, byte });
        }
        if !transfer.reduces && *held & !sent != 0 {
            return Err(PlanFault::Lost { step, rank, byte });
        }
        *held |= sent;
    }
    Ok(())
}

/// What a rank adds up in a step.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Fold {
    /// Bytes times additions.
    pub reduced: f64,
    /// Bytes times reads and writes of memory: adding up k inputs in one pass takes k + 1.
    pub accessed: f64,
}

/// What each receiver of a step adds up; `holds` says which ranks have a value of their own.
///
/// All inputs of a byte that come in one step are added in one pass (GenModel, section on memory access).
pub fn folds(step: &[Transfer], ranks: usize, holds: &[bool]) -> Vec<Fold> {
    let mut edges: Vec<Vec<(u64, i32)>> = vec![Vec::new(); ranks];
    for one in step.iter().filter(|one| one.reduces && one.bytes > 0) {
        edges[one.to].extend([(one.start, 1), (one.start + one.bytes, -1)]);
    }
    let mut folds = vec![Fold::default(); ranks];
    for (rank, edges) in edges.iter_mut().enumerate() {
        edges.sort_unstable();
        let (mut open, mut from) = (0, 0);
        for (byte, change) in edges {
            let inputs = open + i32::from(holds[rank]);
            if open > 0 && inputs >= 2 {
                let bytes = (*byte - from) as f64;
                folds[rank].reduced += bytes * f64::from(inputs - 1);
                folds[rank].accessed += bytes * f64::from(inputs + 1);
            }
            (open, from) = (open + *change, *byte);
        }
    }
    folds
}
