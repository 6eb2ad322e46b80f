//! Columns of numbers as short texts.
//!
//! A number is written five bits at a time, the lowest first, in the alphabet of base64; the sixth bit says that more
//! follow. Numbers below 32 are one character. `assets/data.js` reads it back.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A column of numbers that are not negative.
pub(super) fn column(values: impl IntoIterator<Item = u64>) -> String {
    let mut text = String::new();
    for value in values {
        push(&mut text, value);
    }
    text
}

/// A column of numbers, each as its difference from the one before; signs alternate: 0, -1, 1, -2, 2.
pub(super) fn differences(values: impl IntoIterator<Item = u64>) -> String {
    let (mut text, mut before) = (String::new(), 0i64);
    for value in values {
        let value = value as i64;
        let step = value - before;
        before = value;
        push(&mut text, ((step << 1) ^ (step >> 63)) as u64);
    }
    text
}

fn push(text: &mut String, mut value: u64) {
    loop {
        let low = (value & 31) as usize;
        value >>= 5;
        let more = if value > 0 { 32 } else { 0 };
        text.push(char::from(ALPHABET[low | more]));
        if value == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_are_one_character_and_large_ones_go_on() {
        assert_eq!(column([0, 1, 31, 32, 1024]), "ABfgBggB");
        assert_eq!(differences([5, 4, 4, 20]), "KBAgB");
    }
}
