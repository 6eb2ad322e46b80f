//! Which clients are served on which socket.

use crate::client::{Client, Folder, Running};
use crate::service::FakeService;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use trainyard_daemon::access::Role;
use trainyard_daemon::http::{HttpOptions, ServeError, Server, TlsSource};

#[tokio::test]
async fn the_kernel_says_who_asks_on_the_unix_socket() {
    let rim = Running::plain().await;
    let got = rim.local().await.get("/v1/status").await;
    assert_eq!(got.status, 200, "{}", got.text);
    assert_eq!(got.json()["role"], "admin", "the daemon's own user rules");
    let mode = std::fs::metadata(&rim.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666);
    let socket = rim.socket.clone();
    rim.end().await;
    assert!(!socket.exists(), "the socket goes with the daemon");
}

#[tokio::test]
async fn a_daemon_for_one_user_keeps_its_socket_to_itself() {
    let rim = Running::start(|options, _| options.only_own_user = true).await;
    let mode = std::fs::metadata(&rim.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(rim.local().await.get("/v1/status").await.status, 200);
}

/// Only root can make a request as another user.
#[tokio::test]
async fn another_user_on_the_unix_socket_is_no_admin_and_is_sent_away_from_a_daemon_for_one() {
    let nobody = 65_534;
    let can = nix::unistd::Uid::effective().is_root()
        && Command::new("curl").arg("--version").output().is_ok();
    if !can {
        trainyard_testkit::skip!("root", "needs root and curl");
        return;
    }
    let ask = async |rim: &Running, path: &str| {
        // The wall of the file's mode is taken down, to see the one behind it.
        std::fs::set_permissions(&rim.socket, std::fs::Permissions::from_mode(0o666)).unwrap();
        let mut curl = Command::new("curl");
        curl.uid(nobody).args(["--silent", "--max-time", "20", "--unix-socket"]).arg(&rim.socket);
        curl.arg(format!("http://localhost{path}")).current_dir("/");
        let output = tokio::task::spawn_blocking(move || curl.output().unwrap()).await.unwrap();
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let rim = Running::plain().await;
    assert_eq!(ask(&rim, "/v1/status").await["role"], "user");
    assert_eq!(ask(&rim, "/v1/tokens").await["code"], "denied");
    let rim = Running::start(|options, _| options.only_own_user = true).await;
    let refused = ask(&rim, "/v1/status").await;
    assert_eq!(refused["code"], "denied", "{refused}");
    let memory = rim.service.memory.lock().unwrap();
    assert_eq!(memory.refused[0].0, nobody.to_string());
}

#[tokio::test]
async fn a_token_on_the_unix_socket_counts_instead_of_the_user() {
    let rim = Running::plain().await;
    let token = rim.service.token("ann", Role::Viewer, 60.0);
    let header = format!("Bearer {token}");
    let mut client = rim.local().await;
    let got = client.ask("GET", "/v1/status", &[("authorization", &header)], "").await;
    assert_eq!(
        (got.json()["user"].clone(), got.json()["role"].clone()),
        ("ann".into(), "viewer".into())
    );
}

#[tokio::test]
async fn a_wrong_or_expired_token_is_refused_and_written_down() {
    let rim = Running::plain().await;
    let expired = rim.service.token("ann", Role::Admin, -1.0);
    let never = format!("ty_{}", "0".repeat(64));
    for token in [expired.as_str(), never.as_str(), "hunter2"] {
        let got = rim.remote(Some(token)).await.get("/v1/jobs").await;
        assert_eq!(
            (got.status, got.header("www-authenticate")),
            (401, "Bearer realm=\"trainyard\"")
        );
        assert!(got.detail().contains("not known here or has expired"), "{}", got.text);
        assert!(!got.text.contains(token), "a secret is not said back");
    }
    let memory = rim.service.memory.lock().unwrap();
    let refused = ("unknown".to_owned(), "GET /v1/jobs".to_owned(), "127.0.0.1".to_owned());
    assert_eq!(memory.refused, vec![refused; 3]);
}

#[tokio::test]
async fn a_token_is_shown_once_listed_without_its_secret_and_gone_when_dropped() {
    let rim = Running::plain().await;
    let mut admin = rim.local().await;
    let body = r#"{"name":"ci","user":"ann","role":"user","expires_seconds":60}"#;
    let made = admin.post("/v1/tokens", body).await.json();
    let token = made["token"].as_str().unwrap().to_owned();
    let mut ann = rim.remote(Some(&token)).await;
    assert_eq!(ann.get("/v1/status").await.json()["user"], "ann");
    let list = admin.get("/v1/tokens").await;
    assert_eq!(list.json()["tokens"][0]["name"], "ci");
    let secret = token.trim_start_matches("ty_");
    assert!(!list.text.contains(secret) && !list.text.contains("digest"), "{}", list.text);
    let kept = format!("{:?}", rim.service.memory.lock().unwrap().tokens);
    assert!(!kept.contains(secret), "only a digest comes to the service");
    assert_eq!(admin.ask("DELETE", "/v1/tokens/ci", &[], "").await.status, 204);
    assert_eq!(ann.get("/v1/status").await.status, 401, "at once, on an open connection");
}

#[tokio::test]
async fn foreign_pages_and_foreign_names_are_refused() {
    let rim = Running::start(|options, _| options.names = vec!["yard.example".to_owned()]).await;
    let token = rim.service.token("ann", Role::Admin, 60.0);
    let mut client = rim.remote(Some(&token)).await;
    let foreign = [
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("host", "evil.example"),
    ];
    for header in foreign {
        let got = client.ask("GET", "/v1/jobs", &[header], "").await;
        assert_eq!(got.status, 403, "{header:?}");
        got.detail();
    }
    assert_eq!(rim.service.memory.lock().unwrap().refused.len(), foreign.len());
    let own = format!("http://{}", rim.address);
    for header in [("origin", own.as_str()), ("host", "yard.example"), ("host", "localhost")] {
        assert_eq!(client.ask("GET", "/v1/jobs", &[header], "").await.status, 200, "{header:?}");
    }
    let got = rim.local().await.ask("GET", "/v1/jobs", &[("origin", "http://localhost")], "").await;
    assert_eq!(got.status, 403, "no page comes over a Unix socket");
}

#[tokio::test]
async fn no_door_is_opened_that_others_could_listen_at() {
    let refused = |change: fn(&mut HttpOptions)| async move {
        let service = FakeService::new();
        let mut options = HttpOptions::new(Arc::clone(&service.metrics));
        change(&mut options);
        Server::bind(service, options).await.err().expect("refused").to_string()
    };
    let text = refused(|options| options.tcp = Some("0.0.0.0:0".parse().unwrap())).await;
    assert!(text.contains("will not listen on 0.0.0.0:0 without TLS"), "{text}");
    assert!(text.contains("give a certificate and its key"), "{text}");
    let text = refused(|options| options.tcp = Some("[::]:0".parse().unwrap())).await;
    assert!(text.contains("without TLS"), "{text}");
    assert!(refused(|_| {}).await.contains("nothing to listen on"));
    let text = refused(|options| {
        options.tcp = Some("127.0.0.1:0".parse().unwrap());
        let (certificate, key) = ("/nowhere/cert.pem".into(), "/nowhere/key.pem".into());
        options.tls = Some(TlsSource::Files { certificate, key });
    });
    let text = text.await;
    assert!(text.starts_with("/nowhere/cert.pem: cannot be read as PEM"), "{text}");
    let text = refused(|options| {
        options.socket = Some("/tmp/never-made".into());
        options.operator_group = Some("no-such-group-here".to_owned());
    });
    assert!(text.await.contains("there is no Unix group `no-such-group-here`"));
}

#[tokio::test]
async fn a_socket_is_taken_over_from_the_dead_only() {
    let folder = Folder::new();
    let path = folder.0.join("socket");
    let bind = || {
        let service = FakeService::new();
        let mut options = HttpOptions::new(Arc::clone(&service.metrics));
        options.socket = Some(path.clone());
        Server::bind(service, options)
    };
    let first = bind().await.unwrap();
    assert!(matches!(bind().await, Err(ServeError::SocketInUse(_))));
    drop(first);
    assert!(path.exists(), "a killed daemon leaves its socket behind");
    drop(bind().await.unwrap());
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(bind().await, Err(ServeError::NotASocket(_))));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn tls_with_a_certificate_of_its_own_works_and_is_kept() {
    let rim = Running::start(|options, folder| {
        options.tls = Some(TlsSource::SelfSigned { folder: folder.0.join("tls") });
    })
    .await;
    let folder = rim.folder.0.join("tls");
    let key = std::fs::metadata(folder.join("key.pem")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    let token = rim.service.token("ann", Role::User, 60.0);
    let certificate = CertificateDer::from_pem_file(folder.join("certificate.pem")).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(rim.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let mut client = Client::over(stream, "localhost", Some(&token)).await;
    assert_eq!(client.get("/v1/status").await.json()["user"], "ann");
    assert_eq!(
        client.ask("GET", "/v1/status", &[("origin", "http://localhost")], "").await.status,
        403
    );

    // A key that every user can read is refused.
    let (certificate, key) = (folder.join("certificate.pem"), rim.folder.0.join("open.pem"));
    std::fs::copy(folder.join("key.pem"), &key).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let service = FakeService::new();
    let mut options = HttpOptions::new(Arc::clone(&service.metrics));
    options.tcp = Some("127.0.0.1:0".parse().unwrap());
    options.tls = Some(TlsSource::Files { certificate, key });
    let text = Server::bind(service, options).await.err().unwrap().to_string();
    assert!(text.contains("every user can reach this key: run `chmod o="), "{text}");

    // The next start shows the same certificate.
    let service = FakeService::new();
    let mut options = HttpOptions::new(Arc::clone(&service.metrics));
    options.tcp = Some("0.0.0.0:0".parse().unwrap());
    options.tls = Some(TlsSource::SelfSigned { folder });
    let again = Server::bind(service, options).await.expect("any address, with TLS");
    assert_eq!(again.fingerprint(), rim.fingerprint.as_deref());
}

#[tokio::test]
async fn a_socket_that_is_removed_is_made_again() {
    let rim = Running::plain().await;
    let mut before = rim.local().await;
    assert_eq!(before.get("/healthz").await.status, 200);
    for _ in 0..2 {
        std::fs::remove_file(&rim.socket).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while tokio::net::UnixStream::connect(&rim.socket).await.is_err() {
            assert!(std::time::Instant::now() < deadline, "it is not made again");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(rim.local().await.get("/healthz").await.status, 200);
    }
    assert_eq!(before.get("/healthz").await.status, 200, "who was connected stays so");
}
