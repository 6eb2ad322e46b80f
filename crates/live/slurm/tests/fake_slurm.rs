//! Slurm that is away, slow, talking nonsense or unwilling: scripts in its place.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trainyard_slurm::{CallError, CallSettings, Calls, Inventory, Lookout, NodeFilter};

/// A folder of programs that do what their scripts say, gone with the test.
struct Fake(PathBuf);

impl Fake {
    fn new(name: &str) -> Fake {
        let path = std::env::temp_dir().join(format!("ty-fake-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Fake(path)
    }

    fn with(self, program: &str, script: &str) -> Fake {
        self.put(program, script);
        self
    }

    fn put(&self, program: &str, script: &str) {
        // Renamed into its place: a script that is open for writing cannot be run.
        let fresh = self.0.join(format!("{program}.new"));
        std::fs::write(&fresh, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&fresh, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::rename(&fresh, self.0.join(program)).unwrap();
    }

    fn calls(&self, timeout: Duration) -> Calls {
        Calls::new(CallSettings { folder: Some(self.0.clone()), conf: None, timeout })
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const LONG: Duration = Duration::from_secs(60);

fn printing(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seen").join(name);
    format!("cat '{}'", path.display())
}

fn look(fake: &Fake) -> Result<trainyard_slurm::SlurmSeen, CallError> {
    Lookout::new(&fake.calls(LONG)).look()
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let error = look(&Fake::new("absent")).unwrap_err();
    assert!(matches!(&error, CallError::NotInstalled { program } if program == "sinfo"), "{error}");
    assert!(!error.may_pass());
}

#[test]
fn a_controller_that_is_away_is_told_by_message_and_by_answer() {
    let fake = Fake::new("away").with("sinfo", &printing("sinfo-22.05.json"));
    let says = "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1";
    for script in [says, &printing("squeue-22.05-down.json")] {
        fake.put("squeue", script);
        let error = look(&fake).unwrap_err();
        assert!(matches!(error, CallError::Down { .. }) && error.may_pass(), "{error}");
    }
}

#[test]
fn a_slow_program_is_killed_at_its_limit() {
    let fake = Fake::new("slow").with("squeue", "echo $$ >\"$0.pid\"; exec sleep 600");
    let calls = fake.calls(Duration::from_millis(700));
    let begin = Instant::now();
    let error = calls.run("squeue", &["--json"]).unwrap_err();
    assert!(matches!(error, CallError::TooSlow { .. }) && error.may_pass(), "{error}");
    assert!(begin.elapsed() < LONG, "the call waited for the program");
    let pid = std::fs::read_to_string(fake.0.join("squeue.pid")).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "process {pid} is still there");
    assert_eq!((calls.spent().calls, calls.spent().failed), (1, 1));
}

#[test]
fn a_program_that_closes_its_output_and_stays_is_killed_too() {
    let fake = Fake::new("stays").with("squeue", "exec >&- 2>&-; exec sleep 600");
    let error = fake.calls(Duration::from_millis(300)).run("squeue", &[]).unwrap_err();
    assert!(matches!(error, CallError::TooSlow { .. }), "{error}");
}

#[test]
fn output_that_is_no_json_is_shown() {
    let fake = Fake::new("nojson").with("sinfo", &printing("sinfo-22.05.json"));
    for script in
        ["echo 'Maintenance today, read the news'", "printf '{\"jobs\": [{\"job_id\"'", "true"]
    {
        fake.put("squeue", script);
        let error = look(&fake).unwrap_err();
        assert!(matches!(error, CallError::NotJson { .. }) && error.may_pass(), "{error}");
        assert!(error.to_string().contains("squeue --json"), "{error}");
    }
}

#[test]
fn an_account_without_rights_is_told_so() {
    let says = "echo 'Invalid user id for job 4' >&2; echo 'slurm_suspend error: Invalid user id' >&2; exit 1";
    let fake = Fake::new("rights").with("scontrol", says);
    let error = fake.calls(LONG).run("scontrol", &["hold", "4"]).unwrap_err();
    assert!(matches!(error, CallError::NoRights { .. }) && !error.may_pass(), "{error}");
    assert!(error.to_string().contains("scontrol hold 4"), "{error}");
}

#[test]
fn a_refusal_keeps_its_message() {
    let says = "echo half; echo 'Invalid node name specified for job 4' >&2; exit 1";
    let fake = Fake::new("refused").with("scontrol", says);
    match fake.calls(LONG).run("scontrol", &["update", "JobId=4"]).unwrap_err() {
        CallError::Refused { message, stdout, .. } => {
            assert_eq!(
                (message.as_str(), stdout.trim()),
                ("Invalid node name specified for job 4", "half")
            );
        }
        other => panic!("{other}"),
    }
}

#[test]
fn input_reaches_a_program_and_one_that_wants_none_does_no_harm() {
    let fake = Fake::new("input").with("sbatch", "wc -c").with("scontrol", "exit 0");
    let large = vec![b'x'; 1 << 20];
    let printed = fake.calls(LONG).run_with("sbatch", &[], &large).unwrap();
    assert_eq!(printed.text().trim(), "1048576");
    fake.calls(LONG).run_with("scontrol", &[], &large).unwrap();
}

#[test]
fn arguments_are_no_shell() {
    let fake = Fake::new("shell").with("scontrol", "for one in \"$@\"; do echo \"<$one>\"; done");
    let printed = fake.calls(LONG).run("scontrol", &["a b", "$(id)", "; rm -rf x"]).unwrap();
    assert_eq!(printed.text(), "<a b>\n<$(id)>\n<; rm -rf x>\n");
}

#[test]
fn a_newer_slurm_is_asked_by_scontrol_and_only_once_by_sinfo() {
    let fake = Fake::new("newer")
        .with("squeue", &printing("squeue-24.05.json"))
        .with("sinfo", &format!("echo x >>\"$0.asked\"; {}", printing("sinfo-24.05.json")))
        .with("scontrol", &printing("scontrol-24.05.json"));
    let calls = fake.calls(LONG);
    let lookout = Lookout::new(&calls);
    for _ in 0..3 {
        let seen = lookout.look().unwrap();
        assert_eq!((seen.nodes.len(), seen.jobs.len(), seen.release.as_str()), (3, 3, "24.05.2"));
    }
    assert_eq!(std::fs::read_to_string(fake.0.join("sinfo.asked")).unwrap().lines().count(), 1);
    // Where scontrol may not be asked, the groups of sinfo do.
    fake.put("scontrol", "exit 1");
    assert_eq!(Lookout::new(&calls).look().unwrap().nodes.len(), 3);
}

#[test]
fn a_renamed_node_is_another_node() {
    let fake = Fake::new("renamed")
        .with("squeue", &printing("squeue-22.05.json"))
        .with("sinfo", &printing("sinfo-22.05.json"));
    let before = Inventory::of(&look(&fake).unwrap(), &NodeFilter::default());
    fake.put("sinfo", &format!("{} | sed 's/\"n2\"/\"n9\"/'", printing("sinfo-22.05.json")));
    let after = Inventory::of(&look(&fake).unwrap(), &NodeFilter::default());
    let names = |inventory: &Inventory| {
        inventory.places.iter().map(|place| place.node.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!((names(&before), names(&after)), ("n1 n2 n3 n4".into(), "n1 n9 n3 n4".into()));
    assert_eq!(after.nodes_of("n2").count(), 0);
}

#[test]
fn a_comment_that_looks_like_rows_of_other_jobs_hides_them_and_invents_none() {
    let rows = "printf '7 1000 50 0 PENDING trainyard:a\\n8 1001 51 9 RUNNING x\\n7 0 1 0 PENDING trainyard:b\\nnonsense\\n'";
    let fake = Fake::new("few").with("squeue", rows);
    let calls = fake.calls(LONG);
    let few = Lookout::new(&calls).few(&[7, 8]).unwrap();
    assert_eq!(few.len(), 1, "{few:?}");
    assert_eq!((few[0].id, few[0].uid, few[0].submitted), (8, Some(1001), Some(51)));
    fake.put("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1");
    assert_eq!(Lookout::new(&calls).few(&[9]).unwrap(), Vec::new());
}
