//! Who may use a shared GPU next, and for how long.
//!
//! Programs on one GPU take turns: only the holder of the *token* gives the GPU work, for a *quota* of time.
//! The rules are those of Gemini, the run time of KubeShare (Yeh et al., HPDC 2020).
//!
//! - [`share`]: what a client was promised: at least `request`, at most `limit`, in permille of the time.
//! - [`settings`]: the window over which use is counted, and the bounds of quotas.
//! - [`history`]: how much of the last window a client used.
//! - [`burst`]: how long a quota a client needs.
//! - [`arbiter`]: the rules that choose among those who wait.
//! - [`counters`]: who waited for whom.
//! - [`long_run()`]: what the rules come to where all always have work, for forecasts and simulations.
//!
//! Nothing here reads a clock: the simulator and the live side hand in the time, and get the same answers.
//!
//! ```
//! use trainyard_arbiter::{Arbiter, ClientId, Next, Settings, Share};
//! use trainyard_types::Time;
//!
//! let mut arbiter = Arbiter::new(Settings::default()).unwrap();
//! arbiter.join(ClientId(0), Share { request: 300, limit: 1000 }).unwrap();
//! arbiter.request(Time(0), ClientId(0)).unwrap();
//! let Next::Grant(hold) = arbiter.select(Time(0)) else { panic!("there is no other client") };
//! assert_eq!(arbiter.give_back(Time(1_000), hold.token).unwrap().held.0, 1_000);
//! ```

pub mod arbiter;
pub mod burst;
pub mod counters;
pub mod history;
pub mod long_run;
pub mod settings;
pub mod share;

pub use arbiter::{Arbiter, Charge, ClientId, Hold, Next, Stale, TokenId, Unknown};
pub use counters::Counters;
pub use long_run::long_run;
pub use settings::{Settings, SettingsError};
pub use share::{Share, ShareError};
