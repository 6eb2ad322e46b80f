//! Maintenance and reservations, as rows and in words.

use super::DaemonSnapshot;
use crate::messages;
use trainyard_api::window::WindowRow;
use trainyard_types::{Reason, Tenants, Window, WindowId};

impl DaemonSnapshot {
    /// Windows that are not over, by number.
    pub fn windows(&self) -> Vec<WindowRow> {
        let known = &self.snapshot.state.windows;
        let rows = self.windows.iter().filter_map(|(id, kept)| {
            let window = known.get(WindowId(*id)).filter(|one| one.until > self.snapshot.now)?;
            let state = if window.is_on(self.snapshot.now) { "on" } else { "planned" };
            Some(WindowRow {
                id: *id,
                window: kept.window.clone(),
                by: kept.by.clone(),
                state: state.to_owned(),
                leaving: self.leaving(window),
            })
        });
        rows.collect()
    }

    /// Jobs that hold GPUs where a window does not allow them.
    fn leaving(&self, window: &Window) -> Vec<u32> {
        let live = self.holders();
        let there = live.filter(|live| {
            let held = live.state.held.as_ref();
            let here = held.is_some_and(|held| {
                window.nodes.iter().any(|node| held.placement.mask(*node) != 0)
            });
            here && !window.allows(&live.spec)
        });
        there.map(|live| live.spec.id.0).collect()
    }

    /// One sentence that says why a job does not run.
    pub fn sentence(&self, reason: &Reason) -> String {
        self.sentence_for(reason, &self.snapshot.state.tenants)
    }

    /// The same where tenants may be more than are known.
    pub fn sentence_for(&self, reason: &Reason, tenants: &Tenants) -> String {
        if let Reason::OwnGpu { gpu, by, until } = reason {
            let name = &self.snapshot.state.cluster.node(gpu.node).name;
            let elsewhere = messages::moment(self.unix(*until));
            let where_it_was = messages::own_gpu(name, gpu.gpu, *by);
            return format!("{where_it_was}; from {elsewhere} on it may go on elsewhere");
        }
        let Reason::Window { window, node, from, until } = reason else {
            return messages::sentence(reason, self.snapshot.now, tenants);
        };
        let kept = self.windows.get(&window.0);
        let what = match kept.is_some_and(|kept| kept.window.reserved.is_some()) {
            true => "is reserved for others",
            false => "has maintenance",
        };
        let why = kept.map_or("", |kept| kept.window.reason.as_str());
        let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
        let name = &self.snapshot.state.cluster.node(*node).name;
        let (from, until) =
            (messages::moment(self.unix(*from)), messages::moment(self.unix(*until)));
        format!(
            "waits because node {name} {what} from {from} to {until}{why}, and it can neither end nor save before"
        )
    }
}
