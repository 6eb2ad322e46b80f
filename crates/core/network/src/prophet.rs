//! Prophet: in which order gradients go to a parameter server (Zhang and others, ICPP 2021), beside orders by arrival
//! and by priority, and a bound that no order beats.
//!
//! Gradients become ready from the last layer to the first, in bursts; the next forward pass needs them from the first
//! to the last. A gradient is of use when its last byte is there.

/// A layer.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Layer {
    /// When its gradient is ready, in seconds from the beginning of the backward pass.
    pub ready: f64,
    /// Bytes of its gradient.
    pub bytes: f64,
    /// Seconds of its forward pass.
    pub forward: f64,
}

/// A link to the server.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Uplink {
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Seconds for each message, during which no bytes go unless another message is under way.
    pub overhead: f64,
}

/// Which gradients go next.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum SendOrder {
    /// Whole gradients as they become ready.
    Fifo,
    /// P3: slices, the first layer first, one message after the other.
    P3 {
        /// Bytes of a slice.
        slice: f64,
    },
    /// ByteScheduler: slices, the first layer first, as many under way as the credit allows.
    ByteScheduler {
        /// Bytes of a slice.
        slice: f64,
        /// Bytes under way at most.
        credit: f64,
    },
    /// Prophet: what is ready and fits until the next burst, as one block, until the first layer is ready; then by
    /// priority within the credit.
    Prophet {
        /// Bytes per second that were measured; the next burst is foreseen with them.
        measured: f64,
        /// Bytes under way at most, once the first layer is ready.
        credit: f64,
    },
}

/// When the next forward pass ends, if each layer's gradient is there at these times.
pub fn forward_end(layers: &[Layer], there: &[f64]) -> f64 {
    let mut at = 0.0;
    for (layer, there) in layers.iter().zip(there) {
        at = f64::max(at, *there) + layer.forward;
    }
    at
}

/// Moments at which bursts of gradients are ready: a gap of more than twice the mean gap parts two of them.
pub fn bursts(layers: &[Layer]) -> Vec<f64> {
    let mut ready: Vec<f64> = layers.iter().map(|layer| layer.ready).collect();
    ready.sort_by(f64::total_cmp);
    let gaps = ready.len().saturating_sub(1).max(1) as f64;
    let mean = (ready.last().unwrap_or(&0.0) - ready.first().unwrap_or(&0.0)) / gaps;
    let mut bursts = Vec::new();
    for (at, moment) in ready.iter().enumerate() {
        // A burst is complete when its last gradient is ready.
        if ready.get(at + 1).is_none_or(|next| next - moment > 2.0 * mean) {
            bursts.push(*moment);
        }
    }
    bursts
}

/// When each layer's gradient is there.
pub fn send(layers: &[Layer], uplink: &Uplink, order: &SendOrder) -> Vec<f64> {
    let mut line = Line {
        layers,
        uplink,
        left: layers.iter().map(|layer| layer.bytes).collect(),
        there: layers.iter().map(|layer| layer.ready).collect(),
        free: 0.0,
    };
    let bursts = bursts(layers);
    while line.left.iter().any(|left| *left > 0.0) {
        match order {
            SendOrder::Fifo => line.send_by_arrival(),
            SendOrder::P3 { slice } => line.send_slice(*slice, 0.0),
            SendOrder::ByteScheduler { slice, credit } => line.send_slice(*slice, *credit),
            SendOrder::Prophet { measured, credit } => line.send_block(&bursts, *measured, *credit),
        }
    }
    line.there
}

/// When the next forward pass would end if bytes could go in any order, in any pieces and without overhead.
///
/// A single machine with release times, preemption and tails: the ready gradient with the longest way still to go, that
/// is the first layer's, is sent (Jackson's preemptive rule), which is optimal.
pub fn bound(layers: &[Layer], uplink: &Uplink) -> f64 {
    let mut left: Vec<f64> =
        layers.iter().map(|layer| layer.bytes / uplink.bytes_per_second).collect();
    let mut there: Vec<f64> = layers.iter().map(|layer| layer.ready).collect();
    let mut now = 0.0;
    while left.iter().any(|left| *left > 0.0) {
        let ready = |at: &usize| left[*at] > 0.0 && layers[*at].ready <= now;
        let later =
            layers.iter().zip(&left).filter(|(layer, left)| **left > 0.0 && layer.ready > now);
        let later = later.map(|(layer, _)| layer.ready).fold(f64::INFINITY, f64::min);
        let Some(at) = (0..layers.len()).find(ready) else {
            now = later;
            continue;
        };
        if now + left[at] <= later {
            now += left[at];
            left[at] = 0.0;
            there[at] = now;
        } else {
            left[at] -= later - now;
            now = later;
        }
    }
    forward_end(layers, &there)
}

struct Line<'a> {
    layers: &'a [Layer],
    uplink: &'a Uplink,
    left: Vec<f64>,
    there: Vec<f64>,
    /// When the link is free.
    free: f64,
}

impl Line<'_> {
    /// From when on anything can be sent.
    fn begins(&self) -> f64 {
        let open = self.layers.iter().zip(&self.left).filter(|(_, left)| **left > 0.0);
        let first = open.map(|(layer, _)| layer.ready).fold(f64::INFINITY, f64::min);
        first.max(self.free)
    }

    /// Layers that are ready at a moment and not sent, the first first.
    fn ready(&self, now: f64) -> impl Iterator<Item = usize> {
        (0..self.layers.len())
            .filter(move |at| self.left[*at] > 0.0 && self.layers[*at].ready <= now)
    }

    /// One message with parts of gradients, in order; `chosen` is when it was handed over.
    fn message(&mut self, chosen: f64, parts: &[(usize, f64)]) {
        // The overhead passes while the message before it is still under way.
        let mut at = self.free.max(chosen + self.uplink.overhead);
        for (layer, bytes) in parts {
            at += bytes / self.uplink.bytes_per_second;
            self.left[*layer] -= bytes;
            if self.left[*layer] <= 0.0 {
                self.left[*layer] = 0.0;
                self.there[*layer] = at;
            }
        }
        self.free = at;
    }

    fn send_by_arrival(&mut self) {
        let now = self.begins();
        let earliest = |a: &usize, b: &usize| {
            self.layers[*a].ready.total_cmp(&self.layers[*b].ready).then(b.cmp(a))
        };
        let layer =
            self.ready(now).min_by(earliest).expect("something is ready when the link begins");
        self.message(now, &[(layer, self.left[layer])]);
    }

    fn send_slice(&mut self, slice: f64, credit: f64) {
        // With credit the choice is made while messages of so many bytes are still under way.
        let ahead = (credit - slice).max(0.0) / self.uplink.bytes_per_second;
        let first = self.begins();
        let chosen = (self.free - ahead).max(0.0);
        let now = if self.ready(chosen).next().is_some() {
            chosen
        } else {
            first.min(self.soonest(chosen))
        };
        let layer = self.ready(now).next().expect("something is ready at that moment");
        self.message(now, &[(layer, slice.min(self.left[layer]))]);
    }

    /// The first moment from which on something is ready.
    fn soonest(&self, from: f64) -> f64 {
        let open = self.layers.iter().zip(&self.left).filter(|(_, left)| **left > 0.0);
        open.map(|(layer, _)| layer.ready).fold(f64::INFINITY, f64::min).max(from)
    }

    fn send_block(&mut self, bursts: &[f64], measured: f64, credit: f64) {
        let first = self.layers.first().map_or(0.0, |layer| layer.ready);
        let now = self.begins();
        if now >= first {
            return self.send_slice(credit / 2.0, credit);
        }
        // Gradients are looked at when their burst is complete.
        let now = bursts
            .iter()
            .copied()
            .find(|burst| *burst >= now)
            .map_or(now, |burst| if self.complete(now, bursts) { now } else { burst });
        let next = bursts.iter().copied().find(|burst| *burst > now).unwrap_or(f64::INFINITY);
        let mut room = (next - now - self.uplink.overhead).max(0.0) * measured;
        let mut block = Vec::new();
        for layer in self.ready(now) {
            // Gradients are taken whole, the most urgent first; what does not fit is left for less urgent ones.
            if self.left[layer] <= room {
                room -= self.left[layer];
                block.push((layer, self.left[layer]));
            }
        }
        if block.is_empty() {
            // Nothing fits as a whole: as much of the most urgent one as does, so that the link is not idle.
            let layer = self.ready(now).next().expect("a burst is ready");
            let part = room.max(measured * self.uplink.overhead).min(self.left[layer]);
            block.push((layer, if part > 0.0 { part } else { self.left[layer] }));
        }
        self.message(now, &block);
    }

    /// Whether what is ready ends with a burst.
    fn complete(&self, now: f64, bursts: &[f64]) -> bool {
        let last =
            bursts.iter().copied().filter(|burst| *burst <= now).fold(f64::NEG_INFINITY, f64::max);
        self.ready(now).any(|layer| self.layers[layer].ready <= last)
    }
}
