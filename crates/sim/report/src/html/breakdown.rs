//! Parts of the jobs under each policy: by tenant, type of GPU or size.

use super::seeds::{headings, interval_cell};
use crate::chart::{Caption, Dots, dots, escape, swatch};
use crate::column::COLUMNS;
use crate::groups::By;
use crate::parts::Parts;
use std::fmt::Write;

/// The most parts that are drawn and listed.
const PARTS_MAX: usize = 60;

pub(super) fn section(parts: &Parts) -> String {
    let Some((_, first)) = parts.parts.first() else { return String::new() };
    let what = match parts.by {
        By::Tenant => "tenant",
        By::Type => "type of GPU",
        By::Size => "number of GPUs",
    };
    let seeds = match first.seeds.len() {
        0 | 1 => String::new(),
        count => format!(
            " Means over {count} seeds ± half of their 95 % t-intervals; ~ marks no significant difference from the best (95 %)."
        ),
    };
    let mut html = format!(
        "<section aria-labelledby=\"h-by\" id=\"by-section\"><h2 id=\"h-by\">By {what}</h2>\n\
         <p class=\"note\">The best value of each measure within a part is marked.{seeds}</p>\n"
    );
    let left_out = parts.parts.len().saturating_sub(PARTS_MAX);
    if left_out > 0 {
        let _ = writeln!(
            html,
            "<p class=\"note missing\"><b>Left out:</b> {left_out} parts; `--json` has them all.</p>"
        );
    }
    html.push_str("<ul class=\"legend\">");
    for (run, one) in first.policies.iter().enumerate() {
        let (stroke, name) = (swatch(run), escape(&one.policy));
        let _ = write!(html, "<li class=\"key\" data-run=\"{run}\">{stroke}{name}</li>");
    }
    html.push_str("</ul>\n<div class=\"charts tenant-charts\">");
    html.push_str(&figure(parts, what));
    html.push_str(&table(parts));
    html + "</div></section>\n"
}

fn figure(parts: &Parts, what: &str) -> String {
    let Some(column) = COLUMNS.iter().find(|column| column.key == "slowdown_mean") else {
        return String::new();
    };
    let shown = || parts.parts.iter().take(PARTS_MAX);
    let rows: Vec<Dots<'_>> = shown()
        .map(|(name, part)| Dots {
            name,
            values: (0..part.policies.len())
                .map(|policy| part.interval(policy, column).map(|interval| interval.mean))
                .collect(),
        })
        .collect();
    let names: Vec<&str> = parts.parts.first().map_or_else(Vec::new, |(_, part)| {
        part.policies.iter().map(|policy| policy.policy.as_str()).collect()
    });
    let title = format!("Mean slowdown by {what} under each policy");
    let description = format!("{} parts and {} policies.", rows.len(), names.len());
    let caption = Caption { id: "by", title: &title, description: &description };
    format!(
        "<figure class=\"card\"><figcaption><b>Mean slowdown</b> by {what}</figcaption>{}</figure>\n",
        dots(&caption, &rows, &names)
    )
}

fn table(parts: &Parts) -> String {
    let columns = parts.columns();
    let by = parts.by.name();
    let mut html = format!(
        "<div class=\"scroll tenants\" tabindex=\"0\" role=\"region\" aria-labelledby=\"h-by\"><table class=\"sortable\" id=\"by\"><thead><tr>\
         <th scope=\"col\" class=\"words\" aria-sort=\"none\"><button>{by}</button></th><th scope=\"col\" class=\"words\" aria-sort=\"none\"><button>policy</button></th>{}",
        headings(&columns)
    );
    html.push_str("</tr></thead><tbody>\n");
    for (index, (name, part)) in parts.parts.iter().take(PARTS_MAX).enumerate() {
        for (run, policy) in part.policies.iter().enumerate() {
            let _ = write!(
                html,
                "<tr data-run=\"{run}\"><th scope=\"row\" data-v=\"{index}\">{}</th><td class=\"words\">{}</td>",
                escape(name),
                escape(&policy.policy)
            );
            for column in &columns {
                html.push_str(&interval_cell(part, run, column));
            }
            html.push_str("</tr>\n");
        }
    }
    html + "</tbody></table></div>\n"
}
