//! Certificates: read from files, or made once and kept.

use super::options::{ServeError, TlsSource};
use super::secret::hex;
use ring::digest::{SHA256, digest};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto, version};

/// What TLS needs, and what clients can check it by.
pub struct Tls {
    /// Makes connections.
    pub acceptor: TlsAcceptor,
    /// The SHA-256 fingerprint of the certificate.
    pub fingerprint: String,
}

/// Reads the certificate and its key; makes them first where that was asked for and they are not there.
pub fn open(source: &TlsSource, names: &[String]) -> Result<Tls, ServeError> {
    let (certificate, key) = match source {
        TlsSource::Files { certificate, key } => (certificate.clone(), key.clone()),
        TlsSource::SelfSigned { folder } => {
            let files = (folder.join("certificate.pem"), folder.join("key.pem"));
            if !files.0.exists() || !files.1.exists() {
                make(folder, &files, names)?;
            }
            files
        }
    };
    let chain = read_chain(&certificate)?;
    if fs::metadata(&key).is_ok_and(|found| found.permissions().mode() & 0o007 != 0) {
        let detail = format!("every user can reach this key: run `chmod o= {}`", key.display());
        return Err(ServeError::Certificate { path: key, detail });
    }
    let secret = PrivateKeyDer::from_pem_file(&key).map_err(|error| {
        let detail = format!("cannot be read as a private key in PEM form: {error}");
        ServeError::Certificate { path: key.clone(), detail }
    })?;
    let fingerprint = hex(digest(&SHA256, &chain[0]).as_ref());
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .map(|builder| builder.with_no_client_auth())
        .and_then(|builder| builder.with_single_cert(chain, secret));
    let mut config = config.map_err(|error| {
        let detail = format!("cannot be used with the key {}: {error}", key.display());
        ServeError::Certificate { path: certificate, detail }
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), fingerprint })
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let wrong = |detail: String| ServeError::Certificate { path: path.to_owned(), detail };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = read.map_err(|error| wrong(format!("cannot be read as PEM: {error}")))?;
    match chain.is_empty() {
        true => Err(wrong("holds no certificate; expected `BEGIN CERTIFICATE`".to_owned())),
        false => Ok(chain),
    }
}

/// The key is on disk before the certificate, so that a start that was cut off is made good by the next one.
fn make(folder: &Path, files: &(PathBuf, PathBuf), names: &[String]) -> Result<(), ServeError> {
    let wrong = |path: &Path, detail: String| ServeError::Certificate {
        path: path.to_owned(),
        detail: format!("cannot be made: {detail}"),
    };
    let made = rcgen::generate_simple_self_signed(names);
    let made = made.map_err(|error| wrong(&files.0, error.to_string()))?;
    let folders = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    folders.map_err(|error| wrong(folder, error.to_string()))?;
    let written =
        [(&files.1, made.signing_key.serialize_pem(), 0o600), (&files.0, made.cert.pem(), 0o644)];
    for (path, text, mode) in written {
        write(path, &text, mode).map_err(|error| wrong(path, error.to_string()))?;
    }
    Ok(())
}

fn write(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    // A file that is there keeps its mode, which may be wider; a new one never was.
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
