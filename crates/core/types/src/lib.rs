//! The nouns every other crate speaks of.
//!
//! - [`ids`], [`time`], [`idset`], [`idmap`]: dense ids, integer time, a set and a map of ids.
//! - [`job`]: what a user asked for and what has happened to it so far.
//! - [`cluster`], tenants ([`Tenant`]): what there is, and how much of it each tenant may use.
//! - [`cells`]: nested blocks of GPUs, and which of them a virtual cluster owns.
//! - [`window`]: maintenance and reservations by time.
//! - [`topology`], [`traffic`]: links between nodes and inside them, and what jobs move over them.
//! - [`placement`], [`grant`]: which GPUs, how much, with which other jobs; [`placement_rules`]: what of that can be
//!   launched.
//! - [`config`]: the summary of a placement that a speed model needs.
//! - [`event`]: what happened, and what the engine wants done.
//! - [`decision`]: a plan as a difference, with its reasons.
//! - [`printable`](mod@printable): text of users, made safe to print.
//!
//! Word discipline: a *grant* says how much and with which other jobs; a *placement* says which GPUs; an *allocation*
//! is what one job holds; a *decision* is a set of changes to the allocations plus why. Nothing here decides, reads a
//! clock or opens a file.

pub mod batch;
pub mod cells;
pub mod cluster;
pub mod config;
pub mod decision;
pub mod event;
pub mod grant;
pub mod idmap;
pub mod ids;
pub mod idset;
pub mod job;
pub mod measured;
pub mod placement;
pub mod placement_rules;
pub mod printable;
pub mod suspend;
mod tenant;
pub mod time;
pub mod topology;
pub mod traffic;
pub mod window;

pub use batch::{BatchLimits, BatchSplit};
pub use cells::{CellChain, CellCount, CellLevel, Cells, VirtualCluster};
pub use cluster::{Cluster, GpuKind, Links, Node};
pub use config::{Beside, Config, Occupant, Tier};
pub use decision::{Change, Decision, Fault, Note, Quality, Reason, Verdict};
pub use event::{Action, Cause, Event, Sample, Why};
pub use grant::{Allocation, Grant, HostShare, Knobs, Member, Shape, Share};
pub use idmap::IdMap;
pub use ids::{Attempt, GpuAt, GpuType, GroupId, JobId, LinkId, ModelId, NodeId, PoolId, TenantId};
pub use idset::{Id, IdSet};
pub use job::{
    AsideSpans, BatchMode, Class, End, Job, JobState, Labels, Phase, Progress, RETRIES_DEFAULT,
    Suspended, Want, soft_deadline,
};
pub use measured::{EpochsSeen, Measured, StepSeen};
pub use placement::Placement;
pub use placement_rules::PlacementRules;
pub use printable::{is_unprintable, printable, printable_json, printable_lines};
pub use suspend::{NoSuspendRule, SuspendRule};
pub use tenant::{Tenant, Tenants};
pub use time::{Rate, Span, Time, Work};
pub use topology::{
    Inside, Link, LinkEnd, Switch, Topology, TopologyFault, Wire, WireKind, Wiring,
};
pub use traffic::{Load, Pattern, Traffic};
pub use window::{Allowed, Window, WindowId};
