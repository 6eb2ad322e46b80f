//! All that is shown at once.

use super::DaemonSnapshot;
use crate::board::{OPEN_MAX, Shown};
use std::collections::BTreeMap;
use trainyard_api::board::{PartOfGpu, Rack};
use trainyard_api::request::JobFilter;

impl DaemonSnapshot {
    /// Everything but jobs that are over, which the store knows.
    pub fn shown(&self, last_event: u64) -> Shown {
        let open = self.jobs(&JobFilter { limit: Some(OPEN_MAX), ..JobFilter::default() });
        Shown {
            at: self.wall as f64 / 1e6,
            last_event,
            nodes: self.nodes(),
            racks: self.racks(),
            left_out: (self.records.len() - open.len()) as u64,
            open,
            next_job: self.next_job,
            ended: Vec::new(),
            tenants: self.fair(),
            shares: self.shares(),
        }
    }

    /// Racks with their nodes; none where all nodes stand in one.
    fn racks(&self) -> Vec<Rack> {
        let mut racks: BTreeMap<u16, Vec<String>> = BTreeMap::new();
        for node in &self.snapshot.state.cluster.nodes {
            racks.entry(node.rack).or_default().push(node.name.clone());
        }
        if racks.len() < 2 {
            return Vec::new();
        }
        racks
            .into_iter()
            .map(|(rack, nodes)| Rack { name: format!("rack {rack}"), nodes })
            .collect()
    }

    /// Jobs that hold less than whole GPUs.
    fn shares(&self) -> Vec<PartOfGpu> {
        let part = self.holders().filter_map(|live| {
            let held = live.state.held.as_ref()?;
            let permille = held.shares.iter().map(|share| share.permille()).min()?;
            (permille < 1000).then_some(PartOfGpu { job: live.spec.id.0, permille })
        });
        part.collect()
    }
}
