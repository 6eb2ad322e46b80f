//! Shepherd's Flex: the largest batch that is in time, and preemption by a much larger one (Zhang et al., NSDI 2023).

use crate::discipline::{Directives, Discipline, Ending, Moment, Refusal, Running};
use crate::registry::{DisciplineEntry, Serves, Told};
use crate::request::{ModelId, RequestId, Server};
use crate::settings::{Setting, Settings};
use std::collections::VecDeque;
use trainyard_diagnostic::InputError;
use trainyard_types::Span;

/// The row in the table of disciplines.
pub const ENTRY: DisciplineEntry = DisciplineEntry {
    name: "shepherd",
    about: "the largest batch that is in time, over all models; a batch gives way to one that is much larger",
    paper: "Zhang et al., SHEPHERD: Serving DNNs in the Wild, NSDI 2023",
    partial: "Flex alone: all GPUs are one group, without the planner that divides streams",
    must_know: "nothing",
    needs_two: false,
    settings: &[
        Setting {
            key: "lambda",
            default: "3",
            meaning: "how many times as large a batch must be to stop another",
        },
        Setting {
            key: "margin",
            default: "1ms",
            meaning: "how long before a deadline an answer is aimed at",
        },
    ],
    serves: Serves::Whole(make),
};

fn make(told: &Told<'_>, settings: &Settings) -> Result<Box<dyn Discipline>, InputError> {
    Ok(Box::new(Shepherd {
        queues: vec![VecDeque::new(); told.fleet.models.len()],
        lambda: settings.real("lambda", (1.0, 1000.0))?,
        margin: settings.span("margin")?,
    }))
}

struct Shepherd {
    /// By model, in order of arrival; what was stopped comes first again.
    queues: Vec<VecDeque<RequestId>>,
    lambda: f64,
    margin: Span,
}

impl Shepherd {
    /// The largest batch of a model that starts now and is in time for its oldest; what cannot be is given up.
    fn feasible(&mut self, at: &Moment<'_>, model: usize, out: &mut Directives) -> u32 {
        let profile = &at.fleet.models[model];
        let queue = &mut self.queues[model];
        while let Some(id) = queue.front().copied() {
            let left = at.request(id).deadline.since(at.now + self.margin);
            if profile.span(1) > left {
                queue.pop_front();
                out.refuse(id, Refusal::Late);
                continue;
            }
            let most = (queue.len() as u32).min(profile.batch_max());
            if profile.span(most) <= left {
                return most;
            }
            return profile.batch_within(left).unwrap_or(1).min(most);
        }
        0
    }

    /// O(models * largest batch).
    fn fill(&mut self, at: &Moment<'_>, server: Server, out: &mut Directives) {
        let mut best: Option<(u32, RequestId, usize)> = None;
        for model in 0..self.queues.len() {
            if self.queues[model].is_empty() || !at.has(server, ModelId(model as u32)) {
                continue;
            }
            let size = self.feasible(at, model, out);
            let Some(head) = self.queues[model].front().copied() else { continue };
            let is_better =
                best.is_none_or(|(most, oldest, _)| size > most || size == most && head < oldest);
            if is_better {
                best = Some((size, head, model));
            }
        }
        if let Some((size, _, model)) = best {
            let batch = self.queues[model].drain(..size as usize).collect();
            out.launch(at, server, batch);
        }
    }
}

impl Discipline for Shepherd {
    fn arrived(&mut self, at: &Moment<'_>, request: RequestId, out: &mut Directives) {
        let model = at.request(request).model;
        self.queues[model.index()].push_back(request);
        let can = |server: &Server| at.has(*server, model);
        if let Some(idle) = at.fleet.each().find(|server| at.is_idle(*server) && can(server)) {
            return self.fill(at, idle, out);
        }
        if (self.queues[model.index()].len() as f64) < self.lambda {
            return;
        }
        // Rule of preemption (Flex): a batch that runs gives way to one that is lambda times as large. O(GPUs).
        let size = self.feasible(at, model.index(), out);
        let running = at.fleet.each().filter(can).filter_map(|server| {
            let run = at.server(server).running.first()?;
            Some((run.launch.requests.len(), server, run.id))
        });
        let smallest = running.min_by_key(|(size, server, _)| (*size, *server));
        if let Some((least, server, run)) = smallest
            && f64::from(size) >= self.lambda * least as f64
        {
            out.stop(server, run, false);
            let batch = self.queues[model.index()].drain(..size as usize).collect();
            out.launch(at, server, batch);
        }
    }

    fn ended(&mut self, at: &Moment<'_>, run: &Running, ending: Ending, out: &mut Directives) {
        if ending == Ending::Stopped {
            let queue = &mut self.queues[run.launch.model.index()];
            run.launch.requests.iter().rev().for_each(|id| queue.push_front(*id));
        }
        let server = run.launch.server;
        if at.is_idle(server) {
            self.fill(at, server, out);
        }
    }

    fn woken(&mut self, at: &Moment<'_>, server: Server, out: &mut Directives) {
        if at.is_idle(server) {
            self.fill(at, server, out);
        }
    }
}
