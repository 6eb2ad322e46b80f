//! Replicas of a language model, event by event.
//!
//! Decodes that are alike are one event: from one to the next the context of each request grows by a token, so the time
//! of k of them is k times the mean of the first and the last. An event costs O(log n) for n requests that decode there.

use crate::discipline::Refusal;
use crate::llm::{
    BLOCK, Iteration, Leave, LlmFleet, ReplicaState, Sequence, Stage, TokenDiscipline, TokenMoment,
    TokenTally,
};
use crate::request::{RequestId, Server, Trace};
use crate::simulate::Fault;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use trainyard_types::{Span, Time};

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    End { server: u32, version: u32 },
    Moved { request: u32, to: u32 },
}

/// What runs on a GPU.
#[derive(Clone, Debug, Default)]
struct Run {
    version: u32,
    began: Time,
    /// Microseconds before the first step: caches that come and go.
    ahead: f64,
    steps: u64,
    chunks: Vec<(RequestId, u32)>,
    decode: bool,
    /// Microseconds of the first and the last step.
    pace: (f64, f64),
    is_cut: bool,
}

struct World<'a> {
    fleet: &'a LlmFleet,
    trace: &'a Trace,
    now: Time,
    arrived: usize,
    sequences: Vec<Sequence>,
    replicas: Vec<ReplicaState>,
    runs: Vec<Run>,
    /// By GPU, requests that decode by the step that is their last.
    ends: Vec<BTreeSet<(u64, u32)>>,
    /// By GPU, when those that decode made their last token, and those that made another since.
    last: Vec<(Time, Vec<Time>)>,
    events: BinaryHeap<Reverse<(Time, Event)>>,
    waiting: u64,
    tally: TokenTally,
}

/// Decodes that are taken together at most.
const STEPS_MAX: u64 = 1 << 16;

/// Runs a trace to its end. `progress` is told the number of requests that came, now and then.
pub fn simulate_tokens(
    fleet: &LlmFleet,
    trace: &Trace,
    discipline: &mut dyn TokenDiscipline,
    progress: &mut dyn FnMut(usize),
) -> Result<TokenTally, Fault> {
    let mut world = World::new(fleet, trace);
    loop {
        let arrival = trace.requests.get(world.arrived).map(|request| request.arrived);
        let event = world.events.peek().map(|Reverse((time, _))| *time);
        match (arrival, event) {
            (None, None) => break,
            (Some(arrival), event) if event.is_none_or(|event| arrival < event) => {
                world.now = arrival;
                world.arrive(discipline)?;
                if world.arrived.is_multiple_of(4096) {
                    progress(world.arrived);
                }
            }
            _ => world.event(discipline)?,
        }
    }
    world.tally.whole.finish(world.now, world.waiting);
    world.tally.finish();
    Ok(world.tally)
}

impl<'a> World<'a> {
    fn new(fleet: &'a LlmFleet, trace: &'a Trace) -> World<'a> {
        let servers = fleet.servers as usize;
        World {
            fleet,
            trace,
            now: Time::ZERO,
            arrived: 0,
            sequences: Vec::with_capacity(trace.requests.len()),
            replicas: vec![ReplicaState::default(); servers],
            runs: vec![Run::default(); servers],
            ends: vec![BTreeSet::new(); servers],
            last: vec![(Time::ZERO, Vec::new()); servers],
            events: BinaryHeap::new(),
            waiting: 0,
            tally: TokenTally::new(servers),
        }
    }

    fn moment(&self) -> TokenMoment<'_> {
        TokenMoment {
            now: self.now,
            fleet: self.fleet,
            requests: &self.trace.requests[..self.arrived],
            sequences: &self.sequences,
            replicas: &self.replicas,
        }
    }

    fn arrive(&mut self, discipline: &mut dyn TokenDiscipline) -> Result<(), Fault> {
        let id = RequestId(self.arrived as u32);
        let request = self.trace.requests[id.index()];
        let output = self.trace.outputs[id.index()].clamp(1, request.output_max.max(1));
        self.arrived += 1;
        self.sequences.push(Sequence {
            stage: Stage::Waiting,
            context: 0,
            generated: 0,
            since: 0,
            shared: 0,
            output,
            first: Time::NEVER,
            server: 0,
        });
        self.tally.whole.arrived(&request);
        self.waiting += 1;
        if self.waiting > u64::from(self.fleet.waiting_max) {
            self.refuse(id, Refusal::Full);
            return Ok(());
        }
        self.tally.whole.waiting_peak = self.tally.whole.waiting_peak.max(self.waiting);
        match discipline.arrived(&self.moment(), id) {
            None => self.refuse(id, Refusal::Impossible),
            Some(server) if !self.replicas[server.index()].runs => self.next(discipline, server)?,
            Some(server) => {
                if discipline.interrupts(&self.moment(), server) {
                    self.cut(server);
                }
            }
        }
        Ok(())
    }

    fn refuse(&mut self, id: RequestId, why: Refusal) {
        self.sequences[id.index()].stage = Stage::Over;
        self.waiting -= 1;
        self.tally.whole.refused(&self.trace.requests[id.index()], why);
    }

    /// Lets a repetition of decodes end with the step that runs.
    fn cut(&mut self, server: Server) {
        let run = &mut self.runs[server.index()];
        if run.steps <= 1 || run.is_cut {
            return;
        }
        let passed = self.now.since(run.began).0 as f64 - run.ahead;
        // The first step that ends now or later; its time grows along a line, so a look at each half finds it.
        let (mut low, mut high) = (1, run.steps);
        while low < high {
            let middle = (low + high) / 2;
            if run.time(middle) >= passed { high = middle } else { low = middle + 1 }
        }
        let last = run.step(low);
        (run.steps, run.pace.1, run.is_cut) = (low, last, true);
        self.schedule(server);
    }

    fn schedule(&mut self, server: Server) {
        let run = &mut self.runs[server.index()];
        run.version = run.version.wrapping_add(1);
        let micros = run.ahead + run.time(run.steps);
        let end = run.began + Span((micros + 0.5) as u64);
        let event = Event::End { server: server.0, version: run.version };
        self.events.push(Reverse((end.max(self.now), event)));
    }

    fn event(&mut self, discipline: &mut dyn TokenDiscipline) -> Result<(), Fault> {
        let Some(Reverse((time, event))) = self.events.pop() else { return Ok(()) };
        match event {
            Event::End { server, version } => {
                if self.runs[server as usize].version == version {
                    self.now = time;
                    self.end(discipline, Server(server));
                    self.next(discipline, Server(server))?;
                }
            }
            Event::Moved { request, to } => {
                self.now = time;
                let sequence = &mut self.sequences[request as usize];
                let from = std::mem::replace(&mut sequence.server, to);
                let blocks = LlmFleet::blocks_for(sequence.context - sequence.shared);
                sequence.shared = 0;
                self.replicas[from as usize].used -= blocks;
                discipline.moved(&self.moment(), (Server(to), RequestId(request)));
                for server in [Server(to), Server(from)] {
                    if !self.replicas[server.index()].runs {
                        self.next(discipline, server)?;
                    } else if discipline.interrupts(&self.moment(), server) {
                        self.cut(server);
                    }
                }
            }
        }
        Ok(())
    }

    /// Books what an iteration did.
    fn end(&mut self, discipline: &mut dyn TokenDiscipline, server: Server) {
        let run = std::mem::take(&mut self.runs[server.index()]);
        self.runs[server.index()].version = run.version;
        self.replicas[server.index()].runs = false;
        self.tally.whole.busy_to(server, self.now);
        self.tally.iterations += run.steps;
        if run.decode {
            self.decoded(server, &run);
        }
        for (id, tokens) in &run.chunks {
            self.prefilled(discipline, server, *id, *tokens);
        }
        let steps = self.replicas[server.index()].steps;
        // Those whose last step this was.
        while let Some((end, id)) = self.ends[server.index()].first().copied() {
            if end > steps {
                break;
            }
            self.finish(discipline, server, RequestId(id));
        }
    }

    fn decoded(&mut self, server: Server, run: &Run) {
        let replica = &mut self.replicas[server.index()];
        let batch = u64::from(replica.batch);
        for step in 0..run.steps.min(u64::from(BLOCK)) {
            // Each block of steps is alike.
            let times = (run.steps - 1 - step) / u64::from(BLOCK) + 1;
            let at = ((replica.steps + step) % u64::from(BLOCK)) as usize;
            replica.used += replica.growth[at] * times as u32;
        }
        replica.steps += run.steps;
        replica.context += batch * run.steps;
        self.tally.tokens += batch * run.steps;
        let (last, fresh) = &mut self.last[server.index()];
        let first_end = run.began.0 as f64 + run.ahead + run.pace.0;
        let old = batch - (fresh.len() as u64).min(batch);
        self.tally.gap(first_end - last.0 as f64, old);
        for joined in fresh.drain(..) {
            self.tally.gap(first_end - joined.0 as f64, 1);
        }
        *last = self.now;
        if run.steps > 1 {
            // The gaps lie on a line between the first and the last; a few of them stand for all.
            let parts = (run.steps - 1).min(4);
            for part in 0..parts {
                let share = (run.steps - 1) / parts + u64::from(part < (run.steps - 1) % parts);
                let at = (part as f64 + 0.5) / parts as f64;
                self.tally.gap(run.pace.0 + (run.pace.1 - run.pace.0) * at, share * batch);
            }
        }
    }

    fn prefilled(
        &mut self,
        discipline: &mut dyn TokenDiscipline,
        server: Server,
        id: RequestId,
        tokens: u32,
    ) {
        self.sequences[id.index()].context += tokens;
        self.tally.computed += u64::from(tokens);
        if self.moment().left(id) > 0 {
            return;
        }
        let (now, request) = (self.now, self.trace.requests[id.index()]);
        let sequence = &mut self.sequences[id.index()];
        if sequence.generated == 0 {
            // The last token of the prompt gives the first of the answer.
            sequence.generated = 1;
            sequence.first = now;
            self.tally.tokens += 1;
            let first = now.since(request.arrived).0;
            self.tally.first.push(first);
            self.tally.first_of.entry(request.priority).or_default().push(first);
        }
        if sequence.generated >= sequence.output {
            sequence.stage = Stage::Decode;
            let replica = &mut self.replicas[server.index()];
            sequence.since = replica.steps;
            self.join(server, id);
            self.finish(discipline, server, id);
            // It never made a token beside the others.
            self.last[server.index()].1.pop();
            return;
        }
        match discipline.prefilled(&self.moment(), (server, id)) {
            Some(to) if to != server => {
                let sequence = &mut self.sequences[id.index()];
                sequence.stage = Stage::Moved;
                let micros = f64::from(sequence.context) * self.fleet.move_us;
                let event = Event::Moved { request: id.0, to: to.0 };
                self.events.push(Reverse((now + Span((micros + 0.5) as u64), event)));
            }
            _ => self.join(server, id),
        }
    }

    /// A request whose context is in the cache decodes from now on.
    fn join(&mut self, server: Server, id: RequestId) {
        let replica = &mut self.replicas[server.index()];
        let sequence = &mut self.sequences[id.index()];
        (sequence.stage, sequence.since) = (Stage::Decode, replica.steps);
        let left = u64::from(sequence.output - sequence.generated);
        replica.batch += 1;
        replica.context += u64::from(sequence.context);
        replica.growth[phase(sequence)] += 1;
        self.ends[server.index()].insert((replica.steps + left, id.0));
        self.last[server.index()].1.push(self.now);
    }

    /// A request decodes no longer; its counts are brought up to date.
    fn part(&mut self, server: Server, id: RequestId) {
        let replica = &mut self.replicas[server.index()];
        let sequence = &mut self.sequences[id.index()];
        let left = u64::from(sequence.output - sequence.generated);
        self.ends[server.index()].remove(&(sequence.since + left, id.0));
        replica.growth[phase(sequence)] -= 1;
        let made = (replica.steps - sequence.since) as u32;
        sequence.context += made;
        sequence.generated += made;
        replica.batch -= 1;
        replica.context -= u64::from(sequence.context);
    }

    fn finish(&mut self, discipline: &mut dyn TokenDiscipline, server: Server, id: RequestId) {
        self.part(server, id);
        let request = self.trace.requests[id.index()];
        let sequence = &mut self.sequences[id.index()];
        sequence.stage = Stage::Over;
        self.replicas[server.index()].used -=
            LlmFleet::blocks_for(sequence.context - sequence.shared);
        let first = sequence.first.since(request.arrived);
        let further = u64::from(sequence.generated - 1);
        let pace = self.now.since(sequence.first).0 / further.max(1);
        if further > 0 {
            self.tally.pace.push(pace);
        }
        let in_time = first <= self.fleet.slo_first && pace <= self.fleet.slo_token.0;
        let deadline = if in_time { request.deadline } else { Time::ZERO };
        self.tally.whole.answered(&crate::Request { deadline, ..request }, self.now);
        discipline.finished(&self.moment(), server, id);
    }

    /// Asks what is next on a GPU and begins it.
    fn next(&mut self, discipline: &mut dyn TokenDiscipline, server: Server) -> Result<(), Fault> {
        let mut out = Iteration::default();
        discipline.next(&self.moment(), server, &mut out);
        for id in std::mem::take(&mut out.refuse) {
            self.expect(server, id, &[Stage::Waiting])?;
            self.refuse(id, Refusal::Impossible);
        }
        let mut ahead = 0.0;
        for (id, how) in std::mem::take(&mut out.leave) {
            ahead += self.leave(server, id, how)?;
        }
        if let Some(held) = out.hold {
            self.replicas[server.index()].held = held;
        }
        for (id, cached) in std::mem::take(&mut out.admit) {
            ahead += self.admit(server, id, cached)?;
        }
        let (mut new, mut attention) = (0, 0.0);
        for (id, tokens) in &out.chunks {
            self.expect(server, *id, &[Stage::Prefill])?;
            if *tokens == 0 || *tokens > self.moment().left(*id) {
                return Err(self.fault(server, format!("{tokens} tokens of request {}", id.0)));
            }
            let sequence = &self.sequences[id.index()];
            let before = LlmFleet::blocks_for(sequence.context - sequence.shared);
            let after = LlmFleet::blocks_for(sequence.context - sequence.shared + tokens);
            self.replicas[server.index()].used += after - before;
            new += tokens;
            attention +=
                self.fleet.model.attention(f64::from(*tokens), f64::from(sequence.context));
        }
        self.begin(server, out, (new, attention, ahead))
    }

    fn begin(
        &mut self,
        server: Server,
        out: Iteration,
        (new, attention, ahead): (u32, f64, f64),
    ) -> Result<(), Fault> {
        let model = &self.fleet.model;
        let replica = &self.replicas[server.index()];
        let decode = out.decode && replica.batch > 0;
        if new == 0 && !decode {
            return Ok(());
        }
        let steps = match (decode, new) {
            (true, 0) => {
                let next = self.ends[server.index()].first().map_or(replica.steps, |(end, _)| *end);
                (next - replica.steps).min(self.room(server)).min(STEPS_MAX)
            }
            _ => 1,
        };
        let grows =
            if decode { replica.growth[(replica.steps % u64::from(BLOCK)) as usize] } else { 0 };
        let taken = replica.used + replica.held + grows;
        if steps == 0 || taken > self.fleet.blocks {
            return Err(self.fault(server, format!("{taken} blocks of {}", self.fleet.blocks)));
        }
        let batch = if decode { replica.batch } else { 0 };
        let mean = replica.context as f64 / f64::from(batch.max(1));
        let first = model.iteration(new, attention, batch, mean);
        let last = match steps {
            1 => first,
            _ => model.iteration(0, 0.0, batch, mean + (steps - 1) as f64),
        };
        let version = self.runs[server.index()].version;
        let (began, pace) = (self.now, (first, last));
        let chunks = out.chunks;
        self.runs[server.index()] =
            Run { version, began, ahead, steps, chunks, decode, pace, is_cut: false };
        self.replicas[server.index()].runs = true;
        self.tally.whole.launched(batch, decode);
        self.tally.whole.busy_from(server, self.now);
        self.schedule(server);
        Ok(())
    }

    /// Decodes for which there are blocks. O(block).
    fn room(&self, server: Server) -> u64 {
        let replica = &self.replicas[server.index()];
        let free = u64::from(self.fleet.blocks.saturating_sub(replica.used + replica.held));
        let each = u64::from(replica.batch);
        // In as many steps as a block has tokens, each request takes one.
        let (whole, mut left) = (free / each.max(1), free % each.max(1));
        for step in 0..u64::from(BLOCK) {
            let grows =
                u64::from(replica.growth[((replica.steps + step) % u64::from(BLOCK)) as usize]);
            if grows > left {
                return whole * u64::from(BLOCK) + step;
            }
            left -= grows;
        }
        (whole + 1) * u64::from(BLOCK)
    }

    /// Microseconds until a request has left.
    fn leave(&mut self, server: Server, id: RequestId, how: Leave) -> Result<f64, Fault> {
        self.expect(server, id, &[Stage::Prefill, Stage::Decode])?;
        if self.sequences[id.index()].stage == Stage::Decode {
            self.part(server, id);
        }
        let sequence = &mut self.sequences[id.index()];
        self.replicas[server.index()].used -=
            LlmFleet::blocks_for(sequence.context - sequence.shared);
        self.tally.evictions += 1;
        self.waiting += 1;
        let context = f64::from(sequence.context);
        sequence.shared = 0;
        match how {
            Leave::Swap => sequence.stage = Stage::Swapped,
            Leave::Recompute => (sequence.stage, sequence.context) = (Stage::Waiting, 0),
        }
        Ok(if how == Leave::Swap { context * self.fleet.swap_us } else { 0.0 })
    }

    /// Microseconds until a request is there.
    fn admit(&mut self, server: Server, id: RequestId, cached: u32) -> Result<f64, Fault> {
        self.expect(server, id, &[Stage::Waiting, Stage::Swapped, Stage::Moved])?;
        let sequence = &mut self.sequences[id.index()];
        let stage = std::mem::replace(&mut sequence.stage, Stage::Prefill);
        sequence.server = server.0;
        if stage != Stage::Moved {
            self.waiting -= 1;
        }
        match stage {
            Stage::Waiting => {
                (sequence.context, sequence.shared) = (cached, cached);
                self.tally.reused += u64::from(cached);
                Ok(0.0)
            }
            _ => {
                self.replicas[server.index()].used += LlmFleet::blocks_for(sequence.context);
                let came = if stage == Stage::Swapped { f64::from(sequence.context) } else { 0.0 };
                if self.moment().left(id) == 0 {
                    self.join(server, id);
                }
                Ok(came * self.fleet.swap_us)
            }
        }
    }

    fn expect(&self, server: Server, id: RequestId, stages: &[Stage]) -> Result<(), Fault> {
        let found = self.sequences.get(id.index());
        let is_right = found.is_some_and(|one| {
            let here =
                matches!(one.stage, Stage::Waiting | Stage::Swapped) || one.server == server.0;
            stages.contains(&one.stage) && here
        });
        let stage = found.map(|one| one.stage);
        if is_right {
            Ok(())
        } else {
            Err(self.fault(server, format!("request {} is {stage:?}", id.0)))
        }
    }

    fn fault(&self, server: Server, what: String) -> Fault {
        Fault { at: self.now, server, what }
    }
}

/// The step, modulo a block, at which a request that begins to decode as it is takes its next block.
fn phase(sequence: &Sequence) -> usize {
    let own = u64::from(sequence.context - sequence.shared);
    let block = u64::from(BLOCK);
    ((sequence.since % block + block - own % block) % block) as usize
}

impl Run {
    /// Microseconds of the first so many steps.
    fn time(&self, steps: u64) -> f64 {
        steps as f64 * (self.pace.0 + self.step(steps)) / 2.0
    }

    /// Microseconds of a step, counted from 1.
    fn step(&self, step: u64) -> f64 {
        match self.steps {
            0 | 1 => self.pace.0,
            all => self.pace.0 + (self.pace.1 - self.pace.0) * (step - 1) as f64 / (all - 1) as f64,
        }
    }
}
