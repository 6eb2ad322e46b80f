//! Jobs that told of their steps and tell of none any more.
//!
//! Nothing here acts: from what a job told and when, it follows whether it hangs. A job that never told of steps is
//! never said to hang, and neither is one that starts, saves or stops: the caller leaves those out.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use trainyard_types::{Attempt, Span, Time};

/// Advances that are remembered: the usual time between two is the middle one of these.
const GAPS_MAX: usize = 16;
/// So many must be known before anything is called usual.
const GAPS_LEAST: usize = 3;
/// Ranks that are remembered of a job.
const RANKS_MAX: usize = 1024;
/// How long a save that was told of may take before it is no excuse any more.
const SAVING_MAX: Span = Span::secs(3600);

/// From when on a job hangs.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Rule {
    /// After so many times its usual time between two advances ...
    pub times: f64,
    /// ... and after this long at least.
    pub least: Span,
}

impl Default for Rule {
    fn default() -> Rule {
        Rule { times: 10.0, least: Span::secs(300) }
    }
}

/// That a job hangs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hang {
    /// Since when it has not advanced, in engine time.
    pub since: Time,
    /// The same in microseconds of Unix time; filled in by the caller, which knows the wall clock.
    #[serde(default)]
    pub wall: i64,
    /// How long it usually takes from one advance to the next.
    pub usual: Span,
    /// The rank that is behind the others, where ranks tell.
    pub rank: Option<u32>,
}

/// Whether a job hangs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Too little is known of it to tell.
    Unknown,
    /// It does not, and cannot before this moment.
    Well {
        /// When to look again.
        until: Time,
    },
    /// It does.
    Hung(Hang),
}

/// What a job told of its progress in its present attempt.
#[derive(Clone, Debug)]
pub struct Watch {
    attempt: Attempt,
    /// How far it was, and when it was last further than before.
    last: Option<(f64, Time)>,
    gaps: VecDeque<Span>,
    /// Seconds of one step, as it told.
    step: Option<Span>,
    /// A sign of life that is no step: a checkpoint written or read, or that the daemon began to look.
    sign: Time,
    saving: Option<Time>,
    ranks: BTreeMap<u32, (f64, Time)>,
    /// What was usual before a restart of the daemon.
    kept: Option<Span>,
    /// That it was said to hang.
    pub hung: Option<Hang>,
    /// Whether its user's answer to that was carried out.
    pub acted: bool,
    /// Whether a look is due at some moment.
    pub looked_for: bool,
}

/// What must survive a restart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedState {
    /// Of which attempt.
    pub attempt: Attempt,
    /// How long it usually takes from one advance to the next.
    pub usual: Span,
    /// That it was said to hang.
    #[serde(default)]
    pub hung: Option<Hang>,
    /// Whether its user's answer to that was carried out.
    #[serde(default)]
    pub acted: bool,
}

impl Watch {
    /// Of an attempt that has told nothing yet.
    pub fn new(attempt: Attempt, now: Time) -> Watch {
        Watch {
            attempt,
            last: None,
            gaps: VecDeque::new(),
            step: None,
            sign: now,
            saving: None,
            ranks: BTreeMap::new(),
            kept: None,
            hung: None,
            acted: false,
            looked_for: false,
        }
    }

    /// As it was kept; its time without progress is counted from now on, because no daemon listened before.
    pub fn from_kept(kept: &SavedState, now: Time) -> Watch {
        Watch {
            kept: Some(kept.usual),
            hung: kept.hung,
            acted: kept.acted,
            ..Watch::new(kept.attempt, now)
        }
    }

    /// What must survive a restart; nothing as long as nothing is usual.
    pub fn keep(&self) -> Option<SavedState> {
        let (attempt, usual) = (self.attempt, self.usual()?);
        Some(SavedState { attempt, usual, hung: self.hung, acted: self.acted })
    }

    /// The attempt it is about.
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// It told how far it is. Whether that is further than before.
    pub fn progress(
        &mut self,
        now: Time,
        (done, step_seconds): (Option<f64>, Option<f64>),
        ranks: &BTreeMap<u32, f64>,
    ) -> bool {
        let step = step_seconds.filter(|seconds| seconds.is_finite() && *seconds > 0.0);
        self.step = step.map(Span::from_secs_f64).or(self.step);
        let mut advanced = false;
        for (rank, done) in ranks.iter().filter(|(_, done)| done.is_finite()) {
            let known = self.ranks.get(rank);
            let further = known.is_none_or(|(before, _)| done > before);
            if further && (known.is_some() || self.ranks.len() < RANKS_MAX) {
                self.ranks.insert(*rank, (*done, now));
                advanced = true;
            }
        }
        if let Some(done) = done.filter(|done| done.is_finite()) {
            let further = self.last.is_none_or(|(before, _)| done > before);
            if let (true, Some((_, then))) = (further, self.last) {
                self.gaps.push_back(now.since(then));
                if self.gaps.len() > GAPS_MAX {
                    self.gaps.pop_front();
                }
            }
            if further {
                self.last = Some((done, now));
                advanced = true;
            }
        }
        if advanced {
            self.saving = None;
        }
        advanced
    }

    /// It begins to write a checkpoint.
    pub fn saving(&mut self, now: Time) {
        self.saving = Some(now);
    }

    /// It wrote or read a checkpoint.
    pub fn sign(&mut self, now: Time) {
        (self.sign, self.saving) = (now, None);
    }

    /// How long it usually takes from one advance to the next, once that is known: a job that tells of every hundredth
    /// step is not late at the second.
    pub fn usual(&self) -> Option<Span> {
        if self.gaps.len() < GAPS_LEAST {
            return self.kept;
        }
        let mut gaps: Vec<Span> = self.gaps.iter().copied().collect();
        gaps.sort_unstable();
        let middle = gaps[gaps.len() / 2];
        Some(self.step.map_or(middle, |step| step.max(middle)))
    }

    /// Whether it hangs.
    pub fn judge(&self, now: Time, rule: &Rule) -> Judgement {
        let Some(usual) = self.usual() else { return Judgement::Unknown };
        let limit = rule.least.max(usual.scaled(rule.times));
        if let Some(begun) = self.saving
            && now < begun + SAVING_MAX.max(limit)
        {
            return Judgement::Well { until: begun + SAVING_MAX.max(limit) };
        }
        let whole = self.last.map(|(_, at)| at);
        let each = self.ranks.values().map(|(_, at)| *at);
        // A rank that has not reported since counts from the last sign.
        let oldest = whole.into_iter().chain(each).min().unwrap_or(self.sign).max(self.sign);
        if now < oldest + limit {
            return Judgement::Well { until: oldest + limit };
        }
        Judgement::Hung(Hang { since: oldest, wall: 0, usual, rank: self.behind() })
    }

    /// The rank that has done least, the first to fall silent of those; none where all have done the same.
    fn behind(&self) -> Option<u32> {
        let done = |(_, (done, _)): (&u32, &(f64, Time))| *done;
        let most = self.ranks.iter().map(done).max_by(f64::total_cmp)?;
        let least = self.ranks.iter().map(done).min_by(f64::total_cmp)?;
        let of_least = self.ranks.iter().filter(|(_, (done, _))| *done == least);
        let first = of_least.min_by_key(|(rank, (_, at))| (*at, **rank));
        first.map(|(rank, _)| *rank).filter(|_| least < most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule { times: 10.0, least: Span::secs(60) };

    fn at(second: u64) -> Time {
        Time(second * 1_000_000)
    }

    /// Tells of a step at each of these seconds.
    fn told(seconds: &[u64]) -> Watch {
        let mut watch = Watch::new(Attempt(1), at(0));
        for (second, done) in seconds.iter().zip(1u32..) {
            watch.progress(at(*second), (Some(f64::from(done)), None), &BTreeMap::new());
        }
        watch
    }

    fn hangs(watch: &Watch, second: u64) -> bool {
        matches!(watch.judge(at(second), &RULE), Judgement::Hung(_))
    }

    #[test]
    fn a_job_hangs_after_many_times_what_is_usual_for_it_and_not_before() {
        let quick: Vec<u64> = (1..=10).collect();
        let slow: Vec<u64> = (1..=10).map(|step| step * 20).collect();
        let once_slow = [1, 2, 3, 50, 51, 52];
        let cases: [(&str, &[u64], u64, bool); 10] = [
            ("it never told of steps", &[], 1_000_000, false),
            ("it told of too few to know what is usual", &[1, 2, 3], 1_000_000, false),
            ("it is quick, within the least time", &quick, 69, false),
            ("it is quick, after the least time", &quick, 70, true),
            ("it is slow, within ten times its usual", &slow, 399, false),
            ("it is slow, after ten times its usual", &slow, 400, true),
            ("it tells of every hundredth step", &[100, 200, 300, 400], 1399, false),
            ("it tells of every hundredth step no more", &[100, 200, 300, 400], 1400, true),
            ("one slow step is not usual", &once_slow, 111, false),
            ("one slow step is not usual, and then it hangs", &once_slow, 112, true),
        ];
        for (name, steps, second, expected) in cases {
            assert_eq!(hangs(&told(steps), second), expected, "{name}");
        }
    }

    #[test]
    fn what_is_said_again_is_no_progress_and_signs_of_life_are() {
        let mut watch = told(&[1, 2, 3, 4, 5]);
        let none = BTreeMap::new();
        assert!(!watch.progress(at(60), (Some(5.0), None), &none), "no further than before");
        assert!(hangs(&watch, 65));
        watch.sign(at(64));
        assert!(!hangs(&watch, 65), "it wrote a checkpoint");
        assert!(hangs(&watch, 124));
        watch.saving(at(124));
        assert!(!hangs(&watch, 124 + 3599), "it writes a checkpoint");
        assert!(hangs(&watch, 124 + 3600), "no checkpoint takes that long");
        assert!(watch.progress(at(4000), (Some(6.0), None), &none));
        assert!(!hangs(&watch, 4059));
        // A told time of a step counts where it is the longer one.
        watch.progress(at(4001), (Some(7.0), Some(30.0)), &none);
        assert!(!hangs(&watch, 4300) && hangs(&watch, 4301));
    }

    #[test]
    fn the_rank_that_is_behind_is_named() {
        let mut watch = told(&[1, 2, 3, 4, 5]);
        let ranks = |of_two: f64| BTreeMap::from([(0, 5.0), (1, 5.0), (2, of_two)]);
        watch.progress(at(6), (None, None), &ranks(4.0));
        let Judgement::Hung(hang) = watch.judge(at(66), &RULE) else { panic!("it hangs") };
        assert_eq!((hang.rank, hang.since, hang.usual), (Some(2), at(5), Span::secs(1)));
        watch.progress(at(66), (None, None), &ranks(5.0));
        let Judgement::Hung(hang) = watch.judge(at(200), &RULE) else { panic!("it hangs") };
        assert_eq!(hang.rank, None, "all have done the same");
        // One rank alone may stand still while the others go on.
        let mut watch = told(&[1, 2, 3, 4, 5]);
        for step in 6..100 {
            let done = step as f64;
            let all = BTreeMap::from([(0, done), (1, done), (2, 5.0)]);
            watch.progress(at(step), (Some(done), None), &all);
        }
        let Judgement::Hung(hang) = watch.judge(at(100), &RULE) else { panic!("rank 2 hangs") };
        assert_eq!((hang.rank, hang.since), (Some(2), at(6)));
    }

    #[test]
    fn after_a_restart_of_the_daemon_its_time_is_counted_anew_with_what_was_usual() {
        let kept = told(&[1, 2, 3, 4, 5]).keep().unwrap();
        let watch = Watch::from_kept(&kept, at(1000));
        assert!(!hangs(&watch, 1059) && hangs(&watch, 1060));
        assert_eq!(told(&[1, 2]).keep(), None);
    }
}
