//! Rows under headings; the last column takes what is left.

use super::palette::Palette;
use super::{fill, put};
use crate::state::List;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// A column.
#[derive(Copy, Clone, Debug)]
pub struct Column {
    /// Its heading.
    pub title: &'static str,
    /// Its width; of the last one the least.
    pub width: u16,
    /// Whether it holds figures, which stand at the right.
    pub is_figure: bool,
}

/// A column of words.
pub const fn words(title: &'static str, width: u16) -> Column {
    Column { title, width, is_figure: false }
}

/// A column of figures.
pub const fn figures(title: &'static str, width: u16) -> Column {
    Column { title, width, is_figure: true }
}

/// A text and how it looks.
pub type Cell = (String, Style);

/// Draws the rows of a list that are visible; `row` makes one from its index in the picture.
pub fn table(
    list: &mut List,
    columns: &[Column],
    palette: Palette,
    (area, buffer): (Rect, &mut Buffer),
    row: impl Fn(usize) -> Vec<Cell>,
) {
    if area.height < 2 {
        return;
    }
    let headings = columns.iter().map(|column| (column.title.to_owned(), palette.strong()));
    draw_row(columns, headings, area, buffer);
    let lines = usize::from(area.height) - 1;
    list.columns = 1;
    list.show(lines);
    if list.order.is_empty() {
        let text = if list.filter.is_empty() { "nothing" } else { "nothing with these words" };
        put(buffer, (area.x + 1, area.y + 1), area.width.saturating_sub(1), text, palette.faint());
        return;
    }
    let visible = list.order.iter().enumerate().skip(list.scroll).take(lines);
    for (line, (place, index)) in visible.enumerate() {
        let area = Rect { y: area.y + 1 + line as u16, height: 1, ..area };
        draw_row(columns, row(*index as usize).into_iter(), area, buffer);
        if place == list.selected {
            fill(buffer, area, palette.chosen());
        }
    }
}

fn draw_row(
    columns: &[Column],
    cells: impl Iterator<Item = Cell>,
    area: Rect,
    buffer: &mut Buffer,
) {
    let (mut x, end) = (area.x, area.right());
    for (number, (column, (text, style))) in columns.iter().zip(cells).enumerate() {
        if x >= end {
            return;
        }
        let is_last = number + 1 == columns.len();
        let width = if is_last { end - x } else { column.width.min(end - x) };
        let indent = match column.is_figure {
            true => {
                usize::from(column.width.min(width)).saturating_sub(text.chars().count()) as u16
            }
            false => 0,
        };
        put(buffer, (x + indent, area.y), width - indent, &text, style);
        x = x.saturating_add(width + 1);
    }
}
