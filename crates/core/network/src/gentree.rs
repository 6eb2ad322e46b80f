//! GenTree: a plan of an all-reduce for a tree, built from its leaves up (GenModel and GenTree, arXiv 2409.04202).
//!
//! Below each switch the servers first hold the sums of their part of the tree, spread over them; at the switch those
//! that hold the same bytes reduce them in the way that GenModel says is cheapest for the tree so far. Where the parts
//! below differ in size, each keeps a share in proportion, so that every server ends with as much as any other.

use crate::collective::{Algorithm, Part, Way, join};
use crate::cost::Parts;
use crate::plan::{Plan, Transfer};
use crate::tree::{Tree, TreeError};

/// More servers than this below a switch are not tried without the switches between them.
const FLAT_MAX: usize = 256;
/// A switch with more parts below it than this is not layered by every factorisation.
const LAYERED_MAX: usize = 64;

/// A plan for a tree.
#[derive(Clone, Debug, PartialEq)]
pub struct TreePlan {
    /// The plan.
    pub plan: Plan,
    /// What GenModel says it costs.
    pub parts: Parts,
    /// How each switch combines what is below it, the root last.
    pub choices: Vec<(usize, String)>,
}

/// The cheapest plan that GenTree finds.
///
/// Plans without the switches between are among the candidates at every switch, and all of [`baselines`] at the root.
pub fn gentree(tree: &Tree, bytes: u64) -> Result<TreePlan, TreeError> {
    tree.check()?;
    let Some(built) = below(tree, 0, bytes) else {
        return Err(TreeError::TooFew(0));
    };
    let count = tree.servers.len();
    let plan = Plan::mirrored(count, count, bytes, built.steps);
    let mut best = TreePlan { parts: tree.parts(&plan), plan, choices: built.choices };
    for (name, plan) in baselines(tree, bytes)? {
        let parts = tree.parts(&plan);
        if parts.seconds() < best.parts.seconds() {
            best = TreePlan { plan, parts, choices: vec![(0, name)] };
        }
    }
    Ok(best)
}

/// Plans that know nothing of switches, over the servers in order.
pub fn baselines(tree: &Tree, bytes: u64) -> Result<Vec<(String, Plan)>, TreeError> {
    tree.check()?;
    let count = tree.servers.len();
    let known = [
        Algorithm::Ring,
        Algorithm::HalvingDoubling,
        Algorithm::ColocatedServers,
        Algorithm::ReduceBroadcast,
    ];
    let plans =
        known.into_iter().filter_map(|one| Some((one.name(), one.plan(count, bytes).ok()?)));
    Ok(plans.collect())
}

/// What stands below a switch: its servers, and who holds what sum after which steps.
#[derive(Clone)]
struct Built {
    servers: Vec<usize>,
    steps: Vec<Vec<Transfer>>,
    held: Vec<(Part, usize)>,
    choices: Vec<(usize, String)>,
}

fn below(tree: &Tree, switch: usize, bytes: u64) -> Option<Built> {
    let whole = Part { start: 0, bytes };
    let own = (0..tree.servers.len()).filter(|at| tree.servers[*at].switch == switch);
    let mut parts: Vec<Built> = own
        .map(|server| Built {
            servers: vec![server],
            steps: Vec::new(),
            held: vec![(whole, server)],
            choices: Vec::new(),
        })
        .collect();
    let switches = (0..tree.switches.len()).filter(|at| tree.switches[*at].up == Some(switch));
    parts.extend(switches.filter_map(|inner| below(tree, inner, bytes)));
    if parts.len() < 2 {
        return parts.pop();
    }
    let cost = |built: &Built| {
        let count = tree.servers.len();
        let plan = Plan { workers: count, ranks: count, bytes, steps: built.steps.clone() };
        tree.parts(&plan).seconds()
    };
    let mut best: Option<(f64, Built)> = None;
    let mut offer = |built: Built| {
        let cost = cost(&built);
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            best = Some((cost, built));
        }
    };
    let sizes: Vec<u64> = parts.iter().map(|part| part.servers.len() as u64).collect();
    let ways = match parts.len() <= LAYERED_MAX {
        true => Way::all(parts.len()),
        false => vec![Way::Direct, Way::Ring],
    };
    for way in ways {
        offer(combine(switch, &parts, &way, &sizes));
        if sizes.iter().any(|size| *size != sizes[0]) {
            offer(combine(switch, &parts, &way, &vec![1; sizes.len()]));
        }
    }
    let all: Vec<usize> = parts.iter().flat_map(|part| part.servers.iter().copied()).collect();
    if parts.iter().any(|part| part.servers.len() > 1) && all.len() <= FLAT_MAX {
        for way in Way::all(all.len()) {
            let (steps, owned) = way.scatter(&all, whole, &vec![1; all.len()]);
            let held = owned.into_iter().map(|(server, part)| (part, server)).collect();
            let choices = vec![(switch, format!("{}, flat", name(&way)))];
            offer(Built { servers: all.clone(), steps, held, choices });
        }
    }
    best.map(|(_, built)| built)
}

/// Reduces across parts what their servers hold, each run of bytes among those that hold it.
fn combine(switch: usize, parts: &[Built], way: &Way, weights: &[u64]) -> Built {
    let longest = parts.iter().map(|part| part.steps.len()).max().unwrap_or(0);
    let mut built = Built {
        servers: Vec::new(),
        steps: vec![Vec::new(); longest],
        held: Vec::new(),
        choices: Vec::new(),
    };
    let mut edges: Vec<u64> = Vec::new();
    for part in parts {
        // All parts are done with their own steps at the same time.
        join(&mut built.steps, longest - part.steps.len(), part.steps.clone());
        built.servers.extend(&part.servers);
        built.choices.extend(part.choices.iter().cloned());
        edges.extend(part.held.iter().flat_map(|(run, _)| [run.start, run.start + run.bytes]));
    }
    edges.sort_unstable();
    edges.dedup();
    let held: Vec<Vec<(Part, usize)>> = parts
        .iter()
        .map(|part| {
            let mut held = part.held.clone();
            held.sort_unstable();
            held
        })
        .collect();
    let mut places = vec![0; parts.len()];
    for pair in edges.windows(2) {
        let run = Part { start: pair[0], bytes: pair[1] - pair[0] };
        let mut group = Vec::with_capacity(parts.len());
        for (held, place) in held.iter().zip(&mut places) {
            while held[*place].0.start + held[*place].0.bytes <= run.start {
                *place += 1;
            }
            group.push(held[*place].1);
        }
        let (steps, owned) = way.scatter(&group, run, weights);
        join(&mut built.steps, longest, steps);
        let owned = owned.into_iter().filter(|(_, part)| part.bytes > 0);
        built.held.extend(owned.map(|(server, part)| (part, server)));
    }
    built.choices.push((switch, name(way)));
    built
}

fn name(way: &Way) -> String {
    match way {
        Way::Direct => "co-located servers".to_owned(),
        Way::Ring => "ring".to_owned(),
        Way::Halving => "halving".to_owned(),
        Way::Layers(factors) => {
            let factors: Vec<String> = factors.iter().map(usize::to_string).collect();
            format!("co-located servers in layers {}", factors.join("x"))
        }
    }
}
