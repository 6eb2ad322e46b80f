//! What is wrong with a text that a user wrote, and where.
//!
//! - [`InputError`]: one fault, with line, field, value, what was expected and the nearest valid name.
//! - [`nearest`]: the valid name that a wrong one was probably meant to be.
//! - [`document`]: TOML read key by key, so that every fault has a line.
//! - [`reason`]: what the system says about a file.
//!
//! Nothing here opens a file: the caller that did so puts its name in front.

pub mod document;
mod input;

pub use document::{Document, Section};
pub use input::{InputError, nearest};

/// What the system says about a failure, without its number.
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
