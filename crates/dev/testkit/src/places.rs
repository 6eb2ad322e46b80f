//! Where things are.

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(3).expect("the crate lies three levels below the root").to_path_buf()
}

/// A path below the folder of published data beside the repository, or nothing and a line that says so.
pub fn shared(path: &str) -> Option<PathBuf> {
    let full = root().join("../shared").join(path);
    if full.exists() {
        return Some(full);
    }
    crate::skip!("data", "{} is absent", full.display());
    None
}
