//! What runs and what waits, why, and until when.

use super::palette::Palette;
use super::put;
use super::table::{Cell, Column, figures, table, words};
use crate::picture::Picture;
use crate::state::{List, Screen, View};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use trainyard_api::answer::JobRow;
use trainyard_api::forecast::EtaAnswer;
use trainyard_client::show::{holdings, length, state};

/// Draws the list of jobs.
pub fn draw(screen: &mut Screen, picture: &Picture, palette: Palette, to: (Rect, &mut Buffer)) {
    let (now, (area, buffer)) = (screen.now, to);
    let list = &mut screen.lists[View::Jobs as usize];
    // What is cut off in the last column is said in full for the row that is meant.
    let below = if area.height > BELOW * 3 { BELOW } else { 0 };
    let area = Rect { height: area.height - below, ..area };
    rows(list, picture, palette, ((area, &mut *buffer), now));
    if let Some(job) =
        list.current().and_then(|index| picture.jobs.get(index)).filter(|_| below > 0)
    {
        let rule = "─".repeat(usize::from(area.width));
        put(buffer, (area.x, area.bottom()), area.width, &rule, palette.faint());
        put(buffer, (area.x + 1, area.bottom() + 1), area.width - 1, &about(job), Style::new());
    }
}

/// A rule and a line about the row that is meant.
const BELOW: u16 = 2;

fn about(job: &JobRow) -> String {
    let place = holdings(&job.holds);
    let what = match (place.is_empty(), job.why.is_empty()) {
        (false, _) => format!("on {place}"),
        (true, false) => job.why.clone(),
        (true, true) => state(job.state),
    };
    format!("{} {} ({}, tenant {}): {what}", job.id, job.name, job.user, job.tenant)
}

/// Draws the first of the list, where there is room for it beside something else.
pub fn glance(screen: &Screen, picture: &Picture, palette: Palette, to: (Rect, &mut Buffer)) {
    let listed = &screen.lists[View::Jobs as usize];
    let first = listed.order.iter().take(usize::from(to.0.height)).copied().collect();
    // None of them is meant.
    let mut list = List { order: first, selected: usize::MAX, ..List::default() };
    rows(&mut list, picture, palette, (to, screen.now));
}

fn rows(
    list: &mut List,
    picture: &Picture,
    palette: Palette,
    (to, now): ((Rect, &mut Buffer), f64),
) {
    let wide = to.0.width >= 110;
    let told = picture.jobs.iter().any(|job| job.progress.is_some());
    let columns = columns(wide, told, picture.etas.is_some());
    table(list, &columns, palette, to, |index| {
        let job = &picture.jobs[index];
        let eta = picture.etas.as_ref().map(|etas| etas.get(&job.id));
        row(job, eta, palette, (now, wide, told))
    });
}

fn columns(wide: bool, told: bool, with_eta: bool) -> Vec<Column> {
    let mut columns = vec![words("", 1), figures("id", 6)];
    columns.push(words("name", if wide { 22 } else { 12 }));
    columns.push(words("user", if wide { 12 } else { 8 }));
    columns.extend(wide.then(|| words("tenant", 12)));
    columns.extend([words("state", 10), figures("for", 6), figures("GPUs", 4)]);
    columns.extend(told.then(|| figures("done", 5)));
    columns.extend(wide.then(|| figures("again", 5)));
    columns.extend(with_eta.then(|| words("expected", 11)));
    columns.push(words("where, or why it waits", 10));
    columns
}

fn row(
    job: &JobRow,
    eta: Option<Option<&EtaAnswer>>,
    palette: Palette,
    (now, wide, told): (f64, bool, bool),
) -> Vec<Cell> {
    let plain = |text: String| (text, Style::new());
    let (letter, style) = palette.job(job.id);
    let mark = if job.holds.is_empty() {
        (String::new(), Style::new())
    } else {
        (letter.to_string(), style)
    };
    let done = job.progress.map(|share| format!("{:.0} %", share * 100.0));
    let mut cells =
        vec![mark, plain(job.id.to_string()), plain(job.name.clone()), plain(job.user.clone())];
    cells.extend(wide.then(|| plain(job.tenant.clone())));
    cells.extend([
        (state(job.state), palette.state(job.state)),
        plain(length(now - job.since)),
        plain(job.gpus.to_string()),
    ]);
    cells.extend(told.then(|| plain(done.unwrap_or_default())));
    cells.extend(
        wide.then(|| {
            plain(if job.restarts == 0 { String::new() } else { job.restarts.to_string() })
        }),
    );
    cells.extend(eta.map(|eta| plain(expected(eta, now))));
    let held = holdings(&job.holds);
    cells.push(plain(if held.is_empty() { job.why.clone() } else { held }));
    cells
}

/// The next thing that is expected of a job: its start, or its end.
pub fn expected(eta: Option<&EtaAnswer>, now: f64) -> String {
    let Some(eta) = eta.filter(|eta| !eta.state.is_over()) else { return String::new() };
    let start = eta.starts.filter(|start| start.likely > now).map(|start| ("start", start));
    let next = start.or(eta.ends.map(|end| ("end", end)));
    next.map(|(word, moment)| format!("{word} {}", length(moment.likely - now))).unwrap_or_default()
}
