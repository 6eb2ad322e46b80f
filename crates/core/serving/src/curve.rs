//! Latency over load as an SVG picture, a line for each discipline.

use std::fmt::Write;

/// One discipline.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Load in requests a second, and latency in milliseconds.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 48.0;
/// Colours that are also far apart for readers who see few of them.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d31"];

/// Where loads and latencies are drawn.
struct Scale {
    most: f64,
    /// Powers of ten of the least and the largest latency.
    low: f64,
    high: f64,
}

impl Scale {
    fn of(lines: &[Line]) -> Scale {
        let all = || lines.iter().flat_map(|line| &line.points).filter(|(_, ms)| *ms > 0.0);
        let most = all().map(|(load, _)| *load).fold(0.0, f64::max).max(1e-9);
        let low = all().map(|(_, ms)| *ms).fold(f64::INFINITY, f64::min).min(1e6);
        let high = all().map(|(_, ms)| *ms).fold(0.0, f64::max).max(low * 1.01);
        Scale { most, low: libm::floor(libm::log10(low)), high: libm::ceil(libm::log10(high)) }
    }

    fn x(&self, load: f64) -> f64 {
        LEFT + load / self.most * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, ms: f64) -> f64 {
        let part = (libm::log10(ms.max(1e-6)) - self.low) / (self.high - self.low).max(1.0);
        HEIGHT - BOTTOM - part.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn axes(&self, unit: &str) -> String {
        let (mut text, right) = (String::new(), WIDTH - RIGHT);
        for power in self.low as i32..=self.high as i32 {
            let ms = libm::pow(10.0, f64::from(power));
            let (y, at, below) = (self.y(ms), LEFT - 6.0, self.y(ms) + 4.0);
            let _ = write!(
                text,
                "<line x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{at:.1}\" y=\"{below:.1}\" text-anchor=\"end\">{ms} ms</text>"
            );
        }
        let digits = usize::from(self.most < 10.0);
        for step in 0..=5 {
            let load = self.most * f64::from(step) / 5.0;
            let (x, y) = (self.x(load), HEIGHT - BOTTOM + 18.0);
            let _ = write!(
                text,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{load:.digits$}</text>"
            );
        }
        let (x, y, unit) = (self.x(self.most / 2.0), HEIGHT - 10.0, escape(unit));
        let _ =
            write!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{unit}</text>");
        text
    }

    /// A line with its entry in the legend.
    fn line(&self, at: usize, line: &Line) -> String {
        let colour = COLOURS[at % COLOURS.len()];
        let dash = if at / COLOURS.len() % 2 == 1 { " stroke-dasharray=\"5 3\"" } else { "" };
        let points: Vec<String> = (line.points.iter().filter(|(_, ms)| *ms > 0.0))
            .map(|(load, ms)| format!("{:.1},{:.1}", self.x(*load), self.y(*ms)))
            .collect();
        let (points, row) = (points.join(" "), TOP + 18.0 * at as f64 + 10.0);
        let (from, to, name) = (WIDTH - RIGHT + 14.0, WIDTH - RIGHT + 38.0, escape(&line.name));
        format!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>\
             <line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{row:.1}\" y2=\"{row:.1}\" stroke=\"{colour}\" \
             stroke-width=\"3\"{dash}/><text x=\"{:.1}\" y=\"{:.1}\">{name}</text>",
            to + 6.0,
            row + 4.0
        )
    }
}

/// The picture: load to the right, latency upwards by powers of ten, a line at the target where there is one.
pub fn svg(title: &str, unit: &str, lines: &[Line], target_ms: Option<f64>) -> String {
    let scale = Scale::of(lines);
    let title = escape(title);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\" role=\"img\"><title>{title}</title><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{title}</text>{}",
        scale.axes(unit)
    );
    if let Some(target) = target_ms {
        let (y, right) = (scale.y(target), WIDTH - RIGHT);
        let _ = write!(
            text,
            "<line x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#888\" \
             stroke-dasharray=\"6 4\"/>"
        );
    }
    lines.iter().enumerate().for_each(|(at, line)| text.push_str(&scale.line(at, line)));
    text.push_str("</svg>\n");
    text
}

/// A page of its own around pictures and a table.
pub fn page(title: &str, pictures: &[String], heading: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n<style>\
         body{{font-family:sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}\
         table{{border-collapse:collapse}}td,th{{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #ddd}}\
         td:first-child,th:first-child{{text-align:left}}</style></head><body><h1>{0}</h1>\n",
        escape(title)
    );
    pictures.iter().for_each(|picture| text.push_str(picture));
    let cells = |tag: &str, cells: &mut dyn Iterator<Item = &str>| -> String {
        cells.map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect()
    };
    let _ = writeln!(text, "<table><tr>{}</tr>", cells("th", &mut heading.iter().copied()));
    for row in rows {
        let _ = writeln!(text, "<tr>{}</tr>", cells("td", &mut row.iter().map(String::as_str)));
    }
    text.push_str("</table></body></html>\n");
    text
}

fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_harmless_and_every_line_is_drawn() {
        let line =
            |name: &str| Line { name: name.to_owned(), points: vec![(1.0, 2.0), (2.0, 300.0)] };
        let drawn = svg("<b>", "requests/s", &[line("a"), line("b&c")], Some(100.0));
        assert_eq!(drawn.matches("<polyline").count(), 2);
        assert!(drawn.contains("b&amp;c") && drawn.contains("&lt;b&gt;") && !drawn.contains("<b>"));
        assert!(page("p", &[drawn], &["x"], &[vec!["<i>".to_owned()]]).contains("&lt;i&gt;"));
    }
}
