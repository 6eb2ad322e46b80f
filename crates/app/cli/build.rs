//! Tells the program its version, with the commit where the source lies in a git checkout.
//!
//! The files of the checkout are read directly, so that git itself is not needed to build.

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=TRAINYARD_COMMIT");
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let given = std::env::var("TRAINYARD_COMMIT").ok().filter(|commit| !commit.is_empty());
    let text = match given.or_else(commit) {
        Some(commit) => format!("{version} ({})", &commit[..commit.len().min(12)]),
        None => version,
    };
    println!("cargo:rustc-env=TRAINYARD_VERSION={text}");
}

/// The commit that the checkout around this crate stands at.
fn commit() -> Option<String> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").ok()?).join("../../..");
    let git = root.join(".git");
    let head = watched(&git.join("HEAD"))?;
    let Some(name) = head.strip_prefix("ref: ") else { return hash(&head) };
    if let Some(commit) = watched(&git.join(name)) {
        return hash(&commit);
    }
    let packed = watched(&git.join("packed-refs"))?;
    packed.lines().find_map(|line| hash(line.strip_suffix(name)?.trim()))
}

fn watched(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    println!("cargo:rerun-if-changed={}", path.display());
    Some(text.trim().to_owned())
}

fn hash(text: &str) -> Option<String> {
    let is_hash = text.len() >= 40 && text.chars().all(|c| c.is_ascii_hexdigit());
    is_hash.then(|| text.to_owned())
}
