//! What a browser was led to send is refused.
//!
//! A page of a stranger can make a browser send requests to this machine (then they carry the page's `Origin`), or can
//! make a name of its own point here (then they carry that name as `Host`). Tokens travel in a header that no page can
//! set for another origin, so this is a second wall, not the first.

use super::peer::Peer;
use axum::http::{HeaderMap, header};
use std::net::IpAddr;
use trainyard_api::{Code, Problem};

/// Whether a request calls this machine by a name of its own and comes from no foreign page.
pub fn check(peer: &Peer, headers: &HeaderMap, names: &[String]) -> Result<(), Problem> {
    check_host(peer, headers, names)?;
    let Some(origin) = headers.get(header::ORIGIN) else {
        // Browsers that leave `Origin` out of a plain GET say in another header where it came from.
        return match headers.get("sec-fetch-site").map(|site| site.as_bytes()) {
            None | Some(b"none" | b"same-origin") => Ok(()),
            Some(_) => Err(foreign("a page of another site")),
        };
    };
    let origin = origin.to_str().unwrap_or_default();
    match is_own_origin(origin, peer, names) {
        true => Ok(()),
        false => Err(foreign(&format!("the page `{}`", shortened(origin)))),
    }
}

/// Whether a request calls this machine by a name of its own.
pub fn check_host(peer: &Peer, headers: &HeaderMap, names: &[String]) -> Result<(), Problem> {
    let Some((here, _)) = peer.here() else { return Ok(()) };
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).unwrap_or_default();
    if hosts.next().is_none() && is_own_host(host_of(host).0, here, names) {
        return Ok(());
    }
    let detail = format!(
        "this daemon is not `{}`: call it by its address, or add that name to its own names",
        shortened(host)
    );
    Err(Problem::field(Code::Denied, "Host", detail))
}

fn is_own_origin(origin: &str, peer: &Peer, names: &[String]) -> bool {
    let (Some((here, port)), Some((scheme, authority))) = (peer.here(), origin.split_once("://"))
    else {
        return false;
    };
    let (host, asked) = host_of(authority);
    let encrypted = matches!(peer, Peer::Remote { encrypted: true, .. });
    let usual = if encrypted { 443 } else { 80 };
    let asked = asked.map_or(Some(usual), |port| port.parse().ok());
    (scheme == "https") == encrypted && asked == Some(port) && is_own_host(host, here, names)
}

/// An address cannot be made to point elsewhere; a name can, so it must be one of ours.
fn is_own_host(host: &str, here: IpAddr, names: &[String]) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        return address.to_canonical() == here;
    }
    let is_loopback = here.is_loopback() && host.eq_ignore_ascii_case("localhost");
    is_loopback || names.iter().any(|name| name.eq_ignore_ascii_case(host))
}

/// A host and its port: `localhost:80`, `[::1]:80`, `::1` in brackets alone.
fn host_of(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

fn foreign(from: &str) -> Problem {
    let detail =
        format!("a request from {from} is refused: pages of other sites have no access here");
    Problem::field(Code::Denied, "Origin", detail)
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(host: &str, origin: Option<&str>, here: &str) -> bool {
        let here = here.parse().unwrap();
        let peer = Peer::Remote { address: "10.0.0.9:4".parse().unwrap(), here, encrypted: false };
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        check(&peer, &headers, &["yard.example".to_owned()]).is_ok()
    }

    #[test]
    fn only_own_names_and_own_pages_pass() {
        let here = "127.0.0.1:80";
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:80", "yard.example"] {
            assert!(asked(host, None, here), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "127.0.0.2", "", "[::1]"] {
            assert!(!asked(host, None, here), "{host}");
        }
        assert!(asked("[::1]:80", None, "[::1]:80"));
        assert!(!asked("localhost", None, "10.0.0.1:80"), "a rebound name reaches other addresses");
        assert!(asked("localhost", Some("http://localhost"), here));
        assert!(asked("localhost", Some("http://127.0.0.1:80"), here));
        let foreign = [
            "null",
            "http://evil.example",
            "https://localhost",
            "http://localhost:81",
            "localhost",
        ];
        for origin in foreign {
            assert!(!asked("localhost", Some(origin), here), "{origin}");
        }
    }
}
