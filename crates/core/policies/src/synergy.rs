//! Synergy: host CPUs and memory by what a job gains from them, beside GPUs in the order of another policy.

mod demand;
mod program;
mod queue;
mod shares;
#[cfg(test)]
mod tests;

use crate::fifo::Fifo;
use crate::prelude::*;
use crate::srtf::Remaining;
use demand::{Demand, Server, servers};
use program::Room;
use queue::{Queue, queue, wake};
use rustc_hash::FxHashMap;
use shares::{Rules, Wish, share_out};
use std::sync::Arc;
use trainyard_types::Quality;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "synergy",
    about: "Jobs run in the order of another policy, each with the host CPUs and memory that it gains from, if others can do without.",
    paper: "Mohan et al., Looking beyond GPUs for DNN scheduling on multi-tenant clusters, OSDI 2022",
    needs: NEEDS,
    class: Taxonomy::rigid(Objective::CompletionTime, Family::Shortest)
        .preemptive()
        .by_setting("`order` says in which order jobs run, and only `srtf` needs job sizes")
        .partial("the order by finish-time fairness, and the profiler that measures the matrices"),
    settings: &[
        (
            "form",
            "`tune`: the best case of each job or else its share in proportion to GPUs; `opt`: the program; \
             `proportional`: that share for all; `greedy`: the best case, or the job waits",
        ),
        ("order", "which jobs run: `srtf`, `las` or `fifo`"),
        ("fill", "`strict`: the head blocks the rest; `backfill`: any job that fits may pass it"),
        ("moves", "whether a job that runs is stopped to go where there is room for its target"),
        (
            "spare",
            "whether CPUs and memory that are left go to jobs that have less than their best case; `opt` does so anyway",
        ),
        ("steps_max", "the most steps of the search of `opt`"),
    ],
    defaults: defaults::<Settings>,
    build,
};

const NEEDS: Needs = Needs { rates: true, ..Needs::ESTIMATE };

/// How much of the host each job has.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Form {
    #[default]
    Tune,
    Opt,
    Proportional,
    Greedy,
}

/// In which order jobs run.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    #[default]
    Srtf,
    Las,
    Fifo,
}

#[derive(Copy, Clone, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    form: Form,
    order: Order,
    fill: Fill,
    moves: bool,
    spare: bool,
    steps_max: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            form: Form::Tune,
            order: Order::Srtf,
            fill: Fill::Backfill,
            moves: false,
            spare: false,
            steps_max: 2000,
        }
    }
}

/// O(n log n) for n jobs, and the work of [`share_out`] for those that run.
struct Synergy {
    settings: Settings,
    rank: Box<dyn Rank>,
    /// What jobs can do with, for as long as nodes and beliefs stay: a cache.
    demands: FxHashMap<JobId, Arc<Demand>>,
    known_for: Option<(u64, Vec<Server>)>,
}

impl Synergy {
    /// What jobs of whole GPUs can do with and what they are to have, in the order in which they are given.
    fn wish<'a>(&mut self, job: JobRef<'a>, view: &View<'a>) -> Wish<'a> {
        let form = self.settings.form;
        let servers = &self.known_for.as_ref().expect("refreshed before").1;
        let demand = self.demands.entry(job.id()).or_insert_with(|| {
            let planned = job.state.planned.as_ref();
            let gpus = planned.map_or(job.spec.want.gpus, |planned| planned.placement.gpus());
            let demand = Demand::new(job, gpus, servers, view);
            Arc::new(if form == Form::Proportional { demand.fixed() } else { demand })
        });
        Wish { job, demand: Arc::clone(demand), target: demand.best() }
    }

    /// Forgets what is not so any more.
    fn refresh(&mut self, view: &View<'_>) {
        let known_for = view.beliefs_version().map(|version| (version, servers(view)));
        if known_for.is_none() || known_for != self.known_for {
            self.demands.clear();
        }
        self.known_for = known_for.or_else(|| Some((0, servers(view))));
        for (job, _) in view.ended() {
            self.demands.remove(job);
        }
    }

    /// Replaces best cases by the answer of the program.
    fn solve(&self, wishes: &mut [Wish<'_>], offer: &Offer<'_>, cx: &mut Cx) {
        let demands: Vec<&Demand> = wishes.iter().map(|wish| &*wish.demand).collect();
        let answer = program::best(&demands, room(wishes, offer), self.settings.steps_max);
        let Some(answer) = answer else {
            // Best cases or else proportional shares, as without a program.
            cx.quality = Quality::Feasible;
            return;
        };
        if answer.gap > 0.0 {
            cx.quality = Quality::Within((answer.gap * 1e6).ceil().clamp(0.0, 1e6) as u32);
        }
        for (wish, cell) in wishes.iter_mut().zip(answer.cells) {
            wish.target = wish.demand.cells[cell].host;
        }
    }

    /// Jobs that were not counted in get what is left: first of all those that ran, whose GPUs no other job took.
    fn add_others<'a>(
        &mut self,
        queue: &Queue<'a>,
        wishes: &mut Vec<Wish<'a>>,
        (rules, view): (Rules, &View<'a>),
        offer: &mut Offer<'_>,
    ) {
        let mut failed = u32::MAX;
        for ran in [true, false] {
            if !ran && self.settings.fill == Fill::Strict {
                break;
            }
            for job in queue.others.iter().filter(|job| job.state.planned.is_some() == ran) {
                let want = &job.spec.want;
                if offer.plan(job.id()).is_some() {
                    continue;
                }
                if want.permille < 1000 {
                    offer.grant(&wanted(*job));
                    continue;
                }
                let plain = want.kinds.is_empty() && want.pool.is_none() && want.nodes_max == 0;
                if offer.free().total() == 0 || (plain && want.gpus >= failed) {
                    continue;
                }
                let wish = self.wish(*job, view);
                if !shares::add(wish, wishes, rules, offer) && plain {
                    failed = want.gpus;
                }
            }
        }
    }
}

/// What the hosts in service have for these jobs together: what is left, and what they have.
fn room(wishes: &[Wish<'_>], offer: &Offer<'_>) -> Room {
    let free = offer.free();
    let mut room = Room { cpus: Some(0), memory_mib: Some(0) };
    for node in (0..free.nodes()).map(NodeId).filter(|node| free.up(*node) != 0) {
        let (cpus, memory) = (free.cpus_left(node), free.host_memory_left(node));
        room.cpus = room.cpus.zip(cpus).map(|(sum, left)| sum + u64::from(left));
        room.memory_mib = room.memory_mib.zip(memory).map(|(sum, left)| sum + left);
    }
    for plan in wishes.iter().filter_map(|wish| offer.plan(wish.job.id())) {
        let (host, gpus) = (plan.host_per_gpu, u64::from(plan.placement.gpus()));
        room.cpus = room.cpus.map(|sum| sum + u64::from(host.cpus) * gpus);
        room.memory_mib = room.memory_mib.map(|sum| sum + host.memory_mib * gpus);
    }
    room
}

impl Policy for Synergy {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        self.refresh(view);
        let queue = queue(&mut *self.rank, self.settings.fill, view, offer);
        for job in queue.others.iter().filter(|job| job.state.planned.is_some()) {
            offer.revoke(job.id());
        }
        // A job on a part of a GPU has the host that it wishes for.
        let (whole, parts): (Vec<JobRef<'_>>, Vec<JobRef<'_>>) =
            queue.chosen.iter().copied().partition(|job| job.spec.want.permille == 1000);
        for job in parts {
            if offer.plan(job.id()).is_none() {
                offer.grant(&wanted(job));
            }
        }
        let mut wishes: Vec<Wish<'_>> = whole.into_iter().map(|job| self.wish(job, view)).collect();
        let form = self.settings.form;
        if form == Form::Opt {
            self.solve(&mut wishes, offer, cx);
        }
        let rules = Rules {
            falls_back: form != Form::Greedy,
            moves: self.settings.moves,
            spare: self.settings.spare || form == Form::Opt,
        };
        share_out(&mut wishes, rules, offer);
        self.add_others(&queue, &mut wishes, (rules, view), offer);
        wake(&mut *self.rank, &queue, view, offer);
        Ok(())
    }

    fn forget(&mut self) {
        self.rank.forget();
        self.demands.clear();
        self.known_for = None;
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    if settings.steps_max == 0 {
        return Err(ENTRY.bad_value("steps_max", settings.steps_max, "a whole number above 0"));
    }
    let by_speed = Needs { rates: true, ..Needs::NOTHING };
    let (rank, needs): (Box<dyn Rank>, Needs) = match settings.order {
        Order::Srtf => (Box::new(Remaining { by_gpus: false, mode: Mode::Changes }), NEEDS),
        Order::Las => (Box::new(crate::las::usual()), by_speed),
        Order::Fifo => (Box::new(Fifo), by_speed),
    };
    let policy = Synergy { settings, rank, demands: FxHashMap::default(), known_for: None };
    Ok(Pipeline::new(policy, FewestNodes, needs))
}
