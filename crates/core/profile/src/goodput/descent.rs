//! The least of a sum of norms within bounds, by damped Gauss-Newton steps.
//!
//! The objective is `rms(r1) + rms(r2) + |s|^2`, where residuals `r1`, `r2` and `s` are smooth in seven coordinates.
//! A norm is not smooth where it is zero, and there lies the answer for a job that was seen once. Each step therefore
//! minimises a bound from above, `rms(r) <= rms(r)^2 / 2c + c / 2` with `c` the present norm, which is a problem of
//! least squares; steps that do not lower the objective are damped more (Levenberg and Marquardt).
//! Seven unknowns are solved in place; no crate that solves small bounded problems of this form is as short as this.

/// Coordinates.
pub(super) const N: usize = 7;
/// A point.
pub(super) type Point = [f64; N];

/// What is to be lowered.
pub(super) trait Objective {
    /// Residuals at a point, each with its derivatives, given to `take` group by group.
    fn residuals(&self, at: &Point, take: &mut dyn FnMut(Group, f64, &Point));
}

/// Where a residual counts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// In the first norm.
    First,
    /// In the second norm.
    Second,
    /// By its square.
    Square,
}

/// Bounds of each coordinate; one whose bounds are equal is fixed.
#[derive(Copy, Clone, Debug)]
pub(super) struct Box7 {
    pub(super) least: Point,
    pub(super) most: Point,
}

/// Below this a norm counts as zero; it is a relative error of a time.
const NORM_LEAST: f64 = 1e-7;
const STEPS_MAX: usize = 150;
/// A step that lowers the objective by less than this part is the last.
const GAIN_LEAST: f64 = 1e-7;
/// The longest move of one coordinate in one step.
const MOVE_MAX: f64 = 2.0;

/// A point at which no further step lowers the objective, and its value there.
pub(super) fn lower(objective: &impl Objective, within: &Box7, start: Point) -> (Point, f64) {
    let mut at = start;
    let mut local = Local::new(objective, &at);
    let mut damping = 1e-3;
    for _ in 0..STEPS_MAX {
        let mut gained = None;
        while damping < 1e9 {
            let next = step(&local, within, &at, damping);
            let there = Local::new(objective, &next);
            if there.value < local.value {
                gained = Some((next, there));
                damping = (damping * 0.3).max(1e-9);
                break;
            }
            damping *= 5.0;
        }
        let Some((next, there)) = gained else { break };
        let small = local.value - there.value <= GAIN_LEAST * (local.value + NORM_LEAST);
        (at, local) = (next, there);
        if small {
            break;
        }
    }
    (at, local.value)
}

/// The objective near a point: value, gradient, and the curvature of its bound from above.
struct Local {
    value: f64,
    gradient: Point,
    curvature: [Point; N],
}

impl Local {
    fn new(objective: &impl Objective, at: &Point) -> Local {
        let mut parts = [Sums::default(), Sums::default(), Sums::default()];
        objective.residuals(at, &mut |group, residual, slope| {
            parts[group as usize].add(residual, slope);
        });
        let mut local = Local { value: 0.0, gradient: [0.0; N], curvature: [[0.0; N]; N] };
        for (number, sums) in parts.iter().enumerate() {
            let weight = if number == Group::Square as usize {
                local.value += sums.squares;
                2.0
            } else {
                let count = sums.count.max(1.0);
                let norm = (sums.squares / count).sqrt();
                local.value += norm;
                1.0 / (count * norm.max(NORM_LEAST))
            };
            for i in 0..N {
                local.gradient[i] += weight * sums.gradient[i];
                for j in 0..N {
                    local.curvature[i][j] += weight * sums.curvature[i.max(j)][i.min(j)];
                }
            }
        }
        if !local.value.is_finite() {
            local.value = f64::INFINITY;
        }
        local
    }
}

#[derive(Default)]
struct Sums {
    count: f64,
    squares: f64,
    gradient: Point,
    /// The lower half.
    curvature: [Point; N],
}

impl Sums {
    fn add(&mut self, residual: f64, slope: &Point) {
        self.count += 1.0;
        self.squares += residual * residual;
        for i in 0..N {
            if slope[i] == 0.0 {
                continue;
            }
            self.gradient[i] += residual * slope[i];
            for j in 0..=i {
                self.curvature[i][j] += slope[i] * slope[j];
            }
        }
    }
}

/// The next point: a damped step of the free coordinates, cut at the bounds.
fn step(local: &Local, within: &Box7, at: &Point, damping: f64) -> Point {
    let held = |i: usize| {
        let down = local.gradient[i] > 0.0;
        within.least[i] == within.most[i]
            || (at[i] <= within.least[i] && down)
            || (at[i] >= within.most[i] && !down)
    };
    let mut matrix = local.curvature;
    let mut aim = local.gradient.map(|slope| -slope);
    for i in 0..N {
        if held(i) {
            matrix[i] = [0.0; N];
            matrix.iter_mut().for_each(|row| row[i] = 0.0);
            matrix[i][i] = 1.0;
            aim[i] = 0.0;
        } else {
            matrix[i][i] += damping * matrix[i][i] + 1e-12;
        }
    }
    let moved = solve(&matrix, aim);
    std::array::from_fn(|i| {
        let by = if moved[i].is_finite() { moved[i].clamp(-MOVE_MAX, MOVE_MAX) } else { 0.0 };
        (at[i] + by).clamp(within.least[i], within.most[i])
    })
}

/// The solution of a positive definite system, by Cholesky's factors.
fn solve(matrix: &[Point; N], mut aim: Point) -> Point {
    let mut factor = [[0.0; N]; N];
    for i in 0..N {
        for j in 0..=i {
            let known: f64 = (0..j).map(|k| factor[i][k] * factor[j][k]).sum();
            let rest = matrix[i][j] - known;
            factor[i][j] = if i == j { rest.max(1e-15).sqrt() } else { rest / factor[j][j] };
        }
    }
    for i in 0..N {
        let known: f64 = (0..i).map(|k| factor[i][k] * aim[k]).sum();
        aim[i] = (aim[i] - known) / factor[i][i];
    }
    for i in (0..N).rev() {
        let known: f64 = (i + 1..N).map(|k| factor[k][i] * aim[k]).sum();
        aim[i] = (aim[i] - known) / factor[i][i];
    }
    aim
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two norms and a square that pull to different points; without bounds the first norm is zero at the least.
    struct Centres;

    impl Objective for Centres {
        fn residuals(&self, at: &Point, take: &mut dyn FnMut(Group, f64, &Point)) {
            for (i, value) in at.iter().enumerate() {
                let slope: Point = std::array::from_fn(|j| if i == j { 1.0 } else { 0.0 });
                take(Group::First, value - 1.0, &slope);
                take(Group::Second, 0.6 * (value + 2.0), &slope.map(|one| 0.6 * one));
                take(Group::Square, 0.1 * value, &slope.map(|one| 0.1 * one));
            }
        }
    }

    #[test]
    fn the_least_within_bounds_is_found() {
        let mut within = Box7 { least: [-10.0; N], most: [10.0; N] };
        within.least[3] = 1.5;
        within.least[4] = 0.5;
        within.most[4] = 0.5;
        let (at, value) = lower(&Centres, &within, [0.5, 0.5, 0.5, 2.5, 0.5, 0.5, 0.5]);
        assert_eq!((at[3], at[4]), (1.5, 0.5));
        let eval = |point: &Point| Local::new(&Centres, point).value;
        assert_eq!(eval(&at), value);
        for i in (0..N).filter(|i| *i != 4) {
            for by in [-1e-3, 1e-3] {
                let mut near = at;
                near[i] = (near[i] + by).max(within.least[i]);
                assert!(eval(&near) >= value - 1e-6, "{i} {by}: {} {value}", eval(&near));
            }
        }
    }
}
