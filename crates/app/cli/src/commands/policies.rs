//! `trainyard policies`: what there is, and what each can be told.

use crate::args::PoliciesArgs;
use crate::failure::Failure;
use crate::output::Output;
use serde::Serialize;
use serde_json::{Value, json};
use trainyard_diagnostic::nearest;
use trainyard_experiment::choice::plain;
use trainyard_framework::{ConfigError, Entry, Needs, Taxonomy};
use trainyard_policies::registry::{ADMISSION_CONTROLS, PLACERS, POLICIES, TUNERS};
use trainyard_report::table::listing;
use trainyard_report::{Information, SCHEMA_VERSION};

/// Runs the command.
pub fn run(args: &PoliciesArgs, output: &Output) -> Result<(), Failure> {
    let cards = cards();
    let Some(name) = &args.name else {
        return if args.json {
            let all: Vec<Value> = cards.iter().map(Card::json).collect();
            output.print_json(
                &json!({ "schema_version": SCHEMA_VERSION, "kind": "policies", "entries": all }),
            )
        } else {
            output.print(&overview(&cards, output))
        };
    };
    let found: Vec<&Card> = cards.iter().filter(|card| card.name == name.as_str()).collect();
    if found.is_empty() {
        let nearest = nearest(name, cards.iter().map(|card| card.name));
        let kind = "policy, placer, admission control or tuner";
        let error = ConfigError::UnknownName {
            kind,
            name: name.clone(),
            nearest: nearest.map(str::to_owned),
        };
        return Err(Failure::config("", error));
    }
    if args.json {
        let all: Vec<Value> = found.iter().map(|card| card.json()).collect();
        return output.print_json(
            &json!({ "schema_version": SCHEMA_VERSION, "kind": "policies", "entries": all }),
        );
    }
    for card in found {
        output.print(&card.page(output))?;
    }
    Ok(())
}

/// A row of the registry, whatever it builds.
struct Card {
    kind: &'static str,
    name: &'static str,
    about: &'static str,
    paper: &'static str,
    needs: Needs,
    class: Taxonomy,
    settings: &'static [(&'static str, &'static str)],
    defaults: toml::Table,
}

fn cards() -> Vec<Card> {
    let mut all: Vec<Card> = POLICIES.iter().map(|entry| Card::new("policy", entry)).collect();
    all.extend(PLACERS.iter().map(|entry| Card::new("placer", entry)));
    all.extend(ADMISSION_CONTROLS.iter().map(|entry| Card::new("admission control", entry)));
    all.extend(TUNERS.iter().map(|entry| Card::new("tuner", entry)));
    all
}

impl Card {
    fn new<B>(kind: &'static str, entry: &Entry<B>) -> Card {
        Card {
            kind,
            name: entry.name,
            about: entry.about,
            paper: entry.paper,
            needs: entry.needs,
            class: entry.class,
            settings: entry.settings,
            defaults: (entry.defaults)(),
        }
    }

    /// What it must know, in a few words.
    fn information(&self) -> String {
        // The error belongs to a run, not to a policy.
        Information::new(&self.needs, (1.0, 0.0))
            .text()
            .replace("job sizes, error 1", "job sizes, estimated")
            .replace("speeds, exact", "speeds")
    }

    fn default(&self, key: &str) -> String {
        self.defaults.get(key).map(plain).unwrap_or_default()
    }

    fn json(&self) -> Value {
        let settings: Vec<Value> = self
            .settings
            .iter()
            .map(|(key, meaning)| {
                json!({ "key": key, "default": self.default(key), "meaning": meaning })
            })
            .collect();
        json!({
            "kind": self.kind,
            "name": self.name,
            "about": self.about,
            "paper": self.paper,
            "needs": self.needs,
            "must_know": self.information(),
            "class": self.class,
            "settings": settings,
            "page": self.path(),
        })
    }

    fn path(&self) -> String {
        let folder = if self.kind == "placer" { "placers" } else { "policies" };
        format!("docs/{folder}/{}.md", self.name)
    }

    fn page(&self, output: &Output) -> String {
        let class = &self.class;
        let paper = if self.paper == "-" { "common knowledge" } else { self.paper };
        let facts = [
            ("paper", paper.to_owned()),
            ("must know", self.information()),
            ("objective", word(&class.objective)),
            ("family", word(&class.family)),
            (
                "GPUs of a job",
                if class.elastic { "changes them (elastic)" } else { "as asked for (rigid)" }
                    .to_owned(),
            ),
            (
                "types of GPU",
                if class.heterogeneous { "distinguishes them" } else { "treats them alike" }
                    .to_owned(),
            ),
            ("stops jobs", if class.preemptive { "yes (preemptive)" } else { "no" }.to_owned()),
            ("by a setting", class.by_setting.to_owned()),
            ("partial", class.partial.to_owned()),
            ("page", self.path()),
        ];
        let mut text = format!("{} ({})\n{}\n\n", self.name, self.kind, self.about);
        for (key, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
            text.push_str(&format!("{key:14} {value}\n"));
        }
        if self.settings.is_empty() {
            return text + "\nIt has no settings.\n";
        }
        let rows: Vec<Vec<String>> = self
            .settings
            .iter()
            .map(|(key, meaning)| vec![(*key).to_owned(), self.default(key), (*meaning).to_owned()])
            .collect();
        let table = listing(&["setting", "default", "meaning"], &rows, output.ink, output.width);
        let key = self.settings[0].0;
        let example = format!("--set '{}.{key}={}'", self.name, self.default(key));
        text + &format!("\n{table}\nExample: {example}\n")
    }
}

/// A terminal as wide as this shows every column.
const WIDE: u16 = 130;

fn overview(cards: &[Card], output: &Output) -> String {
    let of = |kind: &str| cards.iter().filter(move |card| card.kind == kind).collect::<Vec<_>>();
    let table = |heading: &[&str], rows: Vec<Vec<String>>| {
        listing(heading, &rows, output.ink, output.width)
    };
    let mut rows: Vec<Vec<String>> = of("policy").into_iter().map(policy_row).collect();
    let mut heading =
        vec!["name", "family", "objective", "size", "stops jobs", "must know", "what it is"];
    if output.width.is_some_and(|width| width < WIDE) {
        // Room for what it is; the rest is told by its own page.
        heading.drain(2..4);
        rows.iter_mut().for_each(|row| drop(row.drain(2..4)));
    }
    let mut text = format!("Policies\n\n{}\n", table(&heading, rows));
    for (kind, title) in
        [("placer", "Placers"), ("admission control", "Admission controls"), ("tuner", "Tuners")]
    {
        let rows: Vec<Vec<String>> = of(kind).into_iter().map(stage_row).collect();
        if !rows.is_empty() {
            let heading = ["name", "objective", "must know", "what it is"];
            text.push_str(&format!("{title}\n\n{}\n", table(&heading, rows)));
        }
    }
    text + "`trainyard policies NAME` tells more, with settings.\n"
}

fn policy_row(card: &Card) -> Vec<String> {
    let class = &card.class;
    vec![
        card.name.to_owned(),
        word(&class.family),
        word(&class.objective),
        if class.elastic { "elastic" } else { "rigid" }.to_owned(),
        if class.preemptive { "yes" } else { "no" }.to_owned(),
        card.information(),
        card.about.to_owned(),
    ]
}

fn stage_row(card: &Card) -> Vec<String> {
    let objective = word(&card.class.objective);
    vec![card.name.to_owned(), objective, card.information(), card.about.to_owned()]
}

/// The name of a variant as files write it.
pub(super) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(text)) => text,
        _ => String::new(),
    }
}
