//! The environment of a rank: a clean base, what its user wants, and what PyTorch, torchrun, Slurm scripts and the
//! checkpoint contract look for.
//!
//! Later layers win: a user cannot set a rank or see another GPU by a variable.

use crate::{LaunchOrder, MpsPlace};
use std::collections::BTreeMap;
use std::path::Path;
use trainyard_token::{LOST_VARIABLE, SOCKET_VARIABLE};

/// Variables as a process gets them.
pub type Variables = BTreeMap<String, String>;

/// Where programs are looked for if the job's environment does not say otherwise.
pub const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a job may know of the daemon's own environment.
pub const PASSED_ON: &[&str] = &["LANG", "LC_ALL", "LC_CTYPE", "TZ"];

/// torchrun counts each change of size as a restart; the daemon decides how often a job is tried, so that it never
/// gives up on its own.
const MAX_RESTARTS: &str = "1000000";

/// Where one rank sits.
#[derive(Clone, Debug)]
pub struct Seat<'a> {
    /// Its number.
    pub rank: u32,
    /// How many there are.
    pub world: u32,
    /// A free port of this machine.
    pub port: u16,
    /// The name of this machine.
    pub host: &'a str,
    /// Where it speaks to its keeper.
    pub socket: &'a Path,
    /// The file that says "saved".
    pub ack_file: &'a Path,
}

/// The whole environment of a rank. `base` is what it may have of its keeper's.
pub fn environment(order: &LaunchOrder, seat: &Seat<'_>, base: &Variables) -> Variables {
    let mut all = Variables::new();
    all.insert("PATH".to_owned(), PATH_DEFAULT.to_owned());
    all.extend(base.clone());
    if let Some(identity) = &order.identity {
        all.insert("HOME".to_owned(), identity.home.clone());
        all.insert("USER".to_owned(), identity.name.clone());
        all.insert("LOGNAME".to_owned(), identity.name.clone());
    }
    all.extend(order.env.clone());
    if let Some(venv) = &order.venv {
        // As its `activate` does.
        let path = all.get("PATH").map_or(PATH_DEFAULT, String::as_str);
        all.insert("PATH".to_owned(), format!("{venv}/bin:{path}"));
        all.insert("VIRTUAL_ENV".to_owned(), venv.clone());
        all.remove("PYTHONHOME");
    }
    // What another scheduler said about another job must not be mixed with what follows.
    all.retain(|name, _| !name.starts_with("SLURM_") && !name.starts_with("TRAINYARD_"));
    for (name, value) in pytorch(order, seat).into_iter().chain(slurm(order, seat)) {
        all.insert(name.to_owned(), value);
    }
    for (name, value) in trainyard(order, seat) {
        all.insert(name.to_owned(), value);
    }
    share(order, &mut all);
    all
}

/// Loads the library that holds the job to its share, before any that its user wants.
fn share(order: &LaunchOrder, all: &mut Variables) {
    let Some(place) = order.sharing.as_ref().and_then(|sharing| sharing.place.as_ref()) else {
        return;
    };
    let own = all.get("LD_PRELOAD").filter(|own| !own.is_empty());
    let library = place.library.display();
    let preload = own.map_or_else(|| library.to_string(), |own| format!("{library}:{own}"));
    all.insert("LD_PRELOAD".to_owned(), preload);
    all.insert(SOCKET_VARIABLE.to_owned(), place.socket.display().to_string());
    if let Some(lost) = order.env.get(LOST_VARIABLE) {
        all.insert(LOST_VARIABLE.to_owned(), lost.clone());
    }
    if let Some(mps) = &place.mps {
        all.retain(|name, _| !name.starts_with("CUDA_MPS_"));
        for (name, value) in mps_client(mps) {
            all.insert(name.to_owned(), value);
        }
    }
}

/// What makes a program a client of MPS, by the names of NVIDIA's documentation.
fn mps_client(mps: &MpsPlace) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("CUDA_MPS_PIPE_DIRECTORY", mps.pipes.display().to_string()),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", mps.threads.to_string()),
        ("CUDA_VISIBLE_DEVICES", mps.device.clone()),
    ];
    if let Some(mib) = mps.memory_mib {
        // Of the first GPU that it sees, which is its only one.
        all.push(("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", format!("0={mib}M")));
    }
    all
}

fn pytorch(order: &LaunchOrder, seat: &Seat<'_>) -> Vec<(&'static str, String)> {
    let (rank, world) = (seat.rank.to_string(), seat.world.to_string());
    let restarts = order.attempt.0.saturating_sub(1).to_string();
    let run = format!("trainyard-{}-{}", order.job.0, order.attempt.0);
    vec![
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", seat.port.to_string()),
        ("RANK", rank.clone()),
        ("LOCAL_RANK", rank.clone()),
        ("WORLD_SIZE", world.clone()),
        ("LOCAL_WORLD_SIZE", world.clone()),
        ("GROUP_RANK", "0".to_owned()),
        ("GROUP_WORLD_SIZE", "1".to_owned()),
        ("NODE_RANK", "0".to_owned()),
        ("ROLE_NAME", "default".to_owned()),
        ("ROLE_RANK", rank),
        ("ROLE_WORLD_SIZE", world),
        ("TORCHELASTIC_RESTART_COUNT", restarts),
        ("TORCHELASTIC_MAX_RESTARTS", MAX_RESTARTS.to_owned()),
        ("TORCHELASTIC_RUN_ID", run.clone()),
        ("PET_NNODES", "1".to_owned()),
        ("PET_NODE_RANK", "0".to_owned()),
        ("PET_NPROC_PER_NODE", order.gpus.len().max(1).to_string()),
        ("PET_RDZV_BACKEND", "c10d".to_owned()),
        ("PET_RDZV_ENDPOINT", format!("127.0.0.1:{}", seat.port)),
        ("PET_RDZV_ID", run),
        ("PET_MAX_RESTARTS", MAX_RESTARTS.to_owned()),
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()),
        ("CUDA_VISIBLE_DEVICES", order.devices.join(",")),
    ]
}

fn slurm(order: &LaunchOrder, seat: &Seat<'_>) -> Vec<(&'static str, String)> {
    let gpus: Vec<String> = order.gpus.iter().map(u8::to_string).collect();
    let job = order.job.0.to_string();
    let world = seat.world.to_string();
    let mut all = vec![
        ("SLURM_JOB_ID", job.clone()),
        ("SLURM_JOBID", job),
        ("SLURM_JOB_NAME", order.name.clone()),
        ("SLURM_JOB_USER", order.user.clone()),
        ("SLURM_SUBMIT_DIR", order.cwd.clone()),
        ("SLURM_NNODES", "1".to_owned()),
        ("SLURM_JOB_NUM_NODES", "1".to_owned()),
        ("SLURM_NODEID", "0".to_owned()),
        ("SLURM_JOB_NODELIST", seat.host.to_owned()),
        ("SLURM_NODELIST", seat.host.to_owned()),
        ("SLURMD_NODENAME", seat.host.to_owned()),
        ("SLURM_NTASKS", world.clone()),
        ("SLURM_NPROCS", world.clone()),
        ("SLURM_NTASKS_PER_NODE", world.clone()),
        ("SLURM_TASKS_PER_NODE", world),
        ("SLURM_PROCID", seat.rank.to_string()),
        ("SLURM_LOCALID", seat.rank.to_string()),
        ("SLURM_GPUS_ON_NODE", gpus.len().to_string()),
        ("SLURM_JOB_GPUS", gpus.join(",")),
    ];
    if order.limits.cpus > 0 {
        let each = (order.limits.cpus / seat.world.max(1)).max(1);
        all.push(("SLURM_CPUS_PER_TASK", each.to_string()));
        all.push(("SLURM_CPUS_ON_NODE", order.limits.cpus.to_string()));
    }
    if order.attempt.0 > 1 {
        // Slurm sets it for restarted jobs alone.
        all.push(("SLURM_RESTART_COUNT", (order.attempt.0 - 1).to_string()));
    }
    if let Some(index) = order.array_index {
        all.push(("SLURM_ARRAY_TASK_ID", index.to_string()));
        let first = order.array_job.unwrap_or(order.job);
        all.push(("SLURM_ARRAY_JOB_ID", first.0.to_string()));
    }
    all
}

fn trainyard(order: &LaunchOrder, seat: &Seat<'_>) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("TRAINYARD_JOB_ID", order.job.0.to_string()),
        ("TRAINYARD_JOB_NAME", order.name.clone()),
        ("TRAINYARD_ATTEMPT", order.attempt.0.to_string()),
        ("TRAINYARD_GPUS", order.gpus.len().to_string()),
        ("TRAINYARD_CHECKPOINT_DIR", order.checkpoint_dir.clone()),
        ("TRAINYARD_CHECKPOINT_SIGNAL", order.checkpoint.signal.clone()),
        ("TRAINYARD_RESUMES_FROM", order.resumes_from.to_string()),
        ("TRAINYARD_SOCKET", seat.socket.display().to_string()),
        ("TRAINYARD_ACK_FILE", seat.ack_file.display().to_string()),
    ];
    if order.restores() {
        all.push(("TRAINYARD_RESTORE_FROM", order.checkpoint_dir.clone()));
    }
    if !order.racks.is_empty() {
        let nodes: Vec<&str> = order.nodes.iter().map(|share| share.node.as_str()).collect();
        let racks: Vec<String> = order.racks.iter().map(u16::to_string).collect();
        all.push(("TRAINYARD_NODES", nodes.join(",")));
        all.push(("TRAINYARD_RACKS", racks.join(",")));
    }
    if let Some(shift) = order.time_shift {
        all.push(("TRAINYARD_TIME_SHIFT", format!("{:.6}", shift.offset_seconds)));
        all.push(("TRAINYARD_TIME_PERIOD", format!("{:.6}", shift.period_seconds)));
    }
    if let Some(batch) = order.batch {
        all.push(("TRAINYARD_BATCH", batch.to_string()));
    }
    if !order.batch_parts.is_empty() {
        let parts: Vec<String> =
            order.batch_parts.iter().map(|part| format!("{part:.6}")).collect();
        all.push(("TRAINYARD_BATCH_PARTS", parts.join(",")));
    }
    if !order.division.is_empty() {
        all.push(("TRAINYARD_DIVISION", order.division.clone()));
    }
    if let Some(index) = order.array_index {
        all.push(("TRAINYARD_ARRAY_INDEX", index.to_string()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{Identity, Limits, NodeShare, TimeShift};
    use trainyard_api::{Checkpoint, Processes};
    use trainyard_types::{Attempt, JobId};

    fn order() -> LaunchOrder {
        LaunchOrder {
            job: JobId(12),
            attempt: Attempt(3),
            name: "bert".to_owned(),
            argv: vec!["python3".to_owned()],
            script: None,
            cwd: "/data".to_owned(),
            env: [("EPOCHS", "3"), ("RANK", "99"), ("SLURM_STEP_ID", "7"), ("TZ", "UTC")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            identity: Some(Identity {
                uid: 1000,
                gid: 1000,
                name: "ada".to_owned(),
                home: "/home/ada".to_owned(),
            }),
            gpus: vec![2, 5],
            devices: vec!["GPU-aa".to_owned(), "GPU-bb".to_owned()],
            processes: Processes::PerGpu,
            checkpoint: Checkpoint::default(),
            checkpoint_dir: "/data/ckpt".to_owned(),
            resumes_from: 1500.0,
            nodes: ["node7", "node9"]
                .map(|node| NodeShare { node: node.to_owned(), gpus: vec![0] })
                .into(),
            racks: vec![0, 3],
            time_shift: Some(TimeShift { offset_seconds: 0.25, period_seconds: 0.5 }),
            batch: Some(256),
            batch_parts: vec![0.75, 0.25],
            array_index: Some(4),
            array_job: Some(JobId(8)),
            user: "ada".to_owned(),
            limits: Limits { cpus: 8, ..Limits::default() },
            ..LaunchOrder::default()
        }
    }

    fn of(order: &LaunchOrder, rank: u32, world: u32) -> Variables {
        let (socket, ack_file) = (Path::new("/run/t/12.3/job/socket"), Path::new("/a"));
        let seat = Seat { rank, world, port: 29_411, host: "node7", socket, ack_file };
        let base = [("LANG", "C.UTF-8"), ("TZ", "Europe/Berlin")];
        environment(order, &seat, &base.map(|(n, v)| (n.to_owned(), v.to_owned())).into())
    }

    #[test]
    fn a_rank_of_a_gang_gets_what_pytorch_slurm_scripts_and_the_contract_look_for() {
        let all = of(&order(), 1, 2);
        let table = [
            ("PATH", PATH_DEFAULT),
            ("HOME", "/home/ada"),
            ("USER", "ada"),
            ("LANG", "C.UTF-8"),
            ("TZ", "UTC"),
            ("EPOCHS", "3"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", "29411"),
            ("RANK", "1"),
            ("LOCAL_RANK", "1"),
            ("WORLD_SIZE", "2"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("GROUP_RANK", "0"),
            ("NODE_RANK", "0"),
            ("ROLE_RANK", "1"),
            ("ROLE_WORLD_SIZE", "2"),
            ("TORCHELASTIC_RESTART_COUNT", "2"),
            ("TORCHELASTIC_RUN_ID", "trainyard-12-3"),
            ("PET_NPROC_PER_NODE", "2"),
            ("PET_RDZV_ENDPOINT", "127.0.0.1:29411"),
            ("CUDA_VISIBLE_DEVICES", "GPU-aa,GPU-bb"),
            ("SLURM_JOB_ID", "12"),
            ("SLURM_PROCID", "1"),
            ("SLURM_NTASKS", "2"),
            ("SLURM_JOB_NODELIST", "node7"),
            ("SLURM_RESTART_COUNT", "2"),
            ("SLURM_JOB_GPUS", "2,5"),
            ("SLURM_CPUS_PER_TASK", "4"),
            ("SLURM_ARRAY_JOB_ID", "8"),
            ("SLURM_ARRAY_TASK_ID", "4"),
            ("TRAINYARD_JOB_ID", "12"),
            ("TRAINYARD_ATTEMPT", "3"),
            ("TRAINYARD_RESUMES_FROM", "1500"),
            ("TRAINYARD_RESTORE_FROM", "/data/ckpt"),
            ("TRAINYARD_CHECKPOINT_DIR", "/data/ckpt"),
            ("TRAINYARD_SOCKET", "/run/t/12.3/job/socket"),
            ("TRAINYARD_ACK_FILE", "/a"),
            ("TRAINYARD_NODES", "node7,node9"),
            ("TRAINYARD_RACKS", "0,3"),
            ("TRAINYARD_TIME_SHIFT", "0.250000"),
            ("TRAINYARD_TIME_PERIOD", "0.500000"),
            ("TRAINYARD_BATCH", "256"),
            ("TRAINYARD_BATCH_PARTS", "0.750000,0.250000"),
        ];
        for (name, value) in table {
            assert_eq!(all.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(!all.contains_key("SLURM_STEP_ID"), "of another scheduler's job");
    }

    #[test]
    fn a_first_launch_without_gpus_resumes_from_nothing_and_sees_none() {
        let mut first = order();
        first.attempt = Attempt(1);
        first.resumes_from = 0.0;
        (first.gpus, first.devices, first.batch) = (vec![], vec![], None);
        (first.array_index, first.identity) = (None, None);
        let all = of(&first, 0, 1);
        for absent in [
            "TRAINYARD_RESTORE_FROM",
            "SLURM_RESTART_COUNT",
            "TRAINYARD_BATCH",
            "SLURM_ARRAY_TASK_ID",
            "HOME",
        ] {
            assert!(!all.contains_key(absent), "{absent}");
        }
        assert_eq!(all["CUDA_VISIBLE_DEVICES"], "");
        assert_eq!(all["TRAINYARD_RESUMES_FROM"], "0");
        assert_eq!(all["PET_NPROC_PER_NODE"], "1");
    }

    #[test]
    fn a_virtual_environment_comes_before_the_machines_own_python() {
        let mut order = LaunchOrder { venv: Some("/envs/a".to_owned()), ..order() };
        order.env.insert("PYTHONHOME".to_owned(), "/usr".to_owned());
        let all = of(&order, 0, 1);
        assert_eq!(all["PATH"], format!("/envs/a/bin:{PATH_DEFAULT}"));
        assert_eq!(all["VIRTUAL_ENV"], "/envs/a");
        assert!(!all.contains_key("PYTHONHOME"));
    }

    #[test]
    fn a_checkpoint_whose_work_nobody_told_is_handed_on() {
        let saved = LaunchOrder { resumes_from: 0.0, has_checkpoint: true, ..order() };
        let all = of(&saved, 0, 1);
        assert_eq!(all["TRAINYARD_RESTORE_FROM"], "/data/ckpt");
        assert_eq!(all["TRAINYARD_RESUMES_FROM"], "0");
    }
}
