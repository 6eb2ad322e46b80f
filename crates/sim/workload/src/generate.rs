//! The seeded generator.

use crate::elasticflow;
use crate::gavel::{self, Sizes};
use crate::laws::{Draw, cumulated};
use crate::llm;
use crate::reference::Reference;
use crate::spec::{Arrival, Like, Spec};
use crate::{TraceJob, Workload};
use std::f64::consts::PI;
use trainyard_diagnostic::InputError;
use trainyard_profile::Catalog;
use trainyard_types::{
    Class, Cluster, Job, JobId, ModelId, Tenant, TenantId, Tenants, Time, Want, Work, soft_deadline,
};

/// Draws a workload for a cluster: the same spec, catalog and cluster give the same jobs.
///
/// An asked load is met exactly, as [`Workload::offered_load`] counts it: arrivals are scaled to the sum of work.
pub fn generate(spec: &Spec, catalog: &Catalog, cluster: &Cluster) -> Result<Workload, InputError> {
    spec.validate()?;
    match spec.like {
        Like::Laws => by_laws(spec, catalog, cluster),
        Like::GavelSingle => gavel::generate(spec, catalog, Sizes::One),
        Like::GavelMultiple => gavel::generate(spec, catalog, Sizes::Several),
        Like::Elasticflow => elasticflow::generate(spec, catalog),
        Like::Llm => llm::generate(spec, catalog, cluster),
    }
}

fn by_laws(spec: &Spec, catalog: &Catalog, cluster: &Cluster) -> Result<Workload, InputError> {
    let reference = Reference::new(catalog, cluster);
    let models = models(spec, catalog)?;
    // Drawn twice instead of kept: a million jobs are then held only once.
    let bodies = || Bodies::new(spec, &reference, &models).take(spec.jobs as usize);
    let demand = match spec.arrival {
        Arrival::Load(_) => bodies().map(|(job, length)| reference.demand(&job, length)).sum(),
        Arrival::PerHour(_) | Arrival::AtOnce => 0.0,
    };
    let arrivals = arrivals(spec, demand);
    let mut extras = Extras::new(spec);
    let mut workload = Workload {
        tenants: tenants(spec),
        catalog: catalog.clone(),
        ..Workload::empty(&format!("generated-{}", spec.seed))
    };
    workload.jobs.reserve_exact(arrivals.len());
    for (index, (mut job, seconds)) in bodies().enumerate() {
        job.id = JobId(index as u32);
        job.submitted = Time::from_secs_f64(arrivals[index]);
        let work = reference.work_in(job.model, &job.want, seconds);
        let fails_at = extras.add(&mut job, seconds, work);
        workload.jobs.push(TraceJob { fails_at, ..TraceJob::new(job, work) });
    }
    Ok(workload)
}

/// Streams of random numbers; a new purpose takes a new number.
mod purpose {
    pub const ARRIVAL: u64 = 1;
    pub const DURATION: u64 = 2;
    pub const SIZE: u64 = 3;
    pub const MODEL: u64 = 4;
    pub const TENANT: u64 = 5;
    pub const DEADLINE: u64 = 6;
    pub const PRIORITY: u64 = 7;
    pub const ELASTIC: u64 = 8;
    pub const FAILURE: u64 = 9;
    pub const TOLERANCE: u64 = 20;
    pub const FRACTION: u64 = 21;
    pub const CLASS: u64 = 22;
}

fn models(spec: &Spec, catalog: &Catalog) -> Result<Vec<ModelId>, InputError> {
    let mut models = Vec::new();
    for name in &spec.models {
        match name.strip_suffix('*') {
            Some(start) => {
                let before = models.len();
                let fits = catalog.iter().filter(|(_, model)| model.name.starts_with(start));
                models.extend(fits.map(|(id, _)| id));
                if models.len() == before {
                    let expected = "the beginning of a model's name";
                    return Err(InputError::wrong(0, "models", name, expected));
                }
            }
            None => models.push(catalog.lookup(0, "models", name)?),
        }
    }
    if models.is_empty() {
        models.push(ModelId(0));
    }
    Ok(models)
}

fn tenants(spec: &Spec) -> Tenants {
    match spec.tenants {
        0 | 1 => Tenants::default(),
        count => Tenants::new((1..=count).map(|k| Tenant::named(&format!("team-{k}"))).collect()),
    }
}

/// What jobs are, apart from when they come.
struct Bodies<'a> {
    spec: &'a Spec,
    models: &'a [ModelId],
    memory: Vec<u32>,
    gpus_max: u32,
    sizes: Vec<u32>,
    size_sums: Vec<f64>,
    tenant_sums: Vec<f64>,
    duration: Draw,
    size: Draw,
    model: Draw,
    tenant: Draw,
    elastic: Draw,
    fraction: Draw,
    fraction_sums: Vec<f64>,
}

impl<'a> Bodies<'a> {
    fn new(spec: &'a Spec, reference: &Reference, models: &'a [ModelId]) -> Bodies<'a> {
        let weights = spec.size.weights();
        let tenant_weight = |k: u32| 1.0 / libm::pow(f64::from(k), spec.tenant_skew);
        let draw = |purpose| Draw::new(spec.seed, purpose);
        Bodies {
            spec,
            models,
            memory: models.iter().map(|model| reference.memory_mib(*model)).collect(),
            gpus_max: reference.gpus_max().max(1),
            sizes: weights.iter().map(|(gpus, _)| *gpus).collect(),
            size_sums: cumulated(weights.iter().map(|(_, weight)| *weight)),
            tenant_sums: cumulated((1..=spec.tenants.max(1)).map(tenant_weight)),
            duration: draw(purpose::DURATION),
            size: draw(purpose::SIZE),
            model: draw(purpose::MODEL),
            tenant: draw(purpose::TENANT),
            elastic: draw(purpose::ELASTIC),
            fraction: draw(purpose::FRACTION),
            fraction_sums: cumulated(spec.fractions.iter().map(|(_, weight)| *weight)),
        }
    }
}

impl Iterator for Bodies<'_> {
    /// A job and its duration in seconds.
    type Item = (Job, f64);

    fn next(&mut self) -> Option<(Job, f64)> {
        let spec = self.spec;
        let drawn = spec.duration.draw(&mut self.duration);
        let seconds = drawn.clamp(spec.duration_min.as_secs_f64(), spec.duration_max.as_secs_f64());
        let gpus = self.sizes[self.size.index(&self.size_sums)].min(self.gpus_max);
        let which = (self.model.uniform() * self.models.len() as f64) as usize;
        let mut want = Want::gpus(gpus);
        want.gpu_memory_mib = self.memory[which];
        if self.elastic.chance(spec.elastic_share) {
            want.gpus_min = 1;
            want.gpus_max = gpus.saturating_mul(4).min(self.gpus_max);
        }
        if self.fraction.chance(spec.fraction_share) {
            let (part, _) = spec.fractions[self.fraction.index(&self.fraction_sums)];
            want = Want { permille: (part * 1000.0).round() as u16, ..Want::gpus(1) };
            want.gpu_memory_mib = self.memory[which];
        }
        let tenant = TenantId(self.tenant.index(&self.tenant_sums) as u32);
        let model = self.models[which];
        Some((Job { tenant, model, want, ..Job::simple(JobId(0), Time::ZERO, gpus) }, seconds))
    }
}

/// Deadlines, priorities, classes and failures.
struct Extras<'a> {
    spec: &'a Spec,
    deadline: Draw,
    tolerance: Draw,
    tolerance_sums: Vec<f64>,
    priority: Draw,
    failure: Draw,
    class: Draw,
}

impl<'a> Extras<'a> {
    fn new(spec: &'a Spec) -> Extras<'a> {
        let draw = |purpose| Draw::new(spec.seed, purpose);
        Extras {
            spec,
            deadline: draw(purpose::DEADLINE),
            tolerance: draw(purpose::TOLERANCE),
            tolerance_sums: cumulated(spec.soft_tolerance.iter().map(|(_, weight)| *weight)),
            priority: draw(purpose::PRIORITY),
            failure: draw(purpose::FAILURE),
            class: draw(purpose::CLASS),
        }
    }

    /// Completes a job; returns where it fails, if it does.
    fn add(&mut self, job: &mut Job, seconds: f64, work: Work) -> Option<Work> {
        if self.deadline.chance(self.spec.deadline_share) {
            let slacks = &self.spec.deadline_slack;
            let slack = slacks[(self.deadline.uniform() * slacks.len() as f64) as usize];
            job.value = self.value(job.submitted.as_secs_f64(), slack * seconds);
        }
        job.priority = i32::from(self.priority.chance(self.spec.priority_share));
        job.class = self.class();
        let fails = self.failure.chance(self.spec.failure_share);
        fails.then(|| Work(work.0 * self.failure.uniform()))
    }
}

impl Extras<'_> {
    fn class(&mut self) -> Class {
        let opportunistic = self.class.chance(self.spec.opportunistic_share);
        // Drawn either way, so that one share leaves the draws of the other as they were.
        let guaranteed = self.class.chance(self.spec.guaranteed_share);
        match (opportunistic, guaranteed) {
            (true, _) => Class::Opportunistic,
            (false, true) => Class::Guaranteed,
            (false, false) => Class::BestEffort,
        }
    }

    /// A deadline so many seconds after submission, strict or soft.
    fn value(&mut self, submitted: f64, seconds: f64) -> Vec<(Time, f64)> {
        let deadline = submitted + seconds;
        if !self.tolerance.chance(self.spec.soft_share) {
            return soft_deadline(deadline, 0.0);
        }
        let (accepted, _) = self.spec.soft_tolerance[self.tolerance.index(&self.tolerance_sums)];
        soft_deadline(deadline, accepted * seconds)
    }
}

/// Moments of submission in seconds, ascending, the first at zero.
fn arrivals(spec: &Spec, demand: f64) -> Vec<f64> {
    let mut draw = Draw::new(spec.seed, purpose::ARRIVAL);
    let mut sum = 0.0;
    let mut moments = Vec::with_capacity(spec.jobs as usize);
    for index in 0..spec.jobs {
        if index > 0 {
            sum += draw.exponential();
        }
        moments.push(sum);
    }
    let day = Day { amplitude: spec.daily };
    let stretch = match spec.arrival {
        Arrival::AtOnce => 0.0,
        Arrival::PerHour(jobs) => 3600.0 / jobs,
        // Demand is in units of the whole cluster, so this is the span that gives the asked load.
        Arrival::Load(load) if sum > 0.0 => day.expected_by(demand / load) / sum,
        Arrival::Load(_) => 0.0,
    };
    for moment in &mut moments {
        *moment = day.moment_of(*moment * stretch);
    }
    moments
}

/// The rhythm of a day: arrivals come at 1 + amplitude x sin of their mean rate.
struct Day {
    amplitude: f64,
}

const DAY_S: f64 = 86_400.0;

impl Day {
    /// How much has come by a moment, as the time in which it would have come at the mean rate.
    fn expected_by(&self, moment: f64) -> f64 {
        moment + self.amplitude * DAY_S / (2.0 * PI) * (1.0 - libm::cos(2.0 * PI * moment / DAY_S))
    }

    /// The moment by which so much has come: the inverse, by Newton's method kept within its bracket.
    fn moment_of(&self, expected: f64) -> f64 {
        if self.amplitude == 0.0 {
            return expected;
        }
        let mut low = (expected - self.amplitude * DAY_S / PI).max(0.0);
        let mut high = expected;
        let mut moment = expected.min(high).max(low);
        for _ in 0..60 {
            let off = self.expected_by(moment) - expected;
            if libm::fabs(off) < 1e-7 {
                break;
            }
            if off > 0.0 {
                high = moment;
            } else {
                low = moment;
            }
            let next = moment - off / (1.0 + self.amplitude * libm::sin(2.0 * PI * moment / DAY_S));
            moment = if next > low && next < high { next } else { (low + high) / 2.0 };
        }
        moment
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{DurationLaw, SizeLaw};
    use trainyard_types::Span;

    fn make(spec: &Spec) -> Workload {
        let cluster = crate::cluster::parse_line("10x8 v100, 4x4 a100").unwrap();
        generate(spec, &Catalog::builtin(), &cluster).unwrap()
    }

    #[test]
    fn the_asked_load_is_met() {
        let cluster = crate::cluster::parse_line("10x8 v100, 4x4 a100").unwrap();
        for (models, daily) in [(vec![], 0.0), (vec!["gavel-*".to_owned()], 0.0), (vec![], 0.7)] {
            let spec =
                Spec { arrival: Arrival::Load(0.8), models, daily, jobs: 3000, ..Spec::default() };
            let load = make(&spec).offered_load(&cluster);
            assert!((load - 0.8).abs() < 1e-6, "{load}");
        }
    }

    #[test]
    fn arrivals_follow_their_law() {
        let spec = Spec { arrival: Arrival::PerHour(20.0), jobs: 20_000, ..Spec::default() };
        let hours = make(&spec).span().as_secs_f64() / 3600.0;
        assert!((hours / 1000.0 - 1.0).abs() < 0.03, "{hours}");
        assert_eq!(make(&Spec { arrival: Arrival::AtOnce, ..spec.clone() }).span(), Span::ZERO);
        let workload = make(&Spec { daily: 0.8, ..spec });
        assert!(workload.jobs.is_sorted_by_key(|one| one.job.submitted));
        let morning = |one: &&TraceJob| one.job.submitted.as_secs_f64() % DAY_S < DAY_S / 2.0;
        let share = workload.jobs.iter().filter(morning).count() as f64 / 20_000.0;
        // Over the upper half of the sine the mean is 1 + 2 x amplitude / pi.
        assert!((share - (0.5 + 0.8 / PI)).abs() < 0.02, "{share}");
    }

    #[test]
    fn shares_are_met() {
        let spec = Spec {
            jobs: 20_000,
            deadline_share: 0.3,
            priority_share: 0.2,
            failure_share: 0.1,
            elastic_share: 0.5,
            tenants: 3,
            opportunistic_share: 0.4,
            guaranteed_share: 0.5,
            ..Spec::default()
        };
        let workload = make(&spec);
        let share = |fits: &dyn Fn(&TraceJob) -> bool| {
            workload.jobs.iter().filter(|one| fits(one)).count() as f64 / 20_000.0
        };
        let near = |found: f64, expected: f64| {
            assert!((found - expected).abs() < 0.02, "{found} {expected}")
        };
        near(share(&|one| one.job.deadline().is_some()), 0.3);
        near(share(&|one| one.job.priority == 1), 0.2);
        near(share(&|one| one.fails_at.is_some_and(|at| at.0 < one.work.0)), 0.1);
        near(share(&|one| one.job.want.gpus_min == 1), 0.5 + 0.5 * 0.7);
        near(share(&|one| one.job.tenant == TenantId(0)), 6.0 / 11.0);
        near(share(&|one| one.job.class == Class::Opportunistic), 0.4);
        near(share(&|one| one.job.class == Class::Guaranteed), 0.6 * 0.5);
        assert_eq!(workload.tenants.len(), 3);
    }

    #[test]
    fn parts_of_gpus_are_drawn_and_count_as_parts_in_the_load() {
        let cluster = crate::cluster::parse_line("10x8 v100, 4x4 a100").unwrap();
        let fractions = vec![(0.5, 3.0), (0.1, 1.0)];
        let spec = Spec { jobs: 20_000, fraction_share: 1.0 / 3.0, fractions, ..Spec::default() };
        let workload = make(&spec);
        let share = |permille: u16| {
            let fits = |one: &&TraceJob| one.job.want.permille == permille;
            workload.jobs.iter().filter(fits).count() as f64 / 20_000.0
        };
        for (permille, expected) in [(500, 0.25), (100, 1.0 / 12.0), (1000, 2.0 / 3.0)] {
            assert!((share(permille) - expected).abs() < 0.01, "{permille}: {}", share(permille));
        }
        let parts = workload.jobs.iter().filter(|one| one.job.want.permille < 1000);
        assert!(parts.into_iter().all(|one| one.job.want.gpus == 1));
        assert!((workload.offered_load(&cluster) - 0.85).abs() < 1e-6);
        let none = Spec { fractions: vec![(0.0, 1.0)], ..spec };
        assert_eq!(generate(&none, &Catalog::builtin(), &cluster).unwrap_err().field, "fractions");
    }

    #[test]
    fn soft_deadlines_accept_the_delays_of_the_survey() {
        let spec = Spec { jobs: 20_000, deadline_share: 1.0, soft_share: 1.0, ..Spec::default() };
        let (soft, strict) = (make(&spec), make(&Spec { soft_share: 0.0, ..spec.clone() }));
        let mut counts = [0.0; 5];
        for (soft, strict) in soft.jobs.iter().zip(&strict.jobs) {
            assert_eq!(soft.job.value[0], strict.job.value[0]);
            assert!(soft.job.value.is_sorted_by(|one, next| one.0 < next.0 && one.1 > next.1));
            let from = soft.job.submitted;
            let first = soft.job.value[0].0.since(from).as_secs_f64();
            let last = soft.job.deadline().expect("a deadline").since(from).as_secs_f64();
            let delays = [0.0, 0.05, 0.1, 0.2, 0.5];
            let index = delays.iter().position(|delay| (last / first - 1.0 - delay).abs() < 1e-3);
            counts[index.expect("a delay of the survey")] += 1.0 / 20_000.0;
        }
        for (found, expected) in counts.iter().zip([0.03f64, 0.12, 0.21, 0.22, 0.42]) {
            assert!((found - expected).abs() < 0.01, "{counts:?}");
        }
        let half = make(&Spec { soft_share: 0.5, ..spec });
        let share =
            half.jobs.iter().filter(|one| one.job.value.len() == 4).count() as f64 / 20_000.0;
        assert!((share - 0.5 * 0.97).abs() < 0.02, "{share}");
    }

    #[test]
    fn tolerances_that_make_no_sense_are_refused() {
        let cluster = Cluster::uniform(1, 1, "v100");
        for soft_tolerance in [vec![], vec![(0.1, 0.0)], vec![(-0.1, 1.0)], vec![(f64::NAN, 1.0)]] {
            let spec = Spec { soft_share: 0.1, soft_tolerance, ..Spec::default() };
            let fault = generate(&spec, &Catalog::builtin(), &cluster).unwrap_err();
            assert_eq!(fault.field, "soft_tolerance");
        }
    }

    #[test]
    fn one_law_does_not_disturb_another() {
        let plain = make(&Spec::default());
        let failing = make(&Spec { failure_share: 0.5, tenants: 4, ..Spec::default() });
        for (a, b) in plain.jobs.iter().zip(&failing.jobs) {
            assert_eq!(
                (a.work, a.job.submitted, a.job.want.gpus),
                (b.work, b.job.submitted, b.job.want.gpus)
            );
        }
    }

    #[test]
    fn sizes_never_pass_the_cluster_and_nonsense_is_refused() {
        let spec = Spec { size: SizeLaw::Weights(vec![(1000, 1.0)]), ..Spec::default() };
        assert!(make(&spec).jobs.iter().all(|one| one.job.want.gpus == 80));
        let cluster = Cluster::uniform(1, 1, "v100");
        let fault = |spec: Spec| generate(&spec, &Catalog::builtin(), &cluster).unwrap_err();
        assert_eq!(
            fault(Spec { models: vec!["gavel-resnet5".into()], ..Spec::default() })
                .nearest
                .as_deref(),
            Some("gavel-resnet50-b64")
        );
        assert_eq!(
            fault(Spec { models: vec!["nothing-*".into()], ..Spec::default() }).field,
            "models"
        );
        assert_eq!(fault(Spec { arrival: Arrival::Load(0.0), ..Spec::default() }).field, "arrival");
        assert_eq!(
            fault(Spec { arrival: Arrival::Load(f64::NAN), ..Spec::default() }).field,
            "arrival"
        );
        assert_eq!(fault(Spec { daily: 1.0, ..Spec::default() }).field, "daily");
        assert_eq!(
            fault(Spec { duration_min: Span::ZERO, ..Spec::default() }).field,
            "duration_min"
        );
        let law = DurationLaw::Pareto { least: Span::secs(1), shape: 0.0 };
        assert_eq!(fault(Spec { duration: law, ..Spec::default() }).field, "duration");
        assert_eq!(fault(Spec { size: SizeLaw::Weights(vec![]), ..Spec::default() }).field, "size");
    }
}
