//! Users and operators: what they ask, what they were promised.

use crate::disk::Disk;
use std::collections::{BTreeMap, BTreeSet};
use trainyard_api::answer::{SubmitRequest, Submitted};
use trainyard_api::request::{Act, NodeAct};
use trainyard_api::token::TokenInfo;
use trainyard_api::trial::{GuardRequest, Measure};
use trainyard_api::window::{Reserved, WindowRequest};
use trainyard_api::{Checkpoint, Code, JobSpec, OnHang, Problem};
use trainyard_daemon::access::Rules;
use trainyard_daemon::core::{Ask, Said, TrialAsked};
use trainyard_daemon::service::NewToken;
use trainyard_daemon::{Caller, Role};
use trainyard_policies::compose::Selection;
use trainyard_policies::registry::POLICIES;
use trainyard_testkit::dice::Dice;
use trainyard_types::End;

/// The pool that is lent, where there is one.
pub const LENT: &str = "lent";

pub struct People {
    pub dice: Dice,
    next_ticket: u64,
    /// Questions without an answer; after a crash some never get one.
    open: BTreeMap<u64, Asked>,
    submissions: Vec<Submission>,
    /// Acknowledged jobs.
    pub jobs: BTreeSet<u32>,
    /// Jobs whose cancel was acknowledged, with the newest attempt of that moment.
    pub cancelled: BTreeMap<u32, u32>,
    /// Jobs that were set aside for sure, with the newest attempt of that moment.
    pub held: BTreeMap<u32, u32>,
    /// Attempts that were sent back to the queue.
    pub requeued: BTreeSet<(u32, u32)>,
    /// The ticket of the newest release of a job that was ever asked for.
    released: BTreeMap<u32, u64>,
    tokens: BTreeSet<String>,
    /// A user who changes their mind does so at once.
    just_held: Option<u32>,
    pub gpus: u32,
    pub nodes: Vec<String>,
    /// Whether jobs may change their GPUs while they run: not where another scheduler starts them.
    resizes: bool,
}

/// Jobs sent in one request, perhaps several times.
struct Submission {
    user: &'static str,
    request: SubmitRequest,
    /// Jobs it makes.
    makes: usize,
    ids: Option<Vec<u32>>,
    refused: bool,
    /// Asks for more than a user may have: refused.
    overreaches: bool,
}

#[derive(Clone, Debug)]
enum Asked {
    Submit(usize),
    Cancel(u32),
    Hold(u32),
    Release(u32),
    /// With the attempt that held GPUs when it was asked, or 0.
    Requeue(u32, u32),
    /// Of another user's job: refused.
    Meddle,
    AddToken(String),
    DropToken(String),
    Other,
}

const USERS: [&str; 2] = ["ann", "bob"];

/// The highest priority of a user here.
const PRIORITY_MAX: i32 = 2;

/// How far submissions may go: users share one tenant beside their own.
pub fn rules() -> Rules {
    Rules {
        priority_max: [(Role::User, PRIORITY_MAX)].into(),
        members: [("shared".to_owned(), vec!["ann".to_owned(), "bob".to_owned()])].into(),
        ..Rules::default()
    }
}

fn caller(user: &str, role: Role) -> Caller {
    Caller::named(user, role)
}

impl People {
    pub fn new(seed: u64, gpus: u32, nodes: Vec<String>) -> People {
        People {
            dice: Dice::new(seed, 3),
            next_ticket: 1,
            open: BTreeMap::new(),
            submissions: Vec::new(),
            jobs: BTreeSet::new(),
            cancelled: BTreeMap::new(),
            held: BTreeMap::new(),
            requeued: BTreeSet::new(),
            released: BTreeMap::new(),
            tokens: BTreeSet::new(),
            just_held: None,
            gpus,
            nodes,
            resizes: !seed.is_multiple_of(2),
        }
    }

    /// A user or an operator asks for something.
    pub fn ask(&mut self, disk: &Disk, wall: i64) -> (u64, Caller, Ask) {
        if let Some(job) = self.just_held.take()
            && self.dice.chance(400)
        {
            return self.act(disk, job, Act::Release);
        }
        let job = self.some_job(disk);
        match (self.dice.below(100), job) {
            (0..40, _) | (_, None) => self.submit(disk, wall),
            (40..48, _) => self.send_again(disk).unwrap_or_else(|| self.submit(disk, wall)),
            (48..58, Some(job)) => {
                let reason = self.dice.chance(300).then(|| "no longer of use".to_owned());
                self.act(disk, job, Act::Cancel { reason })
            }
            (58..67, Some(job)) => {
                self.just_held = Some(job);
                self.act(disk, job, Act::Hold)
            }
            (67..78, Some(job)) => self.act(disk, job, Act::Release),
            (78..86, Some(job)) => self.act(disk, job, Act::Requeue),
            (86..90, _) => self.rule_node(),
            (90..93, _) if self.dice.chance(300) => {
                let needed = self.dice.below(2) as u32;
                self.need_nodes(needed)
            }
            (90..93, _) => self.rule_window(wall),
            (93..96, _) => self.change_policy(),
            (96..97, _) => self.rule_trial(),
            _ => self.rule_token(),
        }
    }

    fn ticket(&mut self, asked: Asked) -> u64 {
        self.next_ticket += 1;
        self.open.insert(self.next_ticket, asked);
        self.next_ticket
    }

    /// Mostly one that is open, now and then one that is over or was never there.
    fn some_job(&mut self, disk: &Disk) -> Option<u32> {
        if self.dice.chance(50) {
            return Some(self.dice.below(40) as u32);
        }
        let open: Vec<u32> = disk.open().map(|job| job.row.job).collect();
        (!open.is_empty()).then(|| *self.dice.pick(&open))
    }

    fn submit(&mut self, disk: &Disk, wall: i64) -> (u64, Caller, Ask) {
        let label = self.submissions.len();
        let count = if self.dice.chance(250) { self.dice.between(2, 4) } else { 1 };
        let mut makes = 0;
        let jobs: Vec<JobSpec> = (0..count)
            .map(|_| {
                let (spec, elements) = self.spec(disk, label, wall);
                makes += elements;
                spec
            })
            .collect();
        let key = self.dice.chance(700).then(|| format!("key-{label}"));
        let user = *self.dice.pick(&USERS);
        let mut request = SubmitRequest { jobs, key };
        if self.dice.chance(150) {
            request.jobs[0].tenant = Some(self.dice.pick(&["shared", user]).to_string());
        }
        let overreaches = self.dice.chance(60);
        if overreaches {
            let index = self.dice.below(request.jobs.len() as u64) as usize;
            let spec = &mut request.jobs[index];
            match self.dice.below(3) {
                0 => spec.priority = PRIORITY_MAX + 1,
                1 => spec.weight = 2.0,
                _ => spec.tenant = Some(if user == "ann" { "bob" } else { "ann" }.to_owned()),
            }
        }
        let (ids, refused) = (None, false);
        self.submissions.push(Submission { user, request, makes, ids, refused, overreaches });
        self.send(disk, label)
    }

    fn send(&mut self, disk: &Disk, label: usize) -> (u64, Caller, Ask) {
        let ticket = self.ticket(Asked::Submit(label));
        let Submission { user, request, .. } = &self.submissions[label];
        let known = request.key.as_deref().and_then(|key| disk.key(user, key));
        let named = request.jobs.iter().flat_map(|spec| spec.after.iter());
        let ends = named.filter_map(|job| Some((*job, End::named(disk.end_of(*job)?)?)));
        let (request, ends) = (request.clone(), ends.collect());
        (ticket, caller(user, Role::User), Ask::Submit { request, identity: None, known, ends })
    }

    /// An earlier submission under its key once more, answered or not.
    fn send_again(&mut self, disk: &Disk) -> Option<(u64, Caller, Ask)> {
        let keyed = |one: &&Submission| one.request.key.is_some() && !one.refused;
        let labels: Vec<usize> =
            (0..self.submissions.len()).filter(|label| keyed(&&self.submissions[*label])).collect();
        let label = (!labels.is_empty()).then(|| *self.dice.pick(&labels))?;
        Some(self.send(disk, label))
    }

    fn spec(&mut self, disk: &Disk, label: usize, wall: i64) -> (JobSpec, usize) {
        let dice = &mut self.dice;
        let gpus = dice.between(1, u64::from(self.gpus.min(3))) as u32;
        let mut spec = JobSpec {
            name: format!("s{label}"),
            argv: vec!["train".to_owned()],
            gpus,
            priority: dice.below(3) as i32,
            preemptible: dice.chance(850),
            saves: !label.is_multiple_of(5),
            retries: dice.below(3) as u16,
            hold: dice.chance(80),
            on_hang: *dice.pick(&[OnHang::Tell, OnHang::Restart, OnHang::Fail]),
            checkpoint: Checkpoint {
                grace_seconds: *dice.pick(&[0.0, 2.0, 10.0]),
                ..Checkpoint::default()
            },
            ..JobSpec::default()
        };
        if dice.chance(500) {
            spec.expected_seconds = Some(dice.between(1, 60) as f64);
        }
        if gpus == 1 && dice.chance(100) {
            spec.gpu_permille = Some(*dice.pick(&[250, 500]));
        } else if dice.chance(150) {
            (spec.gpus_min, spec.gpus_max) = (Some(1), Some(self.gpus));
            spec.resizes_in_place = self.resizes && dice.chance(700);
        }
        if dice.chance(100) {
            spec.begin = Some(wall as f64 / 1e6 + dice.below(60) as f64);
        }
        if dice.chance(200) {
            spec.time_limit_seconds = Some(dice.between(5, 60) as f64);
        }
        if dice.chance(100) {
            spec.min_run_seconds = dice.between(1, 10) as f64;
        }
        let known: Vec<u32> = self.jobs.iter().copied().collect();
        if !known.is_empty() && dice.chance(200) {
            spec.after = (0..dice.between(1, 2)).map(|_| *dice.pick(&known)).collect();
            // Nothing can follow what did not finish: such a submission is refused, so most leave it out.
            if !dice.chance(100) {
                spec.after.retain(|job| disk.end_of(*job).is_none_or(|end| end == "finished"));
            }
        }
        let mut makes = 1;
        if dice.chance(150) {
            makes = dice.between(2, 5) as usize;
            let at_once =
                if dice.chance(700) { format!("%{}", dice.between(1, 2)) } else { String::new() };
            spec.array = Some(format!("1-{makes}{at_once}"));
        }
        (spec, makes)
    }

    fn act(&mut self, disk: &Disk, job: u32, act: Act) -> (u64, Caller, Ask) {
        let meddles = disk.jobs.contains_key(&job) && self.dice.chance(50);
        self.rule_job(disk, job, act, meddles)
    }

    /// As its owner or an operator.
    pub fn act_for_sure(&mut self, disk: &Disk, job: u32, act: Act) -> (u64, Caller, Ask) {
        self.rule_job(disk, job, act, false)
    }

    fn rule_job(&mut self, disk: &Disk, job: u32, act: Act, meddles: bool) -> (u64, Caller, Ask) {
        let owner = disk.jobs.get(&job).map_or("ann", |job| job.row.user.as_str());
        let state = disk.jobs.get(&job).map(|job| &job.course.kept.state);
        let placed = state.filter(|state| state.is_placed()).map_or(0, |state| state.attempt.0);
        let asked = match &act {
            _ if meddles => Asked::Meddle,
            Act::Cancel { .. } => Asked::Cancel(job),
            Act::Hold => Asked::Hold(job),
            Act::Release => Asked::Release(job),
            Act::Requeue => Asked::Requeue(job, placed),
        };
        let who = match meddles {
            true => caller(if owner == "ann" { "bob" } else { "ann" }, Role::User),
            false if self.dice.chance(200) => caller("op", Role::Operator),
            false => caller(owner, Role::User),
        };
        let ticket = self.ticket(asked);
        if !meddles && act == Act::Release {
            self.held.remove(&job);
            self.released.insert(job, ticket);
        }
        (ticket, who, Ask::Act { job, act })
    }

    pub fn act_on_node(&mut self, node: String, act: NodeAct) -> (u64, Caller, Ask) {
        (self.ticket(Asked::Other), caller("op", Role::Operator), Ask::Node { node, act })
    }

    fn rule_node(&mut self) -> (u64, Caller, Ask) {
        let mut node = self.dice.pick(&self.nodes).clone();
        if self.dice.chance(300) {
            node = format!("{node}:{}", self.dice.below(u64::from(self.gpus) + 1));
        }
        let act = match self.dice.chance(500) {
            true => NodeAct::Drain { reason: None },
            false => NodeAct::Resume,
        };
        self.act_on_node(node, act)
    }

    /// The owner of the node that is lent needs it, or does not; in worlds without one that is refused.
    pub fn need_nodes(&mut self, needed: u32) -> (u64, Caller, Ask) {
        let ask = Ask::NeedNodes { pool: LENT.to_owned(), needed };
        (self.ticket(Asked::Other), caller("op", Role::Operator), ask)
    }

    /// Maintenance or a reservation within the next minutes, or one of those is taken back.
    fn rule_window(&mut self, wall: i64) -> (u64, Caller, Ask) {
        let op = caller("op", Role::Operator);
        if self.dice.chance(300) {
            let window = self.dice.between(1, 6) as u32;
            return (self.ticket(Asked::Other), op, Ask::RemoveWindow(window));
        }
        let from = wall as f64 / 1e6 + self.dice.below(180) as f64;
        let reserved = self
            .dice
            .chance(400)
            .then(|| Reserved { users: vec!["ann".to_owned()], ..Reserved::default() });
        let request = WindowRequest {
            nodes: vec![self.dice.pick(&self.nodes).clone()],
            from,
            until: from + self.dice.between(1, 120) as f64,
            reason: String::new(),
            reserved,
        };
        (self.ticket(Asked::Other), op, Ask::AddWindow(request))
    }

    fn change_policy(&mut self) -> (u64, Caller, Ask) {
        let label = self.dice.pick(POLICIES).name;
        self.choose_policy(label)
    }

    pub fn choose_policy(&mut self, label: &str) -> (u64, Caller, Ask) {
        let pipeline = Selection::policy(label).build().expect("defaults are good");
        let ask = Ask::SetPolicy { label: label.to_owned(), half_life: pipeline.usage_half_life };
        (self.ticket(Asked::Other), caller("root", Role::Admin), ask)
    }

    /// A policy for a while, or the end of that.
    fn rule_trial(&mut self) -> (u64, Caller, Ask) {
        let root = caller("root", Role::Admin);
        if self.dice.chance(300) {
            let keep = self.dice.chance(500);
            return (self.ticket(Asked::Other), root, Ask::EndTrial { keep });
        }
        let label = self.dice.pick(POLICIES).name;
        let half_life =
            Selection::policy(label).build().expect("defaults are good").usage_half_life;
        let (measure, worse_by) = (*self.dice.pick(&Measure::ALL), 0.2);
        let guard = self.dice.chance(500).then_some(GuardRequest { measure: measure.1, worse_by });
        let seconds = self.dice.between(1, 120) as f64;
        let asked = TrialAsked { label: label.to_owned(), half_life, seconds, guard };
        (self.ticket(Asked::Other), root, Ask::TryPolicy(asked))
    }

    fn rule_token(&mut self) -> (u64, Caller, Ask) {
        let name = format!("token-{}", self.dice.below(4));
        let root = caller("root", Role::Admin);
        if self.dice.chance(500) {
            let ticket = self.ticket(Asked::DropToken(name.clone()));
            return (ticket, root, Ask::DropToken(name));
        }
        let (user, role) = ("ann".to_owned(), Role::User);
        let info = TokenInfo { name: name.clone(), user, role, created: 1.0, expires: None };
        let digest = format!("digest-{}", self.next_ticket);
        let ticket = self.ticket(Asked::AddToken(name));
        (ticket, root, Ask::AddToken(NewToken { info, digest }))
    }

    /// An answer arrives; what it promises is on disk or the promise is false.
    pub fn hear(&mut self, disk: &Disk, ticket: u64, answer: Result<Said, Problem>) {
        let asked =
            self.open.remove(&ticket).expect("an answer to a question that was asked, once");
        let attempt_of = |job: u32| disk.jobs[&job].course.kept.state.attempt.0;
        match (asked, answer) {
            (Asked::Submit(label), Ok(Said::Submitted(answer))) => {
                assert!(!self.submissions[label].overreaches, "s{label} got more than it may have");
                self.promised(disk, label, answer)
            }
            (Asked::Submit(label), Err(_)) => {
                let submission = &mut self.submissions[label];
                assert!(
                    submission.ids.is_none(),
                    "s{label} was accepted before and is refused now"
                );
                submission.refused = true;
            }
            (Asked::Submit(label), Ok(_)) => panic!("s{label} was answered without ids"),
            (Asked::Cancel(job), Ok(_)) => {
                self.cancelled.entry(job).or_insert(attempt_of(job));
            }
            (Asked::Hold(job), Ok(_)) => self.set_aside(disk, job, ticket),
            (Asked::Requeue(job, placed), Ok(_)) => {
                if placed > 0 && attempt_of(job) == placed {
                    self.requeued.insert((job, placed));
                }
            }
            (Asked::Meddle, answer) => {
                let code = answer.expect_err("a user changed another user's job").code;
                // The job may have ended meanwhile.
                assert!(matches!(code, Code::Denied | Code::Conflict | Code::NotFound), "{code:?}");
            }
            (Asked::AddToken(name), Ok(_)) => {
                self.tokens.insert(name);
            }
            (Asked::DropToken(name), Ok(_)) => {
                self.tokens.remove(&name);
            }
            (_, Err(problem)) => assert_ne!(problem.code, Code::Internal, "{}", problem.detail),
            (Asked::Release(_) | Asked::Other, Ok(_)) => {}
        }
    }

    fn set_aside(&mut self, disk: &Disk, job: u32, ticket: u64) {
        // A release that was asked for meanwhile may have come first or last.
        let since = self.released.get(&job).is_some_and(|release| *release > ticket);
        let unanswered =
            self.open.values().any(|asked| matches!(asked, Asked::Release(other) if *other == job));
        if !since && !unanswered && disk.end_of(job).is_none() {
            self.held.insert(job, disk.jobs[&job].course.kept.state.attempt.0);
        }
    }

    fn promised(&mut self, disk: &Disk, label: usize, answer: Submitted) {
        let submission = &mut self.submissions[label];
        assert_eq!(answer.jobs.len(), submission.makes, "s{label} makes other jobs than it should");
        if let Some(ids) = &submission.ids {
            assert_eq!(*ids, answer.jobs, "the key of s{label} was answered twice, differently");
            assert!(answer.repeated, "s{label} was accepted twice");
        }
        submission.ids = Some(answer.jobs.clone());
        let name = format!("s{label}");
        for id in answer.jobs {
            let job = disk.jobs.get(&id);
            let job = job.unwrap_or_else(|| panic!("job {id} was acknowledged and is not on disk"));
            assert_eq!(job.submission.spec.name, name, "job {id} is another one");
            self.jobs.insert(id);
            if job.submission.spec.hold {
                // Any release ever came after the submission.
                self.set_aside(disk, id, 0);
            }
        }
    }

    /// The daemon is gone; callers that wait for an answer get none.
    pub fn hang_up(&mut self) {
        self.open.clear();
    }

    /// Whether a caller ever asked for a job to be released.
    pub fn wanted_released(&self, job: u32) -> bool {
        self.released.contains_key(&job)
    }

    pub fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// Nothing acknowledged is lost, and nothing was accepted twice.
    pub fn check(&self, disk: &Disk) {
        for job in &self.jobs {
            assert!(disk.jobs.contains_key(job), "job {job} was acknowledged and is lost");
        }
        let mut made: BTreeMap<&str, usize> = BTreeMap::new();
        for job in disk.jobs.values() {
            *made.entry(&job.submission.spec.name).or_default() += 1;
        }
        for (label, submission) in self.submissions.iter().enumerate() {
            let made = made.get(format!("s{label}").as_str()).copied().unwrap_or(0);
            let whole = made == submission.makes;
            let keyed = submission.request.key.is_some();
            match &submission.ids {
                Some(_) => {
                    assert!(whole, "s{label} makes {} jobs, and {made} are there", submission.makes)
                }
                None if submission.refused && keyed => {
                    assert_eq!(made, 0, "s{label} was refused and is there")
                }
                None => assert!(made == 0 || whole, "s{label} is there in part"),
            }
        }
    }
}
