//! Convolutional networks by layers.

use crate::PlanError;
use crate::devices::peak_flops;
use crate::graph::{Edge, Graph, Operator};
use trainyard_diagnostic::InputError;

/// What a layer does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A convolution to so many channels.
    Convolution {
        /// Channels that come out.
        channels: u32,
    },
    /// A pooling.
    Pooling,
    /// A fully connected layer to so many outputs.
    Full {
        /// Outputs.
        outputs: u32,
    },
}

/// One layer with its shapes.
#[derive(Clone, Debug, PartialEq)]
pub struct CnnLayer {
    /// As it was written.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// Side of its window.
    pub kernel: u32,
    /// Step of its window.
    pub stride: u32,
    /// Zeros around its input.
    pub padding: u32,
    /// Height, width and channels of its input.
    pub input: (u32, u32, u32),
    /// Height, width and channels of its output.
    pub output: (u32, u32, u32),
}

/// A network without branches.
#[derive(Clone, Debug, PartialEq)]
pub struct Cnn {
    /// What it is called.
    pub name: String,
    /// Its layers.
    pub layers: Vec<CnnLayer>,
}

/// What is got of a device's peak in convolutions; a coarse figure, see the page on splits.
const EFFICIENCY: f64 = 0.35;

impl Cnn {
    /// Reads `image=224x224x3 layers=conv64k3,conv64k3,pool2,conv128k3s2,fc1000`.
    pub fn parse(text: &str) -> Result<Cnn, InputError> {
        let (mut image, mut listed) = (None, None);
        for pair in text.split_whitespace() {
            match pair.split_once('=') {
                Some(("image", value)) => image = Some(shape(value)?),
                Some(("layers", value)) => listed = Some(value),
                _ => {
                    let key = pair.split('=').next().unwrap_or(pair);
                    return Err(InputError::unknown(0, "cnn", key, ["image", "layers"]));
                }
            }
        }
        let mut at = image.ok_or_else(|| InputError::missing(0, "image", "such as 224x224x3"))?;
        let listed = listed
            .ok_or_else(|| InputError::missing(0, "layers", "such as conv64k3,pool2,fc10"))?;
        let mut layers = Vec::new();
        for token in listed.split(',') {
            let layer = layer(token, at)?;
            at = layer.output;
            layers.push(layer);
        }
        Ok(Cnn { name: format!("cnn-{}", layers.len()), layers })
    }

    /// The model as a chain of operators timed on one type of device.
    pub fn graph(&self, kind: &str, micro_batch: u32) -> Result<Graph, PlanError> {
        let peak = peak_flops(kind).ok_or_else(|| {
            let known = crate::devices::PEAK_TFLOPS.iter().map(|(name, _)| *name);
            InputError::unknown(0, "type of GPU", kind, known)
        })?;
        let samples = f64::from(micro_batch);
        let operators: Vec<Operator> = (self.layers.iter().enumerate())
            .map(|(at, layer)| {
                let forward = samples * layer.flops() / (peak * EFFICIENCY);
                Operator {
                    name: format!("{at} {}", layer.name),
                    forward,
                    backward: 2.0 * forward,
                    parameter_bytes: 4.0 * layer.parameters(),
                    activation_bytes: 4.0 * samples * volume(layer.output),
                }
            })
            .collect();
        let bytes = |at: usize| 4.0 * samples * volume(self.layers[at].output);
        let edges = (1..operators.len()).map(|to| Edge { from: to - 1, to, bytes: bytes(to - 1) });
        Graph::new((&self.name, kind), micro_batch, operators, edges.collect())
    }
}

impl CnnLayer {
    /// Operations of its forward pass over one sample.
    pub fn flops(&self) -> f64 {
        let window = f64::from(self.kernel) * f64::from(self.kernel);
        match self.kind {
            Kind::Convolution { .. } => {
                2.0 * window * f64::from(self.input.2) * volume(self.output)
            }
            Kind::Pooling => window * volume(self.output),
            Kind::Full { outputs } => 2.0 * volume(self.input) * f64::from(outputs),
        }
    }

    /// Its parameters.
    pub fn parameters(&self) -> f64 {
        let window = f64::from(self.kernel) * f64::from(self.kernel);
        match self.kind {
            Kind::Convolution { channels } => {
                (window * f64::from(self.input.2) + 1.0) * f64::from(channels)
            }
            Kind::Pooling => 0.0,
            Kind::Full { outputs } => (volume(self.input) + 1.0) * f64::from(outputs),
        }
    }
}

/// The number of values in a shape.
pub fn volume((height, width, channels): (u32, u32, u32)) -> f64 {
    f64::from(height) * f64::from(width) * f64::from(channels)
}

fn shape(text: &str) -> Result<(u32, u32, u32), InputError> {
    let sides: Option<Vec<u32>> = text.split('x').map(|one| one.parse().ok()).collect();
    match sides.as_deref() {
        Some([height, width, channels])
            if [height, width, channels].iter().all(|one| (1..=65_536).contains(*one)) =>
        {
            Ok((*height, *width, *channels))
        }
        _ => Err(InputError::wrong(0, "image", text, "height x width x channels, as in 224x224x3")),
    }
}

fn layer(token: &str, input: (u32, u32, u32)) -> Result<CnnLayer, InputError> {
    let wrong = |expected: &str| InputError::wrong(0, "layers", token, expected);
    let expected = "`convCkK`, `convCkKsS`, `poolK` or `fcN`";
    let number = |text: &str| text.parse::<u32>().ok().filter(|one| (1..=1 << 20).contains(one));
    let (kind, kernel, stride) = if let Some(rest) = token.strip_prefix("conv") {
        let (channels, rest) = rest.split_once('k').unwrap_or((rest, "3"));
        let (kernel, stride) = rest.split_once('s').unwrap_or((rest, "1"));
        let channels = number(channels).ok_or_else(|| wrong(expected))?;
        let sides = (number(kernel), number(stride));
        let (Some(kernel), Some(stride)) = sides else { return Err(wrong(expected)) };
        (Kind::Convolution { channels }, kernel, stride)
    } else if let Some(rest) = token.strip_prefix("pool") {
        let side = number(rest).ok_or_else(|| wrong(expected))?;
        (Kind::Pooling, side, side)
    } else if let Some(rest) = token.strip_prefix("fc") {
        let outputs = number(rest).ok_or_else(|| wrong(expected))?;
        (Kind::Full { outputs }, 1, 1)
    } else {
        return Err(wrong(expected));
    };
    let is_pooling = kind == Kind::Pooling;
    let padding = if is_pooling { 0 } else { kernel / 2 };
    let side =
        |length: u32| (length + 2 * padding).checked_sub(kernel).map(|rest| rest / stride + 1);
    let (Some(height), Some(width)) = (side(input.0), side(input.1)) else {
        return Err(wrong(&format!("a window within its input of {} x {}", input.0, input.1)));
    };
    let output = match kind {
        Kind::Convolution { channels } => (height, width, channels),
        Kind::Pooling => (height, width, input.2),
        Kind::Full { outputs } => (1, 1, outputs),
    };
    Ok(CnnLayer { name: token.to_owned(), kind, kernel, stride, padding, input, output })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_follow_the_windows() {
        let cnn = Cnn::parse("image=224x224x3 layers=conv64k3,pool2,conv128k3s2,fc10").unwrap();
        let shapes: Vec<_> = cnn.layers.iter().map(|layer| layer.output).collect();
        assert_eq!(shapes, [(224, 224, 64), (112, 112, 64), (56, 56, 128), (1, 1, 10)]);
        assert_eq!(cnn.layers[0].parameters(), (9.0 * 3.0 + 1.0) * 64.0);
    }

    #[test]
    fn a_window_larger_than_its_input_names_the_layer() {
        let error = Cnn::parse("image=4x4x3 layers=pool2,pool4").unwrap_err();
        assert!(error.to_string().contains("`layers` cannot be `pool4`"), "{error}");
        let error = Cnn::parse("image=4x4x3 layers=konv3").unwrap_err();
        assert!(error.to_string().contains("convCkK"), "{error}");
    }
}
