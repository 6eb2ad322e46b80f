//! Groups of jobs of one size: pairs of greatest efficiency, then pairs of pairs, until all fit.

use smallvec::SmallVec;
use trainyard_solver::matching_in_order;

/// The jobs of a group, by their places in the list of candidates.
pub(crate) type Group = SmallVec<[usize; 4]>;

/// So many groups are matched at once; where there are more, those of like priority among themselves.
const MATCHED_MAX: usize = 512;

/// Groups that ask for the same GPUs, in order of priority.
pub(crate) struct Bucket {
    /// GPUs of each group.
    pub(crate) gpus: u32,
    /// Whether its jobs may share GPUs.
    pub(crate) shares: bool,
    pub(crate) groups: Vec<Group>,
}

/// What joining two groups is worth. Jobs of one class are alike.
pub(crate) trait Efficiency {
    /// The class of a job.
    fn class(&self, job: usize) -> u32;

    /// Seconds that the stages of a job are busy in an iteration.
    fn busy(&self, job: usize) -> f64;

    /// Seconds in which each job of a group of such classes, ascending, does an iteration.
    fn period(&mut self, classes: &[u32]) -> Option<f64>;
}

/// Storage and CPU count as two, with the GPU and the network: what a group could keep busy at once.
const STAGES: f64 = 4.0;

/// Joins groups pair by pair, in rounds, until their GPUs are no more than `room` (Muri, section 4.3, Algorithm 1).
///
/// A round finds the pairs of greatest weight in each bucket; they are joined bucket by bucket in order of priority, and
/// the first moment at which all fit ends it. At most `most` jobs come to share, in at most as many rounds.
pub(crate) fn join(buckets: &mut [Bucket], room: u32, most: usize, worth: &mut impl Efficiency) {
    let demand = |bucket: &Bucket| bucket.gpus as u64 * bucket.groups.len() as u64;
    let mut needed: u64 = buckets.iter().map(demand).sum();
    for _ in 0..most {
        if needed <= u64::from(room) {
            break;
        }
        let mut joined = 0;
        for bucket in buckets.iter_mut().filter(|bucket| bucket.shares) {
            if needed <= u64::from(room) {
                break;
            }
            let partners = partners(&bucket.groups, most, worth);
            let mut groups: Vec<Group> = Vec::with_capacity(bucket.groups.len());
            for (place, group) in bucket.groups.iter().enumerate() {
                match partners[place] {
                    // With the first of a pair it is not yet known whether the pair is needed.
                    Some(partner) if partner > place => {}
                    Some(partner) if needed > u64::from(room) => {
                        let first = &bucket.groups[partner];
                        groups.push(first.iter().chain(group).copied().collect());
                        needed -= u64::from(bucket.gpus);
                        joined += 1;
                    }
                    Some(partner) => {
                        groups.push(bucket.groups[partner].clone());
                        groups.push(group.clone());
                    }
                    None => groups.push(group.clone()),
                }
            }
            bucket.groups = groups;
        }
        if joined == 0 {
            break;
        }
    }
}

/// The partner of each group in the pairs of greatest weight.
fn partners(groups: &[Group], most: usize, worth: &mut impl Efficiency) -> Vec<Option<usize>> {
    let mut partners = vec![None; groups.len()];
    for (part, groups) in groups.chunks(MATCHED_MAX).enumerate() {
        let base = part * MATCHED_MAX;
        for (place, partner) in pairs(groups, most, worth).into_iter().enumerate() {
            partners[base + place] = partner.map(|partner| base + partner);
        }
    }
    partners
}

/// The same among so many groups as are matched at once. Periods of like groups are looked up once.
fn pairs(groups: &[Group], most: usize, worth: &mut impl Efficiency) -> Vec<Option<usize>> {
    let mut kinds: Vec<SmallVec<[u32; 4]>> = Vec::new();
    let kind_of: Vec<usize> = groups
        .iter()
        .map(|group| {
            let mut classes: SmallVec<[u32; 4]> =
                group.iter().map(|job| worth.class(*job)).collect();
            classes.sort_unstable();
            kinds.iter().position(|known| *known == classes).unwrap_or_else(|| {
                kinds.push(classes);
                kinds.len() - 1
            })
        })
        .collect();
    let mut periods = vec![None; kinds.len() * kinds.len()];
    for one in 0..kinds.len() {
        for other in one..kinds.len() {
            if kinds[one].len() + kinds[other].len() > most {
                continue;
            }
            let mut both: SmallVec<[u32; 4]> = kinds[one].clone();
            both.extend_from_slice(&kinds[other]);
            both.sort_unstable();
            let period = worth.period(&both);
            periods[one * kinds.len() + other] = period;
            periods[other * kinds.len() + one] = period;
        }
    }
    let worth = &*worth;
    // The part of all stages that both keep busy (Muri, section 4.2). Summed in their order, as its code does.
    matching_in_order(groups.len(), |one, other| {
        let Some(period) = periods[kind_of[one] * kinds.len() + kind_of[other]] else { return 0.0 };
        let jobs = groups[one].iter().chain(&groups[other]);
        jobs.map(|job| worth.busy(*job)).fold(0.0, |sum, busy| sum + busy) / (period * STAGES)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jobs of even and odd class fit together; alike ones do so half as well.
    struct Parity;

    impl Efficiency for Parity {
        fn class(&self, job: usize) -> u32 {
            job as u32
        }

        fn busy(&self, _job: usize) -> f64 {
            1.0
        }

        fn period(&mut self, classes: &[u32]) -> Option<f64> {
            let odd = classes.iter().filter(|class| **class % 2 == 1).count();
            Some(1.0 + (2 * odd).abs_diff(classes.len()) as f64)
        }
    }

    fn singles(jobs: std::ops::Range<usize>, gpus: u32) -> Bucket {
        Bucket { gpus, shares: true, groups: jobs.map(|job| Group::from_elem(job, 1)).collect() }
    }

    fn joined(buckets: &mut [Bucket], room: u32, most: usize) -> Vec<Vec<Vec<usize>>> {
        join(buckets, room, most, &mut Parity);
        let list = |bucket: &Bucket| bucket.groups.iter().map(|group| group.to_vec()).collect();
        buckets.iter().map(list).collect()
    }

    #[test]
    fn no_job_shares_where_all_fit() {
        let found = joined(&mut [singles(0..4, 2)], 8, 4);
        assert_eq!(found, [[[0], [1], [2], [3]]]);
    }

    #[test]
    fn pairs_are_made_in_order_until_all_fit() {
        // Four pairs could be made, and two are enough.
        let found = joined(&mut [singles(0..8, 1)], 6, 4);
        let pairs = found[0].iter().filter(|group| group.len() == 2).count();
        assert_eq!((pairs, found[0].len()), (2, 6));
        for group in found[0].iter().filter(|group| group.len() == 2) {
            assert_eq!(group[0] % 2 + group[1] % 2, 1, "even with odd: {group:?}");
        }
    }

    #[test]
    fn pairs_are_joined_again_and_no_group_has_more_than_most() {
        let found = joined(&mut [singles(0..8, 1)], 2, 4);
        assert_eq!(found[0].iter().map(Vec::len).collect::<Vec<_>>(), [4, 4]);
        let found = joined(&mut [singles(0..8, 1)], 2, 2);
        assert!(found[0].iter().all(|group| group.len() == 2), "{found:?}");
    }

    #[test]
    fn only_jobs_of_one_bucket_share_and_some_never_do() {
        let mut apart = [singles(0..2, 1), singles(2..4, 4)];
        apart[1].shares = false;
        let found = joined(&mut apart, 1, 4);
        assert_eq!(found, [vec![vec![0, 1]], vec![vec![2], vec![3]]]);
    }
}
