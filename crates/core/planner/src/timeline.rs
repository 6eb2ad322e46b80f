//! A run as rows of characters and as a picture.

use crate::simulate::Purpose;
use serde::Serialize;

/// One task in a picture.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// The row it stands in.
    pub row: u32,
    /// When it starts.
    pub start: f64,
    /// When it ends.
    pub end: f64,
    /// What it is.
    #[serde(skip)]
    pub purpose: Purpose,
    /// Which micro-batch, or which operator.
    pub label: u32,
}

/// A picture of a run: named rows of bars.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Timeline {
    /// Names of the rows.
    pub rows: Vec<String>,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// More bars than this are no picture; the rest is left out.
const BARS_MAX: usize = 20_000;

impl Timeline {
    /// When the last bar ends.
    pub fn seconds(&self) -> f64 {
        self.bars.iter().map(|bar| bar.end).fold(0.0, f64::max)
    }

    /// Rows of characters: the last digit of a micro-batch going forward, a letter going back, `=` for synchronisation,
    /// `<` and `>` for swaps, `*` for an update, `.` where a row is idle. A column is what most of it is filled with.
    pub fn text(&self, width: usize) -> String {
        let (width, total) = (width.max(8), self.seconds());
        let indent = self.rows.iter().map(|row| row.chars().count()).max().unwrap_or(0).min(24);
        let mut text = String::new();
        for (index, name) in self.rows.iter().enumerate() {
            let mut cells = vec![Cell { covered: 0.0, longest: 0.0, letter: '.' }; width];
            for bar in self.bars.iter().filter(|bar| bar.row as usize == index) {
                fill(&mut cells, bar, total);
            }
            // A column that is mostly idle stays so.
            let shown = |cell: Cell| if cell.covered > 0.3 { cell.letter } else { '.' };
            let drawn: String = cells.into_iter().map(shown).collect();
            let name: String = name.chars().take(24).collect();
            text.push_str(&format!("{name:<indent$} |{drawn}|\n"));
        }
        text
    }

    /// The picture as an SVG file.
    pub fn svg(&self, title: &str) -> String {
        const WIDTH: f64 = 960.0;
        const LEFT: f64 = 150.0;
        const ROW: f64 = 22.0;
        let total = self.seconds().max(f64::MIN_POSITIVE);
        let height = 52.0 + ROW * self.rows.len() as f64;
        let x = |seconds: f64| LEFT + seconds / total * (WIDTH - LEFT - 10.0);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"sans-serif\" font-size=\"11\">\n<title>{}</title>\n\
             <text x=\"8\" y=\"16\" font-size=\"13\">{}</text>\n",
            escaped(title),
            escaped(title)
        );
        for (index, name) in self.rows.iter().enumerate() {
            let y = 28.0 + ROW * index as f64;
            let name: String = name.chars().take(22).collect();
            svg.push_str(&format!(
                "<text x=\"8\" y=\"{:.1}\">{}</text><rect x=\"{LEFT}\" y=\"{y}\" width=\"{:.1}\" \
                 height=\"{}\" fill=\"#f0f0f0\"/>\n",
                y + 14.0,
                escaped(&name),
                WIDTH - LEFT - 10.0,
                ROW - 3.0
            ));
        }
        for bar in self.bars.iter().take(BARS_MAX) {
            let (from, width) = (x(bar.start), (x(bar.end) - x(bar.start)).max(0.2));
            let y = 28.0 + ROW * f64::from(bar.row);
            svg.push_str(&format!(
                "<rect x=\"{from:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{}\" fill=\"{}\">\
                 <title>{} {}: {:.6} s to {:.6} s</title></rect>\n",
                ROW - 3.0,
                colour(bar.purpose),
                word(bar.purpose),
                bar.label,
                bar.start,
                bar.end
            ));
        }
        svg.push_str(&format!(
            "<text x=\"{LEFT}\" y=\"{0:.1}\">0</text><text x=\"{1:.1}\" y=\"{0:.1}\" \
             text-anchor=\"end\">{2:.4} s</text>\n</svg>\n",
            height - 8.0,
            WIDTH - 10.0,
            total
        ));
        svg
    }
}

/// What a column of a row is filled with.
#[derive(Copy, Clone)]
struct Cell {
    covered: f64,
    longest: f64,
    letter: char,
}

fn fill(cells: &mut [Cell], bar: &Bar, total: f64) {
    let scale = cells.len() as f64 / total.max(f64::MIN_POSITIVE);
    let (from, to) = (bar.start * scale, bar.end * scale);
    let last = (libm::ceil(to) as usize).min(cells.len());
    for (column, cell) in cells.iter_mut().enumerate().take(last).skip(from as usize) {
        let covered = to.min(column as f64 + 1.0) - from.max(column as f64);
        cell.covered += covered;
        if covered > cell.longest {
            (cell.longest, cell.letter) = (covered, letter(bar));
        }
    }
}

fn letter(bar: &Bar) -> char {
    let digit = |first: u8, count: u32| char::from(first + (bar.label % count) as u8);
    match bar.purpose {
        Purpose::Forward => digit(b'0', 10),
        Purpose::Backward => digit(b'a', 26),
        Purpose::Transfer => '-',
        Purpose::Synchronise => '=',
        Purpose::SwapIn => '<',
        Purpose::SwapOut => '>',
        Purpose::Update => '*',
    }
}

fn colour(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Forward => "#4477aa",
        Purpose::Backward => "#66aa55",
        Purpose::Transfer => "#ccbb44",
        Purpose::Synchronise => "#ee6677",
        Purpose::SwapIn => "#66ccee",
        Purpose::SwapOut => "#aa3377",
        Purpose::Update => "#222222",
    }
}

fn word(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Forward => "forward",
        Purpose::Backward => "backward",
        Purpose::Transfer => "transfer",
        Purpose::Synchronise => "synchronise",
        Purpose::SwapIn => "swap in",
        Purpose::SwapOut => "swap out",
        Purpose::Update => "update",
    }
}

fn escaped(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_shows_what_fills_most_of_it() {
        let bar = |row, start, end, purpose, label| Bar { row, start, end, purpose, label };
        let timeline = Timeline {
            rows: vec!["a".to_owned(), "b<".to_owned()],
            bars: vec![
                bar(0, 0.0, 4.0, Purpose::Forward, 0),
                bar(0, 4.0, 8.0, Purpose::Backward, 1),
                bar(1, 7.0, 8.0, Purpose::Synchronise, 0),
            ],
        };
        assert_eq!(timeline.text(8), "a  |0000bbbb|\nb< |.......=|\n");
        let svg = timeline.svg("x & y");
        assert!(svg.contains("x &amp; y") && svg.contains("b&lt;") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<rect").count(), 2 + 3);
    }
}
