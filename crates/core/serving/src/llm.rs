//! Answers token by token: what a discipline of language models sees and says.
//!
//! - [`LlmModel`]: the time of an iteration of prefills and decodes, from measured tables.
//! - [`TokenDiscipline`]: what a replica does in its next iteration.
//! - [`simulate_tokens`]: many replicas, iteration by iteration, where iterations that are alike are taken together.

mod measures;
mod model;
mod queue;
mod world;

pub use measures::TokenTally;
pub use model::LlmModel;
pub(crate) use queue::{Limits, Queue, Queues};
pub use world::simulate_tokens;

use crate::request::{Request, RequestId, Server};
use trainyard_types::{Span, Time};

/// Tokens in a block of the cache, as vLLM's default.
pub const BLOCK: u32 = 16;

/// Replicas of one language model.
#[derive(Clone, Debug, PartialEq)]
pub struct LlmFleet {
    /// The model.
    pub model: LlmModel,
    /// How many GPUs, each a replica.
    pub servers: u32,
    /// Blocks of the cache of a GPU.
    pub blocks: u32,
    /// Microseconds for a token of cache between GPU and host.
    pub swap_us: f64,
    /// Microseconds for a token of cache from one GPU to another.
    pub move_us: f64,
    /// The most requests that wait; more are refused when they come.
    pub waiting_max: u32,
    /// The time to the first token that counts as in time.
    pub slo_first: Span,
    /// The time for each further token, on average over an answer, that counts as in time.
    pub slo_token: Span,
    /// What a GPU costs in an hour.
    pub price_per_hour: f64,
    /// The seed of what disciplines draw.
    pub seed: u64,
}

impl LlmFleet {
    /// The measured model of 8 billion parameters on H200s.
    pub fn measured(servers: u32) -> LlmFleet {
        // The cache takes 0.125 MiB for a token (`kv_mib`); of 141 GB the weights have 16 and 10 are left free.
        let tokens = (141_000.0 - 16_000.0 - 10_000.0) / 0.1311;
        LlmFleet {
            model: crate::zoo::llm_8b().clone(),
            servers,
            blocks: (tokens / f64::from(BLOCK)) as u32,
            // 50 GB/s to pinned memory of the host, and a network card of 400 Gbit/s between GPUs.
            swap_us: 0.1311 / 50_000.0 * 1e6,
            move_us: 0.1311 / 50_000.0 * 1e6,
            waiting_max: 100_000,
            slo_first: Span::secs(1),
            slo_token: Span(50_000),
            price_per_hour: 0.0,
            seed: 1,
        }
    }

    /// Blocks for so many tokens.
    pub fn blocks_for(tokens: u32) -> u32 {
        tokens.div_ceil(BLOCK)
    }
}

/// Where a request is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Waits without anything in the cache.
    Waiting,
    /// On a GPU, with tokens of its prompt left.
    Prefill,
    /// On a GPU, makes tokens.
    Decode,
    /// Its cache is on the host.
    Swapped,
    /// Its cache is on the way to another GPU, or there and not taken up.
    Moved,
    /// Answered or refused.
    Over,
}

/// What the simulation keeps of a request.
#[derive(Copy, Clone, Debug)]
pub struct Sequence {
    /// Where it is.
    pub stage: Stage,
    /// Tokens in the cache, as of `since` while it decodes.
    pub(crate) context: u32,
    /// Tokens that were made, as of `since` while it decodes.
    pub(crate) generated: u32,
    /// The count of decodes of its GPU at which it began to decode.
    pub(crate) since: u64,
    /// Tokens of its context that belong to a shared beginning, which the cache counts once.
    pub(crate) shared: u32,
    /// The true number of tokens of the answer.
    pub(crate) output: u32,
    /// When the first token came.
    pub(crate) first: Time,
    pub(crate) server: u32,
}

/// What is known of one GPU.
#[derive(Clone, Debug, Default)]
pub struct ReplicaState {
    /// Decodes so far.
    pub(crate) steps: u64,
    /// Requests that decode.
    pub(crate) batch: u32,
    /// Tokens in the cache of those that decode.
    pub(crate) context: u64,
    /// Blocks that requests have.
    pub(crate) used: u32,
    /// Blocks that shared beginnings have.
    pub(crate) held: u32,
    /// Requests that decode by the step, modulo a block, at which each needs another block.
    pub(crate) growth: [u32; BLOCK as usize],
    /// Whether an iteration runs.
    pub(crate) runs: bool,
}

/// A moment, as a discipline sees it.
#[derive(Copy, Clone, Debug)]
pub struct TokenMoment<'a> {
    /// The time.
    pub now: Time,
    /// The GPUs and the model.
    pub fleet: &'a LlmFleet,
    /// What came so far.
    pub requests: &'a [Request],
    pub(crate) sequences: &'a [Sequence],
    pub(crate) replicas: &'a [ReplicaState],
}

impl TokenMoment<'_> {
    /// A request.
    pub fn request(&self, id: RequestId) -> &Request {
        &self.requests[id.index()]
    }

    /// Where a request is.
    pub fn stage(&self, id: RequestId) -> Stage {
        self.sequences[id.index()].stage
    }

    /// Tokens of a request in the cache.
    pub fn context(&self, id: RequestId) -> u32 {
        let one = &self.sequences[id.index()];
        one.context + self.decoded(one)
    }

    /// Tokens that were made of its answer.
    pub fn generated(&self, id: RequestId) -> u32 {
        let one = &self.sequences[id.index()];
        one.generated + self.decoded(one)
    }

    fn decoded(&self, one: &Sequence) -> u32 {
        match one.stage {
            Stage::Decode => (self.replicas[one.server as usize].steps - one.since) as u32,
            _ => 0,
        }
    }

    /// Tokens that must be in the cache before the next one is made: the prompt, and after a preemption what was made.
    pub fn goal(&self, id: RequestId) -> u32 {
        let made = self.generated(id);
        // The last token that was made is not in the cache yet: it is what the next step reads.
        self.request(id).prompt + made.saturating_sub(1)
    }

    /// Tokens of the prompt that are left.
    pub fn left(&self, id: RequestId) -> u32 {
        self.goal(id).saturating_sub(self.context(id))
    }

    /// Blocks of its own.
    pub fn blocks(&self, id: RequestId) -> u32 {
        LlmFleet::blocks_for(self.context(id) - self.sequences[id.index()].shared)
    }

    /// Blocks that are free.
    pub fn free(&self, server: Server) -> u32 {
        let replica = &self.replicas[server.index()];
        self.fleet.blocks - replica.used - replica.held
    }

    /// Blocks that the next decode takes.
    pub fn growth(&self, server: Server) -> u32 {
        let replica = &self.replicas[server.index()];
        replica.growth[(replica.steps % u64::from(BLOCK)) as usize]
    }

    /// Whether a request takes another block at the next decode.
    pub fn grows(&self, id: RequestId) -> bool {
        let own = self.context(id) - self.sequences[id.index()].shared;
        self.stage(id) == Stage::Decode && own.is_multiple_of(BLOCK)
    }

    /// Requests that decode.
    pub fn batch(&self, server: Server) -> u32 {
        self.replicas[server.index()].batch
    }

    /// Whether an iteration runs there.
    pub fn runs(&self, server: Server) -> bool {
        self.replicas[server.index()].runs
    }
}

/// How the cache of a request leaves a GPU.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It is thrown away, and computed again.
    Recompute,
    /// It goes to the host, and comes back.
    Swap,
}

/// What a replica does next: first the lists in this order, then one iteration.
///
/// Without chunks the same decode is repeated until an answer ends, memory is short or a request comes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Iteration {
    /// Given up: they can never be served.
    pub refuse: Vec<RequestId>,
    /// Taken off the GPU.
    pub leave: Vec<(RequestId, Leave)>,
    /// Blocks that shared beginnings have from now on; nothing for no change.
    pub hold: Option<u32>,
    /// Taken onto the GPU, with tokens of a shared beginning that are there already.
    pub admit: Vec<(RequestId, u32)>,
    /// Tokens of prompts.
    pub chunks: Vec<(RequestId, u32)>,
    /// Whether all that decode make a token.
    pub decode: bool,
}

/// What a replica of a language model does in its next iteration.
pub trait TokenDiscipline {
    /// A request came: the GPU that should be asked, nothing where it is refused.
    fn arrived(&mut self, at: &TokenMoment<'_>, request: RequestId) -> Option<Server>;
    /// Whether a request that came ends the repetition of decodes there.
    fn interrupts(&self, at: &TokenMoment<'_>, server: Server) -> bool;
    /// What happens next on a GPU where nothing runs.
    fn next(&mut self, at: &TokenMoment<'_>, server: Server, out: &mut Iteration);
    /// The prompt of a request is in the cache and its first token made; another GPU goes on where one is named.
    fn prefilled(&mut self, _at: &TokenMoment<'_>, _: (Server, RequestId)) -> Option<Server> {
        None
    }
    /// The cache of a request came from another GPU.
    fn moved(&mut self, _at: &TokenMoment<'_>, _: (Server, RequestId)) {}
    /// An answer is whole.
    fn finished(&mut self, at: &TokenMoment<'_>, server: Server, request: RequestId);
}
