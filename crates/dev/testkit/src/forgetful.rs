//! A policy that loses its memory.

use trainyard_framework::{Admission, Cx, Offer, Policy, PolicyError, View};

/// Forgets everything before every `every`-th decision, as a daemon does that is restarted.
pub struct Forgetful {
    /// The policy.
    pub inner: Box<dyn Policy>,
    /// How often it forgets.
    pub every: u64,
}

impl Policy for Forgetful {
    fn admit(&mut self, queue: &mut Admission<'_>, view: &View<'_>, cx: &mut Cx) {
        self.inner.admit(queue, view, cx);
    }

    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        if view.decision().is_multiple_of(self.every) {
            self.inner.forget();
        }
        self.inner.allocate(view, offer, cx)
    }

    fn forget(&mut self) {
        self.inner.forget();
    }
}
