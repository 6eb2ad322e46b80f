//! What every backend must do, written once and run on all of them: the simulated machine, real processes, Slurm.
//!
//! - [`Conduct`]: what a job does, in words that a script and a simulation both understand.
//! - [`Arm`]: a backend under test, and what can be seen of its jobs from outside.
//! - [`PROMISES`]: the body; [`each_promise!`](crate::each_promise) makes a test of each.
//! - [`Simulated`]: the arm of the simulated machine. [`Evidence`]: what real jobs leave behind.

mod arm;
mod body;
mod conduct;
mod evidence;
mod play;
mod simulated;

pub use arm::{Arm, PATIENCE};
pub use conduct::Conduct;
pub use evidence::Evidence;
pub use play::order;
pub use simulated::{Pacing, Simulated};

/// One promise: plays it on an arm, and panics where it is broken.
pub type Promise = fn(&mut dyn Arm);

/// Hands the names of all promises to a macro of the caller, after whatever else the caller gives.
#[macro_export]
macro_rules! each_promise {
    ($callback:ident $($given:tt)*) => {
        $callback! { $($given)*
            a_job_starts_ends_and_its_code_is_told
            a_signal_that_ends_a_job_is_told
            the_code_that_means_saved_means_nothing_where_nobody_asked
            what_cannot_start_says_why_and_never_ran
            an_attempt_runs_once_however_often_it_is_ordered
            an_end_is_kept_until_it_is_forgotten
            a_job_outlives_the_backend
            an_end_while_nobody_looks_is_found
            a_job_that_saves_on_request_is_waited_for
            an_acknowledgement_ends_the_grace_early
            an_acknowledgement_counts_after_the_request_and_not_before
            an_end_before_the_request_is_no_answer_to_it
            a_rank_that_failed_before_the_request_failed_by_itself
            a_rank_that_saves_speaks_for_the_checkpoint
            a_checkpoint_is_handed_on_also_where_nobody_told_its_work
            a_job_that_ignores_requests_is_killed_after_its_grace
            a_second_request_shortens_the_grace
            a_request_before_the_start_is_not_lost
            a_request_outlives_the_backend
            orders_for_attempts_that_are_not_there_do_nothing
            an_old_attempt_is_neither_run_again_nor_in_the_way_of_a_new_one
            a_batch_size_harms_nobody
            one_rank_that_fails_ends_the_gang
            many_jobs_end_once_each_in_any_order
            nothing_is_left_of_a_job_that_is_withdrawn
        }
    };
}

macro_rules! table {
    ($($name:ident)*) => {
        /// All promises by name.
        pub const PROMISES: &[(&str, Promise)] = &[$((stringify!($name), body::$name)),*];
    };
}

each_promise!(table);

/// The promise of that name.
pub fn promise(name: &str) -> Promise {
    let found = PROMISES.iter().find(|(other, _)| *other == name);
    found.unwrap_or_else(|| panic!("there is no promise `{name}`")).1
}
