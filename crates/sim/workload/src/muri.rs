//! Traces of the Muri simulator: submission in milliseconds, work in iterations, and three stage times.
//!
//! A job's speed is one iteration in `iteration_time` milliseconds times a slowdown, wherever it is placed; the
//! authors' simulator uses 1.015 for jobs that run alone. Start times are those the authors measured.

use crate::intake::Intake;
use crate::tiresias::Table;
use crate::{ReadError, TraceJob, Workload};
use std::collections::BTreeMap;
use std::io::Read;
use trainyard_profile::{ANY_KIND, ModelProfile, Point, SizeCost, StageTimes, zoo};
use trainyard_types::{Class, Job, JobId, ModelId, Span, Time, Want, Work};

const COLUMNS: [&str; 13] = [
    "job_id",
    "num_gpu",
    "submit_time",
    "iterations",
    "model_name",
    "batch_size",
    "duration",
    "interval",
    "iteration_time",
    "resource_time_0",
    "resource_time_1",
    "resource_time_2",
    "priority",
];

/// How a trace is read.
#[derive(Clone, Debug, PartialEq)]
pub struct MuriOptions {
    /// What the workload is called.
    pub name: String,
    /// By how much an iteration of a job alone is longer than the table says.
    pub slowdown: f64,
}

impl MuriOptions {
    /// As in the authors' simulator.
    pub fn named(name: &str) -> MuriOptions {
        MuriOptions { name: name.to_owned(), slowdown: 1.015 }
    }
}

/// A trace, and what it tells beyond a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct MuriTrace {
    /// The jobs.
    pub workload: Workload,
    /// Stages of each, by [`JobId`].
    pub stages: Vec<Stages>,
}

/// What one iteration of a job takes of each resource, and the job's place in the AntMan baseline.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Stages {
    /// Storage and CPU: loading and preprocessing.
    pub load: Span,
    /// GPU.
    pub compute: Span,
    /// Network.
    pub network: Span,
    /// 0 for a job with a right to its GPUs, 1 for one that lives on what is left.
    pub priority: i32,
}

impl Stages {
    /// The same in the words of a profile, where the first stage stands under the CPU.
    fn on(&self, gpus: u32) -> StageTimes {
        let Stages { load: cpu, compute: gpu, network, .. } = *self;
        StageTimes { gpus, storage: Span::ZERO, cpu, gpu, network }
    }
}

/// Reads a trace.
pub fn read(reader: impl Read, options: &MuriOptions) -> Result<MuriTrace, ReadError> {
    let mut workload = Workload::empty(&options.name);
    let mut intake = Intake::default();
    let mut stages = Vec::new();
    let mut models = Models::default();
    let mut table = Table::new(reader, &COLUMNS)?;
    while let Some(row) = table.next()? {
        let millis = |column| row.number(column, 0.0..=1e13);
        let gpus = row.number("num_gpu", 1.0..=1e6)? as u32;
        let submitted = Time::from_secs_f64(millis("submit_time")? / 1000.0);
        let iteration_ms = row.number("iteration_time", 1e-6..=1e13)?;
        let name = format!("{}-b{}", row.text("model_name")?, row.text("batch_size")?);
        let rate = 1.0 / (iteration_ms * options.slowdown / 1000.0);
        let span = |millis: f64| Span::from_secs_f64(millis / 1000.0);
        let stage = Stages {
            load: span(millis("resource_time_0")?),
            compute: span(millis("resource_time_1")?),
            network: span(millis("resource_time_2")?),
            priority: row.number("priority", -1e9..=1e9)? as i32,
        };
        let job = Job {
            model: models.find(&mut workload, &name, (rate, stage.on(gpus))),
            want: Want::gpus(gpus),
            class: if stage.priority > 0 { Class::Opportunistic } else { Class::Guaranteed },
            ..Job::simple(JobId(0), submitted, 1)
        };
        let work = Work(row.number("iterations", 1e-6..=1e18)?);
        let job = TraceJob::new(job, work);
        intake.add(row.line, row.text("job_id")?, job)?;
        stages.push((submitted, stage));
    }
    intake.finish(&mut workload)?;
    // The same stable order as the jobs.
    stages.sort_by_key(|(submitted, _)| *submitted);
    Ok(MuriTrace { workload, stages: stages.into_iter().map(|(_, stage)| stage).collect() })
}

/// Models by name; a second iteration time or other stages for the same size make a second model.
#[derive(Default)]
struct Models {
    variants: BTreeMap<String, Vec<ModelId>>,
}

impl Models {
    fn find(
        &mut self,
        workload: &mut Workload,
        name: &str,
        (rate, stage): (f64, StageTimes),
    ) -> ModelId {
        let gpus = stage.gpus;
        let variants = self.variants.entry(name.to_owned()).or_default();
        for id in variants.iter() {
            let profile = workload.catalog.get(*id);
            match profile.points.iter().find(|point| point.gpus == gpus) {
                Some(point) if point.rate == rate && profile.stages.contains(&stage) => return *id,
                Some(_) => continue,
                None => {
                    let mut profile = profile.clone();
                    profile.points.push(point(gpus, rate));
                    let place = profile.stages.partition_point(|known| known.gpus < gpus);
                    profile.stages.insert(place, stage);
                    return workload.catalog.add(profile);
                }
            }
        }
        let full = match variants.len() {
            0 => name.to_owned(),
            count => format!("{name}-{}", count + 1),
        };
        let source = "Muri (SIGCOMM 2022): iteration and stage times of its trace, start times of its simulator";
        let architecture = name.rsplit_once("-b").map_or(name, |(model, _)| model);
        let profile = ModelProfile {
            points: vec![point(gpus, rate)],
            stages: vec![stage],
            save: SizeCost::default(),
            start: zoo::muri_start(architecture),
            skew: zoo::skew(architecture),
            ..ModelProfile::steady(&full, source, rate)
        };
        let id = workload.catalog.add(profile);
        variants.push(id);
        id
    }
}

fn point(gpus: u32, rate: f64) -> Point {
    Point { kind: ANY_KIND.to_owned(), gpus, nodes: 1, rate }
}
