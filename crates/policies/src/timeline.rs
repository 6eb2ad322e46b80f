//! How many GPUs of each type are expected to be free from when on.

use crate::prelude::*;

/// Steps in time for each type, in thousandths of GPUs; the last one holds for ever.
pub(crate) struct Timeline {
    now: Time,
    kinds: Vec<Vec<Step>>,
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
    /// From what is free now, by type, and what is freed when, in order of time.
    pub(crate) fn new(
        now: Time,
        free: &[u64],
        ends: impl Iterator<Item = (Time, GpuType, u64)>,
    ) -> Timeline {
        let mut kinds: Vec<Vec<Step>> =
            free.iter().map(|free| vec![Step { at: now, free: *free }]).collect();
        for (at, kind, more) in ends {
            let steps = &mut kinds[kind.index()];
            let last = steps.last_mut().expect("there is a step at now");
            if last.at == at {
                last.free += more;
            } else {
                let free = last.free + more;
                steps.push(Step { at, free });
            }
        }
        Timeline { now, kinds }
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = GpuType> + '_ {
        (0..self.kinds.len()).map(|kind| GpuType(kind as u8))
    }

    /// The next moment anything is expected to be freed.
    pub(crate) fn next_step(&self, now: Time) -> Option<Time> {
        let times = self.kinds.iter().filter_map(|steps| steps.iter().find(|step| step.at > now));
        times.map(|step| step.at).min()
    }

    /// For how long from now `need` is free; the longest span if for ever.
    pub(crate) fn room(&self, kind: GpuType, need: u64) -> Span {
        let steps = &self.kinds[kind.index()];
        match steps.iter().find(|step| step.free < need) {
            Some(step) => step.at.since(self.now),
            None => Span::MAX,
        }
    }

    /// The earliest moment at which a hole is open, over the types accepted.
    pub(crate) fn earliest(
        &self,
        hole: Hole,
        accepts: impl Fn(GpuType) -> bool,
    ) -> Option<(GpuType, Time)> {
        let kinds = self.kinds().filter(|kind| accepts(*kind));
        let starts = kinds.filter_map(|kind| Some((self.earliest_of(kind, hole)?, kind)));
        starts.min().map(|(at, kind)| (kind, at))
    }

    fn earliest_of(&self, kind: GpuType, hole: Hole) -> Option<Time> {
        let mut start: Option<Time> = None;
        for step in &self.kinds[kind.index()] {
            if let Some(from) = start
                && step.at >= from + hole.length
            {
                return start;
            }
            if step.free < hole.need {
                start = None;
            } else if start.is_none() && step.at > hole.after {
                start = Some(step.at);
            }
        }
        start
    }

    /// Takes room away from `at` on; as much as there is where less is expected.
    pub(crate) fn reserve(&mut self, kind: GpuType, at: Time, Room { need, length }: Room) {
        let end = at + length;
        let steps = &mut self.kinds[kind.index()];
        let first = cut(steps, at);
        let last = if end == Time::NEVER { steps.len() } else { cut(steps, end) };
        for step in &mut steps[first..last] {
            step.free = step.free.saturating_sub(need);
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

    const KIND: GpuType = GpuType(0);

    fn line() -> Timeline {
        // 1 GPU now, 3 at 10 s, 7 at 30 s.
        let at = |seconds| Time(Span::secs(seconds).0);
        Timeline::new(Time::ZERO, &[1], [(at(10), KIND, 2), (at(30), KIND, 4)].into_iter())
    }

    #[test]
    fn timeline_finds_the_first_hole_that_is_long_enough() {
        let mut line = line();
        let at = |seconds| Time(Span::secs(seconds).0);
        let find = |line: &Timeline, need, seconds| {
            let hole = Hole { after: Time::ZERO, need, length: Span::secs(seconds) };
            line.earliest(hole, |_| true).map(|(_, at)| at)
        };
        assert_eq!(find(&line, 3, 100), Some(at(10)));
        line.reserve(KIND, at(20), Room { need: 2, length: Span::secs(5) });
        assert_eq!(find(&line, 3, 10), Some(at(10)));
        assert_eq!(find(&line, 3, 11), Some(at(25)));
        assert_eq!(find(&line, 8, 1), None);
    }

    #[test]
    fn timeline_room_ends_where_a_reservation_begins() {
        let mut line = line();
        assert_eq!(line.room(KIND, 1), Span::MAX);
        line.reserve(KIND, Time(Span::secs(30).0), Room { need: 7, length: Span::MAX });
        assert_eq!(line.room(KIND, 1), Span::secs(30));
        assert_eq!(line.room(KIND, 2), Span::ZERO);
    }
}
