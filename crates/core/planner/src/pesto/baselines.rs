//! What Pesto is compared with: an expert's cut, a topological fill, the earliest start, and HEFT.

use crate::placing::Placing;

/// All of them, and everything on each device alone.
pub fn all(placing: &Placing<'_>) -> Vec<Vec<usize>> {
    let count = placing.graph.operators.len();
    let mut all =
        vec![expert(placing), topological(placing), earliest_start(placing), heft(placing)];
    all.extend((0..placing.devices.devices.len()).map(|device| vec![device; count]));
    all
}

/// What an expert does: consecutive operators on each device, as much work as its speed allows.
pub fn expert(placing: &Placing<'_>) -> Vec<usize> {
    let work = |operator: usize| {
        let one = &placing.graph.operators[operator];
        one.forward + one.backward
    };
    let shares = placing.devices.devices.iter().map(|one| one.speed).collect();
    fill(placing, &work, shares)
}

/// m-TOPO of Baechi: consecutive operators on each device, as much memory as on the others.
pub fn topological(placing: &Placing<'_>) -> Vec<usize> {
    let bytes = |operator: usize| {
        let (state, kept) = placing.bytes(operator, 1.0);
        state + kept
    };
    let shares = vec![1.0; placing.devices.devices.len()];
    fill(placing, &bytes, shares)
}

fn fill(placing: &Placing<'_>, of: &dyn Fn(usize) -> f64, shares: Vec<f64>) -> Vec<usize> {
    let total: f64 = (0..placing.graph.operators.len()).map(of).sum();
    let all: f64 = shares.iter().sum();
    let (mut device, mut filled, mut limit) = (0, 0.0, total * shares[0] / all);
    let mut placement = vec![0; placing.graph.operators.len()];
    for operator in placing.graph.order() {
        let own = of(*operator);
        // An operator goes where its middle lies.
        while device + 1 < shares.len() && filled + own / 2.0 > limit {
            device += 1;
            limit += total * shares[device] / all;
        }
        placement[*operator] = device;
        filled += own;
    }
    placement
}

/// What a list knows while it places operators one by one.
struct Lists<'a, 'b> {
    placing: &'a Placing<'b>,
    placement: Vec<usize>,
    end: Vec<f64>,
    /// What each device does, by start.
    busy: Vec<Vec<(f64, f64)>>,
    held: Vec<f64>,
}

impl Lists<'_, '_> {
    fn new<'a, 'b>(placing: &'a Placing<'b>) -> Lists<'a, 'b> {
        let (operators, devices) = (placing.graph.operators.len(), placing.devices.devices.len());
        Lists {
            placing,
            placement: vec![usize::MAX; operators],
            end: vec![f64::NAN; operators],
            busy: vec![Vec::new(); devices],
            held: vec![0.0; devices],
        }
    }

    /// When all that an operator needs is on a device.
    fn arrival(&self, operator: usize, device: usize) -> f64 {
        let into = self.placing.edges_into(operator).iter().map(|edge| {
            let from = self.placing.graph.edges[*edge].from;
            self.end[from] + self.placing.edge_seconds(*edge, (self.placement[from], device))
        });
        into.fold(0.0, f64::max)
    }

    /// The first gap of a device from a moment on that is long enough.
    fn gap(&self, device: usize, from: f64, seconds: f64) -> f64 {
        let mut at = from;
        for (start, end) in &self.busy[device] {
            if at + seconds <= *start {
                break;
            }
            at = at.max(*end);
        }
        at
    }

    fn after_all(&self, device: usize, from: f64) -> f64 {
        self.busy[device].last().map_or(from, |(_, end)| from.max(*end))
    }

    fn has_room(&self, operator: usize, device: usize) -> bool {
        let (state, kept) = self.placing.bytes(operator, 1.0);
        self.held[device] + state + kept <= self.placing.devices.devices[device].memory_bytes
    }

    fn put(&mut self, operator: usize, device: usize, start: f64) {
        let end = start + self.placing.site_seconds(operator, device);
        let at = self.busy[device].partition_point(|(other, _)| *other <= start);
        self.busy[device].insert(at, (start, end));
        (self.placement[operator], self.end[operator]) = (device, end);
        let (state, kept) = self.placing.bytes(operator, 1.0);
        self.held[device] += state + kept;
    }

    /// The device with the least of a figure, among those with room where there are any.
    fn best(&self, operator: usize, of: &dyn Fn(usize) -> f64) -> (f64, usize) {
        let devices = 0..self.busy.len();
        let key = |device: usize| (!self.has_room(operator, device), of(device));
        let best = devices
            .map(|device| (key(device), device))
            .min_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let ((_, figure), device) = best.expect("there is a device");
        (figure, device)
    }
}

/// m-ETF of Baechi: again and again the operator and the device that can start earliest, where there is memory.
///
/// O(operators x width x devices x edges of an operator).
pub fn earliest_start(placing: &Placing<'_>) -> Vec<usize> {
    let mut lists = Lists::new(placing);
    let count = placing.graph.operators.len();
    let mut missing: Vec<usize> = (0..count).map(|one| placing.edges_into(one).len()).collect();
    let mut ready: Vec<usize> = (0..count).filter(|one| missing[*one] == 0).collect();
    while !ready.is_empty() {
        let starts = ready.iter().enumerate().map(|(at, operator)| {
            let start = |device| lists.after_all(device, lists.arrival(*operator, device));
            let (start, device) = lists.best(*operator, &start);
            (start, *operator, at, device)
        });
        let first = starts.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (start, operator, at, device) = first.expect("an operator is ready");
        ready.swap_remove(at);
        lists.put(operator, device, start);
        for edge in placing.edges_out_of(operator) {
            let to = placing.graph.edges[*edge].to;
            missing[to] -= 1;
            if missing[to] == 0 {
                ready.push(to);
            }
        }
    }
    lists.placement
}

/// HEFT: operators by the longest way to the end at mean speeds, each where it ends earliest, gaps included.
pub fn heft(placing: &Placing<'_>) -> Vec<usize> {
    let count = placing.graph.operators.len();
    let devices = placing.devices.devices.len();
    let mean = |of: &dyn Fn(usize) -> f64| (0..devices).map(of).sum::<f64>() / devices as f64;
    let mut upward = vec![0.0f64; count];
    for operator in placing.graph.order().iter().rev().copied() {
        let own = mean(&|device| placing.site_seconds(operator, device));
        let after = placing.edges_out_of(operator).iter().map(|edge| {
            let moved =
                mean(&|device| placing.edge_seconds(*edge, (device, (device + 1) % devices)));
            moved + upward[placing.graph.edges[*edge].to]
        });
        upward[operator] = own + after.fold(0.0, f64::max);
    }
    let mut position = vec![0; count];
    placing.graph.order().iter().enumerate().for_each(|(at, one)| position[*one] = at);
    let mut order: Vec<usize> = (0..count).collect();
    // Operators that take no time keep their place in the order of the graph.
    order.sort_by(|a, b| upward[*b].total_cmp(&upward[*a]).then(position[*a].cmp(&position[*b])));
    let mut lists = Lists::new(placing);
    for operator in order {
        let seconds = |device| placing.site_seconds(operator, device);
        let end = |device: usize| {
            let from = lists.arrival(operator, device);
            lists.gap(device, from, seconds(device)) + seconds(device)
        };
        let (end, device) = lists.best(operator, &end);
        lists.put(operator, device, end - seconds(device));
    }
    lists.placement
}
