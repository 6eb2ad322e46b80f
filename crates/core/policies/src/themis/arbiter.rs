//! The arbiter: offers free GPUs to the jobs furthest from a fair finish, takes their bids and gives leases.

use super::auction::{Bid, Bundle, hold};
use super::lease_end;
use crate::prelude::*;
use crate::turns::able;
use rand_chacha::rand_core::Rng;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use trainyard_types::placement::lowest_bits;
use trainyard_types::{Config, Grant, Quality, Shape};

/// The most bidders of one auction, those furthest from a fair finish.
const BIDDERS_MAX: usize = 24;
/// Nodes that a job bids for one by one, of each type.
const NODES_MAX: usize = 3;
/// The most steps of the searches of one auction.
const STEPS_MAX: u64 = 100_000;
/// The least part of a lease that a winner keeps, so that every lease takes time.
const PART_MIN: f64 = 0.05;

/// O(n) for the filter, O(nodes) for each bidder and at most `STEPS_MAX` steps for the winners, at each auction;
/// O(n log n) where GPUs are left after it.
pub(crate) struct Arbiter {
    pub lease: Span,
    pub filter: f64,
    pub hidden: bool,
    known: KnownSpeeds,
}

/// The best speed of each job that was met, as long as beliefs about speeds and what a node holds stay as they are.
#[derive(Default)]
struct KnownSpeeds {
    made_from: Option<(u64, Vec<(GpuType, u32)>)>,
    /// With the GPUs for which it was asked.
    of: FxHashMap<JobId, (u32, f64)>,
}

impl KnownSpeeds {
    /// Forgets what no longer holds, and jobs that ended.
    fn refresh(&mut self, view: &View<'_>) {
        let shapes = &view.state().shapes;
        let now = view.beliefs_version().map(|version| (version, shapes.clone()));
        let active = view.waiting_len() + view.granted_len();
        if now.is_none() || now != self.made_from || self.of.len() > 2 * active + 64 {
            self.of.clear();
            self.made_from = now;
        }
    }

    /// The best speed of a job that has as many GPUs as it asks for, as close together as can be; 0 if it has none.
    fn best(&mut self, job: JobRef<'_>, view: &View<'_>) -> f64 {
        let gpus = job.spec.want.gpus;
        if let Some((_, best)) = self.of.get(&job.id()).filter(|(of, _)| *of == gpus) {
            return *best;
        }
        let best = packed_speeds(job, view).iter().map(|(_, speed)| *speed).fold(0.0, f64::max);
        self.of.insert(job.id(), (gpus, best));
        best
    }
}

/// How fast a job would be on each type that it accepts, as close together as can be; types without a speed are left out.
fn packed_speeds(job: JobRef<'_>, view: &View<'_>) -> SmallVec<[(GpuType, f64); 4]> {
    let want = &job.spec.want;
    let accepted = view.state().shapes.iter().filter(|(kind, _)| want.accepts(*kind));
    let speeds = accepted.map(|&(kind, per_node)| {
        let mut config = Config::packed(kind, want.gpus, per_node);
        config.permille = want.permille;
        (kind, speed(job, &config, view))
    });
    speeds.filter(|(_, speed)| *speed > 0.0).collect()
}

/// A job as its agent sees it. Times in seconds.
struct Agent<'v> {
    job: JobRef<'v>,
    elapsed: f64,
    left: f64,
    /// The best speed it could have anywhere, and the time that the whole job takes at that speed.
    best: f64,
    ideal: f64,
    /// Its finish-time fairness if it waits for a lease and then has its best speed.
    waiting: f64,
}

/// Puts the first so many of those furthest from a fair finish in order, before the others.
fn furthest_first(agents: &mut [Agent<'_>], first: usize) {
    if first > 0 && first < agents.len() {
        agents.select_nth_unstable_by(first - 1, Agent::further);
    }
    agents[..first].sort_unstable_by(Agent::further);
}

impl Agent<'_> {
    /// The order of those furthest from a fair finish; of equals the first that came.
    fn further(&self, other: &Agent<'_>) -> Ordering {
        other.waiting.total_cmp(&self.waiting).then(self.job.id().cmp(&other.job.id()))
    }

    /// Finish-time fairness at a speed that it reaches after a wait.
    fn rho(&self, wait: f64, rate: f64) -> f64 {
        (self.elapsed + wait + self.left / rate) / self.ideal
    }
}

impl Policy for Arbiter {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        if view.waiting_len() == 0 && !view.granted().any(is_on_leftovers) {
            return Ok(());
        }
        self.known.refresh(view);
        offer.everything();
        let candidates = view.waiting().chain(view.granted());
        let open: Vec<JobRef<'_>> =
            candidates.filter(|job| offer.plan(job.id()).is_none()).collect();
        let mut agents: Vec<Agent<'_>> = Vec::with_capacity(open.len());
        for job in open {
            match self.agent(job, view) {
                Some(agent) => agents.push(agent),
                None => offer.note(job.id(), Reason::NoSpeed),
            }
        }
        // Bids are for whole GPUs; a job that wants a part of one runs on what is left.
        let is_whole = |agent: &Agent<'_>| agent.job.spec.want.permille == 1000;
        let all_whole = agents.iter().all(is_whole);
        let part = ((1.0 - self.filter) * agents.len() as f64 - 1e-9).ceil();
        let bidders = (part.max(1.0) as usize).min(BIDDERS_MAX);
        // The order of the others matters where something is left for them.
        let first = if all_whole { bidders.min(agents.len()) } else { agents.len() };
        furthest_first(&mut agents, first);
        let mut bidding: BTreeSet<JobId> = BTreeSet::new();
        if offer.free().total() > 0 {
            let bidders: Vec<&Agent<'_>> =
                agents.iter().filter(|agent| is_whole(agent)).take(bidders).collect();
            bidding.extend(bidders.iter().map(|agent| agent.job.id()));
            self.auction(&bidders, view, offer, cx);
        }
        if offer.free().total() > 0 {
            agents[first..].sort_by(Agent::further);
        }
        // What no bidder won goes to the others, as in the paper. A bidder that lost gets only what none of them can use,
        // until the next auction: it may have lost because a lease there is worth less to it than to wait.
        let (losers, others): (Vec<&Agent<'_>>, Vec<&Agent<'_>>) =
            agents.iter().partition(|agent| bidding.contains(&agent.job.id()));
        self.leftovers(others, Some(self.lease), view, (offer, cx));
        self.leftovers(losers, None, view, (offer, cx));
        let left_out = agents.iter().any(|agent| offer.plan(agent.job.id()).is_none());
        if left_out {
            let plans = view.granted().map(|job| job.id());
            let plans = plans.chain(agents.iter().map(|agent| agent.job.id()));
            let ends = plans.filter_map(|job| offer.plan(job)?.lease_until);
            if let Some(next) = ends.filter(|time| *time > view.now).min() {
                offer.wake_at(next);
            }
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.known = KnownSpeeds::default();
    }
}

impl Arbiter {
    /// One that has met no job yet.
    pub(crate) fn new(lease: Span, filter: f64, hidden: bool) -> Arbiter {
        Arbiter { lease, filter, hidden, known: KnownSpeeds::default() }
    }

    /// What a job knows about itself; nothing if it can run nowhere.
    fn agent<'v>(&mut self, job: JobRef<'v>, view: &View<'v>) -> Option<Agent<'v>> {
        let best = self.known.best(job, view);
        if best <= 0.0 {
            return None;
        }
        let ran = job.state.ran(view.now);
        let done = job.state.progress.done_at(view.now).0;
        // A job of unknown length is expected to run as long again as it has, and a lease at least.
        let unknown = ran.max(self.lease).as_secs_f64() * best;
        let left = view.work_left(job).map_or(unknown, |work| work.0).max(1e-9);
        let elapsed = view.now.since(job.spec.submitted).as_secs_f64();
        let mut agent =
            Agent { job, elapsed, left, best, ideal: (done + left) / best, waiting: 0.0 };
        agent.waiting = agent.rho(self.lease.as_secs_f64(), best);
        Some(agent)
    }

    /// Holds an auction and gives the winners their leases.
    fn auction(&self, bidders: &[&Agent<'_>], view: &View<'_>, offer: &mut Offer<'_>, cx: &mut Cx) {
        let room: Vec<u32> =
            (0..offer.free().nodes()).map(|n| offer.free().mask(NodeId(n)).count_ones()).collect();
        let bids: Vec<Bid> =
            bidders.iter().map(|agent| self.bid(agent, &room, view, offer.free())).collect();
        let result = hold(&room, &bids, self.hidden, cx.work_max.min(STEPS_MAX));
        if !result.proven {
            cx.quality = Quality::Feasible;
        }
        // A job that stays where it is comes first, so that no other job is given its GPUs within the node.
        let mut winners: Vec<(bool, usize)> = Vec::new();
        for (index, won) in result.won.iter().enumerate() {
            let Some(won) = won else { continue };
            let takes = &bids[index].bundles[*won].takes;
            winners.push((kept_place(bidders[index].job, takes, offer.free()).is_none(), index));
        }
        winners.sort_unstable();
        for (_, index) in winners {
            let Some(won) = result.won[index] else { continue };
            let takes = &bids[index].bundles[won].takes;
            let job = bidders[index].job;
            let shape = kept_place(job, takes, offer.free()).unwrap_or_else(|| {
                Shape::PerNode(takes.iter().map(|(n, count)| (NodeId(*n as u32), *count)).collect())
            });
            let part = result.kept[index].max(PART_MIN);
            offer.grant(&self.lease(job, shape, part, view.now));
        }
    }

    /// The table of a job: what GPUs on single nodes, on few nodes and on many would do to its finish.
    fn bid(&self, agent: &Agent<'_>, room: &[u32], view: &View<'_>, free: &Free) -> Bid {
        let want = &agent.job.spec.want;
        let wait = start_cost(agent.job, None, view);
        let nothing = 1.0 / agent.rho(self.lease.as_secs_f64() + wait, agent.best);
        let mut places: Vec<SmallVec<[(usize, u32); 2]>> = Vec::new();
        if let Some(planned) = &agent.job.state.planned {
            let masks = planned.placement.masks().iter();
            places.push(masks.map(|(node, mask)| (node.index(), mask.count_ones())).collect());
        }
        let mut sizes = vec![want.gpus, want.gpus_max, want.gpus_min];
        sizes.retain(|size| *size > 0);
        sizes.sort_unstable();
        sizes.dedup();
        for (kind, _) in &view.state().shapes {
            let mut nodes: Vec<(u32, usize)> = (0..free.nodes())
                .map(NodeId)
                .filter(|node| free.kind(*node) == *kind)
                .map(|node| (able(want, node, view, free).min(room[node.index()]), node.index()))
                .filter(|(gpus, _)| *gpus > 0)
                .collect();
            nodes.sort_unstable();
            for &size in &sizes {
                let one = nodes.iter().filter(|(gpus, _)| *gpus >= size).take(NODES_MAX);
                places.extend(one.map(|(_, node)| SmallVec::from_elem((*node, size), 1)));
                places.extend(several(nodes.iter().rev(), size));
                places.extend(several(nodes.iter(), size));
            }
        }
        let limit = if want.nodes_max == 0 { usize::MAX } else { usize::from(want.nodes_max) };
        places.iter_mut().for_each(|place| place.sort_unstable());
        places.sort_unstable();
        places.dedup();
        let bundles = places.into_iter().filter(|place| place.len() <= limit);
        let bundles = bundles.filter_map(|takes| {
            let fits = takes.iter().all(|(node, count)| room[*node] >= *count);
            let config = self.config(agent.job, &takes, view, free).filter(|_| fits)?;
            let rate = speed(agent.job, &config, view);
            let stays = kept_place(agent.job, &takes, free).is_some();
            let wait = if stays { 0.0 } else { start_cost(agent.job, Some(&config), view) };
            (rate > 0.0).then(|| Bundle { value: 1.0 / agent.rho(wait, rate), takes })
        });
        Bid { nothing, bundles: bundles.collect() }
    }

    /// How GPUs on nodes look to a speed model.
    fn config(
        &self,
        job: JobRef<'_>,
        takes: &[(usize, u32)],
        view: &View<'_>,
        free: &Free,
    ) -> Option<Config> {
        let mask = |&(node, count): &(usize, u32)| {
            let node = NodeId(node as u32);
            let up = free.up(node);
            (up.count_ones() >= count).then(|| (node, lowest_bits(up, count)))
        };
        let masks = takes.iter().map(mask).collect::<Option<Vec<_>>>()?;
        let mut config = Placement::from_masks(masks).config(view.cluster());
        config.host.cpus = u32::from(job.spec.want.cpus_per_gpu) * config.gpus;
        config.host.memory_mib =
            u64::from(job.spec.want.memory_mib_per_gpu) * u64::from(config.gpus);
        config.permille = 1000;
        Some(config)
    }

    /// Gives what is left to jobs in a random order, to each where it is fastest, for a lease or without one.
    fn leftovers(
        &self,
        mut rest: Vec<&Agent<'_>>,
        lease: Option<Span>,
        view: &View<'_>,
        (offer, cx): (&mut Offer<'_>, &Cx),
    ) {
        rest.retain(|agent| offer.plan(agent.job.id()).is_none());
        let mut is_full = offer.free().total() == 0;
        if !is_full {
            let mut rng = cx.rng();
            for last in (1..rest.len()).rev() {
                rest.swap(last, (rng.next_u64() % (last as u64 + 1)) as usize);
            }
        }
        for (at, agent) in rest.into_iter().enumerate() {
            // Where nothing is free only a part of a GPU can fit; the first is asked for in any case, to be told why.
            if is_full && at > 0 && agent.job.spec.want.permille == 1000 {
                continue;
            }
            let mut kinds = packed_speeds(agent.job, view);
            kinds.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            for (kind, _) in kinds {
                let want = &agent.job.spec.want;
                let shape =
                    Shape::Gpus { count: want.gpus, kind: Some(kind), nodes_max: want.nodes_max };
                let lease_until = lease.map(|lease| lease_end(view.now, lease, 1.0));
                let grant = Grant { shape, lease_until, ..wanted(agent.job) };
                match offer.grant(&grant) {
                    GrantOutcome::Taken => break,
                    GrantOutcome::Full => is_full = true,
                    GrantOutcome::NoRoom | GrantOutcome::Refused => {}
                }
            }
        }
    }

    /// A grant with a part of a lease.
    fn lease(&self, job: JobRef<'_>, shape: Shape, part: f64, now: Time) -> Grant {
        let mut grant = wanted(job);
        grant.shape = shape;
        grant.lease_until = Some(lease_end(now, self.lease, part));
        grant
    }
}

/// Whether a job runs without a lease, on what it did not win: it takes part in every auction.
fn is_on_leftovers(job: JobRef<'_>) -> bool {
    job.state.planned.as_ref().is_some_and(|planned| planned.lease_until.is_none())
}

/// The GPUs that a job is on, if that is where these are.
fn kept_place(job: JobRef<'_>, takes: &[(usize, u32)], free: &Free) -> Option<Shape> {
    let planned = job.state.planned.as_ref()?;
    let masks = planned.placement.masks();
    let same = masks.len() == takes.len()
        && masks.iter().zip(takes).all(|((node, mask), (other, count))| {
            node.index() == *other
                && mask.count_ones() == *count
                && free.mask(*node) & mask == *mask
        });
    same.then(|| Shape::Exact(planned.placement.clone()))
}

/// GPUs of several nodes taken in an order, if they suffice.
fn several<'a>(
    nodes: impl Iterator<Item = &'a (u32, usize)>,
    size: u32,
) -> Option<SmallVec<[(usize, u32); 2]>> {
    let mut rest = size;
    let mut takes = SmallVec::new();
    for &(gpus, node) in nodes {
        let count = gpus.min(rest);
        takes.push((node, count));
        rest -= count;
        if rest == 0 {
            return Some(takes);
        }
    }
    None
}

/// The speed of a job; 1 where none is known, 0 where it is no number.
fn speed(job: JobRef<'_>, config: &Config, view: &View<'_>) -> f64 {
    let rate = view.rate(job, config).map_or(1.0, |rate| rate.0);
    if rate.is_finite() && rate > 0.0 { rate } else { 0.0 }
}

fn start_cost(job: JobRef<'_>, to: Option<&Config>, view: &View<'_>) -> f64 {
    to.map_or(0.0, |to| view.change(job, None, Some(to)).start.as_secs_f64())
}
