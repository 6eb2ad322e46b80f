//! `top`: the cluster in a terminal, as it changes.
//!
//! - `picture`: what the daemon said; `fetch`: asks it, in the background.
//! - `state`: what is on the screen; `rows`: which rows, in which order; `keys`: what each key does.
//! - `draw`: how it looks.
//!
//! Keys, pictures and the ends of errands arrive on one channel, so nothing that takes long stands before a key.

mod draw;
mod fetch;
mod keys;
mod picture;
mod rows;
mod state;
#[cfg(test)]
mod tests;

pub use state::View;

use super::args::TopArgs;
use super::client::Client;
use super::show::{now, versioned};
use crate::failure::Failure;
use crate::output::{Output, reason};
use draw::Palette;
use fetch::{Errand, Looker};
use keys::Outcome;
use picture::{Inside, Picture};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyEvent};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use ratatui::layout::Rect;
use state::Screen;
use std::io::{IsTerminal, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use trainyard_report::table::Ink;
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

/// Something the screen should know.
pub enum News {
    /// A key was pressed.
    Key(KeyEvent),
    /// The terminal has another size.
    Resized,
    /// The daemon was looked at.
    Picture(Box<Picture>),
    /// The daemon did not answer.
    Missed(String),
    /// A job was looked into.
    Inside(u32, Result<Box<Inside>, String>),
    /// Something to tell.
    Note(String),
    /// No key will come any more, or somebody wants it to end.
    Over,
}

/// `top`.
pub fn top(args: &TopArgs, output: &Output) -> Result<(), Failure> {
    let every = every(&args.every)?;
    let size = args.size.as_deref().map(size).transpose()?;
    if args.connection.json {
        let picture = Looker::new(Client::open(&args.connection)?).look(false)?;
        return output.print_json(&versioned(&picture));
    }
    let mut screen = Screen::new(args.view, every.as_secs_f64());
    screen.list_mut().filter = args.filter.clone().unwrap_or_default();
    if args.once || !stdout().is_terminal() {
        return once(args, screen, size, output);
    }
    let palette = Palette { ink: output.ink };
    watch(args, screen, every, palette)
}

/// One frame as text.
fn once(
    args: &TopArgs,
    mut screen: Screen,
    size: Option<(u16, u16)>,
    output: &Output,
) -> Result<(), Failure> {
    let client = Client::open(&args.connection)?;
    if let Some(job) = args.job {
        screen.open(job);
        screen.take_inside(job, Ok(Box::new(fetch::inside(&client, job)?)));
    }
    screen.take(Looker::new(client).look(false)?);
    screen.now = now();
    let terminal = terminal_size::terminal_size().map(|(width, height)| (width.0, height.0));
    let (width, height) = size.or(terminal).unwrap_or(SIZE_DEFAULT);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    draw::draw(&mut screen, Palette { ink: Ink::Plain }, buffer.area, &mut buffer);
    output.print(&draw::text(&buffer))
}

/// Frames until somebody has seen enough.
fn watch(
    args: &TopArgs,
    mut screen: Screen,
    every: Duration,
    palette: Palette,
) -> Result<(), Failure> {
    let (sender, news) = channel();
    let (errands, errands_taken) = channel();
    let with_ended = Arc::new(AtomicBool::new(false));
    // Whoever is wrong about the address is told so before the screen is taken.
    let looker = Looker::new(Client::open(&args.connection)?.asking_once());
    let client = Client::open(&args.connection)?.asking_once();
    if let Some(job) = args.job {
        let _ = errands.send(screen.open(job));
    }
    let flag = Arc::clone(&with_ended);
    let for_looks = sender.clone();
    std::thread::spawn(move || fetch::keep_looking(looker, every, &flag, &for_looks));
    let for_errands = sender.clone();
    std::thread::spawn(move || fetch::run_errands(&client, every, &errands_taken, &for_errands));
    let for_interrupts = sender.clone();
    // Without it an interrupt from outside still ends the program, only less tidily.
    let _ = ctrlc::set_handler(move || drop(for_interrupts.send(News::Over)));
    let held = Held::take()?;
    std::thread::spawn(move || read_keys(&sender));
    let shown = show(&mut screen, palette, &news, &errands, &with_ended);
    drop(held);
    shown.map_err(|error| Failure::Operation(format!("the terminal failed: {}", reason(&error))))
}

fn show(
    screen: &mut Screen,
    palette: Palette,
    news: &Receiver<News>,
    errands: &Sender<Errand>,
    with_ended: &AtomicBool,
) -> std::io::Result<()> {
    let mut terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
    loop {
        screen.now = now();
        terminal.draw(|frame| {
            draw::draw(screen, palette, frame.area(), frame.buffer_mut());
        })?;
        // Ages on the screen grow by the second, whether anything happens or not.
        let first = match news.recv_timeout(Duration::from_secs(1)) {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        // All that is there is taken before the next frame, so that held keys do not lag behind.
        for news in std::iter::once(first).chain(news.try_iter()) {
            match heard(screen, news) {
                Outcome::Stay => {}
                // Without a runner of errands the screen is about to end.
                Outcome::Send(errand) => drop(errands.send(errand)),
                Outcome::Quit => return Ok(()),
            }
        }
        with_ended.store(screen.with_ended, Ordering::Relaxed);
    }
}

fn heard(screen: &mut Screen, news: News) -> Outcome {
    match news {
        News::Key(key) => return keys::press(screen, key),
        News::Over => return Outcome::Quit,
        News::Resized => {}
        News::Picture(picture) => screen.take(*picture),
        News::Missed(message) => screen.missed = Some(message),
        News::Inside(job, found) => screen.take_inside(job, found),
        News::Note(text) => screen.note = text,
    }
    Outcome::Stay
}

fn read_keys(news: &Sender<News>) {
    loop {
        let said = match event::read() {
            Ok(Event::Key(key)) => News::Key(key),
            Ok(Event::Resize(..)) => News::Resized,
            Ok(_) => continue,
            Err(_) => News::Over,
        };
        let over = matches!(said, News::Over);
        if news.send(said).is_err() || over {
            return;
        }
    }
}

/// The terminal while it belongs to the screen; given back however the program ends.
struct Held;

impl Held {
    fn take() -> Result<Held, Failure> {
        let failed = |error: std::io::Error| {
            let why = reason(&error);
            Failure::Operation(format!("the terminal cannot be used: {why}; --once needs none"))
        };
        enable_raw_mode().map_err(failed)?;
        let held = Held;
        execute!(stdout(), EnterAlternateScreen, cursor::Hide).map_err(failed)?;
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        let _ = execute!(stdout(), LeaveAlternateScreen, cursor::Show);
        let _ = disable_raw_mode();
    }
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
