//! TOML, YAML and JSON.

use crate::{NOW, fault, jobs};
use trainyard_api::{BatchRule, Checkpoint, JobClass, JobSpec, Notify, NotifyOn, Processes};
use trainyard_jobfile::Form;

const TOML: &str = r#"
name = "resnet"
command = ["torchrun", "train.py", "--epochs", 3, ""]
cwd = "/data"
tenant = "vision"
gpus = 4
gpus_min = 2
gpus_max = 8
gpu_type = "a100"
gpu_memory = "40GB"
cpus_per_gpu = 8
memory = "256GiB"
processes = "per-gpu"
priority = -5
model = "gavel-resnet50-b64"
steps = 1e5
deadline = "6h"
after = [3, 4]
begin = "2026-05-01T14:00"
time_limit = "2h"
min_run = "10m"
preemptible = false
retries = 1
hold = true
array = "0-9%4"
[env]
OMP_NUM_THREADS = 8
PYTHONPATH = "src"
[checkpoint]
signal = "USR1"
grace = "2m"
dir = "/ckpt"
"#;

const YAML: &str = r#"
# The same job.
name: resnet
command: [torchrun, train.py, --epochs, 3, ""]
cwd: /data
tenant: vision
gpus: 4
gpus_min: 2
gpus_max: 8
gpu_types: [a100]
gpu_memory_mib: 38147
cpus: 32
memory_per_gpu: 64GiB
processes: per-gpu
priority: -5
model: gavel-resnet50-b64
steps: 100000
deadline_seconds: 21600
after: [3, 4]
begin: now+2h
time_limit_seconds: 7200
min_run: 600
preemptible: false
retries: 1
hold: true
array: 0-9%4
env:
  OMP_NUM_THREADS: 8
  PYTHONPATH: src
checkpoint: {signal: USR1, grace_seconds: 120, dir: /ckpt}
"#;

#[test]
fn friendly_and_plain_names_give_the_same_job_in_every_notation() {
    let expected = JobSpec {
        name: "resnet".into(),
        argv: ["torchrun", "train.py", "--epochs", "3", ""].map(String::from).to_vec(),
        cwd: Some("/data".into()),
        env: [("OMP_NUM_THREADS", "8"), ("PYTHONPATH", "src")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        tenant: Some("vision".into()),
        gpus: 4,
        gpus_min: Some(2),
        gpus_max: Some(8),
        gpu_types: vec!["a100".into()],
        gpu_memory_mib: 38_147,
        cpus_per_gpu: 8,
        memory_mib_per_gpu: 64 * 1024,
        processes: Processes::PerGpu,
        priority: -5,
        model: Some("gavel-resnet50-b64".into()),
        steps: Some(1e5),
        deadline_seconds: Some(6.0 * 3600.0),
        after: vec![3, 4],
        begin: Some(NOW + 7200.0),
        time_limit_seconds: Some(7200.0),
        min_run_seconds: 600.0,
        preemptible: false,
        retries: 1,
        checkpoint: Checkpoint {
            signal: "USR1".into(),
            grace_seconds: 120.0,
            dir: Some("/ckpt".into()),
            exit_code: 85,
        },
        hold: true,
        array: Some("0-9%4".into()),
        ..JobSpec::default()
    };
    assert_eq!(jobs(Form::Toml, TOML), std::slice::from_ref(&expected));
    assert_eq!(jobs(Form::Yaml, YAML), std::slice::from_ref(&expected));
    let json = serde_json::to_string_pretty(&expected).expect("JSON").replace("  ", "\t");
    assert_eq!(jobs(Form::Json, &json), [expected], "a job as the daemon shows it is a job file");
}

#[test]
fn what_surrounds_a_job_is_read() {
    let toml = r#"
command = ["python", "train.py"]
image = "torch:2"
mounts = "/data:ro"
snapshot = true
search = "width"
deadline = "6h"
tolerance = "30m"
class = "opportunistic"
batch_mode = "gns"
idle = "30m"
notify = { mail = "ada", on = "failure" }
"#;
    let expected = JobSpec {
        name: "python".to_owned(),
        argv: vec!["python".to_owned(), "train.py".to_owned()],
        image: Some("torch:2".to_owned()),
        mounts: vec!["/data:ro".to_owned()],
        snapshot: true,
        search: Some("width".to_owned()),
        deadline_seconds: Some(21_600.0),
        tolerance_seconds: Some(1800.0),
        class: JobClass::Opportunistic,
        batch_mode: BatchRule::Gns,
        idle_seconds: Some(1800.0),
        notify: Notify { url: None, mail: Some("ada".to_owned()), on: NotifyOn::Failure },
        ..JobSpec::default()
    };
    assert_eq!(jobs(Form::Toml, toml), [expected]);
    let yaml = "command: [a]\nvenv: /envs/a\nidle_seconds: 60\n";
    let job = &jobs(Form::Yaml, yaml)[0];
    assert_eq!((job.venv.as_deref(), job.idle_seconds), (Some("/envs/a"), Some(60.0)));
}

#[test]
fn lengths_of_time_are_written_with_units_or_as_a_clock_shows_them() {
    let limit = |text: &str| {
        let file = format!("command = [\"a\"]\ntime_limit = \"{text}\"");
        jobs(Form::Toml, &file)[0].time_limit_seconds
    };
    assert_eq!((limit("1h"), limit("1:00:00")), (Some(3600.0), Some(3600.0)));
    assert_eq!(limit("1-0:00"), limit("1d"));
    let deadline = |text: &str| {
        let file = format!("command = [\"a\"]\ndeadline = \"{text}\"");
        jobs(Form::Toml, &file)[0].deadline_seconds.expect("a deadline")
    };
    assert_eq!(deadline("6:00:00"), deadline("6h"));
    let day = deadline("06:00");
    assert_ne!(day, 360.0, "two digits each are a time of the day, not a length");
}

#[test]
fn the_smallest_job_is_a_command() {
    let job = &jobs(Form::Toml, "command = [\"/usr/bin/python3\", \"a.py\"]")[0];
    assert_eq!((job.name.as_str(), job.gpus, job.preemptible), ("python3", 1, true));
    assert_eq!(job.checkpoint, Checkpoint::default());
}

#[test]
fn jobs_of_a_list_take_what_they_do_not_say_from_the_defaults() {
    let toml = r#"
schema_version = 1
[defaults]
gpus = 2
memory = "8GiB"
env = { A = "1", B = "1" }
checkpoint = { signal = "USR1", grace = "1m" }
[[job]]
command = ["a"]
[[job]]
command = ["b"]
gpus = 4
memory_per_gpu = "1GiB"
env = { B = "2" }
checkpoint = { grace = "2m" }
"#;
    let listed = jobs(Form::Toml, toml);
    let [a, b] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!((a.gpus, a.memory_mib_per_gpu, a.env.len()), (2, 4096, 2));
    assert_eq!((b.gpus, b.memory_mib_per_gpu), (4, 1024));
    assert_eq!((b.env["A"].as_str(), b.env["B"].as_str()), ("1", "2"));
    assert_eq!((b.checkpoint.signal.as_str(), b.checkpoint.grace_seconds), ("USR1", 120.0));
    let yaml = "defaults: {gpus: 2}\njobs:\n- command: [a]\n- command: [b]\n  gpus: 4\n";
    let gpus: Vec<u32> = jobs(Form::Yaml, yaml).iter().map(|job| job.gpus).collect();
    assert_eq!(gpus, [2, 4]);
    assert_eq!(jobs(Form::Json, r#"[{"command": ["a"]}, {"command": ["b"]}]"#).len(), 2);
}

#[test]
fn a_script_of_ones_own_and_shares_of_a_gpu_are_jobs_too() {
    let yaml = "name: prepare\nscript: |\n  #!/bin/sh\n  echo hello\ngpu_share: 0.25\n";
    let job = &jobs(Form::Yaml, yaml)[0];
    assert_eq!(job.script.as_deref(), Some("#!/bin/sh\necho hello\n"));
    assert_eq!((job.argv.as_slice(), job.gpu_permille), (&["prepare".to_owned()][..], Some(250)));
    let toml = "command = [\"a\"]\nshare = 0.3\nshare_limit = 1.0\ngpu_memory = \"20GiB\"\n";
    let job = &jobs(Form::Toml, toml)[0];
    let found = (job.gpu_permille, job.gpu_permille_max, job.gpu_memory_mib);
    assert_eq!(found, (Some(300), Some(1000), 20 << 10));
}

#[test]
fn shares_have_limits_and_jobs_that_share_have_labels() {
    let toml = "command = [\"a\"]\nshare = 0.3\nshare_limit = 0.8\ngpu_memory = \"4GiB\"\n\
                affinity = \"team\"\nanti_affinity = \"noisy\"\nexclusion = \"own\"\n";
    let job = &jobs(Form::Toml, toml)[0];
    assert_eq!((job.gpu_permille, job.gpu_permille_max), (Some(300), Some(800)));
    assert_eq!(job.gpu_memory_mib, 4096);
    let labels = [&job.affinity, &job.anti_affinity, &job.exclusion].map(Option::as_deref);
    assert_eq!(labels, [Some("team"), Some("noisy"), Some("own")]);
    for (text, expected) in [
        ("share = 0.5\nshare_limit = 0.4", "at least its share, 0.5 of a GPU"),
        ("share_limit = 0.4", "a share below the whole GPU beside it"),
        ("affinity = \"two words\"", "1 to 63 letters"),
        ("share = 0.5\ngpu_share = 0.5", "once"),
    ] {
        let error = fault(Form::Toml, &format!("command = [\"a\"]\n{text}\n")).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn the_form_is_told_by_the_script_line_the_ending_or_the_first_bracket() {
    for (name, text, form) in [
        ("a.toml", "", Form::Toml),
        ("a.YAML", "", Form::Yaml),
        ("a.yml", "", Form::Yaml),
        ("a.json", "", Form::Json),
        ("a.sh", "echo", Form::Batch),
        ("job", "#!/bin/bash\n", Form::Batch),
        ("job", " {\"command\": []}", Form::Json),
        ("-", "[[job]]\n", Form::Toml),
        ("-", "---\nname: x\n", Form::Yaml),
        ("job", "name = \"x\"", Form::Toml),
    ] {
        assert_eq!(Form::of(name, text), form, "{name} {text}");
    }
}
