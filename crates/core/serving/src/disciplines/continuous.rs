//! Continuous batching: requests join and leave between iterations, with room reserved for the longest answer (Yu et al., OSDI 2022).

use crate::llm::{Iteration, LlmFleet, Queues, TokenDiscipline, TokenMoment};
use crate::registry::{DisciplineEntry, Serves};
use crate::request::{RequestId, Server};
use crate::routing::{ROUTE, Router};
use crate::settings::{Setting, Settings};
use trainyard_diagnostic::InputError;

/// The row in the table of disciplines.
pub const ENTRY: DisciplineEntry = DisciplineEntry {
    name: "continuous",
    about: "language models iteration by iteration; the cache of the longest answer is reserved at the start",
    paper: "Yu et al., Orca: A Distributed Serving System for Transformer-Based Generative Models, OSDI 2022",
    partial: "one GPU for a model; no pipeline of iterations",
    must_know: "nothing",
    needs_two: false,
    settings: &[
        ROUTE,
        Setting { key: "batch", default: "256", meaning: "the most requests on a GPU" },
    ],
    serves: Serves::Tokens(make),
};

fn make(fleet: &LlmFleet, settings: &Settings) -> Result<Box<dyn TokenDiscipline>, InputError> {
    let queues = Queues::new(fleet.servers, Router::of(settings, fleet.seed)?);
    Ok(Box::new(Continuous {
        reserved: vec![0; queues.each.len()],
        queues,
        batch: settings.whole("batch", (1, 4096))? as usize,
    }))
}

struct Continuous {
    queues: Queues,
    /// Blocks that are promised to what runs, by GPU.
    reserved: Vec<u32>,
    batch: usize,
}

/// Blocks of the longest answer (algorithm 1: `max_tokens`).
fn slots(at: &TokenMoment<'_>, id: RequestId) -> u32 {
    let asked = at.request(id);
    LlmFleet::blocks_for(asked.prompt + asked.output_max + 1)
}

impl TokenDiscipline for Continuous {
    fn arrived(&mut self, at: &TokenMoment<'_>, request: RequestId) -> Option<Server> {
        self.queues.send(at, request, self.queues.each.len(), |_| 0)
    }

    fn interrupts(&self, at: &TokenMoment<'_>, server: Server) -> bool {
        let queue = &self.queues.each[server.index()];
        let next = queue.waiting.front();
        let free = at.fleet.blocks - self.reserved[server.index()];
        queue.running.len() < self.batch && next.is_some_and(|id| slots(at, *id) <= free)
    }

    /// O(1) for each request that joins.
    fn next(&mut self, at: &TokenMoment<'_>, server: Server, out: &mut Iteration) {
        let queue = &mut self.queues.each[server.index()];
        let reserved = &mut self.reserved[server.index()];
        while let Some(id) = queue.waiting.front().copied() {
            let need = slots(at, id);
            if queue.running.len() >= self.batch || *reserved + need > at.fleet.blocks {
                break;
            }
            *reserved += need;
            queue.waiting.pop_front();
            queue.running.push(id);
            out.admit.push((id, 0));
            out.chunks.push((id, at.left(id)));
        }
        // Prompts and decodes run in one iteration (selective batching, section 3.2).
        out.decode = true;
    }

    fn finished(&mut self, at: &TokenMoment<'_>, server: Server, request: RequestId) {
        self.reserved[server.index()] -= slots(at, request);
        self.queues.over(server, request);
    }
}
