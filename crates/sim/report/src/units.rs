//! How numbers are written for people.

/// What a number is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A length of time in seconds.
    Seconds,
    /// A part of one, written in percent.
    Part,
    /// A factor.
    Factor,
    /// A number up to 1, of which small differences count.
    Index,
    /// How many.
    Count,
    /// GPU-hours.
    GpuHours,
    /// Money, in the currency of the cluster's prices.
    Money,
}

impl Unit {
    /// A number of this unit, short enough for a cell.
    pub fn text(self, value: f64) -> String {
        match self {
            Unit::Seconds => span_text(value),
            Unit::Part => format!("{:.1} %", value * 100.0),
            Unit::Index => format!("{value:.3}"),
            Unit::Factor if value < 100.0 => format!("{value:.2}"),
            // What is small is not nothing.
            Unit::GpuHours | Unit::Money if (0.0..9.95).contains(&value.abs()) && value != 0.0 => {
                format!("{value:.2}")
            }
            Unit::GpuHours | Unit::Money if value != 0.0 && value.abs() < 99.95 => {
                format!("{value:.1}")
            }
            Unit::Factor | Unit::GpuHours | Unit::Money => grouped(value),
            Unit::Count => grouped(value),
        }
    }
}

/// A length of time by its two largest units: `2d04h`, `1h05m`, `3m20s`, `12.5s`, `350ms`.
pub fn span_text(seconds: f64) -> String {
    if seconds < 1.0 {
        let millis = (seconds * 1000.0).round();
        return if millis == 0.0 { "0s".to_owned() } else { format!("{millis}ms") };
    }
    if seconds < 60.0 {
        return format!("{:.1}s", seconds).replace(".0s", "s");
    }
    let whole = seconds.round() as u64;
    match whole {
        0..3600 => format!("{}m{:02}s", whole / 60, whole % 60),
        3600..86_400 => format!("{}h{:02}m", whole / 3600, whole % 3600 / 60),
        _ => format!("{}d{:02}h", whole / 86_400, whole % 86_400 / 3600),
    }
}

/// A number without decimals, in groups of three digits: `12,345`.
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 && digits != "0" { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_show_their_two_largest_units() {
        let texts: Vec<String> =
            [0.0, 0.35, 12.5, 59.0, 200.0, 3900.0, 187_200.0].map(span_text).to_vec();
        assert_eq!(texts, ["0s", "350ms", "12.5s", "59s", "3m20s", "1h05m", "2d04h"]);
    }

    #[test]
    fn a_number_has_about_three_digits_and_what_is_small_is_not_written_as_nothing() {
        let texts = [0.0, 0.04, 3.456, 42.21, 1234.5].map(|value| Unit::Money.text(value));
        assert_eq!(texts, ["0", "0.04", "3.46", "42.2", "1,234"]);
    }

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!(grouped(1_234_567.4), "1,234,567");
        assert_eq!(grouped(999.0), "999");
        assert_eq!(grouped(-0.2), "0");
    }
}
