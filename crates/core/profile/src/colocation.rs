//! What jobs on the same GPU leave each other of their speed.
//!
//! One place for one physical effect: the simulated world asks it for the truth and policies ask it, through their view,
//! for what is believed. No policy works out interference by itself.

pub mod measured;
pub mod stages;
pub mod token;

pub use measured::{MeasuredPairs, kept_in_group};
pub use stages::{Guarded, Interleaved, StageTable};
pub use token::TokenShares;

use crate::Catalog;
use crate::interference::PairSource;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use trainyard_types::{Cluster, GpuType, Occupant};

/// A GPU that jobs share, seen from one of them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SharedGpu {
    /// Its type, where it is known.
    pub kind: Option<GpuType>,
    /// How many GPUs the job has in all.
    pub gpus: u32,
}

/// What jobs on the same GPU leave each other of their speed.
pub trait Colocation: fmt::Debug + Send + Sync {
    /// The part of its speed alone that a job keeps on a GPU beside others; 0 if they do not fit together.
    fn kept(&self, own: Occupant, on: SharedGpu, others: &[Occupant]) -> f64;

    /// The same as one source of predictions would have it, where this model can be predicted.
    fn by(&self, _source: PairSource) -> Option<&dyn Colocation> {
        None
    }

    /// Seconds in which each of several jobs on the same GPUs does one iteration, where they go on together; nothing
    /// where each has a pace of its own. To the last bit, for that decides which of equally good groups are made.
    fn period(&self, _jobs: &[Occupant], _on: SharedGpu) -> Option<f64> {
        None
    }
}

/// The models of co-location that there are.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum ColocationModel {
    /// Measured pairs that take turns; in groups of three and more the delays of the pairs add up.
    #[default]
    TimeSliced,
    /// Measured pairs that run at once under MPS; groups as above.
    Mps,
    /// Jobs take turns on storage and CPU, GPU and network, by their measured stages.
    Stages,
    /// By the same stages, jobs with a right to the GPU run as if alone and the others fit into what they leave.
    StagesGuarded,
    /// Jobs take turns by a token, each with its request and its limit, by the rules of the live side's arbiter.
    Token,
}

impl ColocationModel {
    /// All of them.
    pub const ALL: [ColocationModel; 5] = [
        ColocationModel::TimeSliced,
        ColocationModel::Mps,
        ColocationModel::Stages,
        ColocationModel::StagesGuarded,
        ColocationModel::Token,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ColocationModel::TimeSliced => "time-sliced",
            ColocationModel::Mps => "mps",
            ColocationModel::Stages => "stages",
            ColocationModel::StagesGuarded => "stages-guarded",
            ColocationModel::Token => "token",
        }
    }

    /// The model for the models of a catalog on a cluster.
    pub fn bind(self, catalog: &Catalog, cluster: &Cluster) -> Arc<dyn Colocation> {
        match self {
            ColocationModel::TimeSliced => {
                Arc::new(MeasuredPairs::new(catalog, cluster, Sharing::TimeSliced))
            }
            ColocationModel::Mps => Arc::new(MeasuredPairs::new(catalog, cluster, Sharing::Mps)),
            ColocationModel::Stages => Arc::new(Interleaved(StageTable::new(catalog, cluster))),
            ColocationModel::StagesGuarded => Arc::new(Guarded(StageTable::new(catalog, cluster))),
            ColocationModel::Token => Arc::new(TokenShares),
        }
    }
}

impl FromStr for ColocationModel {
    type Err = ();

    fn from_str(text: &str) -> Result<ColocationModel, ()> {
        ColocationModel::ALL.into_iter().find(|model| model.name() == text).ok_or(())
    }
}

/// How jobs share one GPU.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// They take turns.
    #[default]
    TimeSliced,
    /// They run at once under MPS.
    Mps,
}

impl Sharing {
    /// The part of its speed a model keeps beside one whose pair was not measured.
    ///
    /// Half the mean sum of both speeds over all pairs measured on an H200.
    pub fn part_default(self) -> f64 {
        match self {
            Sharing::TimeSliced => 0.7,
            Sharing::Mps => 0.8,
        }
    }
}
