//! Reuse of shared beginnings: they stay in the cache, and requests go where theirs is (Zheng et al., SGLang, NeurIPS 2024).

use crate::llm::{
    BLOCK, Iteration, Leave, Limits, LlmFleet, Queue, Queues, Stage, TokenDiscipline, TokenMoment,
};
use crate::registry::{DisciplineEntry, Serves};
use crate::request::{RequestId, Server};
use crate::routing::Router;
use crate::settings::{Setting, Settings};
use std::collections::BTreeMap;
use trainyard_diagnostic::InputError;
use trainyard_types::Time;

/// The row in the table of disciplines.
pub const ENTRY: DisciplineEntry = DisciplineEntry {
    name: "prefix",
    about: "language models with shared beginnings kept in the cache, and requests sent where theirs is",
    paper: "Zheng et al., SGLang: Efficient Execution of Structured Language Model Programs, NeurIPS 2024",
    partial: "one shared beginning for a request instead of a tree of all prompts",
    must_know: "which prompts begin alike",
    needs_two: false,
    settings: &[
        Setting {
            key: "route",
            default: "cache-aware",
            meaning: "the replica for a request: round-robin, least-loaded, two-choices or cache-aware",
        },
        Setting { key: "batch", default: "256", meaning: "the most requests on a GPU" },
        Setting {
            key: "tokens",
            default: "2560",
            meaning: "the most tokens of prompts in an iteration; one prompt may be longer",
        },
        Setting {
            key: "keep",
            default: "0.5",
            meaning: "the part of the blocks that shared beginnings may have",
        },
        Setting {
            key: "look",
            default: "32",
            meaning: "waiting requests among which the longest known beginning goes first",
        },
    ],
    serves: Serves::Tokens(make),
};

fn make(fleet: &LlmFleet, settings: &Settings) -> Result<Box<dyn TokenDiscipline>, InputError> {
    let keep = settings.real("keep", (0.0, 1.0))? * f64::from(fleet.blocks);
    Ok(Box::new(Prefix {
        queues: Queues::new(fleet.servers, Router::of(settings, fleet.seed)?),
        kept: vec![Kept::default(); fleet.servers as usize],
        limits: Limits {
            batch: settings.whole("batch", (1, 4096))? as usize,
            tokens: settings.whole("tokens", (1, 1 << 20))? as u32,
            spare: fleet.blocks / 100,
        },
        keep: keep as u32,
        look: settings.whole("look", (1, 4096))? as usize,
    }))
}

/// A beginning in the cache.
#[derive(Copy, Clone, Debug)]
struct Beginning {
    tokens: u32,
    /// Whether it has been computed; the first request with it does so.
    is_there: bool,
    users: u32,
    used: Time,
}

/// Beginnings of one GPU.
#[derive(Clone, Debug, Default)]
struct Kept {
    by_id: BTreeMap<u32, Beginning>,
    blocks: u32,
}

struct Prefix {
    queues: Queues,
    kept: Vec<Kept>,
    limits: Limits,
    keep: u32,
    look: usize,
}

/// Whole blocks of the shared beginning; the last token of a prompt is always computed.
fn shared(at: &TokenMoment<'_>, id: RequestId) -> u32 {
    let asked = at.request(id);
    asked.prefix_tokens.min(asked.prompt.saturating_sub(1)) / BLOCK * BLOCK
}

impl Kept {
    /// Tokens of a request that are there.
    fn known(&self, at: &TokenMoment<'_>, id: RequestId) -> u32 {
        let one = self.by_id.get(&at.request(id).prefix).filter(|one| one.is_there);
        one.map_or(0, |one| one.tokens.min(shared(at, id)))
    }

    /// Forgets the beginnings that were used longest ago and that no request uses, until so many blocks are free.
    ///
    /// O(beginnings) for each that is forgotten.
    fn forget(&mut self, blocks: u32) -> u32 {
        let mut freed = 0;
        while freed < blocks {
            let idle = self.by_id.iter().filter(|(_, one)| one.users == 0);
            let Some(oldest) = idle.min_by_key(|(id, one)| (one.used, **id)).map(|(id, _)| *id)
            else {
                break;
            };
            if let Some(one) = self.by_id.remove(&oldest) {
                freed += LlmFleet::blocks_for(one.tokens);
            }
        }
        self.blocks -= freed;
        freed
    }
}

impl Prefix {
    /// The waiting request with the longest known beginning comes first, of those that look alike the oldest. O(look).
    fn sort(&mut self, at: &TokenMoment<'_>, server: Server) {
        let (queue, kept) = (&mut self.queues.each[server.index()], &self.kept[server.index()]);
        let is_new = |id: &RequestId| at.stage(*id) == Stage::Waiting && at.generated(*id) == 0;
        if queue.waiting.front().is_none_or(|id| !is_new(id)) {
            return;
        }
        let looked = queue.waiting.iter().take(self.look).enumerate();
        let best =
            looked.max_by_key(|(place, id)| (kept.known(at, **id), std::cmp::Reverse(*place)));
        if let Some((place @ 1.., _)) = best
            && let Some(id) = queue.waiting.remove(place)
        {
            queue.waiting.push_front(id);
        }
    }

    /// Admits one after the other, since what one brings into the cache is known to the next.
    fn admit(&mut self, at: &TokenMoment<'_>, server: Server, mut free: u32, out: &mut Iteration) {
        let mut tokens = 0;
        loop {
            self.sort(at, server);
            let (queue, kept) =
                (&mut self.queues.each[server.index()], &mut self.kept[server.index()]);
            let Some(id) = queue.waiting.front().copied() else { return };
            let asked = at.request(id);
            let fresh = at.stage(id) == Stage::Waiting;
            let known = if fresh { kept.known(at, id) } else { 0 };
            let new = at.goal(id) - if fresh { known } else { at.context(id) };
            let spare = if queue.running.is_empty() { 0 } else { self.limits.spare };
            let need = LlmFleet::blocks_for(at.goal(id) + 1 - known) + spare;
            if queue.running.len() >= self.limits.batch
                || tokens > 0 && tokens + new > self.limits.tokens
            {
                return;
            }
            if need > free {
                free += kept.forget(need - free);
            }
            // What was to be reused may just have been forgotten.
            if need > free || fresh && kept.known(at, id) < known {
                return;
            }
            queue.waiting.pop_front();
            queue.running.push(id);
            out.admit.push((id, known));
            if new > 0 {
                out.chunks.push((id, new));
            }
            tokens += new;
            free -= need - spare;
            let kept_tokens = shared(at, id);
            let blocks = LlmFleet::blocks_for(kept_tokens);
            if asked.prefix > 0 && kept_tokens > 0 {
                if !kept.by_id.contains_key(&asked.prefix)
                    && kept.blocks + blocks <= self.keep
                    && blocks + self.limits.spare <= free
                {
                    let one =
                        Beginning { tokens: kept_tokens, is_there: false, users: 0, used: at.now };
                    kept.by_id.insert(asked.prefix, one);
                    kept.blocks += blocks;
                    free -= blocks;
                }
                if let Some(one) = kept.by_id.get_mut(&asked.prefix) {
                    (one.users, one.used) = (one.users + 1, at.now);
                }
            }
        }
    }

    fn leave(&mut self, at: &TokenMoment<'_>, server: Server, id: RequestId) {
        if let Some(one) = self.kept[server.index()].by_id.get_mut(&at.request(id).prefix) {
            one.users = one.users.saturating_sub(1);
        }
    }
}

impl TokenDiscipline for Prefix {
    fn arrived(&mut self, at: &TokenMoment<'_>, request: RequestId) -> Option<Server> {
        let kept = &self.kept;
        let prefix = at.request(request).prefix;
        // A beginning that is being computed draws requests as well.
        let known =
            |one: usize| kept[one].by_id.get(&prefix).map_or(0, |one| u64::from(one.tokens));
        self.queues.send(at, request, kept.len(), known)
    }

    fn interrupts(&self, at: &TokenMoment<'_>, server: Server) -> bool {
        let queue: &Queue = &self.queues.each[server.index()];
        let fits = queue.waiting.front().is_some_and(|id| {
            LlmFleet::blocks_for(at.goal(*id) + 1) + self.limits.spare <= at.free(server)
        });
        fits && queue.running.len() < self.limits.batch
    }

    fn next(&mut self, at: &TokenMoment<'_>, server: Server, out: &mut Iteration) {
        self.admit(at, server, at.free(server), out);
        if out.chunks.is_empty() {
            let short = at.growth(server).saturating_sub(at.free(server));
            if out.admit.is_empty() && short > 0 && self.kept[server.index()].forget(short) < short
            {
                let queue = &mut self.queues.each[server.index()];
                queue.make_room(at, server, Leave::Recompute, out, |running| running.len() - 1);
            }
            out.decode = true;
        }
        for (id, _) in out.leave.clone() {
            self.leave(at, server, id);
        }
        out.hold = Some(self.kept[server.index()].blocks);
    }

    fn prefilled(
        &mut self,
        at: &TokenMoment<'_>,
        (server, id): (Server, RequestId),
    ) -> Option<Server> {
        if let Some(one) = self.kept[server.index()].by_id.get_mut(&at.request(id).prefix) {
            one.is_there = true;
        }
        None
    }

    fn finished(&mut self, at: &TokenMoment<'_>, server: Server, request: RequestId) {
        self.leave(at, server, request);
        self.queues.over(server, request);
    }
}
