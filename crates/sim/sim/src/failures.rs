//! Nodes that break and GPUs that fall ill, each on a random stream of its own.

use crate::options::FailureModel;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use trainyard_types::{Cluster, GpuAt, NodeId, Span};

pub(crate) struct Failures {
    model: FailureModel,
    nodes: Vec<ChaCha12Rng>,
    /// For each node the streams of its GPUs; empty if they do not fall ill by themselves.
    gpus: Vec<Vec<ChaCha12Rng>>,
}

impl Failures {
    pub(crate) fn new(model: FailureModel, cluster: &Cluster, seed: u64) -> Failures {
        let stream = |seed: u64, number: u64| {
            let mut rng = ChaCha12Rng::seed_from_u64(seed);
            rng.set_stream(number);
            rng
        };
        let nodes = 0..cluster.nodes.len() as u64;
        let each_gpu = cluster.nodes.iter().filter(|_| model.gpus.is_some()).map(|node| {
            let first = u64::from(node.id.0) << 8;
            let numbers = first..first + u64::from(node.gpus);
            numbers.map(|number| stream(seed ^ 0x5eed_6e1c, number)).collect()
        });
        Failures {
            nodes: nodes.map(|node| stream(seed ^ 0x5eed_fa11, node)).collect(),
            gpus: each_gpu.collect(),
            model,
        }
    }

    pub(crate) fn until_break(&mut self, node: NodeId) -> Span {
        exponential(&mut self.nodes[node.index()], self.model.between)
    }

    pub(crate) fn until_repair(&mut self, node: NodeId) -> Span {
        exponential(&mut self.nodes[node.index()], self.model.repair)
    }

    /// When a GPU falls ill next, if GPUs do.
    pub(crate) fn until_ill(&mut self, gpu: GpuAt) -> Option<Span> {
        let mean = self.model.gpus?;
        Some(exponential(self.stream_of(gpu)?, mean))
    }

    pub(crate) fn until_return(&mut self, gpu: GpuAt) -> Option<Span> {
        let mean = self.model.repair;
        Some(exponential(self.stream_of(gpu)?, mean))
    }

    fn stream_of(&mut self, gpu: GpuAt) -> Option<&mut ChaCha12Rng> {
        self.gpus.get_mut(gpu.node.index())?.get_mut(usize::from(gpu.gpu))
    }
}

fn exponential(rng: &mut ChaCha12Rng, mean: Span) -> Span {
    let uniform = ((rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    Span(mean.scaled(-libm::log(uniform)).0.max(1))
}
