//! How opportunistic jobs share the GPU memory that guaranteed ones leave: what they lack lies in the host's memory.
//!
//! Jobs differ in what memory is worth to them: AntMan measures one that keeps 75 % of its speed with a tenth of its
//! memory, and one that loses 60 % with nine tenths. So memory goes, step by step, to the job that gains most speed by it.

use std::collections::BTreeMap;
use trainyard_types::GpuAt;

/// In how many steps a job is given memory.
const STEPS: u32 = 20;

/// A job that may have less memory than it needs.
#[derive(Clone, Debug)]
pub(super) struct Eater {
    pub(super) gpus: Vec<GpuAt>,
    /// What it needs on each of them.
    pub(super) need: u32,
    /// What it must have there.
    pub(super) least: u32,
    /// The part of its speed that it keeps with so many steps of what lies between, from none to [`STEPS`].
    pub(super) kept: Vec<f64>,
}

impl Eater {
    /// Memory after some steps.
    pub(super) fn after(&self, steps: u32) -> u32 {
        let more = u64::from(self.need - self.least) * u64::from(steps) / u64::from(STEPS);
        self.least + more as u32
    }

    /// Fills in what the job keeps, asking for each amount of memory.
    pub(super) fn told(mut self, kept: impl Fn(u32) -> f64) -> Eater {
        self.kept = (0..=STEPS).map(|steps| kept(self.after(steps))).collect();
        self
    }

    /// The most worthwhile number of steps from where it is with no more than so much memory on top, and the speed that
    /// each MiB of them gains. Looking ahead matters: a job that needs almost all of its memory gains little at first.
    fn best(&self, steps: u32, room: u32) -> Option<(f64, u32)> {
        let has = self.after(steps);
        let mut best: Option<(f64, u32)> = None;
        for next in steps + 1..=STEPS {
            let more = self.after(next) - has;
            if more > room {
                break;
            }
            let gain = self.kept[next as usize] - self.kept[steps as usize];
            let each = gain / f64::from(more.max(1));
            // Of equals the most, for memory that is left helps no one.
            if best.is_none_or(|(most, _)| each >= most) {
                best = Some((each, next));
            }
        }
        best
    }
}

/// Memory of each job: all have their least, and the rest goes to the one that gains most by each MiB, again and again.
/// `room` is what the least of all leaves on each GPU. At most [`STEPS`] rounds for each job, each O(jobs x STEPS).
pub(super) fn split(eaters: &[Eater], room: &BTreeMap<GpuAt, u32>) -> Vec<u32> {
    let mut room = room.clone();
    let mut steps = vec![0u32; eaters.len()];
    loop {
        let left = |eater: &Eater, room: &BTreeMap<GpuAt, u32>| {
            eater.gpus.iter().map(|gpu| room.get(gpu).copied().unwrap_or(0)).min().unwrap_or(0)
        };
        let mut best: Option<(f64, usize, u32)> = None;
        for (index, eater) in eaters.iter().enumerate() {
            if let Some((each, next)) = eater.best(steps[index], left(eater, &room))
                && best.is_none_or(|(most, _, _)| each > most)
            {
                best = Some((each, index, next));
            }
        }
        let Some((_, index, next)) = best else { break };
        let eater = &eaters[index];
        let more = eater.after(next) - eater.after(steps[index]);
        for gpu in &eater.gpus {
            if let Some(left) = room.get_mut(gpu) {
                *left -= more;
            }
        }
        steps[index] = next;
    }
    eaters.iter().zip(&steps).map(|(eater, steps)| eater.after(*steps)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::NodeId;

    const GPU: GpuAt = GpuAt { node: NodeId(0), gpu: 0 };

    /// Keeps 75 % with a tenth of its memory.
    fn robust(part: f64) -> f64 {
        if part < 0.1 { 7.5 * part } else { 0.75 + 0.25 * (part - 0.1) / 0.9 }
    }

    /// Loses 60 % with nine tenths of its memory.
    fn sensitive(part: f64) -> f64 {
        if part < 0.9 { 0.4 * part / 0.9 } else { 0.4 + 0.6 * (part - 0.9) / 0.1 }
    }

    fn eater(kept: fn(f64) -> f64) -> Eater {
        let (need, least, gpus) = (10_000, 1_000, vec![GPU]);
        Eater { gpus, need, least, kept: Vec::new() }.told(|mib| kept(f64::from(mib) / 10_000.0))
    }

    fn shared(mib: u32, jobs: &[Eater]) -> Vec<u32> {
        let least: u32 = jobs.iter().map(|job| job.least).sum();
        split(jobs, &BTreeMap::from([(GPU, mib - least)]))
    }

    #[test]
    fn memory_goes_to_the_job_that_suffers_most_without_it() {
        let jobs = [eater(robust), eater(sensitive)];
        assert_eq!(shared(12_000, &jobs), [1_900, 10_000], "in steps of 450");
        assert_eq!(shared(20_000, &jobs), [10_000, 10_000]);
        assert_eq!(shared(2_000, &jobs), [1_000, 1_000]);
    }

    #[test]
    fn no_split_of_two_jobs_is_faster() {
        let jobs = [eater(robust), eater(sensitive)];
        for mib in (2_000..=20_000).step_by(500) {
            let found = shared(mib, &jobs);
            let speed = |split: &[u32]| {
                robust(f64::from(split[0]) / 10_000.0) + sensitive(f64::from(split[1]) / 10_000.0)
            };
            let levels = || (0..=STEPS).map(|steps| jobs[0].after(steps));
            let best = levels()
                .flat_map(|one| levels().map(move |other| [one, other]))
                .filter(|split| split[0] + split[1] <= mib)
                .map(|split| speed(&split))
                .fold(0.0, f64::max);
            assert!(found[0] + found[1] <= mib, "{mib}: {found:?}");
            assert!(speed(&found) > best - 0.02, "{mib}: {found:?} {} of {best}", speed(&found));
        }
    }

    #[test]
    fn a_gang_has_what_its_tightest_gpu_leaves() {
        let other = GpuAt { gpu: 1, ..GPU };
        let gang = Eater { gpus: vec![GPU, other], ..eater(robust) };
        let room = BTreeMap::from([(GPU, 9_000), (other, 2_000)]);
        assert_eq!(split(&[gang], &room), [2_800]);
    }
}
