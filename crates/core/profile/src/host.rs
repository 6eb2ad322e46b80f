//! How a model's speed depends on the host CPUs and the host memory beside its GPUs.
//!
//! A table holds parts of the speed for some CPUs and some memory for each GPU, measured on one number of GPUs.
//! The part is 1 at the *usual* share, at which the model's points were measured.
//!
//! - Between entries the part is linear in CPUs and in memory.
//! - Below the fewest CPUs it falls with them: a job that waits for its CPUs goes as they do.
//! - Elsewhere beyond the table its edge holds.
//! - An amount that is not stated counts as the usual one, so without any statement the part is 1.
//! - On a number of GPUs that has no table, that of the next smaller one holds, or else the smallest.

use trainyard_types::HostShare;

/// Speed by host CPUs and memory on one number of GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTable {
    /// On how many GPUs.
    pub gpus: u32,
    /// CPUs for each GPU, ascending.
    pub cpus: Vec<f64>,
    /// Memory for each GPU, ascending.
    pub memory_mib: Vec<u32>,
    /// For each number of CPUs, the part of the speed for each memory.
    pub parts: Vec<Vec<f64>>,
    /// CPUs and memory for each GPU at which the part is 1.
    pub usual: (f64, u32),
}

impl HostTable {
    /// What is wrong with it, if anything.
    pub fn fault(&self) -> Option<&'static str> {
        let cpus_in_order = self.cpus.first().is_some_and(|least| *least > 0.0)
            && self.cpus.windows(2).all(|two| two[0] < two[1]);
        let memory_in_order = self.memory_mib.first().is_some_and(|least| *least > 0)
            && self.memory_mib.windows(2).all(|two| two[0] < two[1]);
        let is_part = |part: &f64| (1e-6..=1e6).contains(part);
        if !cpus_in_order || !memory_in_order {
            return Some("CPUs and memory above 0 in ascending order, at least one of each");
        }
        if self.parts.len() != self.cpus.len()
            || self.parts.iter().any(|row| row.len() != self.memory_mib.len())
        {
            return Some("a row for each number of CPUs with a part for each memory");
        }
        if !self.parts.iter().flatten().all(is_part) {
            return Some("parts from 0.000001 to 1000000");
        }
        let usual = self.at(self.usual.0, f64::from(self.usual.1));
        (libm::fabs(usual - 1.0) > 1e-6).then_some("a part of 1 at the usual CPUs and memory")
    }

    /// The part of the speed with so many CPUs and so much memory for each GPU; 0 means not stated.
    pub fn part(&self, cpus: f64, memory_mib: f64) -> f64 {
        let or = |stated: f64, usual: f64| if stated > 0.0 { stated } else { usual };
        match cpus > 0.0 || memory_mib > 0.0 {
            true => self.at(or(cpus, self.usual.0), or(memory_mib, f64::from(self.usual.1))),
            false => 1.0,
        }
    }

    fn at(&self, cpus: f64, memory_mib: f64) -> f64 {
        let (row, down) = between(&self.cpus, |known| *known, cpus);
        let (column, right) = between(&self.memory_mib, |known| f64::from(*known), memory_mib);
        let mix = |a: f64, b: f64, part: f64| a + (b - a) * part;
        let along = |row: usize| {
            let row = &self.parts[row];
            mix(row[column], row[(column + 1).min(row.len() - 1)], right)
        };
        let least = self.cpus[0];
        let starved = if cpus < least { cpus / least } else { 1.0 };
        mix(along(row), along((row + 1).min(self.parts.len() - 1)), down) * starved
    }
}

/// The part of the speed that a share of the host gives on a number of GPUs; 1 where nothing is known.
pub(crate) fn part(tables: &[HostTable], gpus: u32, host: HostShare) -> f64 {
    if host == HostShare::default() || gpus == 0 {
        return 1.0;
    }
    let Some(table) = table(tables, gpus) else { return 1.0 };
    let gpus = f64::from(gpus);
    table.part(f64::from(host.cpus) / gpus, host.memory_mib as f64 / gpus)
}

/// The table that holds on a number of GPUs.
pub(crate) fn table(tables: &[HostTable], gpus: u32) -> Option<&HostTable> {
    let next = tables.partition_point(|table| table.gpus <= gpus);
    tables.get(next.saturating_sub(1))
}

/// The last entry that is not above a value, and how far the value lies towards the next one.
fn between<T>(values: &[T], number: impl Fn(&T) -> f64, value: f64) -> (usize, f64) {
    let next = values.partition_point(|known| number(known) <= value);
    if next == 0 {
        return (0, 0.0);
    }
    let below = number(&values[next - 1]);
    match values.get(next) {
        Some(above) => (next - 1, (value - below) / (number(above) - below)),
        None => (next - 1, 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(gpus: u32) -> HostTable {
        HostTable {
            gpus,
            cpus: vec![1.0, 3.0, 9.0],
            memory_mib: vec![1000, 3000],
            parts: vec![vec![0.1, 0.4], vec![0.1, 1.0], vec![0.1, 2.5]],
            usual: (3.0, 3000),
        }
    }

    #[test]
    fn entries_are_answered_exactly_and_the_rest_lies_between_or_at_the_edge() {
        let table = table(1);
        assert_eq!(table.fault(), None);
        for (cpus, memory, part) in [
            (1.0, 3000.0, 0.4),
            (9.0, 3000.0, 2.5),
            (2.0, 3000.0, 0.7),
            (3.0, 2000.0, 0.55),
            (90.0, 9000.0, 2.5),
            (0.5, 3000.0, 0.2),
            (3.0, 10.0, 0.1),
        ] {
            let found = table.part(cpus, memory);
            assert!((found - part).abs() < 1e-12, "{cpus} {memory}: {found}");
        }
    }

    #[test]
    fn what_is_not_stated_counts_as_usual() {
        let table = table(1);
        assert_eq!(table.part(0.0, 0.0), 1.0);
        assert_eq!(table.part(1.0, 0.0), 0.4);
        assert_eq!(table.part(0.0, 1000.0), 0.1);
    }

    #[test]
    fn the_table_of_the_next_smaller_size_holds() {
        let slow = HostTable { parts: vec![vec![1.0; 2]; 3], ..table(4) };
        let tables = [table(2), slow];
        let host = |gpus: u32| HostShare { cpus: gpus, memory_mib: 0 };
        let found = [1, 2, 3, 4, 8].map(|gpus| part(&tables, gpus, host(gpus)));
        assert_eq!(found, [0.4, 0.4, 0.4, 1.0, 1.0]);
        assert_eq!(part(&[], 4, host(4)), 1.0);
    }

    #[test]
    fn a_table_that_contradicts_itself_is_told_apart() {
        let fault = |change: fn(&mut HostTable)| {
            let mut table = table(1);
            change(&mut table);
            table.fault().unwrap_or("none")
        };
        assert!(fault(|table| table.cpus.reverse()).contains("ascending"));
        assert!(fault(|table| table.parts.truncate(2)).contains("a row for each"));
        assert!(fault(|table| table.parts[0][0] = f64::NAN).contains("parts from"));
        assert!(fault(|table| table.usual.0 = 9.0).contains("a part of 1"));
        assert!(fault(|table| table.memory_mib.clear()).contains("at least one"));
    }
}
