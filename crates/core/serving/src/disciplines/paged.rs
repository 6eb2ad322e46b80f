//! A paged cache: blocks are taken as tokens come, and who came last gives way when there are none (Kwon et al., SOSP 2023).

use crate::llm::{Iteration, Leave, Limits, LlmFleet, Queues, TokenDiscipline, TokenMoment};
use crate::registry::{DisciplineEntry, Serves};
use crate::request::{RequestId, Server};
use crate::routing::{ROUTE, Router};
use crate::settings::{Setting, Settings};
use trainyard_diagnostic::InputError;

/// The row in the table of disciplines.
pub const ENTRY: DisciplineEntry = DisciplineEntry {
    name: "paged",
    about: "language models with a cache in blocks, taken as tokens come; preemption by recomputing or swapping",
    paper: "Kwon et al., Efficient Memory Management for Large Language Model Serving with PagedAttention, SOSP 2023",
    partial: "one answer for a request; no copies on write",
    must_know: "nothing",
    needs_two: false,
    settings: &[
        ROUTE,
        Setting { key: "batch", default: "256", meaning: "the most requests on a GPU" },
        Setting {
            key: "tokens",
            default: "2560",
            meaning: "the most tokens of prompts in an iteration; one prompt may be longer",
        },
        Setting {
            key: "watermark",
            default: "0.01",
            meaning: "the part of the blocks that an admission leaves free",
        },
        Setting {
            key: "preempt",
            default: "recompute",
            meaning: "what becomes of a cache that gives way: recompute or swap",
        },
    ],
    serves: Serves::Tokens(make),
};

fn make(fleet: &LlmFleet, settings: &Settings) -> Result<Box<dyn TokenDiscipline>, InputError> {
    let how = [Leave::Recompute, Leave::Swap];
    let spare = settings.real("watermark", (0.0, 0.5))? * f64::from(fleet.blocks);
    Ok(Box::new(Paged {
        queues: Queues::new(fleet.servers, Router::of(settings, fleet.seed)?),
        limits: Limits {
            batch: settings.whole("batch", (1, 4096))? as usize,
            tokens: settings.whole("tokens", (1, 1 << 20))? as u32,
            spare: spare as u32,
        },
        how: how[settings.word("preempt", &["recompute", "swap"])?],
    }))
}

struct Paged {
    queues: Queues,
    limits: Limits,
    how: Leave,
}

impl TokenDiscipline for Paged {
    fn arrived(&mut self, at: &TokenMoment<'_>, request: RequestId) -> Option<Server> {
        self.queues.send(at, request, self.queues.each.len(), |_| 0)
    }

    fn interrupts(&self, at: &TokenMoment<'_>, server: Server) -> bool {
        let queue = &self.queues.each[server.index()];
        let fits = queue.waiting.front().is_some_and(|id| {
            LlmFleet::blocks_for(at.goal(*id) + 1) + self.limits.spare <= at.free(server)
        });
        fits && queue.running.len() < self.limits.batch
    }

    /// O(1) for each request that joins; O(requests on the GPU) for each that gives way.
    fn next(&mut self, at: &TokenMoment<'_>, server: Server, out: &mut Iteration) {
        let queue = &mut self.queues.each[server.index()];
        // Prompts come first, in iterations of their own; the answers of others pause meanwhile.
        queue.admit(at, self.limits, at.free(server), out, |_| 0);
        if !out.chunks.is_empty() {
            return;
        }
        if out.admit.is_empty() {
            // Who came last gives way first (section 4.5: all blocks of a request or none).
            queue.make_room(at, server, self.how, out, |running| running.len() - 1);
        }
        out.decode = true;
    }

    fn finished(&mut self, _: &TokenMoment<'_>, server: Server, request: RequestId) {
        self.queues.over(server, request);
    }
}
