//! A set of dense ids that iterates in order.

use std::marker::PhantomData;

/// An id that is a small dense index.
pub trait Id: Copy {
    /// The index.
    fn to_index(self) -> usize;
    /// The id of an index.
    fn from_index(index: usize) -> Self;
}

macro_rules! impl_id {
    ($($name:ty => $inner:ty),*) => {$(
        impl Id for $name {
            fn to_index(self) -> usize { self.0 as usize }
            fn from_index(index: usize) -> Self { Self(index as $inner) }
        }
    )*};
}
impl_id!(crate::JobId => u32, crate::NodeId => u32);

/// A bit set with one summary level: insert, remove and contains are O(1), the next member is found in
/// O(n / 4096), and iteration is in ascending order, so that order never depends on history.
/// Ids below the first member, as of a queue from which the oldest go, are not looked at again.
#[derive(Clone, Debug)]
pub struct IdSet<I> {
    words: Vec<u64>,
    summary: Vec<u64>,
    /// No word of the summary before this one has a member.
    begin: usize,
    len: usize,
    marker: PhantomData<I>,
}

impl<I> Default for IdSet<I> {
    fn default() -> Self {
        IdSet { words: Vec::new(), summary: Vec::new(), begin: 0, len: 0, marker: PhantomData }
    }
}

impl<I: Id> IdSet<I> {
    /// How many members there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `id` is a member.
    #[inline]
    pub fn contains(&self, id: I) -> bool {
        let index = id.to_index();
        self.words.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Adds `id`; false if it was there already.
    #[inline]
    pub fn insert(&mut self, id: I) -> bool {
        let index = id.to_index();
        let word = index / 64;
        if word >= self.words.len() {
            self.make_room(word);
        }
        let bit = 1u64 << (index % 64);
        if self.words[word] & bit != 0 {
            return false;
        }
        self.words[word] |= bit;
        self.summary[word / 64] |= 1 << (word % 64);
        self.begin = if self.len == 0 { word / 64 } else { self.begin.min(word / 64) };
        self.len += 1;
        true
    }

    /// Removes `id`; false if it was not there.
    pub fn remove(&mut self, id: I) -> bool {
        let index = id.to_index();
        let word = index / 64;
        let bit = 1u64 << (index % 64);
        if word >= self.words.len() || self.words[word] & bit == 0 {
            return false;
        }
        self.words[word] &= !bit;
        if self.words[word] == 0 {
            self.summary[word / 64] &= !(1 << (word % 64));
            // Where none is left, the next that comes says where to begin.
            if word / 64 == self.begin && self.len > 1 {
                let rest = self.summary[self.begin..].iter();
                self.begin += rest.take_while(|groups| **groups == 0).count();
            }
        }
        self.len -= 1;
        true
    }

    /// The smallest member.
    pub fn first(&self) -> Option<I> {
        self.next_from(0)
    }

    /// The smallest member that is at least `from`.
    pub fn at_least(&self, from: I) -> Option<I> {
        self.next_from(from.to_index())
    }

    /// All members, ascending.
    pub fn iter(&self) -> impl Iterator<Item = I> + '_ {
        let (mut from, mut left) = (0, self.len);
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let id = self.next_from(from)?;
            from = id.to_index() + 1;
            Some(id)
        })
    }

    #[cold]
    fn make_room(&mut self, word: usize) {
        self.words.resize(word + 1, 0);
        self.summary.resize(word / 64 + 1, 0);
    }

    fn next_from(&self, from: usize) -> Option<I> {
        if self.len == 0 {
            return None;
        }
        let from = from.max(self.begin * 64 * 64);
        let word = from / 64;
        let rest = *self.words.get(word)? & (u64::MAX << (from % 64));
        if rest != 0 {
            return Some(I::from_index(word * 64 + rest.trailing_zeros() as usize));
        }
        let mut group = (word + 1) / 64;
        let mut groups = *self.summary.get(group)? & (u64::MAX << ((word + 1) % 64));
        loop {
            if groups != 0 {
                let word = group * 64 + groups.trailing_zeros() as usize;
                return Some(I::from_index(word * 64 + self.words[word].trailing_zeros() as usize));
            }
            group += 1;
            groups = *self.summary.get(group)?;
        }
    }
}

impl<I: Id> FromIterator<I> for IdSet<I> {
    fn from_iter<T: IntoIterator<Item = I>>(ids: T) -> Self {
        let mut set = IdSet::default();
        for id in ids {
            set.insert(id);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobId;
    use std::collections::BTreeSet;

    #[test]
    fn idset_behaves_like_an_ordered_set() {
        let mut set = IdSet::default();
        let mut model = BTreeSet::new();
        let mut x = 12345u64;
        for _ in 0..20_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let id = JobId((x >> 33) as u32 % 9_000);
            if x & 1 == 0 {
                assert_eq!(set.insert(id), model.insert(id));
            } else {
                assert_eq!(set.remove(id), model.remove(&id));
            }
            assert_eq!(set.first(), model.first().copied());
            assert_eq!(set.at_least(id), model.range(id..).next().copied());
        }
        assert!(set.iter().eq(model.iter().copied()));
        assert_eq!(set.len(), model.len());
    }
}
