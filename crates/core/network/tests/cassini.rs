//! CASSINI beside what can be said with a pencil, beside trying everything, and beside a run.

use proptest::prelude::{ProptestConfig, prop_assert};
use proptest::{collection::vec, proptest};
use trainyard_network::cassini::affinity::has_loop;
use trainyard_network::cassini::{
    Candidate, CircleSettings, Loops, Perimeter, Phase, Profile, ProfileFault, SharedLink, choose,
    fit_link, judge,
};
use trainyard_network::periodic::{Periodic, iterations};
use trainyard_types::{LinkId, Span};

const SETTINGS: CircleSettings = CircleSettings {
    angles: 72,
    angles_max: 144,
    repeats_max: 20,
    tolerance: 0.01,
    tried_max: 6_000,
    sweeps_max: 12,
};

/// A job of so many milliseconds that sends at full speed for so many slots of 5 degrees.
fn job(period: u64, slots: u64) -> Profile {
    let on = period * 1000 * slots / 72;
    Profile::on_off(Span(period * 1000 - on), Span(on), 1.0)
}

/// Two jobs of one period: compatible when their sending fits beside each other, otherwise short by what does not.
#[test]
fn two_jobs_of_one_period_score_what_the_pencil_says_at_every_pair_of_fractions() {
    for first in (0..=72).step_by(6) {
        for second in (0..=72).step_by(6) {
            let (a, b) = (job(720, first), job(720, second));
            let fit = fit_link(1.0, &[&a, &b], &SETTINGS).unwrap();
            let over = (first + second) as f64 / 72.0 - 1.0;
            let expected = 1.0 - over.max(0.0);
            assert!((fit.score - expected).abs() < 1e-9, "{first} {second}: {}", fit.score);
            assert_eq!(fit.shifts[0], 0.0);
        }
    }
}

/// Without a shift both send at once: as much is too much as the shorter one sends.
#[test]
fn without_shifts_two_equal_jobs_score_one_less_the_shorter_fraction() {
    for (first, second) in [(24, 24), (30, 12), (60, 48)] {
        let ends_together = [job(720, first), job(720, second)];
        let candidate = Candidate {
            links: vec![SharedLink { link: LinkId(0), capacity: 1.0, jobs: vec![0, 1] }],
        };
        let frozen = CircleSettings { tried_max: 0, sweeps_max: 0, ..SETTINGS };
        let worst = 1.0 - first.min(second) as f64 / 72.0;
        let judged = fit_link(1.0, &[&ends_together[0], &ends_together[1]], &frozen).unwrap();
        // Nothing is moved from where all begin together, unless putting one after the other is better.
        assert!(judged.score >= worst - 1e-9);
        let free = judge(&ends_together, &candidate, &SETTINGS).unwrap();
        assert!(free.score > worst + 0.05, "{} beside {worst}", free.score);
    }
}

#[test]
fn periods_of_two_to_three_meet_after_six() {
    let perimeter = Perimeter::of(&[Span(200), Span(300)], &SETTINGS).unwrap();
    assert_eq!(perimeter.repeats, [3, 2]);
    assert!(perimeter.error < 1e-12);
    // Each third of the shorter job has a place between those of the longer one.
    let (short, long) = (job(200, 12), job(300, 24));
    assert!(fit_link(1.0, &[&short, &long], &SETTINGS).unwrap().score > 0.9);
}

#[test]
fn periods_that_do_not_meet_are_an_error_that_says_by_how_much() {
    let strict = CircleSettings { tolerance: 0.0, ..SETTINGS };
    let error = Perimeter::of(&[Span(997_000), Span(1_009_000)], &strict).unwrap_err();
    assert!(error.to_string().contains("do not meet"), "{error}");
    assert!(Perimeter::of(&[Span(997_000), Span(1_009_000)], &SETTINGS).is_err());
    let near = Perimeter::of(&[Span(1_000_000), Span(1_005_000)], &SETTINGS).unwrap();
    assert_eq!(near.repeats, [1, 1]);
    assert!(Perimeter::of(&[Span(1), Span(1_000_000_000)], &SETTINGS).is_err());
    let candidate =
        Candidate { links: vec![SharedLink { link: LinkId(0), capacity: 1.0, jobs: vec![0, 1] }] };
    let jobs = [job(997, 30), job(1009, 30)];
    assert!(judge(&jobs, &candidate, &strict).is_err());
    assert_eq!(choose(&jobs, &[candidate], Loops::Solve, &strict), None);
}

#[test]
fn profiles_that_are_none_are_refused() {
    assert_eq!(Profile { phases: Vec::new() }.check(), Err(ProfileFault::NoTime));
    let phase = Phase { span: Span(5), bytes_per_second: f64::NAN };
    assert!(matches!(Profile { phases: vec![phase] }.check(), Err(ProfileFault::Demand { .. })));
    assert_eq!(job(720, 3).check(), Ok(()));
}

fn shared(links: &[&[usize]]) -> Candidate {
    let link = |(at, jobs): (usize, &&[usize])| SharedLink {
        link: LinkId(at as u32),
        capacity: 1.0,
        jobs: jobs.to_vec(),
    };
    Candidate { links: links.iter().enumerate().map(link).collect() }
}

/// Excess on each link when jobs run with these shifts, by looking at 144 moments of a period.
fn true_score(jobs: &[Profile], candidate: &Candidate, shifts: &[f64]) -> f64 {
    let steps = 144usize;
    let period = jobs[0].period().as_secs_f64();
    let demand = |job: usize, at: f64| {
        let own = jobs[job].period().as_secs_f64();
        let mut into = (at - shifts[job]).rem_euclid(own);
        for phase in &jobs[job].phases {
            let span = phase.span.as_secs_f64();
            if into < span {
                return phase.bytes_per_second;
            }
            into -= span;
        }
        0.0
    };
    let scores = candidate.links.iter().map(|link| {
        let excess = (0..steps).map(|step| {
            let at = (step as f64 + 0.5) / steps as f64 * period;
            (link.jobs.iter().map(|job| demand(*job, at)).sum::<f64>() - link.capacity).max(0.0)
        });
        1.0 - excess.sum::<f64>() / steps as f64 / link.capacity
    });
    scores.sum::<f64>() / candidate.links.len() as f64
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Along a chain every link gets the shifts that are best for it, whatever the walk did before.
    #[test]
    fn without_loops_the_walk_gives_every_link_its_best_score(slots in vec(6u64..40, 4)) {
        let jobs: Vec<Profile> = slots.iter().map(|slots| job(720, *slots)).collect();
        let chain = shared(&[&[0, 1], &[1, 2], &[2, 3]]);
        let judged = judge(&jobs, &chain, &SETTINGS).unwrap();
        prop_assert!(!judged.looped);
        for (link, score) in chain.links.iter().zip(&judged.links) {
            let pair: Vec<&Profile> = link.jobs.iter().map(|job| &jobs[*job]).collect();
            prop_assert!((fit_link(1.0, &pair, &SETTINGS).unwrap().score - score).abs() < 1e-9);
        }
        let seen = true_score(&jobs, &chain, &judged.shifts);
        prop_assert!((seen - judged.score).abs() < 0.01, "{seen} beside {}", judged.score);
    }

    /// Round a loop of three the shifts are as good as the best of all combinations on a coarse grid.
    #[test]
    fn loops_are_solved_nearly_as_well_as_by_trying_everything(slots in vec(8u64..36, 3)) {
        let jobs: Vec<Profile> = slots.iter().map(|slots| job(720, *slots)).collect();
        let ring = shared(&[&[0, 1], &[1, 2], &[0, 2]]);
        let judged = judge(&jobs, &ring, &SETTINGS).unwrap();
        prop_assert!(judged.looped);
        let mut best = f64::MIN;
        for b in 0..24 {
            for c in 0..24 {
                let shifts = [0.0, f64::from(b) * 0.03, f64::from(c) * 0.03];
                best = best.max(true_score(&jobs, &ring, &shifts));
            }
        }
        let seen = true_score(&jobs, &ring, &judged.shifts);
        prop_assert!(seen > best - 0.03, "{seen} beside {best}");
        prop_assert!((seen - judged.score).abs() < 0.02, "{seen} beside {}", judged.score);
    }
}

/// Three jobs that each send for a third, pairwise on three links: the published rule gives up, ours does not.
#[test]
fn a_loop_that_the_published_rule_discards_is_fully_compatible() {
    let jobs = [job(720, 24), job(720, 24), job(720, 24)];
    let ring = shared(&[&[0, 1], &[1, 2], &[0, 2]]);
    assert!(has_loop(3, &ring));
    assert_eq!(choose(&jobs, std::slice::from_ref(&ring), Loops::Discard, &SETTINGS), None);
    let (_, judged) = choose(&jobs, &[ring], Loops::Solve, &SETTINGS).unwrap();
    assert!((judged.score - 1.0).abs() < 1e-9, "{judged:?}");
}

#[test]
fn the_candidate_whose_jobs_get_along_is_chosen() {
    let jobs = [job(720, 60), job(720, 60), job(720, 20), job(720, 10)];
    let candidates = [shared(&[&[0, 1], &[2, 3]]), shared(&[&[0, 2], &[1, 3]]), shared(&[])];
    assert_eq!(choose(&jobs, &candidates[..2], Loops::Solve, &SETTINGS).unwrap().0, 1);
    assert_eq!(choose(&jobs, &candidates, Loops::Solve, &SETTINGS).unwrap().0, 2);
}

/// Seconds of a mean iteration of two jobs on a link of 1 byte per second, with and without their shifts.
fn run(fractions: (u64, u64)) -> (f64, f64, f64) {
    let jobs = [job(720, fractions.0), job(720, fractions.1)];
    let fit = fit_link(1.0, &[&jobs[0], &jobs[1]], &SETTINGS).unwrap();
    let mean = |shifts: &[f64]| {
        let runs: Vec<Periodic> = jobs
            .iter()
            .zip(shifts)
            .map(|(job, shift)| Periodic {
                computes: job.phases[0].span.as_secs_f64(),
                bytes: job.phases[1].span.as_secs_f64(),
                rate_max: 1.0,
                links: vec![LinkId(0)],
                shift: *shift,
            })
            .collect();
        let took = iterations(&runs, &[1.0], 40);
        took.iter().flatten().sum::<f64>() / 80.0
    };
    (fit.score, mean(&[0.0, 0.0]), mean(&fit.shifts))
}

/// The published snapshots: the better the score, the closer an iteration comes to what it takes alone.
#[test]
fn the_higher_the_score_the_less_an_iteration_is_stretched_with_shifts() {
    let mut last = (f64::MAX, 0.0);
    for fractions in [(24, 24), (36, 36), (42, 42), (50, 50), (60, 60)] {
        let (score, _, shifted) = run(fractions);
        assert!(score <= last.0 && shifted >= last.1 - 1e-9, "{fractions:?} {score} {shifted}");
        last = (score, shifted);
        if score > 1.0 - 1e-9 {
            assert!((shifted - 0.72).abs() < 1e-9, "{shifted}");
        }
    }
}

#[test]
fn a_shift_helps_compatible_jobs_and_none_where_the_link_is_never_full() {
    let (_, together, shifted) = run((36, 36));
    assert!(
        (together - 1.08).abs() < 1e-9 && (shifted - 0.72).abs() < 1e-9,
        "{together} {shifted}"
    );
    // The control: jobs that send at half speed have nothing to gain.
    let half = |shift: f64| Periodic {
        computes: 0.36,
        bytes: 0.18,
        rate_max: 0.5,
        links: vec![LinkId(0)],
        shift,
    };
    let took = |shift: f64| iterations(&[half(0.0), half(shift)], &[1.0], 10)[1][9];
    assert!((took(0.0) - took(0.36)).abs() < 1e-9);
}
