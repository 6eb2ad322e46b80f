//! Several seeds: means with their intervals, and which policies do not differ significantly.

use crate::chart::{Caption, Whisker, escape, whiskers};
use crate::column::{COLUMNS, Column};
use crate::replicas::{Mark, Replicas};
use std::fmt::Write;

/// The measures whose groups of the alike are listed, where they say anything.
const COMPARED: [&str; 6] =
    ["jct_mean_s", "jct_p99_s", "queueing_mean_s", "slowdown_mean", "makespan_s", "utilisation"];

pub(super) fn section(replicas: &Replicas) -> String {
    let count = replicas.seeds.len();
    let columns: Vec<&Column> = COLUMNS.iter().filter(|column| replicas.shows(column)).collect();
    let mut html = format!(
        "<section aria-labelledby=\"h-seeds\" id=\"seeds-section\"><h2 id=\"h-seeds\">Over {count} seeds</h2>\n\
         <p class=\"note\">Mean over the seeds {} ± half of its 95 % t-interval. The best mean of each column is marked; \
         ~ marks no significant difference from it (95 %), seed by seed.</p>\n",
        seed_list(&replicas.seeds)
    );
    html.push_str(&table(replicas, &columns));
    html.push_str("<div class=\"charts\">");
    html.push_str(&figure(replicas));
    html.push_str(&groups(replicas));
    let first = replicas.seeds.first().copied().unwrap_or_default();
    let _ = writeln!(
        html,
        "</div><p class=\"note missing\">Everything below this line is the run with seed {first} alone, unless it says otherwise.</p></section>"
    );
    html
}

pub(super) fn seed_list(seeds: &[u64]) -> String {
    const SHOWN: usize = 12;
    let mut list: Vec<String> = seeds.iter().take(SHOWN).map(u64::to_string).collect();
    if seeds.len() > SHOWN {
        list.push(format!("{} more", seeds.len() - SHOWN));
    }
    list.join(", ")
}

fn table(replicas: &Replicas, columns: &[&Column]) -> String {
    let mut html = String::from(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"h-seeds\"><table class=\"sortable\" id=\"seeds\"><thead><tr>\
         <th scope=\"col\" aria-sort=\"none\"><button>policy</button></th><th scope=\"col\" class=\"words\" aria-sort=\"none\"><button>information</button></th>",
    );
    html.push_str(&headings(columns));
    html.push_str("</tr></thead><tbody>\n");
    for (index, one) in replicas.policies.iter().enumerate() {
        let (name, knows) = (escape(&one.policy), escape(&one.information.text()));
        let _ = write!(html, "<tr><th scope=\"row\">{name}</th><td class=\"words\">{knows}</td>");
        for column in columns {
            html.push_str(&interval_cell(replicas, index, column));
        }
        html.push_str("</tr>\n");
    }
    html + "</tbody></table></div>\n"
}

/// The headings of measures in a table that sorts.
pub(super) fn headings(columns: &[&Column]) -> String {
    let heading = |column: &&Column| {
        let (title, meaning) = (escape(column.title), escape(column.meaning));
        format!(
            "<th scope=\"col\" aria-sort=\"none\" title=\"{meaning}\"><button>{title}</button></th>"
        )
    };
    columns.iter().map(heading).collect()
}

/// A mean with its interval, marked.
pub(super) fn interval_cell(replicas: &Replicas, policy: usize, column: &Column) -> String {
    let Some(interval) = replicas.interval(policy, column) else {
        return "<td data-v=\"\">–</td>".to_owned();
    };
    let (text, value) = (escape(&interval.text(column.unit)), interval.mean);
    match replicas.mark(policy, column) {
        Mark::Best => format!(
            "<td class=\"best\" data-v=\"{value}\">{text}<span class=\"hidden\"> (best)</span></td>"
        ),
        Mark::Alike => format!(
            "<td class=\"alike\" data-v=\"{value}\">{text} <span aria-hidden=\"true\">~</span><span class=\"hidden\"> (no significant difference from the best)</span></td>"
        ),
        Mark::Plain => format!("<td data-v=\"{value}\">{text}</td>"),
    }
}

fn figure(replicas: &Replicas) -> String {
    let Some(column) = COLUMNS.iter().find(|column| column.key == "jct_mean_s") else {
        return String::new();
    };
    let rows: Vec<Whisker<'_>> = replicas
        .policies
        .iter()
        .enumerate()
        .filter_map(|(run, one)| {
            let interval = replicas.interval(run, column)?;
            let values = replicas.values(run, column).into_iter().flatten().collect();
            Some(Whisker {
                run,
                name: &one.policy,
                values,
                mean: interval.mean,
                half: interval.half,
            })
        })
        .collect();
    let means: Vec<String> =
        rows.iter().map(|row| format!("{} {}", row.name, column.unit.text(row.mean))).collect();
    let caption = Caption {
        id: "seeds",
        title: "Mean JCT over seeds: mean, 95 % interval, and every seed",
        description: &format!("Means: {}.", means.join(", ")),
    };
    format!(
        "<figure class=\"card\"><figcaption><b>Mean JCT over seeds</b>: mean, 95 % interval, and every seed</figcaption>{}</figure>\n",
        whiskers(&caption, &rows)
    )
}

/// For each measure, from the best to the worst, policies that do not differ significantly in one box.
fn groups(replicas: &Replicas) -> String {
    let mut html = String::from(
        "<div class=\"card alike-groups\" id=\"alike\"><h3>No significant difference</h3>\n\
         <p class=\"note\">From the best mean to the worst. Policies in one box do not differ significantly (95 %) with these seeds; a policy may be in two boxes.</p><dl>\n",
    );
    for column in COMPARED.iter().filter_map(|key| COLUMNS.iter().find(|one| one.key == *key)) {
        let groups = replicas.alike(column);
        if groups.is_empty() {
            continue;
        }
        let _ = write!(html, "<dt>{}</dt><dd>", escape(column.title));
        for group in groups {
            let name = |index: &usize| escape(&replicas.policies[*index].policy);
            let names: Vec<String> = group.iter().map(name).collect();
            let _ = write!(html, "<span class=\"group\">{}</span> ", names.join(" ~ "));
        }
        html.push_str("</dd>\n");
    }
    html + "</dl></div>\n"
}
