//! What jobs that exchange gradients over the same links lose beside each other.

use crate::world::World;
use trainyard_types::{JobId, Placement};

impl World<'_> {
    /// The part of its speed that a job keeps: a job on several nodes is slowed while another one that spans nodes is
    /// on one of them, however many there are (Pollux, OSDI 2021, section 5.3.3).
    pub(crate) fn kept_beside_others(&self, job: JobId) -> f64 {
        let own = &self.placed[job];
        if self.interference == 0.0 || own.config.nodes < 2 {
            return 1.0;
        }
        let meets = |other: &Placement| {
            other.masks().iter().any(|(node, _)| own.allocation.placement.mask(*node) != 0)
        };
        let others = self.placed.iter().filter(|(id, other)| *id != job && other.config.nodes > 1);
        let mut others = others.map(|(_, other)| &other.allocation.placement);
        if others.any(meets) { 1.0 - self.interference } else { 1.0 }
    }
}
