//! `doctor`: an installation looked at from outside.

use super::host_args::DoctorArgs;
use super::places::Places;
use super::policy_factory;
use super::serve;
use super::slurm;
use crate::failure::Failure;
use crate::output::Output;
use serde::Serialize;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use trainyard_api::answer::Status;
use trainyard_api::ask;
use trainyard_backend::health::{Judge, Rules};
use trainyard_backend::{cgroup, discover, health, shared_gpu, suspender};
use trainyard_client::show::versioned;
use trainyard_client::{Address, Client, Connection};
use trainyard_store::{Reader, fsync_rate};

/// Below this many syncs a second single submissions are slow.
const SYNCS_LEAST: f64 = 200.0;

/// How a check came out.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    Good,
    /// It works, with less.
    Warning,
    /// It does not work.
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    name: &'static str,
    pub(super) verdict: Verdict,
    detail: String,
}

/// `doctor`.
pub fn run(args: &DoctorArgs, output: &Output) -> Result<(), Failure> {
    let places = Places::find(&args.state)?;
    let mut checks = vec![store(&places), folder(&places), socket(&places)];
    checks.push(users());
    checks.push(cgroups(&places));
    checks.push(gpus());
    checks.extend(gpu_health());
    checks.push(sharing());
    checks.push(aside(args, &places));
    checks.push(disk(&places));
    checks.push(clock(&places));
    checks.push(policy(args, &places));
    if args.slurm {
        for (works, detail) in slurm::examine(&args.client, &places.run)? {
            let verdict = if works { Verdict::Good } else { Verdict::Bad };
            checks.push(check("slurm", verdict, detail));
        }
    }
    let bad = checks.iter().filter(|check| check.verdict == Verdict::Bad).count();
    if args.json {
        output.print_json(&versioned(serde_json::json!({ "checks": checks, "bad": bad })))?;
    } else {
        print(&checks, output)?;
    }
    match bad {
        0 => Ok(()),
        1 => Err(Failure::Operation("one check is bad".to_owned())),
        count => Err(Failure::Operation(format!("{count} checks are bad"))),
    }
}

/// One line for each check.
pub(super) fn print(checks: &[Check], output: &Output) -> Result<(), Failure> {
    for Check { name, verdict, detail } in checks {
        let word = match verdict {
            Verdict::Good => "ok",
            Verdict::Warning => "warning",
            Verdict::Bad => "BAD",
        };
        output.print(&format!("{word:<9}{name:<10}{detail}\n"))?;
    }
    Ok(())
}

pub(super) fn check(name: &'static str, verdict: Verdict, detail: impl Into<String>) -> Check {
    Check { name, verdict, detail: detail.into() }
}

fn store(places: &Places) -> Check {
    if !places.store.exists() {
        let detail = format!("{}: not there yet; the first start makes it", places.store.display());
        return check("store", Verdict::Good, detail);
    }
    match Reader::open(&places.store).and_then(|reader| reader.check()) {
        Ok(faults) if faults.is_empty() => {
            check("store", Verdict::Good, format!("{}: sound", places.store.display()))
        }
        Ok(faults) => check("store", Verdict::Bad, faults.join("; ")),
        Err(error) => check("store", Verdict::Bad, error.to_string()),
    }
}

fn folder(places: &Places) -> Check {
    let there = nearest(&places.state);
    let Ok(found) = fs::metadata(there) else {
        return check("folder", Verdict::Bad, format!("{} cannot be looked at", there.display()));
    };
    let writable = nix::unistd::access(there, nix::unistd::AccessFlags::W_OK).is_ok();
    if !writable {
        let detail = format!(
            "{} cannot be written by this user; choose another with --state",
            there.display()
        );
        return check("folder", Verdict::Bad, detail);
    }
    if there == places.state && found.mode() & 0o022 != 0 {
        let detail = format!("{} can be written by others: chmod go-w it", there.display());
        return check("folder", Verdict::Bad, detail);
    }
    check("folder", Verdict::Good, format!("{} can be written", there.display()))
}

/// The nearest folder above that exists.
fn nearest(path: &Path) -> &Path {
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"))
}

fn socket(places: &Places) -> Check {
    let path = places.socket.display();
    match UnixStream::connect(&places.socket) {
        Ok(_) => check("socket", Verdict::Good, format!("{path}: a daemon answers")),
        Err(error) if places.socket.exists() => {
            let detail = format!("{path}: no daemon answers ({error}); the next start replaces it");
            check("socket", Verdict::Warning, detail)
        }
        Err(_) => check("socket", Verdict::Warning, format!("{path}: no daemon runs here")),
    }
}

/// Whether jobs that share a GPU can be held to their shares.
fn sharing() -> Check {
    let found = std::env::current_exe().ok().and_then(|own| shared_gpu::find_library(&own));
    let Some(library) = found else {
        let detail = format!(
            "{} is neither beside this program nor in ../lib/trainyard, and jobs that share a GPU run by time slicing: install it from the archive, or build it with `cargo build --release -p trainyard-preload`",
            shared_gpu::LIBRARY
        );
        return check("sharing", Verdict::Warning, detail);
    };
    match shared_gpu::distrust(&library) {
        Some(why) => {
            let detail = format!("{why}; jobs that share a GPU run by time slicing");
            check("sharing", Verdict::Warning, detail)
        }
        None => check("sharing", Verdict::Good, format!("{} is there", library.display())),
    }
}

/// Whether the driver can put jobs aside in host memory, and how much of it they are given.
fn aside(args: &DoctorArgs, places: &Places) -> Check {
    let given = match told(places).map(|status| status.aside) {
        Some(Some(aside)) => {
            format!("the daemon gives them {} MiB of host memory", aside.memory_mib)
        }
        Some(None) => "the daemon gives them no host memory (`serve --suspend-memory`)".to_owned(),
        None => "without `serve --suspend-memory` they get no host memory".to_owned(),
    };
    let has =
        serve::ram_mib().map_or_else(String::new, |ram| format!(", of {ram} MiB that there are"));
    let probed = std::env::current_exe()
        .map_err(|error| error.to_string())
        .and_then(|own| suspender::probe(&own, args.driver_library.as_deref()));
    match probed {
        Ok(()) => {
            let detail = format!("the driver can put jobs aside; {given}{has}");
            check("aside", Verdict::Good, detail)
        }
        Err(why) => {
            let detail = format!("no job can be put aside: {why}; jobs save and exit instead");
            check("aside", Verdict::Warning, detail)
        }
    }
}

/// What a daemon says of itself, if one runs here.
fn told(places: &Places) -> Option<Status> {
    let address = Address::Socket(places.socket.clone());
    let connection =
        Connection { address, token: None, roots: None, for_people: false, warn: |_| {} };
    Client::new(connection).ok()?.asking_once().send(&ask::status()).ok()
}

fn users() -> Check {
    let user = nix::unistd::geteuid();
    match user.is_root() {
        true => check("users", Verdict::Good, "as root, jobs run as the users who submit them"),
        false => {
            let detail =
                "jobs run as this user, and no other user is served; root or --helper changes that";
            check("users", Verdict::Warning, detail)
        }
    }
}

fn cgroups(places: &Places) -> Check {
    let found = cgroup::prepare(&places.run);
    match (found.parent, found.warnings.as_slice()) {
        (Some(parent), []) => check("cgroups", Verdict::Good, parent.display().to_string()),
        (_, warnings) => check("cgroups", Verdict::Warning, warnings.join("; ")),
    }
}

fn gpus() -> Check {
    let found = discover();
    if found.gpus.is_empty() && found.unused.is_empty() {
        let detail = "NVML finds none; declare slots with `trainyard serve --gpus N`";
        return check("GPUs", Verdict::Warning, detail);
    }
    let names = found.gpus.iter().map(|gpu| gpu.name.as_str());
    let all: Vec<&str> = names.chain(found.unused.iter().map(String::as_str)).collect();
    let verdict = if found.unused.is_empty() { Verdict::Good } else { Verdict::Warning };
    check("GPUs", verdict, all.join(", "))
}

/// What NVML says of each GPU, and what a daemon would make of it.
fn gpu_health() -> Vec<Check> {
    let Ok(readings) = health::look(None) else { return Vec::new() };
    let mut judge = Judge::new(Rules::default());
    let one = |reading: health::Reading| {
        let seen = judge.look(std::time::Duration::ZERO, &reading, &[]);
        let worst = seen.stands.iter().map(|found| found.verdict).max();
        let verdict = match worst {
            None => Verdict::Good,
            Some(trainyard_backend::HealthVerdict::Quarantine) => Verdict::Bad,
            Some(_) => Verdict::Warning,
        };
        let stands: Vec<&str> = seen.stands.iter().map(|found| found.what.as_str()).collect();
        let told = |value: Option<u64>| value.map_or("not told".to_owned(), |it| it.to_string());
        let number = |flag: Option<bool>| told(flag.map(u64::from));
        let up = reading.links.iter().filter(|link| link.active).count();
        let errors: u64 = reading.links.iter().map(|link| link.errors).sum();
        let detail = format!(
            "GPU {}: {} °C (slows down at {}, shuts down at {}), uncorrected ECC {}, rows to remap {}, \
             failed {}, NVLinks {up} of {} up with {errors} errors{}{}",
            reading.index,
            told(reading.temperature.map(u64::from)),
            told(reading.slowdown_at.map(u64::from)),
            told(reading.shutdown_at.map(u64::from)),
            told(reading.ecc_uncorrected),
            number(reading.remap_pending),
            number(reading.remap_failure),
            reading.links.len(),
            if stands.is_empty() { "" } else { "; " },
            stands.join(", "),
        );
        check("health", verdict, detail)
    };
    readings.into_iter().map(one).collect()
}

fn disk(places: &Places) -> Check {
    match fsync_rate(nearest(&places.state)) {
        Ok(rate) if rate >= SYNCS_LEAST => {
            check("disk", Verdict::Good, format!("{rate:.0} syncs a second"))
        }
        Ok(rate) => {
            let detail = format!(
                "{rate:.0} syncs a second: single submissions are slow, send them in batches"
            );
            check("disk", Verdict::Warning, detail)
        }
        Err(error) => check("disk", Verdict::Bad, error.to_string()),
    }
}

/// A wall clock before the birth of the store was set back.
fn clock(places: &Places) -> Check {
    let reader = places.store.exists().then(|| Reader::open(&places.store).ok()).flatten();
    let born = reader.and_then(|reader| reader.meta("born").ok().flatten());
    let born = born.and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0) / 1e6;
    let now = trainyard_client::show::now();
    match now >= born && now > 1.6e9 {
        true => check("clock", Verdict::Good, trainyard_client::show::clock(now)),
        false => {
            let detail = "the wall clock is behind the store: times that are shown are wrong, decisions are not";
            check("clock", Verdict::Warning, detail)
        }
    }
}

fn policy(args: &DoctorArgs, places: &Places) -> Check {
    let reader = places.store.exists().then(|| Reader::open(&places.store).ok()).flatten();
    let kept = reader.and_then(|reader| reader.meta("policy").ok().flatten());
    let kept = kept.and_then(|text| serde_json::from_str::<String>(&text).ok());
    let label = args.policy.clone().or(kept).unwrap_or_else(|| policy_factory::FIRST.to_owned());
    match policy_factory::build(&label) {
        Ok(_) => check("policy", Verdict::Good, format!("`{label}` can be built")),
        Err(failure) => check("policy", Verdict::Bad, failure.message()),
    }
}
