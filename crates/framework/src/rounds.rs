//! The front that optimisers implement, fractions of time, and the adaptor that realises them round by round.

use crate::{Answer, Cx, JobRef, Offer, Policy, PolicyError, View, wanted};
use smallvec::SmallVec;
use std::cmp::Reverse;
use trainyard_types::{Config, GpuType, JobId, Shape, Span, Time};

/// Fractions of time for each row and type. Lifted to a [`Policy`] by [`Rounds`].
pub trait TimeShare: Send {
    /// The fraction of time that each row should spend on each type, out of the rates and the GPUs there are.
    fn shares(
        &mut self,
        table: &RateTable,
        view: &View<'_>,
        cx: &mut Cx,
    ) -> Result<Shares, PolicyError>;

    /// Forgets everything.
    fn forget(&mut self) {}
}

/// What a time share is worked out from: a row is one job, or several that would share GPUs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RateTable {
    /// The jobs of each row.
    pub rows: Vec<SmallVec<[JobId; 2]>>,
    /// GPUs that each row takes at once.
    pub gpus: Vec<u32>,
    /// Types of GPU.
    pub kinds: Vec<GpuType>,
    /// GPUs of each type in service.
    pub capacity: Vec<u32>,
    /// Steps per second of the members of each row on each type; 0 where a row cannot run.
    pub rates: Vec<SmallVec<[f64; 2]>>,
}

impl RateTable {
    /// One row for each active job, at the size it asks for.
    pub fn singles(view: &View<'_>, offer: &Offer<'_>) -> RateTable {
        let shapes = &view.state().shapes;
        let mut table = RateTable {
            kinds: shapes.iter().map(|(kind, _)| *kind).collect(),
            capacity: shapes.iter().map(|(kind, _)| offer.free().in_service(*kind)).collect(),
            ..RateTable::default()
        };
        let mut active: Vec<JobRef<'_>> = view.waiting().chain(view.granted()).collect();
        active.sort_unstable_by_key(JobRef::id);
        for job in active {
            let want = &job.spec.want;
            table.rows.push(SmallVec::from_elem(job.id(), 1));
            table.gpus.push(want.gpus);
            for &(kind, per_node) in shapes {
                // A type that could never hold the gang is no choice, however fast it is.
                let holds = want.accepts(kind) && offer.free().in_service(kind) >= want.gpus;
                let config = Config::packed(kind, want.gpus, per_node);
                let rate = view.rate(job, &config).map_or(1.0, |rate| rate.0);
                table.rates.push(SmallVec::from_elem(if holds { rate } else { 0.0 }, 1));
            }
        }
        table
    }

    /// The rates of a row's members on the type number `kind`.
    pub fn rate(&self, row: usize, kind: usize) -> &[f64] {
        &self.rates[row * self.kinds.len() + kind]
    }
}

/// Fractions of time, row by row and type by type, each from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares(pub Vec<f64>);

/// Realises time shares: at the start of each round those furthest behind their share run, type by type; whoever
/// comes within a round takes what is free. Shares are worked out anew when the set of jobs changed.
///
/// What a job received is read from its state, so that no memory can be lost. O(n k log n) for each round.
pub struct Rounds<S> {
    share: S,
    round: Span,
    /// The round of the last decision.
    current: Option<u64>,
    solved: Option<(RateTable, Shares)>,
}

impl<S: TimeShare> Rounds<S> {
    /// Rounds of a length.
    pub fn new(share: S, round: Span) -> Rounds<S> {
        assert!(round > Span::ZERO, "a round takes time");
        Rounds { share, round, current: None, solved: None }
    }

    fn solve(&mut self, table: RateTable, view: &View<'_>, cx: &mut Cx) -> Result<(), PolicyError> {
        if self.solved.as_ref().is_none_or(|(known, _)| *known != table) {
            let shares = self.share.shares(&table, view, cx)?;
            assert_eq!(shares.0.len(), table.rates.len(), "one share for each row and type");
            self.solved = Some((table, shares));
        }
        Ok(())
    }

    /// All rows and types that can run, furthest behind first; those without a share come last, to fill what is idle.
    fn order(&self, view: &View<'_>) -> Vec<(usize, usize)> {
        let Some((table, Shares(shares))) = &self.solved else { return Vec::new() };
        let mut all = Vec::new();
        for row in 0..table.rows.len() {
            let Some(job) = view.job(table.rows[row][0]) else { continue };
            for kind in 0..table.kinds.len() {
                if table.rate(row, kind).iter().any(|rate| *rate <= 0.0) {
                    continue;
                }
                let share = shares[row * table.kinds.len() + kind];
                let received = received(job, table.kinds[kind], view, self.round);
                all.push((share / received, share, Reverse(job.id()), row, kind));
            }
        }
        all.sort_by(|a, b| {
            let by_need = b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1));
            by_need.then(b.2.cmp(&a.2)).then(a.4.cmp(&b.4))
        });
        all.into_iter().map(|(_, _, _, row, kind)| (row, kind)).collect()
    }
}

impl<S: TimeShare> Policy for Rounds<S> {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let table = RateTable::singles(view, offer);
        if table.rows.is_empty() {
            return Ok(());
        }
        self.solve(table, view, cx)?;
        let round = view.now.0 / self.round.0;
        if self.current.replace(round) != Some(round) {
            offer.everything();
        }
        for (row, kind) in self.order(view) {
            let Some((table, _)) = &self.solved else { continue };
            let id = table.rows[row][0];
            let Some(job) = view.job(id).filter(|_| offer.plan(id).is_none()) else { continue };
            let mut grant = wanted(job);
            if let Shape::Gpus { kind: of, .. } = &mut grant.shape {
                *of = Some(table.kinds[kind]);
            }
            if offer.grant(&grant) == Answer::Full {
                break;
            }
        }
        if view.waiting_len() > 0 {
            offer.wake_at(Time((round + 1).saturating_mul(self.round.0)));
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.share.forget();
        self.current = None;
        self.solved = None;
    }
}

/// The fraction of its time that a job spent on a type, as if it had begun with half a round.
fn received(job: JobRef<'_>, kind: GpuType, view: &View<'_>, round: Span) -> f64 {
    let on = job.state.time_on.iter().find(|(other, _)| *other == kind);
    let mut on = on.map_or(Span::ZERO, |(_, span)| *span);
    let held = job.state.held.as_ref().and_then(|held| held.placement.masks().first());
    if held.is_some_and(|(node, _)| view.cluster().node(*node).kind == kind) {
        on += view.now.since(job.state.since);
    }
    let half = round.as_secs_f64() / 2.0;
    let lived = view.now.since(job.spec.submitted).as_secs_f64();
    (on.as_secs_f64() + half) / (lived + round.as_secs_f64())
}
