//! What a job keeps of its speed with less GPU memory than it needs: the rest lies in the host's memory.
//!
//! A profile may say what it keeps with which part of its memory, as AntMan (OSDI 2020) measures for its jobs: one keeps
//! most of its speed with a tenth, another loses most of it with nine tenths. Of a model without such points every
//! iteration moves what is missing to the host and back over PCIe, and nothing of that is hidden behind computing.

/// A part of the memory that a model needs, and the part of its speed that it keeps with it.
pub type MemoryPoint = (f64, f64);

const MIB: f64 = 1_048_576.0;

/// A job on each of whose GPUs memory is short.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Short {
    /// What it needs on each GPU.
    pub(crate) need_mib: u32,
    /// What it has there.
    pub(crate) has_mib: u32,
    /// Bytes in a second between a GPU and its host.
    pub(crate) bytes_per_second: f64,
}

/// The part of its speed that a job keeps; `rate` is its iterations in a second with all its memory.
pub(crate) fn kept(points: &[MemoryPoint], short: Short, rate: f64) -> f64 {
    if short.need_mib == 0 || short.has_mib >= short.need_mib {
        return 1.0;
    }
    if !points.is_empty() {
        return by_points(points, f64::from(short.has_mib) / f64::from(short.need_mib));
    }
    let missing = f64::from(short.need_mib - short.has_mib) * MIB;
    // There and back in each iteration.
    let moving = 2.0 * missing / short.bytes_per_second;
    1.0 / (1.0 + moving * rate)
}

/// Linear between points, with all of the speed at all of the memory; below the first it falls with the memory.
fn by_points(points: &[MemoryPoint], part: f64) -> f64 {
    let next = points.partition_point(|point| point.0 <= part);
    let Some(&(from, low)) = next.checked_sub(1).and_then(|index| points.get(index)) else {
        let (first, kept) = points[0];
        return kept * part / first;
    };
    let (to, high) = points.get(next).copied().unwrap_or((1.0, 1.0));
    if to > from { low + (high - low) * (part - from) / (to - from) } else { low }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(points: &[MemoryPoint], has_mib: u32) -> f64 {
        let short = Short { need_mib: 10_000, has_mib, bytes_per_second: 50e9 };
        kept(points, short, 10.0)
    }

    #[test]
    fn the_two_models_of_antman_keep_what_was_measured_of_them() {
        let (robust, sensitive) = ([(0.1, 0.75)], [(0.9, 0.4)]);
        assert_eq!((with(&robust, 1_000), with(&sensitive, 9_000)), (0.75, 0.4));
        assert_eq!((with(&robust, 10_000), with(&sensitive, 20_000)), (1.0, 1.0));
        assert!((with(&robust, 5_500) - 0.875).abs() < 1e-12);
        assert!((with(&sensitive, 4_500) - 0.2).abs() < 1e-12, "it falls with its memory");
    }

    #[test]
    fn without_points_what_is_missing_crosses_to_the_host_and_back_in_each_iteration() {
        // 5,000 MiB there and back at 50 GB/s are 0.21 s, beside an iteration of 0.1 s.
        let expected = 0.1 / (0.1 + 2.0 * 5_000.0 * 1_048_576.0 / 50e9);
        assert!((with(&[], 5_000) - expected).abs() < 1e-12);
        assert_eq!(with(&[], 10_000), 1.0);
    }
}
