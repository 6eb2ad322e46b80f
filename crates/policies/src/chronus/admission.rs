//! Whether one more deadline can be promised.

use super::book::{Facts, INSTANT, Record, Standing};
use super::{Chronus, Rules};
use crate::prelude::*;
use trainyard_solver::leases::{Piece, pack};

/// Leases from one on, and who is promised which of them.
pub(super) struct Outlook {
    /// The lease from which on is counted.
    first: u64,
    /// What every lease has.
    gpus: u32,
    pieces: Vec<Option<Piece>>,
}

impl Chronus {
    /// Answers everyone who is not in the book yet, in order of arrival. Leases count from the present one, or from
    /// so many later.
    pub(super) fn admit(
        &mut self,
        facts: &[Facts<'_>],
        view: &View<'_>,
        (gpus, later): (u32, u64),
    ) {
        let is_new = |one: &&Facts<'_>| self.book.get(one.id()).is_none();
        let mut newcomers: Vec<&Facts<'_>> = facts.iter().filter(is_new).collect();
        if newcomers.is_empty() {
            return;
        }
        newcomers.sort_unstable_by_key(|one| (one.job.spec.submitted, one.id()));
        let mut outlook = self.outlook(facts, view, (gpus, later));
        for one in newcomers {
            let record = self.judge(one, &mut outlook);
            self.refused |= record.standing == Standing::Refused;
            self.book.insert(one.id(), record);
        }
    }

    /// What is promised already.
    fn outlook(&self, facts: &[Facts<'_>], view: &View<'_>, (gpus, later): (u32, u64)) -> Outlook {
        let first = view.now.0 / self.settings.lease.0 + later;
        let mut outlook = Outlook { first, gpus, pieces: Vec::new() };
        for one in facts {
            let Some(record) = self.book.get(one.id()) else { continue };
            if record.standing == Standing::Promised && record.is_planned {
                let runs =
                    if record.holds && later > 0 { self.lease_left(view.now) } else { Span::ZERO };
                let leases = self.leases(one.rest.minus(runs));
                let before = outlook.before(record.steps[record.step].0, self.settings.lease);
                // What is behind its plan is none of a newcomer's business.
                let before = before.max(leases);
                outlook.pieces.push(Some(Piece { gpus: one.gpus, leases, before }));
            }
        }
        outlook
    }

    /// Leases that so much time takes; no lease is for an instant.
    pub(super) fn leases(&self, rest: Span) -> u32 {
        rest.minus(INSTANT).0.div_ceil(self.settings.lease.0).min(u64::from(LEASES_MAX)) as u32
    }

    fn judge(&self, one: &Facts<'_>, outlook: &mut Outlook) -> Record {
        let steps = one.job.spec.value.clone();
        let standing = if steps.is_empty() { Standing::BestEffort } else { Standing::Refused };
        let mut record = Record {
            standing,
            by: steps.first().map(|step| step.0),
            steps,
            step: 0,
            allowed: one.allowed,
            is_planned: false,
            holds: false,
            is_overdue: false,
            late: Span::ZERO,
        };
        if one.total.is_some() && !record.steps.is_empty() && one.gpus <= outlook.gpus {
            self.promise(one, &mut record, outlook);
        }
        record
    }

    /// Promises the soonest step that can be kept.
    fn promise(&self, one: &Facts<'_>, record: &mut Record, outlook: &mut Outlook) {
        let leases = self.leases(one.rest).max(1);
        let lease = self.settings.lease;
        // The authors' check only ever looks at the tightest step of a job.
        let tried = match self.settings.rules {
            Rules::Ours => record.steps.len(),
            Rules::Authors => 1,
        };
        for (index, (deadline, _)) in record.steps[..tried].iter().enumerate() {
            let before = outlook.before(*deadline, lease);
            if before >= leases && outlook.takes(Piece { gpus: one.gpus, leases, before }) {
                return self.note_promise(record, index);
            }
        }
        let Some(soonest) = outlook.soonest(one.gpus, leases) else { return };
        let end = Time((outlook.first + u64::from(soonest)).saturating_mul(lease.0));
        let last = record.steps.last_mut().expect("it has deadlines");
        let submitted = one.job.spec.submitted;
        let latest = submitted + last.0.since(submitted).scaled(self.settings.tolerance);
        record.late = end.since(last.0);
        if tried == record.steps.len() && end <= latest {
            let last = record.steps.len() - 1;
            record.steps[last].0 = end;
            self.note_promise(record, last);
            outlook.takes(Piece { gpus: one.gpus, leases, before: soonest });
        }
    }
}

impl Chronus {
    fn note_promise(&self, record: &mut Record, step: usize) {
        record.standing = Standing::Promised;
        record.is_planned = true;
        record.step = step;
        let last = record.steps.last().expect("it has deadlines").0;
        record.by = Some(match self.settings.rules {
            Rules::Ours => last,
            // The authors' program only knows ends of leases from here on.
            Rules::Authors => Time(last.0 / self.settings.lease.0 * self.settings.lease.0),
        });
    }
}

/// Beyond so many leases nothing is planned.
const LEASES_MAX: u32 = 50_000;

impl Outlook {
    /// Leases that end before a moment.
    fn before(&self, deadline: Time, lease: Span) -> u32 {
        (deadline.0 / lease.0).saturating_sub(self.first).min(u64::from(LEASES_MAX)) as u32
    }

    /// Takes one more in, if everyone can be served then.
    fn takes(&mut self, piece: Piece) -> bool {
        self.pieces.push(Some(piece));
        let fits = pack(&self.pieces, &[self.gpus]).is_ok();
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
