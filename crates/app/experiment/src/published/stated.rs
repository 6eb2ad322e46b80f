//! What a table states before it is run: its paper, its tolerance, how much it compares.

use super::{JOBS_EQUAL, PublishedRun, RATIO, Redone, Table};

impl Table {
    /// The tolerance in words.
    pub fn tolerance(&self) -> String {
        let values = match (self.relative, self.absolute) {
            _ if self.ratios_only => None,
            (Some(part), None) => Some(format!("{} %", part * 100.0)),
            (Some(part), Some(distance)) => Some(format!("{} % ± {distance}", part * 100.0)),
            (None, Some(distance)) => Some(format!("± {distance}")),
            (None, None) => Some("exact".to_owned()),
        };
        let each_job = (self.run.iter().any(|row| self.wants_each_job(row)))
            .then(|| "each job within a millisecond".to_owned());
        let apart = self.distance.iter().map(|(key, most)| format!("{key} within {most}"));
        let spread = self.spread.iter();
        let spread = spread.map(|(key, part)| format!("{key} within {} %", part * 100.0));
        let bounds = self.at_most.iter().map(|(key, most)| format!("{key} at most {most}"));
        let least = self.ratio.iter().map(|ratio| ratio.least).min_by(f64::total_cmp);
        let most: Option<Vec<f64>> = self.ratio.iter().map(|ratio| ratio.most).collect();
        let most = most.and_then(|all| all.into_iter().max_by(f64::total_cmp));
        let ratios = least.map(|least| match most {
            Some(most) => format!("ratios from {least} to {most}"),
            None => format!("ratios at least {least}"),
        });
        let parts = values.into_iter().chain(each_job).chain(apart).chain(spread);
        let parts = parts.chain(bounds).chain(ratios);
        parts.collect::<Vec<_>>().join("; ")
    }

    /// The paper that published it: its title up to the venue.
    pub fn paper(&self) -> &str {
        self.title.find(')').map_or(&self.title, |end| &self.title[..=end])
    }

    /// Whether a value is compared with what was published, or only shown beside a ratio.
    pub fn compares(&self, one: &Redone) -> bool {
        let row = self.run.iter().find(|row| row.name == one.name);
        let is_counted = row.is_some_and(|row| {
            row.compared && (one.measure != JOBS_EQUAL || self.wants_each_job(row))
        });
        (!self.ratios_only && is_counted) || one.measure == RATIO
    }

    /// Whether a value of ours is shown beside the published one without being compared, because a wrong policy gets
    /// the same or because it is known not to be met.
    pub fn shows(&self, one: &Redone) -> bool {
        let row = self.run.iter().find(|row| row.name == one.name);
        let is_shown = row.is_some_and(|row| !row.compared);
        is_shown && !self.ratios_only && one.measure != JOBS_EQUAL
    }

    /// How many values are compared with what was published.
    pub fn compared(&self) -> usize {
        let stated = |row: &PublishedRun| match &self.golden {
            Some(_) => self.measures.len(),
            None => row.expected.len(),
        };
        let of_jobs =
            |row: &PublishedRun| match row.golden_jobs.is_some() || self.golden_jobs.is_some() {
                true => 1 + usize::from(self.wants_each_job(row)),
                false => 0,
            };
        let of_run = |row: &PublishedRun| match row.compared && !self.ratios_only {
            true => stated(row) + of_jobs(row),
            false => 0,
        };
        self.run.iter().map(of_run).sum::<usize>() + self.ratio.len()
    }

    /// Whether each job of a run must end in the published second.
    pub(super) fn wants_each_job(&self, row: &PublishedRun) -> bool {
        row.each_job.unwrap_or(self.each_job)
    }
}
