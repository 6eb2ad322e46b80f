//! What happened.

use super::palette::Palette;
use super::table::{figures, table, words};
use crate::picture::Picture;
use crate::state::{Screen, View};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use trainyard_client::show::clock;

/// Draws the events.
pub fn draw(screen: &mut Screen, picture: &Picture, palette: Palette, to: (Rect, &mut Buffer)) {
    let columns = [words("at", 8), words("what", 13), figures("job", 6), words("", 20)];
    let list = &mut screen.lists[View::Events as usize];
    table(list, &columns, palette, to, |index| {
        let event = &picture.events[index];
        let at = clock(event.at);
        let bad = ["failed", "trouble", "lost"].iter().any(|part| event.kind.contains(part));
        let plain = |text: String| (text, Style::new());
        vec![
            // The day is in `events`; here it is what just happened.
            plain(at.rsplit(' ').next().unwrap_or_default().to_owned()),
            (event.kind.clone(), if bad { palette.bad() } else { palette.strong() }),
            plain(event.job.map(|job| job.to_string()).unwrap_or_default()),
            plain(event.text.clone()),
        ]
    });
}
