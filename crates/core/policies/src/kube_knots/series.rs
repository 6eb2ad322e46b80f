//! What series of utilisation tell: percentiles, rank correlation, autocorrelation, and a first-order forecast.

/// The value that a part of a series is at or below; 0 of an empty one.
pub(super) fn percentile(series: &[f64], part: f64) -> f64 {
    let mut sorted = series.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(at.max(1) - 1).or(sorted.last()).copied().unwrap_or(0.0)
}

/// Spearman's rank correlation of the ends of two series that both have; equal values share their mean rank, for
/// which it is the correlation of the ranks. Nothing of fewer than three values, or where one does not change.
pub(super) fn spearman(one: &[f64], other: &[f64]) -> Option<f64> {
    let count = one.len().min(other.len());
    if count < 3 {
        return None;
    }
    let (a, b) = (ranks(&one[one.len() - count..]), ranks(&other[other.len() - count..]));
    let mean = (count as f64 + 1.0) / 2.0;
    let product = |x: &[f64], y: &[f64]| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum()
    };
    let spread = product(&a, &a) * product(&b, &b);
    (spread > 0.0).then(|| product(&a, &b) / libm::sqrt(spread))
}

fn ranks(series: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..series.len()).collect();
    order.sort_by(|a, b| series[*a].total_cmp(&series[*b]).then(a.cmp(b)));
    let mut ranks = vec![0.0; series.len()];
    let mut from = 0;
    while from < order.len() {
        let same = order[from..].iter().take_while(|at| series[**at] == series[order[from]]);
        let to = from + same.count();
        for at in &order[from..to] {
            ranks[*at] = (from + 1 + to) as f64 / 2.0;
        }
        from = to;
    }
    ranks
}

/// The autocorrelation of a series at a lag; nothing where it does not change or is too short.
pub(super) fn autocorrelation(series: &[f64], lag: usize) -> Option<f64> {
    let count = series.len();
    if lag == 0 || count <= lag + 1 {
        return None;
    }
    let mean = series.iter().sum::<f64>() / count as f64;
    let all: f64 = series.iter().map(|y| (y - mean) * (y - mean)).sum();
    let lagged: f64 =
        (0..count - lag).map(|at| (series[at] - mean) * (series[at + lag] - mean)).sum();
    (all > 0.0).then(|| lagged / all)
}

/// The largest of the next values by a first-order model `y = mu + phi * y before`, fitted by least squares.
pub(super) fn forecast_peak(series: &[f64], steps: usize) -> Option<f64> {
    let before = series.get(..series.len().checked_sub(1)?)?;
    let after = &series[1..];
    let count = before.len() as f64;
    if before.len() < 2 {
        return None;
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / count;
    let (x, y) = (mean(before), mean(after));
    let spread: f64 = before.iter().map(|value| (value - x) * (value - x)).sum();
    let both: f64 = before.iter().zip(after).map(|(a, b)| (a - x) * (b - y)).sum();
    // Beyond one a forecast would grow without end.
    let phi = if spread > 0.0 { (both / spread).clamp(-1.0, 1.0) } else { 0.0 };
    let mu = y - phi * x;
    let mut value = *series.last()?;
    let mut peak = f64::NEG_INFINITY;
    for _ in 0..steps.max(1) {
        value = mu + phi * value;
        peak = peak.max(value);
    }
    Some(peak)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_correlate_whatever_the_values() {
        let rising = [1.0, 2.0, 30.0, 400.0];
        assert_eq!(spearman(&rising, &[0.1, 0.2, 0.3, 0.35]), Some(1.0));
        assert_eq!(spearman(&rising, &[4.0, 3.0, 2.0, 1.0]), Some(-1.0));
        // The ends are compared.
        assert_eq!(spearman(&[9.0, 1.0, 2.0, 3.0], &[5.0, 6.0, 7.0]), Some(1.0));
        assert_eq!(spearman(&[1.0, 1.0, 1.0], &[1.0, 2.0, 3.0]), None);
        // rho = 1 - 6 * sum d^2 / (n (n^2 - 1)) where no values are equal: d = 1, 1, 0.
        let rho = spearman(&[1.0, 2.0, 3.0], &[2.0, 1.0, 3.0]).unwrap();
        assert!((rho - (1.0 - 6.0 * 2.0 / (3.0 * 8.0))).abs() < 1e-12);
        assert_eq!(ranks(&[5.0, 1.0, 5.0]), [2.5, 1.0, 2.5]);
    }

    #[test]
    fn a_percentile_is_a_value_of_the_series() {
        let series = [10.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
        assert_eq!(percentile(&series, 0.8), 8.0);
        assert_eq!(percentile(&series, 1.0), 10.0);
        assert_eq!(percentile(&[], 0.8), 0.0);
    }

    #[test]
    fn a_wave_correlates_with_itself_and_its_peak_is_foreseen() {
        let wave: Vec<f64> = (0..40).map(|at| f64::from(u8::from(at % 10 < 5))).collect();
        assert!(autocorrelation(&wave, 1).unwrap() > 0.5);
        assert!(autocorrelation(&wave, 5).unwrap() < 0.0);
        assert_eq!(autocorrelation(&[1.0, 1.0, 1.0], 1), None);
        // Halfway back to its mean in each step.
        let mut value = 1.0;
        let falling: Vec<f64> = std::iter::from_fn(|| {
            value *= 0.5;
            Some(value)
        })
        .take(8)
        .collect();
        let peak = forecast_peak(&falling, 3).unwrap();
        assert!((peak - falling[7] * 0.5).abs() < 1e-9, "{peak}");
        assert_eq!(forecast_peak(&[1.0], 3), None);
    }
}
