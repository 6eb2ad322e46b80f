//! Charts as inline SVG.
//!
//! Colours come from the classes `s0` to `s7` of the page; every eight runs the line pattern changes.

use crate::units::{grouped, span_text};
use std::fmt::Write;
use trainyard_types::printable;

mod alone;
mod gantt;
mod overlay;
mod scatter;
mod whiskers;

pub use alone::Colours;
pub(crate) use alone::standing_alone;
pub(crate) use gantt::gantt;
pub(crate) use overlay::{Series, overlay};
pub(crate) use scatter::{Point, scatter};
pub(crate) use whiskers::{Whisker, whiskers};

/// One line of a chart.
pub(crate) struct Line<'a> {
    /// The number of the run, which gives its colour.
    pub run: usize,
    /// Its name.
    pub name: &'a str,
    /// What is drawn.
    pub points: &'a [(f64, f64)],
}

/// A chart's texts for readers who do not see it.
pub(crate) struct Caption<'a> {
    /// A unique name within the page.
    pub id: &'a str,
    /// What it shows.
    pub title: &'a str,
    /// What is to be seen.
    pub description: &'a str,
}

/// Text that is safe between tags and within quotes.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// The classes that give a run its colour and pattern.
pub(crate) fn style(run: usize) -> String {
    match run / 8 % 4 {
        0 => format!("s{}", run % 8),
        pattern => format!("s{} d{pattern}", run % 8),
    }
}

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 28.0;

/// Moments that people know, for a logarithmic axis of time.
const MARKS: [(f64, &str); 12] = [
    (0.001, "1ms"),
    (0.01, "10ms"),
    (0.1, "100ms"),
    (1.0, "1s"),
    (10.0, "10s"),
    (60.0, "1m"),
    (600.0, "10m"),
    (3600.0, "1h"),
    (21_600.0, "6h"),
    (86_400.0, "1d"),
    (604_800.0, "1w"),
    (2_592_000.0, "30d"),
];

/// Distributions over a logarithmic axis of time; what is shorter than the axis stands at its left end.
pub(crate) fn distributions(caption: &Caption<'_>, lines: &[Line<'_>]) -> String {
    let all = lines.iter().flat_map(|line| line.points.iter().map(|point| point.0));
    let least = all.clone().filter(|value| *value >= 1.0).fold(f64::INFINITY, f64::min);
    let most = all.clone().fold(1.0, f64::max);
    let (low, high) = log_range(least, most);
    let (from, to) = (libm::log10(low), libm::log10(high));
    let is_cut = all.clone().any(|value| value < low);
    let x = |seconds: f64| {
        let part = (libm::log10(seconds.max(low)) - from) / (to - from);
        LEFT + part.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    };
    let y = |part: f64| TOP + (1.0 - part) * (HEIGHT - TOP - BOTTOM);
    let mut svg = open(caption, (WIDTH, HEIGHT));
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        horizontal(&mut svg, (LEFT, WIDTH - RIGHT), y(part), &format!("{:.0}%", part * 100.0));
    }
    let marks = MARKS.iter().filter(|(at, _)| (low..=high).contains(at));
    for (at, name) in marks {
        let text = if is_cut && *at == low { format!("≤{name}") } else { (*name).to_owned() };
        vertical(&mut svg, x(*at), (TOP, HEIGHT - BOTTOM), &text);
    }
    for line in lines {
        let path: Vec<String> =
            line.points.iter().map(|(at, part)| format!("{:.1},{:.1}", x(*at), y(*part))).collect();
        let (class, name) = (style(line.run), escape(line.name));
        let path = path.join(" ");
        let run = line.run;
        let _ = write!(
            svg,
            "<polyline class=\"curve {class}\" data-run=\"{run}\" points=\"{path}\"><title>{name}</title></polyline>"
        );
    }
    svg + "</svg>"
}

/// The marks around a range of values.
fn log_range(least: f64, most: f64) -> (f64, f64) {
    let least = if least.is_finite() { least } else { 1.0 };
    let low = MARKS.iter().rev().map(|mark| mark.0).find(|mark| *mark <= least).unwrap_or(0.001);
    let above = MARKS.iter().map(|mark| mark.0).find(|mark| *mark >= most && *mark > low);
    // Beyond the last mark the axis ends at the last value.
    (low, above.unwrap_or(most.max(low * 10.0)))
}

/// A series over time, as a filled area.
pub(crate) struct Area<'a> {
    /// The number of the run, which gives its colour.
    pub run: usize,
    /// Averages over equal steps of time.
    pub values: &'a [f64],
    /// The width of a step, in seconds.
    pub every_s: f64,
    /// Where the axis of time ends, in seconds; the same for all runs.
    pub until_s: f64,
    /// Where the upright axis ends; the same for all runs.
    pub top: f64,
    /// What the upright axis counts.
    pub scale: Scale,
}

/// What an upright axis counts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Parts of one, in percent.
    Percent,
    /// Jobs.
    Jobs,
}

const SMALL_HEIGHT: f64 = 110.0;
const SMALL_WIDTH: f64 = 340.0;

/// One small chart of a series.
pub(crate) fn area(caption: &Caption<'_>, area: &Area<'_>) -> String {
    let (bottom, right) = (SMALL_HEIGHT - 20.0, SMALL_WIDTH - 12.0);
    let x = |seconds: f64| LEFT + seconds / area.until_s.max(1e-6) * (right - LEFT);
    let y = |value: f64| 8.0 + (1.0 - value / area.top.max(1e-9)) * (bottom - 8.0);
    let mut svg = open(caption, (SMALL_WIDTH, SMALL_HEIGHT));
    for value in [0.0, area.top / 2.0, area.top] {
        let text = match area.scale {
            Scale::Percent => format!("{:.0}%", value * 100.0),
            Scale::Jobs if area.top < 10.0 && value.fract() != 0.0 => format!("{value:.1}"),
            Scale::Jobs => grouped(value),
        };
        horizontal(&mut svg, (LEFT, right), y(value), &text);
    }
    for part in [0.0, 0.5, 1.0] {
        let at = part * area.until_s;
        let anchor = if part == 1.0 { "end" } else { "middle" };
        let text = if part == 0.0 { "0".to_owned() } else { span_text(at) };
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{text}</text>",
            x(at),
            SMALL_HEIGHT - 6.0
        );
    }
    if !area.values.is_empty() {
        let mut path = format!("M{:.1},{:.1}", x(0.0), y(0.0));
        for (index, value) in area.values.iter().enumerate() {
            let (start, end) = (index as f64 * area.every_s, (index + 1) as f64 * area.every_s);
            let middle = ((start + end) / 2.0).min(area.until_s);
            let _ = write!(path, "L{:.1},{:.1}", x(middle), y(*value));
        }
        let end = (area.values.len() as f64 * area.every_s).min(area.until_s);
        let _ = write!(path, "L{:.1},{:.1}Z", x(end), y(0.0));
        let _ = write!(svg, "<path class=\"area {}\" d=\"{path}\"/>", style(area.run));
    }
    svg + "</svg>"
}

/// Steps of time that people count in, in seconds.
const STEPS: [f64; 21] = [
    0.001,
    0.01,
    0.1,
    1.0,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    600.0,
    1800.0,
    3600.0,
    7200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    604_800.0,
    1_209_600.0,
    2_592_000.0,
    7_776_000.0,
];

/// Marks of a linear axis of time from 0 on, at most so many beyond the first.
fn time_marks(until_s: f64, most: f64) -> Vec<(f64, String)> {
    let step = STEPS.iter().copied().find(|step| until_s / step <= most);
    let step = step.unwrap_or_else(|| libm::ceil(until_s / most / 7_776_000.0) * 7_776_000.0);
    let mark = |number: u32| {
        let at = f64::from(number) * step;
        let text = span_text(at);
        // A round number needs no second unit.
        let short = ["00h", "00m", "00s"].iter().find_map(|zero| text.strip_suffix(zero));
        let text = if number == 0 { "0" } else { short.unwrap_or(&text) };
        (at, text.to_owned())
    };
    (0..=(until_s / step) as u32).map(mark).collect()
}

fn open(caption: &Caption<'_>, (width, height): (f64, f64)) -> String {
    let (id, title) = (caption.id, escape(caption.title));
    let description = escape(caption.description);
    format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\
         <title id=\"{id}-t\">{title}</title><desc id=\"{id}-d\">{description}</desc>"
    )
}

fn horizontal(svg: &mut String, (left, right): (f64, f64), y: f64, text: &str) {
    let _ = write!(
        svg,
        "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
        left - 6.0,
        y + 4.0
    );
}

fn vertical(svg: &mut String, x: f64, (top, bottom): (f64, f64), text: &str) {
    let _ = write!(
        svg,
        "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
         <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
        bottom + 17.0
    );
}

/// One row of a dot plot: its name and a value for each run.
pub(crate) struct Dots<'a> {
    /// What the row is about.
    pub name: &'a str,
    /// The value of each run, by its number; larger ones stand further right.
    pub values: Vec<Option<f64>>,
}

const DOTS_LEFT: f64 = 130.0;
const DOTS_ROW: f64 = 24.0;

/// Values side by side on a logarithmic axis, one row for each name.
pub(crate) fn dots(caption: &Caption<'_>, rows: &[Dots<'_>], names: &[&str]) -> String {
    let all = rows.iter().flat_map(|row| row.values.iter().flatten().copied());
    let most = all.clone().fold(1.0, f64::max) * 1.1;
    let least = all.fold(1.0, f64::min).max(1e-3) / 1.1;
    let (from, to) = (libm::log10(least), libm::log10(most));
    let height = TOP + DOTS_ROW * rows.len() as f64 + BOTTOM;
    let x = |value: f64| {
        let part = (libm::log10(value.max(least)) - from) / (to - from);
        DOTS_LEFT + part * (WIDTH - DOTS_LEFT - RIGHT)
    };
    let mut svg = open(caption, (WIDTH, height));
    let marks =
        (-3..=6).flat_map(|power| [1.0, 2.0, 5.0].map(|one| one * libm::exp10(f64::from(power))));
    let mut marks: Vec<f64> = marks.filter(|mark| (least..=most).contains(mark)).collect();
    if marks.len() < 3 {
        // The values lie close together: even steps tell more than powers.
        let steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];
        let step = steps.into_iter().find(|step| (most - least) / step <= 7.0).unwrap_or(10.0);
        let number = |at: f64| libm::round(at / step) as u32;
        marks = (number(libm::ceil(least / step) * step)..=number(libm::floor(most / step) * step))
            .map(|number| libm::round(f64::from(number) * step * 100.0) / 100.0)
            .collect();
    }
    for mark in marks.iter().step_by(marks.len().div_ceil(8).max(1)) {
        vertical(&mut svg, x(*mark), (TOP, height - BOTTOM), &format!("{mark}×"));
    }
    for (index, row) in rows.iter().enumerate() {
        let y = TOP + DOTS_ROW * (index as f64 + 0.5);
        let short: String = row.name.chars().take(18).collect();
        horizontal(&mut svg, (DOTS_LEFT, WIDTH - RIGHT), y, &escape(&short));
        for (run, value) in row.values.iter().enumerate() {
            let Some(value) = value else { continue };
            let _ = write!(
                svg,
                "<circle class=\"dot {}\" data-run=\"{run}\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"5\"><title>{}: {} {value:.2}×</title></circle>",
                style(run),
                x(*value),
                escape(row.name),
                escape(names.get(run).copied().unwrap_or_default())
            );
        }
    }
    svg + "</svg>"
}

/// A short stroke in the colour of a run, for a legend.
pub(crate) fn swatch(run: usize) -> String {
    format!(
        "<svg viewBox=\"0 0 26 10\" aria-hidden=\"true\"><line class=\"curve {}\" x1=\"0\" x2=\"26\" y1=\"5\" y2=\"5\"/></svg>",
        style(run)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_users_cannot_break_out() {
        assert_eq!(escape("<b a=\"x\">'&\n"), "&lt;b a=&quot;x&quot;&gt;&#39;&amp;\\n");
    }

    #[test]
    fn marks_of_time_are_round() {
        let texts =
            |until_s| time_marks(until_s, 6.0).into_iter().map(|mark| mark.1).collect::<Vec<_>>();
        assert_eq!(texts(3600.0 * 5.5), ["0", "1h", "2h", "3h", "4h", "5h"]);
        assert_eq!(texts(86_400.0 * 2.0), ["0", "12h", "1d", "1d12h", "2d"]);
        assert!(texts(1e12).len() <= 7 && texts(1e-6) == ["0"]);
    }

    #[test]
    fn a_log_axis_ends_at_marks_around_the_values() {
        assert_eq!(log_range(30.0, 50_000.0), (10.0, 86_400.0));
        assert_eq!(log_range(f64::INFINITY, 1.0), (1.0, 10.0));
        assert_eq!(log_range(3600.0, 3600.0), (3600.0, 21_600.0));
        assert_eq!(log_range(60.0, 9e6), (60.0, 9e6));
    }
}
