//! Newtype ids. All are dense indices, so that tables are vectors.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The id as an index into a dense table.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A job, numbered in order of arrival at the engine.
    JobId, u32, "job-"
);
id!(
    /// A machine.
    NodeId, u32, "node-"
);
id!(
    /// A type of accelerator: an index into [`crate::Cluster::kinds`].
    GpuType, u8, "type-"
);
id!(
    /// A model that jobs train: an index into a table of profiles.
    ModelId, u32, "model-"
);
id!(
    /// A user, team or organisation: an index into [`crate::Tenants`].
    TenantId, u32, "tenant-"
);
id!(
    /// A part of the cluster lent as one: a partition, a virtual cluster, the inference pool.
    PoolId, u16, "pool-"
);
id!(
    /// A link that carries data in one direction: an index into a table of capacities.
    LinkId, u32, "link-"
);
id!(
    /// One launch of a job. A late message of attempt 1 never ends attempt 2.
    Attempt, u32, "attempt-"
);
id!(
    /// Jobs that belong together, such as the trials of one search.
    GroupId, u32, "group-"
);

/// One GPU: its node, and its index within that node (0..64).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GpuAt {
    /// The node it sits in.
    pub node: NodeId,
    /// Its index within the node.
    pub gpu: u8,
}

impl fmt::Display for GpuAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.node, self.gpu)
    }
}
