//! A line past the capture of the test harness.

use std::io::Write;

pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
