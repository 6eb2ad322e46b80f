//! What every reader of foreign bytes must hold, as one function for each family of readers.
//!
//! A target takes bytes and panics when a promise is broken: no reader panics, overflows, hangs or eats memory; what
//! is refused is refused with words; what is taken can be written and read back. `fuzz_targets/` hands each function
//! to libFuzzer, `seeds/NAME` holds inputs to start from, and `run` builds and runs them all on a stable toolchain.

use std::collections::BTreeSet;
use std::io::{Cursor, Read};
use std::sync::LazyLock;
use trainyard_experiment::{packing, spec as spec_text};
use trainyard_profile::import::{chronus, elasticflow, gavel, muri};
use trainyard_profile::{Catalog, profile_file};
use trainyard_slurm::{Inventory, NodeFilter, SlurmSeen, nodelist};
use trainyard_types::{Cluster, Tenants};
use trainyard_workload::import::{FORMATS, Format, ImportContext, Imported, detect, import};
use trainyard_workload::{ReadError, TraceContext, Workload, generate, scenario, switches, trace};

/// The most bytes that are taken out of an archive.
const UNPACKED_MAX: u64 = 1 << 22;
/// Small enough that whatever a target draws is drawn in no time.
const JOBS_MAX: u32 = 200;

/// A few of the built-in models: copying all of them takes longer than most readers.
static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
    let wanted = ["pollux-bert", "elasticflow-resnet50", "gavel-a3c", "muri-vgg"];
    let mut catalog = Catalog::default();
    for (_, model) in Catalog::builtin().iter() {
        if wanted.iter().any(|begin| model.name.starts_with(begin)) {
            catalog.add(model.clone());
        }
    }
    catalog
});
static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::uniform(2, 4, "v100"));

/// A trace in the format that its first bytes show, with and without a cluster.
pub fn trace(data: &[u8]) {
    let Some(format) = detect(data) else { return };
    for cluster in [None, Some(&*CLUSTER)] {
        imported(format, data, cluster);
    }
}

/// The same bytes by a reader of the table, whatever they look like; their number picks it, so that an input is quick.
pub fn trace_as(data: &[u8]) {
    imported(&FORMATS[data.len() % FORMATS.len()], data, None);
}

/// Our own trace, both forms: what is read, written and read again is the same.
pub fn own_trace(data: &[u8]) {
    let cluster = &*CLUSTER;
    for is_csv in [true, false] {
        let read = |text: &[u8], tenants: &Tenants| {
            let (catalog, tenants) = (CATALOG.clone(), tenants.clone());
            let context = TraceContext { name: "t".to_owned(), cluster, catalog, tenants };
            match is_csv {
                true => trace::read_csv(text, context),
                false => trace::read_jsonl(text, context),
            }
        };
        let workload = match read(data, &Tenants::default()) {
            Ok(workload) => workload,
            Err(error) => {
                refused(&error);
                continue;
            }
        };
        let mut text = Vec::new();
        let written = match is_csv {
            true => trace::write_csv(&workload, cluster, &mut text),
            false => trace::write_jsonl(&workload, cluster, &mut text),
        };
        written.expect("a vector takes everything");
        let back = read(&text, &workload.tenants);
        let back = back.unwrap_or_else(|error| {
            panic!("what was written is refused: {error}\n{}", String::from_utf8_lossy(&text))
        });
        assert!(back.labels == workload.labels && back.jobs == workload.jobs, "not the same");
        let _ = workload.check(cluster);
    }
}

/// A cluster as a line, as TOML and as a table of switches.
pub fn cluster(data: &[u8]) {
    if let Err(error) = switches::read(data, "v100") {
        refused(&error);
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    // A million nodes are valid and slow; what reads them is the same for ten.
    if text.bytes().filter(u8::is_ascii_digit).count() > 40 || has_number_above(text, 5_000) {
        return;
    }
    match trainyard_workload::cluster::parse(text) {
        Ok((cluster, tenants)) => {
            let line = trainyard_workload::cluster::line_of(&cluster);
            assert!(!line.is_empty() && cluster.gpus() > 0, "a cluster without GPUs: {text}");
            let known = cluster
                .kinds
                .iter()
                .all(|kind| trainyard_workload::cluster::default_kind(&kind.name).is_some());
            if known {
                let again = trainyard_workload::cluster::parse_line(&line);
                let again = again.unwrap_or_else(|error| panic!("`{line}`: {error}"));
                assert_eq!(again.gpus(), cluster.gpus(), "{line}");
            }
            assert!(tenants.iter().count() >= 1);
        }
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
}

/// A scenario.
pub fn scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if has_number_above(text.lines().find(|l| l.starts_with("cluster")).unwrap_or(""), 5_000) {
        return;
    }
    match scenario::parse(text) {
        Ok(scenario) => {
            let _ = scenario.workload.check(&scenario.cluster);
            let _ = scenario.workload.offered_load(&scenario.cluster);
        }
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
}

/// A user's profiles: what is read, written and read again is the same.
pub fn profile(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(models) = profile_file::read(text) else { return };
    assert_eq!(profile_file::read(&profile_file::write(&models)), Ok(models));
}

/// Published tables of speeds: what is taken is a profile that can be written and read.
pub fn profile_import(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let all = [
        gavel::read(text),
        elasticflow::read(text, "bert", "a100"),
        muri::read(text),
        chronus::read(text),
    ];
    for models in all.into_iter().flatten() {
        assert!(!models.is_empty());
        assert_eq!(profile_file::read(&profile_file::write(&models)), Ok(models));
    }
}

/// An archive, and the trace in it.
pub fn unpack(data: &[u8]) {
    let packing = packing::Packing::of(data);
    let Ok(content) = packing::unpacked(packing, Cursor::new(data.to_vec())) else { return };
    let mut bytes = Vec::new();
    match content.take(UNPACKED_MAX).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() < 1 << 12 => trace(&bytes),
        Ok(_) => {}
        Err(error) => assert!(error.to_string().contains("archive"), "{error}"),
    }
}

/// Laws of the generator, one pair to a line, and the jobs they draw.
pub fn spec(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let spec = match spec_text::read("--generate", 7, text.lines()) {
        Ok(spec) => spec,
        Err(failure) => {
            assert!(!failure.message().is_empty());
            return;
        }
    };
    if spec.jobs > JOBS_MAX || spec.tenants > JOBS_MAX {
        return;
    }
    match generate(&spec, &CATALOG, &CLUSTER) {
        Ok(workload) => {
            assert_eq!(workload.jobs.len(), spec.jobs as usize);
            sound(&workload);
        }
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
}

/// Answers of Slurm, and its lists of nodes: each row is read or named, and nodes make a cluster.
pub fn slurm(data: &[u8]) {
    match trainyard_slurm::read::jobs(data) {
        Ok(read) => assert!(read.rows.iter().all(|job| job.id > 0 && !job.state.is_empty())),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(read) = trainyard_slurm::read::nodes(data) {
        let seen = SlurmSeen { nodes: read.rows, ..SlurmSeen::default() };
        let made = Inventory::of(&seen, &NodeFilter::default());
        assert_eq!(made.places.len(), made.cluster.nodes.len());
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(names) = nodelist::expand(text) else { return };
    assert!(names.len() <= nodelist::NAMES_MAX);
    // Brackets are the only letters that a name of a node cannot have.
    if names.iter().all(|name| !name.contains([',', ' '])) {
        let back = nodelist::expand(&nodelist::compress(names.iter().map(String::as_str)));
        let (back, names): (BTreeSet<_>, BTreeSet<_>) = (
            back.expect("what is written is a list").into_iter().collect(),
            names.iter().map(|name| name.trim().to_owned()).collect(),
        );
        assert_eq!(back, names);
    }
}

fn imported(format: &'static Format, data: &[u8], cluster: Option<&Cluster>) {
    let (catalog, tenants) = (CATALOG.clone(), Tenants::default());
    let context = ImportContext { name: "t".to_owned(), cluster, catalog, tenants };
    match import(format, data, context) {
        Ok(Imported { workload, cluster, report }) => {
            assert_eq!(report.rows, report.kept + report.dropped_rows(), "{}", format.name);
            assert_eq!(report.kept, workload.jobs.len() as u64, "{}", format.name);
            assert!(!report.text().is_empty());
            sound(&workload);
            let _ = workload.check(&cluster);
        }
        Err(error) => refused(&error),
    }
}

/// What no reader and no law may let through.
fn sound(workload: &Workload) {
    for pair in workload.jobs.windows(2) {
        assert!(pair[0].job.submitted <= pair[1].job.submitted, "jobs are out of order");
    }
    for one in &workload.jobs {
        assert!(one.work.0.is_finite() && one.work.0 > 0.0, "work of {}", one.work.0);
        assert!(one.job.want.gpus > 0, "a job without GPUs");
    }
}

/// A fault says something, and bytes in memory are never out of reach.
fn refused(error: &ReadError) {
    assert!(error.input().is_some_and(|fault| !fault.to_string().is_empty()), "{error:?}");
}

fn has_number_above(text: &str, most: u64) -> bool {
    let numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    numbers.into_iter().any(|part| part.parse::<u64>().map_or(true, |number| number > most))
}
