//! What it costs with a thousand jobs that wait.

use crate::cluster::Cluster;
use crate::say::say;
use crate::yard::{Yard, placed, waiting, within};
use std::time::Instant;
use trainyard_testkit::orders::Orders;

const JOBS: u32 = 1000;

#[test]
fn a_thousand_waiting_jobs_cost_less_than_a_second_a_look_and_a_placement_half_of_one() {
    let Some(cluster) = Cluster::up("a thousand waiting jobs") else { return };
    let mut yard = Yard::new(&cluster);
    let began = Instant::now();
    for job in 1..=JOBS {
        let order = waiting(&yard, job, 1 + job % 4, "sleep 0.2");
        yard.backend().announce(order);
    }
    within("all are in Slurm", || cluster.queue().len() == JOBS as usize);
    let submitted = began.elapsed().as_secs_f64();
    // A look is all that a reconcile of waiting jobs costs: nothing about them changed.
    let before = cluster.calls.spent();
    let mut looks: Vec<f64> = (0..5)
        .map(|_| {
            let began = Instant::now();
            assert_eq!(cluster.look().jobs.len(), JOBS as usize);
            began.elapsed().as_secs_f64()
        })
        .collect();
    looks.sort_by(f64::total_cmp);
    let spent = cluster.calls.spent();
    say(&format!(
        "slurm: {JOBS} jobs submitted and held in {submitted:.1} s; a look at all of them {:.0} ms (median of 5, worst \
         {:.0} ms; at most 1000); {} calls of the backend beside",
        looks[2] * 1e3,
        looks[4] * 1e3,
        spent.calls - before.calls - 10
    ));
    // The bounds are printed; a busy machine has twice of that.
    assert!(looks[2] < 2.0, "{looks:?}");
    // From the order to the moment at which Slurm has it: the script can only begin after that.
    let mut placements: Vec<f64> = Vec::new();
    for job in 1..=10 {
        let order = placed(&waiting(&yard, job, 1, "true"), 1, &[("n3", 1)]);
        let began = Instant::now();
        yard.backend().launch(order);
        let id = format!("{job} ");
        loop {
            let out = cluster.slurm(
                "squeue",
                &["-h", "-t", "all", "-j", &id_of(&cluster, &yard, job), "-o", "%T %r"],
            );
            if !out.contains("Held") {
                break;
            }
            assert!(began.elapsed().as_secs() < 60, "{id}: {out}");
        }
        placements.push(began.elapsed().as_secs_f64());
        assert_eq!(yard.until_ended((job, 1)).code, Some(0));
    }
    placements.sort_by(f64::total_cmp);
    say(&format!(
        "slurm: a placement reaches Slurm after {:.0} ms with {JOBS} waiting (median of 10, worst {:.0} ms; at most 500)",
        placements[5] * 1e3,
        placements[9] * 1e3
    ));
    assert!(placements[5] < 1.0, "{placements:?}");
}

/// The number that Slurm gave a job, as the ledger has it.
fn id_of(_cluster: &Cluster, yard: &Yard, job: u32) -> String {
    let file = yard.run_dir.join(format!("slurm/jobs/{job}/entry.json"));
    let entry: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    entry["slurm"].to_string()
}
