//! The files of the page. They hold no data: all of it comes through the API, with a token.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use trainyard_web::{File, file};

/// Only what this daemon itself sends runs, is shown or is asked; no other site may put the page into a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The file at a path, or word that a browser has it already; nothing where there is no such file.
pub fn answer(path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    let file = file(path)?;
    let known = headers.get(header::IF_NONE_MATCH).and_then(|tag| tag.to_str().ok());
    let fresh = known.is_some_and(|tags| tags.split(',').any(|tag| tag.trim() == file.tag));
    let mut response = match fresh {
        true => Response::new(Body::empty()),
        false => Response::new(Body::from(file.bytes)),
    };
    if fresh {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    set_headers(response.headers_mut(), file);
    Some(response)
}

fn set_headers(headers: &mut HeaderMap, file: &File) {
    let own = [
        (header::CONTENT_TYPE, file.kind),
        // Kept, and asked about each time: a new daemon brings a new page.
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    for (name, value) in own {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(tag) = HeaderValue::from_str(&file.tag) {
        headers.insert(header::ETAG, tag);
    }
}
