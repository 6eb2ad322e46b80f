//! Which predictor beliefs go by, and what they then say of jobs beside each other.

use super::graph::UtilisationModel;
use super::predictor::{self, Predictor};
use super::{Alone, Machine, Met, of_models};
use crate::classes;
use crate::colocation::{Colocation, SharedGpu};
use crate::model::ANY_KIND;
use crate::{Catalog, ModelProfile, Sharing};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, OnceLock};
use trainyard_types::{Cluster, GpuType, ModelId, Occupant};

/// Where what is believed of jobs beside each other comes from.
#[derive(
    Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum PairSource {
    /// Measured pairs, and the predictor that errs least where a pair was not measured.
    #[default]
    Measured,
    /// Utilisation of each job alone, linear.
    Utilisation,
    /// The mean of the five nearest measured pairs.
    Nearest,
    /// A random forest on what a profiler sees of each job (Co-scheML).
    Forest,
    /// One forest for all types of machine and numbers of neighbours (Mendoza et al.).
    Machines,
    /// Utilisation predicted from the description of the models (Horus).
    Graph,
    /// Completed from two short runs in each classification (Quasar), speeds alone among them.
    Classified,
}

impl PairSource {
    /// All of them.
    pub const ALL: [PairSource; 7] = [
        PairSource::Measured,
        PairSource::Utilisation,
        PairSource::Nearest,
        PairSource::Forest,
        PairSource::Machines,
        PairSource::Graph,
        PairSource::Classified,
    ];

    /// The source that errs least for models that were not seen: the winner of [`super::study()`] on the H200's pairs.
    pub fn best(sharing: Sharing) -> PairSource {
        match sharing {
            Sharing::TimeSliced => PairSource::Utilisation,
            Sharing::Mps => PairSource::Nearest,
        }
    }

    /// A predictor that has learnt nothing yet; nothing where pairs are measured or completed.
    pub fn predictor(self) -> Option<Box<dyn Predictor>> {
        match self {
            PairSource::Measured | PairSource::Classified => None,
            PairSource::Utilisation => Some(predictor::utilisation()),
            PairSource::Nearest => Some(predictor::nearest()),
            PairSource::Forest => Some(predictor::forest()),
            PairSource::Machines => Some(predictor::machines()),
            PairSource::Graph => Some(predictor::graph()),
        }
    }
}

/// How a policy is told how busy a job keeps its GPU.
#[derive(
    Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum UsageSource {
    /// It is not told.
    #[default]
    Nothing,
    /// As a profile of the job alone says.
    Profiled,
    /// As is predicted from the description of its model, without a run.
    Graph,
}

/// How busy the models of a catalog keep a GPU, as predicted from their descriptions; learnt when it is first asked.
#[derive(Clone, Debug)]
pub struct GraphUsage {
    models: Vec<Arc<ModelProfile>>,
    found: OnceLock<Vec<Option<f64>>>,
}

impl GraphUsage {
    /// For the models of a catalog. Nothing is learnt yet.
    pub fn new(catalog: &Catalog) -> GraphUsage {
        GraphUsage { models: catalog.shared().to_vec(), found: OnceLock::new() }
    }

    /// The predicted utilisation of a model; nothing where its description is not known.
    pub fn utilisation(&self, model: ModelId) -> Option<f64> {
        let found = self.found.get_or_init(|| {
            let alone: Vec<Alone> =
                self.models.iter().map(|model| super::alone(model, ANY_KIND)).collect();
            let learnt = UtilisationModel::fit(alone.iter());
            alone.iter().map(|alone| learnt.tells(&alone.features)).collect()
        });
        found.get(model.index()).copied().flatten()
    }
}

/// The least and the most that a job is predicted to keep.
const KEPT: std::ops::RangeInclusive<f64> = 0.01..=1.0;

/// What predictors say of the models of a catalog, each learnt from its measured pairs when it is first asked.
#[derive(Clone, Debug)]
pub struct Predictions {
    models: Vec<Arc<ModelProfile>>,
    kinds: Vec<String>,
    sharing: Sharing,
    by_source: Vec<OnceLock<PredictedPairs>>,
}

impl Predictions {
    /// For the models of a catalog on the types of a cluster. Nothing is learnt yet.
    pub fn new(catalog: &Catalog, cluster: &Cluster, sharing: Sharing) -> Predictions {
        Predictions {
            models: catalog.shared().to_vec(),
            kinds: cluster.kinds.iter().map(|kind| kind.name.clone()).collect(),
            sharing,
            by_source: PairSource::ALL.map(|_| OnceLock::new()).to_vec(),
        }
    }

    /// What one source says; nothing for measured pairs.
    pub fn by(&self, source: PairSource) -> Option<&PredictedPairs> {
        let learnt = || match source.predictor() {
            Some(predictor) => {
                PredictedPairs::learn((&self.models, &self.kinds), self.sharing, predictor)
            }
            None => PredictedPairs::classified((&self.models, &self.kinds), self.sharing),
        };
        (source != PairSource::Measured)
            .then(|| self.by_source[source as usize].get_or_init(learnt))
    }
}

/// What one predictor says of the models of a catalog.
#[derive(Clone, Debug)]
pub struct PredictedPairs {
    /// Nothing where pairs are completed.
    predictor: Option<Arc<dyn Predictor>>,
    /// By type of GPU and model; the last row is for a type that is not known.
    alone: Vec<Vec<Alone>>,
    machines: Vec<Machine>,
    /// By type, model and partner: nothing where the features do not tell, or nothing was learnt.
    pairs: Vec<Option<f64>>,
    sharing: Sharing,
}

impl PredictedPairs {
    fn learn(
        (models, kinds): (&[Arc<ModelProfile>], &[String]),
        sharing: Sharing,
        mut predictor: Box<dyn Predictor>,
    ) -> PredictedPairs {
        let mut seen = of_models(models.iter().map(Arc::as_ref), sharing);
        let needs = predictor.needs();
        seen.retain(|met| {
            let known = |alone: &Alone| alone.features.tell(needs);
            known(&met.own) && met.others.iter().all(known)
        });
        predictor.fit(&seen);
        let mut found = PredictedPairs::of_nothing((models, kinds), sharing);
        found.predictor = Some(Arc::from(predictor));
        if !seen.is_empty() {
            found.pairs = found.all_pairs(needs.len());
        }
        found
    }

    /// Each model as if it were new: two of its pairs are measured, and the rest of its row is completed.
    fn classified(
        (models, kinds): (&[Arc<ModelProfile>], &[String]),
        sharing: Sharing,
    ) -> PredictedPairs {
        let mut found = PredictedPairs::of_nothing((models, kinds), sharing);
        let models: Vec<&ModelProfile> = models.iter().map(Arc::as_ref).collect();
        for kind in with_any(kinds) {
            found.pairs.extend(classes::pairs(&models, kind, sharing));
        }
        found
    }

    fn of_nothing(
        (models, kinds): (&[Arc<ModelProfile>], &[String]),
        sharing: Sharing,
    ) -> PredictedPairs {
        let alone = |kind: &str| models.iter().map(|model| super::alone(model, kind)).collect();
        let kinds = with_any(kinds);
        PredictedPairs {
            predictor: None,
            alone: kinds.iter().map(|kind| alone(kind)).collect(),
            machines: kinds.iter().map(|kind| Machine::of(kind)).collect(),
            pairs: Vec::new(),
            sharing,
        }
    }

    /// O(types * models^2), of models whose features are known.
    fn all_pairs(&self, needed: usize) -> Vec<Option<f64>> {
        let mut pairs = Vec::new();
        for kind in 0..self.alone.len() {
            for own in &self.alone[kind] {
                for other in &self.alone[kind] {
                    let known = needed == 0 || (self.knows(own) && self.knows(other));
                    pairs.push(known.then(|| self.predict(kind, own, vec![other.clone()])));
                }
            }
        }
        pairs
    }

    fn knows(&self, alone: &Alone) -> bool {
        self.predictor.as_ref().is_some_and(|it| alone.features.tell(it.needs()))
    }

    fn predict(&self, kind: usize, own: &Alone, others: Vec<Alone>) -> f64 {
        let met = Met { own: own.clone(), others, on: self.machines[kind], kept: 0.0 };
        let predictor = self.predictor.as_ref().expect("only asked where there is one");
        predictor.predict(&met).kept.clamp(*KEPT.start(), *KEPT.end())
    }

    /// The row of a type.
    fn kind(&self, kind: Option<GpuType>) -> usize {
        kind.map_or(self.alone.len() - 1, GpuType::index)
    }

    /// What a model is predicted to keep beside one other; nothing where the features do not tell.
    pub fn pair(&self, own: ModelId, other: ModelId, kind: Option<GpuType>) -> Option<f64> {
        let models = self.alone[0].len();
        if own.index() >= models || other.index() >= models {
            return None;
        }
        let place = (self.kind(kind) * models + own.index()) * models + other.index();
        self.pairs.get(place).copied().flatten()
    }

    /// What a model is predicted to keep beside several others at once, by a predictor that was made for that.
    fn group(&self, own: ModelId, others: &[Occupant], kind: Option<GpuType>) -> Option<f64> {
        let predictor = self.predictor.as_ref().filter(|it| it.takes_groups())?;
        if others.len() < 2 || self.pairs.is_empty() || predictor.needs().is_empty() {
            return None;
        }
        let kind = self.kind(kind);
        let of =
            |model: ModelId| self.alone[kind].get(model.index()).filter(|alone| self.knows(alone));
        let others: Option<Vec<Alone>> =
            others.iter().map(|other| of(other.model).cloned()).collect();
        Some(self.predict(kind, of(own)?, others?))
    }
}

/// All types, and one that stands for any other.
fn with_any(kinds: &[String]) -> Vec<&str> {
    kinds.iter().map(String::as_str).chain([ANY_KIND]).collect()
}

impl Colocation for PredictedPairs {
    fn kept(&self, own: Occupant, on: SharedGpu, others: &[Occupant]) -> f64 {
        let unlimited = others.iter().all(|other| other.limit >= 1000);
        if let Some(kept) = self.group(own.model, others, on.kind).filter(|_| unlimited) {
            return kept;
        }
        let beside = |other: &Occupant| {
            let pair = self.pair(own.model, other.model, on.kind);
            other.lessened(pair.unwrap_or_else(|| self.sharing.part_default()))
        };
        others.iter().map(beside).product()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> Cluster {
        Cluster::uniform(1, 1, "h200")
    }

    #[test]
    fn every_source_tells_of_models_whose_pair_was_not_measured() {
        let catalog = Catalog::builtin();
        let predictions = Predictions::new(&catalog, &cluster(), Sharing::TimeSliced);
        let find = |name: &str| catalog.find(name).unwrap();
        let (new, small) = (find("h200-llama-1b-b8-bf16"), find("h200-resnet18-b128-tf32"));
        for source in PairSource::ALL.into_iter().filter(|source| *source != PairSource::Measured) {
            let found = predictions.by(source).unwrap();
            if source == PairSource::Classified {
                // It goes by measured pairs, and the new one has none.
                assert_eq!(found.pair(new, small, Some(GpuType(0))), None);
                assert!(found.pair(small, small, Some(GpuType(0))).is_some());
                continue;
            }
            let kept = |own, other| found.pair(own, other, Some(GpuType(0))).unwrap();
            assert!((0.01..=1.0).contains(&kept(new, small)), "{source:?}");
            assert!(
                kept(small, new) < kept(small, small),
                "{source:?}: a job that fills the GPU is the worse neighbour"
            );
            assert_eq!(found.pair(find(crate::GENERIC), small, None), None, "{source:?}");
        }
        assert!(predictions.by(PairSource::Measured).is_none());
    }

    #[test]
    fn three_jobs_are_one_question_for_a_predictor_of_groups_and_two_for_the_others() {
        let catalog = Catalog::builtin();
        let predictions = Predictions::new(&catalog, &cluster(), Sharing::TimeSliced);
        let model = catalog.find("h200-resnet18-b128-tf32").unwrap();
        let one = Occupant::unlimited(model);
        let on = SharedGpu { kind: Some(GpuType(0)), gpus: 1 };
        let of =
            |source, others: &[Occupant]| predictions.by(source).unwrap().kept(one, on, others);
        let pair = of(PairSource::Forest, &[one]);
        assert!((of(PairSource::Forest, &[one, one]) - pair * pair).abs() < 1e-12);
        let pair = of(PairSource::Machines, &[one]);
        assert_ne!(of(PairSource::Machines, &[one, one]), pair * pair);
    }

    #[test]
    fn nothing_is_learnt_from_a_catalog_without_pairs() {
        let predictions = Predictions::new(&Catalog::default(), &cluster(), Sharing::TimeSliced);
        let found = predictions.by(PairSource::Forest).unwrap();
        let one = Occupant::unlimited(ModelId(0));
        let on = SharedGpu { kind: None, gpus: 1 };
        assert_eq!(found.kept(one, on, &[one]), Sharing::TimeSliced.part_default());
    }
}
