//! How tenants fare under each policy.

use super::Detail;
use crate::chart::{Caption, Dots, dots, escape, swatch};
use crate::comparison::Comparison;
use crate::metrics::{jain, slowdown};
use crate::units::{Unit, span_text};
use std::fmt::Write;

/// The most tenants that are drawn and listed.
const TENANTS_MAX: usize = 24;

/// What one tenant got in one run.
#[derive(Copy, Clone, Default)]
struct Fare {
    finished: u64,
    slowdown: f64,
    waited_s: f64,
    gpu_hours: f64,
}

impl Fare {
    fn mean_slowdown(&self) -> Option<f64> {
        (self.finished > 0).then(|| self.slowdown / self.finished as f64)
    }
}

/// A figure and a table; nothing where there is only one tenant.
pub(super) fn section(comparison: &Comparison, detail: &Detail<'_>) -> String {
    let tenants = detail.workload.tenants.len();
    let mut jobs = vec![0u64; tenants];
    for one in &detail.workload.jobs {
        jobs[one.job.tenant.index()] += 1;
    }
    let mut shown: Vec<usize> = (0..tenants).filter(|tenant| jobs[*tenant] > 0).collect();
    if shown.len() < 2 {
        return String::new();
    }
    let fares = fares(detail);
    let hours = |tenant: usize| fares.iter().map(|run| run[tenant].gpu_hours).sum::<f64>();
    shown.sort_by(|a, b| hours(*b).total_cmp(&hours(*a)).then(a.cmp(b)));
    let left_out = shown.len().saturating_sub(TENANTS_MAX);
    shown.truncate(TENANTS_MAX);
    let mut html = String::from(
        "<section aria-labelledby=\"h-tenants\"><h2 id=\"h-tenants\">Tenants</h2>\n\
         <p class=\"note\">Mean slowdown: how many times longer a tenant's jobs took than undisturbed. The closer together the dots of one colour, the more alike tenants fare (slowdown fairness). Whether each received what it was entitled to is share fairness, in the table of measures.</p>\n",
    );
    if left_out > 0 {
        let _ = writeln!(
            html,
            "<p class=\"note missing\"><b>Left out:</b> {left_out} tenants with the least GPU time.</p>"
        );
    }
    html.push_str("<ul class=\"legend\">");
    for (run, one) in comparison.runs.iter().enumerate() {
        let (stroke, name) = (swatch(run), escape(&one.policy));
        let _ = write!(html, "<li class=\"key\" data-run=\"{run}\">{stroke}{name}</li>");
    }
    html.push_str("</ul>\n<div class=\"charts tenant-charts\">");
    html.push_str(&figure(comparison, detail, (&fares, &shown)));
    html.push_str(&table(comparison, detail, (&fares, &shown, &jobs)));
    html + "</div></section>\n"
}

fn fares(detail: &Detail<'_>) -> Vec<Vec<Fare>> {
    let ideal = detail.workload.ideal(detail.cluster);
    let of_run = |run: &super::RunDetail<'_>| {
        let mut fares = vec![Fare::default(); detail.workload.tenants.len()];
        for one in &run.outcome.jobs {
            let job = &detail.workload.jobs[one.job.index()].job;
            let fare = &mut fares[job.tenant.index()];
            fare.gpu_hours += one.gpu_time.as_secs_f64() / 3600.0;
            if one.end == trainyard_types::End::Finished {
                fare.finished += 1;
                fare.slowdown += slowdown(job, one, ideal[one.job.index()]);
                fare.waited_s += one.ended.since(job.submitted).minus(one.ran).as_secs_f64();
            }
        }
        fares
    };
    detail.runs.iter().map(of_run).collect()
}

fn name<'a>(detail: &Detail<'a>, tenant: usize) -> &'a str {
    let mut tenants = detail.workload.tenants.iter();
    tenants.nth(tenant).map_or("", |(_, tenant)| tenant.name.as_str())
}

fn figure(
    comparison: &Comparison,
    detail: &Detail<'_>,
    (fares, shown): (&[Vec<Fare>], &[usize]),
) -> String {
    let rows: Vec<Dots<'_>> = shown
        .iter()
        .map(|&tenant| Dots {
            name: name(detail, tenant),
            values: fares.iter().map(|run| run[tenant].mean_slowdown()).collect(),
        })
        .collect();
    let spread = |(run, fares): (usize, &Vec<Fare>)| {
        let means: Vec<f64> = fares.iter().filter_map(Fare::mean_slowdown).collect();
        let index = jain(&means)?;
        Some(format!("{} {index:.2}", comparison.runs[run].policy))
    };
    let fairness: Vec<String> = fares.iter().enumerate().filter_map(spread).collect();
    let description =
        format!("Slowdown fairness, Jain's index over tenants: {}.", fairness.join(", "));
    let caption = Caption {
        id: "tenants",
        title: "Mean slowdown of each tenant under each policy",
        description: &description,
    };
    let names: Vec<&str> = comparison.runs.iter().map(|run| run.policy.as_str()).collect();
    let chart = dots(&caption, &rows, &names);
    format!(
        "<figure class=\"card\"><figcaption><b>Mean slowdown</b> by tenant</figcaption>{chart}</figure>\n"
    )
}

fn table(
    comparison: &Comparison,
    detail: &Detail<'_>,
    (fares, shown, jobs): (&[Vec<Fare>], &[usize], &[u64]),
) -> String {
    let mut html = String::from(
        "<div class=\"scroll tenants\" tabindex=\"0\" role=\"region\" aria-label=\"Tenants\"><table class=\"sortable\"><thead><tr>",
    );
    for (title, class) in [
        ("tenant", "words"),
        ("policy", "words"),
        ("jobs", ""),
        ("finished", ""),
        ("mean slowdown", ""),
        ("mean wait", ""),
        ("GPU-hours", ""),
    ] {
        let _ = write!(
            html,
            "<th scope=\"col\" class=\"{class}\" aria-sort=\"none\"><button>{title}</button></th>"
        );
    }
    html.push_str("</tr></thead><tbody>\n");
    for &tenant in shown {
        for (run, fares) in fares.iter().enumerate() {
            let fare = &fares[tenant];
            let count = fare.finished.max(1) as f64;
            let (slow, wait) = (fare.slowdown / count, fare.waited_s / count);
            let _ = writeln!(
                html,
                "<tr data-run=\"{run}\"><th scope=\"row\">{}</th><td class=\"words\">{}</td><td data-v=\"{jobs}\">{jobs}</td><td data-v=\"{done}\">{done}</td><td data-v=\"{slow}\">{slow:.2}×</td><td data-v=\"{wait}\">{}</td><td data-v=\"{hours}\">{}</td></tr>",
                escape(name(detail, tenant)),
                escape(&comparison.runs[run].policy),
                span_text(wait),
                Unit::Count.text(fare.gpu_hours.round()),
                jobs = jobs[tenant],
                done = fare.finished,
                hours = fare.gpu_hours,
            );
        }
    }
    html + "</tbody></table></div>\n"
}
