//! The machine of the deterministic simulation, in a time of its own.

use trainyard_testkit::conformance::{Pacing, Simulated, promise};
use trainyard_testkit::each_promise;

macro_rules! tests {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            promise(stringify!($name))(&mut Simulated::new(1, Pacing::Jumps));
        }
    )* };
}

each_promise!(tests);
