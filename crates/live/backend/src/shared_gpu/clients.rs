//! Attempts that are clients of MPS: how they come to be, who is none though it should be, and who is to blame for a
//! fault.
//!
//! A fault of one client on the GPU ends all clients of its server, and MPS does not say whose it was. So none of those
//! that fail within the same moments is charged, and none of their jobs is a client again: what fails by itself next
//! time has only itself to blame.

use super::{Member, SharedGpus, attempt_dir, mps, nvml, processes_of};
use crate::attempt_dir::AttemptDir;
use crate::local::worker::Key;
use crate::order::{SharingOrder, SharingPlace};
use crate::{Exit, LaunchOrder, Report};
use mps::Wish;
use nix::unistd::{getegid, geteuid};
use std::time::{Duration, Instant};
use trainyard_sharing::ToldClient;
use trainyard_types::JobId;

/// How long the end of a client that failed by itself, as it seems, waits for a sign that others failed with it.
const SIGN_WITHIN: Duration = Duration::from_secs(3);
/// Ends so long after a fault are still of it: a program may take a while to give up.
const FAULT_WINDOW: Duration = Duration::from_secs(30);
/// A process that uses the GPU at so many looks in a row and is no client is told of.
const ASTRAY_LOOKS: u32 = 3;

impl SharedGpus {
    /// Makes an attempt a client of MPS, where that is wanted and can be; what is returned beside says why it takes turns
    /// instead.
    pub(super) fn with_mps(
        &mut self,
        order: &LaunchOrder,
        place: SharingPlace,
        wish: &SharingOrder,
    ) -> (SharingPlace, Option<String>) {
        if !self.mps.is_wanted() {
            return (place, None);
        }
        let is_root = geteuid().is_root();
        let group = order.identity.as_ref().filter(|_| is_root).map(|who| who.gid);
        let wish = Wish {
            job: order.job,
            gpu: place.gpu,
            device: &place.device,
            user: (place.user, group.unwrap_or_else(|| getegid().as_raw())),
            limit: wish.limit,
            memory_mib: wish.memory_mib,
            clients: self.clients_of(place.gpu),
        };
        match self.mps.join(&wish) {
            Ok(client) => (SharingPlace { mps: Some(client), ..place }, None),
            Err(why) => {
                let what = format!(
                    "it is no client of MPS on GPU {} and takes turns instead, within the same share: {why}",
                    place.gpu
                );
                (place, Some(what))
            }
        }
    }

    /// How many attempts on a GPU are clients of MPS.
    pub(super) fn clients_of(&self, gpu: u8) -> usize {
        self.members.values().filter(|one| one.gpu == gpu && one.client.is_some()).count()
    }

    /// What is said once of a client whose share changes: the part of the threads stays what it was at its start.
    pub(super) fn changes_later(&mut self, key: Key, place: &SharingPlace) -> Option<String> {
        place.mps.as_ref()?;
        let standing = self.members.get_mut(&key)?.client.as_mut()?;
        let is_news = !std::mem::replace(&mut standing.told_of_change, true);
        is_news.then(|| {
            "its new share takes effect at its next start: MPS gives a client its part of the threads at its start; \
             its cap is another now"
                .to_owned()
        })
    }

    /// Asks the control daemon of MPS, where attempts are its clients. A fault is told to all of them, once.
    pub(super) fn look_at_mps(&mut self, gpu: u8) -> Vec<Report> {
        let among = self.clients_of(gpu);
        if among == 0 {
            return Vec::new();
        }
        let Some(what) = self.mps.look(gpu, among) else { return Vec::new() };
        let here = |member: &Member| member.gpu == gpu && member.client.is_some();
        let told = self.members.iter().filter(|(_, member)| here(member)).map(|(key, _)| {
            let what = format!(
                "MPS on GPU {gpu} has failed: {what}; clients of it that end by that go back to the queue, are not \
                 charged, and take turns from then on"
            );
            Report::Notice { job: Some(key.0), what }
        });
        told.collect()
    }

    /// Tells of a process that uses the GPU of a client and is none itself: the driver says nothing when it does not
    /// find MPS, and goes on by time slicing.
    pub(super) fn look_for_strays(&mut self, key: Key, told: &ToldClient) -> Option<Report> {
        let member = self.members.get_mut(&key)?;
        let (gpu, device) = (member.gpu, member.device.clone());
        let standing = member.client.as_mut()?;
        let clients = self.mps.clients(gpu)?;
        // A program says hello at its first call that counts, when it is a client already.
        let mut users = told.processes.clone();
        let library = self.nvml_library.as_deref();
        if let Some(nvml) = self.nvml.get_or_insert_with(|| nvml::load(library).ok())
            && let (Ok(on_gpu), Some(own)) =
                (nvml::users(nvml, &device), processes_of(&self.run_dir, key))
        {
            users.extend(on_gpu.iter().map(|(process, _)| *process).filter(|it| own.contains(it)));
        }
        let stray = users.into_iter().find(|process| !clients.contains(process));
        standing.astray = if stray.is_some() { standing.astray + 1 } else { 0 };
        let process = stray.filter(|_| standing.astray == ASTRAY_LOOKS)?;
        let what = format!(
            "its process {process} uses GPU {gpu} and is no client of MPS there, which the driver does not say: it runs \
             beside the clients by time slicing, with all of the threads; its cap holds"
        );
        Some(Report::Notice { job: Some(key.0), what })
    }

    /// The end of an attempt, with an excuse where a fault of MPS took it along; nothing while that may still show.
    pub fn judge(&mut self, key: Key, exit: Exit) -> Option<Exit> {
        let Some(member) = self.members.get_mut(&key) else { return Some(exit) };
        let gpu = member.gpu;
        let Some(standing) = member.client.as_mut() else { return Some(exit) };
        if exit.excused.is_some() || !is_failure(&exit) {
            return Some(exit);
        }
        let since = *standing.failed.get_or_insert_with(Instant::now);
        let among = self.clients_of(gpu);
        let failed_too = |(other, one): (&Key, &Member)| {
            let failed = one.client.as_ref().and_then(|standing| standing.failed);
            *other != key && one.gpu == gpu && failed.is_some()
        };
        if self.members.iter().any(failed_too) {
            self.mps.presume(gpu, among, "several of its clients failed within moments");
        }
        // What is found now is told at the next look to those that still run.
        if let Some((at, had, what)) = self.mps.fault(gpu, among)
            && at.elapsed() < FAULT_WINDOW
            && had > 1
        {
            let why =
                format!("MPS on GPU {gpu}, which one of its {had} clients brought down ({what})");
            return Some(self.excuse(key, exit, why));
        }
        let is_over = among < 2 || since.elapsed() >= SIGN_WITHIN;
        is_over.then_some(exit)
    }

    /// Keeps the excuse with the end, and the job apart from now on.
    fn excuse(&mut self, (job, attempt): Key, exit: Exit, why: String) -> Exit {
        self.mps.keep_apart(job);
        let exit = Exit { excused: Some(why), ..exit };
        let dir = AttemptDir::new(&self.run_dir, job, attempt);
        // Where it cannot be kept, it is told all the same.
        let _ = attempt_dir::write_durably(&dir.file("exit.json"), &exit);
        exit
    }

    /// A job is over.
    pub fn forget(&mut self, job: JobId) {
        self.mps.forget(job);
    }
}

/// Whether an attempt failed by what happened in it.
fn is_failure(exit: &Exit) -> bool {
    let by_itself = exit.launch_error.is_none() && !exit.lost && !exit.asked_to_stop;
    by_itself && exit.code != Some(0) && !exit.finished
}
