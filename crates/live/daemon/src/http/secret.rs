//! Tokens: 256 random bits, shown once and kept as a digest.
//!
//! No secret is ever compared: a token is looked up by its digest. An attacker who measures how long that takes learns
//! about digests of their own guesses only.

use ring::digest::{SHA256, digest as hash};
use ring::rand::{SecureRandom, SystemRandom};
use trainyard_api::{Code, Problem};

/// What every token begins with, so that scanners for leaked secrets can find it.
pub const PREFIX: &str = "ty_";

const BYTES: usize = 32;

/// A new token, drawn from the system's randomness.
pub fn draw() -> Result<String, Problem> {
    let mut bytes = [0; BYTES];
    let drawn = SystemRandom::new().fill(&mut bytes);
    drawn.map_err(|_| Problem::new(Code::Internal, "the system gave no randomness for a token"))?;
    Ok(format!("{PREFIX}{}", hex(&bytes)))
}

/// What is kept of a token. One round of a plain hash is enough, because 256 random bits cannot be guessed.
pub fn digest(token: &str) -> String {
    hex(hash(&SHA256, token.as_bytes()).as_ref())
}

/// Whether a text has the form of a token; spares the service a question about anything else.
pub fn is_formed(token: &str) -> bool {
    let hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    token
        .strip_prefix(PREFIX)
        .is_some_and(|rest| rest.len() == 2 * BYTES && rest.bytes().all(hexadecimal))
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)] as char);
        text.push(DIGITS[usize::from(byte & 15)] as char);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_new_each_time_and_its_digest_is_sha_256() {
        let (one, other) = (draw().unwrap(), draw().unwrap());
        assert_ne!(one, other);
        assert!(is_formed(&one), "{one}");
        assert!(!is_formed("ty_short") && !is_formed(&one.to_uppercase()));
        // The digest of "abc", from FIPS 180-4's examples.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest("abc"), abc);
    }
}
