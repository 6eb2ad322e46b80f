//! The inside of a node: how fast each pair of its GPUs is joined.

use crate::placement::bits;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// What joins two GPUs of a node.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WireKind {
    /// The bus and the host.
    Pcie,
    /// So many NVLinks from one to the other.
    NvLink(u8),
    /// NVLinks over a switch that never is in the way.
    NvSwitch,
}

/// A pair of GPUs and its bandwidth in each direction.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wire {
    /// What it is.
    pub kind: WireKind,
    /// How fast it is.
    pub mbps: u64,
}

/// What a kind of node looks like inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    /// Its name.
    pub name: String,
    /// How many GPUs it has.
    pub gpus: u8,
    /// Each pair, row by row; what stands for a GPU and itself means nothing.
    pub wires: Vec<Wire>,
}

/// Megabits per second of a gigabyte per second.
const GBYTES: u64 = 8_000;
/// PCIe 3.0 with sixteen lanes as it is measured between GPUs (MAPA, SC 2021, takes 10 GB/s too).
const PCIE: Wire = Wire { kind: WireKind::Pcie, mbps: 10 * GBYTES };
/// More nodes of the search for rings are not looked at.
const SEARCH_MAX: u32 = 20_000;
/// GPUs for which rings are searched; beyond it the poorest GPU decides.
const SEARCHED_GPUS_MAX: usize = 16;

/// Pairs of a DGX-1 with V100 that have two NVLinks, then those with one (hybrid cube mesh).
const DGX_1V: [&[(u8, u8)]; 2] = [
    &[(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)],
    &[(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)],
];
/// Pairs of a DGX-1 with P100 that have an NVLink.
const DGX_1P: &[(u8, u8)] = &[
    (0, 1),
    (0, 2),
    (0, 3),
    (0, 4),
    (1, 2),
    (1, 3),
    (1, 5),
    (2, 3),
    (2, 6),
    (3, 7),
    (4, 5),
    (4, 6),
    (4, 7),
    (5, 6),
    (5, 7),
    (6, 7),
];
/// Pairs of a node of Summit that have two NVLinks: three GPUs on each socket.
const SUMMIT: &[(u8, u8)] = &[(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)];

/// Pairs of GPUs, by how many links each pair is joined, and what one of them carries in GB/s.
type Joined<'a> = (&'a [(u8, u8)], u8, u64);

impl Inside {
    /// All pairs alike.
    pub fn uniform(name: &str, gpus: u8, wire: Wire) -> Inside {
        let count = usize::from(gpus) * usize::from(gpus);
        Inside { name: name.to_owned(), gpus, wires: vec![wire; count] }
    }

    /// The presets: name, number of GPUs (0 for any), and what it is.
    pub const PRESETS: [(&'static str, u8, &'static str); 7] = [
        (
            "dgx-1v",
            8,
            "DGX-1 with V100: one or two NVLinks of 25 GB/s to four others, PCIe to three",
        ),
        ("dgx-1p", 8, "DGX-1 with P100: one NVLink of 20 GB/s to four others, PCIe to three"),
        ("summit", 6, "a node of Summit: two NVLinks of 25 GB/s within each socket, PCIe across"),
        ("dgx-2", 16, "DGX-2: NVSwitch, 150 GB/s for each GPU"),
        ("dgx-a100", 8, "DGX A100: NVSwitch, 300 GB/s for each GPU"),
        ("dgx-h100", 8, "DGX H100 and H200: NVSwitch, 450 GB/s for each GPU"),
        ("pcie", 0, "PCIe alone, 10 GB/s"),
    ];

    /// The preset of a name, if it has one for so many GPUs.
    pub fn preset(name: &str, gpus: u8) -> Option<Inside> {
        let (name, own, _) = Inside::PRESETS.into_iter().find(|(known, ..)| *known == name)?;
        if own != 0 && own != gpus {
            return None;
        }
        let switched = |gbytes: u64| {
            let wire = Wire { kind: WireKind::NvSwitch, mbps: gbytes * GBYTES };
            Inside::uniform(name, gpus, wire)
        };
        let joined = |parts: &[Joined<'_>]| {
            let mut inside = Inside::uniform(name, gpus, PCIE);
            for (pairs, links, gbytes) in parts {
                let kind = WireKind::NvLink(*links);
                let wire = Wire { kind, mbps: u64::from(*links) * gbytes * GBYTES };
                pairs.iter().for_each(|(a, b)| inside.join((*a, *b), wire));
            }
            inside
        };
        Some(match name {
            "dgx-1v" => joined(&[(DGX_1V[0], 2, 25), (DGX_1V[1], 1, 25)]),
            "dgx-1p" => joined(&[(DGX_1P, 1, 20)]),
            "summit" => joined(&[(SUMMIT, 2, 25)]),
            "dgx-2" => switched(150),
            "dgx-a100" => switched(300),
            "dgx-h100" => switched(450),
            _ => Inside::uniform(name, gpus, PCIE),
        })
    }

    /// What nodes of a type usually look like inside: that of the vendor's machine with so many GPUs, or PCIe.
    pub fn usual(kind: &str, gpus: u8) -> Inside {
        let family = kind.split(['-', '_']).next().unwrap_or(kind);
        let name = match (family, gpus) {
            ("v100", 8) => "dgx-1v",
            ("v100", 6) => "summit",
            ("v100", 16) => "dgx-2",
            ("p100", 8) => "dgx-1p",
            ("a100", 8) => "dgx-a100",
            ("h100" | "h200", 8) => "dgx-h100",
            _ => "pcie",
        };
        Inside::preset(name, gpus).expect("each of these has so many GPUs")
    }

    /// Joins two GPUs.
    pub fn join(&mut self, (a, b): (u8, u8), wire: Wire) {
        for (a, b) in [(a, b), (b, a)] {
            self.wires[usize::from(a) * usize::from(self.gpus) + usize::from(b)] = wire;
        }
    }

    /// What joins two GPUs.
    pub fn wire(&self, a: u8, b: u8) -> Wire {
        self.wires[usize::from(a) * usize::from(self.gpus) + usize::from(b)]
    }

    /// Whether all pairs are alike, so that it does not matter which GPUs a job has.
    pub fn is_uniform(&self) -> bool {
        let mut pairs = self.pairs(u64::MAX);
        let first = pairs.next();
        pairs.all(|wire| Some(wire) == first)
    }

    /// The wires between some GPUs, each once.
    pub fn pairs(&self, mask: u64) -> impl Iterator<Item = Wire> + '_ {
        let within = move |gpu: &u8| mask >> gpu & 1 == 1;
        let all = (0..self.gpus).filter(within);
        all.flat_map(move |a| (a + 1..self.gpus).filter(within).map(move |b| self.wire(a, b)))
    }

    /// The bandwidth of a collective over some GPUs: as many rings over NVLinks of their own as there are room for, as
    /// collective libraries build them; the slowest pair where there is no such ring; the largest number for one GPU.
    pub fn ring_mbps(&self, mask: u64) -> u64 {
        let gpus: SmallVec<[u8; 16]> = bits(mask).collect();
        let slowest = self.pairs(mask).map(|wire| wire.mbps).min().unwrap_or(u64::MAX);
        if gpus.len() < 3 || self.pairs(mask).all(|wire| wire.mbps == slowest) {
            return slowest;
        }
        let mut each = u64::MAX;
        let mut links = Links::default();
        for (i, a) in gpus.iter().enumerate() {
            for (j, b) in gpus.iter().enumerate().filter(|(j, _)| *j != i) {
                let wire = self.wire(*a, *b);
                let count = match wire.kind {
                    WireKind::NvLink(count) => count,
                    WireKind::NvSwitch => 2,
                    WireKind::Pcie => 0,
                };
                if count > 0 {
                    each = each.min(wire.mbps / u64::from(count));
                    links.set(i, j, count);
                }
            }
        }
        let rings = links.most_rings(gpus.len());
        (u64::from(rings) * each.min(u64::MAX / 64)).max(slowest)
    }

    /// The bandwidth of a collective over the best so many GPUs. Looks at all choices of up to eight, else at the lowest.
    pub fn best_ring_mbps(&self, gpus: u8) -> u64 {
        if self.is_uniform() || self.gpus > 8 || gpus > self.gpus {
            return self.ring_mbps(crate::cluster::mask_of(gpus.min(self.gpus)));
        }
        let choices = (0..1u64 << self.gpus).filter(|mask| mask.count_ones() == u32::from(gpus));
        choices.map(|mask| self.ring_mbps(mask)).max().unwrap_or(u64::MAX)
    }
}

/// How many links join each pair of a few GPUs.
#[derive(Default)]
struct Links([[u8; SEARCHED_GPUS_MAX]; SEARCHED_GPUS_MAX]);

impl Links {
    fn set(&mut self, a: usize, b: usize, count: u8) {
        if a < SEARCHED_GPUS_MAX && b < SEARCHED_GPUS_MAX {
            self.0[a][b] = count;
        }
    }

    /// The most rings through all GPUs that share no link; where the search is cut off, the most that was found.
    fn most_rings(&mut self, gpus: usize) -> u32 {
        if gpus > SEARCHED_GPUS_MAX {
            return 0;
        }
        let mut left = SEARCH_MAX;
        self.pack(gpus, &mut left)
    }

    /// No GPU can be in more rings than half of its links.
    fn bound(&self, gpus: usize) -> u32 {
        let degree = |row: &[u8; SEARCHED_GPUS_MAX]| row.iter().map(|c| u32::from(*c)).sum::<u32>();
        self.0[..gpus].iter().map(degree).min().unwrap_or(0) / 2
    }

    fn pack(&mut self, gpus: usize, left: &mut u32) -> u32 {
        let bound = self.bound(gpus);
        let mut best = 0;
        if bound > 0 {
            let mut path: SmallVec<[usize; SEARCHED_GPUS_MAX]> = SmallVec::new();
            path.push(0);
            self.extend(gpus, (&mut path, 1), (bound, &mut best), left);
        }
        best
    }

    /// Tries each ring that begins with `path`, taken out, with the most of the rest.
    fn extend(
        &mut self,
        gpus: usize,
        (path, seen): (&mut SmallVec<[usize; SEARCHED_GPUS_MAX]>, u32),
        (bound, best): (u32, &mut u32),
        left: &mut u32,
    ) {
        let last = path[path.len() - 1];
        if path.len() == gpus {
            // Each ring is met in one of its two directions only.
            if self.0[last][0] > 0 && path[1] < last {
                let ring = path.clone();
                self.change(&ring, -1);
                *best = (*best).max(1 + self.pack(gpus, left));
                self.change(&ring, 1);
            }
            return;
        }
        for next in 1..gpus {
            if *best >= bound || *left == 0 {
                return;
            }
            if seen >> next & 1 == 0 && self.0[last][next] > 0 {
                *left -= 1;
                path.push(next);
                self.extend(gpus, (path, seen | 1 << next), (bound, best), left);
                path.pop();
            }
        }
    }

    fn change(&mut self, ring: &[usize], by: i8) {
        for (index, a) in ring.iter().enumerate() {
            let b = ring[(index + 1) % ring.len()];
            for (a, b) in [(*a, b), (b, *a)] {
                self.0[a][b] = self.0[a][b].wrapping_add_signed(by);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dgx_1v_joins_its_gpus_by_at_most_six_nvlinks_each() {
        let inside = Inside::preset("dgx-1v", 8).unwrap();
        for a in 0..8 {
            let links = (0..8).filter(|b| *b != a).map(|b| match inside.wire(a, b).kind {
                WireKind::NvLink(count) => u32::from(count),
                _ => 0,
            });
            assert_eq!(links.sum::<u32>(), 6, "GPU {a}");
        }
        assert!(!inside.is_uniform() && Inside::usual("h200", 8).is_uniform());
        assert!(Inside::preset("dgx-1v", 4).is_none());
    }

    #[test]
    fn rings_share_no_nvlink() {
        let inside = Inside::preset("dgx-1v", 8).unwrap();
        let gbytes = |mask| inside.ring_mbps(mask) / GBYTES;
        assert_eq!(gbytes(0b1), u64::MAX / GBYTES);
        // Two, one and no NVLink.
        assert_eq!([gbytes(0b1001), gbytes(0b11), gbytes(0b10_0001)], [50, 25, 10]);
        // The whole machine holds three rings, a socket two, and GPUs 0, 1 and 6 none.
        assert_eq!([gbytes(0xff), gbytes(0xf), gbytes(0b100_0011)], [75, 50, 10]);
        let h100 = Inside::usual("h100", 8);
        assert_eq!(h100.ring_mbps(0b1010_1111) / GBYTES, 450);
    }
}
