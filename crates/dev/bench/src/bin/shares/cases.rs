//! What is measured, the bound of each case, and the general way beside it.

use crate::instance::{Jobs, Pairs};
use std::rc::Rc;
use trainyard_solver::shares::{
    Inside, Market, Member, Pool, Tenant, max_min_pairs, stated, stated_pairs,
};
use trainyard_solver::{Interior, Limit, Model, Name, Row, Sense, Solution, Solve, Status};

/// A solve that gives its objectives.
pub type Way = Box<dyn FnMut() -> Vec<f64>>;

/// One problem, two ways.
pub struct Case {
    pub name: String,
    pub ours: Way,
    pub bound_ms: f64,
    pub general: Option<Way>,
    /// How far the objectives may be apart, in parts.
    pub difference_max: f64,
    /// Gavel's Figure 12.
    pub published_ms: Option<f64>,
}

const LIMIT: Limit = Limit::steps(100_000);

pub fn all() -> Vec<Case> {
    let published = [(64, None), (256, Some(20.0)), (1024, Some(50.0)), (2048, Some(80.0))];
    let mut cases: Vec<Case> =
        published.into_iter().map(|(jobs, published)| max_min(jobs, published)).collect();
    cases.push(warm(2048));
    cases.push(compatible(2048));
    cases.push(ours("max-min-2048-8-types", 400.0, {
        let jobs = Jobs::draw(2048, 8);
        move || level(&mut Market::new(), &jobs.pool, &jobs.parts)
    }));
    cases.push(ours("max-min-filled-2048", 1000.0, {
        let jobs = Jobs::draw(2048, 3);
        move || Market::new().max_min_filled(&jobs.pool, &jobs.parts, &LIMIT).rates
    }));
    cases.push(ours("finish-time-2048", 150.0, {
        let jobs = Jobs::draw(2048, 3);
        move || vec![Market::new().finish_time(&jobs.pool, &jobs.clocks(), &LIMIT).level]
    }));
    cases.push(hierarchy(128, Some(580.0), true));
    cases.push(hierarchy(2048, Some(97_000.0), false));
    cases.push(pairs(128, 2, Some(1_050.0)));
    cases.push(pairs(256, 2, Some(5_300.0)));
    // POP's notebook: 256 jobs in 1.73 s as a whole and 0.16 s in eight parts; no time is given for two and four.
    for (parts, published) in [(2, None), (4, None), (8, Some(160.0))] {
        cases.push(in_parts(256, parts, published));
    }
    cases.push(pairs(1024, 2, Some(296_000.0)));
    cases.push(pairs(1024, 1_000_000, None));
    cases
}

fn ours(name: &str, bound_ms: f64, solve: impl FnMut() -> Vec<f64> + 'static) -> Case {
    Case {
        name: name.to_owned(),
        ours: Box::new(solve),
        bound_ms,
        general: None,
        difference_max: 1e-6,
        published_ms: None,
    }
}

fn level(market: &mut Market, pool: &Pool, parts: &[f64]) -> Vec<f64> {
    let found = market.max_min(pool, parts, &LIMIT);
    let bound = found.prices.iter().any(|price| *price > 0.0);
    assert!(bound && found.status == Status::Proven, "jobs and not GPUs are the bound, or none");
    vec![found.level]
}

fn interior(model: &Model) -> Solution {
    Interior::default().solve(model, &LIMIT).expect("the model is sound")
}

fn max_min(jobs: usize, published_ms: Option<f64>) -> Case {
    let jobs_of = Rc::new(Jobs::draw(jobs, 3));
    let same = Rc::clone(&jobs_of);
    Case {
        general: Some(Box::new(move || {
            let (model, level) = stated(&same.pool, &same.parts);
            vec![interior(&model).values[level.index()]]
        })),
        published_ms,
        ..ours(&format!("max-min-{jobs}"), 40.0, move || {
            level(&mut Market::new(), &jobs_of.pool, &jobs_of.parts)
        })
    }
}

/// The same jobs again, all but the last, with the prices of the last decision.
fn warm(jobs: usize) -> Case {
    let drawn = Jobs::draw(jobs, 3);
    let mut market = Market::new();
    market.max_min(&drawn.pool, &drawn.parts, &LIMIT);
    let mut parts = drawn.parts.clone();
    parts[jobs - 1] = 0.0;
    ours(&format!("max-min-{jobs}-warm"), 40.0, move || {
        level(&mut market.clone(), &drawn.pool, &parts)
    })
}

/// The general engine alone, which ends where the authors' own did: in the middle of all optima.
fn compatible(jobs: usize) -> Case {
    let drawn = Jobs::draw(jobs, 3);
    ours(&format!("compatible-{jobs}"), 150.0, move || {
        let (model, level) = stated(&drawn.pool, &drawn.parts);
        vec![interior(&model).values[level.index()]]
    })
}

fn hierarchy(jobs: usize, published_ms: Option<f64>, beside: bool) -> Case {
    let drawn = Rc::new(Jobs::draw(jobs, 3));
    let same = Rc::clone(&drawn);
    let inside =
        |tenant: usize| if tenant.is_multiple_of(2) { Inside::Fairness } else { Inside::Fifo };
    let tenant = |tenant: usize| Tenant { weight: 1.0 + tenant as f64, inside: inside(tenant) };
    let tenants: Vec<Tenant> = (0..6).map(tenant).collect();
    let also = tenants.clone();
    let general: Way = Box::new(move || {
        sorted(iterated(&same.pool, &same.members(also.len()), &also), &same.parts)
    });
    Case {
        general: beside.then_some(general),
        difference_max: 1e-4,
        published_ms,
        ..ours(&format!("hierarchy-{jobs}"), 1000.0, move || {
            let members = drawn.members(tenants.len());
            let found = Market::new().water_fill(&drawn.pool, &members, &tenants, &LIMIT);
            sorted(found.rates, &drawn.parts)
        })
    }
}

fn sorted(rates: Vec<f64>, parts: &[f64]) -> Vec<f64> {
    let mut ratios: Vec<f64> = rates.iter().zip(parts).map(|(rate, part)| rate / part).collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}

fn pairs(jobs: usize, weights: usize, published_ms: Option<f64>) -> Case {
    let drawn = Rc::new(Pairs::draw(jobs, weights));
    let same = Rc::clone(&drawn);
    let name = match weights {
        2 => format!("pairs-{jobs}"),
        _ => format!("pairs-{jobs}-no-two-alike"),
    };
    let general: Way = Box::new(move || vec![whole_pairs(&same)]);
    Case {
        general: (jobs <= 256).then_some(general),
        difference_max: 1e-4,
        published_ms,
        ..ours(&name, 3000.0, move || {
            let found = drawn.with(|pool| max_min_pairs(pool, &drawn.jobs, &LIMIT));
            assert_eq!(found.status, Status::Proven);
            vec![found.level]
        })
    }
}

/// The level of max-min with all pairs stated, by the general engine.
fn whole_pairs(pairs: &Pairs) -> f64 {
    let (model, level) = pairs.with(|pool| stated_pairs(pool, &pairs.jobs));
    interior(&model).values[level.index()]
}

/// The general way over parts of the jobs and GPUs (POP) beside the general way over all of them: how much time parts
/// save, and how much of the worst job's level they cost.
fn in_parts(jobs: usize, parts: usize, published_ms: Option<f64>) -> Case {
    let drawn = Pairs::draw(jobs, 2);
    let dealt = drawn.dealt(parts);
    Case {
        general: Some(Box::new(move || vec![whole_pairs(&drawn)])),
        // A part of 32 jobs has few partners to choose among.
        difference_max: 0.1,
        published_ms,
        ..ours(&format!("pairs-{jobs}-in-{parts}-parts"), 3000.0, move || {
            vec![dealt.iter().map(whole_pairs).fold(f64::INFINITY, f64::min)]
        })
    }
}

/// Water filling as published, by the general engine: a program for the level, then one that says which jobs can still
/// gain.
///
/// The authors find the latter with whole numbers; a small gain for all jobs at once, as large as a bound allows, is
/// the same question without them.
fn iterated(pool: &Pool, members: &[Member], tenants: &[Tenant]) -> Vec<f64> {
    const SMALL: f64 = 1e-4;
    let mut rates = vec![0.0; members.len()];
    let mut done = vec![false; members.len()];
    for _ in 0..members.len() {
        let slopes = slopes(members, tenants, &done);
        if slopes.iter().all(|slope| *slope == 0.0) {
            break;
        }
        let (mut model, rows) = floors(pool, &rates);
        let entries = rows.iter().zip(&slopes).map(|(row, slope)| (*row, -slope));
        model.column(1.0, 0.0, f64::INFINITY, entries);
        let level = interior(&model).objective;
        rates.iter_mut().zip(&slopes).for_each(|(rate, slope)| *rate += level * slope);
        let (mut model, rows) = floors(pool, &rates);
        let rising: Vec<usize> = (0..members.len()).filter(|job| slopes[*job] > 0.0).collect();
        let gains: Vec<_> = rising
            .iter()
            .map(|&job| model.column(1.0, 0.0, 1.0, [(rows[job], -SMALL * members[job].part)]))
            .collect();
        let found = interior(&model);
        let before = done.clone();
        for (&job, gain) in rising.iter().zip(&gains) {
            done[job] = found.values[gain.index()] < 0.5;
        }
        if before == done {
            break;
        }
    }
    rates
}

fn slopes(members: &[Member], tenants: &[Tenant], done: &[bool]) -> Vec<f64> {
    let mut sums = vec![0.0; tenants.len()];
    let mut slopes = vec![0.0; members.len()];
    let open = |job: &usize| !done[*job];
    for member in (0..members.len()).filter(open).map(|job| &members[job]) {
        sums[member.tenant] += member.weight;
    }
    let mut served = vec![false; tenants.len()];
    for job in (0..members.len()).filter(open) {
        let Member { tenant, weight, part } = members[job];
        let share = match tenants[tenant].inside {
            Inside::Fairness => weight / sums[tenant],
            Inside::Fifo if served[tenant] => 0.0,
            Inside::Fifo => 1.0,
        };
        served[tenant] = true;
        slopes[job] = part * tenants[tenant].weight * share;
    }
    slopes
}

/// Time and GPUs of every job, with a row for each rate that keeps what was reached.
fn floors(pool: &Pool, rates: &[f64]) -> (Model, Vec<Row>) {
    let mut model = Model::new(Sense::Maximise);
    let capacity: Vec<Row> = (0..pool.kinds())
        .map(|kind| model.row(Name("capacity", kind), f64::NEG_INFINITY, pool.capacity(kind)))
        .collect();
    let mut rows = Vec::new();
    for (job, rate) in rates.iter().enumerate() {
        let time = model.row(Name("time", job), f64::NEG_INFINITY, 1.0);
        let row = model.row(Name("rate", job), rate * (1.0 - 1e-8), f64::INFINITY);
        rows.push(row);
        for way in pool.ways(job) {
            let (kind, gpus) = way.uses[0];
            let entries = [(capacity[kind], gpus), (time, 1.0), (row, way.rate)];
            model.column(0.0, 0.0, f64::INFINITY, entries);
        }
    }
    (model, rows)
}
