//! The lanes of one GPU: jobs of a lane use the same memory one after the other, an iteration each.

use crate::prelude::*;

/// Memory of a job on its GPU.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Footprint {
    /// What it keeps between iterations: parameters and what the framework holds.
    pub persistent_mib: u32,
    /// What an iteration needs beyond that, at most.
    pub ephemeral_mib: u32,
}

impl Footprint {
    /// Both together: what it needs while it runs.
    pub fn whole_mib(self) -> u64 {
        u64::from(self.persistent_mib) + u64::from(self.ephemeral_mib)
    }
}

/// A job in a lane.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Resident {
    pub job: JobId,
    pub footprint: Footprint,
    pub lane: u16,
}

/// The lanes of a GPU. Safety: what all jobs keep, and for each lane what its largest iteration needs, fit together.
#[derive(Clone, Debug)]
pub(super) struct Lanes {
    capacity_mib: u64,
    /// By job.
    residents: Vec<Resident>,
}

impl Lanes {
    /// Nothing is there yet.
    pub fn new(capacity_mib: u32) -> Lanes {
        Lanes { capacity_mib: u64::from(capacity_mib), residents: Vec::new() }
    }

    /// The jobs, ascending.
    pub fn residents(&self) -> &[Resident] {
        &self.residents
    }

    /// What an iteration in a lane may need at most: the lane's size.
    pub fn size_mib(&self, lane: u16) -> u64 {
        let members = self.residents.iter().filter(|one| one.lane == lane);
        members.map(|one| u64::from(one.footprint.ephemeral_mib)).max().unwrap_or(0)
    }

    /// Lanes in use, ascending.
    pub fn lanes(&self) -> Vec<u16> {
        let mut lanes: Vec<u16> = self.residents.iter().map(|one| one.lane).collect();
        lanes.sort_unstable();
        lanes.dedup();
        lanes
    }

    /// The sizes of all lanes together.
    pub fn ephemeral_mib(&self) -> u64 {
        self.lanes().into_iter().map(|lane| self.size_mib(lane)).sum()
    }

    /// The left side of the safety rule.
    pub fn used_mib(&self) -> u64 {
        let kept = self.residents.iter().map(|one| u64::from(one.footprint.persistent_mib));
        kept.sum::<u64>() + self.ephemeral_mib()
    }

    /// The lane for one more job: a new one if there is memory for that and there are fewer than `most`; else the smallest
    /// in which the safety rule still holds.
    pub fn lane_for(&self, footprint: Footprint, most: usize) -> Option<u16> {
        let lanes = self.lanes();
        let used = self.used_mib();
        if lanes.len() < most && used + footprint.whole_mib() <= self.capacity_mib {
            return (0..u16::MAX).find(|lane| !lanes.contains(lane));
        }
        let mut by_size: Vec<(u64, u16)> =
            lanes.into_iter().map(|lane| (self.size_mib(lane), lane)).collect();
        by_size.sort_unstable();
        let fits = |(size, _): &(u64, u16)| {
            let grown = u64::from(footprint.ephemeral_mib).max(*size);
            used - size + grown + u64::from(footprint.persistent_mib) <= self.capacity_mib
        };
        by_size.into_iter().find(fits).map(|(_, lane)| lane)
    }

    /// A job comes to a lane.
    pub fn admit(&mut self, job: JobId, footprint: Footprint, lane: u16) {
        self.residents.push(Resident { job, footprint, lane });
        self.residents.sort_unstable_by_key(|one| one.job);
    }

    /// The jobs of a lane, ascending.
    pub fn members(&self, lane: u16) -> impl Iterator<Item = &Resident> {
        self.residents.iter().filter(move |one| one.lane == lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mib(persistent_mib: u32, ephemeral_mib: u32) -> Footprint {
        Footprint { persistent_mib, ephemeral_mib }
    }

    #[test]
    fn jobs_have_lanes_of_their_own_while_memory_lasts_and_then_share_the_smallest_that_does() {
        let mut lanes = Lanes::new(100);
        for (job, footprint, lane) in [
            (0, mib(10, 30), Some(0)),
            (1, mib(5, 20), Some(1)),
            // 65 are taken: 10 + 30 is too much for a third lane, and the lane of 20 can grow by 10.
            (2, mib(10, 30), Some(1)),
            // 85 are taken: the lane of 30 with the lower id has room for what it keeps.
            (3, mib(10, 25), Some(0)),
            (4, mib(6, 1), None),
        ] {
            assert_eq!(lanes.lane_for(footprint, usize::MAX), lane, "job {job}");
            if let Some(lane) = lane {
                lanes.admit(JobId(job), footprint, lane);
            }
        }
        assert_eq!((lanes.used_mib(), lanes.ephemeral_mib()), (95, 60));
        assert_eq!(Lanes::new(100).lane_for(mib(60, 41), usize::MAX), None);
    }

    #[test]
    fn one_lane_holds_what_many_would_not() {
        let mut lanes = Lanes::new(100);
        for job in 0..5 {
            let lane = lanes.lane_for(mib(10, 50), 1).expect("what it keeps has room");
            assert_eq!(lane, 0);
            lanes.admit(JobId(job), mib(10, 50), lane);
        }
        assert_eq!(lanes.used_mib(), 100);
        assert_eq!(lanes.lane_for(mib(10, 50), 1), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(16), ..ProptestConfig::with_cases(256) })]

        /// Whatever comes and goes, memory suffices even if every lane runs its largest iteration at once.
        #[test]
        fn memory_is_never_promised_twice(
            jobs in proptest::collection::vec((0u32..400, 0u32..900, any::<bool>(), 0usize..8), 1..60),
            most in 1usize..6,
        ) {
            let mut lanes = Lanes::new(1000);
            for (id, (persistent, ephemeral, goes, which)) in jobs.into_iter().enumerate() {
                if goes && !lanes.residents.is_empty() {
                    let at = which % lanes.residents.len();
                    lanes.residents.remove(at);
                }
                let footprint = mib(persistent, ephemeral);
                let before = lanes.lanes().len();
                match lanes.lane_for(footprint, most) {
                    Some(lane) => lanes.admit(JobId(id as u32), footprint, lane),
                    None => {
                        // Refused only where no lane could hold it, the largest least of all.
                        let largest = lanes.lanes().into_iter().map(|lane| lanes.size_mib(lane)).max();
                        let grown = u64::from(ephemeral).max(largest.unwrap_or(0)) - largest.unwrap_or(0);
                        prop_assert!(lanes.used_mib() + u64::from(persistent) + grown > 1000);
                    }
                }
                let mut largest = std::collections::BTreeMap::new();
                let mut kept = 0;
                for one in lanes.residents() {
                    let size = largest.entry(one.lane).or_insert(0);
                    *size = one.footprint.ephemeral_mib.max(*size);
                    kept += one.footprint.persistent_mib;
                }
                prop_assert!(kept + largest.values().sum::<u32>() <= 1000);
                prop_assert!(largest.len() <= most.max(before));
            }
        }
    }
}
