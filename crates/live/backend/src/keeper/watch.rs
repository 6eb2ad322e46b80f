//! What happens to an attempt from start to end.

use super::aside::{Aside, Follows};
use super::gang::{self, Gang};
use super::idle::Idle;
use super::{Event, KeeperState, Status};
use crate::attempt_dir::{self, BatchOrder, KeeperOrder, Told};
use crate::suspender::DriverAnswer;
use crate::{Exit, ResizeOrder, StopOrder, processes};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use std::str::FromStr;
use std::sync::PoisonError;
use std::sync::mpsc::{RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};
use trainyard_api::wire::{FromJob, Gather, ToJob};

/// How often orders are looked at without a poke.
const TICK: Duration = Duration::from_millis(500);
/// How often the file that says "saved" is looked at, and those killed are looked for.
const QUICK_TICK: Duration = Duration::from_millis(20);
/// What is left to processes that said "saved", to exit by themselves: PyTorch needs part of it to shut down.
const AFTER_SAVED: Duration = Duration::from_secs(1);
/// What ranks have when another rank failed: they wait for it in vain, and their state is not whole.
const AFTER_FAILURE_MAX: Duration = Duration::from_secs(10);
/// Progress is passed on no more often.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// So many events are heard before orders are looked at again.
const EVENTS_AT_ONCE: usize = 256;
/// A longer grace is no grace but a mistake.
const GRACE_SECONDS_MAX: f64 = 7.0 * 86_400.0;

/// Why and until when an attempt is being stopped.
struct Stopping {
    since: Instant,
    deadline: Instant,
    asked: bool,
    saved: bool,
    /// Whether it said that it saved after it was asked to, and not before.
    acknowledged: bool,
}

/// The newest order to go over to other GPUs, and what the job answered last.
#[derive(Default)]
struct Resizing {
    order: Option<ResizeOrder>,
    answer: Option<FromJob>,
}

struct Watch {
    post: KeeperState,
    gang: Gang,
    left: usize,
    ranks: Vec<Option<Status>>,
    /// The first rank that did not exit with 0.
    first_failure: Option<(usize, Status)>,
    /// Ranks that were over when the request to stop came; nothing before it.
    over_before: Option<Vec<bool>>,
    stopping: Option<Stopping>,
    orders: (Option<StopOrder>, Option<BatchOrder>),
    resizing: Resizing,
    aside: Aside,
    /// It could not be brought back, which is no fault of its own.
    lost: bool,
    gone: bool,
    killing: bool,
    killed_late: bool,
    told: Told,
    first_progress: Option<Instant>,
    started: Instant,
    progress: (Gather, Instant),
    idle: Option<Idle>,
    /// How long its GPUs had done nothing when it was ended for that.
    idled: Option<Duration>,
}

/// Starts the ranks and stays until none of their processes is left.
pub fn run(mut post: KeeperState) -> Exit {
    if let Err(refusal) = post.claim_checkpoints() {
        return failed(&post, refusal.to_string());
    }
    let started = gang::start(&post.dir, &post.order, post.cgroup.as_ref());
    let (gang, trouble) = match started {
        Ok(started) => started,
        Err(error) => {
            kill_until_gone();
            let why = format!("its processes cannot be started: {error}");
            return failed(&post, why);
        }
    };
    reap(post.sender.clone());
    let now = Instant::now();
    let ranks = vec![None; gang.pids.len()];
    let mut watch = Watch {
        left: ranks.len(),
        ranks,
        post,
        gang,
        first_failure: None,
        over_before: None,
        stopping: None,
        orders: (None, None),
        resizing: Resizing::default(),
        aside: Aside::default(),
        lost: false,
        gone: false,
        killing: trouble.is_some(),
        killed_late: false,
        told: Told::default(),
        first_progress: None,
        started: now,
        progress: (Gather::default(), now),
        idle: None,
        idled: None,
    };
    watch.begin_idle();
    if trouble.is_none() {
        let _ = attempt_dir::write_whole(&watch.post.dir.file("started.json"), &watch.gang.pids);
        watch.post.poke(None);
    }
    watch.until_gone();
    gang::remove_containers(&watch.post.dir, &watch.post.order);
    let exit = watch.finish();
    match trouble {
        // What its stages ended with is not the job's.
        Some(why) => Exit { code: None, signal: None, ..exit }.not_started(why),
        None => exit,
    }
}

fn failed(post: &KeeperState, why: String) -> Exit {
    if let Some(cgroup) = &post.cgroup {
        cgroup.remove();
    }
    let ran_seconds = post.began.elapsed().as_secs_f64();
    Exit { ran_seconds, ..Exit::default() }.not_started(why)
}

fn kill_until_gone() {
    let own = std::process::id() as i32;
    loop {
        processes::kill_all(|| processes::descendants(own));
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(Errno::ECHILD) => return,
            Ok(WaitStatus::StillAlive) => thread::sleep(QUICK_TICK),
            Ok(_) | Err(_) => {}
        }
    }
}

/// Notices every process that ends below the keeper. Orphans come to it as well, so that when there is no child left,
/// there is no process left.
fn reap(events: SyncSender<Event>) {
    thread::spawn(move || {
        loop {
            let event = match waitpid(None, None) {
                Ok(WaitStatus::Exited(pid, code)) => {
                    Event::Exited(pid.as_raw(), Status::Code(code))
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) => {
                    Event::Exited(pid.as_raw(), Status::Signal(signal as i32))
                }
                Err(Errno::ECHILD) => Event::AllGone,
                Ok(_) | Err(_) => continue,
            };
            let over = matches!(event, Event::AllGone);
            if events.send(event).is_err() || over {
                return;
            }
        }
    });
}

impl Watch {
    fn until_gone(&mut self) {
        while !self.gone {
            let quick = self.stopping.is_some() || self.killing;
            let wait = if quick { QUICK_TICK } else { TICK };
            match self.post.events.recv_timeout(wait) {
                Ok(event) => self.hear(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // A job that talks without end must not keep its keeper from its orders.
            for _ in 0..EVENTS_AT_ONCE {
                let Ok(event) = self.post.events.try_recv() else { break };
                self.hear(event);
            }
            self.look_at_orders();
            self.look_at_gpus();
            self.aside.look();
            self.pass_on_progress();
            self.press_on();
        }
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Exited(pid, status) => self.rank_ended(pid, status),
            Event::AllGone => self.gone = true,
            Event::Said(message) => self.listen(message),
            Event::Driver(answer) => self.driver_answered(&answer),
            Event::Ordered(Some(order)) => {
                // A daemon that asks again did not hear the answer.
                if let (KeeperOrder::Resize(order), Some(answer)) = (&order, &self.resizing.answer)
                    && self.resizing.order.as_ref() == Some(order)
                {
                    self.post.poke(Some(answer.clone()));
                }
                self.obey(order);
            }
            Event::Ordered(None) => {}
        }
    }

    fn rank_ended(&mut self, pid: i32, status: Status) {
        let Some(rank) = self.gang.pids.iter().position(|other| *other == pid) else { return };
        if self.ranks[rank].replace(status).is_some() {
            return;
        }
        self.left -= 1;
        if status == Status::Code(0) {
            return;
        }
        self.first_failure.get_or_insert((rank, status));
        let grace = Duration::from_secs_f64(self.grace(self.post.order.checkpoint.grace_seconds));
        let is_saved = status == Status::Code(self.post.order.checkpoint.exit_code);
        if is_saved {
            // It speaks for the checkpoint; the other ranks keep their time all the same.
            self.told.note_saved(None);
            self.keep_told();
            let in_answer = self.over_before.as_ref().is_some_and(|over| !over[rank]);
            if let Some(stopping) = self.stopping.as_mut().filter(|_| in_answer) {
                stopping.acknowledged = true;
            }
        }
        if self.left > 0 && self.stopping.is_none() {
            self.note(&format!("rank {rank} ended with {}; the others are stopped", say(status)));
            let grace = if is_saved { grace } else { grace.min(AFTER_FAILURE_MAX) };
            self.begin_stop(grace, false);
        }
    }

    fn listen(&mut self, message: FromJob) {
        let now = Instant::now();
        self.told.note(&message);
        match &message {
            FromJob::Progress { .. } => {
                self.first_progress.get_or_insert(now);
                // The newest of each rank is enough; it is passed on in its time.
                self.progress.0.take(message);
                return;
            }
            FromJob::Saved { .. } => {
                if let Some(stopping) = &mut self.stopping {
                    stopping.acknowledge(now);
                }
            }
            FromJob::Resized { devices } => {
                self.went_over(devices);
                self.resizing.answer = Some(message.clone());
            }
            FromJob::Restored { .. } | FromJob::Finished | FromJob::Saving => {}
        }
        self.keep_told();
        if let Some(progress) = self.progress.0.give() {
            self.post.poke(Some(progress));
        }
        self.post.poke(Some(message));
    }

    /// What must not be lost with the keeper.
    fn keep_told(&self) {
        let _ = attempt_dir::write_whole(&self.post.dir.file("told.json"), &self.told);
    }

    fn pass_on_progress(&mut self) {
        let (waiting, last) = &mut self.progress;
        if waiting.is_new() && last.elapsed() >= PROGRESS_EVERY {
            *last = Instant::now();
            let message = waiting.give();
            self.post.poke(message);
        }
    }

    fn begin_idle(&mut self) {
        let Some(seconds) = self.post.order.idle_seconds else { return };
        match Idle::new(seconds, &self.post.order.devices) {
            Ok(idle) => self.idle = Some(idle),
            Err(why) => {
                self.note(&format!(
                    "its GPUs cannot be watched, and it is not ended for idling: {why}"
                ));
            }
        }
    }

    /// Ends an attempt whose GPUs do nothing.
    fn look_at_gpus(&mut self) {
        if self.stopping.is_some() || self.killing {
            return;
        }
        if self.aside.is_away() {
            // It is not idle but away, and begins anew when it is back.
            if let Some(idle) = &mut self.idle {
                idle.begin_again();
            }
            return;
        }
        let Some(idle) = self.idle.as_mut().and_then(Idle::expired) else { return };
        self.idled = Some(idle);
        self.note(&format!("its GPUs have done nothing for {:.0} s: it ends", idle.as_secs_f64()));
        let grace = Duration::from_secs_f64(self.grace(self.post.order.checkpoint.grace_seconds));
        self.begin_stop(grace, true);
    }

    /// Looks at the orders; what cannot be read is looked at again.
    fn look_at_orders(&mut self) {
        let dir = self.post.dir.clone();
        if let Ok(Some(stop)) = dir.stop_order() {
            self.obey(KeeperOrder::Stop(stop));
        }
        if let Ok(Some(batch)) = attempt_dir::read(&dir.file("orders/batch.json")) {
            self.obey(KeeperOrder::Batch(batch));
        }
        if let Ok(Some(resize)) = attempt_dir::read(&dir.file("orders/resize.json")) {
            self.obey(KeeperOrder::Resize(resize));
        }
        if let Ok(Some(aside)) = attempt_dir::read(&dir.file("orders/aside.json")) {
            self.obey(KeeperOrder::Aside(aside));
        }
    }

    /// Obeys an order, once: it comes by file and by message.
    fn obey(&mut self, order: KeeperOrder) {
        match order {
            KeeperOrder::Stop(stop) if self.orders.0.as_ref() != Some(&stop) => {
                let grace = Duration::from_secs_f64(self.grace(stop.grace_seconds));
                let seconds = grace.as_secs_f64();
                self.note(&format!("asked to stop within {seconds:.1} s: {}", stop.why));
                self.orders.0 = Some(stop);
                if self.aside.is_away() && !grace.is_zero() {
                    // What is put aside cannot save: it comes back first, and then has its time.
                    self.aside.back_to_stop(&self.post, grace);
                } else {
                    self.begin_stop(grace, true);
                }
            }
            KeeperOrder::Batch(batch) if self.orders.1 != Some(batch) => {
                self.orders.1 = Some(batch);
                self.post.talk.say(ToJob::Batch { size: batch.size });
            }
            KeeperOrder::Resize(resize) if self.resizing.order.as_ref() != Some(&resize) => {
                self.resize(resize);
            }
            KeeperOrder::Aside(order) if self.stopping.is_none() && !self.killing => {
                self.aside.obey(&self.post, order);
            }
            KeeperOrder::Stop(_)
            | KeeperOrder::Batch(_)
            | KeeperOrder::Resize(_)
            | KeeperOrder::Aside(_) => {}
        }
    }

    /// The child that called the driver said what came of it.
    fn driver_answered(&mut self, answer: &DriverAnswer) {
        let what = match (&answer.refused, self.aside.is_aside) {
            (Some(why), _) => format!("the driver did not obey: {why}"),
            (None, true) => format!("brought back within {:.1} s", answer.seconds),
            (None, false) => format!("put aside within {:.1} s", answer.seconds),
        };
        self.note(&what);
        match self.aside.answered(&self.post, answer) {
            Follows::Nothing => {}
            Follows::Stop(grace) => self.begin_stop(grace, true),
            Follows::Lost(why) => {
                self.note(&why);
                self.lost = true;
                self.begin_stop(Duration::ZERO, false);
            }
        }
    }

    /// Tells the job of other GPUs. It may use as much of the machine as goes with the larger number until it has gone
    /// over to them.
    fn resize(&mut self, resize: ResizeOrder) {
        self.note(&format!("told to go over to {} GPUs", resize.devices.len()));
        let grows = resize.devices.len() >= self.post.order.devices.len();
        if let Some(cgroup) = self.post.cgroup.as_ref().filter(|_| grows) {
            // A limit that cannot be raised is one that the job keeps.
            let _ = cgroup.limit(&resize.limits);
        }
        self.resizing.answer = None;
        self.post.talk.say(ToJob::Resize { devices: resize.devices.clone() });
        self.resizing.order = Some(resize);
    }

    /// The job uses the GPUs that it was told of and no other.
    fn went_over(&mut self, devices: &[String]) {
        let Some(order) = self.resizing.order.clone().filter(|order| order.devices == devices)
        else {
            return;
        };
        self.note(&format!("it has gone over to {} GPUs", devices.len()));
        if let Some(cgroup) = &self.post.cgroup {
            let _ = cgroup.limit(&order.limits);
        }
        self.post.order.devices = order.devices;
        if self.idle.is_some() {
            self.begin_idle();
        }
    }

    fn grace(&self, seconds: f64) -> f64 {
        if seconds.is_finite() { seconds.clamp(0.0, GRACE_SECONDS_MAX) } else { 0.0 }
    }

    /// Asks all ranks to save and exit. A second request may shorten the time they have, and never adds to it.
    fn begin_stop(&mut self, grace: Duration, asked: bool) {
        let now = Instant::now();
        let deadline = now + grace;
        if asked && self.over_before.is_none() {
            let ranks = self.gang.pids.iter().zip(&self.ranks);
            self.over_before =
                Some(ranks.map(|(pid, status)| status.is_some() || has_exited(*pid)).collect());
        }
        if let Some(stopping) = &mut self.stopping {
            stopping.deadline = stopping.deadline.min(deadline);
            if asked && !stopping.asked {
                (stopping.asked, stopping.since) = (true, now);
            }
            return;
        }
        // A file from before the request tells of a checkpoint and acknowledges nothing.
        if let Some(work) = self.post.dir.saved_by_file() {
            self.told.note_saved(work);
            self.keep_told();
        }
        let _ = std::fs::remove_file(self.post.dir.ack_file());
        let (saved, acknowledged) = (false, false);
        self.stopping = Some(Stopping { since: now, deadline, asked, saved, acknowledged });
        if grace.is_zero() {
            return;
        }
        self.post.talk.say(ToJob::Stop { grace_seconds: grace.as_secs_f64() });
        let signal = signal(&self.post.order.checkpoint.signal);
        for (pid, status) in self.gang.pids.iter().zip(&self.ranks) {
            if status.is_none() {
                processes::send_group(*pid, signal);
                // A job that was suspended cannot save.
                processes::send_group(*pid, Signal::SIGCONT);
            }
        }
    }

    /// Kills when it is time to.
    fn press_on(&mut self) {
        let now = Instant::now();
        if let Some(stopping) = self.stopping.as_mut().filter(|stopping| !stopping.saved)
            && let Some(work) = self.post.dir.saved_by_file()
        {
            stopping.acknowledge(now);
            self.told.note_saved(work);
            self.keep_told();
        }
        if let Some(stopping) = &self.stopping
            && now >= stopping.deadline
            && !self.killing
            && self.left > 0
        {
            self.killing = true;
            self.killed_late = !stopping.saved;
        }
        // What a job leaves behind after its last rank is not the job any more.
        if self.left == 0 {
            self.killing = true;
        }
        if self.killing {
            if let Some(cgroup) = &self.post.cgroup {
                cgroup.kill();
            }
            let own = std::process::id() as i32;
            processes::kill_all(|| processes::descendants(own));
        }
    }

    /// Whether the request to stop came before the end: before the first rank failed, or before the last one left.
    fn was_asked(&self) -> bool {
        self.over_before.as_ref().is_some_and(|over| match self.first_failure {
            Some((rank, _)) => !over[rank],
            None => !over.iter().all(|over| *over),
        })
    }

    fn note(&self, text: &str) {
        if let Some(log) = self.gang.logs.first() {
            let line = format!("[trainyard] {text}\n");
            log.lock().unwrap_or_else(PoisonError::into_inner).write(line.as_bytes());
        }
    }

    fn finish(mut self) -> Exit {
        let ended = Instant::now();
        // What was said last may still be on its way from the socket's thread.
        while let Ok(event) = self.post.events.recv_timeout(Duration::from_millis(5)) {
            self.hear(event);
        }
        if let Some(work) = self.post.dir.saved_by_file().filter(|_| self.stopping.is_none()) {
            self.told.note_saved(work);
        }
        if let Some(progress) = self.progress.0.give() {
            self.post.poke(Some(progress));
        }
        // All writers are gone, so this ends at once, unless a stranger was handed a descriptor.
        let _ = self.gang.written.recv_timeout(Duration::from_secs(2));
        let mut out_of_memory = false;
        if let Some(cgroup) = &self.post.cgroup {
            out_of_memory = cgroup.ran_out_of_memory();
            cgroup.remove();
        }
        let first = self.first_failure.map_or(Status::Code(0), |(_, status)| status);
        let asked = self.stopping.as_ref().filter(|_| self.was_asked());
        Exit {
            code: if let Status::Code(code) = first { Some(code) } else { None },
            signal: if let Status::Signal(signal) = first { Some(signal) } else { None },
            asked_to_stop: asked.is_some(),
            acknowledged: Some(asked.is_some_and(|stopping| stopping.acknowledged)),
            killed: self.killed_late && asked.is_some(),
            start_seconds: self.first_progress.map(|at| (at - self.started).as_secs_f64()),
            save_seconds: asked.map(|stopping| (ended - stopping.since).as_secs_f64()),
            ran_seconds: (ended - self.post.began).as_secs_f64(),
            out_of_memory,
            lost: self.lost,
            // One that was finished by itself meanwhile is finished.
            idle_seconds: asked.and(self.idled).map(|idle| idle.as_secs_f64()),
            ..self.told.exit()
        }
    }
}

impl Stopping {
    fn acknowledge(&mut self, now: Instant) {
        self.acknowledged |= self.asked;
        if !self.saved {
            self.saved = true;
            self.deadline = self.deadline.min(now + AFTER_SAVED);
        }
    }
}

/// Whether a rank is over, also where its end was not heard of yet.
fn has_exited(pid: i32) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
    !matches!(waitid(Id::Pid(Pid::from_raw(pid)), flags), Ok(WaitStatus::StillAlive))
}

fn say(status: Status) -> String {
    match status {
        Status::Code(code) => format!("exit code {code}"),
        Status::Signal(signal) => format!("signal {signal}"),
    }
}

/// A signal by its name, with or without `SIG`; what is no signal is the usual one.
fn signal(name: &str) -> Signal {
    let name = name.trim().to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    Signal::from_str(&format!("SIG{name}")).unwrap_or(Signal::SIGTERM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_go_by_name_with_or_without_their_prefix() {
        for (name, expected) in [
            ("TERM", Signal::SIGTERM),
            ("usr1", Signal::SIGUSR1),
            ("SIGUSR2", Signal::SIGUSR2),
            ("INT", Signal::SIGINT),
            ("nonsense", Signal::SIGTERM),
        ] {
            assert_eq!(signal(name), expected, "{name}");
        }
    }
}
