//! Gandiva_fair: tickets for tenants, stride turns for gangs on each type of GPU, and trading of fast GPUs for slow ones.
//!
//! - `market`: tickets, and what types are worth to tenants.
//! - `trade`: the paper's trading ("Handling GPU heterogeneity transparently").
//! - `passes`: its stride scheduling, in two steps ("Split stride gang-scheduling").
//! - `quantum`: its gang-aware choice at a quantum (the same part), and its load balance by tickets ("Load balancing").
//!
//! There is no public code; parts of Chaudhary et al., EuroSys 2020, are named by their titles.

mod market;
mod passes;
mod quantum;
pub mod trade;

use crate::prelude::*;
use crate::turns::Turns;
use passes::Passes;
use std::collections::BTreeMap;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "gandiva-fair",
    about: "Tenants hold tickets, jobs take stride turns, and tenants trade fast GPUs for slow ones.",
    paper: "Chaudhary et al., Gandiva_fair, EuroSys 2020",
    needs: Needs { rates: true, ..Needs::NOTHING },
    class: Taxonomy {
        heterogeneous: true,
        ..Taxonomy::rigid(Objective::Fairness, Family::Share).preemptive()
    },
    settings: &[
        (
            "quantum",
            "the length of a turn; all turns end at its multiples, so that gangs can be aligned",
        ),
        (
            "overhead",
            "the largest part of a turn that stopping and starting may take; turns are made longer to keep it",
        ),
        ("trade", "whether tenants trade fast GPUs for slow ones when both gain"),
        (
            "reserve",
            "whether GPUs are kept for a gang that was skipped; else smaller jobs may starve it",
        ),
        ("migrate", "whether a job whose home is busy may move to another node of the type"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    quantum: Span,
    overhead: f64,
    trade: bool,
    reserve: bool,
    migrate: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            quantum: Span::secs(60),
            overhead: 0.02,
            trade: true,
            reserve: true,
            migrate: true,
        }
    }
}

/// O(n k + t^2 k^2) for n jobs, t tenants and k types at each decision, and O(nodes) for each job that is put on one.
struct GandivaFair {
    turn: Turns,
    trade: bool,
    reserve: bool,
    migrate: bool,
    passes: Passes,
    /// Until when running jobs keep their GPUs.
    turns: BTreeMap<JobId, Time>,
    /// Where a job last ran: it goes back there if it can.
    homes: BTreeMap<JobId, NodeId>,
    /// The gang of each type that GPUs are kept for.
    reserved: BTreeMap<GpuType, JobId>,
}

impl Policy for GandivaFair {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let mut active: Vec<JobRef<'_>> = view.waiting().chain(view.granted()).collect();
        active.sort_unstable_by_key(JobRef::id);
        self.passes.charge(view, &active);
        if active.is_empty() {
            self.turns.clear();
            self.homes.clear();
            return Ok(());
        }
        let is_there = |id: &JobId| view.job(*id).is_some();
        self.turns.retain(|id, _| is_there(id));
        self.homes.retain(|id, _| is_there(id));
        let market = market::Market::new(view, offer.free(), &active);
        self.passes.entitle(market.entitled(self.trade));
        for (job, worth) in active.iter().zip(&market.worth) {
            if worth.iter().all(|worth| *worth <= 0.0) {
                offer.note(job.id(), Reason::NoSpeed);
            }
        }
        self.choose(&active, &market, view, offer);
        if let Some(time) = self.next_turn(&active, &market, view, offer) {
            offer.wake_at(time);
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.passes.forget();
        self.turns.clear();
        self.homes.clear();
        self.reserved.clear();
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { quantum, overhead, trade, reserve, migrate } = raw.read(ENTRY.name)?;
    if !(0.001..=1.0).contains(&overhead) {
        return Err(ENTRY.bad_value("overhead", overhead, "a part from 0.001 to 1"));
    }
    if quantum < Span::secs(1) {
        return Err(ENTRY.bad_value("quantum", quantum, "at least a second"));
    }
    let policy = GandivaFair {
        turn: Turns { quantum, overhead },
        trade,
        reserve,
        migrate,
        passes: Passes::default(),
        turns: BTreeMap::new(),
        homes: BTreeMap::new(),
        reserved: BTreeMap::new(),
    };
    Ok(Pipeline::new(policy, FewestNodes, ENTRY.needs))
}
