//! Our own trace format: text in, text out.

use proptest::prelude::*;
use std::sync::Arc;
use trainyard_profile::{Batches, Catalog, ModelProfile};
use trainyard_types::{
    Class, Cluster, GpuType, GroupId, Job, JobId, Labels, ModelId, PoolId, Span, Tenants, Time,
    Want, Work,
};
use trainyard_workload::trace::{TraceContext, read_csv, read_jsonl, write_csv, write_jsonl};
use trainyard_workload::{BatchPhase, TraceJob, Workload, cluster};

fn small() -> Cluster {
    cluster::parse_line("2x4 v100, 1x4 a100").unwrap()
}

fn csv(text: &str) -> Result<Workload, String> {
    let cluster = small();
    read_csv(text.as_bytes(), TraceContext::new("t", &cluster)).map_err(|error| error.to_string())
}

fn jsonl(text: &str) -> Result<Workload, String> {
    let cluster = small();
    read_jsonl(text.as_bytes(), TraceContext::new("t", &cluster)).map_err(|error| error.to_string())
}

#[test]
fn the_smallest_trace_needs_four_columns() {
    let workload = csv("gpus,id,duration_s,submit_s\n2,0,10.5,3\n1,1,4,1.25\n").unwrap();
    let found: Vec<(String, Time, u32, Work)> = workload
        .jobs
        .iter()
        .map(|one| (workload.label(one.job.id), one.job.submitted, one.job.want.gpus, one.work))
        .collect();
    assert_eq!(
        found,
        [
            ("1".to_owned(), Time(1_250_000), 1, Work(4.0)),
            ("0".to_owned(), Time(3_000_000), 2, Work(10.5))
        ]
    );
    assert!(csv("id,submit_s,gpus,steps\n0,0,1,5\n1,0,1,5\n").unwrap().labels.is_empty());
}

#[test]
fn a_duration_becomes_work_at_the_models_speed() {
    let text = "id,submit_s,gpus,duration_s,model,kinds\na,0,1,100,gavel-a3c,\nb,0,1,100,gavel-a3c,a100|v100\n";
    let workload = csv(text).unwrap();
    assert_eq!(workload.jobs[0].work, Work(7.1758 * 100.0));
    assert!(workload.jobs[1].work.0 > 1000.0, "on an a100");
    assert_eq!(workload.jobs[1].job.want.kinds[..], [GpuType(1), GpuType(0)]);
}

#[test]
fn names_of_other_jobs_are_resolved_whatever_the_order() {
    let workload = csv("id,submit_s,gpus,steps,after\nz,9,1,5,y|x\ny,5,1,5,\nx,7,1,5,y\n").unwrap();
    assert_eq!(workload.labels, ["y", "x", "z"]);
    assert_eq!(workload.jobs[2].job.after, [JobId(0), JobId(1)]);
    assert_eq!(workload.jobs[1].job.after, [JobId(0)]);
}

#[test]
fn every_fault_names_line_field_value_and_expectation() {
    let head = "id,submit_s,gpus,steps,model,kinds,gpus_min,class,after,deadline_s,value\n";
    for (row, expected) in [
        (
            "a,0,0,5,,,,,,,",
            "line 2: `gpus` cannot be `0`: expected a whole number from 1 to 1000000",
        ),
        ("a,-1,1,5,,,,,,,", "line 2: `submit_s` cannot be `-1`: expected seconds"),
        ("a,nan,1,5,,,,,,,", "line 2: `submit_s` cannot be `nan`"),
        ("a,1e99,1,5,,,,,,,", "line 2: `submit_s` cannot be `1e99`"),
        ("a,0,99999999999,5,,,,,,,", "line 2: `gpus` cannot be `99999999999`"),
        (
            "a,0,1,0,,,,,,,",
            "line 2: `steps` cannot be `0`: expected steps, more than 0 and at most 1e18",
        ),
        (
            "a,0,1,1e300,,,,,,,",
            "line 2: `steps` cannot be `1e300`: expected steps, more than 0 and at most 1e18",
        ),
        ("a,0,1,,,,,,,,", "line 2: `steps` is missing: expected either `steps` or `duration_s`"),
        ("a,0,,5,,,,,,,", "line 2: `gpus` is missing"),
        (",0,1,5,,,,,,,", "line 2: `id` is missing"),
        (
            "a,0,1,5,genric,,,,,,",
            "line 2: `model` cannot be `genric`: expected the name of a model in the catalog; did you mean `generic`?",
        ),
        (
            "a,0,1,5,,v10,,,,,",
            "line 2: `kinds` cannot be `v10`: expected one of `v100`, `a100`; did you mean `v100`?",
        ),
        ("a,0,1,5,,,2,,,,", "line 2: `gpus_min` cannot be `2`: expected at most `gpus`, 1"),
        ("a,0,1,5,,,,garanteed,,,", "line 2: `class` cannot be `garanteed`"),
        (
            "a,0,1,5,,,,,b,,",
            "line 2: `after` cannot be `b`: expected the id of a job in this trace",
        ),
        ("a,0,1,5,,,,,,9,8:1", "line 2: `deadline_s` cannot be `9`: expected either"),
        ("a,0,1,5,,,,,,,8:1|7:1", "line 2: `value` cannot be"),
        (
            "a,0,1,5,,,,,,,\na,1,1,5,,,,,,,",
            "line 3: `id` cannot be `a`: expected an id that no earlier job has",
        ),
        ("a,0,1,5", "line 2: `4 fields` is not valid: expected 11 fields, as in the header"),
    ] {
        let found = csv(&format!("{head}{row}\n")).unwrap_err();
        assert!(found.starts_with(expected), "{found}\n  does not start with\n{expected}");
    }
    let found = csv("id,submit_s,gpsu,steps\n").unwrap_err();
    assert!(found.contains("did you mean `gpus`?"), "{found}");
    assert!(csv("id,submit_s,gpus\n").unwrap_err().contains("`steps` is missing"));
    assert!(csv("id,id\n").unwrap_err().contains("every column once"));
    assert!(csv("").is_err());
}

#[test]
fn json_lines_take_the_same_names() {
    let text = "{\"trainyard_trace\":1}\n\n{\"id\":\"a\",\"submit_s\":1.5,\"gpus\":2,\"steps\":7,\"kinds\":[\"a100\"],\
                \"value\":[[60,2],[90,1]],\"preemptible\":false}\n{\"id\":3,\"submit_s\":0,\"gpus\":1,\"steps\":1,\"after\":[\"a\"]}\n";
    let workload = jsonl(text).unwrap();
    assert_eq!(workload.labels, ["3", "a"]);
    let job = &workload.jobs[1].job;
    assert_eq!(job.value, [(Time(60_000_000), 2.0), (Time(90_000_000), 1.0)]);
    assert!(!job.preemptible && job.want.kinds[..] == [GpuType(1)]);
    for (text, expected) in [
        ("", "line 1: `trainyard_trace` is missing"),
        ("{\"id\":1}\n", "line 1: `submit_s` is missing"),
        (
            "{\"trainyard_trace\":2}\n",
            "line 1: `trainyard_trace` cannot be `2`: expected version 1",
        ),
        ("{\"trainyard_trace\":1}\n[]\n", "line 2: `[]` is not valid: expected one JSON object"),
        ("{\"trainyard_trace\":1}\n{\"gpsu\":1}\n", "line 2: `key` cannot be `gpsu`"),
        ("{\"trainyard_trace\":1}\n{\"gpus\":{}}\n", "line 2: `gpus` cannot be `{}`"),
    ] {
        let found = jsonl(text).unwrap_err();
        assert!(found.starts_with(expected), "{found}\n  does not start with\n{expected}");
    }
}

prop_compose! {
    fn any_want()(
        (gpus, less, more) in (1..64u32, 0..4u32, 0..4u32),
        kinds in prop::collection::vec(0..2u8, 0..2),
        permille in prop_oneof![Just(1000u16), 1..1000u16],
        (memory, cpus, host, nodes_max) in (0..9u32, 0..9u16, 0..9u32, 0..3u16),
        pool in prop::option::of(Just(PoolId(0))),
        batch in prop::option::of(1..5000u32),
        (above, kept) in (0..3u16, 0..9u32),
    ) -> Want {
        Want {
            gpus_min: gpus.saturating_sub(less).max(1),
            gpus_max: gpus + more,
            kinds: kinds.into_iter().map(GpuType).collect(),
            permille,
            permille_max: if above > 0 { permille + above * (1000 - permille) / 2 } else { 0 },
            gpu_memory_persistent_mib: kept.min(memory),
            gpu_memory_mib: memory, cpus_per_gpu: cpus, memory_mib_per_gpu: host, nodes_max, pool, batch,
            ..Want::gpus(gpus)
        }
    }
}

/// A model that is trained with batches of 32, and the same with 64: 8 and 6 steps a second.
fn growing() -> Catalog {
    let mut catalog = Catalog::builtin();
    let batches = Batches { own: 32, epoch_samples: 0, others: vec![(64, "large".to_owned())] };
    catalog
        .add(ModelProfile { batches: Some(batches), ..ModelProfile::steady("small", "test", 8.0) });
    catalog.add(ModelProfile::steady("large", "test", 6.0));
    catalog
}

#[test]
fn batches_are_read_written_and_priced_in_both_forms() {
    let cluster = small();
    let context = || TraceContext { catalog: growing(), ..TraceContext::new("t", &cluster) };
    let text = "id,submit_s,gpus,steps,model,batch_mode,batches\n\
        a,0,1,9600,small,accordion,0.25:64|0.5:32\nb,1,1,9600,small,gns,\nc,2,1,5,,,\n";
    let workload = read_csv(text.as_bytes(), context()).unwrap();
    let modes: Vec<&str> = workload.jobs.iter().map(|one| one.job.batch_mode.name()).collect();
    assert_eq!(modes, ["accordion", "gns", "static"]);
    let phases = [BatchPhase { from: 0.25, batch: 64 }, BatchPhase { from: 0.5, batch: 32 }];
    assert_eq!(workload.jobs[0].batches[..], phases);
    assert_eq!(workload.ideal(&cluster)[..2], [Span::secs(1100), Span::secs(1200)]);
    let (mut csv, mut jsonl) = (Vec::new(), Vec::new());
    write_csv(&workload, &cluster, &mut csv).unwrap();
    write_jsonl(&workload, &cluster, &mut jsonl).unwrap();
    assert_eq!(String::from_utf8(csv.clone()).unwrap(), text);
    assert_eq!(read_csv(&csv[..], context()).unwrap(), workload);
    assert_eq!(read_jsonl(&jsonl[..], context()).unwrap(), workload);
    // A duration is that of the whole way, so that the same job comes of it.
    let seconds = "id,submit_s,gpus,duration_s,model,batches\na,0,1,1100,small,0.25:64|0.5:32\n";
    let work = read_csv(seconds.as_bytes(), context()).unwrap().jobs[0].work.0;
    assert!((work - 9600.0).abs() < 1e-6, "{work}");
}

#[test]
fn batches_that_make_no_sense_are_refused() {
    let cluster = small();
    for (model, batches, expected) in [
        ("small", "0.5:64|0.5:32", "line 2: `batches` cannot be `0.5:64|0.5:32`: expected parts"),
        ("small", "1:64", "line 2: `batches` cannot be `1:64`"),
        ("small", "nan:64", "line 2: `batches` cannot be `nan:64`"),
        ("small", "0.1:0", "line 2: `batches` cannot be `0.1:0`"),
        ("small", "0.1", "line 2: `batches` cannot be `0.1`"),
        ("large", "0.1:64", "expected none: the profile of `large` says nothing about `batches`"),
        ("", "0.1:64", "expected none: the profile of `generic` says nothing about `batches`"),
    ] {
        let text = format!("id,submit_s,gpus,steps,model,batches\na,0,1,5,{model},{batches}\n");
        let context = TraceContext { catalog: growing(), ..TraceContext::new("t", &cluster) };
        let found = read_csv(text.as_bytes(), context).unwrap_err().to_string();
        assert!(found.contains(expected), "{found}\n  does not hold\n{expected}");
    }
    let found = csv("id,submit_s,gpus,steps,batch_mode\na,0,1,5,accordeon\n").unwrap_err();
    assert!(found.ends_with("did you mean `accordion`?"), "{found}");
}

prop_compose! {
    fn any_job(count: usize)(
        want in any_want(),
        (submitted, work) in (0..1u64 << 50, 1e-9..1e15f64),
        (model, tenant, priority) in (0..9u32, 0..3u32, any::<i32>()),
        (weight, class) in (1e-3..1e3f64, 0..3u8),
        (declared, fails_at) in (prop::option::of(1e-3..1e9f64), prop::option::of(1e-3..1e9f64)),
        value in prop::collection::btree_map(0..1u64 << 50, -9.0..9.0f64, 0..3),
        after in prop::collection::btree_set(0..count as u32, 0..2),
        (not_before, run_max) in (prop::option::of(0..1u64 << 50), prop::option::of(0..1u64 << 50)),
        labels in prop::array::uniform3(prop::option::of("[a-z._-]{1,5}")),
        (min_run, preemptible, retries_max, group) in (0..1u64 << 40, any::<bool>(), any::<u16>(), prop::option::of(0..9u32)),
    ) -> TraceJob {
        let job = Job {
            tenant: trainyard_types::TenantId(tenant),
            model: ModelId(model),
            want,
            class: [Class::Guaranteed, Class::BestEffort, Class::Opportunistic][usize::from(class)],
            priority, weight,
            declared: declared.map(Work),
            value: value.into_iter().map(|(time, value)| (Time(time), value)).collect(),
            after: after.into_iter().map(JobId).collect(),
            not_before: not_before.map(Time),
            run_max: run_max.map(Span),
            min_run: Span(min_run),
            preemptible, retries_max,
            group: group.map(GroupId),
            labels: Labels::of(labels[0].as_deref(), labels[1].as_deref(), labels[2].as_deref()),
            ..Job::simple(JobId(0), Time(submitted), 1)
        };
        TraceJob { fails_at: fails_at.map(Work), ..TraceJob::new(job, Work(work)) }
    }
}

fn any_workload() -> impl Strategy<Value = Workload> {
    let jobs = (1..8usize).prop_flat_map(|count| prop::collection::vec(any_job(count), count));
    (jobs, any::<bool>()).prop_map(|(mut jobs, named)| {
        jobs.sort_by_key(|one| one.job.submitted);
        for (index, one) in jobs.iter_mut().enumerate() {
            Arc::get_mut(&mut one.job).unwrap().id = JobId(index as u32);
        }
        let mut tenants = Tenants::default();
        tenants.intern("a, \"quoted\" team");
        tenants.intern("b");
        let labels =
            if named { (0..jobs.len()).map(|k| format!("job {k}")).collect() } else { Vec::new() };
        Workload { jobs, tenants, labels, catalog: Catalog::builtin(), ..Workload::empty("t") }
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        rng_seed: proptest::test_runner::RngSeed::Fixed(11),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_written_trace_reads_back_the_same(workload in any_workload()) {
        let cluster = small();
        let context = || TraceContext { tenants: workload.tenants.clone(), ..TraceContext::new("t", &cluster) };
        let mut text = Vec::new();
        write_csv(&workload, &cluster, &mut text).unwrap();
        let back = read_csv(&text[..], context()).unwrap();
        prop_assert_eq!((&back.jobs, &back.labels), (&workload.jobs, &workload.labels));
        let mut text = Vec::new();
        write_jsonl(&workload, &cluster, &mut text).unwrap();
        let back = read_jsonl(&text[..], context()).unwrap();
        prop_assert_eq!((&back.jobs, &back.labels), (&workload.jobs, &workload.labels));
        prop_assert!(back == workload);
    }

    #[test]
    fn no_text_makes_a_reader_panic(
        text in "\\PC*",
        rows in "([a-z0-9,.|:\"\n-]{0,40}\n){0,4}",
        fields in prop::collection::vec(prop::collection::vec("[0-9a-z.:|-]{0,4}", 11), 0..4),
    ) {
        let head = "id,submit_s,gpus,steps,model,kinds,gpus_min,class,after,deadline_s,value\n";
        let table: Vec<String> = fields.iter().map(|row| row.join(",")).collect();
        for text in [text.clone(), rows.clone(), format!("{head}{rows}"), format!("{head}{}", table.join("\n"))] {
            let _ = csv(&text);
            let _ = jsonl(&text);
            let _ = jsonl(&format!("{{\"trainyard_trace\":1}}\n{text}"));
            let _ = cluster::parse(&text);
            let _ = trainyard_workload::scenario::parse(&text);
            let _ = trainyard_workload::tiresias::read(text.as_bytes(), "t");
            let _ = trainyard_workload::switches::read(text.as_bytes(), "v100");
        }
    }

    #[test]
    fn no_line_of_known_words_makes_the_scenario_reader_panic(
        lines in prop::collection::vec(
            "(cluster [0-9]x[0-9] v100|job [a-c]( (at|wants|work|min|max|after|share|deadline|model|kinds|class) [0-9a-cs.|,-]{1,4}){0,4}\
             |fail (node|gpu) [0-9.]{1,3} at [0-9]s( for [0-9]s)?|cancel [a-c] at [0-9]s|tenant [a-c] (weight|ceiling|parent) [0-9a-c]|costs flat [a-z=0-9]{1,9})",
            0..6,
        ),
    ) {
        let _ = trainyard_workload::scenario::parse(&lines.join("\n"));
        let _ = trainyard_workload::scenario::parse(&format!("cluster 2x4 v100\n{}", lines.join("\n")));
    }
}
