//! The backend beside a Slurm that hands out numbers again: programs that print what a test wants and take down what they
//! are told.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use trainyard_backend::{LaunchOrder, NodeShare, Report};
use trainyard_slurm::{CallSettings, Calls, Inventory, Lookout, NodeFilter, Slurm, SlurmOptions};
use trainyard_testkit::orders::Orders;
use trainyard_types::{Attempt, JobId};

/// A Slurm of scripts, with one backend.
struct Yard {
    dir: PathBuf,
    slurm: Slurm,
    reports: Receiver<Report>,
}

const WAIT: Duration = Duration::from_secs(60);

impl Yard {
    fn new(name: &str) -> Yard {
        let dir = std::env::temp_dir().join(format!("ty-reused-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let here = dir.display();
        let nodes = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seen/sinfo-22.05.json");
        put(&dir, "sinfo", &format!("cat '{}'", nodes.display()));
        let few = format!("case $* in *format*) cat '{here}/jobs.txt' ;; *)");
        put(&dir, "squeue", &format!("{few} cat '{here}/jobs.json' ;; esac"));
        let number = format!("n=$(($(cat '{here}/number') + 1)); echo $n >'{here}/number'");
        put(
            &dir,
            "sbatch",
            &format!("{number}; printf '%s\\n' \"$@\" >'{here}/sbatch.'$n; echo $n"),
        );
        for program in ["scontrol", "scancel"] {
            put(&dir, program, &format!("{{ echo {program} \"$@\"; cat; }} >>'{here}/told'"));
        }
        std::fs::write(dir.join("number"), "6").unwrap();
        std::fs::write(dir.join("told"), "").unwrap();
        let yard = dir.clone();
        see(&yard, &[]);
        let settings = CallSettings {
            folder: Some(dir.clone()),
            conf: None,
            timeout: Duration::from_secs(20),
        };
        let calls = Arc::new(Calls::new(settings));
        let inventory =
            Inventory::of(&Lookout::new(&calls).look().unwrap(), &NodeFilter::default());
        let mut options = SlurmOptions::new(dir.join("run"), inventory);
        options.poll = Duration::from_millis(100);
        let (sender, reports) = channel();
        let slurm = Slurm::new(options, calls, move |report| drop(sender.send(report))).unwrap();
        Yard { dir, slurm, reports }
    }

    fn order(&self) -> LaunchOrder {
        LaunchOrder {
            job: JobId(1),
            name: "train".to_owned(),
            argv: vec!["true".to_owned()],
            gpus_wanted: 1,
            ..LaunchOrder::default()
        }
    }

    fn launch(&mut self) {
        let nodes = vec![NodeShare { node: "n1".to_owned(), gpus: vec![0] }];
        let order = LaunchOrder { attempt: Attempt(1), nodes, gpus: vec![0], ..self.order() };
        self.slurm.launch(order);
    }

    /// The comment of a submission, once it was made.
    fn mark(&self, number: u32) -> String {
        let file = self.dir.join(format!("sbatch.{number}"));
        // The file is there before all of it is written.
        let mark = || {
            let text = std::fs::read_to_string(&file).ok()?;
            let (lines, _) = text.rsplit_once('\n')?;
            lines.lines().find_map(|line| line.strip_prefix("--comment=")).map(str::to_owned)
        };
        within("a submission with its comment", || mark().is_some());
        mark().expect("it was there")
    }

    fn told(&self) -> String {
        std::fs::read_to_string(self.dir.join("told")).unwrap()
    }

    fn notice(&self) -> String {
        let end = Instant::now() + WAIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.reports.recv_timeout(left).expect("a notice") {
                Report::Notice { what, .. } => return what,
                _ => continue,
            }
        }
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn put(dir: &Path, program: &str, script: &str) {
    let fresh = dir.join(format!("{program}.new"));
    std::fs::write(&fresh, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&fresh, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::rename(&fresh, dir.join(program)).unwrap();
}

/// What Slurm shows from now on: number, comment, user, submit time.
fn see(dir: &Path, jobs: &[(u32, &str, u32, i64)]) {
    let rows: Vec<serde_json::Value> = jobs
        .iter()
        .map(|(id, comment, uid, submitted)| {
            // Numbers from 20 on are of others, who give names of their own.
            let name = if *id < 20 { "train.ty1-1" } else { "train" };
            serde_json::json!({"job_id": id, "comment": comment, "user_id": uid, "user_name": "x",
                "submit_time": submitted, "job_state": "PENDING", "priority": 0, "name": name})
        })
        .collect();
    let text = serde_json::json!({ "jobs": rows }).to_string();
    let lines: Vec<String> = jobs
        .iter()
        .map(|(id, comment, uid, at)| format!("{id} {uid} {at} 0 PENDING {comment}\n"))
        .collect();
    std::fs::write(dir.join("jobs.txt"), lines.concat()).unwrap();
    std::fs::write(dir.join("jobs.new"), text).unwrap();
    std::fs::rename(dir.join("jobs.new"), dir.join("jobs.json")).unwrap();
}

fn within(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + WAIT;
    while !is_so() {
        assert!(Instant::now() < end, "not within {WAIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn own() -> u32 {
    nix::unistd::geteuid().as_raw()
}

#[test]
fn gpus_that_slurm_counts_as_used_and_no_job_has_are_set_aside_and_given_back() {
    let yard = Yard::new("unaccounted");
    // Its nodes have 2, 2, 8 and 1 GPUs in use, and there is one job, with two GPUs of n1.
    let held = r#"{"jobs":[{"job_id":30,"job_state":"RUNNING","user_id":9,"submit_time":1,"name":"theirs",
        "nodes":"n1","job_resources":{"nodes":"n1"},"gres_detail":["gpu:v100:2(IDX:0-1)"]}]}"#;
    std::fs::write(yard.dir.join("jobs.new"), held).unwrap();
    std::fs::rename(yard.dir.join("jobs.new"), yard.dir.join("jobs.json")).unwrap();
    let mut nodes = std::collections::BTreeMap::new();
    let mut next = || match yard.reports.recv_timeout(WAIT).expect("a report of a node") {
        Report::Node { node, seen } => {
            nodes.insert(node, (seen.claimed, seen.unaccounted));
            nodes.clone()
        }
        _ => nodes.clone(),
    };
    let wanted = [("n1", (2, 0)), ("n2", (0, 2)), ("n3", (0, 8)), ("n4", (0, 1))];
    let wanted = wanted.map(|(node, seen)| (node.to_owned(), seen)).into();
    while next() != wanted {}
    // Slurm finds its count again.
    let counted = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seen/sinfo-22.05.json");
    let sed = r#"s/"gres_used":"gpu:\([a-z0-9]*\):[0-9]*([^)]*)/"gres_used":"gpu:\1:0/g"#;
    put(&yard.dir, "sinfo", &format!("sed '{sed}' '{}'", counted.display()));
    while next().values().any(|(_, unaccounted)| *unaccounted > 0) {}
}

#[test]
fn nothing_is_ever_done_to_a_number_that_names_another_job() {
    let me = own();
    for (name, comment, uid, at, word) in [
        ("comment", "", me, 100, "comment"),
        ("user", "MARK", me + 1, 100, "user"),
        ("time", "MARK", me, 101, "submitted"),
        ("longer", "MARKx", me, 100, "comment"),
    ] {
        let mut yard = Yard::new(name);
        yard.slurm.announce(yard.order());
        let mark = yard.mark(7);
        see(&yard.dir, &[(7, &mark, me, 100)]);
        // It is seen as ours before it is another's: the time is known then.
        within("it is seen", || {
            let entry = std::fs::read_to_string(yard.dir.join("run/slurm/jobs/1/entry.json"));
            entry.is_ok_and(|entry| entry.contains("[[100,0]]"))
        });
        see(&yard.dir, &[(7, &comment.replace("MARK", &mark), uid, at)]);
        yard.launch();
        let notice = yard.notice();
        assert!(notice.contains("Slurm job 7 is not ours") && notice.contains(word), "{notice}");
        // It is submitted again, and that is the one that is put in its place.
        let again = yard.mark(8);
        see(&yard.dir, &[(7, &comment.replace("MARK", &mark), uid, at), (8, &again, me, 200)]);
        within("the new one is released", || yard.told().contains("release 8"));
        yard.slurm.withdraw(JobId(1));
        std::thread::sleep(Duration::from_millis(500));
        for line in yard.told().lines() {
            let touched = line.split([' ', '=']).any(|word| word == "7");
            assert!(!touched, "{name}: {line}");
        }
    }
}

#[test]
fn who_is_cancelled_is_named_by_user_and_name_too() {
    let mut yard = Yard::new("filters");
    yard.slurm.announce(yard.order());
    let mark = yard.mark(7);
    see(&yard.dir, &[(7, &mark, own(), 100)]);
    yard.slurm.withdraw(JobId(1));
    within("it is cancelled", || yard.told().contains("scancel"));
    let told = yard.told();
    assert!(told.contains(&format!("scancel --user={} --name=train.ty1-1 7", own())), "{told}");
}

#[test]
fn a_stray_is_cancelled_only_with_a_mark_that_we_made_for_its_user() {
    let mut yard = Yard::new("stray");
    yard.slurm.announce(yard.order());
    let mark = yard.mark(7);
    let forged = mark.replace(":1:1:", ":2:1:");
    let old = mark.rsplitn(3, ':').last().unwrap().to_owned();
    see(
        &yard.dir,
        &[
            (7, &mark, own(), 100),
            (20, &mark, own() + 1, 100),
            (21, &forged, own(), 100),
            (22, &old, own(), 100),
            // Copied by its own user, under a name that we never gave.
            (23, &mark, own(), 100),
        ],
    );
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(yard.told(), "");
}

#[test]
fn a_slurm_that_changes_every_comment_is_not_flooded_with_jobs() {
    let mut yard = Yard::new("flood");
    yard.slurm.announce(yard.order());
    for number in 7..10 {
        yard.mark(number);
        see(&yard.dir, &[(number, "changed by a plugin", own(), 100)]);
        assert!(yard.notice().contains("is not ours"));
    }
    let trouble = loop {
        match yard.reports.recv_timeout(WAIT).unwrap() {
            Report::Trouble(Some(what)) => break what,
            _ => continue,
        }
    };
    assert!(trouble.contains("job_submit plugin"), "{trouble}");
    std::thread::sleep(Duration::from_secs(4));
    assert!(!yard.dir.join("sbatch.10").exists(), "it waits before it is submitted again");
    assert_eq!(yard.told(), "");
}

#[test]
fn a_job_that_slurm_cannot_tell_the_user_of_is_left_alone_and_not_forgotten() {
    let mut yard = Yard::new("doubt");
    yard.slurm.announce(yard.order());
    let mark = yard.mark(7);
    let text = serde_json::json!({"jobs": [{"job_id": 7, "comment": mark, "submit_time": 100,
        "job_state": "PENDING", "priority": 0, "name": "train"}]});
    std::fs::write(yard.dir.join("jobs.json"), text.to_string()).unwrap();
    std::fs::write(yard.dir.join("jobs.txt"), format!("7 ? 100 0 PENDING {mark}\n")).unwrap();
    yard.launch();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(yard.told(), "");
    assert!(!yard.dir.join("sbatch.8").exists(), "it may be the one");
    see(&yard.dir, &[(7, &mark, own(), 100)]);
    within("it goes on", || yard.told().contains("release 7"));
}

#[test]
fn a_job_that_slurm_forgets_while_it_is_placed_is_submitted_again_and_does_not_fail() {
    let mut yard = Yard::new("forgotten");
    yard.slurm.announce(yard.order());
    let mark = yard.mark(7);
    let here = yard.dir.display().to_string();
    let says = "Could not load state information for job 7: Invalid job id specified";
    put(
        &yard.dir,
        "scontrol",
        &format!("echo scontrol \"$@\" >>'{here}/told'; echo '{says}' >&2; exit 1"),
    );
    see(&yard.dir, &[(7, &mark, own(), 100)]);
    yard.launch();
    within("it is placed", || yard.told().contains("JobId=7"));
    see(&yard.dir, &[]);
    put(&yard.dir, "scontrol", &format!("{{ echo scontrol \"$@\"; cat; }} >>'{here}/told'"));
    let again = yard.mark(8);
    see(&yard.dir, &[(8, &again, own(), 200)]);
    within("the new one is released", || yard.told().contains("release 8"));
    let ended = |report: &Report| matches!(report, Report::Ended { .. } | Report::Gone { .. });
    let reports: Vec<Report> = yard.reports.try_iter().collect();
    assert!(!reports.iter().any(ended), "{reports:?}");
}
