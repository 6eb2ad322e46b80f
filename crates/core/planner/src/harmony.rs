//! Harmony: training a model that is larger than the memory of one machine's devices (HotOS 2021, VLDB 2022).
//!
//! Layers are joined to packs that are bound to a device only when they run; all micro-batches of a pack run before the
//! next, so that its weights come from the host once, and they are updated as soon as their gradients are there.

use crate::registry::{Level, PlannerEntry, Problem};
use crate::simulate::{Discipline, Purpose, Run, Simulation, Task, Work, simulate};
use crate::{Chain, DeviceGraph, PlanError};

/// The row in the table of planners.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "harmony",
    about: "packs of layers swapped between host and devices of one machine, for models larger than its memory",
    paper: "Li, Phanishayee, Murray, Tarnawski, Kim, Harmony: Overcoming the Hurdles of GPU Memory Capacity to Train Massive DNN Models, VLDB 2022",
    level: Level::OperatorSet,
    partial: "weights are swapped and activations are not; no separate packs and micro-batches for the two passes",
    problem: Problem::Stated {
        what: "training by swaps on one machine",
        solve: crate::stated::solve_harmony,
        example: crate::stated::HARMONY,
    },
};

/// A way to train by swaps.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// Memory that is paged under data parallelism: every pass of every micro-batch swaps.
    Paged,
    /// Harmony with a copy of the model for each device.
    DataParallel,
    /// Harmony with packs going round the devices.
    WrapAround,
}

impl Form {
    /// Bytes of weights swapped in an iteration of `micro_batches` on each of `devices`: `(4 m + 2) N W`, `3 N W` and
    /// `3 W`.
    pub fn swapped(self, weights: f64, devices: u32, micro_batches: u32) -> f64 {
        match self {
            Form::Paged => (4.0 * f64::from(micro_batches) + 2.0) * f64::from(devices) * weights,
            Form::DataParallel => 3.0 * f64::from(devices) * weights,
            Form::WrapAround => 3.0 * weights,
        }
    }
}

/// A form with its packs, simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct SwapPlan {
    /// The form.
    pub form: Form,
    /// Layers of each pack, `from..to`.
    pub packs: Vec<(usize, usize)>,
    /// Seconds of an iteration.
    pub seconds: f64,
    /// Bytes between host and devices.
    pub swapped_bytes: f64,
}

/// The best plan of a form for `micro_batches` on each device of one machine: packs of equal time, as few as fit and up
/// to three times as many.
pub fn plan(
    chain: &Chain,
    devices: &DeviceGraph,
    form: Form,
    micro_batches: u32,
) -> Result<SwapPlan, PlanError> {
    if devices.machines() != 1 || chain.layers.is_empty() || micro_batches == 0 {
        let reason = "it trains on one machine, with a layer and a micro-batch at least".to_owned();
        return Err(PlanError::NotFor { planner: ENTRY.name, reason });
    }
    let memory = devices.devices.iter().map(|one| one.memory_bytes).fold(f64::INFINITY, f64::min);
    // Two packs at a time, each with its weights and gradients.
    let room = memory / 2.0;
    for layer in &chain.layers {
        let needed = 2.0 * layer.parameter_bytes;
        if needed > room {
            let operator = layer.name.clone();
            return Err(PlanError::FitsNoDevice { operator, needed, largest: room });
        }
    }
    let fits = |count: usize| {
        let packs = packs(chain, count);
        let bytes = |pack: &(usize, usize)| {
            chain.layers[pack.0..pack.1].iter().map(|one| 2.0 * one.parameter_bytes).sum::<f64>()
        };
        packs.iter().all(|pack| bytes(pack) <= room).then_some(packs)
    };
    let layers = chain.layers.len();
    let fewest = (1..=layers).find(|count| fits(*count).is_some()).unwrap_or(layers);
    let mut best: Option<SwapPlan> = None;
    for packs in (fewest..=(3 * fewest).min(layers)).filter_map(fits) {
        let builder = Builder { chain, devices, packs: &packs, tasks: Vec::new() };
        let (tasks, run) = builder.run(form, micro_batches)?;
        let swapped =
            tasks.iter().filter(|task| matches!(task.purpose, Purpose::SwapIn | Purpose::SwapOut));
        let bytes = swapped.map(|task| match task.work {
            Work::Bytes { bytes, .. } => bytes,
            Work::Seconds(_) => 0.0,
        });
        let swapped_bytes = bytes.sum();
        if best.as_ref().is_none_or(|best| run.seconds < best.seconds) {
            best = Some(SwapPlan { form, packs, seconds: run.seconds, swapped_bytes });
        }
    }
    Ok(best.expect("a pack for each layer fits"))
}

/// So many packs of about equal time, each with a layer at least.
fn packs(chain: &Chain, count: usize) -> Vec<(usize, usize)> {
    let time = |at: usize| chain.layers[at].forward + chain.layers[at].backward;
    let layers = chain.layers.len();
    let total: f64 = (0..layers).map(time).sum();
    let (mut packs, mut from, mut passed) = (Vec::with_capacity(count), 0, 0.0);
    for at in 0..layers {
        passed += time(at);
        let open = count - packs.len();
        let must = layers - at - 1 < open;
        let due = passed * count as f64 >= total * (packs.len() + 1) as f64;
        if open > 1 && (due || must) {
            packs.push((from, at + 1));
            from = at + 1;
        }
    }
    packs.push((from, layers));
    packs
}

/// The lanes of a device.
const LANES: u32 = 3;
const COMPUTE: u32 = 0;
const IN: u32 = 1;
const OUT: u32 = 2;

struct Builder<'a> {
    chain: &'a Chain,
    devices: &'a DeviceGraph,
    packs: &'a [(usize, usize)],
    tasks: Vec<Task>,
}

impl Builder<'_> {
    fn run(mut self, form: Form, micros: u32) -> Result<(Vec<Task>, Run), PlanError> {
        let count = self.devices.devices.len();
        match form {
            Form::Paged => (0..count).for_each(|device| self.paged(device, micros)),
            Form::DataParallel => self.data_parallel(micros),
            Form::WrapAround => self.wrap_around(micros * count as u32),
        }
        let what = Simulation {
            lanes: vec![Discipline::Program; LANES as usize * count],
            links: self.devices.links.iter().map(|link| link.bytes_per_second).collect(),
            held_bytes: vec![0.0; count],
            tasks: self.tasks,
        };
        let run = simulate(&what)?;
        Ok((what.tasks, run))
    }

    fn add(
        &mut self,
        purpose: Purpose,
        of: (usize, u32),
        lane: Option<u32>,
        work: Work,
        after: Vec<u32>,
    ) -> u32 {
        let rank = self.tasks.len() as u64;
        let of = (of.0 as u32, of.1);
        let (takes, leaves) = (Vec::new(), Vec::new());
        self.tasks.push(Task { purpose, of, lane, rank, work, after, takes, leaves });
        rank as u32
    }

    fn swap(&mut self, purpose: Purpose, device: usize, pack: usize, after: Vec<u32>) -> u32 {
        let (from, to) = self.packs[pack];
        let bytes = self.chain.layers[from..to].iter().map(|one| one.parameter_bytes).sum();
        let (from_host, to_host) = self.devices.host_links(device);
        let (lane, link) =
            if purpose == Purpose::SwapIn { (IN, from_host) } else { (OUT, to_host) };
        let work = Work::Bytes { bytes, route: vec![link], rate_max: f64::INFINITY, latency: 0.0 };
        self.add(purpose, (pack, 0), Some(LANES * device as u32 + lane), work, after)
    }

    fn pass(&mut self, purpose: Purpose, device: usize, of: (usize, u32), after: Vec<u32>) -> u32 {
        let (from, to) = self.packs[of.0];
        let layers = self.chain.layers[from..to].iter();
        let seconds: f64 = match purpose {
            Purpose::Forward => layers.map(|one| one.forward).sum(),
            Purpose::Backward => layers.map(|one| one.backward).sum(),
            _ => 0.0,
        };
        let work = Work::Seconds(seconds / self.devices.devices[device].speed);
        self.add(purpose, of, Some(LANES * device as u32 + COMPUTE), work, after)
    }

    /// Every pass brings the weights in and takes them out again, and so does the update.
    fn paged(&mut self, device: usize, micros: u32) {
        let count = self.packs.len();
        let mut last: Vec<u32> = Vec::new();
        let mut steps: Vec<(Purpose, usize, u32)> = Vec::new();
        for micro in 0..micros {
            steps.extend((0..count).map(|pack| (Purpose::Forward, pack, micro)));
            steps.extend((0..count).rev().map(|pack| (Purpose::Backward, pack, micro)));
        }
        steps.extend((0..count).map(|pack| (Purpose::Update, pack, micros)));
        for (purpose, pack, micro) in steps {
            let came = self.swap(Purpose::SwapIn, device, pack, last);
            let done = self.pass(purpose, device, (pack, micro), vec![came]);
            last = vec![self.swap(Purpose::SwapOut, device, pack, vec![done])];
        }
    }

    /// A copy on each device: packs come in beside the one before, and gradients are made equal pack by pack.
    fn data_parallel(&mut self, micros: u32) {
        let all: Vec<usize> = (0..self.devices.devices.len()).collect();
        let count = self.packs.len();
        // When each device was done with the packs so far.
        let mut done: Vec<Vec<u32>> = vec![Vec::new(); all.len()];
        for (purpose, pack) in (0..count)
            .map(|pack| (Purpose::Forward, pack))
            .chain((0..count).rev().map(|pack| (Purpose::Backward, pack)))
        {
            let mut ends = Vec::new();
            for device in &all {
                let before = done[*device].iter().rev().nth(1).copied().into_iter().collect();
                let mut last = self.swap(Purpose::SwapIn, *device, pack, before);
                for micro in 0..micros {
                    last = self.pass(purpose, *device, (pack, micro), vec![last]);
                }
                done[*device].push(last);
                ends.push(last);
            }
            if purpose == Purpose::Backward {
                let equal = self.synchronise(&all, pack, ends);
                for device in &all {
                    let updated = self.pass(Purpose::Update, *device, (pack, micros), vec![equal]);
                    let out = self.swap(Purpose::SwapOut, *device, pack, vec![updated]);
                    *done[*device].last_mut().expect("a pass was added") = out;
                }
            }
        }
    }

    fn synchronise(&mut self, all: &[usize], pack: usize, after: Vec<u32>) -> u32 {
        let (from, to) = self.packs[pack];
        let bytes: f64 = self.chain.layers[from..to].iter().map(|one| one.parameter_bytes).sum();
        let moved = 2.0 * (all.len() as f64 - 1.0) / all.len() as f64 * bytes;
        let route = if all.len() > 1 { self.devices.ring(all) } else { Vec::new() };
        let work = Work::Bytes { bytes: moved, route, rate_max: f64::INFINITY, latency: 0.0 };
        self.add(Purpose::Synchronise, (pack, 0), None, work, after)
    }

    /// Packs go round the devices; every micro-batch passes all packs, from device to device.
    fn wrap_around(&mut self, micros: u32) {
        let devices = self.devices.devices.len();
        let count = self.packs.len();
        let mut done: Vec<Vec<u32>> = vec![Vec::new(); devices];
        let mut arrived: Vec<Option<u32>> = vec![None; micros as usize];
        let mut before = None;
        for (purpose, pack) in (0..count)
            .map(|pack| (Purpose::Forward, pack))
            .chain((0..count).rev().map(|pack| (Purpose::Backward, pack)))
        {
            let device = pack % devices;
            let room = done[device].iter().rev().nth(1).copied().into_iter().collect();
            let came = self.swap(Purpose::SwapIn, device, pack, room);
            let mut last = came;
            for micro in 0..micros {
                let input = arrived[micro as usize];
                let input = input.map(|made| self.hand_over((before, device), (pack, micro), made));
                let after = [Some(came), input].into_iter().flatten().collect();
                last = self.pass(purpose, device, (pack, micro), after);
                arrived[micro as usize] = Some(last);
            }
            if purpose == Purpose::Backward {
                let updated = self.pass(Purpose::Update, device, (pack, micros), vec![last]);
                last = self.swap(Purpose::SwapOut, device, pack, vec![updated]);
            }
            done[device].push(last);
            before = Some(device);
        }
    }

    fn hand_over(
        &mut self,
        (from, to): (Option<usize>, usize),
        of: (usize, u32),
        made: u32,
    ) -> u32 {
        let Some(from) = from.filter(|from| *from != to) else { return made };
        let at = self.packs[of.0].0.saturating_sub(1);
        let bytes = self.chain.layers[at].out_bytes;
        let route = self.devices.route(from, to);
        let work = Work::Bytes { bytes, route, rate_max: f64::INFINITY, latency: 0.0 };
        self.add(Purpose::Transfer, of, None, work, vec![made])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::{KindFigures, LinkSpeeds};
    use crate::graph::Layer;

    /// Twelve layers of 1 GB on four devices of 11 GB.
    fn machine(host: f64) -> (Chain, DeviceGraph) {
        let layer = |index: usize| Layer {
            name: format!("l{index}"),
            forward: 0.05,
            backward: 0.1,
            parameter_bytes: 1e9,
            activation_bytes: 1e7,
            out_bytes: 1e7,
        };
        let layers = (0..12).map(layer).collect();
        let (name, measured_on) = ("big".to_owned(), "rtx2080ti".to_owned());
        let chain = Chain { name, measured_on, batch: 1, layers };
        let figures = KindFigures { speed: 1.0, memory_bytes: 11e9, peak_flops: 5e13 };
        let speeds = LinkSpeeds {
            inside: 12e9,
            network: 1e9,
            between_two: f64::INFINITY,
            host,
            latency: 0.0,
        };
        (chain, DeviceGraph::uniform((1, 4), "rtx2080ti", figures, &speeds))
    }

    #[test]
    fn bytes_that_are_swapped_are_those_of_the_formulas() {
        let (chain, devices) = machine(12e9);
        for micros in [1, 2, 4] {
            for form in [Form::Paged, Form::DataParallel, Form::WrapAround] {
                let plan = plan(&chain, &devices, form, micros).unwrap();
                let formula = form.swapped(12e9, 4, micros);
                assert!((plan.swapped_bytes / formula - 1.0).abs() < 1e-9, "{form:?} {micros}");
            }
        }
    }

    #[test]
    fn paging_is_slowest_and_a_slow_host_favours_packs_that_go_round() {
        let seconds = |host: f64, form: Form| {
            let (chain, devices) = machine(host);
            plan(&chain, &devices, form, 4).unwrap().seconds
        };
        for host in [2e9, 12e9] {
            assert!(seconds(host, Form::Paged) > seconds(host, Form::DataParallel));
        }
        assert!(seconds(1e9, Form::WrapAround) < seconds(1e9, Form::DataParallel));
    }

    #[test]
    fn a_layer_that_fits_no_device_is_named() {
        let (mut chain, devices) = machine(12e9);
        chain.layers[3].parameter_bytes = 1e10;
        let error = plan(&chain, &devices, Form::WrapAround, 1).unwrap_err().to_string();
        assert!(error.contains("`l3`"), "{error}");
    }

    #[test]
    fn packs_hold_every_layer_once() {
        let (chain, _) = machine(1e9);
        for count in 1..=12 {
            let packs = packs(&chain, count);
            assert_eq!(packs.len(), count);
            assert_eq!((packs[0].0, packs[count - 1].1), (0, 12));
            assert!(packs.windows(2).all(|pair| pair[0].1 == pair[1].0));
            assert!(packs.iter().all(|pack| pack.0 < pack.1));
        }
    }
}
