//! The table of the last decision, which is the same for as long as nothing that it is made from changed.

use super::{Cleaned, RateTable, TimeShare};
use crate::{Offer, View};
use trainyard_types::JobId;

/// A table, and what it was made from.
pub(super) struct Known {
    mark: Option<Mark>,
    pub(super) table: RateTable,
    pub(super) cleaned: Cleaned,
}

/// What a table depends on.
#[derive(PartialEq)]
struct Mark {
    beliefs: u64,
    jobs: Vec<JobId>,
    capacity: Vec<u32>,
}

impl Mark {
    /// Nothing if beliefs or the front itself may have changed without a sign.
    fn new(share: &dyn TimeShare, view: &View<'_>, offer: &Offer<'_>) -> Option<Mark> {
        let beliefs = view.beliefs_version().filter(|_| share.is_steady())?;
        let mut jobs: Vec<JobId> =
            view.state().waiting.iter().chain(view.state().granted.iter()).collect();
        jobs.sort_unstable();
        let kinds = view.state().shapes.iter();
        let capacity = kinds.map(|(kind, _)| offer.free().in_service(*kind)).collect();
        Some(Mark { beliefs, jobs, capacity })
    }
}

impl Known {
    /// Brings the table up to date. True if it was made anew.
    pub(super) fn update(
        known: &mut Option<Known>,
        share: &mut dyn TimeShare,
        (view, offer): (&View<'_>, &Offer<'_>),
    ) -> bool {
        let mark = Mark::new(share, view, offer);
        if mark.is_some() && known.as_ref().is_some_and(|known| known.mark == mark) {
            return false;
        }
        let mut table = share.table(view, offer);
        let cleaned = table.clean();
        *known = Some(Known { mark, table, cleaned });
        true
    }
}
