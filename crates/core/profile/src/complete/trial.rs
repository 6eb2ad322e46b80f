//! How far estimates are off, measured: a known table is shown in part, and the rest is what was to be found.

use super::choose::{Errors, Estimate, Way, errors, estimate, mixed};
use super::table::{PairTable, Two};

/// What is hidden.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hidden {
    /// Pairs anywhere in the table.
    Anywhere,
    /// Pairs of one model, each in turn: a new job beside others that are well known.
    NewModel,
}

/// The errors when a part of the pairs is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// What was hidden.
    pub hidden: Hidden,
    /// The part that was shown, from 0 to 1.
    pub shown: f64,
    /// By the mean of what is shown.
    pub mean: Errors,
    /// By the model most alike.
    pub nearest: Errors,
    /// By levels and traits, their number chosen on hidden pairs.
    pub low_rank: Errors,
    /// By the way that was chosen without knowing the truth.
    pub chosen: Errors,
    /// How often each way was chosen.
    pub ways: Vec<(Way, usize)>,
}

/// Shows a part of a table, several times with other pairs, and measures every way on the rest.
pub fn trial(truth: &PairTable, hidden: Hidden, shown: f64, draws: u64) -> Trial {
    let mut wrong: [Vec<f64>; 4] = Default::default();
    let mut ways: Vec<(Way, usize)> = Way::ALL.iter().map(|way| (*way, 0)).collect();
    for draw in 0..draws {
        for table in shown_tables(truth, hidden, shown, draw) {
            let found = estimate(&table);
            let tried = [Way::Mean, Way::Nearest, best_rank(&found), found.way];
            for (list, way) in wrong.iter_mut().zip(tried) {
                list.extend(errors(truth, &table, &way.complete(&table)));
            }
            ways.iter_mut().filter(|(way, _)| *way == found.way).for_each(|(_, times)| *times += 1);
        }
    }
    ways.retain(|(_, times)| *times > 0);
    let [mean, nearest, low_rank, chosen] = wrong.map(Errors::of);
    Trial { hidden, shown, mean, nearest, low_rank, chosen, ways }
}

fn best_rank(found: &Estimate) -> Way {
    let ranks = found.tried.iter().filter(|(way, _)| matches!(way, Way::LowRank(_)));
    let best = ranks.min_by(|a, b| a.1.mean.total_cmp(&b.1.mean));
    best.expect("ranks are tried").0
}

/// The truth with holes, once or for each model in turn.
fn shown_tables(truth: &PairTable, hidden: Hidden, shown: f64, draw: u64) -> Vec<PairTable> {
    let hide = |mut pairs: Vec<Two>| {
        pairs.sort_by_key(|two| (mixed(&(two.0 + (draw as usize + 1) * 7919, two.1)), *two));
        let keep = ((pairs.len() as f64 * shown + 0.5) as usize).max(1);
        truth.without(pairs.get(keep..).unwrap_or(&[]))
    };
    let known = truth.known();
    match hidden {
        Hidden::Anywhere => vec![hide(known)],
        Hidden::NewModel => (0..truth.len())
            .map(|new| {
                let touches = |two: &&Two| two.0 == new || two.1 == new;
                hide(known.iter().filter(touches).copied().collect())
            })
            .collect(),
    }
}
