//! All plans of one to three stages, bounded by the best found so far.

use super::instance::{Instance, Placed};
use super::program::{PLACEMENTS, after, place};

/// Stages of a plan.
const STAGES_MAX: usize = 3;
/// Plans of each number of stages that are kept for the simulation.
const KEPT: usize = 4;
/// Plans that are rated; what is left then is not looked at, and the best so far stand.
pub const EVALUATIONS_MAX: u64 = 400_000;

/// The best plans of each number of stages up to three by the formula of the paper, best first.
///
/// The formula and the simulation differ by more than plans of two and of three stages do, so both are handed on. Exact for that formula while no more than `EVALUATIONS_MAX` plans are rated: a partial plan is left where even an
/// even spread of the rest could not beat the worst of those kept.
pub fn exhaustive(instance: &Instance<'_>) -> Vec<Vec<Placed>> {
    let mut search = Search { instance, kept: Vec::new(), evaluations: 0 };
    let (mut stages, mut all) = (Vec::new(), Vec::new());
    for count in 1..=STAGES_MAX {
        search.extend(&mut stages, &vec![0; instance.machines.len()], count);
        all.extend(std::mem::take(&mut search.kept).into_iter().map(|(_, stages)| stages));
    }
    all
}

struct Search<'a, 'b> {
    instance: &'a Instance<'b>,
    kept: Vec<(f64, Vec<Placed>)>,
    evaluations: u64,
}

impl Search<'_, '_> {
    /// Adds a stage in every way, so that exactly `count` more make the plan whole.
    fn extend(&mut self, stages: &mut Vec<Placed>, used: &[usize], count: usize) {
        let all = self.instance.devices.devices.len();
        let left = all - used.iter().sum::<usize>();
        let planned = stages.last().map_or(0, |stage| stage.to);
        let layers = self.instance.layers();
        if left < count || layers - planned < count || self.evaluations >= EVALUATIONS_MAX {
            return;
        }
        let widths = if count == 1 { left..left + 1 } else { 1..left - count + 2 };
        for width in widths {
            let mut seen: Vec<Vec<usize>> = Vec::new();
            for placement in PLACEMENTS {
                let Some(devices) = place(self.instance, used, width, placement) else { continue };
                if seen.contains(&devices) {
                    continue;
                }
                seen.push(devices.clone());
                let used = after(self.instance, used, &devices);
                let ends =
                    if count == 1 { layers..layers + 1 } else { planned + 1..layers - count + 2 };
                for to in ends {
                    stages.push(Placed { from: planned, to, devices: devices.clone() });
                    match count {
                        1 => self.rate(stages),
                        _ if self.could_win(stages) => self.extend(stages, &used, count - 1),
                        _ => {}
                    }
                    stages.pop();
                }
            }
        }
    }

    /// Every sample passes every stage, so none can take longer than the best plan has in all.
    fn could_win(&self, stages: &[Placed]) -> bool {
        let Some((worst, _)) = self.kept.get(KEPT - 1) else { return true };
        let own = stages.iter().map(|stage| {
            let (forward, backward) = self.instance.stage(stage);
            forward + backward
        });
        let taken: Vec<usize> = stages.iter().flat_map(|stage| stage.devices.clone()).collect();
        let all: Vec<usize> = (0..self.instance.devices.devices.len()).collect();
        let speed = self.instance.speed(&all) - self.instance.speed(&taken);
        let planned = stages.last().map_or(0, |stage| stage.to);
        let rest = self.instance.work(planned, self.instance.layers()) / speed;
        f64::from(self.instance.batch) * own.fold(rest, f64::max) < *worst
    }

    fn rate(&mut self, stages: &[Placed]) {
        self.evaluations += 1;
        if !self.could_win(&stages[..stages.len() - 1]) {
            return;
        }
        let latency = self.instance.latency(stages);
        let at = self.kept.partition_point(|(other, _)| *other <= latency);
        if at < KEPT && latency.is_finite() {
            self.kept.insert(at, (latency, stages.to_vec()));
            self.kept.truncate(KEPT);
        }
    }
}
