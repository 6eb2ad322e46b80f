//! Shares: what each tenant is entitled to, what it used, and how the two compare.

use super::palette::Palette;
use super::table::{Cell, figures, table, words};
use crate::picture::Picture;
use crate::rows::{path, share};
use crate::state::{Screen, View};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use trainyard_api::answer::FairRow;

/// Cells of the bar of a share.
const BAR: usize = 20;

/// Draws the shares.
pub fn draw(screen: &mut Screen, picture: &Picture, palette: Palette, to: (Rect, &mut Buffer)) {
    let columns = [
        words("tenant", 18),
        figures("entitled", 8),
        figures("used", 7),
        figures("ratio", 5),
        figures("GPUs", 6),
        figures("max", 5),
        figures("runs", 5),
        figures("waits", 5),
        words("used █, entitled |", BAR as u16),
    ];
    let list = &mut screen.lists[View::Tenants as usize];
    table(list, &columns, palette, to, |index| row(&picture.tenants, index, palette));
}

fn row(rows: &[FairRow], index: usize, palette: Palette) -> Vec<Cell> {
    let tenant = &rows[index];
    let depth = path(rows, tenant).len().saturating_sub(1);
    let plain = |text: String| (text, Style::new());
    let percent = |share: f64| plain(format!("{:.1} %", share * 100.0));
    let ratio = share(tenant);
    // Fairness is about tenants that wait and have less than their share.
    let below = ratio < 1.0 && tenant.waiting > 0;
    let ratio = if ratio.is_finite() { format!("{ratio:.2}") } else { "-".to_owned() };
    vec![
        plain(format!("{}{}", "  ".repeat(depth), tenant.tenant)),
        percent(tenant.entitled),
        percent(tenant.used),
        (ratio, if below { palette.bad() } else { Style::new() }),
        plain(format!("{}", tenant.gpus)),
        plain(tenant.ceiling.map(|gpus| gpus.to_string()).unwrap_or_default()),
        plain(tenant.running.to_string()),
        plain(tenant.waiting.to_string()),
        (bar(tenant), palette.good()),
    ]
}

fn bar(tenant: &FairRow) -> String {
    let cells = |share: f64| (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    let (used, entitled) = (cells(tenant.used), cells(tenant.entitled));
    let cell = |place: usize| match place {
        place if place + 1 == entitled.max(1) => '|',
        place if place < used => '█',
        _ => '·',
    };
    (0..BAR).map(cell).collect()
}
