//! Who may do what: one table.

use crate::{Code, Problem};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a caller may do at most; each role may do all that the ones before it may.
#[derive(
    Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Looks at lists.
    Viewer,
    /// Submits, and rules over jobs of its own.
    User,
    /// Rules over all jobs and nodes.
    Operator,
    /// Rules over policies, tokens and the store.
    Admin,
}

impl Role {
    /// All roles by name.
    pub const ALL: [(&'static str, Role); 4] = [
        ("viewer", Role::Viewer),
        ("user", Role::User),
        ("operator", Role::Operator),
        ("admin", Role::Admin),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Role::ALL.iter().find(|(_, role)| *role == self).expect("every role has a name").0
    }

    /// The role of that name.
    pub fn named(name: &str) -> Option<Role> {
        Role::ALL.iter().find(|(other, _)| *other == name).map(|(_, role)| *role)
    }
}

/// The user or token that a request comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The name jobs are submitted under.
    pub user: String,
    /// The Unix user at the other end of a local socket, or the one a token's user has here.
    pub uid: Option<u32>,
    /// What it may do at most.
    pub role: Role,
    /// The Unix groups that this user is in, by name.
    #[serde(default)]
    pub groups: Vec<String>,
}

impl Caller {
    /// A caller with a role, without a Unix user or groups.
    pub fn named(user: &str, role: Role) -> Caller {
        Caller { user: user.to_owned(), uid: None, role, groups: Vec::new() }
    }
}

/// What is asked for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Right {
    /// Lists of jobs, nodes, shares and use.
    Look,
    /// Logs, environment and arguments of a job.
    LookInside,
    /// A submission.
    Submit,
    /// Cancel, hold, release, requeue.
    RuleJob,
    /// Drain and resume nodes, set ceilings.
    RuleNodes,
    /// Change policy and settings, take captures.
    RulePolicy,
    /// Make and drop tokens, back up the store.
    RuleStore,
}

/// Whether a caller may do something to what belongs to `owner`.
pub fn check(caller: &Caller, right: Right, owner: Option<&str>) -> Result<(), Problem> {
    let own = owner.is_some_and(|owner| owner == caller.user);
    let least = match right {
        Right::Look => Role::Viewer,
        Right::Submit => Role::User,
        Right::LookInside | Right::RuleJob if own => Role::User,
        Right::LookInside | Right::RuleJob | Right::RuleNodes => Role::Operator,
        Right::RulePolicy | Right::RuleStore => Role::Admin,
    };
    if caller.role >= least {
        return Ok(());
    }
    let detail = format!(
        "`{}` has the role {}, and this needs {}{}",
        caller.user,
        caller.role.name(),
        least.name(),
        if owner.is_some() && !own { " because it belongs to another user" } else { "" },
    );
    Err(Problem::new(Code::Denied, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_rules_over_own_jobs_only() {
        let ann = Caller::named("ann", Role::User);
        assert!(check(&ann, Right::RuleJob, Some("ann")).is_ok());
        assert!(check(&ann, Right::LookInside, Some("bob")).is_err());
        assert!(check(&ann, Right::RulePolicy, None).is_err());
        let ops = Caller { role: Role::Operator, ..ann };
        assert!(check(&ops, Right::RuleJob, Some("bob")).is_ok());
    }
}
