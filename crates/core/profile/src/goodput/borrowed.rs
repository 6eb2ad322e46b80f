//! Speeds on a type of GPU from those on another: Sia's bootstrap (SOSP 2023, section 3.2).

use super::{IterationTime, Observation, Size};

/// What a job runs like on a type on which it was only seen on single GPUs, if it scales as it does on another type:
/// `throughput(N) = own_single / other_single * other(N)`.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Borrowed<T> {
    /// Samples per second on one GPU of this type.
    pub own_single: f64,
    /// Samples per second on one GPU of the other type.
    pub other_single: f64,
    /// What is known of the other type.
    pub other: T,
}

impl<T> Borrowed<T> {
    /// Nothing where one of the two is not a positive number.
    pub fn new(own_single: f64, other_single: f64, other: T) -> Option<Borrowed<T>> {
        let usable = |value: f64| value.is_finite() && value > 0.0;
        let usable = usable(own_single) && usable(other_single);
        usable.then_some(Borrowed { own_single, other_single, other })
    }
}

impl<T: IterationTime> IterationTime for Borrowed<T> {
    fn seconds(&self, size: Size, local: u32, accumulated: u32) -> f64 {
        self.other.seconds(size, local, accumulated) * (self.other_single / self.own_single)
    }
}

/// Samples per second on one GPU as Sia counts them: the largest batch seen over the longest step seen.
pub fn single_throughput(observations: &[Observation]) -> Option<f64> {
    let single = || observations.iter().filter(|seen| seen.size.gpus == 1);
    let local = single().map(|seen| seen.local).max()?;
    let step = single().map(|seen| seen.step).fold(0.0, f64::max);
    let throughput = f64::from(local) / step;
    (throughput.is_finite() && throughput > 0.0).then_some(throughput)
}

#[cfg(test)]
mod tests {
    use super::super::Throughput;
    use super::*;

    #[test]
    fn a_type_twice_as_fast_on_one_gpu_is_twice_as_fast_on_many() {
        let other = Throughput {
            alpha_c: 0.1,
            beta_c: 0.01,
            alpha_n: 0.4,
            beta_n: 0.02,
            alpha_r: 0.2,
            beta_r: 0.01,
            gamma: 2.0,
        };
        let borrowed = Borrowed::new(60.0, 30.0, other).unwrap();
        let size = Size { nodes: 2, gpus: 8 };
        let ratio = borrowed.throughput(size, 16, 1) / other.throughput(size, 16, 1);
        assert!((ratio - 2.0).abs() < 1e-12);
        assert_eq!(Borrowed::new(0.0, 30.0, other), None);
        assert_eq!(Borrowed::new(60.0, f64::NAN, other), None);
    }

    #[test]
    fn a_single_gpu_is_counted_by_its_largest_batch() {
        let seen = |gpus, local, step| Observation {
            size: Size::on_one_node(gpus),
            local,
            step,
            sync: 0.0,
        };
        let all = [seen(1, 32, 0.5), seen(1, 64, 0.8), seen(2, 640, 0.1)];
        assert_eq!(single_throughput(&all), Some(80.0));
        assert_eq!(single_throughput(&all[2..]), None);
    }
}
