//! Where a daemon keeps its things.

use super::host_args::StateArgs;
use crate::failure::Failure;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

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
    pub fn make(&self) -> Result<(), Failure> {
        let made = DirBuilder::new().recursive(true).mode(0o711).create(&self.state);
        made.map_err(|error| {
            let why = crate::output::reason(&error);
            Failure::Operation(format!("the folder {} cannot be made: {why}", self.state.display()))
        })
    }
}
