//! Duan and Wu: many inferences, each cut between a device and a server, and the order in which they go (ICPP 2021).
//!
//! A job is computed locally up to its cut and then uploaded; the server takes no time. So jobs pass two machines one
//! after the other, and Johnson's rule gives the shortest makespan for given cuts.

mod cuts;

pub use cuts::{Sides, below_layers, of_chain, of_graph};

use crate::registry::{Level, PlannerEntry, Problem};

/// The row in the table of planners.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "duan-wu",
    about: "where to cut each of many inferences between a device and a server, and their order",
    paper: "Duan and Wu, Joint Optimization of DNN Partition and Scheduling for Mobile Cloud Computing, ICPP 2021",
    level: Level::Operator,
    partial: "the server takes no time; graphs of more than 64 operators are cut along one order",
    problem: Problem::Stated {
        what: "cuts and order of inferences",
        solve: crate::stated::solve_duan_wu,
        example: crate::stated::DUAN_WU,
    },
};

/// What a cut costs: everything before it runs locally, and what crosses it is uploaded.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Cut {
    /// Seconds of the layers before it.
    pub local: f64,
    /// Seconds to upload what crosses it.
    pub upload: f64,
}

/// Indices of jobs in the order of Johnson's rule: those whose local part is the shorter one first, by it ascending;
/// then the others by their upload descending. Ties by index.
pub fn johnson(jobs: &[Cut]) -> Vec<usize> {
    let (mut first, mut last): (Vec<usize>, Vec<usize>) =
        (0..jobs.len()).partition(|index| jobs[*index].local < jobs[*index].upload);
    first.sort_by(|a, b| jobs[*a].local.total_cmp(&jobs[*b].local));
    last.sort_by(|a, b| jobs[*b].upload.total_cmp(&jobs[*a].upload));
    first.extend(last);
    first
}

/// When the last upload ends, in a given order.
pub fn makespan(jobs: &[Cut], order: &[usize]) -> f64 {
    let (mut local, mut upload) = (0.0, 0.0f64);
    for index in order {
        local += jobs[*index].local;
        upload = upload.max(local) + jobs[*index].upload;
    }
    upload
}

/// How many of `jobs` equal jobs take which two cuts, and what comes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// The two cuts, by index.
    pub cuts: (usize, usize),
    /// How many take the first of them.
    pub first: usize,
    /// The makespan by Johnson's rule.
    pub seconds: f64,
}

/// The paper's mix: the two cuts beside the crossing of local time and upload, in the best proportion.
///
/// Local times ascend and uploads descend with the cut, so the crossing is found by halving, in O(log cuts + jobs^2).
pub fn mix(cuts: &[Cut], jobs: usize) -> Option<Mix> {
    let crossing = cuts.partition_point(|cut| cut.local <= cut.upload);
    let first = crossing.saturating_sub(1);
    best_of_pair(cuts, jobs, (first, crossing.min(cuts.len().checked_sub(1)?)))
}

/// Ours: the best of all pairs of cuts, which also serves curves that are not as the paper assumes.
///
/// O(cuts^2 jobs^2).
pub fn best_mix(cuts: &[Cut], jobs: usize) -> Option<Mix> {
    let pairs = (0..cuts.len()).flat_map(|a| (a..cuts.len()).map(move |b| (a, b)));
    let mixes = pairs.filter_map(|pair| best_of_pair(cuts, jobs, pair));
    mixes.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

fn best_of_pair(cuts: &[Cut], jobs: usize, (a, b): (usize, usize)) -> Option<Mix> {
    let with = |first: usize| {
        let all: Vec<Cut> = (0..jobs).map(|job| cuts[if job < first { a } else { b }]).collect();
        Mix { cuts: (a, b), first, seconds: makespan(&all, &johnson(&all)) }
    };
    (0..=jobs).map(with).min_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;

    fn permutations(count: usize) -> Vec<Vec<usize>> {
        if count == 0 {
            return vec![Vec::new()];
        }
        let shorter = permutations(count - 1).into_iter();
        let longer = shorter.flat_map(|order| {
            (0..count).map(move |at| {
                let mut order = order.clone();
                order.insert(at, count - 1);
                order
            })
        });
        longer.collect()
    }

    #[test]
    fn johnsons_order_is_the_best_of_all_orders() {
        let mut draws = Draws::new(1);
        let orders = permutations(5);
        let mut first_come_worse = 0;
        for _ in 0..200 {
            let jobs: Vec<Cut> =
                (0..5).map(|_| Cut { local: draws.unit(), upload: draws.unit() }).collect();
            let best = orders.iter().map(|order| makespan(&jobs, order));
            let best = best.fold(f64::INFINITY, f64::min);
            let ours = makespan(&jobs, &johnson(&jobs));
            assert!((ours - best).abs() < 1e-12, "{ours} {best}");
            // The control: the order of arrival is not.
            first_come_worse += usize::from(makespan(&jobs, &[0, 1, 2, 3, 4]) > best + 1e-9);
        }
        assert!(first_come_worse > 100, "{first_come_worse}");
    }

    /// Linear local times and convex uploads, as the paper assumes; cut 0 is all on the server, the last all local.
    fn line(draws: &mut Draws) -> Vec<Cut> {
        let (start, decay) = (1.0 + 4.0 * draws.unit(), 0.3 + 0.5 * draws.unit());
        let step = 0.2 + draws.unit();
        let mut upload = start;
        let mut cuts = Vec::new();
        for layer in 0..7 {
            cuts.push(Cut { local: step * f64::from(layer), upload });
            upload *= decay;
        }
        cuts.push(Cut { local: 7.0 * step, upload: 0.0 });
        cuts
    }

    /// Every multiset of cuts for `left` more jobs.
    fn brute(cuts: &[Cut], chosen: &mut Vec<Cut>, from: usize, left: usize) -> f64 {
        if left == 0 {
            return makespan(chosen, &johnson(chosen));
        }
        let mut best = f64::INFINITY;
        for at in from..cuts.len() {
            chosen.push(cuts[at]);
            best = best.min(brute(cuts, chosen, at, left - 1));
            chosen.pop();
        }
        best
    }

    #[test]
    fn mixes_lie_between_brute_force_and_one_cut_for_all() {
        let mut draws = Draws::new(2);
        let (mut paper_loss, mut ours_loss, mut uniform_loss) = (0.0f64, 0.0f64, 0.0f64);
        for _ in 0..60 {
            let cuts = line(&mut draws);
            let jobs = 5;
            let exact = brute(&cuts, &mut Vec::new(), 0, jobs);
            let paper = mix(&cuts, jobs).unwrap().seconds;
            let ours = best_mix(&cuts, jobs).unwrap().seconds;
            let same = |at: usize| best_of_pair(&cuts, jobs, (at, at)).unwrap().seconds;
            let uniform = (0..cuts.len()).map(same).fold(f64::INFINITY, f64::min);
            assert!(exact <= ours + 1e-12 && ours <= paper.min(uniform) + 1e-12);
            // All local and all on the server are cuts too.
            assert!(ours <= same(0).min(same(cuts.len() - 1)) + 1e-12);
            paper_loss = paper_loss.max(paper / exact - 1.0);
            ours_loss += ours / exact - 1.0;
            uniform_loss += uniform / exact - 1.0;
        }
        assert!(ours_loss < uniform_loss, "{ours_loss} {uniform_loss} {paper_loss}");
    }

    #[test]
    fn no_cut_is_no_plan() {
        assert_eq!(mix(&[], 3), None);
        assert_eq!(best_mix(&[], 3), None);
    }
}
