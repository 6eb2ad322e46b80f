//! Irina: for each request the choice that adds the least delay in all: queue, batch, stack or preempt (Wu et al., APNet 2020).

use crate::discipline::{Directives, Discipline, Ending, Launch, Moment, Running};
use crate::registry::{DisciplineEntry, Serves, Told};
use crate::replicas::{Replica, on_each};
use crate::request::{ModelId, RequestId, Server};
use crate::routing::{ROUTE, Router};
use crate::settings::{Setting, Settings};
use std::collections::VecDeque;
use trainyard_diagnostic::InputError;
use trainyard_types::Span;

/// The row in the table of disciplines.
pub const ENTRY: DisciplineEntry = DisciplineEntry {
    name: "irina",
    about: "queue, batch, stack or preempt, whichever adds the least delay to all requests",
    paper: "Wu et al., Irina: Accelerating DNN Inference with Efficient Online Scheduling, APNet 2020",
    partial: "",
    must_know: "how much two models slow each other",
    needs_two: false,
    settings: &[
        ROUTE,
        Setting { key: "stack", default: "2", meaning: "the most launches at once on a GPU" },
        Setting {
            key: "preempt",
            default: "resume",
            meaning: "what a preempted batch does: resume, restart, or never",
        },
        Setting {
            key: "look",
            default: "64",
            meaning: "waiting batches that a request is compared with",
        },
    ],
    serves: Serves::Whole(make),
};

fn make(told: &Told<'_>, settings: &Settings) -> Result<Box<dyn Discipline>, InputError> {
    let irina = Irina {
        new: VecDeque::new(),
        queue: VecDeque::new(),
        stack: settings.whole("stack", (1, 8))? as usize,
        preempt: settings.word("preempt", &["never", "restart", "resume"])?,
        look: settings.whole("look", (1, 4096))? as usize,
    };
    Ok(on_each(irina, told.fleet.servers, Router::of(settings, told.fleet.seed)?))
}

/// Requests of one model that will run together.
#[derive(Clone, Debug)]
struct Batch {
    model: ModelId,
    requests: Vec<RequestId>,
    /// The first segment that has not run.
    from: u32,
}

#[derive(Clone, Debug)]
struct Irina {
    new: VecDeque<RequestId>,
    queue: VecDeque<Batch>,
    stack: usize,
    /// 0 never, 1 from the start again, 2 from where it was.
    preempt: usize,
    look: usize,
}

/// What can be done with a request.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Way {
    Queue,
    Join(usize),
    Stack,
    Preempt,
}

impl Batch {
    fn span(&self, at: &Moment<'_>) -> Span {
        let all = at.fleet.model(self.model).segments;
        at.part(self.model, self.requests.len() as u32, all - self.from)
    }
}

impl Irina {
    /// The way with the least delay in all: the request's own and what it adds to others. O(look + what runs).
    fn choose(&self, at: &Moment<'_>, server: Server, id: RequestId) -> Way {
        let model = at.request(id).model;
        let alone = at.part(model, 1, u32::MAX).0 as f64;
        let running = &at.server(server).running;
        let wait = running.iter().map(|run| run.ends.since(at.now).0).max().unwrap_or(0) as f64;
        let waiting: usize = self.queue.iter().take(self.look).map(|one| one.requests.len()).sum();
        let (mut best, mut start) = ((f64::INFINITY, Way::Queue), wait);
        let mut behind = waiting;
        let consider = |best: &mut (f64, Way), cost: f64, way| {
            if cost < best.0 {
                *best = (cost, way);
            }
        };
        for (place, one) in self.queue.iter().take(self.look).enumerate() {
            behind -= one.requests.len();
            let span = one.span(at).0 as f64;
            let size = one.requests.len() as u32;
            if one.model == model && one.from == 0 && size < at.fleet.model(model).batch_max() {
                let joined = at.part(model, size + 1, u32::MAX).0 as f64;
                let more = (joined - span).max(0.0) * (f64::from(size) + behind as f64);
                consider(&mut best, start + joined + more, Way::Join(place));
            }
            start += span;
        }
        consider(&mut best, start + alone, Way::Queue);
        if running.len() < self.stack.min(at.fleet.together_max as usize) {
            consider(
                &mut best,
                self.stacked(at, running, (model, alone), wait, waiting),
                Way::Stack,
            );
        }
        if self.preempt > 0 && running.len() == 1 {
            let victim = &running[0];
            let size = victim.launch.requests.len() as f64;
            let lost = match self.preempt {
                1 => at.now.since(victim.began).0 as f64,
                _ => at.fleet.launch.0 as f64,
            };
            let cost = alone + (alone + lost) * (size + waiting as f64);
            consider(&mut best, cost, Way::Preempt);
        }
        best.1
    }

    /// The delay in all if the request runs beside what runs.
    fn stacked(
        &self,
        at: &Moment<'_>,
        running: &[Running],
        (model, alone): (ModelId, f64),
        wait: f64,
        waiting: usize,
    ) -> f64 {
        let named = |run: &Running| (run.launch.model.0, run.launch.requests.len() as u32);
        let mine = (model.0, 1);
        let slow = &at.fleet.slowdowns;
        let own = alone * slow.beside(mine, running.iter().map(named));
        let (mut added, mut ends) = (0.0, own);
        for (place, run) in running.iter().enumerate() {
            let others = || running.iter().enumerate().filter(|(at, _)| *at != place);
            let before = slow.beside(named(run), others().map(|(_, run)| named(run)));
            let after = before + slow.pair(named(run), mine) - 1.0;
            let left = run.ends.since(at.now).0 as f64;
            // The slowdown lasts as long as the new one runs, at most.
            let shared = left.min(own);
            let longer = shared * (after / before - 1.0);
            added += longer * run.launch.requests.len() as f64;
            ends = ends.max(left + longer);
        }
        own + added + (ends - wait).max(0.0) * waiting as f64
    }

    fn start(&self, at: &Moment<'_>, server: Server, batch: Batch, out: &mut Directives) {
        let segments = (batch.from, at.fleet.model(batch.model).segments);
        let Batch { model, requests, .. } = batch;
        out.launch_part(Launch { server, model, requests, segments });
    }
}

impl Replica for Irina {
    fn put(&mut self, _: &Moment<'_>, _: Server, request: RequestId) {
        self.new.push_back(request);
    }

    fn ended(&mut self, at: &Moment<'_>, run: &Running, ending: Ending) {
        if ending == Ending::Stopped {
            let Launch { model, requests, .. } = &run.launch;
            let from = requests.first().map_or(0, |id| at.progress[id.index()]);
            self.queue.push_front(Batch { model: *model, requests: requests.clone(), from });
        }
    }

    fn go(&mut self, at: &Moment<'_>, server: Server, out: &mut Directives) {
        let Some(id) = self.new.pop_front() else {
            if at.is_idle(server)
                && let Some(batch) = self.queue.pop_front()
            {
                self.start(at, server, batch, out);
            }
            return;
        };
        let model = at.request(id).model;
        let batch = Batch { model, requests: vec![id], from: 0 };
        if at.is_idle(server) && self.queue.is_empty() {
            return self.start(at, server, batch, out);
        }
        match self.choose(at, server, id) {
            Way::Queue => self.queue.push_back(batch),
            Way::Join(place) => self.queue[place].requests.push(id),
            Way::Stack => self.start(at, server, batch, out),
            Way::Preempt => {
                out.stop(server, at.server(server).running[0].id, self.preempt == 2);
                self.start(at, server, batch, out);
            }
        }
    }
}
