//! Servers below switches below switches, and what a plan costs there.

use crate::cost::Parts;
use crate::plan::{Plan, folds};
use trainyard_types::LinkId;

/// A switch.
#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    /// What it is called.
    pub name: String,
    /// The switch above; the root has none.
    pub up: Option<usize>,
    /// Bytes per second to the switch above, and as many back.
    pub up_bytes_per_second: f64,
    /// Seconds that a round through this switch takes beside its bytes.
    pub alpha: f64,
}

/// A server: one rank, be it a GPU or a host.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Its switch.
    pub switch: usize,
    /// Bytes per second to its switch, and as many back.
    pub bytes_per_second: f64,
}

/// What all servers have in common.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct ServerCosts {
    /// Seconds for each byte added to another.
    pub gamma: f64,
    /// Seconds for each byte read or written.
    pub delta: f64,
    /// Seconds for each byte received and each sender above the threshold.
    pub epsilon: f64,
    /// The greatest fan-in without incast, the receiver counted.
    pub fan_in_max: u32,
}

impl Default for ServerCosts {
    /// No cost beside latency and links.
    fn default() -> ServerCosts {
        ServerCosts { gamma: 0.0, delta: 0.0, epsilon: 0.0, fan_in_max: u32::MAX }
    }
}

/// A network without loops.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    /// Switches; each is listed after the one above it.
    pub switches: Vec<Switch>,
    /// Servers, which are the ranks.
    pub servers: Vec<Server>,
    /// What reducing costs them.
    pub costs: ServerCosts,
}

/// Why a tree is none.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TreeError {
    /// There must be one switch at the top, the first.
    #[error("switch `{0}` has no switch above it: only the first may be the root")]
    SecondRoot(String),
    /// The first switch is the root.
    #[error("the first switch must be the root, without a switch above it")]
    NoRoot,
    /// Above means earlier in the list.
    #[error("switch `{0}` must be listed after the switch above it")]
    OutOfOrder(String),
    /// A name stands for one switch.
    #[error("two switches are called `{0}`")]
    Twice(String),
    /// A link without capacity connects nothing.
    #[error("{0} has {1} bytes per second: expected a number above 0")]
    NoCapacity(String, f64),
    /// Latency and costs are not negative.
    #[error("{0} is {1}: expected a number of at least 0")]
    Negative(String, f64),
    /// A server hangs below a switch.
    #[error("server {0} is below a switch that is not there")]
    Loose(usize),
    /// There is nothing to do among fewer than two.
    #[error("a network needs at least 2 servers, not {0}")]
    TooFew(usize),
}

impl Tree {
    /// Servers with one link each to one switch.
    pub fn star(servers: usize, bytes_per_second: f64, alpha: f64, costs: ServerCosts) -> Tree {
        Tree {
            switches: vec![Switch {
                name: "switch".to_owned(),
                up: None,
                up_bytes_per_second: f64::INFINITY,
                alpha,
            }],
            servers: vec![Server { switch: 0, bytes_per_second }; servers],
            costs,
        }
    }

    /// Puts a switch with servers below the root.
    pub fn add_rack(
        &mut self,
        name: &str,
        up_bytes_per_second: f64,
        alpha: f64,
        (servers, bytes_per_second): (usize, f64),
    ) {
        let switch = self.switches.len();
        let name = name.to_owned();
        self.switches.push(Switch { name, up: Some(0), up_bytes_per_second, alpha });
        self.servers.extend(vec![Server { switch, bytes_per_second }; servers]);
    }

    /// Says what is wrong with it.
    pub fn check(&self) -> Result<(), TreeError> {
        if self.switches.first().is_none_or(|root| root.up.is_some()) {
            return Err(TreeError::NoRoot);
        }
        for (at, switch) in self.switches.iter().enumerate() {
            let name = switch.name.clone();
            if self.switches[..at].iter().any(|other| other.name == name) {
                return Err(TreeError::Twice(name));
            }
            match switch.up {
                None if at > 0 => return Err(TreeError::SecondRoot(name)),
                Some(up) if up >= at => return Err(TreeError::OutOfOrder(name)),
                Some(_) if !positive(switch.up_bytes_per_second) => {
                    let link = format!("the uplink of switch `{name}`");
                    return Err(TreeError::NoCapacity(link, switch.up_bytes_per_second));
                }
                _ => not_negative(&format!("alpha of switch `{name}`"), switch.alpha)?,
            }
        }
        for (at, server) in self.servers.iter().enumerate() {
            if server.switch >= self.switches.len() {
                return Err(TreeError::Loose(at));
            }
            if !positive(server.bytes_per_second) {
                let link = format!("the link of server {at}");
                return Err(TreeError::NoCapacity(link, server.bytes_per_second));
            }
        }
        let ServerCosts { gamma, delta, epsilon, .. } = self.costs;
        for (name, value) in [("gamma", gamma), ("delta", delta), ("epsilon", epsilon)] {
            not_negative(name, value)?;
        }
        if self.servers.len() < 2 {
            return Err(TreeError::TooFew(self.servers.len()));
        }
        Ok(())
    }

    /// Bytes per second of all links: up and down of each server, then up and down of each switch.
    pub fn capacities(&self) -> Vec<f64> {
        let servers = self.servers.iter().map(|server| server.bytes_per_second);
        let switches = self.switches.iter().map(|switch| switch.up_bytes_per_second);
        servers.chain(switches).flat_map(|one| [one, one]).collect()
    }

    /// What a link is called.
    pub fn link_name(&self, link: LinkId) -> String {
        let (at, way) = (link.index() / 2, if link.0.is_multiple_of(2) { "up" } else { "down" });
        match at.checked_sub(self.servers.len()) {
            None => format!("server {at} {way}"),
            Some(switch) => format!("switch {} {way}", self.switches[switch].name),
        }
    }

    /// The link into a server.
    pub fn into_server(&self, server: usize) -> LinkId {
        LinkId(server as u32 * 2 + 1)
    }

    /// Links from one server to another, and the switch where the way turns down.
    pub fn route(&self, from: usize, to: usize) -> (Vec<LinkId>, usize) {
        let mut links = vec![LinkId(from as u32 * 2), self.into_server(to)];
        let (mut a, mut b) = (self.servers[from].switch, self.servers[to].switch);
        let of = |switch: usize, way: u32| LinkId((self.servers.len() + switch) as u32 * 2 + way);
        // A switch is listed after the one above it, so the later of the two goes up.
        while a != b {
            let (lower, way) = if a > b { (&mut a, 0) } else { (&mut b, 1) };
            links.push(of(*lower, way));
            *lower = self.switches[*lower].up.expect("two switches meet at the root at last");
        }
        (links, a)
    }

    /// What a plan costs by GenModel: step by step, the busiest link, the slowest latency and the busiest server.
    pub fn parts(&self, plan: &Plan) -> Parts {
        let mut parts = Parts::default();
        let mut holds: Vec<bool> = (0..plan.ranks).map(|rank| rank < plan.workers).collect();
        let capacities = self.capacities();
        for step in plan.steps.iter().filter(|step| !step.is_empty()) {
            let mut load = vec![0.0; capacities.len()];
            let mut senders: Vec<(usize, usize)> = Vec::with_capacity(step.len());
            let mut alpha = 0.0;
            for one in step {
                let (links, meet) = self.route(one.from, one.to);
                links.iter().for_each(|link| load[link.index()] += one.bytes as f64);
                alpha = f64::max(alpha, self.switches[meet].alpha);
                senders.push((one.to, one.from));
            }
            senders.sort_unstable();
            senders.dedup();
            parts.latency += alpha;
            let fan_ins = fan_ins(&senders, self.servers.len());
            let penalty = |server: usize| self.penalty(fan_ins[server]);
            let busiest = load.iter().zip(&capacities).map(|(load, capacity)| load / capacity);
            let busiest = busiest.fold(0.0, f64::max);
            let with_incast = (0..self.servers.len()).map(|server| {
                let link = self.into_server(server).index();
                load[link] / capacities[link] + load[link] * penalty(server)
            });
            parts.links += busiest;
            parts.incast += (with_incast.fold(0.0, f64::max) - busiest).max(0.0);
            let folds = folds(step, plan.ranks, &holds);
            let slowest = |a: f64, b: f64| if b > a { b } else { a };
            let additions = folds.iter().map(|fold| fold.reduced * self.costs.gamma);
            let memory = folds.iter().map(|fold| fold.accessed * self.costs.delta);
            parts.additions += additions.fold(0.0, slowest);
            parts.memory += memory.fold(0.0, slowest);
            step.iter().for_each(|one| holds[one.to] = true);
        }
        parts
    }

    /// Seconds for each byte that so many senders to one server cost beside its link.
    pub fn penalty(&self, fan_in: u32) -> f64 {
        f64::from(fan_in.saturating_sub(self.costs.fan_in_max)) * self.costs.epsilon
    }
}

/// Senders of each server and itself, from pairs of receiver and sender.
fn fan_ins(pairs: &[(usize, usize)], servers: usize) -> Vec<u32> {
    let mut fan_ins = vec![1; servers];
    pairs.iter().for_each(|(to, _)| fan_ins[*to] += 1);
    fan_ins
}

fn positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

fn not_negative(name: &str, value: f64) -> Result<(), TreeError> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(TreeError::Negative(name.to_owned(), value))
}
