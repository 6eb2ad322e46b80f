//! One place that opens sockets: a rim on a Unix socket and loopback TCP, and requests to it.

use crate::service::FakeService;
use axum::body::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use trainyard_daemon::http::{HttpOptions, Server};

/// A folder of a test's own, gone with it.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("trainyard-http-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A rim that runs.
pub struct Running {
    pub service: Arc<FakeService>,
    pub folder: Folder,
    pub socket: PathBuf,
    pub address: SocketAddr,
    pub fingerprint: Option<String>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    /// With these changes to the options.
    pub async fn start(change: impl FnOnce(&mut HttpOptions, &Folder)) -> Running {
        let (service, folder) = (FakeService::new(), Folder::new());
        let socket = folder.0.join("socket");
        let mut options = HttpOptions::new(Arc::clone(&service.metrics));
        options.socket = Some(socket.clone());
        options.tcp = Some("127.0.0.1:0".parse().unwrap());
        change(&mut options, &folder);
        let server = Server::bind(service.clone(), options).await.unwrap();
        let address = server.address().unwrap();
        let fingerprint = server.fingerprint().map(str::to_owned);
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Running { service, folder, socket, address, fingerprint, stop, task }
    }

    pub async fn plain() -> Running {
        Running::start(|_, _| {}).await
    }

    /// A connection over the Unix socket.
    pub async fn local(&self) -> Client {
        Client::over(UnixStream::connect(&self.socket).await.unwrap(), "localhost", None).await
    }

    /// A connection over TCP with a token.
    pub async fn remote(&self, token: Option<&str>) -> Client {
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Client::over(stream, &self.address.to_string(), token).await
    }

    /// Asks for the end and waits for it.
    pub async fn end(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }
}

/// What came back.
pub struct Got {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Got {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    /// The detail of a problem, which it must be.
    pub fn detail(&self) -> String {
        let json = self.json();
        assert!(json["code"].is_string(), "{} is no problem: {}", self.status, self.text);
        json["detail"].as_str().unwrap().to_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// One connection.
pub struct Client {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    token: Option<String>,
}

impl Client {
    pub async fn over<S>(stream: S, host: &str, token: Option<&str>) -> Client
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Client { sender, host: host.to_owned(), token: token.map(str::to_owned) }
    }

    pub async fn get(&mut self, path: &str) -> Got {
        self.ask("GET", path, &[], "").await
    }

    pub async fn post(&mut self, path: &str, body: &str) -> Got {
        self.ask("POST", path, &[], body).await
    }

    /// Any request; a header named `host` replaces the usual one.
    pub async fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Got {
        let mut request = Request::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
        *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
        *request.uri_mut() = path.parse().unwrap();
        let known = request.headers_mut();
        known.insert("host", self.host.parse().unwrap());
        if let Some(token) = &self.token {
            known.insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        for (name, value) in headers {
            let name: hyper::header::HeaderName = name.parse().unwrap();
            known.insert(name, value.parse().unwrap());
        }
        let response = self.sender.send_request(request).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Got { status, headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }
}
