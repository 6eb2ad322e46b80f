//! Scenarios: a cluster, a few jobs and what goes wrong, in lines that a person reads at a glance.
//!
//! ```text
//! # Everything after a mark like this one is left out.
//! cluster   2x4 v100
//! tenant    team-a  weight 2  ceiling 4  parent research
//! training  net  batch=128..4096  local=16..256  pass=0.05+0.001  node=0.05+0.002  network=0.3+0.005
//! host      cpus 24  memory 512000
//! sensitive net  cpus=1,3,12  memory=64000  usual=3,64000  parts=0.4/1/2.9
//! job a     at 0s   wants 4  work 100s
//! job b     at 10s  wants 8  work 50s  tenant team-a  priority 3  min 2  max 8  kinds v100,a100
//! job c     at 20s  wants 1  work 3000  model gavel-a3c  deadline 5m  after a,b  not-before 1m  limit 2h
//! job d     wants 1  work 9s  min-run 30s  fixed  share 500  class guaranteed  weight 2  nodes 1  memory 9000
//! job e     wants 1  work 9s  fails 4s  retries 0  declares 20s  pool default  group 1
//! policy    las thresholds=[1h]
//! place     fewest-nodes
//! admit     load=1.2
//! semantics muri
//! colocation stages
//! costs     free | profile | profile x2 | flat save=5s start=25s
//! error     0.3
//! fail      node 0 at 100s for 50s
//! fail      gpu 0.3 at 10s for 20s
//! cancel    a at 30s
//! in-place  MODEL
//! needs     2 of inference at 1h
//! window    n0,n1 from 1h for 30m
//! window    n0 from 2h for 1h tenant team-a
//! seed      7
//! expect    table | log
//! ```
//!
//! Work with a unit is time at the wanted size on the reference type; a bare number is steps.
//! Moments (`at`, `deadline`, `not-before`) are counted from the start. Costs are `free` unless a line says else.

use crate::intake::Intake;
use crate::reference::Reference;
use crate::scenario_job::{JobWords, read_job};
use crate::{Workload, cluster, scenario_host, scenario_training, scenario_window};
use trainyard_diagnostic::InputError;
use trainyard_profile::{Catalog, ColocationModel, CostModel, ModelProfile};
use trainyard_types::{
    Cluster, GpuAt, JobId, NodeId, PoolId, Span, Tenant, TenantId, Tenants, Time,
};

/// A scenario as it was written; policies and the like are names that the caller builds.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What there is.
    pub cluster: Cluster,
    /// The jobs, with the built-in models and the tenants of the text.
    pub workload: Workload,
    /// Policies, in order; several are run one after another.
    pub policies: Vec<Choice>,
    /// The placer.
    pub place: Option<Choice>,
    /// The admission.
    pub admit: Vec<Choice>,
    /// The tuner.
    pub tune: Option<Choice>,
    /// The name of a preset of semantics.
    pub semantics: Option<String>,
    /// What jobs on the same GPU leave each other of their speed, if not as in the semantics.
    pub colocation: Option<ColocationModel>,
    /// What stopping and starting costs.
    pub costs: CostModel,
    /// The error of estimates.
    pub error: f64,
    /// What breaks, in order of time.
    pub failures: Vec<Failure>,
    /// What users give up, in order of time.
    pub cancels: Vec<(Time, JobId)>,
    /// How many nodes of a pool its owner needs from then on, in order of time.
    pub needs: Vec<(Time, PoolId, u32)>,
    /// The seed of every draw.
    pub seed: u64,
    /// What the golden text shows.
    pub expect: Expect,
}

/// Something chosen by name, with its settings as they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The name: all up to the first space or `=`.
    pub name: String,
    /// The rest: `thresholds=[1h]` of `las thresholds=[1h]`, and `1.2` of `load=1.2`.
    pub settings: String,
    /// Where it was written.
    pub line: u64,
}

impl Choice {
    /// Splits a text such as `las thresholds=[1h]` or `load=1.2`.
    pub fn parse(line: u64, text: &str) -> Choice {
        let text = text.trim();
        let end = text.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(text.len());
        let settings = text[end..].trim_start();
        let settings = settings.strip_prefix('=').unwrap_or(settings).trim();
        Choice { name: text[..end].to_owned(), settings: settings.to_owned(), line }
    }
}

/// Something that breaks and is repaired.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When.
    pub at: Time,
    /// For how long; [`Span::MAX`] for good.
    pub length: Span,
    /// What.
    pub what: Broken,
}

/// What breaks.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A whole node.
    Node(NodeId),
    /// One GPU.
    Gpu(GpuAt),
}

/// What the golden text of a scenario shows.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Expect {
    /// One row for each job.
    #[default]
    Table,
    /// Every event and action.
    Log,
}

const WORDS: [&str; 22] = [
    "cluster",
    "host",
    "tenant",
    "training",
    "sensitive",
    "in-place",
    "splits-by-speed",
    "job",
    "policy",
    "place",
    "admit",
    "tune",
    "semantics",
    "colocation",
    "costs",
    "error",
    "fail",
    "cancel",
    "needs",
    "window",
    "seed",
    "expect",
];

/// Reads a scenario.
pub fn parse(text: &str) -> Result<Scenario, InputError> {
    let lines = lines(text)?;
    let mut cluster = read_cluster(&lines)?;
    for line in lines.iter().filter(|line| line.word == "host") {
        scenario_host::read_nodes(line, &mut cluster)?;
    }
    let mut workload = Workload {
        catalog: Catalog::builtin(),
        tenants: read_tenants(&lines)?,
        ..Workload::empty("scenario")
    };
    for line in lines.iter().filter(|line| line.word == "training") {
        workload.catalog.add(scenario_training::read(line, &cluster)?);
    }
    for line in lines.iter().filter(|line| line.word == "sensitive") {
        workload.catalog.add(scenario_host::read_model(line)?);
    }
    for line in lines.iter().filter(|line| line.word == "in-place") {
        let model = workload.catalog.lookup(line.number, line.word, line.rest)?;
        let model = workload.catalog.get(model).clone();
        workload.catalog.add(ModelProfile { resizes_in_place: true, ..model });
    }
    for line in lines.iter().filter(|line| line.word == "splits-by-speed") {
        let model = workload.catalog.lookup(line.number, line.word, line.rest)?;
        let model = workload.catalog.get(model).clone();
        workload.catalog.add(ModelProfile { splits_by_speed: true, ..model });
    }
    read_jobs(&lines, &cluster, &mut workload)?;
    let mut scenario = Scenario {
        cluster,
        workload,
        policies: Vec::new(),
        place: None,
        admit: Vec::new(),
        tune: None,
        semantics: None,
        colocation: None,
        costs: CostModel::Free,
        error: 0.0,
        failures: Vec::new(),
        cancels: Vec::new(),
        needs: Vec::new(),
        seed: 0,
        expect: Expect::Table,
    };
    for line in &lines {
        read_line(line, &mut scenario)?;
    }
    scenario.failures.sort_by_key(|failure| failure.at);
    scenario.cancels.sort();
    scenario.needs.sort();
    Ok(scenario)
}

/// One line: its first word and the rest.
pub(crate) struct Line<'a> {
    pub number: u64,
    pub word: &'a str,
    pub rest: &'a str,
}

impl Line<'_> {
    /// The fault that the rest of the line is not what was expected.
    pub(crate) fn wrong(&self, expected: impl Into<String>) -> InputError {
        InputError::wrong(self.number, self.word, self.rest, expected)
    }
}

fn lines(text: &str) -> Result<Vec<Line<'_>>, InputError> {
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index as u64 + 1;
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if !WORDS.contains(&word) {
            return Err(InputError::unknown(number, "line", word, WORDS));
        }
        lines.push(Line { number, word, rest: rest.trim() });
    }
    Ok(lines)
}

fn read_cluster(lines: &[Line<'_>]) -> Result<Cluster, InputError> {
    let mut found = lines.iter().filter(|line| line.word == "cluster");
    let Some(line) = found.next() else {
        return Err(InputError::missing(0, "cluster", "a line such as `cluster 2x4 v100`"));
    };
    if let Some(second) = found.next() {
        return Err(second.wrong("only one line of this sort"));
    }
    cluster::parse_line(line.rest).map_err(|error| InputError { line: line.number, ..error })
}

fn read_tenants(lines: &[Line<'_>]) -> Result<Tenants, InputError> {
    let mut list = vec![Tenant::named("default")];
    for line in lines.iter().filter(|line| line.word == "tenant") {
        let mut words = line.rest.split_whitespace();
        let name = words.next().ok_or_else(|| line.wrong("a tenant's name"))?;
        if list.iter().skip(1).any(|tenant| tenant.name == name) {
            return Err(line.wrong("a tenant that no earlier line names"));
        }
        let mut tenant = Tenant::named(name);
        while let Some(key) = words.next() {
            let value = words.next().unwrap_or("");
            let wrong = |expected: &str| InputError::wrong(line.number, key, value, expected);
            match key {
                "weight" => {
                    let weight: Option<f64> = value.parse().ok();
                    let weight = weight.filter(|weight| *weight > 0.0 && *weight <= 1e9);
                    tenant.weight = weight.ok_or_else(|| wrong("a number, more than 0"))?;
                }
                "ceiling" => {
                    let ceiling = value.parse().map_err(|_| wrong("a whole number of GPUs"))?;
                    tenant.ceiling = Some(ceiling);
                }
                "parent" => {
                    let index = list.iter().position(|other| other.name == value);
                    let index = index.ok_or_else(|| wrong("a tenant of an earlier line"))?;
                    tenant.parent = Some(TenantId(index as u32));
                }
                _ => {
                    let keys = ["weight", "ceiling", "parent"];
                    return Err(InputError::unknown(line.number, "tenant", key, keys));
                }
            }
        }
        match name {
            "default" if tenant.parent.is_none() => list[0] = tenant,
            _ => list.push(tenant),
        }
    }
    Ok(Tenants::new(list))
}

fn read_jobs(
    lines: &[Line<'_>],
    cluster: &Cluster,
    workload: &mut Workload,
) -> Result<(), InputError> {
    let reference = Reference::new(&workload.catalog, cluster);
    let mut intake = Intake::default();
    for line in lines.iter().filter(|line| line.word == "job") {
        let words = JobWords::new(line)?;
        let label = words.label;
        let (job, after) = read_job(words, (cluster, &reference), workload)?;
        intake.add(line.number, label, job)?;
        intake.follow(line.number, after);
    }
    intake.finish(workload)
}

fn read_line(line: &Line<'_>, scenario: &mut Scenario) -> Result<(), InputError> {
    let chosen = || match line.rest {
        "" => Err(line.wrong("a name, and settings if there are any")),
        rest => Ok(Choice::parse(line.number, rest)),
    };
    let once = |slot: &mut Option<Choice>| match slot.replace(chosen()?) {
        None => Ok(()),
        Some(_) => Err(line.wrong("only one line of this sort")),
    };
    match line.word {
        "policy" => scenario.policies.push(chosen()?),
        "place" => once(&mut scenario.place)?,
        "admit" => scenario.admit.push(chosen()?),
        "tune" => once(&mut scenario.tune)?,
        "semantics" => scenario.semantics = Some(chosen()?.name),
        "colocation" => scenario.colocation = Some(read_colocation(line)?),
        "costs" => {
            scenario.costs = line.rest.parse().map_err(|_| {
                line.wrong("`free`, `profile`, `profile x2` or `flat save=5s start=25s`")
            })?;
        }
        "error" => {
            let error = line.rest.parse().ok().filter(|error| (0.0..=100.0).contains(error));
            scenario.error = error.ok_or_else(|| line.wrong("a number from 0 to 100"))?;
        }
        "fail" => scenario.failures.push(read_failure(line, &scenario.cluster)?),
        "cancel" => scenario.cancels.push(read_cancel(line, &scenario.workload)?),
        "needs" => scenario.needs.push(read_need(line, &scenario.cluster)?),
        "window" => {
            let window =
                scenario_window::read(line, &scenario.cluster, &scenario.workload.tenants)?;
            scenario.cluster.windows.push(window);
        }
        "seed" => scenario.seed = line.rest.parse().map_err(|_| line.wrong("a whole number"))?,
        "expect" => {
            scenario.expect = match line.rest {
                "table" => Expect::Table,
                "log" => Expect::Log,
                other => {
                    return Err(InputError::unknown(
                        line.number,
                        "expect",
                        other,
                        ["table", "log"],
                    ));
                }
            }
        }
        _ => (),
    }
    Ok(())
}

fn read_colocation(line: &Line<'_>) -> Result<ColocationModel, InputError> {
    let names = ColocationModel::ALL.map(ColocationModel::name);
    let unknown = |()| InputError::unknown(line.number, "colocation", line.rest, names);
    line.rest.parse().map_err(unknown)
}

fn read_failure(line: &Line<'_>, cluster: &Cluster) -> Result<Failure, InputError> {
    let shape = "`node 0 at 100s for 50s`, or `gpu 0.3 at 10s`, of a node and GPU that exist";
    let words: Vec<&str> = line.rest.split_whitespace().collect();
    let (what, name, rest) = match words[..] {
        [what, name, "at", ref rest @ ..] => (what, name, rest),
        _ => return Err(line.wrong(shape)),
    };
    let (at, length) = match rest {
        [at] => (at, None),
        [at, "for", length] => (at, Some(length)),
        _ => return Err(line.wrong(shape)),
    };
    let span = |text: &str| text.parse::<Span>().map_err(|error| line.wrong(error.to_string()));
    let node_of = |text: &str| {
        let node = text.parse().ok().filter(|node: &u32| (*node as usize) < cluster.nodes.len());
        node.map(NodeId).ok_or_else(|| line.wrong(shape))
    };
    let what = match what {
        "node" => Broken::Node(node_of(name)?),
        "gpu" => {
            let (node, gpu) = name.split_once('.').ok_or_else(|| line.wrong(shape))?;
            let node = node_of(node)?;
            let gpu = gpu.parse().ok().filter(|gpu: &u8| *gpu < cluster.node(node).gpus);
            Broken::Gpu(GpuAt { node, gpu: gpu.ok_or_else(|| line.wrong(shape))? })
        }
        other => return Err(InputError::unknown(line.number, "fail", other, ["node", "gpu"])),
    };
    let length = length.map_or(Ok(Span::MAX), |text| span(text))?;
    Ok(Failure { at: Time::ZERO + span(at)?, length, what })
}

fn read_need(line: &Line<'_>, cluster: &Cluster) -> Result<(Time, PoolId, u32), InputError> {
    let words: Vec<&str> = line.rest.split_whitespace().collect();
    let [nodes, "of", pool, "at", at] = words[..] else {
        return Err(line.wrong("nodes, a pool and a moment, such as `2 of inference at 1h`"));
    };
    let nodes = nodes.parse().map_err(|_| line.wrong("a whole number of nodes"))?;
    let at: Span = at.parse().map_err(|_| line.wrong("a moment such as `30s`"))?;
    let index = cluster.pools.iter().position(|name| name == pool).ok_or_else(|| {
        let pools = cluster.pools.iter().map(String::as_str);
        InputError::unknown(line.number, "needs", pool, pools)
    })?;
    Ok((Time::ZERO + at, PoolId(index as u16), nodes))
}

fn read_cancel(line: &Line<'_>, workload: &Workload) -> Result<(Time, JobId), InputError> {
    let words: Vec<&str> = line.rest.split_whitespace().collect();
    let [name, "at", at] = words[..] else {
        return Err(line.wrong("a job and a moment, such as `a at 30s`"));
    };
    let at: Span = at.parse().map_err(|_| line.wrong("a moment such as `30s`"))?;
    let labels: Vec<String> = workload.jobs.iter().map(|one| workload.label(one.job.id)).collect();
    let job = labels.iter().position(|label| label == name).ok_or_else(|| {
        InputError::unknown(line.number, "cancel", name, labels.iter().map(String::as_str))
    })?;
    Ok((Time::ZERO + at, JobId(job as u32)))
}
