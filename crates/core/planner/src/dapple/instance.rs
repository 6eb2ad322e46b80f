//! What DAPPLE's planner computes with: layers by prefix sums, stages on devices, and the latency of a plan.

use crate::pipeline::{Chunk, Move, Pipeline};
use crate::schedule::Schedule;
use crate::{Chain, DeviceGraph, PlanError, Request};

/// What may be set.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Layers with less than this share of time and of parameters are joined to a neighbour.
    pub join_share: f64,
    /// The ratio of communication to computation from which the wide early backward is used.
    pub wide_from: f64,
    /// Stages of a plan that the dynamic program looks at; all published plans have one, two, or one for each device.
    pub stages_max: usize,
    /// Whether what passes from one machine to another is one transfer, as in the public planner of the authors, or one
    /// for each pair of devices, side by side.
    pub is_one_stream: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { join_share: 0.002, wide_from: 0.2, stages_max: 2, is_one_stream: false }
    }
}

/// One stage: layers `from..to` on devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its first layer.
    pub from: usize,
    /// One past its last layer.
    pub to: usize,
    /// Its devices, ascending.
    pub devices: Vec<usize>,
}

/// A chain to be planned on devices. Times and bytes of layers are for one sample.
pub struct Instance<'a> {
    /// The layers.
    pub chain: &'a Chain,
    /// The devices.
    pub devices: &'a DeviceGraph,
    /// Devices of each machine.
    pub machines: Vec<Vec<usize>>,
    /// Samples of an iteration.
    pub batch: u32,
    /// What may be set.
    pub settings: Settings,
    state_factor: f64,
    forward: Vec<f64>,
    backward: Vec<f64>,
    parameters: Vec<f64>,
    kept: Vec<f64>,
}

impl<'a> Instance<'a> {
    /// Refuses a batch that the profile's does not divide, and layers that fit no device.
    pub fn new(
        chain: &'a Chain,
        request: &Request<'a>,
        settings: &Settings,
    ) -> Result<Instance<'a>, PlanError> {
        if request.devices.devices.is_empty() {
            return Err(PlanError::Empty("the devices".to_owned()));
        }
        if !request.batch.is_multiple_of(chain.batch) || request.batch == 0 {
            return Err(PlanError::Indivisible {
                what: "the batch".to_owned(),
                whole: u64::from(request.batch),
                by: format!("the samples that `{}` was measured with", chain.name),
                parts: u64::from(chain.batch),
            });
        }
        let largest =
            request.devices.devices.iter().map(|one| one.memory_bytes).fold(0.0, f64::max);
        for layer in &chain.layers {
            let needed = request.state_factor * layer.parameter_bytes;
            if needed > largest {
                let operator = layer.name.clone();
                return Err(PlanError::FitsNoDevice { operator, needed, largest });
            }
        }
        let samples = f64::from(chain.batch);
        let sums = |of: &dyn Fn(&crate::Layer) -> f64| {
            let mut sum = 0.0;
            let mut sums = vec![0.0];
            sums.extend(chain.layers.iter().map(|layer| {
                sum += of(layer);
                sum
            }));
            sums
        };
        Ok(Instance {
            chain,
            devices: request.devices,
            machines: request.devices.by_machine(),
            batch: request.batch,
            settings: settings.clone(),
            state_factor: request.state_factor,
            forward: sums(&|layer| layer.forward / samples),
            backward: sums(&|layer| layer.backward / samples),
            parameters: sums(&|layer| layer.parameter_bytes),
            kept: sums(&|layer| layer.activation_bytes / samples),
        })
    }

    /// The number of layers.
    pub fn layers(&self) -> usize {
        self.chain.layers.len()
    }

    /// Speed of several devices together.
    pub fn speed(&self, devices: &[usize]) -> f64 {
        devices.iter().map(|device| self.devices.devices[*device].speed).sum()
    }

    /// Seconds that layers take for one sample on a device of speed 1.
    pub fn work(&self, from: usize, to: usize) -> f64 {
        self.forward[to] - self.forward[from] + self.backward[to] - self.backward[from]
    }

    /// Seconds of a stage for one sample, forward and backward, spread over its devices by their speed.
    pub fn stage(&self, stage: &Placed) -> (f64, f64) {
        let speed = self.speed(&stage.devices);
        let sum = |sums: &[f64]| (sums[stage.to] - sums[stage.from]) / speed;
        (sum(&self.forward), sum(&self.backward))
    }

    /// What passes from one stage to the next for one sample: a flow for each pair of machines.
    ///
    /// Every sending device has its share of the samples and every receiving one needs its share, so the flow between
    /// two machines is the product of the shares; only what leaves a machine pays the network.
    pub fn moves(&self, from: &Placed, to: &Placed, samples: f64) -> Vec<Move> {
        let bytes =
            self.chain.layers[from.to - 1].out_bytes / f64::from(self.chain.batch) * samples;
        let shares = |stage: &Placed| {
            let all = self.speed(&stage.devices);
            let mut shares: Vec<Share> = Vec::new();
            for device in &stage.devices {
                let own = &self.devices.devices[*device];
                let known = shares.iter_mut().find(|one| one.machine == own.machine);
                match known {
                    Some(one) => {
                        (one.part, one.count) = (one.part + own.speed / all, one.count + 1.0)
                    }
                    None => shares.push(Share {
                        machine: own.machine,
                        first: *device,
                        part: own.speed / all,
                        count: 1.0,
                    }),
                }
            }
            shares
        };
        let (senders, receivers) = (shares(from), shares(to));
        let mut moves = Vec::new();
        for a in &senders {
            for b in &receivers {
                // Several devices send side by side, each within the limit of one transfer.
                let pairs = if self.settings.is_one_stream { 1.0 } else { a.count.min(b.count) };
                moves.push(Move {
                    bytes: bytes * a.part * b.part,
                    route: self.devices.route(a.first, b.first),
                    rate_max: pairs * self.devices.rate_max(a.first, b.first),
                    latency: self.devices.latency,
                });
            }
        }
        moves
    }

    /// Seconds of these moves side by side.
    pub fn transfer(&self, moves: &[Move]) -> f64 {
        let mut load = std::collections::BTreeMap::new();
        let mut longest: f64 = 0.0;
        for one in moves.iter().filter(|one| !one.route.is_empty()) {
            for link in &one.route {
                *load.entry(*link).or_insert(0.0) += one.bytes;
            }
            longest = longest.max(one.latency + one.bytes / one.rate_max);
        }
        let links = load
            .iter()
            .map(|(link, bytes)| bytes / self.devices.links[*link as usize].bytes_per_second);
        links.fold(longest, f64::max)
    }

    /// Seconds to make the gradients of a stage equal: in one ring, or in levels where that is less.
    pub fn synchronise(&self, stage: &Placed, in_levels: bool) -> f64 {
        let bytes = self.parameters[stage.to] - self.parameters[stage.from];
        match in_levels {
            true => self.devices.all_reduce_in_levels(&stage.devices, bytes),
            false => self.devices.all_reduce(&stage.devices, bytes),
        }
    }

    /// Samples of a micro-batch: as many as were measured, or a multiple, so that each copy gets one at least.
    ///
    /// Nothing where no such multiple divides the batch.
    pub fn micro_batch(&self, stages: &[Placed]) -> Option<u32> {
        let widest = stages.iter().map(|stage| stage.devices.len()).max().unwrap_or(1) as u32;
        let multiples = (1..=self.batch / self.chain.batch).map(|times| times * self.chain.batch);
        multiples.filter(|micro| *micro >= widest).find(|micro| self.batch.is_multiple_of(*micro))
    }

    /// The latency of an iteration by the paper's formula (section 4.2), with transfers as stages of their own.
    ///
    /// `L = sum F up to Q + (M - 1)(F_Q + B_Q) + max over s of (AR_s +- backward passes between s and Q)`.
    pub fn latency(&self, stages: &[Placed]) -> f64 {
        let Some(micro) = self.micro_batch(stages) else { return f64::INFINITY };
        let samples = f64::from(micro);
        let mut rows: Vec<(f64, f64, f64)> = Vec::with_capacity(2 * stages.len());
        for (at, stage) in stages.iter().enumerate() {
            if at > 0 {
                let moved = self.transfer(&self.moves(&stages[at - 1], stage, samples));
                rows.push((moved, moved, 0.0));
            }
            let (forward, backward) = self.stage(stage);
            rows.push((forward * samples, backward * samples, self.synchronise(stage, false)));
        }
        latency_of(&rows, f64::from(self.batch / micro))
    }

    /// Ways to run a plan: whether gradients are synchronised in levels, and whether the early backward is wide.
    pub fn ways(&self, stages: &[Placed], is_paper: bool) -> Vec<(bool, bool)> {
        if is_paper {
            return vec![(false, self.exchange_ratio(stages) > self.settings.wide_from)];
        }
        let by_levels = |in_levels: bool| {
            stages.iter().map(|one| self.synchronise(one, in_levels)).fold(0.0, f64::max)
        };
        let in_levels = by_levels(true) < by_levels(false);
        match stages.len() {
            1 => vec![(in_levels, false)],
            _ => vec![(in_levels, false), (in_levels, true)],
        }
    }

    /// Seconds of transfers for each second of computing, at the worst boundary: the paper's ACR.
    fn exchange_ratio(&self, stages: &[Placed]) -> f64 {
        let Some(micro) = self.micro_batch(stages) else { return 0.0 };
        let samples = f64::from(micro);
        let ratio = |pair: &[Placed]| {
            let (forward, backward) = self.stage(&pair[0]);
            let moved = 2.0 * self.transfer(&self.moves(&pair[0], &pair[1], samples));
            moved / ((forward + backward) * samples).max(f64::MIN_POSITIVE)
        };
        stages.windows(2).map(ratio).fold(0.0, f64::max)
    }

    /// The plan as a pipeline; recomputes where it would not fit otherwise.
    pub fn pipeline(
        &self,
        stages: &[Placed],
        (in_levels, wide): (bool, bool),
    ) -> Result<Pipeline, PlanError> {
        let micro = self.micro_batch(stages).ok_or_else(|| PlanError::Indivisible {
            what: "the batch".to_owned(),
            whole: u64::from(self.batch),
            by: "micro-batches with a sample for each copy of a stage".to_owned(),
            parts: stages.iter().map(|one| one.devices.len() as u64).max().unwrap_or(1),
        })?;
        let mut lacking = None;
        for recompute in [false, true] {
            let chunks: Vec<Chunk> = (0..stages.len())
                .map(|at| self.chunk(stages, at, (f64::from(micro), recompute, in_levels)))
                .collect();
            match self.depth(&chunks, wide) {
                Ok(depth) => {
                    let schedule = Schedule::EarlyBackward { depth, wide };
                    return Ok(Pipeline { chunks, micro_batches: self.batch / micro, schedule });
                }
                Err(error) => lacking = Some(error),
            }
        }
        Err(lacking.expect("both ways were tried"))
    }

    /// How many micro-batches any stage may hold, so that each has room.
    fn depth(&self, chunks: &[Chunk], wide: bool) -> Result<u32, PlanError> {
        let mut depth = u32::MAX;
        for (at, chunk) in chunks.iter().enumerate() {
            let memory = |device: &usize| self.devices.devices[*device].memory_bytes;
            let capacity = chunk.devices.iter().map(memory).fold(f64::INFINITY, f64::min);
            let room = capacity - chunk.fixed_bytes - chunk.working_bytes;
            let held = room / chunk.kept_bytes.max(1.0);
            if held < 1.0 {
                let needed = chunk.fixed_bytes + chunk.working_bytes + chunk.kept_bytes;
                let what = format!("stage `{}`", chunk.name);
                return Err(PlanError::NoRoom { what, needed, capacity });
            }
            let left = (chunks.len() - at) as u32;
            let wanted = if wide { 2 * left - 1 } else { left };
            if held < f64::from(wanted) {
                depth = depth.min(held as u32);
            }
        }
        Ok(depth)
    }

    fn chunk(
        &self,
        stages: &[Placed],
        at: usize,
        (samples, recompute, in_levels): (f64, bool, bool),
    ) -> Chunk {
        let stage = &stages[at];
        let (forward, backward) = self.stage(stage);
        let speed = self.speed(&stage.devices);
        // The fastest device of a stage has the largest slice.
        let fastest = stage.devices.iter().map(|one| self.devices.devices[*one].speed);
        let slice = samples * fastest.fold(0.0, f64::max) / speed;
        let kept = (self.kept[stage.to] - self.kept[stage.from]) * slice;
        let input = match stage.from {
            0 => 0.0,
            from => self.chain.layers[from - 1].out_bytes / f64::from(self.chain.batch) * slice,
        };
        let (kept_bytes, working_bytes) = if recompute { (input, kept) } else { (kept, 0.0) };
        let again = if recompute { forward } else { 0.0 };
        let next = stages.get(at + 1);
        let layers = &self.chain.layers[stage.from..stage.to];
        let (first, last) = (&layers[0].name, &layers[layers.len() - 1].name);
        let name = |text: &str, end: bool| {
            let part = if end { text.split("..").last() } else { text.split("..").next() };
            part.unwrap_or(text).to_owned()
        };
        Chunk {
            name: format!("{} .. {}", name(first, false), name(last, true)),
            layers: layers.len() as u32,
            forward: forward * samples,
            backward: (backward + again) * samples,
            to_next: next.map_or(Vec::new(), |next| self.moves(stage, next, samples)),
            synchronise: self.rings(stage, in_levels),
            synchronise_seconds: 0.0,
            devices: stage.devices.clone(),
            fixed_bytes: self.state_factor
                * (self.parameters[stage.to] - self.parameters[stage.from]),
            kept_bytes,
            working_bytes,
        }
    }

    /// The rings that make the gradients of a stage equal, one after the other.
    fn rings(&self, stage: &Placed, in_levels: bool) -> Vec<Move> {
        let bytes = self.parameters[stage.to] - self.parameters[stage.from];
        let ring = |members: &[usize]| {
            let count = members.len() as f64;
            let steps = 2.0 * (count - 1.0);
            let latency = steps * self.devices.latency;
            let route = self.devices.ring(members);
            Move { bytes: steps / count * bytes, route, rate_max: f64::INFINITY, latency }
        };
        if stage.devices.len() < 2 {
            return Vec::new();
        }
        if !in_levels {
            return vec![ring(&stage.devices)];
        }
        let mut own: Vec<Vec<usize>> = vec![Vec::new(); self.machines.len()];
        stage.devices.iter().for_each(|one| own[self.devices.devices[*one].machine].push(*one));
        own.retain(|own| !own.is_empty());
        let heads: Vec<usize> = own.iter().map(|own| own[0]).collect();
        // Rings of several machines run side by side; the longest stands for them.
        let inner = own.iter().max_by_key(|own| own.len()).filter(|own| own.len() > 1);
        let inner = inner.map(|own| ring(own));
        inner.into_iter().chain((heads.len() > 1).then(|| ring(&heads))).collect()
    }

    /// The plan in a few words, such as `8:8, micro-batch 16`.
    pub fn summary(&self, stages: &[Placed], pipeline: &Pipeline) -> String {
        let widths: Vec<String> = stages.iter().map(|one| one.devices.len().to_string()).collect();
        let micro = self.batch / pipeline.micro_batches;
        let shape = match stages.len() {
            1 => format!("data parallel {}", widths[0]),
            count if stages.iter().all(|one| one.devices.len() == 1) => format!("straight {count}"),
            _ => widths.join(":"),
        };
        let recompute = pipeline.chunks.iter().any(|chunk| chunk.working_bytes > 0.0);
        format!("{shape}, micro-batch {micro}{}", if recompute { ", recompute all" } else { "" })
    }
}

/// What a machine has of a stage.
struct Share {
    machine: usize,
    first: usize,
    part: f64,
    count: f64,
}

/// The formula over rows of (forward, backward, synchronisation).
fn latency_of(rows: &[(f64, f64, f64)], micro_batches: f64) -> f64 {
    let block = |at: usize| (micro_batches - 1.0) * (rows[at].0 + rows[at].1);
    let mut pivot = rows.len() - 1;
    for at in (0..rows.len() - 1).rev() {
        let between: f64 = rows[at + 1..pivot].iter().map(|row| row.0 + row.1).sum();
        if block(at) > block(pivot) + between {
            pivot = at;
        }
    }
    let start: f64 = rows[..=pivot].iter().map(|row| row.0).sum();
    let backward = |from: usize, to: usize| rows[from..to].iter().map(|row| row.1).sum::<f64>();
    let ends = (0..rows.len()).map(|at| match at <= pivot {
        true => rows[at].2 + backward(at, pivot + 1),
        false => rows[at].2 - backward(pivot, at + 1),
    });
    start + block(pivot) + ends.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_of_equal_stages_is_that_of_a_pipeline() {
        let rows = vec![(1.0, 2.0, 0.0); 4];
        // (M + S - 1) (F + B).
        assert_eq!(latency_of(&rows, 8.0), 11.0 * 3.0);
        // Synchronisation of the first stage comes last, that of the last is hidden.
        let mut rows = rows;
        rows[3].2 = 5.0;
        assert_eq!(latency_of(&rows, 8.0), 33.0);
        rows[0].2 = 5.0;
        assert_eq!(latency_of(&rows, 8.0), 38.0);
    }
}
