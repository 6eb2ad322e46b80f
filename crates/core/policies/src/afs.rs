//! The rule of AFS: which of two jobs gets the next GPUs, and the knockout that finds which of all jobs gets them.
//!
//! The rule is not transitive, so that there need not be a job that beats all others. The knockout is a balanced tree
//! over the jobs in order of id: of the two sides of each node one wins, and when a job has been given GPUs only
//! the matches on its way to the root are played again. That is O(n + m log n) matches for n jobs and m steps, where a
//! scan for each GPU takes O(m n).

use crate::ladder::{Contest, Player};

/// Where a job stands.
#[derive(Copy, Clone, Debug)]
pub(crate) struct NextStep {
    /// Its speed with the GPUs it was given so far; 0 without any.
    rate: f64,
    /// When it ends at that speed.
    ends_in: f64,
    /// GPU time that it needs in all at the speed after its step; for a job that has nothing.
    service: f64,
    /// What each GPU of its step adds, in parts of its speed before and after.
    gain_before: f64,
    gain_after: f64,
}

impl NextStep {
    /// Where a player stands before a step to `next`.
    pub fn of(player: &Player<'_>, next: u32, left: f64) -> NextStep {
        let rate = if player.size == 0 { 0.0 } else { player.worth() };
        NextStep::new((rate, player.ladder().at(next)), next - player.size, left)
    }

    /// From its speed before and after a step of so many GPUs, and the work that is left, which is not used where lengths
    /// are not known. All that a match needs is worked out here: matches are many more than steps.
    pub fn new((rate, next_rate): (f64, f64), step: u32, left: f64) -> NextStep {
        NextStep {
            rate,
            ends_in: if rate > 0.0 { left / rate } else { f64::INFINITY },
            service: left / next_rate * f64::from(step),
            gain_before: (next_rate - rate) / rate / f64::from(step),
            gain_after: (next_rate - rate) / next_rate / f64::from(step),
        }
    }
}

/// Whether the second of two jobs gets the next GPUs rather than the first; of equals the first does.
///
/// With `a` the one that ends first, one more GPU goes to `b` if `(p_b' - p_b) / p_b' > (p_a' - p_a) / p_a`: then both
/// together are done sooner, if nothing else changes (AFS, section 4). Steps of several GPUs count for each of them.
/// Of two jobs without a GPU the one that needs the least GPU time goes first.
pub(crate) fn second_wins(first: &NextStep, second: &NextStep) -> bool {
    if first.rate <= 0.0 && second.rate <= 0.0 {
        return second.service < first.service;
    }
    let swapped = second.ends_in < first.ends_in;
    let (a, b) = if swapped { (second, first) } else { (first, second) };
    (b.gain_after > a.gain_before) != swapped
}

/// Finds the player that wins all its matches, by place; a player that left takes no part.
///
/// Where two sides of the tree meet, the one that lost stays with what it stands for, so that a match reads one place.
/// Only the winner of all ever stands otherwise: on its way it meets at each node who lost there, the winner of the
/// other side.
pub(crate) struct Knockout<T> {
    /// A heap of losers: node `k` is above `2 k` and `2 k + 1`; leaves, below, are not kept. The first is the winner.
    losers: Vec<Option<(u32, T)>>,
}

impl<T> Knockout<T> {
    /// Plays all matches.
    pub fn new(players: Vec<Option<T>>, second_wins: impl Fn(&T, &T) -> bool) -> Knockout<T> {
        let leaves = players.len().next_power_of_two();
        let entries = players.into_iter().enumerate();
        let mut side: Vec<_> =
            entries.map(|(at, player)| player.map(|player| (at as u32, player))).collect();
        side.resize_with(leaves, || None);
        // Level by level from below; the losers of a level of `n` matches are nodes `n` to `2 n - 1`.
        let mut levels = Vec::new();
        while side.len() > 1 {
            let (mut winners, mut losers) = (Vec::new(), Vec::new());
            let mut players = side.into_iter();
            while let (Some(mut winner), Some(mut loser)) = (players.next(), players.next()) {
                let pair = (&winner, &loser);
                if beats(pair, &second_wins) {
                    std::mem::swap(&mut winner, &mut loser);
                }
                winners.push(winner);
                losers.push(loser);
            }
            levels.push(losers);
            side = winners;
        }
        let mut losers = side;
        losers.extend(levels.into_iter().rev().flatten());
        Knockout { losers }
    }

    /// The place of the player that won.
    pub fn winner(&self) -> Option<usize> {
        self.losers[0].as_ref().map(|(at, _)| *at as usize)
    }

    /// The winner stands otherwise, or leaves; its matches are played again.
    pub fn set_winner(&mut self, player: Option<T>, second_wins: impl Fn(&T, &T) -> bool) {
        let Some((at, _)) = self.losers[0].take() else { return };
        let mut here = player.map(|player| (at, player));
        let mut child = self.losers.len() + at as usize;
        while child > 1 {
            let other = &mut self.losers[child / 2];
            let is_first = child.is_multiple_of(2);
            let loses = match is_first {
                true => beats((&here, other), &second_wins),
                false => !beats((other, &here), &second_wins),
            };
            if loses {
                std::mem::swap(&mut here, other);
            }
            child /= 2;
        }
        self.losers[0] = here;
    }
}

/// A side of a match: the place of a player and what it stands for, or no player.
type Side<T> = Option<(u32, T)>;

/// Whether the second of two sides wins; of sides without a player the first does.
fn beats<T>((first, second): (&Side<T>, &Side<T>), second_wins: impl Fn(&T, &T) -> bool) -> bool {
    match (first, second) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some((_, first)), Some((_, second))) => second_wins(first, second),
    }
}

/// Gives the winner its next GPUs until no player can use any that are left.
///
/// `stand` says where a player stands before a step; a player whose next step does not fit any more leaves.
pub(crate) fn divide<T>(
    contest: &mut Contest<'_>,
    stand: impl Fn(&Player<'_>, usize, u32) -> T,
    second_wins: impl Fn(&T, &T) -> bool,
) {
    let mut division = Division::new(contest, stand, second_wins);
    while division.step(contest) {}
}

/// The same, only until every player has GPUs or has left: who is served at all does not change after that.
pub(crate) fn serve<T>(
    contest: &mut Contest<'_>,
    stand: impl Fn(&Player<'_>, usize, u32) -> T,
    second_wins: impl Fn(&T, &T) -> bool,
) {
    let mut division = Division::new(contest, stand, second_wins);
    while division.without > 0 && division.step(contest) {}
}

/// GPUs being divided.
struct Division<T, S, W> {
    stand: S,
    second_wins: W,
    knockout: Knockout<T>,
    /// The size to which each player would go next; nothing for one that left.
    steps: Vec<Option<u32>>,
    /// Players that have no GPUs and have not left.
    without: usize,
}

impl<T, S, W> Division<T, S, W>
where
    S: Fn(&Player<'_>, usize, u32) -> T,
    W: Fn(&T, &T) -> bool,
{
    fn new(contest: &mut Contest<'_>, stand: S, second_wins: W) -> Division<T, S, W> {
        let steps: Vec<Option<u32>> =
            (0..contest.players.len()).map(|at| next_step(contest, at)).collect();
        let players = contest.players.iter().zip(&steps);
        let without = players.filter(|(player, step)| step.is_some() && player.size == 0).count();
        let first = steps.iter().enumerate();
        let first = first.map(|(at, step)| step.map(|size| stand(&contest.players[at], at, size)));
        let knockout = Knockout::new(first.collect(), &second_wins);
        Division { stand, second_wins, knockout, steps, without }
    }

    /// The winner takes its step, or a smaller one, or leaves. False if there is none.
    fn step(&mut self, contest: &mut Contest<'_>) -> bool {
        let Some(at) = self.knockout.winner() else { return false };
        // Of a larger room its step was the best; in a smaller one that still holds it, it is so too.
        let player = &contest.players[at];
        let was_without = player.size == 0;
        let still = |size: &u32| player.size > 0 && size - player.size <= contest.room(at);
        let found = self.steps[at].filter(still).or_else(|| next_step(contest, at));
        self.steps[at] = match found {
            Some(size) if found == self.steps[at] => {
                contest.raise(at, size);
                next_step(contest, at)
            }
            // Others took the room for the step with which it won: it plays again with a smaller one, or leaves.
            Some(_) | None => found,
        };
        let player = &contest.players[at];
        if was_without && (player.size > 0 || self.steps[at].is_none()) {
            self.without -= 1;
        }
        let standing = self.steps[at].map(|size| (self.stand)(player, at, size));
        self.knockout.set_winner(standing, &self.second_wins);
        true
    }
}

/// The size to which a player would go next, if there is room for it.
fn next_step(contest: &mut Contest<'_>, at: usize) -> Option<u32> {
    if !contest.enter(at) {
        return None;
    }
    let player = &contest.players[at];
    player.ladder().next(player.size, contest.room(at))
}

#[cfg(test)]
mod tests;
