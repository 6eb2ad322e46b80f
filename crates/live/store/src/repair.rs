//! Saving what is left of a damaged store.

use crate::copy::{install, verify};
use crate::error::{StoreError, explain};
use crate::lock::Lock;
use crate::salvage::{Salvaged, salvage};
use crate::schema::{self, TABLES};
use crate::store::build;
use crate::{connection, disk, read};
use rusqlite::Connection;
use std::fs;
use std::path::{Path, PathBuf};

/// Faults that a report lists at most.
const FAULTS_MAX: u32 = 100;

/// Every SQLite file begins with a header of this length.
const HEADER_BYTES: usize = 100;

/// What a repair found, and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairReport {
    /// The store.
    pub path: PathBuf,
    /// What a check of the whole file says; empty when it is sound.
    pub faults: Vec<String>,
    /// Whether the header was unreadable and the usual one was taken instead.
    pub header_replaced: bool,
    /// What came of each table, by name.
    pub tables: Vec<(&'static str, Salvaged)>,
    /// Where the damaged file is now; `None` when nothing was changed.
    pub set_aside: Option<PathBuf>,
}

impl RepairReport {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty() && !self.header_replaced && !self.loses_rows()
    }

    /// Whether there are rows that cannot be saved.
    pub fn loses_rows(&self) -> bool {
        self.tables.iter().any(|(_, table)| {
            table.refused > 0 || !table.gaps.is_empty() || table.unreadable.is_some()
        })
    }

    /// Rows that can be saved.
    pub fn kept(&self) -> u64 {
        self.tables.iter().map(|(_, table)| table.kept).sum()
    }
}

/// Reads a store with its log, says what is wrong, and saves what can be read into a new file.
///
/// A dry run says the same and changes nothing. Otherwise the damaged file stays beside the new one. A sound store is
/// left alone. All work is done on a copy, so there must be room for two.
pub fn repair(path: &Path, dry_run: bool) -> Result<RepairReport, StoreError> {
    fs::metadata(path).map_err(|error| StoreError::io(path, &error))?;
    let mut lock = Lock::take(path)?;
    let bench = Bench::new(path)?;
    let mut report = RepairReport {
        path: path.to_owned(),
        faults: Vec::new(),
        header_replaced: false,
        tables: Vec::new(),
        set_aside: None,
    };
    let damaged = bench.open(path, &mut report)?;
    let faults = read::faults(&damaged, "integrity_check", FAULTS_MAX);
    report.faults.extend(faults.unwrap_or_else(|error| vec![error.to_string()]));
    let new = bench.path("new.db");
    save(&damaged, &new, &mut report)?;
    drop(damaged);
    if dry_run || report.is_sound() {
        return Ok(report);
    }
    if report.kept() == 0 {
        let reason = "nothing in it can be read, so there is nothing to repair it from";
        return Err(StoreError::damaged(path, reason));
    }
    verify(&connection::reader(&new)?, &new)?;
    report.set_aside = install(&new, path, ".damaged")?;
    lock.mark_closed();
    Ok(report)
}

/// Copies the readable rows of all tables into a new file.
fn save(damaged: &Connection, new: &Path, report: &mut RepairReport) -> Result<(), StoreError> {
    let mut saved = build(new)?;
    let transaction = saved.transaction().map_err(explain(new))?;
    for table in TABLES {
        let salvaged = salvage(damaged, &transaction, table).map_err(explain(new))?;
        report.tables.push((table.name, salvaged));
    }
    transaction.execute_batch(AFTER_SALVAGE).map_err(explain(new))?;
    transaction.commit().map_err(explain(new))?;
    saved.close().map_err(|(_, error)| explain(new)(error))
}

/// A number that something still mentions is not given again, and an ended job has a time of its end.
const AFTER_SALVAGE: &str = r#"
    UPDATE jobs
    SET ended = coalesce((SELECT max(ended) FROM attempts WHERE attempts.job = jobs.job), wall)
    WHERE "end" IS NOT NULL AND ended IS NULL;
    INSERT INTO floors (name, value)
    SELECT 'job', 1 + max(
        coalesce((SELECT max(job) FROM jobs), -1),
        coalesce((SELECT max(job) FROM attempts), -1),
        coalesce((SELECT max(job) FROM events), -1)
    )
    WHERE true
    ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value);
    INSERT INTO floors (name, value) SELECT 'event', coalesce(max(seq), 0) FROM events
    WHERE true
    ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value);
"#;

/// A folder beside the store with a copy to work on; it goes away in the end.
struct Bench {
    folder: PathBuf,
}

impl Bench {
    fn new(store: &Path) -> Result<Bench, StoreError> {
        let bench = Bench { folder: disk::free_name(store, ".repair") };
        disk::make_folder(&bench.path("copy.db"))?;
        for suffix in ["", "-wal"] {
            let (from, to) =
                (disk::beside(store, suffix), disk::beside(&bench.path("copy.db"), suffix));
            if from.exists() {
                fs::copy(&from, &to).map_err(|error| StoreError::io(&to, &error))?;
                disk::make_private(&to)?;
            }
        }
        Ok(bench)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Opens the copy, with the usual header if its own cannot be read.
    fn open(&self, store: &Path, report: &mut RepairReport) -> Result<Connection, StoreError> {
        let copy = self.path("copy.db");
        let open = || {
            let connection = connection::writer(&copy)?;
            schema::version_of(&connection, store).map(|_| connection)
        };
        match open() {
            Err(StoreError::Damaged { reason, .. }) => {
                report.faults.push(reason);
                report.header_replaced = true;
                self.replace_header(&copy)?;
                let renamed = |error| match error {
                    StoreError::Damaged { reason, .. } => StoreError::damaged(store, reason),
                    other => other,
                };
                open().map_err(renamed)
            }
            other => other,
        }
    }

    /// All stores of a version have the same header but for counts, which SQLite can do without.
    fn replace_header(&self, copy: &Path) -> Result<(), StoreError> {
        let model = self.path("model.db");
        build(&model)?.close().map_err(|(_, error)| explain(&model)(error))?;
        let content = fs::read(&model).map_err(|error| StoreError::io(&model, &error))?;
        let mut damaged = fs::read(copy).map_err(|error| StoreError::io(copy, &error))?;
        if damaged.len() < content.len().min(2 * HEADER_BYTES) {
            return Err(StoreError::damaged(copy, "the file is cut off in its first page"));
        }
        damaged[..HEADER_BYTES].copy_from_slice(&content[..HEADER_BYTES]);
        // A count of pages of another change than the last is not believed, and the size of the file counts.
        damaged[24..28].copy_from_slice(&[0, 0, 0, 1]);
        damaged[92..96].copy_from_slice(&[0, 0, 0, 2]);
        // The log, if there is one, is to be read.
        damaged[18..20].fill(2);
        // No free pages: those that there are hold nothing.
        damaged[32..40].fill(0);
        fs::write(copy, damaged).map_err(|error| StoreError::io(copy, &error))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // What is left of it is named after what it is for.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
