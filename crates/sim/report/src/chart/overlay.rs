//! A series over time of every run, on the same axes.

use super::{BOTTOM, Caption, LEFT, RIGHT, Scale, TOP};
use super::{escape, horizontal, open, style, time_marks, vertical};
use crate::units::grouped;
use std::fmt::Write;

/// The series of one run.
pub(crate) struct Series<'a> {
    /// The number of the run, which gives its colour.
    pub run: usize,
    /// Its name.
    pub name: &'a str,
    /// Averages over equal steps of time.
    pub values: &'a [f64],
    /// The width of a step, in seconds.
    pub every_s: f64,
}

const WIDE: f64 = 960.0;
const TALL: f64 = 320.0;

/// All series over time, up to `until_s` and `top`.
pub(crate) fn overlay(
    caption: &Caption<'_>,
    series: &[Series<'_>],
    (until_s, top): (f64, f64),
    scale: Scale,
) -> String {
    let x = |seconds: f64| LEFT + seconds.min(until_s) / until_s.max(1e-6) * (WIDE - LEFT - RIGHT);
    let y = |value: f64| TOP + (1.0 - value / top.max(1e-9)) * (TALL - TOP - BOTTOM);
    let mut svg = open(caption, (WIDE, TALL));
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let value = part * top;
        let text = match scale {
            Scale::Percent => format!("{:.0}%", value * 100.0),
            Scale::Jobs if top < 10.0 && value.fract() != 0.0 => format!("{value:.1}"),
            Scale::Jobs => grouped(value),
        };
        horizontal(&mut svg, (LEFT, WIDE - RIGHT), y(value), &text);
    }
    for (at, text) in time_marks(until_s, 10.0) {
        vertical(&mut svg, x(at), (TOP, TALL - BOTTOM), &text);
    }
    for one in series {
        let steps = one.values.iter().enumerate().map(|(index, value)| {
            let middle = (index as f64 + 0.5) * one.every_s;
            format!("{:.1},{:.1}", x(middle), y(*value))
        });
        let path = steps.collect::<Vec<_>>().join(" ");
        let _ = write!(
            svg,
            "<polyline class=\"curve {}\" data-run=\"{}\" points=\"{path}\"><title>{}</title></polyline>",
            style(one.run),
            one.run,
            escape(one.name)
        );
    }
    svg + "</svg>"
}
