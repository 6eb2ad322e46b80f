//! One job across two types of GPU.

use super::Writer;
use crate::JobRef;
use crate::rounds::Choice;
use smallvec::{SmallVec, smallvec};
use trainyard_types::{Config, Tier};

impl Writer<'_> {
    /// A choice for each two types and a few ways to divide a gang over them. It goes as its profile says of mixed
    /// types, which is at the pace of the slower one.
    pub(super) fn mixed(&mut self, job: JobRef<'_>) {
        let want = &job.spec.want;
        if want.gpus < 2 || want.permille < 1000 || want.nodes_max == 1 {
            return;
        }
        for first in 0..self.shapes.len() {
            for second in first + 1..self.shapes.len() {
                let capacity = (self.table.capacity[first], self.table.capacity[second]);
                for here in divisions(want.gpus, capacity) {
                    let uses = [(first, here), (second, want.gpus - here)];
                    let config = across(uses.map(|(kind, gpus)| {
                        let (id, per_node) = self.shapes[kind];
                        Config::packed(id, gpus, per_node)
                    }));
                    let rate = self.rate_on(job, &uses, &config);
                    if rate > 0.0 {
                        self.table.choices.push(Choice {
                            jobs: smallvec![job.id()],
                            uses: uses.iter().map(|(kind, gpus)| (*kind as u16, *gpus)).collect(),
                            nodes_max: 0,
                            rates: smallvec![rate],
                        });
                    }
                }
            }
        }
    }
}

/// How many GPUs of a gang are of the first type: half of them, as many as there are, and as few as will do.
fn divisions(gpus: u32, (first, second): (u32, u32)) -> SmallVec<[u32; 3]> {
    let (least, most) = (gpus.saturating_sub(second).max(1), first.min(gpus - 1));
    let mut ways: SmallVec<[u32; 3]> =
        [least, gpus / 2, most].into_iter().filter(|here| (least..=most).contains(here)).collect();
    ways.sort_unstable();
    ways.dedup();
    ways
}

/// Two placements as one.
fn across([first, second]: [Config; 2]) -> Config {
    let mut config = first;
    config.kinds.extend(second.kinds);
    config.shape.extend(second.shape);
    config.shape.sort_unstable_by(|a, b| b.cmp(a));
    config.gpus += second.gpus;
    config.nodes += second.nodes;
    config.tier = Tier::Rack;
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gang_is_divided_as_far_as_there_are_gpus() {
        assert_eq!(divisions(8, (4, 4)).as_slice(), [4]);
        assert_eq!(divisions(8, (16, 16)).as_slice(), [1, 4, 7]);
        assert_eq!(divisions(8, (2, 7)).as_slice(), [1, 2]);
        assert!(divisions(8, (2, 4)).is_empty());
        assert_eq!(divisions(2, (1, 1)).as_slice(), [1]);
    }
}
