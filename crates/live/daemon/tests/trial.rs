//! A policy on trial, with a clock of the test's own: it goes when its time is over or its measure worsens, also after
//! a restart.

use std::collections::BTreeMap;
use std::sync::Arc;
use trainyard_api::answer::SubmitRequest;
use trainyard_api::trial::{GuardRequest, Measure};
use trainyard_api::{Code, JobSpec};
use trainyard_backend::Order;
use trainyard_backend::{Exit, Report};
use trainyard_daemon::core::{Ask, Core, CoreOptions, Input, Opening, TrialAsked, Turn};
use trainyard_daemon::{Caller, Role};
use trainyard_engine::{DecisionRequest, Setup};
use trainyard_policies::compose::Selection;
use trainyard_profile::Catalog;
use trainyard_store::{Loaded, Write};
use trainyard_types::{Cluster, Span, Tenants, Time};

const WALL: i64 = 1_790_000_000_000_000;

/// A core on two GPUs, its meta rows as they are on disk, and what it said.
struct Service {
    core: Core,
    meta: BTreeMap<String, String>,
    events: Vec<String>,
}

fn open(policy: &str, meta: &BTreeMap<String, String>, second: u64) -> (Core, Turn) {
    let cluster = Cluster::uniform(1, 2, "v100");
    let options = CoreOptions {
        devices: vec![vec![(0, "0".to_owned()), (1, "1".to_owned())]],
        cluster: Arc::new(cluster),
        catalog: Arc::new(Catalog::builtin()),
        setup: Setup { check_every: 1, ..Setup::default() },
        policy: policy.to_owned(),
        half_life: Span::secs(3600),
        boot: "boot".to_owned(),
        processes_max: 0,
        log_bytes_max: 0,
        announces: false,
        rules: Default::default(),
        open_per_user_max: trainyard_daemon::core::OPEN_PER_USER_MAX,
        gpu_return_after: None,
        hang: Default::default(),
        notify: Default::default(),
    };
    let loaded = Loaded { meta: meta.clone(), next_job: 1, ..Loaded::default() };
    let (at, wall) = (Time(second * 1_000_000), WALL + second as i64 * 1_000_000);
    let (found, tenants, nodes) = (Vec::new(), Tenants::default(), BTreeMap::new());
    Core::open(options, Opening { loaded, found, tenants, nodes, gpus: Vec::new(), at, wall })
        .expect("it opens")
}

impl Service {
    fn new() -> Service {
        Service::start("fifo", BTreeMap::new(), 0).0
    }

    /// The daemon starts on what is on disk; with its first turn.
    fn start(policy: &str, meta: BTreeMap<String, String>, second: u64) -> (Service, Turn) {
        let (core, mut first) = open(policy, &meta, second);
        let mut service = Service { core, meta, events: Vec::new() };
        service.keep(&first);
        let request = first.request.take();
        service.answer(second, request);
        (service, first)
    }

    /// A turn at a second; requests are answered at once by the policy in force.
    fn turn(&mut self, second: u64, inputs: Vec<Input>) -> Turn {
        let (at, wall) = (Time(second * 1_000_000), WALL + second as i64 * 1_000_000);
        let mut turn = self.core.turn(at, wall, inputs);
        self.keep(&turn);
        let request = turn.request.take();
        let more = self.answer(second, request);
        turn.orders.extend(more.orders);
        turn.policy = turn.policy.or(more.policy);
        turn
    }

    fn answer(&mut self, second: u64, request: Option<DecisionRequest>) -> Turn {
        let Some(request) = request else { return Turn::default() };
        let mut pipeline = Selection::policy(&self.policy()).build().expect("a policy");
        self.turn(second, vec![Input::Outcome(request.think(&mut pipeline))])
    }

    fn keep(&mut self, turn: &Turn) {
        for write in &turn.writes {
            match write {
                Write::SetMeta { name, value } => {
                    self.meta.insert(name.clone(), value.clone());
                }
                Write::AddEvent { data, .. } => self.events.push(data.clone()),
                _ => {}
            }
        }
    }

    fn policy(&self) -> String {
        let kept = self.meta.get("policy").map(|text| serde_json::from_str(text).expect("a name"));
        kept.unwrap_or_else(|| "fifo".to_owned())
    }

    fn ask(&mut self, second: u64, ask: Ask) -> Result<(), Code> {
        let caller =
            Caller { user: "root".to_owned(), uid: None, role: Role::Admin, groups: Vec::new() };
        let turn = self.turn(second, vec![Input::Ask { ticket: 1, caller, ask }]);
        let (_, answer) = turn.replies.into_iter().next().expect("an answer");
        answer.map(|_| ()).map_err(|problem| problem.code)
    }

    fn try_srtf(
        &mut self,
        second: u64,
        seconds: f64,
        measure: Option<Measure>,
    ) -> Result<(), Code> {
        let guard = measure.map(|measure| GuardRequest { measure, worse_by: 0.2 });
        let (label, half_life) = ("srtf".to_owned(), Span::secs(3600));
        self.ask(second, Ask::TryPolicy(TrialAsked { label, half_life, seconds, guard }))
    }

    /// A job that waits for the two GPUs, runs, and ends at a second.
    fn run_job(&mut self, from: u64, to: u64) {
        let spec = JobSpec { gpus: 2, argv: vec!["train".to_owned()], ..JobSpec::default() };
        let request = SubmitRequest { jobs: vec![spec], key: None };
        let ends = BTreeMap::new();
        let ask = Ask::Submit { request, identity: None, known: None, ends };
        let caller =
            Caller { user: "ann".to_owned(), uid: None, role: Role::User, groups: Vec::new() };
        let turn = self.turn(from, vec![Input::Ask { ticket: 1, caller, ask }]);
        let launched = turn.orders.iter().find_map(|order| match order {
            Order::Launch(order) => Some((order.job, order.attempt)),
            _ => None,
        });
        let (job, attempt) = launched.expect("it starts");
        self.turn(from, vec![Input::Report(Report::Started { job, attempt })]);
        let exit = Exit { code: Some(0), ..Exit::default() };
        self.turn(to, vec![Input::Report(Report::Ended { job, attempt, exit })]);
    }
}

#[test]
fn a_trial_is_over_when_its_time_is_and_the_policy_before_is_back() {
    let mut service = Service::new();
    service.try_srtf(10, 3600.0, None).expect("it begins");
    assert_eq!(service.policy(), "srtf");
    service.turn(3609, Vec::new());
    assert_eq!(service.policy(), "srtf");
    assert_eq!(service.core.due(), Some(Time(3610 * 1_000_000)));
    let turn = service.turn(3610, Vec::new());
    assert_eq!(service.policy(), "fifo");
    assert_eq!(turn.policy.expect("the host is told").0, "fifo");
    let last = service.events.last().expect("an event");
    assert!(last.contains("the trial of srtf ends, its time is over"), "{last}");
}

#[test]
fn a_trial_survives_a_restart_and_ends_in_time_also_while_no_daemon_runs() {
    let mut service = Service::new();
    service.try_srtf(10, 3600.0, None).expect("it begins");
    let (mut again, turn) = Service::start("srtf", service.meta.clone(), 2000);
    assert!(turn.policy.is_none());
    again.turn(3609, Vec::new());
    assert_eq!(again.policy(), "srtf");
    again.turn(3610, Vec::new());
    assert_eq!(again.policy(), "fifo");
    let (late, turn) = Service::start("srtf", service.meta.clone(), 5000);
    assert_eq!(turn.policy.expect("it is over").0, "fifo");
    assert_eq!(late.policy(), "fifo");
    let (mut chosen, _) = Service::start("las", service.meta.clone(), 2000);
    let turn = chosen.turn(5000, Vec::new());
    assert!(turn.policy.is_none(), "chosen by hand at the start");
}

#[test]
fn a_trial_ends_sooner_when_its_measure_worsens() {
    let mut service = Service::new();
    assert_eq!(service.try_srtf(10, 3600.0, Some(Measure::Jct)), Err(Code::Conflict), "no history");
    for start in [20, 40, 60] {
        service.run_job(start, start + 10);
    }
    service.try_srtf(100, 3600.0, Some(Measure::Jct)).expect("ten seconds each are known");
    for start in [500, 600] {
        service.run_job(start, start + 50);
    }
    assert_eq!(service.policy(), "srtf", "two are too few");
    service.run_job(700, 750);
    service.turn(751, Vec::new());
    assert_eq!(service.policy(), "fifo");
    let last = service.events.last().expect("an event");
    assert!(last.contains("jct is 50.0, and was 10.0: more than 20 % worse"), "{last}");
}

#[test]
fn a_trial_is_kept_or_ended_by_hand_and_there_is_one_at_a_time() {
    let mut service = Service::new();
    assert_eq!(service.ask(1, Ask::EndTrial { keep: true }), Err(Code::Conflict));
    service.try_srtf(10, 3600.0, None).expect("it begins");
    assert_eq!(service.try_srtf(11, 3600.0, None), Err(Code::Conflict));
    service.ask(20, Ask::EndTrial { keep: false }).expect("back");
    assert_eq!(service.policy(), "fifo");
    service.try_srtf(30, 3600.0, None).expect("once more");
    service.ask(40, Ask::EndTrial { keep: true }).expect("it stays");
    service.turn(5000, Vec::new());
    assert_eq!(service.policy(), "srtf");
}
