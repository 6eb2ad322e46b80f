//! What is known about pairs, as a square table with holes.

use crate::{ModelProfile, Sharing};
use std::collections::{BTreeMap, BTreeSet};

/// For each two models, the part of its speed that the first keeps beside the second; nothing where not measured.
#[derive(Clone, Debug, PartialEq)]
pub struct PairTable {
    names: Vec<String>,
    kept: Vec<Option<f64>>,
}

/// Two models by their places in a table, the lower first; both may be the same. Measuring it gives both speeds.
pub type Two = (usize, usize);

impl PairTable {
    /// A table of which nothing is known.
    pub fn unknown(names: Vec<String>) -> PairTable {
        let kept = vec![None; names.len() * names.len()];
        PairTable { names, kept }
    }

    /// What the models say of each other on one type. Estimates are not measurements and are left out.
    pub fn of<'a>(
        models: impl IntoIterator<Item = &'a ModelProfile>,
        kind: &str,
        sharing: Sharing,
    ) -> PairTable {
        let models: Vec<&ModelProfile> = models.into_iter().collect();
        let mut table = PairTable::unknown(models.iter().map(|model| model.name.clone()).collect());
        let places: BTreeMap<&str, usize> =
            models.iter().enumerate().map(|(place, model)| (model.name.as_str(), place)).collect();
        for (row, model) in models.iter().enumerate() {
            for pair in model.pairs.iter().filter(|pair| !pair.estimated && pair.kind == kind) {
                if let Some(column) = places.get(pair.partner.as_str()) {
                    let kept = match sharing {
                        Sharing::TimeSliced => pair.time_sliced,
                        Sharing::Mps => pair.mps,
                    };
                    // A speed of nothing says that the pair cannot run, which is no speed to learn from.
                    table.set((row, *column), (kept > 0.0).then_some(kept));
                }
            }
        }
        table
    }

    /// The types on which pairs were measured, in order of name.
    pub fn kinds<'a>(models: impl IntoIterator<Item = &'a ModelProfile>) -> Vec<&'a str> {
        let pairs = models.into_iter().flat_map(|model| &model.pairs);
        let measured = pairs.filter(|pair| !pair.estimated).map(|pair| pair.kind.as_str());
        measured.collect::<BTreeSet<&str>>().into_iter().collect()
    }

    /// How many models there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The models, by place.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The part of its speed that the model of a row keeps beside that of a column.
    pub fn get(&self, (row, column): (usize, usize)) -> Option<f64> {
        self.kept[row * self.len() + column]
    }

    /// Says what a model keeps.
    pub fn set(&mut self, (row, column): (usize, usize), kept: Option<f64>) {
        let place = row * self.len() + column;
        self.kept[place] = kept;
    }

    /// Pairs of which at least one speed is known.
    pub fn known(&self) -> Vec<Two> {
        let all = (0..self.len()).flat_map(|low| (low..self.len()).map(move |high| (low, high)));
        let known = |at: &Two| self.get(*at).is_some() || self.get((at.1, at.0)).is_some();
        all.filter(known).collect()
    }

    /// The same without some pairs.
    pub fn without(&self, pairs: &[Two]) -> PairTable {
        let mut less = self.clone();
        for &(low, high) in pairs {
            less.set((low, high), None);
            less.set((high, low), None);
        }
        less
    }

    /// The mean of all that is known.
    pub fn mean(&self) -> Option<f64> {
        let (sum, count) = self
            .kept
            .iter()
            .flatten()
            .fold((0.0, 0u32), |(sum, count), kept| (sum + kept, count + 1));
        (count > 0).then(|| sum / f64::from(count))
    }

    /// Models that are joined by measured pairs, as lists of places; nothing can be learnt from one list for another.
    pub fn groups(&self) -> Vec<Vec<usize>> {
        let mut group: Vec<Option<usize>> = vec![None; self.len()];
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for first in 0..self.len() {
            if group[first].is_some() || !self.joined(first).any(|_| true) {
                continue;
            }
            let mut members = vec![first];
            group[first] = Some(groups.len());
            let mut next = 0;
            while let Some(&member) = members.get(next) {
                for other in self.joined(member) {
                    if group[other].replace(groups.len()).is_none() {
                        members.push(other);
                    }
                }
                next += 1;
            }
            members.sort_unstable();
            groups.push(members);
        }
        groups
    }

    /// The part of the table about some of the models.
    pub fn only(&self, places: &[usize]) -> PairTable {
        let names = places.iter().map(|place| self.names[*place].clone()).collect();
        let mut small = PairTable::unknown(names);
        for (row, from_row) in places.iter().enumerate() {
            for (column, from_column) in places.iter().enumerate() {
                small.set((row, column), self.get((*from_row, *from_column)));
            }
        }
        small
    }

    /// Models that were measured together with one, itself included.
    fn joined(&self, place: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).filter(move |other| {
            self.get((place, *other)).is_some() || self.get((*other, place)).is_some()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_what_measured_pairs_join() {
        let names = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        let mut table = PairTable::unknown(names);
        table.set((0, 3), Some(0.5));
        table.set((3, 4), Some(0.5));
        table.set((2, 2), Some(0.5));
        assert_eq!(table.groups(), [vec![0, 3, 4], vec![2]]);
        let small = table.only(&[0, 3, 4]);
        assert_eq!(small.known(), [(0, 1), (1, 2)]);
        assert_eq!(small.without(&[(1, 2)]).known(), [(0, 1)]);
        assert_eq!(small.mean(), Some(0.5));
    }
}
