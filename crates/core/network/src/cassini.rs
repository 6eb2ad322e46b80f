//! CASSINI: whether jobs that share links can take turns on them, and by how much each must be shifted
//! (Rajasekaran and others, NSDI 2024, arXiv 2308.00852).
//!
//! - [`circle`]: the demand of one iteration, rolled around a circle; several jobs on a circle of their own perimeter.
//! - [`link`]: the best shifts of the jobs on one link, and its compatibility score.
//! - [`affinity`]: one shift for each job from the shifts of its links, and the choice among candidate placements.

pub mod affinity;
pub mod circle;
pub mod link;

pub use affinity::{Candidate, Judged, Loops, SharedLink, choose, judge};
pub use circle::{CircleSettings, Incommensurate, Perimeter, Phase, Profile, ProfileFault};
pub use link::{LinkFit, fit_link};
