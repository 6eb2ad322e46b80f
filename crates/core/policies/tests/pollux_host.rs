//! Pollux on an engine of its own: what it makes of what jobs report, and of jobs that cannot run.

use trainyard_framework::RawSettings;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_testkit::host::Host;
use trainyard_types::{
    Action, BatchLimits, Cluster, Event, Job, JobId, Reason, Sample, Span, Tenants, Time, Want,
};

fn host(settings: &[&str]) -> Host {
    let settings = RawSettings::parse(settings.iter().copied()).expect("valid settings");
    let policy = Choice { settings, ..Choice::named("pollux") };
    let selection = Selection { policy, ..Selection::default() };
    let pipeline = selection.build().expect("settings build");
    Host::new(Cluster::uniform(2, 4, "v100"), Tenants::default(), pipeline)
}

const LIMITS: BatchLimits =
    BatchLimits { first: 128, most: 4096, local_least: 32, local_most: 1024 };

fn elastic(id: u32, second: u64, limits: Option<BatchLimits>) -> Job {
    let want = Want { gpus_min: 1, gpus_max: 8, batch_limits: limits, ..Want::gpus(1) };
    Job { want, ..Job::simple(JobId(id), Time(second * 1_000_000), 1) }
}

/// What a job reports that needs 50 ms and a millisecond for each sample, and 40 ms for an exchange.
fn report(host: &mut Host, second: u64, job: u32, (gpus, batch): (u32, u32)) -> Vec<Action> {
    let sync = if gpus > 1 { 0.04 } else { 0.0 };
    let step = 0.05 + 0.001 * f64::from(batch.div_ceil(gpus)) + sync;
    let sample = Sample {
        step: Some(Span::from_secs_f64(step)),
        sync: Some(Span::from_secs_f64(sync)),
        batch: Some(batch),
        accumulation: Some(0),
        noise: Some(3000.0),
        ..Sample::default()
    };
    let attempt = host.attempt(job);
    host.at(second, Event::Report { job: JobId(job), attempt, sample })
}

fn planned(host: &Host, job: u32) -> (u32, Option<u32>) {
    let live = host.engine.state().live(JobId(job)).expect("a job that is there");
    let planned = live.state.planned.as_ref();
    planned.map_or((0, None), |planned| (planned.placement.gpus(), planned.knobs.batch))
}

fn reasons(host: &Host, job: u32) -> Vec<Reason> {
    host.engine.explain(JobId(job)).expect("known").reasons
}

#[test]
fn a_job_begins_with_one_gpu_and_its_first_batch_and_grows_as_it_is_seen() {
    let mut host = host(&[]);
    host.submit(0, elastic(0, 0, Some(LIMITS)));
    assert_eq!(planned(&host, 0), (1, Some(128)));
    // Young jobs do not restart for little, so time passes before the next round.
    report(&mut host, 600, 0, (1, 128));
    let (gpus, batch) = planned(&host, 0);
    assert_eq!(gpus, 2, "twice what it was seen on");
    assert!(batch > Some(128), "with that noise a larger batch is better, not {batch:?}");
}

#[test]
fn within_a_round_whoever_comes_is_put_where_there_is_room_and_nobody_moves() {
    let mut host = host(&[]);
    host.submit(0, elastic(0, 0, Some(LIMITS)));
    report(&mut host, 600, 0, (1, 128));
    let before = planned(&host, 0).0;
    host.submit(610, elastic(1, 610, Some(LIMITS)));
    assert_eq!((planned(&host, 0).0, planned(&host, 1)), (before, (1, Some(128))));
    assert_eq!(host.engine.due(), Some(Time(660_000_000)), "the next round");
}

#[test]
fn the_guard_holds_the_batch_down() {
    let mut free = host(&[]);
    let mut held = host(&["growth_max=1"]);
    for host in [&mut free, &mut held] {
        host.submit(0, elastic(0, 0, Some(LIMITS)));
        report(host, 600, 0, (1, 128));
        host.submit(660, elastic(1, 660, Some(LIMITS)));
    }
    assert!(planned(&free, 0).1 > Some(128));
    assert_eq!(planned(&held, 0).1, Some(128));
}

#[test]
fn batch_limits_that_cannot_be_met_are_told_and_others_go_on() {
    let mut host = host(&[]);
    host.submit(0, elastic(0, 0, Some(BatchLimits { local_least: 8192, ..LIMITS })));
    host.submit(1, elastic(1, 1, Some(LIMITS)));
    assert_eq!(planned(&host, 0), (0, None));
    assert_eq!(reasons(&host, 0), [Reason::NoBatch { least: 8192, most: 4096 }]);
    assert_eq!(planned(&host, 1).0, 1);
}

#[test]
fn a_gang_without_room_is_told_and_others_go_on() {
    let mut host = host(&[]);
    // Five GPUs of one node, where a node has four.
    let want = Want { nodes_max: 1, ..Want::gpus(5) };
    host.submit(0, Job { want, ..Job::simple(JobId(0), Time::ZERO, 5) });
    host.submit(1, elastic(1, 1, None));
    assert!(!host.runs(0));
    assert_eq!(planned(&host, 1).0, 1);
}

#[test]
fn impossible_reports_are_as_none() {
    let mut host = host(&[]);
    host.submit(0, elastic(0, 0, Some(LIMITS)));
    let attempt = host.attempt(0);
    for (step, sync) in [(0.0, 0.0), (0.1, 0.2)] {
        let sample = Sample {
            step: Some(Span::from_secs_f64(step)),
            sync: Some(Span::from_secs_f64(sync)),
            batch: Some(128),
            noise: Some(f64::NAN),
            ..Sample::default()
        };
        host.at(31, Event::Report { job: JobId(0), attempt, sample });
    }
    host.submit(600, elastic(1, 600, Some(LIMITS)));
    assert!(planned(&host, 0).0 >= 1 && planned(&host, 1).0 >= 1);
    assert_eq!(host.engine.stats().policy_errors, 0);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for bad in
        ["p=99", "explore=0.5", "growth_max=0.5", "growth_step=1", "population=1", "nodes_max=0"]
    {
        let settings = RawSettings::parse([bad]).expect("they read");
        let policy = Choice { settings, ..Choice::named("pollux") };
        let built = Selection { policy, ..Selection::default() }.build();
        assert!(built.is_err(), "{bad}");
    }
}
