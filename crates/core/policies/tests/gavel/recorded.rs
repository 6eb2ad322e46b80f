//! Recorded calls of the authors' own policies: what they were asked, and what they answered.

use smallvec::smallvec;
use trainyard_framework::{Choice, RateTable};
use trainyard_policies::gavel::problem::Party;
use trainyard_testkit::gavel::{self, KINDS, PairRates, Recording, shared};
use trainyard_types::{GpuType, JobId, TenantId};

/// One call: the rates and facts that the policy was given, and the shares that it gave.
pub struct Call {
    pub at: f64,
    pub table: RateTable,
    pub facts: Vec<Party>,
    pub shares: Vec<f64>,
}

/// A run of the authors' simulator.
pub struct Recorded {
    pub calls: Vec<Call>,
}

/// Reads a run; `pairs` adds the choices of two jobs on the same GPUs.
pub fn read(name: &str, pairs: bool) -> Option<Recorded> {
    let run = Recording::read(&shared()?, name).expect("a recording");
    let speeds = run.pair_rates().expect("speeds");
    let capacity: Vec<u32> = KINDS.iter().map(|kind| run.about.cluster[*kind]).collect();
    // When the last job has ended the authors' policies are asked once more, about no job.
    let calls = run.calls.iter().filter(|call| !call.jobs.is_empty());
    Some(Recorded { calls: calls.map(|call| read_call(call, &speeds, &capacity, pairs)).collect() })
}

fn read_call(call: &gavel::Call, speeds: &PairRates, capacity: &[u32], pairs: bool) -> Call {
    let mut jobs: Vec<(JobId, &gavel::Asked)> =
        call.jobs.iter().map(|(id, job)| (JobId(id.parse().expect("an id")), job)).collect();
    jobs.sort_by_key(|(id, _)| *id);
    let mut table = RateTable {
        jobs: jobs.iter().map(|(id, _)| *id).collect(),
        kinds: (0..3).map(GpuType).collect(),
        capacity: capacity.to_vec(),
        choices: Vec::new(),
    };
    let (mut facts, mut shares) = (Vec::new(), Vec::new());
    for (id, job) in &jobs {
        facts.push(Party {
            job: *id,
            gpus: f64::from(job.sf),
            weight: job.w,
            left: job.steps_left,
            age: call.t - job.arrival,
            deadline: None,
            tenant: TenantId(0),
        });
        for (kind, name) in KINDS.iter().enumerate() {
            table.choices.push(Choice {
                jobs: smallvec![*id],
                uses: smallvec![(kind as u16, job.sf)],
                nodes_max: 0,
                rates: smallvec![speeds.alone(name, *id)],
            });
            shares.push(call.alloc[&id.0.to_string()][*name]);
        }
    }
    if pairs {
        add_pairs(&jobs, speeds, &mut table);
        for choice in &table.choices[shares.len()..] {
            let name = format!("({}, {})", choice.jobs[0].0, choice.jobs[1].0);
            let share = call.alloc.get(&name).and_then(|row| row.get(KINDS[choice.kind()]));
            shares.push(share.copied().unwrap_or(0.0));
        }
    }
    Call { at: call.t, table, facts, shares }
}

fn add_pairs(jobs: &[(JobId, &gavel::Asked)], speeds: &PairRates, table: &mut RateTable) {
    for (first, (job, asked)) in jobs.iter().enumerate() {
        for (other, _) in &jobs[first + 1..] {
            for (kind, name) in KINDS.iter().enumerate() {
                table.choices.push(Choice {
                    jobs: smallvec![*job, *other],
                    uses: smallvec![(kind as u16, asked.sf)],
                    nodes_max: 0,
                    rates: speeds.get(name, *job, *other).into(),
                });
            }
        }
    }
}
