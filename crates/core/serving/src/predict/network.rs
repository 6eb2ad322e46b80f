//! A network of three hidden layers of 32 with rectifiers, as Abacus has it, trained by Adam on the squared error.

use crate::draws::Draws;
use crate::predict::Fitted;

const HIDDEN: usize = 32;
/// Abacus trains 30 epochs on thousands of samples; here there are hundreds, so they are seen more often.
const EPOCHS: usize = 80;
const RATE: f64 = 2e-3;
const DECAY: f64 = 1e-2;

struct Layer {
    /// By output: weights of the inputs, then the constant.
    weights: Vec<Vec<f64>>,
    moments: Vec<Vec<(f64, f64)>>,
}

pub(crate) struct Network {
    layers: Vec<Layer>,
    mean: f64,
}

impl Network {
    /// O(epochs * samples * weights).
    pub fn train(x: &[Vec<f64>], y: &[f64], seed: u64) -> Network {
        let mut draws = Draws::new(seed, 42);
        let width = x.first().map_or(0, Vec::len);
        let mean = y.iter().sum::<f64>() / y.len().max(1) as f64;
        let sizes = [width, HIDDEN, HIDDEN, HIDDEN, 1];
        let layers = sizes.windows(2).map(|pair| {
            let spread = libm::sqrt(2.0 / pair[0].max(1) as f64);
            let row = |_| (0..pair[0]).map(|_| spread * draws.normal()).chain([0.0]).collect();
            let weights: Vec<Vec<f64>> = (0..pair[1]).map(row).collect();
            Layer { weights, moments: vec![vec![(0.0, 0.0); pair[0] + 1]; pair[1]] }
        });
        let mut network = Network { layers: layers.collect(), mean };
        let mut order: Vec<usize> = (0..y.len()).collect();
        let mut step = 0;
        for _ in 0..EPOCHS {
            for at in (1..order.len()).rev() {
                order.swap(at, draws.below(at + 1));
            }
            for at in &order {
                step += 1;
                network.learn(&x[*at], y[*at] - mean, step);
            }
        }
        network
    }

    /// What each layer gives, the input first.
    fn forward(&self, x: &[f64]) -> Vec<Vec<f64>> {
        let mut all = vec![x.to_vec()];
        for (at, layer) in self.layers.iter().enumerate() {
            let input = &all[at];
            let is_last = at + 1 == self.layers.len();
            let one = |row: &Vec<f64>| {
                let sum = row.iter().zip(input).map(|(w, x)| w * x).sum::<f64>() + row[input.len()];
                if is_last { sum } else { sum.max(0.0) }
            };
            all.push(layer.weights.iter().map(one).collect());
        }
        all
    }

    fn learn(&mut self, x: &[f64], y: f64, step: i32) {
        let values = self.forward(x);
        let mut errors = vec![values[self.layers.len()][0] - y];
        let rate = RATE * libm::sqrt(1.0 - libm::pow(0.999, f64::from(step)))
            / (1.0 - libm::pow(0.9, f64::from(step)));
        for (at, layer) in self.layers.iter_mut().enumerate().rev() {
            let input = &values[at];
            let mut below = vec![0.0; input.len()];
            for ((row, moments), error) in
                layer.weights.iter_mut().zip(&mut layer.moments).zip(&errors)
            {
                for (place, (weight, moment)) in row.iter_mut().zip(moments).enumerate() {
                    let value = input.get(place).copied().unwrap_or(1.0);
                    if place < input.len() && value > 0.0 {
                        below[place] += error * *weight;
                    }
                    let gradient = error * value;
                    moment.0 = 0.9 * moment.0 + 0.1 * gradient;
                    moment.1 = 0.999 * moment.1 + 0.001 * gradient * gradient;
                    *weight -=
                        rate * moment.0 / (libm::sqrt(moment.1) + 1e-8) + RATE * DECAY * *weight;
                }
            }
            errors = below;
        }
    }
}

impl Fitted for Network {
    fn log(&self, known: &[f64]) -> f64 {
        self.mean + self.forward(known)[self.layers.len()][0]
    }
}
