//! The keys.

use super::palette::Palette;
use super::put;
use crate::keys::KEYS;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::widgets::{Clear, Widget};

/// Draws the keys over whatever is there.
pub fn draw(palette: Palette, area: Rect, buffer: &mut Buffer) {
    Clear.render(area, buffer);
    for (row, (keys, what)) in KEYS.iter().take(usize::from(area.height)).enumerate() {
        let y = area.y + row as u16;
        put(buffer, (area.x + 1, y), 13, keys, palette.strong());
        put(buffer, (area.x + 15, y), area.width.saturating_sub(15), what, Style::new());
    }
}
