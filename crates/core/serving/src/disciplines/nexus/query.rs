//! The target of a query over a tree of models, divided so that the fewest GPUs are needed (section 6.2).

/// One model of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Latency of each batch from 1 on, in microseconds.
    pub latencies: Vec<f64>,
    /// Requests of this model for each of its parent.
    pub per_parent: f64,
    /// The stages that follow it, all later in the list.
    pub children: Vec<usize>,
}

/// Microseconds for each stage, and the GPUs that the query needs at this rate; nothing where no division meets it.
///
/// f(u, t) is the least number of GPUs for the subtree of u within t: over what u takes for itself, the GPUs for u and
/// those of its children within the rest. O(stages * steps^2) for steps of the target.
pub fn split_slo(
    stages: &[Stage],
    rate: f64,
    slo_us: f64,
    steps: usize,
) -> Option<(Vec<f64>, f64)> {
    if stages.is_empty() || steps == 0 {
        return None;
    }
    let step = slo_us / steps as f64;
    let mut rates = vec![rate; stages.len()];
    for (at, stage) in stages.iter().enumerate() {
        for child in &stage.children {
            rates[*child] = rates[at] * stages[*child].per_parent;
        }
    }
    // By stage and steps: the least GPUs, and the steps that the stage takes for itself.
    let mut best = vec![vec![(f64::INFINITY, 0usize); steps + 1]; stages.len()];
    for at in (0..stages.len()).rev() {
        for within in 0..=steps {
            for own in 1..=within {
                let below = stages[at].children.iter().map(|child| best[*child][within - own].0);
                let gpus = gpus(&stages[at], rates[at], step * own as f64) + below.sum::<f64>();
                if gpus < best[at][within].0 {
                    best[at][within] = (gpus, own);
                }
            }
        }
    }
    let all = best[0][steps].0;
    if !all.is_finite() {
        return None;
    }
    let (mut budgets, mut within) = (vec![0.0; stages.len()], vec![steps; stages.len()]);
    for (at, stage) in stages.iter().enumerate() {
        let own = best[at][within[at]].1;
        budgets[at] = step * own as f64;
        stage.children.iter().for_each(|child| within[*child] = within[at] - own);
    }
    Some((budgets, all))
}

/// GPUs for a rate where a request waits for one batch and runs in the next.
fn gpus(stage: &Stage, rate: f64, budget_us: f64) -> f64 {
    let fits = |latency: &&f64| **latency <= budget_us / 2.0;
    let batch = stage.latencies.iter().take_while(fits).count();
    match batch {
        0 => f64::INFINITY,
        batch => rate * stage.latencies[batch - 1] / (batch as f64 * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(fixed: f64, each: f64, per_parent: f64, children: Vec<usize>) -> Stage {
        let latencies = (1..=32).map(|batch| fixed + each * f64::from(batch)).collect();
        Stage { latencies, per_parent, children }
    }

    #[test]
    fn no_other_division_in_the_same_steps_needs_fewer_gpus() {
        for per_parent in [0.1, 1.0, 10.0] {
            let stages = [stage(8e3, 2e3, 1.0, vec![1]), stage(3e3, 900.0, per_parent, Vec::new())];
            let (budgets, found) = split_slo(&stages, 100.0, 100e3, 50).unwrap();
            let all = (1..50).map(|own| {
                let own = f64::from(own) * 2e3;
                gpus(&stages[0], 100.0, own) + gpus(&stages[1], 100.0 * per_parent, 100e3 - own)
            });
            let least = all.fold(f64::INFINITY, f64::min);
            assert!((found - least).abs() < 1e-9, "{found} {least}");
            assert!((budgets[0] + budgets[1] - 100e3).abs() < 1e-6, "{budgets:?}");
        }
    }

    #[test]
    fn the_more_requests_a_later_stage_has_the_more_time_it_gets() {
        let budget = |per_parent| {
            let stages = [stage(8e3, 2e3, 1.0, vec![1]), stage(8e3, 2e3, per_parent, Vec::new())];
            split_slo(&stages, 100.0, 100e3, 50).unwrap().0[1]
        };
        assert!(budget(0.1) < budget(1.0) && budget(1.0) < budget(10.0));
    }

    #[test]
    fn a_target_that_no_division_meets_has_none() {
        assert_eq!(split_slo(&[stage(8e3, 2e3, 1.0, Vec::new())], 1.0, 10e3, 20), None);
    }
}
