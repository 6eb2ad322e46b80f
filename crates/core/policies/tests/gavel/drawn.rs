//! Problems as plain numbers.

use smallvec::smallvec;
use trainyard_framework::{Choice, RateTable};
use trainyard_policies::gavel::problem::Party;
use trainyard_types::{GpuType, JobId};

/// GPUs of each type; and for each job how many it wants, its weight, and its rate on each type.
#[derive(Clone, Debug)]
pub struct Drawn {
    pub capacity: Vec<u32>,
    pub jobs: Vec<(u32, f64, Vec<f64>)>,
}

impl Drawn {
    /// Jobs of one GPU and weight 1.
    pub fn of(capacity: &[u32], rates: &[&[f64]]) -> Drawn {
        let job = |rates: &&[f64]| (1, 1.0, rates.to_vec());
        Drawn { capacity: capacity.to_vec(), jobs: rates.iter().map(job).collect() }
    }

    pub fn table(&self) -> RateTable {
        let mut table = RateTable {
            jobs: (0..self.jobs.len() as u32).map(JobId).collect(),
            kinds: (0..self.capacity.len() as u8).map(GpuType).collect(),
            capacity: self.capacity.clone(),
            choices: Vec::new(),
        };
        for (job, (gpus, _, rates)) in self.jobs.iter().enumerate() {
            for (kind, rate) in rates.iter().enumerate() {
                table.choices.push(Choice {
                    jobs: smallvec![JobId(job as u32)],
                    uses: smallvec![(kind as u16, *gpus)],
                    nodes_max: 0,
                    rates: smallvec![*rate],
                });
            }
        }
        table
    }

    pub fn facts(&self) -> Vec<Party> {
        let party = |(job, (gpus, weight, _)): (usize, &(u32, f64, Vec<f64>))| Party {
            gpus: f64::from(*gpus),
            weight: *weight,
            left: 1000.0,
            ..Party::unknown(JobId(job as u32))
        };
        self.jobs.iter().enumerate().map(party).collect()
    }
}
