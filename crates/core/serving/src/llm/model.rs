//! The time of an iteration, from measured decodes and prefills.

/// A language model by its measured times.
#[derive(Clone, Debug, PartialEq)]
pub struct LlmModel {
    /// Its name.
    pub name: String,
    /// For each batch, ascending, microseconds of a decode by tokens of context, ascending.
    decode: Vec<(f64, Vec<(f64, f64)>)>,
    /// Microseconds of a prefill by tokens, without what grows with their square.
    linear: Vec<(f64, f64)>,
    /// Microseconds for the square of a token: attention.
    square: f64,
}

impl LlmModel {
    /// From decodes (batch, context, microseconds) and prefills of one prompt (tokens, microseconds).
    pub fn fitted(name: &str, decodes: &[(f64, f64, f64)], prefills: &[(f64, f64)]) -> LlmModel {
        let mut decode: Vec<(f64, Vec<(f64, f64)>)> = Vec::new();
        let mut sorted = decodes.to_vec();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        for (batch, context, micros) in sorted {
            match decode.last_mut() {
                Some((last, points)) if *last == batch => points.push((context, micros)),
                _ => decode.push((batch, vec![(context, micros)])),
            }
        }
        let mut prefill = prefills.to_vec();
        prefill.sort_by(|a, b| a.0.total_cmp(&b.0));
        let square = square(&prefill);
        let linear =
            prefill.iter().map(|(tokens, micros)| (*tokens, micros - square * tokens * tokens));
        LlmModel { name: name.to_owned(), linear: linear.collect(), decode, square }
    }

    /// Microseconds of a decode of a batch whose requests have this many tokens of context on average.
    ///
    /// Lines between measured batches and contexts, and beyond them.
    pub fn decode(&self, batch: f64, context: f64) -> f64 {
        let above = self
            .decode
            .partition_point(|(known, _)| *known < batch)
            .clamp(1, self.decode.len() - 1);
        let ((b0, low), (b1, high)) = (&self.decode[above - 1], &self.decode[above]);
        let part = ((batch - b0) / (b1 - b0)).max(0.0);
        let (low, high) = (line(low, context), line(high, context));
        low + (high - low) * part
    }

    /// Microseconds of what is linear in new tokens: reading weights and multiplying.
    fn tokens(&self, tokens: f64) -> f64 {
        if tokens <= self.linear[0].0 { self.linear[0].1 } else { line(&self.linear, tokens) }
    }

    /// Microseconds of attention of new tokens to themselves and to a filled cache.
    pub fn attention(&self, new: f64, cached: f64) -> f64 {
        self.square * new * (new + 2.0 * cached)
    }

    /// Microseconds of an iteration: new tokens of prompts with their attention, and a decode of a batch.
    ///
    /// Weights are read once for both. What was not measured is the mixture: it is taken as the larger of all tokens
    /// multiplied together and the decode alone, then the cache that decodes read, then attention.
    pub fn iteration(&self, new: u32, attention: f64, batch: u32, context: f64) -> f64 {
        let (new, batch) = (f64::from(new), f64::from(batch));
        match (new > 0.0, batch > 0.0) {
            (false, false) => 0.0,
            (false, true) => self.decode(batch, context),
            (true, false) => self.tokens(new) + attention,
            (true, true) => {
                let bare = self.decode(batch, 0.0);
                let reads = (self.decode(batch, context) - bare).max(0.0);
                self.tokens(new + batch).max(bare) + reads + attention
            }
        }
    }
}

/// The factor of the square: least squares over l * n + a * n^2 for prompts long enough to be bound by arithmetic.
fn square(prefill: &[(f64, f64)]) -> f64 {
    let long: Vec<&(f64, f64)> = prefill.iter().filter(|(tokens, _)| *tokens >= 1024.0).collect();
    // Relative errors count, so each point is divided by its time: sums of the normal equations.
    let (mut s11, mut s12, mut s22, mut t1, mut t2) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (tokens, micros) in long {
        let (x, y) = (tokens / micros, tokens * tokens / micros);
        (s11, s12, s22) = (s11 + x * x, s12 + x * y, s22 + y * y);
        (t1, t2) = (t1 + x, t2 + y);
    }
    let determinant = s11 * s22 - s12 * s12;
    if determinant > 0.0 { ((s11 * t2 - s12 * t1) / determinant).max(0.0) } else { 0.0 }
}

/// On the lines between points, the first and the last of which go on; a single point is a constant.
fn line(points: &[(f64, f64)], x: f64) -> f64 {
    if points.len() < 2 {
        return points.first().map_or(0.0, |point| point.1);
    }
    let above = points.partition_point(|(known, _)| *known < x).clamp(1, points.len() - 1);
    let ((x0, y0), (x1, y1)) = (points[above - 1], points[above]);
    y0 + (y1 - y0) * (x - x0) / (x1 - x0)
}

#[cfg(test)]
mod tests {
    use crate::zoo::{llm_8b, llm_prefills};

    #[test]
    fn batches_and_chunks_of_prompts_are_met_within_six_per_cent() {
        let model = llm_8b();
        let mut worst: f64 = 0.0;
        for (prompts, cached, new, ms) in llm_prefills() {
            let attention = f64::from(prompts) * model.attention(f64::from(new), f64::from(cached));
            let ours = model.iteration(prompts * new, attention, 0, 0.0) / 1e3;
            println!("{prompts} x {new} on {cached}: measured {ms} ms, ours {ours:.2} ms");
            worst = worst.max((ours / ms - 1.0).abs());
        }
        assert!(worst < 0.06, "{worst}");
    }

    #[test]
    fn a_measured_decode_is_itself_and_longer_contexts_take_longer() {
        let model = llm_8b();
        assert_eq!(model.decode(64.0, 2048.0), 9385.0);
        assert!(model.decode(256.0, 8192.0) > model.decode(256.0, 2048.0));
        assert!(model.decode(512.0, 512.0) > model.decode(256.0, 512.0));
        let mixed = model.iteration(512, model.attention(512.0, 0.0), 32, 512.0);
        assert!(mixed > model.decode(32.0, 512.0) && mixed < 13_224.0 + model.decode(32.0, 512.0));
    }
}
