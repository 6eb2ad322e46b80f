//! `trainyard profile show`: one model, drawn.

use super::{axes, kinds, memory, training};
use crate::args::ShowArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::plot::{self, number};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use trainyard_experiment::given::load_catalog;
use trainyard_profile::{ModelProfile, Pair, Point, SizeCost};
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::table::listing;
use trainyard_report::units::Unit;

/// Pairs beyond this are counted, not shown; `--json` has them all.
const PAIRS_SHOWN: usize = 30;

/// Draws one model.
pub fn show(args: &ShowArgs, output: &Output) -> Result<(), Failure> {
    let catalog = load_catalog(&args.profiles)?;
    let id = catalog.lookup(0, "model", &args.name).map_err(|fault| Failure::input("", fault))?;
    let model = catalog.get(id);
    if args.json {
        return output.print_json(&json!({
            "schema_version": SCHEMA_VERSION,
            "kind": "profile",
            "model": json(model),
        }));
    }
    output.print(&facts(model))?;
    for kind in kinds(model) {
        output.print(&format!("\nspeed on {kind} (o measured, x spread over more nodes)\n"))?;
        output.print(&drawn(model, kind, output.width))?;
    }
    let heading = ["type", "GPUs", "nodes", "steps/s", "of linear", "how"];
    let rows: Vec<Vec<String>> = kinds(model).iter().flat_map(|kind| rows(model, kind)).collect();
    output.print(&format!("\n{}", listing(&heading, &rows, output.ink, output.width)))?;
    if let Some(training) = &model.training {
        output.print(&training::text(training, output.ink, output.width))?;
    }
    axes::show(model, output)?;
    pairs(model, output)
}

/// A model for programs.
pub fn json(model: &ModelProfile) -> Value {
    let points: Vec<Value> = model
        .points
        .iter()
        .map(|Point { kind, gpus, nodes, rate }| {
            json!({ "kind": kind, "gpus": gpus, "nodes": nodes, "rate": rate })
        })
        .collect();
    let pairs: Vec<Value> = model
        .pairs
        .iter()
        .map(|Pair { partner, kind, time_sliced, mps, estimated }| {
            json!({
                "partner": partner,
                "kind": kind,
                "time_sliced": time_sliced,
                "mps": mps,
                "estimated": estimated,
            })
        })
        .collect();
    json!({
        "name": model.name,
        "source": model.source,
        "kinds": kinds(model),
        "memory_mib": (model.memory_mib > 0).then_some(model.memory_mib),
        "scaling": model.scaling,
        "spread": model.spread,
        "skew": model.skew,
        "splits_by_speed": model.splits_by_speed,
        "resizes_in_place": model.resizes_in_place,
        "save": cost_json(&model.save),
        "start": cost_json(&model.start),
        "points": points,
        "pairs": pairs,
        "training": model.training.as_deref().map(training::json),
        "host": model.host.iter().map(axes::host_json).collect::<Vec<Value>>(),
        "stages": model.stages.iter().map(axes::stage_json).collect::<Vec<Value>>(),
        "batches": model.batches.as_ref().map(axes::batches_json),
    })
}

fn cost_json(cost: &SizeCost) -> Value {
    let at: Vec<Value> = cost
        .at
        .iter()
        .map(|(gpus, time)| json!({ "gpus": gpus, "time_s": time.as_secs_f64() }))
        .collect();
    json!({
        "base_s": cost.base.as_secs_f64(),
        "per_gpu_s": cost.per_gpu.as_secs_f64(),
        "per_doubling_s": cost.per_doubling.as_secs_f64(),
        "at": at,
    })
}

fn facts(model: &ModelProfile) -> String {
    let skew = model.skew.map_or("?".to_owned(), |skew| Unit::Part.text(skew));
    let change = match model.resizes_in_place {
        true => "without a new start",
        false => "by a new start",
    };
    format!(
        "{}\nsource   {}\nmemory   {} on each GPU\nskew     {skew} of all parameters in the largest tensor\n\
         save     {}\nstart    {}\nresizes  {change}\nscaling  GPUs to the power {} where nothing was measured\n\
         spread   keeps {} each time the nodes double beyond what was measured\n",
        model.name,
        model.source,
        memory(model),
        cost_text(&model.save),
        cost_text(&model.start),
        model.scaling,
        Unit::Part.text(model.spread),
    )
}

/// A cost on a few sizes.
fn cost_text(cost: &SizeCost) -> String {
    let sizes: Vec<u32> = match cost.at.is_empty() {
        true => vec![1, 8, 64],
        false => cost.at.iter().map(|(gpus, _)| *gpus).collect(),
    };
    let first = cost.on(1);
    if sizes.iter().all(|gpus| cost.on(*gpus) == first) {
        return format!("{first}");
    }
    let on = sizes.iter().map(|gpus| format!("{} on {gpus}", cost.on(*gpus)));
    format!("{} GPUs", on.collect::<Vec<String>>().join(", "))
}

/// The largest size that is shown: twice what was measured, and at least a node.
fn most(model: &ModelProfile, kind: &str) -> u32 {
    let on_kind = model.points.iter().filter(|point| point.kind == kind);
    let most = on_kind.map(|point| point.gpus).max().unwrap_or(1);
    most.saturating_mul(2).max(8)
}

fn drawn(model: &ModelProfile, kind: &str, width: Option<u16>) -> String {
    let on_kind: Vec<&Point> = model.points.iter().filter(|point| point.kind == kind).collect();
    let is_spread = |point: &Point| {
        on_kind.iter().any(|other| other.gpus == point.gpus && other.nodes < point.nodes)
    };
    let measured: Vec<(u32, f64, bool)> =
        on_kind.iter().map(|point| (point.gpus, point.rate, is_spread(point))).collect();
    let rate = |gpus: u32| model.packed(kind, &[gpus]).map_or(0.0, |found| found[0].0);
    plot::draw(&plot::Curve { most: most(model, kind), rate: &rate, measured: &measured }, width)
}

/// Measured points and, between and beyond them, every power of two.
fn rows(model: &ModelProfile, kind: &str) -> Vec<Vec<String>> {
    let on_kind: Vec<&Point> = model.points.iter().filter(|point| point.kind == kind).collect();
    let measured: BTreeSet<u32> = on_kind.iter().map(|point| point.gpus).collect();
    let (least, largest) = (measured.first().copied(), measured.last().copied());
    let powers = (0..24).map(|power| 1u32 << power).filter(|gpus| *gpus <= most(model, kind));
    let sizes: BTreeSet<u32> = measured.iter().copied().chain(powers).collect();
    let sizes: Vec<u32> = sizes.into_iter().collect();
    let Some(packed) = model.packed(kind, &sizes) else { return Vec::new() };
    let alone = model.packed(kind, &[1]).map_or(1.0, |found| found[0].0);
    let row = |gpus: u32, nodes: u32, rate: f64, how: &str| {
        let linear = Unit::Part.text(rate / (alone * f64::from(gpus)));
        let (gpus, nodes) = (gpus.to_string(), nodes.to_string());
        vec![kind.to_owned(), gpus, nodes, number(rate), linear, how.to_owned()]
    };
    // The points of a training are its means at the best batch, each from measured iterations.
    let how = if model.training.is_some() { "mean of training" } else { "measured" };
    let mut rows = Vec::new();
    for (gpus, (rate, nodes)) in sizes.iter().zip(packed) {
        if measured.contains(gpus) {
            let mut here: Vec<&&Point> =
                on_kind.iter().filter(|point| point.gpus == *gpus).collect();
            here.sort_by_key(|point| point.nodes);
            rows.extend(here.iter().map(|point| row(*gpus, point.nodes, point.rate, how)));
        } else if Some(*gpus) < least || Some(*gpus) > largest {
            rows.push(row(*gpus, nodes, rate, "extrapolated"));
        } else {
            rows.push(row(*gpus, nodes, rate, "interpolated"));
        }
    }
    rows
}

fn pairs(model: &ModelProfile, output: &Output) -> Result<(), Failure> {
    if model.pairs.is_empty() {
        return output.print("\npairs    none measured\n");
    }
    let rows: Vec<Vec<String>> = model
        .pairs
        .iter()
        .take(PAIRS_SHOWN)
        .map(|pair| {
            let mark = if pair.estimated { " (estimated)" } else { "" };
            let (sliced, mps) = (Unit::Part.text(pair.time_sliced), Unit::Part.text(pair.mps));
            vec![format!("{}{mark}", pair.partner), pair.kind.clone(), sliced, mps]
        })
        .collect();
    let heading = ["beside", "on", "keeps, time-sliced", "keeps, MPS"];
    output.print(&format!("\n{}", listing(&heading, &rows, output.ink, output.width)))?;
    match model.pairs.len() - rows.len() {
        0 => Ok(()),
        more => output.print(&format!("and {more} more pairs; --json shows all\n")),
    }
}
