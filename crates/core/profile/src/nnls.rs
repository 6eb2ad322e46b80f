//! Least squares with unknowns that are not negative.
//!
//! The active-set method of Lawson and Hanson (Solving Least Squares Problems, 1974, chapter 23), for a handful of
//! unknowns: columns are scaled to length one, and each set of unknowns above zero is solved by Householder
//! reflections. What depends on other columns is left at zero, so that no observations are too alike.
//! It is written here because the crate at hand panics on round-off, which is no answer to a job's figures.

/// Steps for each unknown before the best answer so far is taken.
const STEPS_EACH: usize = 16;
/// What is left of a column of length one below which it counts as a combination of others.
const DEPENDENT: f64 = 1e-10;

/// The `x >= 0` with the least sum of squares of `rows * x - values`; one row for each value.
///
/// Nothing if there are no rows, if rows differ in length, or if a number is not finite.
pub fn nnls(rows: &[Vec<f64>], values: &[f64]) -> Option<Vec<f64>> {
    let count = rows.first()?.len();
    let sound = rows.len() == values.len()
        && rows.iter().all(|row| row.len() == count && row.iter().all(|x| x.is_finite()))
        && values.iter().all(|x| x.is_finite());
    if !sound {
        return None;
    }
    let mut columns: Vec<Vec<f64>> =
        (0..count).map(|j| rows.iter().map(|row| row[j]).collect()).collect();
    let scales: Vec<f64> = columns.iter_mut().map(|column| scale(column)).collect();
    let x = active_set(&columns, values);
    Some(x.iter().zip(&scales).map(|(x, scale)| x / scale).collect())
}

/// Makes a column one long; one of nothing stays.
fn scale(column: &mut [f64]) -> f64 {
    let length = libm::sqrt(dot(column, column));
    if length == 0.0 || !length.is_finite() {
        return 1.0;
    }
    column.iter_mut().for_each(|x| *x /= length);
    length
}

fn active_set(columns: &[Vec<f64>], values: &[f64]) -> Vec<f64> {
    let count = columns.len();
    let mut x = vec![0.0; count];
    let mut free: Vec<usize> = Vec::new();
    let mut refused = vec![false; count];
    let enough = 1e-12 * libm::sqrt(dot(values, values)).max(f64::MIN_POSITIVE);
    for _ in 0..STEPS_EACH * count {
        let rest = residual(columns, values, &x);
        let pull = |j: usize| dot(&columns[j], &rest);
        let outside = (0..count).filter(|j| !free.contains(j) && !refused[*j]);
        let Some(next) = outside.max_by(|a, b| pull(*a).total_cmp(&pull(*b)).then(b.cmp(a))) else {
            break;
        };
        if pull(next) <= enough {
            break;
        }
        free.push(next);
        match solve(columns, values, &free) {
            Some(z) if z[free.len() - 1] > 0.0 => {
                settle(columns, values, &mut free, &mut x, z);
                refused.fill(false);
            }
            // It depends on the others, or round-off pulled it the wrong way.
            Some(_) | None => {
                free.pop();
                refused[next] = true;
            }
        }
    }
    x
}

/// Goes from `x` towards the unconstrained answer `z` as far as all stay above zero, drops those that reached it, and
/// again.
fn settle(
    columns: &[Vec<f64>],
    values: &[f64],
    free: &mut Vec<usize>,
    x: &mut [f64],
    mut z: Vec<f64>,
) {
    while z.iter().any(|z| *z <= 0.0) {
        let part = |(at, z): (usize, &f64)| {
            let from = x[free[at]];
            (*z <= 0.0).then(|| from / (from - z))
        };
        let step = z.iter().enumerate().filter_map(part).fold(1.0, f64::min);
        for (at, j) in free.iter().enumerate() {
            x[*j] += step * (z[at] - x[*j]);
        }
        let before = free.len();
        free.retain(|j| x[*j] > 1e-14);
        x.iter_mut().enumerate().filter(|(j, _)| !free.contains(j)).for_each(|(_, x)| *x = 0.0);
        if free.is_empty() || free.len() == before {
            break;
        }
        let Some(again) = solve(columns, values, free) else { break };
        z = again;
    }
    if z.len() == free.len() && z.iter().all(|z| *z > 0.0) {
        free.iter().zip(z).for_each(|(j, z)| x[*j] = z);
    }
}

/// Least squares over some columns, by Householder reflections; nothing if one depends on those before it.
fn solve(columns: &[Vec<f64>], values: &[f64], free: &[usize]) -> Option<Vec<f64>> {
    let rows = values.len();
    if free.len() > rows {
        return None;
    }
    let mut work: Vec<Vec<f64>> = free.iter().map(|j| columns[*j].clone()).collect();
    let mut right = values.to_vec();
    for k in 0..work.len() {
        let length = libm::sqrt(dot(&work[k][k..], &work[k][k..]));
        if length < DEPENDENT {
            return None;
        }
        let sign = if work[k][k] > 0.0 { -1.0 } else { 1.0 };
        let mut mirror = work[k][k..].to_vec();
        mirror[0] -= sign * length;
        let square = dot(&mirror, &mirror);
        for column in work[k..].iter_mut().chain(std::iter::once(&mut right)) {
            let factor = 2.0 * dot(&mirror, &column[k..]) / square;
            column[k..].iter_mut().zip(&mirror).for_each(|(x, m)| *x -= factor * m);
        }
    }
    let mut z = vec![0.0; free.len()];
    for k in (0..z.len()).rev() {
        let known: f64 = (k + 1..z.len()).map(|j| work[j][k] * z[j]).sum();
        z[k] = (right[k] - known) / work[k][k];
    }
    Some(z)
}

fn residual(columns: &[Vec<f64>], values: &[f64], x: &[f64]) -> Vec<f64> {
    let at = |row: usize| columns.iter().zip(x).map(|(column, x)| column[row] * x).sum::<f64>();
    values.iter().enumerate().map(|(row, value)| value - at(row)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn off(rows: &[Vec<f64>], values: &[f64], x: &[f64]) -> f64 {
        let at = |row: &[f64]| row.iter().zip(x).map(|(a, x)| a * x).sum::<f64>();
        rows.iter().zip(values).map(|(row, value)| (at(row) - value).powi(2)).sum()
    }

    /// Gauss on the normal equations of one set of unknowns: another way than the one above.
    fn normal(rows: &[Vec<f64>], values: &[f64], set: &[usize]) -> Option<Vec<f64>> {
        let n = set.len();
        let mut m = vec![vec![0.0; n + 1]; n];
        for (i, a) in set.iter().enumerate() {
            for (j, b) in set.iter().enumerate() {
                m[i][j] = rows.iter().map(|row| row[*a] * row[*b]).sum();
            }
            m[i][n] = rows.iter().zip(values).map(|(row, value)| row[*a] * value).sum();
        }
        for k in 0..n {
            let pivot = (k..n).max_by(|a, b| m[*a][k].abs().total_cmp(&m[*b][k].abs()))?;
            m.swap(k, pivot);
            if m[k][k].abs() < 1e-9 {
                return None;
            }
            let above = m[k].clone();
            for (_, row) in m.iter_mut().enumerate().filter(|(i, _)| *i != k) {
                let factor = row[k] / above[k];
                row.iter_mut().zip(&above).for_each(|(x, above)| *x -= factor * above);
            }
        }
        Some((0..n).map(|k| m[k][n] / m[k][k]).collect())
    }

    /// The best over all sets of unknowns that may be above zero.
    fn by_all_sets(rows: &[Vec<f64>], values: &[f64]) -> f64 {
        let count = rows[0].len();
        let mut best = off(rows, values, &vec![0.0; count]);
        for mask in 1u32..1 << count {
            let set: Vec<usize> = (0..count).filter(|j| mask >> j & 1 == 1).collect();
            let Some(z) = normal(rows, values, &set) else { continue };
            if z.iter().all(|z| *z >= 0.0) {
                let mut x = vec![0.0; count];
                set.iter().zip(z).for_each(|(j, z)| x[*j] = z);
                best = best.min(off(rows, values, &x));
            }
        }
        best
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn no_set_of_unknowns_fits_better(
            rows in prop::collection::vec(prop::collection::vec(-3.0..3.0f64, 4), 1..9),
            values in prop::collection::vec(-5.0..5.0f64, 9),
        ) {
            let values = &values[..rows.len()];
            let x = nnls(&rows, values).unwrap();
            prop_assert!(x.iter().all(|x| *x >= 0.0 && x.is_finite()));
            let (ours, best) = (off(&rows, values, &x), by_all_sets(&rows, values));
            prop_assert!(ours <= best + 1e-6 * (1.0 + best), "{ours} {best}");
        }
    }

    #[test]
    fn what_is_wrong_is_refused_and_what_is_alike_is_borne() {
        assert_eq!(nnls(&[], &[]), None);
        assert_eq!(nnls(&[vec![1.0], vec![1.0, 2.0]], &[1.0, 2.0]), None);
        assert_eq!(nnls(&[vec![f64::NAN]], &[1.0]), None);
        assert_eq!(nnls(&[vec![0.0]], &[1.0]), Some(vec![0.0]));
        // Two equal columns and one row of them: any share of both is as good.
        let x = nnls(&[vec![2.0, 2.0]], &[4.0]).unwrap();
        assert!((x[0] + x[1] - 2.0).abs() < 1e-9, "{x:?}");
        assert_eq!(nnls(&[vec![1.0], vec![1.0]], &[-1.0, -2.0]), Some(vec![0.0]));
    }
}
