//! Rates of flows that share links.
//!
//! Max-min fairness: no flow can have more unless one that has no more than it gets less. Progressive filling raises
//! all rates together; a flow stops when a link on its way is full or its own cap is met (Bertsekas and Gallager, Data
//! Networks, section 6.5.2).

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use trainyard_types::LinkId;

/// The max-min fair rate of each flow over the links that it names.
///
/// A link that a flow names twice carries it twice. A flow without links has an infinite rate. A capacity that is not
/// above 0 is 0. O(p log p) for p names of links in all flows.
///
/// ```
/// use trainyard_network::max_min;
/// use trainyard_types::LinkId;
///
/// // Flow 0 crosses both links, flows 1 and 2 one each.
/// let flows = [vec![LinkId(0), LinkId(1)], vec![LinkId(0)], vec![LinkId(1)]];
/// assert_eq!(max_min(&[10.0, 4.0], &flows), [2.0, 8.0, 2.0]);
/// ```
///
/// # Panics
///
/// When a flow names a link that has no capacity in the list.
pub fn max_min(capacities: &[f64], flows: &[Vec<LinkId>]) -> Vec<f64> {
    max_min_capped(capacities, flows, &[])
}

/// The same, where flow `i` never has more than `caps[i]`; flows past the end of `caps` have no cap.
///
/// # Panics
///
/// When a flow names a link that has no capacity in the list.
pub fn max_min_capped(capacities: &[f64], flows: &[Vec<LinkId>], caps: &[f64]) -> Vec<f64> {
    let mut filling = Filling::new(capacities, flows);
    let mut by_cap: Vec<(f64, usize)> =
        caps.iter().take(flows.len()).map(|cap| cap.max(0.0)).zip(0..).collect();
    by_cap.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    for (cap, flow) in by_cap {
        filling.fill_links_up_to(cap);
        if filling.rates[flow].is_infinite() {
            filling.stop(flow, cap);
        }
    }
    filling.fill_links_up_to(f64::INFINITY);
    filling.rates
}

/// What is filled so far. A flow whose rate is infinite still rises.
struct Filling<'a> {
    flows: &'a [Vec<LinkId>],
    capacities: &'a [f64],
    /// Flows of each link, with one entry for each time that they name it.
    members: Vec<Vec<u32>>,
    /// What stopped flows take of each link.
    taken: Vec<f64>,
    /// How many entries of each link still rise.
    rising: Vec<u32>,
    rates: Vec<f64>,
    /// Links by the level at which they are full. The level of a link never falls, so an old one is a lower bound.
    full_at: BinaryHeap<FullAt>,
}

impl<'a> Filling<'a> {
    fn new(capacities: &'a [f64], flows: &'a [Vec<LinkId>]) -> Filling<'a> {
        let mut members = vec![Vec::new(); capacities.len()];
        for (flow, links) in flows.iter().enumerate() {
            for link in links {
                members[link.index()].push(flow as u32);
            }
        }
        let rising: Vec<u32> = members.iter().map(|flows: &Vec<u32>| flows.len() as u32).collect();
        let mut filling = Filling {
            flows,
            capacities,
            taken: vec![0.0; capacities.len()],
            rates: vec![f64::INFINITY; flows.len()],
            full_at: BinaryHeap::new(),
            members,
            rising,
        };
        for link in (0..capacities.len()).filter(|link| filling.rising[*link] > 0) {
            filling.full_at.push(FullAt { level: filling.level(link), link });
        }
        filling
    }

    /// The rate of all that still rises on a link when the link is full.
    fn level(&self, link: usize) -> f64 {
        (self.capacities[link].max(0.0) - self.taken[link]).max(0.0) / f64::from(self.rising[link])
    }

    fn fill_links_up_to(&mut self, cap: f64) {
        while let Some(FullAt { level, link }) = self.full_at.pop() {
            if level >= cap {
                self.full_at.push(FullAt { level, link });
                return;
            }
            if self.rising[link] == 0 {
                continue;
            }
            let now = self.level(link);
            if now > level {
                self.full_at.push(FullAt { level: now, link });
                continue;
            }
            for flow in std::mem::take(&mut self.members[link]) {
                if self.rates[flow as usize].is_infinite() {
                    self.stop(flow as usize, now);
                }
            }
        }
    }

    fn stop(&mut self, flow: usize, rate: f64) {
        self.rates[flow] = rate;
        for link in &self.flows[flow] {
            self.taken[link.index()] += rate;
            self.rising[link.index()] -= 1;
        }
    }
}

/// A link and the level at which it was full when last looked at; the lowest comes first, then the lowest link.
struct FullAt {
    level: f64,
    link: usize,
}

impl Ord for FullAt {
    fn cmp(&self, other: &FullAt) -> Ordering {
        other.level.total_cmp(&self.level).then(other.link.cmp(&self.link))
    }
}

impl PartialOrd for FullAt {
    fn partial_cmp(&self, other: &FullAt) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for FullAt {
    fn eq(&self, other: &FullAt) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for FullAt {}
