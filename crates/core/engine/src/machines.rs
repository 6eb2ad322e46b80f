//! Nodes and GPUs coming, going, and failing too often.

use crate::engine::{Engine, Timer};
use std::collections::VecDeque;
use trainyard_types::placement::bits;
use trainyard_types::{Cluster, GpuAt, JobId, NodeId, Phase, Time};

/// What is known of each node besides its plan.
#[derive(Clone, Debug)]
pub(crate) struct Machines {
    nodes: Vec<Machine>,
    /// GPUs of each type as declared.
    pub(crate) totals: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Machine {
    /// GPUs that work.
    healthy: u64,
    /// GPUs that are ill, each until it is returned: a node that comes back does not heal them.
    quarantined: u64,
    /// How many GPUs others use, and which those are taken to be: only their number is known.
    claims: u32,
    claimed: u64,
    up: bool,
    drained: bool,
    /// Whether the owner of its pool uses it.
    kept: bool,
    /// Whether it is within a window of maintenance.
    maintained: bool,
    quarantined_until: Option<Time>,
    failures: VecDeque<Time>,
}

impl Machine {
    fn in_service(&self) -> u64 {
        if self.serves() && !self.kept { self.sound() & !self.claimed } else { 0 }
    }

    /// GPUs that work and are not ill.
    fn sound(&self) -> u64 {
        self.healthy & !self.quarantined
    }

    /// Whether it can serve any job.
    fn serves(&self) -> bool {
        self.up && !self.drained && !self.maintained && self.quarantined_until.is_none()
    }
}

impl Machines {
    pub(crate) fn new(cluster: &Cluster) -> Machines {
        let machine = |mask| Machine {
            healthy: mask,
            quarantined: 0,
            claims: 0,
            claimed: 0,
            up: true,
            drained: false,
            kept: false,
            maintained: false,
            quarantined_until: None,
            failures: VecDeque::new(),
        };
        let mut totals = vec![0; cluster.kinds.len()];
        for node in &cluster.nodes {
            totals[node.kind.index()] += u32::from(node.gpus);
        }
        Machines { nodes: cluster.nodes.iter().map(|node| machine(node.mask())).collect(), totals }
    }

    pub(crate) fn in_service(&self, node: NodeId) -> u64 {
        self.nodes[node.index()].in_service()
    }

    /// GPUs of a node that work and are not ill, whether or not the node takes new work.
    pub(crate) fn sound(&self, node: NodeId) -> u64 {
        let machine = &self.nodes[node.index()];
        if machine.up && !machine.maintained { machine.sound() & !machine.claimed } else { 0 }
    }

    /// GPUs of a node that are well, on a node that takes work, whichever jobs may use them.
    pub(crate) fn usable(&self, node: NodeId) -> u64 {
        let machine = &self.nodes[node.index()];
        if machine.serves() { machine.sound() } else { 0 }
    }

    /// Whether a node is of use, and whether the owner of its pool uses it.
    pub(crate) fn stand(&self, node: NodeId) -> (bool, bool) {
        let machine = &self.nodes[node.index()];
        (machine.serves(), machine.kept)
    }

    /// Until when a node is in quarantine.
    pub(crate) fn quarantined_until(&self, node: NodeId) -> Option<Time> {
        self.nodes[node.index()].quarantined_until
    }
}

impl Engine {
    pub(crate) fn node_up(&mut self, _at: Time, node: NodeId) {
        let full = self.state.cluster.node(node).mask();
        let machine = &mut self.machines.nodes[node.index()];
        machine.up = true;
        machine.drained = false;
        machine.healthy = full;
        self.put_in_service(node);
    }

    pub(crate) fn node_lost(&mut self, at: Time, node: NodeId) {
        self.machines.nodes[node.index()].up = false;
        self.evict(at, node, u64::MAX);
        self.put_in_service(node);
        self.count_failure(at, node);
    }

    pub(crate) fn node_drained(&mut self, node: NodeId) {
        self.machines.nodes[node.index()].drained = true;
        self.put_in_service(node);
    }

    pub(crate) fn gpu_lost(&mut self, at: Time, gpu: GpuAt) {
        self.machines.nodes[gpu.node.index()].healthy &= !(1 << gpu.gpu);
        self.evict(at, gpu.node, 1 << gpu.gpu);
        self.put_in_service(gpu.node);
        self.count_failure(at, gpu.node);
    }

    pub(crate) fn gpu_back(&mut self, gpu: GpuAt) {
        let full = self.state.cluster.node(gpu.node).mask();
        self.machines.nodes[gpu.node.index()].healthy |= (1 << gpu.gpu) & full;
        self.put_in_service(gpu.node);
    }

    /// One GPU is ill. That counts neither against its node, which has other GPUs, nor against the jobs on it.
    pub(crate) fn quarantine_gpu(&mut self, at: Time, gpu: GpuAt, evict: bool) {
        let mask = (1 << gpu.gpu) & self.state.cluster.node(gpu.node).mask();
        self.machines.nodes[gpu.node.index()].quarantined |= mask;
        if evict {
            self.evict(at, gpu.node, mask);
        } else {
            self.displace(at, gpu.node, mask);
        }
        self.put_in_service(gpu.node);
    }

    /// Takes the grants away of jobs that are only planned for these GPUs; a job that holds one of them keeps it.
    fn displace(&mut self, at: Time, node: NodeId, mask: u64) {
        for job in self.planned_on(node, mask) {
            let held = self.state.live(job).and_then(|live| live.state.held.as_ref());
            let (placed, there) =
                (held.is_some(), held.is_some_and(|held| held.placement.mask(node) & mask != 0));
            if !there {
                self.unplan(at, job);
            }
            if placed && !there {
                self.evicted.insert(job);
            }
        }
    }

    pub(crate) fn return_gpu(&mut self, gpu: GpuAt) {
        self.machines.nodes[gpu.node.index()].quarantined &= !(1 << gpu.gpu);
        self.put_in_service(gpu.node);
    }

    /// GPUs of a node that are in quarantine.
    pub fn quarantined_gpus(&self, node: NodeId) -> u64 {
        self.machines.nodes[node.index()].quarantined
    }

    /// Others use so many GPUs of a node.
    pub(crate) fn claim(&mut self, at: Time, node: NodeId, gpus: u32) {
        self.machines.nodes[node.index()].claims = gpus;
        self.settle_claims(at, node);
    }

    /// GPUs of a node that others are taken to use.
    pub fn claimed(&self, node: NodeId) -> u64 {
        self.machines.nodes[node.index()].claimed
    }

    /// Whether others use more of a node than could be set aside so far.
    pub(crate) fn has_open_claims(&self, node: NodeId) -> bool {
        let machine = &self.machines.nodes[node.index()];
        machine.claims > machine.claimed.count_ones()
    }

    /// Sets aside as many GPUs as others use: those that no job has first, then those that are only planned for. What
    /// a job of ours holds is left to it, and made up for when it lets go.
    pub(crate) fn settle_claims(&mut self, at: Time, node: NodeId) {
        let full = self.state.cluster.node(node).mask();
        let machine = &mut self.machines.nodes[node.index()];
        while machine.claimed.count_ones() > machine.claims {
            machine.claimed &= machine.claimed - 1;
        }
        let (claims, claimed) = (machine.claims, machine.claimed);
        let unused = full & !claimed & !self.real.used(node, full);
        let unplanned = unused & self.free.mask(node);
        let mut taken = claimed;
        for from in [unplanned, unused] {
            for gpu in bits(from & !taken).collect::<Vec<u8>>().into_iter().rev() {
                if taken.count_ones() < claims {
                    taken |= 1 << gpu;
                }
            }
        }
        let displaced = taken & !claimed & !unplanned;
        self.machines.nodes[node.index()].claimed = taken;
        if displaced != 0 {
            for job in self.planned_on(node, displaced) {
                self.unplan(at, job);
                if self.state.live(job).is_some_and(|live| live.state.held.is_some()) {
                    self.evicted.insert(job);
                }
            }
        }
        self.put_in_service(node);
    }

    /// The owner of its pool uses a node from now on, or lends it.
    pub(crate) fn keep_node(&mut self, node: NodeId, kept: bool) {
        self.machines.nodes[node.index()].kept = kept;
        self.put_in_service(node);
    }

    /// A node is within a window of maintenance from now on, or no longer.
    pub(crate) fn set_maintained(&mut self, node: NodeId, maintained: bool) {
        let machine = &mut self.machines.nodes[node.index()];
        if machine.maintained != maintained {
            machine.maintained = maintained;
            self.put_in_service(node);
        }
    }

    /// Jobs that are to get GPUs of these.
    pub(crate) fn planned_on(&self, node: NodeId, mask: u64) -> Vec<JobId> {
        let touches = |job: &JobId| {
            let planned = self.state.live(*job).and_then(|live| live.state.planned.as_ref());
            planned.is_some_and(|planned| planned.placement.mask(node) & mask != 0)
        };
        self.state.granted.iter().filter(touches).collect()
    }

    /// A node's quarantine is over.
    pub(crate) fn readmit(&mut self, node: NodeId) {
        let machine = &mut self.machines.nodes[node.index()];
        machine.quarantined_until = None;
        machine.failures.clear();
        self.put_in_service(node);
    }

    /// Counts a failure against a node, and leaves it alone when they are too many.
    pub(crate) fn count_failure(&mut self, at: Time, node: NodeId) {
        let rule = self.setup.quarantine;
        let machine = &mut self.machines.nodes[node.index()];
        machine.failures.push_back(at);
        while machine.failures.front().is_some_and(|first| at.since(*first) > rule.within) {
            machine.failures.pop_front();
        }
        if machine.failures.len() < rule.failures as usize || machine.quarantined_until.is_some() {
            return;
        }
        let until = at + rule.period;
        machine.quarantined_until = Some(until);
        self.timers.insert((until, Timer::Readmit(node)));
        self.stats.quarantines += 1;
        self.put_in_service(node);
    }

    fn put_in_service(&mut self, node: NodeId) {
        self.free.set_up(node, self.machines.in_service(node));
        self.wants_decision = true;
    }

    /// Takes the grants of all jobs on these GPUs away; those that run must stop as a whole gang.
    fn evict(&mut self, at: Time, node: NodeId, mask: u64) {
        let hit: Vec<JobId> = self
            .state
            .granted
            .iter()
            .filter(|job| {
                let state = &self.state.live(*job).expect("granted jobs are live").state;
                let touches = |a: &Option<trainyard_types::Allocation>| {
                    a.as_ref().is_some_and(|a| a.placement.mask(node) & mask != 0)
                };
                touches(&state.planned) || touches(&state.held)
            })
            .collect();
        for job in hit {
            self.unplan(at, job);
            // One that is put aside holds nothing there; what becomes of it is for the next line.
            if self.state.live(job).is_some_and(|live| live.state.phase != Phase::Suspended) {
                self.evicted.insert(job);
            }
        }
        self.evict_aside(at, node, mask);
    }
}
