//! The checkpoint calls of NVIDIA's driver (`cuCheckpointProcess...` of `libcuda`, from driver 570 on), loaded when they
//! are needed and never linked.
//!
//! They put a process aside that knows nothing of it: locked, its calls of the driver wait; checkpointed, all that it has
//! on its GPUs is in its own host memory and the GPUs are free; restored and unlocked, it goes on.
//! The caller must run as the user of the process, and should be short-lived: a call may hang with the driver.
//!
//! - `calls`: the library and its functions, the only unsafe code.
//! - [`Identity`]: a process that is still the same one, by a descriptor of it.

mod calls;

pub use calls::{Calls, Identity, Refusal, Stage};
