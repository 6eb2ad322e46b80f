//! What a policy file needs, in one line.

pub(crate) use crate::place::FewestNodes;
pub(crate) use serde::{Deserialize, Serialize};
pub(crate) use trainyard_framework::{
    AdmissionEntry, Ask, ConfigError, Cx, Entry, Family, Fill, Free, GrantOutcome, JobRef, Key,
    Mode, Needs, Objective, Offer, Pipeline, PlaceEntry, Placer, Policy, PolicyEntry, PolicyError,
    Rank, Ranked, RawSettings, Taxonomy, View, defaults, wanted,
};
pub(crate) use trainyard_types::{GpuType, JobId, NodeId, Placement, Reason, Span, Time};
