//! Some types of GPU, CPU or other accelerator, and no others.

use super::{RateTable, Shares, TimeShare};
use crate::{Cx, Offer, PolicyError, View};

/// Leaves types out of the table of an optimiser, as if the cluster did not have them.
pub struct Only<S> {
    /// The optimiser whose table lacks the other types.
    pub inner: S,
    /// The names of the types that take part; empty means all.
    pub types: Vec<String>,
}

impl<S: TimeShare> TimeShare for Only<S> {
    fn table(&mut self, view: &View<'_>, offer: &Offer<'_>) -> RateTable {
        let mut table = self.inner.table(view, offer);
        if self.types.is_empty() {
            return table;
        }
        let name = |kind: usize| &view.cluster().kinds[table.kinds[kind].index()].name;
        let takes_part: Vec<bool> =
            (0..table.kinds.len()).map(|kind| self.types.contains(name(kind))).collect();
        for (gpus, takes_part) in table.capacity.iter_mut().zip(&takes_part) {
            *gpus *= u32::from(*takes_part);
        }
        for choice in &mut table.choices {
            if !choice.uses.iter().all(|(kind, _)| takes_part[usize::from(*kind)]) {
                choice.rates.fill(0.0);
            }
        }
        table
    }

    fn shares(
        &mut self,
        table: &RateTable,
        view: &View<'_>,
        cx: &mut Cx,
    ) -> Result<Shares, PolicyError> {
        self.inner.shares(table, view, cx)
    }

    fn is_steady(&self) -> bool {
        self.inner.is_steady()
    }

    fn forget(&mut self) {
        self.inner.forget();
    }
}
