//! What is on the screen, apart from how it looks.

use super::fetch::Errand;
use super::picture::{Inside, Picture};
use super::rows;
use clap::ValueEnum;
use trainyard_api::access::{self, Caller, Right, Role};
use trainyard_api::answer::{JobRow, NodeRow};
use trainyard_api::request::Act;

/// What a screen shows.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum View {
    /// Nodes and their GPUs.
    Cluster,
    /// What runs and what waits.
    Jobs,
    /// Shares.
    Tenants,
    /// What happened.
    Events,
    /// The policy, warnings and counters.
    Daemon,
}

impl View {
    /// In the order of their numbers.
    pub const ALL: [View; 5] =
        [View::Cluster, View::Jobs, View::Tenants, View::Events, View::Daemon];

    /// Its name on the screen.
    pub fn name(self) -> &'static str {
        match self {
            View::Cluster => "cluster",
            View::Jobs => "jobs",
            View::Tenants => "tenants",
            View::Events => "events",
            View::Daemon => "daemon",
        }
    }
}

/// The rows of one view: which, in which order, and which one is meant.
#[derive(Clone, Debug, Default)]
pub struct List {
    /// Words that rows must have.
    pub filter: String,
    /// Which of the orders of its view.
    pub sort: usize,
    /// Indices into the picture, in order.
    pub order: Vec<u32>,
    /// The row that is meant, as a place in the order.
    pub selected: usize,
    /// What that row is, so that it stays meant when others come and go.
    pub meant: Option<u64>,
    /// The first row that is visible.
    pub scroll: usize,
    /// Rows on the screen, as the last frame had them.
    pub page: usize,
    /// Cells in a row of the screen, as the last frame had them.
    pub columns: usize,
}

impl List {
    /// The index of the row that is meant.
    pub fn current(&self) -> Option<usize> {
        self.order.get(self.selected).map(|index| *index as usize)
    }

    /// Moves the scroll so that the row that is meant is visible among so many lines.
    pub fn show(&mut self, lines: usize) {
        self.page = lines.max(1);
        let columns = self.columns.max(1);
        let line = self.selected.min(self.order.len()) / columns;
        let last = self.order.len().div_ceil(columns).saturating_sub(self.page);
        let from = (line + 1).saturating_sub(self.page);
        self.scroll = self.scroll.clamp(from, line.max(from)).min(last);
    }
}

/// What keys mean at the moment.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// They move and open.
    Look,
    /// They are letters of the filter.
    Type,
    /// They answer a question.
    Ask(u32, Act),
    /// They close the help.
    Help,
}

/// A job that is looked into.
#[derive(Clone, Debug, Default)]
pub struct Open {
    /// Which.
    pub job: u32,
    /// What is known of it.
    pub inside: Option<Box<Inside>>,
    /// Why nothing is.
    pub missed: Option<String>,
    /// Measured speeds since it was opened, in steps a second.
    pub rates: Vec<f64>,
    /// Lines from the end of its log.
    pub scroll: usize,
}

/// Speeds that are kept for the curve.
const RATES_MAX: usize = 200;

/// The screen.
pub struct Screen {
    /// What it shows.
    pub view: View,
    /// What the daemon last said.
    pub picture: Option<Picture>,
    /// Why it does not answer.
    pub missed: Option<String>,
    /// The rows of each view.
    pub lists: [List; 5],
    /// What keys mean.
    pub mode: Mode,
    /// The job that is looked into.
    pub open: Option<Open>,
    /// The last thing that was said to the user.
    pub note: String,
    /// Whether jobs that have ended are listed too.
    pub with_ended: bool,
    /// Now, in seconds of Unix time.
    pub now: f64,
    /// Seconds between looks.
    pub every: f64,
}

impl Screen {
    /// An empty screen.
    pub fn new(view: View, every: f64) -> Screen {
        Screen {
            view,
            picture: None,
            missed: None,
            lists: Default::default(),
            mode: Mode::Look,
            open: None,
            note: String::new(),
            with_ended: false,
            now: 0.0,
            every,
        }
    }

    /// The rows of the view.
    pub fn list(&self) -> &List {
        &self.lists[self.view as usize]
    }

    /// The same, to be changed.
    pub fn list_mut(&mut self) -> &mut List {
        &mut self.lists[self.view as usize]
    }

    /// Takes in what the daemon said.
    pub fn take(&mut self, picture: Picture) {
        self.picture = Some(picture);
        self.missed = None;
        for view in View::ALL {
            self.arrange(view);
        }
    }

    /// Takes in what was found out about a job; what comes late for another one is dropped.
    pub fn take_inside(&mut self, job: u32, found: Result<Box<Inside>, String>) {
        let Some(open) = self.open.as_mut().filter(|open| open.job == job) else { return };
        match found {
            Ok(inside) => {
                open.rates.extend(inside.detail.measured.rate);
                let beyond = open.rates.len().saturating_sub(RATES_MAX);
                open.rates.drain(..beyond);
                (open.inside, open.missed) = (Some(inside), None);
            }
            Err(message) => open.missed = Some(message),
        }
    }

    /// Chooses and orders the rows of a view anew; the row that was meant stays meant if it is there.
    pub fn arrange(&mut self, view: View) {
        let Some(picture) = &self.picture else { return };
        let list = &mut self.lists[view as usize];
        list.order = rows::arranged(view, picture, &list.filter, list.sort);
        let place = list.meant.and_then(|meant| {
            list.order.iter().position(|row| rows::identity(view, picture, *row) == meant)
        });
        list.selected = place.unwrap_or(list.selected).min(list.order.len().saturating_sub(1));
        self.remember(view);
    }

    /// Writes down what the selected row is.
    pub fn remember(&mut self, view: View) {
        let Some(picture) = &self.picture else { return };
        let list = &mut self.lists[view as usize];
        list.meant = list.order.get(list.selected).map(|row| rows::identity(view, picture, *row));
    }

    /// The node that is meant.
    pub fn node(&self) -> Option<&NodeRow> {
        self.picture.as_ref()?.nodes.get(self.lists[View::Cluster as usize].current()?)
    }

    /// The job that is meant: the open one, the one in the list, or the one of the event.
    pub fn job(&self) -> Option<u32> {
        if let Some(open) = &self.open {
            return Some(open.job);
        }
        let picture = self.picture.as_ref()?;
        let row = self.list().current()?;
        match self.view {
            View::Jobs => picture.jobs.get(row).map(|job| job.id),
            View::Events => picture.events.get(row)?.job,
            View::Cluster | View::Tenants | View::Daemon => None,
        }
    }

    /// The row of a job, if it has not ended.
    pub fn row(&self, job: u32) -> Option<&JobRow> {
        let known = self.picture.as_ref()?.jobs.iter().find(|row| row.id == job);
        let open = self.open.as_ref().filter(|open| open.job == job);
        known.or_else(|| Some(&open?.inside.as_ref()?.detail.row))
    }

    /// Opens a job.
    pub fn open(&mut self, job: u32) -> Errand {
        self.open = Some(Open { job, ..Open::default() });
        Errand::Open(job)
    }

    /// Asks whether something should be done, or says why it may not.
    pub fn ask(&mut self, act: Act) {
        let Some(job) = self.job() else {
            self.note = "choose a job first: 2 lists them".to_owned();
            return;
        };
        match self.may(job) {
            Ok(()) => self.mode = Mode::Ask(job, act),
            Err(why) => self.note = why,
        }
    }

    /// Whether the user may act on a job, by the same table as the daemon's.
    fn may(&self, job: u32) -> Result<(), String> {
        let Some(row) = self.row(job) else {
            return Err(format!("job {job} has ended, or is not known yet"));
        };
        if row.state.is_over() {
            return Err(format!("job {job} has ended"));
        }
        let Some(status) = self.picture.as_ref().map(|picture| &picture.status) else {
            return Err("the daemon has not answered yet".to_owned());
        };
        // A role of a newer daemon is left to the daemon itself.
        let Some(role) = Role::named(&status.role) else { return Ok(()) };
        let caller = Caller::named(&status.user, role);
        access::check(&caller, Right::RuleJob, Some(&row.user)).map_err(|problem| problem.detail)
    }
}
