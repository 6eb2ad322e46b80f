//! Themis: finish-time fairness, by an auction of leases or by the program that all simulations of it solve.

mod arbiter;
pub mod auction;
pub mod central;
pub mod fairest;
mod program;

use crate::prelude::*;
use arbiter::Arbiter;
use program::{Method, Program};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "themis",
    about: "Jobs furthest from a fair finish bid for leases on free GPUs, and the fairest bids win.",
    paper: "Mahajan et al., Themis, NSDI 2020",
    needs: Needs { rates: true, ..Needs::ESTIMATE },
    class: Taxonomy {
        heterogeneous: true,
        ..Taxonomy::rigid(Objective::Fairness, Family::Share).preemptive()
    },
    settings: &[
        (
            "form",
            "`auction`, `lp` for the least worst fairness, or `muri-code` for that as in Muri's simulator",
        ),
        (
            "solver",
            "which of the answers with the least worst fairness: `lexicographic` or `interior`",
        ),
        ("lease", "how long a winner keeps its GPUs"),
        ("filter", "the part of the jobs, best off first, that is left out of an auction"),
        ("hidden", "whether winners pay by a shorter lease, which makes the truth the best bid"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    form: Form,
    solver: Method,
    lease: Span,
    filter: f64,
    hidden: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Form {
    Auction,
    Lp,
    MuriCode,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            form: Form::Auction,
            solver: Method::default(),
            lease: Span::secs(1200),
            filter: 0.8,
            hidden: true,
        }
    }
}

impl Policy for Program {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        Program::allocate(self, view, offer)
    }

    fn forget(&mut self) {
        Program::forget(self);
    }
}

/// When a part of a lease ends: at a multiple of its length at the latest, so that at these moments all GPUs are free at
/// once and a large gang finds room.
fn lease_end(now: Time, lease: Span, part: f64) -> Time {
    let next = Time((now.0 / lease.0 + 1).saturating_mul(lease.0));
    (now + lease.scaled(part)).min(next).max(now + Span(1))
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { form, solver, lease, filter, hidden } = raw.read(ENTRY.name)?;
    if lease < Span::secs(1) {
        return Err(ENTRY.bad_value("lease", lease, "at least a second"));
    }
    if !(0.0..=1.0).contains(&filter) {
        return Err(ENTRY.bad_value("filter", filter, "a part from 0 to 1"));
    }
    Ok(match form {
        Form::Auction => {
            Pipeline::new(Arbiter::new(lease, filter, hidden), FewestNodes, ENTRY.needs)
        }
        Form::Lp => Pipeline::new(Program::new(false, solver, lease), FewestNodes, ENTRY.needs),
        Form::MuriCode => {
            Pipeline::new(Program::new(true, solver, lease), FewestNodes, ENTRY.needs)
        }
    })
}
