//! Attempts on a shared GPU that take more memory than their cap, as the driver's own library tells it.

/// What a process takes beside what it allocates: its context and the code of its kernels.
const BESIDE: u64 = 1 << 30;

/// An attempt and who uses its GPU.
#[derive(Copy, Clone, Debug)]
pub struct Use<'a> {
    /// What its programs may allocate together.
    pub cap: Option<u64>,
    /// Processes on the GPU with what they use, as the driver lists them.
    pub on_gpu: &'a [(i32, u64)],
    /// Its own processes.
    pub own: &'a [i32],
    /// Those that said hello to the arbiter.
    pub hooked: &'a [i32],
}

/// What is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offence {
    /// Its processes use more than its cap and their contexts.
    Beyond {
        /// Bytes that they use.
        used: u64,
        /// Which they are.
        processes: Vec<i32>,
    },
    /// A process of it uses the GPU without the library.
    Unhooked(i32),
}

impl Use<'_> {
    /// What is wrong, the worst first.
    pub fn offence(&self) -> Option<Offence> {
        let own = self.on_gpu.iter().filter(|(process, _)| self.own.contains(process));
        let own: Vec<(i32, u64)> = own.copied().collect();
        let used: u64 = own.iter().map(|(_, bytes)| bytes).sum();
        let beside = BESIDE * own.len() as u64;
        if self.cap.is_some_and(|cap| used > cap.saturating_add(beside)) {
            let processes = own.iter().map(|(process, _)| *process).collect();
            return Some(Offence::Beyond { used, processes });
        }
        let unhooked = own.iter().find(|(process, _)| !self.hooked.contains(process));
        unhooked.map(|(process, _)| Offence::Unhooked(*process))
    }
}

#[cfg(test)]
mod tests {
    use super::{Offence, Use};

    const GIB: u64 = 1 << 30;

    #[test]
    fn contexts_are_beside_the_cap_and_neighbours_are_not_counted() {
        let on_gpu = [(10, 5 * GIB), (11, 5 * GIB), (90, 100 * GIB)];
        let all =
            Use { cap: Some(8 * GIB), on_gpu: &on_gpu, own: &[10, 11, 12], hooked: &[10, 11] };
        assert_eq!(all.offence(), None);
        let less = Use { cap: Some(8 * GIB - 1), ..all };
        let beyond = Offence::Beyond { used: 10 * GIB, processes: vec![10, 11] };
        assert_eq!(less.offence(), Some(beyond));
        assert_eq!(Use { cap: None, ..less }.offence(), None);
    }

    #[test]
    fn a_process_without_the_library_is_known() {
        let on_gpu = [(10, GIB), (11, GIB)];
        let all = Use { cap: None, on_gpu: &on_gpu, own: &[10, 11], hooked: &[10] };
        assert_eq!(all.offence(), Some(Offence::Unhooked(11)));
        assert_eq!(Use { own: &[10], ..all }.offence(), None);
    }
}
