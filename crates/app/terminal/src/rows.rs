//! Which rows of a picture a view shows, and in which order.

use super::picture::Picture;
use super::state::View;
use std::cmp::Reverse;
use trainyard_api::answer::{EventRow, FairRow, JobRow, NodeRow, QueueState};
use trainyard_client::show::state;

/// The names of the orders of a view, the first by default.
pub fn orders(view: View) -> &'static [&'static str] {
    match view {
        View::Cluster => &["name", "free", "state"],
        View::Jobs => &["state", "newest", "GPUs", "user", "longest", "importance"],
        View::Tenants => &["tree", "below share", "GPUs"],
        View::Events => &["newest", "oldest"],
        View::Daemon => &["-"],
    }
}

/// What a row is, whatever place it has.
pub fn identity(view: View, picture: &Picture, row: u32) -> u64 {
    let index = row as usize;
    match view {
        View::Jobs => u64::from(picture.jobs[index].id),
        View::Events => picture.events[index].seq,
        // Nodes and tenants keep their places for as long as a daemon runs.
        View::Cluster | View::Tenants | View::Daemon => u64::from(row),
    }
}

/// The rows that have all words, in order.
pub fn arranged(view: View, picture: &Picture, filter: &str, sort: usize) -> Vec<u32> {
    let filter = filter.to_lowercase();
    let terms: Vec<Term<'_>> = filter.split_whitespace().map(Term::from).collect();
    match view {
        View::Cluster => nodes(&picture.nodes, &terms, sort),
        View::Jobs => jobs(&picture.jobs, &terms, sort),
        View::Tenants => tenants(&picture.tenants, &terms, sort),
        View::Events => events(&picture.events, &terms, sort),
        View::Daemon => Vec::new(),
    }
}

/// A word of a filter: `ada` anywhere, or `user:ada` exactly there.
#[derive(Copy, Clone)]
struct Term<'a> {
    field: Option<&'a str>,
    text: &'a str,
}

impl<'a> From<&'a str> for Term<'a> {
    fn from(word: &'a str) -> Term<'a> {
        let known = ["id", "name", "user", "tenant", "is", "node", "type", "job", "kind"];
        match word.split_once(':') {
            Some((field, text)) if known.contains(&field) => Term { field: Some(field), text },
            _ => Term { field: None, text: word },
        }
    }
}

/// Whether a row with these fields and further texts has a word.
fn has(term: Term<'_>, fields: &[(&str, &str)], more: &[&str]) -> bool {
    match term.field {
        Some(field) => fields
            .iter()
            .any(|(name, value)| *name == field && value.eq_ignore_ascii_case(term.text)),
        None => {
            let values = fields.iter().map(|(_, value)| *value).chain(more.iter().copied());
            values.into_iter().any(|value| contains(value, term.text))
        }
    }
}

/// Whether a text has a part, which is in small letters.
fn contains(text: &str, part: &str) -> bool {
    match text.is_ascii() {
        // Ten thousand rows are looked through at each key: no copy of each of their texts.
        true => {
            part.is_empty()
                || text
                    .as_bytes()
                    .windows(part.len())
                    .any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
        }
        false => text.to_lowercase().contains(part),
    }
}

fn chosen<T>(rows: &[T], terms: &[Term<'_>], fits: impl Fn(&T, Term<'_>) -> bool) -> Vec<u32> {
    let all = rows.iter().enumerate();
    let fitting = all.filter(|(_, row)| terms.iter().all(|term| fits(row, *term)));
    fitting.map(|(index, _)| index as u32).collect()
}

fn jobs(rows: &[JobRow], terms: &[Term<'_>], sort: usize) -> Vec<u32> {
    let mut order = chosen(rows, terms, |job, term| {
        let (id, word) = (job.id.to_string(), state(job.state));
        let mut fields: Vec<(&str, &str)> = vec![
            ("id", &id),
            ("name", &job.name),
            ("user", &job.user),
            ("tenant", &job.tenant),
            ("is", &word),
        ];
        fields.extend(job.holds.iter().map(|hold| ("node", hold.node.as_str())));
        has(term, &fields, &[&job.why])
    });
    let row = |index: &u32| &rows[*index as usize];
    match orders(View::Jobs)[sort % orders(View::Jobs).len()] {
        "newest" => order.sort_by_key(|index| Reverse(row(index).id)),
        "GPUs" => order.sort_by_key(|index| (Reverse(row(index).gpus), row(index).id)),
        "user" => order.sort_by(|a, b| (&row(a).user, row(a).id).cmp(&(&row(b).user, row(b).id))),
        "longest" => order
            .sort_by(|a, b| row(a).since.total_cmp(&row(b).since).then(row(a).id.cmp(&row(b).id))),
        "importance" => order.sort_by_key(|index| (Reverse(row(index).priority), row(index).id)),
        _ => order.sort_by_key(|index| (rank(row(index).state), row(index).id)),
    }
    order
}

/// What holds GPUs comes first, then what waits for them, then the rest.
fn rank(state: QueueState) -> u8 {
    match state {
        QueueState::Running => 0,
        QueueState::Starting => 1,
        QueueState::Saving => 2,
        QueueState::Waiting | QueueState::Suspended => 3,
        QueueState::Unadmitted => 4,
        QueueState::Blocked => 5,
        over => 6 + u8::from(over > QueueState::Finished),
    }
}

fn nodes(rows: &[NodeRow], terms: &[Term<'_>], sort: usize) -> Vec<u32> {
    let mut order = chosen(rows, terms, |node, term| {
        let jobs: Vec<String> = match term.field {
            Some("job") => node.gpus.iter().flatten().map(u32::to_string).collect(),
            _ => Vec::new(),
        };
        let mut fields: Vec<(&str, &str)> = vec![
            ("node", &node.name),
            ("name", &node.name),
            ("type", &node.gpu_type),
            ("is", &node.state),
        ];
        fields.extend(jobs.iter().map(|job| ("job", job.as_str())));
        has(term, &fields, &[node.reason.as_deref().unwrap_or_default()])
    });
    let row = |index: &u32| &rows[*index as usize];
    match orders(View::Cluster)[sort % orders(View::Cluster).len()] {
        "free" => order.sort_by_key(|index| Reverse(row(index).free)),
        "state" => order.sort_by_key(|index| row(index).state == "up"),
        _ => {}
    }
    order
}

fn tenants(rows: &[FairRow], terms: &[Term<'_>], sort: usize) -> Vec<u32> {
    let mut order = chosen(rows, terms, |tenant, term| {
        let parent = tenant.parent.as_deref().unwrap_or_default();
        has(term, &[("tenant", &tenant.tenant), ("name", &tenant.tenant)], &[parent])
    });
    let row = |index: &u32| &rows[*index as usize];
    match orders(View::Tenants)[sort % orders(View::Tenants).len()] {
        "below share" => order.sort_by(|a, b| share(row(a)).total_cmp(&share(row(b)))),
        "GPUs" => order.sort_by(|a, b| row(b).gpus.total_cmp(&row(a).gpus)),
        // The daemon lists parents before their children, as paths sort.
        _ => {
            let paths: Vec<Vec<&str>> = rows.iter().map(|tenant| path(rows, tenant)).collect();
            order.sort_by(|a, b| paths[*a as usize].cmp(&paths[*b as usize]));
        }
    }
    order
}

/// What a tenant used of the share it is entitled to; 1 is exactly that.
pub fn share(tenant: &FairRow) -> f64 {
    if tenant.entitled > 0.0 { tenant.used / tenant.entitled } else { f64::INFINITY }
}

/// The names from the root down to a tenant.
pub fn path<'a>(rows: &'a [FairRow], tenant: &'a FairRow) -> Vec<&'a str> {
    let mut names = vec![tenant.tenant.as_str()];
    let mut above = tenant.parent.as_deref();
    // A circle cannot be, and would end here all the same.
    while let Some(parent) = above.filter(|_| names.len() <= rows.len()) {
        names.push(parent);
        let found = rows.iter().find(|row| row.tenant == parent);
        above = found.and_then(|row| row.parent.as_deref());
    }
    names.reverse();
    names
}

fn events(rows: &[EventRow], terms: &[Term<'_>], sort: usize) -> Vec<u32> {
    let mut order = chosen(rows, terms, |event, term| {
        let job = event.job.map(|job| job.to_string()).unwrap_or_default();
        has(term, &[("kind", &event.kind), ("job", &job)], &[&event.text])
    });
    if orders(View::Events)[sort % orders(View::Events).len()] == "newest" {
        order.reverse();
    }
    order
}
