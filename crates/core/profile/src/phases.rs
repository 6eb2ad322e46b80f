//! How a job uses its GPU over time: phases of a cycle that repeats while it runs, as monitoring would show them.
//!
//! A profile states its phases under `[[model.phase]]`. Where it states none but tells the utilisation and the memory of
//! its model, a cycle is made up by this law: four fifths of it are training, at most at the whole GPU and with all the
//! memory; one fifth is evaluation, with the memory of the forward pass alone and so busy that the mean over the cycle is
//! the utilisation of the profile. A cycle lasts between five and twenty minutes, by the name of the model.

use crate::ModelProfile;
use crate::features::{Feature, Features};
use trainyard_types::Span;

/// A part of the cycle.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Phase {
    /// How long it lasts.
    pub length: Span,
    /// The part of the time in which the GPU is busy.
    pub utilisation: f64,
    /// Memory in use, as a part of the most that the job uses.
    pub memory: f64,
}

/// What monitoring shows of a job at one moment.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Monitored {
    /// The part of the time in which its GPUs are busy with it.
    pub utilisation: f64,
    /// Memory that it uses on each of them.
    pub memory_mib: f64,
}

/// The part of a made-up cycle that is training, and what of the memory evaluation needs.
const TRAINING: f64 = 0.8;
const FORWARD_MEMORY: f64 = 0.5;
/// How much busier than the mean training is, at most.
const ABOVE_MEAN: f64 = 1.15;
/// The shortest made-up cycle, and by how many more seconds the longest is longer.
const CYCLE_LEAST: u64 = 300;
const CYCLE_MORE: u64 = 900;

/// The cycle of a model and its most memory; nothing where neither phases nor utilisation are known.
pub fn cycle(model: &ModelProfile) -> Option<(Vec<Phase>, f64)> {
    let memory = model.features.get(Feature::MemoryMib);
    let memory = memory.unwrap_or(f64::from(model.memory_mib));
    if !model.phases.is_empty() {
        return Some((model.phases.clone(), memory));
    }
    Some((made_up(&model.name, &model.features)?, memory))
}

fn made_up(name: &str, features: &Features) -> Option<Vec<Phase>> {
    let mean = features.get(Feature::Utilisation)?;
    let busy = (mean * ABOVE_MEAN).min(1.0);
    let rest = ((mean - TRAINING * busy) / (1.0 - TRAINING)).max(0.0);
    // A sum over the letters, so that it is the same everywhere (FNV-1a).
    let number = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, letter| {
        (sum ^ u64::from(letter)).wrapping_mul(0x0100_0000_01b3)
    });
    let cycle = Span::secs(CYCLE_LEAST + number % CYCLE_MORE);
    let training = cycle.scaled(TRAINING);
    Some(vec![
        Phase { length: training, utilisation: busy, memory: 1.0 },
        Phase { length: Span(cycle.0 - training.0), utilisation: rest, memory: FORWARD_MEMORY },
    ])
}

/// What monitoring shows of a job so long after it started, its cycle repeated.
pub fn shown((phases, memory_mib): &(Vec<Phase>, f64), after: Span) -> Monitored {
    let whole: u64 = phases.iter().map(|phase| phase.length.0).sum();
    let mut left = after.0.checked_rem(whole).unwrap_or(0);
    let at = phases.iter().find(|phase| {
        let is_here = left < phase.length.0;
        left = left.saturating_sub(phase.length.0);
        is_here
    });
    at.map_or_else(Monitored::default, |phase| Monitored {
        utilisation: phase.utilisation,
        memory_mib: phase.memory * memory_mib,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalog;

    #[test]
    fn a_made_up_cycle_has_the_utilisation_of_the_profile_in_the_mean() {
        let catalog = Catalog::builtin();
        let mut seen = 0;
        for (_, model) in catalog.iter() {
            let Some((phases, _)) = cycle(model) else { continue };
            let whole: f64 = phases.iter().map(|phase| phase.length.as_secs_f64()).sum();
            let busy: f64 = phases.iter().map(|it| it.length.as_secs_f64() * it.utilisation).sum();
            let told = model.features.get(Feature::Utilisation).unwrap();
            assert!((busy / whole - told).abs() < 1e-6, "{}: {phases:?}", model.name);
            assert!((300.0..1200.0).contains(&whole));
            seen += 1;
        }
        assert!(seen >= 20, "{seen}");
        assert_eq!(cycle(catalog.get(trainyard_types::ModelId(0))), None);
    }

    #[test]
    fn a_stated_cycle_repeats() {
        let phase = |seconds, utilisation| Phase {
            length: Span::secs(seconds),
            utilisation,
            memory: utilisation,
        };
        let cycle = (vec![phase(10, 0.9), phase(5, 0.1)], 1000.0);
        let at = |seconds| shown(&cycle, Span::secs(seconds)).utilisation;
        assert_eq!([at(0), at(9), at(10), at(14), at(15), at(26)], [0.9, 0.9, 0.1, 0.1, 0.9, 0.1]);
        assert_eq!(shown(&cycle, Span::secs(11)).memory_mib, 100.0);
        assert_eq!(shown(&(Vec::new(), 1.0), Span::secs(3)), Monitored::default());
    }
}
