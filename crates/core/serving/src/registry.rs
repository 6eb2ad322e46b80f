//! The one table that makes disciplines exist.

use crate::discipline::{Discipline, Fleet};
use crate::disciplines::{
    abacus, alpaserve, chunked, clockwork, continuous, fifo, irina, llm_priority, nexus, olympian,
    paged, prefix, shepherd, split, static_batch, triton,
};
use crate::llm::{LlmFleet, TokenDiscipline};
use crate::settings::{Setting, Settings};
use trainyard_diagnostic::InputError;

/// What a discipline is told before the first request.
#[derive(Copy, Clone, Debug)]
pub struct Told<'a> {
    /// The GPUs and the models.
    pub fleet: &'a Fleet,
    /// Requests a second by model that are expected; only those that say so in the table look at it.
    pub rates: &'a [f64],
    /// The most common time that requests have, which those that plan ahead go by.
    pub slo: trainyard_types::Span,
}

type MakeWhole = fn(&Told<'_>, &Settings) -> Result<Box<dyn Discipline>, InputError>;
type MakeTokens = fn(&LlmFleet, &Settings) -> Result<Box<dyn TokenDiscipline>, InputError>;

/// What a discipline serves.
#[derive(Copy, Clone, Debug)]
pub enum Serves {
    /// Whole inferences.
    Whole(MakeWhole),
    /// Answers token by token.
    Tokens(MakeTokens),
}

/// One discipline.
#[derive(Copy, Clone, Debug)]
pub struct DisciplineEntry {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// The paper, or the program.
    pub paper: &'static str,
    /// What is left out; empty for nothing.
    pub partial: &'static str,
    /// What it must be told besides latency tables.
    pub must_know: &'static str,
    /// Whether one GPU is not enough for it.
    pub needs_two: bool,
    /// Its settings.
    pub settings: &'static [Setting],
    /// What it serves.
    pub serves: Serves,
}

/// All disciplines.
pub const DISCIPLINES: &[&DisciplineEntry] = &[
    &fifo::ENTRY,
    &triton::ENTRY,
    &clockwork::ENTRY,
    &nexus::ENTRY,
    &olympian::ENTRY,
    &irina::ENTRY,
    &abacus::ENTRY,
    &shepherd::ENTRY,
    &alpaserve::ENTRY,
    &static_batch::ENTRY,
    &continuous::ENTRY,
    &chunked::ENTRY,
    &paged::ENTRY,
    &split::ENTRY,
    &prefix::ENTRY,
    &llm_priority::ENTRY,
];

/// A discipline that was chosen, with its settings.
#[derive(Clone, Debug)]
pub struct Choice {
    /// As it was written.
    pub text: String,
    /// The row.
    pub entry: &'static DisciplineEntry,
    /// What was set.
    pub settings: Settings,
}

/// Reads `NAME` or `NAME:key=value,key=value`.
pub fn choose(text: &str) -> Result<Choice, InputError> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let found = DISCIPLINES.iter().copied().find(|entry| entry.name == name.trim());
    let entry = found.ok_or_else(|| {
        InputError::unknown(0, "discipline", name, DISCIPLINES.iter().map(|entry| entry.name))
    })?;
    let settings = Settings::parse(rest, entry.settings)?;
    Ok(Choice { text: text.to_owned(), entry, settings })
}
