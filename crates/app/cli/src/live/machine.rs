//! The GPUs of this machine, found or declared, as nodes of one type each.

use crate::failure::Failure;
use std::sync::{Arc, PoisonError};
use trainyard_api::endpoint::types::GpuUsage;
use trainyard_backend::discover::Source;
use trainyard_backend::health::Readings;
use trainyard_backend::{Discovered, discover};
use trainyard_daemon::service_impl::UsageSource;
use trainyard_types::{Cluster, GpuType};
use trainyard_workload::cluster::default_kind;

/// The machine as the daemon schedules it.
pub struct Machine {
    /// A node for each type of GPU.
    pub cluster: Cluster,
    /// For each node its GPUs: the index, and what a process is told.
    pub devices: Vec<Vec<(u8, String)>>,
    /// How the GPUs were found, for people.
    pub told: String,
}

impl Machine {
    /// Tells how much of each GPU is used, by what was last read of it.
    pub fn usage(&self, readings: Readings) -> UsageSource {
        let mut gpus: Vec<(String, u8, u8, String)> = Vec::new();
        for (node, own) in self.cluster.nodes.iter().zip(&self.devices) {
            let named = own.iter().zip(0u8..);
            gpus.extend(
                named
                    .map(|((index, device), gpu)| (node.name.clone(), gpu, *index, device.clone())),
            );
        }
        Arc::new(move || {
            let readings = readings.lock().unwrap_or_else(PoisonError::into_inner);
            let row = |(node, gpu, index, device): &(String, u8, u8, String)| {
                // What a process is told is the name of a GPU, or its number.
                let own = readings.iter().find(|reading| reading.uuid == *device);
                let own = own.or_else(|| {
                    let numbered = *device == index.to_string();
                    readings.iter().find(|reading| numbered && reading.index == *index)
                })?;
                Some(GpuUsage {
                    node: node.clone(),
                    gpu: *gpu,
                    busy: own.busy_percent.map(|percent| f64::from(percent) / 100.0),
                    memory_used_mib: own.memory_used_mib,
                    memory_mib: own.memory_mib,
                })
            };
            gpus.iter().filter_map(row).collect()
        })
    }
}

/// A GPU of some type: index, what a process is told, type, memory.
type Gpu = (u8, String, String, u32);

const GPUS_MAX: usize = 64;
const FOUND: &str = "found by NVML";
const EXPECTED: &str = "a number of GPUs from 1 to 64, or numbers with types such as 2xa100,2xv100";

/// What `--gpus` declares, or what is found.
pub fn find(declared: Option<&str>) -> Result<Machine, Failure> {
    let found = discover();
    match declared {
        Some(text) => {
            let gpus = parse(text).ok_or_else(|| Failure::flag("--gpus", text, EXPECTED))?;
            Ok(machine(gpus, &found, "declared"))
        }
        None if found.gpus.is_empty() => {
            let why = match found.source {
                Source::None => "there is no NVIDIA driver here".to_owned(),
                Source::Nvml if found.unused.is_empty() => {
                    "the NVIDIA driver shows none".to_owned()
                }
                Source::Nvml => found.unused.join("; "),
            };
            Err(Failure::Operation(format!(
                "no GPU was found: {why}; declare slots with --gpus, such as `trainyard serve --gpus 4`"
            )))
        }
        None => {
            let gpus = found.gpus.iter().take(GPUS_MAX).map(|gpu| {
                let memory = u32::try_from(gpu.memory_mib).unwrap_or(u32::MAX);
                (gpu.index, gpu.uuid.clone(), gpu.kind.clone(), memory)
            });
            Ok(machine(gpus.collect(), &found, FOUND))
        }
    }
}

fn parse(text: &str) -> Option<Vec<Gpu>> {
    let mut gpus: Vec<Gpu> = Vec::new();
    for part in text.split(',') {
        let (count, kind) = match part.trim().split_once(['x', 'X', ' ']) {
            Some((count, kind)) => (count, kind.trim().to_lowercase()),
            None => (part.trim(), "gpu".to_owned()),
        };
        let named_well = !kind.is_empty()
            && kind.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        let count: usize = count.trim().parse().ok().filter(|count| *count > 0 && named_well)?;
        if gpus.len() + count > GPUS_MAX {
            return None;
        }
        for _ in 0..count {
            let index = gpus.len() as u8;
            gpus.push((index, index.to_string(), kind.clone(), 0));
        }
    }
    Some(gpus)
}

fn machine(gpus: Vec<Gpu>, found: &Discovered, how: &str) -> Machine {
    let mut cluster = Cluster { pools: vec!["default".to_owned()], ..Cluster::default() };
    let mut devices: Vec<Vec<(u8, String)>> = Vec::new();
    let total = gpus.len() as u64;
    for (index, device, kind, memory) in gpus {
        let id = cluster.add_kind(&kind);
        if id.index() == devices.len() {
            describe(&mut cluster, id, memory);
            devices.push(Vec::new());
        }
        devices[id.index()].push((index, device));
    }
    let host = host_name();
    let alone = devices.len() == 1;
    for (index, own) in devices.iter().enumerate() {
        let kind = GpuType(index as u8);
        let id = cluster.add_node(kind, own.len() as u8);
        let name = match alone {
            true => host.clone(),
            false => format!("{host}-{}", cluster.kinds[index].name),
        };
        let part = |whole: u64| whole * own.len() as u64 / total;
        let node = &mut cluster.nodes[id.index()];
        node.name = name;
        node.cpus = u16::try_from(part(u64::from(found.cpus))).unwrap_or(u16::MAX);
        node.memory_mib = u32::try_from(part(found.memory_mib)).unwrap_or(u32::MAX);
    }
    let kinds = devices.iter().zip(&cluster.kinds);
    let told: Vec<String> =
        kinds.map(|(own, kind)| format!("{} {}", own.len(), kind.name)).collect();
    let unused: String = found.unused.iter().map(|what| format!("; {what}")).collect();
    let unused = if how == FOUND { unused } else { String::new() };
    Machine { cluster, devices, told: format!("{} ({how}){unused}", told.join(", ")) }
}

/// What is known of a type: memory as found, the rest from the table of types.
fn describe(cluster: &mut Cluster, id: GpuType, memory_mib: u32) {
    let kind = &mut cluster.kinds[id.index()];
    if let Some(facts) = default_kind(&kind.name) {
        (kind.price_per_hour, kind.watts) = (facts.price_per_hour, facts.watts);
        // Slots that are declared may have nothing behind them: what they have is not known.
    }
    kind.memory_mib = memory_mib;
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim().split('.').next().unwrap_or_default().to_owned();
    if name.is_empty() { "here".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_declared_by_number_or_by_type() {
        let of =
            |text: &str| parse(text).map(|gpus| gpus.iter().map(|gpu| gpu.2.clone()).collect());
        assert_eq!(of("2"), Some(vec!["gpu".to_owned(); 2]));
        assert_eq!(of("1xa100, 1xV100"), Some(vec!["a100".to_owned(), "v100".to_owned()]));
        assert_eq!(of("1xh200-1g.18gb"), Some(vec!["h200-1g.18gb".to_owned()]), "a MIG slice");
        for text in ["", "0", "x", "65", "2x", "-1", "2xa100,,", "two"] {
            assert_eq!(of(text), None, "{text}");
        }
        let gpus = parse("2xa100,1xv100,1xa100").unwrap();
        let machine = machine(gpus, &Discovered { cpus: 8, ..Discovered::default() }, "declared");
        assert_eq!(machine.cluster.nodes.len(), 2);
        let indices: Vec<u8> = machine.devices[0].iter().map(|(index, _)| *index).collect();
        assert_eq!(indices, [0, 1, 3], "a node has the GPUs of its type, wherever they are");
        assert_eq!(machine.cluster.nodes[0].cpus, 6);
    }
}
