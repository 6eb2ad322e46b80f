//! How many GPUs of each type are expected to be free from when on.
//!
//! The timeline is lazy: it holds the moments up to a horizon and looks at later ends only where a question needs them.
//! Behind the horizon nothing begins and jobs only end, so that what is free there never falls again: a question that
//! is answered at the horizon is answered for good.

use crate::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Ends that are expected, in order of time.
pub(crate) trait Coming {
    /// When the next one is.
    fn next_at(&mut self) -> Option<Time>;

    /// Takes the next one: how much becomes free of which type.
    fn take_next(&mut self, freed: &mut dyn FnMut(GpuType, u64));
}

/// Steps in time for each type, in thousandths of GPUs; the last one holds for ever, or until the horizon moves.
pub(crate) struct Timeline {
    now: Time,
    kinds: Vec<Line>,
    /// All that happens up to here is in the steps.
    horizon: Time,
    /// Where reservations end behind the horizon, and what each gives back.
    later: BinaryHeap<Reverse<(Time, GpuType, u64)>>,
}

/// The steps of one type.
struct Line {
    steps: Vec<Step>,
    /// What would be free at the horizon without reservations.
    unreserved: u64,
    /// What reservations that reach behind the horizon take away.
    taken: u64,
    /// Holes that were found: none that needs as much for as long is open earlier. Only those of which no other one
    /// says as much.
    found: Vec<(Hole, Time)>,
}

#[derive(Copy, Clone, Debug, PartialEq)]
struct Step {
    at: Time,
    free: u64,
}

/// So many thousandths of GPUs, for so long.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Room {
    pub(crate) need: u64,
    pub(crate) length: Span,
}

/// Room that is looked for, later than a moment.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Hole {
    pub(crate) after: Time,
    pub(crate) need: u64,
    pub(crate) length: Span,
}

impl Timeline {
    /// From what is free now, by type.
    pub(crate) fn new(now: Time, free: &[u64]) -> Timeline {
        let line = |free: &u64| Line {
            steps: vec![Step { at: now, free: *free }],
            unreserved: *free,
            taken: 0,
            found: Vec::new(),
        };
        let kinds = free.iter().map(line).collect();
        Timeline { now, kinds, horizon: now, later: BinaryHeap::new() }
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = GpuType> + '_ {
        (0..self.kinds.len()).map(|kind| GpuType(kind as u8))
    }

    /// For how long from now `need` is free; the longest span if for ever.
    pub(crate) fn room(&self, kind: GpuType, need: u64) -> Span {
        let steps = &self.kinds[kind.index()].steps;
        match steps.iter().find(|step| step.free < need) {
            Some(step) => step.at.since(self.now),
            None => Span::MAX,
        }
    }

    /// The earliest moment at which a hole is open, over the types accepted.
    pub(crate) fn earliest(
        &mut self,
        hole: Hole,
        accepts: impl Fn(GpuType) -> bool,
        coming: &mut dyn Coming,
    ) -> Option<(GpuType, Time)> {
        let mut first: Option<(Time, GpuType)> = None;
        for kind in (0..self.kinds.len()).map(|kind| GpuType(kind as u8)) {
            if accepts(kind)
                && let Some(at) = self.earliest_of(kind, hole, coming)
            {
                first = Some(first.map_or((at, kind), |first| first.min((at, kind))));
            }
        }
        first.map(|(at, kind)| (kind, at))
    }

    fn earliest_of(&mut self, kind: GpuType, hole: Hole, coming: &mut dyn Coming) -> Option<Time> {
        let mut start: Option<Time> = None;
        // Where a hole that begins at the start ends.
        let mut until = Time::ZERO;
        let mut seen = self.kinds[kind.index()].begin(hole);
        loop {
            for step in &self.kinds[kind.index()].steps[seen..] {
                if start.is_some() && step.at >= until {
                    break;
                }
                if step.free < hole.need {
                    start = None;
                } else if start.is_none() && step.at > hole.after {
                    start = Some(step.at);
                    until = step.at + hole.length;
                }
            }
            seen = self.kinds[kind.index()].steps.len();
            if start.is_some() || !self.look_further(coming) {
                break;
            }
        }
        self.kinds[kind.index()].keep(hole, start);
        start
    }

    /// Takes room away from `at` on, which is now or a moment that was found; as much as there is where less is
    /// expected.
    pub(crate) fn reserve(&mut self, kind: GpuType, at: Time, Room { need, length }: Room) {
        let end = at + length;
        let line = &mut self.kinds[kind.index()];
        let first = cut(&mut line.steps, at);
        let last = if end > self.horizon { line.steps.len() } else { cut(&mut line.steps, end) };
        for step in &mut line.steps[first..last] {
            step.free = step.free.saturating_sub(need);
        }
        if end > self.horizon {
            line.taken += need;
            if end < Time::NEVER {
                self.later.push(Reverse((end, kind, need)));
            }
        }
    }

    /// Moves the horizon to the next moment at which anything ends; false if nothing does.
    fn look_further(&mut self, coming: &mut dyn Coming) -> bool {
        let reserved = self.later.peek().map(|Reverse((at, _, _))| *at);
        let Some(at) = [coming.next_at(), reserved].into_iter().flatten().min() else {
            return false;
        };
        self.horizon = at;
        while let Some(&Reverse((end, kind, need))) = self.later.peek()
            && end == at
        {
            self.later.pop();
            let line = &mut self.kinds[kind.index()];
            line.taken -= need;
            line.step(at);
        }
        while coming.next_at() == Some(at) {
            coming.take_next(&mut |kind, more| {
                let line = &mut self.kinds[kind.index()];
                line.unreserved += more;
                line.step(at);
            });
        }
        true
    }
}

impl Hole {
    /// Whether room for another hole is room for this one.
    fn is_within(&self, other: &Hole) -> bool {
        self.need <= other.need && self.length <= other.length && self.after <= other.after
    }
}

impl Line {
    /// The first step at which a hole may be open, by what was found before: reservations only take room away.
    fn begin(&self, hole: Hole) -> usize {
        let smaller = self.found.iter().filter(|(other, _)| other.is_within(&hole));
        let found = smaller.map(|(_, at)| *at).max();
        found.map_or(0, |at| self.steps.partition_point(|step| step.at < at))
    }

    /// Keeps where a hole was found, if there is too little now: a hole that is open now and may begin only later could
    /// be found earlier, at the end of a reservation that is made meanwhile.
    fn keep(&mut self, hole: Hole, start: Option<Time>) {
        let too_little = self.steps.first().is_some_and(|now| now.free < hole.need);
        if let Some(start) = start.filter(|_| too_little) {
            let says_less = |(other, at): &(Hole, Time)| hole.is_within(other) && *at <= start;
            self.found.retain(|other| !says_less(other));
            self.found.push((hole, start));
        }
    }

    /// There is a step at the horizon, and what is free there is counted.
    fn step(&mut self, at: Time) {
        let free = self.unreserved.saturating_sub(self.taken);
        match self.steps.last_mut() {
            Some(last) if last.at == at => last.free = free,
            _ => self.steps.push(Step { at, free }),
        }
    }
}

/// The index of the step that begins at `at`, made if there is none.
fn cut(steps: &mut Vec<Step>, at: Time) -> usize {
    let index = steps.partition_point(|step| step.at < at);
    if steps.get(index).is_none_or(|step| step.at != at) {
        // Nothing begins before the first step.
        let free = steps[index.max(1) - 1].free;
        steps.insert(index, Step { at, free });
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const KIND: GpuType = GpuType(0);

    impl Coming for VecDeque<(Time, u64)> {
        fn next_at(&mut self) -> Option<Time> {
            self.front().map(|(at, _)| *at)
        }

        fn take_next(&mut self, freed: &mut dyn FnMut(GpuType, u64)) {
            if let Some((_, more)) = self.pop_front() {
                freed(KIND, more);
            }
        }
    }

    fn at(seconds: u64) -> Time {
        Time(Span::secs(seconds).0)
    }

    /// 1 GPU now, 3 at 10 s, 7 at 30 s.
    fn line() -> (Timeline, VecDeque<(Time, u64)>) {
        (Timeline::new(Time::ZERO, &[1]), VecDeque::from([(at(10), 2), (at(30), 4)]))
    }

    #[test]
    fn timeline_finds_the_first_hole_that_is_long_enough() {
        let (mut line, mut ends) = line();
        let mut find = |line: &mut Timeline, need, seconds| {
            let hole = Hole { after: Time::ZERO, need, length: Span::secs(seconds) };
            line.earliest(hole, |_| true, &mut ends).map(|(_, at)| at)
        };
        assert_eq!(find(&mut line, 3, 100), Some(at(10)));
        assert_eq!(find(&mut line, 7, 1), Some(at(30)));
        line.reserve(KIND, at(20), Room { need: 2, length: Span::secs(5) });
        assert_eq!(find(&mut line, 3, 10), Some(at(10)));
        assert_eq!(find(&mut line, 3, 11), Some(at(25)));
        assert_eq!(find(&mut line, 8, 1), None);
    }

    #[test]
    fn timeline_room_ends_where_a_reservation_begins() {
        let (mut line, mut ends) = line();
        assert_eq!(line.room(KIND, 1), Span::MAX);
        let hole = Hole { after: Time::ZERO, need: 7, length: Span::MAX };
        assert_eq!(line.earliest(hole, |_| true, &mut ends), Some((KIND, at(30))));
        line.reserve(KIND, at(30), Room { need: 7, length: Span::MAX });
        assert_eq!(line.room(KIND, 1), Span::secs(30));
        assert_eq!(line.room(KIND, 2), Span::ZERO);
    }

    #[test]
    fn timeline_does_not_look_at_ends_that_no_question_needs() {
        let (mut line, mut ends) = line();
        let hole = Hole { after: Time::ZERO, need: 3, length: Span::secs(1000) };
        assert_eq!(line.earliest(hole, |_| true, &mut ends), Some((KIND, at(10))));
        assert_eq!(ends.len(), 1);
        // A reservation that ends behind what was looked at is over when it should be.
        line.reserve(KIND, at(10), Room { need: 3, length: Span::secs(10) });
        let hole = Hole { after: Time::ZERO, need: 2, length: Span::secs(1) };
        assert_eq!(line.earliest(hole, |_| true, &mut ends), Some((KIND, at(20))));
        assert_eq!(ends.len(), 1);
    }

    /// The same questions to a timeline that looks at everything at once.
    #[test]
    fn a_lazy_timeline_answers_as_one_that_looks_at_all_ends_first() {
        let mut seed = 7u64;
        let mut draw = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let mut ends: Vec<(Time, u64)> = (0..20).map(|_| (at(1 + draw(60)), draw(4))).collect();
            ends.sort_unstable();
            let mut lazy = Timeline::new(Time::ZERO, &[2]);
            let mut whole = Timeline::new(Time::ZERO, &[2]);
            let (mut left, mut none) = (VecDeque::from(ends.clone()), VecDeque::from(ends));
            while whole.look_further(&mut none) {}
            for _ in 0..30 {
                let (need, length) = (1 + draw(12), Span::secs(1 + draw(30)));
                let hole = Hole { after: Time::ZERO, need, length };
                let found = lazy.earliest(hole, |_| true, &mut left);
                assert_eq!(found, whole.earliest(hole, |_| true, &mut none));
                assert_eq!(lazy.room(KIND, need), whole.room(KIND, need));
                let start = if draw(4) == 0 { Some(Time::ZERO) } else { found.map(|(_, at)| at) };
                let length = if draw(9) == 0 { Span::MAX } else { length };
                if let Some(start) = start {
                    lazy.reserve(KIND, start, Room { need, length });
                    whole.reserve(KIND, start, Room { need, length });
                }
            }
        }
    }
}
