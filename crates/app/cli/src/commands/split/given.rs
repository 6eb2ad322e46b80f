//! What `split` is given: a model in one of its forms, and a cluster.

use crate::args::SplitArgs;
use crate::failure::Failure;
use std::path::Path;
use trainyard_diagnostic::InputError;
use trainyard_experiment::files::read_text;
use trainyard_experiment::given::load_cluster;
use trainyard_planner::devices::peak_flops;
use trainyard_planner::{
    Cnn, DeviceGraph, Graph, KindFigures, PlanError, Transformer, graph_json, layer_profile,
    transformer,
};
use trainyard_profile::kinds;
use trainyard_types::Cluster;

/// Bytes a second between a device and its host: 16 lanes of PCIe 3.
const HOST_BYTES_PER_SECOND: f64 = 12e9;

/// How the model was stated.
pub enum Model {
    /// As a transformer.
    Transformer(Transformer),
    /// As operators.
    Graph,
}

/// A model and a cluster.
pub struct Given {
    /// What the model is called.
    pub name: String,
    /// Where it came from, for messages.
    pub source: String,
    /// How it was stated.
    pub model: Model,
    /// Its operators.
    pub graph: Graph,
    /// The devices, with speeds relative to what the graph was measured on.
    pub devices: DeviceGraph,
    /// Samples of an iteration.
    pub batch: u32,
    /// Bytes of parameters, gradients and optimiser for each byte of parameters.
    pub state_factor: f64,
    cluster: Cluster,
}

impl Given {
    /// Reads what the flags name.
    pub fn read(args: &SplitArgs) -> Result<Given, Failure> {
        let (cluster, _) = load_cluster(args.on.as_deref())?;
        let text = args.model.as_deref().unwrap_or_default().trim();
        let kind = cluster.kinds[cluster.nodes[0].kind.index()].name.clone();
        let (model, graph) = read_model(args, text, &kind)?;
        let state_factor = match model {
            Model::Transformer(_) => transformer::STATE_BYTES / 2.0,
            // Single precision: weights, gradients and two moments of Adam.
            Model::Graph => 4.0,
        };
        let batch = match &args.batch {
            Some(text) => number("--batch", text)?,
            None => cluster.gpus().saturating_mul(32).max(graph.batch),
        };
        Ok(Given {
            name: graph.name.clone(),
            source: text.to_owned(),
            devices: devices_of(&cluster, &graph.measured_on),
            model,
            graph,
            batch,
            state_factor,
            cluster,
        })
    }

    /// The devices with one more node like the last; nothing where that would be too many.
    pub fn with_one_more_node(&self) -> Option<DeviceGraph> {
        let mut cluster = self.cluster.clone();
        let last = cluster.nodes.last()?.clone();
        let id = cluster.add_node(last.kind, last.gpus);
        let node = &mut cluster.nodes[id.index()];
        (node.rack, node.pool) = (last.rack, last.pool);
        Some(devices_of(&cluster, &self.graph.measured_on))
    }
}

/// A fault of a plan as one of input: the message has the name of what is at fault.
pub fn failure(source: &str, error: PlanError) -> Failure {
    match error {
        PlanError::Input(fault) => Failure::input(source, fault),
        other => Failure::Operation(format!("{source}: {other}")),
    }
}

fn number(flag: &str, text: &str) -> Result<u32, Failure> {
    let number = text.parse().ok().filter(|number| (1..=1 << 24).contains(number));
    number.ok_or_else(|| Failure::flag(flag, text, "a whole number from 1 to 16777216"))
}

fn read_model(args: &SplitArgs, text: &str, kind: &str) -> Result<(Model, Graph), Failure> {
    let described = |model: Transformer| {
        let graph = model.graph(kind, 1).map_err(|error| failure(text, error))?;
        Ok((Model::Transformer(model), graph))
    };
    if let Some(model) = Transformer::named(text) {
        return described(model);
    }
    let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
    let input = |fault: InputError| Failure::input("MODEL", fault);
    if first == "transformer" {
        return described(Transformer::parse(rest).map_err(input)?);
    }
    if first == "cnn" {
        let graph = Cnn::parse(rest).map_err(input)?.graph(kind, 1);
        return Ok((Model::Graph, graph.map_err(|error| failure(text, error))?));
    }
    let path = Path::new(text);
    let looks_like_file = path.extension().is_some_and(|one| one == "json" || one == "txt");
    if !path.exists() && !looks_like_file && !text.contains(['/', '\\']) {
        let names = Transformer::names().chain(["transformer", "cnn"]);
        return Err(Failure::input("", InputError::unknown(0, "model", text, names)));
    }
    let content = read_text(path)?;
    let graph = match content.trim_start().starts_with('{') {
        true => graph_json::parse(&content),
        false => layer_profile::parse(&name_of(path), &content, measured_with(args, path)?),
    };
    Ok((Model::Graph, graph.map_err(|error| failure(text, error))?))
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn measured_with(args: &SplitArgs, path: &Path) -> Result<u32, Failure> {
    match &args.measured_with {
        Some(text) => number("--measured-with", text),
        None => layer_profile::batch_in(&name_of(path)).ok_or_else(|| {
            let expected = "the samples of the profile, which its name does not tell";
            Failure::input("--measured-with", InputError::missing(0, "samples", expected))
        }),
    }
}

fn devices_of(cluster: &Cluster, measured_on: &str) -> DeviceGraph {
    let reference = kinds::speed(measured_on);
    let figures = |kind: &str| KindFigures {
        speed: kinds::speed(kind) / reference,
        memory_bytes: kinds::facts(kind)
            .map_or(f64::INFINITY, |facts| f64::from(facts.memory_gib) * (1u64 << 30) as f64),
        // A type without a data sheet counts by its speed beside a V100.
        peak_flops: peak_flops(kind).unwrap_or(125e12 * kinds::speed(kind)),
    };
    DeviceGraph::of_cluster(cluster, &figures, HOST_BYTES_PER_SECOND)
}
