//! `eta` and `whatif`.

use super::args::{EtaArgs, WhatIfArgs};
use super::connect::connect;
use super::other_cluster;
use crate::failure::Failure;
use crate::output::Output;
use trainyard_api::ask;
use trainyard_api::forecast::{EtaAnswer, Expected, WhatIfAnswer, WhatIfRequest, WhatIfRow};
use trainyard_api::request::{EtaQuery, EtasQuery};
use trainyard_client::show::{clock, length, now, state, versioned};
use trainyard_experiment::choice::split_choices;
use trainyard_experiment::options;
use trainyard_report::table::{figures, listing};

/// `eta`.
pub fn eta(args: &EtaArgs, output: &Output) -> Result<(), Failure> {
    let client = connect(&args.connection)?;
    let confidence = Some(args.confidence);
    let Some(job) = args.job else {
        let request = ask::etas(EtasQuery { limit: Some(args.limit as usize), confidence });
        if args.connection.json {
            return output.print_json(&versioned(client.value(&request)?));
        }
        return output.print(&list(&client.send(&request)?, output));
    };
    let answer = client.send(&ask::eta(job, EtaQuery { confidence }))?;
    if args.connection.json {
        return output.print_json(&versioned(&answer));
    }
    output.print(&one(&answer))
}

fn one(answer: &EtaAnswer) -> String {
    let mut text = format!("job {} is {}\n", answer.job, state(answer.state));
    let mut line = |what: &str, expected: &Option<Expected>| {
        let Some(Expected { low, likely, high }) = expected else {
            return text.push_str(&format!("{what:<8}cannot be told\n"));
        };
        let past = *high <= now();
        let when = if past { "ago" } else { "from now" };
        let far = if past { now() - likely } else { likely - now() };
        text.push_str(&format!("{what:<8}{}, {} {when}\n", clock(*likely), length(far)));
        if low < high {
            let percent = answer.confidence * 100.0;
            text.push_str(&format!(
                "{:<8}{} to {} in {percent:.0} of 100 cases\n",
                "",
                clock(*low),
                clock(*high)
            ));
        }
    };
    line("starts", &answer.starts);
    line("ends", &answer.ends);
    text.push_str(&format!("{:<8}{}\n", "basis", answer.basis));
    text
}

fn list(jobs: &[EtaAnswer], output: &Output) -> String {
    if jobs.is_empty() {
        return "no jobs\n".to_owned();
    }
    let at = now();
    let cells = |expected: &Option<Expected>| match expected {
        None => ["?".to_owned(), String::new()],
        Some(Expected { high, likely, .. }) if *high <= at => [clock(*likely), String::new()],
        Some(Expected { low, likely, high }) => {
            let range = format!("{} to {}", length(low - at), length(high - at));
            [format!("in {}", length(likely - at)), range]
        }
    };
    let row = |eta: &EtaAnswer| {
        let mut row = vec![eta.job.to_string(), state(eta.state)];
        row.extend(cells(&eta.starts));
        row.extend(cells(&eta.ends));
        row
    };
    let rows: Vec<Vec<String>> = jobs.iter().map(row).collect();
    let range = format!("{:.0} %", jobs[0].confidence * 100.0);
    let heading = ["id", "state", "starts", range.as_str(), "ends", range.as_str()];
    listing(&heading, &rows, output.ink, output.width)
}

/// `whatif`.
pub fn whatif(args: &WhatIfArgs, output: &Output) -> Result<(), Failure> {
    if let Some(cluster) = &args.other.cluster {
        return other_cluster::run(args, cluster, output);
    }
    let policies = args.policies.iter().flat_map(|list| split_choices(list)).collect();
    let horizon = args.horizon.as_ref().map(|text| options::span("--horizon", text)).transpose()?;
    let horizon_seconds = horizon.map(|span| span.as_secs_f64());
    let request = WhatIfRequest { policies, horizon_seconds };
    let client = connect(&args.connection)?;
    let answer = client.send(&ask::whatif(request))?;
    if args.connection.json {
        return output.print_json(&versioned(&answer));
    }
    let mut text =
        format!("{} jobs from {} on\n\n{}", answer.jobs, clock(answer.at), table(&answer, output));
    for row in &answer.rows {
        if let Some(trouble) = &row.trouble {
            text.push_str(&format!("\n{}: {trouble}\n", row.policy));
        }
    }
    text.push_str(&format!("\n{}; it took {:.2} s\n", answer.basis, answer.took_seconds));
    output.print(&text)
}

/// How a measure is written, and which of two is better.
struct Measure {
    title: &'static str,
    value: fn(&WhatIfRow) -> f64,
    text: fn(f64) -> String,
    more_is_better: bool,
}

const MEASURES: [Measure; 9] = [
    Measure::more("finished", |row| row.finished as f64, |value| format!("{value:.0}")),
    Measure::less("mean JCT", |row| row.mean_completion_seconds, length),
    Measure::less("p95 JCT", |row| row.p95_completion_seconds, length),
    Measure::less("mean wait", |row| row.mean_wait_seconds, length),
    Measure::less("makespan", |row| row.makespan_seconds, length),
    Measure::more(
        "GPU allocation",
        |row| row.utilisation,
        |value| format!("{:.1} %", value * 100.0),
    ),
    Measure::less("worst rho", |row| row.worst_rho, |value| format!("{value:.2}")),
    Measure::less("preempted", |row| row.preemptions as f64, |value| format!("{value:.0}")),
    Measure::less("GPU-h lost", |row| row.gpu_hours_lost, |value| format!("{value:.1}")),
];

impl Measure {
    const fn less(
        title: &'static str,
        value: fn(&WhatIfRow) -> f64,
        text: fn(f64) -> String,
    ) -> Measure {
        Measure { title, value, text, more_is_better: false }
    }

    const fn more(
        title: &'static str,
        value: fn(&WhatIfRow) -> f64,
        text: fn(f64) -> String,
    ) -> Measure {
        Measure { title, value, text, more_is_better: true }
    }

    /// The best among rows without trouble; nothing where all read alike.
    fn best(&self, rows: &[WhatIfRow]) -> Option<String> {
        let sound = || rows.iter().filter(|row| row.trouble.is_none()).map(self.value);
        let best = match self.more_is_better {
            true => sound().max_by(f64::total_cmp),
            false => sound().min_by(f64::total_cmp),
        };
        let best = (self.text)(best?);
        sound().any(|value| (self.text)(value) != best).then_some(best)
    }
}

fn table(answer: &WhatIfAnswer, output: &Output) -> String {
    let mut heading = vec!["policy", ""];
    heading.extend(MEASURES.iter().map(|measure| measure.title));
    let deadlines = answer.rows.iter().any(|row| row.deadlines > 0);
    if deadlines {
        heading.push("deadlines");
    }
    let best: Vec<Option<String>> =
        MEASURES.iter().map(|measure| measure.best(&answer.rows)).collect();
    let row = |row: &WhatIfRow| {
        let now = if row.runs_now { "now" } else { "" };
        let mut cells = vec![row.policy.clone(), now.to_owned()];
        for (measure, best) in MEASURES.iter().zip(&best) {
            let text = (measure.text)((measure.value)(row));
            let mark = if row.trouble.is_none() && Some(&text) == best.as_ref() { "*" } else { "" };
            cells.push(format!("{text}{mark}"));
        }
        if deadlines {
            cells.push(format!("{} of {}", row.deadlines_met, row.deadlines));
        }
        cells
    };
    let rows: Vec<Vec<String>> = answer.rows.iter().map(row).collect();
    figures(&heading, 2, &rows, output.ink)
}
