//! Arrays of jobs: `0-9`, `1,3,5`, `0-9:2`, with `%4` for at most four at once.

use std::collections::BTreeSet;

/// An array with more elements than this is refused.
pub const ELEMENTS_MAX: usize = 100_000;

/// The largest index of an element.
pub const INDEX_MAX: u32 = 4_000_000;

/// What an array is, in words.
pub const ARRAY_FORM: &str = "indices such as 0-9, 1,3,5 or 0-9:2, with %4 for at most 4 at once";

/// The elements of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArraySpec {
    /// Their indices, ascending, each once.
    pub indices: Vec<u32>,
    /// How many may run at the same time; any number when not said.
    pub at_once: Option<u32>,
}

/// What is wrong with the text of an array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArrayError {
    /// A part is not of the form.
    #[error("`{part}` in the array `{text}` is not valid: expected {ARRAY_FORM}")]
    Form {
        /// The whole text.
        text: String,
        /// The part at fault.
        part: String,
    },
    /// A range goes down.
    #[error("the range `{part}` goes down: expected the smaller index first")]
    Descending {
        /// The range.
        part: String,
    },
    /// An index is too large.
    #[error("the index {index} is too large: expected at most {INDEX_MAX}")]
    Index {
        /// The index.
        index: u64,
    },
    /// There are too many elements.
    #[error("the array has more than {ELEMENTS_MAX} elements: expected several smaller arrays")]
    Elements,
}

/// Reads the text of an array.
///
/// ```
/// let array = trainyard_api::parse_array("0-4:2,9%2").unwrap();
/// assert_eq!(array.indices, [0, 2, 4, 9]);
/// assert_eq!(array.at_once, Some(2));
/// ```
pub fn parse_array(text: &str) -> Result<ArraySpec, ArrayError> {
    let bad = |part: &str| ArrayError::Form { text: shortened(text), part: shortened(part) };
    let (ranges, at_once) = match text.trim().split_once('%') {
        None => (text.trim(), None),
        Some((ranges, most)) => {
            let count = number(most).and_then(|count| u32::try_from(count).ok());
            let count = count.filter(|count| *count > 0).ok_or_else(|| bad(&format!("%{most}")))?;
            (ranges, Some(count))
        }
    };
    let mut indices = BTreeSet::new();
    for part in ranges.split(',') {
        let (first, last, step) = range(part.trim()).ok_or_else(|| bad(part))?;
        if last < first {
            return Err(ArrayError::Descending { part: shortened(part) });
        }
        if last > u64::from(INDEX_MAX) {
            return Err(ArrayError::Index { index: last });
        }
        // Both ends are at most `INDEX_MAX` here.
        for index in (first as u32..=last as u32).step_by(step) {
            indices.insert(index);
            if indices.len() > ELEMENTS_MAX {
                return Err(ArrayError::Elements);
            }
        }
    }
    Ok(ArraySpec { indices: indices.into_iter().collect(), at_once })
}

fn range(part: &str) -> Option<(u64, u64, usize)> {
    let (ends, step) = match part.split_once(':') {
        None => (part, 1),
        Some((ends, step)) if ends.contains('-') => (ends, number(step).filter(|step| *step > 0)?),
        Some(_) => return None,
    };
    let (first, last) = ends.split_once('-').unwrap_or((ends, ends));
    Some((number(first)?, number(last)?, usize::try_from(step).ok()?))
}

/// Digits only: no sign, no space.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indices(text: &str) -> Vec<u32> {
        parse_array(text).expect(text).indices
    }

    #[test]
    fn ranges_lists_and_steps_are_understood() {
        assert_eq!(indices("0-3"), [0, 1, 2, 3]);
        assert_eq!(indices(" 7 "), [7]);
        assert_eq!(indices("5,1, 3,1"), [1, 3, 5]);
        assert_eq!(indices("0-9:4"), [0, 4, 8]);
        assert_eq!(parse_array("0-9%4").map(|array| array.at_once), Ok(Some(4)));
        assert_eq!(parse_array("0-9").map(|array| array.at_once), Ok(None));
        assert_eq!(indices(&format!("{INDEX_MAX}")), [INDEX_MAX]);
    }

    #[test]
    fn what_is_no_array_is_refused() {
        for text in [
            "",
            ",",
            "a",
            "-3",
            "1-",
            "0-9%0",
            "0-9%",
            "1:2",
            "0-9:0",
            "+1",
            "1 2",
            "0-9%4%5",
            "99999999999999999999",
            "0-9:99999999999999999999",
            "٣",
        ] {
            assert!(matches!(parse_array(text), Err(ArrayError::Form { .. })), "{text}");
        }
        assert!(matches!(parse_array("9-0"), Err(ArrayError::Descending { .. })));
        assert_eq!(parse_array("0-4000001"), Err(ArrayError::Index { index: 4_000_001 }));
        assert_eq!(parse_array("0-100000"), Err(ArrayError::Elements));
        let message = parse_array("1-x").expect_err("no number").to_string();
        assert!(message.contains("`1-x`") && message.contains("0-9:2"), "{message}");
    }
}
