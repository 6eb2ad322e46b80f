//! What a training process and its keeper say to each other: one JSON object a line, over the socket named by
//! `TRAINYARD_SOCKET`.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

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
        /// The rank that reports; rank 0, or a report without a rank, speaks for the job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rank: Option<u32>,
        /// Steps that each rank has done, where one rank reports for all.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "by_name")]
        ranks: BTreeMap<u32, f64>,
    },
    /// It begins to write a checkpoint while it runs: it is not late until that is done.
    Saving,
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
    /// It has gone over to the GPUs that it was told of, and uses no other any more.
    Resized {
        /// Those GPUs, as it was told of them.
        devices: Vec<String>,
    },
    /// All work is done: the job does not run again, however its processes end and whatever is asked meanwhile.
    Finished,
}

/// Ranks as JSON has them, whose keys are texts; within an enum with a tag serde makes no numbers of them.
fn by_name<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<u32, f64>, D::Error> {
    let named = BTreeMap::<String, f64>::deserialize(from)?;
    let number = |(rank, done): (String, f64)| match rank.parse() {
        Ok(rank) => Ok((rank, done)),
        Err(_) => Err(Error::custom(format!("`{rank}` is no rank"))),
    };
    named.into_iter().map(number).collect()
}

/// Ranks that are listed one by one.
pub const RANKS_MAX: usize = 1024;

/// Progress of all ranks, to be passed on as one message: what speaks for the job as it was last said, and how far
/// each rank is.
#[derive(Clone, Debug, Default)]
pub struct Gather {
    newest: Option<FromJob>,
    ranks: BTreeMap<u32, f64>,
    is_new: bool,
}

impl Gather {
    /// Takes a message of progress.
    pub fn take(&mut self, message: FromJob) {
        let FromJob::Progress { rank, done, ref ranks, .. } = message else { return };
        self.is_new = true;
        let own = rank.zip(done);
        for (rank, done) in own.into_iter().chain(ranks.iter().map(|(rank, done)| (*rank, *done))) {
            if self.ranks.contains_key(&rank) || self.ranks.len() < RANKS_MAX {
                self.ranks.insert(rank, done);
            }
        }
        if rank.is_none_or(|rank| rank == 0) {
            self.newest = Some(message);
        }
    }

    /// Whether there is something to pass on.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// What is to be passed on, once.
    pub fn give(&mut self) -> Option<FromJob> {
        if !std::mem::take(&mut self.is_new) {
            return None;
        }
        let mut message = self.newest.take().unwrap_or_else(FromJob::no_progress);
        if let FromJob::Progress { rank, ranks, .. } = &mut message {
            *rank = None;
            ranks.clone_from(&self.ranks);
        }
        Some(message)
    }
}

impl FromJob {
    /// Progress that tells nothing.
    pub fn no_progress() -> FromJob {
        FromJob::Progress {
            done: None,
            total: None,
            rate: None,
            step_seconds: None,
            sync_seconds: None,
            batch: None,
            accumulation: None,
            noise_scale: None,
            loss: None,
            epoch: None,
            rank: None,
            ranks: BTreeMap::new(),
        }
    }
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
    /// Use these GPUs from now on and no other, and answer with [`FromJob::Resized`].
    Resize {
        /// The GPUs, as `CUDA_VISIBLE_DEVICES` names them.
        devices: Vec<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> FromJob {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_ranks_say_is_passed_on_as_one_message_and_rank_0_speaks_for_the_job() {
        let mut gather = Gather::default();
        assert_eq!(gather.give(), None);
        gather.take(said(r#"{"type":"progress","done":7,"loss":0.5,"rank":0}"#));
        gather.take(said(r#"{"type":"progress","done":6,"loss":9,"rank":1}"#));
        let FromJob::Progress { done, loss, rank, ranks, .. } = gather.give().unwrap() else {
            panic!("it is progress")
        };
        assert_eq!((done, loss, rank), (Some(7.0), Some(0.5), None));
        assert_eq!(ranks, BTreeMap::from([(0, 7.0), (1, 6.0)]));
        assert_eq!(gather.give(), None, "once");
        gather.take(said(r#"{"type":"progress","done":7,"rank":1}"#));
        let FromJob::Progress { done, ranks, .. } = gather.give().unwrap() else { panic!("still") };
        assert_eq!((done, ranks[&1]), (None, 7.0), "rank 0 said nothing new");
    }

    #[test]
    fn what_is_passed_on_is_read_as_it_was_written() {
        let mut gather = Gather::default();
        gather.take(said(r#"{"type":"progress","done":7,"ranks":{"0":7,"11":6.5}}"#));
        let message = gather.give().unwrap();
        assert_eq!(said(&serde_json::to_string(&message).unwrap()), message);
        let bad = r#"{"type":"progress","ranks":{"first":7}}"#;
        assert!(serde_json::from_str::<FromJob>(bad).is_err());
    }

    #[test]
    fn a_message_without_ranks_is_written_as_ever() {
        let text = serde_json::to_string(&FromJob::no_progress()).unwrap();
        assert!(!text.contains("rank"), "{text}");
    }
}
