//! Device graphs: what there is to run on, and the links between.

use trainyard_types::Cluster;

/// One accelerator.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// The machine it is in.
    pub machine: usize,
    /// Its speed relative to the device on which the times of a graph were taken.
    pub speed: f64,
    /// Its memory.
    pub memory_bytes: f64,
    /// Dense half-precision operations in a second.
    pub peak_flops: f64,
}

/// One direction of a wire, a port or a bus.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// What it carries in a second.
    pub bytes_per_second: f64,
}

/// How fast links of a device graph are, in bytes per second, and what a message costs before its first byte.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct LinkSpeeds {
    /// One direction of a device's port inside its machine.
    pub inside: f64,
    /// One direction of a machine's network.
    pub network: f64,
    /// The most that one transfer between two machines gets of it.
    pub between_two: f64,
    /// One direction between a device and the memory of its host.
    pub host: f64,
    /// Seconds before the first byte arrives.
    pub latency: f64,
}

/// NVLink of a V100 machine and 25 Gbit/s between machines, as the public planner of DAPPLE states them.
pub const DAPPLE_A: LinkSpeeds =
    LinkSpeeds { inside: 25e9, network: 3e9, between_two: 1e9, host: 12e9, latency: 0.0 };

/// Devices, links, and which links lie between which devices.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceGraph {
    /// All devices; those of one machine stand together.
    pub devices: Vec<Device>,
    /// All links.
    pub links: Vec<Link>,
    /// Seconds before the first byte of a transfer arrives.
    pub latency: f64,
    /// The most that one transfer between two machines gets.
    pub between_two: f64,
    machines: Vec<MachineLinks>,
    ports: Vec<PortLinks>,
}

#[derive(Clone, Debug, PartialEq)]
struct MachineLinks {
    out: u32,
    into: u32,
    rack: Option<(u32, u32)>,
    rack_number: u16,
}

#[derive(Clone, Debug, PartialEq)]
struct PortLinks {
    out: u32,
    into: u32,
    from_host: u32,
    to_host: u32,
}

/// What is known of a type of device.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct KindFigures {
    /// Its speed relative to the device on which the times of a graph were taken.
    pub speed: f64,
    /// Its memory.
    pub memory_bytes: f64,
    /// Dense half-precision operations in a second.
    pub peak_flops: f64,
}

impl DeviceGraph {
    /// A graph without devices.
    pub fn new(speeds: &LinkSpeeds) -> DeviceGraph {
        DeviceGraph {
            devices: Vec::new(),
            links: Vec::new(),
            latency: speeds.latency,
            between_two: speeds.between_two,
            machines: Vec::new(),
            ports: Vec::new(),
        }
    }

    /// Equal machines of equal devices.
    pub fn uniform(
        (machines, devices): (u32, u32),
        kind: &str,
        figures: KindFigures,
        speeds: &LinkSpeeds,
    ) -> DeviceGraph {
        let mut graph = DeviceGraph::new(speeds);
        for _ in 0..machines {
            graph.add_machine(devices, kind, figures, speeds);
        }
        graph
    }

    /// The devices of a cluster; `figures` says what is known of a type, by its name.
    ///
    /// A transfer between machines passes both networks, and between racks both uplinks, which all machines of a rack
    /// share.
    pub fn of_cluster(
        cluster: &Cluster,
        figures: &dyn Fn(&str) -> KindFigures,
        host: f64,
    ) -> DeviceGraph {
        let bytes = |mbps: u64| mbps as f64 * 1e6 / 8.0;
        let speeds = LinkSpeeds {
            // A tier's bandwidth is that of both directions together; a port carries half of it each way.
            inside: bytes(cluster.links.node_mbps) / 2.0,
            network: bytes(cluster.links.rack_mbps),
            between_two: f64::INFINITY,
            host,
            latency: 5e-6,
        };
        let mut graph = DeviceGraph::new(&speeds);
        let racks: std::collections::BTreeSet<u16> =
            cluster.nodes.iter().map(|node| node.rack).collect();
        let core = bytes(cluster.links.core_mbps);
        let mut uplinks = std::collections::BTreeMap::new();
        for node in &cluster.nodes {
            let kind = &cluster.kinds[node.kind.index()];
            let mut known = figures(&kind.name);
            if kind.memory_mib > 0 {
                known.memory_bytes = f64::from(kind.memory_mib) * (1u64 << 20) as f64;
            }
            let machine = graph.add_machine(u32::from(node.gpus), &kind.name, known, &speeds);
            graph.rename(machine, &node.name);
            graph.machines[machine].rack_number = node.rack;
            if racks.len() > 1 {
                let pair = *uplinks.entry(node.rack).or_insert_with(|| {
                    let name = format!("rack{}", node.rack);
                    (
                        graph.add_link(format!("{name} up"), core),
                        graph.add_link(format!("{name} down"), core),
                    )
                });
                graph.machines[machine].rack = Some(pair);
            }
        }
        graph
    }

    /// Adds a machine of equal devices and gives its number.
    pub fn add_machine(
        &mut self,
        devices: u32,
        kind: &str,
        figures: KindFigures,
        speeds: &LinkSpeeds,
    ) -> usize {
        let machine = self.machines.len();
        let out = self.add_link(format!("m{machine} out"), speeds.network);
        let into = self.add_link(format!("m{machine} in"), speeds.network);
        self.machines.push(MachineLinks { out, into, rack: None, rack_number: 0 });
        for index in 0..devices {
            let name = format!("m{machine}.{index}");
            let ports = PortLinks {
                out: self.add_link(format!("{name} out"), speeds.inside),
                into: self.add_link(format!("{name} in"), speeds.inside),
                from_host: self.add_link(format!("{name} from host"), speeds.host),
                to_host: self.add_link(format!("{name} to host"), speeds.host),
            };
            self.ports.push(ports);
            self.devices.push(Device {
                name,
                kind: kind.to_owned(),
                machine,
                speed: figures.speed,
                memory_bytes: figures.memory_bytes,
                peak_flops: figures.peak_flops,
            });
        }
        machine
    }

    fn add_link(&mut self, name: String, bytes_per_second: f64) -> u32 {
        self.links.push(Link { name, bytes_per_second });
        self.links.len() as u32 - 1
    }

    fn rename(&mut self, machine: usize, name: &str) {
        let own = self.devices.iter_mut().filter(|device| device.machine == machine);
        own.enumerate().for_each(|(index, device)| device.name = format!("{name}.{index}"));
    }

    /// The number of machines.
    pub fn machines(&self) -> usize {
        self.machines.len()
    }

    /// The devices of each machine.
    pub fn by_machine(&self) -> Vec<Vec<usize>> {
        let mut all = vec![Vec::new(); self.machines.len()];
        for (index, device) in self.devices.iter().enumerate() {
            all[device.machine].push(index);
        }
        all
    }

    /// The links that a transfer from one device to another passes; none from a device to itself.
    pub fn route(&self, from: usize, to: usize) -> Vec<u32> {
        if from == to {
            return Vec::new();
        }
        let (a, b) = (self.devices[from].machine, self.devices[to].machine);
        if a == b {
            return vec![self.ports[from].out, self.ports[to].into];
        }
        let mut route = vec![self.machines[a].out, self.machines[b].into];
        let apart = self.machines[a].rack_number != self.machines[b].rack_number;
        if let (true, Some((up, _)), Some((_, down))) =
            (apart, self.machines[a].rack, self.machines[b].rack)
        {
            route.extend([up, down]);
        }
        route
    }

    /// The link from the memory of its host to a device, and the one back.
    pub fn host_links(&self, device: usize) -> (u32, u32) {
        (self.ports[device].from_host, self.ports[device].to_host)
    }

    /// The most that one transfer gets between two devices.
    pub fn rate(&self, from: usize, to: usize) -> f64 {
        let links = self.route(from, to).into_iter();
        let slowest = links.map(|link| self.links[link as usize].bytes_per_second);
        slowest.fold(self.rate_max(from, to), f64::min)
    }

    /// The limit of one transfer beside those of its links.
    pub fn rate_max(&self, from: usize, to: usize) -> f64 {
        match self.devices[from].machine == self.devices[to].machine {
            true => f64::INFINITY,
            false => self.between_two,
        }
    }

    /// All links of a ring over these devices in this order, each once.
    pub fn ring(&self, members: &[usize]) -> Vec<u32> {
        let mut links: Vec<u32> = Vec::new();
        for (at, from) in members.iter().enumerate() {
            links.extend(self.route(*from, members[(at + 1) % members.len()]));
        }
        links.sort_unstable();
        links.dedup();
        links
    }

    /// Seconds of a ring all-reduce of so many bytes over these devices alone on the links.
    ///
    /// A ring passes every link once, whatever the number of devices behind it, and each step moves 1/n of the bytes.
    pub fn all_reduce(&self, members: &[usize], bytes: f64) -> f64 {
        let count = members.len() as f64;
        if members.len() < 2 {
            return 0.0;
        }
        let slowest = self.ring(members).into_iter();
        let slowest = slowest.map(|link| self.links[link as usize].bytes_per_second);
        let steps = 2.0 * (count - 1.0);
        steps / count * bytes / slowest.fold(f64::INFINITY, f64::min) + steps * self.latency
    }

    /// The same in levels: a ring inside each machine, one over a device of each machine, and back.
    ///
    /// Fewer bytes pass the network, because a machine takes part in the outer ring once.
    pub fn all_reduce_in_levels(&self, members: &[usize], bytes: f64) -> f64 {
        let mut by_machine: Vec<Vec<usize>> = vec![Vec::new(); self.machines.len()];
        members.iter().for_each(|one| by_machine[self.devices[*one].machine].push(*one));
        by_machine.retain(|own| !own.is_empty());
        let inner = by_machine.iter().map(|own| self.all_reduce(own, bytes)).fold(0.0, f64::max);
        let heads: Vec<usize> = by_machine.iter().map(|own| own[0]).collect();
        inner + self.all_reduce(&heads, bytes)
    }
}

/// Dense half-precision peaks in TFLOP/s from the vendors' data sheets; without half precision, the single one.
pub const PEAK_TFLOPS: &[(&str, f64)] = &[
    ("k80", 4.1),
    ("p4", 5.5),
    ("p40", 11.8),
    ("p100", 18.7),
    ("v100", 125.0),
    ("t4", 65.0),
    ("titanv", 110.0),
    ("rtx2080ti", 53.8),
    ("rtx3080", 59.5),
    ("rtx3090", 71.0),
    ("rtx4090", 165.2),
    ("rtx5090", 209.5),
    ("rtx6000", 130.5),
    ("a10", 125.0),
    ("a30", 165.0),
    ("a40", 149.7),
    ("a6000", 154.8),
    ("a100", 312.0),
    ("a800", 312.0),
    ("l4", 121.0),
    ("l40", 181.0),
    ("l40s", 362.0),
    ("h20", 148.0),
    ("h100", 989.0),
    ("h800", 989.0),
    ("h200", 989.0),
    ("b200", 2250.0),
    ("mi250", 362.1),
    ("mi300x", 1307.4),
];

/// The half-precision peak of a type by its name or the part before the first mark, in operations per second.
pub fn peak_flops(kind: &str) -> Option<f64> {
    let first = kind.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or(kind);
    let found = PEAK_TFLOPS.iter().find(|(name, _)| *name == kind || *name == first);
    found.map(|(_, peak)| peak * 1e12)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V100: KindFigures = KindFigures { speed: 1.0, memory_bytes: 16e9, peak_flops: 125e12 };

    #[test]
    fn a_ring_in_levels_moves_fewer_bytes_over_the_network() {
        let graph = DeviceGraph::uniform((2, 8), "v100", V100, &DAPPLE_A);
        let all: Vec<usize> = (0..16).collect();
        let flat = graph.all_reduce(&all, 3e9);
        assert!((flat - 2.0 * 15.0 / 16.0).abs() < 1e-9, "{flat}");
        let levels = graph.all_reduce_in_levels(&all, 3e9);
        // Half of 2 * 3 GB over 3 GB/s, and the ring inside.
        assert!((levels - (1.0 + 2.0 * 7.0 / 8.0 * 3.0 / 25.0)).abs() < 1e-9, "{levels}");
    }

    #[test]
    fn a_cluster_with_racks_has_uplinks_between_them_and_none_within() {
        let mut cluster = Cluster::uniform(2, 2, "v100");
        cluster.nodes[1].rack = 1;
        let graph = DeviceGraph::of_cluster(&cluster, &|_| V100, 12e9);
        assert_eq!((graph.route(0, 1).len(), graph.route(0, 2).len()), (2, 4));
        assert_eq!(graph.rate(0, 2), 50e9 / 8.0);
    }
}
