//! The one table that makes policies, placers, gates and tuners exist.

use crate::{
    allox, conservative, easy, elas, fair_share, fifo, gandiva, gandiva_fair, gavel, gavel_fifo,
    gittins, heet, hypersched, kungfu, las, load, lyra, place, priority, shockwave, sjf, srsf,
    srtf, themis, tiresias,
};
use trainyard_framework::{GateEntry, PlaceEntry, PolicyEntry, TuneEntry};

/// All policies, family by family. The first of each family is its best on the embedded
/// workload by mean completion time, and stands for it, see [`representatives`].
pub const POLICIES: &[&PolicyEntry] = &[
    &fifo::ENTRY,
    &gavel_fifo::ENTRY,
    &easy::ENTRY,
    &conservative::ENTRY,
    &srsf::ENTRY,
    &srtf::ENTRY,
    &sjf::ENTRY,
    &allox::ENTRY,
    &gittins::ENTRY,
    &tiresias::ENTRY,
    &las::ENTRY,
    &elas::ENTRY,
    &fair_share::ENTRY,
    &priority::ENTRY,
    &themis::ENTRY,
    &gandiva::ENTRY,
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
    &gandiva_fair::ENTRY,
    &shockwave::ENTRY,
    &lyra::ENTRY,
    &heet::ENTRY,
    &kungfu::ENTRY,
    &hypersched::ENTRY,
];

/// One policy of each family, in the order of the table: what `compare` shows by default.
pub fn representatives() -> Vec<&'static PolicyEntry> {
    let mut chosen: Vec<&'static PolicyEntry> = Vec::new();
    for entry in POLICIES.iter().copied() {
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
];

/// All admission gates.
pub const GATES: &[&GateEntry] = &[&load::ENTRY];

/// All tuners.
pub const TUNERS: &[&TuneEntry] = &[];
