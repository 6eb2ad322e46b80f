//! The socket between a job and its keeper.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use trainyard_api::wire::{FromJob, ToJob};

use super::Event;

/// A job that opens more at once is not spoken to on the rest.
const CONNECTIONS_MAX: usize = 256;
/// A longer line is no message.
const LINE_BYTES_MAX: u64 = 16 << 10;
/// A job that does not read must not hold up its keeper.
const WRITE_TIMEOUT: Duration = Duration::from_millis(50);

/// All processes of the job that listen, and what they should know.
#[derive(Clone, Debug, Default)]
pub struct Talk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    listeners: Vec<(u64, UnixStream)>,
    next: u64,
    /// The newest message of each sort, for processes that connect later.
    lasting: Vec<ToJob>,
}

impl Talk {
    /// Opens the socket and listens. Messages go to `events`.
    pub fn open(path: &Path, events: SyncSender<Event>) -> std::io::Result<Talk> {
        let listener = UnixListener::bind(path)?;
        let talk = Talk::default();
        let own = talk.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                own.welcome(stream, &events);
            }
        });
        Ok(talk)
    }

    /// Sends a message to all processes that listen, now and later.
    pub fn say(&self, message: ToJob) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.listeners.retain_mut(|(_, stream)| send(stream, &message));
        let sort = std::mem::discriminant(&message);
        state.lasting.retain(|other| std::mem::discriminant(other) != sort);
        state.lasting.push(message);
    }

    fn welcome(&self, mut stream: UnixStream, events: &SyncSender<Event>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.listeners.len() >= CONNECTIONS_MAX {
            return;
        }
        let _ = stream.set_write_timeout(Some(WRITE_TIMEOUT));
        let Ok(reading) = stream.try_clone() else { return };
        if !state.lasting.iter().all(|message| send(&mut stream, message)) {
            return;
        }
        let id = state.next;
        state.next += 1;
        state.listeners.push((id, stream));
        drop(state);
        let (own, events) = (self.clone(), events.clone());
        thread::spawn(move || {
            listen(reading, &events);
            let mut state = own.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.listeners.retain(|(other, _)| *other != id);
        });
    }
}

fn listen(stream: UnixStream, events: &SyncSender<Event>) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if line.last() != Some(&b'\n') => return,
            Ok(_) => {}
        }
        // A line that is no message comes from a newer or another program, and is skipped.
        if let Ok(message) = serde_json::from_slice::<FromJob>(&line)
            && events.send(Event::Said(message)).is_err()
        {
            return;
        }
    }
}

fn send(stream: &mut UnixStream, message: &ToJob) -> bool {
    let Ok(mut line) = serde_json::to_vec(message) else { return false };
    line.push(b'\n');
    stream.write_all(&line).is_ok()
}
