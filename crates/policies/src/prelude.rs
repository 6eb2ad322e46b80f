//! What a policy file needs, in one line.

pub(crate) use crate::place::FewestNodes;
pub(crate) use serde::{Deserialize, Serialize};
pub(crate) use trainyard_framework::{
    Ask, ConfigError, Cx, Entry, Family, Fill, Free, JobRef, Key, Knowledge, Level, Mode, Needs,
    Objective, Offer, Pipeline, PlaceEntry, Place, Policy, PolicyEntry, PolicyError, Rank, Ranked,
    RawSettings, Taxonomy, View, defaults,
};
pub(crate) use trainyard_types::{GpuType, JobId, NodeId, Placement, Span, Time};
