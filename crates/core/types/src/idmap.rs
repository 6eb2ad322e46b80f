//! A map from dense ids that is cheap to copy.

use crate::idset::Id;
use std::marker::PhantomData;
use std::sync::Arc;

/// Values that are shared or copied together.
const CHUNK: usize = 64;

#[derive(Clone, Debug)]
struct Chunk<T> {
    len: usize,
    values: [Option<T>; CHUNK],
}

/// A map from dense ids in ascending order. Values stand in chunks that copies share until one of them is written: a
/// copy costs a pointer for each 64 ids, a write after it the 64 values beside the one that is written.
#[derive(Clone, Debug)]
pub struct IdMap<I, T> {
    chunks: Vec<Option<Arc<Chunk<T>>>>,
    len: usize,
    bound: usize,
    marker: PhantomData<I>,
}

impl<I, T> Default for IdMap<I, T> {
    fn default() -> Self {
        IdMap { chunks: Vec::new(), len: 0, bound: 0, marker: PhantomData }
    }
}

impl<I: Id, T> IdMap<I, T> {
    /// How many values there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One more than the largest index that ever had a value.
    pub fn bound(&self) -> usize {
        self.bound
    }

    /// The value of an id.
    pub fn get(&self, id: &I) -> Option<&T> {
        let index = id.to_index();
        self.chunks.get(index / CHUNK)?.as_ref()?.values[index % CHUNK].as_ref()
    }

    /// Whether an id has a value.
    pub fn contains_key(&self, id: &I) -> bool {
        self.get(id).is_some()
    }

    /// All ids with their values, ascending; from the other end, descending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (I, &T)> {
        self.range(0, self.bound)
    }

    /// All values by ascending id.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.iter().map(|(_, value)| value)
    }

    /// All ids that have a value, ascending.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = I> {
        self.iter().map(|(id, _)| id)
    }

    /// Ids with indices from `first` to below `end` with their values, ascending. Costs the chunks in between.
    pub fn range(&self, first: usize, end: usize) -> impl DoubleEndedIterator<Item = (I, &T)> {
        let end = end.min(self.bound);
        let chunks = first.min(end) / CHUNK..end.div_ceil(CHUNK);
        let filled = chunks.filter_map(|chunk| Some((chunk, self.chunks[chunk].as_deref()?)));
        filled.flat_map(move |(chunk, part)| {
            let base = chunk * CHUNK;
            let within = first.saturating_sub(base).min(CHUNK)..(end - base).min(CHUNK);
            within.filter_map(move |at| Some((I::from_index(base + at), part.values[at].as_ref()?)))
        })
    }
}

impl<I: Id, T: Clone> IdMap<I, T> {
    /// The value of an id, to be written.
    pub fn get_mut(&mut self, id: &I) -> Option<&mut T> {
        if !self.contains_key(id) {
            return None;
        }
        let index = id.to_index();
        let chunk = self.chunks[index / CHUNK].as_mut()?;
        Arc::make_mut(chunk).values[index % CHUNK].as_mut()
    }

    /// Sets the value of an id and tells the one before.
    pub fn insert(&mut self, id: I, value: T) -> Option<T> {
        let index = id.to_index();
        if index / CHUNK >= self.chunks.len() {
            self.chunks.resize_with(index / CHUNK + 1, || None);
        }
        self.bound = self.bound.max(index + 1);
        let chunk = self.chunks[index / CHUNK].get_or_insert_with(|| {
            Arc::new(Chunk { len: 0, values: std::array::from_fn(|_| None) })
        });
        let chunk = Arc::make_mut(chunk);
        let before = chunk.values[index % CHUNK].replace(value);
        if before.is_none() {
            chunk.len += 1;
            self.len += 1;
        }
        before
    }

    /// Takes the value of an id out; a chunk without values takes no room.
    pub fn remove(&mut self, id: &I) -> Option<T> {
        if !self.contains_key(id) {
            return None;
        }
        let index = id.to_index();
        let slot = &mut self.chunks[index / CHUNK];
        let chunk = Arc::make_mut(slot.as_mut()?);
        let value = chunk.values[index % CHUNK].take();
        chunk.len -= 1;
        self.len -= 1;
        if chunk.len == 0 {
            *slot = None;
        }
        value
    }

    /// How many values are written by both: those in chunks that `other` does not share.
    pub fn apart(&self, other: &IdMap<I, T>) -> usize {
        let shared = |(at, chunk): &(usize, &Arc<Chunk<T>>)| {
            let same = other.chunks.get(*at).and_then(Option::as_ref);
            same.is_some_and(|same| Arc::ptr_eq(same, chunk))
        };
        let chunks = self.chunks.iter().enumerate();
        let chunks = chunks.filter_map(|(at, chunk)| Some((at, chunk.as_ref()?)));
        chunks.filter(|one| !shared(one)).map(|(_, chunk)| chunk.len).sum()
    }
}

impl<I: Id, T: Clone> FromIterator<(I, T)> for IdMap<I, T> {
    fn from_iter<A: IntoIterator<Item = (I, T)>>(values: A) -> Self {
        let mut map = IdMap::default();
        for (id, value) in values {
            map.insert(id, value);
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobId;
    use std::collections::BTreeMap;

    #[test]
    fn it_holds_what_an_ordered_map_holds() {
        let (mut map, mut model) = (IdMap::default(), BTreeMap::new());
        let mut seed = 1u64;
        for _ in 0..5_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let id = JobId((seed >> 33) as u32 % 700);
            if seed >> 60 & 1 == 0 {
                assert_eq!(map.insert(id, seed), model.insert(id, seed));
            } else {
                assert_eq!(map.remove(&id), model.remove(&id));
            }
            assert_eq!((map.len(), map.get(&id)), (model.len(), model.get(&id)));
        }
        let all: Vec<(JobId, u64)> = model.iter().map(|(id, value)| (*id, *value)).collect();
        assert_eq!(map.iter().map(|(id, value)| (id, *value)).collect::<Vec<_>>(), all);
        let back: Vec<JobId> = map.keys().rev().collect();
        assert_eq!(back, all.iter().rev().map(|(id, _)| *id).collect::<Vec<_>>());
        for (first, end) in [(0, 0), (63, 65), (64, 64), (100, 650), (690, 5_000), (900, 1_000)] {
            let part: Vec<usize> = map.range(first, end).map(|(id, _)| id.index()).collect();
            let among = |id: &JobId| (first..end).contains(&id.index());
            let other = model.keys().filter(|id| among(id)).map(|id| id.index());
            assert_eq!(part, other.collect::<Vec<_>>(), "{first}..{end}");
        }
    }

    #[test]
    fn a_write_after_a_copy_copies_the_values_beside_it_and_no_others() {
        let mut map: IdMap<JobId, u32> = (0..100_000).map(|id| (JobId(id), id)).collect();
        let copy = map.clone();
        assert_eq!(map.apart(&copy), 0);
        *map.get_mut(&JobId(50_000)).unwrap() = 7;
        map.remove(&JobId(3));
        assert!(map.apart(&copy) <= 2 * CHUNK, "{} values were copied", map.apart(&copy));
        assert_eq!((copy.get(&JobId(50_000)), copy.get(&JobId(3))), (Some(&50_000), Some(&3)));
    }

    #[test]
    fn values_that_are_gone_take_no_room() {
        let mut map = IdMap::default();
        for id in 0..100_000u32 {
            map.insert(JobId(id), id);
            if id >= 10 {
                map.remove(&JobId(id - 10));
            }
        }
        assert_eq!((map.len(), map.bound()), (10, 100_000));
        assert!(map.chunks.iter().flatten().count() <= 2);
    }
}
