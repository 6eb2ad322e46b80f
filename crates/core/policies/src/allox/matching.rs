//! The schedule with the least sum of completion times on machines that differ: a matching of jobs to machines and
//! positions (AlloX, section 3.1; Horn 1973; Bruno, Coffman and Sethi 1974).
//!
//! The k-th job from the end of a machine delays k jobs, itself among them, so it costs k times its own length. Positions
//! of identical machines cost the same, so they are one column with room for several jobs, and the matching becomes a
//! transport problem. It is solved by shortest augmenting paths with prices: O(n^2 c) for n jobs and c columns.
//!
//! A position of a group costs every job more than the one before it, so that it is of use only when that one is full.
//! Columns come one by one, therefore: there are at most as many as groups and jobs together.

/// Identical machines.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Group {
    /// How many.
    pub machines: u32,
    /// When they are free, counted from now.
    pub free_in: f64,
}

/// Where a job goes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The group of machines.
    pub group: usize,
    /// The position from the end, from 1.
    pub position: usize,
}

/// A column: one position on all machines of a group.
struct Column {
    seat: Seat,
    room: usize,
    rows: Vec<usize>,
    price: f64,
}

/// Jobs.
struct Rows {
    prices: Vec<f64>,
    /// The column of each.
    seated: Vec<Option<usize>>,
}

/// The best seats. `length(job, group)` is how long a job takes on a machine of a group; nothing if it cannot run there.
/// A job that can run nowhere gets no seat.
pub fn best_seats(
    jobs: usize,
    groups: &[Group],
    length: impl Fn(usize, usize) -> Option<f64>,
) -> Vec<Option<Seat>> {
    let mut columns = first_columns(groups);
    let cost = |row: usize, column: &Column| {
        let Seat { group, position } = column.seat;
        // k p_ij + d_ij for the k-th place from the end.
        length(row, group).map(|length| position as f64 * length + groups[group].free_in)
    };
    let mut rows = Rows { prices: vec![0.0; jobs], seated: vec![None; jobs] };
    for row in 0..jobs {
        let Some(end) = augment(row, &cost, &mut columns, &mut rows) else { continue };
        let Column { seat: Seat { group, position }, room, .. } = columns[end];
        if columns[end].rows.len() == room {
            columns.push(Column::new(Seat { group, position: position + 1 }, room));
        }
    }
    rows.seated.into_iter().map(|column| column.map(|column| columns[column].seat)).collect()
}

/// The sum of completion times of a seating, counted from now.
pub fn total(
    seats: &[Option<Seat>],
    groups: &[Group],
    length: impl Fn(usize, usize) -> Option<f64>,
) -> f64 {
    let each = seats.iter().enumerate().filter_map(|(job, seat)| {
        let Seat { group, position } = (*seat)?;
        Some(position as f64 * length(job, group)? + groups[group].free_in)
    });
    each.sum()
}

/// The last position of every group that has machines.
fn first_columns(groups: &[Group]) -> Vec<Column> {
    let there = groups.iter().enumerate().filter(|(_, group)| group.machines > 0);
    let last = |group| Seat { group, position: 1 };
    there.map(|(group, of)| Column::new(last(group), of.machines as usize)).collect()
}

impl Column {
    fn new(seat: Seat, room: usize) -> Column {
        Column { seat, room, rows: Vec::new(), price: 0.0 }
    }
}

/// Finds a seat for one more job along the cheapest way, on which others may change theirs; the column that is fuller
/// for it, or nothing if the job can run nowhere.
fn augment(
    start: usize,
    cost: &impl Fn(usize, &Column) -> Option<f64>,
    columns: &mut [Column],
    Rows { prices, seated }: &mut Rows,
) -> Option<usize> {
    let mut reach = vec![f64::INFINITY; columns.len()];
    let mut from = vec![usize::MAX; columns.len()];
    let mut done = vec![false; columns.len()];
    // Rows met so far with what it costs to get there.
    let mut met = vec![(start, 0.0)];
    let mut next = 0;
    let end = loop {
        while let Some(&(row, so_far)) = met.get(next) {
            next += 1;
            for (index, column) in columns.iter().enumerate().filter(|(index, _)| !done[*index]) {
                let Some(cost) = cost(row, column) else { continue };
                let way = so_far + cost - prices[row] - column.price;
                if way < reach[index] {
                    (reach[index], from[index]) = (way, row);
                }
            }
        }
        let open = (0..columns.len()).filter(|index| !done[*index] && reach[*index].is_finite());
        // Of equals a column with room, so that no job moves without need.
        let full = |index: &usize| columns[*index].rows.len() >= columns[*index].room;
        let best = open.min_by(|a, b| {
            let seat = |index: &usize| (columns[*index].seat.group, columns[*index].seat.position);
            let nearer = reach[*a].total_cmp(&reach[*b]).then(full(a).cmp(&full(b)));
            nearer.then(seat(a).cmp(&seat(b)))
        });
        let best = best?;
        done[best] = true;
        if columns[best].rows.len() < columns[best].room {
            break best;
        }
        met.extend(columns[best].rows.iter().map(|row| (*row, reach[best])));
    };
    let length = reach[end];
    for &(row, so_far) in &met[..next] {
        prices[row] += length - so_far;
    }
    for index in (0..columns.len()).filter(|index| done[*index]) {
        columns[index].price -= length - reach[index];
    }
    let mut column = end;
    loop {
        let row = from[column];
        columns[column].rows.push(row);
        let left = seated[row].replace(column);
        if row == start {
            return Some(end);
        }
        let left = left.expect("only the first row of the way has no seat");
        columns[left].rows.retain(|other| *other != row);
        column = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use trainyard_solver::bipartite;

    type Lengths = Vec<Vec<Option<f64>>>;

    /// Machines of several groups, and how long jobs take in each: in whole numbers, or not at all.
    fn any_case(jobs: usize) -> impl Strategy<Value = (Vec<Group>, Lengths)> {
        let group = (0u32..4, 0u32..30)
            .prop_map(|(machines, free)| Group { machines, free_in: f64::from(free) });
        prop::collection::vec(group, 1..4).prop_flat_map(move |groups| {
            let length = prop::option::weighted(0.9, (1u32..60).prop_map(f64::from));
            let row = prop::collection::vec(length, groups.len());
            (Just(groups), prop::collection::vec(row, 1..=jobs))
        })
    }

    /// All ways to put jobs on single machines in an order, by trying them.
    fn brute_force(groups: &[Group], lengths: &Lengths) -> f64 {
        fn search(left: &[usize], ends: &mut [(usize, f64)], lengths: &Lengths) -> f64 {
            if left.is_empty() {
                return 0.0;
            }
            let mut best = f64::INFINITY;
            for index in 0..left.len() {
                let mut rest = left.to_vec();
                let job = rest.remove(index);
                for machine in 0..ends.len() {
                    let (group, end) = ends[machine];
                    let Some(length) = lengths[job][group] else { continue };
                    ends[machine].1 = end + length;
                    best = best.min(end + length + search(&rest, ends, lengths));
                    ends[machine].1 = end;
                }
            }
            best
        }
        let mut ends: Vec<(usize, f64)> = Vec::new();
        for (group, of) in groups.iter().enumerate() {
            ends.extend((0..of.machines).map(|_| (group, of.free_in)));
        }
        let can_run = |job: &usize| ends.iter().any(|(group, _)| lengths[*job][*group].is_some());
        let jobs: Vec<usize> = (0..lengths.len()).filter(can_run).collect();
        search(&jobs, &mut ends, lengths)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

        #[test]
        fn no_schedule_of_few_jobs_is_better((groups, lengths) in any_case(5)) {
            let length = |job: usize, group: usize| lengths[job][group];
            let seats = best_seats(lengths.len(), &groups, length);
            let (ours, best) = (total(&seats, &groups, length), brute_force(&groups, &lengths));
            prop_assert!((ours - best).abs() < 1e-6, "{ours} instead of {best}: {seats:?}");
        }

        #[test]
        fn grouped_machines_cost_what_single_ones_do((groups, lengths) in any_case(14)) {
            let length = |job: usize, group: usize| lengths[job][group];
            let seats = best_seats(lengths.len(), &groups, length);
            let jobs = lengths.len();
            let mut columns: Vec<Seat> = Vec::new();
            for (group, of) in groups.iter().enumerate() {
                let seat = |position| Seat { group, position };
                columns.extend((0..of.machines).flat_map(|_| (1..=jobs).map(seat)));
            }
            let cost = |job: usize, column: usize| {
                let Seat { group, position } = columns[column];
                length(job, group).map(|length| position as f64 * length + groups[group].free_in)
            };
            let general = bipartite(jobs, columns.len(), cost).expect("costs are numbers");
            let of_general: f64 = general
                .iter()
                .enumerate()
                .filter_map(|(job, column)| cost(job, (*column)?))
                .sum();
            let seated = |found: usize| found;
            prop_assert_eq!(
                seats.iter().flatten().count(),
                seated(general.iter().flatten().count())
            );
            let ours = total(&seats, &groups, length);
            prop_assert!((ours - of_general).abs() < 1e-6 * of_general.max(1.0), "{} {}", ours, of_general);
        }
    }

    #[test]
    fn seven_jobs_on_two_kinds_of_machine_are_as_good_as_any_order() {
        let lengths: Lengths = [[3, 9], [8, 10], [2, 2], [7, 30], [5, 6], [1, 40], [4, 4]]
            .map(|row| row.map(|length| Some(f64::from(length))).to_vec())
            .to_vec();
        let groups = [Group { machines: 1, free_in: 0.0 }, Group { machines: 1, free_in: 4.0 }];
        let length = |job: usize, group: usize| lengths[job][group];
        let seats = best_seats(7, &groups, length);
        assert_eq!(total(&seats, &groups, length), brute_force(&groups, &lengths));
    }
}
