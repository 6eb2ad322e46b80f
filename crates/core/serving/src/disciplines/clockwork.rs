//! Clockwork: one controller chooses everything, and a worker runs one action at a time (Gujarati et al., OSDI 2020).
//!
//! An action has a window; one that comes too late to its GPU is not run. Estimates are the slowest of the last ten.

use crate::discipline::{Directive, Directives, Discipline, Ending, Moment, Refusal, Running};
use crate::registry::{DisciplineEntry, Serves, Told};
use crate::request::{ModelId, RequestId, Server};
use crate::settings::{Setting, Settings};
use std::collections::VecDeque;
use trainyard_diagnostic::InputError;
use trainyard_types::{Span, Time};

/// The row in the table of disciplines.
pub const ENTRY: DisciplineEntry = DisciplineEntry {
    name: "clockwork",
    about: "a controller that plans each action ahead from predictable times, and drops what cannot be in time",
    paper: "Gujarati et al., Serving DNNs like Clockwork, OSDI 2020; constants of the authors' program",
    partial: "no network between controller and worker; weights are evicted by model instead of by page",
    must_know: "nothing",
    needs_two: false,
    settings: &[
        Setting {
            key: "margin",
            default: "5ms",
            meaning: "how long before a deadline an answer is aimed at",
        },
        Setting { key: "ahead", default: "10ms", meaning: "how far ahead a GPU is given work" },
        Setting { key: "window", default: "10ms", meaning: "how late an action may begin" },
        Setting {
            key: "recent",
            default: "10",
            meaning: "how many of the last times an estimate is the slowest of",
        },
    ],
    serves: Serves::Whole(make),
};

fn make(told: &Told<'_>, settings: &Settings) -> Result<Box<dyn Discipline>, InputError> {
    let models = &told.fleet.models;
    let sizes = models.iter().map(|model| {
        let powers = (0..13).map(|power| 1u32 << power);
        powers.take_while(|size| *size <= model.batch_max()).collect::<Vec<u32>>()
    });
    let sizes: Vec<Vec<u32>> = sizes.collect();
    let estimates = models.iter().zip(&sizes).map(|(model, sizes)| {
        let estimate = |size: &u32| Estimate { last: VecDeque::new(), span: model.span_p99(*size) };
        sizes.iter().map(estimate).collect()
    });
    Ok(Box::new(Clockwork {
        estimates: estimates.collect(),
        sizes,
        queues: vec![VecDeque::new(); models.len()],
        workers: vec![Worker::default(); told.fleet.servers as usize],
        used: vec![vec![Time::ZERO; models.len()]; told.fleet.servers as usize],
        margin: settings.span("margin")?,
        ahead: settings.span("ahead")?,
        window: settings.span("window")?,
        recent: settings.whole("recent", (1, 1000))? as usize,
    }))
}

#[derive(Clone, Debug)]
struct Estimate {
    last: VecDeque<Span>,
    span: Span,
}

#[derive(Clone, Debug)]
struct Action {
    model: usize,
    requests: Vec<RequestId>,
    latest: Time,
    estimate: Span,
}

#[derive(Clone, Debug, Default)]
struct Worker {
    planned: VecDeque<Action>,
    /// When all that it has is done, by the estimates.
    free: Time,
}

struct Clockwork {
    /// By model and place in `sizes`.
    estimates: Vec<Vec<Estimate>>,
    sizes: Vec<Vec<u32>>,
    queues: Vec<VecDeque<RequestId>>,
    workers: Vec<Worker>,
    /// When each worker last ran each model.
    used: Vec<Vec<Time>>,
    margin: Span,
    ahead: Span,
    window: Span,
    recent: usize,
}

impl Clockwork {
    fn due(&self, at: &Moment<'_>, id: RequestId) -> Time {
        let deadline = at.request(id).deadline;
        if deadline == Time::NEVER {
            deadline
        } else {
            Time(deadline.0.saturating_sub(self.margin.0))
        }
    }

    /// The strategy with the earliest latest start among the largest batches that are in time for their oldest request.
    ///
    /// O(models on the GPU * sizes); what cannot be in time from `start` on is given up.
    fn strategy(
        &mut self,
        at: &Moment<'_>,
        server: Server,
        start: Time,
        out: &mut Directives,
    ) -> Option<Action> {
        let mut best: Option<(Time, usize, usize)> = None;
        for model in 0..self.queues.len() {
            if self.queues[model].is_empty() || !at.has(server, ModelId(model as u32)) {
                continue;
            }
            while let Some(id) = self.queues[model].front().copied() {
                // Given up only where it could not be in time even on a GPU that is free at once.
                if at.now + self.estimates[model][0].span <= self.due(at, id) {
                    break;
                }
                self.queues[model].pop_front();
                out.refuse(id, Refusal::Late);
            }
            let Some(head) = self.queues[model].front().copied() else { continue };
            let (due, waiting) = (self.due(at, head), self.queues[model].len());
            let fits = |place: &usize| {
                let estimate = self.estimates[model][*place].span;
                self.sizes[model][*place] as usize <= waiting && start + estimate <= due
            };
            let Some(place) = (0..self.sizes[model].len()).rev().find(fits) else { continue };
            let latest = Time(due.0 - self.estimates[model][place].span.0);
            if best.is_none_or(|(other, _, _)| latest < other) {
                best = Some((latest, model, place));
            }
        }
        let (latest, model, place) = best?;
        let requests = self.queues[model].drain(..self.sizes[model][place] as usize).collect();
        let estimate = self.estimates[model][place].span;
        Some(Action { model, requests, latest: latest.min(start + self.window), estimate })
    }

    fn plan(&mut self, at: &Moment<'_>, server: Server, out: &mut Directives) {
        let worker = server.index();
        // Each round but the last refuses an action, and what was refused is planned from now on, so there are few.
        loop {
            // A worker never has more than `ahead` of work, so this adds a few actions at most.
            while self.workers[worker].free < at.now + self.ahead {
                let start = self.workers[worker].free.max(at.now);
                let Some(action) = self.strategy(at, server, start, out) else { break };
                self.workers[worker].free = start + action.estimate;
                self.workers[worker].planned.push_back(action);
            }
            if !at.is_idle(server) {
                return;
            }
            let Some(action) = self.workers[worker].planned.pop_front() else { return };
            if at.now <= action.latest {
                self.used[worker][action.model] = at.now;
                return out.launch(at, server, action.requests);
            }
            // The worker refuses what comes after its window; the controller thinks again.
            for id in action.requests.into_iter().rev() {
                if at.now + self.estimates[action.model][0].span <= self.due(at, id) {
                    self.queues[action.model].push_front(id);
                } else {
                    out.refuse(id, Refusal::Late);
                }
            }
            let left = self.workers[worker].planned.iter().map(|action| action.estimate.0).sum();
            self.workers[worker].free = at.now + Span(left);
        }
    }

    /// Thinks about loading a moment later, where a model is not there.
    fn look(&self, at: &Moment<'_>, server: Server, out: &mut Directives) {
        let state = at.server(server);
        if state.loading.is_none() && state.loaded.iter().any(|is_there| !is_there) {
            out.wake(server, at.now);
        }
    }

    /// Brings the model with the most unmet demand onto a GPU, for what was used longest ago. O(models * GPUs).
    fn load(&mut self, at: &Moment<'_>, server: Server, out: &mut Directives) {
        let state = at.server(server);
        if state.loading.is_some() {
            return;
        }
        let unmet = |model: usize| {
            // p_m = demand_m less what those that hold it can serve of it while a request may wait.
            let demand = self.queues[model].len() as u64 * self.estimates[model][0].span.0;
            let holders = at.fleet.each().filter(|one| at.has(*one, ModelId(model as u32)));
            let room =
                holders.map(|one| (at.now + self.ahead).since(self.workers[one.index()].free).0);
            demand.saturating_sub(room.sum())
        };
        let absent = (0..self.queues.len()).filter(|model| !state.loaded[*model]);
        let wanted = absent.map(|model| (unmet(model), std::cmp::Reverse(model)));
        let Some((1.., std::cmp::Reverse(model))) = wanted.max() else { return };
        let need = at.fleet.models[model].memory_mib;
        let mut free = at.fleet.memory_mib.saturating_sub(state.used_mib);
        let planned = &self.workers[server.index()].planned;
        let mut old: Vec<usize> = (0..self.queues.len())
            .filter(|one| state.loaded[*one])
            .filter(|one| state.running.iter().all(|run| run.launch.model.index() != *one))
            .filter(|one| planned.iter().all(|action| action.model != *one))
            .collect();
        old.sort_by_key(|one| (self.used[server.index()][*one], *one));
        let mut evicted = Vec::new();
        for one in old {
            if free >= need {
                break;
            }
            free += at.fleet.models[one].memory_mib;
            evicted.push(one);
        }
        if free >= need {
            let gone =
                evicted.into_iter().map(|one| Directive::Unload(server, ModelId(one as u32)));
            out.0.extend(gone);
            out.0.push(Directive::Load(server, ModelId(model as u32)));
        }
    }
}

impl Discipline for Clockwork {
    fn arrived(&mut self, at: &Moment<'_>, request: RequestId, out: &mut Directives) {
        let model = at.request(request).model;
        self.queues[model.index()].push_back(request);
        let holders = at.fleet.each().filter(|server| at.has(*server, model));
        match holders.min_by_key(|server| (self.workers[server.index()].free, *server)) {
            Some(server) => self.plan(at, server, out),
            None => {
                let free = |server: &Server| at.server(*server).loading.is_none();
                let least = at.fleet.each().filter(free);
                let least = least.min_by_key(|one| (self.workers[one.index()].free, *one));
                if let Some(server) = least {
                    self.look(at, server, out);
                }
            }
        }
    }

    fn ended(&mut self, at: &Moment<'_>, run: &Running, _: Ending, out: &mut Directives) {
        let (model, size) = (run.launch.model.index(), run.launch.requests.len() as u32);
        if let Some(place) = self.sizes[model].iter().position(|one| *one == size) {
            let estimate = &mut self.estimates[model][place];
            estimate.last.push_back(at.now.since(run.began));
            if estimate.last.len() > self.recent {
                estimate.last.pop_front();
            }
            // The 99th percentile of ten is their largest.
            estimate.span = estimate.last.iter().copied().max().unwrap_or(estimate.span);
        }
        let worker = &mut self.workers[run.launch.server.index()];
        let left = worker.planned.iter().map(|action| action.estimate.0).sum();
        worker.free = at.now + Span(left);
        self.plan(at, run.launch.server, out);
        self.look(at, run.launch.server, out);
    }

    /// What is loaded is decided apart from what is launched, since each must see what the other did.
    fn woken(&mut self, at: &Moment<'_>, server: Server, out: &mut Directives) {
        self.load(at, server, out);
        if out.0.is_empty() {
            self.plan(at, server, out);
        }
    }

    fn loaded(&mut self, at: &Moment<'_>, (server, _): (Server, ModelId), out: &mut Directives) {
        self.plan(at, server, out);
        self.look(at, server, out);
    }
}
