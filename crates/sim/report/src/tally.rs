//! The measures of a run, gathered while it goes on: of a job that is over only a few numbers stay.

use crate::curve::Curves;
use crate::fairness::{Life, RhoSum, rho, rho_of_all};
use crate::metrics::{Deadlines, Ends, Spread, Summary, first_start, jain, jct, slowdown_of};
use trainyard_sim::{InOrder, JobOutcome, Ledger, Outcome};
use trainyard_types::{Cluster, End, IdMap, Job, JobId, Span, TenantId, Time};
use trainyard_workload::{CompactWorkload, Ideal, TraceJob};

/// What came of jobs, as a run without a list of them tells it.
pub struct Tally {
    ideal: Ideal,
    gpus: u32,
    jobs: usize,
    /// Jobs that were submitted and are not over, and the job-microseconds of all up to now.
    crowd: u64,
    sum: u128,
    now: Time,
    /// Those job-microseconds at the submission of each job that is not over.
    begun: IdMap<JobId, u128>,
    waiting: InOrder<Record>,
    gathered: Gathered,
}

impl Tally {
    /// For a run of these jobs on a cluster.
    pub fn new(workload: &CompactWorkload, cluster: &Cluster) -> Tally {
        Tally {
            ideal: Ideal::new(&workload.catalog, cluster),
            gpus: cluster.gpus(),
            jobs: workload.jobs.len(),
            crowd: 0,
            sum: 0,
            now: Time::ZERO,
            begun: IdMap::default(),
            waiting: InOrder::default(),
            gathered: Gathered::new(workload.tenants.len()),
        }
    }

    /// The measures of the run that this was told of.
    pub fn finish(mut self, cluster: &Cluster, outcome: &Outcome) -> (Summary, Curves) {
        let gathered = &mut self.gathered;
        self.waiting.finish(|record| gathered.add(&record));
        self.gathered.finish(self.jobs, cluster, outcome)
    }

    fn pass(&mut self, to: Time) {
        self.sum += u128::from(self.crowd) * u128::from(to.since(self.now).0);
        self.now = self.now.max(to);
    }
}

impl Ledger for Tally {
    fn submitted(&mut self, job: &TraceJob) {
        self.pass(job.job.submitted);
        self.crowd += 1;
        self.begun.insert(job.job.id, self.sum);
        self.gathered.owe(&job.job);
    }

    fn over(&mut self, job: &TraceJob, one: &JobOutcome) {
        self.pass(one.ended);
        self.crowd -= 1;
        let begun = self.begun.remove(&one.job).expect("a job comes before it is over");
        let ideal = self.ideal.of(job);
        let (submitted, gpus) = (job.job.submitted, job.job.want.gpus);
        let life = Life { submitted, ended: one.ended, gpus, ideal };
        let rho = rho(life, self.sum - begun, self.gpus);
        let record = Record::new(&job.job, one, (ideal, rho));
        let gathered = &mut self.gathered;
        self.waiting.put(one.job.index(), record, |record| gathered.add(&record));
    }
}

/// What is kept of a job that is over until all before it are.
pub(crate) struct Record {
    end: End,
    tenant: TenantId,
    restarts: u32,
    preemptions: u32,
    jct: Span,
    queueing: Span,
    first_start: Span,
    ideal: Span,
    rho: f64,
    due: Option<Box<Due>>,
}

/// How a job that finished stands to its deadlines.
struct Due {
    /// Whether it finished by the first, and what that is worth.
    in_time: bool,
    most: f64,
    /// What the deadline that it met is worth.
    met: Option<f64>,
}

impl Record {
    pub(crate) fn new(job: &Job, one: &JobOutcome, (ideal, rho): (Span, f64)) -> Record {
        let due = job.value.first().map(|(first, most)| {
            let met = job.value.iter().find(|(by, _)| one.ended <= *by);
            let met = met.map(|(_, value)| *value);
            Box::new(Due { in_time: one.ended <= *first, most: *most, met })
        });
        Record {
            end: one.end,
            tenant: job.tenant,
            restarts: one.restarts,
            preemptions: one.preemptions,
            jct: jct(job, one),
            queueing: jct(job, one).minus(one.ran),
            first_start: first_start(job, one),
            ideal,
            rho,
            due,
        }
    }
}

/// What the measures need of jobs that count. Jobs are added by ascending id: sums of real numbers depend on the order.
pub(crate) struct Gathered {
    ended: u64,
    ends: Ends,
    preemptions: u64,
    restarts: u64,
    /// Of jobs that finished.
    jct: Vec<Span>,
    queueing: Vec<Span>,
    first_start: Vec<Span>,
    ideal: Vec<Span>,
    rho: RhoSum,
    /// Sum and number of slowdowns by tenant.
    slowdowns: Vec<(f64, u64)>,
    deadlines: Deadlines,
    /// Parts of the value of first deadlines that were earned, and how many with deadlines finished, and in time.
    earned: f64,
    due_finished: u64,
    due_in_time: u64,
}

impl Gathered {
    pub(crate) fn new(tenants: usize) -> Gathered {
        Gathered {
            ended: 0,
            ends: Ends::default(),
            preemptions: 0,
            restarts: 0,
            jct: Vec::new(),
            queueing: Vec::new(),
            first_start: Vec::new(),
            ideal: Vec::new(),
            rho: RhoSum::default(),
            slowdowns: vec![(0.0, 0); tenants],
            deadlines: Deadlines::default(),
            earned: 0.0,
            due_finished: 0,
            due_in_time: 0,
        }
    }

    /// What a job that counts could earn, whatever comes of it.
    pub(crate) fn owe(&mut self, job: &Job) {
        if let Some((_, value)) = job.value.first() {
            self.deadlines.total += 1;
            self.deadlines.value_possible += value;
        }
    }

    pub(crate) fn add(&mut self, one: &Record) {
        self.ended += 1;
        self.ends.count(one.end);
        self.preemptions += u64::from(one.preemptions);
        self.restarts += u64::from(one.restarts);
        if one.end != End::Finished {
            return;
        }
        self.jct.push(one.jct);
        self.queueing.push(one.queueing);
        self.first_start.push(one.first_start);
        self.ideal.push(one.ideal);
        self.rho.add(one.rho);
        let (sum, count) = &mut self.slowdowns[one.tenant.index()];
        *sum += slowdown_of(one.jct, one.ideal);
        *count += 1;
        let Some(due) = &one.due else { return };
        self.due_finished += 1;
        self.due_in_time += u64::from(due.in_time);
        self.deadlines.queueing_mean_s += one.queueing.as_secs_f64();
        if let Some(value) = due.met {
            self.deadlines.met += 1;
            self.deadlines.value += value;
            self.earned += if due.most > 0.0 { value / due.most } else { 1.0 };
        }
    }

    /// The measures of a run of so many jobs, and what is drawn of it.
    pub(crate) fn finish(
        mut self,
        jobs: usize,
        cluster: &Cluster,
        outcome: &Outcome,
    ) -> (Summary, Curves) {
        let summary = self.summary(jobs, cluster, outcome);
        // What is not drawn goes before the rest is sorted.
        (self.first_start, self.ideal) = (Vec::new(), Vec::new());
        (summary, Curves::of((self.jct, self.queueing), outcome))
    }

    fn summary(&mut self, jobs: usize, cluster: &Cluster, outcome: &Outcome) -> Summary {
        let crowd = (jobs as f64 / f64::from(cluster.gpus().max(1))).max(1.0);
        let finished = || self.jct.iter().zip(&self.ideal);
        let mut of_all = RhoSum::default();
        for (jct, ideal) in finished() {
            of_all.add(rho_of_all(*jct, *ideal, crowd));
        }
        let slowdown = finished().map(|(jct, ideal)| slowdown_of(*jct, *ideal)).collect();
        let served = self.slowdowns.iter().filter(|(_, count)| *count > 0);
        let means: Vec<f64> = served.map(|(sum, count)| sum / *count as f64).collect();
        Summary {
            jobs: self.ended + outcome.unfinished.len() as u64,
            finished: self.jct.len() as u64,
            ended_otherwise: self.ends,
            slowdown: Spread::of(slowdown),
            // These leave the lists in another order.
            jct_s: Spread::of_mut(&mut self.jct),
            queueing_s: Spread::of_mut(&mut self.queueing),
            first_start_s: Spread::of_mut(&mut self.first_start),
            rho: self.rho.rho(),
            rho_of_all: of_all.rho(),
            preemptions: self.preemptions,
            restarts: self.restarts,
            slowdown_fairness: jain(&means),
            deadlines: self.deadlines(),
            ..Summary::of_cluster(cluster, outcome)
        }
    }

    fn deadlines(&self) -> Option<Deadlines> {
        let mut sum = self.deadlines;
        sum.queueing_mean_s /= self.due_finished.max(1) as f64;
        sum.missed_first = sum.total - self.due_in_time;
        sum.missed_worth = (sum.total as f64 - self.earned).max(0.0);
        (sum.total > 0).then_some(sum)
    }
}
