//! The library that is loaded into programs on a shared GPU (`LD_PRELOAD`).
//!
//! It stands between a program and the driver (`libcuda.so.1`): allocations beyond the job's cap get the driver's
//! ordinary out-of-memory answer, and work reaches the GPU only during the job's turns. Programs know nothing of it.
//! Without `TRAINYARD_SHARING_SOCKET` in the environment it changes nothing.
//!
//! How a call gets here:
//! - [`find`]: `dlsym` is replaced, and answers with our functions where the driver's are asked for.
//! - [`launches`], [`memory`], [`captures`], [`lookup`]: our functions, under the driver's names, for programs that link the driver
//!   directly; `cuGetProcAddress` answers like `dlsym`.
//!
//! What happens then:
//! - [`job`]: one connection for turns and one for memory, made at the first call that needs it, anew after a fork.
//! - [`gate`]: what every launch passes; [`turns`]: who opens and shuts it; [`pauses`]: what is waited for before it shuts.
//! - [`ledger`]: what was allocated where.
//! - [`link`]: the socket.
//! - [`driver`]: the driver's own functions; [`system`]: the few calls of the C library that Rust has no safe form of.
//!
//! Nothing here may panic or block where the program would not: the caller is code that knows nothing of us.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

pub mod captures;
pub mod driver;
pub mod find;
pub mod gate;
pub mod job;
pub mod launches;
pub mod ledger;
pub mod link;
pub mod lookup;
pub mod memory;
pub mod pauses;
pub mod system;
pub mod turns;
