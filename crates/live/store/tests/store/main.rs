//! The store as a daemon uses it, and as bad luck treats it.

mod crash;
mod damage;
mod full;
mod keeping;
mod opening;
mod place;
mod rehearsing;
mod round_trip;
mod speed;
mod upgrade;
