//! The page that the daemon serves: files embedded in the program, without a build step.
//!
//! The files are under `page/`: one document, a few style sheets, and modules of plain JavaScript, one for each thing.
//! They ask for nothing but themselves and the daemon's API.

use std::sync::OnceLock;

/// A file of the page.
#[derive(Clone, Debug)]
pub struct File {
    /// Its path in an address.
    pub path: &'static str,
    /// Its content type.
    pub kind: &'static str,
    /// What is in it.
    pub bytes: &'static [u8],
    /// What tells one version of it from another, as in the header `ETag`.
    pub tag: String,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

macro_rules! files {
    ($($kind:ident $($name:literal)*;)*) => {
        &[$($((concat!("/assets/", $name), $kind, include_bytes!(concat!("../page/", $name)))),*),*]
    };
}

type Embedded = (&'static str, &'static str, &'static [u8]);

const ASSETS: &[Embedded] = files! {
    CSS "base.css" "parts.css" "views.css";
    IMAGE "mark.svg";
    SCRIPT "app.js" "api.js" "feed.js" "yard.js" "dom.js" "words.js" "colours.js" "filter.js" "table.js" "ask.js"
        "keys.js" "signin.js" "cluster.js" "map.js" "queue.js" "timeline.js" "gantt.js" "tenants.js" "job.js" "log.js"
        "curve.js" "policy.js" "events.js" "usage.js";
};

/// The file at a path: the document at `/`, everything else under `/assets/`.
pub fn file(path: &str) -> Option<&'static File> {
    files().iter().find(|file| file.path == path)
}

/// All files.
pub fn files() -> &'static [File] {
    static FILES: OnceLock<Vec<File>> = OnceLock::new();
    FILES.get_or_init(|| {
        let page: Embedded = ("/", HTML, include_bytes!("../page/index.html"));
        let all = std::iter::once(page).chain(ASSETS.iter().copied());
        all.map(|(path, kind, bytes)| File { path, kind, bytes, tag: tag(bytes) }).collect()
    })
}

/// FNV-1a over the bytes: no attacker gains by making two versions look alike.
fn tag(bytes: &[u8]) -> String {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    format!("\"{:016x}\"", bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold))
}
