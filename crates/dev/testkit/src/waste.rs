//! GPU time that is idle though a job waits that could use it.

use trainyard_engine::Engine;
use trainyard_sim::Observer;
use trainyard_types::{GpuType, Time};

/// GPU time that was idle though a job waited for which there was room, and GPU time in use.
#[derive(Default)]
pub struct Waste {
    at: Time,
    idle: u32,
    used: u32,
    wasted: f64,
    useful: f64,
}

impl Waste {
    /// The wasted part of the time that was in use or wasted.
    pub fn share(&self) -> f64 {
        self.wasted / (self.wasted + self.useful).max(f64::MIN_POSITIVE)
    }
}

impl Observer for Waste {
    fn passed(&mut self, engine: &Engine) {
        let state = engine.state();
        let seconds = state.now.since(self.at).as_secs_f64();
        self.wasted += seconds * f64::from(self.idle);
        self.useful += seconds * f64::from(self.used);
        let free = engine.free().total();
        (self.at, self.idle) = (state.now, usable(engine).min(free));
        self.used = state.cluster.gpus() - free;
    }
}

/// The GPUs that waiting jobs ask for of which each on its own would fit on one node. O(waiting jobs * types).
fn usable(engine: &Engine) -> u32 {
    let (state, free) = (engine.state(), engine.free());
    let kinds = free.kinds();
    let waiting = state.waiting.iter().chain(state.unadmitted.iter());
    let wants = waiting.filter_map(|id| state.live(id)).map(|job| &job.spec.want);
    let fits = |gpus: u32, kind: GpuType| free.tightest(kind, gpus).next().is_some();
    let able = wants.filter(|want| {
        let mut accepted = kinds.iter().filter(|kind| want.accepts(**kind));
        accepted.any(|kind| fits(want.gpus, *kind))
    });
    able.map(|want| want.gpus).sum()
}
