//! Dynamic batching as in NVIDIA's Triton: a queue for each model and priority, preferred sizes, a longest delay, instances.

use crate::discipline::{Directives, Discipline, Ending, Moment, Refusal, Running};
use crate::registry::{DisciplineEntry, Serves, Told};
use crate::replicas::{Replica, on_each};
use crate::request::{ModelId, RequestId, Server};
use crate::routing::{ROUTE, Router};
use crate::settings::{Setting, Settings};
use std::collections::VecDeque;
use trainyard_diagnostic::InputError;
use trainyard_types::{Span, Time};

/// The row in the table of disciplines.
pub const ENTRY: DisciplineEntry = DisciplineEntry {
    name: "triton",
    about: "dynamic batches by preferred size and longest delay, instances of each model, priorities",
    paper: "NVIDIA Triton Inference Server, documentation of the dynamic batcher and of instance groups",
    partial: "no sequence batcher, rate limiter or ensembles",
    must_know: "nothing",
    needs_two: false,
    settings: &[
        ROUTE,
        Setting { key: "batch", default: "64", meaning: "the largest batch" },
        Setting {
            key: "preferred",
            default: "",
            meaning: "preferred sizes, such as 4/16; empty for the largest alone",
        },
        Setting {
            key: "delay",
            default: "1ms",
            meaning: "how long the oldest waits for more at most",
        },
        Setting {
            key: "instances",
            default: "1",
            meaning: "launches of one model at once on a GPU",
        },
        Setting {
            key: "alone",
            default: "false",
            meaning: "one launch of any model at a time on a GPU",
        },
        Setting {
            key: "levels",
            default: "1",
            meaning: "levels of priority; 0 is the most urgent",
        },
        Setting {
            key: "timeout",
            default: "0s",
            meaning: "a request that waits longer is given up; 0s for never",
        },
    ],
    serves: Serves::Whole(make),
};

fn make(told: &Told<'_>, settings: &Settings) -> Result<Box<dyn Discipline>, InputError> {
    let levels = settings.whole("levels", (1, 16))? as usize;
    let mut preferred = settings.list("preferred")?;
    preferred.sort_unstable();
    let queues = vec![vec![VecDeque::new(); levels]; told.fleet.models.len()];
    let triton = Triton {
        queues,
        waiting: 0,
        batch: settings.whole("batch", (1, 4096))? as u32,
        preferred,
        delay: settings.span("delay")?,
        instances: settings.whole("instances", (1, 16))? as usize,
        alone: settings.flag("alone")?,
        timeout: settings.span("timeout")?,
        turn: 0,
    };
    Ok(on_each(triton, told.fleet.servers, Router::of(settings, told.fleet.seed)?))
}

#[derive(Clone, Debug)]
struct Triton {
    /// By model and level.
    queues: Vec<Vec<VecDeque<RequestId>>>,
    waiting: usize,
    batch: u32,
    preferred: Vec<u32>,
    delay: Span,
    instances: usize,
    alone: bool,
    timeout: Span,
    /// The model that is looked at first, so that none is always the last.
    turn: usize,
}

impl Triton {
    /// Requests of a model that would go now, or the moment when they would.
    fn ready(&self, at: &Moment<'_>, model: usize) -> Result<u32, Time> {
        let levels = &self.queues[model];
        let count = levels.iter().map(VecDeque::len).sum::<usize>() as u32;
        let most = self.batch.min(at.fleet.models[model].batch_max());
        if count == 0 {
            return Err(Time::NEVER);
        }
        if count >= most {
            return Ok(most);
        }
        // The largest preferred size that can be formed is sent at once.
        let preferred = self.preferred.iter().rev().find(|size| **size <= count && **size <= most);
        if let Some(size) = preferred {
            return Ok(*size);
        }
        let oldest = levels.iter().filter_map(VecDeque::front).min();
        let due = oldest.map_or(at.now, |id| at.request(*id).arrived + self.delay);
        if due <= at.now { Ok(count) } else { Err(due) }
    }

    fn take(&mut self, model: usize, count: u32) -> Vec<RequestId> {
        let mut taken = Vec::with_capacity(count as usize);
        for level in &mut self.queues[model] {
            while taken.len() < count as usize {
                let Some(id) = level.pop_front() else { break };
                taken.push(id);
            }
        }
        self.waiting -= taken.len();
        taken
    }

    fn give_up(&mut self, at: &Moment<'_>, out: &mut Directives) {
        if self.timeout == Span::ZERO {
            return;
        }
        for level in self.queues.iter_mut().flatten() {
            while let Some(id) = level.front().copied() {
                if at.now.since(at.request(id).arrived) <= self.timeout {
                    break;
                }
                level.pop_front();
                self.waiting -= 1;
                out.refuse(id, Refusal::Late);
            }
        }
    }
}

impl Replica for Triton {
    fn put(&mut self, at: &Moment<'_>, _: Server, request: RequestId) {
        let asked = at.request(request);
        let levels = &mut self.queues[asked.model.index()];
        let level = usize::from(asked.priority).min(levels.len() - 1);
        levels[level].push_back(request);
        self.waiting += 1;
    }

    fn ended(&mut self, _: &Moment<'_>, _: &Running, _: Ending) {}

    /// O(models + what runs) for each event.
    fn go(&mut self, at: &Moment<'_>, server: Server, out: &mut Directives) {
        self.give_up(at, out);
        if self.waiting == 0 {
            return;
        }
        let running = &at.server(server).running;
        let mut room = (at.fleet.together_max as usize).saturating_sub(running.len());
        if self.alone {
            room = usize::from(running.is_empty());
        }
        let (count, mut wake) = (self.queues.len(), Time::NEVER);
        let first = self.turn;
        for model in (0..count).map(|step| (first + step) % count) {
            if room == 0 {
                return;
            }
            let id = ModelId(model as u32);
            let busy = running.iter().filter(|run| run.launch.model == id).count();
            for _ in busy..self.instances {
                match self.ready(at, model) {
                    Ok(size) if room > 0 => {
                        out.launch(at, server, self.take(model, size));
                        room -= 1;
                        self.turn = (model + 1) % count;
                    }
                    Ok(_) => break,
                    Err(due) => {
                        wake = wake.min(due);
                        break;
                    }
                }
            }
        }
        if wake < Time::NEVER {
            out.wake(server, wake);
        }
    }
}
