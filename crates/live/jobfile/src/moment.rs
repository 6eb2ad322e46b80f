//! Moments as people write them.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use trainyard_types::Span;

/// When and where a text is read.
#[derive(Clone, Debug)]
pub struct Context {
    /// Now.
    pub now: Timestamp,
    /// The zone of moments that name none.
    pub zone: TimeZone,
}

/// What is expected where a moment should stand.
pub(crate) const MOMENT: &str =
    "a time such as 2026-05-01T12:00, with or without a zone, or 12:00, now+2h or tomorrow";

/// Reads a moment as seconds of Unix time.
///
/// `2026-05-01`, `2026-05-01T12:00`, `2026-05-01T12:00:00Z`, `12:00` (the next one), `now`, `now+2h`, `now+30minutes`,
/// `today`, `tomorrow`, `midnight`, `noon`. A moment without a zone is in the zone of the context.
pub fn moment(text: &str, context: &Context) -> Option<f64> {
    let text = text.trim();
    let here = context.now.to_zoned(context.zone.clone());
    let at = |civil: DateTime| {
        let zoned = civil.to_zoned(context.zone.clone()).ok()?;
        Some(seconds(zoned.timestamp()))
    };
    let next = |time: Time| {
        let civil = here.date().to_datetime(time);
        let is_over = civil <= here.datetime();
        at(if is_over { civil.checked_add(1.day()).ok()? } else { civil })
    };
    match text.to_ascii_lowercase().as_str() {
        "now" => return Some(seconds(context.now)),
        "today" => return at(here.date().to_datetime(Time::midnight())),
        "tomorrow" => {
            return at(here.date().checked_add(1.day()).ok()?.to_datetime(Time::midnight()));
        }
        "midnight" => return next(Time::midnight()),
        "noon" => return next(Time::constant(12, 0, 0, 0)),
        lower => {
            if let Some(rest) = lower.strip_prefix("now") {
                let later = rest.trim_start().strip_prefix('+')?;
                return Some(seconds(context.now) + span_in_words(later)?.as_secs_f64());
            }
        }
    }
    if text.len() > 64 {
        return None;
    }
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Some(seconds(moment)).filter(|seconds| *seconds >= 0.0);
    }
    if is_clock(text) {
        return next(text.parse::<Time>().ok()?);
    }
    let civil = text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(DateTime::from));
    at(civil.ok()?).filter(|seconds| *seconds >= 0.0)
}

/// `1hour`, `30minutes`, `2days` and everything that a length of time is elsewhere; a bare number is seconds.
fn span_in_words(text: &str) -> Option<Span> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match text[digits..].trim() {
        "second" | "seconds" => 1,
        "minute" | "minutes" => 60,
        "hour" | "hours" => 3600,
        "day" | "days" => 86_400,
        "week" | "weeks" => 7 * 86_400,
        _ => return text.parse().ok(),
    };
    let count = text[..digits].parse::<u64>().ok().filter(|count| *count <= 1_000_000)?;
    Some(Span::secs(count * unit))
}

/// `12:00` or `12:00:30`, which the parser of dates would not take for a time of today.
pub(crate) fn is_clock(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    let two_digits = |part: &&str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
    (2..=3).contains(&parts.len()) && parts.iter().all(two_digits)
}

fn seconds(moment: Timestamp) -> f64 {
    moment.as_microsecond() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::{Offset, TimeZone};

    /// 2026-05-01 10:00 UTC, seen from two hours east.
    fn context() -> Context {
        let now = "2026-05-01T10:00:00Z".parse().expect("a moment");
        Context { now, zone: TimeZone::fixed(Offset::constant(2)) }
    }

    fn after_now(text: &str) -> Option<f64> {
        let context = context();
        moment(text, &context).map(|at| at - seconds(context.now))
    }

    #[test]
    fn moments_are_understood_in_the_zone_of_the_reader() {
        for (text, hours) in [
            ("now", 0.0),
            ("now+2h", 2.0),
            ("now + 90m", 1.5),
            ("now+60", 1.0 / 60.0),
            ("now+1hour", 1.0),
            ("NOW+2days", 48.0),
            ("2026-05-01T13:00", 1.0),
            ("2026-05-01 13:00:00", 1.0),
            ("2026-05-01T13:00:00Z", 3.0),
            ("2026-05-01T13:00+02:00", 1.0),
            ("2026-05-02", 12.0),
            ("13:00", 1.0),
            ("11:00", 23.0),
            ("12:00", 24.0),
            ("12:30:00", 0.5),
            ("tomorrow", 12.0),
            ("midnight", 12.0),
            ("noon", 24.0),
            ("today", -12.0),
        ] {
            let found = after_now(text).unwrap_or_else(|| panic!("{text}"));
            assert!((found - hours * 3600.0).abs() < 1e-3, "{text}: {found}");
        }
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "soon",
            "now-1h",
            "now+",
            "now+1parsec",
            "2026-13-01",
            "25:00",
            "1:2",
            "1960-01-01",
        ] {
            assert_eq!(after_now(text), None, "{text}");
        }
    }
}
