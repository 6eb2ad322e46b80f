//! What this machine has: GPUs, and where a GPU is cut into MIG slices, these instead.

use crate::health::nvml;
use nvml_wrapper::{Device, Nvml};
use serde::{Deserialize, Serialize};
use std::path::Path;

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
    /// GPUs that are there and cannot be used as they are, a sentence for each.
    #[serde(default)]
    pub unused: Vec<String>,
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

/// A GPU, or a MIG slice of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuFound {
    /// Its number in the driver's order; slices are counted on behind the last GPU.
    pub index: u8,
    /// Its name for ever.
    pub uuid: String,
    /// What its maker calls it.
    pub name: String,
    /// The type that policies and job files speak of, such as `a100`, or `h200-1g.18gb` for a slice.
    pub kind: String,
    /// Its memory.
    pub memory_mib: u64,
    /// The name of the GPU that it is a slice of; nothing for a whole GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_of: Option<String>,
}

/// Looks at this machine. A machine without an NVIDIA driver has no GPUs, which is no fault.
pub fn discover() -> Discovered {
    discover_by(None)
}

/// The same by another library than the driver's usual one.
pub fn discover_by(library: Option<&Path>) -> Discovered {
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let memory_mib =
        memory_mib(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default()).unwrap_or(0);
    let mut found = Discovered { cpus, memory_mib, ..Discovered::default() };
    if let Ok(nvml) = nvml::load(library) {
        found.source = Source::Nvml;
        (found.gpus, found.unused) = gpus(&nvml);
    }
    found
}

/// All that jobs can get, and what cannot be used.
pub(crate) fn gpus(nvml: &Nvml) -> (Vec<GpuFound>, Vec<String>) {
    let count = nvml.device_count().unwrap_or(0);
    let (mut found, mut slices, mut unused) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..count {
        // A GPU that does not answer is one that no job should get.
        let Ok(device) = nvml.device_by_index(index) else { continue };
        let Some(gpu) = whole(&device, index) else { continue };
        // One that cannot be cut says that it does not know the question.
        if !device.mig_mode().is_ok_and(|mode| mode.current == MIG_ON) {
            found.push(gpu);
            continue;
        }
        let own = slices_of(&device, &gpu);
        if own.is_empty() {
            unused.push(format!(
                "GPU {index} ({}) is in MIG mode and has no slices: make some, or turn the mode off",
                gpu.name
            ));
        }
        slices.extend(own);
    }
    for (number, slice) in (count..).zip(slices) {
        let Ok(index) = u8::try_from(number) else { break };
        found.push(GpuFound { index, ..slice });
    }
    (found, unused)
}

/// `NVML_DEVICE_MIG_ENABLE` of `nvml.h`.
const MIG_ON: u32 = 1;

fn whole(device: &Device<'_>, index: u32) -> Option<GpuFound> {
    let name = device.name().ok()?;
    Some(GpuFound {
        index: u8::try_from(index).ok()?,
        uuid: device.uuid().ok()?,
        kind: kind(&name),
        memory_mib: device.memory_info().ok()?.total >> 20,
        name,
        slice_of: None,
    })
}

/// The slices of a GPU, by their place on it.
fn slices_of(device: &Device<'_>, gpu: &GpuFound) -> Vec<GpuFound> {
    let most = device.mig_device_count().unwrap_or(0);
    let one = |place: u32| {
        // Places between slices are empty.
        let slice = device.mig_device_by_index(place).ok()?;
        let name = slice.name().ok()?;
        let attributes = slice.attributes().ok();
        let told = attributes.as_ref().map(|attributes| attributes.memory_size_mb);
        let memory_mib = told.or_else(|| Some(slice.memory_info().ok()?.total >> 20))?;
        // Some drivers tell the name of the whole GPU here; then the profile is what the slice has.
        let profile = name.split_once(MIG).map(|(_, profile)| profile.trim().to_owned());
        let profile = profile.or_else(|| {
            let slices = attributes.as_ref()?.gpu_instance_slice_count;
            let parts = attributes.as_ref()?.compute_instance_slice_count;
            Some(profile_of((slices, parts), memory_mib, gpu.memory_mib))
        })?;
        Some(GpuFound {
            index: 0,
            uuid: slice.uuid().ok()?,
            kind: slice_kind(&gpu.kind, &profile),
            memory_mib,
            name: format!("{}{MIG}{profile}", gpu.name),
            slice_of: Some(gpu.uuid.clone()),
        })
    };
    (0..most).filter_map(one).collect()
}

/// What stands between the name of a GPU and the profile of a slice of it.
const MIG: &str = " MIG ";

/// The profile of a slice by what it has, as NVIDIA's tools name it: memory is counted in eighths of the whole GPU.
fn profile_of((slices, parts): (u32, u32), memory_mib: u64, whole_mib: u64) -> String {
    let eighths = (memory_mib * 8).div_ceil(whole_mib.max(1));
    let whole_gb = whole_mib.div_ceil(1024);
    let gb = (eighths * whole_gb + 4) / 8;
    match parts == slices || parts == 0 {
        true => format!("{slices}g.{gb}gb"),
        false => format!("{parts}c.{slices}g.{gb}gb"),
    }
}

fn slice_kind(gpu: &str, profile: &str) -> String {
    format!("{gpu}-{}", profile.trim().to_lowercase().replace(['+', ' '], "-"))
}

/// Whether a type is that of MIG slices, by what it is called here or in Slurm. A program can use one slice and no
/// second one.
///
/// ```
/// use trainyard_backend::discover::is_slice;
/// assert!(is_slice("h200-1g.18gb") && is_slice("a100_1c.3g.20gb") && !is_slice("h200"));
/// ```
pub fn is_slice(kind: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_profile = |word: &str| {
        let word = match word.split_once("c.") {
            Some((parts, rest)) if number(parts) => rest,
            _ => word,
        };
        let sizes =
            word.split_once("g.").and_then(|(slices, gb)| Some((slices, gb.strip_suffix("gb")?)));
        sizes.is_some_and(|(slices, gb)| number(slices) && number(gb))
    };
    kind.split(['-', '_', '+', ':']).any(is_profile)
}

/// The type of a GPU by the name its maker gives it: the last word that looks like a model, in lower case.
///
/// ```
/// use trainyard_backend::discover::kind;
/// assert_eq!(kind("NVIDIA A100-SXM4-80GB"), "a100");
/// ```
pub fn kind(name: &str) -> String {
    if let Some((gpu, profile)) = name.split_once(MIG) {
        return slice_kind(&kind(gpu), profile);
    }
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
            ("NVIDIA H200 MIG 1g.18gb", "h200-1g.18gb"),
            ("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", "a100-1c.3g.20gb"),
            ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", "h100-1g.10gb-me"),
            ("Something", "something"),
        ] {
            assert_eq!(kind(name), expected, "{name}");
        }
    }

    #[test]
    fn a_profile_is_what_a_slice_has_in_eighths_of_its_gpu() {
        let h200 = 143_771;
        for ((slices, parts), memory_mib, whole, expected) in [
            ((1, 1), 16_384, h200, "1g.18gb"),
            ((3, 3), 71_424, h200, "3g.71gb"),
            ((7, 7), h200, h200, "7g.141gb"),
            ((1, 1), 4_864, 40_960, "1g.5gb"),
            ((3, 1), 19_968, 40_960, "1c.3g.20gb"),
        ] {
            let profile = profile_of((slices, parts), memory_mib, whole);
            assert_eq!(profile, expected, "{memory_mib} MiB");
            assert!(is_slice(&format!("gpu-{profile}")));
        }
        for name in ["h200", "gpu", "rtx3090", "a100-sxm4-80gb", "g.gb", "1g.5", "xg.5gb"] {
            assert!(!is_slice(name), "{name}");
        }
        for name in ["1g.5gb", "nvidia_h100_80gb_hbm3_1g.10gb", "h100-1g.10gb-me", "1g.10gb+me"] {
            assert!(is_slice(name), "{name}");
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
