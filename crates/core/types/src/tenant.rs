//! How much each tenant may use: a tree of tenants with weights and ceilings.

use crate::TenantId;
use serde::{Deserialize, Serialize};

/// A user, team or organisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// What it belongs to; parents come before children.
    pub parent: Option<TenantId>,
    /// Its weight among its siblings.
    pub weight: f64,
    /// The most GPUs it and all below it may hold at once.
    pub ceiling: Option<u32>,
    /// Whether its jobs may share a GPU with jobs of other tenants that allow it too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_gpus: bool,
}

impl Tenant {
    /// A tenant at the top with weight 1 and no ceiling.
    pub fn named(name: &str) -> Tenant {
        Tenant {
            name: name.to_owned(),
            parent: None,
            weight: 1.0,
            ceiling: None,
            shares_gpus: false,
        }
    }
}

/// All tenants, by [`TenantId`]. Never empty: tenant 0 is there by default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tenants(Vec<Tenant>);

impl Default for Tenants {
    fn default() -> Tenants {
        Tenants(vec![Tenant::named("default")])
    }
}

impl Tenants {
    /// From a list in which parents come before children.
    ///
    /// # Panics
    /// When the list is empty or a parent does not come first: readers check that before.
    pub fn new(list: Vec<Tenant>) -> Tenants {
        assert!(!list.is_empty(), "at least one tenant is needed");
        for (index, tenant) in list.iter().enumerate() {
            let ordered = tenant.parent.is_none_or(|parent| parent.index() < index);
            assert!(ordered, "tenant `{}` comes before its parent", tenant.name);
        }
        Tenants(list)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One tenant.
    pub fn get(&self, id: TenantId) -> &Tenant {
        &self.0[id.index()]
    }

    /// Changes a ceiling.
    pub fn set_ceiling(&mut self, id: TenantId, ceiling: Option<u32>) {
        self.0[id.index()].ceiling = ceiling;
    }

    /// Changes a weight.
    pub fn set_weight(&mut self, id: TenantId, weight: f64) {
        self.0[id.index()].weight = weight;
    }

    /// Changes whether its jobs may share GPUs with those of others.
    pub fn set_shares_gpus(&mut self, id: TenantId, shares_gpus: bool) {
        self.0[id.index()].shares_gpus = shares_gpus;
    }

    /// Whether jobs of two tenants may share a GPU: of the same one, or of two that both allow it.
    pub fn may_share(&self, one: TenantId, other: TenantId) -> bool {
        one == other || self.get(one).shares_gpus && self.get(other).shares_gpus
    }

    /// Each with its id.
    pub fn iter(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        self.0.iter().enumerate().map(|(index, tenant)| (TenantId(index as u32), tenant))
    }

    /// The tenant of that name.
    pub fn find(&self, name: &str) -> Option<TenantId> {
        self.iter().find(|(_, tenant)| tenant.name == name).map(|(id, _)| id)
    }

    /// The tenant of that name, added at the top if it is new.
    pub fn intern(&mut self, name: &str) -> TenantId {
        self.find(name).unwrap_or_else(|| self.add(name))
    }

    /// A new tenant at the top; that no other has its name is the caller's to know.
    pub fn add(&mut self, name: &str) -> TenantId {
        self.0.push(Tenant::named(name));
        TenantId((self.0.len() - 1) as u32)
    }

    /// Adds a tenant, whose parent must be there.
    pub fn insert(&mut self, tenant: Tenant) -> TenantId {
        assert!(tenant.parent.is_none_or(|parent| parent.index() < self.0.len()), "no such parent");
        self.0.push(tenant);
        TenantId((self.0.len() - 1) as u32)
    }

    /// The tenant, its parent, and so on to the top.
    pub fn path(&self, id: TenantId) -> impl Iterator<Item = TenantId> + '_ {
        std::iter::successors(Some(id), |id| self.get(*id).parent)
    }
}
