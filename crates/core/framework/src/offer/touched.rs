//! What an offer has done with jobs so far.

use rustc_hash::FxHashMap;
use trainyard_types::{Allocation, JobId};

/// What an offer has done with a job so far.
pub(super) struct Touched {
    pub(super) job: JobId,
    /// Its plan.
    pub(super) plan: Option<Allocation>,
    /// Whether it was granted something.
    pub(super) is_granted: bool,
}

/// Up to so many jobs are found by looking at each.
const FEW: usize = 8;

/// The jobs that an offer has touched, in the order in which it first did. Most offers touch a job or two; beyond a few
/// a map says where each is.
#[derive(Default)]
pub(super) struct TouchedJobs {
    list: Vec<Touched>,
    places: FxHashMap<JobId, usize>,
}

impl TouchedJobs {
    pub(super) fn get(&self, job: JobId) -> Option<&Touched> {
        self.place(job).map(|place| &self.list[place])
    }

    pub(super) fn get_mut(&mut self, job: JobId) -> Option<&mut Touched> {
        self.place(job).map(|place| &mut self.list[place])
    }

    /// The job, touched if it was not yet: then without a plan.
    pub(super) fn entry(&mut self, job: JobId) -> &mut Touched {
        let place = self.place(job).unwrap_or_else(|| self.add(job));
        &mut self.list[place]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Touched> {
        self.list.iter()
    }

    fn place(&self, job: JobId) -> Option<usize> {
        match self.list.len() <= FEW {
            true => self.list.iter().position(|one| one.job == job),
            false => self.places.get(&job).copied(),
        }
    }

    fn add(&mut self, job: JobId) -> usize {
        let place = self.list.len();
        if place == FEW {
            self.places = self.list.iter().enumerate().map(|(at, one)| (one.job, at)).collect();
        }
        if place >= FEW {
            self.places.insert(job, place);
        }
        self.list.push(Touched { job, plan: None, is_granted: false });
        place
    }
}

impl IntoIterator for TouchedJobs {
    type Item = Touched;
    type IntoIter = std::vec::IntoIter<Touched>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_found_and_keep_their_order_however_many_there_are() {
        let mut touched = TouchedJobs::default();
        let ids: Vec<JobId> = (0..100).map(|number| JobId(number * 37 % 101)).collect();
        for (count, job) in ids.iter().enumerate() {
            assert!(touched.get(*job).is_none());
            touched.entry(*job).is_granted = true;
            touched.entry(*job);
            assert_eq!(touched.iter().count(), count + 1);
            assert!(
                ids[..=count]
                    .iter()
                    .all(|job| touched.get(*job).is_some_and(|one| one.job == *job))
            );
        }
        assert!(touched.into_iter().map(|one| one.job).eq(ids));
    }
}
