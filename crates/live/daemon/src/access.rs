//! How far submissions may go, and who may submit for whom. Which role may do what is in `trainyard_api::access`.

use std::collections::BTreeMap;
use trainyard_api::{Code, JobSpec, Problem};

pub use trainyard_api::access::{Caller, Right, Role, check};

/// How far the submissions of each role may go, and who belongs to which tenant.
///
/// Without such limits the user who asks for the most gets the most, at the cost of the shares of others.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The highest priority of each role; one that is not named has no limit.
    pub priority_max: BTreeMap<Role, i32>,
    /// The largest weight of each role; one that is not named has no limit.
    pub weight_max: BTreeMap<Role, f64>,
    /// Who may submit for a tenant beside operators: names of users, `@group`, or `*` for all users.
    pub members: BTreeMap<String, Vec<String>>,
}

impl Default for Rules {
    /// All users have the same priority and weight, and each has the tenant of their own name.
    fn default() -> Rules {
        Rules {
            priority_max: [(Role::User, 0)].into(),
            weight_max: [(Role::User, 1.0)].into(),
            members: BTreeMap::new(),
        }
    }
}

impl Rules {
    /// Whether a caller may submit this; if not, what would be allowed and who can change that.
    pub fn check(&self, caller: &Caller, spec: &JobSpec) -> Result<(), Problem> {
        let above = |field: &str, asked: String, most: String| {
            let role = caller.role.name();
            let flag = format!("--{field}-max {role}={asked}");
            let detail = format!(
                "`{field}` is {asked}, and the role {role} may ask for {most} at most: an operator can submit it, \
                 and an admin can start the daemon with {flag}"
            );
            Problem::field(Code::Denied, field, detail)
        };
        if let Some(most) = self.priority_max.get(&caller.role)
            && spec.priority > *most
        {
            return Err(above("priority", spec.priority.to_string(), most.to_string()));
        }
        if let Some(most) = self.weight_max.get(&caller.role)
            && spec.weight > *most
        {
            return Err(above("weight", spec.weight.to_string(), most.to_string()));
        }
        match &spec.tenant {
            Some(tenant) if !self.is_member(caller, tenant) => {
                let mut allowed: Vec<String> = vec![format!("`{}`", caller.user)];
                let theirs = self.members.keys().filter(|other| **other != caller.user);
                let theirs = theirs.filter(|other| self.is_member(caller, other));
                allowed.extend(theirs.map(|tenant| format!("`{tenant}`")));
                let detail = format!(
                    "`{}` is no member of the tenant `{tenant}` and may use {}: an operator can submit it, and an \
                     admin can add members in the file of --tenants",
                    caller.user,
                    allowed.join(", ")
                );
                Err(Problem::field(Code::Denied, "tenant", detail))
            }
            _ => Ok(()),
        }
    }

    /// Whether a caller may submit for a tenant.
    fn is_member(&self, caller: &Caller, tenant: &str) -> bool {
        let named = |member: &String| match member.strip_prefix('@') {
            Some(group) => caller.groups.iter().any(|own| own == group),
            None => member == "*" || *member == caller.user,
        };
        caller.role >= Role::Operator
            || tenant == caller.user
            || self.members.get(tenant).is_some_and(|members| members.iter().any(named))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_takes_neither_a_higher_priority_nor_a_larger_weight_nor_anothers_tenant() {
        let rules = Rules {
            members: [
                ("vision".to_owned(), vec!["ann".to_owned(), "@labs".to_owned()]),
                ("open".to_owned(), vec!["*".to_owned()]),
                ("bob".to_owned(), Vec::new()),
            ]
            .into(),
            ..Rules::default()
        };
        let ann = Caller::named("ann", Role::User);
        let spec = |priority: i32, weight: f64, tenant: Option<&str>| JobSpec {
            priority,
            weight,
            tenant: tenant.map(str::to_owned),
            ..JobSpec::default()
        };
        let fine = [spec(0, 1.0, None), spec(-5, 0.5, Some("ann")), spec(0, 1.0, Some("vision"))];
        assert!(
            fine.iter()
                .chain([&spec(0, 1.0, Some("open"))])
                .all(|spec| rules.check(&ann, spec).is_ok())
        );
        for (spec, field, part) in [
            (spec(1, 1.0, None), "priority", "--priority-max user=1"),
            (spec(i32::MAX, 1.0, None), "priority", "0 at most"),
            (spec(0, 1.5, None), "weight", "--weight-max user=1.5"),
            (spec(0, 1.0, Some("bob")), "tenant", "may use `ann`, `open`, `vision`"),
            (spec(0, 1.0, Some("new")), "tenant", "--tenants"),
        ] {
            let problem = rules.check(&ann, &spec).unwrap_err();
            assert_eq!((problem.code, problem.field.as_deref()), (Code::Denied, Some(field)));
            assert!(problem.detail.contains(part), "{problem}");
            let ops = Caller { role: Role::Operator, ..ann.clone() };
            assert!(rules.check(&ops, &spec).is_ok(), "operators may: {spec:?}");
        }
        let eve = Caller { groups: vec!["labs".to_owned()], ..Caller::named("eve", Role::User) };
        assert!(rules.check(&eve, &spec(0, 1.0, Some("vision"))).is_ok());
        let bounded = Rules { priority_max: [(Role::Operator, 9)].into(), ..Rules::default() };
        let ops = Caller::named("op", Role::Operator);
        assert!(bounded.check(&ops, &spec(10, 1.0, None)).is_err(), "each role has its own limit");
    }
}
