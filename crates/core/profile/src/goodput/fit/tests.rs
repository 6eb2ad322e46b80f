use super::*;

const TRUTH: Throughput = Throughput {
    alpha_c: 0.05,
    beta_c: 0.002,
    alpha_n: 0.3,
    beta_n: 0.004,
    alpha_r: 0.08,
    beta_r: 0.002,
    gamma: 2.5,
};

fn seen(model: &Throughput, nodes: u32, gpus: u32, local: u32) -> Observation {
    let size = Size { nodes, gpus };
    let step = model.iteration(size, local);
    Observation { size, local, step, sync: step - model.gradient(local) }
}

fn everywhere(model: &Throughput) -> Vec<Observation> {
    let sizes = [(1, 1), (1, 2), (1, 4), (2, 4), (2, 8), (3, 12), (4, 16), (8, 32)];
    let all = sizes.iter().flat_map(|size| [16, 64, 256].map(|local| (size, local)));
    all.map(|((nodes, gpus), local)| seen(model, *nodes, *gpus, local)).collect()
}

/// The loss by its definition, independent of what the fit computes.
fn loss(model: &Throughput, observations: &[Observation]) -> f64 {
    let rms = |errors: &dyn Fn(&Observation) -> f64| {
        let squares: f64 = observations.iter().map(|one| errors(one) * errors(one)).sum();
        (squares / observations.len() as f64).sqrt()
    };
    let gradient = |one: &Observation| (model.gradient(one.local) / (one.step - one.sync)).ln();
    let step = |one: &Observation| (model.iteration(one.size, one.local) / one.step).ln();
    let growth = |beta: f64, alpha: f64| (beta / alpha) * (beta / alpha);
    let growth = growth(model.beta_n, model.alpha_n) + growth(model.beta_r, model.alpha_r);
    rms(&gradient) + rms(&step) + 1e-3 * (model.gamma - 1.0).powi(2) + 1e-2 * growth
}

/// A general minimiser that knows nothing of the problem: a simplex that is turned, stretched and shrunk (Nelder and
/// Mead), within the bounds of the fit, begun anew at its best point until nothing is gained.
fn general(observations: &[Observation], start: Point) -> f64 {
    let within = Problem::new(observations).bounds();
    let clamp = |point: Point| -> Point {
        std::array::from_fn(|i| point[i].clamp(within.least[i], within.most[i]))
    };
    let value = |point: &Point| loss(&parameters(&clamp(*point)), observations);
    let mut best = clamp(start);
    for _ in 0..12 {
        let mut simplex: Vec<(f64, Point)> = (0..=N)
            .map(|corner| {
                let mut point = best;
                if corner > 0 {
                    point[corner - 1] += 0.7;
                }
                (value(&point), point)
            })
            .collect();
        for _ in 0..1500 {
            simplex.sort_by(|a, b| a.0.total_cmp(&b.0));
            let centre: Point = std::array::from_fn(|i| {
                simplex[..N].iter().map(|(_, point)| point[i]).sum::<f64>() / N as f64
            });
            let (worst, corner) = simplex[N];
            let along = |by: f64| -> (f64, Point) {
                let point = std::array::from_fn(|i| centre[i] + by * (corner[i] - centre[i]));
                (value(&point), point)
            };
            let turned = along(-1.0);
            let next = match turned.0 {
                v if v < simplex[0].0 => {
                    [along(-2.0), turned].into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).unwrap()
                }
                v if v < simplex[N - 1].0 => turned,
                _ => along(0.5),
            };
            if next.0 < worst {
                simplex[N] = next;
            } else {
                let lowest = simplex[0].1;
                for (known, point) in &mut simplex[1..] {
                    *point = std::array::from_fn(|i| (point[i] + lowest[i]) / 2.0);
                    *known = value(point);
                }
            }
        }
        simplex.sort_by(|a, b| a.0.total_cmp(&b.0));
        best = clamp(simplex[0].1);
    }
    value(&best)
}

/// Times that no parameters explain: the truth, off by up to a tenth.
fn disturbed(model: &Throughput) -> Vec<Observation> {
    let mut all = everywhere(model);
    for (index, one) in all.iter_mut().enumerate() {
        let off = 1.0 + 0.1 * ((index * index * 7 + index * 3) as f64).sin();
        one.step *= off;
        one.sync *= 2.0 - off;
        one.sync = one.sync.min(one.step * 0.9);
    }
    all
}

#[test]
fn times_everywhere_are_met() {
    let observations = everywhere(&TRUTH);
    let fitted = fit(&observations).unwrap();
    // Not the parameters but the times must be right: the regularisation trades growth and overlap against them.
    for one in &observations {
        let ratio = fitted.seconds(one.size, one.local, 0) / one.step;
        assert!((ratio - 1.0).abs() < 0.03, "{one:?}: {ratio} {fitted:?}");
    }
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.02;
    let found = fitted.throughput;
    assert!(near(found.alpha_c, TRUTH.alpha_c) && near(found.beta_c, TRUTH.beta_c), "{found:?}");
    assert_eq!(fitted.gpus_seen(), 32);
    assert!(fitted.knows_batches());
}

#[test]
fn parameters_without_overlap_and_growth_are_recovered() {
    let truth = Throughput { beta_n: FLOOR, beta_r: FLOOR, gamma: 1.0, ..TRUTH };
    let found = fit(&everywhere(&truth)).unwrap().throughput;
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-3;
    assert!(near(found.alpha_c, truth.alpha_c) && near(found.beta_c, truth.beta_c), "{found:?}");
    assert!(near(found.alpha_n, truth.alpha_n) && near(found.alpha_r, truth.alpha_r), "{found:?}");
    assert!(found.gamma < 1.001, "{found:?}");
}

#[test]
fn no_general_minimiser_finds_a_lower_loss() {
    let few: Vec<Observation> = everywhere(&TRUTH).into_iter().take(7).collect();
    let cases = [everywhere(&TRUTH), disturbed(&TRUTH), few, disturbed(&TRUTH)[..11].to_vec()];
    for observations in cases {
        let fitted = fit(&observations).unwrap();
        let problem = Problem::new(&observations);
        let starts = [
            problem.usual_start(),
            problem.likely_start(),
            [-2.0, -6.0, -1.0, -5.0, -2.0, -6.0, 2.5],
        ];
        for start in starts {
            let other = general(&observations, start);
            assert!(fitted.loss <= other + 2e-4, "{} {other} {fitted:?}", fitted.loss);
        }
    }
}

#[test]
fn one_observation_fixes_half_of_the_gradient() {
    let fitted = fit(&[seen(&TRUTH, 1, 1, 64)]).unwrap();
    let gradient = TRUTH.gradient(64);
    assert!((fitted.throughput.alpha_c - gradient / 2.0).abs() < 1e-9);
    assert!((fitted.throughput.gradient(64) - gradient).abs() < 1e-6);
    // Exchanges that were never observed are free, so that more GPUs look as good as they could be.
    let four = fitted.throughput(Size::on_one_node(4), 64, 0);
    assert!((four / fitted.throughput(Size::on_one_node(1), 64, 0) - 4.0).abs() < 1e-3);
    assert!(!fitted.knows_batches());
}

#[test]
fn a_network_that_was_not_seen_is_a_little_slower_than_a_node() {
    let observations = [(1, 16), (2, 16), (4, 16), (4, 64)];
    let observations = observations.map(|(gpus, local)| seen(&TRUTH, 1, gpus, local));
    let Fitted { throughput: found, .. } = fit(&observations).unwrap();
    assert!(found.alpha_r > 0.01);
    assert_eq!((found.alpha_n, found.beta_n), (found.alpha_r * 1.1, found.beta_r * 1.1));
}

#[test]
fn growth_is_not_fitted_before_a_third_gpu() {
    let observations = [(1, 1, 16), (1, 2, 16), (2, 2, 32)];
    let observations = observations.map(|(nodes, gpus, local)| seen(&TRUTH, nodes, gpus, local));
    let found = fit(&observations).unwrap().throughput;
    let at_floor = |value: f64| (value / FLOOR - 1.0).abs() < 1e-9;
    assert!(at_floor(found.beta_n) && at_floor(found.beta_r), "{found:?}");
    let fitted = fit(&[seen(&TRUTH, 2, 2, 16), seen(&TRUTH, 2, 8, 16)]).unwrap().throughput;
    assert!(at_floor(fitted.alpha_r) && at_floor(fitted.beta_r), "{fitted:?}");
}

#[test]
fn doubt_grows_with_the_distance_to_what_was_seen() {
    let observations = [(1, 16), (2, 16), (4, 16), (4, 64)];
    let observations = observations.map(|(gpus, local)| seen(&TRUTH, 1, gpus, local));
    let fitted = fit(&observations).unwrap();
    let relative_error = |nodes, gpus| fitted.relative_error(Size { nodes, gpus });
    assert_eq!(fitted.error(Exchange::Network), None);
    assert!(fitted.error(Exchange::Node).unwrap() < 0.1);
    assert!(
        relative_error(1, 8) > relative_error(1, 4)
            && relative_error(2, 8) > relative_error(1, 8)
            && relative_error(4, 16) > relative_error(2, 8)
    );
}

#[test]
fn too_few_and_impossible_observations_are_told() {
    assert_eq!(fit(&[]), Err(FitError::TooFew));
    let good = seen(&TRUTH, 1, 2, 16);
    for (step, sync) in [(0.0, 0.0), (f64::NAN, 0.0), (0.1, 0.1), (0.1, -0.1), (f64::INFINITY, 0.0)]
    {
        let verdict = fit(&[good, Observation { step, sync, ..good }]);
        assert!(matches!(verdict, Err(FitError::Impossible { index: 1, .. })), "{verdict:?}");
    }
}

#[test]
fn times_that_fall_with_more_work_are_fitted_without_harm() {
    let odd = |nodes, gpus, local, step: f64| Observation {
        size: Size { nodes, gpus },
        local,
        step,
        sync: if gpus > 1 { step / 3.0 } else { 0.0 },
    };
    let cases = [
        vec![odd(1, 1, 16, 9.0), odd(1, 1, 64, 1.0), odd(2, 8, 16, 1e-6)],
        vec![odd(1, 1, 16, 1e-9), odd(4, 16, 4096, 1e6)],
        vec![odd(1, 2, 16, 1.0), odd(1, 4, 16, 0.1), odd(3, 3, 1, 30.0)],
    ];
    for observations in cases {
        let fitted = fit(&observations).unwrap();
        for gpus in [1u32, 2, 4, 64] {
            let seconds = fitted.seconds(Size { nodes: gpus.div_ceil(4), gpus }, 32, 2);
            assert!(seconds.is_finite() && seconds > 0.0, "{fitted:?}");
        }
        assert!(fitted.relative_error(Size { nodes: 9, gpus: 64 }).is_finite());
        assert_eq!(Ok(fitted), fit(&observations));
    }
}
