//! Olympian: one token for a GPU, handed on when its holder has used a quantum of GPU time (Hu et al., Middleware 2018).
//!
//! A client is a job: its requests run one after the other. Only the holder of the token runs, segment by segment, and
//! collects the profiled cost of what it ran; at its threshold the token goes on.

use crate::discipline::{Directives, Discipline, Ending, Launch, Moment, Running};
use crate::registry::{DisciplineEntry, Serves, Told};
use crate::replicas::{Replica, on_each};
use crate::request::{RequestId, Server};
use crate::routing::{ROUTE, Router};
use crate::settings::{Setting, Settings};
use std::collections::{BTreeMap, VecDeque};
use trainyard_diagnostic::InputError;
use trainyard_types::Span;

/// The row in the table of disciplines.
pub const ENTRY: DisciplineEntry = DisciplineEntry {
    name: "olympian",
    about: "a token that goes from client to client after a quantum of GPU time, counted by profiled cost",
    paper: "Hu et al., Olympian: Scheduling GPU Usage in a Deep Neural Network Model Serving System, Middleware 2018",
    partial: "segments of one cost instead of the nodes of a TensorFlow graph",
    must_know: "the profiled cost of each segment",
    needs_two: false,
    settings: &[
        ROUTE,
        Setting {
            key: "share",
            default: "fair",
            meaning: "who is next: fair, weighted or priority",
        },
        Setting {
            key: "quantum",
            default: "1200us",
            meaning: "GPU time of a turn; 0s picks the shortest with a bearable overhead",
        },
        Setting {
            key: "overhead",
            default: "0.02",
            meaning: "the overhead that is bearable where the quantum is picked",
        },
        Setting {
            key: "weights",
            default: "4/2/1",
            meaning: "weights of priorities 0, 1, ...; the last for all others",
        },
    ],
    serves: Serves::Whole(make),
};

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Share {
    Fair,
    Weighted,
    Priority,
}

fn make(told: &Told<'_>, settings: &Settings) -> Result<Box<dyn Discipline>, InputError> {
    let shares = [Share::Fair, Share::Weighted, Share::Priority];
    let overhead = settings.real("overhead", (0.001, 0.5))?;
    let quantum = match settings.span("quantum")? {
        // The shortest quantum whose launch costs no larger part of it than is bearable (section 4.3).
        Span::ZERO => told.fleet.launch.scaled(1.0 / overhead),
        quantum => quantum,
    };
    let olympian = Olympian {
        clients: BTreeMap::new(),
        turns: VecDeque::new(),
        holder: None,
        spent: 0.0,
        share: shares[settings.word("share", &["fair", "weighted", "priority"])?],
        quantum,
        weights: settings.list("weights")?,
    };
    Ok(on_each(olympian, told.fleet.servers, Router::of(settings, told.fleet.seed)?))
}

#[derive(Clone, Debug)]
struct Olympian {
    clients: BTreeMap<u32, VecDeque<RequestId>>,
    /// Clients with requests but the holder, in the order of their turns.
    turns: VecDeque<u32>,
    holder: Option<u32>,
    /// Cost that the holder collected since it got the token.
    spent: f64,
    share: Share,
    quantum: Span,
    weights: Vec<u32>,
}

impl Olympian {
    fn head(&self, client: u32) -> Option<RequestId> {
        self.clients.get(&client).and_then(|queue| queue.front().copied())
    }

    /// T_j = Q * C_j / D_j: the cost after which a job has had Q of the GPU (section 3.2), times its weight.
    fn threshold(&self, at: &Moment<'_>, request: RequestId) -> f64 {
        let model = at.model_of(request);
        // C_j is the profiled cost of the whole graph, D_j its GPU duration alone; here both are from one table.
        let (cost, duration) = (model.micros(1), model.micros(1));
        let weight = match self.share {
            Share::Weighted => self.weight(at.request(request).priority),
            Share::Fair | Share::Priority => 1.0,
        };
        self.quantum.0 as f64 * cost / duration * weight
    }

    fn weight(&self, priority: u8) -> f64 {
        let at = usize::from(priority).min(self.weights.len().saturating_sub(1));
        f64::from(self.weights.get(at).copied().unwrap_or(1))
    }

    /// Hands the token on. O(1); O(clients) by priority.
    fn hand_on(&mut self, at: &Moment<'_>) {
        if let Some(old) = self.holder.take() {
            if self.head(old).is_some() {
                self.turns.push_back(old);
            } else {
                self.clients.remove(&old);
            }
        }
        let next = match self.share {
            Share::Fair | Share::Weighted => 0,
            Share::Priority => {
                let priority = |client: &u32| self.head(*client).map(|id| at.request(id).priority);
                let best = self.turns.iter().enumerate().min_by_key(|(_, client)| priority(client));
                best.map_or(0, |(place, _)| place)
            }
        };
        self.holder = self.turns.remove(next);
    }
}

impl Replica for Olympian {
    fn put(&mut self, at: &Moment<'_>, _: Server, request: RequestId) {
        let client = at.request(request).client;
        let queue = self.clients.entry(client).or_default();
        if queue.is_empty() && self.holder != Some(client) {
            self.turns.push_back(client);
        }
        queue.push_back(request);
    }

    fn ended(&mut self, at: &Moment<'_>, run: &Running, _: Ending) {
        let model = at.fleet.model(run.launch.model);
        let (from, to) = run.launch.segments;
        self.spent += model.micros(1) * f64::from(to - from) / f64::from(model.segments);
        if to == model.segments
            && let Some(queue) = self.holder.and_then(|client| self.clients.get_mut(&client))
        {
            queue.pop_front();
        }
    }

    fn go(&mut self, at: &Moment<'_>, server: Server, out: &mut Directives) {
        if !at.is_idle(server) {
            return;
        }
        let head = self.holder.and_then(|client| self.head(client));
        match head {
            None => {
                self.hand_on(at);
                self.spent = 0.0;
            }
            Some(id) if self.spent + 1e-6 >= self.threshold(at, id) => {
                self.hand_on(at);
                self.spent = 0.0;
            }
            Some(_) => {}
        }
        let Some(id) = self.holder.and_then(|client| self.head(client)) else { return };
        let model = at.request(id).model;
        let all = at.fleet.model(model).segments;
        let each = at.fleet.model(model).micros(1) / f64::from(all);
        let left = (self.threshold(at, id) - self.spent).max(each);
        let from = at.progress[id.index()];
        let count = libm::ceil(left / each - 1e-9) as u32;
        let segments = (from, (from + count.max(1)).min(all));
        out.launch_part(Launch { server, model, requests: vec![id], segments });
    }
}
