//! `serving list` and `serving models`.

use crate::args::serving::DisciplineArgs;
use crate::failure::Failure;
use crate::output::Output;
use serde_json::{Value, json};
use trainyard_diagnostic::InputError;
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::table::{figures, listing};
use trainyard_serving::registry::{DISCIPLINES, DisciplineEntry, Serves};
use trainyard_serving::zoo;

/// The disciplines, or one of them.
pub fn disciplines(args: &DisciplineArgs, output: &Output) -> Result<(), Failure> {
    let shown: Vec<&DisciplineEntry> = match &args.name {
        None => DISCIPLINES.to_vec(),
        Some(name) => {
            let found = DISCIPLINES.iter().copied().find(|entry| entry.name == name);
            let names = DISCIPLINES.iter().map(|entry| entry.name);
            let unknown = || Failure::input("", InputError::unknown(0, "discipline", name, names));
            vec![found.ok_or_else(unknown)?]
        }
    };
    if args.json {
        let entries: Vec<Value> = shown.iter().map(|entry| row(entry)).collect();
        return output.print_json(
            &json!({ "schema_version": SCHEMA_VERSION, "kind": "disciplines", "entries": entries }),
        );
    }
    if args.name.is_none() {
        let rows: Vec<Vec<String>> = (shown.iter())
            .map(|entry| {
                vec![entry.name.to_owned(), serves(entry).to_owned(), entry.about.to_owned()]
            })
            .collect();
        return output.print(&listing(
            &["name", "serves", "what it is"],
            &rows,
            output.ink,
            output.width,
        ));
    }
    let entry = shown[0];
    let mut text = format!("{}\n{}\n\npaper      {}\n", entry.name, entry.about, entry.paper);
    text.push_str(&format!("serves     {}\nmust know  {}\n", serves(entry), entry.must_know));
    if !entry.partial.is_empty() {
        text.push_str(&format!("partial    {}\n", entry.partial));
    }
    text.push_str(&format!("page       {}\n\n", page(entry)));
    let settings = entry
        .settings
        .iter()
        .map(|one| vec![one.key.to_owned(), one.default.to_owned(), one.meaning.to_owned()]);
    let settings: Vec<Vec<String>> = settings.collect();
    text.push_str(&listing(
        &["setting", "default", "meaning"],
        &settings,
        output.ink,
        output.width,
    ));
    output.print(&text)
}

fn serves(entry: &DisciplineEntry) -> &'static str {
    match entry.serves {
        Serves::Whole(_) => "whole inferences",
        Serves::Tokens(_) => "language models",
    }
}

fn page(entry: &DisciplineEntry) -> String {
    format!("docs/serving/{}.md", entry.name)
}

fn row(entry: &DisciplineEntry) -> Value {
    let settings: Vec<Value> = (entry.settings.iter())
        .map(|one| json!({ "key": one.key, "default": one.default, "meaning": one.meaning }))
        .collect();
    json!({
        "name": entry.name,
        "about": entry.about,
        "paper": entry.paper,
        "partial": entry.partial,
        "must_know": entry.must_know,
        "serves": serves(entry),
        "page": page(entry),
        "settings": settings,
    })
}

/// The models with measured latencies, or the table of one.
pub fn models(args: &DisciplineArgs, output: &Output) -> Result<(), Failure> {
    let all = zoo::models();
    let shown: Vec<&trainyard_serving::latency::Model> = match &args.name {
        None => all.values().collect(),
        Some(name) => {
            let known = all.keys().map(String::as_str);
            let unknown = || Failure::input("", InputError::unknown(0, "model", name, known));
            vec![all.get(name).ok_or_else(unknown)?]
        }
    };
    let points = |model: &trainyard_serving::latency::Model| -> Vec<(u32, f64, f64)> {
        let at =
            |batch| (batch, model.micros(batch) / 1e3, model.span_p99(batch).as_secs_f64() * 1e3);
        model.batches().map(at).collect()
    };
    if args.json {
        let entries: Vec<Value> = (shown.iter())
            .map(|model| {
                let points: Vec<Value> = (points(model).iter())
                    .map(|(batch, p50, p99)| json!({ "batch": batch, "p50_ms": p50, "p99_ms": p99 }))
                    .collect();
                let (name, memory, segments) = (&model.name, model.memory_mib, model.segments);
                json!({ "name": name, "memory_mib": memory, "segments": segments, "points": points })
            })
            .collect();
        return output.print_json(
            &json!({ "schema_version": SCHEMA_VERSION, "kind": "serving-models", "models": entries }),
        );
    }
    if args.name.is_some() {
        let rows: Vec<Vec<String>> = (points(shown[0]).iter())
            .map(|(batch, p50, p99)| {
                vec![batch.to_string(), format!("{p50:.3}"), format!("{p99:.3}")]
            })
            .collect();
        return output.print(&figures(&["batch", "p50 ms", "p99 ms"], 1, &rows, output.ink));
    }
    let rows: Vec<Vec<String>> = (shown.iter())
        .map(|model| {
            let (least, most) = (model.micros(1) / 1e3, model.batch_max());
            let fastest = format!("{:.0}", model.throughput(most));
            let memory = model.memory_mib.to_string();
            vec![model.name.clone(), format!("{least:.3}"), most.to_string(), fastest, memory]
        })
        .collect();
    let heading = ["model", "alone ms", "largest batch", "samples/s then", "MiB"];
    output.print(&format!(
        "{}llama-8b is a language model: decodes and prefills by batch, context and length\n",
        figures(&heading, 1, &rows, output.ink)
    ))
}
