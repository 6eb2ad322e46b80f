//! Gandiva: jobs have a home, more of them than its GPUs hold, take turns there, and are packed, moved and resized by trial.

mod packing;
mod roaming;
mod sets;

use crate::prelude::*;
use crate::turns::{Turns, able};
use packing::{Packing, Trying};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Bound;
use trainyard_types::{Allocation, Shape, Want};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "gandiva",
    about: "Every job gets a home at once and takes turns there with the others; pairs that do more together than in turns share GPUs.",
    paper: "Xiao et al., Gandiva, OSDI 2018",
    needs: Needs::NOTHING,
    class: Taxonomy::rigid(Objective::Fairness, Family::TimeSlicing)
        .preemptive()
        .by_setting("`grow=true` resizes jobs that allow it")
        .partial("partners are tried in order of arrival, not of utilisation"),
    settings: &[
        (
            "quantum",
            "the length of a turn; all turns end at its multiples, so that gangs can be aligned",
        ),
        (
            "overhead",
            "the largest part of a turn that stopping and starting may take; turns are made longer to keep it",
        ),
        ("migrate", "whether a job whose home is busy may move to idle GPUs elsewhere"),
        (
            "packing",
            "`trial`: a waiting job runs beside another one where both together do more than in turns; `off`: never",
        ),
        ("trial", "how many iterations of the slower job a trial lasts"),
        (
            "gain",
            "by how much the speeds of a pair, in parts of those alone, must sum to more than 1",
        ),
        ("tries", "how many trials a job may lose before it is left alone"),
        ("across_tenants", "whether jobs of different tenants may share a GPU"),
        (
            "defragment",
            "whether, when a job has ended and none waits, running gangs come together on fewer nodes and packed jobs part",
        ),
        (
            "grow",
            "whether jobs that allow it take idle GPUs of their node, and give them back when jobs wait",
        ),
        (
            "form",
            "`homes`: as here; `sets`: sets of nodes for each size of job, as in the simulators of Tiresias and ElasticFlow",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    quantum: Span,
    overhead: f64,
    migrate: bool,
    packing: Pack,
    trial: u32,
    gain: f64,
    tries: u32,
    across_tenants: bool,
    defragment: bool,
    grow: bool,
    form: Form,
}

#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Form {
    Homes,
    Sets,
}

#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Pack {
    Trial,
    Off,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            quantum: Span::secs(60),
            overhead: 0.02,
            migrate: true,
            packing: Pack::Trial,
            trial: 5,
            gain: 0.0,
            tries: 3,
            across_tenants: false,
            defragment: true,
            grow: false,
            form: Form::Homes,
        }
    }
}

/// How many GPUs on which nodes.
type Home = SmallVec<[(NodeId, u32); 2]>;
/// Jobs of one size that live on the same nodes wait in one line.
type Line = (Home, u32);
/// Running jobs whose turn is over, by node, the longest over first.
type Over = FxHashMap<NodeId, Vec<JobId>>;

/// O(nodes) for an arrival, O(running + lines) for the end of a turn while jobs wait.
struct Gandiva {
    turn: Turns,
    migrate: bool,
    defragment: bool,
    grow: bool,
    /// Nothing where jobs are not packed.
    packing: Option<Packing>,
    valid_for: Option<u64>,
    homes: FxHashMap<JobId, Seat>,
    /// Waiting jobs, longest first, by home and size.
    lines: BTreeMap<Line, BTreeSet<(Time, JobId)>>,
    /// Waiting jobs that no node in service can be home to.
    homeless: BTreeSet<(Time, JobId)>,
    nodes: Vec<Loaded>,
    waiting: usize,
    /// Waiting jobs that ask for less than a whole GPU.
    fractions: usize,
    /// When the turns of running jobs end.
    turns: BTreeSet<(Time, JobId)>,
}

#[derive(Clone)]
struct Seat {
    home: Home,
    size: u32,
    fraction: bool,
    place: Place,
}

#[derive(Copy, Clone)]
enum Place {
    Waiting(Time),
    Running(Time),
}

/// What lives on a node.
#[derive(Copy, Clone, Default)]
struct Loaded {
    /// GPUs that all its jobs ask for together.
    demand: u32,
    /// The size of job the node is for; 0 while it is empty.
    affinity: u32,
    /// GPUs in service when homes were given.
    gpus: u32,
}

impl Gandiva {
    fn refresh(&mut self, view: &View<'_>, free: &Free) {
        let same = |(node, loaded): (usize, &Loaded)| {
            free.up(NodeId(node as u32)).count_ones() == loaded.gpus
        };
        let same_nodes = self.nodes.iter().enumerate().all(same);
        if self.valid_for == Some(view.decision()) && same_nodes {
            for &job in view.changed() {
                self.update(view, free, job);
            }
        } else {
            self.reset();
            self.nodes.extend((0..free.nodes()).map(|node| Loaded {
                gpus: free.up(NodeId(node)).count_ones(),
                ..Loaded::default()
            }));
            // Those that run say where they live; the others find a home around them.
            for job in view.granted().chain(view.waiting()) {
                self.update(view, free, job.id());
            }
        }
        self.valid_for = Some(view.decision() + 1);
    }

    fn reset(&mut self) {
        self.valid_for = None;
        self.homes.clear();
        self.lines.clear();
        self.homeless.clear();
        self.nodes.clear();
        self.turns.clear();
        self.waiting = 0;
        self.fractions = 0;
    }

    fn update(&mut self, view: &View<'_>, free: &Free, id: JobId) {
        let old = self.leave(id);
        let Some(job) = view.job(id) else { return };
        let state = view.state();
        let size = job.spec.want.gpus;
        let fraction = job.spec.want.permille < 1000;
        if state.granted.contains(id)
            && let Some(planned) = &job.state.planned
        {
            let home = home_of(planned);
            let start = job.state.last_start.filter(|_| job.state.held.is_some());
            let ends = self
                .turn
                .multiple_after(start.unwrap_or(view.now) + self.turn.least(job, planned, view));
            self.turns.insert((ends, id));
            self.settle(id, Seat { home, size, fraction, place: Place::Running(ends) });
        } else if state.waiting.contains(id) {
            // A job that is being stopped waits from now on.
            let since = if job.state.is_placed() { job.state.since } else { job.state.queued_at };
            let home = old.map(|seat| seat.home).or_else(|| self.find_home(job, view, free));
            let Some(home) = home else {
                self.homeless.insert((since, id));
                return;
            };
            self.lines.entry((home.clone(), size)).or_default().insert((since, id));
            self.waiting += 1;
            self.fractions += usize::from(fraction);
            self.settle(id, Seat { home, size, fraction, place: Place::Waiting(since) });
        }
    }

    fn settle(&mut self, id: JobId, seat: Seat) {
        for &(node, count) in &seat.home {
            let loaded = &mut self.nodes[node.index()];
            if loaded.demand == 0 {
                loaded.affinity = seat.size;
            }
            loaded.demand += count;
        }
        self.homes.insert(id, seat);
    }

    fn leave(&mut self, id: JobId) -> Option<Seat> {
        self.homeless.retain(|(_, other)| *other != id);
        let seat = self.homes.remove(&id)?;
        for &(node, count) in &seat.home {
            let loaded = &mut self.nodes[node.index()];
            loaded.demand -= count;
            if loaded.demand == 0 {
                loaded.affinity = 0;
            }
        }
        match seat.place {
            Place::Running(ends) => {
                self.turns.remove(&(ends, id));
            }
            Place::Waiting(since) => {
                self.waiting -= 1;
                self.fractions -= usize::from(seat.fraction);
                let line = (seat.home.clone(), seat.size);
                if let Some(jobs) = self.lines.get_mut(&line) {
                    jobs.remove(&(since, id));
                    if jobs.is_empty() {
                        self.lines.remove(&line);
                    }
                }
            }
        }
        Some(seat)
    }

    /// When the next turn ends, of those that run and those that were just granted; nothing if no job waits for it.
    fn next_turn(&self, granted: &[JobId], view: &View<'_>, offer: &Offer<'_>) -> Option<Time> {
        let later = (Bound::Excluded((view.now, JobId(u32::MAX))), Bound::Unbounded);
        let mut next = self.turns.range(later).next().map_or(Time::NEVER, |(time, _)| *time);
        for id in granted {
            if let (Some(plan), Some(job)) = (offer.plan(*id), view.job(*id)) {
                next =
                    next.min(self.turn.multiple_after(view.now + self.turn.least(job, plan, view)));
            }
        }
        let stopped = |(_, id): &(Time, JobId)| offer.plan(*id).is_none();
        let left_out = self.waiting > granted.len()
            || self.turns.range(..=(view.now, JobId(u32::MAX))).any(stopped);
        (left_out && next != Time::NEVER).then_some(next)
    }

    /// Those without a home look again, a few at a time: a node may be back.
    fn find_homes(&mut self, view: &View<'_>, free: &Free) {
        let some: Vec<JobId> = self.homeless.iter().take(64).map(|(_, job)| *job).collect();
        for job in some {
            self.update(view, free, job);
        }
    }

    /// The order of the paper's reactive mode: a node of the job's own size with room, an empty one, any with room, and else
    /// the least loaded of its size, where it takes turns.
    fn find_home(&self, job: JobRef<'_>, view: &View<'_>, free: &Free) -> Option<Home> {
        let want = &job.spec.want;
        let mut nodes: Vec<Able> = Vec::with_capacity(self.nodes.len());
        for node in (0..free.nodes()).map(NodeId) {
            let gpus = able(want, node, view, free);
            if gpus > 0 {
                nodes.push(Able { node, gpus, rating: self.rating(want.gpus, node) });
            }
        }
        let whole = nodes.iter().filter(|able| able.gpus >= want.gpus);
        if let Some(best) = whole.min_by_key(|able| (able.rating, able.node)) {
            return Some(smallvec![(best.node, want.gpus)]);
        }
        let kinds = free.kinds();
        kinds.iter().find_map(|kind| {
            let of_kind = nodes.iter().filter(|able| free.kind(able.node) == *kind).copied();
            on_many_nodes(want, of_kind.collect())
        })
    }

    fn rating(&self, size: u32, node: NodeId) -> Rating {
        let Loaded { demand, affinity, gpus } = self.nodes[node.index()];
        let gpus = gpus.max(1);
        let has_room = demand + size.min(gpus) <= gpus;
        let step = match (affinity == size, demand == 0, has_room) {
            (true, _, true) => 0,
            (_, true, _) => 1,
            (false, false, true) => 2,
            (true, false, false) => 3,
            (false, false, false) => 4,
        };
        Rating { step, load: (u64::from(demand) * 1000 / u64::from(gpus)) as u32 }
    }

    /// Lines whose nodes have GPUs that are free or whose turn is over take them, longest waiting first.
    fn take_turns(&self, view: &View<'_>, offer: &mut Offer<'_>, over: &Over) -> Vec<JobId> {
        let mut granted = Vec::new();
        let mut heads: BinaryHeap<Reverse<((Time, JobId), &Line)>> = BinaryHeap::new();
        for (line, jobs) in &self.lines {
            let stirs = |node: &NodeId| offer.free().mask(*node) != 0 || over.contains_key(node);
            if line.0.iter().all(|(node, _)| stirs(node)) {
                heads.extend(jobs.first().map(|first| Reverse((*first, line))));
            }
        }
        while let Some(Reverse(((since, id), line))) = heads.pop() {
            let Some(job) = view.job(id) else { continue };
            let need = u64::from(job.spec.want.gpus) * u64::from(job.spec.want.permille);
            // A job that waits for its own tenant does not keep its line waiting.
            let at_ceiling = offer.ceiling_passed(job, need).is_some();
            if !at_ceiling {
                let runs = run_at_home((job, line), (view, offer), over);
                let mut behind = self.lines[line].range((since, JobId(id.0 + 1))..);
                let next = match runs {
                    true => {
                        granted.push(id);
                        behind.next()
                    }
                    // No job behind it is smaller, but one that is put aside fits by itself. Memory bounds their number.
                    false => behind.find(|(_, job)| view.state().aside.taken.contains_key(job)),
                };
                heads.extend(next.map(|next| Reverse((*next, line))));
                continue;
            }
            let behind = self.lines[line].range((since, JobId(id.0 + 1))..).next();
            heads.extend(behind.map(|next| Reverse((*next, line))));
        }
        granted
    }

    /// No job waits: what running jobs do with idle GPUs.
    fn roam(&mut self, pairs: &packing::Pairs, view: &View<'_>, offer: &mut Offer<'_>) {
        if offer.free().total() == 0 {
            return;
        }
        if self.defragment {
            if let Some(packing) = &mut self.packing {
                packing.unpack(pairs, &self.turn, view, offer);
            }
            roaming::defragment(&self.turn, pairs, view, offer);
        }
        if self.grow {
            roaming::grow(&self.turn, pairs, view, offer);
        }
    }

    /// A job that still waits goes wherever GPUs are idle, so that none are left idle; that is a migration.
    fn go_elsewhere(&self, view: &View<'_>, offer: &mut Offer<'_>, granted: &mut Vec<JobId>) {
        let waits = |job: &JobId, offer: &Offer<'_>| offer.plan(*job).is_none();
        if !self.migrate {
            return;
        }
        let mut heads: BinaryHeap<Reverse<((Time, JobId), &Line)>> = BinaryHeap::new();
        for (line, jobs) in &self.lines {
            let first = jobs.iter().find(|(_, job)| waits(job, offer));
            heads.extend(first.map(|first| Reverse((*first, line))));
        }
        while let Some(Reverse(((since, id), line))) = heads.pop() {
            let Some(job) = view.job(id) else { continue };
            let fraction = job.spec.want.permille < 1000;
            if (offer.free().total() < line.1 && !fraction)
                || offer.grant(&wanted(job)) != GrantOutcome::Taken
            {
                // No job behind it in its line is smaller.
                continue;
            }
            granted.push(id);
            let mut behind = self.lines[line].range((since, JobId(id.0 + 1))..);
            let next = behind.find(|(_, job)| waits(job, offer));
            heads.extend(next.map(|next| Reverse((*next, line))));
        }
    }
}

/// Runs a job at home, in place of those whose turn is over if need be.
fn run_at_home(
    (job, line): (JobRef<'_>, &Line),
    (view, offer): (&View<'_>, &mut Offer<'_>),
    over: &Over,
) -> bool {
    let mut grant = wanted(job);
    grant.shape = Shape::PerNode(line.0.clone());
    let victims = line.0.iter().filter_map(|(node, _)| over.get(node)).flatten().copied();
    let go_on = |victim: JobRef<'_>| view.state().aside.turns_go_on(victim, job, view.cluster());
    let victims = victims.filter(|victim| view.job(*victim).is_some_and(go_on));
    offer.instead(&grant, &mut victims.collect::<Vec<_>>().into_iter()) == GrantOutcome::Taken
}

/// Where a job runs.
fn home_of(planned: &Allocation) -> Home {
    planned.placement.masks().iter().map(|(node, mask)| (*node, mask.count_ones())).collect()
}

/// How much a node suits a job: smaller is better.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Rating {
    step: u8,
    load: u32,
}

/// A node that could be home to a job.
#[derive(Copy, Clone)]
struct Able {
    node: NodeId,
    gpus: u32,
    rating: Rating,
}

/// A gang larger than any node lives on the largest nodes, among those on the ones that suit it best.
fn on_many_nodes(want: &Want, mut nodes: Vec<Able>) -> Option<Home> {
    nodes.sort_unstable_by_key(|able| (Reverse(able.gpus), able.rating, able.node));
    let mut rest = want.gpus;
    let mut home = Home::new();
    for able in nodes {
        let count = able.gpus.min(rest);
        home.push((able.node, count));
        rest -= count;
        if rest == 0 {
            break;
        }
    }
    home.sort_unstable();
    let within = want.nodes_max == 0 || home.len() <= usize::from(want.nodes_max);
    (rest == 0 && within).then_some(home)
}

impl Policy for Gandiva {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        self.refresh(view, offer.free());
        let pairs = Packing::pairs(view);
        if let Some(packing) = &mut self.packing {
            packing.look(view, &pairs);
            packing.judge(&pairs, view, offer);
        }
        if self.lines.is_empty() && self.homeless.is_empty() {
            self.roam(&pairs, view, offer);
            return Ok(());
        }
        if self.grow {
            roaming::shrink(view, offer);
        }
        self.find_homes(view, offer.free());
        let is_guest = |id: JobId| pairs.iter().any(|(guest, _)| *guest == id);
        let mut over = Over::default();
        for &(_, id) in self.turns.range(..=(view.now, JobId(u32::MAX))) {
            // A packed job goes when the one does with which it is packed.
            let Some(seat) = self.homes.get(&id).filter(|_| !is_guest(id)) else { continue };
            for (node, _) in &seat.home {
                over.entry(*node).or_default().push(id);
            }
        }
        let mut granted = self.take_turns(view, offer, &over);
        if let Some(packing) = &mut self.packing {
            packing.follow(&pairs, offer);
        }
        if offer.free().total() > 0 || self.fractions > 0 {
            self.go_elsewhere(view, offer, &mut granted);
        }
        if let Some(packing) = &mut self.packing {
            packing.pack(&pairs, view, offer);
        }
        if let Some(time) = self.next_turn(&granted, view, offer) {
            offer.wake_at(time);
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.reset();
        if let Some(packing) = &mut self.packing {
            packing.forget();
        }
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    let Settings { quantum, overhead, migrate, form, .. } = settings;
    if !(0.001..=1.0).contains(&overhead) {
        return Err(ENTRY.bad_value("overhead", overhead, "a part from 0.001 to 1"));
    }
    if quantum < Span::secs(1) {
        return Err(ENTRY.bad_value("quantum", quantum, "at least a second"));
    }
    if settings.trial == 0 {
        return Err(ENTRY.bad_value("trial", settings.trial, "at least one iteration"));
    }
    if !(0.0..=1.0).contains(&settings.gain) {
        return Err(ENTRY.bad_value("gain", settings.gain, "a number from 0 to 1"));
    }
    let turn = Turns { quantum, overhead };
    if form == Form::Sets {
        return Ok(Pipeline::new(sets::Sets::new(turn), FewestNodes, ENTRY.needs));
    }
    let trying = Trying {
        iterations: settings.trial,
        gain: settings.gain,
        tries: settings.tries,
        across_tenants: settings.across_tenants,
    };
    let policy = Gandiva {
        turn,
        migrate,
        defragment: settings.defragment,
        grow: settings.grow,
        packing: (settings.packing == Pack::Trial).then(|| Packing::new(trying)),
        valid_for: None,
        homes: FxHashMap::default(),
        lines: BTreeMap::new(),
        homeless: BTreeSet::new(),
        nodes: Vec::new(),
        waiting: 0,
        fractions: 0,
        turns: BTreeSet::new(),
    };
    Ok(Pipeline::new(policy, FewestNodes, ENTRY.needs))
}
