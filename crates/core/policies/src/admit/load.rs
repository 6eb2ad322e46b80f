//! Admission by load (Blox, EuroSys'24, section 4.1): new jobs wait while admitted ones ask for more than the cluster has.

use crate::prelude::*;
use trainyard_framework::{AdmissionControl, Control};

/// The row in the registry.
pub const ENTRY: AdmissionEntry = Entry {
    name: "load",
    about: "New jobs are held while admitted ones ask for more than `load` times the cluster.",
    paper: "Agarwal et al., Blox, EuroSys 2024",
    needs: Needs::NOTHING,
    class: Taxonomy::rigid(Objective::Load, Family::Admission),
    settings: &[("load", "GPUs that admitted jobs may ask for, as a multiple of those there are")],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    load: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { load: 1.2 }
    }
}

fn build(raw: &RawSettings) -> Result<Box<dyn AdmissionControl>, ConfigError> {
    let Settings { load } = raw.read(ENTRY.name)?;
    if !(load > 0.0 && load.is_finite()) {
        return Err(ENTRY.bad_value("load", load, "a number above 0"));
    }
    Ok(Box::new(Load { load, allowed: 0.0, demand: 0 }))
}

struct Load {
    load: f64,
    /// GPUs that admitted jobs may ask for, and that they ask for.
    allowed: f64,
    demand: u64,
}

impl AdmissionControl for Load {
    fn begin(&mut self, view: &View<'_>) {
        self.allowed = f64::from(view.cluster().gpus()) * self.load;
        self.demand = view.demand();
    }

    fn judge(&mut self, job: JobRef<'_>, _view: &View<'_>) -> Control {
        let gpus = u64::from(job.spec.want.gpus);
        // An empty cluster takes any job, or one larger than the limit would wait for ever.
        if self.demand > 0 && (self.demand + gpus) as f64 > self.allowed {
            let demand = self.demand.min(u64::from(u32::MAX)) as u32;
            return Control::Close(Reason::Overload { demand, allowed: self.allowed as u32 });
        }
        Control::Pass
    }

    fn accepted(&mut self, job: JobRef<'_>) {
        self.demand += u64::from(job.spec.want.gpus);
    }
}
