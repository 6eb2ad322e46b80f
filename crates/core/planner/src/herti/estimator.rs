//! How long a segment takes in a way that was not timed for it.

/// One timing of a segment in one way.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Timing {
    /// Operations of the segment.
    pub flops: f64,
    /// Bytes that it reads and writes.
    pub bytes: f64,
    /// Seconds it took.
    pub seconds: f64,
}

/// Seconds as a sum of a constant, operations and bytes, fitted to timings by least squares.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Estimator {
    factors: [f64; 3],
    scales: [f64; 3],
}

impl Estimator {
    /// Fits relative errors, so that short segments count as much as long ones; nothing for fewer than three timings.
    pub fn fit(timings: &[Timing]) -> Option<Estimator> {
        if timings.len() < 3 || timings.iter().any(|one| one.seconds.is_nan() || one.seconds <= 0.0)
        {
            return None;
        }
        let largest = |of: &dyn Fn(&Timing) -> f64| timings.iter().map(of).fold(1e-300, f64::max);
        let scales = [1.0, largest(&|one| one.flops), largest(&|one| one.bytes)];
        // The normal equations, with a little weight on the diagonal for timings that are alike.
        let mut matrix = [[0.0f64; 4]; 3];
        for one in timings {
            let row = [1.0, one.flops / scales[1], one.bytes / scales[2]];
            for i in 0..3 {
                for j in 0..3 {
                    matrix[i][j] += row[i] * row[j] / (one.seconds * one.seconds);
                }
                matrix[i][3] += row[i] / one.seconds;
            }
        }
        let trace = matrix[0][0] + matrix[1][1] + matrix[2][2];
        (0..3).for_each(|i| matrix[i][i] += 1e-9 * trace);
        Some(Estimator { factors: solve(matrix), scales })
    }

    /// Seconds of a segment, never less than none.
    pub fn seconds(&self, flops: f64, bytes: f64) -> f64 {
        let sum = self.factors[0]
            + self.factors[1] * flops / self.scales[1]
            + self.factors[2] * bytes / self.scales[2];
        sum.max(0.0)
    }
}

/// Gauss's elimination with the largest pivot.
fn solve(mut matrix: [[f64; 4]; 3]) -> [f64; 3] {
    for column in 0..3 {
        let larger =
            |a: &usize, b: &usize| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs());
        let pivot = (column..3).max_by(larger).expect("there is a row");
        matrix.swap(column, pivot);
        let pivot = matrix[column];
        for (at, row) in matrix.iter_mut().enumerate() {
            if at != column && pivot[column] != 0.0 {
                let factor = row[column] / pivot[column];
                row.iter_mut().zip(pivot).for_each(|(one, other)| *one -= factor * other);
            }
        }
    }
    let value = |at: usize| match matrix[at][at] {
        0.0 => 0.0,
        pivot => matrix[at][3] / pivot,
    };
    [value(0), value(1), value(2)]
}
