//! Means with their intervals, one row for each policy.

use super::{
    BOTTOM, Caption, DOTS_LEFT, DOTS_ROW, RIGHT, TOP, WIDTH, escape, horizontal, open, style,
    time_marks, vertical,
};
use crate::units::span_text;
use std::fmt::Write;

/// One row: a mean with its interval, in seconds.
pub(crate) struct Whisker<'a> {
    /// The number of the run, which gives its colour.
    pub run: usize,
    /// Its name.
    pub name: &'a str,
    /// Every value that the mean is of.
    pub values: Vec<f64>,
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval, where it is known.
    pub half: Option<f64>,
}

/// Means as dots, intervals as strokes and single values as faint dots, over an axis of time that begins at 0.
pub(crate) fn whiskers(caption: &Caption<'_>, rows: &[Whisker<'_>]) -> String {
    let ends = rows.iter().flat_map(|row| {
        let end = row.mean + row.half.unwrap_or(0.0);
        row.values.iter().copied().chain([end])
    });
    let most = ends.fold(1e-3, f64::max) * 1.04;
    let height = TOP + DOTS_ROW * rows.len() as f64 + BOTTOM;
    let x =
        |seconds: f64| DOTS_LEFT + (seconds / most).clamp(0.0, 1.0) * (WIDTH - DOTS_LEFT - RIGHT);
    let mut svg = open(caption, (WIDTH, height));
    for (at, text) in time_marks(most, 6.0) {
        vertical(&mut svg, x(at), (TOP, height - BOTTOM), &text);
    }
    for (index, row) in rows.iter().enumerate() {
        let y = TOP + DOTS_ROW * (index as f64 + 0.5);
        let short: String = row.name.chars().take(18).collect();
        horizontal(&mut svg, (DOTS_LEFT, WIDTH - RIGHT), y, &escape(&short));
        draw(&mut svg, row, (&x, y));
    }
    svg + "</svg>"
}

fn draw(svg: &mut String, row: &Whisker<'_>, (x, y): (&dyn Fn(f64) -> f64, f64)) {
    let (class, run, name) = (style(row.run), row.run, escape(row.name));
    let text = span_text(row.mean);
    let half = row.half.map(|half| format!(" ±{}", span_text(half))).unwrap_or_default();
    let _ = write!(svg, "<g data-run=\"{run}\"><title>{name}: {text}{half}</title>");
    for value in &row.values {
        let _ = write!(
            svg,
            "<circle class=\"seed {class}\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"3\"/>",
            x(*value)
        );
    }
    if let Some(half) = row.half {
        let (from, to) = (x(row.mean - half), x(row.mean + half));
        let _ = write!(
            svg,
            "<path class=\"whisker {class}\" fill=\"none\" d=\"M{from:.1},{y:.1}H{to:.1}M{from:.1},{:.1}v8M{to:.1},{:.1}v8\"/>",
            y - 4.0,
            y - 4.0
        );
    }
    let _ = write!(
        svg,
        "<circle class=\"dot {class}\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"5\"/></g>",
        x(row.mean)
    );
}
