//! First come, first served, one request at a time: what a server without batching does.

use crate::discipline::{Directives, Discipline, Ending, Moment, Refusal, Running};
use crate::registry::{DisciplineEntry, Serves, Told};
use crate::replicas::{Replica, on_each};
use crate::request::{RequestId, Server};
use crate::routing::{ROUTE, Router};
use crate::settings::{Setting, Settings};
use std::collections::VecDeque;
use trainyard_diagnostic::InputError;

/// The row in the table of disciplines.
pub const ENTRY: DisciplineEntry = DisciplineEntry {
    name: "fifo",
    about: "one request at a time in order of arrival, without batches",
    paper: "a baseline",
    partial: "",
    must_know: "nothing",
    needs_two: false,
    settings: &[
        ROUTE,
        Setting {
            key: "late",
            default: "serve",
            meaning: "what is past its deadline: serve or drop",
        },
    ],
    serves: Serves::Whole(make),
};

fn make(told: &Told<'_>, settings: &Settings) -> Result<Box<dyn Discipline>, InputError> {
    let drops = settings.word("late", &["serve", "drop"])? == 1;
    let router = Router::of(settings, told.fleet.seed)?;
    Ok(on_each(Fifo { queue: VecDeque::new(), drops }, told.fleet.servers, router))
}

#[derive(Clone, Debug)]
struct Fifo {
    queue: VecDeque<RequestId>,
    drops: bool,
}

impl Replica for Fifo {
    fn put(&mut self, _: &Moment<'_>, _: Server, request: RequestId) {
        self.queue.push_back(request);
    }

    fn ended(&mut self, _: &Moment<'_>, _: &Running, _: Ending) {}

    /// O(1) for each request over its life.
    fn go(&mut self, at: &Moment<'_>, server: Server, out: &mut Directives) {
        if !at.is_idle(server) {
            return;
        }
        while let Some(request) = self.queue.pop_front() {
            if self.drops && at.request(request).deadline < at.now {
                out.refuse(request, Refusal::Late);
                continue;
            }
            return out.launch(at, server, vec![request]);
        }
    }
}
