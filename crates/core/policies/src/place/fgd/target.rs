//! What usually comes: the classes of jobs seen so far with their popularity, the paper's target workload M.

use super::Settings;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use trainyard_framework::State;
use trainyard_types::{GpuType, Want};

/// Popularity is in millionths, so that sums are exact and ties are ties.
pub(super) const MILLION: f64 = 1e6;

/// Classes remembered; beyond, the lighter half is forgotten.
const REMEMBERED_MAX: usize = 1024;

/// The list is renewed after this part of the jobs that count.
const RENEWED_PART: u32 = 16;

/// What jobs of one class ask for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class {
    pub gpus: u32,
    pub permille: u16,
    pub cpus_per_gpu: u16,
    pub memory_mib_per_gpu: u32,
    pub gpu_memory_mib: u32,
    pub kinds: SmallVec<[GpuType; 4]>,
}

impl Class {
    fn of(want: &Want) -> Class {
        Class {
            gpus: want.gpus,
            permille: want.permille,
            cpus_per_gpu: want.cpus_per_gpu,
            memory_mib_per_gpu: want.memory_mib_per_gpu,
            gpu_memory_mib: want.gpu_memory_mib,
            kinds: want.kinds.clone(),
        }
    }
}

/// Counts of all classes. A cache: after a restart it is learnt anew from the jobs that are not over.
pub(super) struct Target {
    settings: Settings,
    weights: BTreeMap<Class, f64>,
    /// What the next job counts: it grows, so that older ones fade without being touched.
    weight: f64,
    /// Jobs below this id are counted.
    seen: usize,
    /// Jobs counted, up to the window.
    counted: u32,
    /// Jobs counted since the list was made.
    since: u32,
}

impl Target {
    pub(super) fn new(settings: Settings) -> Target {
        Target { settings, weights: BTreeMap::new(), weight: 1.0, seen: 0, counted: 0, since: 0 }
    }

    /// Counts jobs that are new; the typical classes in millionths when they are to be renewed.
    pub(super) fn learn(&mut self, state: &State) -> Option<Vec<(Class, i64)>> {
        if state.jobs.bound() < self.seen {
            *self = Target::new(self.settings.clone());
        }
        for (_, live) in state.jobs.range(self.seen, usize::MAX) {
            self.count(Class::of(&live.spec.want));
        }
        self.seen = state.jobs.bound();
        let renewed_after = (self.counted / RENEWED_PART).max(1);
        (self.since >= renewed_after).then(|| {
            self.since = 0;
            self.typical()
        })
    }

    fn count(&mut self, class: Class) {
        *self.weights.entry(class).or_insert(0.0) += self.weight;
        let window = self.settings.window;
        if window > 0 {
            self.weight *= libm::exp2(1.0 / f64::from(window));
        }
        if self.weight > 1e12 {
            self.weights.values_mut().for_each(|weight| *weight /= self.weight);
            self.weight = 1.0;
        }
        if self.weights.len() > REMEMBERED_MAX {
            let mut heaviest = self.by_weight();
            heaviest.truncate(REMEMBERED_MAX / 2);
            self.weights = heaviest.into_iter().collect();
        }
        self.since += 1;
        let most = if window == 0 { u32::MAX } else { window };
        self.counted = (self.counted + 1).min(most);
    }

    /// The most popular classes up to the wanted share of all, as the authors' code takes them.
    fn typical(&self) -> Vec<(Class, i64)> {
        let all = self.by_weight();
        let total: f64 = all.iter().map(|(_, weight)| weight).sum();
        let mut covered = 0.0;
        let mut typical = Vec::new();
        for (class, weight) in all.into_iter().take(usize::from(self.settings.classes_max)) {
            if covered >= self.settings.popularity * total {
                break;
            }
            covered += weight;
            typical.push((class, weight));
        }
        let millionths = |weight: f64| libm::round(weight / covered * MILLION) as i64;
        typical.into_iter().map(|(class, weight)| (class, millionths(weight))).collect()
    }

    /// Heaviest first, then by class.
    fn by_weight(&self) -> Vec<(Class, f64)> {
        let mut all: Vec<(Class, f64)> =
            self.weights.iter().map(|(class, weight)| (class.clone(), *weight)).collect();
        all.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learnt(settings: Settings, sizes: impl IntoIterator<Item = u32>) -> Vec<(u32, i64)> {
        let mut target = Target::new(settings);
        for gpus in sizes {
            target.count(Class::of(&Want::gpus(gpus)));
        }
        target.typical().into_iter().map(|(class, weight)| (class.gpus, weight)).collect()
    }

    #[test]
    fn old_jobs_count_half_after_a_window() {
        let settings = Settings { window: 4, popularity: 1.0, classes_max: 9 };
        // Four jobs of 1 GPU and then four of 8: the older ones weigh half.
        let shares = learnt(settings.clone(), [1, 1, 1, 1, 8, 8, 8, 8]);
        assert_eq!(shares, [(8, 666_667), (1, 333_333)]);
        let never = Settings { window: 0, ..settings };
        assert_eq!(learnt(never, [1, 1, 1, 8]), [(1, 750_000), (8, 250_000)]);
    }

    #[test]
    fn rare_classes_are_left_out() {
        let settings = Settings { window: 0, popularity: 0.6, classes_max: 9 };
        assert_eq!(learnt(settings.clone(), [1, 1, 1, 2, 2, 8]), [(1, 600_000), (2, 400_000)]);
        let one = Settings { classes_max: 1, ..settings };
        assert_eq!(learnt(one, [1, 1, 1, 2, 2, 8]), [(1, 1_000_000)]);
    }
}
