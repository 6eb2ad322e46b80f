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

/// The picture: load to the right, latency upwards by powers of ten, a line at the target where there is one.
pub fn svg(title: &str, unit: &str, lines: &[Line], target_ms: Option<f64>) -> String {
    let all = || lines.iter().flat_map(|line| &line.points).filter(|(_, ms)| *ms > 0.0);
    let most = all().map(|(load, _)| *load).fold(0.0, f64::max).max(1e-9);
    let low = all().map(|(_, ms)| *ms).fold(f64::INFINITY, f64::min).min(1e6);
    let high = all().map(|(_, ms)| *ms).fold(0.0, f64::max).max(low * 1.01);
    let (low, high) = (libm::floor(libm::log10(low)), libm::ceil(libm::log10(high)));
    let x = |load: f64| LEFT + load / most * (WIDTH - LEFT - RIGHT);
    let y = |ms: f64| {
        let part = (libm::log10(ms.max(1e-6)) - low) / (high - low).max(1.0);
        HEIGHT - BOTTOM - part.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    };
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\" role=\"img\"><title>{0}</title><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{0}</text>",
        escape(title)
    );
    for power in low as i32..=high as i32 {
        let ms = libm::pow(10.0, f64::from(power));
        let _ = write!(
            text,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{1:.1}\" y2=\"{1:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{2:.1}\" y=\"{3:.1}\" text-anchor=\"end\">{4} ms</text>",
            WIDTH - RIGHT, y(ms), LEFT - 6.0, y(ms) + 4.0, ms
        );
    }
    for step in 0..=5 {
        let load = most * f64::from(step) / 5.0;
        let digits = usize::from(most < 10.0);
        let _ = write!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{load:.digits$}</text>",
            x(load), HEIGHT - BOTTOM + 18.0
        );
    }
    let _ = write!(text, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        x(most / 2.0), HEIGHT - 10.0, escape(unit));
    if let Some(target) = target_ms {
        let _ = write!(
            text,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{1:.1}\" y2=\"{1:.1}\" stroke=\"#888\" stroke-dasharray=\"6 4\"/>",
            WIDTH - RIGHT, y(target)
        );
    }
    for (at, line) in lines.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let dash = if at / COLOURS.len() % 2 == 1 { " stroke-dasharray=\"5 3\"" } else { "" };
        let points: Vec<String> = (line.points.iter().filter(|(_, ms)| *ms > 0.0))
            .map(|(load, ms)| format!("{:.1},{:.1}", x(*load), y(*ms)))
            .collect();
        let row = TOP + 18.0 * at as f64 + 10.0;
        let _ = write!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>\
             <line x1=\"{1:.1}\" x2=\"{2:.1}\" y1=\"{row:.1}\" y2=\"{row:.1}\" stroke=\"{colour}\" stroke-width=\"3\"{dash}/>\
             <text x=\"{3:.1}\" y=\"{4:.1}\">{5}</text>",
            points.join(" "), WIDTH - RIGHT + 14.0, WIDTH - RIGHT + 38.0, WIDTH - RIGHT + 44.0, row + 4.0,
            escape(&line.name)
        );
    }
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
    let _ = write!(text, "<table><tr>{}</tr>\n", cells("th", &mut heading.iter().copied()));
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
        let line = |name: &str| Line { name: name.to_owned(), points: vec![(1.0, 2.0), (2.0, 300.0)] };
        let drawn = svg("<b>", "requests/s", &[line("a"), line("b&c")], Some(100.0));
        assert_eq!(drawn.matches("<polyline").count(), 2);
        assert!(drawn.contains("b&amp;c") && drawn.contains("&lt;b&gt;") && !drawn.contains("<b>"));
        assert!(page("p", &[drawn], &["x"], &[vec!["<i>".to_owned()]]).contains("&lt;i&gt;"));
    }
}
