//! The scenario format: text in, what was understood out.

use trainyard_profile::CostModel;
use trainyard_types::{Class, GpuAt, JobId, NodeId, Span, TenantId, Time, Work};
use trainyard_workload::scenario::{Broken, Choice, Expect, Failure, parse};

const TEXT: &str = "\
# A comment.
cluster   2x4 v100
tenant    research weight 3
tenant    team-a weight 2 ceiling 4 parent research
job a     at 0s   wants 4   work 100s   model generic
job b     at 10s  wants 8   work 50s    tenant team-a  priority 3  min 2 max 8 kinds v100 deadline 5m after a not-before 1m limit 2h min-run 30s fixed share 500 class guaranteed
job c     at 5s   wants 1   work 3000   model gavel-a3c value 1m:10,2m:5 fails 10s declares 9 retries 0 weight 0.5 nodes 1 memory 900 group 7 pool default
policy    las thresholds=[1h]
policy    fifo
place     fewest-nodes
admit     load=1.2
semantics muri
costs     flat save=5s start=25s
error     0.3
fail      node 0 at 100s for 50s
fail      gpu 0.3 at 10s for 20s
cancel    a at 30s   # and a comment
seed      7
expect    log
";

#[test]
fn every_line_is_understood() {
    let scenario = parse(TEXT).unwrap();
    assert_eq!(scenario.workload.labels, ["a", "c", "b"]);
    let b = &scenario.workload.jobs[2];
    assert_eq!(b.work, Work(25.0), "half of each GPU, so half of the work in the same time");
    assert_eq!((b.job.want.gpus_min, b.job.want.gpus, b.job.want.gpus_max), (2, 8, 8));
    assert_eq!((b.job.after.as_slice(), b.job.tenant), (&[JobId(0)][..], TenantId(2)));
    assert_eq!(b.job.deadline(), Some(Time(300_000_000)));
    assert_eq!((b.job.run_max, b.job.min_run), (Some(Span::secs(7200)), Span::secs(30)));
    assert_eq!((b.job.preemptible, b.job.class, b.job.priority), (false, Class::Guaranteed, 3));
    let c = &scenario.workload.jobs[1];
    assert_eq!((c.work, c.job.declared, c.job.value.len()), (Work(3000.0), Some(Work(9.0)), 2));
    assert_eq!(c.fails_at, Some(Work(71.758)));
    let choice = |name: &str, settings: &str, line| Choice {
        name: name.into(),
        settings: settings.into(),
        line,
    };
    assert_eq!(scenario.policies, [choice("las", "thresholds=[1h]", 8), choice("fifo", "", 9)]);
    assert_eq!(scenario.admit, [choice("load", "1.2", 11)]);
    assert_eq!(scenario.costs, CostModel::Flat { save: Span::secs(5), start: Span::secs(25) });
    let gpu = Broken::Gpu(GpuAt { node: NodeId(0), gpu: 3 });
    assert_eq!(
        scenario.failures[0],
        Failure { at: Time(10_000_000), length: Span::secs(20), what: gpu }
    );
    assert_eq!(scenario.cancels, [(Time(30_000_000), JobId(0))]);
    assert_eq!((scenario.seed, scenario.error, scenario.expect), (7, 0.3, Expect::Log));
    assert_eq!(scenario.semantics.as_deref(), Some("muri"));
    assert_eq!(scenario.workload.tenants.get(TenantId(2)).ceiling, Some(4));
}

#[test]
fn every_fault_names_its_line() {
    for (line, expected) in [
        ("jobs a wants 1 work 1s", "line 2: `line` cannot be `jobs`"),
        ("job a wants 1", "line 2: `work` is missing"),
        ("job a work 1s", "line 2: `wants` is missing"),
        ("job a wants 0 work 1s", "line 2: `wants` cannot be `0`"),
        ("job a wants -1 work 1s", "line 2: `wants` cannot be `-1`"),
        ("job a wants 1 work 0s", "line 2: `work` cannot be `0s`"),
        ("job a wants 1 work nan", "line 2: `work` cannot be `nan`"),
        ("job a wants 1 work 1s prioritty 2", "line 2: `job` cannot be `prioritty`"),
        ("job a wants 1 work 1s at", "line 2: `at` is missing"),
        ("job a wants 1 work 1s min 2", "line 2: `min` cannot be `2`: expected 1 to 1 GPUs"),
        ("job a wants 1 work 1s kinds a100", "line 2: `kinds` cannot be `a100`"),
        ("job a wants 1 work 1s model nope", "line 2: `model` cannot be `nope`"),
        ("job a wants 1 work 1s after z", "line 2: `after` cannot be `z`"),
        ("job a wants 1 work 1s at 5x", "line 2: `at` cannot be `5x`"),
        ("fail node 9 at 1s for 1s", "line 2: `fail` cannot be `node 9 at 1s for 1s`"),
        ("fail gpu 0.4 at 1s", "line 2: `fail`"),
        ("cancel x at 1s", "line 2: `cancel` cannot be `x`"),
        ("costs cheap", "line 2: `costs` cannot be `cheap`"),
        ("expect nothing", "line 2: `expect` cannot be `nothing`"),
        ("seed x", "line 2: `seed` cannot be `x`"),
        ("place", "line 2: `place` is missing"),
        ("cluster 1x1 v100", "line 2: `cluster` cannot be `1x1 v100`: expected only one line"),
        ("tenant a ceilling 3", "line 2: `tenant` cannot be `ceilling`"),
    ] {
        let found = parse(&format!("cluster 1x4 v100\n{line}\n")).unwrap_err().to_string();
        assert!(found.starts_with(expected), "{found}\n  does not start with\n{expected}");
    }
    assert!(parse("# nothing\n").unwrap_err().to_string().starts_with("`cluster` is missing"));
    let found = parse("\ncluster 1x99 v100\n").unwrap_err();
    assert_eq!(found.line, 2);
}

#[test]
fn a_line_that_breaks_for_good_needs_no_end() {
    let scenario = parse("cluster 1x4 v100\nfail node 0 at 3s\n").unwrap();
    assert_eq!(scenario.failures[0].length, Span::MAX);
    assert_eq!((scenario.costs, scenario.policies.len()), (CostModel::Free, 0));
}
