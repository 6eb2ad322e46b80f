//! Three and four jobs on the same GPUs.
//!
//! Triples are not measured: a job keeps the product of what it keeps beside each of the others, as everywhere in
//! Trainyard. Groups grow from pairs that gain by sharing, one job at a time, as long as each further one adds speed.

use super::Writer;
use crate::JobRef;
use crate::rounds::Choice;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use trainyard_types::{JobId, ModelId};

/// Of all groups of a size on a type those with the most speed are kept, so many for each job.
const GROUPS_PER_JOB: usize = 6;

/// A group on one type, its rates, and the sum of its speeds as parts of the speeds alone.
struct Group {
    kind: usize,
    members: SmallVec<[usize; 4]>,
    rates: SmallVec<[f64; 4]>,
    together: f64,
}

impl Writer<'_> {
    /// A choice for each group of three up to `most` jobs that is faster together than without its last one.
    /// O(p n) for p pairs and n jobs, which only large menus feel.
    pub(super) fn groups(&mut self, active: &[JobRef<'_>], most: usize) {
        let mut smaller = self.pairs_of(active);
        for _ in 3..=most {
            let mut larger: Vec<Group> = Vec::new();
            let mut met = BTreeMap::new();
            for group in &smaller {
                let last = group.members.last().map_or(0, |last| last + 1);
                let more = (last..active.len()).filter_map(|next| {
                    let wider = self.widened(group, next, active, &mut met)?;
                    (wider.together > group.together + 1e-9).then_some(wider)
                });
                larger.extend(more);
            }
            larger.sort_by(|a, b| {
                let by_speed = b.together.total_cmp(&a.together);
                by_speed.then_with(|| (a.kind, &a.members).cmp(&(b.kind, &b.members)))
            });
            larger.truncate(GROUPS_PER_JOB * active.len() * self.shapes.len());
            for group in &larger {
                self.table.choices.push(Choice {
                    jobs: group.members.iter().map(|member| active[*member].id()).collect(),
                    uses: smallvec::smallvec![(
                        group.kind as u16,
                        active[group.members[0]].spec.want.gpus
                    )],
                    nodes_max: 0,
                    rates: group.rates.iter().copied().collect(),
                });
            }
            smaller = larger;
        }
    }

    /// The pairs of the table.
    fn pairs_of(&self, active: &[JobRef<'_>]) -> Vec<Group> {
        let place = |job: &JobId| active.binary_search_by_key(job, JobRef::id).ok();
        let pairs = self.table.choices.iter().filter(|choice| choice.jobs.len() == 2);
        pairs
            .filter_map(|choice| {
                let members: SmallVec<[usize; 4]> =
                    choice.jobs.iter().map(place).collect::<Option<_>>()?;
                let alone = members.iter().map(|member| self.alone(active[*member], choice.kind()));
                let parts = choice.rates.iter().zip(alone).map(|(rate, alone)| rate / alone);
                Some(Group {
                    kind: choice.kind(),
                    together: parts.sum(),
                    members,
                    rates: choice.rates.iter().copied().collect(),
                })
            })
            .collect()
    }

    /// A group with one more job; nothing if it cannot join.
    fn widened(
        &self,
        group: &Group,
        next: usize,
        active: &[JobRef<'_>],
        met: &mut BTreeMap<(usize, u32, SmallVec<[ModelId; 4]>), f64>,
    ) -> Option<Group> {
        let gpus = active[group.members[0]].spec.want.gpus;
        let want = &active[next].spec.want;
        if want.gpus != gpus || want.permille < 1000 {
            return None;
        }
        let mut members = group.members.clone();
        members.push(next);
        let memory = self.view.cluster().kinds[self.shapes[group.kind].0.index()].memory_mib;
        let needed: u32 = members.iter().map(|it| active[*it].spec.want.gpu_memory_mib).sum();
        if memory > 0 && needed > memory {
            return None;
        }
        let (mut rates, mut together): (SmallVec<[f64; 4]>, f64) = (SmallVec::new(), 0.0);
        for member in &members {
            let job = active[*member];
            let others = members.iter().filter(|other| *other != member);
            let mut partners: SmallVec<[ModelId; 4]> =
                others.map(|other| active[*other].spec.model).collect();
            partners.sort_unstable();
            partners.push(job.spec.model);
            let rate = *met.entry((group.kind, gpus, partners)).or_insert_with_key(|(_, _, of)| {
                let config = self.packed(job, group.kind);
                let config = config.with_partners(of[..of.len() - 1].iter().copied());
                self.rate(job, group.kind, &config)
            });
            let alone = self.alone(job, group.kind);
            if rate <= 0.0 || alone <= 0.0 {
                return None;
            }
            together += rate / alone;
            rates.push(rate);
        }
        Some(Group { kind: group.kind, members, rates, together })
    }
}
