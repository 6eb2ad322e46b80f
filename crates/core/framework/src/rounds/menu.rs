//! Which ways to run an optimiser is offered: by type, beside other jobs, close together or spread, larger or smaller,
//! and across types.

mod groups;
mod known_rates;
mod mixed;
mod sizes;

pub use known_rates::KnownRates;

use super::{Choice, RateTable};
use crate::{JobRef, Offer, View};
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;
use trainyard_types::{Config, GpuType, ModelId, Tier};

/// Which jobs may share GPUs two by two.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Pairs {
    /// None.
    #[default]
    None,
    /// Those of the same number of GPUs whose speeds together beat taking turns.
    Gaining,
    /// All of the same number of GPUs, gain or not.
    All,
}

/// Which ways to run an optimiser is offered.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Menu {
    /// Jobs beside each other on the same GPUs.
    pub pairs: Pairs,
    /// For each gang a choice on the fewest nodes and one on any, at the speed of each.
    pub placement: bool,
    /// The most jobs on the same GPUs, where pairs may share: beyond 2, groups that grow from pairs.
    pub group_max: usize,
    /// For an elastic job a choice at each doubling between its least and its most GPUs.
    pub sizes: bool,
    /// For a gang choices across two types.
    pub mixed: bool,
    /// Whether a type counts though it can never hold the gang, as in the authors' own models.
    pub oversized: bool,
}

impl Menu {
    /// One choice for each job and type at the size it asks for, and what the menu adds.
    ///
    /// O(n k), with pairs O(n^2 k).
    pub fn table(&self, view: &View<'_>, offer: &Offer<'_>) -> RateTable {
        self.table_by(&mut KnownRates::default(), view, offer)
    }

    /// The same with speeds that were asked for before.
    pub fn table_by(
        &self,
        known: &mut KnownRates,
        view: &View<'_>,
        offer: &Offer<'_>,
    ) -> RateTable {
        let mut writer = Writer::new(view, offer, (self.oversized, known));
        let mut active: Vec<JobRef<'_>> = view.waiting().chain(view.granted()).collect();
        active.sort_unstable_by_key(JobRef::id);
        for job in &active {
            writer.table.jobs.push(job.id());
            for kind in 0..writer.shapes.len() {
                if self.placement {
                    writer.near_and_far(*job, kind);
                } else {
                    writer.single(*job, kind);
                }
                if self.sizes {
                    writer.sizes(*job, kind);
                }
            }
            if self.mixed {
                writer.mixed(*job);
            }
        }
        if self.pairs != Pairs::None {
            for (first, job) in active.iter().enumerate() {
                for other in &active[first + 1..] {
                    writer.pair((*job, *other), self.pairs);
                }
            }
            writer.groups(&active, self.group_max);
        }
        writer.table
    }
}

struct Writer<'a> {
    view: &'a View<'a>,
    shapes: &'a [(GpuType, u32)],
    table: RateTable,
    oversized: bool,
    known: &'a mut KnownRates,
    /// Speeds beside a partner, by model, model of the partner, and on how many GPUs of which type: most pairs of jobs
    /// are pairs of models that were met before.
    met: BTreeMap<(ModelId, ModelId, u32, usize), f64>,
}

impl<'a> Writer<'a> {
    fn new(
        view: &'a View<'a>,
        offer: &Offer<'_>,
        (oversized, known): (bool, &'a mut KnownRates),
    ) -> Writer<'a> {
        let shapes = &view.state().shapes;
        let table = RateTable {
            kinds: shapes.iter().map(|(kind, _)| *kind).collect(),
            capacity: shapes.iter().map(|(kind, _)| offer.free().in_service(*kind)).collect(),
            ..RateTable::default()
        };
        known.refresh(view, &table.capacity, oversized);
        Writer { view, shapes, table, oversized, known, met: BTreeMap::new() }
    }

    fn single(&mut self, job: JobRef<'_>, kind: usize) {
        let rate = match self.known.get(job, kind) {
            Some(rate) => rate,
            None => {
                let config = self.packed(job, kind);
                let rate = self.rate(job, kind, &config);
                self.known.keep(job, kind, rate);
                rate
            }
        };
        self.add(job, kind, (0, rate));
    }

    /// On the fewest nodes, and on twice as many: what the profiles call spread.
    fn near_and_far(&mut self, job: JobRef<'_>, kind: usize) {
        let near = self.packed(job, kind);
        let rate = self.rate(job, kind, &near);
        if job.spec.want.gpus < 2 || job.spec.want.nodes_max == 1 {
            self.add(job, kind, (0, rate));
            return;
        }
        self.add(job, kind, (near.nodes as u16, rate));
        let far = spread(&near);
        let rate = self.rate(job, kind, &far);
        self.add(job, kind, (0, rate));
    }

    fn add(&mut self, job: JobRef<'_>, kind: usize, (nodes_max, rate): (u16, f64)) {
        self.table.choices.push(Choice {
            jobs: smallvec![job.id()],
            uses: smallvec![(kind as u16, job.spec.want.gpus)],
            nodes_max,
            rates: smallvec![rate],
        });
    }

    /// Two jobs on the same GPUs of each type on which both run.
    fn pair(&mut self, (job, other): (JobRef<'_>, JobRef<'_>), pairs: Pairs) {
        let (want, with) = (&job.spec.want, &other.spec.want);
        if want.gpus != with.gpus || want.permille < 1000 || with.permille < 1000 {
            return;
        }
        for kind in 0..self.shapes.len() {
            let memory = self.view.cluster().kinds[self.shapes[kind].0.index()].memory_mib;
            let needed = want.gpu_memory_mib + with.gpu_memory_mib;
            let fits = memory == 0 || needed <= memory;
            let alone = [self.alone(job, kind), self.alone(other, kind)];
            if !fits || alone[0] <= 0.0 || alone[1] <= 0.0 {
                continue;
            }
            let rates = [self.beside(job, other, kind), self.beside(other, job, kind)];
            let together = rates[0] / alone[0] + rates[1] / alone[1];
            if rates.iter().all(|rate| *rate > 0.0) && (pairs == Pairs::All || together > 1.0) {
                self.table.choices.push(Choice {
                    jobs: smallvec![job.id(), other.id()],
                    uses: smallvec![(kind as u16, want.gpus)],
                    nodes_max: 0,
                    rates: SmallVec::from_slice(&rates),
                });
            }
        }
    }

    fn alone(&self, job: JobRef<'_>, kind: usize) -> f64 {
        self.rate(job, kind, &self.packed(job, kind))
    }

    fn beside(&mut self, job: JobRef<'_>, other: JobRef<'_>, kind: usize) -> f64 {
        let key = (job.spec.model, other.spec.model, job.spec.want.gpus, kind);
        if let Some(rate) = self.met.get(&key) {
            return *rate;
        }
        let config = self.packed(job, kind).with_partners([other.spec.model]);
        let rate = self.rate(job, kind, &config);
        self.met.insert(key, rate);
        rate
    }

    fn packed(&self, job: JobRef<'_>, kind: usize) -> Config {
        let (kind, per_node) = self.shapes[kind];
        let mut config = Config::packed(kind, job.spec.want.gpus, per_node);
        config.permille = job.spec.want.permille;
        config
    }

    /// Work per second at the size that is asked for; 0 where the job may not or cannot run.
    fn rate(&self, job: JobRef<'_>, kind: usize, config: &Config) -> f64 {
        self.rate_on(job, &[(kind, job.spec.want.gpus)], config)
    }

    /// Work per second on so many GPUs of some types; 0 where the job may not or cannot run. A policy that asked for no
    /// speeds is told that all types are alike.
    fn rate_on(&self, job: JobRef<'_>, uses: &[(usize, u32)], config: &Config) -> f64 {
        let want = &job.spec.want;
        // A type that could never hold the gang is no choice, however fast it is.
        let nodes_max = u32::from(want.nodes_max);
        let near = want.nodes_max == 0 || config.nodes <= nodes_max || self.oversized;
        let may = uses.iter().all(|(kind, gpus)| {
            let room = self.table.capacity[*kind] >= *gpus || self.oversized;
            want.accepts(self.shapes[*kind].0) && room
        });
        if !may || !near {
            return 0.0;
        }
        if !self.view.shows_rates() {
            return 1.0;
        }
        self.view.rate(job, config).map_or(0.0, |rate| rate.0)
    }
}

/// The same GPUs on twice as many nodes, as evenly as can be.
fn spread(packed: &Config) -> Config {
    let nodes = (packed.nodes * 2).min(packed.gpus);
    let (each, more) = (packed.gpus / nodes, packed.gpus % nodes);
    let here = |node: u32| (each + u32::from(node < more)) as u16;
    Config { shape: (0..nodes).map(here).collect(), nodes, tier: Tier::Rack, ..packed.clone() }
}
