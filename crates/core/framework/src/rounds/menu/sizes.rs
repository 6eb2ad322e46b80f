//! Other sizes than the one a job asks for, so that the number of GPUs is a decision of the optimiser.

use super::Writer;
use crate::JobRef;
use crate::rounds::Choice;
use smallvec::smallvec;
use trainyard_types::{Config, Want};

impl Writer<'_> {
    /// A choice for each other size of an elastic job on one type.
    pub(super) fn sizes(&mut self, job: JobRef<'_>, kind: usize) {
        let (id, per_node) = self.shapes[kind];
        for gpus in other_sizes(&job.spec.want) {
            let config = Config::packed(id, gpus, per_node);
            let rate = self.rate_on(job, &[(kind, gpus)], &config);
            if rate > 0.0 {
                self.table.choices.push(Choice {
                    jobs: smallvec![job.id()],
                    uses: smallvec![(kind as u16, gpus)],
                    nodes_max: 0,
                    rates: smallvec![rate],
                });
            }
        }
    }
}

/// The least, the most and all powers of two between them, without the one that is asked for.
fn other_sizes(want: &Want) -> Vec<u32> {
    if want.permille < 1000 {
        return Vec::new();
    }
    let powers = (0..u32::BITS).map(|bit| 1 << bit);
    let between = powers.filter(|size| (want.gpus_min..=want.gpus_max).contains(size));
    let mut sizes: Vec<u32> = between.chain([want.gpus_min, want.gpus_max]).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes.retain(|size| *size != want.gpus && *size > 0);
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_doublings_within_the_bounds() {
        let sizes = |gpus_min, gpus, gpus_max| {
            let job = trainyard_types::Job::simple(
                trainyard_types::JobId(0),
                trainyard_types::Time::ZERO,
                gpus,
            );
            other_sizes(&Want { gpus_min, gpus_max, ..job.want.clone() })
        };
        assert_eq!(sizes(1, 4, 12), [1, 2, 8, 12]);
        assert!(sizes(3, 3, 3).is_empty());
        assert_eq!(sizes(3, 6, 6), [3, 4]);
    }
}
