//! Batches by request: a batch is filled once and runs until its last answer is whole, as servers did before Orca.

use crate::llm::{Iteration, Limits, LlmFleet, Queues, TokenDiscipline, TokenMoment};
use crate::registry::{DisciplineEntry, Serves};
use crate::request::{RequestId, Server};
use crate::routing::{ROUTE, Router};
use crate::settings::{Setting, Settings};
use trainyard_diagnostic::InputError;

/// The row in the table of disciplines.
pub const ENTRY: DisciplineEntry = DisciplineEntry {
    name: "static-batch",
    about: "language models by whole batches: none joins before the last answer of a batch is whole",
    paper: "a baseline; what FasterTransformer behind Triton does, as Orca describes it",
    partial: "answers leave as they end, and what has ended costs nothing",
    must_know: "nothing",
    needs_two: false,
    settings: &[ROUTE, Setting { key: "batch", default: "32", meaning: "the largest batch" }],
    serves: Serves::Tokens(make),
};

fn make(fleet: &LlmFleet, settings: &Settings) -> Result<Box<dyn TokenDiscipline>, InputError> {
    let queues = Queues::new(fleet.servers, Router::of(settings, fleet.seed)?);
    Ok(Box::new(StaticBatch { queues, batch: settings.whole("batch", (1, 4096))? as usize }))
}

struct StaticBatch {
    queues: Queues,
    batch: usize,
}

impl TokenDiscipline for StaticBatch {
    fn arrived(&mut self, at: &TokenMoment<'_>, request: RequestId) -> Option<Server> {
        self.queues.send(at, request, self.queues.each.len(), |_| 0)
    }

    fn interrupts(&self, _: &TokenMoment<'_>, _: Server) -> bool {
        false
    }

    /// O(batch) for each batch.
    fn next(&mut self, at: &TokenMoment<'_>, server: Server, out: &mut Iteration) {
        let queue = &mut self.queues.each[server.index()];
        if queue.running.is_empty() {
            // Room for the longest answers that may come, since none can leave later.
            let mut free = at.free(server);
            let fits = queue.waiting.iter().take(self.batch).take_while(|id| {
                let asked = at.request(**id);
                let need = LlmFleet::blocks_for(asked.prompt + asked.output_max + 1);
                let has = need <= free;
                free = free.saturating_sub(need);
                has
            });
            let limits = Limits { batch: fits.count(), tokens: u32::MAX, spare: 0 };
            queue.admit(at, limits, at.free(server), out, |_| 0);
        }
        out.decode = out.chunks.is_empty();
    }

    fn finished(&mut self, _: &TokenMoment<'_>, server: Server, request: RequestId) {
        self.queues.over(server, request);
    }
}
