//! What replicas of language models have in common: what waits, what is on the GPU, and what fits beside them.

use crate::llm::{Iteration, Leave, LlmFleet, Stage, TokenMoment};
use crate::request::{RequestId, Server};
use crate::routing::Router;
use std::collections::VecDeque;

/// Requests of one GPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    /// Waiting, the next first.
    pub waiting: VecDeque<RequestId>,
    /// On the GPU, in the order in which they came there.
    pub running: Vec<RequestId>,
}

/// What an admission keeps to.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Limits {
    /// The most requests on a GPU.
    pub batch: usize,
    /// The most tokens of prompts in an iteration; one prompt may be longer.
    pub tokens: u32,
    /// Blocks that stay free for those that decode.
    pub spare: u32,
}

impl Queue {
    /// Takes a request off the GPU; it is the next to come back. O(requests on the GPU).
    pub fn evict(&mut self, place: usize, how: Leave, out: &mut Iteration) -> RequestId {
        let id = self.running.remove(place);
        out.leave.push((id, how));
        self.waiting.push_front(id);
        id
    }

    /// Evicts until the next decode has its blocks; `victim` names who goes. The blocks that are free then.
    pub fn make_room(
        &mut self,
        at: &TokenMoment<'_>,
        server: Server,
        how: Leave,
        out: &mut Iteration,
        victim: impl Fn(&[RequestId]) -> usize,
    ) -> u32 {
        let (mut free, mut growth) = (at.free(server), at.growth(server));
        // Each round takes one request off.
        while growth > free && self.running.len() > 1 {
            let id = self.evict(victim(&self.running), how, out);
            free += at.blocks(id);
            growth -= u32::from(at.grows(id));
        }
        free.saturating_sub(growth)
    }

    /// Admits whole prompts in order, as long as blocks and tokens go; `cached` says what is in the cache already.
    pub fn admit(
        &mut self,
        at: &TokenMoment<'_>,
        limits: Limits,
        mut free: u32,
        out: &mut Iteration,
        mut cached: impl FnMut(RequestId) -> u32,
    ) {
        let mut tokens = 0;
        while let Some(id) = self.waiting.front().copied() {
            if self.running.len() >= limits.batch {
                return;
            }
            let known = if at.stage(id) == Stage::Waiting { cached(id) } else { at.context(id) };
            let goal = at.goal(id);
            let own = if at.stage(id) == Stage::Waiting { known } else { 0 };
            let need = LlmFleet::blocks_for(goal + 1 - own);
            let spare = if self.running.is_empty() { 0 } else { limits.spare };
            let new = goal - known;
            if need + spare > free || tokens > 0 && tokens + new > limits.tokens {
                return;
            }
            self.waiting.pop_front();
            self.running.push(id);
            out.admit.push((id, own));
            if new > 0 {
                out.chunks.push((id, new));
            }
            (free, tokens) = (free - need, tokens + new);
        }
    }

    /// An answer is whole, or goes on elsewhere.
    pub fn remove(&mut self, id: RequestId) {
        if let Some(place) = self.running.iter().position(|one| *one == id) {
            self.running.remove(place);
        }
    }
}

/// A queue for each GPU behind a router.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    /// By GPU.
    pub each: Vec<Queue>,
    router: Router,
    open: Vec<u64>,
}

impl Queues {
    pub fn new(servers: u32, router: Router) -> Queues {
        let servers = servers as usize;
        Queues { each: vec![Queue::default(); servers], router, open: vec![0; servers] }
    }

    /// Sends a request to one of the first `count` GPUs; nothing where it can never fit.
    pub fn send(
        &mut self,
        at: &TokenMoment<'_>,
        id: RequestId,
        count: usize,
        known: impl Fn(usize) -> u64,
    ) -> Option<Server> {
        let asked = at.request(id);
        let most = asked.prompt.saturating_add(asked.output_max).saturating_add(1);
        if LlmFleet::blocks_for(most) > at.fleet.blocks {
            return None;
        }
        let open = &self.open;
        let server = self.router.pick(count, |one| open[one], known);
        self.open[server.index()] += 1;
        self.each[server.index()].waiting.push_back(id);
        Some(server)
    }

    /// An answer is whole, or goes on elsewhere.
    pub fn over(&mut self, server: Server, id: RequestId) {
        self.open[server.index()] = self.open[server.index()].saturating_sub(1);
        self.each[server.index()].remove(id);
    }
}
