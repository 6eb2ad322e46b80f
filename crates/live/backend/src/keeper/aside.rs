//! Putting an attempt aside and bringing it back: one child at a time that calls the driver, and what it came to.

use super::{Event, KeeperState, gang};
use crate::attempt_dir;
use crate::order::{AsideOrder, Limits};
use crate::processes;
use crate::report::AsideSeen;
use crate::suspender::{DriverAnswer, Request, What};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

/// What the driver takes at most before its child is given up, and beside that for each GiB (measured: 0.5 s out).
const CALL_MAX: Duration = Duration::from_secs(60);
const CALL_MAX_EACH_GIB: Duration = Duration::from_secs(4);
/// An answer is one line.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Where an attempt stands.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// The newest order.
    order: Option<AsideOrder>,
    /// Whether it is in host memory now.
    pub(super) is_aside: bool,
    /// Which call is out, until when it is waited for, and its process.
    call: Option<(What, Instant, u32)>,
    /// Why the newest order could not be obeyed.
    refused: Option<String>,
    /// A request to stop that waits until it is back, with its grace.
    pub(super) stop_after: Option<Duration>,
}

/// What follows from an answer.
#[derive(Debug, PartialEq)]
pub(super) enum Follows {
    /// Nothing.
    Nothing,
    /// It is back and can be asked to save now.
    Stop(Duration),
    /// It cannot be brought back: what is left of it is killed, by no fault of its own.
    Lost(String),
}

impl Aside {
    /// Whether it is in host memory, on its way there or on its way back.
    pub(super) fn is_away(&self) -> bool {
        self.is_aside || self.call.is_some()
    }

    /// Takes an order, once: it comes by file and by message, and only a newer one counts.
    pub(super) fn obey(&mut self, post: &KeeperState, order: AsideOrder) {
        if self
            .order
            .as_ref()
            .is_some_and(|own| (own.number, !own.aside) >= (order.number, !order.aside))
        {
            return;
        }
        self.order = Some(order);
        self.refused = None;
        self.go_on(post);
    }

    /// It is to come back, to be asked to stop then.
    pub(super) fn back_to_stop(&mut self, post: &KeeperState, grace: Duration) {
        let waits = self.stop_after.get_or_insert(grace);
        *waits = grace.min(*waits);
        self.go_on(post);
    }

    /// Starts the next call, if one is due and none is out.
    fn go_on(&mut self, post: &KeeperState) {
        let Some(order) = self.order.as_ref().filter(|_| self.call.is_none()) else { return };
        let wanted = order.aside && self.stop_after.is_none();
        let what = match (wanted, self.is_aside) {
            (true, false) => What::Suspend { memory_mib: order.memory_mib },
            (false, true) => What::Resume,
            (true, true) | (false, false) => return self.tell(post, &DriverAnswer::default()),
        };
        self.call(post, what);
    }

    fn call(&mut self, post: &KeeperState, what: What) {
        if let What::Suspend { memory_mib } = what {
            if post.order.image.is_some() {
                self.refuse(post, what, "programs in images were never put aside");
                return;
            }
            self.limit(post, memory_mib);
        }
        let size = self.order.as_ref().map_or(0, |order| order.memory_mib / 1024);
        let until = Instant::now() + CALL_MAX + CALL_MAX_EACH_GIB * size as u32;
        match start(post, what, self.order.as_ref()) {
            Ok(pid) => self.call = Some((what, until, pid)),
            Err(error) => {
                let why = format!("the child that calls the driver cannot be started: {error}");
                self.refuse(post, what, &why);
            }
        }
    }

    /// As if the driver had said no.
    fn refuse(&mut self, post: &KeeperState, what: What, why: &str) {
        self.call = Some((what, Instant::now() + CALL_MAX, 0));
        let refused = Some(why.to_owned());
        let _ = post
            .sender
            .try_send(Event::Driver(DriverAnswer { refused, ..DriverAnswer::default() }));
    }

    /// The child said what came of it, or is gone.
    pub(super) fn answered(&mut self, post: &KeeperState, answer: &DriverAnswer) -> Follows {
        let Some((what, _, _)) = self.call.take() else { return Follows::Nothing };
        match (what, &answer.refused) {
            (What::Probe, _) => Follows::Nothing,
            (What::Suspend { .. }, None) => {
                self.is_aside = true;
                self.tell(post, answer);
                self.go_on_if_unlike(post);
                Follows::Nothing
            }
            (What::Suspend { .. }, Some(why)) => {
                self.limit(post, 0);
                self.refused = Some(why.clone());
                self.tell(post, answer);
                if let Some(order) = &mut self.order {
                    order.aside = false;
                }
                if answer.unsettled {
                    // A child that was given up may have left it locked or away: it is let go on.
                    self.is_aside = true;
                    self.call(post, What::Resume);
                    return Follows::Nothing;
                }
                match self.stop_after.take() {
                    Some(grace) => Follows::Stop(grace),
                    None => Follows::Nothing,
                }
            }
            (What::Resume, None) => {
                self.is_aside = false;
                self.limit(post, 0);
                if let Some(grace) = self.stop_after.take() {
                    return Follows::Stop(grace);
                }
                self.tell(post, answer);
                self.go_on_if_unlike(post);
                Follows::Nothing
            }
            (What::Resume, Some(why)) => {
                Follows::Lost(format!("it was put aside and cannot be brought back: {why}"))
            }
        }
    }

    /// An order that came while a call was out.
    fn go_on_if_unlike(&mut self, post: &KeeperState) {
        let wanted = self.order.as_ref().is_some_and(|order| order.aside);
        if (wanted && self.stop_after.is_none()) != self.is_aside {
            self.go_on(post);
        }
    }

    /// A call that takes too long is given up; its child is killed, and whatever it left is brought back.
    pub(super) fn look(&mut self) {
        let Some((_, until, pid)) = self.call else { return };
        if Instant::now() >= until && pid > 0 {
            processes::send(pid as i32, nix::sys::signal::Signal::SIGKILL);
            // Its answer, that there is none, comes with the end of its output.
            self.call = self.call.map(|(what, until, _)| (what, until, 0));
        }
    }

    /// What it has more of host memory while it is put aside is not held against it.
    fn limit(&self, post: &KeeperState, more_mib: u64) {
        let (Some(cgroup), limits) = (&post.cgroup, post.order.limits) else { return };
        if limits.memory_mib > 0 {
            let _ = cgroup.limit(&Limits { memory_mib: limits.memory_mib + more_mib, ..limits });
        }
    }

    /// Writes down where it stands, for a daemon that may not be there now.
    fn tell(&self, post: &KeeperState, answer: &DriverAnswer) {
        let number = self.order.as_ref().map_or(0, |order| order.number);
        let (seconds, memory_mib) = (answer.seconds, answer.memory_mib);
        let refused = self.refused.clone();
        let seen = AsideSeen { number, aside: self.is_aside, refused, seconds, memory_mib };
        let _ = attempt_dir::write_durably(&post.dir.file("aside.json"), &seen);
        post.poke(None);
    }
}

/// Starts the child and a thread that waits for what it says. The process is its own, and noticed as all others are.
fn start(post: &KeeperState, what: What, order: Option<&AsideOrder>) -> std::io::Result<u32> {
    let keeper = std::process::id() as i32;
    let of_attempt = processes::descendants(keeper).into_iter();
    let known = of_attempt.filter_map(|pid| Some((pid, processes::one(pid)?.began_ticks)));
    let request = Request {
        what,
        processes: known.collect(),
        keeper,
        cgroup: post.cgroup.as_ref().map(|group| group.path().to_path_buf()),
        identity: gang::identity(&post.order).cloned(),
        library: order.and_then(|order| order.library.clone()),
    };
    let mut child = Command::new("/proc/self/exe")
        .arg("driver")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = serde_json::to_vec(&request).map_err(std::io::Error::other)?;
    line.push(b'\n');
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let sender: SyncSender<Event> = post.sender.clone();
    let pid = child.id();
    thread::spawn(move || {
        if let Some(mut input) = input {
            let _ = input.write_all(&line);
        }
        let mut text = String::new();
        if let Some(output) = output {
            let _ = BufReader::new(output.take(ANSWER_BYTES_MAX)).read_line(&mut text);
        }
        let answer = serde_json::from_str(&text).unwrap_or_else(|_| DriverAnswer {
            refused: Some("the child that called the driver ended without an answer".to_owned()),
            unsettled: true,
            ..DriverAnswer::default()
        });
        let _ = sender.send(Event::Driver(answer));
    });
    Ok(pid)
}
