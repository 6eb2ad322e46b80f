//! The measure: how much of a node is of no use to what usually comes, the paper's F_n(M).

use super::target::Class;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use trainyard_framework::{Ask, Free, View};
use trainyard_types::placement::bits;
use trainyard_types::{GpuAt, GpuType, NodeId};

/// States remembered; beyond, they are computed anew.
const KNOWN_MAX: usize = 1 << 16;

/// What is free on a node: all that its fragmentation depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Room {
    kind: GpuType,
    whole: u32,
    /// Thousandths left of partly used GPUs, least first.
    partial: SmallVec<[u16; 8]>,
    /// The largest number where they were not stated.
    cpus: u32,
    memory_mib: u64,
}

impl Room {
    pub(super) fn of(node: NodeId, free: &Free) -> Room {
        let whole = free.mask(node);
        let used = bits(free.up(node) & !whole).map(|gpu| free.left(GpuAt { node, gpu }));
        let mut partial: SmallVec<[u16; 8]> = used.filter(|left| *left > 0).collect();
        partial.sort_unstable();
        Room {
            kind: free.kind(node),
            whole: whole.count_ones(),
            partial,
            cpus: free.cpus_left(node).unwrap_or(u32::MAX),
            memory_mib: free.host_memory_left(node).unwrap_or(u64::MAX),
        }
    }

    /// The room after whole GPUs were taken.
    pub(super) fn with_gpus(&self, ask: &Ask<'_>, gpus: u32) -> Room {
        let mut room = self.clone();
        room.whole -= gpus;
        room.take_host(ask, gpus);
        room
    }

    /// The room after a share was taken of a GPU of which `left` thousandths were left.
    pub(super) fn with_share(&self, ask: &Ask<'_>, left: u16) -> Room {
        let mut room = self.clone();
        match room.partial.binary_search(&left) {
            Ok(index) => drop(room.partial.remove(index)),
            Err(_) => room.whole -= 1,
        }
        let rest = left - ask.permille;
        if rest == 1000 {
            room.whole += 1;
        } else if rest > 0 {
            let index = room.partial.partition_point(|other| *other < rest);
            room.partial.insert(index, rest);
        }
        room.take_host(ask, 1);
        room
    }

    fn take_host(&mut self, ask: &Ask<'_>, gpus: u32) {
        let want = &ask.job.spec.want;
        if self.cpus != u32::MAX {
            self.cpus -= gpus * u32::from(want.cpus_per_gpu);
        }
        if self.memory_mib != u64::MAX {
            self.memory_mib -= u64::from(gpus) * u64::from(want.memory_mib_per_gpu);
        }
    }
}

/// F_n(M) of every state met so far, for one target workload M.
#[derive(Default)]
pub(super) struct Fragments {
    typical: Vec<(Class, i64)>,
    kinds: Vec<Kind>,
    /// More CPUs and memory than any typical class can use on a node make no difference.
    cpus_max: u32,
    memory_mib_max: u64,
    known: FxHashMap<Room, i64>,
}

/// What there is to know about a type.
#[derive(Clone, Default)]
struct Kind {
    /// GPUs of its largest node.
    largest: u32,
    /// Memory of a GPU; the largest number where it was not stated.
    memory_mib: u32,
}

impl Fragments {
    pub(super) fn new(typical: Vec<(Class, i64)>, view: &View<'_>) -> Fragments {
        let memories = view.cluster().kinds.iter().map(|kind| match kind.memory_mib {
            0 => u32::MAX,
            stated => stated,
        });
        let mut kinds: Vec<Kind> =
            memories.map(|memory_mib| Kind { largest: 0, memory_mib }).collect();
        for (kind, largest) in &view.state().shapes {
            kinds[kind.index()].largest = *largest;
        }
        let largest = kinds.iter().map(|kind| kind.largest).max().unwrap_or(0);
        let gpus = |class: &Class| class.gpus.min(largest);
        let cpus = typical.iter().map(|(class, _)| gpus(class) * u32::from(class.cpus_per_gpu));
        let memories = typical
            .iter()
            .map(|(class, _)| u64::from(gpus(class)) * u64::from(class.memory_mib_per_gpu));
        Fragments {
            cpus_max: cpus.max().unwrap_or(0),
            memory_mib_max: memories.max().unwrap_or(0),
            typical,
            kinds,
            known: FxHashMap::default(),
        }
    }

    /// Whether CPUs or host memory make a difference.
    pub(super) fn sees_hosts(&self) -> bool {
        self.cpus_max > 0 || self.memory_mib_max > 0
    }

    /// F_n(M): the sum over classes m of popularity times F_n(m), in thousandths of a GPU times millionths.
    pub(super) fn of(&mut self, room: &Room) -> i64 {
        let mut room = room.clone();
        room.cpus = room.cpus.min(self.cpus_max);
        room.memory_mib = room.memory_mib.min(self.memory_mib_max);
        if let Some(known) = self.known.get(&room) {
            return *known;
        }
        let classes = self.typical.iter();
        let fragments =
            classes.map(|(class, popularity)| popularity * self.useless(&room, class)).sum();
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(room, fragments);
        fragments
    }

    /// F_n(m): thousandths of GPUs that a job of the class cannot use on such a node: all where it cannot run at all,
    /// else those of GPUs with too little left.
    fn useless(&self, room: &Room, class: &Class) -> i64 {
        let kind = &self.kinds[room.kind.index()];
        // A gang larger than every node fills nodes, so it needs all of one.
        let gpus = class.gpus.min(kind.largest);
        let accepted = class.kinds.is_empty() || class.kinds.contains(&room.kind);
        let too_small = room.partial.partition_point(|left| *left < class.permille);
        let fitting = room.whole + (room.partial.len() - too_small) as u32;
        let runs = accepted
            && kind.memory_mib >= class.gpu_memory_mib
            && fitting >= gpus
            && room.cpus >= gpus * u32::from(class.cpus_per_gpu)
            && room.memory_mib >= u64::from(gpus) * u64::from(class.memory_mib_per_gpu);
        let sum = |parts: &[u16]| parts.iter().map(|left| i64::from(*left)).sum::<i64>();
        match runs {
            true => sum(&room.partial[..too_small]),
            false => sum(&room.partial) + i64::from(room.whole) * 1000,
        }
    }
}
