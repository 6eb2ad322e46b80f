//! `token create`, `token list` and `token drop`.

use super::args::{ConnectionArgs, TokenArgs, TokenCommand};
use super::connect::connect;
use crate::failure::Failure;
use crate::output::{Output, note, reason};
use serde_json::json;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use trainyard_api::access::Role;
use trainyard_api::ask;
use trainyard_api::token::{TokenInfo, TokenMade, TokenRequest};
use trainyard_client::show::{clock, versioned};
use trainyard_diagnostic::InputError;
use trainyard_experiment::options::span;
use trainyard_report::table::listing;

/// `token ...`.
pub fn run(command: &TokenCommand, output: &Output) -> Result<(), Failure> {
    match command {
        TokenCommand::Create(args) => create(args, output),
        TokenCommand::List(connection) => list(connection, output),
        TokenCommand::Drop { name, connection } => {
            connect(connection)?.send(&ask::drop_token(name.clone()))?;
            match connection.json {
                true => output.print_json(&versioned(json!({ "dropped": name }))),
                false => output.print(&format!("token {name} is worthless now\n")),
            }
        }
    }
}

fn create(args: &TokenArgs, output: &Output) -> Result<(), Failure> {
    let role = role(&args.role)?;
    let expires = args.expires.as_deref().map(|text| span("--expires", text)).transpose()?;
    if let Some(path) = args.output.as_deref().filter(|path| path.exists()) {
        // Checked before a token is made that could then not be written.
        return Err(Failure::Operation(format!("{}: is there already", path.display())));
    }
    let client = connect(&args.connection)?;
    // Without a user the daemon says whom the token stands for: the caller, but never root.
    let TokenMade { token, info } = client.send(&ask::add_token(TokenRequest {
        name: args.name.clone(),
        user: args.user.clone(),
        role,
        expires_seconds: expires.map(|span| span.as_secs_f64()),
    }))?;
    if let Some(path) = &args.output {
        write_secret(path, &token)?;
    }
    let shown = args.output.is_none().then_some(&token);
    if args.connection.json {
        return output.print_json(&versioned(json!({ "token": shown, "info": info })));
    }
    let place = args.output.as_ref().map(|path| path.display().to_string());
    note(&format!("token {} makes requests of {} as {}", info.name, info.user, info.role.name()));
    match (shown, place) {
        (Some(token), _) => {
            eprintln!(
                "keep it: it is not shown again; TRAINYARD_TOKEN_FILE names the file it is read from"
            );
            output.print(&format!("{token}\n"))
        }
        (None, place) => output.print(&format!("{}\n", place.unwrap_or_default())),
    }
}

/// The role of a name.
pub fn role(name: &str) -> Result<Role, Failure> {
    Role::named(name).ok_or_else(|| {
        let names = Role::ALL.iter().map(|(name, _)| *name);
        Failure::input("--role", InputError::unknown(0, "role", name, names))
    })
}

/// A file that only its owner can read, from the first byte on.
fn write_secret(path: &Path, token: &str) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| {
        writeln!(file, "{token}")?;
        file.sync_all()
    });
    written.map_err(|error| {
        let what = format!("{}: cannot be written: {}", path.display(), reason(&error));
        Failure::Operation(format!("{what}; drop the token and make it again"))
    })
}

fn list(connection: &ConnectionArgs, output: &Output) -> Result<(), Failure> {
    let client = connect(connection)?;
    if connection.json {
        return output.print_json(&versioned(client.value(&ask::tokens())?));
    }
    let tokens = client.send(&ask::tokens())?;
    let row = |token: &TokenInfo| {
        let expires = token.expires.map_or_else(|| "never".to_owned(), clock);
        let role = token.role.name().to_owned();
        vec![token.name.clone(), token.user.clone(), role, clock(token.created), expires]
    };
    let rows: Vec<Vec<String>> = tokens.iter().map(row).collect();
    let heading = ["name", "user", "role", "made", "ends"];
    output.print(&listing(&heading, &rows, output.ink, output.width))
}
