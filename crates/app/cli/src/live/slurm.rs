//! The nodes of a Slurm cluster in place of this machine: `serve --slurm`, and what `doctor --slurm` looks at.

use super::host_args::SlurmArgs;
use super::machine::Machine;
use super::places::Places;
use crate::args::slurm::ClientArgs;
use crate::commands::slurm::calls;
use crate::failure::Failure;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use trainyard_backend::attempt_dir;
use trainyard_daemon::host::Message;
use trainyard_experiment::options;
use trainyard_slurm::{CallError, Calls, Inventory, Lookout, NodeFilter, Slurm, SlurmOptions};
use trainyard_workload::cluster::default_kind;

/// Slurm's nodes, and how Slurm is called.
pub struct Found {
    inventory: Inventory,
    calls: Arc<Calls>,
    /// How the nodes were found, for people.
    how: String,
}

/// Looks at Slurm, if it is to be scheduled. While it does not answer, its nodes are those that it had last.
pub fn find(args: &SlurmArgs, places: &mut Places) -> Result<Option<Found>, Failure> {
    if !args.slurm {
        return Ok(None);
    }
    if let Some(dir) = &args.slurm_dir {
        let dir = std::path::absolute(dir);
        places.run = dir.map_err(|error| Failure::Operation(format!("--slurm-dir: {error}")))?;
    }
    places.make()?;
    let kept = places.state.join("slurm-nodes.json");
    let before: Option<Inventory> = attempt_dir::read(&kept).map_err(operation)?;
    let calls = Arc::new(calls(&args.client)?);
    let partitions = args.slurm_partition.iter().cloned().collect();
    let lookout = Lookout::new(&calls);
    let seen = lookout.look();
    let (inventory, how) = match (seen, before) {
        (Ok(seen), before) => {
            let mut now = Inventory::of(&seen, &NodeFilter { partitions });
            match lookout.is_exclusive(args.slurm_partition.as_deref()) {
                Ok(exclusive) => now.cluster.rules.exclusive_nodes = exclusive,
                Err(error) => tracing::warn!("partitions are taken to share nodes: {error}"),
            }
            let inventory = now.continued(before.unwrap_or_default());
            let release = if seen.release.is_empty() { "Slurm" } else { &seen.release };
            (inventory, format!("by Slurm {}", release.trim_start_matches("Slurm ")))
        }
        (Err(error), Some(before)) if error.may_pass() => {
            tracing::warn!("{error}; its nodes are taken as they were");
            (before, "as Slurm had them last; it does not answer now".to_owned())
        }
        (Err(error), _) => return Err(Failure::Operation(error.to_string())),
    };
    if inventory.cluster.nodes.is_empty() {
        return Err(Failure::Operation(format!(
            "Slurm has no nodes with GPUs to schedule: {}",
            inventory.warnings.join("; ")
        )));
    }
    attempt_dir::write_durably(&kept, &inventory).map_err(operation)?;
    Ok(Some(Found { inventory, calls, how }))
}

fn operation(error: impl std::fmt::Display) -> Failure {
    Failure::Operation(error.to_string())
}

impl Found {
    /// The nodes as the daemon schedules them.
    pub fn machine(&self) -> Machine {
        let mut cluster = self.inventory.cluster.clone();
        if cluster.pools.is_empty() {
            cluster.pools.push("default".to_owned());
        }
        for kind in &mut cluster.kinds {
            if let Some(facts) = default_kind(&kind.name) {
                (kind.price_per_hour, kind.watts) = (facts.price_per_hour, facts.watts);
            }
        }
        // Slurm gives what is free by its own count; the numbers only tell how many.
        let devices = cluster
            .nodes
            .iter()
            .map(|node| (0..node.gpus).map(|index| (index, index.to_string())).collect::<Vec<_>>());
        let devices = devices.collect();
        let gpus: u32 = cluster.nodes.iter().map(|node| u32::from(node.gpus)).sum();
        let kinds: Vec<&str> = cluster.kinds.iter().map(|kind| kind.name.as_str()).collect();
        let nodes = cluster.nodes.len();
        let told = format!("{gpus} on {nodes} nodes: {} ({})", kinds.join(", "), self.how);
        Machine { cluster, devices, told }
    }

    /// The backend.
    pub fn backend(
        self,
        args: &SlurmArgs,
        places: &Places,
        messages: mpsc::Sender<Message>,
    ) -> Result<Slurm, Failure> {
        let poll = options::span("--slurm-poll", &args.slurm_poll)?;
        let mut options = SlurmOptions::new(places.run.clone(), self.inventory);
        options.partition.clone_from(&args.slurm_partition);
        options.account.clone_from(&args.slurm_account);
        options.reconfigures = args.slurm_reconfigure;
        options.poll = Duration::from_micros(poll.0).max(Duration::from_millis(50));
        let reports = move |report| {
            // The receiver is gone when the daemon ends.
            let _ = messages.send(Message::Report(report));
        };
        Slurm::new(options, self.calls, reports).map_err(operation)
    }
}

/// How Slurm does, for `doctor`: whether it works, and a sentence.
pub fn examine(args: &ClientArgs, run: &Path) -> Result<Vec<(bool, String)>, Failure> {
    let calls = calls(args)?;
    let mut told = Vec::new();
    match Lookout::new(&calls).look() {
        Ok(seen) => {
            let inventory = Inventory::of(&seen, &NodeFilter::default());
            let (nodes, jobs) = (inventory.cluster.nodes.len(), seen.jobs.len());
            let release = seen.release;
            told.push((
                nodes > 0,
                format!("Slurm {release} answers: {nodes} nodes with GPUs, {jobs} jobs"),
            ));
            told.extend(inventory.warnings.into_iter().map(|warning| (true, warning)));
        }
        Err(error) => return Ok(vec![(false, error.to_string())]),
    }
    told.push(may_submit(&calls));
    told.push(match nix::unistd::geteuid().is_root() {
        true => (true, "root: jobs run as the users who submit them".to_owned()),
        false => (true, "no root: all jobs run as this account, for this account".to_owned()),
    });
    let run: PathBuf = run.to_path_buf();
    told.push((true, format!("{} must be the same folder on every node", run.display())));
    Ok(told)
}

/// Asks Slurm what it would say to a job, without submitting one.
fn may_submit(calls: &Calls) -> (bool, String) {
    let arguments = ["--test-only", "--hold", "--nodes=1", "--mem=1", "--wrap=true"];
    match calls.run_bare("sbatch", &arguments) {
        Ok(_) => (true, "this account may submit jobs".to_owned()),
        // It says when the job would start, and calls that an error.
        Err(CallError::Refused { message, .. }) if message.contains("to start at") => {
            (true, "this account may submit jobs".to_owned())
        }
        Err(error) => (false, format!("this account cannot submit jobs: {error}")),
    }
}
