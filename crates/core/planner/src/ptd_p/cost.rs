//! What a division of a transformer costs: compute, communication and memory by the formulas of the paper.

use crate::pipeline::{Chunk, Move, Pipeline};
use crate::schedule::Schedule;
use crate::transformer::{EFFICIENCY, Efficiency, STATE_BYTES};
use crate::{DeviceGraph, PlanError, Transformer};

/// The part of a port's rate that a ring of devices of one machine gets; fitted together with
/// [`crate::transformer::EFFICIENCY`].
pub const RING_SHARE: f64 = 0.93;

/// Bytes of a gradient that is synchronised.
const GRADIENT_BYTES: f64 = 4.0;

/// Equal machines of equal devices, as the cost formulas see them.
#[derive(Clone, Debug, PartialEq)]
pub struct Machines {
    /// Devices of all machines.
    pub devices: u32,
    /// Devices of one machine.
    pub per_machine: u32,
    /// Bytes a second of a ring inside a machine.
    pub inside: f64,
    /// Bytes a second of a machine's network, each way.
    pub network: f64,
    /// Memory of a device.
    pub memory_bytes: f64,
    /// Half-precision operations a second of a device.
    pub peak_flops: f64,
}

impl Machines {
    /// The machines of a graph, if they are equal.
    pub fn of(graph: &DeviceGraph) -> Option<Machines> {
        let by_machine = graph.by_machine();
        let first = graph.devices.first()?;
        let per_machine = by_machine[0].len();
        let alike = graph.devices.iter().all(|one| {
            (one.memory_bytes, one.peak_flops) == (first.memory_bytes, first.peak_flops)
        });
        if !alike || by_machine.iter().any(|own| own.len() != per_machine) {
            return None;
        }
        let inside = if per_machine > 1 { graph.rate(0, 1) * RING_SHARE } else { f64::INFINITY };
        let network = match by_machine.len() {
            1 => f64::INFINITY,
            _ => graph.rate(by_machine[0][0], by_machine[by_machine.len() - 1][0]),
        };
        Some(Machines {
            devices: graph.devices.len() as u32,
            per_machine: per_machine as u32,
            inside,
            network,
            memory_bytes: first.memory_bytes,
            peak_flops: first.peak_flops,
        })
    }

    /// Bytes a second of one ring of `members` devices that stand `stride` apart, when every device is in such a ring.
    fn ring(&self, members: u32, stride: u32) -> f64 {
        let own = (self.per_machine / stride).clamp(1, members);
        match members <= own {
            true => self.inside,
            false => self.inside.min(self.network * f64::from(own) / f64::from(self.per_machine)),
        }
    }
}

/// What is computed a second time in the backward pass instead of being kept.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Recompute {
    /// Everything but the input of a layer, as in the paper.
    Full,
    /// The attention scores (Korthikanti et al., MLSys 2023).
    Selective,
    /// Nothing.
    Nothing,
}

/// One division. The number of devices is the product of tensor, context, data and pipeline.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Split {
    /// Devices that share each matrix.
    pub tensor: u32,
    /// Stages.
    pub pipeline: u32,
    /// Copies of the model.
    pub data: u32,
    /// Parts of the model on each device.
    pub chunks: u32,
    /// Samples of a micro-batch.
    pub micro_batch: u32,
    /// Micro-batches of an iteration.
    pub micro_batches: u32,
    /// Devices that share a sequence.
    pub context: u32,
    /// Copies among which the experts of a layer are divided.
    pub expert: u32,
    /// Whether what tensor parallelism leaves whole is divided along the sequence.
    pub sequence: bool,
    /// What is recomputed.
    pub recompute: Recompute,
    /// Whether gradients are synchronised beside the last backward pass.
    pub overlap: bool,
}

impl Split {
    /// Forward and backward passes of one copy in an iteration.
    pub fn passes(&self) -> u64 {
        2 * u64::from(self.pipeline * self.chunks) * u64::from(self.micro_batches)
    }

    /// The plan in a few words.
    pub fn summary(&self) -> String {
        let mut text =
            format!("tensor {} x pipeline {} x data {}", self.tensor, self.pipeline, self.data);
        let more = [("context", self.context), ("expert", self.expert), ("chunks", self.chunks)];
        for (name, value) in more.into_iter().filter(|(_, value)| *value > 1) {
            text.push_str(&format!(", {name} {value}"));
        }
        text.push_str(&format!(", micro-batch {}", self.micro_batch));
        if self.sequence {
            text.push_str(", sequence");
        }
        text.push_str(match self.recompute {
            Recompute::Full => ", recompute all",
            Recompute::Selective => ", recompute attention",
            Recompute::Nothing => "",
        });
        text
    }
}

/// What a split costs on given machines.
pub struct Costs<'a> {
    model: &'a Transformer,
    machines: &'a Machines,
    split: Split,
    /// Operations a second that matrices of this model get.
    flops: f64,
}

impl<'a> Costs<'a> {
    /// The costs of a split.
    pub fn new(model: &'a Transformer, machines: &'a Machines, split: Split) -> Costs<'a> {
        Costs::with_efficiency((model, machines), split, &EFFICIENCY)
    }

    /// The same where matrices get another part of the peak.
    pub fn with_efficiency(
        (model, machines): (&'a Transformer, &'a Machines),
        split: Split,
        efficiency: &Efficiency,
    ) -> Costs<'a> {
        let flops = efficiency.flops(machines.peak_flops, model.hidden);
        Costs { model, machines, split, flops }
    }

    fn shares(&self) -> f64 {
        f64::from(self.split.tensor * self.split.context)
    }

    fn samples(&self) -> f64 {
        f64::from(self.split.micro_batch)
    }

    /// Bytes of what one device of a context group hands on of a micro-batch, before tensor parallelism.
    fn hidden_bytes(&self) -> f64 {
        self.samples() * self.model.hidden_bytes() / f64::from(self.split.context)
    }

    /// Communication within a layer, in one direction: two all-reduces, keys and values, and tokens to their experts.
    fn layer_exchange(&self) -> f64 {
        let split = &self.split;
        let part = |members: u32| (f64::from(members) - 1.0) / f64::from(members);
        // Section 3.2: each all-reduce moves 2 b s h (t - 1) / t elements of two bytes.
        let tensor = 2.0 * 2.0 * self.hidden_bytes() * part(split.tensor) / self.machines.inside;
        let keys = 2.0 * self.samples() * self.model.hidden_bytes() / f64::from(split.tensor);
        let ring = self.machines.ring(split.context, split.tensor);
        let attention = self.samples() * self.model.attention_flops() / self.shares() / self.flops;
        // Keys and values go round while attention is computed; only what is longer shows.
        let context = (keys * part(split.context) / ring - attention).max(0.0);
        let tokens = self.hidden_bytes() * f64::from(self.model.active_experts);
        let tokens = 2.0 * tokens / f64::from(split.tensor) * part(split.expert);
        let apart = self.machines.ring(split.expert, split.tensor * split.context);
        tensor + context + tokens / apart
    }

    /// Seconds of one layer's forward and backward pass for a micro-batch.
    pub fn layer(&self) -> (f64, f64) {
        let flops = self.samples() * self.model.layer_flops() / self.shares();
        let exchange = self.layer_exchange();
        let forward = flops / self.flops + exchange;
        let again = match self.split.recompute {
            Recompute::Full => forward,
            Recompute::Selective => {
                self.samples() * self.model.attention_flops() / self.shares() / self.flops
            }
            Recompute::Nothing => 0.0,
        };
        (forward, 2.0 * flops / self.flops + exchange + again)
    }

    /// Seconds of the output layer's forward pass for a micro-batch; the backward pass takes twice that.
    pub fn head(&self) -> f64 {
        self.samples() * self.model.head_flops() / self.shares() / self.flops
    }

    /// Seconds to hand a micro-batch to the next stage.
    ///
    /// All groups of a machine send at once, each with its share of the network: with scatter and gather (section 4.1)
    /// every device sends its part over its own card.
    pub fn hand_over(&self) -> f64 {
        let split = &self.split;
        let group = split.tensor * split.context;
        let bytes = self.samples() * self.model.hidden_bytes();
        match group * split.data * split.pipeline <= self.machines.per_machine {
            true => bytes / f64::from(group) / self.machines.inside,
            false => {
                let per_device = self.machines.network / f64::from(self.machines.per_machine);
                bytes / f64::from(group) / per_device
            }
        }
    }

    /// Parameters of a device outside experts and of its experts, for so many layers.
    fn parameters(&self, layers: u32) -> (f64, f64) {
        let (split, layers) = (&self.split, f64::from(layers));
        let shared = layers * self.model.shared_parameters() / f64::from(split.tensor);
        let experts = layers * self.model.expert_parameters();
        (shared, experts / f64::from(split.tensor * split.expert))
    }

    fn layers(&self) -> u32 {
        self.model.layers / (self.split.pipeline * self.split.chunks)
    }

    /// Seconds to make the gradients of a device equal, `2 (d - 1) / d` of their bytes round a ring.
    fn synchronise(&self, is_edge: bool) -> f64 {
        self.synchronise_layers(self.layers() * self.split.chunks, is_edge)
    }

    /// The same for a device that has so many layers.
    pub(super) fn synchronise_layers(&self, layers: u32, is_edge: bool) -> f64 {
        let split = &self.split;
        let (mut shared, experts) = self.parameters(layers);
        if is_edge {
            shared += self.model.embedding_parameters() / f64::from(split.tensor);
        }
        let ring = |members: u32, parameters: f64| {
            let moved = 2.0 * (f64::from(members) - 1.0) / f64::from(members) * parameters;
            moved * GRADIENT_BYTES / self.machines.ring(members, split.tensor)
        };
        let members = split.data * split.context;
        let whole = ring(members, shared) + ring((members / split.expert).max(1), experts);
        match split.overlap {
            // Layers are synchronised as soon as their last backward pass is over; that of the last one shows.
            true => {
                let (_, backward) = self.layer();
                let beside = backward * f64::from(layers - 1);
                (whole - beside).max(whole / f64::from(layers))
            }
            false => whole,
        }
    }

    /// Bytes that a layer keeps of a micro-batch on each device.
    pub(super) fn kept(&self) -> f64 {
        let split = &self.split;
        let (tensor, context) = (f64::from(split.tensor), f64::from(split.context));
        let unit = self.hidden_bytes() / 2.0;
        let whole = if split.sequence { 10.0 / tensor } else { 10.0 };
        let experts = 19.0 * (f64::from(self.model.active_experts) - 1.0);
        let scores = 5.0 * f64::from(self.model.heads) * f64::from(self.model.sequence)
            / f64::from(self.model.hidden)
            / context;
        match split.recompute {
            Recompute::Full if split.sequence => 2.0 * unit / tensor,
            Recompute::Full => 2.0 * unit,
            Recompute::Selective => unit * (whole + (24.0 + experts) / tensor),
            Recompute::Nothing => unit * (whole + (24.0 + experts + scores) / tensor),
        }
    }

    /// Bytes needed beside during a backward pass: one layer made anew, or the output words.
    pub(super) fn working(&self, is_last: bool) -> f64 {
        let again = match self.split.recompute {
            Recompute::Full => {
                let split = Split { recompute: Recompute::Nothing, ..self.split };
                Costs { split, ..*self }.kept()
            }
            Recompute::Selective => {
                let split = Split { recompute: Recompute::Nothing, ..self.split };
                Costs { split, ..*self }.kept() - self.kept()
            }
            Recompute::Nothing => 0.0,
        };
        let (sequence, words) = (self.model.sequence, self.model.vocabulary);
        let logits = 4.0 * self.samples() * f64::from(sequence) * f64::from(words) / self.shares();
        again + if is_last { logits } else { 0.0 }
    }

    /// Bytes that a device of the first or of the last stage holds all the time.
    fn fixed(&self, is_edge: bool) -> f64 {
        self.fixed_layers(self.layers(), is_edge)
    }

    /// The same for a device that has so many layers.
    pub(super) fn fixed_layers(&self, layers: u32, is_edge: bool) -> f64 {
        let (shared, experts) = self.parameters(layers);
        let words = self.model.embedding_parameters() / f64::from(self.split.tensor);
        STATE_BYTES * (shared + experts + if is_edge { words } else { 0.0 })
    }

    /// The most that a device would hold, by formula; the simulation says the same.
    pub fn memory(&self) -> f64 {
        let split = &self.split;
        let (stages, chunks) = (split.pipeline, split.chunks);
        let fixed = f64::from(chunks) * self.fixed(false) + self.fixed(true) - self.fixed(false);
        // The first stage holds a micro-batch for each stage, with chunks for (v - 1) p + 2 p - 1 of them.
        let most = split.micro_batches * chunks;
        let held = if chunks == 1 { stages } else { (chunks + 1) * stages - 1 };
        let kept = f64::from(held.min(most)) * f64::from(self.layers()) * self.kept();
        let last = if stages == 1 { self.working(true) } else { self.working(false) };
        fixed + kept + last
    }

    /// Seconds of an iteration by formula: `m` micro-batches at the slowest stage, and the bubble `(p - 1) / v`.
    pub fn estimate(&self) -> f64 {
        let split = &self.split;
        let (forward, backward) = self.layer();
        let stage = (forward + backward) * f64::from(self.model.layers / split.pipeline);
        let slowest = stage + 3.0 * self.head();
        let moved = if split.pipeline > 1 { 2.0 * self.hand_over() } else { 0.0 };
        let bubble = f64::from(split.pipeline - 1) * (stage / f64::from(split.chunks) + moved);
        f64::from(split.micro_batches) * slowest + bubble + self.synchronise(true)
    }

    /// One copy of the model as a pipeline.
    pub fn pipeline(&self, batch: u32) -> Result<Pipeline, PlanError> {
        let split = &self.split;
        let parts = [
            (
                "the number of layers",
                self.model.layers,
                "stages times chunks",
                split.pipeline * split.chunks,
            ),
            ("the batch", batch, "copies times micro-batch", split.data * split.micro_batch),
            ("the number of heads", self.model.heads, "tensor parallelism", split.tensor),
        ];
        for (what, whole, by, parts) in parts {
            if whole % parts != 0 {
                let (what, by) = (what.to_owned(), by.to_owned());
                let (whole, parts) = (u64::from(whole), u64::from(parts));
                return Err(PlanError::Indivisible { what, whole, by, parts });
            }
        }
        let count = split.pipeline * split.chunks;
        let chunks = (0..count).map(|at| self.chunk(at, count)).collect();
        let schedule = match split.chunks {
            1 => Schedule::OneForwardOneBackward,
            chunks => Schedule::Interleaved { chunks },
        };
        Ok(Pipeline { chunks, micro_batches: split.micro_batches, schedule })
    }

    fn chunk(&self, at: u32, count: u32) -> Chunk {
        let split = &self.split;
        let layers = self.layers();
        let (forward, backward) = self.layer();
        let (is_last, is_edge) = (at + 1 == count, at == 0 || (at + 1 == count && count > 1));
        let head = if is_last { self.head() } else { 0.0 };
        let to_next = match is_last {
            true => Vec::new(),
            false => vec![Move { latency: self.hand_over(), ..Move::default() }],
        };
        let group = split.tensor * split.context;
        // Ranks of a tensor group stand beside each other, then copies, then stages.
        let first = at % split.pipeline * group * split.data;
        Chunk {
            name: format!("layers {}..{}", at * layers, (at + 1) * layers - 1),
            layers,
            forward: f64::from(layers) * forward + head,
            backward: f64::from(layers) * backward + 2.0 * head,
            to_next,
            synchronise: Vec::new(),
            // The first chunk of a device is the last to go back; then all gradients of the device are there.
            synchronise_seconds: if at < split.pipeline { self.synchronise(is_edge) } else { 0.0 },
            devices: (first..first + group).map(|device| device as usize).collect(),
            fixed_bytes: self.fixed(is_edge),
            kept_bytes: f64::from(layers) * self.kept(),
            working_bytes: self.working(is_last),
        }
    }
}
