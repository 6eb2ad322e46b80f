//! Which jobs are on which GPU.

use smallvec::SmallVec;
use trainyard_types::{Cluster, GpuAt, JobId, Placement};

/// The jobs on every GPU, in a dense table: a job that comes or goes costs the number of its GPUs.
pub(crate) struct Occupants {
    /// Where the GPUs of a node begin.
    base: Vec<u32>,
    /// By GPU, the jobs there ascending.
    jobs: Vec<SmallVec<[JobId; 1]>>,
    /// GPUs with a job.
    used: u32,
    /// Whether any job ever had less than the whole of a GPU.
    pub(crate) was_shared: bool,
}

impl Occupants {
    pub(crate) fn new(cluster: &Cluster) -> Occupants {
        let mut base = Vec::with_capacity(cluster.nodes.len());
        let mut total = 0;
        for node in &cluster.nodes {
            base.push(total);
            total += u32::from(node.gpus);
        }
        let jobs = vec![SmallVec::new(); total as usize];
        Occupants { base, jobs, used: 0, was_shared: false }
    }

    /// GPUs in use, each counted once however many jobs share it.
    pub(crate) fn gpus(&self) -> u32 {
        self.used
    }

    /// The jobs on a GPU, ascending.
    pub(crate) fn on(&self, gpu: GpuAt) -> &[JobId] {
        &self.jobs[self.slot(gpu)]
    }

    /// A job takes GPUs.
    pub(crate) fn add(&mut self, job: JobId, place: &Placement, shares: bool) {
        self.was_shared |= shares;
        for gpu in place.each_gpu() {
            let slot = self.slot(gpu);
            let here = &mut self.jobs[slot];
            self.used += u32::from(here.is_empty());
            let index = here.partition_point(|other| *other < job);
            here.insert(index, job);
        }
    }

    /// It gives them back.
    pub(crate) fn remove(&mut self, job: JobId, place: &Placement) {
        for gpu in place.each_gpu() {
            let slot = self.slot(gpu);
            let here = &mut self.jobs[slot];
            let index = here.binary_search(&job).expect("what was added is there");
            here.remove(index);
            self.used -= u32::from(here.is_empty());
        }
    }

    /// The other jobs on the GPUs of a job, ascending.
    pub(crate) fn neighbours(&self, job: JobId, place: &Placement) -> SmallVec<[JobId; 4]> {
        let mut found: SmallVec<[JobId; 4]> = SmallVec::new();
        for gpu in place.each_gpu() {
            found.extend(self.on(gpu).iter().copied().filter(|other| *other != job));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    fn slot(&self, at: GpuAt) -> usize {
        self.base[at.node.index()] as usize + usize::from(at.gpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::NodeId;

    #[test]
    fn a_gpu_that_two_share_is_one_gpu_until_both_have_left() {
        let cluster = Cluster::uniform(2, 4, "v100");
        let (two, three) = (Placement::on(NodeId(1), 0b11), Placement::on(NodeId(1), 0b1110));
        let mut occupants = Occupants::new(&cluster);
        occupants.add(JobId(7), &two, false);
        assert_eq!((occupants.gpus(), occupants.was_shared), (2, false));
        occupants.add(JobId(3), &three, true);
        assert_eq!((occupants.gpus(), occupants.was_shared), (4, true));
        assert_eq!(occupants.on(GpuAt { node: NodeId(1), gpu: 1 }), [JobId(3), JobId(7)]);
        assert_eq!(occupants.neighbours(JobId(7), &two)[..], [JobId(3)]);
        occupants.remove(JobId(7), &two);
        assert_eq!(occupants.gpus(), 3, "the second is still there");
        occupants.remove(JobId(3), &three);
        assert_eq!(occupants.gpus(), 0);
    }
}
