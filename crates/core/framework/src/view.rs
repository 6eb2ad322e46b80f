//! All that a policy may know: a moment, frozen.

use crate::{Free, Knowledge, Loan, Needs, State, Trials, links};
use smallvec::SmallVec;
use std::sync::Arc;
use trainyard_profile::training::StepTime;
use trainyard_profile::{
    BatchLimits, Batches, ChangeCost, Features, HostTable, Monitored, PairSource, StageTimes,
    SuspendCost, UsageSource,
};
use trainyard_types::{
    Allocation, Cluster, Config, GpuType, Job, JobId, JobState, Load, ModelId, Placement, Rate,
    Sample, Span, TenantId, Tenants, Time, Traffic, Work,
};

/// What is believed about speeds, sizes and costs. The simulated world holds the truth; a policy is handed beliefs.
pub trait Beliefs: Send + Sync {
    /// How fast a job would run.
    fn rate(&self, job: &Job, on: &Config) -> Option<Rate>;

    /// What an iteration of a job moves over links, if links are declared and that is known.
    fn traffic(&self, _job: &Job) -> Option<Traffic> {
        None
    }

    /// How fast a job would run where the slowest link that it uses gives it so much bandwidth; by default that does not
    /// matter.
    fn rate_on_links(&self, job: &Job, on: &Config, _mbps: f64) -> Option<Rate> {
        self.rate(job, on)
    }

    /// The same, where what others on its GPUs leave it comes from a source of predictions.
    fn rate_by(&self, job: &Job, on: &Config, _source: PairSource) -> Option<Rate> {
        self.rate(job, on)
    }

    /// The part of the time in which a job keeps a GPU busy that it has for itself, as a source says.
    fn utilisation(&self, _job: &Job, _source: UsageSource) -> Option<f64> {
        None
    }

    /// What else is known of a job that has a GPU for itself.
    fn features(&self, _job: &Job) -> Option<&Features> {
        None
    }

    /// What monitoring showed of a job so long after it started. The view asks about the past alone.
    fn monitored(&self, _job: &Job, _after: Span) -> Option<Monitored> {
        None
    }

    /// What it costs to move a job: from nothing to start, to nothing to stop.
    fn change(&self, job: &Job, from: Option<&Config>, to: Option<&Config>) -> ChangeCost;

    /// What it costs to put a job aside that has so much in its GPU's memory, and to bring it back, where that is known.
    fn suspend(&self, _job: &Job, _on: &Config, _memory_mib: u64) -> Option<SuspendCost> {
        None
    }

    /// How much work the job is in all, as far as that is known.
    fn work(&self, job: &Job) -> Option<Work>;

    /// The share of the largest tensor in all parameters of the job's model, if it is known.
    fn skew(&self, _job: &Job) -> Option<f64> {
        None
    }

    /// The model whose profile says how fast the job is, if there is one. Where there is none the speed of a job does
    /// not depend on its model, so that jobs of different names fit and fail alike.
    fn profiled(&self, job: &Job) -> Option<ModelId> {
        Some(job.model)
    }

    /// A number that changes with every change of a speed, or nothing if that cannot be told.
    fn version(&self) -> Option<u64> {
        None
    }

    /// The batches at which the speed of the job's model is known, if several are.
    fn batches(&self, _job: &Job) -> Option<&Batches> {
        None
    }

    /// How the speed of the job's model on a number of GPUs depends on host CPUs and memory, if that is known.
    fn host_table(&self, _job: &Job, _gpus: u32) -> Option<&HostTable> {
        None
    }

    /// Seconds of an iteration at the job's own batch, with at least so many accumulated passes, if that is known.
    fn iteration_seconds(&self, _job: &Job, _on: &Config, _accumulated_least: u32) -> Option<f64> {
        None
    }

    /// Iterations at the job's own batch after the epoch in which so much is done, if that is known.
    fn iterations_ahead(&self, _job: &Job, _done: Work) -> Option<f64> {
        None
    }

    /// The limits of the job's batch on a type of GPU, if it may have several.
    fn batch_limits(&self, _job: &Job, _kind: GpuType) -> Option<BatchLimits> {
        None
    }

    /// The time of one pass of the job with so many samples on each GPU, as a trial before it runs would find it.
    fn trial(&self, _job: &Job, _on: &Config, _local: u32) -> Option<StepTime> {
        None
    }

    /// How long an iteration of the job keeps each stage busy on so many GPUs, if that is known.
    fn stages(&self, _job: &Job, _gpus: u32) -> Option<StageTimes> {
        None
    }

    /// Seconds in which each of several jobs on the same GPUs would do one iteration, where they go on together.
    fn period(&self, _jobs: &[&Job], _on: &Config) -> Option<f64> {
        None
    }

    /// How the job's model would be divided over GPUs, in a few words, or why it fits in no way; nothing for a job whose
    /// model was not described.
    fn division(&self, _job: &Job, _on: &Config) -> Option<Result<String, String>> {
        None
    }

    /// The same beliefs once more, to be thought on while these go on learning.
    fn copied(&self) -> Arc<dyn Beliefs>;

    /// Whether anything is learnt from what jobs report; if not, [`Beliefs::observe`] and [`Beliefs::over`] need not be
    /// called.
    fn learns(&self) -> bool {
        true
    }

    /// Learns from what a running job reports.
    fn observe(&mut self, _job: &Job, _on: Option<&Config>, _sample: &Sample) {}

    /// What was learnt, as a text that survives a restart; nothing if nothing can be learnt.
    fn kept(&self) -> Option<String> {
        None
    }

    /// A job was told of other GPUs and did not go over to them in time.
    fn cannot_resize(&mut self, _job: &Job) {}

    /// A job ended: nothing more will be asked about it.
    fn over(&mut self, _job: &Job) {}
}

/// One job as a policy sees it.
#[derive(Copy, Clone, Debug)]
pub struct JobRef<'a> {
    /// What was asked for.
    pub spec: &'a Job,
    /// What has happened.
    pub state: &'a JobState,
}

impl JobRef<'_> {
    /// Its id.
    pub fn id(&self) -> JobId {
        self.spec.id
    }
}

/// A moment, frozen. Cheap to copy: it borrows everything.
#[derive(Copy, Clone)]
pub struct View<'a> {
    /// The moment.
    pub now: Time,
    state: &'a State,
    beliefs: &'a dyn Beliefs,
    needs: &'a Needs,
}

impl<'a> View<'a> {
    /// A view for a policy that declared `needs`.
    #[inline]
    pub fn new(
        now: Time,
        state: &'a State,
        beliefs: &'a dyn Beliefs,
        needs: &'a Needs,
    ) -> View<'a> {
        View { now, state, beliefs, needs }
    }

    /// The same moment as far as another state tells, such as one that holds a part of the jobs.
    pub fn over<'b>(&self, state: &'b State) -> View<'b>
    where
        'a: 'b,
    {
        View { now: self.now, state, beliefs: self.beliefs, needs: self.needs }
    }

    /// The cluster as declared; what is in service at the moment is known to the offer.
    pub fn cluster(&self) -> &'a Cluster {
        &self.state.cluster
    }

    /// Tenants and their ceilings.
    pub fn tenants(&self) -> &'a Tenants {
        &self.state.tenants
    }

    /// What the engine knows, in full.
    pub fn state(&self) -> &'a State {
        self.state
    }

    /// A job that is not over.
    #[inline]
    pub fn job(&self, id: JobId) -> Option<JobRef<'a>> {
        self.state.live(id).map(|live| JobRef { spec: &live.spec, state: &live.state })
    }

    /// Admitted jobs without a grant, by id.
    pub fn waiting(&self) -> impl Iterator<Item = JobRef<'a>> + use<'a> {
        let view = *self;
        self.state.waiting.iter().filter_map(move |id| view.job(id))
    }

    /// Jobs with a grant, by id.
    pub fn granted(&self) -> impl Iterator<Item = JobRef<'a>> + use<'a> {
        let view = *self;
        self.state.granted.iter().filter_map(move |id| view.job(id))
    }

    /// How many jobs wait.
    pub fn waiting_len(&self) -> usize {
        self.state.waiting.len()
    }

    /// How many jobs hold a grant.
    pub fn granted_len(&self) -> usize {
        self.state.granted.len()
    }

    /// Jobs that changed since the last decision; some may be over, some may come twice.
    pub fn changed(&self) -> &'a [JobId] {
        &self.state.changed
    }

    /// Jobs that ended since the last decision, and when.
    pub fn ended(&self) -> &'a [(JobId, Time)] {
        &self.state.ended
    }

    /// Pools that are lent, and how many of their nodes must go back with this decision.
    pub fn loans(&self) -> &'a [Loan] {
        &self.state.loans
    }

    /// Whether the host keeps rounds, so that each decision begins one.
    pub fn keeps_rounds(&self) -> bool {
        self.state.keeps_rounds
    }

    /// Whether the policy declared that it must know speeds, so that [`View::rate`] answers at all.
    pub fn shows_rates(&self) -> bool {
        self.needs.rates
    }

    /// The number of this decision; a policy whose memory is older than one decision starts anew.
    pub fn decision(&self) -> u64 {
        self.state.decisions
    }

    /// GPUs asked for by all admitted jobs, with a grant or not.
    pub fn demand(&self) -> u64 {
        self.state.demand
    }

    /// How fast a job would run, as far as is known; nothing for a policy that did not declare the need.
    pub fn rate(&self, job: JobRef<'_>, on: &Config) -> Option<Rate> {
        if !self.needs.rates {
            return None;
        }
        let spills = on.memory_mib_max.is_some() && on.memory_mib == 0;
        let stated =
            spills.then(|| Config { memory_mib: job.spec.want.gpu_memory_mib, ..on.clone() });
        let on = stated.as_ref().unwrap_or(on);
        match self.needs.pairs {
            PairSource::Measured => self.beliefs.rate(job.spec, on),
            source => self.beliefs.rate_by(job.spec, on, source),
        }
    }

    /// The part of the time in which a job keeps a GPU busy that it has for itself, by the source that the policy
    /// declared; nothing without one, and where that source does not know.
    pub fn utilisation(&self, job: JobRef<'_>) -> Option<f64> {
        self.beliefs.utilisation(job.spec, self.needs.usage)
    }

    /// What is known of a job that has a GPU for itself; nothing for a policy that did not declare the need.
    pub fn features(&self, job: JobRef<'_>) -> Option<&'a Features> {
        let told = self.needs.usage != UsageSource::Nothing;
        told.then(|| self.beliefs.features(job.spec)).flatten()
    }

    /// What monitoring has shown of a job that runs, oldest first: at moments so far apart, within a window that ends now
    /// and begins no earlier than its last start. Empty for a job that does not run, where nothing is monitored, and for
    /// a policy that did not declare the need.
    pub fn monitored(&self, job: JobRef<'_>, window: Span, every: Span) -> Vec<Monitored> {
        let started = job.state.last_start.filter(|_| job.state.held.is_some());
        let Some(started) = started.filter(|at| self.needs.monitoring && *at <= self.now) else {
            return Vec::new();
        };
        let ran = self.now.since(started);
        let first = ran.0.saturating_sub(window.0);
        let moments = (first..=ran.0).rev().step_by(every.0.max(1) as usize);
        let mut seen: Vec<Monitored> =
            moments.map_while(|after| self.beliefs.monitored(job.spec, Span(after))).collect();
        seen.reverse();
        seen
    }

    /// How fast a job would run with whole GPUs in one place, beside the traffic of all other jobs with a grant; as
    /// [`View::rate`] where no links are declared. Nothing for a policy that did not declare the need of speeds.
    ///
    /// Linear in the jobs with a grant on several nodes.
    pub fn rate_at(&self, job: JobRef<'_>, placement: &Placement) -> Option<Rate> {
        let config = Config { permille: 1000, ..placement.config(self.cluster()) };
        match self.mbps_at(job, placement) {
            Some(mbps) => self.rate_at_bandwidth(job, &config, mbps),
            None => self.rate(job, &config),
        }
    }

    /// The bandwidth that a job would have in one place beside all other jobs with a grant; nothing where no links are
    /// declared or its traffic is not known.
    pub fn mbps_at(&self, job: JobRef<'_>, placement: &Placement) -> Option<f64> {
        let topology = self.cluster().topology.as_deref()?;
        let traffic = self.beliefs.traffic(job.spec)?;
        let mut loads = vec![topology.load(placement, traffic.pattern)];
        if placement.nodes() > 1 {
            for other in self.granted().filter(|other| other.id() != job.id()) {
                let Some(planned) = &other.state.planned else { continue };
                if planned.placement.nodes() > 1
                    && let Some(traffic) = self.beliefs.traffic(other.spec)
                {
                    loads.push(topology.load(&planned.placement, traffic.pattern));
                }
            }
        }
        let loads: Vec<&Load> = loads.iter().collect();
        links::shares(topology, &loads).first().copied()
    }

    /// How fast a job would run where the slowest link that it uses gives it so much bandwidth: its sensitivity to
    /// links, as far as is known. Nothing for a policy that did not declare the need of speeds.
    pub fn rate_at_bandwidth(&self, job: JobRef<'_>, on: &Config, mbps: f64) -> Option<Rate> {
        if self.needs.rates { self.beliefs.rate_on_links(job.spec, on, mbps) } else { None }
    }

    /// What an iteration of a job moves over links: a fact of the model, shown to every policy where links are declared.
    pub fn traffic(&self, job: JobRef<'_>) -> Option<Traffic> {
        self.beliefs.traffic(job.spec)
    }

    /// The model whose profile says how fast a job is: jobs that wish for the same and share it, or have none, fit and
    /// fail alike.
    pub fn profiled(&self, job: JobRef<'_>) -> Option<ModelId> {
        self.beliefs.profiled(job.spec)
    }

    /// A number that changes with every change of what is believed about speeds, or nothing if that cannot be told.
    pub fn beliefs_version(&self) -> Option<u64> {
        self.beliefs.version()
    }

    /// Whether what is believed may change with what jobs report, though nothing else happens.
    pub fn learns(&self) -> bool {
        self.beliefs.learns()
    }

    /// What a change of placement would cost.
    pub fn change(
        &self,
        job: JobRef<'_>,
        from: Option<&Config>,
        to: Option<&Config>,
    ) -> ChangeCost {
        self.beliefs.change(job.spec, from, to)
    }

    /// What it costs to take the GPUs of an allocation from a job for another one and to give them back later, by the
    /// cheapest way that is open for it now: to put it aside in host memory, or to let it save and start it anew.
    pub fn preemption(&self, job: JobRef<'_>, on: &Allocation) -> ChangeCost {
        let knows = (self.cluster(), self.beliefs);
        self.state.aside.cheapest(job, on, knows, None).1
    }

    /// The same where a job is by its plan or was put aside, and otherwise by what a stop and a start cost there.
    pub fn preemption_where_it_is(&self, job: JobRef<'_>, otherwise: &Config) -> ChangeCost {
        let home = job.state.suspended.as_deref().map(|own| &own.home);
        match job.state.planned.as_ref().or(home) {
            Some(on) => self.preemption(job, on),
            None => ChangeCost {
                save: self.change(job, Some(otherwise), None).save,
                start: self.change(job, None, Some(otherwise)).start,
                in_place: false,
            },
        }
    }

    /// The share of the largest tensor in all parameters of a job's model: a fact of the model, shown to every policy.
    pub fn skew(&self, job: JobRef<'_>) -> Option<f64> {
        self.beliefs.skew(job.spec)
    }

    /// The batches at which a job's model is known; nothing for a policy that did not declare the need of speeds.
    pub fn batches(&self, job: JobRef<'_>) -> Option<&'a Batches> {
        if self.needs.rates { self.beliefs.batches(job.spec) } else { None }
    }

    /// At which host CPUs and memory the speed of a job's model on a number of GPUs was measured; nothing for a policy
    /// that did not declare the need of speeds.
    pub fn host_table(&self, job: JobRef<'_>, gpus: u32) -> Option<&'a HostTable> {
        if self.needs.rates { self.beliefs.host_table(job.spec, gpus) } else { None }
    }

    /// Seconds of an iteration at a job's own batch, with at least so many accumulated passes; nothing for a job that
    /// does not follow a measured training, and for a policy that did not declare the need of speeds.
    pub fn iteration_seconds(
        &self,
        job: JobRef<'_>,
        on: &Config,
        accumulated_least: u32,
    ) -> Option<f64> {
        let shown = self.needs.rates;
        shown.then(|| self.beliefs.iteration_seconds(job.spec, on, accumulated_least)).flatten()
    }

    /// Iterations at a job's own batch after the epoch it is in; nothing for a job that does not follow a measured
    /// training, and for a policy that did not declare the need of sizes.
    pub fn iterations_ahead(&self, job: JobRef<'_>) -> Option<f64> {
        if self.needs.work_left == Knowledge::Nothing {
            return None;
        }
        self.beliefs.iterations_ahead(job.spec, job.state.progress.done_at(self.now))
    }

    /// The limits of a job's batch on a type of GPU: what its user allows and its memory holds, shown to every policy.
    /// Nothing for a job whose batch is fixed or whose limits were not stated.
    pub fn batch_limits(&self, job: JobRef<'_>, kind: GpuType) -> Option<BatchLimits> {
        let want = &job.spec.want;
        if want.batch.is_some() {
            return None;
        }
        want.batch_limits.or_else(|| self.beliefs.batch_limits(job.spec, kind))
    }

    /// The time of one pass with so many samples on each GPU, as a trial before the job runs found it; nothing where
    /// the policy did not declare such trials.
    pub fn trial(&self, job: JobRef<'_>, on: &Config, local: u32) -> Option<StepTime> {
        let tried = match self.needs.trials {
            Trials::Nowhere => false,
            Trials::OneGpu => on.gpus == 1,
            Trials::Everywhere => true,
        };
        tried.then(|| self.beliefs.trial(job.spec, on, local)).flatten()
    }

    /// How long an iteration of a job keeps each stage busy on so many GPUs; nothing where that is not known, and for a
    /// policy that did not declare the need of speeds.
    pub fn stages(&self, job: JobRef<'_>, gpus: u32) -> Option<StageTimes> {
        if self.needs.rates { self.beliefs.stages(job.spec, gpus) } else { None }
    }

    /// Seconds in which each of several jobs on the same GPUs would do one iteration; nothing where each would have a pace
    /// of its own ([`View::rate`] tells it), and for a policy that did not declare the need of speeds.
    pub fn period(&self, jobs: &[JobRef<'_>], on: &Config) -> Option<f64> {
        let jobs: SmallVec<[&Job; 4]> = jobs.iter().map(|job| job.spec).collect();
        if self.needs.rates { self.beliefs.period(&jobs, on) } else { None }
    }

    /// How much work is left, as far as is known; nothing for a policy that did not declare the need.
    ///
    /// A job that has outlived its estimate is believed to take twice as long, then four times, as a doubling
    /// search would: what is left falls while it runs, and jumps at these moments only.
    pub fn work_left(&self, job: JobRef<'_>) -> Option<Work> {
        if self.needs.work_left == Knowledge::Nothing {
            return None;
        }
        let done = job.state.progress.done_at(self.now);
        let mut total = self.beliefs.work(job.spec)?.0.max(1e-6);
        while total <= done.0 && total.is_finite() {
            total *= 2.0;
        }
        Some(Work(total) - done)
    }

    /// How long the rest would take where the job would like to run. It does not depend on where the job is, so
    /// that two jobs compared by it never take turns in displacing each other.
    pub fn time_left(&self, job: JobRef<'_>) -> Option<Span> {
        Some(self.reference_rate(job)?.time_for(self.work_left(job)?))
    }

    /// How long the rest takes at the present speed of a job that runs, else where it would like to run.
    pub fn time_to_end(&self, job: JobRef<'_>) -> Option<Span> {
        match job.state.progress.rate {
            Rate(rate) if rate > 0.0 => Some(Rate(rate).time_for(self.work_left(job)?)),
            _ => self.time_left(job),
        }
    }

    /// How fast [`View::time_left`] falls while the job runs, in thousandths: 1000 where it likes to be.
    pub fn pace_permille(&self, job: JobRef<'_>) -> u32 {
        let rate = job.state.progress.rate.0;
        match self.reference_rate(job) {
            Some(Rate(reference)) if reference > 0.0 => (rate / reference * 1000.0 + 0.5) as u32,
            _ => 0,
        }
    }

    /// How long the whole job would take where it would like to run.
    pub fn time_total(&self, job: JobRef<'_>) -> Option<Span> {
        if self.needs.work_left == Knowledge::Nothing {
            return None;
        }
        let total = self.beliefs.work(job.spec)?;
        Some(self.reference_rate(job)?.time_for(total))
    }

    /// The speed on the number of GPUs, or the share of one, asked for, packed, on the first type of the cluster that the job accepts.
    pub fn reference_rate(&self, job: JobRef<'_>) -> Option<Rate> {
        self.reference_rate_at(job, None)
    }

    /// The same at a batch, where one is given.
    pub fn reference_rate_at(&self, job: JobRef<'_>, batch: Option<u32>) -> Option<Rate> {
        let want = &job.spec.want;
        let shapes = self.state.shapes.iter().filter(|(kind, _)| want.accepts(*kind));
        shapes.into_iter().find_map(|&(kind, per_node)| {
            let mut config = Config::packed(kind, want.gpus, per_node);
            config.permille = want.permille;
            config.batch = batch;
            self.beliefs.rate(job.spec, &config)
        })
    }

    /// Decayed GPU-seconds that a tenant and all below it have used.
    pub fn usage(&self, tenant: TenantId) -> f64 {
        self.state.usage[tenant.index()].at(self.now, self.state.usage_half_life)
    }

    /// Whether a job with a grant may lose it now.
    #[inline]
    pub fn may_stop(&self, job: JobRef<'_>) -> bool {
        let Some(planned) = &job.state.planned else { return false };
        if job.state.held.is_none() {
            // It was never launched there, so nothing is taken from it.
            return true;
        }
        let leased = planned.lease_until.is_some_and(|until| until > self.now);
        let fresh = job.state.last_start.is_some_and(|at| at + job.spec.min_run > self.now);
        // What would lose all that it did is stopped for others only where it can be put aside.
        let keeps =
            |job: JobRef<'_>| job.spec.saves || self.state().aside.takes(job, self.cluster());
        job.spec.preemptible && !leased && !fresh && keeps(job)
    }
}

/// A frozen moment that owns what it shows, so that a slow policy can think while the engine goes on.
#[derive(Clone)]
pub struct Snapshot {
    /// When it was taken.
    pub now: Time,
    /// The state, shared until the engine writes.
    pub state: Arc<State>,
    /// What is free by the plan.
    pub free: Free,
    /// What is believed, shared until the engine learns.
    pub beliefs: Arc<dyn Beliefs>,
}
