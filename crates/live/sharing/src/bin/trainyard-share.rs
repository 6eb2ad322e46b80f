//! The arbiter of one GPU by hand: sockets for jobs until its input ends. `docs/guide/gpu-sharing.md` shows its use.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use trainyard_sharing::control;
use trainyard_sharing::{
    ClientId, ClientOptions, ClientStats, OnOverdue, Server, ServerOptions, Settings, Share, Told,
};
use trainyard_token::NO_CAP;
use trainyard_types::Span;

const USAGE: &str =
    "usage: trainyard-share [--window SPAN] [--quota LEAST:BASE:MOST] [--grace SPAN] [--charge] [--json]
                       SOCKET=REQUEST:LIMIT[:MIB] ...
       trainyard-share [...] --control FOLDER [--idle SPAN]
REQUEST and LIMIT are permille of the GPU's time, MIB is the cap on memory.
Ends when its input does, and says then who got what; with --json it says so as JSON after each line of its input.
With --control it is told its clients over FOLDER/control, and ends when it had none for a while (60s).";

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
    let given = read(arguments)?;
    if let Some(folder) = &given.control {
        let served = control::serve(folder, given.options, given.idle, || {});
        return served.map_err(|error| format!("{}: {error}", folder.display()));
    }
    if given.clients.is_empty() {
        return Err("expected at least one SOCKET=REQUEST:LIMIT".to_owned());
    }
    let server = Server::start(given.options).map_err(|error| error.to_string())?;
    let mut names = BTreeMap::new();
    for client in given.clients {
        let name = client.socket.display().to_string();
        names.insert(server.add(client).map_err(|error| error.to_string())?, name);
    }
    println!("ready");
    if given.tells_json {
        tell_lines(&server, &names);
        return Ok(());
    }
    // What comes is of no interest, only that it ends.
    let mut bytes = [0; 4096];
    while std::io::stdin().lock().read(&mut bytes).is_ok_and(|count| count > 0) {}
    for client in server.stats().clients {
        println!("{}", told(&client, &names));
    }
    Ok(())
}

/// A line of JSON for each line of input, until it ends.
fn tell_lines(server: &Server, names: &BTreeMap<ClientId, String>) {
    for line in std::io::stdin().lock().lines() {
        let told = Told::new(&server.stats(), names);
        let text = serde_json::to_string(&told).expect("figures and texts are JSON");
        println!("{text}");
        if line.is_err() {
            return;
        }
    }
}

/// What the arguments say.
#[derive(Default)]
struct Given {
    options: ServerOptions,
    clients: Vec<ClientOptions>,
    tells_json: bool,
    control: Option<PathBuf>,
    idle: Duration,
}

fn read(arguments: &[String]) -> Result<Given, String> {
    let Given { mut options, mut clients, mut tells_json, mut control, .. } = Given::default();
    let mut idle = control::IDLE;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--window" => options.settings.window = span(value()?)?,
            "--grace" => options.settings.grace = span(value()?)?,
            "--quota" => options.settings = quotas(options.settings, value()?)?,
            "--control" => control = Some(PathBuf::from(value()?)),
            "--idle" => idle = Duration::from_micros(span(value()?)?.0),
            "--json" => tells_json = true,
            "--charge" => options.limits.on_overdue = OnOverdue::Charge,
            other if other.starts_with('-') => return Err(format!("unknown option `{other}`")),
            other => clients.push(client(other)?),
        }
    }
    Ok(Given { options, clients, tells_json, control, idle })
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
    let socket = PathBuf::from(socket);
    Ok(ClientOptions { share, memory_cap, socket, user, turns: true })
}

/// One line about a client.
fn told(client: &ClientStats, names: &BTreeMap<ClientId, String>) -> String {
    let counters = &client.counters;
    let name = |id: &ClientId| names.get(id).map_or("one that left", String::as_str);
    let seconds = |span: Span| format!("{:.3}", span.as_secs_f64());
    let mut line = format!(
        "{}: held {} s in {} turns, {} s past quotas, waited {} s, {} s at its limit, \
         {} revoked, memory peak {} MiB, {} refusals",
        name(&client.client),
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
        line.push_str(&format!(", {} s behind {}", seconds(*span), name(other)));
    }
    if client.never_said_hello() {
        line.push_str(", NEVER SAID HELLO: no program of it is hooked");
    }
    line
}
