//! HiveD: each tenant owns cells of the cluster, any policy orders the jobs in them, and the rest runs on what is idle.

mod binding;
mod forest;
mod part;

use crate::compose::find;
use crate::prelude::*;
use crate::registry::POLICIES;
use binding::{Binding, Present};
use part::Part;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use trainyard_framework::{Admission, PartGpus};
use trainyard_types::{Cells, Class, IdSet, Reason, Time, Verdict};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "hived",
    about: "Each tenant owns cells of nested sizes and orders its jobs by any policy; jobs without cells run on what is idle.",
    paper: "Zhao et al., HiveD, OSDI 2020",
    needs: Needs::NOTHING,
    class: Taxonomy::rigid(Objective::Fairness, Family::Share)
        .preemptive()
        .by_setting("`inside` says what else it is"),
    settings: &[
        ("inside", "the policy that orders the jobs of a virtual cluster, and those without one"),
        ("settings", "its settings, such as `[\"quantum=20m\"]`"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    inside: String,
    settings: Vec<String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { inside: "fifo".to_owned(), settings: Vec::new() }
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { inside, settings } = raw.read(ENTRY.name)?;
    let entry = find("policy", POLICIES, &inside)?;
    let settings = RawSettings::parse(settings.iter().map(String::as_str))?;
    let mut pipeline = (entry.build)(&settings)?;
    // Its settings were accepted once, so that they always are.
    let make = move || (entry.build)(&settings).ok().map(|pipeline| pipeline.policy);
    let nothing = Box::new(Ranked::new(crate::fifo::Fifo));
    let whole = std::mem::replace(&mut pipeline.policy, nothing);
    pipeline.policy = Box::new(HiveD {
        make: Box::new(make),
        whole,
        binding: None,
        parts: Vec::new(),
        home: FxHashMap::default(),
        gone: Vec::new(),
        at: None,
    });
    Ok(pipeline)
}

/// Makes one more policy of the sort that is inside.
type Make = Box<dyn Fn() -> Option<Box<dyn Policy>> + Send>;

/// Binds cells and asks the policy of each virtual cluster, and then that of the jobs without one: linear in nodes and
/// in jobs with a grant for each, beside what the policies cost. Without cells it is the policy inside.
struct HiveD {
    make: Make,
    /// The policy where no cells are declared.
    whole: Box<dyn Policy>,
    binding: Option<Binding>,
    /// One for each virtual cluster, and the last for the jobs without one.
    parts: Vec<Part>,
    /// The part of each job.
    home: FxHashMap<JobId, usize>,
    /// The jobs that were over at this decision, and their parts.
    gone: Vec<(JobId, Time, usize)>,
    /// The decision that `gone` is of.
    at: Option<u64>,
}

impl HiveD {
    /// The virtual cluster that guarantees a job's GPUs, or the place after the last. An opportunistic job has none,
    /// unless it could not make room for a guaranteed one.
    fn part_of(cells: &Cells, job: JobRef<'_>, view: &View<'_>) -> usize {
        let none = cells.virtual_clusters.len();
        let is_opportunistic = job.spec.class == Class::Opportunistic && job.spec.preemptible;
        match cells.of(view.tenants().path(job.spec.tenant)) {
            Some(own) if !is_opportunistic => own,
            _ => none,
        }
    }

    /// Brings what the parts see up to the moment: what changed, and all jobs with a grant, whose progress is told
    /// without a change. False where there is no part for lack of cells.
    fn refresh(&mut self, view: &View<'_>) -> bool {
        let Some(cells) = view.cluster().cells.clone() else { return false };
        let same = self.binding.as_ref().is_some_and(|one| Arc::ptr_eq(&one.cells, &cells));
        let mut stale: BTreeSet<JobId> = view.changed().iter().copied().collect();
        if !same {
            self.binding = Some(Binding::new(&cells, view.cluster()));
            let policies = (0..=cells.virtual_clusters.len()).map_while(|_| (self.make)());
            self.parts = policies.map(|policy| Part::new(policy, view)).collect();
            self.home.clear();
            stale.extend(view.state().jobs.keys());
        }
        if self.at.replace(view.decision()) != Some(view.decision()) {
            let over = view.ended().iter();
            self.gone =
                over.filter_map(|&(job, at)| Some((job, at, *self.home.get(&job)?))).collect();
        }
        self.parts.iter_mut().for_each(|part| part.begin(view));
        for &(job, at, part) in &self.gone {
            self.parts[part].state.ended.push((job, at));
        }
        stale.extend(view.granted().map(|job| job.id()));
        for job in stale {
            self.refresh_job(job, &cells, view);
        }
        let Self { parts, home, gone, .. } = self;
        for job in view.changed() {
            let over = || gone.iter().find(|(other, ..)| other == job).map(|(.., part)| *part);
            if let Some(part) = home.get(job).copied().or_else(over) {
                parts[part].state.changed.push(*job);
            }
        }
        true
    }

    fn refresh_job(&mut self, id: JobId, cells: &Cells, view: &View<'_>) {
        let part = view.job(id).map(|job| Self::part_of(cells, job, view));
        let before = self.home.get(&id).copied();
        if let Some(before) = before.filter(|before| Some(*before) != part) {
            self.parts[before].drop_job(id);
            self.home.remove(&id);
        }
        let Some(part) = part else { return };
        self.parts[part].put_job(id, view);
        self.home.insert(id, part);
    }

    /// Jobs of a virtual cluster on GPUs that are not bound to it, as when they were placed by another policy, are
    /// without one until they end.
    fn bind(&mut self, view: &View<'_>, offer: &Offer<'_>) -> Vec<Vec<u64>> {
        let Some(binding) = &mut self.binding else { return Vec::new() };
        let owners = self.parts.len() - 1;
        let nodes = view.cluster().nodes.len();
        let mut used = vec![Vec::new(); owners];
        let mut opportunistic = vec![0u64; nodes];
        for job in view.granted() {
            let Some(plan) = &job.state.planned else { continue };
            match self.home.get(&job.id()) {
                Some(part) if *part < owners => used[*part].push(plan.placement.clone()),
                _ => add(&mut opportunistic, &plan.placement),
            }
        }
        let bad = view.cluster().nodes.iter().map(|node| node.mask() & !offer.free().up(node.id));
        let bad: Vec<u64> = bad.collect();
        let waits: Vec<bool> =
            self.parts[..owners].iter().map(|part| !part.state.waiting.is_empty()).collect();
        let (bad, opportunistic) = (&bad[..], &opportunistic[..]);
        let may = binding.bind(&Present { used: &used, bad, opportunistic, waits: &waits });
        let strays: Vec<JobId> = view
            .granted()
            .filter(|job| {
                let part = self.home.get(&job.id()).filter(|part| **part < owners);
                let plan = job.state.planned.as_ref();
                part.zip(plan).is_some_and(|(part, plan)| !is_within(&plan.placement, &may[*part]))
            })
            .map(|job| job.id())
            .collect();
        for job in strays {
            if let Some(before) = self.home.insert(job, owners) {
                self.parts[before].drop_job(job);
                self.parts[before].state.changed.push(job);
            }
            self.parts[owners].put_job(job, view);
            self.parts[owners].state.changed.push(job);
        }
        may
    }
}

impl Policy for HiveD {
    fn admit(&mut self, queue: &mut Admission<'_>, view: &View<'_>, cx: &mut Cx) {
        if !self.refresh(view) {
            return self.whole.admit(queue, view, cx);
        }
        let Some(cells) = view.cluster().cells.clone() else { return };
        while let Some(id) = queue.next() {
            let Some(job) = view.job(id) else { continue };
            if let Some(reason) = never(&cells, job, view) {
                queue.reject(reason);
                continue;
            }
            self.refresh_job(id, &cells, view);
            let part = &mut self.parts[self.home[&id]];
            let mut one = IdSet::default();
            one.insert(id);
            let over = view.over(&part.state);
            let mut own = Admission::new(&one, &mut [], &over);
            part.policy.admit(&mut own, &over, cx);
            match own.into_verdicts().pop() {
                Some((_, Verdict::Accept)) => queue.accept(),
                Some((_, Verdict::Hold(reason))) => queue.hold(reason),
                Some((_, Verdict::Reject(reason))) => queue.reject(reason),
                None => {}
            }
        }
    }

    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        if !self.refresh(view) {
            return self.whole.allocate(view, offer, cx);
        }
        let may = self.bind(view, offer);
        let Some((rest, guaranteed)) = self.parts.split_last_mut() else { return Ok(()) };
        // Jobs without cells leave first: what guaranteed jobs do not take they get again.
        let mut spare = vec![0u64; view.cluster().nodes.len()];
        let mut lifted = Vec::new();
        for id in rest.state.granted.iter() {
            let Some(job) = view.job(id).filter(|job| view.may_stop(*job)) else { continue };
            if let Some(plan) = offer.plan(id) {
                add(&mut spare, &plan.placement);
                lifted.push(job);
            }
            offer.revoke(id);
        }
        for (part, may) in guaranteed.iter_mut().zip(may) {
            if part.state.waiting.is_empty() && part.state.granted.is_empty() {
                continue;
            }
            let gpus = PartGpus { may, spare: spare.clone() };
            offer.part(&mut *part.policy, &view.over(&part.state), &gpus, cx)?;
        }
        for job in lifted {
            if !offer.keep(job) {
                rest.take_grant(job.id());
            }
        }
        if rest.state.waiting.is_empty() && rest.state.granted.is_empty() {
            return Ok(());
        }
        let all = view.cluster().nodes.iter().map(|node| node.mask()).collect();
        let gpus = PartGpus { may: all, spare: Vec::new() };
        offer.part(&mut *rest.policy, &view.over(&rest.state), &gpus, cx)
    }

    fn forget(&mut self) {
        self.whole.forget();
        (self.binding, self.at) = (None, None);
        self.parts.clear();
        self.home.clear();
        self.gone.clear();
    }
}

/// Why no cells could ever hold a job: more GPUs than its virtual cluster owns, or none at all for a job that may not be
/// stopped.
fn never(cells: &Cells, job: JobRef<'_>, view: &View<'_>) -> Option<Reason> {
    let want = &job.spec.want;
    let part = HiveD::part_of(cells, job, view);
    if part == cells.virtual_clusters.len() {
        let need = want.gpus_min;
        return (!job.spec.preemptible).then_some(Reason::NeverFits { need, most: 0 });
    }
    let kinds = cells.chains.iter().map(|chain| chain.kind).filter(|kind| want.accepts(*kind));
    let most = kinds.map(|kind| cells.gpus(part, kind)).max().unwrap_or(0);
    (most < want.gpus_min).then_some(Reason::NeverFits { need: want.gpus_min, most })
}

fn add(masks: &mut [u64], placement: &Placement) {
    for (node, mask) in placement.masks() {
        masks[node.index()] |= mask;
    }
}

fn is_within(placement: &Placement, masks: &[u64]) -> bool {
    placement.masks().iter().all(|(node, mask)| mask & !masks[node.index()] == 0)
}
