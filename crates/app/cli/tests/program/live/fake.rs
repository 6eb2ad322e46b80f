//! A daemon of a few lines: HTTP over a Unix socket, one request for each connection.

use crate::place::{Place, Ran};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// What was asked.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// With its query.
    pub path: String,
    pub token: Option<String>,
    pub body: String,
}

impl Request {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a body of JSON")
    }

    /// Method and path, as tests compare them.
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// What is answered.
pub enum Reply {
    Json(u16, Value),
    Bytes(&'static [u8]),
    /// The connection is closed without an answer, as by a daemon that is killed.
    HangUp,
}

/// A daemon that is asked by the program in its own directory.
pub struct Fake {
    pub place: Place,
    pub server: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Fake {
    /// Answers on a Unix socket; `answer` gets the request and how many came before it.
    pub fn start(name: &str, answer: impl Fn(&Request, usize) -> Reply + Send + 'static) -> Fake {
        // A path within the limit of sockets, wherever the build lies.
        let socket = std::env::temp_dir().join(format!("ty-{}-{name}.sock", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).expect("a socket");
        let fake = Fake::at(name, format!("unix:{}", socket.display()));
        let seen = Arc::clone(&fake.seen);
        std::thread::spawn(move || {
            let _removed_at_the_end = Removed(socket);
            for stream in listener.incoming().flatten() {
                serve(&stream, &stream, &seen, &answer);
            }
        });
        fake
    }

    /// The same over TCP.
    pub fn start_tcp(
        name: &str,
        answer: impl Fn(&Request, usize) -> Reply + Send + 'static,
    ) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let fake = Fake::at(name, format!("http://{}", listener.local_addr().expect("a port")));
        let seen = Arc::clone(&fake.seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(&stream, &stream, &seen, &answer);
            }
        });
        fake
    }

    fn at(name: &str, server: String) -> Fake {
        Fake { place: Place::new(&format!("live-{name}")), server, seen: Arc::default() }
    }

    /// Runs the program with its words and the address of this daemon.
    pub fn run(&self, words: &[&str]) -> Ran {
        let (own, rest) = match words.iter().position(|word| *word == "--") {
            Some(at) => words.split_at(at),
            None => (words, &[][..]),
        };
        self.place.run(&[own, &["--server", &self.server], rest].concat())
    }

    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().expect("no panic").clone()
    }

    pub fn lines(&self) -> Vec<String> {
        self.seen().iter().map(Request::line).collect()
    }
}

struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn serve(
    input: impl Read,
    mut out: impl Write,
    seen: &Mutex<Vec<Request>>,
    answer: &impl Fn(&Request, usize) -> Reply,
) {
    // A connection without a request only asked whether a daemon listens.
    let Some(request) = read(BufReader::new(input)) else { return };
    let before = {
        let mut seen = seen.lock().expect("no panic");
        seen.push(request.clone());
        seen.len() - 1
    };
    let (status, body) = match answer(&request, before) {
        Reply::Json(status, value) => (status, value.to_string().into_bytes()),
        Reply::Bytes(bytes) => (200, bytes.to_vec()),
        Reply::HangUp => return,
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = out.write_all(&[head.as_bytes(), &body].concat());
}

fn read(mut input: impl BufRead) -> Option<Request> {
    let mut line = String::new();
    input.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut length, mut token) = (0, None);
    loop {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "authorization" => token = value.strip_prefix("Bearer ").map(str::to_owned),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    Some(Request { method, path, token, body: String::from_utf8(body).ok()? })
}
