//! `trainyard serving`: disciplines of inference on generated or recorded requests.

mod given;
mod listed;

use crate::args::serving::{CurveArgs, RequestTraceArgs, ServingCommand, ServingSimArgs};
use crate::failure::Failure;
use crate::output::Output;
use given::Given;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use std::path::Path;
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::table::figures;
use trainyard_serving::curve::{Line, page, svg};
use trainyard_serving::registry::Choice;
use trainyard_serving::run::{Ran, RunError, Served, run as run_one};
use trainyard_serving::{Trace, trace};
use trainyard_types::Span;

/// Runs the command.
pub fn run(command: &ServingCommand, output: &Output) -> Result<(), Failure> {
    match command {
        ServingCommand::List(args) => listed::disciplines(args, output),
        ServingCommand::Models(args) => listed::models(args, output),
        ServingCommand::Sim(args) => sim(args, output),
        ServingCommand::Curve(args) => curve(args, output),
        ServingCommand::Trace(args) => write_trace(args, output),
    }
}

fn write_trace(args: &RequestTraceArgs, output: &Output) -> Result<(), Failure> {
    let given = Given::read(&args.given)?;
    let made = given.trace(None)?;
    output.write_file(&args.out, |out| trace::write(&made, out))?;
    let (count, seconds) = (made.requests.len(), made.length().as_secs_f64());
    let rate = made.rates().iter().sum::<f64>();
    output.print(&format!("{count} requests over {seconds:.3} s, {rate:.2} a second\n"))
}

fn sim(args: &ServingSimArgs, output: &Output) -> Result<(), Failure> {
    let given = Given::read(&args.given)?;
    let requests = given.trace(None)?;
    let served = given.served(&requests)?;
    let choices = given.choices(&requests)?;
    let bar = progress(choices.len() * requests.requests.len());
    let mut all = Vec::new();
    for choice in &choices {
        all.push(outcome(choice, &served, &requests, &bar)?);
    }
    bar.finish_and_clear();
    let price = given.price;
    let length = requests.length();
    if args.json {
        let runs: Vec<Value> = choices
            .iter()
            .zip(&all)
            .map(|(choice, ran)| as_json(&choice.text, ran, price))
            .collect();
        return output.print_json(&json!({
            "schema_version": SCHEMA_VERSION,
            "kind": "serving",
            "requests": requests.requests.len(),
            "seconds": length.as_secs_f64(),
            "gpus": given.gpus,
            "seed": given.seed,
            "runs": runs,
        }));
    }
    let heading = heading(requests.has_tokens());
    let rows: Vec<Vec<String>> =
        choices.iter().zip(&all).map(|(choice, ran)| row(&choice.text, ran, price)).collect();
    let mut text = format!(
        "{} requests over {:.1} s on {} GPUs, seed {}\n\n{}",
        requests.requests.len(),
        length.as_secs_f64(),
        given.gpus,
        given.seed,
        figures(&heading, 1, &rows, output.ink)
    );
    text.push_str(&notes(&choices, &all));
    output.print(&text)
}

/// What a reader should know before comparing.
fn notes(choices: &[Choice], all: &[Ran]) -> String {
    let mut text = String::new();
    for (choice, ran) in choices.iter().zip(all) {
        if choice.entry.must_know != "nothing" {
            text.push_str(&format!("note: {} was told {}\n", choice.text, choice.entry.must_know));
        }
        if ran.tally().waiting > 0 {
            text.push_str(&format!(
                "note: {} left {} requests waiting\n",
                choice.text,
                ran.tally().waiting
            ));
        }
    }
    text
}

fn outcome(
    choice: &Choice,
    served: &Served,
    requests: &Trace,
    bar: &ProgressBar,
) -> Result<Ran, Failure> {
    bar.set_message(choice.text.clone());
    let start = bar.position();
    let ran = run_one(choice, served, requests, &mut |done| bar.set_position(start + done as u64));
    bar.set_position(start + requests.requests.len() as u64);
    ran.map_err(|error| match error {
        RunError::Input(fault) => Failure::input(&choice.text, fault),
        RunError::Fault { .. } => Failure::Operation(error.to_string()),
    })
}

fn curve(args: &CurveArgs, output: &Output) -> Result<(), Failure> {
    let given = Given::read(&args.given)?;
    if args.given.trace.is_some() {
        let expected = "--generate: a trace has one rate, a curve needs several";
        return Err(Failure::flag("--trace", "a trace", expected));
    }
    let rates = given::rates(&args.rates)?;
    let first = given.trace(Some(rates[0]))?;
    let choices = given.choices(&first)?;
    let count = first.requests.len();
    let bar = progress(count * choices.len() * rates.len());
    let mut lines: Vec<Line> = choices
        .iter()
        .map(|choice| Line { name: choice.text.clone(), points: Vec::new() })
        .collect();
    let (mut rows, mut values) = (Vec::new(), Vec::new());
    for rate in &rates {
        let requests = given.trace(Some(*rate))?;
        let served = given.served(&requests)?;
        for (choice, line) in choices.iter().zip(&mut lines) {
            let ran = outcome(choice, &served, &requests, &bar)?;
            line.points.push((*rate, ms(latency(&ran))));
            let mut cells = row(&choice.text, &ran, given.price);
            cells.insert(1, format!("{rate}"));
            rows.push(cells);
            let mut value = as_json(&choice.text, &ran, given.price);
            value["rate"] = json!(rate);
            values.push(value);
        }
    }
    bar.finish_and_clear();
    let mut heading = heading(first.has_tokens());
    heading.insert(1, "rate");
    if let Some(path) = &args.out {
        let what = if first.has_tokens() {
            "99 % of first tokens within"
        } else {
            "99 % of answers within"
        };
        let target = given.target(&first).map(ms);
        let title = format!("{what}, by load, {} GPUs", given.gpus);
        draw(path, &svg(&title, "requests a second", &lines, target), &heading, &rows, output)?;
    }
    if args.json {
        return output.print_json(&json!({
            "schema_version": SCHEMA_VERSION, "kind": "serving-curve", "gpus": given.gpus, "runs": values,
        }));
    }
    output.print(&figures(&heading, 1, &rows, output.ink))
}

fn draw(
    path: &Path,
    picture: &str,
    heading: &[&str],
    rows: &[Vec<String>],
    output: &Output,
) -> Result<(), Failure> {
    let text = match path.extension().and_then(|one| one.to_str()) {
        Some("svg") => picture.to_owned(),
        Some("html") => page("Latency over load", &[picture.to_owned()], heading, rows),
        _ => {
            let shown = path.display().to_string();
            return Err(Failure::flag("--out", &shown, "a file that ends in .svg or .html"));
        }
    };
    output.write_file(path, |out| out.write_all(text.as_bytes()))
}

/// What a curve shows: time to the answer, or to its first token.
fn latency(ran: &Ran) -> Span {
    match ran {
        Ran::Whole(tally) => tally.percentile(0.99),
        Ran::Tokens(tally) => tally.first_within(0.99),
    }
}

fn ms(span: Span) -> f64 {
    span.as_secs_f64() * 1e3
}

fn heading(has_tokens: bool) -> Vec<&'static str> {
    match has_tokens {
        false => vec![
            "discipline",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "in time",
            "goodput/s",
            "refused",
            "batch",
            "GPU use",
            "cost",
        ],
        true => vec![
            "discipline",
            "first p50 ms",
            "first p99 ms",
            "token p50 ms",
            "token p99 ms",
            "gap p99 ms",
            "in time",
            "tokens/s",
            "refused",
            "evicted",
            "reused",
            "GPU use",
            "cost",
        ],
    }
}

fn row(name: &str, ran: &Ran, price: f64) -> Vec<String> {
    let tally = ran.tally();
    let in_time = format!("{:.3} %", 100.0 * tally.attainment());
    let refused = tally.refused_all().to_string();
    let used = format!("{:.1} %", 100.0 * tally.use_of_servers());
    let cost = if price > 0.0 { format!("{:.2}", tally.cost(price)) } else { "-".to_owned() };
    let at = |span: Span| format!("{:.2}", ms(span));
    match ran {
        Ran::Whole(_) => vec![
            name.to_owned(),
            at(tally.percentile(0.5)),
            at(tally.percentile(0.99)),
            at(tally.percentile(0.999)),
            in_time,
            format!("{:.1}", tally.goodput()),
            refused,
            format!("{:.1}", tally.batch_mean()),
            used,
            cost,
        ],
        Ran::Tokens(tokens) => vec![
            name.to_owned(),
            at(tokens.first_within(0.5)),
            at(tokens.first_within(0.99)),
            at(tokens.pace_within(0.5)),
            at(tokens.pace_within(0.99)),
            at(tokens.gap_within(0.99)),
            in_time,
            format!("{:.0}", tokens.tokens_per_second()),
            refused,
            tokens.evictions.to_string(),
            tokens.reused.to_string(),
            used,
            cost,
        ],
    }
}

fn as_json(name: &str, ran: &Ran, price: f64) -> Value {
    let tally = ran.tally();
    let mut value = json!({
        "discipline": name,
        "arrived": tally.arrived,
        "answered": tally.answered,
        "in_time": tally.in_time,
        "refused_full": tally.refused_full,
        "refused_late": tally.refused_late,
        "refused_impossible": tally.refused_impossible,
        "waiting": tally.waiting,
        "waiting_peak": tally.waiting_peak,
        "latency_p50_s": tally.percentile(0.5).as_secs_f64(),
        "latency_p99_s": tally.percentile(0.99).as_secs_f64(),
        "latency_p999_s": tally.percentile(0.999).as_secs_f64(),
        "latency_mean_s": tally.mean().as_secs_f64(),
        "attainment": tally.attainment(),
        "goodput_per_s": tally.goodput(),
        "launches": tally.launches,
        "batch_mean": tally.batch_mean(),
        "stops": tally.stops,
        "loads": tally.loads,
        "gpu_use": tally.use_of_servers(),
        "gpus_used": tally.servers_used(),
        "cost": tally.cost(price),
    });
    if let Ran::Tokens(tokens) = ran {
        value["first_p50_s"] = json!(tokens.first_within(0.5).as_secs_f64());
        value["first_p99_s"] = json!(tokens.first_within(0.99).as_secs_f64());
        value["token_p50_s"] = json!(tokens.pace_within(0.5).as_secs_f64());
        value["token_p99_s"] = json!(tokens.pace_within(0.99).as_secs_f64());
        value["gap_p99_s"] = json!(tokens.gap_within(0.99).as_secs_f64());
        value["gap_p999_s"] = json!(tokens.gap_within(0.999).as_secs_f64());
        value["tokens_per_s"] = json!(tokens.tokens_per_second());
        value["prompt_tokens_computed"] = json!(tokens.computed);
        value["prompt_tokens_reused"] = json!(tokens.reused);
        value["evictions"] = json!(tokens.evictions);
    }
    value
}

/// Requests simulated so far, on a terminal.
fn progress(count: usize) -> ProgressBar {
    let bar =
        ProgressBar::with_draw_target(Some(count as u64), ProgressDrawTarget::stderr_with_hz(4));
    let style = ProgressStyle::with_template("{wide_bar} {percent} % {msg} ({eta})");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
