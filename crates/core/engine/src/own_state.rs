//! The engine's own state: written in place, and frozen for others at the cost of one copy.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use trainyard_framework::State;

/// A state that a decision may write and that others may look at.
pub(crate) trait Writable: Deref<Target = State> {
    /// The state, to be written.
    fn write(&mut self) -> &mut State;
}

impl Writable for Arc<State> {
    fn write(&mut self) -> &mut State {
        Arc::make_mut(self)
    }
}

/// What the engine knows. Every event writes it several times, so that readers are not counted: a caller that
/// asks for a frozen moment gets a copy, which all callers before the next write share.
#[derive(Clone, Debug)]
pub(crate) struct OwnState {
    state: State,
    frozen: OnceLock<Arc<State>>,
}

impl OwnState {
    pub(crate) fn new(state: State) -> OwnState {
        OwnState { state, frozen: OnceLock::new() }
    }

    /// The state as it is now, to be kept while this one is written.
    pub(crate) fn freeze(&self) -> Arc<State> {
        Arc::clone(self.frozen.get_or_init(|| Arc::new(self.state.clone())))
    }
}

impl Deref for OwnState {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        &self.state
    }
}

impl Writable for OwnState {
    #[inline]
    fn write(&mut self) -> &mut State {
        if self.frozen.get().is_some() {
            self.frozen = OnceLock::new();
        }
        &mut self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::{Cluster, Tenants, Time};

    #[test]
    fn a_frozen_moment_is_one_copy_until_the_state_is_written_and_stays_as_it_was() {
        let cluster = Arc::new(Cluster::uniform(1, 1, "v100"));
        let mut own = OwnState::new(State::new(cluster, Tenants::default()));
        let (one, other) = (own.freeze(), own.freeze());
        assert!(Arc::ptr_eq(&one, &other), "nothing was written in between");
        own.write().now = Time(7);
        let later = own.freeze();
        assert_eq!((one.now, later.now, own.now), (Time::ZERO, Time(7), Time(7)));
    }
}
