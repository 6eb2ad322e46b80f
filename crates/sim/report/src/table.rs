//! A comparison as a table for a terminal, and as CSV.

use crate::column::{COLUMNS, Column, Shown};
use crate::comparison::{Comparison, Run, SCHEMA_VERSION};
use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle,
};
use std::io::{self, Write};
use trainyard_types::printable;

/// Whether a text may carry colours.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Plain characters only.
    Plain,
    /// With terminal colours.
    Colour,
}

/// Columns that a narrow terminal does without, the least missed first.
const DROPPED_FIRST: [&str; 5] =
    ["slowdown_mean", "slowdown_fairness", "preemptions", "jct_median_s", "share_fairness"];

/// The comparison for a terminal; the best value of each column carries a `*`.
///
/// Where it is wider than the terminal, a few columns are left out.
pub fn terminal(comparison: &Comparison, ink: Ink, width: Option<u16>) -> String {
    let mut columns: Vec<&Column> =
        COLUMNS.iter().filter(|column| is_in_terminal(column, comparison)).collect();
    let room = width.map_or(usize::MAX, usize::from);
    for key in DROPPED_FIRST {
        let plain = comparison_table(comparison, &columns, Ink::Plain);
        if plain.lines().all(|line| line.chars().count() <= room) {
            break;
        }
        columns.retain(|column| column.key != key);
    }
    comparison_table(comparison, &columns, ink)
}

fn comparison_table(comparison: &Comparison, columns: &[&Column], ink: Ink) -> String {
    let mut table = bare_table(ink);
    let mut heading =
        vec![cell("policy", ink, Weight::Heading), cell("information", ink, Weight::Heading)];
    heading.extend(columns.iter().map(|column| {
        cell(column.title, ink, Weight::Heading).set_alignment(CellAlignment::Right)
    }));
    table.set_header(heading);
    for run in &comparison.runs {
        let mut row = vec![
            cell(&run.policy, ink, Weight::Name),
            cell(&run.information.text(), ink, Weight::Plain),
        ];
        row.extend(columns.iter().map(|column| value_cell(column, run, comparison, ink)));
        table.add_row(row);
    }
    trimmed(table)
}

/// One run for a terminal, one measure to a line with its meaning.
pub fn terminal_one(run: &Run, ink: Ink) -> String {
    let mut table = bare_table(ink);
    for column in COLUMNS {
        let Some(value) = (column.value)(&run.summary) else { continue };
        if column.shown == Shown::WhereAny && value == 0.0 {
            continue;
        }
        let text = column.unit.text(value);
        table.add_row(vec![
            cell(column.title, ink, Weight::Name),
            cell(&text, ink, Weight::Plain).set_alignment(CellAlignment::Right),
            cell(column.meaning, ink, Weight::Faint),
        ]);
    }
    trimmed(table)
}

/// Rows of texts under a heading, aligned to the left: for lists other than comparisons.
///
/// Long texts are broken to fit a width, if one is given.
pub fn listing(heading: &[&str], rows: &[Vec<String>], ink: Ink, width: Option<u16>) -> String {
    let mut table = bare_table(ink);
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    table.set_header(heading.iter().map(|text| cell(text, ink, Weight::Heading)));
    for row in rows {
        let cells = row.iter().enumerate().map(|(index, text)| {
            cell(text, ink, if index == 0 { Weight::Name } else { Weight::Plain })
        });
        table.add_row(cells);
    }
    trimmed(table)
}

/// Rows of names and numbers under a heading: the first `names` columns to the left, the others to the right.
pub fn figures(heading: &[&str], names: usize, rows: &[Vec<String>], ink: Ink) -> String {
    let aligned = |index: usize, cell: Cell| match index < names {
        true => cell,
        false => cell.set_alignment(CellAlignment::Right),
    };
    let mut table = bare_table(ink);
    let titles = heading.iter().enumerate();
    table.set_header(titles.map(|(index, text)| aligned(index, cell(text, ink, Weight::Heading))));
    for row in rows {
        let weight = |index| if index == 0 { Weight::Name } else { Weight::Plain };
        let cells = row.iter().enumerate();
        table.add_row(cells.map(|(index, text)| aligned(index, cell(text, ink, weight(index)))));
    }
    trimmed(table)
}

/// Every measure of every run, in base units, as CSV.
pub fn csv(comparison: &Comparison, out: impl Write) -> io::Result<()> {
    let mut out = csv::Writer::from_writer(out);
    let mut heading =
        vec!["schema_version", "policy", "information", "workload", "cluster", "seed"];
    heading.extend(COLUMNS.iter().map(|column| column.key));
    out.write_record(&heading)?;
    for run in &comparison.runs {
        let about = &comparison.about;
        let mut row = vec![
            SCHEMA_VERSION.to_string(),
            run.policy.clone(),
            run.information.text(),
            about.workload.clone(),
            about.cluster.clone(),
            about.seed.to_string(),
        ];
        row.extend(COLUMNS.iter().map(|column| {
            (column.value)(&run.summary).map(|value| value.to_string()).unwrap_or_default()
        }));
        out.write_record(&row)?;
    }
    out.flush()
}

fn is_in_terminal(column: &Column, comparison: &Comparison) -> bool {
    match column.shown {
        Shown::Always => true,
        Shown::Page => false,
        Shown::WhereAny => column.says_anything(comparison.summaries()),
    }
}

fn value_cell(column: &Column, run: &Run, comparison: &Comparison, ink: Ink) -> Cell {
    let value = (column.value)(&run.summary);
    let is_best = column.is_best(&run.summary, comparison.summaries());
    let text = match value {
        // The mark has its own place, so that digits stay under digits.
        Some(value) => format!("{}{}", column.unit.text(value), if is_best { "*" } else { " " }),
        None => "- ".to_owned(),
    };
    let weight = if is_best { Weight::Best } else { Weight::Plain };
    cell(&text, ink, weight).set_alignment(CellAlignment::Right)
}

enum Weight {
    Heading,
    Name,
    Best,
    Plain,
    Faint,
}

fn cell(text: &str, ink: Ink, weight: Weight) -> Cell {
    // A cell never obeys: colours are ours, and come around it.
    let cell = Cell::new(printable(text));
    if ink == Ink::Plain {
        return cell;
    }
    match weight {
        Weight::Heading => cell.add_attribute(Attribute::Dim),
        Weight::Name => cell.add_attribute(Attribute::Bold),
        Weight::Best => cell.add_attribute(Attribute::Bold).fg(Color::Green),
        Weight::Plain => cell,
        Weight::Faint => cell.add_attribute(Attribute::Dim),
    }
}

/// Columns apart by spaces and a line under the heading.
fn bare_table(ink: Ink) -> Table {
    let under_heading = LineStyle::none().fill('-').junction('-');
    let mut table = Table::new();
    table
        .load_style(TableStyle::new().header_separator(under_heading))
        .set_content_arrangement(ContentArrangement::Disabled);
    match ink {
        Ink::Plain => table.force_no_tty(),
        Ink::Colour => table.enforce_styling(),
    };
    table
}

/// Without spaces at the ends of lines.
fn trimmed(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
