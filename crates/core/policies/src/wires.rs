//! Sizes valued with the bandwidth that they would really get: MAPA's question, asked by a policy that chooses sizes.
//!
//! A ladder holds the speed of each size over the best wires that so many GPUs of a node can have. Here each size keeps
//! the part of it that the job would have where MAPA would put it now, beside the jobs that run, less the part that it
//! takes from the next job: the mean of what the jobs that are there would lose if they came to the GPUs that are left.

use crate::ladder::{Contest, Ladder, Player, packed};
use crate::place::mapa;
use crate::prelude::*;
use rustc_hash::FxHashMap;
use smallvec::smallvec;
use trainyard_types::{Allocation, Grant, Inside};

/// Jobs that stand for those to come.
const MIX_MAX: usize = 8;
/// In larger nodes what is left for others is not looked at: sets of GPUs are too many.
const GPUS_MAX: u8 = 8;

/// The bandwidth of the best ring over so many of some GPUs.
type Rings = FxHashMap<(u64, u32), u64>;

/// Places as MAPA chooses them, and what sizes are worth there.
pub(crate) struct Wires {
    placer: Box<dyn Placer>,
    /// For each kind of node.
    rings: Vec<(Inside, Rings)>,
}

/// The placer of a policy that values wires, or the usual one.
pub(crate) fn place(by_wires: bool) -> Result<Box<dyn Placer>, ConfigError> {
    match by_wires {
        true => (mapa::ENTRY.build)(&RawSettings::default()),
        false => Ok(Box::new(FewestNodes)),
    }
}

/// A job whose size is looked at, what would be free for it, and the type.
struct Asked<'a, 'v> {
    job: JobRef<'v>,
    free: &'a Free,
    shape: (GpuType, u32),
}

impl Wires {
    /// None known yet.
    pub fn new() -> Result<Wires, ConfigError> {
        Ok(Wires { placer: place(true)?, rings: Vec::new() })
    }

    /// Lets each size of each job keep what it would really have. O(n (N + s c)) for n jobs with s sizes on N nodes, where c
    /// is a choice of MAPA and a look at the jobs on links.
    pub fn value(&mut self, contest: &mut Contest<'_>, free: &Free, view: &View<'_>) {
        if view.cluster().topology.is_none() {
            return;
        }
        let known = contest.players.iter().filter(|one| view.traffic(one.job).is_some());
        let mix: Vec<JobRef<'_>> = known.rev().take(MIX_MAX).map(|one| one.job).collect();
        for player in &mut contest.players {
            if view.traffic(player.job).is_none() {
                continue;
            }
            let mut left = free.clone();
            if let Some(planned) = &player.job.state.planned {
                left.give(planned);
            }
            for on in 0..player.ladders.len() {
                if let Some(valued) = self.valued(player, on, (&left, view), &mix) {
                    player.ladders[on] = valued;
                }
            }
        }
    }

    /// A ladder with the part of each size that it keeps; sizes that are not free now keep that of the largest that is.
    fn valued(
        &mut self,
        player: &Player<'_>,
        on: usize,
        (free, view): (&Free, &View<'_>),
        mix: &[JobRef<'_>],
    ) -> Option<Ladder> {
        let ladder = &player.ladders[on];
        let shape = *view.state().shapes.iter().find(|(kind, _)| *kind == ladder.kind)?;
        let asked = Asked { job: player.job, free, shape };
        let own = player
            .job
            .state
            .planned
            .as_ref()
            .filter(|_| player.held.is_some_and(|(kind, _)| kind == ladder.kind));
        let mut kept = Vec::new();
        for gpus in ladder.least()..=free.gpus(ladder.kind).min(player.job.spec.want.gpus_max) {
            let Some(part) = self.part(&asked, gpus, (own, view), mix) else { break };
            kept.push(part);
        }
        let last = *kept.last()?;
        let part = |gpus: u32| kept.get((gpus - ladder.least()) as usize).copied().unwrap_or(last);
        ladder.revalued(|gpus, rate| rate * part(gpus))
    }

    /// The part of the speed of a size that a job would have and leave to others.
    fn part(
        &mut self,
        asked: &Asked<'_, '_>,
        gpus: u32,
        (own, view): (Option<&Allocation>, &View<'_>),
        mix: &[JobRef<'_>],
    ) -> Option<f64> {
        let Asked { job, free, shape } = *asked;
        let place = match own.filter(|own| own.placement.gpus() == gpus) {
            Some(own) => own.placement.clone(),
            None => {
                let grant = Grant::gpus(job.id(), gpus);
                let ask = Ask::new(job, &grant, gpus, smallvec![shape.0]);
                self.placer.try_place(&ask, free, view)?
            }
        };
        let best = view.rate(job, &packed(job, shape, gpus)).filter(|rate| rate.0 > 0.0)?;
        let here = view.rate_at(job, &place)?;
        Some(here.0 / best.0 * (1.0 - self.taken(&place, asked, view, mix)))
    }

    /// The part of their speed that jobs to come lose in the node, where they still have room in it.
    fn taken(
        &mut self,
        place: &Placement,
        asked: &Asked<'_, '_>,
        view: &View<'_>,
        mix: &[JobRef<'_>],
    ) -> f64 {
        let &[(node, mask)] = place.masks() else { return 0.0 };
        let Some(topology) = view.cluster().topology.as_deref() else { return 0.0 };
        let inside = topology.inside(node);
        if inside.is_uniform() || inside.gpus > GPUS_MAX || mix.is_empty() {
            return 0.0;
        }
        let before = asked.free.mask(node);
        let after = before & !mask;
        let mut lost = 0.0;
        for job in mix.iter().filter(|one| one.id() != asked.job.id()) {
            let gpus = job.spec.want.gpus;
            if gpus < 2 || after.count_ones() < gpus {
                continue;
            }
            let mut rate = |free: u64| {
                let mbps = self.best_ring(inside, free, gpus) as f64;
                view.rate_at_bandwidth(*job, &packed(*job, asked.shape, gpus), mbps)
            };
            if let (Some(old), Some(new)) = (rate(before), rate(after))
                && old.0 > 0.0
            {
                lost += (1.0 - new.0 / old.0).max(0.0);
            }
        }
        lost / mix.len() as f64
    }

    /// The bandwidth of the best ring over so many of some GPUs.
    fn best_ring(&mut self, inside: &Inside, free: u64, gpus: u32) -> u64 {
        let at = self.rings.iter().position(|(known, _)| known == inside).unwrap_or_else(|| {
            self.rings.push((inside.clone(), Rings::default()));
            self.rings.len() - 1
        });
        let known = &mut self.rings[at].1;
        if let Some(mbps) = known.get(&(free, gpus)) {
            return *mbps;
        }
        // A set of just so many GPUs is kept under itself.
        let ring = |mask| *known.entry((mask, gpus)).or_insert_with(|| inside.ring_mbps(mask));
        let best = mapa::subsets(free, gpus).map(ring).max().unwrap_or(0);
        known.insert((free, gpus), best);
        best
    }
}
