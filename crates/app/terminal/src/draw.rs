//! One frame: a head, a view, a foot. Only what is visible is drawn, so a frame costs the size of the screen.
//!
//! - `palette`: colours, and what stands in for them where there are none.
//! - `table`: rows under headings.
//! - `cluster`, `jobs`, `tenants`, `events`, `daemon`: a file for each view; `job`: one job; `help`: the keys.

mod cluster;
mod daemon;
mod events;
mod help;
mod job;
mod jobs;
mod palette;
mod table;
mod tenants;

pub use palette::Palette;

use super::picture::Picture;
use super::rows;
use super::state::{Mode, Screen, View};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use trainyard_api::request::Act;
use trainyard_client::show::length;

/// Looks that may be missed before it is said.
const MISSED_LOOKS: f64 = 3.0;

/// Draws the screen.
pub fn draw(screen: &mut Screen, palette: Palette, area: Rect, buffer: &mut Buffer) {
    if area.width < 20 || area.height < 6 {
        put(buffer, (area.x, area.y), area.width, "too small", Style::new());
        return;
    }
    let mut top = area.y;
    head(screen, palette, line(area, top), buffer);
    tabs(screen, palette, line(area, top + 1), buffer);
    top += 2;
    if let Some(text) = banner(screen) {
        fill(buffer, line(area, top), palette.alarm());
        put(buffer, (area.x, top), area.width, &format!(" {text}"), palette.alarm());
        top += 1;
    }
    let bottom = area.bottom() - 1;
    let body = Rect { y: top, height: bottom - top, ..area };
    let Some(picture) = screen.picture.take() else {
        put(
            buffer,
            (area.x + 1, top + 1),
            area.width - 1,
            "waiting for the daemon ...",
            palette.faint(),
        );
        foot(screen, palette, line(area, bottom), buffer);
        return;
    };
    match (&screen.open, screen.view) {
        (Some(_), _) => job::draw(screen, &picture, palette, (body, buffer)),
        (None, View::Cluster) => cluster::draw(screen, &picture, palette, (body, buffer)),
        (None, View::Jobs) => jobs::draw(screen, &picture, palette, (body, buffer)),
        (None, View::Tenants) => tenants::draw(screen, &picture, palette, (body, buffer)),
        (None, View::Events) => events::draw(screen, &picture, palette, (body, buffer)),
        (None, View::Daemon) => daemon::draw(&picture, palette, (body, buffer), screen.now),
    }
    screen.picture = Some(picture);
    if screen.mode == Mode::Help {
        help::draw(palette, body, buffer);
    }
    foot(screen, palette, line(area, bottom), buffer);
}

/// A frame as plain text, without spaces at the ends of lines.
pub fn text(buffer: &Buffer) -> String {
    let area = buffer.area;
    let mut text = String::new();
    for y in area.top()..area.bottom() {
        let (mut row, mut x) = (String::new(), area.left());
        while x < area.right() {
            let symbol = buffer[(x, y)].symbol();
            row.push_str(symbol);
            // What is two cells wide hides the cell behind it.
            x += Span::raw(symbol).width().max(1) as u16;
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// What should not be missed, the worst first.
fn banner(screen: &Screen) -> Option<String> {
    let Some(picture) = &screen.picture else { return screen.missed.clone() };
    let age = screen.now - picture.at;
    let late = age > MISSED_LOOKS * screen.every + 2.0;
    match (&screen.missed, late) {
        (Some(missed), _) => return Some(format!("as of {} ago: {missed}", length(age))),
        (None, true) => return Some(format!("as of {} ago: the daemon takes long", length(age))),
        (None, false) => {}
    }
    let trouble = picture.status.policy_trouble.as_ref();
    let trouble = trouble.map(|trouble| format!("the policy is in trouble: {trouble}"));
    let warnings = &picture.status.warnings;
    let warned = warnings.first().map(|first| match warnings.len() {
        1 => format!("{first} (5 shows it whole)"),
        count => format!("{count} warnings (5 shows all): {first}"),
    });
    trouble.or(warned).map(|text| format!("! {text}"))
}

fn head(screen: &Screen, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let Some(picture) = &screen.picture else {
        put(buffer, (area.x, area.y), area.width, " trainyard", palette.title());
        return;
    };
    let status = &picture.status;
    let who = format!("{} ({}) ", status.user, status.role);
    let mut spans = vec![
        Span::styled(" trainyard ", palette.title()),
        Span::raw(" "),
        Span::styled(status.policy.clone(), palette.strong()),
        Span::raw("  "),
    ];
    spans.extend(gpus_used(picture, palette));
    spans.push(Span::raw(format!("  {}", counts(picture))));
    let line = Line::from(spans);
    put_line(buffer, (area.x, area.y), area.width, &line);
    // The user knows their own name and role; these are left out first where room is short.
    let left = usize::from(area.width).saturating_sub(line.width() + 2);
    if who.len() <= left {
        let x = area.right() - who.len() as u16;
        put(buffer, (x, area.y), who.len() as u16, &who, palette.faint());
    }
}

fn gpus_used(picture: &Picture, palette: Palette) -> Vec<Span<'static>> {
    let status = &picture.status;
    let cells = 10;
    let full = (u64::from(status.gpus_used) * cells).div_ceil(u64::from(status.gpus).max(1));
    let full = full.min(cells) as usize;
    let lost = match status.gpus_lost {
        0 => String::new(),
        lost => format!(", {lost} lost"),
    };
    vec![
        Span::styled("█".repeat(full), palette.good()),
        Span::styled("░".repeat(cells as usize - full), palette.faint()),
        Span::raw(format!(" {}/{} GPUs{lost}", status.gpus_used, status.gpus)),
    ]
}

fn counts(picture: &Picture) -> String {
    let jobs = &picture.status.jobs;
    let shown = jobs.iter().filter(|(_, count)| **count > 0);
    let parts: Vec<String> = shown.map(|(name, count)| format!("{count} {name}")).collect();
    if parts.is_empty() { "no jobs".to_owned() } else { parts.join(", ") }
}

fn tabs(screen: &Screen, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let mut spans = Vec::new();
    for (number, view) in View::ALL.into_iter().enumerate() {
        let chosen = view == screen.view && screen.open.is_none();
        let style = if chosen { palette.chosen() } else { palette.faint() };
        spans.push(Span::styled(format!(" {} {} ", number + 1, view.name()), style));
    }
    if let Some(open) = &screen.open {
        spans.push(Span::styled(format!(" job {} ", open.job), palette.chosen()));
    }
    let filter = &screen.list().filter;
    if screen.open.is_none() && !filter.is_empty() {
        spans.push(Span::styled(format!("  /{filter}"), palette.strong()));
    }
    put_line(buffer, (area.x, area.y), area.width, &Line::from(spans));
}

fn foot(screen: &Screen, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let list = screen.list();
    let (text, style) = match &screen.mode {
        Mode::Ask(job, act) => {
            let name = screen.row(*job).map(|row| format!(" ({})", row.name)).unwrap_or_default();
            (
                format!(" {} job {job}{name}? y does it, any other key does not", verb(act)),
                palette.alarm(),
            )
        }
        Mode::Type => {
            (format!(" /{}_   enter keeps it, esc drops it", list.filter), palette.strong())
        }
        Mode::Look | Mode::Help if !screen.note.is_empty() => {
            (format!(" {}", screen.note), palette.strong())
        }
        Mode::Look | Mode::Help => (hints(screen), palette.faint()),
    };
    put(buffer, (area.x, area.y), area.width, &text, style);
}

fn verb(act: &Act) -> &'static str {
    match act {
        Act::Cancel { .. } => "cancel",
        Act::Hold => "hold",
        Act::Release => "release",
        Act::Requeue => "put back",
    }
}

fn hints(screen: &Screen) -> String {
    let list = screen.list();
    let order = rows::orders(screen.view)[list.sort];
    let esc = if list.filter.is_empty() { "" } else { "  esc drop filter" };
    match (&screen.open, screen.view) {
        (Some(_), _) => {
            " ? keys  q quit  esc back  arrows scroll the log  c cancel h hold r release".to_owned()
        }
        (None, View::Daemon) => " ? keys  q quit  tab next view".to_owned(),
        (None, View::Jobs) => format!(
            " ? keys  q quit  enter open  / filter{esc}  s sort: {order}  c/h/r cancel/hold/release"
        ),
        (None, View::Cluster | View::Tenants | View::Events) => {
            format!(" ? keys  q quit  enter open  / filter{esc}  s sort: {order}  tab next view")
        }
    }
}

fn line(area: Rect, y: u16) -> Rect {
    Rect { y, height: 1, ..area }
}

fn fill(buffer: &mut Buffer, area: Rect, style: Style) {
    buffer.set_style(area, style);
}

/// Writes a text, cut at a width; what is no character is left out.
fn put(buffer: &mut Buffer, at: (u16, u16), width: u16, text: &str, style: Style) {
    buffer.set_stringn(at.0, at.1, text, usize::from(width), style);
}

fn put_line(buffer: &mut Buffer, at: (u16, u16), width: u16, line: &Line<'_>) {
    buffer.set_line(at.0, at.1, line, width);
}
