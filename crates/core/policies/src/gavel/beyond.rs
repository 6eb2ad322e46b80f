//! What the objectives can do that the paper's do not, each a setting: `docs/guide/beyond-gavel.md`.

use super::ahead::Ahead;
use super::engine::{Engine, Method};
use super::optimiser::{Goal, Optimiser};
use crate::prelude::*;
use trainyard_framework::{Menu, Only, Pop, TimeShare};

/// Settings beyond the paper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Beyond {
    /// Into how many parts a problem is cut.
    pub parts: usize,
    /// A job beyond so many slices of the GPUs is dealt to several parts.
    pub split: f64,
    /// By which jobs are dealt to parts.
    pub seed: u64,
    /// The most jobs on the same GPUs.
    pub group_max: usize,
    /// Whether the number of GPUs is chosen too.
    pub sizes: bool,
    /// Whether a job may be across two types.
    pub mixed: bool,
    /// Whether types that cannot hold a gang are left out.
    pub holds: bool,
    /// Types that take part.
    pub types: Vec<String>,
    /// The part of its rate a job may lose so that later ones find room.
    pub ahead: f64,
}

impl Default for Beyond {
    fn default() -> Beyond {
        Beyond {
            parts: 1,
            split: 0.5,
            seed: 0,
            group_max: 2,
            sizes: false,
            mixed: false,
            holds: true,
            types: Vec::new(),
            ahead: 0.0,
        }
    }
}

impl Beyond {
    /// A fault for each value that makes no sense.
    pub fn check(&self, entry: &PolicyEntry, pairs: bool) -> Result<(), ConfigError> {
        if !(1..=1024).contains(&self.parts) {
            return Err(entry.bad_value("parts", self.parts, "a number from 1 to 1024"));
        }
        if self.split.is_nan() || self.split <= 0.0 {
            return Err(entry.bad_value(
                "split",
                self.split,
                "a number above 0; `inf` splits none",
            ));
        }
        if !(2..=4).contains(&self.group_max) {
            return Err(entry.bad_value("group_max", self.group_max, "2, 3 or 4"));
        }
        if self.group_max > 2 && !pairs {
            let expected = "2, unless pairs=true: groups grow from pairs";
            return Err(entry.bad_value("group_max", self.group_max, expected));
        }
        if !(0.0..1.0).contains(&self.ahead) {
            return Err(entry.bad_value("ahead", self.ahead, "a part from 0 to below 1"));
        }
        Ok(())
    }

    /// The menu with what is beyond the paper added.
    pub fn menu(&self, menu: Menu) -> Menu {
        Menu {
            group_max: self.group_max,
            sizes: self.sizes,
            mixed: self.mixed,
            oversized: !self.holds,
            ..menu
        }
    }

    /// An optimiser for a goal, or one for each part; nothing if this build lacks the solver.
    pub fn optimiser(
        &self,
        goal: impl Goal + Clone + 'static,
        method: Method,
        menu: Menu,
    ) -> Option<Box<dyn TimeShare>> {
        let one = || {
            let mut optimiser = Optimiser::new(goal.clone(), Engine::new(method)?, menu);
            optimiser.ahead = (self.ahead > 0.0).then(|| Ahead::new(self.ahead));
            Some(optimiser)
        };
        let parts = (0..self.parts).map(|_| one()).collect::<Option<Vec<_>>>()?;
        let share: Box<dyn TimeShare> = Box::new(Pop::new(parts, self.split, self.seed));
        Some(match self.types.is_empty() {
            true => share,
            false => Box::new(Only { inner: share, types: self.types.clone() }),
        })
    }
}
