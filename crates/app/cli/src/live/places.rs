//! Where a daemon keeps its things.

use super::host_args::StateArgs;
use crate::failure::Failure;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The folders and files of one daemon.
pub struct Places {
    /// Everything.
    pub state: PathBuf,
    /// The store.
    pub store: PathBuf,
    /// Directories of attempts.
    pub run: PathBuf,
    /// The flight record.
    pub flight: PathBuf,
    /// The daemon's own certificate.
    pub tls: PathBuf,
    /// The socket where commands look.
    pub socket: PathBuf,
}

impl Places {
    /// By the flags, what a service manager says, and the user.
    pub fn find(args: &StateArgs) -> Result<Places, Failure> {
        let folder =
            |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = nix::unistd::geteuid().is_root();
        let home = || folder("HOME").map(|home| home.join(".trainyard"));
        let usual = match root {
            true => Some(PathBuf::from("/var/lib/trainyard")),
            false => home(),
        };
        let state = args.state.clone().or_else(|| folder("STATE_DIRECTORY")).or(usual);
        let state = state.ok_or_else(|| {
            Failure::Operation(
                "HOME is not set: say with --state where everything is kept".to_owned(),
            )
        })?;
        let state = std::path::absolute(&state)
            .map_err(|error| Failure::Operation(format!("{}: {error}", state.display())))?;
        let own = folder("XDG_RUNTIME_DIR").map(|folder| folder.join("trainyard"));
        let beside = match (&args.state, folder("RUNTIME_DIRECTORY"), root) {
            (Some(_), _, _) => state.clone(),
            (None, Some(folder), _) => folder,
            (None, None, true) => PathBuf::from("/run/trainyard"),
            (None, None, false) => own.unwrap_or_else(|| state.join("run")),
        };
        let places = Places {
            store: state.join("store.db"),
            run: state.join("run"),
            flight: state.join("flight"),
            tls: state.join("tls"),
            socket: beside.join("api.sock"),
            state,
        };
        Ok(places)
    }

    /// Makes the folder for everything. Others may pass through it to their attempts, and see nothing of it.
    /// What is there already must be this user's own.
    pub fn make(&self) -> Result<(), Failure> {
        for folder in [&self.state, &self.run, &self.flight, &self.tls] {
            // What lies elsewhere is a folder that is shared with the nodes of a cluster, and checked by its backend.
            if folder.starts_with(&self.state) {
                check(folder)?;
            }
        }
        let made = DirBuilder::new().recursive(true).mode(0o711).create(&self.state);
        made.map_err(|error| {
            let why = crate::output::reason(&error);
            Failure::Operation(format!("the folder {} cannot be made: {why}", self.state.display()))
        })
    }
}

/// Whether a folder that is there already is this user's own: a user who can write to it can put another store, other
/// keys or other attempts there.
fn check(folder: &Path) -> Result<(), Failure> {
    let Ok(found) = std::fs::symlink_metadata(folder) else { return Ok(()) };
    let shown = folder.display();
    let own = nix::unistd::geteuid();
    let refused = |what: String| Err(Failure::Operation(format!("{shown}: {what}")));
    // A link leads to where its owner likes; one of this user or of root may be meant.
    let found = match found.is_symlink() {
        true if found.uid() != own.as_raw() && found.uid() != 0 => {
            return refused(format!("this is a link of user {}: remove it", found.uid()));
        }
        true => match std::fs::metadata(folder) {
            Ok(found) => found,
            Err(_) => return Ok(()),
        },
        false => found,
    };
    if !found.is_dir() {
        return refused("this is no folder: move it away, or name another with --state".to_owned());
    }
    if found.uid() != own.as_raw() {
        return refused(format!(
            "it belongs to user {}, who can change everything in it, and the daemon is user {own}: \
             `chown -R {own} {shown}` if all in it is to be trusted, or name another folder with --state",
            found.uid()
        ));
    }
    match found.mode() {
        mode if mode & 0o002 != 0 => refused(format!(
            "every user can write to it (mode {:04o}): `chmod go-w {shown}` closes it; look before that whether all in \
             it is yours",
            mode & 0o7777
        )),
        mode if mode & 0o020 != 0 => {
            let mode = mode & 0o7777;
            tracing::warn!(
                "{shown}: its group can write to it (mode {mode:04o}): `chmod g-w {shown}` closes it"
            );
            Ok(())
        }
        _ => Ok(()),
    }
}
