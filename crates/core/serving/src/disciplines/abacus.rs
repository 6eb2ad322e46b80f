//! Abacus: queries of several services overlap as groups of operator segments that fit in the headroom (Cui et al., SC 2021).

mod search;

pub use search::{Member, Overlap, Predictor, search};

use crate::discipline::{Directives, Discipline, Ending, Launch, Moment, Refusal, Running};
use crate::registry::{DisciplineEntry, Serves, Told};
use crate::replicas::{Replica, on_each};
use crate::request::{ModelId, RequestId, Server};
use crate::routing::{ROUTE, Router};
use crate::settings::{Setting, Settings};
use std::collections::{BTreeMap, VecDeque};
use trainyard_diagnostic::InputError;
use trainyard_types::Span;

/// The row in the table of disciplines.
pub const ENTRY: DisciplineEntry = DisciplineEntry {
    name: "abacus",
    about: "overlaps segments of several services as far as the headroom of the most urgent query goes",
    paper: "Cui et al., Enable Simultaneous DNN Services Based on Deterministic Operator Overlap and Precise Latency Prediction, SC 2021",
    partial: "segments of a model have one cost; no batching, as in the paper",
    must_know: "how much two models slow each other",
    needs_two: false,
    settings: &[
        ROUTE,
        Setting {
            key: "ways",
            default: "2",
            meaning: "positions that one step of the search tries",
        },
        Setting {
            key: "threshold",
            default: "500us",
            meaning: "headroom that a group may leave unused",
        },
        Setting {
            key: "together",
            default: "4",
            meaning: "the most queries in a group; 1 is sequential",
        },
    ],
    serves: Serves::Whole(make),
};

fn make(told: &Told<'_>, settings: &Settings) -> Result<Box<dyn Discipline>, InputError> {
    let abacus = Abacus {
        services: BTreeMap::new(),
        group: 0,
        ways: settings.whole("ways", (1, 64))? as u32,
        threshold: settings.span("threshold")?,
        together: settings.whole("together", (1, 16))? as usize,
    };
    Ok(on_each(abacus, told.fleet.servers, Router::of(settings, told.fleet.seed)?))
}

#[derive(Clone, Debug)]
struct Abacus {
    /// A queue for each service; only its head is scheduled.
    services: BTreeMap<ModelId, VecDeque<RequestId>>,
    /// Launches of the group that still run.
    group: usize,
    ways: u32,
    threshold: Span,
    together: usize,
}

impl Abacus {
    /// Heads by headroom, those without any given up. O(services log services).
    fn urgent(&mut self, at: &Moment<'_>, out: &mut Directives) -> Vec<(i128, RequestId)> {
        let mut heads = Vec::new();
        for queue in self.services.values_mut() {
            while let Some(id) = queue.front().copied() {
                let model = at.request(id).model;
                let left = at.fleet.model(model).segments - at.progress[id.index()];
                let need = i128::from((at.now + at.part(model, 1, left)).0);
                let headroom = i128::from(at.request(id).deadline.0) - need;
                if headroom >= 0 {
                    heads.push((headroom, id));
                    break;
                }
                queue.pop_front();
                out.refuse(id, Refusal::Late);
            }
        }
        heads.sort_unstable();
        heads
    }
}

impl Replica for Abacus {
    fn put(&mut self, at: &Moment<'_>, _: Server, request: RequestId) {
        self.services.entry(at.request(request).model).or_default().push_back(request);
    }

    fn ended(&mut self, at: &Moment<'_>, run: &Running, _: Ending) {
        self.group -= 1;
        if run.launch.segments.1 == at.fleet.model(run.launch.model).segments
            && let Some(queue) = self.services.get_mut(&run.launch.model)
        {
            queue.pop_front();
        }
    }

    /// A group runs to its end before the next one is made.
    fn go(&mut self, at: &Moment<'_>, server: Server, out: &mut Directives) {
        if self.group > 0 {
            return;
        }
        let heads = self.urgent(at, out);
        let whole = |id: RequestId| {
            let model = at.request(id).model;
            let segments = (at.progress[id.index()], at.fleet.model(model).segments);
            Member { model, batch: 1, segments }
        };
        let Some((_, first)) = heads.first() else { return };
        // Every query of the group ends within the time that the most urgent one has.
        let slack = at.request(*first).deadline.since(at.now);
        let count = self.together.min(at.fleet.together_max as usize);
        let wanted: Vec<Member> = heads.iter().take(count).map(|(_, id)| whole(*id)).collect();
        let predictor = Overlap { fleet: at.fleet };
        let group = search(&wanted, slack, &predictor, self.ways, self.threshold);
        for (member, (_, id)) in group.iter().zip(&heads) {
            let Member { model, segments, .. } = *member;
            out.launch_part(Launch { server, model, requests: vec![*id], segments });
        }
        self.group = group.len();
    }
}
