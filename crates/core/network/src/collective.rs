//! All-reduce algorithms: closed forms, and the plans that they are the forms of.

use crate::cost::Terms;
use crate::plan::{Plan, Transfer};

/// How an all-reduce is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Servers that are no workers hold a part of the data each.
    ParameterServer {
        /// How many.
        servers: usize,
    },
    /// The first worker adds up everything and sends it back.
    ReduceBroadcast,
    /// Parts go round a ring, twice.
    Ring,
    /// Recursive halving, then doubling; workers beyond a power of two hand over to a partner first.
    HalvingDoubling,
    /// Every worker is the server of its part.
    ColocatedServers,
    /// Co-located servers layer by layer, with these numbers of members; the first layer reduces first.
    Hierarchical(Vec<usize>),
}

/// Why an algorithm cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectiveError {
    /// There is nothing to reduce among fewer than two.
    #[error("an all-reduce needs at least 2 workers, not {0}")]
    TooFew(usize),
    /// Factors do not make the number of workers.
    #[error("layers {factors:?} make {product} workers, not {workers}")]
    Factors {
        /// What was given.
        factors: Vec<usize>,
        /// What they make.
        product: usize,
        /// What there is.
        workers: usize,
    },
    /// A parameter server needs a server.
    #[error("a parameter server needs at least 1 server")]
    NoServer,
}

impl Algorithm {
    /// What the field calls it.
    pub fn name(&self) -> String {
        match self {
            Algorithm::ParameterServer { servers } => format!("parameter-server-{servers}"),
            Algorithm::ReduceBroadcast => "reduce-broadcast".to_owned(),
            Algorithm::Ring => "ring".to_owned(),
            Algorithm::HalvingDoubling => "halving-doubling".to_owned(),
            Algorithm::ColocatedServers => "co-located-servers".to_owned(),
            Algorithm::Hierarchical(factors) => {
                let factors: Vec<String> = factors.iter().map(usize::to_string).collect();
                format!("hierarchical-{}", factors.join("x"))
            }
        }
    }

    /// All that suit so many workers, hierarchical ones by every ordered factorisation into factors of 2 and more.
    pub fn all(workers: usize) -> Vec<Algorithm> {
        let mut all = vec![
            Algorithm::ParameterServer { servers: 1 },
            Algorithm::ReduceBroadcast,
            Algorithm::Ring,
            Algorithm::HalvingDoubling,
            Algorithm::ColocatedServers,
        ];
        let layered = factorisations(workers).into_iter().filter(|factors| factors.len() > 1);
        all.extend(layered.map(Algorithm::Hierarchical));
        all
    }

    fn check(&self, workers: usize) -> Result<(), CollectiveError> {
        if workers < 2 {
            return Err(CollectiveError::TooFew(workers));
        }
        match self {
            Algorithm::ParameterServer { servers: 0 } => Err(CollectiveError::NoServer),
            Algorithm::Hierarchical(factors) => {
                let product = factors.iter().product();
                let wrong = product != workers || factors.iter().any(|factor| *factor < 2);
                let factors = factors.clone();
                if wrong {
                    return Err(CollectiveError::Factors { factors, product, workers });
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The closed form for `workers` with links of one speed to one switch, each with `bytes` of data.
    ///
    /// Only the half of a reduce-broadcast that gathers has a fan-in; GenModel's table charges both.
    pub fn terms(&self, workers: usize, bytes: f64) -> Result<Terms, CollectiveError> {
        self.check(workers)?;
        let n = workers as f64;
        let part = bytes / n;
        let mut terms = Terms {
            rounds: 2.0,
            bytes: 2.0 * (n - 1.0) * part,
            reduced: (n - 1.0) * part,
            accessed: (n + 1.0) * part,
            gathered: Vec::new(),
        };
        match self {
            Algorithm::ParameterServer { servers } => {
                let part = bytes / *servers as f64;
                terms.bytes = 2.0 * (n * part).max(bytes);
                (terms.reduced, terms.accessed) = ((n - 1.0) * part, (n + 1.0) * part);
                terms.gather(workers as u32 + 1, terms.bytes / 2.0);
                terms.gather(*servers as u32 + 1, terms.bytes / 2.0);
            }
            Algorithm::ReduceBroadcast => {
                terms.bytes = 2.0 * (n - 1.0) * bytes;
                (terms.reduced, terms.accessed) = ((n - 1.0) * bytes, (n + 1.0) * bytes);
                terms.gather(workers as u32, terms.bytes / 2.0);
                terms.gather(2, terms.bytes / 2.0);
            }
            Algorithm::Ring => {
                terms.rounds = 2.0 * (n - 1.0);
                terms.accessed = 3.0 * (n - 1.0) * part;
                terms.gather(2, terms.bytes);
            }
            Algorithm::HalvingDoubling => {
                let even = 1usize << workers.ilog2();
                let (m, extra) = (even as f64, f64::from(u8::from(even < workers)));
                terms.rounds = 2.0 * (f64::from(workers.ilog2()) + extra);
                terms.bytes = 2.0 * ((m - 1.0) * bytes / m + extra * bytes);
                terms.reduced = (m - 1.0) * bytes / m + extra * bytes;
                terms.accessed = 3.0 * terms.reduced;
                terms.gather(2, terms.bytes);
            }
            Algorithm::ColocatedServers => terms.gather(workers as u32, terms.bytes),
            Algorithm::Hierarchical(factors) => {
                terms.rounds = 2.0 * factors.len() as f64;
                // The table's f_1 is the layer that reduces last.
                let mut product = 1.0;
                let mut sum = 0.0;
                for factor in factors.iter().skip(1).rev() {
                    product *= *factor as f64;
                    sum += product;
                }
                terms.accessed = (n + 1.0 + 2.0 * sum) * part;
                let mut left = bytes;
                for factor in factors {
                    let f = *factor as f64;
                    terms.gather(*factor as u32, 2.0 * (f - 1.0) * left / f);
                    left /= f;
                }
            }
        }
        Ok(terms)
    }

    /// The plan whose closed form [`Algorithm::terms`] is.
    pub fn plan(&self, workers: usize, bytes: u64) -> Result<Plan, CollectiveError> {
        self.check(workers)?;
        let group: Vec<usize> = (0..workers).collect();
        let whole = Part { start: 0, bytes };
        let (ranks, steps) = match self {
            Algorithm::ParameterServer { servers } => {
                let servers: Vec<usize> = (workers..workers + servers).collect();
                let parts = whole.split(&vec![1; servers.len()]);
                let pairs = servers.iter().zip(parts);
                let sends = pairs
                    .flat_map(|(server, part)| group.iter().map(move |from| (from, server, part)));
                let step = sends.map(|(from, to, part)| part.reduce(*from, *to)).collect();
                (workers + servers.len(), vec![step])
            }
            Algorithm::ReduceBroadcast => {
                (workers, vec![group[1..].iter().map(|from| whole.reduce(*from, 0)).collect()])
            }
            Algorithm::Ring => (workers, Way::Ring.scatter(&group, whole, &vec![1; workers]).0),
            Algorithm::HalvingDoubling => {
                let even = 1usize << workers.ilog2();
                let extra = (even..workers).map(|from| whole.reduce(from, from - even)).collect();
                let mut steps: Vec<Vec<Transfer>> = vec![extra];
                steps.extend(Way::Halving.scatter(&group[..even], whole, &vec![1; even]).0);
                (workers, steps)
            }
            Algorithm::ColocatedServers => {
                (workers, Way::Direct.scatter(&group, whole, &vec![1; workers]).0)
            }
            Algorithm::Hierarchical(factors) => {
                let way = Way::Layers(factors.clone());
                (workers, way.scatter(&group, whole, &vec![1; workers]).0)
            }
        };
        Ok(Plan::mirrored(workers, ranks, bytes, steps))
    }
}

/// Every way to write a number as a product of ordered factors of 2 and more, the number itself first.
pub fn factorisations(number: usize) -> Vec<Vec<usize>> {
    let mut all = if number > 1 { vec![vec![number]] } else { Vec::new() };
    for first in (2..number).filter(|factor| number.is_multiple_of(*factor)) {
        for mut rest in factorisations(number / first) {
            rest.insert(0, first);
            all.push(rest);
        }
    }
    all
}

/// A run of bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    pub start: u64,
    pub bytes: u64,
}

impl Part {
    /// In as many pieces as there are weights, in proportion to them, to whole bytes.
    pub fn split(self, weights: &[u64]) -> Vec<Part> {
        let total: u64 = weights.iter().sum();
        let (mut before, mut parts) = (0, Vec::with_capacity(weights.len()));
        for weight in weights {
            let at =
                |sum: u64| (u128::from(self.bytes) * u128::from(sum) / u128::from(total)) as u64;
            let (from, to) = (at(before), at(before + weight));
            parts.push(Part { start: self.start + from, bytes: to - from });
            before += weight;
        }
        parts
    }

    pub fn reduce(self, from: usize, to: usize) -> Transfer {
        Transfer { from, to, start: self.start, bytes: self.bytes, reduces: true }
    }
}

/// How ranks that hold the same bytes reduce them, so that each ends with a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Each sends every other its part.
    Direct,
    /// Parts go round.
    Ring,
    /// Halves are exchanged; a power of two.
    Halving,
    /// Directly within groups, then across them.
    Layers(Vec<usize>),
}

/// Steps, and which rank ends with which part.
pub(crate) type Scattered = (Vec<Vec<Transfer>>, Vec<(usize, Part)>);

impl Way {
    /// Those that suit a number of ranks.
    pub fn all(count: usize) -> Vec<Way> {
        let mut all = vec![Way::Direct, Way::Ring];
        if count.is_power_of_two() && count > 2 {
            all.push(Way::Halving);
        }
        let layered = factorisations(count).into_iter().filter(|factors| factors.len() > 1);
        all.extend(layered.map(Way::Layers));
        all
    }

    /// Reduces a part among ranks, of which each keeps a share by weight.
    pub fn scatter(&self, group: &[usize], part: Part, weights: &[u64]) -> Scattered {
        match self {
            Way::Direct => direct(group, part, weights),
            Way::Ring => ring(group, part, weights),
            Way::Halving => layers(group, part, weights, &vec![2; group.len().ilog2() as usize]),
            Way::Layers(factors) => layers(group, part, weights, factors),
        }
    }
}

fn direct(group: &[usize], part: Part, weights: &[u64]) -> Scattered {
    let owned: Vec<(usize, Part)> =
        group.iter().copied().zip(part.split(weights)).filter(|(_, one)| one.bytes > 0).collect();
    let mut step = Vec::with_capacity(owned.len() * group.len());
    for (to, part) in &owned {
        let others = group.iter().filter(|from| *from != to);
        step.extend(others.map(|from| part.reduce(*from, *to)));
    }
    (vec![step], owned)
}

fn ring(group: &[usize], part: Part, weights: &[u64]) -> Scattered {
    let count = group.len();
    let parts = part.split(weights);
    let mut steps = vec![Vec::new(); count - 1];
    for (number, step) in steps.iter_mut().enumerate() {
        for at in 0..count {
            // The part that ends at rank `at` begins its way at the next one.
            let own = parts[(at + 2 * count - 1 - number) % count];
            if own.bytes > 0 {
                step.push(own.reduce(group[at], group[(at + 1) % count]));
            }
        }
    }
    (steps, group.iter().copied().zip(parts).collect())
}

/// Rank i has the digits of i in the mixed radix of the factors; a layer is direct among those that differ in one digit.
fn layers(group: &[usize], part: Part, weights: &[u64], factors: &[usize]) -> Scattered {
    let Some((factor, rest)) = factors.split_first() else {
        return (Vec::new(), vec![(group[0], part)]);
    };
    // Member m of every set of neighbours goes on with the same part.
    let sets = group.len() / factor;
    let members = |m: usize| (0..sets).map(move |set| set * factor + m);
    let share: Vec<u64> = (0..*factor).map(|m| members(m).map(|at| weights[at]).sum()).collect();
    let parts = part.split(&share);
    let mut steps = vec![Vec::new()];
    for set in group.chunks(*factor) {
        steps[0].extend(direct(set, part, &share).0.remove(0));
    }
    let mut owned = Vec::new();
    for (m, part) in parts.into_iter().enumerate() {
        let inner: Vec<usize> = members(m).map(|at| group[at]).collect();
        let weights: Vec<u64> = members(m).map(|at| weights[at]).collect();
        let (more, own) = layers(&inner, part, &weights, rest);
        join(&mut steps, 1, more);
        owned.extend(own);
    }
    (steps, owned)
}

/// Puts steps beside those that are there, from step `at` on.
pub(crate) fn join(steps: &mut Vec<Vec<Transfer>>, at: usize, more: Vec<Vec<Transfer>>) {
    if steps.len() < at + more.len() {
        steps.resize(at + more.len(), Vec::new());
    }
    for (number, step) in more.into_iter().enumerate() {
        steps[at + number].extend(step);
    }
}
