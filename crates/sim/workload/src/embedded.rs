//! A workload for the newcomer who has nothing yet.

use crate::spec::{Arrival, DurationLaw, SizeLaw, Spec};
use crate::{Workload, cluster, generate};
use trainyard_profile::Catalog;
use trainyard_types::{Cluster, Span};

/// The cluster of the embedded workload.
pub const EMBEDDED_CLUSTER: &str = "4x8 a100, 8x8 v100";

/// 2,000 jobs of published models, four teams, two types of GPU, as much work as the cluster can do.
///
/// The workload carries its tenants.
pub fn embedded() -> (Workload, Cluster) {
    let cluster =
        cluster::parse_line(EMBEDDED_CLUSTER).expect("the embedded cluster is a constant");
    let workload = generate(&embedded_spec(), &Catalog::builtin(), &cluster)
        .expect("the embedded spec is a constant");
    (Workload { name: "embedded".to_owned(), ..workload }, cluster)
}

/// What the embedded workload is drawn from.
pub fn embedded_spec() -> Spec {
    Spec {
        jobs: 2000,
        seed: 2026,
        arrival: Arrival::Load(1.0),
        daily: 0.5,
        duration: DurationLaw::LogNormal { median: Span::secs(2400), sigma: 1.5 },
        duration_min: Span::secs(120),
        duration_max: Span::secs(2 * 86_400),
        size: SizeLaw::Weights(vec![(1, 0.6), (2, 0.12), (4, 0.14), (8, 0.1), (16, 0.04)]),
        models: ["gavel-resnet18*", "gavel-transformer*", "gavel-lm*", "muri-*", "elasticflow-*"]
            .map(str::to_owned)
            .to_vec(),
        tenants: 4,
        tenant_skew: 0.8,
        priority_share: 0.1,
        deadline_share: 0.25,
        soft_share: 0.3,
        elastic_share: 0.3,
        ..Spec::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_workload_is_sound_and_always_the_same() {
        let (workload, cluster) = embedded();
        assert_eq!(workload.check(&cluster), []);
        assert_eq!(embedded().0, workload);
        let load = workload.offered_load(&cluster);
        assert!((0.99..=1.01).contains(&load), "{load}");
        assert_eq!((workload.jobs.len(), workload.tenants.len()), (2000, 4));
    }
}
