//! A name costs what it is long, however many names are known; what is remembered of names is bounded; and no user
//! can fill the queue alone. What a submission says of its worth reaches policies.

use std::collections::BTreeMap;
use std::sync::Arc;
use trainyard_api::answer::SubmitRequest;
use trainyard_api::request::Act;
use trainyard_api::{BatchRule, Code, JobClass, JobSpec, Problem};
use trainyard_daemon::core::{
    Ask, Core, CoreOptions, Input, OPEN_PER_USER_MAX, Opening, Said, Turn,
};
use trainyard_daemon::learn::{Learnt, NAMES_MAX};
use trainyard_daemon::seen::{DaemonSnapshot, Health};
use trainyard_daemon::{Caller, Role};
use trainyard_engine::Setup;
use trainyard_framework::Beliefs;
use trainyard_profile::{Catalog, Speeds};
use trainyard_store::{JobRow, Loaded, Write};
use trainyard_types::{
    BatchMode, Class, Cluster, Config, GpuType, Job, JobId, ModelId, Sample, Span, TenantId,
    Tenants, Time,
};

struct Daemon {
    core: Core,
    now: u64,
}

impl Daemon {
    fn new(open_per_user_max: usize) -> Daemon {
        Daemon::from(Loaded::default(), open_per_user_max).0
    }

    /// As it is made from what a store holds, with its first turn.
    fn from(loaded: Loaded, open_per_user_max: usize) -> (Daemon, Turn) {
        let options = CoreOptions {
            cluster: Arc::new(Cluster::uniform(1, 1, "v100")),
            devices: vec![vec![(0, "0".to_owned())]],
            catalog: Arc::new(Catalog::builtin()),
            setup: Setup::default(),
            policy: "fifo".to_owned(),
            half_life: Span::secs(3600),
            boot: "test".to_owned(),
            processes_max: 0,
            log_bytes_max: 0,
            announces: false,
            open_per_user_max,
            rules: Default::default(),
            gpu_return_after: None,
            hang: Default::default(),
            notify: Default::default(),
        };
        let (tenants, nodes) = (Tenants::default(), BTreeMap::new());
        let (found, at, wall) = (Vec::new(), Time::ZERO, 0);
        let opening = Opening { loaded, found, tenants, nodes, gpus: Vec::new(), at, wall };
        let (core, turn) = Core::open(options, opening).expect("what is stored is sound");
        (Daemon { core, now: 0 }, turn)
    }

    fn turn(&mut self, user: &str, ask: Ask) -> (Turn, Result<Said, Problem>) {
        self.now += 1000;
        let role = Role::User;
        let caller = Caller { user: user.to_owned(), uid: None, role, groups: Vec::new() };
        let input = Input::Ask { ticket: 0, caller, ask };
        let mut turn = self.core.turn(Time(self.now), self.now as i64, vec![input]);
        let (_, said) = turn.replies.pop().expect("one asked");
        (turn, said)
    }

    fn submit(&mut self, user: &str, names: &[String]) -> (Turn, Result<Said, Problem>) {
        let job = |name: &String| JobSpec {
            name: name.clone(),
            argv: vec!["true".to_owned()],
            ..JobSpec::default()
        };
        self.submit_jobs(user, names.iter().map(job).collect())
    }

    fn submit_jobs(&mut self, user: &str, jobs: Vec<JobSpec>) -> (Turn, Result<Said, Problem>) {
        let request = SubmitRequest { jobs, key: None };
        self.turn(user, Ask::Submit { request, identity: None, known: None, ends: BTreeMap::new() })
    }
}

/// Bytes that a turn has written to disk.
fn bytes(turn: &Turn) -> usize {
    turn.writes.iter().map(|write| format!("{write:?}").len()).sum()
}

fn names(from: usize, count: usize) -> Vec<String> {
    (from..from + count).map(|number| format!("train-{number:06}")).collect()
}

#[test]
fn a_soft_deadline_a_class_and_a_batch_rule_reach_policies() {
    let mut daemon = Daemon::new(OPEN_PER_USER_MAX);
    let spec = JobSpec {
        argv: vec!["true".to_owned()],
        deadline_seconds: Some(100.0),
        tolerance_seconds: Some(30.0),
        class: JobClass::Opportunistic,
        batch_mode: BatchRule::Gns,
        ..JobSpec::default()
    };
    let alone = JobSpec { deadline_seconds: None, ..spec.clone() };
    let refused = daemon.submit_jobs("ann", vec![alone]).1.expect_err("a delay after nothing");
    assert!(refused.detail.contains("deadline_seconds"), "{refused:?}");
    daemon.submit_jobs("ann", vec![spec]).1.expect("it is taken on");
    let job = daemon.core.engine().state().live(JobId(1)).expect("the first job");
    let from = daemon.now as f64 / 1e6;
    let steps =
        job.spec.value.iter().map(|(at, worth)| ((at.as_secs_f64() - from).round(), *worth));
    let expected = [(100.0, 1.0), (110.0, 0.8), (120.0, 0.5), (130.0, 0.2)];
    assert_eq!(steps.collect::<Vec<_>>(), expected);
    assert_eq!((job.spec.class, job.spec.batch_mode), (Class::Opportunistic, BatchMode::Gns));
}

#[test]
fn a_new_name_writes_as_much_with_ten_thousand_names_known_as_with_none() {
    let mut daemon = Daemon::new(OPEN_PER_USER_MAX);
    let written = |daemon: &mut Daemon, from: usize| -> usize {
        (from..from + 20).map(|number| bytes(&daemon.submit("ann", &names(number, 1)).0)).sum()
    };
    let first = written(&mut daemon, 0);
    daemon.submit("ann", &names(20, 10_000)).1.expect("they are taken on");
    let later = written(&mut daemon, 20_000);
    assert!(later <= first + first / 5, "{first} bytes at first, {later} later");
}

#[test]
fn many_names_in_one_request_write_as_much_each_as_one() {
    let mut daemon = Daemon::new(OPEN_PER_USER_MAX);
    let one = bytes(&daemon.submit("ann", &names(0, 1)).0);
    let many = bytes(&daemon.submit("ann", &names(1, 2_000)).0);
    assert!(many <= 2_000 * one, "{one} bytes for one, {many} for 2,000");
}

#[test]
fn a_name_has_the_same_id_after_a_restart_and_others_have_others() {
    let mut daemon = Daemon::new(OPEN_PER_USER_MAX);
    let (turn, _) = daemon.submit("ann", &["a", "b", "a"].map(str::to_owned));
    let model = |core: &Core, job: u32| core.engine().state().live(JobId(job)).unwrap().spec.model;
    let before = [1, 2, 3].map(|job| model(&daemon.core, job));
    assert_eq!(before[0], before[2]);
    assert_ne!(before[0], before[1]);
    let mut loaded = Loaded { next_job: 4, ..Loaded::default() };
    for write in turn.writes {
        match write {
            Write::AddJob { job, user, tenant, spec, state, wall } => {
                loaded.jobs.push(JobRow { job, user, tenant, spec, state, end: None, wall });
            }
            Write::SetMeta { name, value } => {
                loaded.meta.insert(name, value);
            }
            _ => {}
        }
    }
    let (again, _) = Daemon::from(loaded, OPEN_PER_USER_MAX);
    assert_eq!([1, 2, 3].map(|job| model(&again.core, job)), before);
}

#[test]
fn what_older_versions_learnt_by_the_number_of_a_name_is_found_by_the_name() {
    let mut loaded = Loaded { next_job: 1, ..Loaded::default() };
    let first = 1u32 << 24;
    loaded.meta.insert("kin".to_owned(), r#"["old","other"]"#.to_owned());
    let learnt =
        format!(r#"{{"kin":[[{first},{{"save":7.0,"start":9.0,"factor":null}}]],"own":[]}}"#);
    loaded.meta.insert("learnt".to_owned(), learnt);
    let (mut daemon, turn) = Daemon::from(loaded, OPEN_PER_USER_MAX);
    let gone = |write: &Write| matches!(write, Write::SetMeta { name, value } if name == "kin" && value == "[]");
    assert!(turn.writes.iter().any(gone), "the list is not read twice");
    daemon.submit("ann", &["old", "other"].map(str::to_owned)).1.expect("they are taken on");
    let on = Config::packed(GpuType(0), 1, 1);
    let state = daemon.core.engine().state();
    let save = |job: u32| {
        let spec = &state.live(JobId(job)).unwrap().spec;
        daemon.core.engine().beliefs().change(spec, Some(&on), Some(&on)).save
    };
    assert_eq!(save(1), Span::secs(7));
    assert_ne!(save(2), Span::secs(7));
}

#[test]
fn a_user_with_too_many_open_jobs_is_told_what_to_do_and_others_are_served() {
    let mut daemon = Daemon::new(3);
    daemon.submit("ann", &names(0, 3)).1.expect("as many as she may have");
    let problem = daemon.submit("ann", &names(3, 1)).1.expect_err("one too many");
    assert_eq!(problem.code, Code::TooMany);
    for part in ["ann", "3 jobs", "cancel", "--jobs-per-user-max"] {
        assert!(problem.detail.contains(part), "`{part}` is missing in: {}", problem.detail);
    }
    let problem = daemon.submit("bob", &names(0, 4)).1.expect_err("all or none");
    assert_eq!(problem.code, Code::TooMany);
    daemon.submit("bob", &names(0, 3)).1.expect("his own limit");
    daemon.turn("ann", Ask::Act { job: 2, act: Act::Cancel { reason: None } }).1.expect("hers");
    daemon.submit("ann", &names(4, 1)).1.expect("there is room again");
    daemon.submit("ann", &names(5, 1)).1.expect_err("for one only");
}

#[test]
fn the_limit_of_a_user_holds_after_a_restart() {
    let mut daemon = Daemon::new(2);
    let (turn, _) = daemon.submit("ann", &names(0, 2));
    let mut loaded = Loaded { next_job: 3, ..Loaded::default() };
    for write in turn.writes {
        match write {
            Write::AddJob { job, user, tenant, spec, state, wall } => {
                loaded.jobs.push(JobRow { job, user, tenant, spec, state, end: None, wall });
            }
            Write::SetMeta { name, value } => {
                loaded.meta.insert(name, value);
            }
            _ => {}
        }
    }
    let (mut again, _) = Daemon::from(loaded, 2);
    again.submit("ann", &names(2, 1)).1.expect_err("two are open");
}

#[test]
fn what_is_learnt_of_names_is_bounded_and_the_one_with_most_names_loses_first() {
    let speeds = Arc::new(Speeds::new(&Catalog::builtin(), &Cluster::uniform(1, 4, "v100")));
    let mut learnt = Learnt::new(speeds, 1000, None);
    let sample = Sample { save: Some(Span::secs(5)), ..Sample::default() };
    let on = Config::packed(GpuType(0), 1, 4);
    let job = |id: u32, tenant: u32| Job {
        model: ModelId(1000 + id),
        tenant: TenantId(tenant),
        ..Job::simple(JobId(id), Time::ZERO, 1)
    };
    for id in 0..100 {
        learnt.observe(&job(id, 1), Some(&on), &sample);
        learnt.over(&job(id, 1));
    }
    let text = |learnt: &Learnt| learnt.kept().expect("something to keep").len();
    for id in 100..100 + 2 * NAMES_MAX as u32 {
        learnt.observe(&job(id, 2), Some(&on), &sample);
        learnt.over(&job(id, 2));
    }
    assert!(text(&learnt) < 100 * NAMES_MAX, "{} bytes are kept", text(&learnt));
    let save = |id: u32, tenant: u32| learnt.change(&job(id, tenant), Some(&on), None).save;
    assert!((0..100).all(|id| save(id, 1) == Span::secs(5)), "another tenant lost what it knew");
    assert_eq!(save(99 + 2 * NAMES_MAX as u32, 2), Span::secs(5), "the newest is known");
    assert_ne!(save(100, 2), Span::secs(5), "the oldest is forgotten");
}

#[test]
fn one_walk_over_the_jobs_tells_what_status_shares_and_metrics_show() {
    let mut daemon = Daemon::new(OPEN_PER_USER_MAX);
    for (user, count) in [("ann", 3), ("bob", 2), ("ann", 1)] {
        daemon.submit(user, &names(0, count)).1.expect("they are taken on");
    }
    daemon.turn("bob", Ask::Act { job: 5, act: Act::Hold }).1.expect("his own");
    let seen = DaemonSnapshot::take(&daemon.core, 1, Time(daemon.now), 0);
    let status = seen.status(&Health::default(), "ann", "user");
    let count = |name: &str| status.jobs.get(name).copied().unwrap_or(0);
    assert_eq!((count("unadmitted"), count("blocked")), (5, 1), "{:?}", status.jobs);
    assert_eq!((status.gpus_used, status.gpus), (0, 1));
    let fair = seen.fair();
    let of = |name: &str| fair.iter().find(|row| row.tenant == name).expect("a tenant");
    assert_eq!((of("ann").waiting, of("bob").waiting, of("ann").running), (4, 2, 0));
    let entitled: f64 = fair.iter().map(|row| row.entitled).sum();
    assert!((entitled - 1.0).abs() < 1e-12 && of("ann").entitled == of("bob").entitled);
    let levels = seen.levels();
    let key = |tenant: &str, phase: &str| (tenant.to_owned(), phase.to_owned());
    assert_eq!(levels.pending.get(&key("ann", "unadmitted")), Some(&4));
    assert_eq!(levels.pending.get(&key("bob", "blocked")), Some(&1));
    assert_eq!(levels.unadmitted.values().sum::<u64>(), 5);
}
