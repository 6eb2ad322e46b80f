//! A comparison as one page that needs nothing else: no network, no fonts, no scripts from outside.
//!
//! The same comparison gives the same bytes; there is no time stamp.

use crate::chart::{escape, style};
use crate::column::{Better, COLUMNS, Column, Shown};
use crate::comparison::{Comparison, Run};
use crate::groups::By;
use crate::parts::Parts;
use crate::replicas::Replicas;
use crate::units::Unit;
use std::fmt::Write;

mod breakdown;
mod data;
mod detail;
mod figures;
mod pack;
mod seeds;
mod tenants;
mod verdict;

pub use crate::chart::Colours;
pub use detail::{Detail, RunDetail};

const CSS: [&str; 4] = [
    include_str!("../assets/colours.css"),
    include_str!("../assets/page.css"),
    include_str!("../assets/figure.css"),
    include_str!("../assets/detail.css"),
];
/// The scripts share one scope and leave nothing outside it.
const JS: [&str; 7] = [
    include_str!("../assets/summary.js"),
    include_str!("../assets/data.js"),
    include_str!("../assets/filter.js"),
    include_str!("../assets/jobs.js"),
    include_str!("../assets/gantt.js"),
    include_str!("../assets/gantt_input.js"),
    include_str!("../assets/start.js"),
];

/// What a page can show beyond the comparison.
#[derive(Copy, Clone, Default)]
pub struct More<'a> {
    /// Single jobs: tenants, a Gantt chart and a table.
    pub detail: Option<&'a Detail<'a>>,
    /// Several seeds; the comparison is then the first of them.
    pub replicas: Option<&'a Replicas>,
    /// Parts of the jobs.
    pub parts: Option<&'a Parts>,
}

/// The page, without single jobs, seeds and parts.
pub fn page(comparison: &Comparison) -> String {
    page_with(comparison, &More::default())
}

/// The page with all there is to show; at most 15 MB.
pub fn page_with(comparison: &Comparison, more: &More<'_>) -> String {
    let names: Vec<&str> = comparison.runs.iter().map(|run| run.policy.as_str()).collect();
    let mut parts = Sections {
        which_seed: match more.replicas {
            Some(replicas) => format!("Seeds {}.", seeds::seed_list(&replicas.seeds)),
            None => format!("Seed {}.", comparison.about.seed),
        },
        verdict: verdict::sentence(comparison, more.replicas),
        seeds: more.replicas.map(seeds::section).unwrap_or_default(),
        parts: more.parts.map(breakdown::section).unwrap_or_default(),
        ..Sections::default()
    };
    if let Some(detail) = more.detail {
        let data = data::pack(detail, &names, data::BYTES_MAX);
        // By tenant is by tenant; one table of them is enough.
        if more.parts.is_none_or(|parts| parts.by != By::Tenant) {
            parts.tenants = tenants::section(comparison, detail);
        }
        parts.jobs = detail::sections(comparison, &data.missing);
        parts.data = data.elements;
    }
    assemble(comparison, &parts)
}

/// The figures of the page, each a file of its own: its name, without an ending, and its text.
///
/// The chart of GPUs, which the page's script draws, is among them for every run.
pub fn figures(
    comparison: &Comparison,
    more: &More<'_>,
    colours: Colours,
) -> Vec<(String, String)> {
    let mut html = figures::trade_offs(comparison) + &figures::distributions_of(comparison);
    html.push_str(&figures::over_time(comparison));
    html.push_str(&more.replicas.map(seeds::section).unwrap_or_default());
    html.push_str(&more.parts.map(breakdown::section).unwrap_or_default());
    if let Some(detail) = more.detail {
        html.push_str(&tenants::section(comparison, detail));
        html.push_str(&figures::gantts(comparison, detail));
    }
    let names: Vec<&str> = comparison.runs.iter().map(|run| run.policy.as_str()).collect();
    crate::chart::standing_alone(&html, &names, colours)
}

/// The parts of the page that not every page has.
#[derive(Default)]
struct Sections {
    which_seed: String,
    verdict: String,
    seeds: String,
    parts: String,
    tenants: String,
    jobs: String,
    data: String,
}

fn assemble(comparison: &Comparison, sections: &Sections) -> String {
    let about = &comparison.about;
    let workload = titled(&about.workload);
    let title = match comparison.runs.len() {
        1 => format!("{} on {workload}", comparison.runs[0].policy),
        count => format!("{count} policies on {workload}"),
    };
    let title = escape(&title);
    let parts = [
        head(comparison, &title, &sections.which_seed),
        sections.verdict.clone(),
        alarms(comparison),
        sections.seeds.clone(),
        tiles(comparison),
        summary_table(comparison),
        figures::trade_offs(comparison),
        figures::distributions_of(comparison),
        figures::over_time(comparison),
        sections.parts.clone(),
        sections.tenants.clone(),
        sections.jobs.clone(),
        policies(comparison),
        settings(comparison),
        definitions(),
    ];
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <title>{title} – Trainyard</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n{}\n\
         <footer>Made by trainyard {}. The same settings and seed give the same page, byte for byte.</footer>\n\
         </main>\n{}<script>\n(() => {{\n\"use strict\";\n{}}})();\n</script>\n</body>\n</html>\n",
        CSS.concat(),
        parts.concat(),
        escape(&about.version),
        sections.data,
        JS.concat()
    )
}

/// What a workload is called in a title: what kind it is, and its name where it has one of its own.
fn titled(workload: &str) -> String {
    match (workload, workload.strip_prefix("generated-")) {
        ("", _) => "a workload without a name".to_owned(),
        ("embedded", _) => "the embedded workload".to_owned(),
        (_, Some(seed)) => format!("a generated workload (seed {seed})"),
        (name, None) => format!("the trace “{name}”"),
    }
}

fn head(comparison: &Comparison, title: &str, which_seed: &str) -> String {
    let about = &comparison.about;
    let load = match about.offered_load {
        Some(load) => format!(" While they arrive they ask for {:.0} % of it.", load * 100.0),
        None => String::new(),
    };
    format!(
        "<header><h1>{title}</h1><p class=\"lead\">{} jobs on {} GPUs (<code>{}</code>).{load} {which_seed}</p></header>\n",
        Unit::Count.text(about.jobs as f64),
        Unit::Count.text(f64::from(about.gpus)),
        escape(&about.cluster)
    )
}

/// What the reader must not overlook.
fn alarms(comparison: &Comparison) -> String {
    let mut html = String::new();
    for run in &comparison.runs {
        let (summary, name) = (&run.summary, escape(&run.policy));
        if summary.unfinished > 0 {
            let _ = writeln!(
                html,
                "<p class=\"alarm\" role=\"alert\"><b>{name}</b> left {} of {} jobs unfinished; its other numbers are over the rest only.</p>",
                summary.unfinished, summary.jobs
            );
        }
        let trouble = summary.trouble;
        if trouble != Default::default() {
            let _ = writeln!(
                html,
                "<p class=\"alarm\" role=\"alert\"><b>{name}</b> did not work properly: {} faulty grants, {} errors, {} panics, {} decisions by the fallback order instead.</p>",
                trouble.faults, trouble.errors, trouble.panics, trouble.fallbacks
            );
        }
    }
    html
}

/// The best in the measures that most people ask for first.
fn tiles(comparison: &Comparison) -> String {
    let mut html = String::from("<ul class=\"tiles\">");
    for key in ["jct_mean_s", "jct_p99_s", "queueing_mean_s", "utilisation", "share_fairness"] {
        let column = COLUMNS.iter().find(|column| column.key == key);
        if let Some(tile) = column.and_then(|column| tile(column, comparison)) {
            html.push_str(&tile);
        }
    }
    html.push_str("</ul>\n");
    html
}

fn tile(column: &Column, comparison: &Comparison) -> Option<String> {
    let title = escape(column.title);
    let valued = |run: &&Run| Some(((column.value)(&run.summary)?, run.policy.clone()));
    if let [only] = comparison.runs.as_slice() {
        let (value, _) = valued(&only)?;
        return Some(format!("<li><span>{title}</span><b>{}</b></li>", column.unit.text(value)));
    }
    let winners: Vec<(f64, String)> = comparison
        .runs
        .iter()
        .filter(|run| column.is_best(&run.summary, comparison.summaries()))
        .filter_map(|run| valued(&run))
        .collect();
    let (best, _) = winners.first()?;
    let (worst, loser) = comparison.runs.iter().filter_map(|run| valued(&run)).max_by(|a, b| {
        let order = a.0.total_cmp(&b.0);
        if column.better == Better::High { order.reverse() } else { order }
    })?;
    let mut names: Vec<String> = winners.iter().take(3).map(|(_, name)| escape(name)).collect();
    if winners.len() > names.len() {
        names.push(format!("{} more", winners.len() - names.len()));
    }
    Some(format!(
        "<li><span>best {title}</span><b>{}</b><span class=\"who\">{}</span><span>worst: {}, {}</span></li>",
        column.unit.text(*best),
        names.join(", "),
        escape(&loser),
        column.unit.text(worst)
    ))
}

fn summary_table(comparison: &Comparison) -> String {
    let shown = |column: &&Column| match column.shown {
        Shown::Always => true,
        Shown::Page => false,
        Shown::WhereAny => column.says_anything(comparison.summaries()),
    };
    let columns: Vec<&Column> = COLUMNS.iter().filter(shown).collect();
    let base = verdict::baseline(comparison);
    let mut html = String::from(
        "<section aria-labelledby=\"h-summary\"><h2 id=\"h-summary\">Summary</h2>\n\
         <p class=\"note\">The best value of each column is marked. Click a heading to sort. A table that fades at its side goes on there: scroll it.</p>\n\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"h-summary\"><table class=\"sortable\"><thead><tr>\
         <th scope=\"col\" aria-sort=\"none\"><button>policy</button></th><th scope=\"col\" class=\"words\" aria-sort=\"none\"><button>information</button></th>",
    );
    for column in &columns {
        let (title, meaning) = (escape(column.title), escape(column.meaning));
        let _ = write!(
            html,
            "<th scope=\"col\" aria-sort=\"none\" title=\"{meaning}\"><button>{title}</button></th>"
        );
        if let Some(base) = base.filter(|_| column.key == "jct_mean_s") {
            let _ = write!(
                html,
                "<th scope=\"col\" aria-sort=\"none\" title=\"The mean completion time, in percent of difference.\"><button>against {}</button></th>",
                escape(&comparison.runs[base].policy)
            );
        }
    }
    html.push_str("</tr></thead><tbody>\n");
    for (index, run) in comparison.runs.iter().enumerate() {
        let (name, knows) = (escape(&run.policy), escape(&run.information.text()));
        let _ = write!(html, "<tr><th scope=\"row\">{name}</th><td class=\"words\">{knows}</td>");
        for column in &columns {
            html.push_str(&value_cell(column, run, comparison));
            if let Some(base) = base.filter(|_| column.key == "jct_mean_s") {
                html.push_str(&against_cell(column, (index, base), comparison));
            }
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n");
    html.push_str(&all_measures(comparison));
    html.push_str("</section>\n");
    html
}

/// Every measure, one to a row.
fn all_measures(comparison: &Comparison) -> String {
    let mut html = String::from(
        "<details><summary>All measures</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"All measures\"><table><thead><tr><th scope=\"col\">measure</th>",
    );
    for run in &comparison.runs {
        let _ = write!(html, "<th scope=\"col\">{}</th>", escape(&run.policy));
    }
    html.push_str("</tr></thead><tbody>\n");
    for column in COLUMNS {
        if comparison.summaries().all(|summary| (column.value)(summary).is_none()) {
            continue;
        }
        let (title, meaning) = (escape(column.title), escape(column.meaning));
        let _ = write!(html, "<tr><th scope=\"row\" title=\"{meaning}\">{title}</th>");
        for run in &comparison.runs {
            html.push_str(&value_cell(column, run, comparison));
        }
        html.push_str("</tr>\n");
    }
    html + "</tbody></table></div></details>\n"
}

fn value_cell(column: &Column, run: &Run, comparison: &Comparison) -> String {
    let Some(value) = (column.value)(&run.summary) else {
        return "<td data-v=\"\">–</td>".to_owned();
    };
    // Three digits are as many as a reader compares.
    let text = match (column.unit, value) {
        (Unit::Factor, 9.995..99.95) => format!("{value:.1}"),
        (unit, value) => escape(&unit.text(value)),
    };
    if column.is_best(&run.summary, comparison.summaries()) {
        return format!(
            "<td class=\"best\" data-v=\"{value}\">{text}<span class=\"hidden\"> (best)</span></td>"
        );
    }
    format!("<td data-v=\"{value}\">{text}</td>")
}

/// How far a run is from the baseline.
fn against_cell(column: &Column, (run, base): (usize, usize), comparison: &Comparison) -> String {
    let value = |index: usize| (column.value)(&comparison.runs[index].summary);
    match (run == base, value(run).zip(value(base)).and_then(|(a, b)| verdict::against(a, b))) {
        (true, _) => "<td data-v=\"0\">baseline</td>".to_owned(),
        (false, Some((percent, text))) => format!("<td data-v=\"{percent:.3}\">{text}</td>"),
        (false, None) => "<td data-v=\"\">–</td>".to_owned(),
    }
}

fn policies(comparison: &Comparison) -> String {
    let mut html = String::from(
        "<section aria-labelledby=\"h-policies\"><h2 id=\"h-policies\">Policies</h2>\n\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"h-policies\"><table><thead><tr><th scope=\"col\">policy</th>\
         <th scope=\"col\" class=\"words\">what it is</th><th scope=\"col\" class=\"words\">information</th>\
         <th scope=\"col\" class=\"words\">settings</th></tr></thead><tbody>\n",
    );
    for (index, run) in comparison.runs.iter().enumerate() {
        let settings: Vec<String> = run
            .settings
            .iter()
            .map(|(key, value)| format!("<code>{} = {}</code>", escape(key), escape(value)))
            .collect();
        let settings = if settings.is_empty() { "–".to_owned() } else { settings.join("<br>") };
        let _ = writeln!(
            html,
            "<tr><th scope=\"row\" class=\"{}\">{}</th><td class=\"wrap\">{}</td><td class=\"words\">{}</td><td class=\"words\">{settings}</td></tr>",
            style(index),
            escape(&run.policy),
            escape(&run.about),
            escape(&run.information.text()),
        );
    }
    html.push_str("</tbody></table></div>\n<p class=\"note\">A policy is told nothing of a job's size, an estimate of it (~ gives the standard deviation of the logarithm of its error), or the exact size.</p></section>\n");
    html
}

fn settings(comparison: &Comparison) -> String {
    let about = &comparison.about;
    let mut html = String::from(
        "<section aria-labelledby=\"h-settings\"><h2 id=\"h-settings\">Settings</h2><dl>\n",
    );
    let fixed = [
        ("version", about.version.clone()),
        ("workload", about.workload.clone()),
        ("cluster", about.cluster.clone()),
        ("seed", about.seed.to_string()),
    ];
    for (key, value) in &fixed {
        let _ = writeln!(html, "<dt>{}</dt><dd><code>{}</code></dd>", escape(key), escape(value));
    }
    for (key, value) in &about.options {
        let _ = writeln!(html, "<dt>{}</dt><dd><code>{}</code></dd>", escape(key), escape(value));
    }
    html + "</dl></section>\n"
}

fn definitions() -> String {
    let mut html = String::from(
        "<section aria-labelledby=\"h-terms\"><h2 id=\"h-terms\">What the measures mean</h2><details><summary>Definitions</summary><dl>\n",
    );
    for column in COLUMNS {
        let _ =
            writeln!(html, "<dt>{}</dt><dd>{}</dd>", escape(column.title), escape(column.meaning));
    }
    html + "</dl></details></section>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::{About, Information};
    use crate::curve::Curves;
    use crate::metrics::{Spread, Summary};
    use trainyard_framework::Needs;

    pub(super) fn run(policy: &str, jct_mean: f64) -> Run {
        let jct_s = Spread { mean: jct_mean, ..Spread::default() };
        let summary =
            Summary { jobs: 2, finished: 2, makespan_s: 60.0, jct_s, ..Summary::default() };
        let curves = Curves {
            jct: vec![(0.0, 0.5), (jct_mean, 1.0)],
            queueing: vec![(0.0, 1.0)],
            every_s: 30.0,
            used: vec![0.5, 1.0],
            waiting: vec![3.0, 0.0],
        };
        Run {
            policy: policy.to_owned(),
            about: "An <example>.".to_owned(),
            information: Information::new(&Needs::NOTHING, (0.0, 0.0)),
            settings: vec![("a.b".to_owned(), "\"<c>\"".to_owned())],
            summary,
            curves,
        }
    }

    #[test]
    fn texts_of_users_are_escaped_everywhere() {
        let about = About { workload: "<img src=x>".to_owned(), ..About::default() };
        let evil = "<script>alert(1)</script>";
        let page = page(&Comparison { about, runs: vec![run(evil, 60.0), run("b", 90.0)] });
        assert!(!page.contains(evil) && !page.contains("<img") && !page.contains("<c>"));
        assert!(page.contains("&lt;script&gt;alert(1)"));
    }

    #[test]
    fn the_best_is_marked_once_and_named() {
        let runs = vec![run("quick", 60.0), run("slow", 90.0)];
        let html = summary_table(&Comparison { about: About::default(), runs });
        let summary = html.split("<details>").next().unwrap_or_default();
        assert_eq!(summary.matches("(best)").count(), 1, "{summary}");
        assert!(summary.contains("<td class=\"best\" data-v=\"60\">1m00s"), "{summary}");
    }

    #[test]
    fn factors_have_three_digits() {
        let slowdown = COLUMNS.iter().find(|column| column.key == "slowdown_mean");
        let shown = |mean: f64| {
            let mut one = run("one", 60.0);
            one.summary.slowdown.mean = mean;
            let comparison = Comparison { about: About::default(), runs: vec![one] };
            value_cell(slowdown.expect("a measure"), &comparison.runs[0], &comparison)
        };
        assert!(
            shown(85.19).contains(">85.2<") && shown(2.345).contains(">2.3"),
            "{}",
            shown(85.19)
        );
    }

    #[test]
    fn every_run_is_shown_against_the_baseline() {
        let runs = vec![run("quick", 60.0), run("fifo", 375.0)];
        let html = summary_table(&Comparison { about: About::default(), runs });
        assert!(html.contains("<button>against fifo</button>"), "{html}");
        assert!(html.contains("<td data-v=\"-84.000\">-84 %</td>"), "{html}");
        assert!(html.contains("<td data-v=\"0\">baseline</td>"), "{html}");
    }

    #[test]
    fn a_workload_has_a_title() {
        assert_eq!(titled("generated-7"), "a generated workload (seed 7)");
        assert_eq!(titled("embedded"), "the embedded workload");
        assert_eq!(titled("philly.csv"), "the trace “philly.csv”");
    }

    #[test]
    fn a_page_without_runs_or_with_one_is_a_page() {
        for runs in [Vec::new(), vec![run("only", 60.0)]] {
            let page = page(&Comparison { about: About::default(), runs });
            let body = page.split("<script>").next().unwrap_or_default();
            let body = body.replace("information", "");
            assert!(page.ends_with("</html>\n") && !body.contains("NaN") && !body.contains("inf"));
        }
    }
}
