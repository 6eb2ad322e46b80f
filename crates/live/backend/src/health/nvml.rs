//! Readings by NVML. Its library is loaded when it is there, and never linked.

use super::{Link, Reading};
use crate::discover;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{
    EccCounter, MemoryError, TemperatureSensor, TemperatureThreshold,
};
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, EventSet, Nvml};
use std::collections::BTreeSet;
use std::path::Path;

/// `NVML_FI_DEV_REMAPPED_PENDING` and `NVML_FI_DEV_REMAPPED_FAILURE` of `nvml.h`.
const REMAPPED: [FieldId; 2] = [FieldId(144), FieldId(145)];
/// `NVML_NVLINK_MAX_LINKS` of `nvml.h`.
const LINKS_MAX: u8 = 18;
/// Error numbers that are taken at once: a GPU that fails may tell without end.
const XIDS_MAX: usize = 256;

/// Loads the library, the driver's usual one unless another is named.
pub(crate) fn load(library: Option<&Path>) -> Result<Nvml, NvmlError> {
    match library {
        None => Nvml::init(),
        Some(path) => Nvml::builder().lib_path(path.as_os_str()).init(),
    }
}

/// Processes that compute on a GPU, with the bytes of its memory that each uses; those of which that is not known are
/// left out.
pub(crate) fn users(nvml: &Nvml, device: &str) -> Result<Vec<(i32, u64)>, NvmlError> {
    let device = match device.parse() {
        Ok(index) => nvml.device_by_index(index)?,
        Err(_) => nvml.device_by_uuid(device)?,
    };
    let processes = device.running_compute_processes()?;
    let used = processes.into_iter().filter_map(|process| match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some((i32::try_from(process.pid).ok()?, bytes)),
        UsedGpuMemory::Unavailable => None,
    });
    Ok(used.collect())
}

/// What NVML says of all GPUs now.
pub fn look(library: Option<&Path>) -> Result<Vec<Reading>, String> {
    let nvml = load(library).map_err(|error| error.to_string())?;
    Ok(Reader::new(&nvml).read())
}

/// Reads one machine's GPUs.
pub(crate) struct Reader<'nvml> {
    nvml: &'nvml Nvml,
    /// Kept from the start: a GPU that is lost does not tell its name any more.
    gpus: Vec<Watched>,
}

/// A GPU, or a slice of one.
struct Watched {
    index: u8,
    uuid: String,
    /// The GPU whose health is its health: itself, or what it is a slice of.
    body: String,
}

impl<'nvml> Reader<'nvml> {
    pub(crate) fn new(nvml: &'nvml Nvml) -> Reader<'nvml> {
        let (found, _) = discover::gpus(nvml);
        let mut gpus: Vec<Watched> = found
            .into_iter()
            .map(|gpu| Watched {
                index: gpu.index,
                body: gpu.slice_of.unwrap_or_else(|| gpu.uuid.clone()),
                uuid: gpu.uuid,
            })
            .collect();
        // One that does not tell all about itself is watched all the same.
        let count = u8::try_from(nvml.device_count().unwrap_or(0)).unwrap_or(u8::MAX);
        for index in 0..count {
            let device = nvml.device_by_index(u32::from(index));
            let Ok(uuid) = device.and_then(|device| device.uuid()) else { continue };
            if !gpus.iter().any(|gpu| gpu.body == uuid) {
                gpus.push(Watched { index, body: uuid.clone(), uuid });
            }
        }
        gpus.sort_by_key(|gpu| gpu.index);
        Reader { nvml, gpus }
    }

    pub(crate) fn gpus(&self) -> usize {
        self.gpus.len()
    }

    pub(crate) fn read(&self) -> Vec<Reading> {
        self.gpus.iter().map(|gpu| self.read_one(gpu)).collect()
    }

    fn read_one(&self, gpu: &Watched) -> Reading {
        let bare = Reading { index: gpu.index, uuid: gpu.uuid.clone(), ..Reading::default() };
        let lost = || Reading { lost: true, ..bare.clone() };
        // By its name: the driver counts anew when one is gone.
        let device = match self.nvml.device_by_uuid(gpu.body.as_str()) {
            Ok(device) => device,
            Err(error) if is_loss(&error) => return lost(),
            Err(_) => return bare,
        };
        let temperature = match device.temperature(TemperatureSensor::Gpu) {
            Err(error) if is_loss(&error) => return lost(),
            told => told.ok(),
        };
        let threshold = |sort| device.temperature_threshold(sort).ok();
        let ecc = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
        let [remap_pending, remap_failure] = remapped(&device);
        let slowed = device.current_throttle_reasons();
        // How busy a GPU is and its memory are of the slice, where it is cut; drivers do not tell how busy a slice is.
        let slice = (gpu.body != gpu.uuid).then(|| self.nvml.device_by_uuid(gpu.uuid.as_str()));
        let own = slice.as_ref().map_or(Some(&device), |slice| slice.as_ref().ok());
        let memory = own.and_then(|own| own.memory_info().ok());
        let rates = own.and_then(|own| own.utilization_rates().ok());
        Reading {
            busy_percent: rates.map(|rates| rates.gpu.min(100)),
            memory_used_mib: memory.as_ref().map(|memory| memory.used >> 20),
            memory_mib: memory.as_ref().map(|memory| memory.total >> 20),
            ecc_uncorrected: ecc.ok(),
            remap_pending,
            remap_failure,
            temperature,
            slowdown_at: threshold(TemperatureThreshold::Slowdown),
            shutdown_at: threshold(TemperatureThreshold::Shutdown),
            slowed: slowed
                .is_ok_and(|reasons| reasons.contains(ThrottleReasons::HW_THERMAL_SLOWDOWN)),
            links: links(&device),
            ..bare
        }
    }

    /// Begins to hear error numbers. A GPU that cannot tell them is left out.
    pub(crate) fn hear(&self) -> Result<EventSet<'nvml>, NvmlError> {
        let mut set = self.nvml.create_event_set()?;
        let bodies: BTreeSet<&str> = self.gpus.iter().map(|gpu| gpu.body.as_str()).collect();
        let mut deaf: Vec<&str> = Vec::new();
        'again: loop {
            for body in bodies.iter().filter(|body| !deaf.contains(body)) {
                let Ok(device) = self.nvml.device_by_uuid(*body) else { continue };
                match device.register_events(EventTypes::CRITICAL_XID_ERROR, set) {
                    Ok(same) => set = same,
                    Err(_) => {
                        // The set is gone with the attempt.
                        deaf.push(body);
                        set = self.nvml.create_event_set()?;
                        continue 'again;
                    }
                }
            }
            return if deaf.len() < bodies.len() { Ok(set) } else { Err(NvmlError::NotSupported) };
        }
    }

    /// Error numbers that come within a time, by the name of their GPU; all that wait once one came.
    pub(crate) fn xids(&self, set: &EventSet<'nvml>, wait_ms: u32) -> Heard {
        let mut heard = Heard::default();
        let mut wait = wait_ms;
        while heard.xids.len() < XIDS_MAX {
            match set.wait(wait) {
                Ok(event) => {
                    if let (Some(XidError::Value(number)), Ok(uuid)) =
                        (event.event_data, event.device.uuid())
                    {
                        // What a GPU says is said of all its slices.
                        let own =
                            self.gpus.iter().filter(|gpu| gpu.body == uuid || gpu.uuid == uuid);
                        heard.xids.extend(own.map(|gpu| (gpu.uuid.clone(), number)));
                    }
                    wait = 0;
                }
                Err(NvmlError::Timeout) => break,
                Err(_) => {
                    // A lost GPU ends every wait at once: the caller must not spin.
                    heard.ended_early = wait > 0;
                    break;
                }
            }
        }
        heard
    }
}

/// What was heard.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// GPUs by name, and the numbers.
    pub(crate) xids: Vec<(String, u64)>,
    /// The wait ended before its time though nothing came.
    pub(crate) ended_early: bool,
}

fn is_loss(error: &NvmlError) -> bool {
    matches!(error, NvmlError::GpuLost | NvmlError::NotFound)
}

fn remapped(device: &Device<'_>) -> [Option<bool>; 2] {
    let values = device.field_values_for(&REMAPPED).unwrap_or_default();
    let flag = |index: usize| {
        let value = values.get(index)?.as_ref().ok()?.value.as_ref().ok()?;
        match value {
            SampleValue::U32(value) => Some(*value != 0),
            SampleValue::U64(value) => Some(*value != 0),
            SampleValue::I64(value) => Some(*value != 0),
            SampleValue::F64(_) => None,
        }
    };
    [flag(0), flag(1)]
}

fn links(device: &Device<'_>) -> Vec<Link> {
    let sorts = [
        ErrorCounter::DlReplay,
        ErrorCounter::DlRecovery,
        ErrorCounter::DlCrcFlit,
        ErrorCounter::DlCrcData,
    ];
    let one = |link: u8| {
        let own = device.link_wrapper_for(u32::from(link));
        let active = own.is_active().ok()?;
        let errors = sorts.iter().filter_map(|sort| own.error_counter(*sort).ok());
        Some(Link { link, active, errors: errors.sum() })
    };
    (0..LINKS_MAX).map_while(one).collect()
}
