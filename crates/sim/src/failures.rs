//! Nodes that break and are repaired, each on a random stream of its own.

use crate::options::FailureModel;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use trainyard_types::{NodeId, Span};

pub(crate) struct Failures {
    model: FailureModel,
    streams: Vec<ChaCha12Rng>,
}

impl Failures {
    pub(crate) fn new(model: FailureModel, nodes: usize, seed: u64) -> Failures {
        let stream = |node: usize| {
            let mut rng = ChaCha12Rng::seed_from_u64(seed ^ 0x5eed_fa11);
            rng.set_stream(node as u64);
            rng
        };
        Failures { model, streams: (0..nodes).map(stream).collect() }
    }

    pub(crate) fn until_break(&mut self, node: NodeId) -> Span {
        self.exponential(node, self.model.between)
    }

    pub(crate) fn until_repair(&mut self, node: NodeId) -> Span {
        self.exponential(node, self.model.repair)
    }

    fn exponential(&mut self, node: NodeId, mean: Span) -> Span {
        let rng = &mut self.streams[node.index()];
        let uniform = ((rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        Span(mean.scaled(-libm::log(uniform)).0.max(1))
    }
}
