//! What a job gains from host CPUs and memory (Synergy, section 3): its sensitivity matrix, its best case and its share
//! in proportion to its GPUs.

use crate::prelude::*;
use trainyard_types::{Config, HostShare, PoolId};

/// Speeds that differ by less than this part count as equal.
const SAME: f64 = 1e-9;

/// Nodes that are alike, as far as hosts are concerned.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Server {
    kind: GpuType,
    pool: PoolId,
    gpus: u32,
    cpus: u32,
    memory_mib: u64,
}

/// The sorts of nodes of a cluster.
pub fn servers(view: &View<'_>) -> Vec<Server> {
    let nodes = view.cluster().nodes.iter().filter(|node| node.gpus > 0);
    let mut servers: Vec<Server> = Vec::new();
    for node in nodes {
        let server = Server {
            kind: node.kind,
            pool: node.pool,
            gpus: u32::from(node.gpus),
            cpus: u32::from(node.cpus),
            memory_mib: u64::from(node.memory_mib),
        };
        if !servers.contains(&server) {
            servers.push(server);
        }
    }
    servers
}

/// Host CPUs and memory for each GPU, and the speed with them in parts of that with the proportional share.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Cell {
    pub host: HostShare,
    pub speed: f64,
}

/// What a job can do with.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    pub gpus: u32,
    /// The part of a node's host that its GPUs are of the node's GPUs; in a cluster of several sorts of nodes the least.
    pub proportional: HostShare,
    /// All that is worth having: never slower than the proportional share, and each faster than all that take no more.
    /// By CPUs, then memory, ascending.
    pub cells: Vec<Cell>,
}

impl Demand {
    /// The demand of a job on so many GPUs, by what is believed of its speed.
    pub fn new(job: JobRef<'_>, gpus: u32, servers: &[Server], view: &View<'_>) -> Demand {
        let want = &job.spec.want;
        let fits = |server: &&Server| {
            want.accepts(server.kind) && want.pool.is_none_or(|pool| server.pool == pool)
        };
        let usable: Vec<&Server> = servers.iter().filter(fits).collect();
        let (proportional, most) = bounds(&usable, gpus);
        let wish = want.host_per_gpu();
        let proportional = proportional.at_least(wish);
        let kind = usable.first().map(|server| (server.kind, server.gpus));
        let rate = |host: HostShare| {
            let (kind, per_node) = kind?;
            let mut config = Config::packed(kind, gpus, per_node);
            config.permille = want.permille;
            config.host =
                HostShare { cpus: host.cpus * gpus, memory_mib: host.memory_mib * u64::from(gpus) };
            view.rate(job, &config).map(|rate| rate.0).filter(|rate| *rate > 0.0)
        };
        let alone = vec![Cell { host: proportional, speed: 1.0 }];
        let Some(usual) = rate(proportional) else {
            return Demand { gpus, proportional, cells: alone };
        };
        let Some(table) = view.host_table(job, gpus) else {
            return Demand { gpus, proportional, cells: alone };
        };
        let cpus = table.cpus.iter().map(|cpus| libm::ceil(*cpus) as u64);
        let cpus = axis(cpus, u64::from(proportional.cpus), u64::from(most.cpus));
        let memory = table.memory_mib.iter().map(|mib| u64::from(*mib));
        let memory = axis(memory, proportional.memory_mib, most.memory_mib);
        let all = cpus.iter().flat_map(|cpus| {
            let cpus = *cpus as u32;
            memory.iter().map(move |memory_mib| HostShare { cpus, memory_mib: *memory_mib })
        });
        let cells = all.filter_map(|host| {
            let host = host.at_least(wish);
            Some(Cell { host, speed: rate(host)? / usual })
        });
        Demand { gpus, proportional, cells: worth_having(cells.collect()) }
    }

    /// The same for a job that is to have its proportional share and nothing else.
    pub fn fixed(self) -> Demand {
        Demand { cells: vec![Cell { host: self.proportional, speed: 1.0 }], ..self }
    }

    /// The fewest CPUs and the least memory with which it is fastest.
    pub fn best(&self) -> HostShare {
        let mut best = self.cells[0];
        for cell in &self.cells[1..] {
            if cell.speed > best.speed * (1.0 + SAME) {
                best = *cell;
            }
        }
        best.host
    }

    /// What it falls back to: its best case where that takes no more than the proportional share, else that share.
    pub fn least(&self) -> HostShare {
        let best = self.best();
        if best.is_within(self.proportional) { best } else { self.proportional }
    }
}

/// The proportional share of a job's GPUs, and the most for each of them that a node has; 0 is not stated.
fn bounds(servers: &[&Server], gpus: u32) -> (HostShare, HostShare) {
    let mut least = HostShare::default();
    let mut most = HostShare::default();
    for server in servers {
        // A job that is larger than a node has the hosts of all its nodes to itself, and no more.
        let here = gpus.clamp(1, server.gpus);
        if server.cpus > 0 {
            let even = server.cpus / server.gpus;
            least.cpus = if least.cpus == 0 { even } else { least.cpus.min(even) };
            most.cpus = most.cpus.max(server.cpus / here);
        }
        if server.memory_mib > 0 {
            let even = server.memory_mib / u64::from(server.gpus);
            least.memory_mib =
                if least.memory_mib == 0 { even } else { least.memory_mib.min(even) };
            most.memory_mib = most.memory_mib.max(server.memory_mib / u64::from(here));
        }
    }
    (least, most)
}

/// Measured amounts up to the most that can be had, and the proportional one; only that where nothing is stated.
fn axis(measured: impl Iterator<Item = u64>, proportional: u64, most: u64) -> Vec<u64> {
    if proportional == 0 {
        return vec![0];
    }
    let mut amounts: Vec<u64> = measured.map(|amount| amount.clamp(1, most.max(1))).collect();
    amounts.push(proportional);
    amounts.sort_unstable();
    amounts.dedup();
    amounts
}

/// Cells that are not slower than the proportional share, each faster than all that take no more. The share itself has
/// the speed 1 and is one of them or takes no less than one.
fn worth_having(mut cells: Vec<Cell>) -> Vec<Cell> {
    cells.retain(|cell| cell.speed >= 1.0 - SAME);
    cells.sort_by(|a, b| {
        let key = |cell: &Cell| (cell.host.cpus, cell.host.memory_mib);
        key(a).cmp(&key(b))
    });
    let mut kept: Vec<Cell> = Vec::new();
    for cell in cells {
        let beaten = |other: &Cell| {
            other.host.is_within(cell.host) && other.speed >= cell.speed * (1.0 - SAME)
        };
        if !kept.iter().any(beaten) {
            kept.push(cell);
        }
    }
    kept
}
