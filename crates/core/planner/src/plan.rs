//! What planners are asked and what they answer.

use crate::pipeline::{Pipeline, PipelineRun};
use crate::simulate::Purpose;
use crate::timeline::{Bar, Timeline};
use crate::{DeviceGraph, Graph, PlanError, Transformer};
use serde::Serialize;

/// What is to be divided over devices.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The model as operators, timed for [`Graph::batch`] samples.
    pub graph: &'a Graph,
    /// The model as a transformer, where it was described as one.
    pub transformer: Option<&'a Transformer>,
    /// What there is to run on.
    pub devices: &'a DeviceGraph,
    /// Samples of one iteration.
    pub batch: u32,
    /// Bytes of parameters, gradients and optimiser for each byte of parameters.
    pub state_factor: f64,
}

/// Seconds of an iteration, by what they went into, on the average device.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
pub struct Parts {
    /// Computing.
    pub compute: f64,
    /// Idle because of the order of stages.
    pub bubble: f64,
    /// Longer because of transfers between stages.
    pub transfer: f64,
    /// Making gradients equal after the last backward pass.
    pub synchronise: f64,
}

/// What one device would hold at most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceMemory {
    /// The device; the first of those that are alike.
    pub device: String,
    /// How many are alike.
    pub count: u32,
    /// What they hold at most.
    pub bytes: f64,
    /// What they have.
    pub capacity: f64,
}

/// One stage of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageShape {
    /// The first and the last layer of it, or what it holds.
    pub layers: String,
    /// How many layers.
    pub count: u32,
    /// On how many devices.
    pub devices: u32,
    /// Seconds of one forward and one backward pass of a micro-batch.
    pub seconds: f64,
}

/// One plan with what it is expected to cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Proposal {
    /// The planner.
    pub planner: &'static str,
    /// Which of its plans.
    pub variant: &'static str,
    /// The plan in a few words.
    pub summary: String,
    /// Seconds of an iteration in the simulation.
    pub seconds: f64,
    /// Samples in a second.
    pub samples_per_second: f64,
    /// Where the time goes.
    pub parts: Parts,
    /// Its stages.
    pub stages: Vec<StageShape>,
    /// Memory, the fullest devices first.
    pub memory: Vec<DeviceMemory>,
    /// What keeps it from being faster.
    pub binds: String,
    /// The run.
    pub timeline: Timeline,
}

impl Proposal {
    /// Bytes that the fullest device lacks; 0 where all have room.
    pub fn lacking_bytes(&self) -> f64 {
        self.memory.iter().map(|one| one.bytes - one.capacity).fold(0.0, f64::max)
    }
}

/// What a pipeline is called.
#[derive(Clone, Debug)]
pub struct Title {
    /// The planner.
    pub planner: &'static str,
    /// Which of its plans.
    pub variant: &'static str,
    /// The plan in a few words.
    pub summary: String,
}

/// A pipeline as a proposal: simulated, with and without its transfers, to tell what they cost.
///
/// `replicas` is how often the whole pipeline runs side by side, each with its part of the batch.
pub fn propose(
    title: Title,
    pipeline: &Pipeline,
    request: &Request<'_>,
    replicas: u32,
) -> Result<Proposal, PlanError> {
    let ran = pipeline.simulate(request.devices)?;
    let mut bare = pipeline.clone();
    bare.chunks.iter_mut().for_each(|chunk| chunk.to_next.clear());
    let without = bare.simulate(request.devices)?.run.seconds;
    let parts = parts(pipeline, &ran, without);
    let memory = memory(pipeline, &ran, request.devices, replicas);
    let seconds = ran.run.seconds;
    let stages = (pipeline.chunks.iter()).map(|chunk| StageShape {
        layers: chunk.name.clone(),
        count: chunk.layers,
        devices: chunk.devices.len() as u32,
        seconds: chunk.forward + chunk.backward,
    });
    Ok(Proposal {
        planner: title.planner,
        variant: title.variant,
        summary: title.summary,
        seconds,
        samples_per_second: f64::from(request.batch) / seconds,
        binds: binds(&parts, &memory),
        parts,
        stages: stages.collect(),
        memory,
        timeline: timeline(pipeline, &ran),
    })
}

fn parts(pipeline: &Pipeline, ran: &PipelineRun, without: f64) -> Parts {
    let is_pass = |purpose| matches!(purpose, Purpose::Forward | Purpose::Backward);
    let passes = ran.tasks.iter().zip(&ran.run.end).filter(|(task, _)| is_pass(task.purpose));
    let last_pass = passes.map(|(_, end)| *end).fold(0.0, f64::max);
    let weights = |group: usize| pipeline.chunks[group].devices.len() as f64;
    let all: f64 = (0..ran.groups as usize).map(weights).sum();
    let busy: f64 = ran.run.busy.iter().enumerate().map(|(at, busy)| weights(at) * busy).sum();
    let compute = busy / all;
    let synchronise = ran.run.seconds - last_pass;
    let transfer = (ran.run.seconds - without).max(0.0);
    let bubble = (ran.run.seconds - compute - synchronise - transfer).max(0.0);
    Parts { compute, bubble, transfer, synchronise }
}

fn memory(
    pipeline: &Pipeline,
    ran: &PipelineRun,
    devices: &DeviceGraph,
    replicas: u32,
) -> Vec<DeviceMemory> {
    let mut all: Vec<DeviceMemory> = Vec::new();
    for group in 0..ran.groups as usize {
        for device in &pipeline.chunks[group].devices {
            let (own, bytes) = (&devices.devices[*device], ran.run.peak_bytes[*device]);
            let same =
                |one: &&mut DeviceMemory| one.bytes == bytes && one.capacity == own.memory_bytes;
            match all.iter_mut().find(same) {
                Some(one) => one.count += replicas,
                None => all.push(DeviceMemory {
                    device: own.name.clone(),
                    count: replicas,
                    bytes,
                    capacity: own.memory_bytes,
                }),
            }
        }
    }
    let fullness = |one: &DeviceMemory| one.bytes / one.capacity.max(1.0);
    all.sort_by(|a, b| fullness(b).total_cmp(&fullness(a)));
    all
}

pub(crate) fn binds(parts: &Parts, memory: &[DeviceMemory]) -> String {
    let mut reasons = Vec::new();
    if let Some(fullest) = memory.first().filter(|one| one.bytes > 0.9 * one.capacity) {
        let share = 100.0 * fullest.bytes / fullest.capacity.max(1.0);
        reasons.push(format!("memory of {} ({share:.0} %)", fullest.device));
    }
    let total = parts.compute + parts.bubble + parts.transfer + parts.synchronise;
    let named = [
        ("bubbles", parts.bubble),
        ("transfers between stages", parts.transfer),
        ("synchronisation", parts.synchronise),
    ];
    let large = named.into_iter().filter(|(_, seconds)| *seconds > 0.1 * total);
    reasons
        .extend(large.map(|(name, seconds)| format!("{name} ({:.0} %)", 100.0 * seconds / total)));
    match reasons.is_empty() {
        true => {
            format!("computing ({:.0} %)", 100.0 * parts.compute / total.max(f64::MIN_POSITIVE))
        }
        false => reasons.join(", "),
    }
}

fn timeline(pipeline: &Pipeline, ran: &PipelineRun) -> Timeline {
    let devices = |group: usize| pipeline.chunks[group].devices.len();
    let row = |group: usize| format!("stage {group} x{}", devices(group));
    let bars = ran.tasks.iter().enumerate().filter_map(|(index, task)| {
        let shown = !matches!(task.purpose, Purpose::Transfer);
        let (start, end) = (ran.run.start[index], ran.run.end[index]);
        let bar = Bar {
            row: task.of.0 % ran.groups,
            start,
            end,
            purpose: task.purpose,
            label: task.of.1,
        };
        (shown && end > start).then_some(bar)
    });
    Timeline { rows: (0..ran.groups as usize).map(row).collect(), bars: bars.collect() }
}
