//! The runs of a sweep: a cross product of settings, each run with a name that never changes.

use crate::args::{ElasticityArg, GivenArgs, StageArgs, WorldArgs};
use crate::choice::{self, Entrant};
use crate::failure::Failure;
use crate::given::{self, Given};
use crate::{files, options, seeds};
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trainyard_diagnostic::InputError;
use trainyard_policies::registry::Traits;
use trainyard_sim::{Options, Semantics};
use trainyard_types::Time;
use trainyard_workload::Workload;

/// The most runs of one sweep.
const RUNS_MAX: usize = 1_000_000;

/// Examples, as the help shows them.
pub const HELP: &str = "\
Examples:
  trainyard sweep --policies fifo,las,srtf --generate jobs=2000 --loads 0.5,0.8,1.1 --seeds 1..3 --out runs
  trainyard sweep --policies srtf --traces a.csv,b.csv.gz --over 'estimate-error=0,0.3,1' --out runs
  trainyard sweep --policies fifo,las --over 'las.quantum=10m,1h' --clusters '16x8 a100|8x8 a100, 8x8 v100' --out runs

Each finished run is one file under OUT/rows; the same command goes on where it was interrupted.
In the end OUT/results.csv and OUT/results.json hold all runs, in the order of the axes.";

/// `sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// Policies by name, with settings if wanted: a,b:key=value; `all` for every one [default: one of each family].
    #[arg(long, value_name = "NAMES", help_heading = "Axes")]
    pub policies: Vec<String>,
    /// Traces to run, formats told by their content: a.csv,b.csv.gz.
    #[arg(long, value_name = "FILES", help_heading = "Axes", conflicts_with_all = ["trace", "generate"])]
    pub traces: Option<String>,
    /// Clusters to run on: lines or files, with | between them.
    #[arg(long, value_name = "LINES|FILES", help_heading = "Axes")]
    pub clusters: Option<String>,
    /// Loads: generated jobs are drawn for each, those of traces come faster or slower: 0.5,0.8,1.1.
    #[arg(long, value_name = "PARTS", help_heading = "Axes")]
    pub loads: Option<String>,
    /// Seeds: a count, a range 1..5 or a list.
    #[arg(long, value_name = "SEEDS", help_heading = "Axes")]
    pub seeds: Option<String>,
    /// Any other setting (repeatable): NAME=VALUE,..., such as estimate-error=0,0.3,1 or las.quantum=10m,1h.
    #[arg(long, value_name = "AXIS", help_heading = "Axes")]
    pub over: Vec<String>,
    /// The directory of the results; a sweep that was interrupted goes on there.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: PathBuf,
    /// Also write OUT/results.parquet; only in a build with the feature `parquet`.
    #[arg(long, help_heading = "Output")]
    pub parquet: bool,
    /// Only list the runs, and which of them are done.
    #[arg(long, help_heading = "Output")]
    pub dry_run: bool,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Threads to use; results do not depend on it [default: all cores].
    #[arg(
        long,
        value_name = "NUMBER",
        env = "TRAINYARD_THREADS",
        hide_env_values = true,
        allow_hyphen_values = true,
        help_heading = "Output"
    )]
    pub threads: Option<String>,
    /// What is put around the policies.
    #[command(flatten)]
    pub stages: StageArgs,
    /// Jobs and cluster.
    #[command(flatten)]
    pub given: GivenArgs,
    /// The simulated world.
    #[command(flatten)]
    pub world: WorldArgs,
}

/// One run of a sweep.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Its settings by name, in the order of the axes; what was not varied is absent.
    pub settings: Vec<(String, String)>,
    /// The policy as the user wrote it.
    policy: String,
    load: Option<f64>,
    seed: u64,
    given: GivenArgs,
    world: WorldArgs,
    stages: StageArgs,
    /// A hash of all that its result depends on.
    pub key: String,
}

/// All that a run needs.
pub struct Ready {
    /// The jobs and the cluster.
    pub given: Given,
    /// The policy.
    pub entrant: Entrant,
    /// The options.
    pub options: Options,
}

impl Cell {
    /// Reads or draws what the run needs.
    pub fn ready(&self) -> Result<Ready, Failure> {
        let mut given = given::load(&self.given)?;
        if let Some(load) = self.load.filter(|_| self.given.generate.is_none()) {
            scale_load(&mut given, load)?;
        }
        let options = options::read(&self.world, self.seed)?;
        options::refuse_window(&options, &given.workload)?;
        options::refuse_pool(&options, &given.cluster)?;
        Ok(Ready { given, entrant: self.entrant()?, options })
    }

    fn entrant(&self) -> Result<Entrant, Failure> {
        let semantics = self.world.semantics;
        choice::entrant_alone(&self.policy, &self.stages, semantics)
    }

    /// The settings in one line.
    pub fn text(&self) -> String {
        let pairs = self.settings.iter().map(|(key, value)| format!("{key}={value}"));
        pairs.collect::<Vec<String>>().join(" ")
    }
}

/// One axis: a name and its values; no values means that it is not varied.
type Axis = (String, Vec<String>);

/// All runs of a sweep by a version of the program, in the order of their axes; a setting of another policy makes no run of its own.
pub fn cells(args: &SweepArgs, version: &str) -> Result<Vec<Cell>, Failure> {
    let first = options::whole("--seed", &args.given.seed, options::SEED_MAX)?;
    let seeds = match &args.seeds {
        Some(text) => seeds::read(text, first)?,
        None => vec![first],
    };
    let semantics = args.world.semantics;
    // Many workloads may take part, and none is read yet.
    let jobs = Traits { elastic: args.given.elasticity != ElasticityArg::Rigid, deadlines: false };
    let entrants = choice::entrants(&args.policies, &args.stages, (semantics, jobs))?;
    let mut axes: Vec<Axis> = vec![
        ("trace".to_owned(), listed(args.traces.as_deref(), ',')),
        ("cluster".to_owned(), listed(args.clusters.as_deref(), '|')),
        ("load".to_owned(), listed(args.loads.as_deref(), ',')),
    ];
    for text in &args.over {
        axes.push(over(text, &entrants)?);
    }
    axes.push(("policy".to_owned(), entrants.iter().map(|one| one.label.clone()).collect()));
    axes.push(("seed".to_owned(), seeds.iter().map(u64::to_string).collect()));
    let product = axes
        .iter()
        .map(|(_, values)| values.len().max(1))
        .try_fold(1usize, |a, b| a.checked_mul(b).filter(|product| *product <= RUNS_MAX));
    let Some(count) = product else {
        return Err(Failure::flag("sweep", "these axes", format!("at most {RUNS_MAX} runs")));
    };
    let mut digests = Digests { version, files: BTreeMap::new() };
    let mut cells: Vec<Cell> = Vec::new();
    let mut seen = BTreeSet::new();
    for number in 0..count {
        let cell = cell(args, &chosen(&axes, number), &mut digests)?;
        // Two points of the product that differ only in what the policy does not have are one run.
        if seen.insert(cell.key.clone()) {
            cells.push(cell);
        }
    }
    Ok(cells)
}

/// The values that a number of the cross product stands for; the last axis turns fastest.
fn chosen(axes: &[Axis], mut number: usize) -> Vec<(&str, &str)> {
    let mut pairs = Vec::new();
    for (name, values) in axes.iter().rev().filter(|(_, values)| !values.is_empty()) {
        pairs.push((name.as_str(), values[number % values.len()].as_str()));
        number /= values.len();
    }
    pairs.reverse();
    pairs
}

fn cell(
    args: &SweepArgs,
    pairs: &[(&str, &str)],
    digests: &mut Digests<'_>,
) -> Result<Cell, Failure> {
    let policy = pairs.iter().find(|(name, _)| *name == "policy").map_or("", |(_, value)| value);
    let mut cell = Cell {
        settings: Vec::new(),
        policy: policy.to_owned(),
        load: None,
        seed: 0,
        given: args.given.clone(),
        world: args.world.clone(),
        stages: args.stages.clone(),
        key: String::new(),
    };
    // A setting given for all runs is for those policies that have such an owner; `entrants` knows each of them.
    cell.stages.sets.retain(|set| takes_part(policy, &args.stages, owner_of(set)));
    for (name, value) in pairs {
        if set(&mut cell, name, value)? {
            cell.settings.push(((*name).to_owned(), (*value).to_owned()));
        }
    }
    options::read(&cell.world, cell.seed)?;
    let entrant = cell.entrant()?;
    entrant.selection.build().map_err(|error| Failure::config("", error))?;
    cell.key = digests.key(&cell, &choice::settings(&entrant))?;
    Ok(cell)
}

/// Puts one value into a run; false where the run has nothing that it could change.
fn set(cell: &mut Cell, name: &str, value: &str) -> Result<bool, Failure> {
    let text = || Some(value.to_owned());
    match name {
        "trace" => cell.given.trace = Some(PathBuf::from(value)),
        "cluster" => cell.given.cluster = text(),
        "policy" => {}
        "seed" => {
            cell.seed = options::whole("--seeds", value, options::SEED_MAX)?;
            cell.given.seed = value.to_owned();
        }
        "load" => {
            let load = value.parse().ok().filter(|load| *load > 0.0 && *load <= 1000.0);
            let load: f64 =
                load.ok_or_else(|| Failure::flag("--loads", value, "parts above 0, such as 0.8"))?;
            cell.load = Some(load);
            if let Some(laws) = &mut cell.given.generate {
                laws.push(format!("load={value}"));
            }
        }
        "semantics" => {
            cell.world.semantics = Semantics::find(value).ok_or_else(|| {
                let names = Semantics::ALL.iter().map(|preset| preset.name());
                Failure::input("--over", InputError::unknown(0, "semantics", value, names))
            })?;
        }
        "costs" => cell.world.costs = text(),
        "estimate-error" => cell.world.estimate_error = text(),
        "speed-error" => cell.world.speed_error = text(),
        "pairs-known" => cell.world.pairs_known = text(),
        "colocation" => cell.world.colocation = text(),
        "interference" => cell.world.interference = text(),
        "round" => cell.world.round = text(),
        "failures" => cell.world.failures = text(),
        "lend" => cell.world.lend = text(),
        "decision-cost" => cell.world.decision_cost = text(),
        "checkpoint-every" => cell.world.checkpoint_every = text(),
        "place" => cell.stages.place = text(),
        "admit" => cell.stages.admit = text().into_iter().collect(),
        _ => {
            if let (Some(law), Some(laws)) =
                (name.strip_prefix("generate."), &mut cell.given.generate)
            {
                laws.push(format!("{law}={value}"));
                return Ok(true);
            }
            if !takes_part(&cell.policy, &cell.stages, owner_of(name)) {
                return Ok(false);
            }
            cell.stages.sets.push(format!("{name}={value}"));
        }
    }
    Ok(true)
}

/// What can be varied besides policies, traces, clusters, loads and seeds.
const OVER: [&str; 14] = [
    "semantics",
    "costs",
    "estimate-error",
    "speed-error",
    "pairs-known",
    "colocation",
    "interference",
    "round",
    "failures",
    "lend",
    "decision-cost",
    "checkpoint-every",
    "place",
    "admit",
];

/// Reads `NAME=VALUE,VALUE,...`; commas in brackets belong to a value.
fn over(text: &str, entrants: &[Entrant]) -> Result<Axis, Failure> {
    let expected = format!("NAME=VALUE,... with an OWNER.KEY, generate.KEY or {}", OVER.join(", "));
    let refused = || Failure::flag("--over", text, expected.as_str());
    let (name, values) = text.split_once('=').ok_or_else(refused)?;
    let name = name.trim();
    let values: Vec<String> = match name {
        // These hold commas themselves.
        "failures" | "lend" | "decision-cost" | "place" | "admit" => listed(Some(values), '|'),
        _ => choice::split_list(values).into_iter().map(str::to_owned).collect(),
    };
    let is_law = name.starts_with("generate.");
    if values.is_empty() || !(OVER.contains(&name) || is_law || name.contains('.')) {
        return Err(refused());
    }
    if !is_law && name.contains('.') {
        let owner = owner_of(name);
        let is_policy = entrants.iter().any(|one| one.selection.policy.name == owner);
        let is_stage = |one: &Entrant| {
            let mut stages = one.selection.place.iter().chain(&one.selection.admit);
            stages.any(|choice| choice.name == owner)
        };
        if !is_policy && !entrants.iter().any(is_stage) {
            let present: Vec<&str> = entrants.iter().map(|one| one.entry.name).collect();
            let expected = format!("a setting of one that takes part: {}", present.join(", "));
            return Err(Failure::flag("--over", name, expected));
        }
    }
    Ok((name.to_owned(), values))
}

fn owner_of(path: &str) -> &str {
    path.split('.').next().unwrap_or("").trim()
}

fn takes_part(policy: &str, stages: &StageArgs, owner: &str) -> bool {
    let name = |text: &str| text.split([':', '=']).next().unwrap_or("").trim().to_owned();
    let mut around = stages.place.iter().chain(&stages.admit).chain(&stages.tune);
    name(policy) == owner || around.any(|text| name(text) == owner)
}

fn listed(text: Option<&str>, at: char) -> Vec<String> {
    let parts = text.unwrap_or("").split(at).map(str::trim).filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

/// Stretches or squeezes the times of all jobs so that they ask for this part of the cluster.
fn scale_load(given: &mut Given, load: f64) -> Result<(), Failure> {
    let now = given.workload.offered_load(&given.cluster);
    let factor = now / load;
    if !(factor.is_finite() && factor > 0.0) {
        let expected = "jobs that do not all come at once";
        return Err(Failure::flag("--loads", &load.to_string(), expected));
    }
    let Workload { jobs, .. } = &mut given.workload;
    let start = jobs.first().map_or(Time::ZERO, |one| one.job.submitted);
    for one in jobs {
        let job = Arc::make_mut(&mut one.job);
        let before = job.submitted;
        let moved = start + before.since(start).scaled(factor);
        // What is set for a job keeps its distance from the submission.
        let shifted = |time: Time| moved + time.since(before);
        job.not_before = job.not_before.map(shifted);
        for (time, _) in &mut job.value {
            *time = shifted(*time);
        }
        job.submitted = moved;
    }
    Ok(())
}

/// Hashes of files, each read once.
struct Digests<'a> {
    version: &'a str,
    files: BTreeMap<PathBuf, u64>,
}

impl Digests<'_> {
    /// A hash over the program's version, all settings and the bytes of all files that are read.
    fn key(&mut self, cell: &Cell, settings: &[(String, String)]) -> Result<String, Failure> {
        let mut hash = Fnv::default();
        hash.text(self.version);
        hash.text(&cell.policy);
        for (key, value) in settings {
            hash.text(key);
            hash.text(value);
        }
        let options = options::read(&cell.world, cell.seed)?;
        for (key, value) in options::listed(&cell.world, &options) {
            hash.text(&key);
            hash.text(&value);
        }
        hash.text(&cell.seed.to_string());
        hash.text(&cell.load.map(|load| load.to_string()).unwrap_or_default());
        hash.text(&format!(
            "{:?} {:?} {:?}",
            cell.given.generate, cell.given.format, cell.given.elasticity
        ));
        hash.text(cell.given.cluster.as_deref().unwrap_or(""));
        let cluster = cell.given.cluster.as_deref().map(Path::new).filter(|path| path.is_file());
        let name = cell.given.trace.as_deref().and_then(Path::file_name);
        hash.text(&name.map(|name| name.to_string_lossy()).unwrap_or_default());
        let read = cell.given.trace.as_deref().into_iter().chain(cluster);
        for path in read.chain(cell.given.profiles.iter().map(PathBuf::as_path)) {
            hash.text(&format!("{:016x}", self.of(path)?));
        }
        Ok(format!("{:016x}", hash.0))
    }

    fn of(&mut self, path: &Path) -> Result<u64, Failure> {
        if let Some(known) = self.files.get(path) {
            return Ok(*known);
        }
        let mut reader = files::open(path)?;
        let mut hash = Fnv::default();
        let mut block = vec![0; 1 << 16];
        loop {
            let count = reader.read(&mut block).map_err(|error| files::unreadable(path, &error))?;
            if count == 0 {
                break;
            }
            hash.bytes(&block[..count]);
        }
        self.files.insert(path.to_owned(), hash.0);
        Ok(hash.0)
    }
}

/// FNV-1a with 64 bits: the same on every machine and in every version.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// A text and its end, so that two texts never read like one.
    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
        self.bytes(&[0xff]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_axis_turns_fastest_and_empty_ones_are_left_out() {
        let axis = |name: &str, values: &[&str]| -> Axis {
            (name.to_owned(), values.iter().map(|value| (*value).to_owned()).collect())
        };
        let axes = [axis("a", &["1", "2"]), axis("b", &[]), axis("c", &["x", "y"])];
        let all: Vec<String> = (0..4)
            .map(|number| chosen(&axes, number).iter().map(|(_, value)| *value).collect())
            .collect();
        assert_eq!(all, ["1x", "1y", "2x", "2y"]);
    }

    #[test]
    fn the_hash_is_that_of_the_standard() {
        let mut hash = Fnv::default();
        hash.bytes(b"foobar");
        assert_eq!(hash.0, 0x8594_4171_f739_67e8);
    }
}
