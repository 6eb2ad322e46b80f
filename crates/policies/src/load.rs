//! The gate of Blox: new jobs wait outside while those inside already ask for more than the cluster has.

use crate::prelude::*;
use trainyard_framework::Gated;

/// The row in the registry.
pub const ENTRY: GateEntry = Entry {
    name: "load",
    about: "New jobs stay outside while admitted ones ask for more than `load` times the cluster.",
    paper: "Agarwal et al., Blox, EuroSys 2024",
    needs: Needs::NOTHING,
    class: Taxonomy::rigid(Objective::Load, Family::Gate),
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

fn build(raw: &RawSettings, inner: Box<dyn Policy>) -> Result<Box<dyn Policy>, ConfigError> {
    let Settings { load } = raw.read(ENTRY.name)?;
    if !(load > 0.0 && load.is_finite()) {
        return Err(ENTRY.bad_value("load", load, "a number above 0"));
    }
    Ok(Box::new(Gated::new(inner, load)))
}
