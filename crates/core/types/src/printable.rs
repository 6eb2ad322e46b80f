//! Text of users, made safe to print.
//!
//! Names, reasons and messages are chosen by the user who submits a job, and shown to all other users.
//! A terminal obeys some characters instead of showing them: escape sequences move the cursor, write the clipboard or
//! forge links, a return hides what came before, an override of direction turns a name around.
//! Here they become visible text, such as `\x1b` or `\u{202e}`.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a character does something on a terminal or to the text around it, instead of being seen.
///
/// These are all control characters, separators of lines, marks and overrides of direction, and tags.
/// Joiners stay, because scripts and emoji need them.
pub fn is_unprintable(letter: char) -> bool {
    matches!(letter,
        '\u{0}'..='\u{1f}'
        | '\u{7f}'..='\u{9f}'
        | '\u{61c}'
        | '\u{200b}' | '\u{200e}' | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
}

/// The text with everything that a terminal would obey written out: the one way by which text of users is printed.
///
/// ```
/// use trainyard_types::printable;
/// assert_eq!(printable("\u{1b}[2Jlate\n"), "\\x1b[2Jlate\\n");
/// assert_eq!(printable("bert-größe"), "bert-größe");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    written_out(text, |_| false)
}

/// The same for a text of several lines: only the ends of lines stay.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    written_out(text, |letter| letter == '\n')
}

/// The same for a text that is JSON: within its strings, which is where such characters can be, they become escapes
/// of JSON.
pub fn printable_json(text: &str) -> Cow<'_, str> {
    let obeyed = |letter: char| is_unprintable(letter) && letter != '\n';
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match obeyed(letter) {
            false => safe.push(letter),
            true => {
                let mut units = [0; 2];
                for unit in letter.encode_utf16(&mut units) {
                    write!(safe, "\\u{unit:04x}").expect("a string takes everything");
                }
            }
        }
    }
    Cow::Owned(safe)
}

fn written_out(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let obeyed = |letter: char| is_unprintable(letter) && !stays(letter);
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        let written = match letter {
            letter if !obeyed(letter) => {
                safe.push(letter);
                Ok(())
            }
            '\n' => write!(safe, "\\n"),
            '\r' => write!(safe, "\\r"),
            '\t' => write!(safe, "\\t"),
            letter if letter.is_ascii() => write!(safe, "\\x{:02x}", u32::from(letter)),
            letter => write!(safe, "\\u{{{:x}}}", u32::from(letter)),
        };
        written.expect("a string takes everything");
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What attackers of terminals use: colours, a cleared screen, links, the clipboard, bells, returns, turned text.
    const HOSTILE: &str = "\u{1b}[31m\u{1b}]8;;http://x\u{7}\u{1b}]52;c;eA==\u{7}\r\n\t\u{8}\u{7f}\u{9b}2J\u{202e}\u{2066}\u{2028}\u{feff}";

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        assert!(!printable(HOSTILE).contains(is_unprintable), "{:?}", printable(HOSTILE));
        assert_eq!(printable("a\u{9b}b\u{202e}c\r"), "a\\u{9b}b\\u{202e}c\\r");
        let lines = printable_lines("one\u{1b}\ntwo\r\n");
        assert_eq!(lines, "one\\x1b\ntwo\\r\n");
    }

    #[test]
    fn ordinary_text_of_any_script_is_not_touched() {
        for text in ["", "resnet-50", "größe", "学習", "تدريب", "👩‍🔬", "a b"] {
            assert!(matches!(printable(text), Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn json_stays_the_same_value() {
        let text = "{\n  \"name\": \"a\u{9b}\u{202e}\u{e0001}\"\n}";
        assert_eq!(printable_json(text), "{\n  \"name\": \"a\\u009b\\u202e\\udb40\\udc01\"\n}");
    }
}
