//! How jobs are put aside in host memory.

use crate::Span;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How a host puts jobs aside, as data: a host without such a rule cannot.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspendRule {
    /// Host memory of each node that jobs put aside may take together.
    pub memory_mib: u64,
    /// So long a job waits for its own GPUs; after that it goes wherever there is room, at the price of its state.
    pub away_max: Span,
}

impl SuspendRule {
    /// How long a job waits for its own GPUs unless it is said otherwise.
    pub const AWAY_MAX: Span = Span::secs(600);

    /// What a rule looks like.
    pub const EXPECTED: &str = "an amount of memory such as 64GiB or 500MiB, perhaps with how long a job waits for its own GPUs, as in 64GiB,away=10m";
}

/// That a text is no rule.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct NoSuspendRule;

impl FromStr for SuspendRule {
    type Err = NoSuspendRule;

    /// Reads `64GiB` and `64GiB,away=10m`; 0 bytes is a rule by which nothing has room.
    fn from_str(text: &str) -> Result<SuspendRule, NoSuspendRule> {
        let (memory, away) = match text.split_once(',') {
            Some((memory, rest)) => {
                let away = rest.trim().strip_prefix("away=").ok_or(NoSuspendRule)?;
                (memory, away.parse::<Span>().map_err(|_| NoSuspendRule)?)
            }
            None => (text, SuspendRule::AWAY_MAX),
        };
        let memory = memory.trim();
        let digits = memory.find(|c: char| !c.is_ascii_digit()).unwrap_or(memory.len());
        let number: u64 = memory[..digits].parse().map_err(|_| NoSuspendRule)?;
        let each: u64 = match memory[digits..].trim() {
            "" if number == 0 => 0,
            "MiB" | "M" => 1,
            "GiB" | "G" => 1 << 10,
            "TiB" | "T" => 1 << 20,
            _ => return Err(NoSuspendRule),
        };
        let memory_mib = number.checked_mul(each).filter(|memory| *memory <= 1 << 40);
        Ok(SuspendRule { memory_mib: memory_mib.ok_or(NoSuspendRule)?, away_max: away })
    }
}

impl fmt::Display for SuspendRule {
    /// The form that [`FromStr`] reads back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}MiB,away={}", self.memory_mib, self.away_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_reads_back_what_it_prints() {
        let rule: SuspendRule = "64GiB".parse().unwrap();
        assert_eq!(rule, SuspendRule { memory_mib: 65_536, away_max: SuspendRule::AWAY_MAX });
        let rule: SuspendRule = "500MiB,away=90s".parse().unwrap();
        assert_eq!(rule, SuspendRule { memory_mib: 500, away_max: Span::secs(90) });
        assert_eq!(rule.to_string().parse(), Ok(rule));
        assert_eq!("0".parse::<SuspendRule>().unwrap().memory_mib, 0);
        for text in
            ["", "64", "GiB", "64 parsecs", "-1GiB", "64GiB,away", "64GiB,for=1s", "64GiB,away=x"]
        {
            assert_eq!(text.parse::<SuspendRule>(), Err(NoSuspendRule), "{text}");
        }
    }
}
