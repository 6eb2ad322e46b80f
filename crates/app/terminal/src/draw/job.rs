//! One job: what it is, how fast it runs, its launches, and the end of its log.

use super::palette::Palette;
use super::{jobs, put};
use crate::picture::{Inside, Picture};
use crate::state::{Open, Screen};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::widgets::{Sparkline, Widget};
use trainyard_api::answer::{AttemptRow, Holding};
use trainyard_api::forecast::Expected;
use trainyard_client::show;
use trainyard_client::show::{clock, length};

/// Launches that are shown, the newest.
const LAUNCHES: usize = 4;

/// Draws the job that is open.
pub fn draw(
    screen: &mut Screen,
    picture: &Picture,
    palette: Palette,
    (area, buffer): (Rect, &mut Buffer),
) {
    let now = screen.now;
    let Some(open) = &mut screen.open else { return };
    let Some(inside) = &open.inside else {
        let text =
            open.missed.clone().unwrap_or_else(|| format!("looking into job {} ...", open.job));
        put(buffer, (area.x + 1, area.y + 1), area.width - 1, &text, palette.faint());
        return;
    };
    let mut y = area.y;
    let half = area.bottom() - area.height / 3;
    for (name, text, style) in facts(inside, picture, palette, now) {
        if y >= half {
            break;
        }
        put(buffer, (area.x + 1, y), 10, name, palette.faint());
        put(buffer, (area.x + 12, y), area.width.saturating_sub(12), &text, style);
        y += 1;
    }
    if y < half && open.rates.len() > 1 {
        speeds(open, palette, (Rect { y, height: 1, ..area }, buffer));
        y += 1;
    }
    let room = usize::from(half.saturating_sub(y)).min(LAUNCHES);
    for launch in inside.detail.attempts.iter().rev().take(room) {
        put(buffer, (area.x + 1, y), 10, &format!("launch {}", launch.attempt), palette.faint());
        put(
            buffer,
            (area.x + 12, y),
            area.width.saturating_sub(12),
            &attempt(launch, now),
            Style::new(),
        );
        y += 1;
    }
    let log = Rect { y, height: area.bottom().saturating_sub(y), ..area };
    draw_log(open, palette, (log, buffer));
}

type Fact = (&'static str, String, Style);

fn facts(inside: &Inside, picture: &Picture, palette: Palette, now: f64) -> Vec<Fact> {
    let row = &inside.detail.row;
    let mut facts: Vec<Fact> = Vec::new();
    for (name, text) in show::facts(&inside.detail) {
        let style = match name {
            "state" => palette.state(row.state),
            "job" => palette.strong(),
            _ => Style::new(),
        };
        facts.push((name, text, style));
    }
    if row.restarts > 0 {
        facts.push(("restarts", row.restarts.to_string(), Style::new()));
    }
    if let Some(why) = &inside.why {
        if let Some(change) = &why.nearest_change {
            facts.push(("nearest", change.clone(), palette.strong()));
        }
        if let Some(moment) = why.not_before {
            facts.push(("not before", clock(moment), Style::new()));
        }
    }
    let eta = picture.etas.as_ref().and_then(|etas| etas.get(&row.id));
    if let Some(eta) = eta.filter(|eta| !eta.state.is_over()) {
        let spread = |moment: Expected| {
            format!(" ({} to {})", length(moment.low - now), length(moment.high - now))
        };
        let next = jobs::expected(Some(eta), now);
        let of = if next.starts_with("start") { eta.starts } else { eta.ends };
        let text = format!("{next}{}; {}", of.map(spread).unwrap_or_default(), eta.basis);
        facts.push(("expected", text, Style::new()));
    }
    facts
}

/// The measured speed over time.
fn speeds(open: &Open, palette: Palette, (area, buffer): (Rect, &mut Buffer)) {
    let last = open.rates.last().copied().unwrap_or(0.0);
    let most = open.rates.iter().copied().fold(0.0, f64::max);
    put(buffer, (area.x + 1, area.y), 10, "speed", palette.faint());
    let width = area.width.saturating_sub(36).clamp(1, 60);
    let shown = open.rates.iter().rev().take(usize::from(width)).rev();
    // The curve is drawn from whole numbers: a thousand levels below the fastest.
    let scale = if most > 0.0 { 1000.0 / most } else { 0.0 };
    let levels: Vec<u64> = shown.map(|rate| (rate * scale) as u64).collect();
    let curve = Rect { x: area.x + 12, width, ..area };
    Sparkline::default().data(levels).max(1000).style(palette.good()).render(curve, buffer);
    let text = format!("{last:.3} steps/s");
    put(
        buffer,
        (curve.right() + 1, area.y),
        area.right().saturating_sub(curve.right() + 1),
        &text,
        Style::new(),
    );
}

fn attempt(of: &AttemptRow, now: f64) -> String {
    let held = of.ended.unwrap_or(now) - of.launched;
    let place =
        of.holds.iter().map(|hold: &Holding| hold.node.as_str()).collect::<Vec<_>>().join(" ");
    let outcome = if of.ended.is_some() { of.outcome.as_str() } else { "it runs" };
    format!("{} on {place} for {}: {outcome}", clock(of.launched), length(held))
}

fn draw_log(open: &mut Open, palette: Palette, (area, buffer): (Rect, &mut Buffer)) {
    if area.height < 2 {
        return;
    }
    let title = format!("─ log {}", "─".repeat(usize::from(area.width)));
    put(buffer, (area.x, area.y), area.width, &title, palette.faint());
    let room = usize::from(area.height) - 1;
    let (text, style) = match open.inside.as_ref().map(|inside| &inside.log) {
        Some(Ok(text)) => (text.as_str(), Style::new()),
        Some(Err(why)) => (why.as_str(), palette.faint()),
        None => ("", Style::new()),
    };
    let lines: Vec<&str> = text.lines().collect();
    open.scroll = open.scroll.min(lines.len().saturating_sub(room));
    let end = lines.len() - open.scroll;
    for (row, line) in lines[end.saturating_sub(room)..end].iter().enumerate() {
        let at = (area.x + 1, area.y + 1 + row as u16);
        put(buffer, at, area.width - 1, &readable(line), style);
    }
}

/// A line of a log as it would stand on a terminal: without escape sequences, after the last return, tabs as spaces.
fn readable(line: &str) -> String {
    let last = line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default();
    let mut text = String::with_capacity(last.len());
    let mut letters = last.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => skip_sequence(&mut letters),
            '\t' => text.push_str("    "),
            letter if trainyard_types::is_unprintable(letter) => {}
            letter => text.push(letter),
        }
    }
    text
}

/// Passes over what follows an escape: `[` up to a letter, or one character.
fn skip_sequence(letters: &mut std::str::Chars<'_>) {
    if letters.next() == Some('[') {
        let _ = letters.find(|letter| ('@'..='~').contains(letter));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_log_cannot_disturb_the_screen() {
        assert_eq!(readable("10 %\r50 %\r100 %\r"), "100 %");
        assert_eq!(readable("\u{1b}[31mred\u{1b}[0m\u{7}\tend"), "red    end");
        assert_eq!(readable("cut \u{1b}["), "cut ");
    }
}
