//! The map: a cell for each node, a character for each GPU, the colour and letter of the job on it.

use super::palette::Palette;
use super::{fill, jobs, line, put, put_line};
use crate::picture::Picture;
use crate::state::{List, Screen, View};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use std::collections::BTreeMap;
use trainyard_api::answer::{JobRow, NodeRow};
use trainyard_client::show::length;

/// From this width on, what runs stands beside the map.
const WIDE: u16 = 120;

/// The width of that list.
const BESIDE: u16 = 46;

/// The longest name of a node that is shown whole.
const NAME_MAX: usize = 16;

/// Lines about the node that is meant.
const ABOUT: u16 = 3;

/// Lines below the map that are worth a list of jobs.
const BELOW: u16 = 4;

/// Draws the map.
pub fn draw(
    screen: &mut Screen,
    picture: &Picture,
    palette: Palette,
    (area, buffer): (Rect, &mut Buffer),
) {
    let beside = if area.width >= WIDE { BESIDE } else { 0 };
    let map = Rect { width: area.width - beside, ..area };
    put_line(buffer, (map.x + 1, map.y), map.width - 1, &types(picture, palette));
    let about = if map.height > ABOUT + 4 { ABOUT } else { 0 };
    let room = map.height.saturating_sub(1 + about);
    let (names, cell) = widths(picture);
    let columns = (map.width.saturating_sub(1) / cell).max(1);
    let list = &mut screen.lists[View::Cluster as usize];
    list.columns = usize::from(columns);
    let needed = list.order.len().div_ceil(list.columns).max(1);
    let cells = Rect { y: map.y + 1, height: room.min(needed.min(1000) as u16), ..map };
    nodes(list, picture, palette, (names, cell), (cells, buffer));
    if about > 0 {
        let area = Rect { y: cells.bottom(), height: about, ..map };
        about_node(list, picture, palette, (area, buffer));
    }
    let below = Rect { y: cells.bottom() + about, height: room - cells.height, ..map };
    if below.height >= BELOW {
        let area = Rect { y: below.y + 1, height: below.height - 1, ..below };
        jobs::glance(screen, picture, palette, (area, buffer));
    }
    if beside > 0 {
        let area = Rect { x: map.right() + 1, width: beside - 1, ..area };
        running(picture, palette, (area, buffer), screen.now);
    }
}

/// The width of names, and of a whole cell with the gap behind it.
fn widths(picture: &Picture) -> (usize, u16) {
    let nodes = &picture.nodes;
    let names = nodes.iter().map(|node| node.name.chars().count()).max().unwrap_or(0).min(NAME_MAX);
    let gpus = nodes.iter().map(|node| node.gpus.len()).max().unwrap_or(0);
    (names, (names + gpus + 3) as u16)
}

/// GPUs in use by type.
fn types(picture: &Picture, palette: Palette) -> Line<'static> {
    let mut sums: BTreeMap<&str, (usize, usize, usize)> = BTreeMap::new();
    for node in &picture.nodes {
        let used = node.gpus.iter().filter(|jobs| !jobs.is_empty()).count();
        let shared = node.gpus.iter().filter(|jobs| jobs.len() > 1).count();
        let sum = sums.entry(&node.gpu_type).or_default();
        *sum = (sum.0 + used, sum.1 + node.gpus.len(), sum.2 + shared);
    }
    let mut spans = Vec::new();
    for (name, (used, all, shared)) in sums {
        spans.push(Span::styled(name.to_owned(), palette.strong()));
        let shared = if shared > 0 { format!(" ({shared} shared)") } else { String::new() };
        spans.push(Span::raw(format!(" {used}/{all}{shared}   ")));
    }
    spans.push(Span::styled(
        "letter: a job, digit: jobs that share, ·: free, x: out",
        palette.faint(),
    ));
    Line::from(spans)
}

fn nodes(
    list: &mut List,
    picture: &Picture,
    palette: Palette,
    (names, cell): (usize, u16),
    (area, buffer): (Rect, &mut Buffer),
) {
    let rows = &picture.nodes;
    list.show(usize::from(area.height));
    if list.order.is_empty() {
        put(buffer, (area.x + 1, area.y), area.width, "no nodes with these words", palette.faint());
    }
    let first = list.scroll * list.columns;
    let visible = usize::from(area.height) * list.columns;
    let shown = list.order.iter().enumerate().skip(first).take(visible);
    for (place, index) in shown {
        let (row, column) = ((place - first) / list.columns, (place - first) % list.columns);
        let at = (area.x + 1 + column as u16 * cell, area.y + row as u16);
        let room = area.right().saturating_sub(at.0);
        let chosen = place == list.selected;
        node(&rows[*index as usize], names, (palette, chosen), (at, room, buffer));
    }
}

fn node(
    node: &NodeRow,
    names: usize,
    (palette, chosen): (Palette, bool),
    (at, room, buffer): ((u16, u16), u16, &mut Buffer),
) {
    let is_up = node.state == "up";
    let name = if is_up { Style::new() } else { palette.bad() };
    put(buffer, at, room.min(names as u16), &node.name, name);
    if chosen {
        let area = Rect { x: at.0, y: at.1, width: room.min(names as u16), height: 1 };
        fill(buffer, area, palette.chosen());
    }
    let start = names as u16 + 1;
    for (number, jobs) in node.gpus.iter().enumerate() {
        let (mark, style) = gpu(jobs, is_up, palette);
        let offset = start + number as u16;
        if offset < room {
            put(buffer, (at.0 + offset, at.1), 1, mark.encode_utf8(&mut [0; 4]), style);
        }
    }
}

fn gpu(jobs: &[u32], is_up: bool, palette: Palette) -> (char, Style) {
    match jobs {
        [] if is_up => ('·', palette.faint()),
        [] => ('x', palette.bad()),
        [job] => palette.job(*job),
        several => palette.shared(several),
    }
}

fn about_node(
    list: &List,
    picture: &Picture,
    palette: Palette,
    (area, buffer): (Rect, &mut Buffer),
) {
    let Some(node) = list.current().and_then(|index| picture.nodes.get(index)) else { return };
    let reason = node.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let text = format!(
        "{}  {}{reason}  {}  {} of {} GPUs free  {} CPUs  {} GiB",
        node.name,
        node.state,
        node.gpu_type,
        node.free,
        node.gpus.len(),
        node.cpus,
        node.memory_mib / 1024,
    );
    let rule = "─".repeat(usize::from(area.width));
    put(buffer, (area.x, area.y), area.width, &rule, palette.faint());
    put(buffer, (area.x + 1, area.y + 1), area.width - 1, &text, palette.strong());
    let mut jobs: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (gpu, on) in node.gpus.iter().enumerate() {
        on.iter().for_each(|job| jobs.entry(*job).or_default().push(gpu.to_string()));
    }
    let mut spans = Vec::new();
    for (job, gpus) in jobs {
        let (letter, style) = palette.job(job);
        let row = find(picture, job);
        let whose = row.map(|row| format!(" {} {}", row.user, row.name)).unwrap_or_default();
        spans.push(Span::styled(letter.to_string(), style));
        spans.push(Span::raw(format!(" {job}{whose} [{}]   ", gpus.join(","))));
    }
    if spans.is_empty() {
        spans.push(Span::styled("no job on it", palette.faint()));
    }
    put_line(buffer, (area.x + 1, area.y + 2), area.width - 1, &Line::from(spans));
}

/// The row of a job; the daemon lists them newest first.
fn find(picture: &Picture, job: u32) -> Option<&JobRow> {
    let place = picture.jobs.binary_search_by(|row| job.cmp(&row.id)).ok()?;
    picture.jobs.get(place)
}

/// What runs and, below it, how many wait.
fn running(picture: &Picture, palette: Palette, (area, buffer): (Rect, &mut Buffer), now: f64) {
    put(buffer, (area.x, area.y), area.width, "on these GPUs, the newest first", palette.strong());
    let held = picture.jobs.iter().filter(|job| !job.holds.is_empty());
    let room = usize::from(area.height).saturating_sub(2);
    for (row, job) in held.take(room).enumerate() {
        let place = line(area, area.y + 1 + row as u16);
        let (letter, style) = palette.job(job.id);
        let since = length(now - job.since);
        let text = format!(
            "{:>6} {:<14.14} {:<10.10} {:>3} {since:>6}",
            job.id, job.name, job.user, job.gpus
        );
        put(buffer, (place.x, place.y), 1, letter.encode_utf8(&mut [0; 4]), style);
        put(buffer, (place.x + 1, place.y), place.width - 1, &text, Style::new());
    }
    let jobs = &picture.status.jobs;
    let waiting: u64 =
        ["blocked", "unadmitted", "waiting"].iter().filter_map(|name| jobs.get(*name)).sum();
    let text = format!("{waiting} wait: 2 says why");
    put(buffer, (area.x, area.bottom().saturating_sub(1)), area.width, &text, palette.faint());
}
