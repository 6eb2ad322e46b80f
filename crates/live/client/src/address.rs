//! Where the daemon is.

use std::fmt;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use trainyard_api::{Code, Problem};
use trainyard_diagnostic::reason;

/// Where a daemon listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Socket(PathBuf),
    /// An HTTP or HTTPS address, without a slash at its end.
    Web(String),
}

/// The name of the socket in each place it is looked for.
const SOCKET: &str = "api.sock";

/// What an address looks like.
pub const EXPECTED: &str = "unix:/path/to/socket, https://host:port or http://127.0.0.1:port";

impl Address {
    /// The local socket that answers.
    pub fn search() -> Result<Address, Problem> {
        search(&places())
    }
}

/// A text that is no address.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {EXPECTED}")]
pub struct NoAddress;

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Address, NoAddress> {
        parse(text).ok_or(NoAddress)
    }
}

/// Reads an address. Plain HTTP is for this machine only: a token must not travel in the open.
fn parse(text: &str) -> Option<Address> {
    let text = text.trim();
    if let Some(path) = text.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        return (!path.is_empty()).then(|| Address::Socket(socket(path)));
    }
    if text.starts_with('/') {
        return Some(Address::Socket(socket(text)));
    }
    let (scheme, rest) = text.split_once("://")?;
    let authority = rest.trim_end_matches('/');
    if authority.is_empty() || authority.contains(['/', '@', '?', '#', ' ']) {
        return None;
    }
    let allowed = scheme == "https" || scheme == "http" && is_loopback(authority);
    allowed.then(|| Address::Web(format!("{scheme}://{authority}")))
}

/// The socket of that name, or the one in a folder of that name.
fn socket(path: &str) -> PathBuf {
    let path = PathBuf::from(path);
    if path.is_dir() { path.join(SOCKET) } else { path }
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Where the socket of a daemon may lie, the nearest first.
///
/// `TRAINYARD_STATE` names the folder of one daemon, to `serve` as to a client: no other is meant then.
fn places() -> Vec<PathBuf> {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(state) = folder("TRAINYARD_STATE") {
        return vec![state.join(SOCKET)];
    }
    let own = folder("XDG_RUNTIME_DIR").map(|folder| folder.join("trainyard"));
    let home = folder("HOME").map(|folder| folder.join(".trainyard/run"));
    let folders = own.into_iter().chain([PathBuf::from("/run/trainyard")]).chain(home);
    folders.map(|folder| folder.join(SOCKET)).collect()
}

fn search(places: &[PathBuf]) -> Result<Address, Problem> {
    let mut looked = Vec::new();
    for path in places {
        match UnixStream::connect(path) {
            Ok(_) => return Ok(Address::Socket(path.clone())),
            Err(error) => {
                looked.push(format!("{} ({})", path.display(), reason(&error)));
            }
        }
    }
    let detail = format!(
        "no daemon answers: looked at {}; start one with `trainyard serve`, or say where it is with --server, \
         TRAINYARD_SERVER or TRAINYARD_STATE",
        looked.join(", ")
    );
    Err(Problem::new(Code::Unreachable, detail))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Socket(path) => write!(f, "unix:{}", path.display()),
            Address::Web(base) => f.write_str(base),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_plain_http_stays_at_home() {
        let web = |text: &str| Some(Address::Web(text.to_owned()));
        assert_eq!(parse("unix:/run/a.sock"), Some(Address::Socket("/run/a.sock".into())));
        assert_eq!(parse("/run/a.sock"), parse("unix:///run/a.sock"));
        assert_eq!(parse("https://host:8443/"), web("https://host:8443"));
        assert_eq!(parse("http://127.0.0.1:80"), web("http://127.0.0.1:80"));
        assert_eq!(parse("http://[::1]:80"), web("http://[::1]:80"));
        assert_eq!(parse("http://localhost:80"), web("http://localhost:80"));
        for text in
            ["", "host:80", "http://host:80", "ftp://host", "https://", "https://a@b", "unix:"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn where_nothing_answers_the_message_says_how_to_start_a_daemon() {
        let problem = search(&[PathBuf::from("/nonexistent/api.sock")]).expect_err("nothing there");
        assert_eq!(problem.code.exit_code(), 8);
        let message = problem.detail;
        for part in ["/nonexistent/api.sock", "trainyard serve", "--server", "TRAINYARD_SERVER"] {
            assert!(message.contains(part), "{message}");
        }
    }
}
