//! The store as a daemon uses it, and as bad luck treats it.

mod opening;
mod place;
mod round_trip;
