//! Which rounds: a number of rounds for each job becomes a list of jobs for each round.
//!
//! Rounds are alike, so that only the order and the packing of gangs are left to choose. That GPUs suffice in sum and
//! no job wants more rounds than there are does not make a packing exist: on 8 GPUs and in 2 rounds, a gang of 8 for
//! one round and a gang of 4 for both take 16 GPU-rounds of 16, and cannot be laid out. Rounds are filled one by one in
//! order of urgency; a job that found no room then gets some by moving others, and one that finds none even so is left
//! out.

use super::welfare::{Gain, Program};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How often jobs that were left out may take the place of others.
const EXCHANGES_MAX: usize = 8;

/// A job that is to run in so many rounds.
#[derive(Copy, Clone, Debug)]
pub struct Booking {
    /// GPUs it takes at once.
    pub gpus: u32,
    /// In how many rounds.
    pub rounds: u32,
    /// How much its rounds should come early.
    pub urgency: f64,
    /// Whether it runs just now.
    pub runs: bool,
}

/// Which jobs run in each round, as indices of the bookings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calendar {
    /// By round; those that run on come first, then larger gangs.
    pub rounds: Vec<Vec<usize>>,
}

impl Calendar {
    /// Lays bookings out over a window of rounds on so many GPUs, the urgent ones early.
    pub fn new(bookings: &[Booking], gpus: u32, window: u32) -> Calendar {
        let mut calendar = Calendar::by_urgency(bookings, gpus, window);
        calendar.mend(bookings, gpus);
        calendar
    }

    /// The number of rounds of each booking.
    pub fn counts(&self, bookings: usize) -> Vec<u32> {
        let mut counts = vec![0; bookings];
        for index in self.rounds.iter().flatten() {
            counts[*index] += 1;
        }
        counts
    }

    /// Makes the best of what could not be packed: those left out may take the place of others, and what is free goes
    /// to the job that gains most.
    pub fn fit(&mut self, bookings: &[Booking], program: &Program) {
        self.exchange(bookings, program);
        self.top_up(bookings, program);
    }

    /// Lets jobs that got fewer rounds than booked take the place of others, as long as the whole is worth more.
    fn exchange(&mut self, bookings: &[Booking], program: &Program) {
        for _ in 0..EXCHANGES_MAX {
            let counts = self.counts(bookings.len());
            let short = |index: &usize| counts[*index] < bookings[*index].rounds;
            let short: Vec<usize> = (0..bookings.len()).filter(short).collect();
            if short.is_empty() {
                return;
            }
            let now = program.evaluated(&counts);
            let mut found: Option<(f64, usize, usize, Vec<usize>)> = None;
            for index in short {
                for round in 0..self.rounds.len() {
                    let out = self.cheapest_out((index, round), bookings, &counts, program);
                    let Some(out) = out else { continue };
                    let worth = now.after((index, &out), &counts, program);
                    let least = now.value + now.value.abs() * 1e-12;
                    if worth > found.as_ref().map_or(least, |found| found.0) {
                        found = Some((worth, index, round, out));
                    }
                }
            }
            let Some((_, index, round, out)) = found else { return };
            self.rounds[round].retain(|other| !out.contains(other));
            self.rounds[round].push(index);
        }
    }

    /// Which jobs a job would drive out of a round: those whose last round is worth least, as few as make room.
    fn cheapest_out(
        &self,
        (index, round): (usize, usize),
        bookings: &[Booking],
        counts: &[u32],
        program: &Program,
    ) -> Option<Vec<usize>> {
        let need = bookings[index].gpus;
        if self.rounds[round].contains(&index) || need > program.gpus {
            return None;
        }
        let mut free = program.gpus - used(&self.rounds[round], bookings);
        let loss =
            |other: usize| program.gain(other, counts[other] - 1) / f64::from(bookings[other].gpus);
        let mut worth: Vec<(f64, usize)> =
            self.rounds[round].iter().map(|other| (loss(*other), *other)).collect();
        worth.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut out = Vec::new();
        for (_, other) in worth {
            if free >= need {
                break;
            }
            free += bookings[other].gpus;
            out.push(other);
        }
        Some(out)
    }

    /// Adds jobs to rounds where they fit and do not run yet, best first, as long as one gains from it.
    fn top_up(&mut self, bookings: &[Booking], program: &Program) {
        let is_full = |round: &Vec<usize>| used(round, bookings) == program.gpus;
        if self.rounds.iter().all(is_full) {
            return;
        }
        let mut counts = self.counts(bookings.len());
        let mut inside = vec![false; bookings.len()];
        // What one more round is worth to each job for each of its GPUs.
        let dense =
            |index: usize, count: u32| program.gain(index, count) / f64::from(bookings[index].gpus);
        let mut worth: Vec<f64> =
            counts.iter().enumerate().map(|(index, count)| dense(index, *count)).collect();
        for round in &mut self.rounds {
            let mut free = program.gpus - used(round, bookings);
            if free == 0 {
                continue;
            }
            inside.fill(false);
            round.iter().for_each(|index| inside[*index] = true);
            let fits = |index: &usize| !inside[*index] && bookings[*index].gpus <= free;
            let outside = (0..bookings.len()).filter(fits);
            let wish = |index: usize| Gain { gain: worth[index], job: index as u32, count: 0 };
            let wishes = outside.map(wish).filter(|wish| wish.gain > 0.0).map(Reverse);
            // Little is free and many wish: they are not put in order further than need be.
            let mut wishes: BinaryHeap<Reverse<Gain>> = wishes.collect();
            while free > 0
                && let Some(Reverse(wish)) = wishes.pop()
            {
                let index = wish.job as usize;
                if bookings[index].gpus <= free {
                    free -= bookings[index].gpus;
                    counts[index] += 1;
                    worth[index] = dense(index, counts[index]);
                    round.push(index);
                }
            }
        }
    }

    /// GPU-rounds that were booked and are not in the calendar.
    #[cfg(test)]
    fn lost(&self, bookings: &[Booking]) -> u64 {
        let counts = self.counts(bookings.len());
        let missing = bookings.iter().zip(counts).map(|(booking, count)| {
            u64::from(booking.rounds.saturating_sub(count)) * u64::from(booking.gpus)
        });
        missing.sum()
    }

    /// Round by round: first the jobs that can skip none of the rounds left, then the urgent ones.
    ///
    /// A job weighs its urgency over its rounds, for it is the mean place of its rounds that should be early.
    fn by_urgency(bookings: &[Booking], gpus: u32, window: u32) -> Calendar {
        let mut left: Vec<u32> =
            bookings.iter().map(|booking| booking.rounds.min(window)).collect();
        let mut runs: Vec<bool> = bookings.iter().map(|booking| booking.runs).collect();
        let weight: Vec<f64> =
            bookings.iter().map(|one| one.urgency / f64::from(one.rounds)).collect();
        let mut order: Vec<usize> = (0..bookings.len()).filter(|index| left[*index] > 0).collect();
        order.sort_by(|a, b| weight[*b].total_cmp(&weight[*a]).then(a.cmp(b)));
        let mut rounds = Vec::with_capacity(window as usize);
        for round in 0..window {
            let due = |index: &usize| left[*index] >= window - round;
            let (first, later): (Vec<usize>, Vec<usize>) = order.iter().copied().partition(due);
            let mut free = gpus;
            let mut chosen = Vec::new();
            for mut queue in [first, later] {
                running_first(&mut queue, &weight, &runs);
                for index in queue {
                    if free == 0 {
                        break;
                    }
                    if bookings[index].gpus <= free {
                        free -= bookings[index].gpus;
                        left[index] -= 1;
                        chosen.push(index);
                    }
                }
            }
            runs.fill(false);
            chosen.iter().for_each(|index| runs[*index] = true);
            order.retain(|index| left[*index] > 0);
            rounds.push(chosen);
        }
        Calendar { rounds }
    }

    /// Finds room for what was booked and found none, by moving less urgent jobs of late rounds to where there is room.
    fn mend(&mut self, bookings: &[Booking], gpus: u32) {
        let counts = self.counts(bookings.len());
        let mut missing: Vec<usize> = Vec::new();
        for (index, booking) in bookings.iter().enumerate() {
            let lost = booking.rounds.min(self.rounds.len() as u32).saturating_sub(counts[index]);
            missing.extend((0..lost).map(|_| index));
        }
        missing.sort_by_key(|index| (Reverse(bookings[*index].gpus), *index));
        for index in missing {
            let late = (0..self.rounds.len()).rev();
            let found = late.into_iter().find_map(|round| {
                let moves = self.room_for(index, round, bookings, gpus)?;
                Some((round, moves))
            });
            let Some((round, moves)) = found else { continue };
            for (other, to) in moves {
                self.rounds[round].retain(|one| *one != other);
                self.rounds[to].push(other);
            }
            self.rounds[round].push(index);
        }
    }

    /// Which job would have to move to which round, so that a job finds room in a round; nothing if that cannot be.
    fn room_for(
        &self,
        index: usize,
        round: usize,
        bookings: &[Booking],
        gpus: u32,
    ) -> Option<Vec<(usize, usize)>> {
        if self.rounds[round].contains(&index) {
            return None;
        }
        let mut free: Vec<u32> =
            self.rounds.iter().map(|round| gpus - used(round, bookings)).collect();
        let mut moves = Vec::new();
        // The last of a round are the least urgent.
        for &other in self.rounds[round].iter().rev() {
            if free[round] >= bookings[index].gpus {
                break;
            }
            let size = bookings[other].gpus;
            let fits = |to: &usize| {
                *to != round && free[*to] >= size && !self.rounds[*to].contains(&other)
            };
            if let Some(to) = (0..self.rounds.len()).rev().find(fits) {
                free[to] -= size;
                free[round] += size;
                moves.push((other, to));
            }
        }
        (free[round] >= bookings[index].gpus).then_some(moves)
    }
}

/// Of jobs in order of their weight, puts those that run before others of the same weight.
fn running_first(queue: &mut [usize], weight: &[f64], runs: &[bool]) {
    for alike in queue.chunk_by_mut(|a, b| weight[*a].total_cmp(&weight[*b]).is_eq()) {
        if alike.len() > 1 {
            alike.sort_by_key(|index| !runs[*index]);
        }
    }
}

fn used(round: &[usize], bookings: &[Booking]) -> u32 {
    round.iter().map(|index| bookings[*index].gpus).sum()
}

#[cfg(test)]
mod tests {
    use super::super::welfare::Candidate;
    use super::*;
    use proptest::prelude::*;

    fn booking(gpus: u32, rounds: u32, urgency: f64) -> Booking {
        Booking { gpus, rounds, urgency, runs: false }
    }

    #[test]
    fn urgent_jobs_come_early_and_nobody_who_needs_every_round_waits() {
        let bookings = [booking(1, 2, 1.0), booking(1, 1, 9.0), booking(1, 3, 1.0)];
        let calendar = Calendar::new(&bookings, 2, 3);
        assert_eq!(calendar.rounds, [vec![2, 1], vec![0, 2], vec![0, 2]]);
    }

    #[test]
    fn what_suffices_in_sum_may_still_not_be_packed() {
        let bookings = [booking(8, 1, 1.0), booking(4, 2, 1.0)];
        let calendar = Calendar::new(&bookings, 8, 2);
        assert_eq!(calendar.lost(&bookings), 4);
    }

    #[test]
    fn whoever_runs_goes_on_if_nothing_else_tells_them_apart() {
        let mut bookings = [booking(1, 1, 1.0); 3];
        bookings[2].runs = true;
        assert_eq!(Calendar::new(&bookings, 1, 3).rounds, [[2], [0], [1]]);
    }

    proptest! {
        #[test]
        fn no_round_is_overfull_and_nobody_gets_more_than_was_booked(
            gangs in prop::collection::vec((0u32..4, 0u32..7, 0.1..9.0f64), 0..12), gpus in 8u32..20,
        ) {
            let of = |(power, rounds, urgency): &(u32, u32, f64)| booking(1 << power, *rounds, *urgency);
            let bookings: Vec<Booking> = gangs.iter().map(of).collect();
            let mut calendar = Calendar::new(&bookings, gpus, 6);
            for (booking, count) in bookings.iter().zip(calendar.counts(bookings.len())) {
                prop_assert!(count <= booking.rounds);
            }
            let job = |booking: &Booking| Candidate {
                gpus: booking.gpus,
                weight: booking.urgency,
                done: 0.1,
                step: 0.2,
                left: 600.0,
                round: 120.0,
                least: 0,
            };
            let jobs = bookings.iter().map(job).collect();
            calendar.fit(&bookings, &Program { jobs, gpus, rounds: 6, k: 1e-3 });
            for round in &calendar.rounds {
                let mut once = round.clone();
                once.sort_unstable();
                once.dedup();
                prop_assert!(once.len() == round.len() && used(round, &bookings) <= gpus);
            }
        }

        #[test]
        fn gangs_of_one_size_are_always_packed_if_they_suffice_in_sum(
            rounds in prop::collection::vec(0u32..7, 1..12), gpus in 1u32..8,
        ) {
            let bookings: Vec<Booking> = rounds.iter().map(|count| booking(2, *count, 1.0)).collect();
            prop_assume!(rounds.iter().sum::<u32>() <= gpus * 6);
            prop_assert_eq!(Calendar::new(&bookings, 2 * gpus, 6).lost(&bookings), 0);
        }
    }
}
