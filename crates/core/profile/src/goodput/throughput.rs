//! Seconds of an iteration by seven parameters.

/// How many nodes and GPUs a training runs on.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size {
    /// Nodes.
    pub nodes: u32,
    /// GPUs on all of them.
    pub gpus: u32,
}

/// Over what gradients are exchanged. The model knows no more of a placement than this and the number of GPUs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exchange {
    /// One GPU: nothing.
    Nothing,
    /// GPUs of one node.
    Node,
    /// Several nodes.
    Network,
}

impl Exchange {
    /// All, in order.
    pub const ALL: [Exchange; 3] = [Exchange::Nothing, Exchange::Node, Exchange::Network];
}

impl Size {
    /// So many GPUs of one node.
    pub fn on_one_node(gpus: u32) -> Size {
        Size { nodes: 1, gpus }
    }

    /// Over what its gradients are exchanged.
    pub fn exchange(self) -> Exchange {
        match (self.nodes, self.gpus) {
            (2.., _) => Exchange::Network,
            (_, 2..) => Exchange::Node,
            _ => Exchange::Nothing,
        }
    }
}

/// The least that a parameter can be, and the seconds of an exchange between a GPU and itself.
pub(super) const FLOOR: f64 = 1e-8;

/// A model that says how long an iteration takes.
pub trait IterationTime {
    /// Seconds of one iteration with so many samples on each GPU at once, the exchange of gradients included.
    ///
    /// `accumulated` passes go before the one that exchanges.
    fn seconds(&self, size: Size, local: u32, accumulated: u32) -> f64;

    /// Samples per second over all GPUs: K m (s + 1) over the time of an iteration.
    fn throughput(&self, size: Size, local: u32, accumulated: u32) -> f64 {
        let samples = f64::from(size.gpus) * f64::from(local) * f64::from(accumulated + 1);
        samples / self.seconds(size, local, accumulated)
    }
}

/// The seven parameters (Pollux, equations 8 to 11), in the authors' letters; seconds, but for `gamma`.
///
/// ```
/// use trainyard_profile::goodput::{IterationTime, Size, Throughput};
/// let model = Throughput {
///     alpha_c: 0.05, beta_c: 0.001, alpha_n: 0.2, beta_n: 0.01, alpha_r: 0.1, beta_r: 0.005, gamma: 1.0,
/// };
/// // 0.05 + 0.1 for the gradient of 100 samples, 0.1 + 2 * 0.005 for an exchange between four GPUs of one node.
/// let seconds = model.seconds(Size::on_one_node(4), 100, 0);
/// assert!((seconds - 0.26).abs() < 1e-9);
/// ```
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Throughput {
    /// A pass without samples.
    pub alpha_c: f64,
    /// Each sample of a pass.
    pub beta_c: f64,
    /// An exchange over the network.
    pub alpha_n: f64,
    /// Each GPU beyond two in it.
    pub beta_n: f64,
    /// An exchange within a node.
    pub alpha_r: f64,
    /// Each GPU beyond two in it.
    pub beta_r: f64,
    /// How far pass and exchange overlap: 1 not at all, 10 all but wholly.
    pub gamma: f64,
}

impl Throughput {
    /// Seconds of one pass over so many samples on each GPU: T_grad.
    pub fn gradient(&self, local: u32) -> f64 {
        self.alpha_c + self.beta_c * f64::from(local)
    }

    /// Seconds of an exchange of gradients, were it alone: T_sync, in three cases.
    pub fn synchronise(&self, size: Size) -> f64 {
        let further = (f64::from(size.gpus) - 2.0).max(FLOOR);
        match size.exchange() {
            Exchange::Nothing => FLOOR,
            Exchange::Node => self.alpha_r + self.beta_r * further,
            Exchange::Network => self.alpha_n + self.beta_n * further,
        }
    }

    /// Seconds of the pass that ends with an exchange, by how far the two overlap: T_iter.
    pub fn iteration(&self, size: Size, local: u32) -> f64 {
        overlap(self.gradient(local), self.synchronise(size), self.gamma)
    }
}

impl IterationTime for Throughput {
    fn seconds(&self, size: Size, local: u32, accumulated: u32) -> f64 {
        // s T_grad + T_iter with s accumulated passes.
        f64::from(accumulated) * self.gradient(local) + self.iteration(size, local)
    }
}

/// `(a^gamma + b^gamma)^(1/gamma)`, without overflow.
fn overlap(a: f64, b: f64, gamma: f64) -> f64 {
    if gamma == 1.0 {
        return a + b;
    }
    let (small, large) = if a < b { (a, b) } else { (b, a) };
    let rest = libm::exp(gamma * libm::log(small / large));
    large * libm::exp(libm::log1p(rest) / gamma)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: Throughput = Throughput {
        alpha_c: 0.1,
        beta_c: 0.01,
        alpha_n: 0.4,
        beta_n: 0.02,
        alpha_r: 0.2,
        beta_r: 0.01,
        gamma: 2.0,
    };

    #[test]
    fn one_gpu_exchanges_nothing() {
        let alone = Size::on_one_node(1);
        assert!((MODEL.iteration(alone, 10) - 0.2).abs() < 1e-7);
        assert!((MODEL.throughput(alone, 10, 0) - 50.0).abs() < 1e-5);
    }

    #[test]
    fn an_exchange_grows_from_the_third_gpu_on() {
        let sync = |nodes, gpus| MODEL.synchronise(Size { nodes, gpus });
        assert!((sync(1, 2) - 0.2).abs() < 1e-9 && (sync(1, 4) - 0.22).abs() < 1e-9);
        assert!((sync(2, 2) - 0.4).abs() < 1e-9 && (sync(4, 16) - 0.68).abs() < 1e-9);
    }

    #[test]
    fn pass_and_exchange_overlap_by_gamma() {
        let seconds = MODEL.iteration(Size { nodes: 2, gpus: 2 }, 20);
        assert!((seconds - (0.3f64 * 0.3 + 0.4 * 0.4).sqrt()).abs() < 1e-8);
        let plain = Throughput { gamma: 1.0, ..MODEL };
        assert!((plain.iteration(Size { nodes: 2, gpus: 2 }, 20) - 0.7).abs() < 1e-9);
    }

    #[test]
    fn accumulated_passes_exchange_nothing() {
        let size = Size { nodes: 1, gpus: 2 };
        let one = MODEL.seconds(size, 10, 0);
        assert!((MODEL.seconds(size, 10, 3) - (one + 0.6)).abs() < 1e-12);
        assert!((MODEL.throughput(size, 10, 3) - 80.0 / (one + 0.6)).abs() < 1e-9);
    }
}
