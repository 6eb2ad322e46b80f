//! Admission by load: new jobs wait outside while those inside already ask for more than the cluster has.

use crate::{Admission, Cx, Offer, Policy, PolicyError, View};
use trainyard_types::Reason;

/// Any policy behind a gate that opens while admitted demand is at most `load` times the cluster (Blox, EuroSys'24, 4.1).
pub struct Gated {
    inner: Box<dyn Policy>,
    load: f64,
}

impl Gated {
    /// A gate in front of a policy.
    pub fn new(inner: Box<dyn Policy>, load: f64) -> Gated {
        Gated { inner, load }
    }
}

impl Policy for Gated {
    fn admit(&mut self, queue: &mut Admission<'_>, view: &View<'_>, _cx: &mut Cx) {
        let allowed = f64::from(view.cluster().gpus()) * self.load;
        let mut demand = view.demand();
        while let Some(id) = queue.next() {
            let gpus = view.job(id).map_or(0, |job| u64::from(job.spec.want.gpus));
            // An empty cluster takes any job, or one larger than the gate would wait for ever.
            if demand > 0 && (demand + gpus) as f64 > allowed {
                let demand = demand.min(u64::from(u32::MAX)) as u32;
                queue.hold(Reason::Overload { demand, allowed: allowed as u32 });
                return;
            }
            demand += gpus;
            queue.accept();
        }
    }

    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        self.inner.allocate(view, offer, cx)
    }

    fn forget(&mut self) {
        self.inner.forget();
    }
}
