//! The solvers that know the structure of time shares, against engines that do not.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use trainyard_solver::shares::{
    Clock, Fractions, Inside, Market, Member, Pool, Tenant, Way, stated,
};
use trainyard_solver::{Interior, Limit, Model, Name, Row, Sense, Simplex, Solve, Status};

const LIMIT: Limit = Limit::steps(5_000);

/// Jobs, types and parts in plain numbers.
#[derive(Clone, Debug)]
struct Case {
    capacity: Vec<f64>,
    gpus: Vec<f64>,
    rates: Vec<f64>,
    parts: Vec<f64>,
}

impl Case {
    fn pool(&self) -> Pool {
        Pool::dense(&self.capacity, &self.gpus, &self.rates)
    }

    fn possible(&self, job: usize) -> bool {
        let kinds = self.capacity.len();
        let ways = self.rates[job * kinds..][..kinds].iter().zip(&self.capacity);
        ways.clone().any(|(rate, gpus)| *rate > 0.0 && *gpus > 0.0)
    }
}

fn case(jobs: usize, kinds: usize) -> impl Strategy<Value = Case> {
    let rate = prop_oneof![1 => Just(0.0), 2 => Just(1.0), 6 => 0.1..10.0f64];
    let gpus = prop_oneof![3 => Just(1.0), 1 => Just(2.0), 1 => Just(4.0)];
    let free = prop_oneof![1 => Just(0.0), 4 => (1u32..6).prop_map(f64::from)];
    let part = prop_oneof![2 => Just(1.0), 3 => 0.1..5.0f64];
    (1..=jobs, 1..=kinds).prop_flat_map(move |(jobs, kinds)| {
        let capacity = prop::collection::vec(free.clone(), kinds);
        let gpus = prop::collection::vec(gpus.clone(), jobs);
        let rates = prop::collection::vec(rate.clone(), jobs * kinds);
        let parts = prop::collection::vec(part.clone(), jobs);
        (capacity, gpus, rates, parts).prop_map(|(capacity, gpus, rates, parts)| Case {
            capacity,
            gpus,
            rates,
            parts,
        })
    })
}

/// Every fraction, every job's time and every type's GPUs keep their bounds.
fn assert_fits(pool: &Pool, found: &Fractions) {
    let mut used = vec![0.0; pool.kinds()];
    let mut at = 0;
    for job in 0..pool.jobs() {
        let ways = pool.ways(job);
        let fractions = &found.of[at..at + ways.len()];
        at += ways.len();
        assert!(fractions.iter().all(|fraction| (0.0..=1.0 + 1e-12).contains(fraction)));
        assert!(fractions.iter().sum::<f64>() <= 1.0 + 1e-12, "job {job}: {fractions:?}");
        let rate: f64 = fractions.iter().zip(ways).map(|(part, way)| part * way.rate).sum();
        assert!((rate - found.rates[job]).abs() <= 1e-9 * rate.max(1.0));
        for (part, way) in fractions.iter().zip(ways) {
            assert!(*part == 0.0 || way.rate > 0.0);
            way.uses.iter().for_each(|(kind, gpus)| used[*kind] += part * gpus);
        }
    }
    for (kind, used) in used.iter().enumerate() {
        let gpus = pool.capacity(kind);
        assert!(*used <= gpus * (1.0 + 1e-12), "{used} of {gpus}");
    }
}

fn general(model: &Model) -> f64 {
    let found = Simplex::default().solve(model, &Limit::steps(100_000)).unwrap();
    assert_eq!(found.status, Status::Proven);
    found.objective
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, rng_seed: RngSeed::Fixed(5), ..ProptestConfig::default() })]

    #[test]
    fn max_min_reaches_what_a_general_engine_reaches(case in case(14, 5)) {
        let pool = case.pool();
        let mut market = Market::new();
        let found = market.max_min(&pool, &case.parts, &LIMIT);
        assert_fits(&pool, &found);
        let parts: Vec<f64> = (0..case.parts.len())
            .map(|job| if case.possible(job) { case.parts[job] } else { 0.0 })
            .collect();
        let out: Vec<usize> = (0..parts.len()).filter(|job| parts[*job] == 0.0).collect();
        prop_assert_eq!(&found.left_out, &out);
        if out.len() == parts.len() {
            prop_assert_eq!(found.level, 0.0);
            return Ok(());
        }
        prop_assert_eq!(found.status, Status::Proven);
        let expected = general(&stated(&pool, &parts).0);
        prop_assert!((found.level - expected).abs() <= 1e-6 * expected, "{} {}", found.level, expected);
        for (job, part) in parts.iter().enumerate() {
            prop_assert!(found.rates[job] >= found.level * part * (1.0 - 1e-9));
        }
        // The prices prove it: no level above it can be paid for. Warm from them, the answer is the same.
        let again = market.max_min(&pool, &case.parts, &LIMIT);
        prop_assert!((again.level - found.level).abs() <= 1e-9 * found.level);
    }

    #[test]
    fn filling_gives_the_throughputs_of_the_iterated_programs(
        case in case(9, 3),
        weights in prop::collection::vec((0.5..4.0f64, any::<bool>()), 1..4),
        job_weights in prop::collection::vec(0.5..3.0f64, 9),
    ) {
        let pool = case.pool();
        let tenant = |&(weight, fair): &(f64, bool)| Tenant {
            weight,
            inside: if fair { Inside::Fairness } else { Inside::Fifo },
        };
        let tenants: Vec<Tenant> = weights.iter().map(tenant).collect();
        let member = |job: usize| Member {
            tenant: job % tenants.len(),
            weight: job_weights[job],
            part: case.parts[job],
        };
        let members: Vec<Member> = (0..case.parts.len()).map(member).collect();
        let found = Market::new().water_fill(&pool, &members, &tenants, &LIMIT);
        assert_fits(&pool, &found);
        let expected = iterated(&pool, &members, &tenants);
        for (job, rate) in expected.iter().enumerate() {
            let close = (found.rates[job] - rate).abs() <= 1e-4 * rate.max(1.0);
            prop_assert!(close, "job {}: {:?} instead of {:?}", job, found.rates, expected);
        }
    }

    #[test]
    fn the_filled_answer_keeps_the_bottleneck_and_wastes_nothing(case in case(14, 4)) {
        let pool = case.pool();
        let first = Market::new().max_min(&pool, &case.parts, &LIMIT);
        let filled = Market::new().max_min_filled(&pool, &case.parts, &LIMIT);
        assert_fits(&pool, &filled);
        prop_assert_eq!(&first.left_out, &filled.left_out);
        for (job, part) in case.parts.iter().enumerate() {
            if !first.left_out.contains(&job) {
                prop_assert!(filled.rates[job] >= first.level * part * (1.0 - 1e-8));
            }
        }
        // No job can gain while all others keep what they have. They are let off by a little, twice, and the gain is
        // followed back to where they are not: some trades turn a billionth into a thousandth.
        for job in 0..pool.jobs() {
            let with = |off: f64| {
                let rest: Vec<f64> = filled.rates.iter().map(|rate| rate * (1.0 - off)).collect();
                general(&one_more(&pool, &rest, job))
            };
            let best = 2.0 * with(1e-8) - with(2e-8);
            prop_assert!(best <= filled.rates[job] + 1e-4 * best.max(0.1), "{job}: {best} {:?}", filled.rates);
        }
    }

    #[test]
    fn the_worst_finish_time_ratio_is_the_least(
        case in case(10, 3),
        clocks in prop::collection::vec((0.0..100.0f64, 1.0..1000.0f64, 1.0..500.0f64), 10),
    ) {
        let pool = case.pool();
        let clock = |&(since, left, alone): &(f64, f64, f64)| Clock { since, left, alone };
        let clocks: Vec<Clock> = clocks[..pool.jobs()].iter().map(clock).collect();
        let found = Market::new().finish_time(&pool, &clocks, &LIMIT);
        assert_fits(&pool, &found);
        let needs = |ratio: f64| -> Vec<f64> {
            let need = |(job, clock): (usize, &Clock)| match case.possible(job) {
                true => clock.left / (ratio * clock.alone - clock.since).max(1e-12),
                false => 0.0,
            };
            clocks.iter().enumerate().map(need).collect()
        };
        if found.left_out.len() < pool.jobs() {
            let at = |ratio: f64| general(&stated(&pool, &needs(ratio)).0);
            prop_assert!(at(found.level * (1.0 + 1e-5)) >= 1.0 - 1e-7);
            prop_assert!(at(found.level * (1.0 - 1e-5)) <= 1.0 + 1e-7);
            for (job, clock) in clocks.iter().enumerate().filter(|(job, _)| case.possible(*job)) {
                let ratio = (clock.since + clock.left / found.rates[job]) / clock.alone;
                prop_assert!(ratio <= found.level * (1.0 + 1e-8));
            }
        }
    }

    #[test]
    fn the_sum_is_the_largest_and_floors_are_kept(
        case in case(10, 4),
        floored in prop::collection::vec((any::<bool>(), 0.0..1.5f64), 10),
        cost in prop::collection::vec(0.5..3.0f64, 4),
    ) {
        let pool = case.pool();
        let kinds = case.capacity.len();
        let worth: Vec<f64> =
            case.rates.iter().enumerate().map(|(way, rate)| rate / cost[way % kinds]).collect();
        let first = Market::new().max_min(&pool, &case.parts, &LIMIT);
        let floor = |job: usize| match floored[job] {
            (true, part) => first.rates[job] * part,
            (false, _) => 0.0,
        };
        let floors_of: Vec<f64> = (0..pool.jobs()).map(floor).collect();
        let model = priced(&pool, &floors_of, &worth);
        let expected = Simplex::default().solve(&model, &Limit::steps(100_000)).unwrap();
        let found = Market::new().max_sum(&pool, &worth, &floors_of, &LIMIT);
        let Some(found) = found else {
            // What cannot be kept cannot be kept by much.
            let shy: Vec<f64> = floors_of.iter().map(|floor| floor * (1.0 + 1e-6)).collect();
            let model = priced(&pool, &shy, &worth);
            let again = Simplex::default().solve(&model, &Limit::steps(100_000)).unwrap();
            prop_assert_eq!(again.status, Status::Infeasible);
            return Ok(());
        };
        assert_fits(&pool, &found);
        prop_assert_eq!(found.status, Status::Proven);
        if expected.status == Status::Proven {
            let close = (found.level - expected.objective).abs() <= 1e-6 * expected.objective.max(1.0);
            prop_assert!(close, "{} {}", found.level, expected.objective);
        }
        for (job, floor) in floors_of.iter().enumerate() {
            prop_assert!(found.rates[job] >= floor * (1.0 - 1e-8));
        }
    }

    #[test]
    fn no_number_is_bad_enough_to_panic(
        capacity in prop::collection::vec(any::<f64>(), 0..4),
        gpus in prop::collection::vec(any::<f64>(), 0..6),
        rates in prop::collection::vec(any::<f64>(), 0..24),
        parts in prop::collection::vec(any::<f64>(), 0..6),
    ) {
        let pool = Pool::dense(&capacity, &gpus, &rates);
        let mut market = Market::new();
        let found = market.max_min(&pool, &parts, &LIMIT);
        prop_assert!(found.of.iter().all(|fraction| (0.0..=1.0 + 1e-9).contains(fraction)));
        let filled = market.max_min_filled(&pool, &parts, &LIMIT);
        prop_assert!(filled.of.iter().all(|fraction| (0.0..=1.0 + 1e-9).contains(fraction)));
        market.makespan(&pool, &parts, &LIMIT);
        if let Some(found) = market.max_sum(&pool, &rates, &parts, &LIMIT) {
            prop_assert!(found.of.iter().all(|fraction| (0.0..=1.0 + 1e-9).contains(fraction)));
        }
        let clocks: Vec<Clock> =
            parts.iter().map(|&part| Clock { since: part, left: part, alone: part }).collect();
        market.finish_time(&pool, &clocks, &LIMIT);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, rng_seed: RngSeed::Fixed(5), ..ProptestConfig::default() })]

    #[test]
    fn many_jobs_of_few_kinds_on_eight_types_are_solved_exactly(
        kinds in prop::collection::vec(prop::collection::vec(0.1..10.0f64, 8), 1..6),
        capacity in prop::collection::vec(1.0..40.0f64, 8),
        jobs in prop::collection::vec((0..6usize, 0..3u32), 60..160),
    ) {
        let mut pool = Pool::new(capacity);
        let mut parts = Vec::new();
        for (kind, size) in jobs {
            let gpus = f64::from(1u32 << size);
            let rates = &kinds[kind % kinds.len()];
            pool.job(rates.iter().enumerate().map(|(kind, rate)| Way::on(kind, gpus, *rate)));
            parts.push(rates.iter().sum::<f64>() / gpus);
        }
        let found = Market::new().max_min(&pool, &parts, &LIMIT);
        assert_fits(&pool, &found);
        prop_assert_eq!(found.status, Status::Proven);
        let (model, level) = stated(&pool, &parts);
        let expected = Interior::default().solve(&model, &Limit::steps(500)).unwrap();
        let expected = expected.values[level.index()];
        prop_assert!((found.level - expected).abs() <= 1e-6 * expected, "{} {}", found.level, expected);
    }
}

/// Rows of time and GPUs, one column for each way; gives the rows of rates with a floor each.
fn floors(pool: &Pool, floors: &[f64], model: &mut Model) -> Vec<Row> {
    let capacity: Vec<Row> = (0..pool.kinds())
        .map(|kind| model.row(Name("capacity", kind), f64::NEG_INFINITY, pool.capacity(kind)))
        .collect();
    let mut rows = Vec::new();
    for (job, &floor) in floors.iter().enumerate() {
        let time = model.row(Name("time", job), f64::NEG_INFINITY, 1.0);
        let rate = model.row(Name("rate", job), floor, f64::INFINITY);
        rows.push(rate);
        for way in pool.ways(job).iter().filter(|way| way.rate > 0.0) {
            let uses = way.uses.iter().filter(|(_, gpus)| *gpus > 0.0);
            let uses = uses.map(|(kind, gpus)| (capacity[*kind], *gpus));
            model.column(0.0, 0.0, f64::INFINITY, uses.chain([(time, 1.0), (rate, way.rate)]));
        }
    }
    rows
}

/// The sum of worth and time, with floors.
fn priced(pool: &Pool, floors: &[f64], worth: &[f64]) -> Model {
    let mut model = Model::new(Sense::Maximise);
    let capacity: Vec<Row> = (0..pool.kinds())
        .map(|kind| model.row(Name("capacity", kind), f64::NEG_INFINITY, pool.capacity(kind)))
        .collect();
    let mut worth = worth.iter();
    for (job, &floor) in floors.iter().enumerate() {
        let time = model.row(Name("time", job), f64::NEG_INFINITY, 1.0);
        let rate = model.row(Name("rate", job), floor, f64::INFINITY);
        for (way, worth) in pool.ways(job).iter().zip(&mut worth) {
            let (kind, gpus) = way.uses[0];
            let most = if way.rate > 0.0 { f64::INFINITY } else { 0.0 };
            let entries = [(capacity[kind], gpus), (time, 1.0), (rate, way.rate)];
            model.column(*worth, 0.0, most, entries);
        }
    }
    model
}

/// The most one job can have while all others keep a rate.
fn one_more(pool: &Pool, rates: &[f64], job: usize) -> Model {
    let mut rates = rates.to_vec();
    rates[job] = 0.0;
    let mut model = Model::new(Sense::Maximise);
    let rows = floors(pool, &rates, &mut model);
    // The rate itself as a column: what is taken out of the row.
    model.column(1.0, 0.0, f64::INFINITY, [(rows[job], -1.0)]);
    model
}

/// Water filling as published: a linear program for the level, then for each job one that says whether it can gain.
fn iterated(pool: &Pool, members: &[Member], tenants: &[Tenant]) -> Vec<f64> {
    let possible = |job: usize| {
        let there = |way: &Way| way.rate > 0.0 && pool.capacity(way.uses[0].0) > 0.0;
        pool.ways(job).iter().any(there)
    };
    let mut so_far = vec![0.0; members.len()];
    let mut done: Vec<bool> = (0..members.len()).map(|job| !possible(job)).collect();
    for _ in 0..3 * members.len() + 3 {
        let slopes = slopes(members, tenants, &done);
        if slopes.iter().all(|slope| *slope == 0.0) {
            break;
        }
        let kept: Vec<f64> = so_far.iter().map(|rate| rate * (1.0 - 1e-9)).collect();
        let mut model = Model::new(Sense::Maximise);
        let rows = floors(pool, &kept, &mut model);
        let entries = rows.iter().zip(&slopes).map(|(row, slope)| (*row, -slope));
        model.column(1.0, 0.0, f64::INFINITY, entries);
        let level = general(&model);
        so_far.iter_mut().zip(&slopes).for_each(|(rate, slope)| *rate += level * slope);
        for job in 0..members.len() {
            if slopes[job] > 0.0 {
                let kept: Vec<f64> = so_far.iter().map(|rate| rate * (1.0 - 1e-9)).collect();
                let best = general(&one_more(pool, &kept, job));
                done[job] = best <= so_far[job] * 1.00001 + 1e-6;
            }
        }
    }
    so_far
}

fn slopes(members: &[Member], tenants: &[Tenant], done: &[bool]) -> Vec<f64> {
    let mut slopes = vec![0.0; members.len()];
    for (number, tenant) in tenants.iter().enumerate() {
        let open: Vec<usize> = (0..members.len())
            .filter(|job| members[*job].tenant == number && !done[*job])
            .collect();
        let sum: f64 = open.iter().map(|job| members[*job].weight).sum();
        for (place, &job) in open.iter().enumerate() {
            let part = match tenant.inside {
                Inside::Fairness => members[job].weight / sum,
                Inside::Fifo => f64::from(u8::from(place == 0)),
            };
            slopes[job] = members[job].part * tenant.weight * part;
        }
    }
    slopes
}

#[test]
fn who_cannot_run_is_named_and_the_others_are_served() {
    let pool = Pool::dense(&[2.0, 0.0], &[1.0; 4], &[1.0, 1.0, 0.0, 5.0, f64::NAN, -1.0, 2.0, 0.0]);
    let found = Market::new().max_min(&pool, &[1.0, 1.0, 1.0, 1.0], &LIMIT);
    assert_eq!(found.left_out, [1, 2], "one asks for a type without GPUs, one has no number");
    assert!((found.level - 1.0).abs() < 1e-9, "{found:?}");
    assert_eq!(found.rates[1..3], [0.0, 0.0]);
}

#[test]
fn a_limit_of_one_step_still_gives_fractions_that_fit() {
    let rates: Vec<f64> = (0..60).map(|i| 1.0 + f64::from(i * 7 % 11)).collect();
    let pool = Pool::dense(&[2.0, 3.0, 1.0], &[1.0; 20], &rates);
    let cut = Market::new().max_min(&pool, &[1.0; 20], &Limit::steps(1));
    let whole = Market::new().max_min(&pool, &[1.0; 20], &LIMIT);
    assert_fits(&pool, &cut);
    let Status::Feasible { gap } = cut.status else { panic!("{:?}", cut.status) };
    assert!(cut.level < whole.level && whole.level <= cut.level / (1.0 - gap) * (1.0 + 1e-9));
}

#[test]
fn a_job_across_two_types_uses_both() {
    let mut pool = Pool::new([1.0, 1.0]);
    pool.job([Way::on(0, 1.0, 2.0), Way::across([(0, 1.0), (1, 1.0)], 3.0)]);
    pool.job([Way::on(1, 1.0, 1.0)]);
    let found = Market::new().max_min_filled(&pool, &[1.0, 1.0], &LIMIT);
    assert_fits(&pool, &found);
    assert!((found.rates[1] - 1.0).abs() < 1e-8, "its type whole: {:?}", found.rates);
    assert!((found.rates[0] - 2.0).abs() < 1e-8, "{:?}", found.rates);
}

#[test]
fn the_time_until_the_last_job_is_done_is_exact() {
    let pool = Pool::dense(&[1.0, 1.0], &[1.0, 1.0], &[4.0, 1.0, 2.0, 1.0]);
    let found = Market::new().makespan(&pool, &[175.0, 175.0], &LIMIT);
    assert!((found.level - 100.0).abs() < 1e-6, "{found:?}");
    assert_eq!(Market::new().makespan(&pool, &[0.0, 0.0], &LIMIT).level, 0.0);
    let none = Pool::dense(&[0.0], &[1.0], &[1.0]);
    assert_eq!(Market::new().makespan(&none, &[5.0], &LIMIT).level, f64::INFINITY);
}

/// Numbers from a seed, from 0 to below 1.
struct Draw(u64);

impl Draw {
    fn part(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / (1u64 << 31) as f64
    }

    fn below(&mut self, count: usize) -> usize {
        (self.part() * count as f64) as usize
    }

    fn magnitude(&mut self, from: f64, to: f64) -> f64 {
        10f64.powf(from + (to - from) * self.part())
    }
}

/// Jobs of few kinds, alike or nearly, with rates over seven orders of magnitude and GPUs over three.
fn wild(seed: u64) -> Case {
    let mut draw = Draw(seed.wrapping_mul(104_729));
    for _ in 0..20 {
        draw.part();
    }
    let (jobs, kinds) = (20 + draw.below(300), 1 + draw.below(6));
    let capacity = (0..kinds).map(|_| draw.magnitude(0.0, 3.5)).collect();
    let gpus: Vec<f64> = (0..jobs).map(|_| [1.0, 2.0, 8.0, 64.0][draw.below(4)]).collect();
    let classes = 1 + draw.below(30);
    let rate = |draw: &mut Draw| if draw.part() < 0.2 { 0.0 } else { draw.magnitude(-3.0, 4.0) };
    let table: Vec<f64> = (0..classes * kinds).map(|_| rate(&mut draw)).collect();
    let alike = draw.part() < 0.5;
    let mut rates = Vec::new();
    for _ in 0..jobs {
        let class = draw.below(classes);
        let row = &table[class * kinds..][..kinds];
        rates.extend(row.iter().map(|rate| rate * if alike { 1.0 } else { 0.5 + draw.part() }));
    }
    let part =
        |(row, gpus): (&[f64], &f64)| row.iter().sum::<f64>() / gpus * [1.0, 5.0][draw.below(2)];
    let parts = rates.chunks(kinds).zip(&gpus).map(part).collect();
    Case { capacity, gpus, rates, parts }
}

#[test]
fn ties_and_wild_scales_leave_the_answers_whole() {
    for seed in 1..=400 {
        let case = wild(seed);
        let pool = case.pool();
        let first = Market::new().max_min(&pool, &case.parts, &LIMIT);
        let filled = Market::new().max_min_filled(&pool, &case.parts, &LIMIT);
        assert_eq!(first.status, Status::Proven, "seed {seed}");
        assert_eq!(filled.status, Status::Proven, "seed {seed}");
        assert_fits(&pool, &filled);
        let jobs = (0..pool.jobs()).filter(|job| !first.left_out.contains(job));
        let lowest =
            jobs.map(|job| filled.rates[job] / case.parts[job]).fold(f64::INFINITY, f64::min);
        let close =
            (lowest / first.level - 1.0).abs() <= 1e-7 || first.left_out.len() == pool.jobs();
        assert!(close, "seed {seed}: {lowest} {}", first.level);
        let floors: Vec<f64> = first.rates.iter().map(|rate| rate * 0.9).collect();
        let sum =
            Market::new().max_sum(&pool, &case.rates, &floors, &LIMIT).expect("they can be kept");
        assert_eq!(sum.status, Status::Proven, "seed {seed}");
    }
}
