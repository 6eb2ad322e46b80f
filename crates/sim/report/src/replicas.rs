//! Runs repeated with several seeds: means with 95 % t-intervals, and which differ significantly.
//!
//! Seeds are paired: seed k gives every policy the same jobs, the same errors and the same failures, so two
//! policies are compared seed by seed: by their difference, and where all values are above 0 by the logarithm of their
//! ratio too. A policy that halves the time at each seed differs, however far seeds lie apart, and so does one that is
//! ten seconds faster at each of them. They pass the test where the 95 % t-interval of the mean of either does not hold
//! 0. The intervals are for one comparison at a time; among many pairs up to one in ten differs by chance.
//!
//! One statement is made of all pairs ([`Replicas::alike`]): groups of neighbours by their means in which no two pass
//! the test. Marks, sentences and JSON say the same: two policies differ where no group holds both, so that a policy that
//! lies beyond a policy that differs is said to differ too.

use crate::column::{Better, COLUMNS, Column, Shown};
use crate::comparison::{About, Information, SCHEMA_VERSION};
use crate::metrics::Summary;
use crate::table::{Ink, figures};
use crate::units::Unit;
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Runs of several policies with several seeds.
#[derive(Clone, Debug)]
pub struct Replicas {
    /// What is common to all runs; the seed is the first.
    pub about: About,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// One for each policy, in the order asked for.
    pub policies: Vec<Repeated>,
}

/// One policy with several seeds.
#[derive(Clone, Debug)]
pub struct Repeated {
    /// What the policy is called here.
    pub policy: String,
    /// What it was told.
    pub information: Information,
    /// The measures for each seed, in the order of the seeds.
    pub summaries: Vec<Summary>,
}

/// A mean and half the width of its 95 % t-interval; the width is unknown for a single value.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Half the width.
    pub half: Option<f64>,
}

impl Interval {
    /// Of some values; nothing if there are none.
    pub fn of(values: &[f64]) -> Option<Interval> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        match values {
            [] => None,
            [_] => Some(Interval { mean, half: None }),
            _ => {
                let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
                let error = libm::sqrt(squares / (count - 1.0) / count);
                Some(Interval { mean, half: Some(t_95(values.len() - 1) * error) })
            }
        }
    }

    /// `mean ±half`, or the mean alone.
    pub fn text(&self, unit: Unit) -> String {
        let half = self.half.map(|half| format!(" ±{}", unit.text(half))).unwrap_or_default();
        format!("{}{half}", unit.text(self.mean))
    }

    /// Whether zero lies outside for certain.
    pub fn excludes_zero(&self) -> bool {
        self.half.is_some_and(|half| self.mean.abs() > half)
    }
}

/// How a policy stands to the best in a measure.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It has the best mean.
    Best,
    /// It does not differ significantly from the best.
    Alike,
    /// Neither, or there is no best.
    Plain,
}

/// Whether two policies differ significantly in a measure.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Apart {
    /// The mean difference is surely not zero.
    Yes,
    /// It may be zero, or too few seeds have the measure.
    No,
}

impl Replicas {
    /// The values of a measure for one policy; nothing for seeds at which it has none.
    pub fn values(&self, policy: usize, column: &Column) -> Vec<Option<f64>> {
        self.policies[policy].summaries.iter().map(|summary| (column.value)(summary)).collect()
    }

    /// The mean of a measure over the seeds.
    pub fn interval(&self, policy: usize, column: &Column) -> Option<Interval> {
        let values: Vec<f64> = self.values(policy, column).into_iter().flatten().collect();
        Interval::of(&values)
    }

    /// The mean difference between two policies in a measure, over seeds at which both have it.
    pub fn difference(&self, (a, b): (usize, usize), column: &Column) -> Option<Interval> {
        let both = self.values(a, column).into_iter().zip(self.values(b, column));
        let pairs: Vec<f64> = both.filter_map(|(a, b)| Some(a? - b?)).collect();
        Interval::of(&pairs)
    }

    /// The mean logarithm of one policy's value over the other's, over seeds at which both have it; nothing where a
    /// value is not above 0.
    pub fn log_ratio(&self, (a, b): (usize, usize), column: &Column) -> Option<Interval> {
        let both = self.values(a, column).into_iter().zip(self.values(b, column));
        let pairs = both.filter_map(|(a, b)| Some((a?, b?)));
        let logs = pairs.map(|(a, b)| (a > 0.0 && b > 0.0).then(|| libm::log(a / b)));
        Interval::of(&logs.collect::<Option<Vec<f64>>>()?)
    }

    /// Whether two policies differ significantly in a measure: whether no group of the alike holds both.
    pub fn apart(&self, (a, b): (usize, usize), column: &Column) -> Apart {
        let groups = self.alike(column);
        let has = |one: usize| groups.iter().any(|group| group.contains(&one));
        let share = || groups.iter().any(|group| group.contains(&a) && group.contains(&b));
        match has(a) && has(b) && !share() {
            true => Apart::Yes,
            false => Apart::No,
        }
    }

    /// Whether two policies pass the test by themselves.
    fn tested(&self, pair: (usize, usize), column: &Column) -> bool {
        let tests = [self.log_ratio(pair, column), self.difference(pair, column)];
        tests.into_iter().flatten().any(|interval| interval.excludes_zero())
    }

    /// The policy with the best mean among those that served every job at every seed; nothing where all are equal.
    pub fn best(&self, column: &Column) -> Option<usize> {
        let served = |one: &Repeated| one.summaries.iter().all(|summary| summary.unfinished == 0);
        let policies = self.policies.iter().enumerate().filter(|(_, one)| served(one));
        let means = policies
            .filter_map(|(index, _)| Some((index, self.interval(index, column)?.mean)))
            .collect::<Vec<(usize, f64)>>();
        if means.iter().all(|(_, mean)| *mean == means[0].1) && means.len() > 1 {
            return None;
        }
        let by_mean = |a: &&(usize, f64), b: &&(usize, f64)| a.1.total_cmp(&b.1);
        let best = match column.better {
            Better::Low => means.iter().min_by(by_mean),
            Better::High => means.iter().rev().max_by(by_mean),
            Better::Neither => None,
        };
        best.map(|(index, _)| *index)
    }

    /// How a policy compares with the best; with a single seed no policy is marked as alike, for one seed shows no
    /// significant difference.
    pub fn mark(&self, policy: usize, column: &Column) -> Mark {
        match self.best(column) {
            Some(best) if best == policy => Mark::Best,
            Some(best)
                if self.seeds.len() > 1 && self.apart((policy, best), column) == Apart::No =>
            {
                Mark::Alike
            }
            _ => Mark::Plain,
        }
    }

    /// Policies from the best mean to the worst, in groups of which no two members differ significantly; a group holds
    /// neighbours only, none lies within another, and a policy may be in two.
    pub fn alike(&self, column: &Column) -> Vec<Vec<usize>> {
        let mean = |index: usize| Some((index, self.interval(index, column)?.mean));
        let mut order: Vec<(usize, f64)> = (0..self.policies.len()).filter_map(mean).collect();
        order.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        if column.better == Better::High {
            order.reverse();
        }
        let order: Vec<usize> = order.into_iter().map(|(index, _)| index).collect();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut covered = 0;
        for start in 0..order.len() {
            let all_alike = |end: &usize| {
                order[start..*end].iter().all(|one| !self.tested((*one, order[*end]), column))
            };
            let end = (start + 1..order.len()).take_while(all_alike).last().unwrap_or(start) + 1;
            if end > covered {
                groups.push(order[start..end].to_vec());
                covered = end;
            }
        }
        groups
    }

    /// For a terminal: `mean ±half`, `*` at the best mean, `~` at what does not differ significantly from it.
    pub fn terminal(&self, ink: Ink) -> String {
        let columns: Vec<&Column> = COLUMNS.iter().filter(|column| self.shows(column)).collect();
        let mut heading = vec!["policy", "information"];
        heading.extend(columns.iter().map(|column| column.title));
        let rows: Vec<Vec<String>> = (0..self.policies.len())
            .map(|index| {
                let one = &self.policies[index];
                let mut row = vec![one.policy.clone(), one.information.text()];
                row.extend(columns.iter().map(|column| self.cell(index, column)));
                row
            })
            .collect();
        figures(&heading, 2, &rows, ink)
    }

    /// Sentences that name, for mean completion time, every pair without a significant difference.
    pub fn verdict(&self) -> String {
        let Some(column) = COLUMNS.iter().find(|column| column.key == "jct_mean_s") else {
            return String::new();
        };
        let alike: Vec<String> = self
            .pairs()
            .filter(|pair| self.apart(*pair, column) == Apart::No)
            .map(|(a, b)| format!("{} and {}", self.policies[a].policy, self.policies[b].policy))
            .collect();
        let seeds = self.seeds.len();
        match alike.as_slice() {
            [] => format!(
                "In mean JCT all policies differ significantly (95 %) with these {seeds} seeds.\n"
            ),
            _ => format!(
                "In mean JCT no significant difference (95 %) with {seeds} seeds: {}.\n",
                alike.join("; ")
            ),
        }
    }

    /// Everything as JSON.
    pub fn json(&self) -> Value {
        let options: serde_json::Map<String, Value> =
            self.about.options.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        json!({
            "schema_version": SCHEMA_VERSION,
            "kind": "replicas",
            "version": self.about.version,
            "workload": { "name": self.about.workload, "jobs": self.about.jobs },
            "cluster": { "line": self.about.cluster, "gpus": self.about.gpus },
            "seeds": self.seeds,
            "options": options,
            "policies": (0..self.policies.len()).map(|index| self.policy_json(index)).collect::<Vec<Value>>(),
            "pairs": self.pairs().map(|pair| self.pair_json(pair)).collect::<Vec<Value>>(),
        })
    }

    /// Every measure of every policy and seed, in base units, as CSV.
    pub fn csv(&self, out: impl Write) -> io::Result<()> {
        let mut out = csv::Writer::from_writer(out);
        let mut heading =
            vec!["schema_version", "policy", "information", "workload", "cluster", "seed"];
        heading.extend(COLUMNS.iter().map(|column| column.key));
        out.write_record(&heading)?;
        for one in &self.policies {
            for (seed, summary) in self.seeds.iter().zip(&one.summaries) {
                let (workload, cluster) = (self.about.workload.clone(), self.about.cluster.clone());
                let version = SCHEMA_VERSION.to_string();
                let mut row =
                    vec![version, one.policy.clone(), one.information.text(), workload, cluster];
                row.push(seed.to_string());
                row.extend(COLUMNS.iter().map(|column| {
                    (column.value)(summary).map(|value| value.to_string()).unwrap_or_default()
                }));
                out.write_record(&row)?;
            }
        }
        out.flush()
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let count = self.policies.len();
        (0..count).flat_map(move |a| (a + 1..count).map(move |b| (a, b)))
    }

    pub(crate) fn shows(&self, column: &Column) -> bool {
        let mut all = self.policies.iter().flat_map(|one| &one.summaries);
        match column.shown {
            Shown::Always => true,
            Shown::Page => false,
            Shown::WhereAny => all.any(|one| (column.value)(one).is_some_and(|value| value != 0.0)),
        }
    }

    /// A mean with its interval and its mark, for a terminal.
    pub(crate) fn cell(&self, index: usize, column: &Column) -> String {
        let Some(interval) = self.interval(index, column) else {
            return "- ".to_owned();
        };
        let mark = match self.mark(index, column) {
            Mark::Best => "*",
            Mark::Alike => "~",
            Mark::Plain => " ",
        };
        format!("{}{mark}", interval.text(column.unit))
    }

    pub(crate) fn policy_json(&self, index: usize) -> Value {
        let one = &self.policies[index];
        let mut measures = serde_json::Map::new();
        for column in COLUMNS {
            let Some(Interval { mean, half }) = self.interval(index, column) else { continue };
            let values = self.values(index, column);
            let value = json!({ "mean": mean, "half_width_95": half, "values": values });
            measures.insert(column.key.to_owned(), value);
        }
        json!({ "policy": one.policy, "information": one.information, "measures": measures })
    }

    pub(crate) fn pair_json(&self, pair: (usize, usize)) -> Value {
        let mut measures = serde_json::Map::new();
        for column in COLUMNS.iter().filter(|column| column.better != Better::Neither) {
            let Some(difference) = self.difference(pair, column) else { continue };
            let value = json!({
                "difference": difference.mean,
                "half_width_95": difference.half,
                "ratio": self.log_ratio(pair, column).map(|log| libm::exp(log.mean)),
                "told_apart": self.apart(pair, column) == Apart::Yes,
            });
            measures.insert(column.key.to_owned(), value);
        }
        let (a, b) = (&self.policies[pair.0].policy, &self.policies[pair.1].policy);
        json!({ "a": a, "b": b, "measures": measures })
    }
}

/// Quantile 0.975 of Student's distribution, by its degrees of freedom.
fn t_95(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    match TABLE.get(freedom.max(1) - 1) {
        Some(t) => *t,
        // The first terms of the expansion around the normal quantile; exact to three digits from here on.
        None => {
            let z: f64 = 1.959_964;
            z + (z * z * z + z) / (4.0 * freedom as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_framework::Needs;

    fn replicas(policies: &[&[f64]]) -> Replicas {
        let repeated = |(index, makespans): (usize, &&[f64])| Repeated {
            policy: format!("p{index}"),
            information: Information::new(&Needs::NOTHING, (0.0, 0.0)),
            summaries: makespans
                .iter()
                .map(|makespan_s| Summary { makespan_s: *makespan_s, ..Summary::default() })
                .collect(),
        };
        let seeds = (1..=policies[0].len() as u64).collect();
        let policies = policies.iter().enumerate().map(repeated).collect();
        Replicas { about: About::default(), seeds, policies }
    }

    fn makespan() -> &'static Column {
        COLUMNS.iter().find(|column| column.key == "makespan_s").expect("a column")
    }

    #[test]
    fn an_interval_is_that_of_the_textbook() {
        let interval = Interval::of(&[1.0, 2.0, 3.0, 4.0]).expect("values");
        // s = 1.29099, t(3) = 3.182: 3.182 * 1.29099 / 2.
        assert!((interval.mean - 2.5).abs() < 1e-12);
        assert!((interval.half.expect("a width") - 2.0540).abs() < 1e-3);
        assert_eq!(Interval::of(&[7.0]), Some(Interval { mean: 7.0, half: None }));
        assert_eq!(Interval::of(&[]), None);
        assert!((t_95(40) - 2.021).abs() < 2e-3 && (t_95(120) - 1.980).abs() < 1e-3);
    }

    #[test]
    fn pairs_are_told_apart_by_differences_though_their_intervals_overlap() {
        // Seeds differ by hundreds, policies by ten at every seed.
        let paired = replicas(&[&[100.0, 300.0, 500.0], &[110.0, 311.0, 509.0]]);
        assert_eq!(paired.apart((0, 1), makespan()), Apart::Yes);
        assert_eq!(paired.best(makespan()), Some(0));
        let noise = replicas(&[&[100.0, 300.0, 500.0], &[140.0, 270.0, 505.0]]);
        assert_eq!(noise.apart((0, 1), makespan()), Apart::No);
        assert_eq!(replicas(&[&[1.0, 2.0], &[2.0, 1.0]]).best(makespan()), None, "equal means");
        assert!(noise.terminal(Ink::Plain).contains('~'));
    }

    #[test]
    fn groups_of_the_alike_are_neighbours_and_none_is_within_another() {
        // Neighbours differ by 0 to 10, the first and the third by 10 at every seed, the last by hundreds.
        let four = replicas(&[
            &[100.0, 300.0, 500.0],
            &[100.0, 310.0, 505.0],
            &[110.0, 310.0, 510.0],
            &[900.0, 1100.0, 1310.0],
        ]);
        let alike = |a, b| four.apart((a, b), makespan()) == Apart::No;
        assert!(alike(0, 1) && alike(1, 2) && !alike(0, 2) && !alike(2, 3));
        assert_eq!(four.alike(makespan()), [vec![0, 1], vec![1, 2], vec![3]]);
    }

    #[test]
    fn half_the_time_at_every_seed_differs_however_far_seeds_lie_apart() {
        let two = replicas(&[&[100.0, 1_000.0, 9_000.0], &[49.0, 505.0, 4_500.0]]);
        let difference = two.difference((0, 1), makespan()).expect("a difference");
        assert!(!difference.excludes_zero(), "the difference alone would hide it: {difference:?}");
        assert_eq!(two.apart((0, 1), makespan()), Apart::Yes);
        assert_eq!(two.pair_json((0, 1))["measures"]["makespan_s"]["told_apart"], true);
    }

    #[test]
    fn groups_marks_and_pairs_say_the_same() {
        // The first and the last pass no test, for the last is all over the place; the middle one differs from the first.
        let three = replicas(&[
            &[100.0, 101.0, 99.0, 100.0],
            &[120.0, 121.0, 119.0, 120.0],
            &[90.0, 800.0, 100.0, 700.0],
        ]);
        assert!(!three.tested((0, 2), makespan()) && three.tested((0, 1), makespan()));
        assert_eq!(three.alike(makespan()), [vec![0], vec![1, 2]]);
        assert_eq!(three.apart((0, 2), makespan()), Apart::Yes);
        assert_eq!(three.mark(2, makespan()), Mark::Plain);
        assert_eq!(three.pair_json((0, 2))["measures"]["makespan_s"]["told_apart"], true);
    }

    #[test]
    fn one_seed_tells_nobody_apart() {
        let single = replicas(&[&[100.0], &[900.0]]);
        assert_eq!(single.apart((0, 1), makespan()), Apart::No);
    }
}
