//! Maintenance windows and reservations: kept by the wall clock and by name, told to the engine in its own time.

use super::{Core, Said};
use crate::access::{self, Caller, Right};
use crate::messages::moment;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use trainyard_api::window::{Reserved, WindowRequest};
use trainyard_api::{Code, Problem};
use trainyard_types::{Allowed, Event, JobId, NodeId, Time, Window, WindowId};

/// Windows that may be open at once.
const WINDOWS_MAX: usize = 1000;
/// The longest a window may last, and the furthest it may lie ahead.
const SECONDS_MAX: f64 = 3660.0 * 86_400.0;

/// A window as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptWindow {
    /// What was declared.
    pub window: WindowRequest,
    /// By whom.
    pub by: String,
}

/// All windows as they are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptWindows {
    /// The next number.
    pub next: u32,
    /// Those that are not over, by number.
    pub all: BTreeMap<u32, KeptWindow>,
}

impl Core {
    /// Declares a window.
    pub(super) fn add_window(
        &mut self,
        caller: &Caller,
        request: WindowRequest,
    ) -> Result<Said, Problem> {
        let allowed = access::check(caller, Right::RuleNodes, None);
        self.audit(&caller.user, "window add", &request.nodes.join(","), allowed.is_ok());
        allowed?;
        self.check_window(&request)?;
        self.drop_windows_that_are_over();
        if self.windows.all.len() >= WINDOWS_MAX {
            let detail = format!("there are {WINDOWS_MAX} windows already: remove some");
            return Err(Problem::new(Code::TooMany, detail));
        }
        self.windows.next += 1;
        let id = self.windows.next;
        let sentence = format!(
            "{}: window {id} on {} from {} to {}{}",
            caller.user,
            request.nodes.join(", "),
            moment(request.from),
            moment(request.until),
            if request.reason.is_empty() { String::new() } else { format!(": {}", request.reason) },
        );
        self.windows.all.insert(id, KeptWindow { window: request, by: caller.user.clone() });
        self.event("window", None, &sentence, json!({ "window": id }));
        self.keep_windows();
        self.tell_window(id);
        Ok(Said::Window(id))
    }

    /// Takes a window back.
    pub(super) fn remove_window(&mut self, caller: &Caller, id: u32) -> Result<Said, Problem> {
        let allowed = access::check(caller, Right::RuleNodes, None);
        self.audit(&caller.user, "window remove", &id.to_string(), allowed.is_ok());
        allowed?;
        self.drop_windows_that_are_over();
        if self.windows.all.remove(&id).is_none() {
            let detail = format!("there is no window {id} that has not ended");
            return Err(Problem::field(Code::NotFound, "window", detail));
        }
        let sentence = format!("{}: window {id} is removed", caller.user);
        self.event("window", None, &sentence, json!({ "window": id }));
        self.keep_windows();
        self.apply(Event::WindowRemoved(WindowId(id)));
        Ok(Said::Done)
    }

    /// A new job is among those that reservations are for, where its user or a tenant that was not known says so.
    pub(super) fn join_windows(&mut self, user: &str, tenant: &str) {
        let names = |names: &[String], name: &str| names.iter().any(|other| other == name);
        let concerned = |kept: &KeptWindow| {
            let reserved = kept.window.reserved.as_ref();
            reserved.is_some_and(|reserved| {
                names(&reserved.users, user) || names(&reserved.tenants, tenant)
            })
        };
        let all = self.windows.all.iter();
        let ids: Vec<u32> = all.filter(|(_, kept)| concerned(kept)).map(|(id, _)| *id).collect();
        for id in ids {
            self.tell_window(id);
        }
    }

    /// All windows as the engine has them, for an engine that is made anew.
    pub(super) fn engine_windows(&self) -> Vec<Window> {
        self.windows.all.keys().filter_map(|id| self.engine_window(*id)).collect()
    }

    fn check_window(&self, request: &WindowRequest) -> Result<(), Problem> {
        let bad = |field: &str, detail: &str| Problem::field(Code::BadInput, field, detail);
        if request.nodes.is_empty() {
            return Err(bad("nodes", "expected the name of at least one node"));
        }
        for name in &request.nodes {
            self.node(name)?;
        }
        let now = self.wall as f64 / 1e6;
        let is_time = |seconds: f64| seconds.is_finite() && seconds <= now + SECONDS_MAX;
        if !is_time(request.from) || !is_time(request.until) || request.from < 0.0 {
            return Err(bad("from", "expected a moment within ten years"));
        }
        if request.until <= request.from || request.until <= now {
            return Err(bad(
                "until",
                "expected a moment after its beginning that is still to come",
            ));
        }
        let Some(Reserved { tenants, users, jobs }) = &request.reserved else { return Ok(()) };
        if tenants.is_empty() && users.is_empty() && jobs.is_empty() {
            let detail =
                "a reservation is for a tenant, a user or a job: name one, or leave it out";
            return Err(bad("reserved", detail));
        }
        Ok(())
    }

    fn drop_windows_that_are_over(&mut self) {
        let now = self.wall as f64 / 1e6;
        self.windows.all.retain(|_, kept| kept.window.until > now);
    }

    fn keep_windows(&mut self) {
        let windows = json!(self.windows);
        self.meta("windows", &windows);
    }

    fn tell_window(&mut self, id: u32) {
        if let Some(window) = self.engine_window(id) {
            self.apply(Event::WindowSet(window));
        }
    }

    /// A window in the engine's time. Names that are not there any more are left out.
    fn engine_window(&self, id: u32) -> Option<Window> {
        let WindowRequest { nodes, from, until, reserved, .. } = &self.windows.all.get(&id)?.window;
        let nodes: Vec<NodeId> = nodes.iter().filter_map(|name| self.node(name).ok()).collect();
        let time = |seconds: f64| {
            let ahead = (seconds * 1e6 - self.wall as f64) as i64;
            Time(self.now.0.saturating_add_signed(ahead))
        };
        let reserved = reserved.as_ref().map(|reserved| self.allowed(reserved));
        let (from, until) = (time(*from), time(*until));
        Some(Window { id: WindowId(id), nodes, from, until, reserved })
    }

    fn allowed(&self, reserved: &Reserved) -> Allowed {
        let tenants = reserved.tenants.iter().filter_map(|name| self.tenant_ids.get(name));
        let of_users = self.records.iter().filter(|(_, record)| {
            !reserved.users.is_empty() && reserved.users.contains(&record.submission.user)
        });
        let named = reserved.jobs.iter().map(|job| JobId(*job));
        Allowed {
            tenants: tenants.copied().collect(),
            jobs: named.chain(of_users.map(|(job, _)| job)).collect(),
        }
    }
}
