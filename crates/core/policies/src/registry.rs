//! The one table that makes policies, placers, admission controls and tuners exist.

use crate::{
    admit, afs_l, afs_p, allox, antman, chronus, co_scheml, conservative, dally, easy, edf, elas,
    elasticflow, fair_share, fifo, gandiva, gandiva_fair, gavel, gavel_fifo, genie, gittins, heet,
    hived, horus, hypersched, kube_knots, kube_scheduler, kubeshare, kueue, kungfu, las,
    least_laxity, lucid, lyra, muri_antman, muri_l, muri_s, optimus, place, pollux, priority,
    quasar, salus, shockwave, sia, sjf, srsf, srtf, synergy, themis, tiresias, tune, volcano,
    yarn_capacity,
};
use trainyard_framework::{AdmissionEntry, Family, PlaceEntry, PolicyEntry, TuneEntry};

/// All policies, family by family. The first of each family is its best on the embedded
/// workload by mean completion time, and stands for it, see [`representatives`]; `salus`, which shares nothing there
/// because its jobs state no memory, aside.
pub const POLICIES: &[&PolicyEntry] = &[
    &fifo::ENTRY,
    &gavel_fifo::ENTRY,
    &easy::ENTRY,
    &conservative::ENTRY,
    &srsf::ENTRY,
    &srtf::ENTRY,
    &sjf::ENTRY,
    &synergy::ENTRY,
    &allox::ENTRY,
    &gittins::ENTRY,
    &tiresias::ENTRY,
    &las::ENTRY,
    &elas::ENTRY,
    &dally::ENTRY,
    &fair_share::ENTRY,
    &priority::ENTRY,
    &hived::ENTRY,
    &themis::ENTRY,
    &gandiva_fair::ENTRY,
    &gandiva::ENTRY,
    &lucid::ENTRY,
    &salus::ENTRY,
    &kubeshare::ENTRY,
    &muri_s::ENTRY,
    &muri_l::ENTRY,
    &muri_antman::ENTRY,
    &antman::ENTRY,
    &co_scheml::ENTRY,
    &horus::ENTRY,
    &kube_knots::ENTRY,
    &quasar::ENTRY,
    &gavel::max_min::ENTRY,
    &gavel::finish_time::ENTRY,
    &gavel::makespan::ENTRY,
    &gavel::shortest::ENTRY,
    &gavel::throughput::ENTRY,
    &gavel::cost::ENTRY,
    &gavel::hierarchy::ENTRY,
    &gavel::proof::ENTRY,
    &gavel::isolated::ENTRY,
    &gavel::proportional::ENTRY,
    &gavel::random_pairs::ENTRY,
    &shockwave::ENTRY,
    &elasticflow::ENTRY,
    &edf::ENTRY,
    &least_laxity::ENTRY,
    &genie::ENTRY,
    &chronus::ENTRY,
    &hypersched::ENTRY,
    &pollux::ENTRY,
    &sia::ENTRY,
    &kungfu::ENTRY,
    &afs_l::ENTRY,
    &afs_p::ENTRY,
    &optimus::ENTRY,
    &lyra::ENTRY,
    &heet::ENTRY,
    &yarn_capacity::ENTRY,
    &kueue::ENTRY,
    &kube_scheduler::ENTRY,
    &volcano::ENTRY,
];

/// What there is to decide about the jobs of a run beyond their order and place.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// Some allow several sizes.
    pub elastic: bool,
    /// Some have a deadline.
    pub deadlines: bool,
}

impl Traits {
    /// Whether a family has something of its own to decide about such jobs.
    fn concern(self, family: Family) -> bool {
        match family {
            Family::Elastic | Family::Goodput => self.elastic,
            Family::Deadline => self.deadlines,
            _ => true,
        }
    }
}

/// One policy of each family that has something to decide, in the order of the table: what `compare` shows by default.
pub fn representatives(jobs: Traits) -> Vec<&'static PolicyEntry> {
    let mut chosen: Vec<&'static PolicyEntry> = Vec::new();
    for entry in POLICIES.iter().copied().filter(|entry| jobs.concern(entry.class.family)) {
        if chosen.iter().all(|other| other.class.family != entry.class.family) {
            chosen.push(entry);
        }
    }
    chosen
}

/// All placers.
pub const PLACERS: &[&PlaceEntry] = &[
    &place::fewest_nodes::ENTRY,
    &place::first_fit::ENTRY,
    &place::best_fit::ENTRY,
    &place::spread::ENTRY,
    &place::skew::ENTRY,
    &place::fgd::ENTRY,
    &place::buddy::ENTRY,
    &place::even::ENTRY,
    &place::mapa::ENTRY,
    &place::step_time::ENTRY,
];

/// All admission controls.
pub const ADMISSION_CONTROLS: &[&AdmissionEntry] =
    &[&admit::load::ENTRY, &admit::quota::ENTRY, &admit::deadline::ENTRY, &admit::profiler::ENTRY];

/// All tuners.
pub const TUNERS: &[&TuneEntry] = &[&tune::cassini::ENTRY];
