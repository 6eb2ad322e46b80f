//! What users and operators do to jobs, nodes, the policy and tokens.

use super::{ArrayState, Core, Order, Said, no_such_job};
use crate::access::{self, Caller, Right};
use crate::record::{Element, Record};
use crate::service::NewToken;
use serde_json::{Value, json};
use trainyard_api::request::{Act, NodeAct};
use trainyard_api::{Code, Problem};
use trainyard_store::Write;
use trainyard_types::{Event, JobId, NodeId, Span};

impl Core {
    /// Does something to a job.
    pub(super) fn act(&mut self, caller: &Caller, job: JobId, act: Act) -> Result<Said, Problem> {
        let Some(record) = self.records.get(&job) else { return Err(no_such_job(job, &self.ends)) };
        let owner = record.submission.user.clone();
        let (name, event) = match &act {
            Act::Cancel { .. } => ("cancel", Event::Cancelled(job)),
            Act::Hold => ("hold", Event::Hold(job)),
            Act::Release => ("release", Event::Release(job)),
            Act::Requeue => ("requeue", Event::Requeue(job)),
        };
        let allowed = access::check(caller, Right::RuleJob, Some(&owner));
        self.audit(&caller.user, name, &format!("job {}", job.0), allowed.is_ok());
        allowed?;
        let mut sentence = format!("{}: {name} job {}", caller.user, job.0);
        if let Act::Cancel { reason } = act {
            if let Some(why) = reason.as_ref().filter(|why| !why.is_empty()) {
                sentence.push_str(&format!(": {why}"));
            }
            let by =
                if caller.user == owner { String::new() } else { format!(" by {}", caller.user) };
            let said =
                format!("cancelled{by}{}", reason.map_or(String::new(), |why| format!(": {why}")));
            if let Some(record) = self.record_mut(job) {
                record.said = Some(said);
            }
        }
        self.event(name, Some(job), &sentence, Value::Null);
        self.apply(event);
        Ok(Said::Done)
    }

    /// Does something to a node.
    pub(super) fn act_on_node(
        &mut self,
        caller: &Caller,
        name: &str,
        act: NodeAct,
    ) -> Result<Said, Problem> {
        let verb = if matches!(act, NodeAct::Resume) { "resume" } else { "drain" };
        let allowed = access::check(caller, Right::RuleNodes, None);
        self.audit(&caller.user, verb, &format!("node {name}"), allowed.is_ok());
        allowed?;
        if let Some(gpu) = self.gpu_named(name) {
            let drain = match act {
                NodeAct::Drain { reason } => Some(reason.unwrap_or_default()),
                NodeAct::Resume => None,
            };
            return self.act_on_gpu(&caller.user, gpu?, drain);
        }
        let node = self.node(name)?;
        let mut sentence = format!("{}: {verb} {name}", caller.user);
        let mut data = Value::Null;
        match act {
            NodeAct::Drain { reason } => {
                let reason = reason.unwrap_or_default();
                if !reason.is_empty() {
                    sentence.push_str(&format!(": {reason}"));
                    data = json!({ "node": name, "reason": reason });
                }
                self.drained.insert(name.to_owned(), reason.clone());
                self.apply(Event::NodeDrained(node));
                self.turn.orders.push(Order::Drain(name.to_owned(), Some(reason)));
            }
            NodeAct::Resume => {
                self.drained.remove(name);
                self.apply(Event::NodeUp(node));
                self.turn.orders.push(Order::Drain(name.to_owned(), None));
            }
        }
        let drained = json!(self.drained);
        self.meta("drained", &drained);
        self.event("node", None, &sentence, data);
        Ok(Said::Done)
    }

    /// Another policy decides from now on.
    pub(super) fn set_policy(
        &mut self,
        caller: &Caller,
        label: String,
        half_life: Span,
    ) -> Result<Said, Problem> {
        let allowed = access::check(caller, Right::RulePolicy, None);
        self.audit(&caller.user, "policy", &label, allowed.is_ok());
        allowed?;
        self.event("policy", None, &format!("{}: policy {label}", caller.user), Value::Null);
        self.forget_trial();
        self.switch_policy(label, half_life);
        Ok(Said::Done)
    }

    pub(super) fn add_token(&mut self, caller: &Caller, token: NewToken) -> Result<Said, Problem> {
        let NewToken { info, digest } = token;
        let allowed = access::check(caller, Right::RuleStore, None);
        self.audit(&caller.user, "token create", &info.name, allowed.is_ok());
        allowed?;
        if !self.tokens.insert(info.name.clone()) {
            let detail =
                format!("there is a token `{}` already: drop it or choose a name", info.name);
            return Err(Problem::field(Code::Conflict, "name", detail));
        }
        self.turn.writes.push(Write::AddToken {
            name: info.name,
            digest,
            user: info.user,
            role: info.role.name().to_owned(),
            created: (info.created * 1e6) as i64,
            expires: info.expires.map(|seconds| (seconds * 1e6) as i64),
        });
        Ok(Said::Done)
    }

    pub(super) fn drop_token(&mut self, caller: &Caller, name: String) -> Result<Said, Problem> {
        let allowed = access::check(caller, Right::RuleStore, None);
        self.audit(&caller.user, "token drop", &name, allowed.is_ok());
        allowed?;
        if !self.tokens.remove(&name) {
            let detail = format!("there is no token `{name}`");
            return Err(Problem::field(Code::NotFound, "name", detail));
        }
        self.turn.writes.push(Write::DropToken { name });
        Ok(Said::Done)
    }

    /// An element joins its array: it may take part, or waits until fewer do.
    pub(super) fn join_array(&mut self, job: JobId, element: Option<Element>) {
        let Some(element) = element.filter(|element| element.at_once > 0) else { return };
        let array = self.arrays.entry(element.first).or_default();
        array.at_once = element.at_once;
        if array.active < array.at_once {
            array.active += 1;
        } else {
            array.waiting.push_back(job);
            self.apply(Event::Throttle(job, true));
        }
    }

    /// An element is over: the next one of its array may take part.
    pub(super) fn let_next_of_array(&mut self, record: &Record) {
        let Some(element) = record.submission.array else { return };
        let Some(array) = self.arrays.get_mut(&element.first) else { return };
        let own = record.submission.job.id;
        let before = array.waiting.len();
        array.waiting.retain(|job| *job != own);
        if array.waiting.len() == before {
            array.active = array.active.saturating_sub(1);
        }
        let next = match array.active < array.at_once {
            true => array.waiting.pop_front(),
            false => None,
        };
        array.active += u32::from(next.is_some());
        if array.active == 0 && array.waiting.is_empty() {
            self.arrays.remove(&element.first);
        }
        if let Some(next) = next {
            self.apply(Event::Throttle(next, false));
        }
    }

    /// Arrays as they were, after a restart: throttled elements wait, the others take part.
    pub(super) fn rebuild_arrays(&mut self) {
        self.arrays.clear();
        for (job, record) in self.records.iter() {
            let Some(element) = record.submission.array.filter(|element| element.at_once > 0)
            else {
                continue;
            };
            let array = self.arrays.entry(element.first).or_insert_with(|| ArrayState {
                at_once: element.at_once,
                ..ArrayState::default()
            });
            if self.engine.kept(job).is_some_and(|kept| kept.throttled) {
                array.waiting.push_back(job);
            } else {
                array.active += 1;
            }
        }
    }

    pub(crate) fn node(&self, name: &str) -> Result<NodeId, Problem> {
        let nodes = &self.options.cluster.nodes;
        let found = nodes.iter().find(|node| node.name == name);
        found.map(|node| node.id).ok_or_else(|| {
            let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).take(8).collect();
            let detail = format!("there is no node `{name}`: expected one of {}", names.join(", "));
            Problem::field(Code::NotFound, "node", detail)
        })
    }
}
