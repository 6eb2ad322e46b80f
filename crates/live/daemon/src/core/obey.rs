//! From the engine's actions to orders for the backend.

use super::{Core, text};
use crate::record::{Launch, Record};
use serde_json::json;
use std::sync::Arc;
use trainyard_api::answer::Holding;
use trainyard_backend::order::Limits;
use trainyard_backend::{LaunchOrder, NodeShare, Order, StopOrder, TimeShift};
use trainyard_store::Write;
use trainyard_types::placement::bits;
use trainyard_types::{
    Action, Allocation, Attempt, Config, Event, GpuAt, Job, JobId, Sample, Span, Why,
};

impl Core {
    pub(super) fn obey(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Launch { job, attempt, allocation } => {
                    self.launch(job, attempt, &allocation);
                }
                Action::Stop { job, attempt, why } => self.stop(job, attempt, why),
                Action::Adjust { job, attempt, allocation } => {
                    self.adjust(job, attempt, &allocation);
                }
                Action::Suspend { job, attempt, memory_mib } => {
                    self.suspend(job, attempt, memory_mib);
                }
                Action::Resume { job, attempt, allocation } => {
                    self.resume(job, attempt, &allocation);
                }
                // What is left to do for a job that is over is done when its record is written.
                Action::Ended { .. } => {}
            }
        }
    }

    fn launch(&mut self, job: JobId, attempt: Attempt, allocation: &Allocation) {
        let Some(record) = self.records.get(&job).map(Arc::clone) else { return };
        let holds = self.holds(allocation);
        let launch = Launch {
            attempt,
            holds: holds.clone(),
            wall: self.wall,
            boot: self.options.boot.clone(),
            started: None,
            ended: None,
            exit: None,
            outcome: "launched".to_owned(),
            before: Vec::new(),
            permille: shared_permille(allocation),
            resizing: false,
        };
        let queued = self.engine.state().live(job).map_or(self.now, |live| live.state.queued_at);
        self.turn.launched.push((job, self.now.since(queued)));
        self.write_attempt(job, &launch, allocation.placement.gpus(), self.price(allocation));
        let place: Vec<String> =
            holds.iter().map(|one| format!("{}:{:?}", one.node, one.gpus)).collect();
        let sentence = format!("job {} attempt {} on {}", job.0, attempt.0, place.join(" "));
        self.event("launched", Some(job), &sentence, json!({ "attempt": attempt.0 }));
        if let Some(record) = self.record_mut(job) {
            record.launch = Some(Box::new(launch));
        }
        let order = self.launch_order(&record, attempt, allocation);
        self.turn.orders.push(Order::Launch(Box::new(order)));
    }

    /// What the backend is told about an attempt; the same for the same attempt, whenever it is made.
    pub(super) fn launch_order(
        &self,
        record: &Record,
        attempt: Attempt,
        allocation: &Allocation,
    ) -> LaunchOrder {
        let devices = self.devices(allocation);
        let shares = allocation.placement.masks().iter().map(|(node, mask)| NodeShare {
            node: self.options.cluster.node(*node).name.clone(),
            gpus: bits(*mask).collect(),
        });
        let kind = allocation.placement.masks().first().map(|(node, _)| {
            let kind = self.options.cluster.node(*node).kind;
            self.options.cluster.kinds[kind.index()].name.clone()
        });
        let nodes = allocation.placement.masks().iter();
        let racks = nodes.map(|(node, _)| self.options.cluster.node(*node).rack).collect();
        let gpus = allocation.placement.gpus();
        let announced = self.announcement(record);
        let want = &record.submission.job.want;
        let stated = want.batch.or(want.batch_limits.map(|limits| limits.first));
        LaunchOrder {
            attempt,
            nodes: shares.collect(),
            racks,
            time_shift: self.time_shift(allocation),
            gpu_type: kind.unwrap_or_default(),
            gpus_wanted: gpus,
            gpus: devices.iter().map(|(index, _)| *index).collect(),
            devices: devices.into_iter().map(|(_, name)| name).collect(),
            sharing: self.sharing_order(record, allocation),
            resumes_from: record.saved,
            has_checkpoint: record.has_checkpoint,
            batch: allocation.knobs.batch.or(stated),
            batch_parts: self.batch_parts(&record.submission.job, allocation),
            division: self.division(&record.submission.job, allocation),
            time_limit_seconds: self.time_left(record),
            limits: self.limits(&announced, gpus),
            ..announced
        }
    }

    /// When the iterations of a job begin, by the clock that its machines have in common.
    fn time_shift(&self, allocation: &Allocation) -> Option<TimeShift> {
        let period = allocation.knobs.pace.filter(|pace| *pace > Span::ZERO)?;
        let began = self.wall - self.now.0 as i64;
        let offset = (began + allocation.knobs.shift.0 as i64).rem_euclid(period.0 as i64);
        Some(TimeShift {
            offset_seconds: Span(offset as u64).as_secs_f64(),
            period_seconds: period.as_secs_f64(),
        })
    }

    /// The GPUs of an allocation on this machine: index, and what a process is told.
    pub(super) fn devices(&self, allocation: &Allocation) -> Vec<(u8, String)> {
        let mut devices = Vec::new();
        for (node, mask) in allocation.placement.masks() {
            let of_node = &self.options.devices[node.index()];
            devices.extend(bits(*mask).map(|gpu| of_node[usize::from(gpu)].clone()));
        }
        devices
    }

    /// The part of the batch for each GPU of an allocation across types, by what is believed of their speeds.
    fn batch_parts(&self, job: &Job, allocation: &Allocation) -> Vec<f64> {
        let cluster = &self.options.cluster;
        let config = allocation.config(cluster);
        if config.kinds.len() < 2 {
            return Vec::new();
        }
        let speed = |gpu: GpuAt| {
            let node = cluster.node(gpu.node);
            let alone = Config::packed(node.kind, config.gpus, u32::from(node.gpus));
            self.engine.beliefs().rate(job, &alone).map(|rate| rate.0).filter(|rate| *rate > 0.0)
        };
        let speeds: Option<Vec<f64>> = allocation.placement.each_gpu().map(speed).collect();
        let Some(speeds) = speeds else { return Vec::new() };
        let all: f64 = speeds.iter().sum();
        speeds.iter().map(|speed| speed / all).collect()
    }

    pub(super) fn limits(&self, order: &LaunchOrder, gpus: u32) -> Limits {
        let each = order.limits;
        Limits {
            memory_mib: each.memory_mib / u64::from(order.gpus_wanted.max(1)) * u64::from(gpus),
            cpus: each.cpus / order.gpus_wanted.max(1) * gpus,
            ..each
        }
    }

    /// How long a job may still run.
    fn time_left(&self, record: &Record) -> Option<f64> {
        let live = self.engine.state().live(record.submission.job.id)?;
        let most = live.spec.run_max?;
        let used = live.state.ran(self.now);
        Some(Span(most.0.saturating_sub(used.0)).as_secs_f64())
    }

    /// What the backend is told about a job that waits: all but where it runs.
    pub(super) fn announcement(&self, record: &Record) -> LaunchOrder {
        let submission = &record.submission;
        let job = submission.job.id;
        let (spec, identity) = submission.unpack();
        let gpus = spec.gpus;
        // Where its user names none, the backend makes one for it.
        let checkpoint_dir = spec.checkpoint.dir.clone().unwrap_or_default();
        LaunchOrder {
            job,
            name: spec.name,
            argv: spec.argv,
            script: spec.script,
            cwd: spec.cwd.unwrap_or_else(|| "/".to_owned()),
            env: spec.env,
            image: spec.image,
            mounts: spec.mounts,
            venv: spec.venv,
            idle_seconds: spec.idle_seconds,
            identity,
            gpu_type: spec.gpu_types.join(","),
            gpus_wanted: gpus,
            time_limit_seconds: spec.time_limit_seconds,
            external: spec.external,
            processes: spec.processes,
            checkpoint: spec.checkpoint,
            checkpoint_dir,
            array_index: submission.array.map(|element| element.index),
            array_job: submission.array.map(|element| element.first),
            user: submission.user.clone(),
            limits: Limits {
                memory_mib: u64::from(spec.memory_mib_per_gpu) * u64::from(gpus),
                cpus: u32::from(spec.cpus_per_gpu) * gpus,
                processes_max: self.options.processes_max,
                log_bytes_max: self.options.log_bytes_max,
            },
            ..LaunchOrder::default()
        }
    }

    /// Tells a backend with a queue of its own of a job that waits.
    pub(super) fn announce(&mut self, job: JobId) {
        if !self.options.announces {
            return;
        }
        let Some(record) = self.records.get(&job).map(Arc::clone) else { return };
        let order = self.announcement(&record);
        self.turn.orders.push(Order::Announce(Box::new(order)));
    }

    /// The same for all that wait, after a start.
    pub(super) fn announce_all(&mut self) {
        let waits = |job: &JobId| {
            let live = self.engine.state().live(*job);
            live.is_some_and(|live| !live.state.is_placed())
        };
        let waiting: Vec<JobId> = self.records.keys().filter(waits).collect();
        waiting.into_iter().for_each(|job| self.announce(job));
    }

    fn stop(&mut self, job: JobId, attempt: Attempt, why: Why) {
        let Some(record) = self.records.get(&job) else { return };
        self.turn.stops.push(why);
        let why_kills = why == Why::Dropped;
        let why = match why {
            Why::Preempted => "another job takes its place",
            Why::Moved if record.launch.as_ref().is_some_and(|launch| launch.resizing) => {
                "it has not gone over to its new GPUs in time"
            }
            Why::Moved => "it goes on elsewhere",
            Why::Asked if record.watch.as_ref().is_some_and(|watch| watch.acted) => "it hangs",
            Why::Asked => "it was asked to",
            Why::TimeLimit => "its time limit is used up",
            Why::Pruned => "the policy ended it",
            Why::Machine => "a machine it uses is lost",
            Why::Window => "a node it uses is soon under maintenance or reserved",
            Why::Dropped => {
                "it is killed and goes back to its last checkpoint, because it cannot save now"
            }
        };
        // One that is put aside and has no GPUs can do nothing with its time.
        let at_once = why_kills || self.engine.is_discarding(job);
        let grace_seconds = if at_once { 0.0 } else { record.submission.grace_seconds };
        let sentence = format!("job {} attempt {} stops: {why}", job.0, attempt.0);
        self.event("stopping", Some(job), &sentence, json!({ "attempt": attempt.0 }));
        let order = StopOrder { grace_seconds, why: why.to_owned() };
        self.turn.orders.push(Order::Stop(job, attempt, order));
    }

    /// Tells the engine how fast a job that just started is believed to be, until it says so itself.
    pub(super) fn promise_rate(&mut self, job: JobId, attempt: Attempt) {
        let Some(live) = self.engine.state().live(job) else { return };
        let Some(held) = &live.state.held else { return };
        let config = held.config(&self.options.cluster);
        let Some(rate) = self.engine.beliefs().rate(&live.spec, &config) else { return };
        let sample = Sample { rate: Some(rate), ..Sample::default() };
        self.apply(Event::Report { job, attempt, sample });
    }

    pub(super) fn write_attempt(&mut self, job: JobId, launch: &Launch, gpus: u32, price: f64) {
        self.turn.writes.push(Write::SetAttempt {
            job: job.0,
            attempt: launch.attempt.0,
            gpus,
            launched: launch.wall,
            ended: launch.ended,
            price_per_hour: price,
            data: text(launch),
        });
    }

    pub(super) fn price(&self, allocation: &Allocation) -> f64 {
        let cluster = &self.options.cluster;
        let masks = allocation.placement.masks().iter();
        masks
            .map(|(node, mask)| {
                let kind = cluster.node(*node).kind;
                cluster.kinds[kind.index()].price_per_hour * f64::from(mask.count_ones())
            })
            .sum()
    }

    /// Where an allocation is, for people.
    pub(crate) fn holds(&self, allocation: &Allocation) -> Vec<Holding> {
        holds(&self.options.cluster, allocation)
    }
}

/// Thousandths of GPUs that an allocation has, where they are not wholly its own.
pub(super) fn shared_permille(allocation: &Allocation) -> Option<u64> {
    allocation.is_shared().then(|| trainyard_framework::used_permille(allocation))
}

/// Where an allocation is, for people.
pub(crate) fn holds(cluster: &trainyard_types::Cluster, allocation: &Allocation) -> Vec<Holding> {
    let masks = allocation.placement.masks().iter();
    masks
        .map(|(node, mask)| Holding {
            node: cluster.node(*node).name.clone(),
            gpus: bits(*mask).collect(),
        })
        .collect()
}
