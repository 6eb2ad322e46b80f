//! First in, first out over types of GPU (Gavel, OSDI 2020): in order of arrival each job gets the fastest type that
//! has room for it, until one finds none.

use crate::prelude::*;
use trainyard_framework::{Mechanism, RateTable, RoundSettings, Rounds, Shares, TimeShare};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "gavel-fifo",
    about: "In order of arrival each job gets the fastest type of GPU with room; the first without room blocks the rest.",
    paper: "Narayanan et al., Gavel, OSDI 2020, section 4.2",
    needs: Needs { rates: true, ..Needs::NOTHING },
    class: Taxonomy {
        heterogeneous: true,
        ..Taxonomy::rigid(Objective::Arrival, Family::Arrival).preemptive()
    },
    settings: &[
        ("round", "how long a round is: types change hands at its start"),
        (
            "rounds",
            "`ours`; `gavel`: the rules of the authors' simulator; `sia`: those of its port by Sia's authors",
        ),
        ("reset", "Gavel's rules only: the least time between two computations of shares"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    round: Span,
    rounds: Mechanism,
    reset: Span,
}

impl Default for Settings {
    fn default() -> Settings {
        let RoundSettings { round, mechanism, reset_min, .. } = RoundSettings::default();
        Settings { round, rounds: mechanism, reset: reset_min }
    }
}

/// All of its time on one type for each job that finds room. O(n k) for n jobs and k types.
struct InOrder {
    /// Whether a job that makes no progress on any type with room is passed over, as in the authors' code, instead of
    /// blocking the rest until a type on which it runs has room.
    literal: bool,
}

impl TimeShare for InOrder {
    fn shares(
        &mut self,
        table: &RateTable,
        view: &View<'_>,
        _cx: &mut Cx,
    ) -> Result<Shares, PolicyError> {
        let name = |kind: usize| view.cluster().kinds[table.kinds[kind].index()].name.as_str();
        let mut left = table.capacity.clone();
        let mut shares = vec![0.0; table.choices.len()];
        let mut at = 0;
        for job in &table.jobs {
            let begin = at;
            at += table.choices[at..].iter().take_while(|choice| choice.jobs[0] == *job).count();
            let (mut best, mut has_room): (Option<usize>, bool) = (None, false);
            for index in begin..at {
                let choice = &table.choices[index];
                let (kind, rate) = (choice.kind(), choice.rates[0]);
                if choice.gpus() > left[kind] {
                    continue;
                }
                has_room = true;
                if rate <= 0.0 {
                    continue;
                }
                // Of equals the first by name, as the authors sort types.
                let better = best.is_none_or(|best| {
                    let other = &table.choices[best];
                    let by_name = || name(kind) < name(other.kind());
                    rate > other.rates[0] || (rate == other.rates[0] && by_name())
                });
                if better {
                    best = Some(index);
                }
            }
            let Some(best) = best else {
                // Without room anywhere the queue ends here, in the authors' code too.
                match self.literal && has_room {
                    true => continue,
                    false => break,
                }
            };
            shares[best] = 1.0;
            left[table.choices[best].kind()] -= table.choices[best].gpus();
        }
        Ok(Shares::from(shares))
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { round, rounds, reset } = raw.read(ENTRY.name)?;
    if round < Span::secs(1) {
        return Err(ENTRY.bad_value("round", round, "at least a second"));
    }
    let settings = RoundSettings {
        round,
        mechanism: rounds,
        reset_min: reset,
        // A type with enough GPUs may still have no place for a job: by our rules it then runs where there is one.
        fill: rounds == Mechanism::Ours,
        ..RoundSettings::default()
    };
    let share = InOrder { literal: rounds != Mechanism::Ours };
    Ok(Pipeline::new(Rounds::new(share, settings), FewestNodes, ENTRY.needs))
}
