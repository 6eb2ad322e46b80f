//! AlpaServe: groups of GPUs as pipelines, and models placed on them by simulation (Li et al., OSDI 2023).

mod placement;

pub use placement::{Group, Placement, place};

use crate::discipline::{Directives, Discipline, Ending, Fleet, Launch, Moment, Refusal, Running};
use crate::registry::{DisciplineEntry, Serves, Told};
use crate::request::{ModelId, RequestId, Server};
use crate::settings::{Setting, Settings};
use std::collections::VecDeque;
use trainyard_diagnostic::InputError;
use trainyard_types::{Span, Time};

/// The row in the table of disciplines.
pub const ENTRY: DisciplineEntry = DisciplineEntry {
    name: "alpaserve",
    about: "groups of GPUs as pipelines, models placed by simulation, requests to the shortest queue",
    paper: "Li et al., AlpaServe: Statistical Multiplexing with Model Parallelism for Deep Learning Serving, OSDI 2023",
    partial: "pipelines of segments; no parallelism inside operators, and models are not divided into buckets",
    must_know: "expected rates",
    needs_two: false,
    settings: &[
        Setting {
            key: "stages",
            default: "8",
            meaning: "the longest pipeline that is tried, a power of two",
        },
        Setting {
            key: "batch",
            default: "1",
            meaning: "the largest batch; the paper's default is one request",
        },
        Setting {
            key: "sample",
            default: "2000",
            meaning: "requests in a simulation of a placement",
        },
    ],
    serves: Serves::Whole(make),
};

fn make(told: &Told<'_>, settings: &Settings) -> Result<Box<dyn Discipline>, InputError> {
    let stages = settings.whole("stages", (1, 64))? as u32;
    let sample = settings.whole("sample", (10, 1_000_000))? as usize;
    let placement = place(told, stages, sample);
    let queues = placement.groups.iter().map(|group| vec![VecDeque::new(); group.servers.len()]);
    let mut at = vec![(0, 0); told.fleet.servers as usize];
    for (number, group) in placement.groups.iter().enumerate() {
        for (stage, server) in group.servers.iter().enumerate() {
            at[server.index()] = (number, stage);
        }
    }
    Ok(Box::new(AlpaServe {
        queues: queues.collect(),
        backlog: vec![Time::ZERO; placement.groups.len()],
        placement,
        at,
        batch: settings.whole("batch", (1, 4096))? as u32,
    }))
}

type Batch = (ModelId, Vec<RequestId>);

struct AlpaServe {
    placement: Placement,
    /// By group and stage.
    queues: Vec<Vec<VecDeque<Batch>>>,
    /// When the first stage of each group is free, by the tables.
    backlog: Vec<Time>,
    /// Group and stage of each GPU.
    at: Vec<(usize, usize)>,
    batch: u32,
}

impl AlpaServe {
    /// Runs the next batch of a stage. What cannot be in time any more is given up before its first stage.
    fn run(&mut self, at: &Moment<'_>, server: Server, out: &mut Directives) {
        if !at.is_idle(server) {
            return;
        }
        let (number, stage) = self.at[server.index()];
        let group = &self.placement.groups[number];
        let stages = group.servers.len() as u32;
        let queue = &mut self.queues[number][stage];
        while let Some((model, requests)) = queue.pop_front() {
            let profile = at.fleet.model(model);
            let part = |stage: u32| profile.segments * stage / stages;
            let segments = (part(stage as u32), part(stage as u32 + 1));
            if stage == 0 {
                let span = profile.span(requests.len() as u32);
                if requests.iter().any(|id| at.now + span > at.request(*id).deadline) {
                    requests.into_iter().for_each(|id| out.refuse(id, Refusal::Late));
                    continue;
                }
            }
            return out.launch_part(Launch { server, model, requests, segments });
        }
    }

    /// Joins the last batch of its model in the queue of the first stage, or begins a new one.
    fn enqueue(&mut self, at: &Moment<'_>, number: usize, id: RequestId) {
        let model = at.request(id).model;
        let most = self.batch.min(at.fleet.model(model).batch_max()) as usize;
        let queue = &mut self.queues[number][0];
        let last = queue.back_mut().filter(|(other, batch)| *other == model && batch.len() < most);
        match last {
            Some((_, batch)) => batch.push(id),
            None => queue.push_back((model, vec![id])),
        }
    }
}

impl Discipline for AlpaServe {
    fn placement(&self, _: &Fleet) -> Option<Vec<Vec<(ModelId, u64)>>> {
        Some(self.placement.by_server.clone())
    }

    /// To the group with the shortest queue that has the model. O(groups).
    fn arrived(&mut self, at: &Moment<'_>, request: RequestId, out: &mut Directives) {
        let asked = at.request(request);
        let groups = self.placement.groups.iter().enumerate();
        let holders = groups.filter(|(_, group)| group.models.contains(&asked.model));
        let shortest =
            holders.min_by_key(|(number, _)| (self.backlog[*number].max(at.now), *number));
        let Some((number, group)) = shortest else {
            return out.refuse(request, Refusal::Impossible);
        };
        let (stages, first) = (group.servers.len() as u64, group.servers[0]);
        let span = at.fleet.model(asked.model).span(1);
        let start = self.backlog[number].max(at.now);
        // Rejected at once when it cannot be in time (section 4.3).
        if start + span > asked.deadline {
            return out.refuse(request, Refusal::Late);
        }
        self.backlog[number] = start + Span(span.0 / stages);
        self.enqueue(at, number, request);
        self.run(at, first, out);
    }

    fn ended(&mut self, at: &Moment<'_>, run: &Running, _: Ending, out: &mut Directives) {
        let server = run.launch.server;
        let (number, stage) = self.at[server.index()];
        if let Some(next) = self.placement.groups[number].servers.get(stage + 1).copied() {
            self.queues[number][stage + 1]
                .push_back((run.launch.model, run.launch.requests.clone()));
            self.run(at, next, out);
        }
        self.run(at, server, out);
        if stage == 0 && at.is_idle(server) && self.queues[number][0].is_empty() {
            self.backlog[number] = at.now;
        }
    }

    fn woken(&mut self, at: &Moment<'_>, server: Server, out: &mut Directives) {
        self.run(at, server, out);
    }
}
