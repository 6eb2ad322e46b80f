//! Whole inferences on many GPUs, event by event, in integer microseconds.
//!
//! An event costs what its GPU runs at that moment and O(log n) for n pending events; the discipline's own bound is on its page.

use crate::discipline::{
    Directive, Directives, Discipline, Ending, Fleet, Launch, Moment, Refusal, RunId, Running,
    ServerState,
};
use crate::draws::Draws;
use crate::measures::Tally;
use crate::request::{ModelId, RequestId, Server, Trace};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use trainyard_types::{Span, Time};

/// A discipline directed what cannot be done; a fault of its code, never of its input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at {} s on GPU {}: {what}", at.as_secs_f64(), server.0)]
pub struct Fault {
    /// When.
    pub at: Time,
    /// Where.
    pub server: Server,
    /// What is wrong with it.
    pub what: String,
}

/// What a request is doing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Running,
    Over,
}

/// In the order in which events of one moment happen; arrivals come after all of them.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A launch ends, unless its times have changed since.
    End {
        server: u32,
        run: u32,
        version: u32,
    },
    Loaded {
        server: u32,
        model: u32,
    },
    Wake {
        server: u32,
    },
}

/// What the world knows of a launch besides what it shows.
#[derive(Clone, Debug)]
struct Truth {
    id: RunId,
    /// Microseconds alone that are left.
    left: f64,
    /// How many times as long everything takes now.
    slow: f64,
    since: Time,
    version: u32,
    /// True over expected length.
    luck: f64,
}

struct World<'a> {
    fleet: &'a Fleet,
    trace: &'a Trace,
    now: Time,
    arrived: usize,
    phases: Vec<Phase>,
    progress: Vec<u32>,
    servers: Vec<ServerState>,
    truths: Vec<Vec<Truth>>,
    wakes: Vec<Time>,
    events: BinaryHeap<Reverse<(Time, Event)>>,
    versions: u32,
    luck: Draws,
    waiting: u64,
    tally: Tally,
    /// Ends that the discipline has to be told of.
    told: Vec<(Running, Ending)>,
}

/// The most directives that follow from one event; a discipline that says more goes in a circle.
const DIRECTIVES_MAX: usize = 1 << 20;

/// Runs a trace to its end. `progress` is told the number of requests over, now and then.
pub fn simulate(
    fleet: &Fleet,
    trace: &Trace,
    discipline: &mut dyn Discipline,
    progress: &mut dyn FnMut(usize),
) -> Result<Tally, Fault> {
    let mut world = World::new(fleet, trace);
    if let Some(placement) = discipline.placement(fleet) {
        world.put_in_place(&placement)?;
    }
    let mut out = Directives::default();
    // Each round of this loop handles one arrival or one event; events come from launches, loads and wakes alone.
    loop {
        let arrival = trace.requests.get(world.arrived).map(|request| request.arrived);
        let event = world.events.peek().map(|Reverse((time, _))| *time);
        match (arrival, event) {
            (None, None) => break,
            (Some(arrival), Some(event)) if event <= arrival => world.event(discipline, &mut out),
            (None, Some(_)) => world.event(discipline, &mut out),
            (Some(arrival), _) => {
                world.now = arrival;
                world.arrive(discipline, &mut out);
                if world.arrived.is_multiple_of(4096) {
                    progress(world.arrived);
                }
            }
        }
        world.obey(discipline, &mut out)?;
    }
    Ok(world.finish())
}

impl<'a> World<'a> {
    fn new(fleet: &'a Fleet, trace: &'a Trace) -> World<'a> {
        let servers = fleet.servers as usize;
        let mut state = ServerState::default();
        // Models are there from the start, in their order, as far as memory goes.
        for model in &fleet.models {
            let fits = state.used_mib + model.memory_mib <= fleet.memory_mib;
            state.loaded.push(fits);
            state.used_mib += if fits { model.memory_mib } else { 0 };
        }
        World {
            fleet,
            trace,
            now: Time::ZERO,
            arrived: 0,
            phases: Vec::with_capacity(trace.requests.len()),
            progress: Vec::with_capacity(trace.requests.len()),
            servers: vec![state; servers],
            truths: vec![Vec::new(); servers],
            wakes: vec![Time::NEVER; servers],
            events: BinaryHeap::new(),
            versions: 0,
            luck: Draws::new(fleet.seed, 7),
            waiting: 0,
            tally: Tally::new(fleet.models.len(), servers),
            told: Vec::new(),
        }
    }

    fn put_in_place(&mut self, placement: &[Vec<(ModelId, u64)>]) -> Result<(), Fault> {
        for (at, models) in placement.iter().enumerate().take(self.servers.len()) {
            let state = &mut self.servers[at];
            state.loaded.iter_mut().for_each(|one| *one = false);
            state.used_mib = models.iter().map(|(_, mib)| mib).sum();
            models.iter().for_each(|(model, _)| state.loaded[model.index()] = true);
            if state.used_mib > self.fleet.memory_mib {
                return Err(self.fault(Server(at as u32), "models do not fit".to_owned()));
            }
        }
        Ok(())
    }

    fn moment(&self) -> Moment<'_> {
        Moment {
            now: self.now,
            fleet: self.fleet,
            requests: &self.trace.requests[..self.arrived],
            servers: &self.servers,
            progress: &self.progress,
        }
    }

    fn arrive(&mut self, discipline: &mut dyn Discipline, out: &mut Directives) {
        let id = RequestId(self.arrived as u32);
        self.arrived += 1;
        self.phases.push(Phase::Waiting);
        self.progress.push(0);
        self.tally.arrived(&self.trace.requests[id.index()]);
        self.waiting += 1;
        if self.waiting > u64::from(self.fleet.waiting_max) {
            self.refuse(id, Refusal::Full);
            return;
        }
        self.tally.waiting_peak = self.tally.waiting_peak.max(self.waiting);
        discipline.arrived(&self.moment(), id, out);
    }

    fn event(&mut self, discipline: &mut dyn Discipline, out: &mut Directives) {
        let Some(Reverse((time, event))) = self.events.pop() else { return };
        match event {
            Event::End { server, run, version } => {
                let truths = &self.truths[server as usize];
                let at = truths.iter().position(|one| one.id.0 == run && one.version == version);
                let Some(at) = at else { return };
                self.now = time;
                let done = self.take_out(Server(server), at);
                self.end_whole(&done);
                self.retime(Server(server));
                discipline.ended(&self.moment(), &done, Ending::Whole, out);
            }
            Event::Loaded { server, model } => {
                self.now = time;
                let state = &mut self.servers[server as usize];
                state.loading = None;
                state.loaded[model as usize] = true;
                discipline.loaded(&self.moment(), (Server(server), ModelId(model)), out);
            }
            Event::Wake { server } => {
                if self.wakes[server as usize] == time {
                    self.now = time;
                    self.wakes[server as usize] = Time::NEVER;
                    discipline.woken(&self.moment(), Server(server), out);
                }
            }
        }
    }

    /// Does what was directed, and tells of what ended by it, until nothing is left to do.
    fn obey(&mut self, discipline: &mut dyn Discipline, out: &mut Directives) -> Result<(), Fault> {
        let mut done = 0;
        loop {
            for directive in std::mem::take(&mut out.0) {
                done += 1;
                self.follow(directive)?;
            }
            let told = std::mem::take(&mut self.told);
            for (run, ending) in &told {
                discipline.ended(&self.moment(), run, *ending, out);
            }
            if out.0.is_empty() {
                return Ok(());
            }
            if done > DIRECTIVES_MAX {
                return Err(self.fault(Server(0), "it directs without end".to_owned()));
            }
        }
    }

    fn follow(&mut self, directive: Directive) -> Result<(), Fault> {
        match directive {
            Directive::Launch(launch) => self.launch(launch),
            Directive::Stop { server, run, keep } => self.stop(server, run, keep),
            Directive::Refuse(id, why) => {
                if self.phases.get(id.index()) != Some(&Phase::Waiting) {
                    return Err(self.fault(Server(0), format!("request {} does not wait", id.0)));
                }
                self.refuse(id, why);
                Ok(())
            }
            Directive::Load(server, model) => self.load(server, model),
            Directive::Unload(server, model) => self.unload(server, model),
            Directive::Wake(server, when) => {
                let when = when.max(self.now);
                let wake = &mut self.wakes[server.index()];
                // A later wake than the one that is due is asked for again then.
                if when < *wake {
                    *wake = when;
                    self.events.push(Reverse((when, Event::Wake { server: server.0 })));
                }
                Ok(())
            }
        }
    }

    fn refuse(&mut self, id: RequestId, why: Refusal) {
        self.phases[id.index()] = Phase::Over;
        self.waiting -= 1;
        self.tally.refused(&self.trace.requests[id.index()], why);
    }

    fn check(&self, launch: &Launch) -> Result<(), String> {
        let Some(state) = self.servers.get(launch.server.index()) else {
            return Err("there is no such GPU".to_owned());
        };
        let Some(model) = self.fleet.models.get(launch.model.index()) else {
            return Err("there is no such model".to_owned());
        };
        let (from, to) = launch.segments;
        if !state.loaded[launch.model.index()] {
            return Err(format!("model {} is not there", model.name));
        }
        if state.running.len() >= self.fleet.together_max as usize {
            return Err("more launches at once than a GPU takes".to_owned());
        }
        let batch = launch.requests.len();
        if batch == 0 || batch > model.batch_max() as usize || from >= to || to > model.segments {
            return Err(format!("batch {batch} of segments {from} to {to} of {}", model.name));
        }
        for id in &launch.requests {
            let request = self.trace.requests[..self.arrived].get(id.index());
            let is_ready = request.is_some_and(|request| request.model == launch.model)
                && self.phases[id.index()] == Phase::Waiting
                && self.progress[id.index()] == from;
            if !is_ready {
                return Err(format!("request {} does not wait for segment {from}", id.0));
            }
        }
        Ok(())
    }

    fn launch(&mut self, launch: Launch) -> Result<(), Fault> {
        self.check(&launch).map_err(|what| self.fault(launch.server, what))?;
        let server = launch.server;
        let model = self.fleet.model(launch.model);
        let batch = launch.requests.len() as u32;
        for id in &launch.requests {
            // A request that is named twice is found here.
            if self.phases[id.index()] == Phase::Running {
                return Err(self.fault(server, format!("request {} is launched twice", id.0)));
            }
            self.phases[id.index()] = Phase::Running;
        }
        self.waiting -= u64::from(batch);
        let sigma = model.sigma(batch);
        let luck = match self.fleet.jitter && sigma > 0.0 {
            true => libm::exp(sigma * self.luck.normal()),
            false => 1.0,
        };
        let (from, to) = launch.segments;
        let alone = self.moment().part(launch.model, batch, to - from);
        if self.truths[server.index()].is_empty() {
            self.tally.busy_from(server, self.now);
        }
        self.versions += 1;
        let taken = &self.truths[server.index()];
        let free = (0..).find(|run| taken.iter().all(|one| one.id.0 != *run));
        let id = RunId(free.unwrap_or(0));
        let left = alone.0 as f64 * luck;
        let truth = Truth { id, left, slow: 1.0, since: self.now, version: self.versions, luck };
        self.truths[server.index()].push(truth);
        self.tally.launched(batch, (from, to) == (0, model.segments));
        let running = Running { id, launch, began: self.now, ends: self.now + alone };
        self.servers[server.index()].running.push(running);
        self.retime(server);
        Ok(())
    }

    /// Brings the ends of everything on a GPU up to date: O(n^2) for n launches at once.
    fn retime(&mut self, server: Server) {
        let state = &mut self.servers[server.index()];
        let beside = |launch: &Launch| (launch.model.0, launch.requests.len() as u32);
        let all: Vec<(u32, u32)> = state.running.iter().map(|run| beside(&run.launch)).collect();
        for (at, truth) in self.truths[server.index()].iter_mut().enumerate() {
            let passed = self.now.since(truth.since).0 as f64;
            truth.left = (truth.left - passed / truth.slow).max(0.0);
            truth.since = self.now;
            let others = all.iter().enumerate().filter(|(other, _)| *other != at);
            truth.slow = match all.len() {
                1 => 1.0,
                _ => self.fleet.slowdowns.beside(all[at], others.map(|(_, other)| *other)),
            };
            self.versions = self.versions.wrapping_add(1);
            truth.version = self.versions;
            let span = Span((truth.left * truth.slow + 0.5) as u64);
            let run = &mut state.running[at];
            run.ends = self.now + span.scaled(1.0 / truth.luck);
            let event = Event::End { server: server.0, run: truth.id.0, version: truth.version };
            self.events.push(Reverse((self.now + span, event)));
        }
    }

    /// Takes a launch off its GPU; its requests wait.
    fn take_out(&mut self, server: Server, at: usize) -> Running {
        self.truths[server.index()].remove(at);
        let run = self.servers[server.index()].running.remove(at);
        if self.truths[server.index()].is_empty() {
            self.tally.busy_to(server, self.now);
        }
        for id in &run.launch.requests {
            self.phases[id.index()] = Phase::Waiting;
        }
        self.waiting += run.launch.requests.len() as u64;
        run
    }

    fn end_whole(&mut self, run: &Running) {
        let (_, to) = run.launch.segments;
        let is_answer = to == self.fleet.model(run.launch.model).segments;
        for id in &run.launch.requests {
            self.progress[id.index()] = to;
            if is_answer {
                self.phases[id.index()] = Phase::Over;
                self.waiting -= 1;
                self.tally.answered(&self.trace.requests[id.index()], self.now);
            }
        }
    }

    fn stop(&mut self, server: Server, run: RunId, keep: bool) -> Result<(), Fault> {
        let found = self.truths.get(server.index()).and_then(|all| {
            let at = all.iter().position(|one| one.id == run)?;
            Some((at, all[at].clone()))
        });
        let Some((at, truth)) = found else {
            return Err(self.fault(server, format!("launch {} does not run", run.0)));
        };
        let passed = self.now.since(truth.since).0 as f64 / truth.slow;
        let left = (truth.left - passed).max(0.0);
        let stopped = self.take_out(server, at);
        let (from, to) = stopped.launch.segments;
        let batch = stopped.launch.requests.len() as u32;
        let whole = self.moment().part(stopped.launch.model, batch, to - from).0 as f64;
        // A segment that has not run whole is lost: kernels end where they end.
        let part = (1.0 - left / (whole * truth.luck).max(1.0)).clamp(0.0, 1.0);
        let kept = if keep { (f64::from(to - from) * part) as u32 } else { 0 };
        for id in &stopped.launch.requests {
            self.progress[id.index()] = if keep { (from + kept).min(to - 1) } else { 0 };
        }
        self.tally.stops += 1;
        self.retime(server);
        self.told.push((stopped, Ending::Stopped));
        Ok(())
    }

    fn load(&mut self, server: Server, model: ModelId) -> Result<(), Fault> {
        let need = self.fleet.model(model).memory_mib;
        let state = &mut self.servers[server.index()];
        let fits = state.used_mib + need <= self.fleet.memory_mib;
        if state.loaded[model.index()] || state.loading.is_some() || !fits {
            return Err(self.fault(server, format!("model {} cannot be loaded", model.0)));
        }
        state.loading = Some(model);
        state.used_mib += need;
        self.tally.loads += 1;
        let span = Span::from_secs_f64(need as f64 / self.fleet.load_mib_per_second);
        let event = Event::Loaded { server: server.0, model: model.0 };
        self.events.push(Reverse((self.now + span, event)));
        Ok(())
    }

    fn unload(&mut self, server: Server, model: ModelId) -> Result<(), Fault> {
        let state = &mut self.servers[server.index()];
        let runs = state.running.iter().any(|run| run.launch.model == model);
        if runs || !state.loaded[model.index()] {
            return Err(self.fault(server, format!("model {} cannot be unloaded", model.0)));
        }
        state.loaded[model.index()] = false;
        state.used_mib -= self.fleet.model(model).memory_mib;
        Ok(())
    }

    fn fault(&self, server: Server, what: String) -> Fault {
        Fault { at: self.now, server, what }
    }

    fn finish(mut self) -> Tally {
        self.tally.finish(self.now, self.waiting);
        self.tally
    }
}
