//! The first bytes of a text, looked at before anything is read.

/// The first bytes of a text.
pub(crate) struct Sniff<'a> {
    begin: &'a [u8],
    text: String,
}

impl<'a> Sniff<'a> {
    pub fn new(begin: &'a [u8]) -> Sniff<'a> {
        let begin = begin.strip_prefix(b"\xef\xbb\xbf").unwrap_or(begin);
        let begin = &begin[..begin.len().min(super::SNIFF_BYTES)];
        Sniff { begin, text: String::from_utf8_lossy(begin).into_owned() }
    }

    /// The first line with something in it, without what ends it.
    pub fn first_line(&self) -> &str {
        self.text.lines().map(str::trim_end).find(|line| !line.trim().is_empty()).unwrap_or("")
    }

    /// The fields of the first line.
    pub fn first_row(&self, separator: char) -> impl Iterator<Item = &str> {
        self.first_line().split(separator).map(str::trim)
    }

    /// Whether the first line is a CSV header with these columns among others, in any order.
    pub fn has_columns(&self, names: &[&str]) -> bool {
        let has = |name: &&str| {
            self.first_row(',').any(|column| column.trim_matches('"').eq_ignore_ascii_case(name))
        };
        names.iter().all(has)
    }

    /// The first byte that is not white space.
    pub fn first_byte(&self) -> Option<u8> {
        self.begin.iter().copied().find(|byte| !byte.is_ascii_whitespace())
    }

    /// Whether a text occurs.
    pub fn contains(&self, text: &str) -> bool {
        self.text.contains(text)
    }

    /// The lines, as far as they are seen.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.text.lines()
    }
}
