//! What is seen of Slurm: jobs of ours, load of others, nodes, and that it does not answer.

use super::Worker;
use crate::call::CallError;
use crate::decide::Known;
use crate::ledger::Stage;
use crate::seen::{SlurmJob, SlurmNode, SlurmSeen};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use trainyard_backend::{NodeSeen, Report};
use trainyard_types::JobId;

impl Worker {
    pub(super) fn seen(&mut self, began: Instant, result: Result<SlurmSeen, CallError>) {
        let seen = match result {
            Ok(seen) => seen,
            Err(error) => return self.failed(&error),
        };
        if self.down.take().is_some() {
            tracing::info!("Slurm answers again");
        }
        self.troubles.remove("slurm");
        if seen.skipped.count > 0 {
            let (count, first) = (seen.skipped.count, seen.skipped.first.join("; "));
            let what = format!("{count} rows of Slurm's answers cannot be read: {first}");
            self.troubles.insert("rows", what);
        } else {
            self.troubles.remove("rows");
        }
        let by_id: BTreeMap<u32, &SlurmJob> = seen.jobs.iter().map(|job| (job.id, job)).collect();
        let jobs: Vec<JobId> = self.ledger.entries.keys().copied().collect();
        for job in jobs {
            self.see_job(job, began, (&seen, &by_id));
        }
        self.cancel_strays(&seen, began);
        self.see_nodes(&seen, began);
    }

    fn see_job(
        &mut self,
        job: JobId,
        began: Instant,
        (seen, by_id): (&SlurmSeen, &BTreeMap<u32, &SlurmJob>),
    ) {
        let (Some(entry), Some(run)) = (self.ledger.entries.get_mut(&job), self.runs.get_mut(&job))
        else {
            return;
        };
        if began <= run.acted {
            return;
        }
        self.dirty.insert(job);
        if entry.submitting {
            // An answer got lost: what was submitted is found by its mark, or was not submitted.
            let found = seen.jobs.iter().find(|one| entry.claim.check(one).is_ok());
            if found.is_none() && seen.skipped.count > 0 {
                return;
            }
            (entry.slurm, entry.submitting) = (found.map(|one| one.id), false);
            run.see(found.map_or(Known::Absent, Known::of));
            self.keep(job);
            return;
        }
        let Some(id) = entry.slurm else {
            run.see(Known::Absent);
            return;
        };
        if entry.adopted && !entry.marked {
            return self.mark_adopted(job);
        }
        let Some(one) = by_id.get(&id) else {
            // What cannot be read may be this one.
            if seen.skipped.count == 0 {
                run.see(Known::Missing);
            }
            return;
        };
        if !self.recognise(job, one) {
            return;
        }
        let out = |name: &String| {
            let node = seen.nodes.iter().find(|node| node.name == *name);
            node.is_some_and(|node| !is_up(node) || out_of_service(node).is_some())
        };
        // Asked of those alone that are over: of all that run it would be a walk over all nodes for each.
        let bad_node = matches!(Known::of(one), Known::Dead(_)) && one.nodes.iter().any(out);
        if let Some(run) = self.runs.get_mut(&job) {
            run.slurm = Some(Box::new((*one).clone()));
            run.see(Known::of(one));
            run.bad_node = bad_node;
        }
        if self.is_adopted(job) {
            self.see_adopted(job);
        }
    }

    /// A job that was another's has no script of ours: that it runs is seen in Slurm alone.
    fn see_adopted(&mut self, job: JobId) {
        let Some(entry) = self.ledger.entries.get_mut(&job) else { return };
        let runs = self.runs.get(&job).is_some_and(|run| run.known == Known::Running);
        if runs && let Some(course) = &mut entry.attempt {
            course.stage = Stage::Released;
            let key = (job, course.attempt);
            self.started(key);
        }
    }

    fn see_nodes(&mut self, seen: &SlurmSeen, began: Instant) {
        let ours: BTreeSet<u32> = (self.ledger.entries.values())
            .filter(|entry| !entry.adopted || entry.marked)
            .filter_map(|entry| entry.slurm)
            .collect();
        // By node: what others have, and what all jobs have.
        let mut counted: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
        for job in &seen.jobs {
            if matches!(Known::of(job), Known::Running | Known::Leaving) {
                // Numbers that are not ours any more were forgotten above.
                let is_foreign = u32::from(!ours.contains(&job.id));
                for (node, gpus) in &job.held {
                    let (others, all) = counted.entry(node).or_default();
                    *others = others.saturating_add(gpus * is_foreign);
                    *all = all.saturating_add(*gpus);
                }
            }
        }
        let missing = self.missing(seen, began, &counted);
        let wants = self.unaccounted.wants_new_count(began, !missing.is_empty());
        if wants && self.options.reconfigures {
            let gpus: u32 = missing.values().sum();
            match self.actor.reconfigure() {
                Ok(()) => tracing::warn!(gpus, "Slurm was told to count its GPUs anew"),
                Err(error) => tracing::warn!(gpus, "Slurm does not count its GPUs anew: {error}"),
            }
        }
        let by_name: BTreeMap<&str, &SlurmNode> =
            seen.nodes.iter().map(|node| (node.name.as_str(), node)).collect();
        let mut reports: Vec<(String, NodeSeen)> = Vec::new();
        let inventory = &self.options.inventory;
        for (node, place) in inventory.cluster.nodes.iter().zip(&inventory.places) {
            let name = place.node.as_str();
            let (others, _) = counted.get(name).copied().unwrap_or_default();
            let claimed = others.min(u32::from(node.gpus));
            let unaccounted = missing.get(name).copied().unwrap_or(0);
            let unaccounted = unaccounted.min(u32::from(node.gpus) - claimed);
            let now = by_name.get(name).map_or_else(NodeSeen::default, |slurm| {
                let drained = out_of_service(slurm);
                NodeSeen { up: is_up(slurm), drained, claimed, unaccounted }
            });
            reports.push((node.name.clone(), now));
        }
        let known: BTreeSet<&str> = inventory.places.iter().map(|place| &*place.node).collect();
        for node in &seen.nodes {
            let has_gpus = node.gpus.iter().any(|(_, count)| *count > 0);
            let wanted = self.options.partition.as_ref();
            let is_wanted = wanted.is_none_or(|name| node.partitions.contains(name));
            if has_gpus && is_wanted && !known.contains(node.name.as_str()) {
                reports.push((node.name.clone(), NodeSeen { up: true, ..NodeSeen::default() }));
            }
        }
        for (node, now) in reports {
            if self.nodes.get(&node) != Some(&now) {
                self.nodes.insert(node.clone(), now.clone());
                (self.reports)(Report::Node { node, seen: now });
            }
        }
    }

    /// GPUs of nodes that Slurm counts as used though no job has them, for a while already.
    fn missing<'a>(
        &mut self,
        seen: &'a SlurmSeen,
        began: Instant,
        counted: &BTreeMap<&str, (u32, u32)>,
    ) -> BTreeMap<&'a str, u32> {
        // What cannot be read may be a job that has them.
        let all_read = seen.skipped.count == 0;
        let mut missing = BTreeMap::new();
        for node in seen.nodes.iter().filter(|_| all_read) {
            let used = node.gpus_used.iter().fold(0u32, |sum, (_, gpus)| sum.saturating_add(*gpus));
            let held = counted.get(node.name.as_str()).map_or(0, |(_, all)| *all);
            let gone = self.unaccounted.note(&node.name, began, used.saturating_sub(held));
            if gone > 0 {
                missing.insert(node.name.as_str(), gone);
            }
        }
        missing
    }

    /// Takes note of a call that failed. Steps are not taken while Slurm does not answer.
    pub(super) fn failed(&mut self, error: &CallError) {
        if self.down.is_none() {
            self.down = Some(Instant::now());
            let what = format!("{error}, since {}; jobs that run go on", clock());
            tracing::warn!("{what}");
            self.troubles.insert("slurm", what);
            // A look is what notices that Slurm answers again.
            self.look_soon();
        }
    }

    pub(super) fn tell_trouble(&mut self) {
        let all: Vec<&str> = self.troubles.values().map(String::as_str).collect();
        let now = (!all.is_empty()).then(|| all.join("; "));
        if now != self.told_trouble {
            self.told_trouble.clone_from(&now);
            (self.reports)(Report::Trouble(now));
        }
    }
}

/// Whether jobs of a node can still be alive. One that does not answer for a moment is not lost: Slurm says when it is.
fn is_up(node: &SlurmNode) -> bool {
    !["DOWN", "FUTURE", "POWERED_DOWN", "ERROR"].iter().any(|word| node.is(word))
}

/// Why a node takes no new work.
fn out_of_service(node: &SlurmNode) -> Option<String> {
    let told = |what: &str| {
        Some(match node.reason.trim() {
            "" => what.to_owned(),
            reason => reason.to_owned(),
        })
    };
    match node {
        node if node.is("DRAIN") => told("drained in Slurm"),
        node if node.is("NOT_RESPONDING") => Some("it does not answer Slurm".to_owned()),
        node if !node.is_usable() => told("out of service in Slurm"),
        _ => None,
    }
}

/// The time of day, for a message.
fn clock() -> String {
    let seconds = super::unix_seconds();
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02} UTC", seconds % 60)
}
