//! What jobs show of themselves is what policies believe about jobs like them, also after a restart.

use std::sync::Arc;
use trainyard_daemon::learn::Learnt;
use trainyard_framework::Beliefs;
use trainyard_profile::{Catalog, Speeds};
use trainyard_types::{Cluster, Config, GpuType, Job, JobId, ModelId, Rate, Sample, Span, Time};

/// Models from here on are names without a profile.
const KIN: u32 = 1000;

fn cluster() -> Cluster {
    Cluster::uniform(1, 4, "v100")
}

fn learnt(before: Option<&str>) -> Learnt {
    Learnt::new(Arc::new(Speeds::new(&Catalog::builtin(), &cluster())), KIN as usize, before)
}

fn job(id: u32, model: u32) -> Job {
    Job { model: ModelId(model), ..Job::simple(JobId(id), Time::ZERO, 1) }
}

fn one_gpu() -> Config {
    Config::packed(GpuType(0), 1, 4)
}

fn costs(save: f64, start: f64) -> Sample {
    let span = |seconds| Some(Span::from_secs_f64(seconds));
    Sample { save: span(save), start: span(start), ..Sample::default() }
}

#[test]
fn measured_costs_are_those_of_the_next_job_of_the_same_name() {
    let mut learnt = learnt(None);
    let (first, next, other) = (job(1, KIN), job(2, KIN), job(3, KIN + 1));
    let on = one_gpu();
    let before = learnt.change(&next, Some(&on), Some(&on));
    learnt.observe(&first, Some(&on), &costs(0.25, 3.0));
    let after = learnt.change(&next, Some(&on), Some(&on));
    assert_eq!((after.save, after.start), (Span::from_secs_f64(0.25), Span::secs(3)));
    assert_eq!(learnt.change(&other, Some(&on), Some(&on)), before, "another name is not kin");
    // A newer figure counts for three tenths.
    learnt.observe(&first, Some(&on), &costs(1.25, 3.0));
    assert_eq!(learnt.change(&next, Some(&on), None).save, Span::from_secs_f64(0.55));
    assert_eq!(learnt.change(&next, None, Some(&on)).save, Span::ZERO, "nothing is to be saved");
}

#[test]
fn measured_speed_scales_the_profile_of_all_jobs_of_the_model() {
    let mut learnt = learnt(None);
    let catalog = Catalog::builtin();
    let model = catalog.find("gavel-resnet50-b64").expect("a model of the zoo").0;
    let (first, next) = (job(1, model), job(2, model));
    let on = one_gpu();
    let profile = learnt.rate(&next, &on).expect("a speed").0;
    let sample = Sample { rate: Some(Rate(0.5 * profile)), ..Sample::default() };
    learnt.observe(&first, Some(&on), &sample);
    let believed = learnt.rate(&next, &on).expect("a speed").0;
    assert!((believed / profile - 0.5).abs() < 1e-12, "{believed} of {profile}");
}

#[test]
fn how_a_job_scales_is_learnt_where_it_ran_and_told_of_jobs_of_its_name() {
    let mut learnt = learnt(None);
    let on = |gpus| Config::packed(GpuType(0), gpus, 4);
    let rate =
        |learnt: &Learnt, id, gpus| learnt.rate(&job(id, KIN), &on(gpus)).expect("a speed").0;
    assert_eq!(rate(&learnt, 1, 4), 4.0, "nothing is known: in proportion");
    let reports = |rate| Sample { rate: Some(Rate(rate)), ..Sample::default() };
    learnt.observe(&job(1, KIN), Some(&on(1)), &reports(10.0));
    assert_eq!(rate(&learnt, 1, 4), 40.0, "one number of GPUs tells of no other");
    learnt.observe(&job(1, KIN), Some(&on(4)), &reports(20.0));
    assert_eq!((rate(&learnt, 1, 1), rate(&learnt, 1, 4)), (10.0, 20.0), "both are kept");
    let middle = rate(&learnt, 1, 2);
    assert!((middle - 10.0 * libm::sqrt(2.0)).abs() < 1e-9, "{middle}");
    // Another job of that name has run on one GPU only, and is taken to scale alike.
    learnt.observe(&job(2, KIN), Some(&on(1)), &reports(100.0));
    let more = rate(&learnt, 2, 4);
    assert!((more - 200.0).abs() < 1e-9, "{more}");
}

#[test]
fn a_profile_is_corrected_where_it_was_measured_and_elsewhere_by_the_mean() {
    let mut learnt = learnt(None);
    let model = Catalog::builtin().find("gavel-resnet50-b64").expect("a model of the zoo").0;
    let on = |gpus| Config::packed(GpuType(0), gpus, 4);
    let profile =
        |learnt: &Learnt, gpus| learnt.rate(&job(1, model), &on(gpus)).expect("a speed").0;
    let (one, two, four) = (profile(&learnt, 1), profile(&learnt, 2), profile(&learnt, 4));
    for (gpus, rate) in [(1, one), (4, 0.5 * four)] {
        let sample = Sample { rate: Some(Rate(rate)), ..Sample::default() };
        learnt.observe(&job(1, model), Some(&on(gpus)), &sample);
    }
    let now = [1, 2, 4].map(|gpus| profile(&learnt, gpus));
    for (now, expected) in now.into_iter().zip([one, 0.85 * two, 0.5 * four]) {
        assert!((now / expected - 1.0).abs() < 1e-12, "{now} instead of {expected}");
    }
}

#[test]
fn what_was_learnt_survives_a_restart_and_what_is_damaged_is_learnt_again() {
    let mut before = learnt(None);
    let on = one_gpu();
    let model = Catalog::builtin().find("gavel-resnet50-b64").expect("a model of the zoo").0;
    let sample = Sample { rate: Some(Rate(2.0)), ..costs(0.25, 3.0) };
    before.observe(&job(1, model), Some(&on), &sample);
    before.observe(&job(2, KIN), Some(&on), &sample);
    let kept = before.kept().expect("something to keep");
    let after = learnt(Some(&kept));
    for model in [model, KIN] {
        let next = job(2, model);
        assert_eq!(
            after.change(&next, Some(&on), Some(&on)),
            before.change(&next, Some(&on), Some(&on))
        );
        assert_eq!(after.rate(&next, &on), before.rate(&next, &on));
    }
    let fresh = learnt(None).change(&job(2, KIN), Some(&on), Some(&on));
    assert_eq!(learnt(Some("no JSON")).change(&job(2, KIN), Some(&on), Some(&on)), fresh);
}
