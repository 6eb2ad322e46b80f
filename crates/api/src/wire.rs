//! What a training process and its keeper say to each other: one JSON object a line, over the socket named by
//! `TRAINYARD_SOCKET`.

use serde::{Deserialize, Serialize};

/// From the training process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub enum FromJob {
    /// How far it is and how fast; fields it cannot tell are left out.
    Progress {
        /// Steps done in all, over all attempts.
        #[serde(default)]
        done: Option<f64>,
        /// Steps the whole job is, once that is known.
        #[serde(default)]
        total: Option<f64>,
        /// Steps a second.
        #[serde(default)]
        rate: Option<f64>,
        /// Seconds of one step.
        #[serde(default)]
        step_seconds: Option<f64>,
        /// Seconds of one step spent in synchronisation.
        #[serde(default)]
        sync_seconds: Option<f64>,
        /// Batch size over all GPUs.
        #[serde(default)]
        batch: Option<u32>,
        /// Gradient accumulation steps.
        #[serde(default)]
        accumulation: Option<u32>,
        /// Gradient noise scale.
        #[serde(default)]
        noise_scale: Option<f64>,
        /// Training loss.
        #[serde(default)]
        loss: Option<f64>,
        /// Epoch.
        #[serde(default)]
        epoch: Option<u32>,
    },
    /// Its state is on disk: it would resume from `done`. After a stop request this ends the grace early.
    Saved {
        /// Steps that the checkpoint holds.
        done: f64,
        /// How long saving took.
        #[serde(default)]
        seconds: Option<f64>,
    },
    /// It has read its checkpoint and goes on from `done`.
    Restored {
        /// Steps that the checkpoint held.
        done: f64,
        /// How long reading took.
        #[serde(default)]
        seconds: Option<f64>,
    },
    /// All work is done: the job does not run again, however its processes end and whatever is asked meanwhile.
    Finished,
}

/// To the training process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub enum ToJob {
    /// Save and exit, within so many seconds.
    Stop {
        /// The time left.
        grace_seconds: f64,
    },
    /// Save and go on.
    Save,
    /// Use this batch size over all GPUs from now on.
    Batch {
        /// The size.
        size: u32,
    },
}
