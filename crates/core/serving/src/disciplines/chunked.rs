//! Chunked prefill: an iteration has a budget of tokens, decodes first, then pieces of prompts (Agrawal et al., OSDI 2024).

use crate::llm::{Iteration, Leave, LlmFleet, Queues, Stage, TokenDiscipline, TokenMoment};
use crate::registry::{DisciplineEntry, Serves};
use crate::request::{RequestId, Server};
use crate::routing::{ROUTE, Router};
use crate::settings::{Setting, Settings};
use trainyard_diagnostic::InputError;

/// The row in the table of disciplines.
pub const ENTRY: DisciplineEntry = DisciplineEntry {
    name: "chunked",
    about: "language models with prompts in pieces beside decodes, so that no answer pauses for a long prompt",
    paper: "Agrawal et al., Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve, OSDI 2024",
    partial: "the budget is a setting; the paper profiles it for a target",
    must_know: "nothing",
    needs_two: false,
    settings: &[
        ROUTE,
        Setting {
            key: "budget",
            default: "512",
            meaning: "tokens of an iteration, decodes included",
        },
        Setting { key: "batch", default: "256", meaning: "the most requests on a GPU" },
    ],
    serves: Serves::Tokens(make),
};

fn make(fleet: &LlmFleet, settings: &Settings) -> Result<Box<dyn TokenDiscipline>, InputError> {
    Ok(Box::new(Chunked {
        queues: Queues::new(fleet.servers, Router::of(settings, fleet.seed)?),
        budget: settings.whole("budget", (1, 1 << 20))? as u32,
        batch: settings.whole("batch", (1, 4096))? as usize,
    }))
}

struct Chunked {
    queues: Queues,
    budget: u32,
    batch: usize,
}

impl TokenDiscipline for Chunked {
    fn arrived(&mut self, at: &TokenMoment<'_>, request: RequestId) -> Option<Server> {
        self.queues.send(at, request, self.queues.each.len(), |_| 0)
    }

    fn interrupts(&self, at: &TokenMoment<'_>, server: Server) -> bool {
        let queue = &self.queues.each[server.index()];
        queue.running.len() < self.batch && at.free(server) > at.batch(server)
    }

    /// Algorithm 3 of the paper: decodes, then prompts that have begun, then new ones. O(requests on the GPU).
    fn next(&mut self, at: &TokenMoment<'_>, server: Server, out: &mut Iteration) {
        let queue = &mut self.queues.each[server.index()];
        let mut free =
            queue.make_room(at, server, Leave::Recompute, out, |running| running.len() - 1);
        let gone = out.leave.iter().filter(|(id, _)| at.stage(*id) == Stage::Decode).count();
        let decodes = at.batch(server) - gone as u32;
        let mut left = self.budget.saturating_sub(decodes);
        out.decode = true;
        if decodes as usize == queue.running.len() && queue.waiting.is_empty() {
            return;
        }
        for id in queue.running.iter().filter(|id| at.stage(**id) == Stage::Prefill) {
            give(at, *id, at.context(*id), (&mut left, &mut free), out);
        }
        // After a preemption nothing joins, or it would be preempted at once.
        while out.leave.is_empty() && left > 0 && queue.running.len() < self.batch {
            let Some(id) = queue.waiting.front().copied() else { break };
            // The whole prompt must fit, so that a prompt that has begun is not preempted for one behind it.
            if LlmFleet::blocks_for(at.goal(id) + 1) > free.saturating_sub(decodes) {
                break;
            }
            queue.waiting.pop_front();
            queue.running.push(id);
            out.admit.push((id, 0));
            give(at, id, 0, (&mut left, &mut free), out);
        }
    }

    fn finished(&mut self, _: &TokenMoment<'_>, server: Server, request: RequestId) {
        self.queues.over(server, request);
    }
}

/// A piece of a prompt, as far as budget and blocks go.
fn give(
    at: &TokenMoment<'_>,
    id: RequestId,
    context: u32,
    (left, free): (&mut u32, &mut u32),
    out: &mut Iteration,
) {
    let has = LlmFleet::blocks_for(context);
    let room = (has + *free).saturating_mul(crate::llm::BLOCK) - context;
    let tokens = (at.goal(id) - context).min(*left).min(room);
    if tokens > 0 {
        out.chunks.push((id, tokens));
        *left -= tokens;
        *free -= LlmFleet::blocks_for(context + tokens) - has;
    }
}
