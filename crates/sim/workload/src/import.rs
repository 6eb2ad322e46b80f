//! Traces of other systems, read into a [`Workload`] with a report of what became of every row.
//!
//! [`FORMATS`] is the one table: a row for each format, with a test of its first bytes and a reader.
//! Every reader streams: it holds the jobs it keeps and one row at a time, and refuses a line or a JSON element of
//! more than [`PIECE_MAX`] bytes.
//!
//! One rule holds for all formats of others: **a value that is not there drops its row, a value that is wrong stops
//! the import.** Not there means empty, `None`, `null`, `nan`, `N/A`, `Unknown`, or the format's own mark such as -1.
//! What is dropped is counted by reason in the [`ImportReport`], with the first line of each reason.
//! Rows without GPUs are dropped, for there is nothing to schedule on GPUs. Jobs that failed or were cancelled are
//! kept with the time they really ran, because that is what they cost; their number is in the report.
//! Calendar times become seconds from the first submission; times that are numbers stay as they are.

mod acme;
mod bounded;
mod chronus;
mod elasticflow;
mod elements;
mod gavel;
mod helios;
mod kubernetes;
mod live;
mod moment;
mod openb;
mod own;
mod pai;
mod philly;
mod pollux;
mod report;
mod sacct;
mod sacct_json;
mod salus;
mod shockwave;
mod sink;
mod sniff;
mod swf;
mod table;

use crate::{CompactWorkload, ReadError, Workload};
use std::io::{BufRead, Read};
use trainyard_diagnostic::InputError;
use trainyard_profile::Catalog;
use trainyard_types::{Cluster, Tenants};

pub use bounded::PIECE_MAX;
pub(crate) use elements::json_fault;
pub use report::{Count, ImportReport, Quantiles, TypeLoad};
pub(crate) use sink::{Sink, Skip};
pub(crate) use sniff::Sniff;

/// How many bytes at the beginning are enough to tell formats apart.
pub const SNIFF_BYTES: usize = 1 << 16;

/// A format of traces.
pub struct Format {
    /// Its name on the command line.
    pub name: &'static str,
    /// Whose it is, in a few words.
    pub about: &'static str,
    detect: fn(&Sniff<'_>) -> bool,
    piece: Piece,
    read: fn(&mut dyn BufRead, &mut Sink) -> Result<(), ReadError>,
}

/// What is held at a time, and therefore bounded.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Piece {
    Line,
    /// An element of a JSON list; the whole document may be one line.
    Element,
}

/// All formats; the first whose test says yes is taken, so the more special ones come first.
pub const FORMATS: &[Format] = &[
    Format {
        name: "csv",
        about: "our own, as CSV",
        // With a column missing or misspelt it is still ours, and the reader says what is wrong.
        detect: |sniff| sniff.has_columns(&["submit_s"]) || sniff.has_columns(&["id", "gpus"]),
        piece: Piece::Line,
        read: own::read_csv,
    },
    Format {
        name: "jsonl",
        about: "our own, as JSON lines",
        detect: |sniff| {
            let first = sniff.first_line();
            let job = first.trim_start().starts_with('{') && first.contains("\"submit_s\"");
            job || first.contains("\"trainyard_trace\"")
        },
        piece: Piece::Line,
        read: own::read_jsonl,
    },
    Format {
        name: "muri",
        about: "the Muri simulator, CSV in milliseconds",
        detect: |sniff| sniff.has_columns(&["num_gpu", "resource_time_0"]),
        piece: Piece::Line,
        read: own::read_muri,
    },
    Format {
        name: "salus",
        about: "Salus, its list of workloads",
        detect: |sniff| sniff.has_columns(&["workload", "peak_mem_mib", "iterations"]),
        piece: Piece::Line,
        read: salus::read,
    },
    Format {
        name: "chronus",
        about: "the Chronus simulator, CSV in minutes with deadlines and values",
        detect: |sniff| sniff.has_columns(&["num_gpu", "expect_time_list"]),
        piece: Piece::Line,
        read: chronus::read,
    },
    Format {
        name: "elasticflow",
        about: "ElasticFlow, CSV with deadlines, both namings",
        detect: |sniff| {
            sniff.has_columns(&["num_gpu", "ddl"]) || sniff.has_columns(&["num_gpu", "deadline"])
        },
        piece: Piece::Line,
        read: elasticflow::read,
    },
    Format {
        name: "tiresias",
        about: "the Tiresias simulator, CSV in seconds",
        detect: |sniff| sniff.has_columns(&["num_gpu", "submit_time", "iterations", "interval"]),
        piece: Piece::Line,
        read: own::read_tiresias,
    },
    Format {
        name: "pollux",
        about: "the Pollux and Sia simulators, CSV",
        detect: |sniff| sniff.has_columns(&["application", "num_replicas"]),
        piece: Piece::Line,
        read: pollux::read,
    },
    Format {
        name: "openb",
        about: "Alibaba gpu-v2023, table of pods",
        detect: |sniff| sniff.has_columns(&["num_gpu", "gpu_milli"]),
        piece: Piece::Line,
        read: openb::read,
    },
    Format {
        name: "acme",
        about: "ACME of Shanghai AI Laboratory, Seren and Kalos",
        detect: |sniff| {
            sniff.has_columns(&["gpu_num", "submit_time", "type"])
                || sniff.has_columns(&["gpu_num", "submit_time", "fail_time"])
        },
        piece: Piece::Line,
        read: acme::read,
    },
    Format {
        name: "helios",
        about: "SenseTime Helios, cluster_log.csv",
        detect: |sniff| sniff.has_columns(&["gpu_num", "submit_time", "state"]),
        piece: Piece::Line,
        read: helios::read,
    },
    Format {
        name: "pai2020",
        about: "Alibaba PAI 2020, table of tasks",
        detect: pai::detect,
        piece: Piece::Line,
        read: pai::read,
    },
    Format {
        name: "shockwave",
        about: "the Shockwave simulator, Gavel's lines with batch-size modes",
        detect: |sniff| sniff.first_row('\t').count() == 12,
        piece: Piece::Line,
        read: gavel::read_shockwave,
    },
    Format {
        name: "gavel",
        about: "the Gavel simulator, 10 fields or the old 7",
        detect: |sniff| matches!(sniff.first_row('\t').count(), 7 | 10),
        piece: Piece::Line,
        read: gavel::read,
    },
    Format {
        name: "sacct",
        about: "Slurm accounting, sacct -P",
        detect: sacct::detect,
        piece: Piece::Line,
        read: sacct::read,
    },
    Format {
        name: "trainyard-live",
        about: "the history of a daemon of our own, trainyard ps -a --json",
        detect: |sniff| sniff.first_byte() == Some(b'{') && sniff.contains("\"ran_seconds\""),
        piece: Piece::Element,
        read: live::read,
    },
    Format {
        name: "sacct-json",
        about: "Slurm accounting, sacct --json",
        detect: |sniff| sniff.first_byte() == Some(b'{') && sniff.contains("\"jobs\""),
        piece: Piece::Element,
        read: sacct_json::read,
    },
    Format {
        name: "kubernetes",
        about: "Kubernetes: a JSON list of Jobs or of Kueue Workloads",
        detect: |sniff| sniff.first_byte() == Some(b'{') && sniff.contains("\"items\""),
        piece: Piece::Element,
        read: kubernetes::read,
    },
    Format {
        name: "philly",
        about: "Microsoft Philly, cluster_job_log",
        detect: |sniff| sniff.first_byte() == Some(b'['),
        piece: Piece::Element,
        read: philly::read,
    },
    Format {
        name: "swf",
        about: "Standard Workload Format of the Parallel Workloads Archive",
        detect: swf::detect,
        piece: Piece::Line,
        read: swf::read,
    },
];

impl Format {
    /// The format of that name.
    pub fn named(name: &str) -> Option<&'static Format> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// Whether it is ours, so that everything in it is meant and nothing is dropped.
    pub fn is_own(&self) -> bool {
        matches!(self.name, "csv" | "jsonl")
    }
}

/// The format of a text by its first bytes; [`SNIFF_BYTES`] of them are enough.
pub fn detect(begin: &[u8]) -> Option<&'static Format> {
    let sniff = Sniff::new(begin);
    FORMATS.iter().find(|format| (format.detect)(&sniff))
}

/// What an import starts from.
#[derive(Clone)]
pub struct ImportContext<'a> {
    /// What the workload is called.
    pub name: String,
    /// The cluster it is meant for; without one, types of GPU are taken as the trace names them.
    pub cluster: Option<&'a Cluster>,
    /// The models known so far.
    pub catalog: Catalog,
    /// The tenants known so far.
    pub tenants: Tenants,
}

impl<'a> ImportContext<'a> {
    /// The built-in models and no tenants yet.
    pub fn new(name: &str, cluster: Option<&'a Cluster>) -> ImportContext<'a> {
        let (catalog, tenants) = (Catalog::builtin(), Tenants::default());
        ImportContext { name: name.to_owned(), cluster, catalog, tenants }
    }
}

/// What came of an import.
#[derive(Debug)]
pub struct Imported {
    /// The jobs.
    pub workload: Workload,
    /// The cluster that was given, or one without nodes that has the types the trace names.
    pub cluster: Cluster,
    /// What became of the rows.
    pub report: ImportReport,
}

/// The same with the jobs in little room.
#[derive(Debug)]
pub struct Compact {
    /// The jobs.
    pub workload: CompactWorkload,
    /// The cluster that was given, or one without nodes that has the types the trace names.
    pub cluster: Cluster,
    /// What became of the rows.
    pub report: ImportReport,
}

impl Compact {
    /// The same with the jobs at full length.
    pub fn into_whole(self) -> Imported {
        let Compact { workload, cluster, report } = self;
        Imported { workload: workload.into_whole(), cluster, report }
    }
}

/// Reads a trace in a format.
pub fn import(
    format: &'static Format,
    reader: impl BufRead,
    context: ImportContext<'_>,
) -> Result<Imported, ReadError> {
    let mut imported = import_compact(format, reader, context)?.into_whole();
    imported.report.describe(&imported.workload, &imported.cluster);
    Ok(imported)
}

/// Reads a trace in a format for a caller that needs the jobs: the report counts rows and does not say what the jobs
/// look like, which costs a good part of the time of reading them.
pub fn import_compact(
    format: &'static Format,
    reader: impl BufRead,
    context: ImportContext<'_>,
) -> Result<Compact, ReadError> {
    let mut sink = Sink::new(format.name, context);
    let mut reader = reader;
    if reader.fill_buf()?.is_empty() {
        return Err(InputError::missing(1, "", "a trace, but the file is empty").into());
    }
    match format.piece {
        Piece::Line => (format.read)(&mut bounded::Bounded::new(reader), &mut sink)?,
        Piece::Element => (format.read)(&mut reader, &mut sink)?,
    }
    sink.finish()
}

/// Reads a trace in the format that its first bytes show.
pub fn import_any(reader: impl Read, context: ImportContext<'_>) -> Result<Imported, ReadError> {
    let mut reader = std::io::BufReader::with_capacity(SNIFF_BYTES, reader);
    let Some(format) = detect(reader.fill_buf()?) else {
        return Err(unknown_format(reader.fill_buf()?).into());
    };
    import(format, reader, context)
}

/// The fault of a text that is in no known format.
pub fn unknown_format(begin: &[u8]) -> InputError {
    let sniff = Sniff::new(begin);
    let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
    let expected = format!("the beginning of a known format, or --format: {}", names.join(", "));
    if sniff.first_line().is_empty() {
        return InputError::missing(1, "", expected);
    }
    InputError::wrong(1, "", sniff.first_line(), expected)
}
