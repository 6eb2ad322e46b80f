//! Squishy bin packing: rates of sessions on as few GPUs as a greedy rule finds (section 6.1).

use crate::latency::Model;
use trainyard_types::Span;

/// A model with a rate and a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Requests a second.
    pub rate: f64,
    /// From arrival to answer, in microseconds.
    pub slo_us: f64,
    /// What happens before and after the GPU and on the way, in microseconds.
    pub around_us: f64,
    /// The latency of each batch from 1 on, in microseconds, with its standard deviation.
    pub latencies: Vec<(f64, f64)>,
}

/// What a session has of a GPU.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Part {
    /// Its place in the list.
    pub session: usize,
    /// Its batch in a cycle.
    pub batch: u32,
    /// The rate that is served here.
    pub rate: f64,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The length of a cycle in microseconds.
    pub duty_us: f64,
    /// The part of it in which the GPU works.
    pub occupancy: f64,
    /// The sessions.
    pub parts: Vec<Part>,
}

impl Session {
    /// A session of a model with a latency table.
    pub fn of(model: &Model, rate: f64, slo: Span) -> Session {
        let latencies = (1..=model.batch_max()).map(|batch| (model.micros(batch), 0.0)).collect();
        Session { rate, slo_us: slo.0 as f64, around_us: 0.0, latencies }
    }

    fn latency(&self, batch: u32) -> f64 {
        self.latencies[batch as usize - 1].0
    }

    fn batches(&self) -> impl DoubleEndedIterator<Item = u32> + use<> {
        1..=self.latencies.len() as u32
    }

    /// B: the largest batch with l(B) + std within half of what the target leaves; a request waits for one batch and
    /// runs in the next.
    pub fn batch_alone(&self) -> Option<u32> {
        let half = (self.slo_us - self.around_us) / 2.0;
        let fits = |batch: &u32| {
            let (mean, deviation) = self.latencies[*batch as usize - 1];
            mean + deviation <= half
        };
        self.batches().rev().find(fits)
    }

    /// The largest batch that a rate fills in time: (b - 1) / r + l(b) and what is around it within the target.
    pub fn batch_shared(&self, rate: f64) -> Option<u32> {
        let fits = |batch: &u32| {
            let gathered = f64::from(*batch - 1) / rate * 1e6;
            gathered + self.latency(*batch) + self.around_us <= self.slo_us
        };
        self.batches().rev().find(fits)
    }

    /// Requests a second of a GPU that this session has alone.
    pub fn throughput(&self) -> Option<f64> {
        self.batch_alone().map(|batch| f64::from(batch) * 1e6 / self.latency(batch))
    }
}

/// Plans GPUs; a session whose target no batch of one meets is left out.
///
/// O(n log n + n^2) for n sessions, times what a GPU holds, after O(batches) for each.
pub fn pack(sessions: &[Session]) -> Vec<Plan> {
    let mut plans = Vec::new();
    let mut residual = Vec::new();
    for (at, session) in sessions.iter().enumerate() {
        let (Some(batch), Some(most)) = (session.batch_alone(), session.throughput()) else {
            continue;
        };
        let whole = libm::floor(session.rate / most) as usize;
        let part = Part { session: at, batch, rate: most };
        let full = Plan { duty_us: session.latency(batch), occupancy: 1.0, parts: vec![part] };
        plans.extend(std::iter::repeat_n(full, whole));
        let rate = session.rate - whole as f64 * most;
        if rate <= 1e-9 {
            continue;
        }
        let Some(batch) = session.batch_shared(rate) else { continue };
        // A cycle gathers a batch, and ends early enough for a request that waited all of it: where the rate is so low
        // that a batch of one needs longer, some cycles find nothing to run.
        let room = session.slo_us - session.around_us - session.latency(batch);
        let duty_us = (f64::from(batch) * 1e6 / rate).min(room.max(session.latency(batch)));
        let part = Part { session: at, batch, rate };
        // A cycle is never shorter than its work: with a single request in it the rate may ask for that.
        let occupancy = (session.latency(batch) / duty_us).min(1.0);
        residual.push(Plan { duty_us, occupancy, parts: vec![part] });
    }
    // Best fit, the fullest first; ties by the place of the session.
    residual.sort_by(|a, b| {
        b.occupancy.total_cmp(&a.occupancy).then(a.parts[0].session.cmp(&b.parts[0].session))
    });
    let mut shared: Vec<Plan> = Vec::new();
    for one in residual {
        let merged = shared.iter().enumerate().filter_map(|(at, plan)| {
            let merged = merge(plan, &one, sessions)?;
            Some((merged.occupancy, at, merged))
        });
        match merged.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))) {
            Some((_, at, merged)) => shared[at] = merged,
            None => shared.push(one),
        }
    }
    plans.append(&mut shared);
    plans
}

/// Two GPUs as one: the shorter cycle, batches by what comes in it, if all of them run within it.
fn merge(one: &Plan, other: &Plan, sessions: &[Session]) -> Option<Plan> {
    let duty_us = one.duty_us.min(other.duty_us);
    let mut parts = Vec::with_capacity(one.parts.len() + other.parts.len());
    let mut work = 0.0;
    for part in one.parts.iter().chain(&other.parts) {
        let session = &sessions[part.session];
        let batch = (libm::ceil(duty_us * part.rate / 1e6 - 1e-9) as u32).max(1);
        if batch as usize > session.latencies.len() {
            return None;
        }
        work += session.latency(batch);
        // A request waits for a cycle at most and runs in the next.
        if duty_us + session.latency(batch) + session.around_us > session.slo_us {
            return None;
        }
        parts.push(Part { batch, ..*part });
    }
    (work <= duty_us).then(|| Plan { duty_us, occupancy: work / duty_us, parts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(rate: f64, slo_us: f64, (fixed, each): (f64, f64)) -> Session {
        let latencies = (1..=64).map(|batch| (fixed + each * f64::from(batch), 0.0)).collect();
        Session { rate, slo_us, around_us: 0.0, latencies }
    }

    #[test]
    fn the_papers_example_of_three_models_takes_two_gpus() {
        // Table 2 of the paper: latencies in milliseconds of batches 4, 8 and 16.
        let table = |points: [f64; 3]| -> Vec<(f64, f64)> {
            let at = |batch: u32| match batch {
                0..=4 => points[0],
                5..=8 => points[0] + (points[1] - points[0]) * f64::from(batch - 4) / 4.0,
                _ => points[1] + (points[2] - points[1]) * f64::from(batch - 8) / 8.0,
            };
            (1..=16).map(|batch| (1e3 * at(batch), 0.0)).collect()
        };
        let session = |rate, slo: f64, points| Session {
            rate,
            slo_us: slo * 1e3,
            around_us: 0.0,
            latencies: table(points),
        };
        let sessions = [
            session(64.0, 200.0, [50.0, 75.0, 100.0]),
            session(32.0, 250.0, [50.0, 90.0, 125.0]),
            session(32.0, 250.0, [60.0, 95.0, 125.0]),
        ];
        let plans = pack(&sessions);
        // A and B share a GPU with a cycle of 125 ms and batches of 8 and 4; C has another.
        assert_eq!(plans.len(), 2, "{plans:?}");
        let shared = &plans[0];
        let pairs: Vec<(usize, u32)> =
            shared.parts.iter().map(|one| (one.session, one.batch)).collect();
        assert_eq!((pairs, shared.duty_us), (vec![(0, 8), (1, 4)], 125e3), "{plans:?}");
    }

    #[test]
    fn no_plan_promises_what_its_cycle_does_not_hold() {
        let sessions: Vec<Session> = (1..40)
            .map(|at| line(f64::from(at * 7), 20e3 + f64::from(at) * 1e3, (900.0, 150.0)))
            .collect();
        let plans = pack(&sessions);
        let mut served = vec![0.0; sessions.len()];
        for plan in &plans {
            let latency = |part: &Part| sessions[part.session].latency(part.batch);
            let work: f64 = plan.parts.iter().map(latency).sum();
            assert!(work <= plan.duty_us + 1e-6, "{plan:?}");
            for part in &plan.parts {
                served[part.session] += part.rate;
                let slo = sessions[part.session].slo_us;
                assert!(
                    plan.duty_us + latency(part) <= slo + 1e-6 || plan.parts.len() == 1,
                    "{plan:?}"
                );
            }
        }
        for (served, session) in served.iter().zip(&sessions) {
            assert!((served - session.rate).abs() < 1e-6, "{served} of {}", session.rate);
        }
    }

    #[test]
    fn a_target_that_one_request_misses_is_left_out() {
        assert!(pack(&[line(5.0, 1000.0, (900.0, 150.0))]).is_empty());
    }
}
