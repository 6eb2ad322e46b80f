//! Operators on devices: what the planners that place single operators have in common.
//!
//! An operator runs on a [`Site`]: one device, or several that share its samples by their speed and make its gradients
//! equal afterwards. A placement is a site for each operator. [`Pieces`] are what has to be done for a placement, with
//! the transfers; a list schedule of them rates a placement quickly, and [`Placing::proposal`] simulates it.

mod pieces;
mod run;

pub use pieces::{Pieces, lists, tails};

use crate::{DeviceGraph, Graph, PlanError, Request};

/// Where an operator may run.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Devices, ascending, each with its part of the samples; the parts sum to 1.
    pub parts: Vec<(usize, f64)>,
}

impl Site {
    fn of(devices: &DeviceGraph, members: &[usize]) -> Site {
        let all: f64 = members.iter().map(|one| devices.devices[*one].speed).sum();
        let part = |one: &usize| (*one, devices.devices[*one].speed / all);
        Site { parts: members.iter().map(part).collect() }
    }
}

/// Operators that are to be placed.
pub struct Placing<'a> {
    /// The operators.
    pub graph: &'a Graph,
    /// The devices.
    pub devices: &'a DeviceGraph,
    /// Where they may run: first each device alone.
    pub sites: Vec<Site>,
    /// Samples of an iteration by those that the graph was timed for.
    pub scale: f64,
    batch: u32,
    state_factor: f64,
    /// Edges out of each operator.
    outgoing: Vec<Vec<usize>>,
    /// Edges into each operator.
    incoming: Vec<Vec<usize>>,
    /// Whether an operator or one after it has a backward pass.
    goes_back: Vec<bool>,
    /// Seconds for a byte, and the link that limits it, from each device to each other.
    wires: Vec<Vec<(f64, u32)>>,
    /// The same for the ring of each site.
    rings: Vec<(f64, u32)>,
}

impl<'a> Placing<'a> {
    /// Operators of a request, each on one device.
    ///
    /// Refuses a batch that the graph's does not divide, and an operator that fits no device.
    pub fn single(request: &Request<'a>) -> Result<Placing<'a>, PlanError> {
        let (graph, devices) = (request.graph, request.devices);
        if devices.devices.is_empty() {
            return Err(PlanError::Empty("the devices".to_owned()));
        }
        if request.batch == 0 || !request.batch.is_multiple_of(graph.batch) {
            return Err(PlanError::Indivisible {
                what: "the batch".to_owned(),
                whole: u64::from(request.batch),
                by: format!("the samples that `{}` was measured with", graph.name),
                parts: u64::from(graph.batch),
            });
        }
        let largest = devices.devices.iter().map(|one| one.memory_bytes).fold(0.0, f64::max);
        for operator in &graph.operators {
            let needed = request.state_factor * operator.parameter_bytes;
            if needed > largest {
                let operator = operator.name.clone();
                return Err(PlanError::FitsNoDevice { operator, needed, largest });
            }
        }
        let count = devices.devices.len();
        let wire = |a: usize, b: usize| {
            let route = devices.route(a, b);
            let slowest = slowest(devices, &route);
            (1.0 / devices.rate(a, b), slowest)
        };
        Ok(Placing {
            graph,
            devices,
            sites: (0..count).map(|one| Site::of(devices, &[one])).collect(),
            scale: f64::from(request.batch) / f64::from(graph.batch),
            batch: request.batch,
            state_factor: request.state_factor,
            outgoing: graph.outgoing(),
            incoming: graph.incoming(),
            goes_back: goes_back(graph),
            wires: (0..count).map(|a| (0..count).map(|b| wire(a, b)).collect()).collect(),
            rings: vec![(0.0, 0); count],
        })
    }

    /// The same with sites of several devices: each machine, and all devices.
    pub fn mixed(request: &Request<'a>) -> Result<Placing<'a>, PlanError> {
        let mut placing = Placing::single(request)?;
        let mut groups = request.devices.by_machine();
        groups.push((0..request.devices.devices.len()).collect());
        groups.retain(|group| group.len() > 1);
        groups.dedup();
        for group in groups {
            let ring = request.devices.ring(&group);
            let link = slowest(request.devices, &ring);
            let rate = request.devices.links[link as usize].bytes_per_second;
            let count = group.len() as f64;
            placing.rings.push((2.0 * (count - 1.0) / count / rate, link));
            placing.sites.push(Site::of(request.devices, &group));
        }
        Ok(placing)
    }

    /// Seconds of an operator's forward and backward pass on its part of the samples.
    fn seconds(&self, operator: usize, (device, part): (usize, f64)) -> (f64, f64) {
        let one = &self.graph.operators[operator];
        let factor = self.scale * part / self.devices.devices[device].speed;
        (one.forward * factor, one.backward * factor)
    }

    /// Seconds to hand on what passes an edge between two devices, there and, where it is trained, back.
    pub fn edge_seconds(&self, edge: usize, (from, to): (usize, usize)) -> f64 {
        let one = &self.graph.edges[edge];
        if from == to || one.bytes <= 0.0 {
            return 0.0;
        }
        let once = self.devices.latency + one.bytes * self.scale * self.wires[from][to].0;
        if self.goes_back[one.to] { 2.0 * once } else { once }
    }

    /// Edges into an operator.
    pub fn edges_into(&self, operator: usize) -> &[usize] {
        &self.incoming[operator]
    }

    /// Edges out of an operator.
    pub fn edges_out_of(&self, operator: usize) -> &[usize] {
        &self.outgoing[operator]
    }

    /// Seconds of both passes on a site, without what comes after.
    pub fn site_seconds(&self, operator: usize, site: usize) -> f64 {
        let slices = self.sites[site].parts.iter().map(|part| {
            let (forward, backward) = self.seconds(operator, *part);
            forward + backward
        });
        slices.fold(0.0, f64::max)
    }

    /// Bytes that an operator keeps on a device with this part of its samples: its state, and what it keeps from its
    /// forward to its backward pass.
    pub fn bytes(&self, operator: usize, part: f64) -> (f64, f64) {
        let one = &self.graph.operators[operator];
        let kept = if one.backward > 0.0 { one.activation_bytes } else { 0.0 };
        (self.state_factor * one.parameter_bytes, kept * part * self.scale)
    }

    /// Bytes that the fullest device lacks at most, if all that is kept is kept at once.
    pub fn lacking(&self, placement: &[usize]) -> f64 {
        let mut held = vec![0.0; self.devices.devices.len()];
        for (operator, site) in placement.iter().enumerate() {
            for (device, part) in &self.sites[*site].parts {
                let (state, kept) = self.bytes(operator, *part);
                held[*device] += state + kept;
            }
        }
        let lacks = held.iter().zip(&self.devices.devices);
        lacks.map(|(held, device)| held - device.memory_bytes).fold(0.0, f64::max)
    }

    /// What is compared: bytes that are lacking, and the seconds of a list schedule.
    pub fn rate(&self, placement: &[usize]) -> (f64, f64) {
        let pieces = Pieces::new(self, placement);
        (self.lacking(placement), lists(&pieces).seconds)
    }
}

/// Whether one rating is better than another: what fits comes first, and then what is faster.
pub fn is_better(a: (f64, f64), b: (f64, f64)) -> bool {
    a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).is_lt()
}

fn goes_back(graph: &Graph) -> Vec<bool> {
    let mut goes: Vec<bool> = graph.operators.iter().map(|one| one.backward > 0.0).collect();
    let outgoing = graph.outgoing();
    for operator in graph.order().iter().rev() {
        let after = outgoing[*operator].iter().any(|edge| goes[graph.edges[*edge].to]);
        goes[*operator] |= after;
    }
    goes
}

fn slowest(devices: &DeviceGraph, route: &[u32]) -> u32 {
    let speed = |link: u32| devices.links[link as usize].bytes_per_second;
    let least = route.iter().copied().min_by(|a, b| speed(*a).total_cmp(&speed(*b)).then(a.cmp(b)));
    least.unwrap_or(0)
}
