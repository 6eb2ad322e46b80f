//! The time of an iteration by placement and local batch: measured points, and what lies between and beyond them.
//!
//! Of a placement that was measured:
//! - times are linear in the local batch between its measured ones, flat below the smallest, and above the largest
//!   the last slope goes on, but never falls.
//!
//! Of any other placement only nodes and GPUs count:
//! - all measured placements on the same number of nodes and GPUs are one cell, whose time is the mean of theirs;
//! - along a row of cells on the same number of nodes times are linear in the GPUs, and go on beyond as above;
//! - between two rows times are linear in the nodes, at the same number of GPUs. Where one of the two rows cannot
//!   hold that number, the line between them is tilted just so far that both ends lie on measured rows;
//! - more nodes than were ever measured count as the most that were.
//!
//! Recorded times stand above all that: they answer their own question exactly, and no other.

use std::collections::BTreeMap;

/// The time of one iteration and the part of it that exchanging gradients adds, in seconds.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct StepTime {
    /// The whole iteration.
    pub step: f64,
    /// What exchanging gradients adds to it; a pass that is accumulated goes without.
    pub sync: f64,
}

impl StepTime {
    /// On the line through two times; `part` is 0 at `from` and 1 at `to`.
    fn between(from: StepTime, to: StepTime, part: f64) -> StepTime {
        let line = |a: f64, b: f64| part * (b - a) + a;
        StepTime { step: line(from.step, to.step), sync: line(from.sync, to.sync) }
    }

    /// Beyond the last of two times, `part` times their distance; neither value falls.
    fn beyond(from: StepTime, last: StepTime, part: f64) -> StepTime {
        let go_on = |a: f64, b: f64| b + part * (b - a).max(0.0);
        StepTime { step: go_on(from.step, last.step), sync: go_on(from.sync, last.sync) }
    }
}

/// Where a time was measured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MeasuredAt {
    /// On so many GPUs of each node, in the order of the ring; where it begins does not matter.
    Ring(Vec<u16>),
    /// On so many nodes and GPUs in all, somehow.
    Size {
        /// Nodes.
        nodes: u16,
        /// GPUs.
        gpus: u16,
    },
}

impl MeasuredAt {
    /// Nodes and GPUs.
    pub fn size(&self) -> (u32, u32) {
        match self {
            MeasuredAt::Ring(ring) => {
                (ring.len() as u32, ring.iter().map(|gpus| u32::from(*gpus)).sum())
            }
            MeasuredAt::Size { nodes, gpus } => (u32::from(*nodes), u32::from(*gpus)),
        }
    }
}

/// One measured time.
#[derive(Clone, Debug, PartialEq)]
pub struct TimePoint {
    /// The type of GPU.
    pub kind: String,
    /// Where.
    pub place: MeasuredAt,
    /// Samples on each GPU at once.
    pub local: u32,
    /// How long it took.
    pub time: StepTime,
    /// Whether it is the recorded answer to one question, and not a point to interpolate from.
    pub recorded: bool,
}

/// Times of one training on all types it was measured on.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTimes {
    points: Vec<TimePoint>,
    kinds: Vec<String>,
    tables: Vec<Table>,
}

/// Times by local batch, ascending.
type Column = Vec<(u32, StepTime)>;
/// Measured placements on one number of nodes, by GPUs, ascending.
type Row = Vec<(u32, Vec<Column>)>;

/// One type of GPU.
#[derive(Clone, Debug, Default, PartialEq)]
struct Table {
    /// By GPUs of each node, largest first, and local batch.
    recorded: BTreeMap<(Vec<u16>, u32), StepTime>,
    /// By GPUs of each node, largest first.
    placements: BTreeMap<Vec<u16>, Vec<Column>>,
    /// By nodes, then GPUs.
    rows: Vec<(u32, Row)>,
}

impl StepTimes {
    /// Of the measured points; at one place and local batch the last one holds.
    pub fn new(points: Vec<TimePoint>) -> StepTimes {
        let mut kinds: Vec<String> = points.iter().map(|point| point.kind.clone()).collect();
        kinds.sort();
        kinds.dedup();
        let tables = kinds.iter().map(|kind| Table::new(&points, kind)).collect();
        StepTimes { points, kinds, tables }
    }

    /// The measured points, as given.
    pub fn points(&self) -> &[TimePoint] {
        &self.points
    }

    /// The types, in order of name.
    pub fn kinds(&self) -> &[String] {
        &self.kinds
    }

    /// Nodes and GPUs of every measured cell of a type, ascending.
    pub fn cells(&self, kind: usize) -> Vec<(u32, u32)> {
        let rows = self.tables[kind].rows.iter();
        rows.flat_map(|(nodes, row)| row.iter().map(move |(gpus, _)| (*nodes, *gpus))).collect()
    }

    /// Whether a placement was measured on a type, or only follows from others.
    pub fn is_measured(&self, kind: usize, shape: &[u16]) -> bool {
        let table = self.tables.get(kind);
        table.is_some_and(|table| table.placements.contains_key(&largest_first(shape)))
    }

    /// The time on so many GPUs of each node at a local batch; `None` without a GPU or for a type without a point.
    ///
    /// A shape does not tell the order of its ring: it is taken to go from the largest part to the smallest, or,
    /// where that ring was not measured, to be the mean of all measured rings of these parts.
    pub fn at(&self, kind: usize, shape: &[u16], local: u32) -> Option<StepTime> {
        let table = self.tables.get(kind)?;
        let parts = largest_first(shape);
        let key = (parts, local);
        let found = table.recorded.get(&key).copied();
        let found = found.or_else(|| table.placements.get(&key.0).map(|all| mean(all, local)));
        let time = found.or_else(|| table.by_size(&key.0, local))?;
        let step = time.step.max(f64::MIN_POSITIVE);
        Some(StepTime { step, sync: time.sync.clamp(0.0, step) })
    }
}

impl Table {
    fn new(points: &[TimePoint], kind: &str) -> Table {
        let mut table = Table::default();
        let mut by_place: BTreeMap<&MeasuredAt, BTreeMap<u32, StepTime>> = BTreeMap::new();
        for point in points.iter().filter(|point| point.kind == kind) {
            match (&point.place, point.recorded) {
                (MeasuredAt::Ring(ring), true) => {
                    table.recorded.insert((largest_first(ring), point.local), point.time);
                }
                (place, _) => {
                    by_place.entry(place).or_default().insert(point.local, point.time);
                }
            }
        }
        let mut cells: BTreeMap<(u32, u32), Vec<Column>> = BTreeMap::new();
        let mut in_order: Vec<Vec<u16>> = Vec::new();
        for (place, column) in by_place {
            let column: Column = column.into_iter().collect();
            if let MeasuredAt::Ring(ring) = place {
                let parts = largest_first(ring);
                let ordered = is_rotation(ring, &parts);
                let columns = table.placements.entry(parts.clone()).or_default();
                if ordered {
                    *columns = vec![column.clone()];
                    in_order.push(parts);
                } else if !in_order.contains(&parts) {
                    columns.push(column.clone());
                }
            }
            cells.entry(place.size()).or_default().push(column);
        }
        for ((nodes, gpus), columns) in cells {
            match table.rows.last_mut() {
                Some((last, row)) if *last == nodes => row.push((gpus, columns)),
                _ => table.rows.push((nodes, vec![(gpus, columns)])),
            }
        }
        table
    }

    /// The time by nodes and GPUs alone.
    fn by_size(&self, parts: &[u16], local: u32) -> Option<StepTime> {
        let gpus = parts.iter().map(|gpus| f64::from(*gpus)).sum::<f64>();
        let (first, last) = (self.rows.first()?, self.rows.last()?);
        let nodes = (parts.len() as u32).clamp(first.0, last.0);
        if parts.is_empty() {
            return None;
        }
        let next = self.rows.partition_point(|row| row.0 < nodes);
        if self.rows[next].0 == nodes {
            return Some(along(&self.rows[next].1, gpus, local));
        }
        let (below, above) = (&self.rows[next - 1], &self.rows[next]);
        let part = f64::from(nodes - below.0) / f64::from(above.0 - below.0);
        let (gpus_below, gpus_above) = ends(gpus, part, range(&below.1), range(&above.1));
        let from = along(&below.1, gpus_below, local);
        Some(StepTime::between(from, along(&above.1, gpus_above, local), part))
    }
}

/// The GPUs at which two rows are asked, so that the line between them passes through `gpus` at `part`.
///
/// Level where both rows hold that number; else one end is moved into its row, and the other as far as follows.
fn ends(gpus: f64, part: f64, below: (f64, f64), above: (f64, f64)) -> (f64, f64) {
    let held = gpus.clamp(below.0, below.1);
    let across = gpus + (gpus - held) * (1.0 - part) / part;
    if across >= above.0 {
        return (held, across);
    }
    (gpus - (above.0 - gpus) * part / (1.0 - part), above.0)
}

/// The least and the most GPUs of a row.
fn range(row: &Row) -> (f64, f64) {
    let at = |cell: Option<&(u32, Vec<Column>)>| f64::from(cell.map_or(1, |cell| cell.0));
    (at(row.first()), at(row.last()))
}

/// The time on a row, linear in the GPUs.
fn along(row: &Row, gpus: f64, local: u32) -> StepTime {
    let cell = |index: usize| mean(&row[index].1, local);
    let next = row.partition_point(|(known, _)| f64::from(*known) < gpus);
    if next < row.len() && (next == 0 || f64::from(row[next].0) == gpus) {
        return cell(next);
    }
    if row.len() == 1 {
        return cell(0);
    }
    let (from, to) = if next < row.len() { (next - 1, next) } else { (next - 2, next - 1) };
    let (low, high) = (f64::from(row[from].0), f64::from(row[to].0));
    match next < row.len() {
        true => StepTime::between(cell(from), cell(to), (gpus - low) / (high - low)),
        false => StepTime::beyond(cell(from), cell(to), (gpus - high) / (high - low)),
    }
}

/// The mean of several columns at a local batch.
fn mean(columns: &[Column], local: u32) -> StepTime {
    let mut sum = StepTime::default();
    for column in columns {
        let time = by_batch(column, local);
        sum.step += time.step;
        sum.sync += time.sync;
    }
    let count = columns.len().max(1) as f64;
    StepTime { step: sum.step / count, sync: sum.sync / count }
}

/// The time of a column at a local batch.
fn by_batch(column: &[(u32, StepTime)], local: u32) -> StepTime {
    let next = column.partition_point(|(known, _)| *known < local);
    if next < column.len() && (next == 0 || column[next].0 == local) {
        return column[next].1;
    }
    let distance = |a: u32, b: u32| (f64::from(b) - f64::from(a)).max(1.0);
    match (column.get(next), &column[..next]) {
        (Some(above), [.., below]) => {
            let part = distance(below.0, local) / distance(below.0, above.0);
            StepTime::between(below.1, above.1, part)
        }
        (None, [.., from, last]) => {
            StepTime::beyond(from.1, last.1, distance(last.0, local) / distance(from.0, last.0))
        }
        (None, [only]) => only.1,
        (_, []) => StepTime::default(),
    }
}

fn largest_first(shape: &[u16]) -> Vec<u16> {
    let mut parts: Vec<u16> = shape.iter().copied().filter(|gpus| *gpus > 0).collect();
    parts.sort_unstable_by(|a, b| b.cmp(a));
    parts
}

/// Whether two rings differ only in where they begin.
fn is_rotation(ring: &[u16], other: &[u16]) -> bool {
    ring.len() == other.len()
        && (0..ring.len()).any(|at| ring[at..].iter().chain(&ring[..at]).eq(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(place: MeasuredAt, local: u32, step: f64) -> TimePoint {
        let time = StepTime { step, sync: step / 2.0 };
        TimePoint { kind: "t4".to_owned(), place, local, time, recorded: false }
    }

    fn ring(parts: &[u16]) -> MeasuredAt {
        MeasuredAt::Ring(parts.to_vec())
    }

    fn step(times: &StepTimes, shape: &[u16], local: u32) -> f64 {
        times.at(0, shape, local).unwrap().step
    }

    #[test]
    fn a_measured_placement_is_linear_in_the_local_batch() {
        let points = vec![point(ring(&[2, 1]), 8, 1.0), point(ring(&[2, 1]), 16, 3.0)];
        let times = StepTimes::new(points);
        assert_eq!(
            [4, 8, 12, 16, 20].map(|local| step(&times, &[1, 2], local)),
            [1.0, 1.0, 2.0, 3.0, 4.0]
        );
        let falling = vec![point(ring(&[1]), 8, 3.0), point(ring(&[1]), 16, 1.0)];
        assert_eq!(step(&StepTimes::new(falling), &[1], 99), 1.0);
    }

    #[test]
    fn the_ring_from_large_to_small_stands_for_its_parts() {
        let other = point(ring(&[1, 2, 3]), 8, 9.0);
        let times = StepTimes::new(vec![other.clone(), point(ring(&[1, 3, 2]), 8, 5.0)]);
        assert_eq!(step(&times, &[2, 1, 3], 8), 5.0);
        assert_eq!(step(&StepTimes::new(vec![other]), &[3, 2, 1], 8), 9.0);
    }

    #[test]
    fn between_rows_the_line_is_level_or_tilted_into_both() {
        let size =
            |nodes: u16, gpus: u16, step: f64| point(MeasuredAt::Size { nodes, gpus }, 8, step);
        let points = vec![size(4, 4, 1.0), size(4, 16, 13.0), size(6, 6, 30.0), size(6, 24, 48.0)];
        let times = StepTimes::new(points);
        // 10 GPUs lie on both rows: 7 on four nodes and 34 on six.
        assert_eq!(step(&times, &[2; 5], 8), 20.5);
        // 18 GPUs are too many for four nodes: 16 there and 20 on six.
        assert_eq!(step(&times, &[4, 4, 4, 4, 2], 8), (13.0 + 44.0) / 2.0);
        // 5 GPUs are too few for six nodes: 6 there and 4 on four.
        assert_eq!(step(&times, &[1; 5], 8), (1.0 + 30.0) / 2.0);
        // Seven nodes were not measured.
        assert_eq!(step(&times, &[1; 7], 8), 31.0);
    }

    #[test]
    fn a_recorded_time_answers_its_own_question_only() {
        let recorded = TimePoint { recorded: true, ..point(ring(&[1, 2]), 8, 7.0) };
        let times = StepTimes::new(vec![point(ring(&[2, 1]), 8, 1.0), recorded]);
        assert_eq!((step(&times, &[2, 1], 8), step(&times, &[2, 1], 9)), (7.0, 1.0));
        assert_eq!(times.at(0, &[], 8), None);
        assert_eq!(times.at(1, &[1], 8), None);
    }
}
