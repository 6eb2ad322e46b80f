//! Nexus: sessions packed on GPUs in duty cycles, planned anew every epoch (Shen et al., SOSP 2019).

mod packing;
mod query;

pub use packing::{Part, Plan, Session, pack};
pub use query::{Stage, split_slo};

use crate::discipline::{Directives, Discipline, Ending, Fleet, Moment, Refusal, Running};
use crate::registry::{DisciplineEntry, Serves, Told};
use crate::request::{ModelId, RequestId, Server};
use crate::settings::{Setting, Settings};
use std::collections::VecDeque;
use trainyard_diagnostic::InputError;
use trainyard_types::{Span, Time};

/// The row in the table of disciplines.
pub const ENTRY: DisciplineEntry = DisciplineEntry {
    name: "nexus",
    about: "squishy packing: models share GPUs in duty cycles by their rates, planned anew every epoch",
    paper: "Shen et al., Nexus: A GPU Cluster Engine for Accelerating DNN-Based Video Analysis, SOSP 2019; constants of the authors' program",
    partial: "no batching of common prefixes of networks",
    must_know: "one latency target for each model",
    needs_two: false,
    settings: &[
        Setting { key: "epoch", default: "10s", meaning: "how often GPUs are planned anew" },
        Setting {
            key: "first",
            default: "1s",
            meaning: "the end of the first epoch, in which every GPU has every model",
        },
        Setting {
            key: "spare",
            default: "1.1",
            meaning: "rates are planned for times this, where there is room",
        },
        Setting {
            key: "all",
            default: "true",
            meaning: "plan for as much as all GPUs carry; false uses the fewest",
        },
    ],
    serves: Serves::Whole(make),
};

fn make(told: &Told<'_>, settings: &Settings) -> Result<Box<dyn Discipline>, InputError> {
    let (models, servers) = (told.fleet.models.len(), told.fleet.servers as usize);
    let mut nexus = Nexus {
        slo: told.slo,
        epoch: settings.span("epoch")?.max(Span(1000)),
        first: settings.span("first")?,
        spare: settings.real("spare", (0.1, 10.0))?,
        all: settings.flag("all")?,
        counts: vec![0; models],
        since: Time::ZERO,
        backends: vec![Backend::default(); servers],
        routes: vec![Vec::new(); models],
        planned: Time::NEVER,
    };
    nexus.everywhere(told.fleet);
    Ok(Box::new(nexus))
}

/// One session on one GPU.
#[derive(Clone, Debug)]
struct Slot {
    model: ModelId,
    batch: u32,
    queue: VecDeque<RequestId>,
}

#[derive(Clone, Debug, Default)]
struct Backend {
    slots: Vec<Slot>,
    next: usize,
}

/// Where requests of a model go: GPU, slot, the planned rate, and how many were sent.
#[derive(Clone, Debug)]
struct Destination {
    server: usize,
    slot: usize,
    rate: f64,
    sent: f64,
}

struct Nexus {
    slo: Span,
    epoch: Span,
    first: Span,
    spare: f64,
    all: bool,
    /// Arrivals of this epoch by model.
    counts: Vec<u64>,
    since: Time,
    backends: Vec<Backend>,
    routes: Vec<Vec<Destination>>,
    /// When the next plan is made.
    planned: Time,
}

impl Nexus {
    /// Every model on every GPU, for as long as no rates are known.
    fn everywhere(&mut self, fleet: &Fleet) {
        for server in 0..self.backends.len() {
            for (model, profile) in fleet.models.iter().enumerate() {
                let batch = profile.batch_within(Span(self.slo.0 / 2)).unwrap_or(1);
                self.place(server, model, batch, 1.0);
            }
        }
    }

    fn place(&mut self, server: usize, model: usize, batch: u32, rate: f64) {
        let slots = &mut self.backends[server].slots;
        let slot = slots.len();
        let (model_id, queue) = (ModelId(model as u32), VecDeque::new());
        slots.push(Slot { model: model_id, batch, queue });
        self.routes[model].push(Destination { server, slot, rate, sent: 0.0 });
    }

    /// The plan for rates times the largest factor that the GPUs carry. O(20 * packing).
    fn packed(&self, fleet: &Fleet, rates: &[f64]) -> Vec<Plan> {
        let sessions = |factor: f64| -> Vec<Session> {
            let of = |(model, rate): (usize, &f64)| {
                Session::of(&fleet.models[model], rate * factor, self.slo)
            };
            rates.iter().enumerate().map(of).collect()
        };
        let fits = |factor: f64| {
            let plans = pack(&sessions(factor));
            (plans.len() <= self.backends.len()).then_some(plans)
        };
        if !self.all
            && let Some(plans) = fits(self.spare)
        {
            return plans;
        }
        let (mut low, mut high) = (0.0, 16.0 * self.spare);
        let mut best = Vec::new();
        for _ in 0..24 {
            let middle = (low + high) / 2.0;
            match fits(middle) {
                Some(plans) => (low, best) = (middle, plans),
                None => high = middle,
            }
        }
        best
    }

    fn replan(&mut self, at: &Moment<'_>, out: &mut Directives) {
        let seconds = at.now.since(self.since).as_secs_f64().max(1e-6);
        let rates: Vec<f64> = self.counts.iter().map(|count| *count as f64 / seconds).collect();
        let plans = self.packed(at.fleet, &rates);
        let fresh = vec![Backend::default(); self.backends.len()];
        let old = std::mem::replace(&mut self.backends, fresh);
        self.routes.iter_mut().for_each(Vec::clear);
        for (server, plan) in plans.iter().enumerate() {
            for part in &plan.parts {
                self.place(server, part.session, part.batch, part.rate);
            }
        }
        let mut waiting: Vec<RequestId> =
            old.into_iter().flat_map(|one| one.slots).flat_map(|slot| slot.queue).collect();
        waiting.sort_unstable();
        for model in 0..self.routes.len() {
            if self.routes[model].is_empty() {
                // A model without a request in this epoch, or without a target that it can meet.
                let batch = at.fleet.models[model].batch_within(Span(self.slo.0 / 2)).unwrap_or(1);
                let least =
                    (0..self.backends.len()).min_by_key(|one| self.backends[*one].slots.len());
                self.place(least.unwrap_or(0), model, batch, 1.0);
            }
        }
        for id in waiting {
            self.send(at, id);
        }
        (self.since, self.counts) = (at.now, vec![0; self.routes.len()]);
        for server in at.fleet.each().filter(|server| at.is_idle(*server)) {
            self.run(at, server, out);
        }
    }

    /// Puts a request where its model has the most of its planned rate left. O(GPUs of the model).
    fn send(&mut self, at: &Moment<'_>, id: RequestId) -> Server {
        let to = &mut self.routes[at.request(id).model.index()];
        let share = |one: &Destination| (one.sent + 1.0) / one.rate.max(1e-9);
        let best = (0..to.len()).min_by(|a, b| share(&to[*a]).total_cmp(&share(&to[*b])));
        let to = &mut to[best.unwrap_or(0)];
        to.sent += 1.0;
        self.backends[to.server].slots[to.slot].queue.push_back(id);
        Server(to.server as u32)
    }

    /// The next session in the cycle that has requests; its oldest are given up while their batch would be late.
    ///
    /// O(sessions on the GPU).
    fn run(&mut self, at: &Moment<'_>, server: Server, out: &mut Directives) {
        let Backend { slots, next } = &mut self.backends[server.index()];
        for step in 0..slots.len() {
            let place = (*next + step) % slots.len();
            let slot = &mut slots[place];
            if !at.has(server, slot.model) {
                slot.queue.drain(..).for_each(|id| out.refuse(id, Refusal::Impossible));
                continue;
            }
            let profile = at.fleet.model(slot.model);
            while let Some(id) = slot.queue.front().copied() {
                // Early drop (section 6.3): the window starts at the first whose budget holds the whole batch.
                let size = slot.batch.min(slot.queue.len() as u32);
                if at.now + profile.span(size) <= at.request(id).deadline {
                    break;
                }
                slot.queue.pop_front();
                out.refuse(id, Refusal::Late);
            }
            if slot.queue.is_empty() {
                continue;
            }
            let size = (slot.batch as usize).min(slot.queue.len());
            let batch = slot.queue.drain(..size).collect();
            *next = (place + 1) % slots.len();
            return out.launch(at, server, batch);
        }
    }

    fn keep_time(&mut self, at: &Moment<'_>, out: &mut Directives) {
        if self.planned == Time::NEVER {
            self.planned = at.now + self.first;
            self.since = at.now;
        }
        // The end of an epoch is noticed with the first arrival after it: without arrivals there is nothing to plan.
        if at.now >= self.planned {
            self.planned = at.now + self.epoch;
            self.replan(at, out);
        }
    }
}

impl Discipline for Nexus {
    fn arrived(&mut self, at: &Moment<'_>, request: RequestId, out: &mut Directives) {
        self.counts[at.request(request).model.index()] += 1;
        let server = self.send(at, request);
        if at.is_idle(server) {
            self.run(at, server, out);
        }
        if out.0.is_empty() {
            self.keep_time(at, out);
        }
    }

    fn ended(&mut self, at: &Moment<'_>, run: &Running, _: Ending, out: &mut Directives) {
        self.run(at, run.launch.server, out);
    }

    fn woken(&mut self, at: &Moment<'_>, server: Server, out: &mut Directives) {
        if at.is_idle(server) {
            self.run(at, server, out);
        }
    }
}
