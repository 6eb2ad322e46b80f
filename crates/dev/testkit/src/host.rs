//! A host for tests of the engine: time is said, launches and stops succeed at once or when told to.

use std::sync::Arc;
use trainyard_engine::{Engine, Setup};
use trainyard_framework::{Beliefs, ChangeCost, Pipeline};
use trainyard_types::{
    Action, Attempt, Cluster, Config, Event, Job, JobId, Rate, Tenants, Time, Work,
};

/// Every job runs at speed 1 and is believed to be an hour of work.
pub struct Plain;

impl Beliefs for Plain {
    fn copied(&self) -> Arc<dyn Beliefs> {
        Arc::new(Plain)
    }

    fn rate(&self, _job: &Job, _on: &Config) -> Option<Rate> {
        Some(Rate(1.0))
    }

    fn change(&self, _job: &Job, _from: Option<&Config>, _to: Option<&Config>) -> ChangeCost {
        ChangeCost::default()
    }

    fn work(&self, job: &Job) -> Option<Work> {
        Some(job.declared.unwrap_or(Work(3600.0)))
    }
}

/// An engine with a policy, and what it asked for so far.
pub struct Host {
    /// The engine.
    pub engine: Engine,
    /// The policy.
    pub pipeline: Pipeline,
    /// All actions so far.
    pub actions: Vec<Action>,
    /// Whether launches and stops succeed at once.
    pub obeys: bool,
    now: Time,
}

impl Host {
    /// Over a cluster, checking everything at every decision.
    pub fn new(cluster: Cluster, tenants: Tenants, pipeline: Pipeline) -> Host {
        let setup = Setup { check_every: 1, ..Setup::default() };
        Host {
            engine: Engine::new(Arc::new(cluster), tenants, Arc::new(Plain), setup),
            pipeline,
            actions: Vec::new(),
            obeys: true,
            now: Time::ZERO,
        }
    }

    /// Something happens at a second; then the engine takes its steps. Gives back the new actions.
    pub fn at(&mut self, second: u64, event: Event) -> Vec<Action> {
        self.now = Time(second * 1_000_000);
        self.engine.apply(self.now, event);
        self.settle()
    }

    /// Time passes; whatever falls due on the way is done at its moment.
    pub fn until(&mut self, second: u64) -> Vec<Action> {
        let end = Time(second * 1_000_000);
        let mut new = Vec::new();
        while let Some(due) = self.engine.due().filter(|due| *due <= end) {
            self.now = due.max(self.now);
            new.extend(self.settle());
        }
        self.now = end;
        new.extend(self.settle());
        new
    }

    /// A job is submitted.
    pub fn submit(&mut self, second: u64, job: Job) -> Vec<Action> {
        self.at(second, Event::Submitted(Arc::new(job)))
    }

    /// The newest attempt of a job.
    pub fn attempt(&self, job: u32) -> Attempt {
        self.engine.state().live(JobId(job)).map_or(Attempt(0), |live| live.state.attempt)
    }

    /// A job's newest attempt finishes.
    pub fn finish(&mut self, second: u64, job: u32) -> Vec<Action> {
        let attempt = self.attempt(job);
        self.at(second, Event::Finished { job: JobId(job), attempt })
    }

    /// Whether a job holds GPUs.
    pub fn runs(&self, job: u32) -> bool {
        self.engine.state().live(JobId(job)).is_some_and(|live| live.state.held.is_some())
    }

    fn settle(&mut self) -> Vec<Action> {
        let mut new = Vec::new();
        loop {
            let actions = self.engine.step(self.now, &mut self.pipeline);
            if actions.is_empty() {
                break;
            }
            for action in &actions {
                if self.obeys {
                    self.obey(action);
                }
            }
            new.extend(actions);
        }
        self.engine.assert_invariants();
        self.actions.extend(new.iter().cloned());
        new
    }

    fn obey(&mut self, action: &Action) {
        match action {
            Action::Launch { job, attempt, .. } => {
                self.engine.apply(self.now, Event::Started { job: *job, attempt: *attempt });
            }
            Action::Stop { job, attempt, .. } => {
                let done = Work::ZERO;
                let stopped = Event::Stopped { job: *job, attempt: *attempt, done };
                self.engine.apply(self.now, stopped);
            }
            Action::Suspend { job, attempt, memory_mib } => {
                let (job, attempt, memory_mib) = (*job, *attempt, *memory_mib);
                self.engine.apply(self.now, Event::Suspended { job, attempt, memory_mib });
            }
            Action::Resume { job, attempt, .. } => {
                self.engine.apply(self.now, Event::Started { job: *job, attempt: *attempt });
            }
            Action::Adjust { .. } | Action::Ended { .. } => {}
        }
    }
}
