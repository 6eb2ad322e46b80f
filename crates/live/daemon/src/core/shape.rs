//! What a job's processes and the cluster's rules mean for where it can be put.

use trainyard_api::{Code, JobSpec, Problem, Processes};
use trainyard_backend::discover::is_slice;
use trainyard_types::{Cluster, GpuType, Want};

/// The most nodes of a job; 0 means any number. One process for the whole job uses the GPUs of its own node: where they
/// suffice it gets no others, unless its user says how many nodes it may have.
pub(super) fn nodes_max(cluster: &Cluster, spec: &JobSpec, want: &Want) -> u16 {
    if spec.processes != Processes::PerJob || spec.nodes_max != 0 {
        return spec.nodes_max;
    }
    let on_one = Want { nodes_max: 1, ..want.clone() };
    u16::from(cluster.most_gpus(&on_one) >= spec.gpus)
}

/// A program can use one MIG slice and no second one: a job that may have several GPUs gets none of their types.
pub(super) fn leave_out_slices(cluster: &Cluster, want: &mut Want) -> Result<(), Problem> {
    let is_cut = |kind: &GpuType| is_slice(&cluster.kinds[kind.index()].name);
    let all = || (0..cluster.kinds.len()).map(|index| GpuType(index as u8));
    if want.gpus_max < 2 || !all().any(|kind| is_cut(&kind)) {
        return Ok(());
    }
    if want.kinds.is_empty() {
        want.kinds.extend(all());
    }
    want.kinds.retain(|kind| !is_cut(kind));
    if want.kinds.is_empty() {
        let detail = format!(
            "it may have {} GPUs, and there are only MIG slices for it, of which a program can use one: ask for one \
             GPU, or for a type that is not cut",
            want.gpus_max
        );
        return Err(Problem::field(Code::Infeasible, "gpus", detail));
    }
    Ok(())
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
    fn a_job_that_may_have_several_gpus_gets_no_slices() {
        let mut cluster = Cluster::uniform(1, 4, "h200");
        let slice = cluster.add_kind("h200-1g.18gb");
        cluster.add_node(slice, 7);
        let left = |gpus: u32, kinds: &[GpuType]| {
            let mut want = Want { kinds: kinds.iter().copied().collect(), ..Want::gpus(gpus) };
            leave_out_slices(&cluster, &mut want).map(|()| want.kinds.to_vec())
        };
        assert_eq!(left(1, &[]), Ok(vec![]), "any type");
        assert_eq!(left(1, &[slice]), Ok(vec![slice]));
        assert_eq!(left(2, &[]), Ok(vec![GpuType(0)]));
        assert_eq!(left(2, &[slice, GpuType(0)]), Ok(vec![GpuType(0)]));
        let refused = left(2, &[slice]).unwrap_err();
        assert!(refused.to_string().contains("MIG slices"), "{refused}");
    }

    #[test]
    fn a_size_that_cannot_be_cut_evenly_is_refused_with_those_that_can() {
        let mut cluster = Cluster::uniform(2, 4, "v100");
        cluster.rules.equal_per_node = true;
        assert!(uneven(&cluster, &Want::gpus(7)).ends_with("ask for 8 or 6"));
        assert!(uneven(&cluster, &Want::gpus(5)).ends_with("ask for 6 or 4"));
    }
}
