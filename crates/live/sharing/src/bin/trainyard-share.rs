//! The arbiter of one GPU by hand: sockets for jobs until its input ends. `docs/guide/gpu-sharing.md` shows its use.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use trainyard_sharing::{
    ClientOptions, ClientStats, OnOverdue, Server, ServerOptions, Settings, Share,
};
use trainyard_token::NO_CAP;
use trainyard_types::Span;

const USAGE: &str =
    "usage: trainyard-share [--window SPAN] [--quota LEAST:BASE:MOST] [--grace SPAN] [--charge]
                       SOCKET=REQUEST:LIMIT[:MIB] ...
REQUEST and LIMIT are permille of the GPU's time, MIB is the cap on memory.
Ends when its input does, and says then who got what.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match serve(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trainyard-share: {error}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn serve(arguments: &[String]) -> Result<(), String> {
    let (options, clients) = read(arguments)?;
    if clients.is_empty() {
        return Err("expected at least one SOCKET=REQUEST:LIMIT".to_owned());
    }
    let server = Server::start(options).map_err(|error| error.to_string())?;
    let mut names = Vec::new();
    for client in clients {
        names.push(client.socket.display().to_string());
        server.add(client).map_err(|error| error.to_string())?;
    }
    println!("ready");
    // What comes is of no interest, only that it ends.
    let mut bytes = [0; 4096];
    while std::io::stdin().lock().read(&mut bytes).is_ok_and(|count| count > 0) {}
    for (name, client) in names.iter().zip(server.stats().clients) {
        println!("{}", told(name, &client, &names));
    }
    Ok(())
}

fn read(arguments: &[String]) -> Result<(ServerOptions, Vec<ClientOptions>), String> {
    let mut options = ServerOptions::default();
    let mut clients = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--window" => options.settings.window = span(value()?)?,
            "--grace" => options.settings.grace = span(value()?)?,
            "--quota" => options.settings = quotas(options.settings, value()?)?,
            "--charge" => options.limits.on_overdue = OnOverdue::Charge,
            other if other.starts_with('-') => return Err(format!("unknown option `{other}`")),
            other => clients.push(client(other)?),
        }
    }
    Ok((options, clients))
}

fn span(text: &str) -> Result<Span, String> {
    text.parse().map_err(|error| format!("{error}"))
}

fn quotas(settings: Settings, text: &str) -> Result<Settings, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let [least, base, most] = parts[..] else {
        return Err(format!("expected LEAST:BASE:MOST, found `{text}`"));
    };
    Ok(Settings {
        quota_min: span(least)?,
        quota_base: span(base)?,
        quota_max: Some(span(most)?),
        ..settings
    })
}

fn client(text: &str) -> Result<ClientOptions, String> {
    let wrong =
        || format!("expected SOCKET=REQUEST:LIMIT or SOCKET=REQUEST:LIMIT:MIB, found `{text}`");
    let (socket, numbers) = text.rsplit_once('=').ok_or_else(wrong)?;
    let numbers: Option<Vec<u32>> = numbers.split(':').map(|part| part.parse().ok()).collect();
    let (request, limit, memory_cap) = match numbers.ok_or_else(wrong)?[..] {
        [request, limit] => (request, limit, NO_CAP),
        [request, limit, mib] => (request, limit, u64::from(mib) << 20),
        _ => return Err(wrong()),
    };
    let user = nix::unistd::getuid().as_raw();
    let share = Share { request, limit };
    Ok(ClientOptions { share, memory_cap, socket: PathBuf::from(socket), user })
}

/// One line about a client.
fn told(name: &str, client: &ClientStats, names: &[String]) -> String {
    let counters = &client.counters;
    let seconds = |span: Span| format!("{:.3}", span.as_secs_f64());
    let mut line = format!(
        "{name}: held {} s in {} turns, {} s past quotas, waited {} s, {} s at its limit, \
         {} revoked, memory peak {} MiB, {} refusals",
        seconds(counters.held),
        counters.grants,
        seconds(counters.overrun),
        seconds(counters.waited),
        seconds(counters.throttled_by_limit()),
        counters.revocations,
        client.memory_peak >> 20,
        client.memory_refusals,
    );
    for (other, span) in &counters.throttled_by {
        let other = names.get(other.0 as usize).map_or("one that left", String::as_str);
        line.push_str(&format!(", {} s behind {other}", seconds(*span)));
    }
    if client.never_said_hello() {
        line.push_str(", NEVER SAID HELLO: no program of it is hooked");
    }
    line
}
