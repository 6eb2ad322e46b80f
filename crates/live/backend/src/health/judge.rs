//! From readings to findings.

use super::{Finding, GpuSeen, HealthVerdict, Reading, xid};
use std::collections::BTreeMap;
use std::time::Duration;

/// Findings beside Xids: their names, what follows, and what they mean.
pub const FINDINGS: &[(&str, HealthVerdict, &str)] = &[
    ("gpu-lost", HealthVerdict::Quarantine, "the driver does not reach it any more"),
    ("ecc-uncorrected", HealthVerdict::Quarantine, "memory errors that ECC could not correct"),
    ("row-remap-pending", HealthVerdict::Retire, "a memory row is remapped at the next reset"),
    ("row-remap-failure", HealthVerdict::Quarantine, "a memory row could not be remapped"),
    ("too-hot", HealthVerdict::Quarantine, "as hot as where it shuts down"),
    ("hot", HealthVerdict::Tell, "slowed down for its temperature"),
    ("hot-long", HealthVerdict::Retire, "slowed down for its temperature, for long"),
    ("nvlink-down", HealthVerdict::Tell, "an NVLink that worked does not"),
    ("nvlink-errors", HealthVerdict::Tell, "errors on an NVLink"),
];

/// Errors of links are told once in this time.
const LINKS_TOLD_EVERY: Duration = Duration::from_secs(3600);

/// What follows from what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Verdicts that differ from the tables, by the name of the finding.
    pub verdicts: BTreeMap<String, HealthVerdict>,
    /// From when on a GPU that is slowed down for its temperature retires.
    pub hot_for: Duration,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { verdicts: BTreeMap::new(), hot_for: Duration::from_secs(600) }
    }
}

impl Rules {
    /// Whether a finding has that name.
    pub fn knows(code: &str) -> bool {
        let number = code.strip_prefix("xid-").and_then(|number| number.parse::<u64>().ok());
        number.is_some() || FINDINGS.iter().any(|(name, _, _)| *name == code)
    }

    fn finding(&self, code: &str, more: &str) -> Finding {
        let row = FINDINGS.iter().find(|(name, _, _)| *name == code);
        let (_, verdict, meaning) = row.expect("every finding is in the table");
        self.judged(code.to_owned(), *verdict, format!("{meaning}{more}"))
    }

    fn of_xid(&self, number: u64) -> Finding {
        let xid = xid::known(number);
        let what = format!("Xid {number}: {}", xid.meaning);
        self.judged(format!("xid-{number}"), xid.verdict, what)
    }

    fn judged(&self, code: String, usual: HealthVerdict, what: String) -> Finding {
        let verdict = self.verdicts.get(&code).copied().unwrap_or(usual);
        Finding { code, verdict, what }
    }
}

/// What was seen of GPUs so far, and what that means.
#[derive(Clone, Debug, Default)]
pub struct Judge {
    rules: Rules,
    gpus: BTreeMap<String, Memory>,
}

#[derive(Clone, Debug)]
struct Memory {
    /// The reading before, against which counters are compared.
    last: Reading,
    /// Links that have ever worked.
    links: u64,
    hot_since: Option<Duration>,
    links_told: Option<Duration>,
}

impl Judge {
    /// A judge that has seen nothing yet.
    pub fn new(rules: Rules) -> Judge {
        Judge { rules, gpus: BTreeMap::new() }
    }

    /// What a reading at a moment means, together with error numbers that were heard before it.
    ///
    /// Counters mean something when they grow: what they hold at the first reading has happened before.
    pub fn look(&mut self, at: Duration, reading: &Reading, xids: &[u64]) -> GpuSeen {
        let rules = &self.rules;
        let memory = self.gpus.entry(reading.uuid.clone()).or_insert_with(|| Memory {
            last: reading.clone(),
            links: 0,
            hot_since: None,
            links_told: None,
        });
        let mut seen = GpuSeen {
            index: reading.index,
            uuid: reading.uuid.clone(),
            stands: Vec::new(),
            happened: xids.iter().map(|number| rules.of_xid(*number)).collect(),
        };
        if reading.lost {
            seen.stands.push(rules.finding("gpu-lost", ""));
            return seen;
        }
        memory.counters(rules, reading, &mut seen);
        memory.heat(rules, (at, reading), &mut seen);
        memory.links(rules, (at, reading), &mut seen);
        memory.last = reading.clone();
        seen
    }
}

impl Memory {
    fn counters(&self, rules: &Rules, reading: &Reading, seen: &mut GpuSeen) {
        if let (Some(before), Some(now)) = (self.last.ecc_uncorrected, reading.ecc_uncorrected)
            && now > before
        {
            let more = format!(": {} more, {now} in all", now - before);
            seen.happened.push(rules.finding("ecc-uncorrected", &more));
        }
        if reading.remap_pending == Some(true) {
            seen.stands.push(rules.finding("row-remap-pending", ""));
        }
        if reading.remap_failure == Some(true) {
            seen.stands.push(rules.finding("row-remap-failure", ""));
        }
    }

    fn heat(&mut self, rules: &Rules, (at, reading): (Duration, &Reading), seen: &mut GpuSeen) {
        let reaches = |limit: Option<u32>| {
            reading.temperature.zip(limit).is_some_and(|(now, limit)| limit > 0 && now >= limit)
        };
        let degrees = reading.temperature.map_or_else(String::new, |now| format!(": {now} °C"));
        if !reading.slowed && !reaches(reading.slowdown_at) && !reaches(reading.shutdown_at) {
            self.hot_since = None;
            return;
        }
        let since = *self.hot_since.get_or_insert(at);
        let code = match () {
            () if reaches(reading.shutdown_at) => "too-hot",
            () if at.saturating_sub(since) >= rules.hot_for => "hot-long",
            () => "hot",
        };
        seen.stands.push(rules.finding(code, &degrees));
    }

    /// A link leads to another GPU, and goes down with that one too: which of the two is ill it does not tell.
    fn links(&mut self, rules: &Rules, (at, reading): (Duration, &Reading), seen: &mut GpuSeen) {
        let mut down = Vec::new();
        let (mut before, mut now) = (0, 0);
        for link in &reading.links {
            let bit = 1u64.checked_shl(u32::from(link.link)).unwrap_or(0);
            if link.active {
                self.links |= bit;
            } else if self.links & bit != 0 {
                down.push(link.link.to_string());
            }
            let last = self.last.links.iter().find(|other| other.link == link.link);
            before += last.map_or(link.errors, |last| last.errors.min(link.errors));
            now += link.errors;
        }
        if !down.is_empty() {
            let more = format!(": {}", down.join(", "));
            seen.stands.push(rules.finding("nvlink-down", &more));
        }
        let quiet = self.links_told.is_none_or(|told| at.saturating_sub(told) >= LINKS_TOLD_EVERY);
        if now > before && quiet {
            self.links_told = Some(at);
            let more = format!(": {} more", now - before);
            seen.happened.push(rules.finding("nvlink-errors", &more));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Link;
    use super::*;

    fn well() -> Reading {
        Reading {
            uuid: "GPU-0".to_owned(),
            ecc_uncorrected: Some(2),
            remap_pending: Some(false),
            remap_failure: Some(false),
            temperature: Some(60),
            slowdown_at: Some(90),
            shutdown_at: Some(95),
            links: vec![Link { link: 0, active: true, errors: 4 }],
            ..Reading::default()
        }
    }

    fn codes(findings: &[Finding]) -> Vec<(&str, HealthVerdict)> {
        findings.iter().map(|finding| (finding.code.as_str(), finding.verdict)).collect()
    }

    #[test]
    fn each_sign_of_illness_has_its_verdict() {
        use HealthVerdict::{Quarantine, Retire, Tell};
        let link = |active, errors| vec![Link { link: 0, active, errors }];
        let cases = [
            ("well", well(), vec![], vec![]),
            ("lost", Reading { lost: true, ..well() }, vec![("gpu-lost", Quarantine)], vec![]),
            (
                "more uncorrected errors",
                Reading { ecc_uncorrected: Some(3), ..well() },
                vec![],
                vec![("ecc-uncorrected", Quarantine)],
            ),
            (
                "fewer, after a reset of the counter",
                Reading { ecc_uncorrected: Some(0), ..well() },
                vec![],
                vec![],
            ),
            (
                "a row to be remapped",
                Reading { remap_pending: Some(true), ..well() },
                vec![("row-remap-pending", Retire)],
                vec![],
            ),
            (
                "a row that could not be remapped",
                Reading { remap_failure: Some(true), ..well() },
                vec![("row-remap-failure", Quarantine)],
                vec![],
            ),
            ("hot", Reading { temperature: Some(90), ..well() }, vec![("hot", Tell)], vec![]),
            ("slowed down", Reading { slowed: true, ..well() }, vec![("hot", Tell)], vec![]),
            (
                "about to shut down",
                Reading { temperature: Some(95), ..well() },
                vec![("too-hot", Quarantine)],
                vec![],
            ),
            (
                "thresholds that are not told",
                Reading { slowdown_at: Some(0), shutdown_at: None, ..well() },
                vec![],
                vec![],
            ),
            (
                "a link down",
                Reading { links: link(false, 4), ..well() },
                vec![("nvlink-down", Tell)],
                vec![],
            ),
            (
                "errors on a link",
                Reading { links: link(true, 9), ..well() },
                vec![],
                vec![("nvlink-errors", Tell)],
            ),
        ];
        for (name, reading, stands, happened) in cases {
            let mut judge = Judge::new(Rules::default());
            judge.look(Duration::ZERO, &well(), &[]);
            let seen = judge.look(Duration::from_secs(5), &reading, &[]);
            assert_eq!(codes(&seen.stands), stands, "{name}");
            assert_eq!(codes(&seen.happened), happened, "{name}");
        }
    }

    #[test]
    fn what_counters_hold_at_the_first_reading_has_happened_before() {
        let mut judge = Judge::new(Rules::default());
        let seen = judge.look(Duration::ZERO, &well(), &[]);
        assert_eq!(seen.happened, []);
        let more = Reading { ecc_uncorrected: Some(3), ..well() };
        assert_eq!(judge.look(Duration::from_secs(5), &more, &[]).happened.len(), 1);
        assert_eq!(judge.look(Duration::from_secs(9), &more, &[]).happened, [], "told once");
    }

    #[test]
    fn a_gpu_that_stays_hot_retires_and_one_that_cools_down_begins_anew() {
        let mut judge = Judge::new(Rules::default());
        let hot = Reading { slowed: true, ..well() };
        for (second, reading, expected) in [
            (0, &hot, "hot"),
            (599, &hot, "hot"),
            (600, &hot, "hot-long"),
            (610, &well(), ""),
            (620, &hot, "hot"),
        ] {
            let seen = judge.look(Duration::from_secs(second), reading, &[]);
            let code = seen.stands.first().map_or("", |finding| finding.code.as_str());
            assert_eq!(code, expected, "after {second} s");
        }
    }

    #[test]
    fn xids_follow_the_table_unless_a_rule_says_otherwise() {
        let verdicts = BTreeMap::from([("xid-63".to_owned(), HealthVerdict::Tell)]);
        let mut judge = Judge::new(Rules { verdicts, ..Rules::default() });
        let seen = judge.look(Duration::ZERO, &well(), &[31, 79, 63, 4000]);
        let expected = [
            ("xid-31", HealthVerdict::Application),
            ("xid-79", HealthVerdict::Quarantine),
            ("xid-63", HealthVerdict::Tell),
            ("xid-4000", HealthVerdict::Tell),
        ];
        assert_eq!(codes(&seen.happened), expected);
        assert!(seen.happened[1].what.contains("fallen off the bus"));
        assert!(Rules::knows("xid-79") && Rules::knows("hot") && !Rules::knows("cold"));
    }
}
