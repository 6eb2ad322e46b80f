//! Whether one more deadline can be promised.

use super::book::{Facts, INSTANT, Lane, PromiseState, Record, stretched};
use super::{Chronus, Moment};
use crate::prelude::*;
use trainyard_solver::leases::{Piece, packs};
use trainyard_types::Config;

/// Leases from one on, of each type of GPU.
pub(super) struct Outlook {
    /// The lease from which on is counted.
    first: u64,
    kinds: Vec<Promises>,
}

/// Which jobs are promised which leases of one type.
struct Promises {
    kind: GpuType,
    /// What every lease has.
    gpus: u32,
    pieces: Vec<Option<Piece>>,
}

/// A type on which a job could have its leases.
#[derive(Copy, Clone)]
struct Way {
    /// An index into the types of an outlook.
    at: usize,
    lane: Lane,
    leases: u32,
}

impl Chronus {
    /// Answers every job that is not in the book yet, in order of arrival. Leases count from the present one, or from
    /// so many later.
    pub(super) fn admit(&mut self, moment: &Moment<'_, '_>, later: u64) {
        let is_new = |one: &&Facts<'_>| self.book.get(one.id()).is_none();
        let mut newcomers: Vec<&Facts<'_>> = moment.facts.iter().filter(is_new).collect();
        if newcomers.is_empty() {
            return;
        }
        newcomers.sort_unstable_by_key(|one| (one.job.spec.submitted, one.id()));
        let mut outlook = self.outlook(moment, later);
        for one in newcomers {
            let record = self.judge(one, &mut outlook, moment.view);
            self.refused |= record.standing == PromiseState::Refused;
            self.book.insert(one.id(), record);
        }
    }

    /// What is promised already.
    fn outlook(&self, moment: &Moment<'_, '_>, later: u64) -> Outlook {
        let now = moment.view.now;
        let first = now.0 / self.settings.lease().0 + later;
        let empty = |&(kind, gpus): &(GpuType, u32)| Promises { kind, gpus, pieces: Vec::new() };
        let mut outlook = Outlook { first, kinds: moment.kinds.iter().map(empty).collect() };
        for one in moment.facts {
            let Some(record) = self.book.get(one.id()) else { continue };
            if record.standing == PromiseState::Promised && record.is_planned {
                let runs =
                    if record.holds && later > 0 { self.lease_left(now) } else { Span::ZERO };
                let leases = self.leases(one.rest.minus(runs));
                let before = outlook.before(record.steps[record.step].0, self.settings.lease());
                // What is behind its plan is none of a newcomer's business.
                let before = before.max(leases);
                let piece = Piece { gpus: one.gpus, leases, before };
                if let Some(own) = outlook.kinds.iter_mut().find(|own| Some(own.kind) == one.kind) {
                    own.pieces.push(Some(piece));
                }
            }
        }
        outlook
    }

    /// Leases that so much time takes; no lease is for an instant.
    pub(super) fn leases(&self, rest: Span) -> u32 {
        rest.minus(INSTANT).0.div_ceil(self.settings.lease().0).min(u64::from(LEASES_MAX)) as u32
    }

    fn judge(&self, one: &Facts<'_>, outlook: &mut Outlook, view: &View<'_>) -> Record {
        let steps = one.job.spec.value.clone();
        let standing =
            if steps.is_empty() { PromiseState::BestEffort } else { PromiseState::Refused };
        let mut record = Record {
            standing,
            by: steps.first().map(|step| step.0),
            steps,
            step: 0,
            lane: None,
            allowed: one.allowed,
            is_planned: false,
            holds: false,
            is_overdue: false,
            late: Span::ZERO,
        };
        if one.total.is_some() && !record.steps.is_empty() {
            self.promise(one, &mut record, outlook, view);
        }
        record
    }

    /// The types on which a job could have its leases, the fastest first.
    fn ways(&self, one: &Facts<'_>, outlook: &Outlook, view: &View<'_>) -> Vec<Way> {
        let want = &one.job.spec.want;
        let reference = view.reference_rate(one.job).map_or(0.0, |rate| rate.0);
        let slowness = |kind: GpuType| {
            let shapes = &view.state().shapes;
            let per_node = shapes.iter().find(|shape| shape.0 == kind)?.1;
            let mut config = Config::packed(kind, want.gpus, per_node);
            config.permille = want.permille;
            let rate = view.rate(one.job, &config)?.0;
            let slowness = reference / rate;
            (want.accepts(kind) && slowness > 0.0 && slowness.is_finite()).then_some(slowness)
        };
        let wide = outlook.kinds.iter().enumerate().filter(|(_, own)| one.gpus <= own.gpus);
        let known = wide.filter_map(|(at, own)| Some((at, own.kind, slowness(own.kind)?)));
        let mut known: Vec<(usize, GpuType, f64)> = known.collect();
        known.sort_by(|a, b| a.2.total_cmp(&b.2).then(a.0.cmp(&b.0)));
        let slowest = known.last().map_or(1.0, |way| way.2);
        let way = |(at, kind, slowness): (usize, GpuType, f64)| Way {
            at,
            lane: Lane { kind, slowness, slowest: slowest / slowness },
            leases: self.leases(stretched(one.rest, slowness)).max(1),
        };
        known.into_iter().map(way).collect()
    }

    /// Promises the soonest step that can be kept, on the fastest type on which it can.
    fn promise(
        &self,
        one: &Facts<'_>,
        record: &mut Record,
        outlook: &mut Outlook,
        view: &View<'_>,
    ) {
        let ways = self.ways(one, outlook, view);
        let lease = self.settings.lease();
        let tried = self.settings.rules.set().steps_tried(record.steps.len());
        for (index, (deadline, _)) in record.steps[..tried].iter().enumerate() {
            let before = outlook.before(*deadline, lease);
            for &Way { at, lane, leases } in &ways {
                let piece = Piece { gpus: one.gpus, leases, before };
                if before >= leases && outlook.kinds[at].takes(piece) {
                    return self.note_promise(record, index, lane);
                }
            }
        }
        let mut soonest =
            |way: &Way| Some((outlook.kinds[way.at].soonest(one.gpus, way.leases)?, *way));
        let found = ways.iter().filter_map(&mut soonest).min_by_key(|(soonest, _)| *soonest);
        let Some((soonest, Way { at, lane, leases })) = found else { return };
        let end = Time((outlook.first + u64::from(soonest)).saturating_mul(lease.0));
        let last = record.steps.last_mut().expect("it has deadlines");
        let submitted = one.job.spec.submitted;
        let latest = submitted + last.0.since(submitted).scaled(self.settings.tolerance);
        record.late = end.since(last.0);
        if tried == record.steps.len() && end <= latest {
            let last = record.steps.len() - 1;
            record.steps[last].0 = end;
            self.note_promise(record, last, lane);
            outlook.kinds[at].takes(Piece { gpus: one.gpus, leases, before: soonest });
        }
    }
}

impl Chronus {
    fn note_promise(&self, record: &mut Record, step: usize, lane: Lane) {
        record.standing = PromiseState::Promised;
        record.allowed = stretched(record.allowed, lane.slowness);
        record.lane = Some(lane);
        record.is_planned = true;
        record.step = step;
        let last = record.steps.last().expect("it has deadlines").0;
        record.by = Some(self.settings.rules.set().promised_by(last, self.settings.lease()));
    }
}

/// Beyond so many leases nothing is planned; the authors' `MAX_LEASE_NUM` is larger.
const LEASES_MAX: u32 = 50_000;

impl Outlook {
    /// Leases that end before a moment: the authors' `compute_maximum_lease`.
    fn before(&self, deadline: Time, lease: Span) -> u32 {
        (deadline.0 / lease.0).saturating_sub(self.first).min(u64::from(LEASES_MAX)) as u32
    }
}

impl Promises {
    /// Takes one more in, if every job can be served then: the authors' `check_if_packable`.
    ///
    /// Its rows by lease add up the GPUs that jobs request (the paper's constraints (3) and (6), see the page).
    fn takes(&mut self, piece: Piece) -> bool {
        self.pieces.push(Some(piece));
        let fits = packs(&self.pieces, &[self.gpus]);
        if !fits {
            self.pieces.pop();
        }
        fits
    }

    /// The least number of leases within which one more could be served; the more there are the easier it is.
    fn soonest(&mut self, gpus: u32, leases: u32) -> Option<u32> {
        let horizon = self.pieces.iter().flatten().map(|piece| piece.before).max().unwrap_or(0);
        let (mut low, mut high) = (leases, horizon.saturating_add(leases).min(LEASES_MAX));
        if low > high || !self.could_take(Piece { gpus, leases, before: high }) {
            return None;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if self.could_take(Piece { gpus, leases, before: middle }) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(low)
    }

    fn could_take(&mut self, piece: Piece) -> bool {
        let fits = self.takes(piece);
        if fits {
            self.pieces.pop();
        }
        fits
    }
}
