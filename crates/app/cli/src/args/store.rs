//! The command line of `store`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

const BACKUP_HELP: &str = "\
Example:
  trainyard store backup /var/lib/trainyard/store.db /backup/store-monday.db

The daemon may go on meanwhile. The backup is one file, as of one moment, and was read again after it was written.";

const RESTORE_HELP: &str = "\
Example:
  trainyard store restore /backup/store-monday.db /var/lib/trainyard/store.db --replace

The daemon must not run. The backup is checked before anything is touched.";

const REPAIR_HELP: &str = "\
Examples:
  trainyard store repair --dry-run /var/lib/trainyard/store.db
  trainyard store repair /var/lib/trainyard/store.db

The daemon must not run, and there must be room for two copies. A sound store is left alone.";

/// `store ...`.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Copy a store into one new file, also while a daemon uses it.
    #[command(after_help = BACKUP_HELP)]
    Backup {
        /// The store.
        store: PathBuf,
        /// The new file.
        to: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Put a backup in the place of a store.
    #[command(after_help = RESTORE_HELP)]
    Restore {
        /// The backup.
        backup: PathBuf,
        /// The store.
        store: PathBuf,
        /// Take the place of a store that is there; it is kept under another name.
        #[arg(long)]
        replace: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Read all of a store and compare its indexes with its tables, also while a daemon uses it.
    Check {
        /// The store.
        store: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Save what can be read of a damaged store; the damaged file is kept under another name.
    #[command(after_help = REPAIR_HELP)]
    Repair {
        /// The store.
        store: PathBuf,
        /// Only say what would be saved and lost.
        #[arg(long)]
        dry_run: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Drop what is old, and give its room back to the disk; a daemon does this by itself.
    Compact(CompactArgs),
}

/// `store compact`.
#[derive(Debug, Args)]
pub struct CompactArgs {
    /// The store.
    pub store: PathBuf,
    /// Drop events older than this [default: 30d].
    #[arg(long, value_name = "SPAN")]
    pub events: Option<String>,
    /// Drop lines of the audit log older than this [default: 365d].
    #[arg(long, value_name = "SPAN")]
    pub audit: Option<String>,
    /// Drop jobs that ended longer ago than this [default: 365d].
    #[arg(long, value_name = "SPAN")]
    pub ended_jobs: Option<String>,
    /// Drop keys of clients older than this [default: 30d].
    #[arg(long, value_name = "SPAN")]
    pub keys: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
