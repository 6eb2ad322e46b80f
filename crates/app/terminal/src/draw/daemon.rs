//! The policy, warnings and counters.

use super::palette::Palette;
use super::put;
use crate::picture::Picture;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use serde_json::Value;
use trainyard_client::show::length;

/// Draws the daemon as a whole.
pub fn draw(picture: &Picture, palette: Palette, (area, buffer): (Rect, &mut Buffer), now: f64) {
    let status = &picture.status;
    let users = match status.runs_as_users {
        true => "jobs run as the users who submit them",
        false => "jobs run as the daemon's user",
    };
    let mut lines = vec![
        ("policy", status.policy.clone(), palette.strong()),
        ("version", status.version.clone(), Style::new()),
        ("up", format!("{} (start {})", length(now - status.since), status.epoch), Style::new()),
        ("users", users.to_owned(), Style::new()),
        ("you", format!("{} ({})", status.user, status.role), Style::new()),
    ];
    if picture.more {
        let text = format!("only the newest {} are read here; `ps` pages on", picture.jobs.len());
        lines.push(("jobs", text, palette.bad()));
    }
    let trouble = status.policy_trouble.iter().map(|text| format!("the policy: {text}"));
    for warning in trouble.chain(status.warnings.iter().cloned()) {
        lines.push(("warning", warning, palette.bad()));
    }
    for (name, value) in status.stats.as_object().into_iter().flatten() {
        lines.push(("", format!("{:<28} {}", name.replace('_', " "), figure(value)), Style::new()));
    }
    let mut y = area.y;
    for (name, text, style) in &lines {
        for (part, piece) in pieces(text, usize::from(area.width.saturating_sub(12))).enumerate() {
            if y >= area.bottom() {
                return;
            }
            put(buffer, (area.x + 1, y), 9, if part == 0 { name } else { "" }, palette.faint());
            put(buffer, (area.x + 11, y), area.width.saturating_sub(11), &piece, *style);
            y += 1;
        }
    }
}

/// A text in lines of at most so many characters, broken between words where there are some.
fn pieces(text: &str, width: usize) -> impl Iterator<Item = String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is always one");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= width {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.into_iter()
}

fn figure(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
