//! What the backend sees of nodes, and what that means to the engine.

use super::Core;
use crate::messages;
use serde_json::{Value, json};
use trainyard_backend::NodeSeen;
use trainyard_types::{Event, JobId};

impl Core {
    /// A node is seen, perhaps otherwise than before. One that is not in the cluster is told of once.
    pub(super) fn node_seen(&mut self, name: &str, seen: NodeSeen) {
        let usual = NodeSeen { up: true, ..NodeSeen::default() };
        let before = self.nodes.insert(name.to_owned(), seen.clone());
        let is_new = before.is_none();
        let before = before.unwrap_or(usual);
        let Ok(node) = self.node(name) else {
            if is_new {
                let sentence = format!("node {name} is new: it is used after the next start");
                self.event("node", None, &sentence, Value::Null);
            }
            return;
        };
        if before == seen {
            return;
        }
        if before.up && !seen.up {
            self.apply(Event::NodeLost(node));
        }
        let was_out = !before.up || before.drained.is_some();
        if was_out && seen.up && seen.drained.is_none() {
            self.apply(Event::NodeUp(node));
        }
        if seen.up && (seen.drained.is_some() || self.drained.contains_key(name)) {
            self.apply(Event::NodeDrained(node));
        }
        if before.set_aside() != seen.set_aside() {
            self.apply(Event::Claimed(node, seen.set_aside()));
        }
        let change = change(&before, &seen);
        if !change.is_empty() {
            self.event("node", None, &format!("node {name} {change}"), json!(seen));
        }
    }

    /// A user or an operator ended a job where it waits or runs, not through the daemon: it is cancelled here too.
    pub(super) fn gone(&mut self, job: JobId, why: &str) {
        let Some(record) = self.record_mut(job) else { return };
        record.said = Some(why.to_owned());
        self.event("cancel", Some(job), &format!("job {}: {why}", job.0), Value::Null);
        self.apply(Event::Cancelled(job));
    }
}

/// What changed, for people; what others use comes and goes without a word.
fn change(before: &NodeSeen, seen: &NodeSeen) -> String {
    match (before.up, seen.up) {
        (true, false) => "is lost".to_owned(),
        (false, true) => "is back".to_owned(),
        _ => match (&before.drained, &seen.drained) {
            (None, Some(why)) => format!("takes no new work: {why}"),
            (Some(_), None) => "takes work again".to_owned(),
            _ if before.unaccounted < seen.unaccounted => {
                format!("has {}", messages::unaccounted(seen.unaccounted))
            }
            _ if before.unaccounted > 0 && seen.unaccounted == 0 => {
                "has the GPUs back that no job had".to_owned()
            }
            _ => String::new(),
        },
    }
}
