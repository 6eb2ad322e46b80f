//! Sockets: opened with care, accepted within limits, closed in order.

use super::input;
use super::options::{HttpOptions, Limits, ServeError};
use super::peer::Peer;
use super::rate::Who;
use super::router::{Rim, router};
use super::tls::{self, Tls};
use crate::metrics::Metrics;
use crate::service::Service;
use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::HashMap;
use std::fs;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use trainyard_api::{Code, Problem};

/// How long to rest when the system has no more file descriptors.
const REST: Duration = Duration::from_millis(50);
/// How often it is looked whether the socket is still there.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// So many connections beyond the limit are told so at the same time, each for so long at most.
const TURNED_AWAY_MAX: usize = 64;
const TURN_AWAY_TIME_MAX: Duration = Duration::from_secs(1);
/// Whose connections are too many.
const EVERYBODY: &str = "the daemon";
const ONE_PEER: &str = "your user or address";

/// Opens the rim and serves until `shutdown` is ready and requests under way are answered.
pub async fn serve(
    service: Arc<dyn Service>,
    options: HttpOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    Server::bind(service, options).await?.run(shutdown).await;
    Ok(())
}

/// A rim that is open: connections queue up until [`Server::run`].
pub struct Server {
    limiter: Arc<ConnectionLimiter>,
    unix: Option<(UnixListener, Door)>,
    tcp: Option<(TcpListener, Option<Tls>)>,
    stop: watch::Sender<bool>,
}

/// A Unix socket as it is to be.
#[derive(Clone)]
struct Door {
    path: PathBuf,
    only_own_user: bool,
}

/// What all connections share.
struct ConnectionLimiter {
    rim: Arc<Rim>,
    router: Router,
    limits: Limits,
    metrics: Arc<Metrics>,
    peers: Mutex<HashMap<Who, usize>>,
    /// Permits for connections that are told that there is no room.
    turned_away: Semaphore,
}

impl Server {
    /// Opens the sockets, or says why not.
    pub async fn bind(
        service: Arc<dyn Service>,
        options: HttpOptions,
    ) -> Result<Server, ServeError> {
        if options.socket.is_none() && options.tcp.is_none() {
            return Err(ServeError::Nowhere);
        }
        let (stop, stopping) = watch::channel(false);
        let tcp = match options.tcp {
            Some(address) => Some(open_tcp(address, &options).await?),
            None if options.tls.is_some() => return Err(ServeError::TlsWithoutTcp),
            None => None,
        };
        let unix = match &options.socket {
            Some(path) => {
                let door = Door { path: path.clone(), only_own_user: options.only_own_user };
                Some((open_unix(&door).await?, door))
            }
            None => None,
        };
        let address = tcp.as_ref().and_then(|(listener, _)| listener.local_addr().ok());
        let page = address.map(|address| page_url(address, &options));
        let rim = Arc::new(Rim::new(service, &options, page, stopping)?);
        let limiter = ConnectionLimiter {
            router: router(&rim),
            rim,
            limits: options.limits,
            metrics: options.metrics,
            peers: Mutex::default(),
            turned_away: Semaphore::new(TURNED_AWAY_MAX),
        };
        Ok(Server { limiter: Arc::new(limiter), unix, tcp, stop })
    }

    /// The TCP address, with the port that the system chose where it was asked to.
    pub fn address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|(listener, _)| listener.local_addr().ok())
    }

    /// The SHA-256 fingerprint of the certificate, for clients to check it by.
    pub fn fingerprint(&self) -> Option<&str> {
        let (_, tls) = self.tcp.as_ref()?;
        tls.as_ref().map(|tls| tls.fingerprint.as_str())
    }

    /// Serves until `shutdown` is ready and requests under way are answered, or their time is up.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let mut loops = JoinSet::new();
        let path = self.unix.as_ref().map(|(_, door)| door.path.clone());
        if let Some((listener, door)) = self.unix {
            let (changes, listener) = watch::channel(Arc::new(listener));
            loops.spawn(accept_unix(Arc::clone(&self.limiter), listener));
            loops.spawn(keep_socket(Arc::clone(&self.limiter), door, changes));
        }
        if let Some((listener, tls)) = self.tcp {
            loops.spawn(accept_tcp(Arc::clone(&self.limiter), listener, tls));
        }
        shutdown.await;
        // All receivers live in the loops; when there are no loops, there is no receiver to tell.
        let _ = self.stop.send(true);
        while loops.join_next().await.is_some() {}
        if let Some(path) = path {
            // Left behind, it would be found and removed by the next start.
            let _ = fs::remove_file(path);
        }
    }
}

/// Where a browser on this machine, or one that knows its name, finds the page.
fn page_url(address: SocketAddr, options: &HttpOptions) -> String {
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let host = match (options.names.first(), address.ip().is_unspecified()) {
        (Some(name), _) if options.tls.is_some() => name.clone(),
        (_, true) => "localhost".to_owned(),
        (_, false) => match address.ip() {
            std::net::IpAddr::V4(v4) => v4.to_string(),
            std::net::IpAddr::V6(v6) => format!("[{v6}]"),
        },
    };
    format!("{scheme}://{host}:{}/", address.port())
}

async fn open_tcp(
    address: SocketAddr,
    options: &HttpOptions,
) -> Result<(TcpListener, Option<Tls>), ServeError> {
    if options.tls.is_none() && !address.ip().to_canonical().is_loopback() {
        return Err(ServeError::NeedsTls(address));
    }
    let mut names = options.names.clone();
    names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
    if !address.ip().is_unspecified() && !address.ip().is_loopback() {
        names.push(address.ip().to_canonical().to_string());
    }
    let tls = options.tls.as_ref().map(|source| tls::open(source, &names)).transpose()?;
    let mut listener = TcpListener::bind(address).await;
    let taken = matches!(&listener, Err(error) if error.kind() == std::io::ErrorKind::AddrInUse);
    if taken && options.any_port {
        listener = TcpListener::bind(SocketAddr::new(address.ip(), 0)).await;
    }
    let listener = listener.map_err(|source| ServeError::Address { address, source })?;
    Ok((listener, tls))
}

/// A socket that was removed, as by a clean-up of temporary files, is made again: clients need it to reach the daemon.
async fn keep_socket(
    limiter: Arc<ConnectionLimiter>,
    door: Door,
    changes: watch::Sender<Arc<UnixListener>>,
) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = limiter.rim.stopped() => return,
        }
        let gone = fs::symlink_metadata(&door.path)
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if !gone {
            continue;
        }
        match open_unix(&door).await {
            Ok(listener) => {
                let path = door.path.display();
                tracing::warn!(target: "trainyard::http", "{path} was removed and is made again");
                let _ = changes.send(Arc::new(listener));
            }
            Err(error) => {
                tracing::warn!(target: "trainyard::http", %error, "the socket was removed");
            }
        }
    }
}

/// A socket that was left behind is replaced; one that is in use, or anything else, is not.
async fn open_unix(door: &Door) -> Result<UnixListener, ServeError> {
    let Door { path, only_own_user } = door;
    let failed = |source: io::Error| ServeError::Socket { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ServeError::NotASocket(path.to_owned()));
        }
        Ok(_) if UnixStream::connect(path).await.is_ok() => {
            return Err(ServeError::SocketInUse(path.to_owned()));
        }
        Ok(_) => fs::remove_file(path).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let (folder_mode, mode) = if *only_own_user { (0o700, 0o600) } else { (0o755, 0o666) };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let made = fs::DirBuilder::new().recursive(true).mode(folder_mode).create(folder);
        made.map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
    Ok(listener)
}

async fn accept_unix(
    limiter: Arc<ConnectionLimiter>,
    listener: watch::Receiver<Arc<UnixListener>>,
) {
    let next = || {
        let mut listener = listener.clone();
        async move {
            loop {
                let present = Arc::clone(&listener.borrow_and_update());
                tokio::select! {
                    accepted = present.accept() => return accepted,
                    // Without a task that makes it again, the present one is all there will be.
                    changed = listener.changed() => if changed.is_err() {
                        return present.accept().await;
                    },
                }
            }
        }
    };
    accept(limiter, next, |limiter, stream: UnixStream, permit| async move {
        let Some(permit) = permit else {
            limiter.metrics.connection_refused();
            return turn_away(&limiter, stream, EVERYBODY).await;
        };
        let Ok(uid) = stream.peer_cred().map(|peer| peer.uid()) else { return };
        let Some(_place) = Place::take(&limiter, Who::Uid(uid)) else {
            drop(permit);
            return turn_away(&limiter, stream, ONE_PEER).await;
        };
        let caller = limiter.rim.users.caller(uid).await;
        let peer = Peer::Local { uid, caller };
        talk(&limiter, stream, peer, permit).await;
    })
    .await;
}

async fn accept_tcp(limiter: Arc<ConnectionLimiter>, listener: TcpListener, tls: Option<Tls>) {
    let tls = tls.map(|tls| tls.acceptor);
    accept(
        limiter,
        || listener.accept(),
        |limiter, stream: TcpStream, permit| {
            let tls = tls.clone();
            async move {
                let (Ok(address), Ok(here)) = (stream.peer_addr(), stream.local_addr()) else {
                    return;
                };
                // An answer would cost a handshake of TLS, which is what there is no room for.
                let whose = |whose| if tls.is_some() { None } else { Some(whose) };
                let Some(permit) = permit else {
                    limiter.metrics.connection_refused();
                    let Some(whose) = whose(EVERYBODY) else { return };
                    return turn_away(&limiter, stream, whose).await;
                };
                let Some(_place) = Place::take(&limiter, Who::address(address.ip())) else {
                    drop(permit);
                    let Some(whose) = whose(ONE_PEER) else { return };
                    return turn_away(&limiter, stream, whose).await;
                };
                // Answers are small and whole: there is nothing to gather.
                let _ = stream.set_nodelay(true);
                let peer = Peer::Remote { address, here, encrypted: tls.is_some() };
                let Some(tls) = tls else { return talk(&limiter, stream, peer, permit).await };
                match timeout(limiter.limits.head_time_max, tls.accept(stream)).await {
                    Ok(Ok(stream)) => talk(&limiter, stream, peer, permit).await,
                    Ok(Err(_)) | Err(_) => limiter.metrics.connection_refused(),
                }
            }
        },
    )
    .await;
}

/// Takes connections; those beyond the limit come without a permit and are only told so.
async fn accept<A, S, X, F>(
    limiter: Arc<ConnectionLimiter>,
    listen: impl Fn() -> A,
    connect: impl Fn(Arc<ConnectionLimiter>, S, Option<OwnedSemaphorePermit>) -> F,
) where
    A: Future<Output = io::Result<(S, X)>>,
    F: Future<Output = ()> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(limiter.limits.connections_max));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listen() => match accepted {
                Ok((stream, _)) => {
                    let permit = Arc::clone(&room).try_acquire_owned().ok();
                    connections.spawn(connect(Arc::clone(&limiter), stream, permit));
                }
                Err(error) => {
                    tracing::warn!(target: "trainyard::http", %error, "no connection accepted");
                    tokio::time::sleep(REST).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = limiter.rim.stopped() => break,
        }
    }
    let rest = async { while connections.join_next().await.is_some() {} };
    if timeout(limiter.limits.shutdown_time_max, rest).await.is_err() {
        connections.shutdown().await;
    }
}

/// Says that there are too many connections, and when to come back, without reading what was asked. A client that
/// makes so many that there is no room for that either is cut off.
async fn turn_away<S>(limiter: &ConnectionLimiter, mut stream: S, whose: &str)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Ok(_room) = limiter.turned_away.try_acquire() else { return };
    let detail =
        format!("{whose} has more connections than allowed: close some, or try again in 1 s");
    let body = serde_json::to_string(&Problem::new(Code::TooMany, detail)).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let told = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // What was sent is read for a moment: closed before that, the answer would be lost with it.
        let mut rest = [0; 4096];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(TURN_AWAY_TIME_MAX, told).await;
}

async fn talk<S>(
    limiter: &Arc<ConnectionLimiter>,
    stream: S,
    peer: Peer,
    _permit: OwnedSemaphorePermit,
) where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limiter.limits.write_time_max));
    let peer = Arc::new(peer);
    let service = service_fn(|mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(&peer));
        let mut router = limiter.router.clone();
        let refused = input::check_head(&request, limiter.limits.head_bytes_max).err();
        async move {
            match refused {
                Some(refusal) => Ok(refusal.into_response()),
                None => tower_service::Service::call(&mut router, request.map(Body::new)).await,
            }
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limiter.limits.head_time_max)
        .max_buf_size(limiter.limits.head_bytes_max.max(8 << 10))
        .max_headers(limiter.limits.headers_max)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = limiter.rim.stopped() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(target: "trainyard::http", %error, peer = peer.label(), "connection ended");
    }
}

/// A place among the connections of one peer; given back when dropped.
struct Place<'a> {
    limiter: &'a ConnectionLimiter,
    who: Who,
}

impl<'a> Place<'a> {
    fn take(limiter: &'a ConnectionLimiter, who: Who) -> Option<Place<'a>> {
        let mut peers = limiter.peers.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let taken = peers.entry(who).or_default();
        if *taken >= limiter.limits.connections_per_peer_max {
            limiter.metrics.connection_refused();
            return None;
        }
        *taken += 1;
        Some(Place { limiter, who })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut peers = self.limiter.peers.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(taken) = peers.get_mut(&self.who) {
            *taken -= 1;
            if *taken == 0 {
                peers.remove(&self.who);
            }
        }
    }
}
