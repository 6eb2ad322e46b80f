//! Whether the GPUs of an attempt do anything.

use crate::health::nvml;
use nvml_wrapper::Nvml;
use std::time::{Duration, Instant};

/// Between two looks at most and at least.
const LOOK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Watches how busy GPUs are.
pub struct Idle {
    nvml: Nvml,
    gpus: Vec<String>,
    limit: Duration,
    busy_at: Instant,
    looked_at: Instant,
}

impl Idle {
    /// Begins to watch. `Err` says why that cannot be done.
    pub fn new(seconds: f64, devices: &[String]) -> Result<Idle, String> {
        let nvml = nvml::load(None).map_err(|error| error.to_string())?;
        let is_there = |device: &&String| nvml.device_by_uuid(device.as_str()).is_ok();
        let gpus: Vec<String> = devices.iter().filter(is_there).cloned().collect();
        if gpus.is_empty() {
            return Err("NVML does not know them".to_owned());
        }
        let now = Instant::now();
        let limit = Duration::from_secs_f64(seconds);
        Ok(Idle { nvml, gpus, limit, busy_at: now, looked_at: now })
    }

    /// Counts anew from now.
    pub fn begin_again(&mut self) {
        self.busy_at = Instant::now();
    }

    /// How long nothing was done, once that is longer than allowed.
    pub fn expired(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if now - self.looked_at < (self.limit / 20).clamp(LOOK.0, LOOK.1) {
            return None;
        }
        self.looked_at = now;
        if self.gpus.iter().any(|gpu| self.is_busy(gpu)) {
            self.busy_at = now;
        }
        Some(now - self.busy_at).filter(|idle| *idle >= self.limit)
    }

    /// What cannot be told counts as busy: no job is ended for a library that fails.
    fn is_busy(&self, gpu: &str) -> bool {
        let used = self.nvml.device_by_uuid(gpu).and_then(|device| device.utilization_rates());
        used.map_or(true, |used| used.gpu > 0)
    }
}
