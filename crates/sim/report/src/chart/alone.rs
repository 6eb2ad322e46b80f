//! Pictures of a page as files of their own: with a title, a legend, paper behind them and their colours inside.

use super::{escape, style};
use std::fmt::Write;

const COLOURS: &str = include_str!("../../assets/colours.css");
const FIGURE: &str = include_str!("../../assets/figure.css");
const FONT: &str = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif";

/// Where a picture is looked at.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Colours {
    /// On a screen: dark where the reader likes it dark.
    Screen,
    /// On paper: light, and written out for programs that know no variables.
    Paper,
}

/// The legend stands in lines of this height.
const LEGEND_ROW: f64 = 20.0;
/// The mean width of a letter, as a part of its size; a guess that is rather too large.
const LETTER: f64 = 0.58;
const TITLE_SIZE: f64 = 14.0;
const MARGIN: f64 = 12.0;

/// Every labelled picture of a page: its name, without an ending, and its text.
pub(crate) fn standing_alone(
    html: &str,
    names: &[&str],
    colours: Colours,
) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for part in html.split("<svg ").skip(1) {
        let body = part.split("</svg>").next().unwrap_or_default();
        let Some((_, rest)) = body.split_once("aria-labelledby=\"") else { continue };
        let id = rest.split("-t ").next().unwrap_or_default();
        if let Some(text) = picture(body, names, colours) {
            files.push((id.to_owned(), text));
        }
    }
    files
}

/// One picture, given as what stands within its `<svg ...>` and `</svg>`.
fn picture(body: &str, names: &[&str], colours: Colours) -> Option<String> {
    let (_, rest) = body.split_once("viewBox=\"0 0 ")?;
    let (width, rest) = rest.split_once(' ')?;
    let (height, rest) = rest.split_once('"')?;
    let (width, height): (f64, f64) = (width.parse().ok()?, height.parse().ok()?);
    let (_, rest) = rest.split_once("-t\">")?;
    let (title, rest) = rest.split_once("</title>")?;
    let (_, rest) = rest.split_once("-d\">")?;
    let (description, drawn) = rest.split_once("</desc>")?;
    // With one run there is nothing to tell apart, and rows with names of their own need no legend.
    let has_legend =
        names.len() > 1 && drawn.contains("data-run=\"1\"") && !drawn.contains("class=\"whisker");
    let (legend, legend_height) =
        if has_legend { legend(names, width) } else { (String::new(), 0.0) };
    let top = MARGIN + TITLE_SIZE + 8.0 + legend_height;
    let total = top + height + 4.0;
    let style = css(colours);
    let shown = fitted(title, width);
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {total}\" width=\"{width}\" height=\"{total}\" \
         role=\"img\" font-family=\"{FONT}\" font-size=\"12\"><title>{title}</title><desc>{description}</desc>\
         <style>{style}</style><rect class=\"paper\" width=\"100%\" height=\"100%\"/>\
         <text class=\"title\" x=\"{MARGIN}\" y=\"{}\">{shown}</text>{legend}\
         <g transform=\"translate(0 {top})\">{drawn}</g></svg>\n",
        MARGIN + TITLE_SIZE - 2.0,
    ))
}

/// The title, cut where it would leave the picture; it is escaped already, and is not cut within an escape.
fn fitted(title: &str, width: f64) -> String {
    let room = ((width - 2.0 * MARGIN) / (TITLE_SIZE * LETTER)) as usize;
    if title.chars().count() <= room || title.contains('&') {
        return title.to_owned();
    }
    title.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

/// A stroke and a name for each run, as many to a line as fit, and how high all that is.
fn legend(names: &[&str], width: f64) -> (String, f64) {
    let (mut x, mut y) = (MARGIN, MARGIN + TITLE_SIZE + 8.0);
    let mut svg = String::new();
    for (run, name) in names.iter().enumerate() {
        let short: String = name.chars().take(40).collect();
        let wide = 26.0 + 6.0 + short.chars().count() as f64 * 12.0 * LETTER + 14.0;
        if x > MARGIN && x + wide > width {
            (x, y) = (MARGIN, y + LEGEND_ROW);
        }
        let _ = write!(
            svg,
            "<line class=\"curve {}\" x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            style(run),
            x + 26.0,
            y + 6.0,
            y + 6.0,
            x + 32.0,
            y + 10.0,
            escape(&short)
        );
        x += wide;
    }
    (svg, y + LEGEND_ROW - (MARGIN + TITLE_SIZE + 8.0))
}

/// The colours and the rules of figures, without what could end the style.
fn css(colours: Colours) -> String {
    let alone = ".paper { fill: var(--card); } .title { font-size: 14px; font-weight: 600; fill: var(--ink) !important; }\n";
    let text = match colours {
        Colours::Screen => format!("{COLOURS}{FIGURE}{alone}"),
        Colours::Paper => written_out(&format!("{FIGURE}{alone}").replace(" !important", "")),
    };
    text.replace('<', "")
}

/// Rules in which every variable is replaced by its value in the light colours.
fn written_out(rules: &str) -> String {
    let light = COLOURS.split('}').next().unwrap_or_default();
    let mut text = rules.to_owned();
    for pair in light.split(['{', ';']).filter(|pair| pair.contains("--")) {
        if let Some((name, value)) = pair.trim().split_once(':') {
            text = text.replace(&format!("var({})", name.trim()), value.trim());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_paper_every_colour_is_written_out() {
        let text = css(Colours::Paper);
        assert!(!text.contains("var(") && text.contains(".s0 { stroke: #0072b2; }"), "{text}");
        assert!(css(Colours::Screen).contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn a_legend_breaks_its_lines() {
        let names = ["a-long-name-of-a-policy"; 5];
        let (svg, height) = legend(&names, 480.0);
        assert_eq!(height, 3.0 * LEGEND_ROW, "{svg}");
        assert!(fitted(&"x".repeat(100), 340.0).ends_with('…'));
    }
}
