//! AFS-P: GPUs one by one to the job that gains most by them, without knowledge of lengths.

use crate::afs::divide;
use crate::afs_l::rates;
use crate::ladder::{Contest, Player, all_jobs, change_seconds, largest_first};
use crate::prelude::*;
use crate::wires::{Wires, place};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "afs-p",
    about: "GPUs go one by one to the job whose speed grows most by them; lengths are not known, and jobs that wait take turns.",
    paper: "Hwang et al., Elastic Resource Sharing for Distributed Deep Learning, NSDI 2021",
    needs: Needs { rates: true, ..Needs::NOTHING },
    class: Taxonomy {
        elastic: true,
        ..Taxonomy::rigid(Objective::CompletionTime, Family::Elastic).preemptive()
    },
    settings: &[
        (
            "turn",
            "GPU time after which a job makes way for those that had less, while there are too few GPUs for all; 0s for never",
        ),
        (
            "resize_cost",
            "whether the time that a change of size takes counts in the rule; the paper leaves it out",
        ),
        (
            "bandwidth",
            "whether each size is valued with the wires that it would get, and GPUs are placed by `mapa`; not in the paper",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    turn: Span,
    resize_cost: bool,
    bandwidth: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { turn: Span::secs(1800), resize_cost: true, bandwidth: false }
    }
}

/// A change is taken to cost at most this part of what a job does before the next one.
const COST_MAX: f64 = 0.1;

/// O(n s + m log n) for n jobs with up to s sizes and m GPUs, at each event and at the end of each turn.
///
/// With `bandwidth`, what [`Wires::value`] takes comes on top.
struct AfsP {
    settings: Settings,
    wires: Option<Wires>,
}

/// What decides: a job that has nothing comes first, by turns, then the one that gains most for each GPU, then the
/// lower id.
type Claim = (u64, bool, f64);

impl AfsP {
    fn claim(&self, player: &Player<'_>, next: u32, now: Time) -> Claim {
        if player.size == 0 {
            let turns = match self.settings.turn.0 {
                0 => 0,
                turn => player.job.state.attained(now).0 / turn,
            };
            return (turns, player.held.is_none(), 0.0);
        }
        let gain =
            (player.ladder().at(next) / player.worth() - 1.0) / f64::from(next - player.size);
        (u64::MAX, false, -gain)
    }

    /// When the first job with GPUs has had its turn, if any job waits for that.
    fn next_turn(&self, view: &View<'_>) -> Option<Time> {
        if self.settings.turn == Span::ZERO || view.waiting_len() == 0 {
            return None;
        }
        let turn = self.settings.turn.0;
        let due = view.granted().filter_map(|job| {
            let gpus = u64::from(job.state.planned.as_ref()?.placement.gpus().max(1));
            let had = job.state.attained(view.now).0;
            Some(view.now + Span(((had / turn + 1) * turn - had).div_ceil(gpus)))
        });
        due.min().map(|time| time.max(view.now + Span::secs(1)))
    }
}

impl Policy for AfsP {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        let mut contest = Contest::new(view, offer, all_jobs(view), |job, shape, there| {
            let cost = if self.settings.resize_cost { change_seconds(job, view) } else { 0.0 };
            // A job that ran for long may well run for as long again.
            let again = job.state.ran(view.now).as_secs_f64().max(cost / COST_MAX);
            let kept = if cost > 0.0 { 1.0 - cost / again } else { 1.0 };
            rates(job, shape, there, view, |rate| rate * kept)
        });
        if let Some(wires) = &mut self.wires {
            wires.value(&mut contest, offer.free(), view);
        }
        divide(
            &mut contest,
            |player, _, next| self.claim(player, next, view.now),
            |first, second| second < first,
        );
        contest.settle(offer, largest_first);
        if let Some(time) = self.next_turn(view) {
            offer.wake_at(time);
        }
        Ok(())
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    let wires = if settings.bandwidth { Some(Wires::new()?) } else { None };
    let needs = Needs { topology: ENTRY.needs.topology || wires.is_some(), ..ENTRY.needs };
    let place = place(wires.is_some())?;
    let mut pipeline = Pipeline::new(AfsP { settings, wires }, FewestNodes, needs);
    pipeline.place = place;
    Ok(pipeline)
}
