//! What is known of a job that has a GPU for itself, and of its program: what interference is predicted from.
//!
//! A profiler sees utilisation, memory and power; the description of the model tells batch, parameters and operators
//! without a run. A profile says what it knows under `[model.features]`, and every predictor names what it needs.

/// One thing that can be known.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// The part of the time in which any kernel runs, as `nvidia-smi` tells.
    Utilisation,
    /// The part of the time in which memory is read or written, likewise.
    MemoryUtilisation,
    /// Power drawn, as a part of what the GPU may draw.
    Power,
    /// GPU memory in MiB.
    MemoryMib,
    /// Samples in a batch.
    Batch,
    /// Parameters.
    Parameters,
    /// Floating-point operations of a step, forward and backward.
    Flops,
    /// Operators that a step launches, forward.
    Operators,
    /// 1 where most arithmetic is in half precision, else 0.
    HalfPrecision,
    /// The part of the arithmetic in convolutions.
    Convolution,
    /// The part in products of matrices, attention included.
    Matrix,
    /// The part in recurrent cells.
    Recurrent,
    /// The part in tables of embeddings.
    Embedding,
    /// Steps per second alone, on the type of GPU that is asked about.
    StepsPerSecond,
    /// How many times as fast it is on the fastest type that it was measured on as on the slowest.
    SpeedUp,
}

/// How many features there are.
const COUNT: usize = Feature::ALL.len();

impl Feature {
    /// All of them.
    pub const ALL: [Feature; 15] = [
        Feature::Utilisation,
        Feature::MemoryUtilisation,
        Feature::Power,
        Feature::MemoryMib,
        Feature::Batch,
        Feature::Parameters,
        Feature::Flops,
        Feature::Operators,
        Feature::HalfPrecision,
        Feature::Convolution,
        Feature::Matrix,
        Feature::Recurrent,
        Feature::Embedding,
        Feature::StepsPerSecond,
        Feature::SpeedUp,
    ];

    /// Its key in a profile.
    pub fn name(self) -> &'static str {
        match self {
            Feature::Utilisation => "utilisation",
            Feature::MemoryUtilisation => "memory_utilisation",
            Feature::Power => "power",
            Feature::MemoryMib => "memory_mib",
            Feature::Batch => "batch",
            Feature::Parameters => "parameters",
            Feature::Flops => "flops",
            Feature::Operators => "operators",
            Feature::HalfPrecision => "half_precision",
            Feature::Convolution => "convolution",
            Feature::Matrix => "matrix",
            Feature::Recurrent => "recurrent",
            Feature::Embedding => "embedding",
            Feature::StepsPerSecond => "steps_per_second",
            Feature::SpeedUp => "speed_up",
        }
    }

    /// Whether it is a part of a whole, from 0 to 1.
    pub fn is_part(self) -> bool {
        matches!(
            self,
            Feature::Utilisation
                | Feature::MemoryUtilisation
                | Feature::Power
                | Feature::HalfPrecision
                | Feature::Convolution
                | Feature::Matrix
                | Feature::Recurrent
                | Feature::Embedding
        )
    }

    /// A value as predictors take it: parts as they are, sizes by their logarithm, in doublings, a tenth each.
    fn scaled(self, value: f64) -> f64 {
        if self.is_part() { value } else { 0.1 * libm::log2(value.max(1e-9)) }
    }
}

/// What is known of a job alone; any of it may be missing.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Features {
    known: [Option<f64>; COUNT],
}

impl Features {
    /// What is known of a feature, in the unit that the feature states.
    pub fn get(&self, feature: Feature) -> Option<f64> {
        self.known[feature as usize]
    }

    /// Says what a feature is.
    pub fn set(&mut self, feature: Feature, value: f64) {
        self.known[feature as usize] = Some(value);
    }

    /// The same with a feature.
    pub fn with(mut self, feature: Feature, value: f64) -> Features {
        self.set(feature, value);
        self
    }

    /// Whether all of some features are known.
    pub fn tell(&self, features: &[Feature]) -> bool {
        features.iter().all(|feature| self.get(*feature).is_some())
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.known.iter().all(Option::is_none)
    }

    /// What is known, in the order of [`Feature::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Feature, f64)> + '_ {
        Feature::ALL.into_iter().filter_map(|feature| Some((feature, self.get(feature)?)))
    }

    /// Some features as numbers of like size; 0 for one that is not known.
    pub fn scaled<'a>(&'a self, features: &'a [Feature]) -> impl Iterator<Item = f64> + 'a {
        features.iter().map(|feature| self.get(*feature).map_or(0.0, |it| feature.scaled(it)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_stands_at_its_place_and_has_a_name_of_its_own() {
        for (place, feature) in Feature::ALL.into_iter().enumerate() {
            assert_eq!(feature as usize, place);
            assert!(Feature::ALL[..place].iter().all(|other| other.name() != feature.name()));
        }
    }

    #[test]
    fn sizes_count_by_doublings_and_parts_as_they_are() {
        let one = Features::default().with(Feature::Batch, 64.0).with(Feature::Power, 0.4);
        let scaled: Vec<f64> = one.scaled(&[Feature::Batch, Feature::Power]).collect();
        assert!((scaled[0] - 0.6).abs() < 1e-12 && scaled[1] == 0.4);
        assert!(one.tell(&[Feature::Batch]) && !one.tell(&[Feature::Flops]));
        assert_eq!(one.iter().count(), 2);
    }
}
