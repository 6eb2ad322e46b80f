//! Where things are.

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the crate lies two levels below the root").to_path_buf()
}

/// Reference data beside the repository, if it is there; otherwise says which test is skipped.
pub fn shared(test: &str, path: &str) -> Option<PathBuf> {
    let found = root().join("../shared").join(path);
    if found.exists() {
        return Some(found);
    }
    println!("skipped: {test}, because ../shared/{path} is not here");
    None
}
