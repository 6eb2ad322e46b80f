//! One case: a core, its disk, its machine and its people, driven by chance through crashes, and checked at every
//! step.

use crate::disk::Disk;
use crate::people::{self, LENT, People};
use crate::promises;
use std::collections::BTreeMap;
use std::sync::Arc;
use trainyard_api::request::{Act, NodeAct};
use trainyard_backend::Order;
use trainyard_backend::{Finding, GpuSeen, HealthVerdict, LaunchOrder, NodeSeen, Report};
use trainyard_daemon::core::{Core, CoreOptions, Input, Opening, Turn};
use trainyard_daemon::flight::Line;
use trainyard_daemon::hang::Rule;
use trainyard_engine::{DecisionRequest, PolicyOutcome, Quarantine, Setup};
use trainyard_framework::{Pipeline, PolicyError};
use trainyard_policies::compose::Selection;
use trainyard_policies::registry::POLICIES;
use trainyard_profile::Catalog;
use trainyard_store::Store;
use trainyard_testkit::dice::Dice;
use trainyard_testkit::machine::Machine;
use trainyard_types::{
    Allocation, Attempt, Change, Cluster, Decision, JobId, NodeId, Placement, PoolId, Span,
    SuspendRule, Tenants, Time,
};

const SECOND: u64 = 1_000_000;
/// How long the host waits before it looks again at what is overdue while the policy thinks.
const OVERDUE_PAUSE: u64 = SECOND / 50;
/// 2026-01-01.
const WALL: i64 = 1_767_225_600_000_000;
/// Longer than any grace, any save and any way of a report: then every stop must be done.
const CALM: u64 = 60 * SECOND;
/// How many turns it may take until all jobs ended.
const TURNS_MAX: u64 = 5000;
/// After so many of them an operator chooses a policy that preempts no job: two jobs that save nothing can take each
/// other's place for ever under one that does.
const PATIENCE: u64 = 1500;

pub struct World {
    seed: u64,
    pub step: u64,
    dice: Dice,
    /// True time in microseconds.
    now: u64,
    /// What is added to it: for the engine since the last start, and for the wall clock since its last jump.
    shift: (i64, i64),
    boot: u32,
    core: Option<Core>,
    pub disk: Disk,
    pub machine: Machine,
    pub people: People,
    /// Nodes as the backend sees them.
    nodes: BTreeMap<String, NodeSeen>,
    /// GPUs likewise, with what happened that is not on disk yet.
    gpus: BTreeMap<u8, GpuSeen>,
    pipeline: (String, Pipeline),
    /// The request that is out, its answer, and when that comes.
    thinking: Option<(DecisionRequest, PolicyOutcome, u64)>,
    /// What waits for the next turn.
    inbox: Vec<Input>,
    lines: Vec<Line>,
    pub cluster: Arc<Cluster>,
    catalog: Arc<Catalog>,
    /// Answers of this life that no policy gave.
    nonsense: u64,
    /// Whether anything goes wrong any more.
    pub calm: bool,
    pub seen: Seen,
    /// Whether every step is told.
    told: bool,
    /// A real store that is given the same lists, where the case looks whether ours is like it.
    pub mirror: Option<Store>,
}

/// What happened in a case, or in many: a test that meets no crash shows nothing.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub turns: u64,
    pub crashes: u64,
    pub reboots: u64,
    pub full_disks: u64,
    pub jobs: u64,
    pub attempts: u64,
    pub relaunches: u64,
    pub decisions: u64,
    pub repeated_reports: u64,
    pub without_answer: u64,
    pub nonsense: u64,
    /// Attempts that exited with 0 after a request and said nothing of a save.
    pub bowed: u64,
    /// Attempts that exited with 0 after a request and had said that they saved.
    pub acknowledged: u64,
    /// Attempts that were told of a checkpoint and not of the work in it.
    pub restored_blindly: u64,
    /// GPUs that fell ill under whatever ran there.
    pub ill: u64,
    /// Jobs that were said to hang.
    pub hung: u64,
    /// Times a running job was told of other GPUs.
    pub resizes: u64,
    /// Times a running job was put aside, or was to be, and came back.
    pub suspends: u64,
    pub comebacks: u64,
    /// Cases in which a policy went on exchanging jobs and another one was chosen.
    pub rescued: u64,
}

/// Where a turn is cut off.
enum Cut {
    Nowhere,
    /// The process dies and nothing of the turn is on disk.
    Before,
    /// The disk is full: nothing is on it, and the process goes on.
    Full,
    /// The process dies after the commit, so many answers and so many orders.
    After(usize, usize),
}

impl Seen {
    pub fn add(&mut self, other: &Seen) {
        for (sum, more) in self.counts().into_iter().zip(other.clone().counts()) {
            *sum += *more;
        }
        self.rescued += other.rescued;
    }

    /// A case that meets none of these in hundreds of runs has lost its teeth.
    pub fn assert_eventful(mut self, cases: u64) {
        let shown = format!("{self:?}");
        let rarest = self.counts().into_iter().map(|count| *count).min().unwrap_or(0);
        assert!(cases < 100 || rarest > 0, "something never happens: {shown}");
    }

    fn counts(&mut self) -> [&mut u64; 19] {
        [
            &mut self.turns,
            &mut self.crashes,
            &mut self.reboots,
            &mut self.full_disks,
            &mut self.jobs,
            &mut self.attempts,
            &mut self.relaunches,
            &mut self.decisions,
            &mut self.repeated_reports,
            &mut self.without_answer,
            &mut self.nonsense,
            &mut self.bowed,
            &mut self.acknowledged,
            &mut self.restored_blindly,
            &mut self.ill,
            &mut self.hung,
            &mut self.resizes,
            &mut self.suspends,
            &mut self.comebacks,
        ]
    }
}

impl World {
    pub fn new(seed: u64, catalog: &Arc<Catalog>, told: bool) -> World {
        let mut dice = Dice::new(seed, 1);
        let cluster = match dice.below(3) {
            0 => Cluster::uniform(1, 2, "a100"),
            1 => Cluster::uniform(1, 4, "a100"),
            _ => {
                let mut cluster = Cluster::uniform(1, 2, "a100");
                let other = cluster.add_kind("t4");
                cluster.add_node(other, 2);
                // The second node is one that its owner lends.
                cluster.pools.push(LENT.to_owned());
                cluster.nodes[1].pool = PoolId(1);
                cluster
            }
        };
        let policy = POLICIES[(seed % POLICIES.len() as u64) as usize].name;
        let nodes = cluster.nodes.iter().map(|node| node.name.clone()).collect();
        let most = cluster.nodes.iter().map(|node| u32::from(node.gpus)).max().unwrap_or(1);
        World {
            seed,
            step: 0,
            dice,
            now: 1000 * SECOND,
            shift: (-1000 * SECOND as i64, WALL),
            boot: 1,
            core: None,
            disk: Disk::default(),
            machine: Machine::new(seed),
            people: People::new(seed, most, nodes),
            nodes: BTreeMap::new(),
            gpus: BTreeMap::new(),
            pipeline: (policy.to_owned(), pipeline(policy)),
            thinking: None,
            inbox: Vec::new(),
            lines: Vec::new(),
            cluster: Arc::new(cluster),
            catalog: Arc::clone(catalog),
            nonsense: 0,
            calm: false,
            seen: Seen::default(),
            told,
            mirror: None,
        }
    }

    /// Lets things go wrong for a while, then lets everything come to its end.
    pub fn run(&mut self) {
        self.start();
        let steps = self.dice.between(20, 80);
        for _ in 0..steps {
            self.step += 1;
            self.stir();
            self.turn();
        }
        self.calm_down();
        self.live_to_the_end();
        self.people.check(&self.disk);
        promises::at_the_end(self);
        self.end_life();
        self.seen.jobs = self.disk.jobs.len() as u64;
        self.seen.attempts = self.machine.ran.len() as u64;
        for exit in self.machine.exits.values() {
            let well = u64::from(exit.code == Some(0) && exit.asked_to_stop && !exit.finished);
            let acknowledged = u64::from(exit.acknowledged == Some(true));
            self.seen.acknowledged += well * acknowledged;
            self.seen.bowed += well * (1 - acknowledged);
        }
    }

    pub fn options(&self) -> CoreOptions {
        let nodes = self.cluster.nodes.iter();
        let mut next = 0;
        let devices = nodes
            .map(|node| {
                let first = next;
                next += node.gpus;
                (first..next).map(|index| (index, format!("GPU-{index}"))).collect()
            })
            .collect();
        let quarantine = Quarantine { failures: 3, within: Span::secs(60), period: Span::secs(30) };
        let setup = Setup {
            quarantine,
            retry_after: Span::secs(5),
            policy_retry_after: Span::secs(2),
            check_every: 1,
            resize_wait: Some(Span::secs(6)),
            // A job that states no memory is taken to need all of it, so that one of a node is put aside at a time.
            suspend: (!self.seed.is_multiple_of(3))
                .then_some(SuspendRule { memory_mib: 1000, away_max: Span::secs(15) }),
            seed: self.seed,
            ..Setup::default()
        };
        CoreOptions {
            cluster: Arc::clone(&self.cluster),
            devices,
            catalog: Arc::clone(&self.catalog),
            setup,
            policy: self.pipeline.0.clone(),
            half_life: self.pipeline.1.usage_half_life,
            boot: format!("boot-{}", self.boot),
            processes_max: 0,
            log_bytes_max: 0,
            announces: self.seed.is_multiple_of(2),
            rules: people::rules(),
            open_per_user_max: trainyard_daemon::core::OPEN_PER_USER_MAX,
            gpu_return_after: self.seed.is_multiple_of(3).then_some(Span::secs(20)),
            hang: Rule { times: 3.0, least: Span::secs(8) },
            notify: Default::default(),
        }
    }

    fn at(&self) -> Time {
        Time((self.now as i64 + self.shift.0) as u64)
    }

    fn wall(&self) -> i64 {
        self.now as i64 + self.shift.1
    }

    pub fn tell(&self, what: impl FnOnce() -> String) {
        if self.told {
            eprintln!("{:>4} {:>9.3} {}", self.step, self.now as f64 / 1e6 - 1000.0, what());
        }
    }

    /// Time passes, people ask, reports come in, an answer comes in.
    fn stir(&mut self) {
        let far = self.dice.chance(100);
        let span = self.dice.between(0, if far { 40 * SECOND } else { 3 * SECOND });
        self.pass(span);
        if self.dice.chance(20) {
            // An operator sets the wall clock, an hour back or ahead at most.
            self.shift.1 += self.dice.below(7200 * SECOND) as i64 - 3600 * SECOND as i64;
        }
        for _ in 0..[0, 0, 1, 1, 1, 2, 3][self.dice.below(7) as usize] {
            let (ticket, caller, ask) = self.people.ask(&self.disk, self.wall());
            self.inbox.push(Input::Ask { ticket, caller, ask });
        }
        for _ in 0..self.dice.below(4) {
            if let Some(report) = self.some_report() {
                self.inbox.push(Input::Report(report));
            }
        }
        if self.dice.chance(60) {
            self.something_with_a_node();
        }
        if self.dice.chance(60) {
            self.something_with_a_gpu();
        }
        if self.dice.chance(500) {
            self.think_to_the_end();
        }
        for index in (1..self.inbox.len()).rev() {
            if self.dice.chance(300) {
                let other = self.dice.below(index as u64 + 1) as usize;
                self.inbox.swap(index, other);
            }
        }
    }

    /// A node is lost, drained outside of Trainyard, or used by other jobs; or not any more.
    fn something_with_a_node(&mut self) {
        let node = self.dice.below(self.cluster.nodes.len() as u64) as usize;
        let node = &self.cluster.nodes[node];
        let (name, gpus) = (node.name.clone(), u64::from(node.gpus));
        let seen = NodeSeen {
            up: !self.dice.chance(200),
            drained: self.dice.chance(150).then(|| "for a while".to_owned()),
            claimed: self.dice.below(2 * gpus).saturating_sub(gpus) as u32,
            unaccounted: self.dice.below(3 * gpus).saturating_sub(2 * gpus) as u32,
        };
        self.see(name, seen);
    }

    /// A GPU falls ill or seems to, is well again, or a program on it errs.
    fn something_with_a_gpu(&mut self) {
        let count = u64::from(self.cluster.gpus());
        let index = self.dice.below(count) as u8;
        let verdicts = HealthVerdict::ALL.map(|(verdict, _)| verdict);
        let found = |dice: &mut Dice| {
            let (number, verdict) = (dice.below(5), *dice.pick(&verdicts));
            Finding { code: format!("sign-{number}"), verdict, what: "ill".to_owned() }
        };
        let dice = &mut self.dice;
        let happened: Vec<Finding> = (0..dice.below(3)).map(|_| found(dice)).collect();
        let stands = dice.chance(300).then(|| found(dice)).into_iter().collect();
        self.seen.ill +=
            happened.iter().filter(|found| found.verdict == HealthVerdict::Quarantine).count()
                as u64;
        let uuid = format!("GPU-{index}");
        self.see_gpu(GpuSeen { index, uuid, stands, happened });
    }

    /// What happened is told again after a start, until it is on disk.
    fn see_gpu(&mut self, seen: GpuSeen) {
        let known = self.gpus.entry(seen.index).or_default();
        let before = std::mem::take(&mut known.happened);
        let happened = before.into_iter().chain(seen.happened.iter().cloned()).collect();
        *known = GpuSeen { happened, ..seen.clone() };
        self.inbox.push(Input::Report(Report::Gpu(seen)));
    }

    fn see(&mut self, node: String, seen: NodeSeen) {
        self.nodes.insert(node.clone(), seen.clone());
        self.inbox.push(Input::Report(Report::Node { node, seen }));
    }

    fn pass(&mut self, span: u64) {
        self.now += span;
        self.machine.advance(self.now);
    }

    /// Any report that is on its way, whichever was first; it may come again, as may one of long ago.
    fn some_report(&mut self) -> Option<Report> {
        let Machine { outbox, arrived, .. } = &mut self.machine;
        if !self.calm && !arrived.is_empty() && self.dice.chance(100) {
            self.seen.repeated_reports += 1;
            return Some(self.dice.pick(arrived).clone());
        }
        if outbox.is_empty() {
            return None;
        }
        let index = if self.calm { 0 } else { self.dice.below(outbox.len() as u64) as usize };
        let report = outbox.remove(index);
        arrived.push(report.clone());
        Some(report)
    }

    fn think_to_the_end(&mut self) {
        if self.thinking.as_ref().is_some_and(|(_, _, at)| *at <= self.now) {
            let (_, outcome, _) = self.thinking.take().expect("just seen");
            self.inbox.push(Input::Outcome(outcome));
        }
    }

    fn turn(&mut self) {
        let inputs = std::mem::take(&mut self.inbox);
        let (at, wall) = (self.at(), self.wall());
        self.tell(|| format!("turn at {at:?}: {}", promises::inputs(&inputs)));
        let core = self.core.as_mut().expect("the daemon runs between steps");
        let turn = core.turn(at, wall, inputs);
        if !self.carry_out(turn) {
            self.start();
        }
    }

    /// Deals with a turn as a daemon does, as far as it gets. Whether the core lives on.
    fn carry_out(&mut self, turn: Turn) -> bool {
        self.seen.turns += 1;
        let Turn { writes, replies, orders, lines, request, hung, .. } = turn;
        self.seen.hung += hung;
        self.lines.extend(lines);
        let (mut answers, mut done) = (replies.len(), orders.len());
        let cut = self.cut(!writes.is_empty(), (answers, done));
        match cut {
            Cut::Before => return self.die("before the commit"),
            Cut::Full => {
                self.tell(|| "the disk is full".to_owned());
                self.seen.full_disks += 1;
                return self.drop_core();
            }
            Cut::Nowhere => {}
            Cut::After(some, others) => (answers, done) = (some, others),
        }
        self.seen.relaunches += orders.iter().filter(|order| self.is_again(order)).count() as u64;
        let sent = promises::on_ill_gpus(&self.disk, &orders);
        if let Err(write) = self.disk.commit(&writes) {
            panic!("the store cannot keep {write}");
        }
        promises::not_on_ill_gpus(&self.disk, sent);
        self.gpus.values_mut().for_each(|seen| seen.happened.clear());
        if let Some(store) = &mut self.mirror {
            store.commit(&writes).expect("ours could");
        }
        for (ticket, answer) in replies.into_iter().take(answers) {
            self.tell(|| format!("answer {ticket}: {answer:?}"));
            self.people.hear(&self.disk, ticket, answer);
        }
        for order in orders.into_iter().take(done) {
            self.tell(|| promises::order(&order));
            self.give(order);
        }
        promises::at_any_time(self);
        if let Cut::After(..) = cut {
            return self.die("after the commit");
        }
        promises::held_to_what_was_granted(self);
        promises::kept(self.core.as_ref().expect("alive"), &self.disk);
        self.ask_policy(request);
        true
    }

    fn cut(&mut self, writes: bool, (answers, orders): (usize, usize)) -> Cut {
        if self.calm {
            return Cut::Nowhere;
        }
        let all = |dice: &mut Dice, count: usize| dice.between(0, count as u64) as usize;
        match self.dice.below(1000) {
            0..25 => Cut::Before,
            25..40 if writes => Cut::Full,
            40..90 => Cut::After(all(&mut self.dice, answers), all(&mut self.dice, orders)),
            _ => Cut::Nowhere,
        }
    }

    /// Whether an attempt is launched that an earlier life had on disk and perhaps never ordered.
    fn is_again(&self, order: &Order) -> bool {
        matches!(order, Order::Launch(order) if self.disk.attempts.contains_key(&(order.job.0, order.attempt.0)))
    }

    fn give(&mut self, order: Order) {
        match order {
            Order::Launch(order) => {
                promises::may_launch(self, &order);
                let blindly = order.restores() && order.resumes_from == 0.0;
                self.seen.restored_blindly += u64::from(blindly);
                if !self.calm && self.dice.chance(50) {
                    self.machine.launch(self.now, LaunchOrder::clone(&order));
                }
                self.machine.launch(self.now, *order);
            }
            Order::Stop(job, attempt, order) => self.machine.stop(self.now, (job, attempt), &order),
            Order::Resize(job, attempt, order) => {
                self.seen.resizes += 1;
                self.machine.resize(self.now, (job, attempt), &order);
            }
            Order::Aside(job, attempt, order) => {
                self.seen.suspends += u64::from(order.aside);
                self.seen.comebacks += u64::from(!order.aside);
                self.machine.put_aside(self.now, (job, attempt), &order);
            }
            Order::Share(job, attempt, sharing) => {
                if let Some(run) = self.machine.runs.get_mut(&(job, attempt)) {
                    run.order.sharing = Some(sharing);
                }
            }
            Order::SetBatch(..) | Order::Announce(_) | Order::Withdraw(_) | Order::Drain(..) => {}
            Order::Forget(job, attempt) => {
                promises::may_forget(self, job, attempt);
                self.machine.forget((job, attempt));
            }
        }
    }

    /// Asks the policy in force; a new one is in force as soon as it is on disk.
    fn ask_policy(&mut self, request: Option<DecisionRequest>) {
        let label = self.policy_on_disk();
        if label != self.pipeline.0 {
            self.pipeline = (label.clone(), pipeline(&label));
        }
        let Some(request) = request else { return };
        assert!(self.thinking.is_none(), "a second request while the first is out");
        let later = self.now + self.dice.below(if self.calm { 1 } else { 2 * SECOND });
        let outcome = match self.dice.below(1000) {
            0..30 if !self.calm => PolicyOutcome::Failed(PolicyError::Infeasible),
            fault @ 30..60 if !self.calm => {
                // A policy that panics or is cut off loses what it remembered.
                self.pipeline.1 = pipeline(&self.pipeline.0);
                if fault < 45 { PolicyOutcome::Panicked } else { PolicyOutcome::Stuck }
            }
            60..80 if !self.calm => {
                // It thinks as it should, so that its memory is what it is in a replay, and says something else.
                let _ = request.think(&mut self.pipeline.1);
                PolicyOutcome::Decided(self.nonsense())
            }
            _ => request.think(&mut self.pipeline.1),
        };
        self.thinking = Some((request, outcome, later));
    }

    /// Grants out of the blue: to jobs that are over, held or unknown, on GPUs that are in use or not there.
    fn nonsense(&mut self) -> Decision {
        self.nonsense += 1;
        self.seen.nonsense += 1;
        let dice = &mut self.dice;
        let change = |dice: &mut Dice| {
            let node = NodeId(dice.below(3) as u32);
            let to = dice.chance(800).then(|| Placement::on(node, dice.between(1, 31)));
            Change { job: JobId(dice.below(60) as u32), to: to.map(Allocation::whole) }
        };
        let changes = (0..dice.between(1, 8)).map(|_| change(dice)).collect();
        Decision { changes, ..Decision::default() }
    }

    fn policy_on_disk(&self) -> String {
        let label =
            self.disk.meta("policy").map(|text| serde_json::from_str(text).expect("a name"));
        label.unwrap_or_else(|| self.pipeline.0.clone())
    }

    /// The process is killed, and now and then the machine goes down with it.
    fn die(&mut self, when: &str) -> bool {
        self.seen.crashes += 1;
        self.tell(|| format!("killed {when}"));
        if self.dice.chance(100) {
            self.tell(|| "the machine starts anew".to_owned());
            self.seen.reboots += 1;
            self.boot += 1;
            self.machine.reboot();
        }
        let down = self.dice.between(0, 20 * SECOND);
        self.pass(down);
        self.drop_core()
    }

    fn drop_core(&mut self) -> bool {
        self.end_life();
        self.core = None;
        self.thinking = None;
        self.inbox.clear();
        self.people.hang_up();
        self.machine.outbox.clear();
        false
    }

    /// The record of a life must lead to the same decisions again.
    fn end_life(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        let nonsense = std::mem::take(&mut self.nonsense);
        let replayed = promises::replays(self, lines, nonsense);
        self.seen.decisions += replayed.decisions;
        self.seen.without_answer += replayed.without_answer;
    }

    /// Starts the daemon, as often as it takes.
    fn start(&mut self) {
        loop {
            let loaded = self.disk.load();
            if let Some(store) = &mut self.mirror {
                assert_eq!(store.load().expect("a sound store"), loaded, "the real store differs");
            }
            let last = self.disk.meta("last_at").map_or(0, |text| text.parse().expect("a time"));
            // Engine time goes on from the last that is on disk, for some or all of the time that passed since.
            let gone = self.at().0.saturating_sub(last);
            let at = Time(last + self.dice.between(0, gone));
            self.shift.0 = at.0 as i64 - self.now as i64;
            let label = self.policy_on_disk();
            self.pipeline = (label.clone(), pipeline(&label));
            let found = self.machine.list_attempts();
            self.tell(|| format!("start at {at:?}, boot {}, found {found:?}", self.boot));
            let (wall, tenants) = (self.wall(), Tenants::default());
            let nodes = self.nodes.clone();
            let gpus = self.gpus.values().cloned().collect();
            let opening = Opening { loaded, found, tenants, nodes, gpus, at, wall };
            let (core, turn) = Core::open(self.options(), opening).expect("the store is sound");
            core.engine().assert_invariants();
            self.people.check(&self.disk);
            self.core = Some(core);
            if self.carry_out(turn) {
                return;
            }
        }
    }

    /// Nothing goes wrong any more: whatever was promised must come true soon.
    fn calm_down(&mut self) {
        self.calm = true;
        self.machine.calm = true;
        for node in self.nodes.keys().cloned().collect::<Vec<String>>() {
            self.see(node, NodeSeen { up: true, ..NodeSeen::default() });
        }
        for index in 0..self.cluster.gpus() as u8 {
            let uuid = format!("GPU-{index}");
            self.see_gpu(GpuSeen { index, uuid, ..GpuSeen::default() });
        }
        let until = self.now + CALM;
        while self.now < until {
            self.step += 1;
            self.go_on(until);
        }
        promises::when_calm(self);
    }

    /// Lets everything go, ends what would never end, and waits until all is over.
    fn live_to_the_end(&mut self) {
        for node in self.people.nodes.clone() {
            let gpus = self.cluster.nodes.iter().find(|other| other.name == node);
            let gpus = (0..gpus.map_or(0, |node| node.gpus)).map(|gpu| format!("{node}:{gpu}"));
            for name in gpus.chain([node.clone()]).collect::<Vec<String>>() {
                let (ticket, caller, ask) = self.people.act_on_node(name, NodeAct::Resume);
                self.inbox.push(Input::Ask { ticket, caller, ask });
            }
        }
        let (ticket, caller, ask) = self.people.need_nodes(0);
        self.inbox.push(Input::Ask { ticket, caller, ask });
        let open: Vec<u32> = self.disk.open().map(|job| job.row.job).collect();
        for job in open {
            let act = match self.machine.truth(JobId(job)).endless {
                true => Act::Cancel { reason: None },
                false => Act::Release,
            };
            let (ticket, caller, ask) = self.people.act_for_sure(&self.disk, job, act);
            self.inbox.push(Input::Ask { ticket, caller, ask });
        }
        self.turn();
        let begun = self.step;
        let limit = begun + TURNS_MAX;
        while self.disk.open().next().is_some() || !self.machine.outbox.is_empty() {
            self.step += 1;
            assert!(
                self.step < limit,
                "after {TURNS_MAX} turns not all is over: {}",
                promises::left(self)
            );
            if self.step == begun + PATIENCE {
                self.seen.rescued += 1;
                let (ticket, caller, ask) = self.people.choose_policy("fifo");
                self.inbox.push(Input::Ask { ticket, caller, ask });
            }
            self.go_on(u64::MAX);
        }
    }

    /// One turn without mishaps, as soon as there is a reason for one.
    fn go_on(&mut self, until: u64) {
        self.machine.advance(self.now);
        while let Some(report) = self.some_report() {
            self.inbox.push(Input::Report(report));
        }
        self.think_to_the_end();
        if self.inbox.is_empty() {
            let due = self.core.as_ref().and_then(Core::due);
            // What is overdue while the policy thinks is looked at now and then, as the host does.
            let pause = if self.thinking.is_some() { OVERDUE_PAUSE } else { 0 };
            let due = due.map(|due| (self.now + pause).max((due.0 as i64 - self.shift.0) as u64));
            let outcome = self.thinking.as_ref().map(|(_, _, at)| *at);
            let next = [due, outcome, self.machine.next()].into_iter().flatten().min();
            assert!(
                next.is_some() || until < u64::MAX,
                "nothing will ever happen: {}",
                promises::left(self)
            );
            let next = next.unwrap_or(until).min(until);
            // What is due now and stays due would never let time pass.
            let stands_still = next == self.now && due == Some(self.now) && self.dice.chance(10);
            self.pass((next - self.now).max(u64::from(stands_still)));
            if due.is_none_or(|due| due > self.now) {
                return;
            }
        }
        self.turn();
    }

    /// Whether the case takes the longer way where there is one.
    pub fn is_thorough(&self) -> bool {
        self.seed.is_multiple_of(8)
    }

    pub fn policy(&self) -> &str {
        &self.pipeline.0
    }

    pub fn core(&self) -> &Core {
        self.core.as_ref().expect("the daemon runs")
    }

    pub fn runs_of(&self, job: JobId) -> impl Iterator<Item = Attempt> {
        let of = (job, Attempt(0))..=(job, Attempt(u32::MAX));
        self.machine
            .runs
            .range(of)
            .filter(|(_, run)| !run.is_over())
            .map(|((_, attempt), _)| *attempt)
    }
}

pub fn pipeline(name: &str) -> Pipeline {
    Selection::policy(name).build().expect("every policy has good defaults")
}
