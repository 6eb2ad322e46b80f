//! The pictures of the page.

use super::Detail;
use crate::chart::{Area, Caption, Line, Point, Scale, Series};
use crate::chart::{area, distributions, escape, gantt, overlay, scatter, swatch};
use crate::column::{COLUMNS, Column};
use crate::comparison::{Comparison, Run};
use crate::curve::Curves;
use crate::metrics::{Spread, Summary};
use crate::units::{Unit, span_text};
use std::fmt::Write;
use trainyard_types::Time;

/// What short completion times cost: fairness and preemptions, one dot for each run.
pub(super) fn trade_offs(comparison: &Comparison) -> String {
    if comparison.runs.len() < 2 {
        return String::new();
    }
    // Fairness is told for tenants where there are several, for jobs otherwise.
    let fair = ["share_fairness", "slowdown_fairness", "rho_worst"].into_iter().filter_map(named);
    let fair = fair.into_iter().find(|column| points(comparison, column).len() > 1);
    let columns = fair.into_iter().chain(named("preemptions"));
    let mut html = String::from(
        "<section aria-labelledby=\"h-trade\"><h2 id=\"h-trade\">What short completion times cost</h2>\n\
         <p class=\"note\">One dot for each policy; the further left, the shorter the mean completion time.</p>\n<div class=\"charts\">\n",
    );
    for column in columns {
        let points = points(comparison, column);
        let what = if column.key == "preemptions" { "preemptions" } else { column.title };
        let title = format!("JCT mean against {what}");
        let texts: Vec<String> = points
            .iter()
            .map(|point| format!("{} {}", point.name, column.unit.text(point.value)))
            .collect();
        let (id, description) = (format!("by-{}", column.key), format!("{}.", texts.join(", ")));
        let caption = Caption { id: &id, title: &title, description: &description };
        let chart = scatter(&caption, &points, column.unit);
        let meaning = escape(column.meaning);
        let _ = writeln!(
            html,
            "<figure class=\"card\"><figcaption><b>{}</b>: {meaning}</figcaption>{chart}</figure>",
            escape(&title)
        );
    }
    html + "</div></section>\n"
}

fn named(key: &str) -> Option<&'static Column> {
    COLUMNS.iter().find(|column| column.key == key)
}

fn points<'a>(comparison: &'a Comparison, column: &Column) -> Vec<Point<'a>> {
    let time = named("jct_mean_s");
    let point = |(run, one): (usize, &'a Run)| {
        let seconds = time.and_then(|time| (time.value)(&one.summary))?;
        let value = (column.value)(&one.summary)?;
        Some(Point { run, name: &one.policy, seconds, value })
    };
    comparison.runs.iter().enumerate().filter_map(point).collect()
}

/// How completion and waiting times are distributed.
pub(super) fn distributions_of(comparison: &Comparison) -> String {
    let mut html = String::from(
        "<section aria-labelledby=\"h-curves\"><h2 id=\"h-curves\">How long jobs take</h2>\n\
         <p class=\"note\">The higher and the further left a curve, the better. Click a policy to hide or show it.</p>\n",
    );
    html.push_str(&legend(comparison));
    html.push_str("<div class=\"charts\">\n");
    for what in [&JCT, &WAITING] {
        html.push_str(&distribution_figure(comparison, what));
    }
    html + "</div></section>\n"
}

/// Buttons that hide and show runs, in every picture at once.
fn legend(comparison: &Comparison) -> String {
    let mut html = String::from("<ul class=\"legend\">");
    for (index, run) in comparison.runs.iter().enumerate() {
        let _ = write!(
            html,
            "<li><button data-of=\"{index}\" aria-pressed=\"true\">{}{}</button></li>",
            swatch(index),
            escape(&run.policy)
        );
    }
    html + "</ul>\n"
}

/// What a picture of distributions shows.
struct Distribution {
    id: &'static str,
    title: &'static str,
    meaning: &'static str,
    points: fn(&Curves) -> &[(f64, f64)],
    spread: fn(&Summary) -> &Spread,
}

const JCT: Distribution = Distribution {
    id: "jct",
    title: "Completion time",
    meaning: "part of jobs complete within a time",
    points: |curves| &curves.jct,
    spread: |summary| &summary.jct_s,
};

const WAITING: Distribution = Distribution {
    id: "wait",
    title: "Waiting",
    meaning: "part of jobs that spend at most a time without GPUs",
    points: |curves| &curves.queueing,
    spread: |summary| &summary.queueing_s,
};

fn distribution_figure(comparison: &Comparison, what: &Distribution) -> String {
    let runs = comparison.runs.iter().enumerate();
    let lines: Vec<Line<'_>> = runs
        .map(|(run, one)| Line { run, name: &one.policy, points: (what.points)(&one.curves) })
        .collect();
    let medians: Vec<String> = comparison
        .runs
        .iter()
        .map(|run| format!("{} {}", run.policy, span_text((what.spread)(&run.summary).median)))
        .collect();
    let Distribution { id, title, meaning, .. } = what;
    let full = format!("{title}: {meaning}");
    let description = format!("Medians: {}.", medians.join(", "));
    let chart = distributions(&Caption { id, title: &full, description: &description }, &lines);
    format!(
        "<figure class=\"card\"><figcaption><b>{title}</b>: {meaning}</figcaption>{chart}</figure>\n"
    )
}

/// GPUs held and jobs waiting over time: all runs in one picture, and one small picture for each.
pub(super) fn over_time(comparison: &Comparison) -> String {
    let until_s = comparison.summaries().map(|summary| summary.makespan_s).fold(1.0, f64::max);
    let waiting = comparison.runs.iter().flat_map(|run| run.curves.waiting.iter().copied());
    let waiting_top = round_up(waiting.fold(1.0, f64::max));
    let mut html = String::from(
        "<section aria-labelledby=\"h-time\"><h2 id=\"h-time\">Over time</h2>\n\
         <p class=\"note\">All policies on the same axes. <label>Show <select id=\"series\">\
         <option value=\"used\">GPU allocation</option><option value=\"waiting\">jobs waiting</option></select></label></p>\n",
    );
    html.push_str(&legend(comparison));
    html.push_str(&overlays(comparison, (until_s, waiting_top)));
    html.push_str("<details><summary>Each policy by itself</summary><div class=\"small\">\n");
    for (run, one) in comparison.runs.iter().enumerate() {
        let name = escape(&one.policy);
        let used = small(
            one,
            ("used", "GPU allocation"),
            Area {
                run,
                values: &one.curves.used,
                every_s: one.curves.every_s,
                until_s,
                top: 1.0,
                scale: Scale::Percent,
            },
        );
        let waits = small(
            one,
            ("waiting", "Jobs waiting"),
            Area {
                run,
                values: &one.curves.waiting,
                every_s: one.curves.every_s,
                until_s,
                top: waiting_top,
                scale: Scale::Jobs,
            },
        );
        let _ = writeln!(
            html,
            "<div class=\"card\" data-run=\"{run}\"><h3>{name}</h3>{used}{waits}</div>"
        );
    }
    html + "</div></details></section>\n"
}

/// Both series of all runs, of which the page shows one at a time.
fn overlays(comparison: &Comparison, (until_s, waiting_top): (f64, f64)) -> String {
    let series = |values: fn(&Curves) -> &[f64]| -> Vec<Series<'_>> {
        let one = |(run, one): (usize, &'_ Run)| Series {
            run,
            name: &comparison.runs[run].policy,
            values: values(&comparison.runs[run].curves),
            every_s: one.curves.every_s,
        };
        comparison.runs.iter().enumerate().map(one).collect()
    };
    let parts: [(&str, &str, Vec<Series<'_>>, f64, Scale); 2] = [
        ("used", "GPU allocation", series(|curves| &curves.used), 1.0, Scale::Percent),
        ("waiting", "Jobs waiting", series(|curves| &curves.waiting), waiting_top, Scale::Jobs),
    ];
    let mut html = String::new();
    for (index, (key, title, series, top, scale)) in parts.into_iter().enumerate() {
        let (id, title) = (format!("all-{key}"), format!("{title} over time"));
        let description = format!("{} policies.", series.len());
        let caption = Caption { id: &id, title: &title, description: &description };
        let chart = overlay(&caption, &series, (until_s, top), scale);
        let hidden = if index == 0 { "" } else { " hidden" };
        let _ = writeln!(
            html,
            "<figure class=\"card wide\" data-series=\"{key}\"{hidden}><figcaption><b>{title}</b></figcaption>{chart}</figure>"
        );
    }
    html
}

/// Which job held which GPU, one large picture for each run; the page itself has one that moves instead.
pub(super) fn gantts(comparison: &Comparison, detail: &Detail<'_>) -> String {
    let jobs = &detail.workload.jobs;
    let from = jobs.first().map_or(Time::ZERO, |one| one.job.submitted);
    let until = detail.runs.iter().map(|run| run.outcome.ended).max().unwrap_or(from);
    let mut html = String::new();
    for (index, (run, one)) in comparison.runs.iter().zip(&detail.runs).enumerate() {
        let (id, title) =
            (format!("gantt{index}"), format!("Who held which GPU under {}", run.policy));
        let description =
            format!("{} GPUs; bars are jobs, in sixteen colours in turn.", detail.cluster.gpus());
        let caption = Caption { id: &id, title: &title, description: &description };
        html.push_str(&gantt(&caption, detail.cluster, one.timeline, (from, until)));
    }
    html
}

fn small(run: &Run, (id, title): (&str, &str), of: Area<'_>) -> String {
    let peak = of.values.iter().copied().fold(0.0, f64::max);
    let description = match of.scale {
        Scale::Percent => format!("On the average {}.", Unit::Part.text(run.summary.utilisation)),
        Scale::Jobs => format!("At most {peak:.0} jobs on the average of a step."),
    };
    let id = format!("{id}{}", of.run);
    let full = format!("{title} over time under {}", run.policy);
    let caption = Caption { id: &id, title: &full, description: &description };
    format!("<figure><figcaption>{title}</figcaption>{}</figure>", area(&caption, &of))
}

/// The next of 1, 2, 5, 10, 20, 50, ...
fn round_up(value: f64) -> f64 {
    let mut step = 1.0;
    while step * 10.0 < value {
        step *= 10.0;
    }
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * step)
        .into_iter()
        .find(|top| *top >= value)
        .unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!([0.5, 1.0, 3.0, 11.0, 230.0].map(round_up), [1.0, 1.0, 5.0, 20.0, 500.0]);
    }
}
