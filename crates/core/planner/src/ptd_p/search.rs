//! All divisions of a transformer over equal machines, costed by formula; the best few.

use super::cost::{Costs, Machines, Recompute, Split};
use crate::{PlanError, Transformer};

/// Which divisions are looked at.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Those of the paper.
    Paper,
    /// Those and sequence, context and expert parallelism, less recomputation and overlap.
    Ours,
}

/// Divisions that are simulated.
const FINALISTS: usize = 6;
/// Passes of a pipeline that a simulation takes.
const PASSES_MAX: u64 = 400_000;

/// The best divisions by formula, best first; one that does not fit where none does.
pub fn search(
    (model, machines): (&Transformer, &Machines),
    batch: u32,
    extent: Extent,
) -> Result<Vec<Split>, PlanError> {
    let mut fits: Vec<(f64, Split)> = Vec::new();
    let mut fullest: Option<(f64, Split)> = None;
    for split in splits(model, machines, batch, extent) {
        let costs = Costs::new(model, machines, split);
        let memory = costs.memory();
        if memory > machines.memory_bytes {
            if fullest.is_none_or(|(least, _)| memory < least) {
                fullest = Some((memory, split));
            }
            continue;
        }
        let seconds = costs.estimate();
        let at = fits.partition_point(|(other, _)| *other <= seconds);
        if at < FINALISTS {
            fits.insert(at, (seconds, split));
            fits.truncate(FINALISTS);
        }
    }
    if !fits.is_empty() {
        return Ok(fits.into_iter().map(|(_, split)| split).collect());
    }
    match fullest {
        Some((needed, _)) => Err(PlanError::NoRoom {
            what: format!("`{}` with a batch of {batch}", model.name),
            needed,
            capacity: machines.memory_bytes,
        }),
        None => Err(PlanError::Indivisible {
            what: format!("a batch of {batch} over the copies that {} layers leave", model.layers),
            whole: u64::from(batch),
            by: "any number of copies on these devices".to_owned(),
            parts: u64::from(machines.devices),
        }),
    }
}

/// Every division of the devices whose numbers divide what they must.
fn splits<'a>(
    model: &'a Transformer,
    machines: &'a Machines,
    batch: u32,
    extent: Extent,
) -> impl Iterator<Item = Split> + 'a {
    let is_ours = extent == Extent::Ours;
    let devices = machines.devices;
    // Takeaway 1 of the paper: tensor parallelism stays inside a machine.
    let tensors = divisors(model.heads).filter(move |one| {
        *one <= machines.per_machine && machines.per_machine.is_multiple_of(*one)
    });
    let grids = tensors.flat_map(move |tensor| {
        let contexts = powers(if is_ours { 64 } else { 1 });
        let contexts = contexts.filter(move |one| model.sequence.is_multiple_of(*one));
        contexts.flat_map(move |context| {
            divisors(model.layers).map(move |pipeline| (tensor, context, pipeline))
        })
    });
    let grids = grids.filter_map(move |(tensor, context, pipeline)| {
        let group = tensor * context * pipeline;
        let data = devices.is_multiple_of(group).then_some(devices / group)?;
        batch.is_multiple_of(data).then_some((tensor, context, pipeline, data))
    });
    grids.flat_map(move |(tensor, context, pipeline, data)| {
        let own = batch / data;
        let micros = powers(64.min(own)).filter(move |micro| own.is_multiple_of(*micro));
        micros.flat_map(move |micro_batch| {
            let micro_batches = own / micro_batch;
            let per_stage = model.layers / pipeline;
            divisors(per_stage)
                .filter(move |chunks| {
                    let passes = 2 * u64::from(pipeline * chunks) * u64::from(micro_batches);
                    let divides = pipeline > 1 && micro_batches.is_multiple_of(pipeline);
                    *chunks == 1 || (divides && passes <= PASSES_MAX)
                })
                .flat_map(move |chunks| {
                    let plain = Split {
                        tensor,
                        pipeline,
                        data,
                        chunks,
                        micro_batch,
                        micro_batches,
                        context,
                        expert: 1,
                        sequence: false,
                        recompute: Recompute::Full,
                        overlap: false,
                    };
                    variants(model, plain, is_ours)
                })
        })
    })
}

/// The same with what the paper has not.
fn variants(model: &Transformer, plain: Split, is_ours: bool) -> Vec<Split> {
    if !is_ours {
        return vec![plain];
    }
    let mut all = Vec::new();
    let experts = divisors(model.experts).filter(|expert| plain.data.is_multiple_of(*expert));
    for expert in experts {
        for recompute in [Recompute::Full, Recompute::Selective, Recompute::Nothing] {
            let sequence = plain.tensor > 1;
            all.push(Split { expert, recompute, sequence, overlap: true, ..plain });
        }
    }
    all
}

fn divisors(number: u32) -> impl Iterator<Item = u32> {
    (1..=number).filter(move |one| number.is_multiple_of(*one))
}

fn powers(most: u32) -> impl Iterator<Item = u32> {
    (0..32).map(|power| 1u32 << power).take_while(move |one| *one <= most)
}
