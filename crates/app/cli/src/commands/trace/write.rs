//! Traces in our own format, as files.

use crate::failure::Failure;
use flate2::{Compression, GzBuilder};
use std::io::{self, Write};
use std::path::Path;
use trainyard_types::Cluster;
use trainyard_workload::{Workload, trace};

/// How a trace is written.
#[derive(Copy, Clone)]
pub struct Form {
    is_json: bool,
    is_packed: bool,
}

/// The form that a name asks for.
pub fn form_of(path: &Path) -> Result<Form, Failure> {
    let name = path.to_string_lossy();
    let is_packed = name.ends_with(".gz");
    let name = name.trim_end_matches(".gz");
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("csv") => Ok(Form { is_json: false, is_packed }),
        Some("jsonl" | "ndjson") => Ok(Form { is_json: true, is_packed }),
        // A device or a pipe has no extension.
        _ if path.exists() && !path.is_file() && !path.is_dir() => {
            Ok(Form { is_json: false, is_packed })
        }
        _ => {
            let expected = "a name that ends in .csv or .jsonl, with .gz to pack it";
            Err(Failure::flag("--out", &path.display().to_string(), expected))
        }
    }
}

/// Writes a trace in a form.
pub fn write(
    workload: &Workload,
    cluster: &Cluster,
    form: Form,
    file: &mut dyn Write,
) -> io::Result<()> {
    let plain = |out: &mut dyn Write| match form.is_json {
        true => trace::write_jsonl(workload, cluster, out),
        false => trace::write_csv(workload, cluster, out),
    };
    if !form.is_packed {
        return plain(file);
    }
    // No time stamp, so that the same trace gives the same bytes.
    let mut packed = GzBuilder::new().mtime(0).write(file, Compression::default());
    plain(&mut packed)?;
    packed.finish().map(|_| ())
}
