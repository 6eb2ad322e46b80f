//! Jobs that meet on a GPU: who is there, and whose speed changes when one comes, goes or changes its share.

use crate::options::Charge;
use crate::truth::Truth;
use crate::world::{Placed, Stage, World};
use smallvec::SmallVec;
use trainyard_types::{Beside, Event, JobId, Occupant, Placement, Span, Time};

impl World<'_> {
    /// The other jobs on the GPUs of a job that holds some, ascending.
    pub(crate) fn neighbours(&self, job: JobId) -> SmallVec<[JobId; 4]> {
        let Some(placed) = self.placed.get(job).filter(|_| self.occupants.was_shared) else {
            return SmallVec::new();
        };
        self.occupants.neighbours(job, &placed.allocation.placement)
    }

    /// The jobs on some GPUs, ascending.
    pub(crate) fn occupants_of(&self, place: &Placement) -> SmallVec<[JobId; 4]> {
        if !self.occupants.was_shared {
            return SmallVec::new();
        }
        let mut found: SmallVec<[JobId; 4]> = SmallVec::new();
        for gpu in place.each_gpu() {
            found.extend_from_slice(self.occupants.on(gpu));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Works out the speeds of a job and of those that it meets or met; where jobs disturb each other on links, of all.
    /// O(jobs on the same GPUs), each with the jobs on its own.
    pub(crate) fn retime_with(
        &mut self,
        at: Time,
        job: Option<JobId>,
        met: &[JobId],
        events: &mut Vec<Event>,
    ) {
        if self.interference > 0.0 {
            let running: Vec<JobId> = self.running().collect();
            return running.into_iter().for_each(|job| self.meet(at, job, events));
        }
        let mut jobs: SmallVec<[JobId; 4]> = job.into_iter().chain(met.iter().copied()).collect();
        jobs.sort_unstable();
        for job in jobs {
            if self.placed.get(job).is_some_and(|placed| placed.stage == Stage::Running) {
                self.meet(at, job, events);
            }
        }
    }

    fn meet(&mut self, at: Time, job: JobId, events: &mut Vec<Event>) {
        // Up to now it paid for those that it met before.
        self.catch_up(at, job);
        let (beside, step_cost) = (self.beside(job), self.step_cost(job));
        let placed = self.placed.get_mut(job).expect("only placed jobs meet others");
        placed.config.beside = beside;
        placed.step_cost = step_cost;
        self.retime(at, job, events);
    }

    /// What each event costs a job where starts are charged at every one: its own, and where stages are interleaved
    /// those of all jobs on its GPUs, for whom it waits.
    fn step_cost(&self, job: JobId) -> Span {
        if self.charge != Charge::EveryStep {
            return Span::ZERO;
        }
        let start = |job: JobId| {
            let config = Some(&self.placed[job].config);
            self.truth.change(self.truth.job(job), None, config).start
        };
        let mut cost = start(job);
        if self.interleaved {
            for other in self.neighbours(job) {
                if self.placed[other].stage == Stage::Running {
                    cost += start(other);
                }
            }
        }
        cost
    }

    /// What a job meets on its GPUs among the jobs that run, each different situation once.
    pub(crate) fn beside(&self, job: JobId) -> SmallVec<[Beside; 1]> {
        let mut found: SmallVec<[Beside; 1]> = SmallVec::new();
        if !self.occupants.was_shared {
            return found;
        }
        let own = &self.placed[job].allocation;
        for (index, gpu) in own.placement.each_gpu().enumerate() {
            let others = self.occupants.on(gpu).iter().filter(|other| **other != job);
            let running = others
                .map(|other| &self.placed[*other])
                .filter(|other| other.stage == Stage::Running);
            let mut others: SmallVec<[Occupant; 2]> =
                running.map(|other| seen_on(other, gpu)).collect();
            if others.is_empty() {
                continue;
            }
            others.sort_unstable();
            let beside = Beside { request: own.share(index).permille(), others };
            if !found.contains(&beside) {
                found.push(beside);
            }
        }
        found.sort_unstable();
        found
    }
}

/// What the others on a GPU see of a job there.
fn seen_on(placed: &Placed, gpu: trainyard_types::GpuAt) -> Occupant {
    let allocation = &placed.allocation;
    let index = match allocation.shares.len() {
        1 => 0,
        _ => allocation.placement.each_gpu().position(|own| own == gpu).unwrap_or(0),
    };
    allocation.occupant(placed.model, index)
}
