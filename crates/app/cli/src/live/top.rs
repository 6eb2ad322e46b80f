//! `top`: the cluster in a terminal, as it changes.

use super::args::TopArgs;
use super::connect::connect;
use crate::failure::Failure;
use crate::output::{Output, reason};
use std::io::{IsTerminal, stdout};
use std::time::Duration;
use trainyard_client::show::versioned;
use trainyard_report::table::Ink;
use trainyard_terminal::Start;
use trainyard_types::Span;

/// What follows the help of the command.
pub const HELP: &str = "\
Examples:
  trainyard top
  trainyard top --view jobs --filter 'user:ada is:waiting'
  trainyard top --once --size 120x40         one frame as text, for a log or a mail
  trainyard top --job 12                     begin with one job: speed, launches, log

Keys: 1-5 or tab change the view, arrows or j and k move, enter opens, esc goes back, / filters, s sorts,
c cancels, h holds, r releases (each asks once), ? shows all keys, q quits.
On the map a letter is a job, a digit says how many jobs share a GPU, a dot is free, an x is out of service.";

/// The size of a frame where there is no terminal.
const SIZE_DEFAULT: (u16, u16) = (80, 24);

/// `top`.
pub fn top(args: &TopArgs, output: &Output) -> Result<(), Failure> {
    let start = Start {
        view: args.view,
        filter: args.filter.clone().unwrap_or_default(),
        job: args.job,
        every: every(&args.every)?,
    };
    let size = args.size.as_deref().map(size).transpose()?;
    if args.connection.json {
        let picture = trainyard_terminal::picture(connect(&args.connection)?)?;
        return output.print_json(&versioned(&picture));
    }
    if args.once || !stdout().is_terminal() {
        let terminal = terminal_size::terminal_size().map(|(width, height)| (width.0, height.0));
        let size = size.or(terminal).unwrap_or(SIZE_DEFAULT);
        return output.print(&trainyard_terminal::once(connect(&args.connection)?, &start, size)?);
    }
    // A wrong address is told before the screen is taken.
    let clients = (connect(&args.connection)?, connect(&args.connection)?);
    trainyard_terminal::watch(clients, &start, output.ink == Ink::Colour).map_err(|error| {
        let why = reason(&error);
        Failure::Operation(format!("the terminal cannot be used: {why}; --once needs none"))
    })
}

fn every(text: &str) -> Result<Duration, Failure> {
    let span = text.parse::<Span>().ok().map(|span| span.as_secs_f64());
    let span = span.filter(|seconds| (0.1..=3600.0).contains(seconds));
    let expected = "a span from 100ms to 1h, such as 2s";
    span.map(Duration::from_secs_f64).ok_or_else(|| Failure::flag("--every", text, expected))
}

fn size(text: &str) -> Result<(u16, u16), Failure> {
    let parts = text.split_once('x');
    let sides = parts.and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
    let sides = sides.filter(|(w, h)| (20..=1000).contains(w) && (6..=1000).contains(h));
    let expected = "COLUMNSxROWS from 20x6 to 1000x1000, such as 120x40";
    sides.ok_or_else(|| Failure::flag("--size", text, expected))
}
