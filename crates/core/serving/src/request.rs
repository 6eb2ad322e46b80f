//! What is asked of a server: requests, and traces of them.

use trainyard_types::{Span, Time};

/// A request, by its place in the trace.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u32);

/// A model, by its place in the fleet.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelId(pub u32);

/// A GPU that serves, by its place in the fleet.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Server(pub u32);

impl RequestId {
    /// The place in dense lists.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl ModelId {
    /// The place in dense lists.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl Server {
    /// The place in dense lists.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One request, as a server sees it when it comes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which model.
    pub model: ModelId,
    /// Whose it is; requests of one client are alike to fairness.
    pub client: u32,
    /// 0 is the most urgent.
    pub priority: u8,
    /// When it came.
    pub arrived: Time,
    /// When an answer is no longer worth anything; [`Time::NEVER`] for none.
    pub deadline: Time,
    /// Tokens of the prompt; 0 for a model without tokens.
    pub prompt: u32,
    /// The most tokens that its client takes.
    pub output_max: u32,
    /// The shared beginning of the prompt; 0 for none.
    pub prefix: u32,
    /// How many tokens that beginning has.
    pub prefix_tokens: u32,
}

impl Request {
    /// A request for a whole inference.
    pub fn whole(model: ModelId, arrived: Time, slo: Span) -> Request {
        Request {
            model,
            client: 0,
            priority: 0,
            arrived,
            deadline: arrived + slo,
            prompt: 0,
            output_max: 0,
            prefix: 0,
            prefix_tokens: 0,
        }
    }
}

/// Requests in order of arrival, with the truth that no discipline sees.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Names of models.
    pub models: Vec<String>,
    /// Requests, by arrival.
    pub requests: Vec<Request>,
    /// How many tokens each answer really has; 0 for a model without tokens.
    pub outputs: Vec<u32>,
}

impl Trace {
    /// Puts requests in order of arrival; those of one moment keep their order.
    pub fn sort(&mut self) {
        let mut order: Vec<u32> = (0..self.requests.len() as u32).collect();
        order.sort_by_key(|at| self.requests[*at as usize].arrived);
        self.requests = order.iter().map(|at| self.requests[*at as usize]).collect();
        self.outputs = order.iter().map(|at| self.outputs[*at as usize]).collect();
    }

    /// From the start to the last arrival.
    pub fn length(&self) -> Span {
        self.requests.last().map_or(Span::ZERO, |last| Span(last.arrived.0))
    }

    /// Requests a second by model, over the whole trace.
    pub fn rates(&self) -> Vec<f64> {
        let mut counts = vec![0.0; self.models.len()];
        for request in &self.requests {
            counts[request.model.index()] += 1.0;
        }
        let seconds = self.length().as_secs_f64().max(1e-6);
        counts.iter().map(|count| count / seconds).collect()
    }

    /// Whether the answers have tokens.
    pub fn has_tokens(&self) -> bool {
        self.requests.first().is_some_and(|request| request.prompt > 0)
    }

    /// The number of a model by its name; a new one where it is not known yet.
    pub fn model(&mut self, name: &str) -> ModelId {
        let known = self.models.iter().position(|one| one == name);
        let at = known.unwrap_or_else(|| {
            self.models.push(name.to_owned());
            self.models.len() - 1
        });
        ModelId(at as u32)
    }
}
