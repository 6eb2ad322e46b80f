//! Rows of lists.

use super::DaemonSnapshot;
use crate::hang::Hang;
use crate::messages;
use crate::metrics::{GpuUse, Levels};
use crate::record::{Launch, PersistedRun, Record, Submission};
use std::collections::{BTreeMap, HashMap};
use std::mem::{Discriminant, discriminant};
use trainyard_api::answer::{
    AttemptRow, FairRow, Holding, HungJob, IllGpu, JobDetail, JobRow, NodeRow, QueueState,
};
use trainyard_api::request::JobFilter;
use trainyard_framework::Live;
use trainyard_store::JobRow as StoredJob;
use trainyard_types::placement::bits;
use trainyard_types::{Cluster, End, GpuAt, JobId, NodeId, Phase, Reason, TenantId};

impl DaemonSnapshot {
    /// Jobs that are not over, newest first, as many as are wanted.
    pub fn jobs(&self, filter: &JobFilter) -> Vec<JobRow> {
        let before = filter.before.map_or(usize::MAX, |before| before as usize);
        let mut rows = Vec::new();
        for (job, record) in self.records.range(0, before).rev() {
            if filter.limit.is_some_and(|limit| rows.len() >= limit) {
                break;
            }
            let submission = &record.submission;
            let Some(live) = self.snapshot.state.live(job) else { continue };
            let fits = filter.user.as_ref().is_none_or(|user| *user == submission.user)
                && filter.tenant.as_ref().is_none_or(|tenant| *tenant == submission.tenant)
                && (filter.state.as_ref()).is_none_or(|name| name == live.state.phase.name());
            if fits {
                rows.push(self.row(live, record));
            }
        }
        rows
    }

    /// A job that is not over.
    pub fn job(&self, job: JobId) -> Option<(JobRow, &Record)> {
        let (live, record) = (self.snapshot.state.live(job)?, self.records.get(&job)?);
        Some((self.row(live, record), record))
    }

    fn row(&self, live: &Live, record: &Record) -> JobRow {
        let (spec, state) = (&live.spec, &live.state);
        let now = self.snapshot.now;
        let explained = self.outlook.explain(spec.id);
        let reason = explained.as_ref().and_then(|explained| explained.reasons.first());
        let total = self.snapshot.beliefs.work(spec).filter(|work| work.0 > 0.0);
        let done = state.progress.done_at(now).0;
        let held = state.held.as_ref();
        JobRow {
            id: spec.id.0,
            name: record.submission.name.clone(),
            user: record.submission.user.clone(),
            tenant: record.submission.tenant.clone(),
            state: state.phase.into(),
            since: self.unix(state.since),
            gpus: spec.want.gpus,
            holds: held.map_or_else(Vec::new, |held| {
                holdings(&self.snapshot.state.cluster, held.placement.masks())
            }),
            attempt: state.attempt.0,
            submitted: record.submission.wall as f64 / 1e6,
            started: state.first_start.map(|at| self.unix(at)),
            ended: None,
            ran_seconds: state.ran(now).as_secs_f64(),
            progress: total.map(|total| (done / total.0).min(1.0)),
            restarts: state.restarts,
            preemptions: state.preemptions,
            priority: spec.priority,
            why: match (reason, self.hang_of(live, record)) {
                (Some(reason), _) => self.sentence(reason),
                (None, Some(hang)) => self.hang_words(&hang),
                (None, None) => {
                    self.shared.get(&spec.id).map_or_else(String::new, messages::sharing)
                }
            },
            hung: self.hang_of(live, record).map(|hang| HungJob {
                since: hang.wall as f64 / 1e6,
                usual_seconds: hang.usual.as_secs_f64(),
                rank: hang.rank,
            }),
        }
    }

    /// That a job hangs, as long as it runs.
    pub(super) fn hang_of(&self, live: &Live, record: &Record) -> Option<Hang> {
        let watch = record.watch.as_ref()?;
        let current = live.state.phase == Phase::Running && watch.attempt() == live.state.attempt;
        watch.hung.filter(|_| current)
    }

    pub(super) fn hang_words(&self, hang: &Hang) -> String {
        let silent = self.snapshot.now.since(hang.since);
        format!("hangs: {}", messages::hang(silent, hang.usual, hang.rank))
    }

    /// Nodes and what their GPUs do.
    pub fn nodes(&self) -> Vec<NodeRow> {
        let cluster = &self.snapshot.state.cluster;
        let mut on: BTreeMap<(u32, u8), Vec<u32>> = BTreeMap::new();
        for live in self.holders() {
            for gpu in live.state.held.iter().flat_map(|held| held.placement.each_gpu()) {
                on.entry((gpu.node.0, gpu.gpu)).or_default().push(live.spec.id.0);
            }
        }
        let mut rows = Vec::with_capacity(cluster.nodes.len());
        for node in &cluster.nodes {
            let gpus: Vec<Vec<u32>> = (0..node.gpus)
                .map(|gpu| on.get(&(node.id.0, gpu)).cloned().unwrap_or_default())
                .collect();
            let up = self.snapshot.free.up(node.id);
            let idle = bits(up).filter(|gpu| gpus[usize::from(*gpu)].is_empty()).count();
            let quarantine = self.quarantined.get(&node.id);
            let claimed = self.claimed.get(&node.id).copied().unwrap_or(0);
            let ill = self.ill(node.id);
            let seen = self.nodes.get(&node.name);
            let drained = self.drained.get(&node.name);
            let drained = drained.or_else(|| seen.and_then(|seen| seen.drained.as_ref()));
            let (state, reason) = match (drained, quarantine) {
                (_, _) if seen.is_some_and(|seen| !seen.up) => ("lost", None),
                (Some(reason), _) => ("drained", Some(reason.clone())),
                (None, Some(until)) => {
                    let seconds = until.since(self.snapshot.now).as_secs_f64();
                    ("quarantined", Some(format!("failed too often; back in {seconds:.0} s")))
                }
                (None, None) if up == 0 && !ill.is_empty() => {
                    ("quarantined", Some("all its GPUs are ill".to_owned()))
                }
                (None, None) if self.reclaimed.contains(&node.id) => {
                    let pool = &cluster.pools[node.pool.index()];
                    ("reclaimed", Some(format!("pool {pool} needs it")))
                }
                (None, None) if up == 0 && claimed == 0 => ("lost", None),
                (None, None) => {
                    let gone = seen.map_or(0, |seen| seen.unaccounted);
                    ("up", (gone > 0).then(|| messages::unaccounted(gone)))
                }
            };
            rows.push(NodeRow {
                name: node.name.clone(),
                gpu_type: cluster.kinds[node.kind.index()].name.clone(),
                gpus,
                state: state.to_owned(),
                free: idle as u32,
                claimed: bits(claimed).collect(),
                cpus: node.cpus,
                memory_mib: node.memory_mib,
                reason: reason.filter(|reason| !reason.is_empty()),
                ill,
            });
        }
        rows
    }

    /// GPUs of a node that are in quarantine.
    fn ill(&self, node: NodeId) -> Vec<IllGpu> {
        let all = GpuAt { node, gpu: 0 }..=GpuAt { node, gpu: u8::MAX };
        let ill = self.gpus.range(all).filter_map(|(gpu, chart)| {
            let illness = chart.illness.as_ref()?;
            Some(IllGpu {
                gpu: gpu.gpu,
                since: illness.since as f64 / 1e6,
                code: illness.found.code.clone(),
                reason: illness.found.what.clone(),
                evicted: illness.evicts(),
            })
        });
        ill.collect()
    }

    /// Shares of tenants.
    pub fn fair(&self) -> Vec<FairRow> {
        let state = &self.snapshot.state;
        let tenants = &state.tenants;
        let now = self.snapshot.now;
        let mut counts = vec![(0u32, 0u32); tenants.len()];
        for (id, _) in tenants.iter() {
            let (waiting, running) = self.census().waiting_and_running(id.index());
            for above in tenants.path(id) {
                let sum = &mut counts[above.index()];
                *sum = (sum.0 + waiting, sum.1 + running);
            }
        }
        let use_of = |id: TenantId| state.usage[id.index()].at(now, state.usage_half_life);
        let tops = tenants.iter().filter(|(_, tenant)| tenant.parent.is_none());
        let all_use: f64 = tops.map(|(id, _)| use_of(id)).sum();
        let mut weights: BTreeMap<Option<TenantId>, f64> = BTreeMap::new();
        for (_, tenant) in tenants.iter() {
            *weights.entry(tenant.parent).or_default() += tenant.weight;
        }
        let mut entitled = vec![0.0; tenants.len()];
        let mut rows = Vec::with_capacity(tenants.len());
        for (id, tenant) in tenants.iter() {
            let above = tenant.parent.map_or(1.0, |parent| entitled[parent.index()]);
            entitled[id.index()] = above * tenant.weight / weights[&tenant.parent];
            let (waiting, running) = counts[id.index()];
            rows.push(FairRow {
                tenant: tenant.name.clone(),
                parent: tenant.parent.map(|parent| tenants.get(parent).name.clone()),
                weight: tenant.weight,
                entitled: entitled[id.index()],
                used: if all_use > 0.0 { use_of(id) / all_use } else { 0.0 },
                gpus: state.used_permille[id.index()] as f64 / 1000.0,
                ceiling: tenant.ceiling,
                waiting,
                running,
            });
        }
        rows
    }

    /// All levels for the metrics.
    pub fn levels(&self) -> Levels {
        let state = &self.snapshot.state;
        let mut levels = self.queued();
        let is_hung = |live: &&Live| {
            let record = self.records.get(&live.spec.id);
            record.is_some_and(|record| self.hang_of(live, record).is_some())
        };
        levels.hung = self.holders().filter(is_hung).count() as u64;
        for (node, row) in state.cluster.nodes.iter().zip(self.nodes()) {
            let used = row.gpus.iter().filter(|jobs| !jobs.is_empty()).count() as f64;
            let idle = |ill: &&IllGpu| row.gpus[usize::from(ill.gpu)].is_empty();
            let ill = row.ill.iter().filter(idle).count() as f64;
            let rest = (f64::from(node.gpus) - used - f64::from(row.free) - ill).max(0.0);
            let out = if row.state == "drained" { GpuUse::Drained } else { GpuUse::Lost };
            let free = f64::from(row.free);
            for (state, count) in [
                (GpuUse::Used, used),
                (GpuUse::Free, free),
                (GpuUse::Quarantined, ill),
                (out, rest),
            ] {
                *levels.gpus.entry((state, row.gpu_type.clone())).or_default() += count;
            }
            for ill in row.ill {
                levels.ill_gpus.push((row.name.clone(), ill.gpu, ill.code));
            }
        }
        for row in self.fair() {
            let share = if row.entitled > 0.0 { row.used / row.entitled } else { 0.0 };
            levels.fair_share.insert(row.tenant, share);
        }
        levels.fragmentation = self.fragmentation();
        levels.estimated_wait_seconds = self.estimated_waits();
        levels
    }

    /// Jobs that wait, by tenant and phase, and those that were not admitted, by the reason. Texts are made once for each
    /// row, not for each job.
    fn queued(&self) -> Levels {
        let state = &self.snapshot.state;
        let mut levels = Levels::default();
        for (id, tenant) in state.tenants.iter() {
            for (phase, count) in self.census().pending(id.index()) {
                levels.pending.insert((tenant.name.clone(), phase.to_owned()), count);
            }
        }
        let mut unadmitted: HashMap<Discriminant<Reason>, (Reason, u64)> = HashMap::new();
        for job in state.unadmitted.iter() {
            let Some(live) = state.live(job) else { continue };
            if live.state.phase == Phase::Unadmitted {
                let explained = self.outlook.explain(job);
                let reason = explained.and_then(|explained| explained.reasons.into_iter().next());
                let reason = reason.unwrap_or(Reason::Undecided);
                unadmitted.entry(discriminant(&reason)).or_insert((reason, 0)).1 += 1;
            }
        }
        for (reason, count) in unadmitted.into_values() {
            let value = serde_json::to_value(reason).unwrap_or_default();
            let name = value["reason"].as_str().unwrap_or("undecided").to_owned();
            *levels.unadmitted.entry(name).or_default() += count;
        }
        levels
    }

    /// The share of free GPUs that stand on nodes with too few of them for the mean gang that waits.
    fn fragmentation(&self) -> f64 {
        let state = &self.snapshot.state;
        let (waiting, free) = (state.waiting.len() as u64, self.snapshot.free.total());
        if waiting == 0 || free == 0 {
            return 0.0;
        }
        let gang = self.census().gpus_wanted.div_ceil(waiting) as u32;
        let stranded: u32 = (state.cluster.nodes.iter())
            .map(|node| (self.snapshot.free.mask(node.id).count_ones(), u32::from(node.gpus)))
            .filter(|(free, gpus)| *free < gang.min(*gpus))
            .map(|(free, _)| free)
            .sum();
        f64::from(stranded) / f64::from(free)
    }

    /// How long the first waiting job of each tenant still waits, where that can be told.
    fn estimated_waits(&self) -> BTreeMap<String, f64> {
        let firsts = self.census().first_waiting.iter();
        let tenants = self.snapshot.state.tenants.iter();
        let firsts = tenants.zip(firsts).filter_map(|((_, tenant), job)| Some((tenant, (*job)?)));
        let wait = |job: JobId| {
            let live = self.snapshot.state.live(job)?;
            let reasons = self.outlook.explain(job)?.reasons;
            let then = self.not_before(live, &reasons)?;
            Some(then.since(self.snapshot.now).as_secs_f64())
        };
        firsts.filter_map(|(tenant, job)| Some((tenant.name.clone(), wait(job)?))).collect()
    }
}

/// GPUs of nodes, for people.
pub(crate) fn holdings(
    cluster: &Cluster,
    masks: &[(trainyard_types::NodeId, u64)],
) -> Vec<Holding> {
    let one = |(node, mask): &(trainyard_types::NodeId, u64)| Holding {
        node: cluster.node(*node).name.clone(),
        gpus: bits(*mask).collect(),
    };
    masks.iter().map(one).collect()
}

fn parts(row: &StoredJob) -> Result<(Submission, PersistedRun), String> {
    let unreadable = |fault: serde_json::Error| format!("job {}: {fault}", row.job);
    let submission = serde_json::from_str(&row.spec).map_err(unreadable)?;
    Ok((submission, serde_json::from_str(&row.state).map_err(unreadable)?))
}

/// The row of a job that is over, from the store.
pub fn row_of_ended(row: &StoredJob) -> Result<JobRow, String> {
    let (submission, course) = parts(row)?;
    Ok(ended(row, &submission, &course))
}

fn ended(row: &StoredJob, submission: &Submission, course: &PersistedRun) -> JobRow {
    let state = &course.kept.state;
    let end = row.end.as_deref().and_then(End::named);
    let launch = course.launch.as_ref();
    let at = launch.and_then(|launch| launch.ended).unwrap_or(row.wall) as f64 / 1e6;
    JobRow {
        id: row.job,
        name: submission.spec.name.clone(),
        user: row.user.clone(),
        tenant: row.tenant.clone(),
        state: end.map_or(QueueState::Failed, QueueState::from),
        since: at,
        gpus: submission.spec.gpus,
        holds: Vec::new(),
        attempt: state.attempt.0,
        submitted: row.wall as f64 / 1e6,
        started: launch.map(|launch| launch.wall as f64 / 1e6),
        ended: Some(at),
        ran_seconds: state.ran.as_secs_f64(),
        progress: None,
        restarts: state.restarts,
        preemptions: state.preemptions,
        priority: submission.spec.priority,
        why: String::new(),
        hung: None,
    }
}

/// All about a job that is over, from the store; with the first launch comes the true start.
pub fn detail_of_ended(row: &StoredJob, attempts: Vec<AttemptRow>) -> Result<JobDetail, String> {
    let (submission, course) = parts(row)?;
    let mut shown = ended(row, &submission, &course);
    shown.started = attempts.first().map(|attempt| attempt.launched);
    Ok(JobDetail {
        row: shown,
        spec: submission.spec,
        attempts,
        report: course.report,
        measured: course.measured,
        pace: Vec::new(),
    })
}

impl From<&Launch> for AttemptRow {
    fn from(launch: &Launch) -> AttemptRow {
        let seconds = |micros: i64| micros as f64 / 1e6;
        let exit = launch.exit.as_ref();
        AttemptRow {
            attempt: launch.attempt.0,
            holds: launch.holds.clone(),
            launched: seconds(launch.wall),
            started: launch.started.map(seconds),
            ended: launch.ended.map(seconds),
            exit_code: exit.and_then(|exit| exit.code),
            signal: exit.and_then(|exit| exit.signal),
            outcome: launch.outcome.clone(),
        }
    }
}
