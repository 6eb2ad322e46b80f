//! Jobs that change their GPUs while they run.

use super::Core;
use super::obey::shared_permille;
use crate::record::Held;
use serde_json::json;
use std::sync::Arc;
use trainyard_api::answer::Holding;
use trainyard_backend::{Order, ResizeOrder};
use trainyard_types::{Allocation, Attempt, Event, JobId};

impl Core {
    /// A job goes on with another lease, another batch, another share or other GPUs.
    pub(super) fn adjust(&mut self, job: JobId, attempt: Attempt, to: &Allocation) {
        let resizes = self.engine.resizing(job) == Some(to);
        let before = self.launch_gpus(job);
        let grows = resizes && to.placement.gpus() > before;
        if resizes {
            self.note_held(job, true);
            let gpus = to.placement.gpus();
            let sentence = format!(
                "job {} attempt {} is told to go from {before} to {gpus} GPUs",
                job.0, attempt.0
            );
            self.event("resizing", Some(job), &sentence, json!({ "attempt": attempt.0 }));
            self.resize_again(job, attempt);
        }
        self.change_share(job, attempt, to);
        // More samples come with more GPUs: the job is told when it has these.
        if let Some(size) = to.knobs.batch.filter(|_| !grows) {
            self.turn.orders.push(Order::SetBatch(job, attempt, size));
        }
    }

    /// Tells a job, perhaps once more, of the GPUs that it should go over to.
    pub(super) fn resize_again(&mut self, job: JobId, attempt: Attempt) {
        let Some(to) = self.engine.resizing(job) else { return };
        let Some(record) = self.records.get(&job).map(Arc::clone) else { return };
        let devices = self.devices(to).into_iter().map(|(_, name)| name).collect();
        let limits = self.limits(&self.announcement(&record), to.placement.gpus());
        let order = ResizeOrder { devices, limits };
        self.turn.orders.push(Order::Resize(job, attempt, order));
    }

    /// A job says that it uses these GPUs and no other.
    pub(super) fn went_over(&mut self, job: JobId, attempt: Attempt, devices: &[String]) {
        let Some(to) = self.engine.resizing(job).cloned() else { return };
        let told = self.devices(&to);
        if !told.iter().map(|(_, name)| name).eq(devices) {
            // The answer to an older question.
            return;
        }
        self.apply(Event::Resized { job, attempt });
        self.note_held(job, false);
        self.promise_rate(job, attempt);
        if let Some(size) = to.knobs.batch {
            self.turn.orders.push(Order::SetBatch(job, attempt, size));
        }
        let gpus = to.placement.gpus();
        let sentence = format!("job {} attempt {} goes on with {gpus} GPUs", job.0, attempt.0);
        self.event("resized", Some(job), &sentence, json!({ "attempt": attempt.0 }));
    }

    fn launch_gpus(&self, job: JobId) -> u32 {
        let launch = self.records.get(&job).and_then(|record| record.launch.as_ref());
        launch.map_or(0, |launch| count(&launch.holds))
    }

    /// Writes down what a launch holds from now on, and until when it held what it held before.
    pub(super) fn note_held(&mut self, job: JobId, resizing: bool) {
        let held = self.engine.state().live(job).and_then(|live| live.state.held.clone());
        let Some(held) = held else { return };
        let (holds, price, wall) = (self.holds(&held), self.price(&held), self.wall);
        let old = self.records.get(&job).and_then(|record| record.launch.as_ref());
        let old_price = old.map_or(0.0, |launch| self.price_of(&launch.holds));
        let Some(launch) = self.record_mut(job).and_then(|record| record.launch.as_mut()) else {
            return;
        };
        launch.resizing = resizing;
        let permille = shared_permille(&held);
        if launch.holds != holds || launch.permille != permille {
            let gpus = count(&launch.holds);
            let permille = std::mem::replace(&mut launch.permille, permille);
            launch.before.push(Held { until: wall, gpus, price_per_hour: old_price, permille });
            launch.holds = holds;
        }
        let launch = launch.clone();
        self.write_attempt(job, &launch, held.placement.gpus(), price);
        self.keep_course(job);
    }

    /// A job that is put aside holds no GPUs until it comes back.
    pub(super) fn note_away(&mut self, job: JobId) {
        let wall = self.wall;
        let old = self.records.get(&job).and_then(|record| record.launch.as_ref());
        let old_price = old.map_or(0.0, |launch| self.price_of(&launch.holds));
        let Some(launch) = self.record_mut(job).and_then(|record| record.launch.as_mut()) else {
            return;
        };
        let (gpus, permille) = (count(&launch.holds), launch.permille.take());
        launch.before.push(Held { until: wall, gpus, price_per_hour: old_price, permille });
        launch.holds = Vec::new();
        let launch = launch.clone();
        self.write_attempt(job, &launch, 0, 0.0);
        self.keep_course(job);
    }

    fn price_of(&self, holds: &[Holding]) -> f64 {
        let cluster = &self.options.cluster;
        let price = |one: &Holding| {
            let node = cluster.nodes.iter().find(|node| node.name == one.node)?;
            Some(cluster.kinds[node.kind.index()].price_per_hour * one.gpus.len() as f64)
        };
        holds.iter().filter_map(price).sum()
    }
}

fn count(holds: &[Holding]) -> u32 {
    holds.iter().map(|one| one.gpus.len() as u32).sum()
}
