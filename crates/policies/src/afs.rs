//! The rule of AFS: who of two jobs gets the next GPUs, and the knockout that finds who gets them among all.
//!
//! The rule is not transitive, so that there need not be a job that beats all others. The knockout is a balanced tree
//! over the jobs in order of id: each node holds the winner of its two sides, and when a job has been given GPUs only
//! the matches on its way to the root are played again. That is O(n + m log n) matches for n jobs and m steps, where a
//! scan for each GPU takes O(m n).

use crate::ladder::{Contest, Player};

/// Where a job stands.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Standing {
    /// Its speed with the GPUs it was given so far; 0 without any.
    pub rate: f64,
    /// Its speed after the step it would take next.
    pub next_rate: f64,
    /// GPUs of that step.
    pub step: u32,
    /// Work that is left; not used where lengths are not known.
    pub left: f64,
}

impl Standing {
    /// Where a player stands before a step to `next`.
    pub fn of(player: &Player<'_>, next: u32, left: f64) -> Standing {
        Standing {
            rate: if player.size == 0 { 0.0 } else { player.worth() },
            next_rate: player.ladder().at(next),
            step: next - player.size,
            left,
        }
    }

    fn ends_in(&self) -> f64 {
        if self.rate > 0.0 { self.left / self.rate } else { f64::INFINITY }
    }
}

/// Whether the second of two jobs gets the next GPUs rather than the first; of equals the first does.
///
/// With `a` the one that ends first, one more GPU goes to `b` if `(p_b' - p_b) / p_b' > (p_a' - p_a) / p_a`: then both
/// together are done sooner, if nothing else changes (AFS, section 4). Steps of several GPUs count for each of them.
/// Of two jobs without a GPU the one that needs the least GPU time goes first.
pub(crate) fn second_wins(first: &Standing, second: &Standing) -> bool {
    if first.rate <= 0.0 && second.rate <= 0.0 {
        let service = |one: &Standing| one.left / one.next_rate * f64::from(one.step);
        return service(second) < service(first);
    }
    let swapped = second.ends_in() < first.ends_in();
    let (a, b) = if swapped { (second, first) } else { (first, second) };
    let gain_a = (a.next_rate - a.rate) / a.rate / f64::from(a.step);
    let gain_b = (b.next_rate - b.rate) / b.next_rate / f64::from(b.step);
    (gain_b > gain_a) != swapped
}

/// Whoever wins all its matches, by place; who left is nobody.
pub(crate) struct Knockout<T> {
    players: Vec<Option<T>>,
    /// A heap of winners: node `k` is above `2 k` and `2 k + 1`, leaves last.
    winners: Vec<Option<usize>>,
    leaves: usize,
}

impl<T> Knockout<T> {
    /// Plays all matches.
    pub fn new(players: Vec<Option<T>>, second_wins: impl Fn(&T, &T) -> bool) -> Knockout<T> {
        let leaves = players.len().next_power_of_two();
        let mut winners = vec![None; 2 * leaves];
        for (at, player) in players.iter().enumerate() {
            winners[leaves + at] = player.as_ref().map(|_| at);
        }
        let mut knockout = Knockout { players, winners, leaves };
        for node in (1..leaves).rev() {
            knockout.play(node, &second_wins);
        }
        knockout
    }

    /// Who won.
    pub fn winner(&self) -> Option<usize> {
        self.winners[1]
    }

    /// A player stands otherwise, or leaves; its matches are played again.
    pub fn set(&mut self, at: usize, player: Option<T>, second_wins: impl Fn(&T, &T) -> bool) {
        self.winners[self.leaves + at] = player.as_ref().map(|_| at);
        self.players[at] = player;
        let mut node = (self.leaves + at) / 2;
        while node > 0 {
            self.play(node, &second_wins);
            node /= 2;
        }
    }

    fn play(&mut self, node: usize, second_wins: &impl Fn(&T, &T) -> bool) {
        let player = |at: usize| self.players[at].as_ref().expect("a winner takes part");
        self.winners[node] = match (self.winners[2 * node], self.winners[2 * node + 1]) {
            (Some(a), Some(b)) if second_wins(player(a), player(b)) => Some(b),
            (Some(a), _) => Some(a),
            (None, b) => b,
        };
    }
}

/// Gives the winner its next GPUs until nobody can use any that are left.
///
/// `stand` says where a player stands before a step; whose next step does not fit any more leaves.
pub(crate) fn divide<T>(
    contest: &mut Contest<'_>,
    stand: impl Fn(&Player<'_>, usize, u32) -> T,
    second_wins: impl Fn(&T, &T) -> bool,
) {
    let next = |contest: &mut Contest<'_>, at: usize| {
        if !contest.enter(at) {
            return None;
        }
        let player = &contest.players[at];
        player.ladder().next(player.size, contest.room(at))
    };
    let mut steps: Vec<Option<u32>> =
        (0..contest.players.len()).map(|at| next(contest, at)).collect();
    let standing = |contest: &Contest<'_>, at: usize, step: Option<u32>| {
        step.map(|size| stand(&contest.players[at], at, size))
    };
    let first = steps.iter().enumerate().map(|(at, step)| standing(contest, at, *step)).collect();
    let mut knockout = Knockout::new(first, &second_wins);
    while let Some(at) = knockout.winner() {
        let found = next(contest, at);
        steps[at] = match found {
            Some(size) if found == steps[at] => {
                contest.raise(at, size);
                next(contest, at)
            }
            // Others took the room for the step with which it won: it plays again with a smaller one, or leaves.
            Some(_) | None => found,
        };
        knockout.set(at, standing(contest, at, steps[at]), &second_wins);
    }
}

#[cfg(test)]
mod tests;
