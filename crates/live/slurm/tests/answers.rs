//! Answers of several versions of Slurm, read into the same words.

use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use std::fmt::Write;
use trainyard_slurm::read::{ReadError, Rows, jobs, nodes};
use trainyard_slurm::{SlurmJob, SlurmNode};

fn file(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seen").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The facts that decide, one job to a line.
fn job_lines(read: &Rows<SlurmJob>) -> String {
    let mut text = String::new();
    for job in &read.rows {
        let held: Vec<String> = job.held.iter().map(|(node, n)| format!("{node}={n}")).collect();
        let _ = writeln!(
            text,
            "{} {} {} {:?} {} gpus={}{:?} nodes={} held={} limit={:?} exit={:?} array={:?}x{} dep={} req={:?}",
            job.id,
            job.name,
            job.state,
            job.flags,
            job.reason,
            job.gpus,
            job.gpu_types,
            job.nodes.join("+"),
            held.join("+"),
            job.time_limit,
            job.exit,
            job.array,
            job.tasks,
            job.dependency,
            job.required_nodes,
        );
    }
    text
}

fn node_lines(read: &Rows<SlurmNode>) -> String {
    let mut text = String::new();
    for node in &read.rows {
        let _ = writeln!(
            text,
            "{} {} {:?} {:?} used={:?} cpus={} mem={} {:?} in {:?} {}",
            node.name,
            node.state,
            node.flags,
            node.gpus,
            node.gpus_used,
            node.cpus,
            node.memory_mib,
            node.features,
            node.partitions,
            node.reason
        );
    }
    text
}

/// What was read is what a person checked once; `SEEN_WRITE=1` writes it anew, to be checked again.
#[track_caller]
fn same(ours: &str, name: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seen").join(name);
    if std::env::var_os("SEEN_WRITE").is_some() {
        std::fs::write(&path, ours).unwrap();
    }
    let expected = String::from_utf8(file(name)).unwrap();
    assert_eq!(ours.lines().collect::<Vec<_>>(), expected.lines().collect::<Vec<_>>(), "{name}");
}

#[test]
fn jobs_of_slurm_22_05_are_read() {
    let read = jobs(&file("squeue-22.05.json")).unwrap();
    assert_eq!((read.release.as_str(), read.skipped.count), ("22.05.8", 0));
    same(&job_lines(&read), "squeue-22.05.txt");
    let gang = read.rows.iter().find(|job| job.name == "gang").unwrap();
    assert_eq!((gang.user.as_str(), gang.comment.as_str()), ("root", "trainyard:abc"));
    assert!(gang.submitted.unwrap() < gang.started.unwrap());
    let held = read.rows.iter().find(|job| job.name == "held").unwrap();
    assert_eq!((held.priority, held.eligible, held.started), (0, None, None));
    let ended = jobs(&file("squeue-22.05-ended.json")).unwrap();
    same(&job_lines(&ended), "squeue-22.05-ended.txt");
}

#[test]
fn nodes_of_slurm_22_05_are_read() {
    let read = nodes(&file("sinfo-22.05.json")).unwrap();
    same(&node_lines(&read), "sinfo-22.05.txt");
}

#[test]
fn a_controller_that_is_away_is_no_empty_queue() {
    let error = jobs(&file("squeue-22.05-down.json")).unwrap_err();
    assert!(matches!(error, ReadError::Errors(_)), "{error:?}");
    assert!(error.to_string().contains("slurm_load_jobs"), "{error}");
}

#[test]
fn jobs_of_slurm_23_02_are_read() {
    let read = jobs(&file("squeue-23.02.json")).unwrap();
    assert_eq!((read.release.as_str(), read.at), ("23.02.4", Some(1_700_000_100)));
    same(&job_lines(&read), "squeue-23.02.txt");
}

#[test]
fn jobs_of_slurm_24_05_are_read() {
    let read = jobs(&file("squeue-24.05.json")).unwrap();
    assert_eq!((read.release.as_str(), read.at), ("24.05.2", Some(1_700_000_100)));
    same(&job_lines(&read), "squeue-24.05.txt");
    assert_eq!(read.rows[0].submitted, Some(1_699_990_000));
}

#[test]
fn nodes_of_slurm_24_05_are_read_in_both_forms() {
    let read = nodes(&file("scontrol-24.05.json")).unwrap();
    same(&node_lines(&read), "scontrol-24.05.txt");
    let grouped = nodes(&file("sinfo-24.05.json")).unwrap();
    same(&node_lines(&grouped), "sinfo-24.05.txt");
}

#[test]
fn what_is_no_answer_is_shown_by_its_first_bytes() {
    let shown = |text: &str| jobs(text.as_bytes()).unwrap_err().to_string();
    assert!(shown("").contains("it is empty"));
    assert!(shown("slurm_load_jobs error: x\n").contains("begins with `slurm_load_jobs error: x"));
    assert!(shown("{\"jobs\": 7}").contains("`jobs` is no list"));
    assert!(shown("{}").contains("no list `jobs`"));
    assert!(shown("{\"jobs\":[{\"job_id\":1").contains("EOF"));
    assert!(shown("[1,2]").contains("no JSON of Slurm"));
}

/// JSON of any shape, with the keys that the readers know among others.
fn any_json() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        Just("job_id"),
        Just("job_state"),
        Just("nodes"),
        Just("gres_detail"),
        Just("tres_per_node"),
        Just("exit_code"),
        Just("time_limit"),
        Just("number"),
        Just("set"),
        Just("infinite"),
        Just("name"),
        Just("state"),
        Just("gres"),
        Just("node"),
        Just("errors"),
        Just("meta"),
        Just("array_task_string"),
        Just("partition"),
        Just("other"),
        Just("jobs"),
        Just("sinfo"),
    ];
    let text = prop_oneof![
        Just("PENDING".to_owned()),
        Just("RUNNING".to_owned()),
        Just("gpu:a100:8(S:0-1)".to_owned()),
        Just("n[1-4,7]".to_owned()),
        "[a-z0-9\\[\\],:=%()/-]{0,12}",
    ];
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        any::<i64>().prop_map(|value| value.to_string()),
        any::<u64>().prop_map(|value| value.to_string()),
        (-1e300..1e300).prop_map(|value: f64| format!("{value:e}")),
        text.prop_map(|text| format!("\"{text}\"")),
    ];
    leaf.prop_recursive(5, 64, 8, move |inner| {
        let pair =
            (key.clone(), inner.clone()).prop_map(|(key, value)| format!("\"{key}\":{value}"));
        prop_oneof![
            proptest::collection::vec(inner, 0..6).prop_map(|all| format!("[{}]", all.join(","))),
            proptest::collection::vec(pair, 0..8).prop_map(|all| format!("{{{}}}", all.join(","))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_json_is_too_odd(inner in any_json()) {
        let beside = format!("{{\"jobs\":[{inner},{{\"job_id\":1,\"job_state\":\"PENDING\"}}]}}");
        let read = jobs(beside.as_bytes()).unwrap();
        assert!(read.rows.iter().any(|job| job.id == 1), "a good job is lost beside {inner}");
        assert_eq!(read.rows.len() + read.skipped.count as usize, 2);
        let _ = jobs(inner.as_bytes());
        let _ = nodes(inner.as_bytes());
        for list in ["nodes", "sinfo"] {
            let read = nodes(format!("{{\"{list}\":[{inner}]}}").as_bytes()).unwrap();
            assert!(read.rows.len() <= 1 << 16);
        }
    }
}
