//! What each key does.

use super::fetch::Errand;
use super::rows;
use super::state::{Mode, Screen, View};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use trainyard_api::request::Act;

/// All keys, as the help shows them.
pub const KEYS: &[(&str, &str)] = &[
    ("1-5, tab", "cluster, jobs, tenants, events, daemon"),
    ("arrows, j, k", "move; in a job, scroll its log"),
    ("pages, g, G", "move by a screen, to the first, to the last"),
    ("enter", "open: a job, the jobs of a node or a tenant, the job of an event"),
    ("esc", "go back; drop the filter"),
    ("/", "filter by words: ada resnet; or exactly: user:ada is:waiting node:n3"),
    ("s", "sort in another way"),
    ("a", "list ended jobs too"),
    ("c", "cancel the job"),
    ("h", "hold the job"),
    ("r", "release the job"),
    ("?", "this help"),
    ("q", "quit"),
];

/// What comes of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Nothing outside the screen.
    Stay,
    /// Something is to be asked of the daemon.
    Send(Errand),
    /// The end.
    Quit,
}

/// Does what a key says.
pub fn press(screen: &mut Screen, key: KeyEvent) -> Outcome {
    if key.kind == KeyEventKind::Release {
        return Outcome::Stay;
    }
    let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL)
        && matches!(key.code, KeyCode::Char('c' | 'd'));
    if is_interrupt {
        return Outcome::Quit;
    }
    match screen.mode.clone() {
        Mode::Look => look(screen, key.code),
        Mode::Type => letter(screen, key.code),
        Mode::Ask(job, act) => answer(screen, key.code, (job, act)),
        Mode::Help => {
            screen.mode = Mode::Look;
            if key.code == KeyCode::Char('q') { Outcome::Quit } else { Outcome::Stay }
        }
    }
}

fn look(screen: &mut Screen, code: KeyCode) -> Outcome {
    screen.note.clear();
    match code {
        KeyCode::Char('q') => return Outcome::Quit,
        KeyCode::Char('?') => screen.mode = Mode::Help,
        KeyCode::Char('c') => screen.ask(Act::Cancel { reason: None }),
        KeyCode::Char('r') => screen.ask(Act::Release),
        KeyCode::Char('h') => screen.ask(Act::Hold),
        KeyCode::Enter => return enter(screen),
        KeyCode::Esc | KeyCode::Backspace => return back(screen),
        KeyCode::Tab => return turn(screen, 1),
        KeyCode::BackTab => return turn(screen, View::ALL.len() - 1),
        KeyCode::Char(digit @ '1'..='5') => {
            return show(screen, View::ALL[digit as usize - '1' as usize]);
        }
        code if screen.open.is_some() => scroll_log(screen, code),
        KeyCode::Char('/') => screen.mode = Mode::Type,
        KeyCode::Char('s') => sort(screen),
        KeyCode::Char('a') => {
            screen.with_ended = !screen.with_ended;
            screen.note = match screen.with_ended {
                true => "ended jobs are listed from the next look on".to_owned(),
                false => "only jobs that have not ended".to_owned(),
            };
        }
        code => walk(screen, code),
    }
    Outcome::Stay
}

fn turn(screen: &mut Screen, by: usize) -> Outcome {
    let next = (screen.view as usize + by) % View::ALL.len();
    show(screen, View::ALL[next])
}

fn show(screen: &mut Screen, view: View) -> Outcome {
    screen.view = view;
    match screen.open.take() {
        Some(_) => Outcome::Send(Errand::Close),
        None => Outcome::Stay,
    }
}

fn enter(screen: &mut Screen) -> Outcome {
    if screen.open.is_some() {
        return back(screen);
    }
    if let Some(job) = screen.job() {
        return Outcome::Send(screen.open(job));
    }
    let chosen = match screen.view {
        View::Cluster => screen.node().map(|node| format!("node:{}", node.name)),
        View::Tenants => {
            let tenants = screen.picture.as_ref().map(|picture| &picture.tenants);
            let row = screen.list().current().and_then(|row| tenants?.get(row));
            row.map(|tenant| format!("tenant:{}", tenant.tenant))
        }
        View::Jobs | View::Events | View::Daemon => None,
    };
    if let Some(filter) = chosen {
        screen.view = View::Jobs;
        let list = screen.list_mut();
        (list.filter, list.selected, list.meant) = (filter, 0, None);
        screen.arrange(View::Jobs);
    }
    Outcome::Stay
}

fn back(screen: &mut Screen) -> Outcome {
    if screen.open.take().is_some() {
        return Outcome::Send(Errand::Close);
    }
    screen.list_mut().filter.clear();
    screen.arrange(screen.view);
    Outcome::Stay
}

fn sort(screen: &mut Screen) {
    let names = rows::orders(screen.view);
    let list = screen.list_mut();
    list.sort = (list.sort + 1) % names.len();
    let name = names[list.sort];
    screen.note = format!("sorted by {name}");
    screen.arrange(screen.view);
}

fn walk(screen: &mut Screen, code: KeyCode) {
    let on_map = screen.view == View::Cluster;
    let list = screen.list_mut();
    let last = list.order.len().saturating_sub(1);
    let line = if on_map { list.columns.max(1) } else { 1 };
    let page = list.page.max(1) * line;
    list.selected = match code {
        KeyCode::Up | KeyCode::Char('k') if list.selected < line => list.selected,
        KeyCode::Up | KeyCode::Char('k') => list.selected - line,
        KeyCode::Down | KeyCode::Char('j') if list.selected + line > last => list.selected,
        KeyCode::Down | KeyCode::Char('j') => list.selected + line,
        KeyCode::Left if on_map => list.selected.saturating_sub(1),
        KeyCode::Right if on_map => (list.selected + 1).min(last),
        KeyCode::PageUp => list.selected.saturating_sub(page),
        KeyCode::PageDown => (list.selected + page).min(last),
        KeyCode::Home | KeyCode::Char('g') => 0,
        KeyCode::End | KeyCode::Char('G') => last,
        _ => return,
    };
    screen.remember(screen.view);
}

fn scroll_log(screen: &mut Screen, code: KeyCode) {
    let Some(open) = &mut screen.open else { return };
    open.scroll = match code {
        KeyCode::Up | KeyCode::Char('k') => open.scroll + 1,
        KeyCode::Down | KeyCode::Char('j') => open.scroll.saturating_sub(1),
        KeyCode::PageUp => open.scroll + 10,
        KeyCode::PageDown => open.scroll.saturating_sub(10),
        KeyCode::Home | KeyCode::Char('g') => usize::MAX / 2,
        KeyCode::End | KeyCode::Char('G') => 0,
        _ => return,
    };
}

/// The longest filter.
const FILTER_MAX: usize = 200;

fn letter(screen: &mut Screen, code: KeyCode) -> Outcome {
    let list = screen.list_mut();
    match code {
        KeyCode::Char(letter) if list.filter.len() < FILTER_MAX => list.filter.push(letter),
        KeyCode::Backspace => {
            list.filter.pop();
        }
        KeyCode::Esc => {
            list.filter.clear();
            screen.mode = Mode::Look;
        }
        KeyCode::Enter | KeyCode::Down | KeyCode::Up | KeyCode::Tab => screen.mode = Mode::Look,
        _ => {}
    }
    screen.arrange(screen.view);
    Outcome::Stay
}

fn answer(screen: &mut Screen, code: KeyCode, (job, act): (u32, Act)) -> Outcome {
    screen.mode = Mode::Look;
    match code {
        KeyCode::Char('y' | 'Y') => Outcome::Send(Errand::Act(job, act)),
        _ => {
            screen.note = "nothing was done".to_owned();
            Outcome::Stay
        }
    }
}
