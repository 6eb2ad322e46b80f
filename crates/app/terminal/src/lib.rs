//! The cluster in a terminal, as it changes.
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

pub use picture::Picture;
pub use state::View;

use draw::Palette;
use fetch::{Errand, Looker};
use keys::Outcome;
use picture::Inside;
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
use std::io::stdout;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use trainyard_client::show::now;
use trainyard_client::{Client, ClientError};

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
    /// No key will come any more, or a signal asks it to end.
    Over,
}

/// What to begin with.
pub struct Start {
    /// The view.
    pub view: View,
    /// Words that rows must have, as `/` takes them.
    pub filter: String,
    /// A job that is looked into.
    pub job: Option<u32>,
    /// How often to look.
    pub every: Duration,
}

impl Start {
    fn screen(&self) -> Screen {
        let mut screen = Screen::new(self.view, self.every.as_secs_f64());
        screen.list_mut().filter.clone_from(&self.filter);
        screen
    }
}

/// All that the daemon says, once.
pub fn picture(client: Client) -> Result<Picture, ClientError> {
    Looker::new(client).look(false)
}

/// One frame as text, of that many columns and rows.
pub fn once(
    client: Client,
    start: &Start,
    (width, height): (u16, u16),
) -> Result<String, ClientError> {
    let mut screen = start.screen();
    if let Some(job) = start.job {
        screen.open(job);
        screen.take_inside(job, Ok(Box::new(fetch::inside(&client, job)?)));
    }
    screen.take(picture(client)?);
    screen.now = now();
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    draw::draw(&mut screen, Palette { coloured: false }, buffer.area, &mut buffer);
    Ok(draw::text(&buffer))
}

/// Frames until the user quits. One client polls, the other runs errands.
pub fn watch(
    (looker, client): (Client, Client),
    start: &Start,
    coloured: bool,
) -> std::io::Result<()> {
    let mut screen = start.screen();
    let (sender, news) = channel();
    let (errands, errands_taken) = channel();
    let with_ended = Arc::new(AtomicBool::new(false));
    let looker = Looker::new(looker.asking_once());
    let client = client.asking_once();
    if let Some(job) = start.job {
        let _ = errands.send(screen.open(job));
    }
    let every = start.every;
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
    let shown = show(&mut screen, Palette { coloured }, &news, &errands, &with_ended);
    drop(held);
    shown
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
    fn take() -> std::io::Result<Held> {
        enable_raw_mode()?;
        let held = Held;
        execute!(stdout(), EnterAlternateScreen, cursor::Hide)?;
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
