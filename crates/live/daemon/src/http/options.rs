//! Where the rim listens and what it allows.

use crate::metrics::Metrics;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Where the rim listens, which clients it admits and how much it takes.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// A Unix socket; the kernel tells which user connects.
    pub socket: Option<PathBuf>,
    /// A TCP address. A token is needed on it always, and TLS unless it is a loopback address.
    pub tcp: Option<SocketAddr>,
    /// Whether another free port will do where that of `tcp` is taken.
    pub any_port: bool,
    /// The certificate to show on TCP.
    pub tls: Option<TlsSource>,
    /// Names of this machine that requests over TCP may call it by, besides its addresses and `localhost`.
    pub names: Vec<String>,
    /// Whether the Unix socket serves only the daemon's own user and root.
    pub only_own_user: bool,
    /// Unix users who are operators on the Unix socket.
    pub operators: Vec<String>,
    /// A Unix group whose members are operators on the Unix socket.
    pub operator_group: Option<String>,
    /// How much is taken.
    pub limits: Limits,
    /// Where requests are counted; the service writes the same object out.
    pub metrics: Arc<Metrics>,
}

impl HttpOptions {
    /// Listens nowhere yet; everything else has its default.
    pub fn new(metrics: Arc<Metrics>) -> HttpOptions {
        HttpOptions {
            socket: None,
            tcp: None,
            any_port: false,
            tls: None,
            names: Vec::new(),
            only_own_user: false,
            operators: Vec::new(),
            operator_group: None,
            limits: Limits::default(),
            metrics,
        }
    }
}

/// Where certificate and key come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsSource {
    /// PEM files.
    Files {
        /// The certificate and those that vouch for it.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// A certificate of its own, made at the first start and kept in this folder.
    SelfSigned {
        /// Holds `certificate.pem`, which clients are given, and `key.pem`, which stays.
        folder: PathBuf,
    },
}

/// How much is taken from whom.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body_bytes_max: usize,
    /// Bytes of all large bodies under way.
    pub bodies_bytes_max: usize,
    /// Bytes of a request's line and headers together.
    pub head_bytes_max: usize,
    /// Headers of a request.
    pub headers_max: usize,
    /// Bytes of the part of an address behind `?`.
    pub query_bytes_max: usize,
    /// Bytes of an answer.
    pub reply_bytes_max: usize,
    /// Bytes of a capture, which is as large as the flight record is.
    pub capture_bytes_max: usize,
    /// Jobs in one submission.
    pub jobs_max: usize,
    /// Rows of a list.
    pub rows_max: usize,
    /// Bytes of a log in one answer.
    pub log_bytes_max: usize,
    /// Connections on each listener.
    pub connections_max: usize,
    /// Connections from one Unix user or one address.
    pub connections_per_peer_max: usize,
    /// Requests a second of one caller, in the long run.
    pub requests_per_second: f64,
    /// Requests of one caller at once.
    pub requests_burst: f64,
    /// Refused requests a second of one peer that are answered in full and written down, in the long run.
    pub refusals_per_second: f64,
    /// How long the head of a request may take; also how long a connection may be idle.
    pub head_time_max: Duration,
    /// How long the body of a request may take.
    pub body_time_max: Duration,
    /// How long the service may take.
    pub answer_time_max: Duration,
    /// How long a client may read nothing of its answer.
    pub write_time_max: Duration,
    /// How long a client may take to read an answer that is shared with others.
    pub shared_time_max: Duration,
    /// The longest wait for an event.
    pub wait_time_max: Duration,
    /// How long requests may go on after the end was asked for.
    pub shutdown_time_max: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_bytes_max: 16 << 20,
            bodies_bytes_max: 256 << 20,
            head_bytes_max: 32 << 10,
            headers_max: 64,
            query_bytes_max: 4 << 10,
            reply_bytes_max: 16 << 20,
            capture_bytes_max: 256 << 20,
            jobs_max: 10_000,
            rows_max: 10_000,
            log_bytes_max: 1 << 20,
            connections_max: 512,
            connections_per_peer_max: 192,
            requests_per_second: 10_000.0,
            requests_burst: 20_000.0,
            refusals_per_second: 5.0,
            head_time_max: Duration::from_secs(15),
            body_time_max: Duration::from_secs(30),
            answer_time_max: Duration::from_secs(30),
            write_time_max: Duration::from_secs(30),
            shared_time_max: Duration::from_secs(60),
            wait_time_max: Duration::from_secs(60),
            shutdown_time_max: Duration::from_secs(5),
        }
    }
}

/// Why the rim cannot be opened, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Neither a socket nor an address was given.
    #[error("nothing to listen on: give a Unix socket, a TCP address, or both")]
    Nowhere,
    /// Others could read along.
    #[error(
        "will not listen on {0} without TLS, because others could read tokens and answers on the way: \
         give a certificate and its key, let one be made (self-signed), or listen on 127.0.0.1 or a Unix socket"
    )]
    NeedsTls(SocketAddr),
    /// A certificate without an address.
    #[error("a certificate is given but no TCP address: give one, or leave the certificate out")]
    TlsWithoutTcp,
    /// The address cannot be had.
    #[error(
        "cannot listen on {address}: {source}; choose a free port or stop the process that has it"
    )]
    Address {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The socket cannot be made.
    #[error("cannot make the socket {}: {source}", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A daemon is there already.
    #[error("a daemon already listens on {}: stop it, or choose another socket", .0.display())]
    SocketInUse(PathBuf),
    /// Something else lies there.
    #[error("{} is there and is no socket: move it away, or choose another path", .0.display())]
    NotASocket(PathBuf),
    /// The certificate or key cannot be used.
    #[error("{}: {detail}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what was expected.
        detail: String,
    },
    /// No such group.
    #[error(
        "there is no Unix group `{0}` whose members could be operators: create it, or name another"
    )]
    UnknownGroup(String),
}
