//! A placement through the event simulation, as a proposal.

use super::Placing;
use super::pieces::{Pieces, What, lists};
use crate::plan::{DeviceMemory, Parts, StageShape, Title, binds};
use crate::simulate::{Discipline, Purpose, Run, Simulation, Task, Work, simulate};
use crate::timeline::{Bar, Timeline};
use crate::{PlanError, Proposal};

impl Placing<'_> {
    /// A placement simulated: transfers share links, and what is kept of operators is counted from pass to pass.
    pub fn simulate(&self, placement: &[usize]) -> Result<(Vec<Task>, Run), PlanError> {
        let pieces = Pieces::new(self, placement);
        self.simulate_pieces(&pieces, placement, 1.0)
    }

    fn simulate_pieces(
        &self,
        pieces: &Pieces,
        placement: &[usize],
        byte_factor: f64,
    ) -> Result<(Vec<Task>, Run), PlanError> {
        let order = lists(pieces).rank;
        let tasks: Vec<Task> = (pieces.all.iter().zip(order))
            .map(|(piece, rank)| {
                let (purpose, of, work, takes, leaves) = self.task(piece.what, byte_factor);
                Task {
                    purpose,
                    of,
                    lane: Some(piece.lane),
                    rank: u64::from(rank),
                    work: work.unwrap_or(Work::Seconds(piece.seconds)),
                    after: piece.after.clone(),
                    takes,
                    leaves,
                }
            })
            .collect();
        let mut held_bytes = vec![0.0; self.devices.devices.len()];
        for (operator, site) in placement.iter().enumerate() {
            for (device, part) in &self.sites[*site].parts {
                held_bytes[*device] += self.bytes(operator, *part).0;
            }
        }
        let what = Simulation {
            tasks,
            lanes: vec![Discipline::Ready; pieces.lanes],
            links: self.devices.links.iter().map(|link| link.bytes_per_second).collect(),
            held_bytes,
        };
        let run = simulate(&what)?;
        Ok((what.tasks, run))
    }

    #[allow(clippy::type_complexity)]
    fn task(
        &self,
        what: What,
        byte_factor: f64,
    ) -> (Purpose, (u32, u32), Option<Work>, Vec<(u32, f64)>, Vec<(u32, f64)>) {
        let kept = |operator: usize, device: usize, part: f64, sign: f64| {
            let bytes = self.bytes(operator, part).1;
            if bytes > 0.0 { vec![(device as u32, sign * bytes)] } else { Vec::new() }
        };
        match what {
            What::Forward(operator, device, part) => {
                let takes = kept(operator, device, part, 1.0);
                (Purpose::Forward, (device as u32, operator as u32), None, takes, Vec::new())
            }
            What::Backward(operator, device, part) => {
                let leaves = kept(operator, device, part, -1.0);
                (Purpose::Backward, (device as u32, operator as u32), None, Vec::new(), leaves)
            }
            What::Transfer(from, to, bytes) => {
                let work = Work::Bytes {
                    bytes: bytes * byte_factor,
                    route: self.devices.route(from, to),
                    rate_max: self.devices.rate_max(from, to),
                    latency: self.devices.latency * byte_factor,
                };
                let of = (from as u32, to as u32);
                (Purpose::Transfer, of, Some(work), Vec::new(), Vec::new())
            }
            What::Ring(operator, site) => {
                let members: Vec<usize> = self.sites[site].parts.iter().map(|one| one.0).collect();
                let steps = 2.0 * (members.len() as f64 - 1.0);
                let bytes = self.graph.operators[operator].parameter_bytes;
                let work = Work::Bytes {
                    bytes: steps / members.len() as f64 * bytes,
                    route: self.devices.ring(&members),
                    rate_max: f64::INFINITY,
                    latency: steps * self.devices.latency,
                };
                let of = (members[0] as u32, operator as u32);
                (Purpose::Synchronise, of, Some(work), Vec::new(), Vec::new())
            }
        }
    }

    /// A placement as a proposal.
    pub fn proposal(&self, title: Title, placement: &[usize]) -> Result<Proposal, PlanError> {
        let pieces = Pieces::new(self, placement);
        let (tasks, run) = self.simulate_pieces(&pieces, placement, 1.0)?;
        let (_, bare) = self.simulate_pieces(&pieces, placement, 0.0)?;
        let count = self.devices.devices.len();
        let used: Vec<usize> = (0..count).filter(|device| run.busy[*device] > 0.0).collect();
        let is_pass = |task: &Task| matches!(task.purpose, Purpose::Forward | Purpose::Backward);
        let passes = tasks.iter().zip(&run.end).filter(|(task, _)| is_pass(task));
        let last_pass = passes.map(|(_, end)| *end).fold(0.0, f64::max);
        let busy: f64 = used.iter().map(|device| run.busy[*device]).sum();
        let compute = busy / used.len().max(1) as f64;
        let synchronise = run.seconds - last_pass;
        let transfer = (last_pass - bare.seconds).max(0.0);
        let bubble = (run.seconds - compute - synchronise - transfer).max(0.0);
        let parts = Parts { compute, bubble, transfer, synchronise };
        let mut memory: Vec<DeviceMemory> = (used.iter())
            .map(|device| DeviceMemory {
                device: self.devices.devices[*device].name.clone(),
                count: 1,
                bytes: run.peak_bytes[*device],
                capacity: self.devices.devices[*device].memory_bytes,
            })
            .collect();
        let fullness = |one: &DeviceMemory| one.bytes / one.capacity.max(1.0);
        memory.sort_by(|a, b| fullness(b).total_cmp(&fullness(a)));
        Ok(Proposal {
            planner: title.planner,
            variant: title.variant,
            summary: title.summary,
            seconds: run.seconds,
            samples_per_second: f64::from(self.batch) / run.seconds.max(f64::MIN_POSITIVE),
            binds: binds(&parts, &memory),
            parts,
            stages: used.iter().map(|device| self.shape(placement, *device, &run)).collect(),
            memory,
            timeline: self.timeline(&tasks, &run, &used),
        })
    }

    fn shape(&self, placement: &[usize], device: usize, run: &Run) -> StageShape {
        let mut own = placement
            .iter()
            .enumerate()
            .filter(|(_, site)| self.sites[**site].parts.iter().any(|(other, _)| *other == device));
        let first = own.next().map_or("", |(at, _)| self.graph.operators[at].name.as_str());
        let more = own.count();
        let name = &self.devices.devices[device].name;
        StageShape {
            layers: format!("`{first}` and {more} more on {name}"),
            count: more as u32 + 1,
            devices: 1,
            seconds: run.busy[device],
        }
    }

    fn timeline(&self, tasks: &[Task], run: &Run, used: &[usize]) -> Timeline {
        let row = |device: u32| used.iter().position(|one| *one == device as usize);
        let bars = tasks.iter().enumerate().filter_map(|(at, task)| {
            let (start, end) = (run.start[at], run.end[at]);
            let shown = task.purpose != Purpose::Transfer && end > start;
            let row = row(task.of.0).filter(|_| shown)? as u32;
            Some(Bar { row, start, end, purpose: task.purpose, label: task.of.1 })
        });
        let bars = bars.collect();
        let rows = used.iter().map(|device| self.devices.devices[*device].name.clone());
        Timeline { rows: rows.collect(), bars }
    }

    /// A placement in a few words: operators on each site that has any.
    pub fn summary(&self, placement: &[usize]) -> String {
        let mut counts = vec![0usize; self.sites.len()];
        placement.iter().for_each(|site| counts[*site] += 1);
        let alone: Vec<String> = (0..self.sites.len())
            .filter(|site| counts[*site] > 0 && self.sites[*site].parts.len() == 1)
            .map(|site| counts[site].to_string())
            .collect();
        let shared: usize = (0..self.sites.len())
            .filter(|site| self.sites[*site].parts.len() > 1)
            .map(|site| counts[site])
            .sum();
        match (alone.is_empty(), shared) {
            (false, 0) => format!("operators {}", alone.join(":")),
            (true, _) => format!("all {shared} operators on several devices"),
            (false, _) => format!("operators {}, and {shared} on several devices", alone.join(":")),
        }
    }
}
