//! Transformers by layers, hidden size, heads, sequence and vocabulary.

use crate::PlanError;
use crate::devices::peak_flops;
use crate::graph::{Edge, Graph, Operator};
use trainyard_diagnostic::InputError;

/// A decoder of equal layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Transformer {
    /// What it is called.
    pub name: String,
    /// Layers.
    pub layers: u32,
    /// Hidden size.
    pub hidden: u32,
    /// Attention heads.
    pub heads: u32,
    /// Tokens of a sample.
    pub sequence: u32,
    /// Words.
    pub vocabulary: u32,
    /// Experts of a layer; 1 for a dense model.
    pub experts: u32,
    /// Experts that each token passes.
    pub active_experts: u32,
}

/// Bytes of parameters, gradients and optimiser for each parameter: half-precision weights and single-precision
/// gradients, weights and two moments of Adam.
pub const STATE_BYTES: f64 = 18.0;

/// The models of table 1 of PTD-P (arXiv 2104.04473): name, heads, hidden size, layers.
const NAMED: &[(&str, u32, u32, u32)] = &[
    ("gpt-1.7b", 24, 2304, 24),
    ("gpt-3.6b", 32, 3072, 30),
    ("gpt-7.5b", 32, 4096, 36),
    ("gpt-18b", 48, 6144, 40),
    ("gpt-39b", 64, 8192, 48),
    ("gpt-76b", 80, 10240, 60),
    ("gpt-145b", 96, 12288, 80),
    ("gpt-175b", 96, 12288, 96),
    ("gpt-310b", 128, 16384, 96),
    ("gpt-530b", 128, 20480, 105),
    ("gpt-1t", 160, 25600, 128),
];

/// How much of a device's peak large matrix products of half precision get: `best * h / (h + half_at)`.
///
/// The two figures were fitted to the ten rows of table 1 of PTD-P, on A100s; see `docs/planners/ptd-p.md`.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Efficiency {
    /// For endless matrices.
    pub best: f64,
    /// The hidden size that gets half of it.
    pub half_at: f64,
}

/// See [`Efficiency`].
pub const EFFICIENCY: Efficiency = Efficiency { best: 0.6, half_at: 675.0 };

impl Efficiency {
    /// Operations per second of a device with that peak.
    pub fn flops(&self, peak: f64, hidden: u32) -> f64 {
        peak * self.best * f64::from(hidden) / (f64::from(hidden) + self.half_at)
    }
}

impl Transformer {
    /// A dense decoder.
    pub fn dense(
        name: &str,
        (layers, hidden, heads): (u32, u32, u32),
        (sequence, vocabulary): (u32, u32),
    ) -> Transformer {
        Transformer {
            name: name.to_owned(),
            layers,
            hidden,
            heads,
            sequence,
            vocabulary,
            experts: 1,
            active_experts: 1,
        }
    }

    /// Names of models that need no figures.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, ..)| *name)
    }

    /// A model by its name.
    pub fn named(name: &str) -> Option<Transformer> {
        let (name, heads, hidden, layers) = NAMED.iter().find(|(known, ..)| *known == name)?;
        Some(Transformer::dense(name, (*layers, *hidden, *heads), (2048, 51200)))
    }

    /// Reads `layers=96 hidden=12288 heads=96 sequence=2048 vocabulary=51200 experts=8 active=2`.
    pub fn parse(text: &str) -> Result<Transformer, InputError> {
        const KEYS: [&str; 7] =
            ["layers", "hidden", "heads", "sequence", "vocabulary", "experts", "active"];
        let mut values = [0u32, 0, 0, 2048, 51200, 1, 1];
        for pair in text.split_whitespace() {
            let (key, value) = pair.split_once('=').ok_or_else(|| {
                InputError::wrong(0, "transformer", pair, "pairs such as `layers=24`")
            })?;
            let at = KEYS.iter().position(|known| *known == key);
            let at = at.ok_or_else(|| InputError::unknown(0, "transformer", key, KEYS))?;
            let number = value.parse().ok().filter(|number| (1..=1 << 24).contains(number));
            let expected = "a whole number from 1 to 16777216";
            values[at] = number.ok_or_else(|| InputError::wrong(0, key, value, expected))?;
        }
        let missing = KEYS.iter().zip(values).find(|(_, value)| *value == 0);
        if let Some((key, _)) = missing {
            return Err(InputError::missing(0, key, "a whole number, as in `layers=24`"));
        }
        let [layers, hidden, heads, sequence, vocabulary, experts, active_experts] = values;
        if hidden % heads != 0 {
            let expected = format!("a divisor of the hidden size {hidden}");
            return Err(InputError::wrong(0, "heads", &heads.to_string(), expected));
        }
        if active_experts > experts {
            let expected = format!("at most the {experts} experts");
            return Err(InputError::wrong(0, "active", &active_experts.to_string(), expected));
        }
        let name = format!("transformer-{layers}x{hidden}");
        let dense = Transformer::dense(&name, (layers, hidden, heads), (sequence, vocabulary));
        Ok(Transformer { experts, active_experts, ..dense })
    }

    /// Parameters of one layer outside its experts.
    pub fn shared_parameters(&self) -> f64 {
        let h = f64::from(self.hidden);
        // 12 h^2 + 13 h in a dense layer, of which a feed-forward block has 8 h^2 + 5 h.
        4.0 * h * h + 8.0 * h
    }

    /// Parameters of all experts of one layer.
    pub fn expert_parameters(&self) -> f64 {
        let h = f64::from(self.hidden);
        f64::from(self.experts) * (8.0 * h * h + 5.0 * h)
    }

    /// Parameters of the embedding of words and positions.
    pub fn embedding_parameters(&self) -> f64 {
        f64::from(self.hidden) * (f64::from(self.vocabulary) + f64::from(self.sequence))
    }

    /// All parameters: `12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h))`, PTD-P equation 2.
    pub fn parameters(&self) -> f64 {
        let layer = self.shared_parameters() + self.expert_parameters();
        f64::from(self.layers) * layer + self.embedding_parameters()
    }

    /// Operations of the forward pass of one layer over one sample: `24 s h^2 (1 + s / (6 h))`.
    pub fn layer_flops(&self) -> f64 {
        let (h, s) = (f64::from(self.hidden), f64::from(self.sequence));
        s * h * h * (8.0 + 16.0 * f64::from(self.active_experts)) + self.attention_flops()
    }

    /// The part of it in which every token meets every other.
    pub fn attention_flops(&self) -> f64 {
        let (h, s) = (f64::from(self.hidden), f64::from(self.sequence));
        4.0 * s * s * h
    }

    /// Operations of the forward pass of the output layer over one sample.
    pub fn head_flops(&self) -> f64 {
        2.0 * f64::from(self.sequence) * f64::from(self.hidden) * f64::from(self.vocabulary)
    }

    /// Operations of one iteration with all activations recomputed: `96 B s l h^2 (1 + s/(6h) + V/(16lh))`, equation 3.
    pub fn iteration_flops(&self, batch: u32) -> f64 {
        let layers = 4.0 * f64::from(self.layers) * self.layer_flops();
        f64::from(batch) * (layers + 3.0 * self.head_flops())
    }

    /// Days to train on so many tokens at so many operations per second on each of `devices`, by its own FLOP count.
    pub fn days(&self, tokens: f64, devices: u32, flops_per_device: f64) -> f64 {
        let samples = tokens / f64::from(self.sequence);
        samples * self.iteration_flops(1) / (f64::from(devices) * flops_per_device) / 86_400.0
    }

    /// Bytes of what a layer hands on of one sample, in half precision.
    pub fn hidden_bytes(&self) -> f64 {
        2.0 * f64::from(self.sequence) * f64::from(self.hidden)
    }

    /// Bytes that a layer keeps for its backward pass of one sample, undivided: `s h (34 + 5 a s / h)`.
    pub fn layer_activation_bytes(&self) -> f64 {
        let (h, s) = (f64::from(self.hidden), f64::from(self.sequence));
        s * h * (34.0 + 5.0 * f64::from(self.heads) * s / h)
    }

    /// The model as a chain of operators timed on one type of device, without recomputation.
    pub fn graph(&self, kind: &str, micro_batch: u32) -> Result<Graph, PlanError> {
        let peak = peak_flops(kind).ok_or_else(|| {
            let known = crate::devices::PEAK_TFLOPS.iter().map(|(name, _)| *name);
            InputError::unknown(0, "type of GPU", kind, known)
        })?;
        let per_second = EFFICIENCY.flops(peak, self.hidden);
        let samples = f64::from(micro_batch);
        let operator = |name: String, flops: f64, parameters: f64, kept: f64| Operator {
            name,
            forward: samples * flops / per_second,
            backward: samples * 2.0 * flops / per_second,
            parameter_bytes: 2.0 * parameters,
            activation_bytes: samples * kept,
        };
        let own = self.shared_parameters() + self.expert_parameters();
        let mut operators = vec![operator(
            "embedding".to_owned(),
            0.0,
            self.embedding_parameters(),
            self.hidden_bytes(),
        )];
        let (flops, kept) = (self.layer_flops(), self.layer_activation_bytes());
        let layers = (0..self.layers).map(|at| operator(format!("layer_{at}"), flops, own, kept));
        operators.extend(layers);
        // The words of the embedding serve here again; only the first stage counts them.
        let logits = 4.0 * f64::from(self.sequence) * f64::from(self.vocabulary);
        operators.push(operator("head".to_owned(), self.head_flops(), 0.0, logits));
        let bytes = samples * self.hidden_bytes();
        let edges = (1..operators.len()).map(|to| Edge { from: to - 1, to, bytes }).collect();
        Graph::new((&self.name, kind), micro_batch, operators, edges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_the_formula_of_the_paper() {
        let model = Transformer::named("gpt-145b").unwrap();
        let (l, h, s, v) = (80.0, 12288.0, 2048.0, 51200.0);
        let parameters = 12.0 * l * h * h * (1.0 + 13.0 / (12.0 * h) + (v + s) / (12.0 * l * h));
        assert!((model.parameters() / parameters - 1.0).abs() < 1e-12);
        let flops = 96.0 * 2304.0 * s * l * h * h * (1.0 + s / (6.0 * h) + v / (16.0 * l * h));
        assert!((model.iteration_flops(2304) / flops - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_wrong_pair_names_the_nearest_key() {
        let error = Transformer::parse("layer=24 hidden=1024 heads=16").unwrap_err();
        assert_eq!(error.nearest.as_deref(), Some("layers"));
        let error = Transformer::parse("layers=24 hidden=1000 heads=16").unwrap_err();
        assert!(error.to_string().contains("a divisor of the hidden size 1000"), "{error}");
        assert!(Transformer::parse("layers=24 hidden=1024").is_err());
    }
}
