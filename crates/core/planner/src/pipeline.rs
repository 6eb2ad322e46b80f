//! A pipeline as tasks: stages, micro-batches, transfers, synchronisation and memory.

use crate::schedule::{Pass, Schedule};
use crate::simulate::{Discipline, Purpose, Run, Simulation, Task, Work, simulate};
use crate::{DeviceGraph, PlanError};

/// Bytes over links.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Move {
    /// How many.
    pub bytes: f64,
    /// Over which links.
    pub route: Vec<u32>,
    /// At most so many a second; 0 for no limit.
    pub rate_max: f64,
    /// Seconds before the first.
    pub latency: f64,
}

/// One part of the model on one group of devices. Times are for one micro-batch on the whole group.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// What it consists of.
    pub name: String,
    /// How many layers that is.
    pub layers: u32,
    /// Seconds of its forward pass.
    pub forward: f64,
    /// Seconds of its backward pass, recomputation included.
    pub backward: f64,
    /// What it hands to the next chunk; the same goes back.
    pub to_next: Vec<Move>,
    /// What makes the gradients of its devices equal, after its last backward pass; one after the other.
    pub synchronise: Vec<Move>,
    /// Seconds of synchronisation that no link of the graph stands for.
    pub synchronise_seconds: f64,
    /// The devices.
    pub devices: Vec<usize>,
    /// Bytes that each device holds all the time.
    pub fixed_bytes: f64,
    /// Bytes that each device keeps of a micro-batch from its forward to its backward pass.
    pub kept_bytes: f64,
    /// Bytes that each device needs during a backward pass beside those.
    pub working_bytes: f64,
}

/// A pipeline: chunk `i` runs on group `i % groups`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// The parts of the model, in order.
    pub chunks: Vec<Chunk>,
    /// How often a batch is divided.
    pub micro_batches: u32,
    /// The order of passes.
    pub schedule: Schedule,
}

/// A pipeline that was simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineRun {
    /// Its tasks.
    pub tasks: Vec<Task>,
    /// When they ran.
    pub run: Run,
    /// The number of groups.
    pub groups: u32,
}

impl Pipeline {
    /// The number of groups of devices.
    pub fn groups(&self) -> u32 {
        self.chunks.len() as u32 / self.schedule.chunks()
    }

    /// Runs it on the devices and links of a graph.
    pub fn simulate(&self, devices: &DeviceGraph) -> Result<PipelineRun, PlanError> {
        let groups = self.groups();
        if groups * self.schedule.chunks() != self.chunks.len() as u32 {
            return Err(PlanError::Indivisible {
                what: "the parts of the model".to_owned(),
                whole: self.chunks.len() as u64,
                by: "the parts on each group".to_owned(),
                parts: u64::from(self.schedule.chunks()),
            });
        }
        let tasks = self.tasks(groups)?;
        let mut held_bytes = vec![0.0; devices.devices.len()];
        for chunk in &self.chunks {
            chunk.devices.iter().for_each(|device| held_bytes[*device] += chunk.fixed_bytes);
        }
        let what = Simulation {
            tasks,
            lanes: vec![Discipline::Program; groups as usize],
            links: devices.links.iter().map(|link| link.bytes_per_second).collect(),
            held_bytes,
        };
        let mut run = simulate(&what)?;
        for chunk in &self.chunks[..groups as usize] {
            let peak = run.peak_bytes[chunk.devices[0]];
            chunk.devices.iter().for_each(|device| run.peak_bytes[*device] = peak);
        }
        Ok(PipelineRun { tasks: what.tasks, run, groups })
    }

    /// Forward and backward passes first, in the order of chunk and micro-batch, then transfers and synchronisation.
    fn tasks(&self, groups: u32) -> Result<Vec<Task>, PlanError> {
        let ranks = self.ranks(groups)?;
        let (count, micros) = (self.chunks.len() as u32, self.micro_batches);
        let forward = |chunk: u32, micro: u32| self.task((chunk, micro), false) as u32;
        let backward = |chunk: u32, micro: u32| self.task((chunk, micro), true) as u32;
        let mut tasks: Vec<Task> = Vec::with_capacity((4 * count * micros) as usize);
        for chunk in 0..count {
            for micro in 0..micros {
                tasks.push(self.pass(&ranks, groups, (chunk, micro), false));
                tasks.push(self.pass(&ranks, groups, (chunk, micro), true));
                tasks[backward(chunk, micro) as usize].after.push(forward(chunk, micro));
            }
        }
        for chunk in 0..count {
            for micro in 0..micros {
                if chunk + 1 < count {
                    let ahead = (forward(chunk, micro), forward(chunk + 1, micro));
                    self.hand_over(&mut tasks, (chunk, micro), ahead);
                    let back = (backward(chunk + 1, micro), backward(chunk, micro));
                    self.hand_over(&mut tasks, (chunk, micro), back);
                }
            }
            let ends: Vec<u32> = (0..micros).map(|micro| backward(chunk, micro)).collect();
            self.synchronise(&mut tasks, chunk, ends);
        }
        Ok(tasks)
    }

    /// When each pass has its turn on its group.
    fn ranks(&self, groups: u32) -> Result<Vec<u64>, PlanError> {
        let mut ranks = vec![0; 2 * self.chunks.len() * self.micro_batches as usize];
        for group in 0..groups {
            let passes = self.schedule.passes((group, groups), self.micro_batches)?;
            for (rank, Pass { chunk, micro_batch, is_backward }) in (0..).zip(passes) {
                let of = (chunk * groups + group, micro_batch);
                ranks[self.task(of, is_backward)] = rank;
            }
        }
        Ok(ranks)
    }

    /// The index of a pass among the tasks.
    fn task(&self, (chunk, micro): (u32, u32), is_backward: bool) -> usize {
        2 * (chunk * self.micro_batches + micro) as usize + usize::from(is_backward)
    }

    fn pass(
        &self,
        ranks: &[u64],
        groups: u32,
        (index, micro): (u32, u32),
        is_backward: bool,
    ) -> Task {
        let chunk = &self.chunks[index as usize];
        // The devices of a group hold the same; the first stands for them.
        let on_first = |bytes: f64| match bytes == 0.0 {
            true => Vec::new(),
            false => vec![(chunk.devices[0] as u32, bytes)],
        };
        let (takes, leaves) = match is_backward {
            false => (on_first(chunk.kept_bytes), Vec::new()),
            true => {
                (on_first(chunk.working_bytes), on_first(-(chunk.kept_bytes + chunk.working_bytes)))
            }
        };
        Task {
            purpose: if is_backward { Purpose::Backward } else { Purpose::Forward },
            of: (index, micro),
            lane: Some(index % groups),
            rank: ranks[self.task((index, micro), is_backward)],
            work: Work::Seconds(if is_backward { chunk.backward } else { chunk.forward }),
            after: Vec::new(),
            takes,
            leaves,
        }
    }

    fn hand_over(&self, tasks: &mut Vec<Task>, of: (u32, u32), (from, to): (u32, u32)) {
        let moves = &self.chunks[of.0 as usize].to_next;
        if moves.is_empty() {
            tasks[to as usize].after.push(from);
        }
        for one in moves {
            let index = tasks.len() as u32;
            tasks.push(moved(one, Purpose::Transfer, of, vec![from]));
            tasks[to as usize].after.push(index);
        }
    }

    fn synchronise(&self, tasks: &mut Vec<Task>, index: u32, mut after: Vec<u32>) {
        let chunk = &self.chunks[index as usize];
        let of = (index, self.micro_batches);
        for one in &chunk.synchronise {
            tasks.push(moved(one, Purpose::Synchronise, of, after));
            after = vec![tasks.len() as u32 - 1];
        }
        if chunk.synchronise_seconds > 0.0 {
            let work = Work::Seconds(chunk.synchronise_seconds);
            let none = Move::default();
            tasks.push(Task { work, ..moved(&none, Purpose::Synchronise, of, after) });
        }
    }
}

fn moved(one: &Move, purpose: Purpose, of: (u32, u32), after: Vec<u32>) -> Task {
    let rate_max = if one.rate_max > 0.0 { one.rate_max } else { f64::INFINITY };
    let (bytes, route, latency) = (one.bytes, one.route.clone(), one.latency);
    let work = Work::Bytes { bytes, route, rate_max, latency };
    let (takes, leaves) = (Vec::new(), Vec::new());
    Task { purpose, of, lane: None, rank: 0, work, after, takes, leaves }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::{DAPPLE_A, KindFigures};

    fn pipeline(stages: usize, micro_batches: u32, schedule: Schedule) -> Pipeline {
        let chunks = stages * schedule.chunks() as usize;
        let chunk = |index: usize| Chunk {
            name: format!("c{index}"),
            layers: 1,
            forward: 1.0 / f64::from(schedule.chunks()),
            backward: 2.0 / f64::from(schedule.chunks()),
            to_next: Vec::new(),
            synchronise: Vec::new(),
            synchronise_seconds: 0.0,
            devices: vec![index % stages],
            fixed_bytes: 10.0,
            kept_bytes: 1.0,
            working_bytes: 0.0,
        };
        Pipeline { chunks: (0..chunks).map(chunk).collect(), micro_batches, schedule }
    }

    fn graph() -> DeviceGraph {
        let figures = KindFigures { speed: 1.0, memory_bytes: 1e9, peak_flops: 1e12 };
        DeviceGraph::uniform((1, 4), "v100", figures, &DAPPLE_A)
    }

    #[test]
    fn the_bubble_of_equal_stages_is_the_closed_form() {
        for micros in [1, 4, 8] {
            let ideal = f64::from(micros) * 3.0;
            for schedule in [Schedule::AllForward, Schedule::OneForwardOneBackward] {
                let run = pipeline(4, micros, schedule).simulate(&graph()).unwrap().run;
                // (p - 1) / m of the ideal time, PTD-P section 2.2.
                assert!((run.seconds - ideal - 3.0 * 3.0).abs() < 1e-9, "{schedule:?} {micros}");
            }
        }
    }

    #[test]
    fn interleaving_divides_the_bubble_by_the_number_of_chunks() {
        for chunks in [1, 2, 3] {
            let schedule = Schedule::Interleaved { chunks };
            let run = pipeline(4, 8, schedule).simulate(&graph()).unwrap().run;
            let bubble = run.seconds - 24.0;
            assert!((bubble - 9.0 / f64::from(chunks)).abs() < 1e-9, "{chunks}: {bubble}");
        }
    }

    #[test]
    fn memory_of_one_forward_one_backward_does_not_grow_with_the_batch() {
        let peak = |schedule, micros| {
            pipeline(4, micros, schedule).simulate(&graph()).unwrap().run.peak_bytes[0]
        };
        assert_eq!(peak(Schedule::OneForwardOneBackward, 8), 14.0);
        assert_eq!(peak(Schedule::OneForwardOneBackward, 32), 14.0);
        assert_eq!(peak(Schedule::AllForward, 32), 42.0);
        assert_eq!(peak(Schedule::EarlyBackward { depth: 2, wide: false }, 32), 12.0);
    }
}
