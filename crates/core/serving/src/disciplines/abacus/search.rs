//! Which queries, and how much of the last one, fit in the headroom.

use crate::discipline::Fleet;
use crate::request::ModelId;
use trainyard_types::Span;

/// Segments of one query in a group.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its model.
    pub model: ModelId,
    /// Its batch.
    pub batch: u32,
    /// Segments, the second excluded.
    pub segments: (u32, u32),
}

/// How long a group takes that runs at once.
pub trait Predictor {
    /// From the start of all to the end of the last.
    fn span(&self, group: &[Member]) -> Span;
}

/// Predicts by the latency tables and the measured slowdowns of pairs: each goes on at its own pace until it ends.
#[derive(Copy, Clone, Debug)]
pub struct Overlap<'a> {
    /// The tables.
    pub fleet: &'a Fleet,
}

impl Predictor for Overlap<'_> {
    /// O(n^3) for a group of n.
    fn span(&self, group: &[Member]) -> Span {
        let mut left: Vec<(Member, f64)> = (group.iter())
            .map(|one| {
                let model = self.fleet.model(one.model);
                let part = one.segments.1 - one.segments.0;
                let share = f64::from(part) / f64::from(model.segments);
                let launch = if part < model.segments { self.fleet.launch.0 as f64 } else { 0.0 };
                (*one, model.micros(one.batch) * share + launch)
            })
            .collect();
        let mut passed = 0.0;
        while !left.is_empty() {
            let name = |member: &Member| (member.model.0, member.batch);
            let slow: Vec<f64> = (0..left.len())
                .map(|at| {
                    let others = left.iter().enumerate().filter(|(other, _)| *other != at);
                    let others = others.map(|(_, (member, _))| name(member));
                    self.fleet.slowdowns.beside(name(&left[at].0), others)
                })
                .collect();
            let next = left.iter().zip(&slow).map(|((_, micros), slow)| micros * slow);
            let next = next.fold(f64::INFINITY, f64::min);
            passed += next;
            for ((_, micros), slow) in left.iter_mut().zip(&slow) {
                *micros -= next / slow;
            }
            left.retain(|(_, micros)| *micros > 1e-6);
        }
        Span((passed + 0.5) as u64)
    }
}

/// The group: the most urgent query whole, then others in order of urgency as long as all end within the slack, and of
/// the first that does not fit as many segments as do, found by trying `ways` places at a time.
///
/// At most n + log(segments) / log(ways + 1) predictions.
pub fn search(
    wanted: &[Member],
    slack: Span,
    predictor: &dyn Predictor,
    ways: u32,
    threshold: Span,
) -> Vec<Member> {
    let fits = |count: usize| predictor.span(&wanted[..count]) <= slack;
    // The most urgent runs in any case: it has headroom alone.
    let most = (1..=wanted.len()).take_while(|count| *count == 1 || fits(*count)).last();
    let mut group = wanted[..most.unwrap_or(0)].to_vec();
    let Some(next) = wanted.get(group.len()) else { return group };
    let (start, end) = next.segments;
    // `low` fits, `high` does not.
    let (mut low, mut high) = (start, end);
    while high - low > 1 {
        let step = (high - low).div_ceil(ways + 1).max(1);
        let mut changed = false;
        for probe in (low + step..high).step_by(step as usize) {
            group.push(Member { segments: (start, probe), ..*next });
            let span = predictor.span(&group);
            group.pop();
            if span > slack {
                high = probe;
                changed = true;
                break;
            }
            low = probe;
            changed = true;
            if slack.minus(span) <= threshold {
                // Headroom between nothing and the threshold is good enough.
                high = low + 1;
                break;
            }
        }
        if !changed {
            break;
        }
    }
    if low > start {
        group.push(Member { segments: (start, low), ..*next });
    }
    group
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One microsecond a segment, one after the other.
    struct Sum;
    impl Predictor for Sum {
        fn span(&self, group: &[Member]) -> Span {
            Span(group.iter().map(|one| u64::from(one.segments.1 - one.segments.0)).sum())
        }
    }

    #[test]
    fn the_last_query_gets_as_many_segments_as_fit_for_any_number_of_ways() {
        let member = |model, end| Member { model: ModelId(model), batch: 1, segments: (0, end) };
        let wanted = [member(0, 10), member(1, 20), member(2, 52), member(3, 5)];
        for ways in 1..8 {
            for slack in 10..=87u64 {
                let group = search(&wanted, Span(slack), &Sum, ways, Span::ZERO);
                // Best by hand: whole queries in order, then a part of the first that does not fit.
                let (mut left, mut expected) = (slack, Vec::new());
                for one in wanted {
                    let taken = u64::from(one.segments.1).min(left) as u32;
                    if taken > 0 {
                        expected.push(Member { segments: (0, taken), ..one });
                    }
                    left -= u64::from(taken);
                    if taken < one.segments.1 {
                        break;
                    }
                }
                assert_eq!(group, expected, "{ways} ways, slack {slack}");
            }
        }
    }
}
