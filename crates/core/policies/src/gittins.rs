//! Tiresias with the Gittins index: the job that is most likely to finish within a quantum, for the service that takes,
//! runs.

mod authors;

use crate::prelude::*;
use crate::tiresias::{Jump, Queues, Service, authors_thresholds};
use rustc_hash::FxHashMap;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "gittins",
    about: "The job most likely to end soon for its size runs, judged by how much service past jobs took.",
    paper: "Gu et al., Tiresias (2D-Gittins), NSDI 2019; Gittins, J. Royal Statistical Society 1979",
    needs: Needs::NOTHING,
    class: Taxonomy::rigid(Objective::CompletionTime, Family::LeastServed).preemptive(),
    settings: &[
        (
            "quantum",
            "the service looked ahead, and the step in which service is counted, in GPU-seconds",
        ),
        (
            "samples",
            "total service of past jobs, in GPU-seconds; if empty it is learnt from jobs as they end",
        ),
        (
            "queues",
            "whether jobs also sink through the queues of Tiresias, with the index deciding inside each",
        ),
        ("thresholds", "limits of these queues, in GPU-seconds"),
        ("rounding", "`exact`, or `tiresias-code` for the whole numbers of the authors' code"),
        ("jump", "when queues are looked at: `exact`, `tiresias-code` or `muri-code`"),
        ("mode", "`changes`, or `refill-requeue` as the authors' simulators do"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    quantum: Span,
    samples: Vec<Span>,
    queues: bool,
    thresholds: Vec<Span>,
    rounding: Rounding,
    jump: Jump,
    mode: Mode,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            quantum: Span::secs(3250),
            samples: Vec::new(),
            queues: false,
            thresholds: authors_thresholds(),
            rounding: Rounding::Exact,
            jump: Jump::Exact,
            mode: Mode::Changes,
        }
    }
}

/// How the table is computed.
#[derive(Copy, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Rounding {
    #[default]
    Exact,
    /// Whole seconds and few decimals, as SymbioticLab/Tiresias computes it; the rounding makes ties.
    TiresiasCode,
}

impl Rounding {
    /// How the value of a key is found from past jobs.
    fn value(self) -> fn(&Past<'_>, usize) -> i64 {
        match self {
            Rounding::Exact => |past, from| -coarse(past.index(from)),
            Rounding::TiresiasCode => |past, from| -authors::index(past, from),
        }
    }
}

/// Until so many jobs have ended, the prior is used.
const LEARN_MIN: usize = 16;
/// The newest ended jobs that are learnt from.
const LEARN_MAX: usize = 1024;

/// The index at each service, for an empirical distribution of total service.
struct Table {
    /// Total service of past jobs, ascending.
    samples: Vec<Span>,
    /// The negated index of a job whose service lies just below each sample; smaller is better.
    values: Vec<i64>,
    /// For each of them, the service at which it changes.
    until: Vec<Span>,
}

impl Table {
    /// O(n^2) for the exact index, once for each time the table is learnt.
    fn new(mut samples: Vec<Span>, quantum: Span, rounding: Rounding) -> Table {
        samples.sort_unstable();
        let mut sums = vec![0u128];
        for sample in &samples {
            sums.push(sums[sums.len() - 1] + u128::from(sample.0));
        }
        let past = Past { samples: &samples, sums, quantum };
        let value = rounding.value();
        let values: Vec<i64> = (0..samples.len()).map(|from| value(&past, from)).collect();
        let mut until = samples.clone();
        for place in (1..values.len()).rev() {
            if values[place - 1] == values[place] {
                until[place - 1] = until[place];
            }
        }
        Table { samples, values, until }
    }

    /// The value of a key: smaller is better, 0 beyond the last sample. O(log n).
    fn value(&self, service: Span) -> i64 {
        let position = self.samples.partition_point(|sample| *sample <= service);
        self.values.get(position).copied().unwrap_or(0)
    }

    /// The service at which the value changes next.
    fn next_change(&self, service: Span) -> Option<Span> {
        let position = self.samples.partition_point(|sample| *sample <= service);
        self.until.get(position).copied()
    }
}

/// To four significant bits: no job is stopped for a trifle, and keys change seldom.
fn coarse(index: i64) -> i64 {
    let spare = (64 - index.leading_zeros()).saturating_sub(4);
    index >> spare << spare
}

/// Past jobs, ascending, with their running sums.
struct Past<'a> {
    samples: &'a [Span],
    sums: Vec<u128>,
    quantum: Span,
}

impl Past<'_> {
    /// The Gittins index in units of 1e-10 for each GPU-second, at the sample before `from`: the best
    /// ratio, over all spans of at least a quantum, of jobs that end within it to the service all receive in it
    /// (P over E of the paper's 2D-Gittins, which has one span, the quantum).
    ///
    /// The longest job counts as one that did not end: there will be longer ones.
    fn index(&self, from: usize) -> i64 {
        let count = self.samples.len();
        let service = if from == 0 { Span::ZERO } else { self.samples[from - 1] };
        let within = self.samples.partition_point(|other| *other <= service + self.quantum);
        let ratio = |to: usize| {
            let ahead = self.samples[to - 1].minus(service).max(self.quantum);
            let ended = (to - from) as u128;
            let received = self.sums[to] - self.sums[from] - ended * u128::from(service.0)
                + u128::from(ahead.0) * (count - to) as u128;
            ended * 10_000_000_000_000_000 / received.max(1)
        };
        let first = within.max(from + 1);
        (first..count).map(ratio).max().unwrap_or(0).min(i64::MAX as u128) as i64
    }
}

/// Before anything is learnt: as many short jobs as long ones on a scale of orders of magnitude, one GPU-minute to
/// twelve GPU-days. Its hazard falls with service, so it orders jobs as least attained service would.
fn prior() -> Vec<Span> {
    (0..64)
        .map(|step| Span::from_secs_f64(60.0 * libm::exp2(f64::from(step) * 14.0 / 63.0)))
        .collect()
}

/// O(log n) for each job that changes, and O(n log n) when the table is learnt anew: at each doubling of the number
/// of ended jobs, later at every 1024th.
struct Gittins {
    table: Table,
    queues: Option<Queues>,
    quantum: Span,
    rounding: Rounding,
    mode: Mode,
    given: bool,
    /// The newest ended jobs, a ring.
    ended: Vec<Span>,
    ended_total: usize,
    renewed: bool,
    seen: FxHashMap<JobId, Seen>,
}

/// What was last seen of a job.
struct Seen {
    service: Span,
    at: Time,
    /// The service that it attains in each unit of time.
    pace: u64,
}

impl Gittins {
    fn learn(&mut self, service: Span) {
        if self.given || service == Span::ZERO {
            return;
        }
        if self.ended.len() < LEARN_MAX {
            self.ended.push(service);
        } else {
            self.ended[self.ended_total % LEARN_MAX] = service;
        }
        self.ended_total += 1;
        let due = if self.ended_total <= LEARN_MAX {
            self.ended_total >= LEARN_MIN && self.ended_total.is_power_of_two()
        } else {
            self.ended_total.is_multiple_of(LEARN_MAX)
        };
        if due {
            self.table = Table::new(self.ended.clone(), self.quantum, self.rounding);
            self.renewed = true;
        }
    }

    /// In the plain form service counts in whole quanta, so that a job keeps its place for one; the authors' refill
    /// looks at the very service.
    fn service(&self, job: JobRef<'_>, now: Time) -> Span {
        let attained = Service::GpuTime.of(job, now);
        match self.mode {
            Mode::Changes => Span(attained.0 / self.quantum.0 * self.quantum.0),
            Mode::Refill | Mode::RefillRequeue | Mode::Recount => attained,
        }
    }
}

impl Rank for Gittins {
    fn rank(&mut self, job: JobRef<'_>, view: &View<'_>) -> Key {
        let pace = if job.state.is_placed() { u64::from(job.state.gpus()) } else { 0 };
        if !self.given {
            let service = job.state.attained(view.now);
            self.seen.insert(job.id(), Seen { service, at: view.now, pace });
        }
        let queue = self.queues.as_mut().map_or(0, |queues| queues.queue(job, view));
        let value = self.table.value(self.service(job, view.now));
        Key::value(value).tier(queue as i64).tie(job.spec.submitted)
    }

    fn changes_at(&mut self, job: JobRef<'_>, view: &View<'_>) -> Option<Time> {
        let sinks = self.queues.as_ref().and_then(|queues| queues.changes_at(job, view));
        if self.mode != Mode::Changes {
            return sinks;
        }
        // The first whole quantum beyond that service: until then the value stays.
        let step = self.table.next_change(self.service(job, view.now)).and_then(|sample| {
            let limit = Span(sample.0.div_ceil(self.quantum.0) * self.quantum.0);
            let more = limit.minus(Service::GpuTime.of(job, view.now));
            Some(view.now + Service::GpuTime.time_until(more, job)?)
        });
        [sinks, step].into_iter().flatten().min()
    }

    fn renewed(&mut self) -> bool {
        std::mem::take(&mut self.renewed)
    }

    /// However it ended, it will ask for no more service.
    fn over(&mut self, job: JobId, view: &View<'_>) {
        if let Some(queues) = &mut self.queues {
            queues.over(job);
        }
        if let Some(Seen { service, at, pace }) = self.seen.remove(&job) {
            self.learn(service + view.now.since(at).times(pace));
        }
    }

    fn forget(&mut self) {
        if let Some(queues) = &mut self.queues {
            queues.forget();
        }
        self.seen.clear();
        if !self.given {
            self.ended.clear();
            self.ended_total = 0;
            self.table = Table::new(prior(), self.quantum, self.rounding);
        }
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { quantum, samples, queues, thresholds, rounding, jump, mode } =
        raw.read(ENTRY.name)?;
    if quantum == Span::ZERO {
        return Err(ENTRY.bad_value("quantum", quantum, "a length of time above 0"));
    }
    let given = !samples.is_empty();
    let rank = Gittins {
        table: Table::new(if given { samples } else { prior() }, quantum, rounding),
        queues: queues.then(|| Queues::new(thresholds, Service::GpuTime, jump)),
        quantum,
        rounding,
        mode,
        given,
        ended: Vec::new(),
        ended_total: 0,
        renewed: false,
        seen: FxHashMap::default(),
    };
    Ok(Pipeline::new(Ranked::new(rank).mode(mode), FewestNodes, ENTRY.needs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gittins_prefers_the_job_that_is_about_to_end() {
        // Nine jobs of 100 s and one of 10,000 s: fresh jobs mostly end within a quantum, old ones do not.
        let mut samples = vec![Span::secs(100); 9];
        samples.push(Span::secs(10_000));
        let table = Table::new(samples, Span::secs(200), Rounding::Exact);
        assert!(table.value(Span::ZERO) < table.value(Span::secs(150)));
        assert_eq!(table.value(Span::secs(10_000)), 0);
    }

    #[test]
    fn gittins_prior_orders_as_least_attained_service() {
        let table = Table::new(prior(), Span::secs(3250), Rounding::Exact);
        let values: Vec<i64> = (0..20).map(|step| table.value(Span::secs(3250 * step))).collect();
        assert!(values.is_sorted(), "{values:?}");
    }
}
