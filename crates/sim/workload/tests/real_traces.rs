//! The published traces themselves, where they are at hand.

use flate2::read::GzDecoder;
use std::fs::File;
use trainyard_profile::Speeds;
use trainyard_testkit::places::shared;
use trainyard_types::{Cluster, Config, GpuType, JobId, Span, Time};
use trainyard_workload::muri::{MuriOptions, MuriTrace};
use trainyard_workload::{muri, switches, tiresias};

/// A file of the published data, or `None` with a message when it is not there.
fn data(path: &str) -> Option<GzDecoder<File>> {
    let path = shared(&format!("data/{path}"))?;
    Some(GzDecoder::new(File::open(path).expect("a file that exists opens")))
}

#[test]
fn the_sixty_jobs_of_tiresias_are_read() {
    let Some(file) = data("tiresias/60_job.csv.gz") else { return };
    let workload = tiresias::read(file, "60_job").unwrap();
    assert_eq!(workload.jobs.len(), 60);
    assert!(workload.labels.is_empty());
    let one = &workload.jobs[1];
    assert_eq!((one.job.submitted, one.job.want.gpus, one.work.0), (Time(30_000_000), 8, 147.0));
    let profile = workload.catalog.get(one.job.model);
    assert_eq!((profile.name.as_str(), profile.skew), ("vgg11", Some(0.773)));
    let Some(file) = data("tiresias/n32g4.csv.gz") else { return };
    let cluster = switches::read(file, "p100").unwrap();
    assert_eq!((cluster.nodes.len(), cluster.gpus()), (32, 128));
    assert_eq!(workload.check(&cluster), []);
}

fn muri_trace(name: &str) -> Option<MuriTrace> {
    let file = data(&format!("muri/{name}.csv.gz"))?;
    Some(muri::read(file, &MuriOptions::named(name)).unwrap())
}

#[test]
fn the_traces_of_muri_are_read() {
    let names = ["trace1", "trace2", "trace3", "trace4"];
    for (name, count) in names.into_iter().zip([1494, 5755, 992, 2638]) {
        let Some(trace) = muri_trace(name) else { return };
        let cluster = Cluster::uniform(8, 8, "v100");
        assert_eq!((trace.workload.jobs.len(), trace.stages.len()), (count, count));
        assert_eq!(trace.workload.check(&cluster), []);
        assert_eq!(trace.workload.catalog.len(), 9, "eight models and the generic one");
        let Some(all_at_once) = muri_trace(&format!("{name}_pr")) else { return };
        assert_eq!(all_at_once.workload.span(), Span::ZERO);
    }
}

#[test]
fn muri_speeds_and_starts_are_those_of_its_simulator() {
    let Some(MuriTrace { workload, stages }) = muri_trace("trace3") else { return };
    let cluster = Cluster::uniform(8, 8, "v100");
    let speeds = Speeds::new(&workload.catalog, &cluster);
    // The first job: shufflenet on 4 GPUs, 886 ms for an iteration, 5 s to start.
    let first = &workload.jobs[0];
    let mut config = Config::packed(GpuType(0), 4, 8);
    let expected = 1000.0 / (886.0 * 1.015);
    assert!((speeds.rate(first.job.model, &config).unwrap().0 / expected - 1.0).abs() < 1e-14);
    assert_eq!(first.work.0, 1_046_811.0);
    assert_eq!(speeds.change(first.job.model, None, Some(&config)).start, Span::secs(5));
    // Placement does not matter there.
    config.nodes = 4;
    assert!((speeds.rate(first.job.model, &config).unwrap().0 / expected - 1.0).abs() < 1e-14);
    assert_eq!((stages[0].load, stages[0].priority), (Span(703_000), 0));
    assert_eq!((stages[1].compute, stages[1].priority), (Span(113_000), 1));
    assert_eq!(workload.jobs[2].job.submitted, Time(352_430_000_000));
    assert_eq!(workload.jobs[2].job.id, JobId(2));
    let load: f64 = workload
        .jobs
        .iter()
        .map(|one| {
            one.work.0
                / speeds
                    .rate(one.job.model, &Config::packed(GpuType(0), one.job.want.gpus, 8))
                    .unwrap()
                    .0
                * f64::from(one.job.want.gpus)
        })
        .sum::<f64>()
        / workload.span().as_secs_f64()
        / 64.0;
    assert!((load - workload.offered_load(&cluster)).abs() < 1e-9);
    assert!((0.7..0.9).contains(&load), "{load}");
}
