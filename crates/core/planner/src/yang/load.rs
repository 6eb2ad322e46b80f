//! Which scheme for which load: by the paper's formula, or by what arrived.

/// A way to work: seconds from one result to the next, and seconds for one image.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Scheme {
    /// Seconds from one result to the next.
    pub period: f64,
    /// Seconds of one image.
    pub latency: f64,
}

/// Moments of arrival that were seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// Ascending, in seconds.
    pub arrivals: Vec<f64>,
}

/// The scheme with the least expected time by the formula of a queue with Poisson arrivals and a fixed service time.
///
/// Of schemes that cannot keep up, the one with the shortest period.
pub fn choose_by_formula(schemes: &[Scheme], window: &Window) -> Option<usize> {
    let (first, last) = (window.arrivals.first()?, window.arrivals.last()?);
    let rate = (window.arrivals.len() - 1) as f64 / (last - first).max(f64::MIN_POSITIVE);
    let expected = |one: &Scheme| {
        let load = rate * one.period;
        match load < 1.0 {
            true => (false, one.latency + load / (2.0 * (1.0 - load)) * one.period),
            false => (true, one.period),
        }
    };
    least(schemes, &|one| expected(one))
}

/// Ours: the scheme under which what arrived would have taken the least, whatever its distribution.
pub fn choose_by_replay(schemes: &[Scheme], window: &Window) -> Option<usize> {
    least(schemes, &|one| (false, waits(*one, window)))
}

fn least(schemes: &[Scheme], of: &dyn Fn(&Scheme) -> (bool, f64)) -> Option<usize> {
    let rated = schemes.iter().map(of).enumerate();
    let best =
        rated.min_by(|(a, x), (b, y)| x.0.cmp(&y.0).then(x.1.total_cmp(&y.1)).then(a.cmp(b)));
    best.map(|(at, _)| at)
}

/// Mean seconds from arrival to result under one scheme: each image enters when the one before left the first stage.
pub fn waits(scheme: Scheme, window: &Window) -> f64 {
    let (mut free, mut sum) = (0.0f64, 0.0);
    for arrival in &window.arrivals {
        let start = free.max(*arrival);
        free = start + scheme.period;
        sum += start - arrival + scheme.latency;
    }
    sum / window.arrivals.len().max(1) as f64
}
