//! What was allocated where, in this process.

use std::collections::BTreeMap;

/// Device memory of a program, by pointer and by handle.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Plain allocations: bytes and context.
    pointers: BTreeMap<u64, Allocation>,
    /// Physical memory of `cuMemCreate`, which lives as long as a handle or a mapping of it.
    handles: BTreeMap<u64, Physical>,
    /// Mappings by address: length and handle.
    mappings: BTreeMap<u64, (u64, u64)>,
}

/// A plain allocation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Its size.
    pub bytes: u64,
    /// The context that it goes with.
    pub context: usize,
}

#[derive(Debug)]
struct Physical {
    bytes: u64,
    handles: u32,
    mappings: u32,
}

impl Ledger {
    /// An allocation.
    pub fn add(&mut self, pointer: u64, allocation: Allocation) {
        self.pointers.insert(pointer, allocation);
    }

    /// Takes an allocation out before it is freed; one that is not known was not made by these calls.
    pub fn take(&mut self, pointer: u64) -> Option<Allocation> {
        self.pointers.remove(&pointer)
    }

    /// Takes out all that goes with a context, and says how much it was.
    pub fn take_context(&mut self, context: usize) -> u64 {
        let mut sum = 0;
        self.pointers.retain(|_, allocation| {
            let stays = allocation.context != context;
            sum += if stays { 0 } else { allocation.bytes };
            stays
        });
        sum
    }

    /// Physical memory with one handle.
    pub fn create(&mut self, handle: u64, bytes: u64) {
        self.handles.insert(handle, Physical { bytes, handles: 1, mappings: 0 });
    }

    /// One more handle of the same memory.
    pub fn retain(&mut self, handle: u64) {
        if let Some(physical) = self.handles.get_mut(&handle) {
            physical.handles += 1;
        }
    }

    /// One handle less; says how much is free now.
    pub fn release(&mut self, handle: u64) -> u64 {
        if let Some(physical) = self.handles.get_mut(&handle) {
            physical.handles = physical.handles.saturating_sub(1);
        }
        self.settle(handle)
    }

    /// Memory is mapped somewhere.
    pub fn map(&mut self, address: u64, bytes: u64, handle: u64) {
        if let Some(physical) = self.handles.get_mut(&handle) {
            physical.mappings += 1;
            self.mappings.insert(address, (bytes, handle));
        }
    }

    /// All mappings within the range are gone; says how much is free now.
    pub fn unmap(&mut self, address: u64, bytes: u64) -> u64 {
        let end = address.saturating_add(bytes);
        let gone: Vec<u64> = self.mappings.range(address..end).map(|(at, _)| *at).collect();
        let mut freed = 0;
        for at in gone {
            let Some((_, handle)) = self.mappings.remove(&at) else { continue };
            if let Some(physical) = self.handles.get_mut(&handle) {
                physical.mappings = physical.mappings.saturating_sub(1);
            }
            freed += self.settle(handle);
        }
        freed
    }

    /// Forgets memory without handles and mappings; says how much it was.
    fn settle(&mut self, handle: u64) -> u64 {
        let is_free = |physical: &Physical| physical.handles == 0 && physical.mappings == 0;
        if !self.handles.get(&handle).is_some_and(is_free) {
            return 0;
        }
        self.handles.remove(&handle).map_or(0, |physical| physical.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{Allocation, Ledger};

    #[test]
    fn physical_memory_lives_as_long_as_a_handle_or_a_mapping() {
        let mut ledger = Ledger::default();
        ledger.create(7, 100);
        ledger.map(0x1000, 100, 7);
        assert_eq!(ledger.release(7), 0, "it is mapped still");
        assert_eq!(ledger.unmap(0x2000, 0x1000), 0, "another range");
        assert_eq!(ledger.unmap(0x1000, 100), 100);
        assert_eq!(ledger.unmap(0x1000, 100), 0);
        ledger.create(8, 50);
        ledger.retain(8);
        assert_eq!(ledger.release(8), 0);
        assert_eq!(ledger.release(8), 50);
        assert_eq!(ledger.release(8), 0, "a handle that is not known");
    }

    #[test]
    fn what_goes_with_a_context_goes_with_it() {
        let mut ledger = Ledger::default();
        ledger.add(1, Allocation { bytes: 10, context: 1 });
        ledger.add(2, Allocation { bytes: 20, context: 2 });
        ledger.add(3, Allocation { bytes: 30, context: 1 });
        assert_eq!(ledger.take_context(1), 40);
        assert_eq!(ledger.take(1), None);
        assert_eq!(ledger.take(2), Some(Allocation { bytes: 20, context: 2 }));
    }
}
