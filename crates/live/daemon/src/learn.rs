//! What the live side believes about speeds, sizes and costs, and how it learns from what jobs say.

mod scaling;

use scaling::MeasuredSpeeds;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use trainyard_framework::{Beliefs, ChangeCost, SuspendCost};
use trainyard_profile::training::StepTime;
use trainyard_profile::{
    BatchLimits, Batches, Features, HostTable, PairSource, Speeds, StageTimes, UsageSource,
};
use trainyard_types::{Config, GpuType, Job, JobId, ModelId, Rate, Sample, Span, TenantId, Work};

/// Names without a profile of which something is remembered at most. Beyond it the tenant with the most names loses
/// those that it used least recently.
pub const NAMES_MAX: usize = 4096;
/// How much a new figure counts against those before it.
const NEWEST_COUNTS: f64 = 0.3;
/// What saving and starting cost until a job of the same kin was measured.
const UNKNOWN: ChangeCost =
    ChangeCost { save: Span::secs(2), start: Span::secs(10), in_place: false };

/// What was learnt about jobs that are alike: the same profile, or the same name where there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SimilarJobs {
    /// Seconds from the request to stop until the GPUs were free.
    pub save: Option<f64>,
    /// Seconds from the launch to the first progress.
    pub start: Option<f64>,
    /// Measured speed over the speed of the profile.
    pub factor: Option<f64>,
    /// The same by GPU type and number of GPUs.
    #[serde(default)]
    factors: MeasuredSpeeds,
    /// The power of the number of GPUs by which speed grows, where there is no profile.
    #[serde(default)]
    slope: Option<f64>,
    /// The observation that told of it last, counted from the first ever.
    #[serde(default)]
    last: u64,
    /// Whose job that was.
    #[serde(default)]
    tenant: TenantId,
}

impl SimilarJobs {
    /// Measured speed over that of the profile, there or else anywhere.
    fn factor_on(&self, on: &Config) -> f64 {
        let there = self.factors.exactly(main_type(on), on.gpus);
        there.or(self.factor).unwrap_or(1.0)
    }
}

/// What is known of one job beyond its submission.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Own {
    total: Option<f64>,
    /// Its speed where it ran, as if it had the part of each GPU that it asked for.
    #[serde(default)]
    measured: MeasuredSpeeds,
    /// It was told of other GPUs and did not go over to them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stays: bool,
}

/// What was learnt, as it is written down. Lists, for JSON has no keys but texts.
#[derive(Default, Serialize, Deserialize)]
struct Memory {
    kin: Vec<(ModelId, SimilarJobs)>,
    own: Vec<(JobId, Own)>,
}

/// The live side's beliefs. Cheap to copy: the profiles are shared.
#[derive(Clone)]
pub struct Learnt {
    speeds: Arc<Speeds>,
    /// Models with a profile come first; the rest are names.
    profiled: u32,
    kin: BTreeMap<ModelId, SimilarJobs>,
    /// How many observations there were.
    observed: u64,
    own: BTreeMap<JobId, Own>,
}

impl Learnt {
    /// Profiles, the first `profiled` models having one, and what was learnt before.
    pub fn new(speeds: Arc<Speeds>, profiled: usize, before: Option<&str>) -> Learnt {
        // What was learnt is a cache: what cannot be read is learnt again.
        let before: Option<Memory> = before.and_then(|text| serde_json::from_str(text).ok());
        let Memory { kin, own } = before.unwrap_or_default();
        let (kin, own): (BTreeMap<ModelId, SimilarJobs>, _) =
            (kin.into_iter().collect(), own.into_iter().collect());
        let observed = kin.values().map(|kin| kin.last).max().unwrap_or(0);
        let mut learnt = Learnt { speeds, profiled: profiled as u32, kin, observed, own };
        learnt.forget_names();
        learnt
    }

    /// Forgets names beyond the limit, and an eighth more so that it need not be done for each.
    fn forget_names(&mut self) {
        let names = || self.kin.range(ModelId(self.profiled)..);
        // Profiles are few; only beyond them it must be counted.
        if self.kin.len() <= NAMES_MAX || names().count() <= NAMES_MAX {
            return;
        }
        let mut of: BTreeMap<TenantId, Vec<(u64, ModelId)>> = BTreeMap::new();
        for (model, kin) in names() {
            of.entry(kin.tenant).or_default().push((kin.last, *model));
        }
        let counts: Vec<usize> = of.values().map(Vec::len).collect();
        let share = largest_share(counts, NAMES_MAX - NAMES_MAX / 8);
        for mut own in of.into_values() {
            own.sort_unstable();
            let surplus = own.len().saturating_sub(share);
            for (_, model) in own.into_iter().take(surplus) {
                self.kin.remove(&model);
            }
        }
    }

    /// Whether a job goes over to other GPUs while it runs, as far as is known.
    fn resizes_in_place(&self, job: &Job) -> bool {
        let stays = self.own.get(&job.id).is_some_and(|own| own.stays);
        job.want.resizes_in_place && job.want.permille >= 1000 && !stays
    }

    fn has_profile(&self, job: &Job) -> bool {
        job.model.0 < self.profiled
    }
}

impl Beliefs for Learnt {
    fn copied(&self) -> Arc<dyn Beliefs> {
        Arc::new(self.clone())
    }

    fn rate(&self, job: &Job, on: &Config) -> Option<Rate> {
        self.rate_by(job, on, PairSource::Measured)
    }

    fn rate_by(&self, job: &Job, on: &Config, source: PairSource) -> Option<Rate> {
        if self.has_profile(job) {
            let factor = self.kin.get(&job.model).map_or(1.0, |kin| kin.factor_on(on));
            let told = self.speeds.rate_by(source, job.model, on);
            return told.map(|rate| Rate(rate.0 * factor));
        }
        // Without a profile speed grows with the number of GPUs as it did where the job ran or, until it ran on two
        // numbers, as it did for jobs of the same name, and at last in proportion; it begins with one second of work a
        // second on what was asked for.
        let slope = self.kin.get(&job.model).and_then(|kin| kin.slope).unwrap_or(1.0);
        let measured = self.own.get(&job.id).map(|own| &own.measured);
        let rate = measured.and_then(|measured| measured.rate(main_type(on), on.gpus, slope));
        let asked = f64::from(job.want.gpus.max(1));
        let rate = rate.unwrap_or_else(|| libm::pow(f64::from(on.gpus) / asked, slope));
        Some(Rate(rate * share_of(job, on)))
    }

    fn suspend(&self, _job: &Job, _on: &Config, memory_mib: u64) -> Option<SuspendCost> {
        Some(self.speeds.suspend(memory_mib))
    }

    fn utilisation(&self, job: &Job, source: UsageSource) -> Option<f64> {
        self.has_profile(job).then(|| self.speeds.utilisation(job.model, source)).flatten()
    }

    fn features(&self, job: &Job) -> Option<&Features> {
        self.has_profile(job).then(|| self.speeds.features(job.model)).flatten()
    }

    fn change(&self, job: &Job, from: Option<&Config>, to: Option<&Config>) -> ChangeCost {
        let mut cost = match self.has_profile(job) {
            true => self.speeds.change(job.model, from, to),
            false => UNKNOWN,
        };
        // Whatever its profile says: a job goes over to other GPUs by itself only if its user says so.
        cost.in_place = from.is_some() && to.is_some() && self.resizes_in_place(job);
        if cost.in_place {
            return ChangeCost { save: Span::ZERO, start: Span::ZERO, in_place: true };
        }
        if let Some(kin) = self.kin.get(&job.model) {
            cost.save = kin.save.map_or(cost.save, Span::from_secs_f64);
            cost.start = kin.start.map_or(cost.start, Span::from_secs_f64);
        }
        if from.is_none() {
            cost.save = Span::ZERO;
        }
        if to.is_none() {
            cost.start = Span::ZERO;
        }
        cost
    }

    fn division(&self, job: &Job, on: &Config) -> Option<Result<String, String>> {
        let profiled = self.has_profile(job);
        let division = profiled.then(|| self.speeds.division(job.model, on)).flatten()?;
        Some(division.map(|chosen| chosen.summary))
    }

    fn batch_limits(&self, job: &Job, kind: GpuType) -> Option<BatchLimits> {
        self.has_profile(job).then(|| self.speeds.batch_limits(job.model, kind)).flatten()
    }

    fn trial(&self, job: &Job, on: &Config, local: u32) -> Option<StepTime> {
        self.has_profile(job).then(|| self.speeds.pass(job.model, on, local)).flatten()
    }

    fn stages(&self, job: &Job, gpus: u32) -> Option<StageTimes> {
        self.has_profile(job).then(|| self.speeds.stages(job.model, gpus)).flatten()
    }

    fn work(&self, job: &Job) -> Option<Work> {
        let own = self.own.get(&job.id).and_then(|own| own.total).map(Work);
        own.or(job.declared)
    }

    fn profiled(&self, job: &Job) -> Option<ModelId> {
        self.has_profile(job).then_some(job.model)
    }

    fn skew(&self, job: &Job) -> Option<f64> {
        self.has_profile(job).then(|| self.speeds.skew(job.model)).flatten()
    }

    fn batches(&self, job: &Job) -> Option<&Batches> {
        self.has_profile(job).then(|| self.speeds.batches(job.model)).flatten()
    }

    fn host_table(&self, job: &Job, gpus: u32) -> Option<&HostTable> {
        self.has_profile(job).then(|| self.speeds.host_table(job.model, gpus)).flatten()
    }

    fn observe(&mut self, job: &Job, on: Option<&Config>, sample: &Sample) {
        let own = self.own.entry(job.id).or_default();
        if let Some(total) = sample.total {
            own.total = Some(total.0);
        }
        let mut slope = None;
        if let (Some(rate), Some(on)) = (sample.rate, on)
            && rate.0 > 0.0
            && share_of(job, on) > 0.0
        {
            own.measured.note((main_type(on), on.gpus), rate.0 / share_of(job, on), blend);
            slope = own.measured.slope();
        }
        self.observed += 1;
        let kin = self.kin.entry(job.model).or_default();
        if let Some(slope) = slope {
            kin.slope = Some(blend(kin.slope, slope));
        }
        (kin.last, kin.tenant) = (self.observed, job.tenant);
        if let Some(save) = sample.save {
            kin.save = Some(blend(kin.save, save.as_secs_f64()));
        }
        if let Some(start) = sample.start {
            kin.start = Some(blend(kin.start, start.as_secs_f64()));
        }
        if job.model.0 < self.profiled
            && let (Some(rate), Some(on)) = (sample.rate, on)
            && let Some(profile) = self.speeds.rate(job.model, on)
            && profile.0 > 0.0
            && rate.0 > 0.0
        {
            let factor = rate.0 / profile.0;
            kin.factor = Some(blend(kin.factor, factor));
            kin.factors.note((main_type(on), on.gpus), factor, blend);
        }
        self.forget_names();
    }

    fn kept(&self) -> Option<String> {
        let kin = self.kin.iter().map(|(model, kin)| (*model, kin.clone())).collect();
        let own = self.own.iter().map(|(job, own)| (*job, own.clone())).collect();
        serde_json::to_string(&Memory { kin, own }).ok()
    }

    fn cannot_resize(&mut self, job: &Job) {
        self.own.entry(job.id).or_default().stays = true;
    }

    fn over(&mut self, job: &Job) {
        self.own.remove(&job.id);
    }
}

/// The most that each may keep so that all together keep no more than `room`.
fn largest_share(mut counts: Vec<usize>, room: usize) -> usize {
    counts.sort_unstable();
    let (mut left, mut share) = (room, 0);
    for (index, count) in counts.iter().enumerate() {
        share = left / (counts.len() - index);
        if *count >= share {
            return share;
        }
        left -= count;
    }
    share
}

/// The type of most of the GPUs.
fn main_type(on: &Config) -> GpuType {
    on.kinds.iter().max_by_key(|(_, gpus)| *gpus).map_or(GpuType(0), |(kind, _)| *kind)
}

/// The part of each GPU over the part that the job asked for.
fn share_of(job: &Job, on: &Config) -> f64 {
    f64::from(on.permille) / f64::from(job.want.permille.max(1))
}

fn blend(old: Option<f64>, new: f64) -> f64 {
    old.map_or(new, |old| old + NEWEST_COUNTS * (new - old))
}
