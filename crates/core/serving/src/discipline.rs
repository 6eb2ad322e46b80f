//! What a discipline sees and says: which requests run next, on which GPU, together with which.

use crate::latency::{Model, Slowdowns};
use crate::request::{ModelId, Request, RequestId, Server};
use trainyard_types::{Span, Time};

/// The GPUs that serve, and what they serve.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// The models.
    pub models: Vec<Model>,
    /// What they do to each other on one GPU.
    pub slowdowns: Slowdowns,
    /// How many GPUs.
    pub servers: u32,
    /// Memory of each for models.
    pub memory_mib: u64,
    /// How fast a model comes from the host, in MiB a second.
    pub load_mib_per_second: f64,
    /// What a launch of a part of a model costs, and one that brings an interrupted inference back.
    pub launch: Span,
    /// The most requests that wait; more are refused when they come.
    pub waiting_max: u32,
    /// The most launches at once on one GPU.
    pub together_max: u32,
    /// Whether latencies spread as they were measured, or are the median each time.
    pub jitter: bool,
    /// The seed of that spread.
    pub seed: u64,
    /// What a GPU costs in an hour.
    pub price_per_hour: f64,
}

impl Fleet {
    /// A fleet with the measured figures of an H200 around these models.
    pub fn new(models: Vec<Model>, slowdowns: Slowdowns, servers: u32) -> Fleet {
        Fleet {
            models,
            slowdowns,
            servers,
            memory_mib: 141_000,
            // 12.6 GB from pinned memory of the host in 0.24 s (`checkpoint.csv` of the profiles).
            load_mib_per_second: 50_000.0,
            launch: Span(10),
            waiting_max: 100_000,
            together_max: 64,
            jitter: true,
            seed: 1,
            price_per_hour: 0.0,
        }
    }

    /// All GPUs.
    pub fn each(&self) -> impl DoubleEndedIterator<Item = Server> + use<> {
        (0..self.servers).map(Server)
    }

    /// A model.
    pub fn model(&self, id: ModelId) -> &Model {
        &self.models[id.index()]
    }
}

/// Names a launch; a number is used again only after what had it has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RunId(pub u32);

/// Requests that run together on a GPU, from one segment of their model to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The GPU.
    pub server: Server,
    /// The model.
    pub model: ModelId,
    /// The requests, each of that model and waiting.
    pub requests: Vec<RequestId>,
    /// Segments, the second excluded; a request is answered when the last has run.
    pub segments: (u32, u32),
}

/// Why a request is not answered.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// As many wait as may.
    Full,
    /// Its deadline has passed or cannot be met.
    Late,
    /// It can never be served here.
    Impossible,
}

/// Something that a discipline wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Directive {
    /// Begin.
    Launch(Launch),
    /// Break off a launch: segments that ran whole are kept or not, and its requests wait again.
    Stop {
        /// Where.
        server: Server,
        /// What.
        run: RunId,
        /// Whether whole segments are kept.
        keep: bool,
    },
    /// Give a request up.
    Refuse(RequestId, Refusal),
    /// Bring a model onto a GPU.
    Load(Server, ModelId),
    /// Take it off.
    Unload(Server, ModelId),
    /// Ask again at this moment.
    Wake(Server, Time),
}

/// What a discipline wants done, in order.
#[derive(Clone, Debug, Default)]
pub struct Directives(pub Vec<Directive>);

impl Directives {
    /// Runs requests of one model from their first segment to their last.
    pub fn launch(&mut self, at: &Moment<'_>, server: Server, requests: Vec<RequestId>) {
        let Some(first) = requests.first() else { return };
        let model = at.request(*first).model;
        let segments = (0, at.fleet.model(model).segments);
        self.0.push(Directive::Launch(Launch { server, model, requests, segments }));
    }

    /// Runs some segments.
    pub fn launch_part(&mut self, launch: Launch) {
        self.0.push(Directive::Launch(launch));
    }

    /// Gives a request up.
    pub fn refuse(&mut self, request: RequestId, why: Refusal) {
        self.0.push(Directive::Refuse(request, why));
    }

    /// Asks again at a moment.
    pub fn wake(&mut self, server: Server, when: Time) {
        self.0.push(Directive::Wake(server, when));
    }

    /// Breaks a launch off.
    pub fn stop(&mut self, server: Server, run: RunId, keep: bool) {
        self.0.push(Directive::Stop { server, run, keep });
    }
}

/// A launch that runs.
#[derive(Clone, Debug)]
pub struct Running {
    /// Its name.
    pub id: RunId,
    /// What was launched.
    pub launch: Launch,
    /// When it began.
    pub began: Time,
    /// When it ends by the tables, as things stand; the truth may spread around it.
    pub ends: Time,
}

/// What is known of one GPU.
#[derive(Clone, Debug, Default)]
pub struct ServerState {
    /// What runs, oldest first.
    pub running: Vec<Running>,
    /// Which models are there, by number.
    pub loaded: Vec<bool>,
    /// A model that is on its way.
    pub loading: Option<ModelId>,
    /// Memory that models have, those on their way too.
    pub used_mib: u64,
}

/// A moment, as a discipline sees it: no request that has not come, and no true length of anything.
#[derive(Copy, Clone, Debug)]
pub struct Moment<'a> {
    /// The time.
    pub now: Time,
    /// The GPUs and the models.
    pub fleet: &'a Fleet,
    /// What came so far.
    pub requests: &'a [Request],
    /// The GPUs, by number.
    pub servers: &'a [ServerState],
    /// For each request the first segment that has not run.
    pub progress: &'a [u32],
}

impl<'a> Moment<'a> {
    /// A request.
    pub fn request(&self, id: RequestId) -> &'a Request {
        &self.requests[id.index()]
    }

    /// The model of a request.
    pub fn model_of(&self, id: RequestId) -> &'a Model {
        self.fleet.model(self.request(id).model)
    }

    /// A GPU.
    pub fn server(&self, server: Server) -> &'a ServerState {
        &self.servers[server.index()]
    }

    /// Whether nothing runs there.
    pub fn is_idle(&self, server: Server) -> bool {
        self.server(server).running.is_empty()
    }

    /// Whether a model is there.
    pub fn has(&self, server: Server, model: ModelId) -> bool {
        self.server(server).loaded[model.index()]
    }

    /// The time of segments of a batch alone, by the tables.
    pub fn part(&self, model: ModelId, batch: u32, segments: u32) -> Span {
        let model = self.fleet.model(model);
        if segments >= model.segments {
            return model.span(batch);
        }
        let part = f64::from(segments) / f64::from(model.segments);
        model.span(batch).scaled(part) + self.fleet.launch
    }
}

/// Why a launch is over.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It ran to the end of its segments.
    Whole,
    /// It was broken off.
    Stopped,
}

/// A discipline: what to run next on which GPU with which requests.
///
/// It is asked after every event, and what it directs is done before the next one.
pub trait Discipline {
    /// Which models are on each GPU at the start, and what each takes there; nothing for all, as far as memory goes.
    fn placement(&self, _fleet: &Fleet) -> Option<Vec<Vec<(ModelId, u64)>>> {
        None
    }
    /// A request came and waits.
    fn arrived(&mut self, at: &Moment<'_>, request: RequestId, out: &mut Directives);
    /// A launch is over; what it stopped waits again, what reached its last segment is answered.
    fn ended(&mut self, at: &Moment<'_>, run: &Running, ending: Ending, out: &mut Directives);
    /// The moment that it asked for has come.
    fn woken(&mut self, at: &Moment<'_>, server: Server, out: &mut Directives);
    /// A model came onto a GPU.
    fn loaded(&mut self, _at: &Moment<'_>, _: (Server, ModelId), _out: &mut Directives) {}
}
