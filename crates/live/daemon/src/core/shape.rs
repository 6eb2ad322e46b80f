//! What a job's processes and the cluster's rules mean for where it can be put.

use trainyard_api::{JobSpec, Processes};
use trainyard_types::{Cluster, Want};

/// The most nodes of a job; 0 means any number. One process for the whole job uses the GPUs of its own node: where they
/// suffice it gets no others, unless its user says how many nodes it may have.
pub(super) fn nodes_max(cluster: &Cluster, spec: &JobSpec, want: &Want) -> u16 {
    if spec.processes != Processes::PerJob || spec.nodes_max != 0 {
        return spec.nodes_max;
    }
    let on_one = Want { nodes_max: 1, ..want.clone() };
    u16::from(cluster.most_gpus(&on_one) >= spec.gpus)
}

/// Why no set of nodes can hold a job though there are enough GPUs, and which sizes near its own would do.
pub(super) fn uneven(cluster: &Cluster, want: &Want) -> String {
    let need = want.gpus_min;
    let below = cluster.largest_size(want, need);
    let above = cluster.smallest_size(want, need);
    let sizes: Vec<String> = above
        .into_iter()
        .chain((below > 0).then_some(below))
        .map(|size| size.to_string())
        .collect();
    format!(
        "all nodes of a job give the same number of GPUs here, and no nodes can hold {need} so: ask for {}",
        sizes.join(" or ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_stays_on_one_node_where_that_suffices() {
        let cluster = Cluster::uniform(2, 4, "v100");
        let of = |gpus, processes, nodes_max_asked| {
            let spec =
                JobSpec { gpus, processes, nodes_max: nodes_max_asked, ..JobSpec::default() };
            nodes_max(&cluster, &spec, &Want::gpus(gpus))
        };
        assert_eq!(of(4, Processes::PerJob, 0), 1);
        assert_eq!(of(4, Processes::PerJob, 2), 2);
        assert_eq!(of(6, Processes::PerJob, 0), 0);
        assert_eq!(of(4, Processes::PerGpu, 0), 0);
    }

    #[test]
    fn a_size_that_cannot_be_cut_evenly_is_refused_with_those_that_can() {
        let mut cluster = Cluster::uniform(2, 4, "v100");
        cluster.rules.equal_per_node = true;
        assert!(uneven(&cluster, &Want::gpus(7)).ends_with("ask for 8 or 6"));
        assert!(uneven(&cluster, &Want::gpus(5)).ends_with("ask for 6 or 4"));
    }
}
