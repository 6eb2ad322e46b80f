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
