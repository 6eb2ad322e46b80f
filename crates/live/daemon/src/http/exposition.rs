//! Metrics for clients that do not ask for OpenMetrics: the text format 0.0.4 of Prometheus.

/// The type of that format.
pub const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The same metrics in the older format, in which a family has the name of its samples, units are not stated and
/// nothing marks the end.
pub fn text_format(open: &str) -> String {
    let mut text = String::with_capacity(open.len());
    // Help comes before the type in what we are given, and needs the name that the type decides.
    let mut help: Option<(&str, &str)> = None;
    for line in open.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("EOF" | "UNIT"), ..) => {}
            (Some("#"), Some("HELP"), Some(name), rest) => help = Some((name, rest.unwrap_or(""))),
            (Some("#"), Some("TYPE"), Some(name), kind) => {
                let (suffix, kind) = match kind.unwrap_or_default() {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    kind => ("", kind),
                };
                if let Some((_, rest)) = help.take().filter(|(of, _)| *of == name) {
                    text.push_str(&format!("# HELP {name}{suffix} {rest}\n"));
                }
                text.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
            }
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_the_names_of_their_samples_and_nothing_marks_the_end() {
        let open = "# HELP a_jobs Jobs.\n# TYPE a_jobs counter\na_jobs_total{x=\"1\"} 3\n\
                    # HELP b_seconds Time.\n# TYPE b_seconds histogram\n# UNIT b_seconds seconds\n\
                    b_seconds_sum 1.5\nb_seconds_count 2\n# HELP c Build.\n# TYPE c info\nc_info{v=\"1\"} 1\n\
                    # HELP d GPUs.\n# TYPE d gauge\nd 4\n# EOF\n";
        let text = "# HELP a_jobs_total Jobs.\n# TYPE a_jobs_total counter\na_jobs_total{x=\"1\"} 3\n\
                    # HELP b_seconds Time.\n# TYPE b_seconds histogram\n\
                    b_seconds_sum 1.5\nb_seconds_count 2\n# HELP c_info Build.\n# TYPE c_info gauge\nc_info{v=\"1\"} 1\n\
                    # HELP d GPUs.\n# TYPE d gauge\nd 4\n";
        assert_eq!(text_format(open), text);
    }
}
