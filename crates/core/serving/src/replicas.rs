//! Disciplines that run on each GPU by itself, behind a router.

use crate::discipline::{Directive, Directives, Discipline, Ending, Moment, Running};
use crate::request::{ModelId, RequestId, Server};
use crate::routing::Router;

/// What one GPU runs next of the requests that were sent to it.
pub trait Replica {
    /// A request was sent here.
    fn put(&mut self, at: &Moment<'_>, server: Server, request: RequestId);
    /// A launch is over; requests of one that was stopped, or that has segments left, wait again.
    fn ended(&mut self, at: &Moment<'_>, run: &Running, ending: Ending);
    /// Says what happens now; asked after every event of this GPU.
    fn go(&mut self, at: &Moment<'_>, server: Server, out: &mut Directives);
}

/// A replica for each GPU.
pub struct Replicas<R> {
    replicas: Vec<R>,
    router: Router,
    /// Requests that were sent to each and are not over.
    open: Vec<u64>,
    home: Vec<u32>,
}

impl<R: Replica> Replicas<R> {
    /// Replicas behind a router.
    pub fn new(replicas: Vec<R>, router: Router) -> Replicas<R> {
        let open = vec![0; replicas.len()];
        Replicas { replicas, router, open, home: Vec::new() }
    }

    fn go(&mut self, at: &Moment<'_>, server: Server, out: &mut Directives) {
        let before = out.0.len();
        self.replicas[server.index()].go(at, server, out);
        for directive in &out.0[before..] {
            if let Directive::Refuse(id, _) = directive {
                self.open[self.home[id.index()] as usize] -= 1;
            }
        }
    }
}

impl<R: Replica> Discipline for Replicas<R> {
    fn arrived(&mut self, at: &Moment<'_>, request: RequestId, out: &mut Directives) {
        let model = at.request(request).model;
        let (open, count) = (&self.open, self.replicas.len());
        // A replica that has not the model is not asked, unless none has it: then the request is refused by the first.
        let load = |one: usize| match at.servers[one].loaded[model.index()] {
            true => open[one],
            false => u64::MAX / 4,
        };
        // What runs or waits of the same model can be batched with.
        let known = |one: usize| {
            let runs = at.servers[one].running.iter();
            runs.filter(|run| run.launch.model == model).count() as u64
        };
        let server = self.router.pick(count, load, known);
        self.home.resize(request.index() + 1, 0);
        self.home[request.index()] = server.0;
        self.open[server.index()] += 1;
        if !at.has(server, model) {
            self.open[server.index()] -= 1;
            out.refuse(request, crate::discipline::Refusal::Impossible);
            return;
        }
        self.replicas[server.index()].put(at, server, request);
        self.go(at, server, out);
    }

    fn ended(&mut self, at: &Moment<'_>, run: &Running, ending: Ending, out: &mut Directives) {
        let server = run.launch.server;
        let whole = at.fleet.model(run.launch.model).segments;
        if ending == Ending::Whole && run.launch.segments.1 == whole {
            self.open[server.index()] -= run.launch.requests.len() as u64;
        }
        self.replicas[server.index()].ended(at, run, ending);
        self.go(at, server, out);
    }

    fn woken(&mut self, at: &Moment<'_>, server: Server, out: &mut Directives) {
        self.go(at, server, out);
    }

    fn loaded(&mut self, at: &Moment<'_>, (server, _): (Server, ModelId), out: &mut Directives) {
        self.go(at, server, out);
    }
}

/// The same replica on every GPU.
pub(crate) fn on_each<R: Replica + Clone + 'static>(
    replica: R,
    servers: u32,
    router: Router,
) -> Box<dyn Discipline> {
    Box::new(Replicas::new(vec![replica; servers as usize], router))
}
