//! A job in a container image: the command line that an engine is given for it.
//!
//! The engine is started as the job's user and has that user's rights, no more. Inside, the job finds its working
//! directory, its checkpoints and its socket under the names they have outside, and its variables; what it does not
//! find is the machine's own `PATH` and home.

use crate::LaunchOrder;
use crate::environment::Variables;
use std::path::{Path, PathBuf};

/// What runs images, in the order in which it is looked for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Podman.
    Podman,
    /// Docker.
    Docker,
    /// Apptainer, also under its older name Singularity.
    Apptainer,
}

const PROGRAMS: [(&str, Engine); 4] = [
    ("podman", Engine::Podman),
    ("docker", Engine::Docker),
    ("apptainer", Engine::Apptainer),
    ("singularity", Engine::Apptainer),
];

/// Variables that say something of the machine and are wrong in an image, unless the job itself sets them.
const OUTSIDE: [&str; 6] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"];

/// One process of a job in an image.
#[derive(Clone, Debug)]
pub struct Inside<'a> {
    /// The order.
    pub order: &'a LaunchOrder,
    /// The image.
    pub image: &'a str,
    /// What is to be run in it.
    pub argv: &'a [String],
    /// All variables of the process.
    pub env: &'a Variables,
    /// The directory of its socket.
    pub talk: &'a Path,
    /// Its rank.
    pub rank: u32,
    /// The user and the group it runs as.
    pub ids: (u32, u32),
    /// Whether the engine can put a process of its own in front of the command: see [`has_init`].
    pub init: bool,
}

/// Where podman looks for the program that it puts first in a container.
const CATATONIT: [&str; 4] = [
    "/usr/libexec/podman/catatonit",
    "/usr/local/libexec/podman/catatonit",
    "/usr/local/lib/podman/catatonit",
    "/usr/bin/catatonit",
];

/// The engine that is found first in a `PATH`.
pub fn find(path: &str) -> Option<(Engine, PathBuf)> {
    let folders: Vec<&str> = path.split(':').filter(|folder| !folder.is_empty()).collect();
    PROGRAMS.iter().find_map(|(name, engine)| {
        let files = folders.iter().map(|folder| Path::new(folder).join(name));
        files.into_iter().find(|file| file.is_file()).map(|file| (*engine, file))
    })
}

/// Whether an engine can put a process of its own first in a container. Without one the command itself is process 1, which
/// the kernel does not end by a signal that it does not catch: it hears of a stop, and else is killed after its grace.
pub fn has_init(engine: Engine) -> bool {
    match engine {
        Engine::Podman => CATATONIT.iter().any(|path| Path::new(path).exists()),
        Engine::Docker => true,
        Engine::Apptainer => false,
    }
}

/// Why no image can be run.
pub fn missing(path: &str) -> String {
    format!("its image needs podman, docker or apptainer, and none is in PATH={path}")
}

/// What the container of a rank is called.
pub fn name(order: &LaunchOrder, rank: u32) -> String {
    format!("trainyard-{}-{}-{rank}", order.job.0, order.attempt.0)
}

/// The command that ends and removes a container, where the engine keeps one beyond its process.
pub fn removal(engine: Engine, program: &Path, name: &str) -> Option<Vec<String>> {
    match engine {
        Engine::Podman | Engine::Docker => {
            Some([&program.to_string_lossy(), "rm", "--force", name].map(str::to_owned).into())
        }
        Engine::Apptainer => None,
    }
}

/// The command that runs one process in its image.
pub fn command(engine: Engine, program: &Path, inside: &Inside<'_>) -> Vec<String> {
    let program = program.to_string_lossy().into_owned();
    let mut all = match engine {
        Engine::Podman | Engine::Docker => vec![program, "run".to_owned()],
        Engine::Apptainer => vec![program, "exec".to_owned()],
    };
    all.extend(match engine {
        Engine::Podman | Engine::Docker => run_flags(engine, inside),
        Engine::Apptainer => exec_flags(inside),
    });
    match (engine, inside.argv.split_first()) {
        (Engine::Podman | Engine::Docker, Some((first, rest))) => {
            // In place of the entry point of the image: what is run is what the job says.
            all.extend(["--entrypoint".to_owned(), first.clone(), inside.image.to_owned()]);
            all.extend(rest.iter().cloned());
        }
        _ => {
            all.push(inside.image.to_owned());
            all.extend(inside.argv.iter().cloned());
        }
    }
    all
}

fn run_flags(engine: Engine, inside: &Inside<'_>) -> Vec<String> {
    let order = inside.order;
    // The network and the shared memory are the machine's: ranks meet on 127.0.0.1, and data loaders share batches.
    let mut all: Vec<String> = ["--rm", "--network=host", "--ipc=host"].map(str::to_owned).into();
    all.extend(inside.init.then(|| "--init".to_owned()));
    all.push(format!("--name={}", name(order, inside.rank)));
    all.push(format!("--workdir={}", order.cwd));
    let (uid, gid) = inside.ids;
    match engine {
        // Files that it writes are its user's, outside as well.
        Engine::Podman if uid != 0 => all.push("--userns=keep-id".to_owned()),
        Engine::Docker => all.push(format!("--user={uid}:{gid}")),
        Engine::Podman | Engine::Apptainer => {}
    }
    all.extend(binds(inside).into_iter().map(|bind| format!("--volume={bind}")));
    let gpus = real_gpus(order);
    match engine {
        Engine::Docker if !gpus.is_empty() => {
            all.push(format!("--gpus=\"device={}\"", gpus.join(",")));
        }
        Engine::Docker => {}
        Engine::Podman | Engine::Apptainer => {
            all.extend(gpus.iter().map(|gpu| format!("--device=nvidia.com/gpu={gpu}")));
        }
    }
    // Without a value: the engine takes it from its own environment, where no list of processes shows it.
    all.extend(passed(inside).map(|name| format!("--env={name}")));
    all
}

fn exec_flags(inside: &Inside<'_>) -> Vec<String> {
    let mut all = vec![format!("--pwd={}", inside.order.cwd)];
    if !real_gpus(inside.order).is_empty() {
        all.push("--nv".to_owned());
    }
    all.extend(binds(inside).into_iter().map(|bind| format!("--bind={bind}")));
    all
}

/// What is seen inside, each under its own name.
fn binds(inside: &Inside<'_>) -> Vec<String> {
    let talk = inside.talk.to_string_lossy();
    let order = inside.order;
    let mut paths: Vec<(&str, &str)> =
        vec![(&order.cwd, ""), (&order.checkpoint_dir, ""), (&talk, "")];
    paths.extend(order.mounts.iter().map(|mount| match mount.strip_suffix(":ro") {
        Some(path) => (path, ":ro"),
        None => (mount.as_str(), ""),
    }));
    paths.retain(|(path, _)| !path.is_empty() && *path != "/");
    let mut seen: Vec<&str> = Vec::new();
    let mut all = Vec::new();
    for (path, mode) in paths {
        if !seen.contains(&path) {
            seen.push(path);
            all.push(format!("{path}:{path}{mode}"));
        }
    }
    all
}

/// Variables that are passed on by name.
fn passed<'a>(inside: &'a Inside<'_>) -> impl Iterator<Item = &'a str> {
    let own = &inside.order.env;
    inside
        .env
        .keys()
        .filter(|name| own.contains_key(*name) || !OUTSIDE.contains(&name.as_str()))
        .map(String::as_str)
}

/// GPUs that are there: those that are only declared have numbers and no names.
fn real_gpus(order: &LaunchOrder) -> Vec<&str> {
    let devices = order.devices.iter().map(String::as_str);
    devices.filter(|device| device.starts_with("GPU-") || device.starts_with("MIG-")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::{Attempt, JobId};

    fn order(devices: &[&str]) -> LaunchOrder {
        LaunchOrder {
            job: JobId(7),
            attempt: Attempt(2),
            cwd: "/work".to_owned(),
            checkpoint_dir: "/ckpt/7".to_owned(),
            devices: devices.iter().map(|&device| device.to_owned()).collect(),
            mounts: vec!["/data:ro".to_owned(), "/scratch".to_owned()],
            env: [("SEED", "1"), ("HOME", "/in")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..LaunchOrder::default()
        }
    }

    fn line(engine: Engine, devices: &[&str], uid: u32) -> String {
        let order = order(devices);
        let env =
            [("PATH", "/bin"), ("HOME", "/in"), ("RANK", "1"), ("SEED", "1"), ("USER", "ada")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let argv = ["python3".to_owned(), "a b.py".to_owned()];
        let inside = Inside {
            order: &order,
            image: "torch:2",
            argv: &argv,
            env: &env,
            talk: Path::new("/run/7.2/job"),
            rank: 1,
            ids: (uid, 100),
            init: true,
        };
        command(engine, Path::new("/usr/bin/engine"), &inside).join(" ")
    }

    #[test]
    fn podman_gets_the_directories_the_variables_and_the_gpus_of_the_rank() {
        assert_eq!(
            line(Engine::Podman, &["GPU-a", "GPU-b"], 1000),
            "/usr/bin/engine run --rm --network=host --ipc=host --init --name=trainyard-7-2-1 --workdir=/work \
             --userns=keep-id --volume=/work:/work --volume=/ckpt/7:/ckpt/7 --volume=/run/7.2/job:/run/7.2/job \
             --volume=/data:/data:ro --volume=/scratch:/scratch --device=nvidia.com/gpu=GPU-a \
             --device=nvidia.com/gpu=GPU-b --env=HOME --env=RANK --env=SEED --entrypoint python3 torch:2 a b.py"
        );
    }

    #[test]
    fn docker_runs_as_the_jobs_user_and_sees_its_gpus_alone() {
        let line = line(Engine::Docker, &["GPU-a", "GPU-b"], 1000);
        assert!(line.contains(" --user=1000:100 "), "{line}");
        assert!(line.contains(" --gpus=\"device=GPU-a,GPU-b\" "), "{line}");
        assert!(!line.contains("keep-id") && !line.contains("nvidia.com"), "{line}");
    }

    #[test]
    fn apptainer_gets_its_own_words_and_no_gpu_where_none_is_real() {
        assert_eq!(
            line(Engine::Apptainer, &["0", "1"], 1000),
            "/usr/bin/engine exec --pwd=/work --bind=/work:/work --bind=/ckpt/7:/ckpt/7 \
             --bind=/run/7.2/job:/run/7.2/job --bind=/data:/data:ro --bind=/scratch:/scratch torch:2 python3 a b.py"
        );
        assert!(line(Engine::Apptainer, &["GPU-a"], 1000).contains(" --nv "));
    }
}
