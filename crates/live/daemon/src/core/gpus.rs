//! GPUs that are ill: what is kept of them, and what they mean to the engine and to the jobs on them.
//!
//! An illness is of the GPU: neither its node nor a job on it is to blame. An operator who brings it back decides, and
//! conditions that stood at that moment do not take it out again.

use super::{Core, Said};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use trainyard_api::{Code, Problem};
use trainyard_backend::{Finding, GpuSeen, HealthVerdict};
use trainyard_types::{Allocation, Event, GpuAt, JobId, Time};

/// What an operator's own word is called among findings.
const BY_HAND: &str = "operator";

/// What is kept of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Its node.
    pub node: String,
    /// Its index there.
    pub gpu: u8,
    /// What processes are told: the same GPU is known by it where indices have changed.
    pub device: String,
    /// Since when and why it is in quarantine, if it is.
    #[serde(default)]
    pub illness: Option<Illness>,
    /// What is wrong now, as last told.
    #[serde(default)]
    pub stands: Vec<Finding>,
    /// Findings that stood when it was returned.
    #[serde(default)]
    pub accepted: BTreeSet<String>,
}

/// Why a GPU is in quarantine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Illness {
    /// Since when, in microseconds of Unix time.
    pub since: i64,
    /// Since when, in engine time.
    pub at: Time,
    /// What was found first.
    pub found: Finding,
    /// All that was found since, by name.
    pub codes: BTreeSet<String>,
}

impl Illness {
    /// Whether what ran there had to go.
    pub fn evicts(&self) -> bool {
        self.found.verdict == HealthVerdict::Quarantine
    }
}

impl Core {
    /// Something is seen of a GPU. One that is not scheduled here is ignored.
    pub(super) fn gpu_seen(&mut self, seen: &GpuSeen) {
        let Some(gpu) = self.gpu_of(seen) else { return };
        let mut told = BTreeSet::new();
        for found in seen.happened.iter().filter(|found| told.insert(found.code.as_str())) {
            self.found(gpu, found);
        }
        let before = self.gpus.get(&gpu).cloned().unwrap_or_default();
        let has = |list: &[Finding], code: &str| list.iter().any(|found| found.code == code);
        for found in seen.stands.iter().filter(|found| !has(&before.stands, &found.code)) {
            if !before.accepted.contains(&found.code) {
                self.found(gpu, found);
            }
        }
        for over in before.stands.iter().filter(|found| !has(&seen.stands, &found.code)) {
            let sentence = format!("{}: no longer {}", self.gpu_name(gpu), over.what);
            self.gpu_event(None, &sentence, gpu, over);
        }
        if before.stands != seen.stands {
            let chart = self.chart_mut(gpu);
            chart.stands.clone_from(&seen.stands);
            chart.accepted.retain(|code| has(&seen.stands, code));
            self.keep_gpus();
        }
    }

    /// What follows from a finding.
    fn found(&mut self, gpu: GpuAt, found: &Finding) {
        let name = self.gpu_name(gpu);
        match found.verdict {
            HealthVerdict::Application => {
                for job in self.jobs_on(gpu) {
                    let sentence =
                        format!("job {} on {name}: {}, its own fault", job.0, found.what);
                    self.gpu_event(Some(job), &sentence, gpu, found);
                }
            }
            HealthVerdict::Tell => {
                self.gpu_event(None, &format!("{name}: {}", found.what), gpu, found)
            }
            HealthVerdict::Retire | HealthVerdict::Quarantine => self.quarantine(gpu, found),
        }
    }

    /// A GPU takes no new work from now on. What is worse than what was known takes over.
    fn quarantine(&mut self, gpu: GpuAt, found: &Finding) {
        let (wall, at) = (self.wall, self.now);
        let known = self.gpus.get(&gpu).and_then(|chart| chart.illness.clone());
        let evict = found.verdict == HealthVerdict::Quarantine;
        let worse = known.as_ref().is_none_or(|illness| evict && !illness.evicts());
        let is_new = known.as_ref().is_none_or(|illness| !illness.codes.contains(&found.code));
        if !worse && !is_new {
            return;
        }
        let mut illness = known.filter(|_| !worse).unwrap_or_else(|| Illness {
            since: wall,
            at,
            found: found.clone(),
            codes: BTreeSet::new(),
        });
        illness.codes.insert(found.code.clone());
        self.chart_mut(gpu).illness = Some(illness);
        if worse {
            self.turn.quarantined += 1;
            self.apply(Event::GpuQuarantined { gpu, evict });
        }
        self.keep_gpus();
        let name = self.gpu_name(gpu);
        let state = if evict { "is in quarantine" } else { "takes no new work" };
        self.gpu_event(None, &format!("{name} {state}: {}", found.what), gpu, found);
        for job in self.jobs_on(gpu).into_iter().filter(|_| evict && worse) {
            let sentence = format!("job {} goes back to the queue: {name}: {}", job.0, found.what);
            self.gpu_event(Some(job), &sentence, gpu, found);
        }
    }

    /// An operator says that a GPU takes no new work, or does again.
    pub(super) fn act_on_gpu(
        &mut self,
        user: &str,
        gpu: GpuAt,
        drain: Option<String>,
    ) -> Result<Said, Problem> {
        match drain {
            Some(reason) => {
                let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                let what = format!("taken out of service by {user}{reason}");
                let code = BY_HAND.to_owned();
                self.quarantine(gpu, &Finding { code, verdict: HealthVerdict::Retire, what });
            }
            None => {
                let ill = self.gpus.get(&gpu).is_some_and(|chart| chart.illness.is_some());
                if !ill {
                    let detail = format!("{} is not in quarantine", self.gpu_name(gpu));
                    return Err(Problem::new(Code::Conflict, detail));
                }
                self.return_gpu(gpu, &format!("returned by {user}"));
            }
        }
        Ok(Said::Done)
    }

    fn return_gpu(&mut self, gpu: GpuAt, how: &str) {
        let chart = self.chart_mut(gpu);
        let Some(illness) = chart.illness.take() else { return };
        let codes = chart.stands.iter().map(|found| found.code.clone());
        chart.accepted = codes.collect();
        self.apply(Event::GpuReturned(gpu));
        self.keep_gpus();
        let sentence = format!("{} takes work again: {how}", self.gpu_name(gpu));
        self.gpu_event(None, &sentence, gpu, &illness.found);
    }

    /// When the next GPU may return by itself: where that is set, no operator took it out, and nothing is wrong with it
    /// any more.
    pub(super) fn gpu_due(&self) -> Option<Time> {
        self.returning().map(|(_, at)| at).min()
    }

    pub(super) fn return_gpus(&mut self) {
        let now = self.now;
        let due: Vec<GpuAt> =
            self.returning().filter(|(_, at)| *at <= now).map(|(gpu, _)| gpu).collect();
        for gpu in due {
            self.return_gpu(gpu, "it has been well for as long as is set");
        }
    }

    fn returning(&self) -> impl Iterator<Item = (GpuAt, Time)> {
        let after = self.options.gpu_return_after;
        self.gpus.iter().filter_map(move |(gpu, chart)| {
            let (illness, after) = (chart.illness.as_ref()?, after?);
            let stands = chart.stands.iter().any(|found| found.verdict >= HealthVerdict::Retire);
            let by_hand = illness.codes.contains(BY_HAND);
            (!stands && !by_hand).then_some((*gpu, illness.at + after))
        })
    }

    /// Why an attempt on these GPUs is not to blame for its end.
    pub(super) fn excuse(&self, held: &Allocation) -> Option<String> {
        let mut ill = held.placement.each_gpu().filter_map(|gpu| {
            let illness = self.gpus.get(&gpu)?.illness.as_ref()?;
            illness.evicts().then(|| format!("{}: {}", self.gpu_name(gpu), illness.found.what))
        });
        ill.next()
    }

    /// GPUs as they were kept, where they are now.
    pub(super) fn restore_gpus(&mut self, charts: Vec<Chart>) {
        for chart in charts {
            let nodes = self.options.devices.iter().zip(&self.options.cluster.nodes);
            let mut places = nodes.flat_map(|(devices, node)| {
                let own = devices.iter().zip(0u8..);
                own.map(move |((_, device), gpu)| (device, GpuAt { node: node.id, gpu }))
            });
            let place = places.find(|(device, _)| **device == chart.device);
            if let Some((_, gpu)) = place {
                let node = self.options.cluster.node(gpu.node).name.clone();
                self.gpus.insert(gpu, Chart { node, gpu: gpu.gpu, ..chart });
            }
        }
        for (gpu, evict) in self.ill_gpus() {
            self.engine.apply(self.now, Event::GpuQuarantined { gpu, evict });
        }
    }

    /// GPUs in quarantine, and whether what runs there must go.
    pub(super) fn ill_gpus(&self) -> Vec<(GpuAt, bool)> {
        let ill = self.gpus.iter();
        ill.filter_map(|(gpu, chart)| Some((*gpu, chart.illness.as_ref()?.evicts()))).collect()
    }

    /// `n3:2` as a GPU, unless a node is called that.
    pub(super) fn gpu_named(&self, name: &str) -> Option<Result<GpuAt, Problem>> {
        if self.node(name).is_ok() {
            return None;
        }
        let (node, gpu) = name.rsplit_once(':')?;
        let node = self.node(node).ok()?;
        let count = self.options.cluster.node(node).gpus;
        let index = gpu.parse().ok().filter(|gpu: &u8| *gpu < count);
        Some(index.map(|gpu| GpuAt { node, gpu }).ok_or_else(|| {
            let expected = format!("there is no GPU `{gpu}` there: expected 0 to {}", count - 1);
            Problem::field(Code::NotFound, "node", expected)
        }))
    }

    fn gpu_of(&self, seen: &GpuSeen) -> Option<GpuAt> {
        let nodes = self.options.devices.iter().zip(&self.options.cluster.nodes);
        nodes.into_iter().find_map(|(devices, node)| {
            let is_it = |(index, device): &(u8, String)| {
                // Slots that were declared are named by their index alone.
                *device == seen.uuid || (*index == seen.index && device.parse() == Ok(seen.index))
            };
            let gpu = devices.iter().position(is_it)?;
            Some(GpuAt { node: node.id, gpu: gpu as u8 })
        })
    }

    fn gpu_name(&self, gpu: GpuAt) -> String {
        format!("GPU {} of {}", gpu.gpu, self.options.cluster.node(gpu.node).name)
    }

    fn chart_mut(&mut self, gpu: GpuAt) -> &mut Chart {
        let node = self.options.cluster.node(gpu.node).name.clone();
        let device = self.options.devices[gpu.node.index()].get(usize::from(gpu.gpu));
        let device = device.map(|(_, device)| device.clone()).unwrap_or_default();
        let new = || Chart { node, gpu: gpu.gpu, device, ..Chart::default() };
        self.gpus.entry(gpu).or_insert_with(new)
    }

    fn jobs_on(&self, gpu: GpuAt) -> Vec<JobId> {
        let jobs = self.engine.state().jobs.iter().map(|(_, live)| live);
        let holds = |live: &&std::sync::Arc<trainyard_framework::Live>| {
            let held = live.state.held.as_ref();
            held.is_some_and(|held| held.placement.mask(gpu.node) >> gpu.gpu & 1 == 1)
        };
        jobs.filter(holds).map(|live| live.spec.id).collect()
    }

    fn gpu_event(&mut self, job: Option<JobId>, sentence: &str, gpu: GpuAt, found: &Finding) {
        let node = &self.options.cluster.node(gpu.node).name;
        let data: Value = json!({
            "node": node, "gpu": gpu.gpu, "code": found.code, "verdict": found.verdict,
        });
        self.event("gpu", job, sentence, data);
    }

    fn keep_gpus(&mut self) {
        let empty = |chart: &Chart| {
            chart.illness.is_none() && chart.stands.is_empty() && chart.accepted.is_empty()
        };
        self.gpus.retain(|_, chart| !empty(chart));
        let charts = json!(self.gpus.values().collect::<Vec<&Chart>>());
        self.meta("gpus", &charts);
    }
}
