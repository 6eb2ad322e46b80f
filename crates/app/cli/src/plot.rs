//! A curve drawn with characters, over a logarithmic axis of GPUs.

/// Rows of the drawing, without the axis.
const HEIGHT: usize = 9;
/// The widest drawing, without the axis.
const WIDTH_MAX: usize = 72;
/// Room for the numbers of the upright axis.
const MARGIN: usize = 9;

/// A curve to draw.
pub struct Curve<'a> {
    /// The largest number of GPUs.
    pub most: u32,
    /// Steps per second at a number of GPUs.
    pub rate: &'a dyn Fn(u32) -> f64,
    /// Measured points: GPUs, steps per second, and whether on more nodes than needed.
    pub measured: &'a [(u32, f64, bool)],
}

/// Draws a curve: `o` for a point, `x` for one that is spread, `.` for what lies between.
pub fn draw(curve: &Curve<'_>, width: Option<u16>) -> String {
    let doublings = f64::from(curve.most.max(2)).log2();
    let room = usize::from(width.unwrap_or(80)).saturating_sub(MARGIN + 3);
    let columns = room.clamp(16, WIDTH_MAX);
    let column_of = |gpus: u32| {
        (f64::from(gpus.max(1)).log2() / doublings * (columns - 1) as f64).round() as usize
    };
    let line: Vec<f64> = (0..columns)
        .map(|column| {
            let gpus = (doublings * column as f64 / (columns - 1) as f64).exp2().round();
            (curve.rate)((gpus as u32).max(1))
        })
        .collect();
    let rates = line.iter().copied().chain(curve.measured.iter().map(|point| point.1));
    let top = rates.fold(f64::MIN_POSITIVE, f64::max);
    let row_of = |rate: f64| {
        let part = (rate / top).clamp(0.0, 1.0);
        HEIGHT - 1 - (part * (HEIGHT - 1) as f64).round() as usize
    };
    let mut grid = vec![vec![' '; columns]; HEIGHT];
    for (column, rate) in line.iter().enumerate() {
        grid[row_of(*rate)][column] = '.';
    }
    // Packed points come last and stay visible where both are.
    for is_spread in [true, false] {
        for point in curve.measured.iter().filter(|point| point.2 == is_spread) {
            let column = column_of(point.0).min(columns - 1);
            grid[row_of(point.1)][column] = if is_spread { 'x' } else { 'o' };
        }
    }
    let mut text = String::new();
    for (index, row) in grid.iter().enumerate() {
        let label = match index {
            index if index % 4 == 0 => {
                number(top * (HEIGHT - 1 - index) as f64 / (HEIGHT - 1) as f64)
            }
            _ => String::new(),
        };
        let drawn: String = row.iter().collect();
        text.push_str(&format!("{label:>MARGIN$} |{}\n", drawn.trim_end()));
    }
    text.push_str(&format!("{:>MARGIN$} +{}\n", "steps/s", "-".repeat(columns)));
    text.push_str(&format!("{:>MARGIN$}  {}\n", "GPUs", ticks(curve.most, columns, column_of)));
    text
}

/// Powers of two under the axis, as many as have room.
fn ticks(most: u32, columns: usize, column_of: impl Fn(u32) -> usize) -> String {
    let mut line = String::new();
    let mut gpus = 1;
    while gpus <= most && gpus < 1 << 30 {
        let label = gpus.to_string();
        let at = column_of(gpus).min(columns.saturating_sub(label.len()));
        if line.is_empty() || at > line.len() + 1 {
            line.push_str(&" ".repeat(at.saturating_sub(line.len())));
            line.push_str(&label);
        }
        gpus *= 2;
    }
    line
}

/// A number by four digits: `0.0344`, `12.35`, `2,345`.
pub fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = value.abs().log10().floor() as i32;
    match digits {
        ..=-5 | 7.. => format!("{value:.2e}"),
        4..=6 => trainyard_report::units::grouped(value),
        _ => format!("{value:.0$}", (3 - digits).clamp(0, 7) as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_rises_from_left_to_right_and_points_are_marked() {
        let measured = [(1, 1.0, false), (8, 8.0, false), (8, 4.0, true)];
        let curve = Curve { most: 8, rate: &|gpus| f64::from(gpus), measured: &measured };
        let text = draw(&curve, Some(40));
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), HEIGHT + 2);
        assert!(rows[0].contains("8.000 |") && rows[0].ends_with('o'), "{text}");
        assert!(rows[4].ends_with('x') && rows[7].contains("|o"), "{text}");
        assert!(rows[10].ends_with("8") && rows[10].contains("1 "), "{text}");
        assert!(rows.iter().all(|row| row.len() <= 40), "{text}");
    }

    #[test]
    fn numbers_have_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.0344, "0.03440"),
            (12.345, "12.35"),
            (23456.0, "23,456"),
            (1e-9, "1.00e-9"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
