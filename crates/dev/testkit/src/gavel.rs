//! Recorded runs of Gavel's own simulator, as they lie beside the repository (`shared/golden/gavel`).

use crate::places;
use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use trainyard_profile::Catalog;
use trainyard_profile::import::gavel;
use trainyard_types::{Cluster, JobId, Placement};
use trainyard_workload::Workload;
use trainyard_workload::import::{Format, ImportContext, import};

/// Types in the order in which the recordings number their GPUs.
pub const KINDS: [&str; 3] = ["k80", "p100", "v100"];

/// The folder of shared data, or nothing and a line that says so.
pub fn shared() -> Option<PathBuf> {
    places::shared("golden/gavel")?;
    places::shared("")
}

/// One recorded run.
pub struct Recording {
    /// Its name, such as `medium20_2-2-2_fifo`.
    pub name: String,
    /// What was run and what came of it.
    pub about: About,
    /// The calls of its policy.
    pub calls: Vec<Call>,
    /// Its rounds.
    pub rounds: Vec<Round>,
    folder: PathBuf,
}

/// What was run and what came of it.
#[derive(Deserialize)]
pub struct About {
    /// The trace, below the folder of Gavel's data.
    pub trace: String,
    /// The policy's name on the command line of the original.
    pub policy: String,
    /// The policy's name in its code, by parts of which the original tells policies apart.
    pub policy_name: String,
    /// GPUs by type.
    pub cluster: BTreeMap<String, u32>,
    /// GPUs of a server by type.
    pub num_gpus_per_server: BTreeMap<String, u32>,
    /// Mean completion time in seconds.
    pub avg_jct_s: f64,
    /// When the last job ended, in seconds.
    pub makespan_s: f64,
    /// Completion times in seconds by job.
    pub jct_s: BTreeMap<String, f64>,
}

/// One call of the policy.
#[derive(Deserialize)]
pub struct Call {
    /// When, in seconds.
    pub t: f64,
    /// The jobs it was asked about.
    pub jobs: BTreeMap<String, Asked>,
    /// Fractions of time by job, or by pair written as `(a, b)`, and type.
    pub alloc: BTreeMap<String, BTreeMap<String, f64>>,
}

/// A job in a call.
#[derive(Deserialize)]
pub struct Asked {
    /// GPUs.
    pub sf: u32,
    /// Its weight.
    pub w: f64,
    /// Steps that are left.
    pub steps_left: f64,
    /// When it came, in seconds.
    pub arrival: f64,
}

/// One round.
#[derive(Deserialize)]
pub struct Round {
    /// When it began, in seconds.
    pub t: f64,
    /// Type and GPUs by job, or by pair.
    pub assign: BTreeMap<String, (String, Vec<u32>)>,
}

/// Speeds of jobs, alone and in pairs, as they were measured.
pub struct PairRates {
    table: serde_json::Value,
    /// The name of each job in the table.
    keys: Vec<String>,
}

impl PairRates {
    /// Steps per second of a job alone on a type.
    pub fn alone(&self, kind: &str, job: JobId) -> f64 {
        self.table[kind][&self.keys[job.index()]]["null"].as_f64().unwrap_or(0.0)
    }

    /// Steps per second of both on a type; zero for a pair that was not measured or does not fit.
    pub fn get(&self, kind: &str, a: JobId, b: JobId) -> [f64; 2] {
        let pair = &self.table[kind][&self.keys[a.index()]][&self.keys[b.index()]];
        [0, 1].map(|member| pair[member].as_f64().unwrap_or(0.0))
    }
}

impl Recording {
    /// All recordings, in order of name.
    pub fn all(shared: &Path) -> Result<Vec<Recording>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(shared.join("golden/gavel"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(".json").map(str::to_owned));
        }
        names.sort();
        names.iter().map(|name| Recording::read(shared, name)).collect()
    }

    /// The recording of a name.
    pub fn read(shared: &Path, name: &str) -> Result<Recording> {
        let folder = shared.join("golden/gavel");
        let about = std::fs::read_to_string(folder.join(format!("{name}.json")))
            .with_context(|| format!("the recording {name}"))?;
        Ok(Recording {
            name: name.to_owned(),
            about: serde_json::from_str(&about)?,
            calls: lines(&folder.join(format!("{name}.alloc.jsonl.gz")))?,
            rounds: lines(&folder.join(format!("{name}.rounds.jsonl.gz")))?,
            folder: shared.join("data/gavel"),
        })
    }

    /// Whether the original shuffles types, for a policy that does not distinguish them.
    pub fn is_blind(&self) -> bool {
        !self.about.policy_name.contains("Perf") && !self.is_packed()
    }

    /// Whether jobs share GPUs.
    pub fn is_packed(&self) -> bool {
        self.about.policy_name.contains("Packing")
    }

    /// Whether what has no share stays idle.
    pub fn is_fifo(&self) -> bool {
        self.about.policy_name.starts_with("FIFO")
    }

    /// The jobs, at the speeds of the original to the last bit.
    pub fn workload(&self) -> Result<Workload> {
        let speeds = std::fs::read_to_string(self.folder.join("simulation_throughputs.json"))?;
        let mut context = ImportContext::new(&self.name, None);
        context.catalog = Catalog::builtin();
        for profile in gavel::read(&speeds)? {
            context.catalog.add(profile);
        }
        let format = Format::named("gavel").context("the format of Gavel's traces")?;
        let trace = File::open(self.folder.join(&self.about.trace))?;
        Ok(import(format, BufReader::new(trace), context)?.workload)
    }

    /// The measured speeds of pairs, to the last bit; a profile has them as parts of the speeds alone.
    pub fn pair_rates(&self) -> Result<PairRates> {
        let speeds = std::fs::read_to_string(self.folder.join("simulation_throughputs.json"))?;
        let trace = std::fs::read_to_string(self.folder.join(&self.about.trace))?;
        let key = |line: &str| {
            let fields: Vec<&str> = line.split('\t').collect();
            format!("('{}', {})", fields[0], fields[6])
        };
        Ok(PairRates {
            table: serde_json::from_str(&speeds)?,
            keys: trace.lines().map(key).collect(),
        })
    }

    /// The cluster, with types in the order of the recordings.
    pub fn cluster(&self) -> Cluster {
        let mut cluster = Cluster { pools: vec!["default".to_owned()], ..Cluster::default() };
        for name in KINDS {
            let kind = cluster.add_kind(name);
            let per_server = self.about.num_gpus_per_server[name];
            for _ in 0..self.about.cluster[name] / per_server {
                cluster.add_node(kind, per_server as u8);
            }
        }
        cluster
    }
}

/// `7`, or `(3, 12)`.
pub fn jobs(text: &str) -> Vec<JobId> {
    let numbers = text.trim_matches(['(', ')']).split(", ");
    numbers.map(|number| JobId(number.parse().expect("the number of a job"))).collect()
}

/// The numbers of GPUs in the recordings: counted over all nodes.
pub fn numbers(place: &Placement, cluster: &Cluster) -> Vec<u32> {
    let first =
        |node: usize| cluster.nodes[..node].iter().map(|node| u32::from(node.gpus)).sum::<u32>();
    place.each_gpu().map(|at| first(at.node.index()) + u32::from(at.gpu)).collect()
}

fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let mut rows = Vec::new();
    for line in BufReader::new(GzDecoder::new(file)).lines() {
        rows.push(serde_json::from_str(&line?)?);
    }
    Ok(rows)
}
