//! What a comparison comes to, in one sentence with its doubt, and how far each run is from the baseline.

use crate::chart::escape;
use crate::column::{COLUMNS, Column};
use crate::comparison::Comparison;
use crate::replicas::{Apart, Replicas};
use crate::units::{Unit, grouped, span_text};

/// The policy that others are measured against, where it is among the runs.
const BASELINE: &str = "fifo";

/// The run that others are measured against: first come, first served, or the first of all.
pub(super) fn baseline(comparison: &Comparison) -> Option<usize> {
    if comparison.runs.len() < 2 {
        return None;
    }
    Some(comparison.runs.iter().position(|run| run.policy == BASELINE).unwrap_or(0))
}

/// How far a value is from that of the baseline, in percent: `-84 %`.
pub(super) fn against(value: f64, base: f64) -> Option<(f64, String)> {
    let percent = (value / base - 1.0) * 100.0;
    percent.is_finite().then(|| {
        let text = match percent.abs() {
            0.0..0.05 => "0".to_owned(),
            0.05..9.95 => format!("{percent:+.1}"),
            9.95..999.5 => format!("{percent:+.0}"),
            _ => format!("+{}", grouped(percent)),
        };
        (percent, format!("{text} %"))
    })
}

/// Which policy completes jobs soonest, and how sure that is: one sentence.
pub(super) fn sentence(comparison: &Comparison, replicas: Option<&Replicas>) -> String {
    let Some(base) = baseline(comparison) else { return String::new() };
    let mut order: Vec<(f64, usize)> = comparison
        .runs
        .iter()
        .enumerate()
        // A run that left jobs unfinished has the mean of the easy ones only.
        .filter(|(_, run)| run.summary.unfinished == 0)
        .filter_map(|(index, _)| Some((mean(comparison, replicas, index)?, index)))
        .collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let [(best, winner), (second, next), ..] = order.as_slice() else { return String::new() };
    let name = |index: usize| escape(&comparison.runs[index].policy);
    let mean_of_base = order.iter().find(|(_, index)| *index == base).map(|(mean, _)| *mean);
    let lead = mean_of_base.filter(|_| *winner != base);
    let lead = lead.and_then(|of_base| Some((of_base, against(*best, of_base)?.1)));
    let lead = lead.map_or_else(String::new, |(of_base, text)| {
        let less = text.trim_start_matches('-');
        format!(", {less} less than {} ({})", name(base), span_text(of_base))
    });
    let behind =
        against(*second, *best).map_or_else(String::new, |(_, text)| text.replace('+', ""));
    let doubt = doubt(replicas, (*winner, *next), &name(*next), &behind);
    let told = match comparison.runs[*winner].information.text().as_str() {
        "nothing" => "was told nothing of the jobs' sizes".to_owned(),
        known => format!("was told {}", escape(known)),
    };
    format!(
        "<p class=\"verdict\"><b>{0}</b> completes jobs soonest here, in {1} in the mean{lead}; {doubt}, and {0} {told}.</p>\n",
        name(*winner),
        span_text(*best)
    )
}

/// How sure the lead over the next is.
fn doubt(replicas: Option<&Replicas>, pair: (usize, usize), next: &str, behind: &str) -> String {
    let column = completion();
    match replicas {
        Some(replicas) if replicas.seeds.len() > 1 => {
            let seeds = replicas.seeds.len();
            let gap = replicas.difference((pair.1, pair.0), column);
            let gap = gap.map(|gap| gap.text(Unit::Seconds)).unwrap_or_default();
            match replicas.apart(pair, column) {
                Apart::Yes => format!("over {seeds} seeds {next} takes longer by {gap}"),
                Apart::No => {
                    format!("over {seeds} seeds {next} cannot be told from it ({gap} longer)")
                }
            }
        }
        _ => format!(
            "but this is one seed of one workload, which does not tell how much is chance (<code>--seeds 5</code> does), \
             {next} takes {behind} longer"
        ),
    }
}

fn mean(comparison: &Comparison, replicas: Option<&Replicas>, index: usize) -> Option<f64> {
    let column = completion();
    match replicas.filter(|replicas| replicas.policies.len() == comparison.runs.len()) {
        Some(replicas) => replicas.interval(index, column).map(|interval| interval.mean),
        None => (column.value)(&comparison.runs[index].summary),
    }
}

fn completion() -> &'static Column {
    let column = COLUMNS.iter().find(|column| column.key == "jct_mean_s");
    column.expect("the table of measures has the mean completion time")
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;
    use crate::comparison::About;

    #[test]
    fn a_difference_has_as_many_digits_as_it_deserves() {
        let text = |value| against(value, 100.0).map(|pair| pair.1);
        assert_eq!(text(16.0).as_deref(), Some("-84 %"));
        assert_eq!(text(103.21).as_deref(), Some("+3.2 %"));
        assert_eq!(text(100.001).as_deref(), Some("0 %"));
        assert_eq!(text(2_300.0).as_deref(), Some("+2,200 %"));
        assert_eq!(against(1.0, 0.0), None);
    }

    #[test]
    fn the_sentence_names_the_best_the_baseline_and_the_doubt() {
        let runs = vec![run("slow", 90.0), run("fifo", 120.0), run("quick", 60.0)];
        let comparison = Comparison { about: About::default(), runs };
        let said = sentence(&comparison, None);
        assert!(said.contains("<b>quick</b> completes jobs soonest"), "{said}");
        assert!(said.contains("50 % less than fifo (2m00s)"), "{said}");
        assert!(said.contains("one seed") && said.contains("slow takes 50 % longer"), "{said}");
        assert_eq!(said.matches('.').count(), 1, "one sentence: {said}");
    }

    #[test]
    fn a_run_that_left_jobs_behind_is_not_called_the_best() {
        let mut quick = run("quick", 60.0);
        quick.summary.unfinished = 1;
        let runs = vec![run("fifo", 120.0), run("slow", 90.0), quick];
        let said = sentence(&Comparison { about: About::default(), runs }, None);
        assert!(said.contains("<b>slow</b>"), "{said}");
    }
}
