//! Prefill and decode on GPUs of their own, with the cache sent between them (Patel et al., ISCA 2024; Zhong et al., OSDI 2024).

use crate::llm::{Iteration, Leave, Limits, LlmFleet, Queues, TokenDiscipline, TokenMoment};
use crate::registry::{DisciplineEntry, Serves};
use crate::request::{RequestId, Server};
use crate::routing::{ROUTE, Router};
use crate::settings::{Setting, Settings};
use trainyard_diagnostic::InputError;

/// The row in the table of disciplines.
pub const ENTRY: DisciplineEntry = DisciplineEntry {
    name: "split",
    about: "language models with prompts on some GPUs and answers on the others, the cache sent between them",
    paper: "Patel et al., Splitwise, ISCA 2024; Zhong et al., DistServe, OSDI 2024",
    partial: "the division of the GPUs is a setting; transfers take no part of a shared network",
    must_know: "nothing",
    needs_two: true,
    settings: &[
        ROUTE,
        Setting {
            key: "prefill",
            default: "0.5",
            meaning: "the part of the GPUs for prompts, one at least on each side",
        },
        Setting { key: "batch", default: "256", meaning: "the most requests on a GPU" },
        Setting {
            key: "tokens",
            default: "2048",
            meaning: "the most tokens of prompts in an iteration; one prompt may be longer",
        },
    ],
    serves: Serves::Tokens(make),
};

fn make(fleet: &LlmFleet, settings: &Settings) -> Result<Box<dyn TokenDiscipline>, InputError> {
    if fleet.servers < 2 {
        let expected = "2 at least for `split`: one for prompts and one for answers";
        return Err(InputError::wrong(0, "gpus", &fleet.servers.to_string(), expected));
    }
    let part = settings.real("prefill", (0.0, 1.0))? * f64::from(fleet.servers);
    Ok(Box::new(Split {
        prefills: (libm::round(part) as usize).clamp(1, fleet.servers as usize - 1),
        queues: Queues::new(fleet.servers, Router::of(settings, fleet.seed)?),
        load: vec![0; fleet.servers as usize],
        limits: Limits {
            batch: settings.whole("batch", (1, 4096))? as usize,
            tokens: settings.whole("tokens", (1, 1 << 20))? as u32,
            spare: fleet.blocks / 100,
        },
    }))
}

struct Split {
    /// The GPUs below this number are for prompts.
    prefills: usize,
    queues: Queues,
    /// Tokens that were sent to each GPU for answers and are not done.
    load: Vec<u64>,
    limits: Limits,
}

impl TokenDiscipline for Split {
    fn arrived(&mut self, at: &TokenMoment<'_>, request: RequestId) -> Option<Server> {
        self.queues.send(at, request, self.prefills, |_| 0)
    }

    fn interrupts(&self, at: &TokenMoment<'_>, server: Server) -> bool {
        let queue = &self.queues.each[server.index()];
        let fits = queue.waiting.front().is_some_and(|id| {
            LlmFleet::blocks_for(at.goal(*id) + 1) + self.limits.spare <= at.free(server)
        });
        fits && queue.running.len() < self.limits.batch
    }

    fn next(&mut self, at: &TokenMoment<'_>, server: Server, out: &mut Iteration) {
        let is_for_answers = server.index() >= self.prefills;
        let queue = &mut self.queues.each[server.index()];
        let mut free = at.free(server);
        if is_for_answers {
            // What came from another GPU cannot be computed again here, so it goes to the host when blocks are short.
            free = queue.make_room(at, server, Leave::Swap, out, |running| running.len() - 1);
        }
        if out.leave.is_empty() {
            queue.admit(at, self.limits, free, out, |_| 0);
        }
        out.decode = is_for_answers;
    }

    /// The GPU for answers with the fewest tokens before it. O(GPUs).
    fn prefilled(
        &mut self,
        at: &TokenMoment<'_>,
        (server, id): (Server, RequestId),
    ) -> Option<Server> {
        let answers = self.prefills..self.load.len();
        let to = answers.min_by_key(|one| self.load[*one])?;
        self.load[to] += u64::from(at.request(id).prompt);
        // Its blocks stay until the cache is there; the queue of this GPU is done with it.
        self.queues.over(server, id);
        Some(Server(to as u32))
    }

    fn moved(&mut self, _: &TokenMoment<'_>, (server, id): (Server, RequestId)) {
        self.queues.each[server.index()].waiting.push_back(id);
    }

    fn finished(&mut self, at: &TokenMoment<'_>, server: Server, request: RequestId) {
        self.queues.each[server.index()].remove(request);
        let done = u64::from(at.request(request).prompt);
        match server.index() >= self.prefills {
            true => self.load[server.index()] -= done,
            // The answer was one token.
            false => self.queues.over(server, request),
        }
    }
}
