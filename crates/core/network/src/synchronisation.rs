//! Seven ways to keep the workers of data-parallel training in step (Ko and others, IPDPS 2021).
//!
//! Workers take gradient steps on a shared quadratic problem of which each sees another part, with noise; messages take
//! time on the link of a server or of a worker. A run says how fast iterations go, how stale what they use is, and how
//! far from the best the model ends. It is a proxy for accuracy, not a network.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A way.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Synchronisation {
    /// BSP: a server averages the gradients of all, and all wait for it.
    Bsp,
    /// ASP: a server applies each gradient as it comes.
    Asp,
    /// SSP: as ASP, but no worker is more than so many iterations ahead of the slowest.
    Ssp {
        /// Iterations ahead at most.
        bound: u64,
    },
    /// EASGD: workers go on alone and are pulled to a centre now and then, and it to them.
    Easgd {
        /// Iterations between two pulls.
        every: u64,
        /// How hard the pull is.
        pull: f64,
    },
    /// AR-SGD: an all-reduce of gradients, without a server.
    AllReduce,
    /// GoSGD: now and then half of a worker's weight goes to another, with its model.
    Gossip {
        /// In how many of a thousand iterations.
        permille: u64,
    },
    /// AD-PSGD: a worker averages its model with another's while it computes.
    AdPsgd,
}

/// Where a way stands on the four axes of the study.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Axes {
    /// Whether a server holds the model.
    pub central: bool,
    /// Whether workers wait for each other in each iteration.
    pub synchronous: bool,
    /// Whether there is an exchange in each iteration.
    pub every_iteration: bool,
    /// Whether models are exchanged, or gradients.
    pub exchanges_models: bool,
}

/// Workers, problem and network.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Seconds of an iteration of each worker.
    pub seconds: Vec<f64>,
    /// By how much iterations vary, as a part.
    pub jitter: f64,
    /// Seconds that a model or a gradient is on a link.
    pub message: f64,
    /// Numbers in the model.
    pub dimension: usize,
    /// Step size.
    pub step: f64,
    /// Standard deviation of gradients.
    pub noise: f64,
    /// How far the best of each worker's part is from the best of all.
    pub spread: f64,
    /// Gradient steps of all workers together.
    pub steps: u64,
}

/// What came of a run.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct SyncRun {
    /// Iterations of all workers per second.
    pub iterations_per_second: f64,
    /// Updates that others made between a worker's reading of the model and its own update, on the mean.
    pub staleness: f64,
    /// Half the weighted squared distance from the best at the end, the mean over the second half.
    pub loss: f64,
    /// The busiest link's part of the time.
    pub busiest_link: f64,
}

impl Synchronisation {
    /// The seven with usual settings.
    pub const ALL: [(&'static str, Synchronisation); 7] = [
        ("bsp", Synchronisation::Bsp),
        ("asp", Synchronisation::Asp),
        ("ssp", Synchronisation::Ssp { bound: 3 }),
        ("easgd", Synchronisation::Easgd { every: 8, pull: 0.1 }),
        ("ar-sgd", Synchronisation::AllReduce),
        ("gosgd", Synchronisation::Gossip { permille: 100 }),
        ("ad-psgd", Synchronisation::AdPsgd),
    ];

    /// Where it stands.
    pub fn axes(self) -> Axes {
        let (central, synchronous, every_iteration, exchanges_models) = match self {
            Synchronisation::Bsp => (true, true, true, false),
            Synchronisation::Asp | Synchronisation::Ssp { .. } => (true, false, true, false),
            Synchronisation::Easgd { .. } => (true, false, false, true),
            Synchronisation::AllReduce => (false, true, true, false),
            Synchronisation::Gossip { .. } => (false, false, false, true),
            Synchronisation::AdPsgd => (false, false, true, true),
        };
        Axes { central, synchronous, every_iteration, exchanges_models }
    }
}

/// Trains and looks.
pub fn train(way: Synchronisation, setting: &Setting, seed: u64) -> SyncRun {
    let mut run = Run::new(setting, seed);
    let end = if way.axes().synchronous { run.in_step(way) } else { run.on_their_own(way) };
    let read = run.updates.max(1) as f64;
    SyncRun {
        iterations_per_second: setting.steps as f64 / end,
        staleness: run.stale as f64 / read,
        loss: run.tail.0 / run.tail.1.max(1.0),
        busiest_link: (run.link_time / end).min(1.0),
    }
}

struct Run<'a> {
    setting: &'a Setting,
    rng: ChaCha12Rng,
    /// Curvature of each direction.
    curvature: Vec<f64>,
    /// The best of each worker's part; they sum up to 0, the best of all.
    best: Vec<Vec<f64>>,
    models: Vec<Vec<f64>>,
    server: Vec<f64>,
    done: u64,
    stale: u64,
    updates: u64,
    /// Sum and number of the losses of the second half.
    tail: (f64, f64),
    link_time: f64,
}

impl<'a> Run<'a> {
    fn new(setting: &'a Setting, seed: u64) -> Run<'a> {
        let (count, dimension) = (setting.seconds.len(), setting.dimension);
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut best: Vec<Vec<f64>> = (0..count)
            .map(|_| (0..dimension).map(|_| setting.spread * normal(&mut rng)).collect())
            .collect();
        for at in 0..dimension {
            let mean = best.iter().map(|one| one[at]).sum::<f64>() / count as f64;
            best.iter_mut().for_each(|one| one[at] -= mean);
        }
        let curvature = (0..dimension).map(|at| 1.0 / (1.0 + 9.0 * at as f64 / dimension as f64));
        Run {
            setting,
            rng,
            curvature: curvature.collect(),
            best,
            models: vec![vec![1.0; dimension]; count],
            server: vec![1.0; dimension],
            done: 0,
            stale: 0,
            updates: 0,
            tail: (0.0, 0.0),
            link_time: 0.0,
        }
    }

    fn gradient(&mut self, worker: usize, model: &[f64]) -> Vec<f64> {
        let mut gradient = Vec::with_capacity(model.len());
        for (at, value) in model.iter().enumerate() {
            let slope = self.curvature[at] * (value - self.best[worker][at]);
            gradient.push(slope + self.setting.noise * normal(&mut self.rng));
        }
        gradient
    }

    fn seconds(&mut self, worker: usize) -> f64 {
        let part = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        self.setting.seconds[worker] * (1.0 + self.setting.jitter * (2.0 * part - 1.0))
    }

    fn look(&mut self, model: &[f64]) {
        if self.done * 2 >= self.setting.steps {
            let loss = model.iter().zip(&self.curvature).map(|(w, h)| 0.5 * h * w * w);
            self.tail = (self.tail.0 + loss.sum::<f64>(), self.tail.1 + 1.0);
        }
    }

    /// All workers together; returns the seconds taken.
    fn in_step(&mut self, way: Synchronisation) -> f64 {
        let count = self.setting.seconds.len();
        let n = count as f64;
        // A server's link takes a gradient from each and gives the model back; a ring sends 2 (n - 1) / n of one.
        let exchange = match way {
            Synchronisation::Bsp => 2.0 * n * self.setting.message,
            _ => 2.0 * (n - 1.0) / n * self.setting.message,
        };
        let mut now = 0.0;
        while self.done < self.setting.steps {
            let mut slowest: f64 = 0.0;
            let model = self.server.clone();
            for worker in 0..count {
                slowest = slowest.max(self.seconds(worker));
                let gradient = self.gradient(worker, &model);
                apply(&mut self.server, &gradient, self.setting.step / n);
                self.done += 1;
                self.updates += 1;
            }
            now += slowest + exchange;
            self.link_time += exchange;
            let model = self.server.clone();
            self.look(&model);
        }
        now
    }

    /// Each worker at its own pace.
    fn on_their_own(&mut self, way: Synchronisation) -> f64 {
        let count = self.setting.seconds.len();
        let mut next: Vec<f64> = (0..count).map(|worker| self.seconds(worker)).collect();
        let mut weights = vec![1.0; count];
        let mut progress = vec![0u64; count];
        let mut read_at = vec![0u64; count];
        let mut free = 0.0f64;
        let mut now = 0.0;
        while self.done < self.setting.steps {
            let slowest = progress.iter().min().copied().unwrap_or(0);
            let may = |worker: &usize| match way {
                Synchronisation::Ssp { bound } => progress[*worker] <= slowest + bound,
                _ => true,
            };
            let first = (0..count).filter(may).min_by(|a, b| next[*a].total_cmp(&next[*b]));
            let worker = first.expect("the slowest worker may always go on");
            now = f64::max(now, next[worker]);
            let model = self.models[worker].clone();
            let gradient = self.gradient(worker, &model);
            let mut there = now;
            match way {
                Synchronisation::Asp | Synchronisation::Ssp { .. } => {
                    there = self.over_server(now, &mut free);
                    apply(&mut self.server, &gradient, self.setting.step);
                    self.stale += self.updates - read_at[worker];
                    self.models[worker] = self.server.clone();
                }
                _ => apply(&mut self.models[worker], &gradient, self.setting.step),
            }
            self.updates += 1;
            read_at[worker] = self.updates;
            match way {
                Synchronisation::Easgd { every, pull } if progress[worker] % every == every - 1 => {
                    there = self.over_server(now, &mut free);
                    for (own, centre) in self.models[worker].iter_mut().zip(&mut self.server) {
                        let gap = pull * (*own - *centre);
                        *own -= gap;
                        *centre += gap;
                    }
                }
                Synchronisation::Gossip { permille } if self.rng.next_u64() % 1000 < permille => {
                    self.gossip(worker, &mut weights);
                    there = now + self.setting.message;
                }
                Synchronisation::AdPsgd => self.average_with_one(worker),
                _ => {}
            }
            progress[worker] += 1;
            self.done += 1;
            let busy = self.seconds(worker);
            // AD-PSGD averages while it computes, so that only the longer of the two counts.
            let hidden = way == Synchronisation::AdPsgd;
            let spent = if hidden { busy.max(2.0 * self.setting.message) } else { busy };
            next[worker] = there + spent;
            let model = self.held(way);
            self.look(&model);
        }
        if way == Synchronisation::AdPsgd {
            self.link_time = 2.0 * self.setting.message * self.done as f64 / count as f64;
        }
        now
    }

    /// A gradient or a model goes to the server and another comes back, one worker after the other.
    fn over_server(&mut self, now: f64, free: &mut f64) -> f64 {
        *free = free.max(now) + 2.0 * self.setting.message;
        self.link_time += 2.0 * self.setting.message;
        *free
    }

    fn other(&mut self, worker: usize) -> usize {
        let count = self.models.len() as u64;
        (worker + 1 + (self.rng.next_u64() % (count - 1).max(1)) as usize) % self.models.len()
    }

    fn gossip(&mut self, worker: usize, weights: &mut [f64]) {
        let other = self.other(worker);
        weights[worker] /= 2.0;
        let (sent, held) = (weights[worker], weights[other]);
        let model = self.models[worker].clone();
        for (own, come) in self.models[other].iter_mut().zip(model) {
            *own = (held * *own + sent * come) / (held + sent);
        }
        weights[other] = held + sent;
    }

    fn average_with_one(&mut self, worker: usize) {
        let other = self.other(worker);
        let model = self.models[worker].clone();
        for (at, own) in model.iter().enumerate() {
            let mean = (own + self.models[other][at]) / 2.0;
            self.models[worker][at] = mean;
            self.models[other][at] = mean;
        }
    }

    /// The model that would be handed out now: the server's, or one worker's where there is none.
    fn held(&self, way: Synchronisation) -> Vec<f64> {
        if way.axes().central { self.server.clone() } else { self.models[0].clone() }
    }
}

fn apply(model: &mut [f64], gradient: &[f64], step: f64) {
    model.iter_mut().zip(gradient).for_each(|(value, slope)| *value -= step * slope);
}

/// By Box and Muller.
fn normal(rng: &mut ChaCha12Rng) -> f64 {
    let part = |bits: u64| ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let (radius, turn) = (part(rng.next_u64()), part(rng.next_u64()));
    libm::sqrt(-2.0 * libm::log(radius)) * libm::cos(2.0 * std::f64::consts::PI * turn)
}
