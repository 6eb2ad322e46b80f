//! Grants whose shape cannot be launched, in one that can.

use super::Offer;
use crate::{Ask, JobRef, shapes};
use smallvec::smallvec;
use trainyard_types::{GpuType, Grant, Placement, PlacementRules, Shape, Want};

impl<'a> Offer<'a> {
    /// The nearest to a grant that can be launched: as many GPUs in another shape, or fewer where the job allows it.
    pub(super) fn by_rules(
        &self,
        grant: &Grant,
        lead: JobRef<'a>,
        rules: PlacementRules,
    ) -> Option<Placement> {
        let kind = match &grant.shape {
            Shape::Gpus { kind, .. } => *kind,
            Shape::PerKind(parts) => parts.first().map(|(kind, _)| *kind),
            Shape::PerNode(parts) => parts.first().map(|(node, _)| self.free.kind(*node)),
            Shape::Exact(there) => there.masks().first().map(|(node, _)| self.free.kind(*node)),
        };
        if rules.exclusive_nodes && grant.members.len() > 1 {
            return None;
        }
        let members = grant.members.iter().filter_map(|member| self.view.job(member.job));
        let least = members.map(|job| job.spec.want.gpus_min).max().unwrap_or(1).max(1);
        let mut counts = (least..=grant.count()).rev();
        if let Some(found) =
            counts.clone().find_map(|count| self.shaped(grant, lead, (count, kind)))
        {
            return Some(found);
        }
        // A type that could never hold it in an allowed shape was chosen without knowing the rules. Asked only where
        // there is another: it takes time linear in the nodes.
        let kinds = smallvec![kind.filter(|_| self.view.cluster().kinds.len() > 1)?];
        let only = Want { kinds, ..lead.spec.want.clone() };
        let never = self.view.cluster().largest_size(&only, grant.count()) < least;
        never.then(|| counts.find_map(|count| self.shaped(grant, lead, (count, None))))?
    }

    /// So many GPUs of a type, or of any, in a shape that can be launched: where the job is, or on the fewest nodes.
    fn shaped(
        &self,
        grant: &Grant,
        lead: JobRef<'a>,
        (count, kind): (u32, Option<GpuType>),
    ) -> Option<Placement> {
        let nodes_max = match grant.shape {
            Shape::Gpus { nodes_max, .. } => nodes_max,
            _ => 0,
        };
        let shaped = Grant { shape: Shape::Gpus { count, kind, nodes_max }, ..grant.clone() };
        if let Some(kept) = self.kept(&shaped, lead)
            && self.has_room(lead.id(), &self.allocation(&shaped, lead.id(), kept.clone()))
        {
            return Some(kept);
        }
        let kinds = match kind {
            Some(kind) => smallvec![kind],
            None => lead.spec.want.kinds.clone(),
        };
        let (ask, rules) = (Ask::new(lead, &shaped, count, kinds), self.view.cluster().rules);
        let open = self.open.as_ref().and_then(|open| shapes::place(rules, &ask, open));
        open.or_else(|| shapes::place(rules, &ask, self.free))
    }
}
