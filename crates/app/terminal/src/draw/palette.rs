//! Colours, and what stands in for them where there are none.

use ratatui::style::{Color, Modifier, Style};
use trainyard_api::answer::QueueState;

/// Colours of jobs, from the 256 that terminals agree on: light enough for black letters, and apart from each other.
const JOB_COLOURS: [u8; 12] = [75, 214, 114, 211, 179, 80, 177, 149, 209, 117, 222, 141];

/// Letters of jobs. Digits say how many share a GPU.
const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// How things look.
#[derive(Copy, Clone, Debug)]
pub struct Palette {
    /// Whether there are colours.
    pub coloured: bool,
}

impl Palette {
    /// A job's letter and look: the same on the map, in lists and at the next look.
    pub fn job(self, id: u32) -> (char, Style) {
        let letter = char::from(LETTERS[id as usize % LETTERS.len()]);
        (letter, self.colour(Style::new().fg(Color::Black).bg(job_colour(id))))
    }

    /// A GPU that several jobs share: how many, in the colours of the first two.
    pub fn shared(self, jobs: &[u32]) -> (char, Style) {
        let count = char::from_digit(jobs.len().min(9) as u32, 10).unwrap_or('9');
        let (first, second) =
            (jobs.first().copied().unwrap_or(0), jobs.get(1).copied().unwrap_or(0));
        let coloured = Style::new().fg(job_colour(second)).bg(job_colour(first));
        (count, self.colour(coloured).add_modifier(Modifier::BOLD))
    }

    /// A state in a list.
    pub fn state(self, state: QueueState) -> Style {
        let colour = match state {
            QueueState::Running | QueueState::Finished => Color::Green,
            QueueState::Starting | QueueState::Saving => Color::Cyan,
            QueueState::Waiting | QueueState::Suspended => Color::Yellow,
            QueueState::Blocked | QueueState::Unadmitted => Color::Magenta,
            QueueState::Cancelled | QueueState::Pruned | QueueState::Orphaned => Color::Gray,
            QueueState::Failed | QueueState::TimeLimit | QueueState::Rejected => Color::Red,
        };
        self.colour(Style::new().fg(colour))
    }

    /// The name of the program.
    pub fn title(self) -> Style {
        self.colour(Style::new().fg(Color::Black).bg(Color::Cyan)).add_modifier(Modifier::BOLD)
    }

    /// Headings, and what counts.
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What is only there to be looked up.
    pub fn faint(self) -> Style {
        self.colour(Style::new().fg(Color::DarkGray))
    }

    /// What is as it should be.
    pub fn good(self) -> Style {
        self.colour(Style::new().fg(Color::Green))
    }

    /// What is not.
    pub fn bad(self) -> Style {
        self.colour(Style::new().fg(Color::Red)).add_modifier(Modifier::BOLD)
    }

    /// What must not be missed.
    pub fn alarm(self) -> Style {
        if self.coloured {
            Style::new().fg(Color::Black).bg(Color::Yellow)
        } else {
            Style::new().add_modifier(Modifier::REVERSED)
        }
    }

    /// The row or the view that is meant.
    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn colour(self, style: Style) -> Style {
        if self.coloured { style } else { Style::new() }
    }
}

fn job_colour(id: u32) -> Color {
    Color::Indexed(JOB_COLOURS[id as usize % JOB_COLOURS.len()])
}
