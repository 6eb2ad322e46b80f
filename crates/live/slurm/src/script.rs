//! The batch script of our jobs, and the two files it reads for an attempt.
//!
//! The script is the same for every job and never changes for a Slurm job once that is submitted; what is special to an
//! attempt is in files that it finds when it starts. Texts of users are only ever data in it: each value is quoted.

use std::fmt::Write as _;
use std::path::Path;
use trainyard_api::Processes;
use trainyard_backend::LaunchOrder;
use trainyard_backend::environment::{PATH_DEFAULT, Seat, Variables, environment};

/// The script.
pub const RUN: &str = include_str!("script/run.sh");

/// What the script itself has for a path, before the job's own counts.
pub const PATH: &str = PATH_DEFAULT;

/// Variables that differ between ranks, with what the script knows them by.
const OF_RANK: &[(&str, &str)] = &[
    ("RANK", "$ty_rank"),
    ("LOCAL_RANK", "$ty_local_rank"),
    ("WORLD_SIZE", "$ty_world"),
    ("LOCAL_WORLD_SIZE", "$ty_ranks"),
    ("ROLE_RANK", "$ty_rank"),
    ("ROLE_WORLD_SIZE", "$ty_world"),
    ("GROUP_RANK", "$ty_node"),
    ("GROUP_WORLD_SIZE", "$SLURM_JOB_NUM_NODES"),
    ("NODE_RANK", "$ty_node"),
    ("MASTER_ADDR", "$ty_address"),
    ("MASTER_PORT", "$ty_port"),
    ("PET_NNODES", "$SLURM_JOB_NUM_NODES"),
    ("PET_NODE_RANK", "$ty_node"),
    ("PET_RDZV_ENDPOINT", "$ty_address:$ty_port"),
    ("TRAINYARD_CHECKPOINT_DIR", "$ty_checkpoints"),
];

/// Those of them that a job's one process has too where the job has several nodes: it starts the rest itself, as by
/// `srun`, and that must not take its own rank for theirs.
const OF_JOB: &[&str] = &["MASTER_ADDR", "MASTER_PORT", "TRAINYARD_CHECKPOINT_DIR"];

/// What Slurm knows better, and what has no meaning here.
const LEFT_OUT: &[&str] = &["CUDA_VISIBLE_DEVICES", "TRAINYARD_SOCKET", "TRAINYARD_RESTORE_FROM"];

/// Where the files of an attempt are.
#[derive(Clone, Debug)]
pub struct Paths<'a> {
    /// The script, where every node finds it.
    pub script: &'a Path,
    /// What the job says.
    pub said: &'a Path,
    /// What the job is told.
    pub told: &'a Path,
    /// The file that says "saved".
    pub saved: &'a Path,
    /// The job's own script, if it has one.
    pub own_script: &'a Path,
}

/// The file `launch.sh`: what the script must know. `nodes` are Slurm's names.
pub fn launch_file(order: &LaunchOrder, nodes: &[String], paths: &Paths<'_>) -> String {
    let mut text = String::new();
    let mut set = |name: &str, value: &str| {
        let _ = writeln!(text, "ty_{name}={}", quoted(value));
    };
    set("nodes", &nodes.join(" "));
    set("ranks", &ranks_per_node(order, nodes.len()).to_string());
    set("gpus", &(order.gpus.len() / nodes.len().max(1)).to_string());
    set("once", if order.processes == Processes::PerJob { "yes" } else { "" });
    set("checkpoint_root", &order.checkpoint_dir);
    set("checkpoint_named", if order.names_checkpoints() { "yes" } else { "" });
    set("signal", &signal(&order.checkpoint.signal));
    set("exit_code", &order.checkpoint.exit_code.to_string());
    set("grace", &whole_seconds(order.checkpoint.grace_seconds).to_string());
    set("cwd", &order.cwd);
    set("script", &paths.script.display().to_string());
    text
}

/// The file `env.sh`: the environment of a rank and, as arguments, its command.
pub fn environment_file(order: &LaunchOrder, nodes: usize, paths: &Paths<'_>) -> String {
    let gpus_each = order.gpus.len() / nodes.max(1);
    let mut text = String::new();
    let mut odd: Vec<String> = Vec::new();
    for (name, value) in variables(order, paths) {
        if is_plain_name(&name) {
            let _ = writeln!(text, "export {name}={}", quoted(&value));
        } else {
            // A shell cannot export it, but the program can be given it.
            odd.push(format!("{name}={value}"));
        }
    }
    let starts_the_rest = order.processes == Processes::PerJob && nodes > 1;
    for (name, value) in OF_RANK {
        if starts_the_rest && !OF_JOB.contains(name) {
            continue;
        }
        let _ = writeln!(text, "export {name}=\"{value}\"");
    }
    let _ = writeln!(text, "export PET_NPROC_PER_NODE={}", gpus_each.max(1));
    if order.restores() {
        let _ = writeln!(text, "export TRAINYARD_RESTORE_FROM=\"$ty_checkpoints\"");
    }
    text.push_str("set --");
    if !odd.is_empty() {
        text.push_str(" env");
    }
    let script = order.script.as_ref().map(|_| paths.own_script.display().to_string());
    let program = script.or_else(|| order.argv.first().cloned());
    let rest = order.argv.iter().skip(1).cloned();
    for word in odd.into_iter().chain(program).chain(rest) {
        let _ = write!(text, " {}", quoted(&word));
    }
    text.push('\n');
    text
}

/// How many ranks a node gets.
pub fn ranks_per_node(order: &LaunchOrder, nodes: usize) -> usize {
    match order.processes {
        Processes::PerJob | Processes::PerNode => 1,
        Processes::PerGpu => (order.gpus.len() / nodes.max(1)).max(1),
    }
}

/// How many ranks there are in all.
pub fn ranks(order: &LaunchOrder, nodes: usize) -> usize {
    match order.processes {
        Processes::PerJob => 1,
        Processes::PerNode | Processes::PerGpu => ranks_per_node(order, nodes) * nodes.max(1),
    }
}

/// Seconds for the script, which counts in whole ones.
pub fn whole_seconds(seconds: f64) -> u64 {
    const WEEK: f64 = 7.0 * 86_400.0;
    if seconds.is_finite() { seconds.clamp(0.0, WEEK).ceil() as u64 } else { 0 }
}

fn variables(order: &LaunchOrder, paths: &Paths<'_>) -> Variables {
    let seat =
        Seat { rank: 0, world: 1, port: 0, host: "", socket: Path::new(""), ack_file: paths.saved };
    let mut all = environment(order, &seat, &Variables::new());
    // Slurm's own variables are the true ones here.
    all.retain(|name, _| !name.starts_with("SLURM") && !LEFT_OUT.contains(&name.as_str()));
    for (name, _) in OF_RANK {
        all.remove(*name);
    }
    all.remove("PET_NPROC_PER_NODE");
    // All but the name, behind which Slurm shows which job of ours it is.
    all.insert("SLURM_JOB_NAME".to_owned(), order.name.clone());
    all.insert("TRAINYARD_REPORT_FILE".to_owned(), paths.said.display().to_string());
    all.insert("TRAINYARD_ORDERS_FILE".to_owned(), paths.told.display().to_string());
    all
}

/// A word for a shell that means exactly this text.
pub fn quoted(text: &str) -> String {
    // A zero byte cannot be in a file name or an argument; a shell would end the word there.
    format!("'{}'", text.replace('\0', "").replace('\'', r"'\''"))
}

/// The script's own variables begin with `ty_` and are not for a job to change.
fn is_plain_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first == b'_' || first.is_ascii_alphabetic())
        && bytes.all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
        && !name.starts_with("ty_")
}

/// A signal as `kill -s` takes it; what is no signal is the usual one.
fn signal(name: &str) -> String {
    let name = name.trim().to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let is_known = ["TERM", "USR1", "USR2", "INT", "HUP", "QUIT", "CONT"].contains(&name);
    if is_known { name.to_owned() } else { "TERM".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use trainyard_types::{Attempt, JobId};

    fn order(argv: &[&str], env: &[(&str, &str)]) -> LaunchOrder {
        LaunchOrder {
            job: JobId(3),
            attempt: Attempt(2),
            name: "it's".to_owned(),
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            cwd: "/".to_owned(),
            env: env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            gpus: vec![0, 1, 2, 3],
            processes: Processes::PerNode,
            resumes_from: 5.0,
            ..LaunchOrder::default()
        }
    }

    fn paths() -> Paths<'static> {
        let [script, said, told, saved, own_script] =
            ["/r/run.sh", "/r/said", "/r/told", "/r/saved", "/r/own"].map(Path::new);
        Paths { script, said, told, saved, own_script }
    }

    /// What a shell makes of the file.
    fn run(order: &LaunchOrder) -> String {
        let file = environment_file(order, 2, &paths());
        let text =
            format!("ty_rank=7; ty_checkpoints=/c/at-2; ty_address=h; ty_port=9\n{file}\"$@\"\n");
        let output = Command::new("sh").arg("-c").arg(text).env_clear().output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn whatever_a_user_writes_arrives_as_it_is_and_is_never_run() {
        let nasty = "a'b\"c $(touch /x) `id` ; \\ \n*?";
        let all = order(&["printf", "%s|%s|%s", nasty, "", "$RANK"], &[("NASTY", nasty)]);
        assert_eq!(run(&all), format!("{nasty}||$RANK"));
        let shown = order(&["sh", "-c", "printf %s \"$NASTY\""], &[("NASTY", nasty)]);
        assert_eq!(run(&shown), nasty);
    }

    #[test]
    fn a_rank_finds_what_it_looks_for_and_its_user_cannot_change_who_it_is() {
        let env =
            [("RANK", "99"), ("a.b", "odd"), ("ty_rank", "98"), ("SLURM_X", "y"), ("PATH", "/bin")];
        let all = run(&order(&["/usr/bin/env"], &env));
        let lines: Vec<&str> = all.lines().collect();
        for line in [
            "RANK=7",
            "a.b=odd",
            "PATH=/bin",
            "MASTER_ADDR=h",
            "MASTER_PORT=9",
            "PET_NPROC_PER_NODE=2",
            "TRAINYARD_ATTEMPT=2",
            "TRAINYARD_CHECKPOINT_DIR=/c/at-2",
            "TRAINYARD_RESTORE_FROM=/c/at-2",
            "TRAINYARD_REPORT_FILE=/r/said",
            "TRAINYARD_ORDERS_FILE=/r/told",
            "TRAINYARD_ACK_FILE=/r/saved",
            "TRAINYARD_JOB_NAME=it's",
            "SLURM_JOB_NAME=it's",
        ] {
            assert!(lines.contains(&line), "{line} in\n{all}");
        }
        for absent in ["SLURM_X", "CUDA_VISIBLE_DEVICES", "TRAINYARD_SOCKET"] {
            assert!(!lines.iter().any(|line| line.starts_with(absent)), "{absent} in\n{all}");
        }
    }

    #[test]
    fn the_one_process_of_a_job_on_several_nodes_has_no_rank_to_hand_on() {
        let once = LaunchOrder { processes: Processes::PerJob, ..order(&["/usr/bin/env"], &[]) };
        let all = run(&once);
        for name in ["RANK=", "WORLD_SIZE=", "NODE_RANK=", "PET_NNODES=", "PET_NODE_RANK="] {
            assert!(!all.lines().any(|line| line.starts_with(name)), "{name} in\n{all}");
        }
        assert!(all.contains("MASTER_PORT=9") && all.contains("TRAINYARD_CHECKPOINT_DIR=/c/at-2"));
        assert_eq!((ranks(&once, 2), ranks(&order(&[], &[]), 2)), (1, 2));
    }

    #[test]
    fn what_is_no_signal_or_no_number_becomes_a_usual_one() {
        assert_eq!(signal("sigusr1"), "USR1");
        assert_eq!(signal("1; reboot"), "TERM");
        assert_eq!([0.2, -1.0, f64::NAN, 1e99].map(whole_seconds), [1, 0, 0, 604_800]);
    }
}
