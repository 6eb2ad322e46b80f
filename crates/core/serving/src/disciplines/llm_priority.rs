//! Priorities: the urgent go first and take the place of others, which gain a level for each length of time they wait.

use crate::llm::{Iteration, Leave, Limits, LlmFleet, Queues, TokenDiscipline, TokenMoment};
use crate::registry::{DisciplineEntry, Serves};
use crate::request::{RequestId, Server};
use crate::routing::{ROUTE, Router};
use crate::settings::{Setting, Settings};
use trainyard_diagnostic::InputError;
use trainyard_types::Span;

/// The row in the table of disciplines.
pub const ENTRY: DisciplineEntry = DisciplineEntry {
    name: "llm-priority",
    about: "language models with levels of priority: the urgent take the place of others on a GPU",
    paper: "priority scheduling as vLLM has it; preemption in the manner of FastServe (Wu et al., arXiv 2305.05920)",
    partial: "levels are given with requests; FastServe's own levels by length are not there",
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
            key: "aging",
            default: "30s",
            meaning: "waiting so long gains one level; 0s for never",
        },
        Setting {
            key: "preempt",
            default: "swap",
            meaning: "what becomes of a cache that gives way: recompute or swap",
        },
    ],
    serves: Serves::Tokens(make),
};

fn make(fleet: &LlmFleet, settings: &Settings) -> Result<Box<dyn TokenDiscipline>, InputError> {
    let how = [Leave::Recompute, Leave::Swap];
    Ok(Box::new(Priority {
        queues: Queues::new(fleet.servers, Router::of(settings, fleet.seed)?),
        limits: Limits {
            batch: settings.whole("batch", (1, 4096))? as usize,
            tokens: settings.whole("tokens", (1, 1 << 20))? as u32,
            spare: fleet.blocks / 100,
        },
        aging: settings.span("aging")?,
        how: how[settings.word("preempt", &["recompute", "swap"])?],
    }))
}

struct Priority {
    queues: Queues,
    limits: Limits,
    aging: Span,
    how: Leave,
}

/// Waiting requests that are compared with each other at once.
const LOOK: usize = 256;

impl Priority {
    /// Lower is more urgent: the level less one for each `aging` since it came, then the older.
    fn rank(&self, at: &TokenMoment<'_>, id: RequestId) -> (i64, u32) {
        let asked = at.request(id);
        let waited = at.now.since(asked.arrived).0;
        let gained = waited.checked_div(self.aging.0).unwrap_or(0).min(255);
        (i64::from(asked.priority) - gained as i64, id.0)
    }

    /// Brings the most urgent of the first waiting requests to the front. O(LOOK).
    fn sort(&mut self, at: &TokenMoment<'_>, server: Server) {
        let waiting = &self.queues.each[server.index()].waiting;
        let looked = waiting.iter().take(LOOK).enumerate();
        let best = looked.min_by_key(|(_, id)| self.rank(at, **id)).map(|(place, _)| place);
        let waiting = &mut self.queues.each[server.index()].waiting;
        if let Some(place @ 1..) = best
            && let Some(id) = waiting.remove(place)
        {
            waiting.push_front(id);
        }
    }

    /// The least urgent on a GPU. O(requests there).
    fn last(&self, at: &TokenMoment<'_>, running: &[RequestId]) -> Option<(usize, i64)> {
        let ranked = running.iter().enumerate().map(|(place, id)| (self.rank(at, *id), place));
        ranked.max().map(|((level, _), place)| (place, level))
    }

    /// Whether the front of the queue lacks a place or blocks.
    fn lacks(&self, at: &TokenMoment<'_>, server: Server, free: u32) -> bool {
        let queue = &self.queues.each[server.index()];
        queue.waiting.front().is_some_and(|id| {
            let need = LlmFleet::blocks_for(at.goal(*id) + 1) + self.limits.spare;
            queue.running.len() >= self.limits.batch || need > free
        })
    }
}

impl TokenDiscipline for Priority {
    /// O(requests that wait and are as urgent or more).
    fn arrived(&mut self, at: &TokenMoment<'_>, request: RequestId) -> Option<Server> {
        let server = self.queues.send(at, request, self.queues.each.len(), |_| 0)?;
        let waiting = &mut self.queues.each[server.index()].waiting;
        let priority = at.request(request).priority;
        // Behind all of its level, so that the first that are looked at hold the most urgent.
        let less = |id: &RequestId| *id != request && at.request(*id).priority > priority;
        if let Some(place) = waiting.iter().position(less) {
            waiting.pop_back();
            waiting.insert(place, request);
        }
        Some(server)
    }

    fn interrupts(&self, at: &TokenMoment<'_>, server: Server) -> bool {
        let queue = &self.queues.each[server.index()];
        // The front may be more urgent than what runs, so it is looked at between two iterations.
        let first = queue.waiting.front().map(|id| self.rank(at, *id).0);
        let last = self.last(at, &queue.running).map(|(_, level)| level);
        !self.lacks(at, server, at.free(server)) || first < last
    }

    fn next(&mut self, at: &TokenMoment<'_>, server: Server, out: &mut Iteration) {
        self.sort(at, server);
        let mut free = at.free(server);
        // Each round takes one request off that is less urgent than the one at the front.
        while self.lacks(at, server, free) {
            let queue = &self.queues.each[server.index()];
            let front = queue.waiting.front().map(|id| self.rank(at, *id).0);
            let Some((place, level)) = self.last(at, &queue.running) else { break };
            if front.is_none_or(|front| level <= front) {
                break;
            }
            let queue = &mut self.queues.each[server.index()];
            let id = queue.running.remove(place);
            out.leave.push((id, self.how));
            free += at.blocks(id);
            // Behind the one that it gives way to.
            queue.waiting.insert(1, id);
        }
        let before = out.leave.len();
        let gone: Vec<RequestId> = out.leave.iter().map(|(id, _)| *id).collect();
        let queue = &mut self.queues.each[server.index()];
        let limits = match before {
            0 => self.limits,
            // What has just left must not come back in the same iteration.
            _ => Limits { batch: self.limits.batch.min(queue.running.len() + 1), ..self.limits },
        };
        if queue.waiting.front().is_some_and(|id| !gone.contains(id)) {
            queue.admit(at, limits, free, out, |_| 0);
        }
        if !out.chunks.is_empty() {
            return;
        }
        if out.admit.is_empty() && out.leave.is_empty() {
            let mut ranks: Vec<(i64, u32)> = Vec::new();
            let running = &self.queues.each[server.index()].running;
            ranks.extend(running.iter().map(|id| self.rank(at, *id)));
            let queue = &mut self.queues.each[server.index()];
            queue.make_room(at, server, self.how, out, |running| {
                // Places move as requests leave; what is left keeps its order.
                let worst = running
                    .iter()
                    .enumerate()
                    .max_by_key(|(_, id)| ranks.iter().find(|(_, known)| *known == id.0).copied());
                worst.map_or(0, |(place, _)| place)
            });
        }
        out.decode = true;
    }

    fn finished(&mut self, _: &TokenMoment<'_>, server: Server, request: RequestId) {
        self.queues.over(server, request);
    }
}
