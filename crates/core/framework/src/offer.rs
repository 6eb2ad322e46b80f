//! The sink that a policy offers grants to: it knows what is free, asks the placer and answers at once.

mod by_rules;
mod host;
mod in_racks;
mod part;
mod strangers;
mod terms;
mod touched;

use crate::{Ask, Free, JobRef, Placer, View, aside, shapes};
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeSet;
use touched::{Touched, TouchedJobs};
use trainyard_types::placement::lowest_bits;
use trainyard_types::{
    Allocation, Change, Fault, Grant, HostShare, JobId, Knobs, NodeId, Note, Phase, Placement,
    Reason, Shape, TenantId, Time, WindowId,
};

pub(crate) use host::host_per_gpu;
pub use part::PartGpus;
pub use terms::Terms;

/// The answer to a grant.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum GrantOutcome {
    /// It is in the plan.
    Taken,
    /// There is no room for it; another may still fit.
    NoRoom,
    /// Nothing is free at all; no grant of whole GPUs can fit.
    Full,
    /// The grant is faulty and was dropped; the fault is counted.
    Refused,
}

/// Beyond this many more victims than the GPU count asks for, a fragmented gang waits instead.
const FRAGMENTED_TRIES_MAX: u32 = 64;

/// The sink. By default it speaks of additions: what holds a grant keeps it.
/// [`Offer::everything`] lifts all grants first, so that what is not granted again stops.
pub struct Offer<'a> {
    view: View<'a>,
    free: &'a mut Free,
    place: &'a mut dyn Placer,
    /// In the scope of everything: free now, leaving aside what lifted jobs may want to keep.
    open: Option<Box<Free>>,
    touched: TouchedJobs,
    used_permille: Vec<u64>,
    notes: Vec<Note>,
    faults: Vec<Fault>,
    ends: Vec<JobId>,
    /// Nodes that go back to their owner, with their GPUs that were in service.
    back: Vec<(NodeId, u64)>,
    wake_at: Option<Time>,
    conserve: bool,
}

/// What an offer came to.
pub struct Outcome {
    /// What changes, takings first.
    pub changes: Vec<Change>,
    /// Jobs of a group that the policy ends.
    pub ends: Vec<JobId>,
    /// Nodes that go back to the owner of their pool.
    pub back: Vec<NodeId>,
    /// Why jobs that were looked at do not run.
    pub notes: Vec<Note>,
    /// Grants that were dropped.
    pub faults: Vec<Fault>,
    /// When to ask again.
    pub wake_at: Option<Time>,
    /// Whether GPUs left idle are meant to be.
    pub idle: bool,
}

impl<'a> Offer<'a> {
    /// An offer over what is free; `free` is left as it was when the offer ends.
    pub fn new(view: &View<'a>, free: &'a mut Free, place: &'a mut dyn Placer) -> Offer<'a> {
        let ceilings = view.state().has_ceilings;
        Offer {
            view: *view,
            free,
            place,
            open: None,
            touched: TouchedJobs::default(),
            used_permille: if ceilings { view.state().used_permille.clone() } else { Vec::new() },
            notes: Vec::new(),
            faults: Vec::new(),
            ends: Vec::new(),
            back: Vec::new(),
            wake_at: None,
            conserve: true,
        }
    }

    /// What is free at this point of the offer.
    pub fn free(&self) -> &Free {
        self.free
    }

    /// Lifts all grants that may be lifted: what is not granted from here on stops.
    pub fn everything(&mut self) {
        // What another policy set aside for jobs outside of its part stays so.
        if self.open.is_none() {
            self.open = Some(Box::new(self.free.clone()));
        }
        for job in self.view.granted() {
            if self.may_take(job) {
                self.lift(job.id());
            }
        }
    }

    /// Whether a job with a grant may lose it at this point of the offer. Of those that cannot save no more may than there
    /// is host memory for, with those that lost theirs before. Linear in what was touched, for such a job alone.
    fn may_take(&self, job: JobRef<'a>) -> bool {
        if !self.view.may_stop(job) {
            return false;
        }
        let (aside, cluster) = (&self.view.state().aside, self.view.cluster());
        let Some((node, memory)) = aside.needs(job, cluster).filter(|_| !job.spec.saves) else {
            return true;
        };
        let lost = self.touched.iter().filter(|one| one.plan.is_none() && one.job != job.id());
        let lost = lost.filter_map(|one| self.view.job(one.job)).filter(|one| !one.spec.saves);
        let of_node = lost.filter_map(|one| aside.needs(one, cluster)).filter(|one| one.0 == node);
        aside.has_room(job.id(), node, memory + of_node.map(|(_, memory)| memory).sum::<u64>())
    }

    /// Says that GPUs left idle are meant to be idle, so that a job without a new grant stops though its GPUs stay free.
    pub fn leave_idle(&mut self) {
        self.conserve = false;
    }

    /// Asks to be called again at `time` though nothing happens.
    pub fn wake_at(&mut self, time: Time) {
        if time <= self.view.now {
            self.faults.push(Fault::WakeInPast(time));
        } else if self.wake_at.is_none_or(|at| time < at) {
            self.wake_at = Some(time);
        }
    }

    /// Ends a trial of a search for good.
    pub fn end(&mut self, job: JobId) {
        match self.view.job(job) {
            Some(job) if job.spec.group.is_some() => self.ends.push(job.id()),
            _ => self.faults.push(Fault::EndNotAllowed(job)),
        }
    }

    /// Gives a node back to the owner of its pool: a job that is there loses its grant, and no job gets one there any
    /// more. False, and nothing is changed, if one of those may not be stopped.
    pub fn give_back(&mut self, node: NodeId) -> bool {
        let view = self.view;
        let touches = |job: &JobRef<'_>| {
            self.plan(job.id()).is_some_and(|plan| plan.placement.mask(node) != 0)
        };
        let here: Vec<JobRef<'_>> = view.granted().chain(view.waiting()).filter(touches).collect();
        if here.iter().any(|job| job.state.planned.is_some() && !view.may_stop(*job)) {
            return false;
        }
        for job in here {
            self.lift(job.id());
        }
        self.back.push((node, self.free.up(node)));
        self.free.set_up(node, 0);
        if let Some(open) = &mut self.open {
            open.set_up(node, 0);
        }
        true
    }

    /// Leaves a reason why a job does not run. Too few GPUs, because of a window, is a matter of that window.
    pub fn note(&mut self, job: JobId, reason: Reason) {
        let window = match reason {
            Reason::NoRoom { need, free } => {
                self.view.job(job).and_then(|job| self.window_in_the_way(job, need, free))
            }
            _ => None,
        };
        self.notes.push(Note { job, reason: window.unwrap_or(reason) });
    }

    /// Offers a grant.
    pub fn grant(&mut self, grant: &Grant) -> GrantOutcome {
        if let Err(fault) = self.validate(grant) {
            self.faults.push(fault);
            return GrantOutcome::Refused;
        }
        let answer = self.try_grant(grant);
        if answer != GrantOutcome::Taken {
            self.explain(grant);
        }
        answer
    }

    /// Offers a grant at the expense of others: `victims`, least deserving first, lose theirs as far as needed.
    /// None of them is touched when the grant does not fit even so, and a victim that need not go stays.
    pub fn instead(
        &mut self,
        grant: &Grant,
        victims: &mut dyn Iterator<Item = JobId>,
    ) -> GrantOutcome {
        if let Err(fault) = self.validate(grant) {
            self.faults.push(fault);
            return GrantOutcome::Refused;
        }
        if self.try_grant(grant) == GrantOutcome::Taken {
            return GrantOutcome::Taken;
        }
        let need = grant.count();
        let mut lifted: Vec<(JobId, HostShare)> = Vec::new();
        let mut tries = 0;
        let mut taken = false;
        for victim in victims {
            let Some(job) = self.view.job(victim) else { continue };
            let Some(host) = self.plan(victim).map(|plan| plan.host_per_gpu) else { continue };
            if !self.may_take(job) {
                continue;
            }
            self.lift(victim);
            lifted.push((victim, host));
            if self.room_for(grant) < need {
                continue;
            }
            tries += 1;
            if self.try_grant(grant) == GrantOutcome::Taken {
                taken = true;
                break;
            }
            if tries >= FRAGMENTED_TRIES_MAX {
                break;
            }
        }
        // Best first: the job that deserves most stays first.
        for (victim, host) in lifted.into_iter().rev() {
            self.restore(victim, Some(host));
        }
        if taken {
            GrantOutcome::Taken
        } else {
            self.explain(grant);
            GrantOutcome::NoRoom
        }
    }

    /// Takes a job's grant away; for policies whose rounds or leases are over.
    pub fn revoke(&mut self, job: JobId) {
        let stoppable = self.view.job(job).is_some_and(|job| self.may_take(job));
        if stoppable && self.plan(job).is_some() {
            self.lift(job);
        }
    }

    /// The first tenant above a job whose ceiling `extra` thousandths more would pass at this point of the offer.
    pub fn ceiling_passed(&self, job: JobRef<'_>, extra: u64) -> Option<TenantId> {
        if self.used_permille.is_empty() {
            return None;
        }
        let tenants = self.view.tenants();
        tenants.path(job.spec.tenant).find(|id| {
            let ceiling = tenants.get(*id).ceiling;
            ceiling
                .is_some_and(|gpus| self.used_permille[id.index()] + extra > u64::from(gpus) * 1000)
        })
    }

    /// The plan for a job at this point of the offer.
    pub fn plan(&self, job: JobId) -> Option<&Allocation> {
        match self.touched.get(job) {
            Some(touched) => touched.plan.as_ref(),
            None => self.planned(job),
        }
    }

    /// Ends the offer: the difference to the present plan. What is free is as it was before.
    pub fn finish(mut self) -> Outcome {
        if self.conserve {
            let lost = self.touched.iter().filter(|one| one.plan.is_none());
            let mut idle: Vec<JobId> = lost.map(|one| one.job).collect();
            // A job on leftovers comes before the job that it shared with, which would be in its way.
            idle.sort_by_key(|job| !self.planned(*job).is_some_and(Allocation::is_on_leftovers));
            for job in idle {
                self.restore(job, None);
            }
        }
        // What was given comes back first, so that what was taken away finds its room again.
        for plan in self.touched.iter().filter_map(|one| one.plan.as_ref()) {
            self.free.give(plan);
        }
        let mut takings = Vec::new();
        let mut givings = Vec::new();
        for Touched { job, plan: to, .. } in std::mem::take(&mut self.touched) {
            let from = self.planned(job);
            if let Some(from) = from {
                self.free.take(from);
            }
            if from == to.as_ref() {
                continue;
            }
            let change = Change { job, to };
            if change.to.is_none() { takings.push(change) } else { givings.push(change) }
        }
        for (node, up) in &self.back {
            self.free.set_up(*node, *up);
        }
        let changes = match takings.is_empty() {
            true => givings,
            false => {
                takings.append(&mut givings);
                takings
            }
        };
        Outcome {
            changes,
            ends: self.ends,
            back: self.back.into_iter().map(|(node, _)| node).collect(),
            notes: self.notes,
            faults: self.faults,
            wake_at: self.wake_at,
            idle: !self.conserve,
        }
    }

    fn validate(&self, grant: &Grant) -> Result<(), Fault> {
        for member in &grant.members {
            let id = member.job;
            let job = self.view.job(id).ok_or(Fault::NotEligible(id))?;
            if matches!(job.state.phase, Phase::Blocked | Phase::Unadmitted) {
                return Err(Fault::NotEligible(id));
            }
            if self.touched.get(id).is_some_and(|touched| touched.is_granted) {
                return Err(Fault::Twice(id));
            }
            let want = &job.spec.want;
            let count = grant.count();
            if count < want.gpus_min || count > want.gpus_max || count == 0 {
                return Err(Fault::WrongSize(id));
            }
            let names_its_gpus = is_exact(grant) && grant.members.len() == 1;
            let states_each = names_its_gpus && grant.shares.len() == count as usize;
            if !grant.shares.is_empty() && !states_each {
                return Err(Fault::WrongShape(id));
            }
            if let Shape::Gpus { kind: Some(kind), .. } = grant.shape
                && !want.accepts(kind)
            {
                return Err(Fault::WrongKind(id));
            }
            if self.plan(id).is_some() && !self.view.may_stop(job) && !self.is_same(id, grant) {
                return Err(Fault::LeaseBroken(id));
            }
        }
        Ok(())
    }

    /// Whether the grant leaves a job where it is, with no less of its GPUs.
    fn is_same(&self, job: JobId, grant: &Grant) -> bool {
        let Some(planned) = self.plan(job) else { return false };
        let member = grant.members.iter().find(|member| member.job == job);
        let granted =
            |index: usize| member.map_or(0, |member| grant.share_of(member, index).permille());
        let gpus = planned.placement.gpus() as usize;
        if (0..gpus).any(|index| planned.share(index).permille() > granted(index)) {
            return false;
        }
        match &grant.shape {
            Shape::Exact(placement) => *placement == planned.placement,
            _ => self.kept(grant, self.view.job(job).expect("validated")).is_some(),
        }
    }

    fn try_grant(&mut self, grant: &Grant) -> GrantOutcome {
        let Some(lead) = grant.members.first().and_then(|member| self.view.job(member.job)) else {
            return GrantOutcome::Refused;
        };
        let mut lifted: SmallVec<[(JobId, HostShare); 1]> = SmallVec::new();
        for member in &grant.members {
            if let Some(host) = self.plan(member.job).map(|plan| plan.host_per_gpu) {
                self.lift(member.job);
                lifted.push((member.job, host));
            }
        }
        let found = self.find(grant, lead);
        let Some(placement) = found else {
            for (job, host) in lifted {
                self.restore(job, Some(host));
            }
            return if self.free.total() == 0 { GrantOutcome::Full } else { GrantOutcome::NoRoom };
        };
        let mut taken: SmallVec<[JobId; 1]> = SmallVec::new();
        for member in &grant.members {
            let allocation = self.allocation(grant, member.job, placement.clone());
            let tied = self.view.job(member.job).and_then(|job| self.tie(job));
            if tied.is_some_and(|home| *home != placement)
                || self.over_ceiling(member.job, &allocation).is_some()
                || !self.has_room(member.job, &allocation)
            {
                for job in taken {
                    self.lift(job);
                    self.touched.entry(job).is_granted = false;
                }
                for (job, host) in lifted {
                    self.restore(job, Some(host));
                }
                return GrantOutcome::NoRoom;
            }
            self.put(member.job, allocation);
            self.touched.entry(member.job).is_granted = true;
            taken.push(member.job);
        }
        if let Some(open) = &mut self.open {
            open.block(&placement);
        }
        GrantOutcome::Taken
    }

    /// GPUs for a grant: where its first member already is, else where the placer says.
    fn find(&mut self, grant: &Grant, lead: JobRef<'a>) -> Option<Placement> {
        if self.place.keeps()
            && let Some(placement) = self.kept(grant, lead)
        {
            let allocation = self.allocation(grant, lead.id(), placement.clone());
            if self.has_room(lead.id(), &allocation) {
                return Some(placement);
            }
        }
        let tie = self.tie(lead);
        let home = aside::put_aside(lead).map(|own| &own.home.placement);
        // While it waits for its own GPUs a grant becomes one of them, whatever type and number it names: a policy that
        // prefers others would otherwise not bring it back before it has waited for too long.
        let alike = grant.shares.iter().all(|one| Some(one) == grant.shares.first());
        let becomes = home.is_some() && tie.is_some() && grant.members.len() == 1 && alike;
        if let Some(home) = home.or(tie) {
            if (becomes || aside::suits(grant, home, self.free))
                && self.has_room(lead.id(), &self.allocation(grant, lead.id(), home.clone()))
            {
                return Some(home.clone());
            }
            if tie.is_some() {
                return None;
            }
        }
        // A larger part of the host may not fit where a job is; one that may not be stopped does not go elsewhere for it.
        if lead.state.planned.is_some() && !self.view.may_stop(lead) && !is_exact(grant) {
            return None;
        }
        let found = self.chosen(grant, lead);
        let rules = self.view.cluster().rules;
        let can_be_launched = |placement: &Placement| {
            let allocation = self.allocation(grant, lead.id(), placement.clone());
            shapes::is_allowed(rules, &allocation, self.free)
        };
        if rules.is_none() || found.as_ref().is_some_and(can_be_launched) {
            return found;
        }
        self.by_rules(grant, lead, rules)
    }

    /// GPUs as the grant says, or as the placer does.
    fn chosen(&mut self, grant: &Grant, lead: JobRef<'a>) -> Option<Placement> {
        match &grant.shape {
            Shape::Exact(placement) => Some(placement.clone()),
            Shape::PerNode(parts) => {
                let masks = parts.iter().map(|&(node, count)| {
                    let free = self.free.mask(node);
                    (free.count_ones() >= count).then(|| (node, lowest_bits(free, count)))
                });
                masks.collect::<Option<Vec<_>>>().map(Placement::from_masks)
            }
            Shape::PerKind(parts) => {
                let mut masks = Vec::new();
                for &(kind, count) in parts {
                    let ask = Ask::new(lead, grant, count, smallvec![kind]);
                    masks.extend_from_slice(self.ask(&ask)?.masks());
                }
                Some(Placement::from_masks(masks))
            }
            Shape::Gpus { count, kind, .. } => {
                let kinds = match kind {
                    Some(kind) => smallvec![*kind],
                    None => SmallVec::from_slice(&lead.spec.want.kinds),
                };
                self.ask(&Ask::new(lead, grant, *count, kinds))
            }
        }
    }

    /// GPUs by the placer: in as few racks as there is room in.
    fn ask(&mut self, ask: &Ask<'_>) -> Option<Placement> {
        let found = self.anywhere(ask)?;
        if !self.view.state().has_racks || found.nodes() < 2 {
            return Some(found);
        }
        let found = self.in_fewest_racks(ask, found);
        (!ask.one_rack || found.config(self.view.cluster()).racks < 2).then_some(found)
    }

    fn anywhere(&mut self, ask: &Ask<'_>) -> Option<Placement> {
        let found = self.anywhere_at_all(ask)?;
        if !self.keeps_apart() || !self.stands_beside_strangers(ask, &found) {
            return Some(found);
        }
        self.away_from_strangers(ask, found)
    }

    fn anywhere_at_all(&mut self, ask: &Ask<'_>) -> Option<Placement> {
        if let Some(open) = &self.open
            && let Some(placement) = self.place.try_place(ask, open, &self.view)
        {
            return Some(placement);
        }
        self.place.try_place(ask, self.free, &self.view)
    }

    /// Whether an allocation is free for a job. Where it already is, the node may be on its way out of service.
    fn has_room(&self, job: JobId, allocation: &Allocation) -> bool {
        let planned = self.planned(job);
        let stays = planned.is_some_and(|planned| planned.same_place(allocation));
        let rules = self.view.cluster().rules;
        let alone = shapes::is_alone(rules, allocation, self.free);
        let shut = !stays && self.is_shut(job, allocation);
        if !alone || shut || self.goes_back(allocation) || self.meets_strangers(job, allocation) {
            return false;
        }
        let room =
            if stays { self.free.fits_again(allocation) } else { self.free.fits(allocation) };
        room.is_ok()
    }

    /// Where a job has to go on that is put aside, or that could not be moved without losing what it did.
    fn tie<'b>(&self, job: JobRef<'b>) -> Option<&'b Placement> {
        self.view.state().aside.tie(job, self.view.now, self.free)
    }

    /// Whether an allocation has GPUs on a node from which a window keeps a job.
    fn is_shut(&self, job: JobId, allocation: &Allocation) -> bool {
        let Some(job) = self.view.job(job) else { return false };
        let mut nodes = allocation.placement.masks().iter();
        nodes.any(|(node, _)| self.free.shut(*node, job).is_some())
    }

    /// The window without which there would be enough GPUs for a job, though not those that are free. Looks at the
    /// nodes that have windows.
    fn window_in_the_way(&self, job: JobRef<'_>, need: u32, free: u32) -> Option<Reason> {
        let windows = self.free.windows();
        let pool = job.spec.want.pool;
        let mut open = free;
        let mut more = 0;
        let mut first: Option<(Time, NodeId, WindowId, Time)> = None;
        let nodes: BTreeSet<NodeId> = windows.iter().flat_map(|one| one.nodes.clone()).collect();
        for node in nodes {
            let usable = job.spec.want.accepts(self.free.kind(node))
                && pool.is_none_or(|pool| self.free.pool(node) == pool);
            let Some(window) = self.free.shut(node, job).filter(|_| usable) else { continue };
            let whole = self.free.mask(node).count_ones();
            let gone = window.is_on(self.view.now) && window.reserved.is_none();
            open = open.saturating_sub(whole);
            more += if gone { u32::from(self.view.cluster().node(node).gpus) } else { whole };
            let found = (window.from, node, window.id, window.until);
            first = Some(first.map_or(found, |other| other.min(found)));
        }
        let (from, node, window, until) = first?;
        (open < need && need <= open + more).then_some(Reason::Window { window, node, from, until })
    }

    /// Whether an allocation has GPUs on a node that goes back to its owner.
    fn goes_back(&self, allocation: &Allocation) -> bool {
        self.back.iter().any(|(node, _)| allocation.placement.mask(*node) != 0)
    }

    /// Where the job is, if that is what the grant asks for.
    fn kept(&self, grant: &Grant, job: JobRef<'a>) -> Option<Placement> {
        let current = job.state.planned.as_ref().or(job.state.held.as_ref())?;
        let placement = &current.placement;
        if let Shape::PerKind(parts) = &grant.shape {
            let mut config = placement.config(self.view.cluster());
            let mut parts = parts.clone();
            config.kinds.sort_unstable();
            parts.sort_unstable();
            return (config.kinds == parts).then(|| placement.clone());
        }
        let Shape::Gpus { count, kind, nodes_max } = grant.shape else { return None };
        let (first, _) = placement.masks().first()?;
        let fits = placement.gpus() == count
            && kind.is_none_or(|kind| self.free.kind(*first) == kind)
            && (nodes_max == 0 || placement.nodes() <= u32::from(nodes_max))
            && grant.tier_max.is_none_or(|tier| placement.config(self.view.cluster()).tier <= tier)
            && grant.pool.is_none_or(|pool| {
                placement.masks().iter().all(|(node, _)| self.free.pool(*node) == pool)
            });
        fits.then(|| placement.clone())
    }

    fn allocation(&self, grant: &Grant, job: JobId, placement: Placement) -> Allocation {
        let spec = self.view.job(job).expect("validated").spec;
        let share = grant.members.iter().find(|member| member.job == job).expect("a member").share;
        // Where all are alike one stands for all, so that allocations that are the same compare so.
        let shares = match grant.shares.iter().all(|one| Some(one) == grant.shares.first()) {
            true => smallvec![grant.shares.first().copied().unwrap_or(share)],
            false => SmallVec::from_slice(&grant.shares),
        };
        let knobs = match &grant.knobs {
            Some(knobs) => Knobs::clone(knobs),
            None => self.plan_knobs(job),
        };
        Allocation {
            placement,
            shares,
            host_per_gpu: host_per_gpu(grant, &spec.want),
            gpu_memory_mib: grant.gpu_memory_mib.unwrap_or(spec.want.gpu_memory_mib),
            knobs,
            lease_until: grant.lease_until,
        }
    }

    fn plan_knobs(&self, job: JobId) -> Knobs {
        self.planned(job).map(|allocation| allocation.knobs.clone()).unwrap_or_default()
    }

    /// Takes a job's plan away in the offer.
    fn lift(&mut self, job: JobId) {
        if let Some(touched) = self.touched.get_mut(job) {
            let Some(plan) = touched.plan.take() else { return };
            self.free.give(&plan);
            self.count_use(job, &plan, false);
        } else if let Some(plan) = self.planned(job) {
            self.free.give(plan);
            self.count_use(job, plan, false);
            self.touched.entry(job);
        }
    }

    /// The plan for a job as it was before the offer.
    fn planned(&self, job: JobId) -> Option<&'a Allocation> {
        self.view.job(job).and_then(|job| job.state.planned.as_ref())
    }

    /// Gives a lifted job its former plan back, with what it had of the host when it was lifted, if that is still possible.
    fn restore(&mut self, job: JobId, host: Option<HostShare>) {
        if self.plan(job).is_some() {
            return;
        }
        let planned = self.planned(job).filter(|planned| !self.goes_back(planned));
        let Some(mut allocation) = planned.cloned() else { return };
        allocation.host_per_gpu = host.unwrap_or(allocation.host_per_gpu);
        if self.free.may_keep(&allocation)
            && shapes::is_alone(self.view.cluster().rules, &allocation, self.free)
            && self.over_ceiling(job, &allocation).is_none()
            && !self.meets_strangers(job, &allocation)
        {
            self.put(job, allocation);
        }
    }

    fn put(&mut self, job: JobId, allocation: Allocation) {
        self.free.take(&allocation);
        self.count_use(job, &allocation, true);
        self.touched.entry(job).plan = Some(allocation);
    }

    fn count_use(&mut self, job: JobId, allocation: &Allocation, more: bool) {
        if self.used_permille.is_empty() {
            return;
        }
        let used = used_permille(allocation);
        let tenant = self.view.job(job).expect("planned jobs are live").spec.tenant;
        for id in self.view.tenants().path(tenant) {
            let slot = &mut self.used_permille[id.index()];
            *slot = if more { *slot + used } else { *slot - used };
        }
    }

    fn over_ceiling(&self, job: JobId, allocation: &Allocation) -> Option<TenantId> {
        self.ceiling_passed(self.view.job(job)?, used_permille(allocation))
    }

    /// Wholly free GPUs that a grant could use, wherever they are.
    fn room_for(&self, grant: &Grant) -> u32 {
        let Some(job) = grant.members.first().and_then(|member| self.view.job(member.job)) else {
            return 0;
        };
        match &grant.shape {
            Shape::Gpus { kind: Some(kind), .. } => self.free.gpus(*kind),
            Shape::Gpus { kind: None, .. } if grant.members[0].share.permille() == 1000 => {
                let kinds = self.free.kinds();
                // A gang never mixes types, so the best single type decides.
                let usable = kinds.iter().filter(|kind| job.spec.want.accepts(**kind));
                usable.map(|kind| self.free.gpus(*kind)).max().unwrap_or(0)
            }
            Shape::PerNode(parts) => {
                let room =
                    |&(node, count): &(NodeId, u32)| self.free.mask(node).count_ones().min(count);
                parts.iter().map(room).sum()
            }
            _ => u32::MAX,
        }
    }

    /// Says why a grant was not taken.
    fn explain(&mut self, grant: &Grant) {
        let need = grant.count();
        let free = match self.room_for(grant) {
            u32::MAX => self.free.total(),
            room => room,
        };
        for member in &grant.members {
            let Some(job) = self.view.job(member.job) else { continue };
            let trial = u64::from(need) * u64::from(member.share.permille());
            let state = self.view.state();
            let reason = match state.ceiling_passed(job.spec.tenant, trial) {
                Some(tenant) if self.plan(member.job).is_none() => Reason::Quota {
                    tenant,
                    ceiling: state.tenants.get(tenant).ceiling.unwrap_or(0),
                    used: (self.used_permille[tenant.index()] / 1000) as u32,
                },
                _ => match self.window_in_the_way(job, need, free) {
                    Some(window) => window,
                    None if free >= need
                        && !self.view.cluster().rules.is_none()
                        && job.spec.want.nodes_max != 1 =>
                    {
                        Reason::Uneven { need, free }
                    }
                    None if free >= need => Reason::Fragmented { need, free },
                    None => Reason::NoRoom { need, free },
                },
            };
            self.notes.push(Note { job: member.job, reason });
        }
    }
}

/// Whether a grant names its GPUs.
fn is_exact(grant: &Grant) -> bool {
    matches!(grant.shape, Shape::Exact(_))
}

/// Thousandths of GPUs that an allocation counts for in quotas.
pub fn used_permille(allocation: &Allocation) -> u64 {
    let gpus = allocation.placement.gpus() as usize;
    if let [share] = allocation.shares[..] {
        return gpus as u64 * u64::from(share.permille());
    }
    (0..gpus).map(|index| u64::from(allocation.share(index).permille())).sum()
}
