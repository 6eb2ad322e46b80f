//! `token create`, `token list` and `token drop`.

use super::args::{ConnectionArgs, TokenArgs, TokenCommand};
use super::client::{Client, Repeat, encoded};
use super::show::{clock, versioned};
use crate::failure::Failure;
use crate::options::span;
use crate::output::{Output, note, reason};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use trainyard_daemon::access::Role;
use trainyard_daemon::service::TokenInfo;
use trainyard_profile::InputError;
use trainyard_report::table::listing;

#[derive(Deserialize)]
struct Tokens {
    tokens: Vec<TokenInfo>,
}

#[derive(Deserialize)]
struct Made {
    token: String,
    info: TokenInfo,
}

/// `token ...`.
pub fn run(command: &TokenCommand, output: &Output) -> Result<(), Failure> {
    match command {
        TokenCommand::Create(args) => create(args, output),
        TokenCommand::List(connection) => list(connection, output),
        TokenCommand::Drop { name, connection } => {
            Client::open(connection)?.delete(&format!("/tokens/{}", encoded(name)))?;
            match connection.json {
                true => output.print_json(&versioned(json!({ "dropped": name }))),
                false => output.print(&format!("token {name} is worthless now\n")),
            }
        }
    }
}

fn create(args: &TokenArgs, output: &Output) -> Result<(), Failure> {
    let role = Role::named(&args.role).ok_or_else(|| {
        let names = Role::ALL.iter().map(|(name, _)| *name);
        Failure::input("--role", InputError::unknown(0, "role", &args.role, names))
    })?;
    let expires = args.expires.as_deref().map(|text| span("--expires", text)).transpose()?;
    if let Some(path) = args.output.as_deref().filter(|path| path.exists()) {
        // Before a token is made that nobody would then have.
        return Err(Failure::Operation(format!("{}: is there already", path.display())));
    }
    let client = Client::open(&args.connection)?;
    // Without a name the daemon says whom it stands for: whoever asks, but never root.
    let request = json!({
        "name": args.name,
        "user": args.user,
        "role": role.name(),
        "expires_seconds": expires.map(|span| span.as_secs_f64()),
    });
    let Made { token, info } = client.send("POST", "/tokens", &request, Repeat::Unsent)?;
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
    let client = Client::open(connection)?;
    if connection.json {
        return output.print_json(&versioned(client.get::<Value>("/tokens", &[])?));
    }
    let Tokens { tokens } = client.get("/tokens", &[])?;
    let row = |token: &TokenInfo| {
        let expires = token.expires.map_or_else(|| "never".to_owned(), clock);
        let role = token.role.name().to_owned();
        vec![token.name.clone(), token.user.clone(), role, clock(token.created), expires]
    };
    let rows: Vec<Vec<String>> = tokens.iter().map(row).collect();
    let heading = ["name", "user", "role", "made", "ends"];
    output.print(&listing(&heading, &rows, output.ink, output.width))
}
