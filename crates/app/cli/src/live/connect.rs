//! A client of the daemon, by the flags of a command.

use super::args::ConnectionArgs;
use crate::failure::Failure;
use crate::output::note;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use trainyard_client::show::clock;
use trainyard_client::{Address, Client, ClientError, Connection, Stale, address};
use trainyard_diagnostic::InputError;
use trainyard_experiment::files::read_text;

/// Finds the daemon; nothing is asked yet.
pub fn connect(args: &ConnectionArgs) -> Result<Client, Failure> {
    let address = match &args.server {
        Some(text) => {
            text.parse().map_err(|_| Failure::flag("--server", text, address::EXPECTED))?
        }
        None => Address::search().map_err(Failure::problem)?,
    };
    let roots = args.ca.as_deref().map(read_text).transpose()?;
    let token = token(args.token_file.as_deref())?;
    let connection = Connection { address, token, roots, for_people: !args.json, warn };
    Client::new(connection).map_err(|_| {
        let fault = InputError::wrong(0, "", "its text", "certificates as PEM");
        Failure::input(args.ca.as_deref().unwrap_or(Path::new("--ca")).display(), fault)
    })
}

fn warn(stale: Stale) {
    note(&format!(
        "warning: the daemon cannot write its store since {}: nothing new is accepted, and what is shown is as of {}; \
         `trainyard status` says why",
        clock(stale.since),
        clock(stale.as_of)
    ));
}

/// The token from the file or `TRAINYARD_TOKEN`; never from the command line, which others can read.
fn token(file: Option<&Path>) -> Result<Option<String>, Failure> {
    let (source, text) = match file {
        Some(path) => {
            let open =
                std::fs::metadata(path).is_ok_and(|data| data.permissions().mode() & 0o077 != 0);
            if open {
                let name = path.display();
                eprintln!(
                    "warning: {name}: others can read this token; `chmod 600 {name}` closes it"
                );
            }
            (path.display().to_string(), read_text(path)?)
        }
        None => match std::env::var("TRAINYARD_TOKEN") {
            Ok(text) if !text.is_empty() => ("TRAINYARD_TOKEN".to_owned(), text),
            _ => return Ok(None),
        },
    };
    let token = text.trim();
    if token.is_empty() || token.len() > 4096 || !token.bytes().all(|byte| byte.is_ascii_graphic())
    {
        // The token itself is not shown.
        let fault =
            InputError::wrong(0, "token", "its text", "one word, as `token create` shows it");
        return Err(Failure::input(source, fault));
    }
    Ok(Some(token.to_owned()))
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        match error {
            ClientError::Problem(problem) => Failure::Problem(problem),
            ClientError::NotUnderstood(what) => Failure::Operation(what),
        }
    }
}
