//! Random jobs and clusters.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::Value;
use std::path::Path;
use trainyard_solver::shares::{Clock, Member, PairJob, PairPool, Pool};

/// The types of Gavel's cluster, slow to fast.
const KINDS: [&str; 3] = ["k80", "p100", "v100"];

/// Jobs that may run on every type; no two are alike.
pub struct Jobs {
    pub pool: Pool,
    /// Parts of max-min fairness: the rate on an even share, over GPUs.
    pub parts: Vec<f64>,
    weights: Vec<f64>,
}

impl Jobs {
    /// So many jobs, and three quarters as many GPUs: a quarter of each of three types, as in Gavel's measurement of
    /// solve times (Figure 12).
    ///
    /// Sizes and weights follow Gavel's generator: 70 % of one GPU, then 2, 4 and 8; a fifth with a weight of 5 among the
    /// jobs of its tenant. The fastest type is up to ten times as fast as the slowest.
    pub fn draw(jobs: usize, kinds: usize) -> Jobs {
        let mut draw = Draw::new(jobs as u64);
        let capacity = vec![(0.75 * jobs as f64 / kinds as f64).max(1.0); kinds];
        let mut gpus = Vec::new();
        let mut rates = Vec::new();
        for _ in 0..jobs {
            let size = draw.part();
            gpus.push(match size {
                size if size < 0.7 => 1.0,
                size if size < 0.8 => 2.0,
                size if size < 0.95 => 4.0,
                _ => 8.0,
            });
            let base = 0.1 + 10.0 * draw.part();
            rates.extend((0..kinds).map(|kind| base * (1.0 + 4.5 * kind as f64 * draw.part())));
        }
        let even = |row: &[f64]| row.iter().sum::<f64>() / kinds as f64;
        let parts = rates.chunks(kinds).zip(&gpus).map(|(row, gpus)| even(row) / gpus).collect();
        let weights = (0..jobs).map(|_| if draw.part() < 0.2 { 5.0 } else { 1.0 }).collect();
        Jobs { pool: Pool::dense(&capacity, &gpus, &rates), parts, weights }
    }

    /// Every job belongs to one of so many tenants in turn.
    pub fn members(&self, tenants: usize) -> Vec<Member> {
        let all = self.parts.iter().zip(&self.weights).enumerate();
        let member = |(job, (&part, &weight)): (usize, (&f64, &f64))| Member {
            tenant: job % tenants,
            weight,
            part,
        };
        all.map(member).collect()
    }

    /// Jobs that came up to a day ago and have up to a week of work left, if each had an even share.
    pub fn clocks(&self) -> Vec<Clock> {
        let mut draw = Draw::new(7);
        let clock = |part: &f64| {
            let (since, ahead) = (86_400.0 * draw.part(), 600.0 + 604_800.0 * draw.part());
            Clock { since, left: part * ahead, alone: since + ahead }
        };
        self.parts.iter().map(clock).collect()
    }
}

/// Classes of jobs, and jobs of these.
pub struct Pairs {
    gpus: Vec<f64>,
    alone: Vec<f64>,
    /// By class, class and type.
    together: Vec<(f64, f64)>,
    pub jobs: Vec<PairJob>,
    capacity: Vec<f64>,
}

impl Pairs {
    /// Jobs of the 26 kinds of Gavel's table on one GPU each where it is at hand, of 26 drawn kinds where not; and an
    /// eighth as many GPUs of each type. Each has one of so many weights from 1 to 2.
    pub fn draw(jobs: usize, weights: usize) -> Pairs {
        let mut draw = Draw::new(jobs as u64);
        let (alone, together) = published().unwrap_or_else(|| drawn(&mut draw));
        let kinds = KINDS.len();
        let classes = alone.len() / kinds;
        let jobs_of = |_| {
            let class = draw.below(classes);
            let weight = 1.0 + draw.below(weights) as f64 / weights as f64;
            let row = &alone[class * kinds..][..kinds];
            PairJob { class, part: weight * row.iter().sum::<f64>() / kinds as f64 }
        };
        let capacity = vec![(jobs as f64 / 8.0).max(1.0); kinds];
        let jobs = (0..jobs).map(jobs_of).collect();
        Pairs { gpus: vec![1.0; classes], alone, together, jobs, capacity }
    }

    /// The jobs dealt to so many parts, those of a class evenly, each part with its slice of all GPUs.
    pub fn dealt(&self, parts: usize) -> Vec<Pairs> {
        let mut sorted = self.jobs.clone();
        sorted.sort_by(|a, b| a.class.cmp(&b.class).then(a.part.total_cmp(&b.part)));
        let part = |part: usize| Pairs {
            gpus: self.gpus.clone(),
            alone: self.alone.clone(),
            together: self.together.clone(),
            jobs: sorted.iter().skip(part).step_by(parts).copied().collect(),
            capacity: self.capacity.iter().map(|gpus| gpus / parts as f64).collect(),
        };
        (0..parts).map(part).collect()
    }

    /// Lends the classes to a solver.
    pub fn with<T>(&self, solve: impl FnOnce(&PairPool<'_>) -> T) -> T {
        let (classes, kinds) = (self.gpus.len(), KINDS.len());
        let pair =
            |a: usize, b: usize, kind: usize| self.together[(a * classes + b) * kinds + kind];
        solve(&PairPool {
            capacity: &self.capacity,
            gpus: &self.gpus,
            alone: &self.alone,
            pair: &pair,
        })
    }
}

type Table = (Vec<f64>, Vec<(f64, f64)>);

/// Gavel's own table.
fn published() -> Option<Table> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../../shared/data/gavel/simulation_throughputs.json");
    let table: Value = serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
    let on_one = |name: &&String| name.ends_with(", 1)");
    let names: Vec<&String> = table[KINDS[0]].as_object()?.keys().filter(on_one).collect();
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let mut alone = Vec::new();
    let mut together = Vec::new();
    for a in &names {
        alone.extend(KINDS.iter().map(|kind| number(&table[kind][a.as_str()]["null"])));
        for b in &names {
            let rates = KINDS.iter().map(|kind| &table[kind][a.as_str()][b.as_str()]);
            together.extend(rates.map(|pair| (number(&pair[0]), number(&pair[1]))));
        }
    }
    Some((alone, together))
}

/// 26 kinds whose pairs keep between a third and all of their speed.
fn drawn(draw: &mut Draw) -> Table {
    eprintln!("Gavel's table is not here: pairs are drawn");
    let classes = 26;
    let alone: Vec<f64> = (0..classes)
        .flat_map(|_| {
            let base = 0.1 + 10.0 * draw.part();
            [base, base * (1.0 + 4.0 * draw.part()), base * (1.0 + 9.0 * draw.part())]
        })
        .collect();
    let kinds = KINDS.len();
    let mut together = vec![(0.0, 0.0); classes * classes * kinds];
    for a in 0..classes {
        for b in a..classes {
            for kind in 0..kinds {
                let keeps = (0.33 + 0.67 * draw.part(), 0.33 + 0.67 * draw.part());
                let of_a = alone[a * kinds + kind] * keeps.0;
                let of_b = if a == b { of_a } else { alone[b * kinds + kind] * keeps.1 };
                together[(a * classes + b) * kinds + kind] = (of_a, of_b);
                together[(b * classes + a) * kinds + kind] = (of_b, of_a);
            }
        }
    }
    (alone, together)
}

/// Numbers from a seed.
struct Draw(ChaCha12Rng);

impl Draw {
    fn new(seed: u64) -> Draw {
        Draw(ChaCha12Rng::seed_from_u64(seed))
    }

    /// From 0 to below 1.
    fn part(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, count: usize) -> usize {
        (self.part() * count as f64) as usize
    }
}
