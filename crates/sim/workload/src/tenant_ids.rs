//! Tenants by name, for readers that meet a name in every row.

use rustc_hash::FxHashMap;
use trainyard_types::{TenantId, Tenants};

/// The ids of tenants by name. [`Tenants`] alone looks through its list, which is quadratic over a large trace.
#[derive(Default)]
pub(crate) struct TenantIds(FxHashMap<String, TenantId>);

impl TenantIds {
    /// Those that are there; of several with one name the first.
    pub fn of(tenants: &Tenants) -> TenantIds {
        let mut ids = FxHashMap::default();
        for (id, tenant) in tenants.iter() {
            ids.entry(tenant.name.clone()).or_insert(id);
        }
        TenantIds(ids)
    }

    /// The tenant of that name, added at the top if it is new.
    pub fn intern(&mut self, tenants: &mut Tenants, name: &str) -> TenantId {
        if let Some(id) = self.0.get(name) {
            return *id;
        }
        let id = tenants.add(name);
        self.0.insert(name.to_owned(), id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_added_once_and_known_ones_keep_their_ids() {
        let mut tenants = Tenants::default();
        let lab = tenants.intern("lab");
        let mut ids = TenantIds::of(&tenants);
        assert_eq!(ids.intern(&mut tenants, "lab"), lab);
        let new = ids.intern(&mut tenants, "new");
        assert_eq!((ids.intern(&mut tenants, "new"), tenants.len()), (new, 3));
        assert_eq!(tenants.find("new"), Some(new));
    }
}
