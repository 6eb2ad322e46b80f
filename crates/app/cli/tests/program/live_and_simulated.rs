//! A live run ends as its simulation says: the same jobs, with the start and save times that the live run measured.

use super::daemon::{Daemon, program, ran};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a step takes. It sleeps for nearly all of it, so that four jobs do not disturb each other on two cores.
const STEP_SECONDS: f64 = 0.05;
const SLOTS: &str = "4";

/// A job of the run: when it comes, how many slots it takes, and for how long.
struct Planned {
    arrives: f64,
    gpus: u32,
    steps: u32,
}

/// What was measured in a live run, all in seconds.
struct Figures {
    /// Submission, number in the plan and completion time of each job, in order of submission.
    jobs: Vec<(f64, usize, f64)>,
    start: f64,
    save: f64,
    step: f64,
    preemptions: u64,
}

/// A live run beside its simulation.
struct Pair {
    policy: String,
    live: f64,
    simulated: f64,
    figures: Figures,
    simulated_preemptions: u64,
}

impl Pair {
    fn ratio(&self) -> f64 {
        self.live / self.simulated
    }
}

/// Jobs that come over `within` seconds and run for between `least` and `most`; the same ones each time.
fn plan(jobs: usize, within: f64, (least, most): (f64, f64)) -> Vec<Planned> {
    let mut state = 7u64;
    let mut draw = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / f64::from(1u32 << 31)
    };
    let mut planned: Vec<Planned> = (0..jobs)
        .map(|_| {
            let gpus = [1, 1, 1, 2, 2, 4][(draw() * 6.0) as usize];
            let seconds = least + draw() * (most - least);
            let steps = (seconds / STEP_SECONDS) as u32;
            Planned { arrives: draw() * within, gpus, steps }
        })
        .collect();
    planned.sort_by(|one, other| one.arrives.total_cmp(&other.arrives));
    planned
}

/// Runs the plan on a daemon and then in the simulator.
fn run_both(name: &str, policy: &str, plan: &[Planned]) -> Pair {
    let daemon = Daemon::start_with(name, &["--gpus", SLOTS, "--policy", policy]);
    let figures = run_live(&daemon, plan);
    replays(&daemon);
    is_a_trace(&daemon, plan.len());
    let mut trace = "id,submit_s,gpus,duration_s\n".to_owned();
    let first = figures.jobs[0].0;
    for (submitted, number, _) in &figures.jobs {
        let Planned { gpus, steps, .. } = plan[*number];
        let length = f64::from(steps) * figures.step;
        let _ = writeln!(trace, "j{number},{:.6},{gpus},{length:.6}", submitted - first);
    }
    fs::write(daemon.folder.join("trace.csv"), trace).expect("a file");
    let costs = format!("flat save={:.6}s start={:.6}s", figures.save, figures.start);
    let simulated = ran(program(
        &daemon.folder,
        &[
            "sim",
            "--policy",
            policy,
            "--trace",
            "trace.csv",
            "--cluster",
            "1x4 v100",
            "--costs",
            &costs,
            "--estimate-error",
            "0",
            "--json",
        ],
    ));
    assert_eq!(simulated.code, 0, "{}", simulated.err);
    let simulated: Value = serde_json::from_str(&simulated.out).expect("JSON");
    let summary = &simulated["runs"][0]["summary"];
    assert_eq!(summary["finished"].as_u64(), Some(plan.len() as u64), "{summary}");
    Pair {
        policy: policy.to_owned(),
        live: figures.jobs.iter().map(|(_, _, took)| took).sum::<f64>() / plan.len() as f64,
        simulated: summary["jct_s"]["mean"].as_f64().expect("a mean"),
        simulated_preemptions: summary["preemptions"].as_u64().expect("a number"),
        figures,
    }
}

/// Every decision of the live run comes out the same when it is taken again.
fn replays(daemon: &Daemon) {
    daemon.said(&["capture", "-o", "record.jsonl"]);
    let again = ran(program(&daemon.folder, &["replay", "record.jsonl", "--json"]));
    assert_eq!(again.code, 0, "{}{}", again.out, again.err);
    let again: Value = serde_json::from_str(&again.out).expect("JSON");
    assert_eq!(again["different"], 0, "{again}");
    assert_ne!(again["decisions"], 0, "{again}");
}

/// The daemon's own history can be simulated.
fn is_a_trace(daemon: &Daemon, jobs: usize) {
    let history = daemon.said(&["ps", "-a", "--json", "--limit", "1000"]);
    fs::write(daemon.folder.join("history.json"), history).expect("a file");
    let arguments = ["sim", "--policy", "fifo", "--trace", "history.json", "--json"];
    let again = ran(program(&daemon.folder, &arguments));
    assert_eq!(again.code, 0, "{}", again.err);
    let again: Value = serde_json::from_str(&again.out).expect("JSON");
    assert_eq!(again["runs"][0]["summary"]["finished"].as_u64(), Some(jobs as u64), "{again}");
}

/// Submits every job when it is due, waits for all of them and takes the measured figures from the daemon.
fn run_live(daemon: &Daemon, plan: &[Planned]) -> Figures {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../python");
    let script = package.join("examples/sgd.py");
    let begun = Instant::now();
    let mut ids: Vec<(String, usize)> = Vec::new();
    for (number, job) in plan.iter().enumerate() {
        let text = format!(
            "name = \"j{number}\"\ncommand = [\"python3\", \"{}\", \"--steps\", \"{}\", \"--step-seconds\", \"{STEP_SECONDS}\"]\ngpus = {}\nexpected = {}\nenv.PYTHONPATH = \"{}\"\n",
            script.display(),
            job.steps,
            job.gpus,
            f64::from(job.steps) * STEP_SECONDS,
            package.display(),
        );
        let file = format!("j{number}.toml");
        fs::write(daemon.folder.join(&file), text).expect("a file");
        let due = Duration::from_secs_f64(job.arrives);
        sleep(due.saturating_sub(begun.elapsed()));
        let submitted = daemon.json(&["submit", &file, "--json"]);
        ids.push((submitted["jobs"][0].to_string(), number));
    }
    let patience = Duration::from_secs(60 + 10 * plan.len() as u64);
    while daemon.json(&["ps", "--json"])["jobs"].as_array().is_none_or(|rows| !rows.is_empty()) {
        assert!(begun.elapsed() < patience, "{}", daemon.said(&["ps", "-a"]));
        sleep(Duration::from_millis(250));
    }
    measured(daemon, &ids)
}

fn measured(daemon: &Daemon, ids: &[(String, usize)]) -> Figures {
    let (mut jobs, mut starts, mut saves, mut steps) = (vec![], vec![], vec![], vec![]);
    let mut preemptions = 0;
    for (id, number) in ids {
        let detail = daemon.json(&["job", "show", id, "--json"]);
        assert_eq!(detail["state"], "finished", "{detail}");
        let seconds = |value: &Value| value.as_f64().expect("seconds");
        let submitted = seconds(&detail["submitted"]);
        jobs.push((submitted, *number, seconds(&detail["ended"]) - submitted));
        preemptions += detail["preemptions"].as_u64().expect("a number");
        let step = 1.0 / seconds(&detail["measured"]["rate"]);
        steps.push(step);
        saves.extend(detail["measured"]["save"].as_f64());
        let launches = detail["attempts"].as_array().expect("attempts");
        // On a busy machine one may be stopped for another before it has begun.
        let begun = launches.iter().filter(|one| !one["started"].is_null());
        let order = begun.map(|one| seconds(&one["started"]) - seconds(&one["launched"]));
        // The first progress is told after the first step, which is work and no cost.
        let warm_up = seconds(&detail["measured"]["start"]) - step;
        starts.extend(order.map(|order| order + warm_up));
    }
    // A sum of nothing is a negative zero, which is no length of time.
    let mean = |all: &[f64]| all.iter().fold(0.0, |sum, one| sum + one) / all.len().max(1) as f64;
    Figures { jobs, start: mean(&starts), save: mean(&saves), step: mean(&steps), preemptions }
}

fn table(pairs: &[Pair]) -> String {
    let mut text = "policy                      live    simulated  ratio  preempted  simulated  start    save\n".to_owned();
    for pair in pairs {
        let Figures { start, save, preemptions, .. } = pair.figures;
        let _ = writeln!(
            text,
            "{:<26} {:>6.2} s  {:>6.2} s  {:>5.3}  {preemptions:>9}  {:>9}  {start:.3} s  {save:.3} s",
            pair.policy,
            pair.live,
            pair.simulated,
            pair.ratio(),
            pair.simulated_preemptions,
        );
    }
    text
}

#[test]
fn a_short_live_run_takes_as_long_as_its_simulation() {
    let pair = run_both("alike", "srtf", &plan(7, 3.0, (0.8, 2.0)));
    let pairs = [pair];
    println!("{}", table(&pairs));
    // Starts of so short jobs weigh much, and a machine that is busy with other tests starts them unevenly.
    assert!((pairs[0].ratio() - 1.0).abs() <= 0.25, "{}", table(&pairs));
}

#[test]
#[ignore = "takes two minutes; docs/guide/live-and-simulated.md says how to run it"]
fn twenty_jobs_under_three_policies_take_as_long_as_their_simulation() {
    let plan = plan(20, 15.0, (2.0, 6.0));
    let mut pairs = Vec::new();
    for (name, policy) in [("fifo", "fifo"), ("srtf", "srtf"), ("las", "las:quantum=6s,turn=2s")] {
        pairs.push(run_both(name, policy, &plan));
    }
    println!("{}", table(&pairs));
    assert!(pairs.iter().all(|pair| (pair.ratio() - 1.0).abs() <= 0.10), "{}", table(&pairs));
}
