//! `web`: the page, with a token that ends by itself.

use super::args::WebArgs;
use super::connect::connect;
use crate::failure::Failure;
use crate::output::Output;
use serde_json::json;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};
use trainyard_api::ask;
use trainyard_api::token::TokenRequest;
use trainyard_client::Address;
use trainyard_client::Client;
use trainyard_client::show::versioned;
use trainyard_experiment::options::span;

/// `web`.
pub fn run(args: &WebArgs, output: &Output) -> Result<(), Failure> {
    let lasts = span("--expires", &args.expires)?.as_secs_f64();
    let client = connect(&args.connection)?;
    let url = page(&client)?;
    let status = client.send(&ask::status())?;
    let role = args.role.clone().unwrap_or_else(|| status.role.clone());
    let allowed = super::tokens::role(&role)?;
    if status.role != "admin" {
        // Only admins make tokens; a user who has one already signs in with it.
        eprintln!(
            "you are {} here, and only an admin makes tokens: sign in with yours, or ask for one\n  \
             trainyard token create NAME --user {} --role {role} --expires {}",
            status.role, status.user, args.expires
        );
        return shown(&url, None, args, output);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let made = client.send(&ask::add_token(TokenRequest {
        name: format!("web-{}-{}", status.user, now.as_micros()),
        user: None,
        role: allowed,
        expires_seconds: Some(lasts),
    }))?;
    shown(&url, Some(&made.token), args, output)
}

/// Where a browser finds the page: where the daemon is asked, or where it says it listens.
fn page(client: &Client) -> Result<String, Failure> {
    if let Address::Web(base) = client.address() {
        return Ok(format!("{base}/"));
    }
    client.send(&ask::page())?.url.ok_or_else(|| {
        Failure::Operation(format!(
            "{} listens on a Unix socket only, and browsers cannot use one: start it without --no-page, or with a TCP \
             address beside its socket, such as `trainyard serve --listen unix:PATH --listen 127.0.0.1:7780`",
            client.address()
        ))
    })
}

/// The token is behind `#`, which no browser sends to a server; the page takes it out of the address at once.
fn shown(url: &str, token: Option<&str>, args: &WebArgs, output: &Output) -> Result<(), Failure> {
    let whole = token.map_or_else(|| url.to_owned(), |token| format!("{url}#token={token}"));
    if args.connection.json {
        return output.print_json(&versioned(json!({ "url": url, "token": token })));
    }
    output.print(&format!("{whole}\n"))?;
    if token.is_some() {
        eprintln!("this address signs in for {}: keep it to yourself", args.expires);
    }
    if args.open && !opened(&whole) {
        eprintln!("no browser was found: open the address by hand");
    }
    Ok(())
}

fn opened(url: &str) -> bool {
    let quiet = |program: &str| {
        Command::new(program).arg(url).stdout(Stdio::null()).stderr(Stdio::null()).status()
    };
    ["xdg-open", "open"].iter().any(|program| quiet(program).is_ok_and(|status| status.success()))
}
