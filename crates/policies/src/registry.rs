//! The one table that makes policies, placers, gates and tuners exist.

use crate::{fifo, place};
use trainyard_framework::{GateEntry, PlaceEntry, PolicyEntry, TuneEntry};

/// All policies.
pub const POLICIES: &[&PolicyEntry] = &[&fifo::ENTRY];

/// All placers.
pub const PLACERS: &[&PlaceEntry] = &[&place::fewest_nodes::ENTRY];

/// All admission gates.
pub const GATES: &[&GateEntry] = &[];

/// All tuners.
pub const TUNERS: &[&TuneEntry] = &[];
