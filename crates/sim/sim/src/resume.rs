//! Starts from the state of an engine that another host has driven: jobs that hold GPUs go on where they are.

use crate::queue::Future;
use crate::truth::Truth;
use crate::world::{Stage, World, turns_at};
use trainyard_engine::Engine;
use trainyard_framework::Live;
use trainyard_types::{Event, JobId, Phase, Suspended};

impl World<'_> {
    /// Takes over all jobs of an engine as they are. What follows at once comes back as events.
    ///
    /// A job that runs goes on at the pace it last reported; one that never reported goes at its true pace from now.
    /// One that starts or saves is done when that takes its time from when it began, or now if that is over.
    pub(crate) fn take_over(&mut self, engine: &Engine) -> Vec<Event> {
        let state = engine.state();
        self.last_step = state.now;
        let mut fresh = Vec::new();
        for live in state.jobs.values() {
            self.done.insert(live.spec.id, live.state.progress.done);
            if live.state.is_placed() && self.put(live, engine) {
                fresh.push(live.spec.id);
            }
            if let Some(own) = live.state.suspended.as_ref().filter(|_| !live.state.is_placed()) {
                self.put_away(live, own, engine);
            }
        }
        self.find_partners();
        let running: Vec<JobId> = self.running().collect();
        // Both lists ascend.
        for job in running.into_iter().filter(|job| fresh.binary_search(job).is_err()) {
            self.resume_from(job);
        }
        let mut events = Vec::new();
        for job in fresh {
            self.retime(state.now, job, &mut events);
        }
        events
    }

    /// Puts a job where it is. Returns whether it runs at a pace that is not known yet.
    fn put(&mut self, live: &Live, engine: &Engine) -> bool {
        let (job, state, now) = (live.spec.id, &live.state, engine.state().now);
        let Some(held) = state.held.clone() else { return false };
        let stage = match state.phase {
            Phase::Starting => Stage::Starting,
            Phase::Saving => Stage::Saving,
            _ => Stage::Running,
        };
        let unknown = stage == Stage::Running && state.progress.rate.0 <= 0.0;
        let mut placed = self.placed_anew((now, job), state.attempt, held);
        placed.stage = stage;
        placed.done = state.progress.done;
        placed.saved = state.progress.done;
        if stage == Stage::Running && !unknown {
            placed.at = state.progress.at;
            placed.exact_at = placed.at.as_secs_f64();
            placed.rate = state.progress.rate;
        }
        placed.config.batch = state.batch.or(placed.config.batch);
        let attempt = placed.attempt;
        let truth = self.truth.job(job);
        match stage {
            Stage::Starting => {
                let start = match &state.suspended {
                    Some(own) => {
                        placed.resumes = true;
                        self.truth.suspend(truth, &placed.config, own.memory_mib).back
                    }
                    None => self.truth.change(truth, None, Some(&placed.config)).start,
                };
                let at = (state.since + start).max(now);
                self.queue.push(at, Future::Started { job, attempt });
            }
            Stage::Saving if engine.is_suspending(job) => {
                let taken = engine.state().aside.taken.get(&job);
                placed.memory_mib = taken.map_or(0, |(_, memory)| *memory);
                let cost = self.truth.suspend(truth, &placed.config, placed.memory_mib);
                let at = (state.since + cost.out).max(now);
                self.queue.push(at, Future::Suspended { job, attempt });
            }
            Stage::Saving => {
                let save = self.truth.change(truth, Some(&placed.config), None).save;
                let at = (state.since + save).max(now);
                self.queue.push(at, Future::Stopped { job, attempt });
            }
            Stage::Running => {}
        }
        self.put_down(job, placed);
        unknown
    }

    /// Puts a job aside that was so. It is not known what it saved, so that nothing is taken to be lost.
    fn put_away(&mut self, live: &Live, own: &Suspended, engine: &Engine) {
        let (job, state, now) = (live.spec.id, &live.state, engine.state().now);
        let mut placed = self.placed_anew((now, job), state.attempt, own.home.clone());
        placed.done = state.progress.done;
        placed.saved = state.progress.done;
        placed.memory_mib = own.memory_mib;
        placed.config.batch = state.batch.or(placed.config.batch);
        if engine.is_discarding(job) {
            let attempt = placed.attempt;
            self.queue.push(now, Future::Stopped { job, attempt });
        }
        self.aside.insert(job, Box::new(placed));
    }

    /// A running job keeps its pace: its end was promised when that pace began.
    fn resume_from(&mut self, job: JobId) {
        let placed = self.placed.get_mut(job).expect("just listed");
        let truth = self.truth.job(job);
        let pace = self.truth.pace(truth, &placed.config, placed.done);
        placed.until = turns_at(truth, placed.done, pace.and_then(|pace| pace.until));
        let at = placed.at;
        if self.rounds.is_none() {
            self.promise(at, job);
        }
    }

    /// A job that shares GPUs has partners from the beginning.
    fn find_partners(&mut self) {
        for job in self.running().collect::<Vec<JobId>>() {
            let beside = self.beside(job);
            self.placed.get_mut(job).expect("just listed").config.beside = beside;
        }
    }
}
