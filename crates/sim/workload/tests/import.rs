//! Importers: rows made by documented schemas, files at hand, and bytes that mean nothing.

use proptest::prelude::*;
use std::io::Read;
use std::path::PathBuf;
use trainyard_profile::import::pollux;
use trainyard_types::{Cluster, Span, Time};
use trainyard_workload::import::{
    FORMATS, Format, ImportContext, Imported, PIECE_MAX, detect, import, import_any,
};

fn read(text: &str) -> Imported {
    import_any(text.as_bytes(), ImportContext::new("t", None)).expect("a trace")
}

fn refused(text: &str) -> String {
    import_any(text.as_bytes(), ImportContext::new("t", None)).expect_err("a fault").to_string()
}

/// Format, rows, kept, dropped by reason, and each job as `id submit gpus work`.
fn summary(imported: &Imported) -> String {
    let report = &imported.report;
    let mut text = format!("{} {} {}", report.format, report.rows, report.kept);
    for count in &report.dropped {
        text += &format!("; {} {} @{}", count.rows, count.what, count.first_line);
    }
    for one in &imported.workload.jobs {
        let job = &one.job;
        let label = imported.workload.label(job.id);
        let seconds = job.submitted.as_secs_f64();
        text +=
            &format!("\n{label} {seconds} {}x{} {}", job.want.gpus, job.want.permille, one.work.0);
    }
    text
}

#[test]
fn a_workload_of_pollux_follows_the_measured_trainings_there_are() {
    let text = "name,time,application,num_replicas,batch_size\n\
                a,5,cifar10,2,24\nb,6,cifar10,1,99\nc,7,cifar10,1,\nd,8,ncf,1,32768\n";
    let mut context = ImportContext::new("t", None);
    let placements = "placement,local_bsz,step_time,sync_time\n1,8,0.1,0.0\n";
    let epochs = "progress,iteration,metric,grad_sqr,grad_var\n100,100,0.5,1,1\n250,250,0.6,1,2\n";
    let points = pollux::placements(placements, "t4").expect("times");
    let epochs = pollux::validation(epochs).expect("epochs");
    let epochs = vec![(16, epochs.clone()), (32, epochs)];
    let model = pollux::profile(pollux::Authors::Pollux, "cifar10", points, epochs);
    context.catalog.add(model.expect("a training"));
    let imported = import_any(text.as_bytes(), context).expect("a trace");
    let batches: Vec<Option<u32>> =
        imported.workload.jobs.iter().map(|one| one.job.want.batch).collect();
    assert_eq!(batches, [Some(24), None, None]);
    assert_eq!(
        summary(&imported),
        "pollux 4 3; 1 its batch size is outside of what was measured @3\n\
         a 5 2x1000 250\nc 7 1x1000 250\nd 8 1x1000 1549"
    );
}

const PHILLY: &str = r#"[
{"status":"Pass","vc":"6214e9","jobid":"a1","user":"u","submitted_time":"2017-10-09 07:00:00",
 "attempts":[{"start_time":"2017-10-09 07:01:00","end_time":"2017-10-09 07:02:00","detail":[{"ip":"m1","gpus":["g0","g1"]}]},
             {"start_time":"2017-10-09 07:03:00","end_time":"2017-10-09 07:04:30","detail":[{"ip":"m1","gpus":["g0"]},{"ip":"m2","gpus":["g3"]}]}]},
{"status":"Killed","vc":"11cb48","jobid":"a2","submitted_time":"2017-10-09 07:00:10","attempts":[]},
{"status":"Failed","vc":"11cb48","jobid":"a3","submitted_time":"2017-10-09 07:00:20 PDT",
 "attempts":[{"start_time":"2017-10-09 08:00:00","end_time":"None","detail":[]}]},
{"status":"Failed","vc":"11cb48","jobid":"a4","submitted_time":"None","attempts":[]}
]"#;

#[test]
fn philly_sums_attempts_and_counts_gpus_in_their_details() {
    assert_eq!(
        summary(&read(PHILLY)),
        "philly 4 1; 1 it was never attempted @5; 1 no attempt has both a start and an end @6; \
         1 `submitted_time` is missing @8\na1 0 2x1000 150"
    );
}

#[test]
fn helios_and_acme_differ_in_their_zones() {
    let helios = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n\
        1,u1,vcA,8,64,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:01:00,2020-04-01 01:01:00,3600,60\n\
        2,u1,vcA,0,4,1,COMPLETED,2020-04-01 00:00:05,2020-04-01 00:01:00,2020-04-01 01:01:00,3600,60\n\
        3,u2,vcB,1,4,1,CANCELLED,2020-04-01 00:00:10,None,2020-04-01 00:02:00,,\n\
        4,u2,vcB,1,4,1,FAILED,2020-04-01 00:00:20,2020-04-01 00:01:00,2020-04-01 00:01:30,,20\n";
    let imported = read(helios);
    assert_eq!(
        summary(&imported),
        "helios 4 2; 1 it asks for no GPU @3; 1 it never started @4\n1 0 8x1000 3600\n4 20 1x1000 30"
    );
    assert_eq!(imported.report.first, "2020-03-31 16:00:00 UTC");
    let acme = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n\
        a,u,1,8,128,Pretrain,COMPLETED,2023-03-01 08:00:00+08:00,2023-03-01 08:00:10+08:00,2023-03-01 08:10:10+08:00,600,10,4800\n\
        b,u,1,8,128,Evaluation,FAILED,2023-03-01 00:01:00+00:00,2023-03-01 00:02:00+00:00,2023-03-01 00:03:00+00:00,,60,480\n";
    assert_eq!(summary(&read(acme)), "acme 2 2\na 0 8x1000 600\nb 60 8x1000 60");
}

#[test]
fn pai_tasks_have_shares_and_no_header() {
    let text = "j1,worker,2,Terminated,100.0,160.0,600.0,29.0,25.0,T4\n\
        j2,ps,1,Terminated,110.0,150.0,600.0,29.0,,\n\
        j3,worker,1,Failed,120.0,,600.0,29.0,200.0,MISC\n\
        j3,chief,1,Failed,120.0,130.0,600.0,29.0,200.0,V100\n";
    assert_eq!(
        summary(&read(text)),
        "pai2020 4 2; 1 it asks for no GPU @2; 1 `end_time` is missing @3\n\
         j1/worker 100 2x250 15\nj3/chief 120 2x1000 10"
    );
}

#[test]
fn sacct_knows_gpus_steps_and_jobs_that_never_ran() {
    let text = "JobIDRaw|User|Account|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|ReqTRES|AllocTRES\n\
        7|u|lab|COMPLETED|2024-05-01T10:00:00|2024-05-01T10:01:00|2024-05-01T10:11:00|600|60|cpu=8,gres/gpu=2|cpu=8,gres/gpu:a100=2,gres/gpu=2\n\
        7.batch|||COMPLETED|2024-05-01T10:01:00|2024-05-01T10:01:00|2024-05-01T10:11:00|600|||cpu=8\n\
        8|u|lab|CANCELLED by 3|2024-05-01T10:00:00|Unknown|2024-05-01T10:00:30|0|60|cpu=8,gres/gpu=2|\n\
        9|u|lab|TIMEOUT|2024-05-01T10:00:30|2024-05-01T10:01:00|2024-05-01T11:01:00|3600|60|gres/gpu=1|gres/gpu=1\n\
        10|u|lab|RUNNING|2024-05-01T10:00:40|2024-05-01T10:01:00|Unknown|3600|60|gres/gpu=1|gres/gpu=1\n";
    let imported = read(text);
    assert_eq!(
        summary(&imported),
        "sacct 4 2; 1 it never started @4; 1 it is not over yet @6\n7 0 2x1000 600\n9 30 1x1000 3600"
    );
    assert_eq!(imported.cluster.kinds[0].name, "a100");
    assert_eq!(imported.workload.jobs[0].job.run_max, Some(Span::secs(3600)));
    let json = r#"{"meta":{"x":[1]},"jobs":[{"job_id":7,"account":"lab","state":{"current":["COMPLETED"]},
        "time":{"submission":1714557600,"start":1714557660,"end":1714558260,"elapsed":600,"limit":{"set":true,"number":60}},
        "tres":{"allocated":[{"type":"gres","name":"gpu","count":2}]}},
        {"job_id":8,"state":{"current":["PENDING"]},"time":{},"tres":{"requested":[{"type":"gres","name":"gpu","count":2}]}}],"errors":[]}"#;
    assert_eq!(summary(&read(json)), "sacct-json 2 1; 1 it is not over yet @4\n7 0 2x1000 600");
}

#[test]
fn the_history_of_a_daemon_is_a_trace() {
    let text = r#"{"jobs":[
        {"id":2,"name":"c","user":"ada","tenant":"t","state":"running","since":1.0,"gpus":1,"holds":[],"attempt":1,
         "submitted":1714557650.0,"started":1714557651.0,"ended":null,"ran_seconds":3.5,"priority":0,"why":""},
        {"id":1,"name":"b|x","user":"ada","tenant":"t","standing":"cancelled","gpus":2,"submitted":1714557610.5,
         "ended":1714557640.0,"ran_seconds":0.0,"priority":0},
        {"id":0,"name":"a","user":"ada","tenant":"t","state":"finished","gpus":4,"submitted":1714557600.5,
         "ended":1714557700.0,"ran_seconds":60.25,"priority":7}],"schema_version":1}"#;
    let imported = read(text);
    let summary = summary(&imported);
    assert!(summary.starts_with("trainyard-live 3 1; "), "{summary}");
    assert!(summary.contains("1 it is not over yet @2"), "{summary}");
    assert!(summary.ends_with("\n0-a 0 4x1000 60.25"), "{summary}");
    assert_eq!(imported.workload.jobs[0].job.priority, 7);
}

#[test]
fn kubernetes_lists_hold_jobs_and_workloads() {
    let text = r#"{"apiVersion":"v1","kind":"List","items":[
        {"kind":"Workload","metadata":{"name":"w","namespace":"ml","creationTimestamp":"2024-05-01T10:00:00Z"},
         "spec":{"queueName":"team","podSets":[{"count":4,"template":{"spec":{"containers":[{"resources":{"requests":{"nvidia.com/gpu":"8"}}}]}}}]},
         "status":{"conditions":[{"type":"Admitted","status":"True","lastTransitionTime":"2024-05-01T10:05:00Z"},
                                 {"type":"Finished","status":"True","lastTransitionTime":"2024-05-01T11:05:00Z"}]}},
        {"kind":"Job","metadata":{"name":"j","namespace":"ml","creationTimestamp":"2024-05-01T10:00:30Z"},
         "spec":{"parallelism":2,"template":{"spec":{"containers":[{"resources":{"limits":{"nvidia.com/gpu":1}}}]}}},
         "status":{"startTime":"2024-05-01T10:01:00Z","completionTime":"2024-05-01T10:02:00Z"}},
        {"kind":"Job","metadata":{"name":"cpu","creationTimestamp":"2024-05-01T10:00:30Z"},"spec":{"template":{"spec":{"containers":[{}]}}}}
        ]}"#;
    assert_eq!(
        summary(&read(text)),
        "kubernetes 3 2; 1 it asks for no GPU @9\nml/w 0 32x1000 3600\nml/j 30 2x1000 60"
    );
}

#[test]
fn swf_takes_processors_for_gpus() {
    let text = "; UnixStartTime: 1000\n; Computer: X\n\
        1 0 5 100 4 -1 -1 4 200 -1 1 3 2 -1 1 -1 -1 -1\n\
        2 10 5 -1 4 -1 -1 4 200 -1 5 3 2 -1 1 -1 -1 -1\r\n";
    assert_eq!(summary(&read(text)), "swf 2 1; 1 `run` is missing @4\n1 0 4x1000 100");
}

#[test]
fn chronus_has_soft_deadlines_in_minutes() {
    let text = "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,expect_value_list,best_effort,job_type\n\
        0,vc,1,10,5,vgg16,6,14,159-189,10-8,0,soft\n1,vc,0,10,5,vgg16,6,14,159,10,0,strict\n";
    let imported = read(text);
    assert_eq!(summary(&imported), "chronus 2 1; 1 it asks for no GPU @3\n0 600 1x1000 360");
    let value = &imported.workload.jobs[0].job.value;
    assert_eq!(
        value[..],
        [(Time::from_secs_f64(10_140.0), 10.0), (Time::from_secs_f64(11_940.0), 8.0)]
    );
}

#[test]
fn salus_lists_jobs_that_come_at_once_with_their_peak_of_memory() {
    let text = "workload,duration_s,peak_mem_mib,iterations\n\
        vgg16_100_1min,76.735,10445.2,90\nvgg16_100_1min,617.567,10445.2,912\nodd,0,1,1\n";
    let imported = read(text);
    assert!(summary(&imported).starts_with("salus 3 2; 1 it ran for no time @4\n"));
    let [short, long] = &imported.workload.jobs[..] else { panic!("two jobs") };
    assert_eq!(
        (short.job.want.gpu_memory_mib, short.job.want.gpu_memory_persistent_mib),
        (10446, 0)
    );
    assert_eq!(short.job.model, long.job.model, "the same network at the same batch");
    let rate = imported.workload.catalog.get(short.job.model).points[0].rate;
    assert!((short.work.0 - 90.0).abs() < 1e-9 && (long.work.0 / rate - 617.567).abs() < 1e-6);
    assert_eq!(imported.workload.label(long.job.id), "vgg16_100_1min:912");
}

#[test]
fn a_job_that_accepts_several_types_burdens_them_alike() {
    let cluster = trainyard_workload::cluster::parse_line("1x2 v100, 1x6 a100").unwrap();
    let text = "id,submit_s,gpus,duration_s,kinds\n\
        only,0,1,100,v100\nboth,0,2,400,v100|a100\nany,0,2,400,\nlast,1000,1,1e-3,a100\n";
    let context = ImportContext::new("t", Some(&cluster));
    let report = import_any(text.as_bytes(), context).expect("a trace").report;
    // 100 GPU-seconds on two V100s; twice 800 on all eight GPUs; over 1,000 seconds.
    let [v100, a100] = &report.load_by_type[..] else { panic!("two types: {report:?}") };
    let near = |load: Option<f64>, expected: f64| (load.unwrap() - expected).abs() < 1e-6;
    assert!(near(v100.only_load, 0.05) && near(v100.load, 0.05 + 0.2), "{v100:?}");
    assert!(near(a100.only_load, 0.0) && near(a100.load, 0.2), "{a100:?}");
    assert_eq!([v100.jobs, v100.only_jobs, a100.jobs, a100.only_jobs], [3, 1, 3, 1]);
    let shown =
        "  of          v100 0.250 of 2 GPUs by 3 jobs, 0.050 by 1 that accept nothing else\n";
    assert!(report.text().contains(shown), "{}", report.text());
}

#[test]
fn gavel_has_ten_fields_or_the_old_seven() {
    // The published files of the old form are packed as an archive of many; this line is made by their schema.
    let new = "LM (batch size 10)\tcmd\tdir\t--steps\t1\t81652\t1\t2.0\t1.5\t30\n";
    let old = "LM (batch size 10)\tcmd %s\t--steps\t1\t81652\t30\t1\r\n";
    let mixed = format!("{new}\n{old}");
    for (text, expected) in [
        (new, "gavel 1 1\n0 30 1x1000 81652"),
        (old, "gavel 1 1\n0 30 1x1000 81652"),
        (mixed.as_str(), "gavel 2 2\n0 30 1x1000 81652\n2 30 1x1000 81652"),
    ] {
        assert_eq!(summary(&read(text)), expected);
    }
    let imported = read(&mixed);
    let [with, without] = &imported.workload.jobs[..] else { panic!("two jobs") };
    assert_eq!((with.job.weight, without.job.weight), (2.0, 1.0));
    // 81,652 steps are 1,000 seconds on a V100, so the factor of 1.5 gives 1,500 after the arrival.
    assert_eq!(
        (with.job.deadline(), without.job.deadline()),
        (Some(Time::from_secs_f64(1530.0)), None)
    );
    for (text, expected) in [
        (
            new.replace("\t30", ""),
            "line 1: `9 fields` is not valid: expected 10 or 7 fields separated by tabs",
        ),
        (old.replace("81652", "many"), "line 1: `total_steps` cannot be `many`"),
        (old.replace("\t1\r", "\t1.5\r"), "line 1: `scale_factor` cannot be `1.5`"),
    ] {
        let context = ImportContext::new("t", None);
        let format = Format::named("gavel").unwrap();
        let found = import(format, text.as_bytes(), context).unwrap_err().to_string();
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn shockwave_jobs_change_their_batch_as_their_mode_says() {
    let line = |mode: &str, batch: u32, steps: u32, seconds: u32| {
        format!(
            "LM (batch size {batch})\tc\td\t--steps\t1\t{steps}\t1\t{mode}\t1\t-1\t{seconds}\t0\n"
        )
    };
    // An epoch is 5,968 steps of 10; 100 of them at the 94.911 steps a second of the first table.
    let text = [
        line("static", 10, 596_800, 6288),
        line("gns", 10, 596_800, 6288),
        line("gns", 10, 100, 7),
    ];
    let imported = read(&text.concat());
    let jobs = &imported.workload.jobs;
    assert_eq!(imported.report.format, "shockwave");
    let modes: Vec<&str> = jobs.iter().map(|one| one.job.batch_mode.name()).collect();
    assert_eq!(modes, ["static", "gns", "gns"]);
    let batches: Vec<(f64, u32)> =
        jobs[1].batches.iter().map(|phase| (phase.from, phase.batch)).collect();
    assert_eq!(batches, [(0.11, 20), (0.21, 40), (0.41, 80)]);
    assert!(jobs[0].batches.is_empty() && jobs[2].batches.is_empty());
    let name = |index: usize| &imported.workload.catalog.get(jobs[index].job.model).name;
    assert_eq!((name(0).as_str(), name(2).as_str()), ("shockwave-tacc-lm-b10", "generic"));
    let ideal: Vec<f64> =
        imported.workload.ideal(&imported.cluster).iter().map(|span| span.as_secs_f64()).collect();
    // By hand: epochs times their steps over the steps a second of each batch in the authors' table.
    let by_hand = (11.0 * 5968.0) / 94.911
        + (10.0 * 2984.0) / 68.054
        + (20.0 * 1492.0) / 46.823
        + (59.0 * 746.0) / 21.713;
    println!("static {} gns {} by hand {by_hand}", ideal[0], ideal[1]);
    assert!((ideal[0] - 6288.0).abs() < 1.0 && (ideal[2] - 7.0).abs() < 1e-6, "{ideal:?}");
    assert!((ideal[1] - by_hand).abs() < 1e-3 * by_hand, "{} {by_hand}", ideal[1]);
    let wrong = refused(&line("genes", 10, 596_800, 6288));
    assert!(wrong.starts_with("line 1: `mode` cannot be `genes`"), "{wrong}");
}

#[test]
fn a_fault_names_line_field_value_and_what_to_do() {
    let header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n";
    let cases = [
        (
            "p,1,1,1,1000,,LS,Running,0,x,0\n",
            "line 2: `deletion_time` cannot be `x`: expected a number from 0",
        ),
        ("p,1,1,1,1000,,LS,Running,-5,9,0\n", "line 2: `creation_time` cannot be `-5`"),
        ("p,1,1,1e9,1000,,LS,Running,0,9,0\n", "line 2: `num_gpu` cannot be `1e9`"),
        ("p,1,1,1,1000\n", "line 2: `5 fields` is not valid: expected 11 fields"),
        ("p,1,1,1,1000,a b,LS,Running,0,9,0\n", "line 2: `gpu_spec` cannot be `a b`"),
    ];
    for (row, expected) in cases {
        let message = refused(&format!("{header}{row}"));
        assert!(message.contains(expected), "{message}");
    }
    let endless = format!("{header}{}", "p".repeat(PIECE_MAX + (1 << 20)));
    assert!(refused(&endless).contains("longer than that"), "{}", refused(&endless));
    let endless = format!("[{{\"jobid\":\"{}\"}}]", "x".repeat(PIECE_MAX + (1 << 20)));
    assert!(refused(&endless).contains("an element longer"), "{}", refused(&endless));
    assert!(refused("nothing known\n").contains("--format"));
}

#[test]
fn bytes_that_are_no_text_are_named_with_their_line() {
    let cases: [&[u8]; 4] = [
        b"{\"trainyard_trace\":1}\n{\"id\":\xff}\n",
        b"1 0 5 100 4 -1 -1 4 200 -1 1 3 2 -1 1 -1 -1 -1\n2 0 5 100 4 -1 \xff 4 200 -1 1 3 2 -1 1 -1 -1 -1\n",
        b"A3C\tc\td\tf\t0\t5\t1\t1\t-1\t0\nA3C\tc\td\tf\t0\t5\t1\t1\t\xff\t0\n",
        b"id,submit_s,gpus,steps\n\xff,0,1,5\n",
    ];
    for text in cases {
        let error = import_any(text, ImportContext::new("t", None)).expect_err("a fault");
        assert_eq!(error.to_string(), "line 2: `bytes` is not valid: expected text in UTF-8");
    }
}

#[test]
fn mixed_line_ends_and_another_order_of_columns_change_nothing() {
    let text = "deletion_time,name,gpu_milli,num_gpu,creation_time\r\n9,a,460,1,0\n9,b,1000,2,1\r\n9,a,1000,1,2\n";
    assert_eq!(
        summary(&read(text)),
        "openb 3 2; 1 an earlier row has the same id @4\na 0 1x460 4.140000000000001\nb 1 2x1000 8"
    );
}

const SHOCKWAVE_120: &str =
    "shockwave/120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace.gz";

/// A file of published data, if the data is there.
fn published(path: &str) -> Option<Imported> {
    let file = trainyard_testkit::places::shared(&format!("data/{path}"))?;
    let packed = std::fs::read(file).expect(path);
    let mut text = Vec::new();
    match packed.starts_with(&[0x1f, 0x8b]) {
        true => flate2::read::MultiGzDecoder::new(&packed[..]).read_to_end(&mut text).ok()?,
        false => packed.as_slice().read_to_end(&mut text).ok()?,
    };
    Some(import_any(&text[..], ImportContext::new("t", None)).expect(path))
}

#[test]
fn published_files_are_read_with_these_counts() {
    let cases = [
        ("alibaba/gpu-v2023/openb_pod_list_default.csv.gz", "openb", 8152, 7063),
        ("chronus/trace_job_Philly_MIX2.csv.gz", "chronus", 30_940, 30_746),
        ("elasticflow_traces/cluster10.csv", "elasticflow", 0, 0),
        ("elasticflow/traces/philly_103959.csv", "elasticflow", 0, 0),
        ("gavel/traces/physical_cluster/max_min_fairness.trace", "gavel", 96, 96),
        ("pollux/workloads/workload-1.csv", "pollux", 160, 160),
        ("salus_workloads/workloads.csv", "salus", 99, 99),
        ("tiresias/60_job.csv.gz", "tiresias", 60, 60),
        ("muri/trace1.csv.gz", "muri", 0, 0),
        (SHOCKWAVE_120, "shockwave", 120, 120),
    ];
    for (path, format, rows, kept) in cases {
        let Some(imported) = published(path) else { continue };
        let report = &imported.report;
        assert_eq!(report.format, format, "{path}");
        assert_eq!(report.rows, report.kept + report.dropped_rows(), "{path}");
        if rows > 0 {
            assert_eq!((report.rows, report.kept), (rows, kept), "{path}: {:?}", report.dropped);
        }
        assert!(report.duration_s.least > 0.0, "{path}");
    }
}

/// Makespan times utilisation times 32 GPUs of the authors' own simulated runs is what their jobs used.
#[test]
fn shockwave_jobs_use_the_gpu_hours_of_the_authors_simulator() {
    let path = "../../../../shared/golden/shockwave/authors_pickles_tacc32.csv";
    let table = std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path));
    let (Ok(table), Some(imported)) = (table, published(SHOCKWAVE_120)) else {
        trainyard_testkit::skip!("data", "no published runs of Shockwave beside the repository");
        return;
    };
    let ours = imported.report.gpu_hours;
    let mut compared = 0;
    for row in table.lines().skip(1) {
        let fields: Vec<&str> = row.split(',').collect();
        if (fields[0], fields[2], fields[3]) != ("tacc_32gpus", "simulation", "120") {
            continue;
        }
        let number = |at: usize| fields[at].parse::<f64>().expect("a number");
        let theirs = number(4) * number(10) * 32.0 / 3600.0;
        println!("{:<24} theirs {theirs:.1} GPU-hours, ours {ours:.1}", fields[1]);
        assert!((ours / theirs - 1.0).abs() < 0.02, "{}: {theirs} and {ours}", fields[1]);
        compared += 1;
    }
    assert!(compared > 0, "no simulated run in the table");
}

/// Beginnings that lead arbitrary bytes deep into each reader.
const BEGINS: &[&str] = &[
    "",
    "[{\"jobid\":\"a\",",
    "{\"jobs\":[{\"job_id\":1,\"time\":",
    "{\"items\":[{\"metadata\":{",
    "id,submit_s,gpus,duration_s\n1,",
    "{\"trainyard_trace\":1}\n{",
    "JobIDRaw|State|Submit|AllocTRES\n1|",
    "gpu_num,submit_time,state,job_id\n1,",
    "num_gpu,gpu_milli,name,creation_time,deletion_time,gpu_spec\n1,",
    "1 0 5 100 4 -1 -1 4 200 -1 1 3 2 -1 1 -1 -1 -1\n",
    "A3C\tc\td\tf\t0\t5\t1\t1\t-1\t",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_bytes_make_any_reader_panic(
        begin in 0..BEGINS.len(),
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        tail in "[-0-9a-zA-Z,|\t\n\"{}:. \\[\\]]{0,120}",
    ) {
        let cluster = Cluster::uniform(2, 4, "v100");
        for text in [[BEGINS[begin].as_bytes(), &bytes].concat(), [BEGINS[begin].as_bytes(), tail.as_bytes()].concat()] {
            let _ = detect(&text);
            for format in FORMATS {
                for given in [None, Some(&cluster)] {
                    let _ = import(format, &text[..], ImportContext::new("t", given));
                }
            }
        }
    }
}

#[test]
fn every_format_has_a_name_of_its_own() {
    for format in FORMATS {
        assert_eq!(Format::named(format.name).map(|one| one.about), Some(format.about));
    }
}
