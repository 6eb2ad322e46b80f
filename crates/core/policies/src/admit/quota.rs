//! Admission by tenant: a tenant's new jobs wait while its admitted ones ask for more than its part of the cluster.

use crate::prelude::*;
use std::collections::BTreeMap;
use trainyard_framework::{AdmissionControl, Control};
use trainyard_types::{TenantId, Tenants};

/// The row in the registry.
pub const ENTRY: AdmissionEntry = Entry {
    name: "quota",
    about: "A tenant's new jobs are held while its admitted ones ask for more than `quota` times its part.",
    paper: "-",
    needs: Needs::NOTHING,
    class: Taxonomy::rigid(Objective::Fairness, Family::Admission),
    settings: &[(
        "quota",
        "GPUs that a tenant's admitted jobs may ask for, as a multiple of its part of the cluster by weight",
    )],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    quota: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { quota: 1.0 }
    }
}

fn build(raw: &RawSettings) -> Result<Box<dyn AdmissionControl>, ConfigError> {
    let Settings { quota } = raw.read(ENTRY.name)?;
    if !(quota > 0.0 && quota.is_finite()) {
        return Err(ENTRY.bad_value("quota", quota, "a number above 0"));
    }
    Ok(Box::new(Quota { quota, allowed: Vec::new(), demand: BTreeMap::new() }))
}

struct Quota {
    quota: f64,
    /// GPUs that each tenant's admitted jobs may ask for.
    allowed: Vec<f64>,
    /// GPUs that they ask for.
    demand: BTreeMap<TenantId, u64>,
}

impl AdmissionControl for Quota {
    fn begin(&mut self, view: &View<'_>) {
        let gpus = f64::from(view.cluster().gpus()) * self.quota;
        self.allowed = parts(view.tenants()).into_iter().map(|part| part * gpus).collect();
        self.demand.clear();
        for job in view.granted().chain(view.waiting()) {
            self.accepted(job);
        }
    }

    fn judge(&mut self, job: JobRef<'_>, _view: &View<'_>) -> Control {
        let (tenant, gpus) = (job.spec.tenant, u64::from(job.spec.want.gpus));
        let used = self.demand.get(&tenant).copied().unwrap_or(0);
        let allowed = self.allowed.get(tenant.index()).copied().unwrap_or(0.0);
        // A tenant without admitted jobs may have one, or a job larger than its part would wait for ever.
        if used > 0 && (used + gpus) as f64 > allowed {
            let used = used.min(u64::from(u32::MAX)) as u32;
            return Control::Hold(Reason::Quota { tenant, ceiling: allowed as u32, used });
        }
        Control::Pass
    }

    fn accepted(&mut self, job: JobRef<'_>) {
        *self.demand.entry(job.spec.tenant).or_default() += u64::from(job.spec.want.gpus);
    }
}

/// The part of the cluster that each tenant has by its weight among its siblings, from the top down.
pub(crate) fn parts(tenants: &Tenants) -> Vec<f64> {
    let mut sums: BTreeMap<Option<TenantId>, f64> = BTreeMap::new();
    for (_, tenant) in tenants.iter() {
        *sums.entry(tenant.parent).or_default() += tenant.weight.max(0.0);
    }
    let of_siblings = |id: TenantId| {
        let tenant = tenants.get(id);
        let sum = sums[&tenant.parent];
        if sum > 0.0 { tenant.weight.max(0.0) / sum } else { 0.0 }
    };
    tenants.iter().map(|(id, _)| tenants.path(id).map(of_siblings).product()).collect()
}

#[cfg(test)]
mod tests {
    use super::parts;
    use trainyard_types::{Tenant, Tenants};

    #[test]
    fn a_tenant_has_its_weight_of_what_its_parent_has() {
        let weighted = |name: &str, weight| Tenant { weight, ..Tenant::named(name) };
        let mut tenants = Tenants::new(vec![weighted("a", 3.0), weighted("b", 1.0)]);
        let a = tenants.find("a").expect("it was listed");
        tenants.insert(Tenant { parent: Some(a), ..weighted("a1", 1.0) });
        let a2 = tenants.insert(Tenant { parent: Some(a), ..weighted("a2", 2.0) });
        let parts = parts(&tenants);
        assert!((parts[a.index()] - 0.75).abs() < 1e-9, "{parts:?}");
        assert!((parts[a2.index()] - 0.5).abs() < 1e-9, "{parts:?}");
    }
}
