//! The stage before: newcomers run on reserved nodes for a while.
//!
//! A job that ends there, or fails again and again, never takes part in a plan. A job that was like one before it, in
//! model and GPUs, needs no profile of its own; one that is too wide for the reserved nodes cannot have one.

use super::book::Facts;
use super::{Chronus, Settings};
use crate::prelude::*;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use trainyard_types::{Grant, ModelId, Shape};

pub(super) struct Profiler {
    time: Span,
    nodes: u32,
    /// Models and GPUs that were profiled.
    known: BTreeSet<(ModelId, u32)>,
    /// Those that are being profiled or wait for it, and how often they had failed when it began.
    inside: BTreeMap<JobId, u16>,
    /// Those that are through.
    through: BTreeSet<JobId>,
}

impl Profiler {
    pub(super) fn new(settings: &Settings) -> Profiler {
        Profiler {
            time: settings.profile_time,
            nodes: settings.profile_nodes,
            known: BTreeSet::new(),
            inside: BTreeMap::new(),
            through: BTreeSet::new(),
        }
    }

    pub(super) fn has(&self, job: JobId) -> bool {
        self.inside.contains_key(&job)
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.inside.is_empty()
    }

    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.inside.clear();
        self.through.clear();
    }

    /// Reserved GPUs in service.
    fn reserved(&self, free: &Free) -> u32 {
        free.kinds().into_iter().map(|kind| self.reserved_of(kind, free)).sum()
    }

    /// The same of one type.
    pub(super) fn reserved_of(&self, kind: GpuType, free: &Free) -> u32 {
        let own = self.own(free).filter(|node| free.kind(*node) == kind);
        own.map(|node| free.up(node).count_ones()).sum()
    }

    fn own(&self, free: &Free) -> impl Iterator<Item = NodeId> + use<> {
        let nodes = free.nodes();
        (nodes - reserved_nodes(self.nodes, free)..nodes).map(|node| NodeId(node as _))
    }

    /// Takes newcomers in, lets those out that are through, and starts those that find room; jobs that are not inside
    /// are handed on.
    pub(super) fn stage<'a>(
        &mut self,
        facts: Vec<Facts<'a>>,
        view: &View<'_>,
        offer: &mut Offer<'_>,
    ) -> Vec<Facts<'a>> {
        self.inside.retain(|id, _| view.job(*id).is_some());
        self.through.retain(|id| view.job(*id).is_some());
        let most = self.reserved(offer.free());
        let mut beyond = Vec::new();
        for one in facts {
            self.note(&one, view, most);
            if !self.has(one.id()) {
                beyond.push(one);
            } else if self.is_through(&one, view) {
                // It stops here, and takes part from the next decision on.
                offer.revoke(one.id());
                offer.leave_idle();
                offer.wake_at(Time(view.now.0 + 1));
            } else {
                self.start(&one, offer);
            }
        }
        self.wake(view, offer);
        beyond
    }

    /// Asks to be called when the next profile ends.
    fn wake(&self, view: &View<'_>, offer: &mut Offer<'_>) {
        for id in self.inside.keys() {
            let started = view.job(*id).filter(|job| job.state.is_placed());
            if let Some(at) = started.and_then(|job| job.state.last_start) {
                offer.wake_at((at + self.time).max(Time(view.now.0 + 1)));
            }
        }
    }

    fn note(&mut self, one: &Facts<'_>, view: &View<'_>, most: u32) {
        let id = one.id();
        if self.has(id) || self.through.contains(&id) {
            return;
        }
        let is_like = self.known.contains(&(one.job.spec.model, one.gpus));
        let has_run = one.job.state.ran(view.now) > self.time;
        if is_like || has_run || one.gpus > most || one.job.spec.want.permille < 1000 {
            self.through.insert(id);
        } else {
            self.inside.insert(id, one.job.state.failures);
        }
    }

    /// Whether a job ran long enough without failing since it came; it leaves if so.
    fn is_through(&mut self, one: &Facts<'_>, view: &View<'_>) -> bool {
        let id = one.id();
        let ran = match one.job.state.last_start {
            Some(at) if one.job.state.is_placed() => view.now.since(at),
            _ => Span::ZERO,
        };
        // The next attempt of a job that failed is its profile.
        let failed = self.inside.insert(id, one.job.state.failures) != Some(one.job.state.failures);
        if ran < self.time || failed {
            return false;
        }
        self.inside.remove(&id);
        self.through.insert(id);
        self.known.insert((one.job.spec.model, one.gpus));
        true
    }

    fn start(&self, one: &Facts<'_>, offer: &mut Offer<'_>) {
        if offer.plan(one.id()).is_some() {
            return;
        }
        let mut parts: SmallVec<[(NodeId, u32); 2]> = SmallVec::new();
        let mut need = one.gpus;
        for node in self.own(offer.free()) {
            let here = offer.free().mask(node).count_ones().min(need);
            if here > 0 {
                parts.push((node, here));
                need -= here;
            }
        }
        if need == 0 {
            offer.grant(&Grant { shape: Shape::PerNode(parts), ..wanted(one.job) });
        } else {
            let free = one.gpus - need;
            offer.note(one.id(), Reason::NoRoom { need: one.gpus, free });
        }
    }
}

/// Nodes at the end of the cluster that are kept for profiles; none where nothing else would be left.
pub(super) fn reserved_nodes(asked: u32, free: &Free) -> u32 {
    if asked < free.nodes() { asked } else { 0 }
}

impl Chronus {
    /// Gives those that are being profiled their place back when all grants were lifted.
    pub(super) fn restore_profiles(&self, view: &View<'_>, offer: &mut Offer<'_>) {
        let Some(profiler) = &self.profiler else { return };
        for id in profiler.inside.keys() {
            if let Some(job) = view.job(*id)
                && job.state.planned.is_some()
                && offer.plan(*id).is_none()
            {
                offer.grant(&wanted(job));
            }
        }
    }

    /// GPUs that are free on reserved nodes.
    pub(super) fn reserved_free(&self, offer: &Offer<'_>) -> u32 {
        let own = self.profiler.as_ref().map(|profiler| profiler.own(offer.free()));
        let free = |node: NodeId| offer.free().mask(node).count_ones();
        own.map_or(0, |own| own.map(free).sum())
    }
}
