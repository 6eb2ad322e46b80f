//! Integer time, and the two real-valued quantities: work and rate.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

/// Microseconds since the start of the run. Integers, so that equal means equal.
#[derive(
    Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub u64);

/// A length of time in microseconds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

/// An amount of training: steps, possibly a fraction of one.
#[derive(Copy, Clone, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Work(pub f64);

/// Steps per second.
#[derive(Copy, Clone, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(pub f64);

impl Time {
    /// The start of the run.
    pub const ZERO: Time = Time(0);
    /// Later than anything that happens.
    pub const NEVER: Time = Time(u64::MAX);

    /// A moment given in seconds; fractions below a microsecond are rounded to the nearest one.
    pub fn from_secs_f64(seconds: f64) -> Time {
        Time(Span::from_secs_f64(seconds).0)
    }

    /// The moment in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    pub fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// Longer than any run.
    pub const MAX: Span = Span(u64::MAX);

    /// A length in whole seconds.
    pub const fn secs(seconds: u64) -> Span {
        Span(seconds.saturating_mul(1_000_000))
    }

    /// A length in seconds, to the nearest microsecond; negative and not-a-number become zero.
    pub fn from_secs_f64(seconds: f64) -> Span {
        // `as` saturates: negative and NaN become 0, too large becomes the largest.
        Span((seconds * 1e6 + 0.5) as u64)
    }

    /// The length in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// This length `count` times.
    pub fn times(self, count: u64) -> Span {
        Span(self.0.saturating_mul(count))
    }

    /// This length times a real factor.
    pub fn scaled(self, factor: f64) -> Span {
        Span((self.0 as f64 * factor + 0.5) as u64)
    }

    /// The difference, or zero if `other` is longer.
    pub fn minus(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl Work {
    /// No work.
    pub const ZERO: Work = Work(0.0);
}

impl Add for Work {
    type Output = Work;
    fn add(self, other: Work) -> Work {
        Work(self.0 + other.0)
    }
}

impl Sub for Work {
    type Output = Work;
    /// Never below zero.
    fn sub(self, other: Work) -> Work {
        Work((self.0 - other.0).max(0.0))
    }
}

impl Rate {
    /// Work done in `span`.
    pub fn over(self, span: Span) -> Work {
        Work(self.0 * span.as_secs_f64())
    }

    /// How long `work` takes, rounded up to the microsecond; forever at rate zero.
    pub fn time_for(self, work: Work) -> Span {
        if work.0 <= 0.0 {
            return Span::ZERO;
        }
        if self.0 <= 0.0 {
            return Span::MAX;
        }
        // The tolerance keeps a finish that is whole but for rounding from slipping to the next microsecond.
        Span((work.0 / self.0 * 1e6 - 1e-4).ceil().max(0.0) as u64)
    }
}

/// Why a length of time could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// Nothing was given.
    #[error("expected a length of time such as `90s`, `5m`, `1h30m` or `1:30:00`, found nothing")]
    Empty,
    /// A number was expected.
    #[error("expected a number at `{rest}` in the length of time `{text}`")]
    Number {
        /// The whole text.
        text: String,
        /// Where it went wrong.
        rest: String,
    },
    /// The unit is missing or unknown.
    #[error("unknown unit at `{rest}` in the length of time `{text}`; use us, ms, s, m, h or d")]
    Unit {
        /// The whole text.
        text: String,
        /// Where it went wrong.
        rest: String,
    },
    /// A form with colons that no clock shows.
    #[error(
        "`{text}` is no length of time: expected hours:minutes:seconds such as `1:00:00`, minutes:seconds, or days-hours:minutes"
    )]
    Clock {
        /// The whole text.
        text: String,
    },
    /// The sum does not fit.
    #[error("the length of time `{text}` is too long")]
    Overflow {
        /// The whole text.
        text: String,
    },
}

const UNITS: [(&str, f64); 6] =
    [("us", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 6e7), ("h", 3.6e9), ("d", 8.64e10)];

impl FromStr for Span {
    type Err = SpanError;

    /// Reads `90s`, `1h30m`, `0.5d`, and `1:00:00`, `30:00`, `2-12:00` as Slurm does; a bare number is seconds.
    fn from_str(text: &str) -> Result<Span, SpanError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(SpanError::Empty);
        }
        if text.contains(':') {
            return clock_form(text).ok_or_else(|| SpanError::Clock { text: text.to_owned() });
        }
        if let Ok(seconds) = text.parse::<f64>()
            && seconds.is_finite()
            && (0.0..=1e12).contains(&seconds)
        {
            return Ok(Span::from_secs_f64(seconds));
        }
        let mut rest = text;
        let mut total = 0.0;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let number = rest[..digits]
                .parse::<f64>()
                .map_err(|_| SpanError::Number { text: text.to_owned(), rest: rest.to_owned() })?;
            rest = &rest[digits..];
            let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
            let unit = UNITS
                .iter()
                .find(|(name, _)| *name == &rest[..letters])
                .ok_or_else(|| SpanError::Unit { text: text.to_owned(), rest: rest.to_owned() })?;
            total += number * unit.1;
            rest = &rest[letters..];
        }
        if total > 1e18 {
            return Err(SpanError::Overflow { text: text.to_owned() });
        }
        Ok(Span((total + 0.5) as u64))
    }
}

/// `minutes:seconds`, `hours:minutes:seconds`, `days-hours:minutes` or `days-hours:minutes:seconds`.
fn clock_form(text: &str) -> Option<Span> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(clock_part(days)?), clock),
        None => (None, text),
    };
    let parts = clock.split(':').map(clock_part).collect::<Option<Vec<u64>>>()?;
    let (hours, minutes, seconds) = match (days, parts.as_slice()) {
        (None, [minutes, seconds]) => (0, *minutes, *seconds),
        (Some(_), [hours, minutes]) => (*hours, *minutes, 0),
        (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
        _ => return None,
    };
    let (leads_hours, leads_minutes) = (days.is_none(), parts.len() == 2 && days.is_none());
    let fits = seconds < 60 && (leads_minutes || minutes < 60) && (leads_hours || hours < 24);
    fits.then(|| Span::secs(((days.unwrap_or(0) * 24 + hours) * 60 + minutes) * 60 + seconds))
}

/// A whole number of at most six digits, so that no sum of them is too long.
fn clock_part(text: &str) -> Option<u64> {
    let plain = (1..=6).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

impl fmt::Display for Span {
    /// The shortest exact form that [`FromStr`] reads back: `1h30m`, `250ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return write!(f, "0s");
        }
        let mut rest = self.0;
        for (size, name) in [
            (86_400_000_000, "d"),
            (3_600_000_000, "h"),
            (60_000_000, "m"),
            (1_000_000, "s"),
            (1_000, "ms"),
            (1, "us"),
        ] {
            if rest >= size {
                write!(f, "{}{name}", rest / size)?;
                rest %= size;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Span(self.0).fmt(f)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    /// Text with units, or a bare number of seconds.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Span;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    f,
                    "a length of time such as \"90s\", \"1h30m\" or \"1:30:00\", or a number of seconds"
                )
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_f64<E: serde::de::Error>(self, seconds: f64) -> Result<Span, E> {
                if !(0.0..=1e12).contains(&seconds) {
                    return Err(E::custom(format!("{seconds} seconds is not a length of time")));
                }
                Ok(Span::from_secs_f64(seconds))
            }
            fn visit_i64<E: serde::de::Error>(self, seconds: i64) -> Result<Span, E> {
                self.visit_f64(seconds as f64)
            }
            fn visit_u64<E: serde::de::Error>(self, seconds: u64) -> Result<Span, E> {
                self.visit_f64(seconds as f64)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_reads_back_what_it_prints() {
        for micros in [0, 1, 999, 1_000, 1_500_000, 5_400_000_000, 90_061_000_001] {
            let span = Span(micros);
            assert_eq!(span.to_string().parse::<Span>(), Ok(span));
        }
        assert_eq!("1h30m".parse(), Ok(Span::secs(5400)));
        assert_eq!("90".parse(), Ok(Span::secs(90)));
        assert!(matches!("5 parsecs".parse::<Span>(), Err(SpanError::Unit { .. })));
        assert!(matches!("-5s".parse::<Span>(), Err(SpanError::Number { .. })));
        assert!(matches!("99999999999999d".parse::<Span>(), Err(SpanError::Overflow { .. })));
    }

    #[test]
    fn the_form_of_a_clock_and_the_form_with_units_are_the_same_length() {
        for (clock, units) in [
            ("1:00:00", "1h"),
            ("01:00:00", "1h"),
            ("100:00:00", "100h"),
            ("90:00", "90m"),
            ("0:30", "30s"),
            ("1-0:00", "1d"),
            ("2-12:30:05", "2d12h30m5s"),
        ] {
            assert_eq!(clock.parse::<Span>(), units.parse(), "{clock}");
        }
        for wrong in
            ["1:60:00", "1:00:60", "1-24:00", "1:", ":30", "1:2:3:4", "1h:00", "-1:00", "1.5:00"]
        {
            assert!(matches!(wrong.parse::<Span>(), Err(SpanError::Clock { .. })), "{wrong}");
        }
    }

    #[test]
    fn rate_rounds_a_finish_up_but_not_a_whole_one() {
        assert_eq!(Rate(3.0).time_for(Work(3.0)), Span::secs(1));
        assert_eq!(Rate(3.0).time_for(Work(1.0)), Span(333_334));
        assert_eq!(Rate(0.0).time_for(Work(1.0)), Span::MAX);
    }
}
