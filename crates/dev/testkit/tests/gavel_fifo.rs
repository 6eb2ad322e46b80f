//! `gavel-fifo` under the semantics of Gavel's simulator, against its `fifo_perf`, job by job.

use std::sync::Arc;
use trainyard_framework::RawSettings;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_sim::{Quiet, Semantics, simulate};
use trainyard_testkit::gavel::{Recording, jobs, shared};

/// What the issue allows, in seconds.
const OFF_MAX: f64 = 1e-3;

#[test]
fn every_job_ends_when_it_does_in_the_original() {
    let Some(shared) = shared() else { return };
    let all = Recording::all(&shared).expect("the recordings are read");
    let mut met = 0;
    for recording in all.iter().filter(|one| one.about.policy == "fifo_perf") {
        let settings = RawSettings::parse([]).expect("none");
        let mut selection = Selection {
            policy: Choice { name: "gavel-fifo".to_owned(), settings },
            ..Selection::default()
        };
        selection.wish(Semantics::Gavel.wishes().iter().copied());
        let pipeline = selection.build().expect("defaults build");
        let workload = recording.workload().expect("the trace is read");
        let cluster = Arc::new(recording.cluster());
        let options = Semantics::Gavel.options();
        let outcome = simulate(&workload, &cluster, pipeline, &options, &mut Quiet);
        assert_eq!(outcome.jobs.len(), recording.about.jct_s.len(), "{}", recording.name);
        for (job, theirs) in &recording.about.jct_s {
            let job = jobs(job)[0];
            let submitted = workload.jobs[job.index()].job.submitted;
            let ended = outcome.jobs[job.index()].ended;
            let ours = ended.since(submitted).as_secs_f64();
            assert!((ours - theirs).abs() <= OFF_MAX, "{}: {job} {ours} {theirs}", recording.name);
        }
        met += 1;
    }
    assert_eq!(met, 3, "three traces were recorded");
}
