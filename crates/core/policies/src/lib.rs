//! Published scheduling policies and placers, one file each.
//!
//! - [`registry`][]: the one table that makes them exist.
//! - [`compose`][]: a policy, a placer, admission controls and tuners put together by name.
//! - [`place`][]: placers.
//! - [`admit`][]: admission controls.
//! - [`tune`][]: stages that choose among plans and turn knobs.
//! - the other modules: one policy each, named as in its paper.
//!
//! A policy of one's own, written and run; the same code is in `examples/own_policy.rs`:
//!
//! ```
//! use std::sync::Arc;
//! use trainyard_framework::{JobRef, Key, Needs, Pipeline, Rank, Ranked, View};
//! use trainyard_policies::place::FewestNodes;
//! use trainyard_sim::{Options, Quiet, simulate};
//! use trainyard_workload::embedded;
//!
//! /// Small gangs first; of equals, the one that was submitted first.
//! struct SmallestGang;
//!
//! impl Rank for SmallestGang {
//!     fn rank(&mut self, job: JobRef<'_>, _view: &View<'_>) -> Key {
//!         Key::value(i64::from(job.spec.want.gpus)).tie(job.spec.submitted)
//!     }
//! }
//!
//! let (workload, cluster) = embedded();
//! let policy = Ranked::new(SmallestGang).no_preemption();
//! let pipeline = Pipeline::new(policy, FewestNodes, Needs::NOTHING);
//! let options = Options::default();
//! let outcome = simulate(&workload, &Arc::new(cluster), pipeline, &options, &mut Quiet);
//! let submitted = |job: usize| workload.jobs[job].job.submitted;
//! let times = outcome.finished().map(|one| one.ended.since(submitted(one.job.index())));
//! let total: f64 = times.map(|time| time.as_secs_f64()).sum();
//! assert!(outcome.unfinished.is_empty(), "every job is served");
//! println!("mean job completion time: {:.0} s", total / workload.jobs.len() as f64);
//! ```

pub mod admit;
pub mod compose;
pub mod place;
mod prelude;
pub mod registry;
pub mod tune;

// One policy each.
pub mod afs_l;
pub mod afs_p;
pub mod allox;
pub mod antman;
pub mod chronus;
pub mod co_scheml;
pub mod conservative;
pub mod easy;
pub mod edf;
pub mod elas;
pub mod elasticflow;
pub mod fair_share;
pub mod fifo;
pub mod gandiva;
pub mod gandiva_fair;
pub mod gavel;
pub mod gavel_fifo;
pub mod genie;
pub mod gittins;
pub mod heet;
pub mod hived;
pub mod horus;
pub mod hypersched;
pub mod kube_knots;
pub mod kube_scheduler;
pub mod kubeshare;
pub mod kueue;
pub mod kungfu;
pub mod las;
pub mod least_laxity;
pub mod lucid;
pub mod lyra;
pub mod muri_antman;
pub mod muri_l;
pub mod muri_s;
pub mod optimus;
pub mod pollux;
pub mod priority;
pub mod quasar;
pub mod salus;
pub mod shockwave;
pub mod sia;
pub mod sjf;
pub mod srsf;
pub mod srtf;
pub mod synergy;
pub mod themis;
pub mod tiresias;
pub mod volcano;
pub mod yarn_capacity;

// What several policies stand on.
mod afs;
mod alike;
mod backfill;
pub mod dally;
mod deadlines;
mod horizon;
mod ladder;
mod levels;
mod muri;
mod pods;
mod regrant;
mod sizes;
mod tenancy;
mod timeline;
mod turns;
mod wires;
