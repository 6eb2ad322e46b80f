//! `squeue --json`: the jobs.

use super::answer::SlurmAnswer;
use super::lenient::{Number, Text, Words};
use super::{ReadError, Rows, gres};
use crate::nodelist;
use crate::seen::SlurmJob;
use serde::Deserialize;

/// Slurm writes a year where a partition sets no limit.
const NO_LIMIT_MINUTES: i64 = 365 * 24 * 60;

/// Reads the jobs out of an answer of `squeue --json`.
pub fn jobs(bytes: &[u8]) -> Result<Rows<SlurmJob>, ReadError> {
    let answer = SlurmAnswer::of(bytes)?;
    let raw = answer.jobs.ok_or(ReadError::NoList("jobs"))?;
    answer.rows(raw, "jobs", job)
}

/// A job as it is written, in any of the shapes.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Row {
    job_id: Number,
    name: Text,
    user_name: Text,
    user_id: Text,
    account: Text,
    partition: Text,
    job_state: Words,
    state_reason: Text,
    priority: Number,
    comment: Text,
    nodes: Text,
    required_nodes: Text,
    excluded_nodes: Text,
    features: Text,
    resv_name: Text,
    gres_detail: Vec<Text>,
    tres_req_str: Text,
    tres_alloc_str: Text,
    tres_per_job: Text,
    tres_per_node: Text,
    tres_per_socket: Text,
    tres_per_task: Text,
    sockets_per_node: Number,
    tasks: Number,
    cpus: Number,
    node_count: Number,
    restart_cnt: Number,
    submit_time: Number,
    eligible_time: Number,
    start_time: Number,
    end_time: Number,
    time_limit: Number,
    exit_code: ExitCode,
    dependency: Text,
    array_job_id: Number,
    array_task_id: Number,
    array_task_string: Text,
    standard_output: Text,
}

/// A plain wait status, or an object that names code and signal apart.
#[derive(Default, Deserialize)]
#[serde(untagged)]
enum ExitCode {
    Parts(ExitParts),
    Status(Number),
    #[default]
    Nothing,
}

#[derive(Default, Deserialize)]
struct ExitParts {
    return_code: Number,
    #[serde(default)]
    signal: ExitSignal,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ExitSignal {
    // `signal_id` in v0.0.39, `id` later.
    #[serde(alias = "signal_id")]
    id: Number,
}

impl ExitCode {
    fn pair(&self) -> Option<(i32, i32)> {
        match self {
            ExitCode::Status(Number(status)) => {
                let status = (*status)?;
                Some((((status >> 8) & 0xff) as i32, (status & 0x7f) as i32))
            }
            ExitCode::Parts(parts) => {
                let small = |number: Number| number.count().min(255) as i32;
                parts.return_code.0.map(|_| (small(parts.return_code), small(parts.signal.id)))
            }
            ExitCode::Nothing => None,
        }
    }
}

fn job(row: Row) -> Result<SlurmJob, String> {
    let id = row.job_id.positive().and_then(|id| u32::try_from(id).ok());
    let id = id.ok_or("it has no job_id")?;
    let (state, flags) = state(&row.job_state.0).ok_or("it has no job_state")?;
    let names = |list: &Text, field: &str| {
        nodelist::expand(&list.0).map_err(|error| format!("{field}: {error}"))
    };
    let nodes = names(&row.nodes, "nodes")?;
    let (gpus, gpu_types) = asked(&row);
    // A suspended job and one that is being cleared away still have their GPUs.
    let holds = ["RUNNING", "SUSPENDED"].contains(&state.as_str())
        || flags.iter().any(|flag| flag == "COMPLETING");
    let held = if holds { held(&row, &nodes, gpus) } else { Vec::new() };
    let limit = row.time_limit.positive().filter(|minutes| *minutes < NO_LIMIT_MINUTES);
    Ok(SlurmJob {
        id,
        required_nodes: names(&row.required_nodes, "required_nodes")?,
        excluded_nodes: names(&row.excluded_nodes, "excluded_nodes")?,
        gpus,
        gpu_types,
        held,
        nodes,
        state,
        flags,
        cpus: row.cpus.count(),
        nodes_min: row.node_count.count(),
        restarts: row.restart_cnt.count(),
        priority: row.priority.0.map_or(0, |value| value.max(0) as u64),
        submitted: row.submit_time.positive(),
        eligible: row.eligible_time.positive(),
        started: row.start_time.positive(),
        ended: row.end_time.positive(),
        time_limit: limit.map(|minutes| minutes * 60),
        exit: row.exit_code.pair(),
        array: array(&row),
        tasks: waiting_tasks(&row.array_task_string.0),
        name: row.name.0,
        uid: row.user_id.0.trim().parse().ok(),
        user: if row.user_name.0.is_empty() { row.user_id.0 } else { row.user_name.0 },
        account: row.account.0,
        partition: row.partition.0,
        reason: row.state_reason.0,
        comment: row.comment.0,
        features: row.features.0,
        reservation: row.resv_name.0,
        dependency: row.dependency.0,
        stdout: row.standard_output.0,
    })
}

/// Words that stand beside a state, with the state that a job is in where 22.05 tells such a word alone.
const FLAGS: [(&str, &str); 14] = [
    ("COMPLETING", "RUNNING"),
    ("CONFIGURING", "RUNNING"),
    ("RESIZING", "RUNNING"),
    ("SIGNALING", "RUNNING"),
    ("STAGE_OUT", "RUNNING"),
    ("STOPPED", "RUNNING"),
    ("POWER_UP_NODE", "RUNNING"),
    ("LAUNCH_FAILED", "FAILED"),
    ("REVOKED", "CANCELLED"),
    ("REQUEUED", "PENDING"),
    ("REQUEUE_FED", "PENDING"),
    ("REQUEUE_HOLD", "PENDING"),
    ("SPECIAL_EXIT", "PENDING"),
    ("RESV_DEL_HOLD", "PENDING"),
];

fn state(words: &[String]) -> Option<(String, Vec<String>)> {
    let known = |word: &str| FLAGS.iter().find(|(flag, _)| *flag == word);
    let upper: Vec<String> = words.iter().map(|word| word.to_uppercase()).collect();
    let base = upper.iter().find(|word| known(word).is_none());
    let base = match base {
        Some(base) => base.clone(),
        None => upper.iter().find_map(|word| known(word)).map(|(_, base)| (*base).to_owned())?,
    };
    let flags = upper.into_iter().filter(|word| *word != base).collect();
    Some((base, flags))
}

/// GPUs that a job asks for: what Slurm counted, or what its options say.
fn asked(row: &Row) -> (u32, Vec<String>) {
    let nodes = row.node_count.count().max(1);
    let sockets = row.sockets_per_node.count().max(1).saturating_mul(nodes);
    let options = [
        (&row.tres_per_job, 1),
        (&row.tres_per_node, nodes),
        (&row.tres_per_socket, sockets),
        (&row.tres_per_task, row.tasks.count().max(1)),
    ];
    let mut types: Vec<String> = Vec::new();
    let mut most = 0;
    for (option, times) in options {
        let gpus = gres::gpus(&option.0);
        let sum = gpus.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
        most = most.max(sum.saturating_mul(times));
        types.extend(gpus.into_iter().map(|(kind, _)| kind).filter(|kind| !kind.is_empty()));
    }
    // Counted GPUs are only there where the site lists them in AccountingStorageTRES.
    let counted = gres::gpus(&row.tres_req_str.0);
    types.extend(counted.iter().map(|(kind, _)| kind.clone()).filter(|kind| !kind.is_empty()));
    let counted = counted.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
    types.sort_unstable();
    types.dedup();
    let held = row.gres_detail.iter().fold(0_u32, |n, item| n.saturating_add(gres::count(&item.0)));
    let all = [counted, most, held].into_iter().find(|count| *count > 0).unwrap_or(0);
    (all, types)
}

/// GPUs by node: each item of `gres_detail` is a node's; without them an even share is taken.
fn held(row: &Row, nodes: &[String], asked: u32) -> Vec<(String, u32)> {
    let pairs: Vec<(String, u32)> = match row.gres_detail.len() == nodes.len() {
        true => {
            let counts = row.gres_detail.iter().map(|item| gres::count(&item.0));
            nodes.iter().cloned().zip(counts).collect()
        }
        false => {
            let all = match gres::count(&row.tres_alloc_str.0) {
                0 => asked,
                counted => counted,
            };
            let (share, rest) = (all / nodes.len().max(1) as u32, all % nodes.len().max(1) as u32);
            let extra = |index: usize| u32::from((index as u32) < rest);
            nodes.iter().enumerate().map(|(i, node)| (node.clone(), share + extra(i))).collect()
        }
    };
    pairs.into_iter().filter(|(_, count)| *count > 0).collect()
}

fn array(row: &Row) -> Option<(u32, Option<u32>)> {
    let id = row.array_job_id.positive()?;
    let index = row.array_task_id.0.and_then(|index| u32::try_from(index).ok());
    Some((id.min(i64::from(u32::MAX)) as u32, index))
}

/// How many jobs `1-3,7,10-20:2%4` stands for.
fn waiting_tasks(list: &str) -> u32 {
    let list = list.split('%').next().unwrap_or(list).trim_matches(['[', ']']);
    let mut count = 0_u64;
    for range in list.split(',').filter(|range| !range.is_empty()) {
        let (range, step) = range.split_once(':').unwrap_or((range, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.trim().parse::<u32>().ok().map(u64::from);
        // A long list is cut with `...`; what is behind is not known.
        let (Some(first), Some(last), Some(step)) = (number(first), number(last), number(step))
        else {
            continue;
        };
        count += last.saturating_sub(first) / step.max(1) + 1;
    }
    count.clamp(1, u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::{jobs, waiting_tasks};

    #[test]
    fn a_range_of_an_array_is_counted() {
        assert_eq!(waiting_tasks(""), 1);
        assert_eq!(waiting_tasks("2-3%2"), 2);
        assert_eq!(waiting_tasks("1-3,7,10-20:5"), 7);
        assert_eq!(waiting_tasks("0-4294967295,0-4294967295"), u32::MAX);
        assert_eq!(waiting_tasks("1-10,..."), 10);
    }

    #[test]
    fn a_bad_job_is_named_and_the_others_are_read() {
        let text = r#"{"jobs":[{"job_id":1,"job_state":"PENDING"},{"name":"x"},
            {"job_id":3,"job_state":["RUNNING"],"nodes":"n[1"},7,
            {"job_id":4,"job_state":"RUNNING","cpus":[1]},
            {"job_id":5,"job_state":["RUNNING","COMPLETING"],"nodes":"n1","new_field":{"a":[1]}}]}"#;
        let read = jobs(text.as_bytes()).unwrap();
        assert_eq!(read.rows.iter().map(|job| job.id).collect::<Vec<_>>(), [1, 5]);
        assert_eq!(read.skipped.count, 4);
        let told = read.skipped.first.join("\n");
        for word in
            ["jobs[1] (\"x\"): it has no job_id", "jobs[2] (3)", "brackets", "cpus: invalid"]
        {
            assert!(told.contains(word), "`{word}` is not in\n{told}");
        }
        assert_eq!(read.rows[1].flags, ["COMPLETING"]);
    }
}
