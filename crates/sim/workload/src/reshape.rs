//! Other traces from a trace: a sample, a slice of time, another load, other names.
//!
//! Each is a function from a workload to a workload. Jobs are numbered anew; a job that had to follow one that is
//! no longer there follows the others only.

use crate::reference::Reference;
use crate::tenant_ids::TenantIds;
use crate::{Problem, TraceJob, Workload};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use trainyard_profile::{Catalog, GENERIC};
use trainyard_types::{Cluster, Job, JobId, Span, Time, Work};

/// So many jobs, drawn without putting back; all of them if there are fewer.
pub fn sample(workload: &Workload, count: usize, seed: u64) -> Workload {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let mut order: Vec<u32> = (0..workload.jobs.len() as u32).collect();
    let count = count.min(order.len());
    for index in 0..count {
        let left = (order.len() - index) as u64;
        // The bias of the remainder is below 2^-32 for any trace that fits into memory.
        let other = index + (random.next_u64() % left) as usize;
        order.swap(index, other);
    }
    order.truncate(count);
    order.sort_unstable();
    keep(workload, &order)
}

/// The jobs that are submitted from `from` on and before `to`, counted from `from`.
pub fn slice(workload: &Workload, from: Time, to: Time) -> Workload {
    let within = |one: &&TraceJob| (from..to).contains(&one.job.submitted);
    let chosen: Vec<u32> = workload.jobs.iter().filter(within).map(|one| one.job.id.0).collect();
    let mut workload = keep(workload, &chosen);
    for one in &mut workload.jobs {
        move_to(Arc::make_mut(&mut one.job), |time| Time(time.0.saturating_sub(from.0)));
    }
    workload
}

/// The same jobs, arriving `factor` times as fast; deadlines and earliest starts keep their distance to submission.
pub fn scale_load(workload: &Workload, factor: f64) -> Workload {
    assert!(factor > 0.0 && factor.is_finite(), "the caller checks the factor");
    let mut workload = workload.clone();
    let first = workload.jobs.first().map_or(Time::ZERO, |one| one.job.submitted);
    for one in &mut workload.jobs {
        let job = Arc::make_mut(&mut one.job);
        let since = job.submitted.since(first).as_secs_f64() / factor;
        let submitted = Time(first.0 + Span::from_secs_f64(since).0);
        let old = job.submitted;
        move_to(job, |time| Time((time.0 + submitted.0).saturating_sub(old.0)));
    }
    workload
}

/// Without names: jobs and tenants get pseudonyms made from `key`, models become the generic one with the same
/// duration. The same name and key give the same pseudonym in every trace; without the key it cannot be undone.
pub fn anonymise(workload: &Workload, cluster: &Cluster, key: &str) -> Workload {
    let (mut workload, _) = with_models_of(workload.clone(), cluster, &Catalog::default());
    let labels: Vec<String> = workload.jobs.iter().map(|one| workload.label(one.job.id)).collect();
    workload.labels = labels.iter().map(|name| pseudonym(key, "job", name)).collect();
    let mut tenants = trainyard_types::Tenants::default();
    let mut known = TenantIds::of(&tenants);
    let ids: Vec<_> = workload
        .tenants
        .iter()
        .map(|(_, tenant)| match tenant.name.as_str() {
            "default" => known.intern(&mut tenants, "default"),
            name => known.intern(&mut tenants, &pseudonym(key, "tenant", name)),
        })
        .collect();
    for one in &mut workload.jobs {
        let job = Arc::make_mut(&mut one.job);
        job.tenant = ids[job.tenant.index()];
    }
    workload.tenants = tenants;
    workload.name = "anonymous".to_owned();
    workload
}

/// The same jobs with models of `known` and those of Gavel only, which our own format may name, and how many jobs
/// changed.
pub fn with_models_for_our_format(
    workload: Workload,
    cluster: &Cluster,
    known: &Catalog,
) -> (Workload, usize) {
    let mut known = known.clone();
    crate::gavel_rates::complete(&mut known);
    with_models_of(workload, cluster, &known)
}

/// The same jobs with models of `known` only, and how many jobs changed.
///
/// A job of any other model becomes one of the generic model that takes as long at its wanted size.
pub fn with_models_of(
    mut workload: Workload,
    cluster: &Cluster,
    known: &Catalog,
) -> (Workload, usize) {
    let reference = Reference::new(&workload.catalog, cluster);
    let ids: Vec<Option<_>> = workload
        .catalog
        .iter()
        .map(|(_, profile)| known.find(&profile.name).filter(|id| known.get(*id) == profile))
        .collect();
    let generic = known.find(GENERIC).unwrap_or_default();
    let mut changed = 0;
    for one in &mut workload.jobs {
        if let Some(id) = ids[one.job.model.index()] {
            if id != one.job.model {
                Arc::make_mut(&mut one.job).model = id;
            }
            continue;
        }
        changed += 1;
        let seconds = |work: Work| Work(reference.seconds_for(one, work));
        let (work, fails_at) = (seconds(one.work), one.fails_at.map(seconds));
        let declared = one.job.declared.map(seconds);
        // What its batches did to its speed is in its seconds now.
        *one = TraceJob { fails_at, ..TraceJob::new(Arc::clone(&one.job), work) };
        let job = Arc::make_mut(&mut one.job);
        (job.model, job.declared) = (generic, declared);
    }
    workload.catalog = known.clone();
    (workload, changed)
}

/// What becomes of jobs that can never fit on a cluster.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// They go.
    Drop,
    /// They ask for as many GPUs as there are for them, and take as many GPU-seconds as before.
    Cap,
}

/// The same jobs without those that ask for more GPUs than the cluster has for them, or with those made smaller, and
/// how many that were. A job that can run nowhere at any size goes in both cases.
pub fn fitted(workload: &Workload, cluster: &Cluster, unfit: Unfit) -> (Workload, usize) {
    let mut most: BTreeMap<u32, u32> = BTreeMap::new();
    for problem in workload.check(cluster) {
        if let Problem::TooLarge { job, most: there, .. } = problem {
            most.insert(job.0, there);
        }
    }
    let goes = |id: &u32| most.get(id).is_some_and(|there| unfit == Unfit::Drop || *there == 0);
    let mut fitted = workload.clone();
    let reference = Reference::new(&workload.catalog, cluster);
    for one in &mut fitted.jobs {
        let Some(there) = most.get(&one.job.id.0).copied().filter(|there| *there > 0) else {
            continue;
        };
        let asked = one.job.want.gpus;
        let before = reference.seconds_for(one, one.work);
        let job = Arc::make_mut(&mut one.job);
        let want = &mut job.want;
        (want.gpus, want.gpus_min, want.gpus_max) = (there, want.gpus_min.min(there), there);
        let after = reference.seconds_for(one, one.work);
        let longer = before * f64::from(asked) / f64::from(there) / after;
        let scale = |work: Work| if longer.is_finite() { Work(work.0 * longer) } else { work };
        (one.work, one.fails_at) = (scale(one.work), one.fails_at.map(scale));
        let job = Arc::make_mut(&mut one.job);
        job.declared = job.declared.map(scale);
    }
    let kept: Vec<u32> = (0..workload.jobs.len() as u32).filter(|id| !goes(id)).collect();
    match kept.len() == workload.jobs.len() {
        true => (fitted, most.len()),
        false => (keep(&fitted, &kept), most.len()),
    }
}

/// Only these jobs, ascending.
fn keep(workload: &Workload, chosen: &[u32]) -> Workload {
    let mut new = vec![None; workload.jobs.len()];
    for (id, old) in chosen.iter().enumerate() {
        new[*old as usize] = Some(JobId(id as u32));
    }
    let mut jobs = Vec::with_capacity(chosen.len());
    for old in chosen {
        let mut one = workload.jobs[*old as usize].clone();
        let job = Arc::make_mut(&mut one.job);
        job.id = new[*old as usize].expect("it was chosen");
        job.after = job.after.iter().filter_map(|other| new[other.index()]).collect();
        jobs.push(one);
    }
    let labels = chosen.iter().map(|old| workload.label(JobId(*old))).collect();
    Workload { jobs, labels, ..workload.clone() }
}

fn move_to(job: &mut Job, moved: impl Fn(Time) -> Time) {
    job.submitted = moved(job.submitted);
    job.not_before = job.not_before.map(&moved);
    for (time, _) in &mut job.value {
        *time = moved(*time);
    }
}

/// A keyed function of a name: a chain of ChaCha12 keys, one for each 16 bytes of the key, the sort and the name.
fn pseudonym(key: &str, sort: &str, name: &str) -> String {
    let mut state = [0u8; 32];
    for part in [key, sort, name] {
        // The length goes in too, so that no part can run into the next.
        let length = (part.len() as u64).to_le_bytes();
        for block in std::iter::once(&length[..]).chain(part.as_bytes().chunks(16)) {
            for (byte, with) in state.iter_mut().zip(block) {
                *byte ^= with;
            }
            ChaCha12Rng::from_seed(state).fill_bytes(&mut state);
        }
    }
    let number = u64::from_le_bytes(state[..8].try_into().expect("eight bytes"));
    format!("{sort}-{number:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::Tenants;

    fn workload() -> Workload {
        let mut workload = Workload { labels: Vec::new(), ..Workload::empty("test") };
        workload.tenants = Tenants::default();
        let team = workload.tenants.intern("team");
        for index in 0..10u32 {
            let mut job =
                Job::simple(JobId(index), Time::from_secs_f64(f64::from(index) * 10.0), 2);
            job.tenant = team;
            job.value = vec![(Time(job.submitted.0 + 5_000_000), 1.0)];
            job.after = if index > 0 { vec![JobId(index - 1)] } else { Vec::new() };
            workload.labels.push(format!("j{index}"));
            workload.jobs.push(TraceJob::new(job, Work(7.0)));
        }
        workload
    }

    #[test]
    fn a_sample_has_the_size_asked_for_and_depends_on_the_seed_alone() {
        let whole = workload();
        let one = sample(&whole, 4, 3);
        assert_eq!(one.jobs.len(), 4);
        assert_eq!(one, sample(&whole, 4, 3));
        assert_ne!(one.labels, sample(&whole, 4, 4).labels);
        assert_eq!(sample(&whole, 99, 3).jobs, whole.jobs);
        assert!(one.jobs.iter().enumerate().all(|(id, job)| job.job.id.index() == id));
    }

    #[test]
    fn a_slice_counts_from_its_own_beginning() {
        let part = slice(&workload(), Time::from_secs_f64(20.0), Time::from_secs_f64(50.0));
        assert_eq!(part.labels, ["j2", "j3", "j4"]);
        assert_eq!(part.jobs[0].job.submitted, Time::ZERO);
        assert_eq!(part.jobs[0].job.value[0].0, Time::from_secs_f64(5.0));
        assert!(part.jobs[0].job.after.is_empty());
        assert_eq!(part.jobs[1].job.after, [JobId(0)]);
    }

    #[test]
    fn twice_the_load_is_half_the_time_between_jobs() {
        let fast = scale_load(&workload(), 2.0);
        assert_eq!(fast.span(), Span::secs(45));
        let last = &fast.jobs[9].job;
        assert_eq!(last.value[0].0.since(last.submitted), Span::secs(5));
    }

    #[test]
    fn pseudonyms_follow_the_name_and_the_key() {
        let cluster = Cluster::uniform(1, 4, "v100");
        let one = anonymise(&workload(), &cluster, "secret");
        assert_eq!(one, anonymise(&workload(), &cluster, "secret"));
        assert_ne!(one.labels, anonymise(&workload(), &cluster, "other").labels);
        assert!(one.labels.iter().all(|label| label.starts_with("job-") && label.len() == 20));
        assert_ne!(pseudonym("a", "job", "bc"), pseudonym("a", "jo", "bbc"));
        assert!(one.tenants.iter().all(|(_, tenant)| !tenant.name.contains("team")));
    }
}
