//! The backend on a real Slurm: munged, slurmctld and four slurmd with fake GPUs, started by `scripts/slurm-cluster.sh`.
//!
//! Where Slurm is not installed or the tests do not run as root, each test says that it was skipped.

mod adopted;
mod checkpoints;
mod cluster;
mod failing;
mod moving;
mod promises;
mod reused;
mod running;
mod say;
mod scale;
mod strangers;
mod yard;
