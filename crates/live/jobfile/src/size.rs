//! Amounts of memory as people write them.

/// What is expected where an amount of memory should stand.
pub(crate) const SIZE: &str = "an amount of memory with its unit, such as 16GiB or 512MiB";

/// Letters of a unit and how many bytes it is. One letter is binary, as in batch scripts.
const UNITS: [(&str, f64); 13] = [
    ("k", 1024.0),
    ("kib", 1024.0),
    ("kb", 1e3),
    ("m", 1048576.0),
    ("mib", 1048576.0),
    ("mb", 1e6),
    ("g", 1073741824.0),
    ("gib", 1073741824.0),
    ("gb", 1e9),
    ("t", 1099511627776.0),
    ("tib", 1099511627776.0),
    ("tb", 1e12),
    ("b", 1.0),
];

/// Reads `16GiB`, `16G`, `1.5 TB` as mebibytes, rounded up; a number without a unit is `bare_bytes` bytes each.
pub(crate) fn mebibytes(text: &str, bare_bytes: Option<f64>) -> Option<u32> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number = text[..digits].parse::<f64>().ok()?;
    let unit = text[digits..].trim().to_ascii_lowercase();
    let bytes = match unit.as_str() {
        "" => bare_bytes?,
        unit => UNITS.iter().find(|(name, _)| *name == unit)?.1,
    };
    let mebibytes = (number * bytes / 1048576.0).ceil();
    (mebibytes <= f64::from(u32::MAX)).then_some(mebibytes as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_in_binary_and_decimal_units() {
        assert_eq!(mebibytes("16GiB", None), Some(16 * 1024));
        assert_eq!(mebibytes("16G", None), Some(16 * 1024));
        assert_eq!(mebibytes("1.5 gib", None), Some(1536));
        assert_eq!(mebibytes("1GB", None), Some(954));
        assert_eq!(mebibytes("1K", None), Some(1));
        assert_eq!(mebibytes("4000", Some(1048576.0)), Some(4000));
        for text in ["", "16", "GiB", "16 parsecs", "-1G", "1.2.3G", "99999999T", "inf"] {
            assert_eq!(mebibytes(text, None), None, "{text}");
        }
    }
}
