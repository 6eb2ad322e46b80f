//! The contract between a policy and the house it lives in.
//!
//! A policy is a function from a [`View`] (a moment, frozen) to grants, which it offers in order of precedence to an
//! [`Offer`]. The offer knows what is free, asks the placer at once and answers *taken*, *no room* or *full*; only the
//! engine acts. Most authors write one of the small fronts and have it lifted:
//!
//! | you have | you implement | lifted by |
//! |---|---|---|
//! | an order of jobs | [`Rank`] | [`Ranked`] |
//! | fractions of time by type | [`TimeShare`] | [`Rounds`] |
//! | a score for a node | [`Score`] | [`Greedy`] |
//! | anything else | [`Policy`], [`Placer`] | – |
//!
//! The contract of [`Policy`]:
//!
//! 1. What it is shown is frozen and read-only.
//! 2. Calls never overlap.
//! 3. The same view, seed and limit give the same grants.
//! 4. Memory between calls is a cache: losing it may cost quality, never legality. After a restart it is empty.
//! 5. An error or a panic keeps the present plan; it is counted, and the policy is asked again later.
//! 6. A faulty grant is dropped and counted; in tests it is a failure.
//! 7. A wake-up lies in the future.
//! 8. A grant lies between the least and the most GPUs of the job.
//! 9. By default an offer adds to what runs; [`Offer::everything`] makes it speak of all jobs.
//! 10. A job with a lease, within its minimum run time, or not preemptible keeps its grant whatever is offered.
//! 11. Where the cluster has [rules for shapes](trainyard_types::PlacementRules), a grant that breaks them becomes one of as many
//!     GPUs that keeps them or, if the job allows it, of fewer.
//! 12. A node that is under maintenance or reserved before a job could have left it has no room for that job
//!     ([`Free::shut`]); placers find that out by [`Ask::usable`], and a grant there is answered with *no room*.
//! 13. A grant may name host CPUs and memory for each GPU ([`trainyard_types::Grant::host`]), and [`Offer::set_host`]
//!     changes them for a job where it is. A job never gets less than it wishes for, and such a change is no restart.
//! 14. A grant may name the GPU memory that is counted for each member ([`trainyard_types::Grant::gpu_memory_mib`]), and
//!     [`Offer::set_terms`] changes share, knobs and counted memory of a job where it is, which is no restart.
//! 15. A grant that names its GPUs for one job may have a share for each of them ([`trainyard_types::Grant::shares`]): the
//!     job owns some and shares others. Any other number of shares is a `WrongShape`.
//! 16. A job that lost its grant though no other job uses its GPUs keeps it, unless [`Offer::leave_idle`] was said.
//! 17. A job that is put aside goes on where it was: while it waits for its own GPUs ([`Aside::tie`]) a grant becomes one
//!     of them, whatever it names, or is answered with *no room*.
//! 18. Where tenants are kept apart, jobs of two tenants share a GPU only if both allow it; a grant beside a stranger is
//!     answered with *no room*, and the placer is asked again without those GPUs.
//!
//! Deliberately absent: a way to act, to read a clock or a file, or to see the true length of a job.

mod admission;
mod aside;
mod ask;
mod entry;
pub mod fraction;
mod free;
mod index;
pub mod links;
mod offer;
mod policy;
mod rank;
mod ranked;
mod refill;
mod rounds;
mod score;
mod settings;
pub mod shapes;
mod state;
mod steady;
mod view;
mod windows;

pub use admission::{Admission, AdmissionControl, Control};
pub use aside::{Aside, Way};
pub use ask::Ask;
pub use entry::{
    AdmissionEntry, Entry, Family, Objective, PlaceEntry, PolicyEntry, Taxonomy, TuneEntry,
};
pub use free::{Free, Shortage};
pub use offer::{GrantOutcome, Offer, Outcome, PartGpus, Terms, used_permille};
pub use policy::{Cx, Knowledge, Needs, Pipeline, Placer, Policy, PolicyError, Trials, Tune};
pub use rank::{Key, Rank, wanted};
pub use ranked::{Fill, Mode, Ranked, once_adopted};
pub use rounds::{
    AsIf, Blind, Choice, Cleaned, KnownRates, Length, Mechanism, Menu, Only, Pairs, Pop, RateTable,
    RoundSettings, Rounds, Shares, Shuffler, TimeShare,
};
pub use score::{Greedy, Score, ScoreContext};
pub use settings::{ConfigError, RawSettings, defaults};
pub use state::{ChangeCursor, Live, Loan, State, Usage};
pub use trainyard_profile::{ChangeCost, Monitored, PairSource, SuspendCost, UsageSource};
pub use view::{Beliefs, JobRef, Snapshot, View};
pub use windows::{Windows, lead, leaves_at};
