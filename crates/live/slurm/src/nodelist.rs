//! Lists of nodes as Slurm writes them: `n[1-4,7],gpu-a[01-10]`.

/// The most names that a list may stand for: a list of a few bytes can stand for more than memory holds.
pub const NAMES_MAX: usize = 1 << 16;

/// A list of nodes that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeListError {
    /// A bracket without its other half, or one inside another.
    #[error("the brackets of `{0}` do not match")]
    Brackets(String),
    /// A range that is none.
    #[error("`{range}` in `{list}` is no range: expected a number or two such as 01-10")]
    Range {
        /// What stands there.
        range: String,
        /// The whole list.
        list: String,
    },
    /// Too many names.
    #[error("`{0}` stands for more than {NAMES_MAX} nodes")]
    TooMany(String),
}

/// The names that a list stands for, in its order.
pub fn expand(list: &str) -> Result<Vec<String>, NodeListError> {
    let mut names = Vec::new();
    for part in parts(list)? {
        let grown = product(part, list)?;
        if names.len() + grown.len() > NAMES_MAX {
            return Err(NodeListError::TooMany(shown(list)));
        }
        names.extend(grown);
    }
    Ok(names)
}

/// The shortest list by runs of numbers at the end of names; the names come out sorted and without doubles.
pub fn compress<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    // A number with zeros in front only goes with numbers of its width; one without goes with any such.
    let mut groups: std::collections::BTreeMap<(&str, usize), Vec<u64>> = Default::default();
    let mut plain: Vec<&str> = Vec::new();
    for name in names {
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (stem, number) = name.split_at(name.len() - digits.min(18));
        match number.parse::<u64>() {
            Ok(value) => {
                let width = if number.starts_with('0') && number != "0" { number.len() } else { 0 };
                groups.entry((stem, width)).or_default().push(value);
            }
            Err(_) => plain.push(name),
        }
    }
    plain.sort_unstable();
    plain.dedup();
    let mut written: Vec<String> = plain.into_iter().map(str::to_owned).collect();
    for ((stem, width), mut values) in groups {
        values.sort_unstable();
        values.dedup();
        let runs = runs(&values, width);
        match runs.as_slice() {
            [one] if !one.contains('-') => written.push(format!("{stem}{one}")),
            several => written.push(format!("{stem}[{}]", several.join(","))),
        }
    }
    written.join(",")
}

fn runs(values: &[u64], width: usize) -> Vec<String> {
    let mut runs = Vec::new();
    let mut at = 0;
    while at < values.len() {
        let first = values[at];
        let mut last = first;
        while at + 1 < values.len() && values[at + 1] == last + 1 {
            at += 1;
            last = values[at];
        }
        at += 1;
        runs.push(match first == last {
            true => format!("{first:0width$}"),
            false => format!("{first:0width$}-{last:0width$}"),
        });
    }
    runs
}

/// The list cut at the commas outside of brackets.
fn parts(list: &str) -> Result<Vec<&str>, NodeListError> {
    let mut parts = Vec::new();
    let (mut begin, mut inside) = (0, false);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'[' if inside => return Err(NodeListError::Brackets(shown(list))),
            b'[' => inside = true,
            b']' if !inside => return Err(NodeListError::Brackets(shown(list))),
            b']' => inside = false,
            b',' if !inside => {
                parts.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(NodeListError::Brackets(shown(list)));
    }
    parts.push(&list[begin..]);
    Ok(parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect())
}

/// All names of one part: `r[1-2]n[1-3]` stands for six.
fn product(part: &str, list: &str) -> Result<Vec<String>, NodeListError> {
    let mut names = vec![String::new()];
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('[') {
        let (ranges, after) =
            after.split_once(']').ok_or_else(|| NodeListError::Brackets(shown(list)))?;
        let numbers = numbers(ranges, list)?;
        if names.len().saturating_mul(numbers.len()) > NAMES_MAX {
            return Err(NodeListError::TooMany(shown(list)));
        }
        names = names
            .iter()
            .flat_map(|name| numbers.iter().map(move |number| format!("{name}{before}{number}")))
            .collect();
        rest = after;
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Ok(names)
}

fn numbers(ranges: &str, list: &str) -> Result<Vec<String>, NodeListError> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let wrong = || NodeListError::Range { range: shown(range), list: shown(list) };
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let width = first.len();
        let is_number = |text: &str| {
            (1..=18).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !is_number(first) || !is_number(last) {
            return Err(wrong());
        }
        let value = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let (first, last) = (value(first)?, value(last)?);
        if last < first {
            return Err(wrong());
        }
        if last - first >= (NAMES_MAX - numbers.len().min(NAMES_MAX)) as u64 {
            return Err(NodeListError::TooMany(shown(list)));
        }
        numbers.extend((first..=last).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::{NAMES_MAX, NodeListError, compress, expand};
    use proptest::prelude::{ProptestConfig, proptest};

    #[test]
    fn a_list_stands_for_its_names_in_order() {
        assert_eq!(expand("n[1-3,7],gpu-a[08-10]").unwrap().join(" "), {
            "n1 n2 n3 n7 gpu-a08 gpu-a09 gpu-a10"
        });
        assert_eq!(expand("r[1-2]n[1-2]-ib").unwrap().join(" "), "r1n1-ib r1n2-ib r2n1-ib r2n2-ib");
        assert_eq!(expand("").unwrap(), Vec::<String>::new());
        assert_eq!(expand("login").unwrap(), ["login"]);
    }

    #[test]
    fn what_is_no_list_is_refused_with_its_reason() {
        assert!(matches!(expand("n[1-3"), Err(NodeListError::Brackets(_))));
        assert!(matches!(expand("n1-3]"), Err(NodeListError::Brackets(_))));
        assert!(matches!(expand("n[[1]]"), Err(NodeListError::Brackets(_))));
        assert!(matches!(expand("n[3-1]"), Err(NodeListError::Range { .. })));
        assert!(matches!(expand("n[]"), Err(NodeListError::Range { .. })));
        assert!(matches!(expand("n[0-99999999]"), Err(NodeListError::TooMany(_))));
        assert!(matches!(expand("n[0-999]x[0-999]"), Err(NodeListError::TooMany(_))));
        assert_eq!(expand(&format!("n[1-{NAMES_MAX}]")).unwrap().len(), NAMES_MAX);
    }

    #[test]
    fn names_are_written_as_runs() {
        let written = |names: &[&str]| compress(names.iter().copied());
        assert_eq!(written(&["n1", "n2", "n3", "n7"]), "n[1-3,7]");
        assert_eq!(written(&["a09", "a10", "a08", "b", "a08"]), "b,a10,a[08-09]");
        assert_eq!(written(&["n5"]), "n5");
        assert_eq!(written(&[]), "");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn what_is_written_is_read_back(
            names in proptest::collection::btree_set("[a-c]{1,2}-?[0-9]{0,3}", 0..20)
        ) {
            let written = compress(names.iter().map(String::as_str));
            let mut back = expand(&written).unwrap();
            back.sort();
            assert_eq!(back, names.into_iter().collect::<Vec<_>>(), "{written}");
        }

        #[test]
        fn no_text_is_too_odd(text in "[a-z0-9,\\[\\]-]{0,40}") {
            let _ = expand(&text);
        }
    }
}
