//! Waiting jobs that fit or fail alike, so that one that does not fit speaks for all of its class.

use crate::prelude::*;
use rustc_hash::FxHashMap;
use trainyard_types::{ModelId, TenantId, Want};

/// Same wish, same profile or none, same tenant where that matters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Class {
    pub(crate) want: Want,
    model: Option<ModelId>,
    pub(crate) tenant: Option<TenantId>,
}

/// All classes seen so far, numbered in the order they were seen.
#[derive(Default)]
pub(crate) struct Classes {
    list: Vec<Class>,
    numbers: FxHashMap<Class, usize>,
}

impl Classes {
    /// The number of a job's class; `by_tenant` tells tenants apart.
    pub(crate) fn number(&mut self, job: JobRef<'_>, view: &View<'_>, by_tenant: bool) -> usize {
        let class = Class {
            want: job.spec.want.clone(),
            model: view.profiled(job),
            tenant: by_tenant.then_some(job.spec.tenant),
        };
        if let Some(&number) = self.numbers.get(&class) {
            return number;
        }
        self.list.push(class.clone());
        self.numbers.insert(class, self.list.len() - 1);
        self.list.len() - 1
    }

    pub(crate) fn get(&self, number: usize) -> &Class {
        &self.list[number]
    }
}
