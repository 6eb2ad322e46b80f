//! Which job held which GPU, as a picture: what is below one pixel is merged, so that any run gives a file of bounded
//! size.

use super::{Caption, escape, open, time_marks};
use crate::timeline::Timeline;
use std::collections::BTreeMap;
use std::fmt::Write;
use trainyard_types::{Cluster, Time};

/// The colours of jobs in turn, those of the page in daylight.
const PALETTE: [&str; 16] = [
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b8950b", "#b07aa1", "#ff9da7",
    "#9c755f", "#6b8fd6", "#86b04a", "#d37295", "#3f9aa8", "#c98a4b", "#8074c9", "#a0a34a",
];
const LEFT: f64 = 96.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 6.0;
const BOTTOM: f64 = 26.0;
/// Pixels along the axis of time.
const COLUMNS: usize = 848;
/// The most rows of pixels; with more GPUs several share one.
const ROWS_MAX: usize = 600;
/// A row is at most so high.
const ROW_HEIGHT_MAX: f64 = 14.0;
/// The least distance between two names.
const NAME_HEIGHT: f64 = 13.0;
/// A pixel that no job holds.
const FREE: u32 = u32::MAX;

/// Draws a run from one moment to another.
pub(crate) fn gantt(
    caption: &Caption<'_>,
    cluster: &Cluster,
    timeline: &Timeline,
    (from, to): (Time, Time),
) -> String {
    let gpus = Timeline::rows(cluster);
    let count = gpus.last().copied().unwrap_or(0).max(1) as usize;
    let rows = count.min(ROWS_MAX);
    let high = (ROWS_MAX as f64 / rows as f64).clamp(1.0, ROW_HEIGHT_MAX);
    let (width, body) = (LEFT + COLUMNS as f64 + RIGHT, high * rows as f64);
    let mut svg = open(caption, (width, TOP + body + BOTTOM));
    let length_s = to.since(from).as_secs_f64().max(1e-6);
    let x = |seconds: f64| LEFT + seconds / length_s * COLUMNS as f64;
    for (at, text) in time_marks(length_s, 9.0) {
        super::vertical(&mut svg, x(at), (TOP, TOP + body), &text);
    }
    let pixels = Pixels::new(timeline, &gpus, (from, to), rows);
    for ((colour, is_shared), path) in pixels.paths(high) {
        let opacity = if is_shared { " fill-opacity=\".6\"" } else { "" };
        let _ = write!(svg, "<path fill=\"{colour}\"{opacity} d=\"{path}\"/>");
    }
    names(&mut svg, cluster, &gpus, body / count as f64);
    if let Some(cut) = timeline.cut {
        let at = x(cut.since(from).as_secs_f64());
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\">complete up to here</text>",
            TOP + body,
            at + 4.0,
            TOP + 12.0
        );
    }
    svg + "</svg>"
}

/// The names of nodes, as many as have room, with a line above each node that is high enough to see it.
fn names(svg: &mut String, cluster: &Cluster, gpus: &[u32], high: f64) {
    let mut free_from = f64::MIN;
    for (node, first) in cluster.nodes.iter().zip(gpus) {
        let y = TOP + f64::from(*first) * high;
        let body = f64::from(node.gpus) * high;
        if body >= 6.0 {
            let right = LEFT + COLUMNS as f64;
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            );
        }
        let middle = y + body / 2.0 + 4.0;
        if middle >= free_from {
            let short: String = node.name.chars().take(13).collect();
            let name = escape(&short);
            let _ = write!(
                svg,
                "<text x=\"{}\" y=\"{middle:.1}\" text-anchor=\"end\">{name}</text>",
                LEFT - 6.0
            );
            free_from = middle + NAME_HEIGHT;
        }
    }
}

/// The job in each pixel: its number twice, plus one where it shares.
struct Pixels {
    rows: usize,
    held: Vec<u32>,
}

impl Pixels {
    fn new(timeline: &Timeline, gpus: &[u32], (from, to): (Time, Time), rows: usize) -> Pixels {
        let count = gpus.last().copied().unwrap_or(0).max(1) as usize;
        let length = to.since(from).0.max(1);
        let column = |time: Time| {
            let at = u128::from(time.since(from).0) * COLUMNS as u128 / u128::from(length);
            (at as usize).min(COLUMNS)
        };
        let mut pixels = Pixels { rows, held: vec![FREE; rows * COLUMNS] };
        for interval in &timeline.intervals {
            let first = gpus[interval.node.index()] as usize + usize::from(interval.first);
            let last = first + usize::from(interval.count) - 1;
            let (left, right) = (column(interval.from), column(interval.to));
            let value = interval.job.0 * 2 + u32::from(interval.is_shared);
            for row in first * rows / count..=last * rows / count {
                let line = &mut pixels.held[row * COLUMNS..(row + 1) * COLUMNS];
                // What is narrower than a pixel takes it if no job has it yet.
                for pixel in &mut line[left.min(COLUMNS - 1)..right.max(left + 1).min(COLUMNS)] {
                    if *pixel == FREE {
                        *pixel = value;
                    }
                }
            }
        }
        pixels
    }

    /// Bars of equal pixels, as one path for each colour.
    fn paths(&self, high: f64) -> BTreeMap<(&'static str, bool), String> {
        let mut paths: BTreeMap<(&'static str, bool), String> = BTreeMap::new();
        // Bars that may go on in the next row: columns and holder, with the row they began in.
        let mut open: BTreeMap<(usize, usize, u32), usize> = BTreeMap::new();
        for row in 0..=self.rows {
            let bars = if row < self.rows { self.bars(row) } else { Vec::new() };
            let mut next = BTreeMap::new();
            for bar in bars {
                let began = open.remove(&bar).unwrap_or(row);
                next.insert(bar, began);
            }
            for ((left, right, value), began) in open {
                let colour = PALETTE[(value / 2) as usize % PALETTE.len()];
                let path = paths.entry((colour, value % 2 == 1)).or_default();
                let (x, y) = (LEFT + left as f64, TOP + began as f64 * high);
                // A hair is left free between bars where rows are high enough.
                let gap = if high >= 4.0 { 0.6 } else { 0.0 };
                let (wide, tall) = ((right - left) as f64, (row - began) as f64 * high - gap);
                let _ = write!(path, "M{x},{}h{wide}v{}h-{wide}z", short(y), short(tall));
            }
            open = next;
        }
        paths
    }

    fn bars(&self, row: usize) -> Vec<(usize, usize, u32)> {
        let line = &self.held[row * COLUMNS..(row + 1) * COLUMNS];
        let mut bars = Vec::new();
        let mut left = 0;
        for bar in line.chunk_by(|a, b| a == b) {
            if bar[0] != FREE {
                bars.push((left, left + bar.len(), bar[0]));
            }
            left += bar.len();
        }
        bars
    }
}

/// A number with two decimals at most.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tests::two_jobs;

    #[test]
    fn each_job_of_a_gang_is_one_bar_and_free_gpus_none() {
        let (_, cluster, outcome, timeline) = two_jobs();
        let gpus = Timeline::rows(&cluster);
        let pixels = Pixels::new(&timeline, &gpus, (Time::ZERO, outcome.ended), 4);
        let bars: usize = pixels.paths(14.0).values().map(|path| path.matches('M').count()).sum();
        assert_eq!(bars, timeline.intervals.len());
        let caption = Caption { id: "gantt0", title: "t", description: "d" };
        let svg = gantt(&caption, &cluster, &timeline, (Time::ZERO, outcome.ended));
        assert_eq!(svg.matches("text-anchor=\"end\"").count(), cluster.nodes.len(), "{svg}");
    }
}
