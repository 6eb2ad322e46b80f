//! Options of a run from flags.

use crate::args::WorldArgs;
use crate::choice::split_list;
use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use trainyard_engine::{Setup, Trigger};
use trainyard_framework::RawSettings;
use trainyard_profile::ColocationModel;
use trainyard_sim::{DecisionCost, Distance, FailureModel, Lending, Options, Rounding, Window};
use trainyard_types::{Cluster, Span, SuspendRule, Time};
use trainyard_workload::Workload;

/// The largest seed: settings are TOML, whose integers have a sign.
pub const SEED_MAX: u64 = i64::MAX as u64;

/// The options of a run.
pub fn read(args: &WorldArgs, seed: u64) -> Result<Options, Failure> {
    let mut options = args.semantics.options();
    options.seed = seed;
    if let Some(text) = &args.costs {
        options.costs = text.parse().map_err(|_| {
            let expected = "profile, 'profile x2', free or 'flat save=5s start=25s'";
            Failure::flag("--costs", text, expected)
        })?;
    }
    if let Some(text) = &args.estimate_error {
        options.estimate_error = deviation("--estimate-error", text)?;
    }
    if let Some(text) = &args.speed_error {
        options.speed_error = deviation("--speed-error", text)?;
    }
    options.splits_by_speed = args.splits_by_speed;
    options.tells_plans = !args.without_plans;
    if let Some(text) = &args.pairs_known {
        let part = text.parse().ok().filter(|part| (0.0..=1.0).contains(part));
        let expected = "a part from 0 to 1, such as 0.3";
        options.pairs_known = part.ok_or_else(|| Failure::flag("--pairs-known", text, expected))?;
    }
    if let Some(text) = &args.colocation {
        let names = ColocationModel::ALL.map(ColocationModel::name).join(", ");
        let refused = |()| Failure::flag("--colocation", text, format!("one of {names}"));
        options.colocation = text.parse().map_err(refused)?;
    }
    if let Some(text) = &args.interference {
        let part = text.parse().ok().filter(|part| (0.0..1.0).contains(part));
        let expected = "a part from 0 to below 1, such as 0.25";
        options.interference =
            part.ok_or_else(|| Failure::flag("--interference", text, expected))?;
    }
    options.in_phases = args.phases;
    if let Some(text) = &args.round {
        let round = span("--round", text)?;
        options.trigger = match options.trigger {
            Trigger::Barrier(_) => Trigger::Barrier(round),
            Trigger::Slots(_) => Trigger::Slots(round),
            Trigger::Events | Trigger::Clock(_) => Trigger::Clock(round),
        };
    }
    if let Some(text) = &args.checkpoint_every {
        options.checkpoint_every = span("--checkpoint-every", text)?;
    }
    options.setup.isolates_tenants = args.isolate_tenants;
    if let Some(text) = &args.suspend_memory {
        let rule = text.parse::<SuspendRule>();
        let rule =
            rule.map_err(|_| Failure::flag("--suspend-memory", text, SuspendRule::EXPECTED))?;
        options.setup.suspend = Some(rule).filter(|rule| rule.memory_mib > 0);
    }
    if let Some(text) = &args.measure {
        options.measured = Some(window(text)?);
    }
    if let Some(text) = &args.failures {
        options.failures = Some(failures(text)?);
    }
    if let Some(text) = &args.lend {
        options.lending = Some(lending(text)?);
    }
    if let Some(text) = &args.decision_cost {
        options.decision_cost = decision_cost(text)?;
    }
    Ok(options)
}

/// Every option by name, for reports.
pub fn listed(args: &WorldArgs, options: &Options) -> Vec<(String, String)> {
    let trigger = match options.trigger {
        Trigger::Events => "at every event".to_owned(),
        Trigger::Clock(every) => format!("every {every}"),
        Trigger::Barrier(round) => format!("when the slowest has done its part of {round}"),
        Trigger::Slots(slot) => format!("at events, {slot} apart at least"),
    };
    let failures = match options.failures {
        None => "none".to_owned(),
        Some(model) => {
            let gpus = model.gpus.map_or_else(String::new, |mean| format!(",gpu_mtbf={mean}"));
            format!("mtbf={},repair={}{gpus}", model.between, model.repair)
        }
    };
    let DecisionCost { fixed, per_job } = options.decision_cost;
    let rounding = match options.rounding {
        Rounding::Exact => "exact",
        Rounding::WholeSeconds => "whole seconds",
        Rounding::WholeSteps => "whole steps",
        Rounding::WholeSlots => "whole slots",
    };
    let distance = match options.distance {
        Distance::Counts => "counts",
        Distance::Ignored => "ignored",
    };
    let measured = match options.measured {
        None => "all jobs".to_owned(),
        Some(Window { from, to }) => format!("{from}..{to}"),
    };
    let in_phases = options.in_phases.then(|| ("phases", "true".to_owned()));
    let by_speed = options.splits_by_speed.then(|| ("splits-by-speed", "true".to_owned()));
    let blind = (!options.tells_plans).then(|| ("without-plans", "true".to_owned()));
    [
        ("semantics", args.semantics.name().to_owned()),
        ("decisions", trigger),
        ("costs", options.costs.to_string()),
        ("rounding", rounding.to_owned()),
        ("distance", distance.to_owned()),
        ("estimate-error", options.estimate_error.to_string()),
        ("speed-error", options.speed_error.to_string()),
        ("pairs-known", options.pairs_known.to_string()),
        ("colocation", options.colocation.name().to_owned()),
        ("interference", options.interference.to_string()),
        ("decision-cost", format!("fixed={fixed},per-job={per_job}")),
        ("failures", failures),
        ("lend", lent(options)),
        ("checkpoint-every", options.checkpoint_every.to_string()),
        ("measured", measured),
    ]
    .into_iter()
    .chain(by_speed)
    .chain(blind)
    .chain(in_phases)
    .chain(of_setup(&options.setup))
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

/// What nodes are lent, and by which law.
fn lent(options: &Options) -> String {
    match &options.lending {
        None => "none".to_owned(),
        Some(law) if !law.trace.is_empty() => format!(
            "pool={},trace of {} changes,period={},headroom={},every={},noise={}",
            law.pool,
            law.trace.len(),
            law.period,
            law.headroom,
            law.every,
            law.noise
        ),
        Some(law) => format!(
            "pool={},low={},high={},period={},headroom={},every={},noise={}",
            law.pool, law.low, law.high, law.period, law.headroom, law.every, law.noise
        ),
    }
}

/// Settings of the engine that are listed where they are not as usual.
fn of_setup(setup: &Setup) -> impl Iterator<Item = (&'static str, String)> {
    let suspend = setup.suspend.map(|rule| ("suspend-memory", rule.to_string()));
    let apart = setup.isolates_tenants.then(|| ("isolate-tenants", "true".to_owned()));
    suspend.into_iter().chain(apart)
}

fn deviation(flag: &str, text: &str) -> Result<f64, Failure> {
    let sigma = text.parse().ok().filter(|sigma| (0.0..=10.0).contains(sigma));
    let expected = "a standard deviation from 0 to 10, such as 0.3";
    sigma.ok_or_else(|| Failure::flag(flag, text, expected))
}

/// The jobs that `--measure` names: the first is left out of what comes before, the last belongs to it.
fn window(text: &str) -> Result<Window, Failure> {
    let expected =
        "FROM..TO with numbers of jobs, such as 4000..5000 for the thousand after the first 4000";
    let refused = || Failure::flag("--measure", text, expected);
    let (from, to) = text.split_once("..").ok_or_else(refused)?;
    let number = |part: &str| part.trim().parse::<u32>().map_err(|_| refused());
    let window = Window { from: number(from)?, to: number(to)? };
    if window.from < window.to { Ok(window) } else { Err(refused()) }
}

/// Refuses to measure jobs that there are not.
pub fn refuse_window(options: &Options, workload: &Workload) -> Result<(), Failure> {
    let jobs = workload.jobs.len();
    match options.measured {
        Some(Window { from, to }) if to as usize > jobs => {
            let expected = format!("at most {jobs}, the number of jobs of `{}`", workload.name);
            Err(Failure::flag("--measure", &format!("{from}..{to}"), expected))
        }
        _ => Ok(()),
    }
}

/// A whole number from 0 to `most`.
pub fn whole(flag: &str, text: &str, most: u64) -> Result<u64, Failure> {
    let number = text.trim().parse().ok().filter(|number| *number <= most);
    number.ok_or_else(|| Failure::flag(flag, text, format!("a whole number from 0 to {most}")))
}

/// A length of time above zero.
pub fn span(flag: &str, text: &str) -> Result<Span, Failure> {
    let span = text.parse().ok().filter(|span| *span > Span::ZERO);
    let expected = "a length of time above 0, such as 90s, 5m, 1h30m or 1:30:00";
    span.ok_or_else(|| Failure::flag(flag, text, expected))
}

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct FailureLaw {
    mtbf: Span,
    repair: Span,
    /// Never where it is zero: an option without a value would be no known key.
    gpu_mtbf: Span,
}

impl Default for FailureLaw {
    fn default() -> FailureLaw {
        FailureLaw {
            mtbf: Span::secs(30 * 86_400),
            repair: Span::secs(4 * 3600),
            gpu_mtbf: Span::ZERO,
        }
    }
}

fn failures(text: &str) -> Result<FailureModel, Failure> {
    let refused = |error| Failure::config("--failures", error);
    let raw = RawSettings::parse(split_list(text)).map_err(refused)?;
    let FailureLaw { mtbf, repair, gpu_mtbf } = raw.read("failures").map_err(refused)?;
    if mtbf == Span::ZERO || repair == Span::ZERO {
        let expected = "mean times above 0, such as mtbf=30d,repair=4h";
        return Err(Failure::flag("--failures", text, expected));
    }
    Ok(FailureModel {
        between: mtbf,
        repair,
        gpus: Some(gpu_mtbf).filter(|mean| *mean > Span::ZERO),
    })
}

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct LendingLaw {
    pool: String,
    low: f64,
    high: f64,
    period: Span,
    headroom: f64,
    every: Span,
    noise: f64,
    /// A file; empty for a wave.
    trace: String,
}

impl Default for LendingLaw {
    fn default() -> LendingLaw {
        let Lending { pool, low, high, period, headroom, every, noise, .. } = Lending::default();
        LendingLaw { pool, low, high, period, headroom, every, noise, trace: String::new() }
    }
}

fn lending(text: &str) -> Result<Lending, Failure> {
    let refused = |error| Failure::config("--lend", error);
    let raw = RawSettings::parse(split_list(text)).map_err(refused)?;
    let LendingLaw { pool, low, high, period, headroom, every, noise, trace } =
        raw.read("lend").map_err(refused)?;
    let wrong = |expected: &str| Err(Failure::flag("--lend", text, expected));
    if !(0.0 <= low && low <= high && high <= 1.0) {
        return wrong("parts of the pool with 0 <= low <= high <= 1, such as low=0.4,high=0.95");
    }
    if period == Span::ZERO || every == Span::ZERO {
        return wrong("a period and a time between two looks above 0, such as period=1d,every=5m");
    }
    if !((0.0..=1.0).contains(&headroom) && (0.0..=1.0).contains(&noise)) {
        return wrong("headroom and noise as parts from 0 to 1, such as headroom=0.02,noise=0");
    }
    let trace = if trace.is_empty() { Vec::new() } else { demand_trace(&trace)? };
    Ok(Lending { pool, low, high, period, headroom, every, noise, trace })
}

/// A demand over time: lines `SECONDS,PART`, ascending; a first line of words is a heading.
fn demand_trace(path: &str) -> Result<Vec<(Time, f64)>, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::flag("--lend", path, format!("a file to read: {error}")))?;
    let mut trace: Vec<(Time, f64)> = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let row = line.split_once(',').and_then(|(at, part)| {
            let at: u64 = at.trim().parse().ok()?;
            let part: f64 = part.trim().parse().ok().filter(|part| (0.0..=1.0).contains(part))?;
            Some((Time::ZERO + Span::secs(at), part))
        });
        match row {
            Some(row) if trace.last().is_none_or(|last| last.0 < row.0) => trace.push(row),
            None if number == 0 => {}
            _ => {
                let expected =
                    "whole seconds, ascending, a comma and a part of the pool from 0 to 1";
                let place = format!("line {} of {path}: {line}", number + 1);
                return Err(Failure::flag("--lend", &place, expected));
            }
        }
    }
    match trace.is_empty() {
        true => Err(Failure::flag("--lend", path, "at least one line `SECONDS,PART`")),
        false => Ok(trace),
    }
}

/// Refuses to lend a pool that the cluster does not have.
pub fn refuse_pool(options: &Options, cluster: &Cluster) -> Result<(), Failure> {
    let Some(law) = &options.lending else { return Ok(()) };
    let empty = |pool| cluster.nodes.iter().all(|node| node.pool != pool);
    match law.pool_in(cluster) {
        Some(pool) if !empty(pool) => Ok(()),
        _ => {
            let pools = cluster.pools.join(", ");
            let expected = format!("a pool of the cluster, which has {pools}");
            Err(Failure::flag("--lend", &law.pool, expected))
        }
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct CostLaw {
    fixed: Span,
    per_job: Span,
}

fn decision_cost(text: &str) -> Result<DecisionCost, Failure> {
    if !text.contains('=') {
        return Ok(DecisionCost { fixed: span("--decision-cost", text)?, per_job: Span::ZERO });
    }
    let refused = |error| Failure::config("--decision-cost", error);
    let raw = RawSettings::parse(split_list(text)).map_err(refused)?;
    let CostLaw { fixed, per_job } = raw.read("decision-cost").map_err(refused)?;
    Ok(DecisionCost { fixed, per_job })
}
