//! Recorded calls of the authors' own policies: what they were asked, and what they answered.

use flate2::read::GzDecoder;
use serde_json::Value;
use smallvec::smallvec;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use trainyard_framework::{Choice, RateTable};
use trainyard_policies::gavel::problem::Party;
use trainyard_types::{GpuType, JobId, TenantId};

macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}
pub(crate) use say;

pub const KINDS: [&str; 3] = ["k80", "p100", "v100"];

/// A path below the shared folder, or nothing and a line that says so.
pub fn shared(path: &str) -> Option<PathBuf> {
    let full = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(path);
    if full.exists() {
        return Some(full);
    }
    say!("skipped: {} is absent", full.display());
    None
}

fn json(path: &PathBuf) -> Value {
    let text = std::fs::read_to_string(path).expect("a readable file");
    serde_json::from_str(&text).expect("JSON")
}

/// One call: the rates and facts that the policy was given, and the shares that it gave.
pub struct Call {
    pub at: f64,
    pub table: RateTable,
    pub facts: Vec<Party>,
    pub shares: Vec<f64>,
}

/// A run of the authors' simulator.
pub struct Recorded {
    pub calls: Vec<Call>,
}

/// Speeds alone and beside others, and the type and size of each job of a trace.
struct Speeds {
    table: Value,
    jobs: Vec<(String, u32)>,
}

impl Speeds {
    fn read(trace: &str) -> Option<Speeds> {
        let table = json(&shared("data/gavel/simulation_throughputs.json")?);
        let text = std::fs::read_to_string(shared(&format!("data/gavel/{trace}"))?).ok()?;
        let job = |line: &str| {
            let fields: Vec<&str> = line.split('\t').collect();
            (fields[0].to_owned(), fields[6].parse().expect("a number of GPUs"))
        };
        Some(Speeds { table, jobs: text.lines().map(job).collect() })
    }

    fn key(&self, job: usize) -> String {
        let (model, gpus) = &self.jobs[job];
        format!("('{model}', {gpus})")
    }

    fn alone(&self, job: usize, kind: &str) -> f64 {
        self.table[kind][self.key(job)]["null"].as_f64().expect("a speed")
    }

    fn beside(&self, job: usize, other: usize, kind: &str) -> Option<(f64, f64)> {
        let pair = &self.table[kind][self.key(job)][self.key(other)];
        Some((pair[0].as_f64()?, pair[1].as_f64()?))
    }
}

/// Reads a run; `pairs` adds the choices of two jobs on the same GPUs.
pub fn read(name: &str, pairs: bool) -> Option<Recorded> {
    let meta = json(&shared(&format!("golden/gavel/{name}.json"))?);
    let speeds = Speeds::read(meta["trace"].as_str()?)?;
    let capacity: Vec<u32> =
        KINDS.iter().map(|kind| meta["cluster"][kind].as_u64().expect("GPUs") as u32).collect();
    let file = std::fs::File::open(shared(&format!("golden/gavel/{name}.alloc.jsonl.gz"))?).ok()?;
    let lines = BufReader::new(GzDecoder::new(file)).lines();
    let calls = lines.map(|line| {
        let call: Value = serde_json::from_str(&line.expect("text")).expect("JSON");
        read_call(&call, &speeds, &capacity, pairs)
    });
    // When the last job is over the authors' policies are asked once more, about nobody.
    let calls = calls.filter(|call| !call.facts.is_empty()).collect();
    Some(Recorded { calls })
}

fn read_call(call: &Value, speeds: &Speeds, capacity: &[u32], pairs: bool) -> Call {
    let at = call["t"].as_f64().expect("a time");
    let jobs: BTreeMap<usize, &Value> = call["jobs"]
        .as_object()
        .expect("jobs")
        .iter()
        .map(|(id, job)| (id.parse().expect("an id"), job))
        .collect();
    let mut table = RateTable {
        jobs: jobs.keys().map(|id| JobId(*id as u32)).collect(),
        kinds: (0..3).map(GpuType).collect(),
        capacity: capacity.to_vec(),
        choices: Vec::new(),
    };
    let (mut facts, mut shares) = (Vec::new(), Vec::new());
    for (id, job) in &jobs {
        let number = |key: &str| job[key].as_f64().expect("a number");
        facts.push(Party {
            job: JobId(*id as u32),
            gpus: number("sf"),
            weight: number("w"),
            left: number("steps_left"),
            age: at - number("arrival"),
            deadline: None,
            tenant: TenantId(0),
        });
        for (kind, name) in KINDS.iter().enumerate() {
            table.choices.push(Choice {
                jobs: smallvec![JobId(*id as u32)],
                uses: smallvec![(kind as u16, number("sf") as u32)],
                nodes_max: 0,
                rates: smallvec![speeds.alone(*id, name)],
            });
            shares.push(call["alloc"][id.to_string()][name].as_f64().expect("a share"));
        }
    }
    if pairs {
        add_pairs(&jobs.keys().copied().collect::<Vec<_>>(), speeds, &mut table);
        for choice in &table.choices[shares.len()..].to_vec() {
            let name = format!("({}, {})", choice.jobs[0].0, choice.jobs[1].0);
            let share = call["alloc"][name][KINDS[choice.kind()]].as_f64();
            shares.push(share.unwrap_or(0.0));
        }
    }
    Call { at, table, facts, shares }
}

fn add_pairs(jobs: &[usize], speeds: &Speeds, table: &mut RateTable) {
    for (first, job) in jobs.iter().enumerate() {
        for other in &jobs[first + 1..] {
            for (kind, name) in KINDS.iter().enumerate() {
                let Some((own, others)) = speeds.beside(*job, *other, name) else { continue };
                table.choices.push(Choice {
                    jobs: smallvec![JobId(*job as u32), JobId(*other as u32)],
                    uses: smallvec![(kind as u16, speeds.jobs[*job].1)],
                    nodes_max: 0,
                    rates: smallvec![own, others],
                });
            }
        }
    }
}
