//! What this machine has.

use nvml_wrapper::Nvml;
use serde::{Deserialize, Serialize};

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Discovered {
    /// GPUs, by index.
    pub gpus: Vec<GpuFound>,
    /// What told of them.
    pub source: Source,
    /// CPUs this process may use.
    pub cpus: u32,
    /// Host memory.
    pub memory_mib: u64,
}

/// What told of the GPUs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The driver's own library.
    Nvml,
    /// None: there is no driver.
    #[default]
    None,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuFound {
    /// Its number in the driver's order.
    pub index: u8,
    /// Its name for ever.
    pub uuid: String,
    /// What its maker calls it.
    pub name: String,
    /// The type that policies and job files speak of, such as `a100`.
    pub kind: String,
    /// Its memory.
    pub memory_mib: u64,
}

/// Looks at this machine. A machine without an NVIDIA driver has no GPUs, which is no fault.
pub fn discover() -> Discovered {
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let memory_mib =
        memory_mib(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default()).unwrap_or(0);
    let (gpus, source) = match Nvml::init() {
        Ok(nvml) => (gpus(&nvml), Source::Nvml),
        Err(_) => (Vec::new(), Source::None),
    };
    Discovered { gpus, source, cpus, memory_mib }
}

fn gpus(nvml: &Nvml) -> Vec<GpuFound> {
    let count = nvml.device_count().unwrap_or(0);
    let one = |index: u32| {
        // A GPU that does not answer is one that no job should get.
        let device = nvml.device_by_index(index).ok()?;
        let name = device.name().ok()?;
        Some(GpuFound {
            index: u8::try_from(index).ok()?,
            uuid: device.uuid().ok()?,
            kind: kind(&name),
            memory_mib: device.memory_info().ok()?.total >> 20,
            name,
        })
    };
    (0..count).filter_map(one).collect()
}

/// The type of a GPU by the name its maker gives it: the last word that looks like a model, in lower case.
///
/// ```
/// use trainyard_backend::discover::kind;
/// assert_eq!(kind("NVIDIA A100-SXM4-80GB"), "a100");
/// ```
pub fn kind(name: &str) -> String {
    let plain = name.to_ascii_lowercase();
    let words: Vec<&str> = plain.split([' ', '-', '_']).filter(|word| !word.is_empty()).collect();
    let is_maker = |word: &str| {
        matches!(
            word,
            "nvidia" | "tesla" | "geforce" | "quadro" | "rtx" | "gtx" | "graphics" | "titan"
        )
    };
    let is_model = |word: &&&str| {
        !is_maker(word) && word.chars().any(|c| c.is_ascii_digit()) && !word.ends_with("gb")
    };
    let model = words.iter().find(is_model).map_or(plain.as_str(), |word| word);
    let family = ["rtx", "gtx"].into_iter().find(|family| words.contains(family));
    let consumer = model.chars().all(|c| c.is_ascii_digit());
    let suffix = words.iter().find(|word| matches!(**word, "ti" | "super"));
    match (family, suffix) {
        (Some(family), Some(suffix)) if consumer => format!("{family}{model}{suffix}"),
        (Some(family), None) if consumer => format!("{family}{model}"),
        _ => model.replace(' ', "-"),
    }
}

fn memory_mib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_makers_become_types() {
        for (name, expected) in [
            ("NVIDIA H200", "h200"),
            ("NVIDIA H100 80GB HBM3", "h100"),
            ("NVIDIA A100-SXM4-80GB", "a100"),
            ("NVIDIA A100 80GB PCIe", "a100"),
            ("Tesla V100-SXM2-16GB", "v100"),
            ("Tesla T4", "t4"),
            ("Tesla P100-PCIE-16GB", "p100"),
            ("NVIDIA L40S", "l40s"),
            ("NVIDIA GeForce RTX 3090", "rtx3090"),
            ("NVIDIA GeForce RTX 2080 Ti", "rtx2080ti"),
            ("NVIDIA RTX A6000", "a6000"),
            ("NVIDIA B200", "b200"),
            ("NVIDIA GH200 480GB", "gh200"),
            ("Something", "something"),
        ] {
            assert_eq!(kind(name), expected, "{name}");
        }
    }

    #[test]
    fn this_machine_has_processors_and_memory() {
        let found = discover();
        assert!(found.cpus >= 1);
        assert!(found.memory_mib > 0);
        assert_eq!(memory_mib("MemFree: 1 kB\nMemTotal:  2048 kB\n"), Some(2));
    }
}
