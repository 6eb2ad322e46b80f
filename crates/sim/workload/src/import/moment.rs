//! Calendar times as they stand in logs.

/// A moment: seconds since 1970 in UTC, and whether the text said in which zone it is.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Moment {
    pub seconds: f64,
    pub has_zone: bool,
}

/// What is expected where a moment should stand.
pub(crate) const MOMENT: &str =
    "a time from 1970 to 2200 such as 2020-04-01 12:30:00, with a zone or without";

/// Reads `2020-04-01 12:30:00`, with `T`, fractions, `Z` or `+08:00` if they are there.
pub(crate) fn parse(text: &str) -> Option<Moment> {
    let bytes = text.as_bytes();
    if bytes.len() < 19 || !text.is_ascii() || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    if !matches!(bytes[10], b' ' | b'T' | b't') || bytes[13] != b':' || bytes[16] != b':' {
        return None;
    }
    let [year, month, day] = [digits(&bytes[0..4])?, digits(&bytes[5..7])?, digits(&bytes[8..10])?];
    let clock = [digits(&bytes[11..13])?, digits(&bytes[14..16])?, digits(&bytes[17..19])?];
    if !(1970..=2200).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    if !(1..=days_in(year, month)).contains(&day) {
        return None;
    }
    // A leap second counts as the one before it.
    if clock[0] > 23 || clock[1] > 59 || clock[2] > 60 {
        return None;
    }
    let (part, rest) = fraction(&text[19..])?;
    let offset = zone(rest.trim())?;
    let whole =
        days(year, month, day) * 86_400 + clock[0] * 3600 + clock[1] * 60 + clock[2].min(59)
            - offset.unwrap_or(0);
    (whole >= 0).then_some(Moment { seconds: whole as f64 + part, has_zone: offset.is_some() })
}

/// The same moment as text, in UTC.
pub(crate) fn text(seconds: f64) -> String {
    let whole = seconds.clamp(0.0, 1e11) as i64;
    let (days, clock) = (whole / 86_400, whole % 86_400);
    // Civil date from days, as in Hinnant's chrono-compatible algorithms.
    let z = days + 719_468;
    let era = z / 146_097;
    let of_era = z - era * 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

fn digits(bytes: &[u8]) -> Option<i64> {
    bytes.iter().try_fold(0i64, |number, byte| {
        byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0'))
    })
}

fn fraction(text: &str) -> Option<(f64, &str)> {
    let Some(rest) = text.strip_prefix(['.', ',']) else { return Some((0.0, text)) };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    if end == 0 || end > 12 {
        return None;
    }
    Some((format!("0.{}", &rest[..end]).parse().ok()?, &rest[end..]))
}

/// The offset from UTC in seconds; `Some(None)` when none is stated.
fn zone(text: &str) -> Option<Option<i64>> {
    if text.is_empty() {
        return Some(None);
    }
    if matches!(text, "Z" | "z" | "UTC") {
        return Some(Some(0));
    }
    let sign = match text.as_bytes()[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let plain: String = text[1..].chars().filter(|c| *c != ':').collect();
    let (hours, minutes) = match plain.len() {
        2 => (digits(plain.as_bytes())?, 0),
        4 => (digits(&plain.as_bytes()[..2])?, digits(&plain.as_bytes()[2..])?),
        _ => return None,
    };
    (hours <= 15 && minutes < 60).then_some(Some(sign * (hours * 3600 + minutes * 60)))
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970-01-01.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year / 400;
    let of_era = year - era * 400;
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<f64> {
        parse(text).map(|moment| moment.seconds)
    }

    #[test]
    fn zones_and_fractions_are_understood() {
        assert_eq!(seconds("1970-01-01 00:00:00"), Some(0.0));
        assert_eq!(seconds("2017-10-09 07:01:55"), Some(1_507_532_515.0));
        assert_eq!(seconds("2023-03-01 08:00:00+08:00"), seconds("2023-03-01T00:00:00Z"));
        assert_eq!(seconds("2024-02-29T12:00:00.5Z"), Some(1_709_208_000.5));
        assert!(parse("2023-03-01 08:00:00+0800").unwrap().has_zone);
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in ["", "2023-02-29 00:00:00", "2023-13-01 00:00:00", "1969-12-31 23:59:59"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("2023-01-01 25:00:00"), None);
        assert_eq!(parse("2023-01-01 00:00:00 CEST"), None);
    }

    #[test]
    fn a_moment_reads_back_from_its_text() {
        for moment in ["2000-02-29 23:59:59", "1970-01-01 00:00:00", "2038-12-31 01:02:03"] {
            assert_eq!(text(seconds(moment).unwrap()), format!("{moment} UTC"));
        }
    }
}
