//! The control: a policy that is not the published one, on the same jobs. A run that it meets too tells nothing.

use super::{PublishedRun, Redone, Table};

/// What stands for a wrong policy where nothing else is stated.
const CONTROL: &str = "fifo";

/// What a wrong policy gets where the published one was redone.
#[derive(Clone, Debug)]
pub struct Control {
    /// The policy.
    pub policy: String,
    /// Its value; not a number where it has none.
    pub value: f64,
    /// Whether it is within the tolerance too.
    pub within: bool,
}

impl Table {
    /// The policy that must miss the values of a run.
    pub(super) fn control<'a>(&'a self, row: &'a PublishedRun) -> &'a str {
        row.control.as_deref().or(self.control.as_deref()).unwrap_or(CONTROL)
    }

    /// The runs and ratios whose compared values are all met by their control too.
    pub fn powerless<'a>(&self, redone: &'a [Redone]) -> Vec<&'a Redone> {
        let compared = || redone.iter().filter(|one| self.compares(one));
        let first = |one: &&Redone| compared().find(|other| other.name == one.name);
        let is_first = |one: &&Redone| first(one).is_some_and(|it| it.measure == one.measure);
        let is_met = |one: &&Redone| {
            compared().filter(|other| other.name == one.name).all(|other| other.control.within)
        };
        compared().filter(is_first).filter(is_met).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::*;

    fn redone(name: &str, measure: &'static str, is_met_by_control: bool) -> Redone {
        let control = Control { policy: "fifo".to_owned(), value: 1.0, within: is_met_by_control };
        let (name, native) = (name.to_owned(), None);
        Redone { name, measure, paper: 1.0, ours: 1.0, native, within: true, control }
    }

    #[test]
    fn a_run_shows_nothing_where_its_control_meets_every_value() {
        let table = find("elasticflow-fig10").expect("a table");
        let told = redone("ElasticFlow", "jct_mean_s", false);
        let also = redone("ElasticFlow", "deadlines_met", true);
        let values = [told, also];
        assert!(table.powerless(&values).is_empty(), "one value that the control misses is enough");
        let met = [redone("ElasticFlow", "jct_mean_s", true), values[1].clone()];
        let names: Vec<&str> = table.powerless(&met).iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["ElasticFlow"]);
    }

    #[test]
    fn values_that_are_only_shown_are_no_reason() {
        let table = find("afs-ordering").expect("a table");
        let shown = redone("AFS-L", "jct_mean_s", true);
        assert!(
            table.powerless(&[shown, redone("a ratio", super::super::RATIO, false)]).is_empty()
        );
        assert_eq!(table.powerless(&[redone("a ratio", super::super::RATIO, true)]).len(), 1);
    }

    #[test]
    fn no_run_is_its_own_control() {
        for table in super::super::tables().expect("tables") {
            for row in &table.run {
                let name = |text: &str| text.split(':').next().unwrap_or_default().to_owned();
                assert_ne!(
                    name(&row.policy),
                    name(table.control(row)),
                    "{}: {}",
                    table.id,
                    row.name
                );
            }
            let is_open = |most: &f64| *most >= 1e9;
            assert!(!table.at_most.values().any(is_open), "{}: a bound that holds none", table.id);
        }
    }
}
