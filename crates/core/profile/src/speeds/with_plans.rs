//! Speeds of models that were described: what the plans say, and what they cost to change.

use super::Speeds;
use crate::model::{ModelProfile, Point};
use crate::planned::Plans;
use crate::{Catalog, ModelProfile as Profile};
use trainyard_planner::described::Chosen;
use trainyard_types::{Cluster, Config, GpuType, ModelId, Span};

impl Speeds {
    pub(super) fn planned(&self, model: ModelId) -> Option<&Plans> {
        self.planned.get(model.index())?.as_deref()
    }

    /// Whether the speed of a model is that of its best division over the GPUs it gets.
    pub fn is_planned(&self, model: ModelId) -> bool {
        self.planned(model).is_some()
    }

    /// How a described model is divided over a configuration; nothing for one that was measured, and the reason where
    /// it does not fit.
    pub fn division(&self, model: ModelId, config: &Config) -> Option<Result<Chosen, String>> {
        Some((*self.planned(model)?.answer(config)).clone())
    }

    /// Whether a described model has no division over these GPUs.
    pub(super) fn fits_nowhere_in(&self, model: ModelId, config: &Config) -> bool {
        config.gpus > 0 && self.planned(model).is_some_and(|plans| plans.answer(config).is_err())
    }

    /// The time to cut the state of a model anew for other GPUs, beside saving and starting it.
    pub fn recut(&self, model: ModelId, from: Option<&Config>, to: Option<&Config>) -> Span {
        match (self.planned(model), from, to) {
            (Some(plans), Some(from), Some(to)) if !self.costs_nothing() => plans.recut(from, to),
            _ => Span::ZERO,
        }
    }

    fn costs_nothing(&self) -> bool {
        !matches!(self.costs, crate::CostModel::Profile | crate::CostModel::Scaled(_))
    }
}

impl Catalog {
    /// The same for one who knows no planner: of each described model one run is known, on the fewest GPUs of the first
    /// type where it fits, and the rest follows from that by the rules for models with one point.
    ///
    /// O(models x types x log GPUs) searches.
    pub fn without_plans(&self, cluster: &Cluster) -> Catalog {
        let speeds = Speeds::new(self, cluster);
        let mut catalog = self.clone();
        for (id, model) in self.iter().filter(|(_, model)| model.described.is_some()) {
            let points = first_run(&speeds, id, cluster).into_iter().collect();
            let plain = Profile { described: None, points, ..ModelProfile::clone(model) };
            catalog.add(plain);
        }
        catalog
    }
}

/// The smallest power of two of the first type on which a model fits, and its speed there.
fn first_run(speeds: &Speeds, model: ModelId, cluster: &Cluster) -> Option<Point> {
    for (index, kind) in cluster.kinds.iter().enumerate() {
        let own = cluster.nodes.iter().filter(|node| node.kind.index() == index);
        let (mut most, mut all) = (1, 0);
        for node in own {
            most = most.max(u32::from(node.gpus));
            all += u32::from(node.gpus);
        }
        let sizes = (0..).map(|power| 1u32 << power).take_while(|gpus| *gpus <= all);
        for gpus in sizes {
            let config = Config::packed(GpuType(index as u8), gpus, most);
            if let Some(rate) = speeds.rate(model, &config) {
                let kind = kind.name.clone();
                return Some(Point { kind, gpus, nodes: config.nodes, rate: rate.0 });
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CostModel;

    fn bound(text: &str, cluster: &Cluster) -> (Speeds, ModelId, Catalog) {
        let mut catalog = Catalog::default();
        let (id, _) = catalog.resolve(0, "model", text).unwrap();
        (Speeds::new(&catalog, cluster), id, catalog)
    }

    fn two_types() -> Cluster {
        let mut cluster = Cluster::uniform(4, 8, "a100");
        let slow = cluster.add_kind("v100");
        for _ in 0..4 {
            cluster.add_node(slow, 8);
        }
        cluster
    }

    #[test]
    fn a_described_model_is_as_fast_as_its_best_division_and_refused_where_it_has_none() {
        let cluster = two_types();
        let (speeds, id, _) = bound("gpt-7.5b batch=512", &cluster);
        let rate = |kind, gpus| speeds.rate(id, &Config::packed(GpuType(kind), gpus, 8));
        assert!(rate(0, 16).unwrap().0 > 1.7 * rate(0, 8).unwrap().0);
        assert!(rate(0, 16).unwrap().0 > 1.5 * rate(1, 16).unwrap().0);
        assert!(rate(1, 1).is_none(), "135 GB of state do not fit one V100");
        // A job that is put there all the same goes through host memory. Beside 16 GPUs it has no transfers between
        // stages, so that it may do more than a sixteenth, but far less than all of them.
        let forced = speeds.pace(id, &Config::packed(GpuType(1), 1, 8), Default::default());
        let forced = forced.unwrap().rate.0;
        assert!(forced > 0.0 && forced < rate(1, 16).unwrap().0 / 4.0, "{forced}");
        let told = speeds.division(id, &Config::packed(GpuType(0), 16, 8)).unwrap().unwrap();
        assert!(told.summary.contains("tensor"), "{told:?}");
    }

    #[test]
    fn a_gang_on_two_types_is_a_pipeline_over_both() {
        let cluster = two_types();
        let (speeds, id, _) = bound("gpt-18b batch=512", &cluster);
        let both = |gpus: u32| Config {
            kinds: [(GpuType(0), gpus), (GpuType(1), gpus)].into_iter().collect(),
            shape: std::iter::repeat_n(8, gpus as usize / 4).collect(),
            gpus: 2 * gpus,
            nodes: gpus / 4,
            racks: 1,
            tier: trainyard_types::Tier::Rack,
            permille: 1000,
            ..Config::default()
        };
        let joined = speeds.rate(id, &both(32)).unwrap().0;
        let alone = speeds.rate(id, &Config::packed(GpuType(0), 32, 8)).unwrap().0;
        assert!(joined > 1.2 * alone, "{joined} {alone}");
    }

    #[test]
    fn another_cut_costs_and_another_number_of_copies_does_not() {
        let (speeds, id, _) = bound("gpt-7.5b batch=512", &Cluster::uniform(16, 8, "a100"));
        let on = |gpus| Config::packed(GpuType(0), gpus, 8);
        let cost = |from: u32, to: u32| speeds.recut(id, Some(&on(from)), Some(&on(to)));
        assert_eq!(cost(32, 64), Span::ZERO);
        let sizes = [4, 8, 16, 32];
        let cut = |gpus: u32| speeds.division(id, &on(gpus)).and_then(Result::ok).map(|it| it.cut);
        let pair =
            sizes.windows(2).find(|pair| cut(pair[0]).is_some() && cut(pair[0]) != cut(pair[1]));
        let pair = pair.expect("a small size is cut otherwise than a large one");
        assert!(cost(pair[0], pair[1]) > Span::secs(10), "{pair:?}");
        let free = speeds.clone().with_costs(CostModel::Free);
        assert_eq!(free.recut(id, Some(&on(pair[0])), Some(&on(pair[1]))), Span::ZERO);
    }

    #[test]
    fn without_plans_one_run_is_all_that_is_known() {
        let cluster = two_types();
        let (speeds, id, catalog) = bound("gpt-7.5b batch=512", &cluster);
        let plain = catalog.without_plans(&cluster);
        let points = &plain.get(id).points;
        assert_eq!((points.len(), points[0].kind.as_str()), (1, "a100"));
        let told = Speeds::new(&plain, &cluster);
        let on = Config::packed(GpuType(0), points[0].gpus, 8);
        assert_eq!(told.rate(id, &on), speeds.rate(id, &on));
        assert!(
            told.rate(id, &Config::packed(GpuType(1), 1, 8)).is_some(),
            "it is not known to be too large"
        );
    }
}
