//! Policies, placers, admission controls and tuners by name, with their settings.

use crate::args::StageArgs;
use crate::failure::Failure;
use trainyard_diagnostic::nearest;
use trainyard_framework::{ConfigError, Entry, PolicyEntry, RawSettings};
use trainyard_policies::compose::{Choice, Selection, find};
use trainyard_policies::registry::{
    ADMISSION_CONTROLS, PLACERS, POLICIES, TUNERS, Traits, representatives,
};
use trainyard_sim::Semantics;
use trainyard_types::Job;
use trainyard_workload::Workload;

/// One policy that takes part, with all that is put around it.
pub struct Entrant {
    /// What it is called in tables: its name and the settings given with it.
    pub label: String,
    /// Its row in the registry.
    pub entry: &'static PolicyEntry,
    /// What is to be built.
    pub selection: Selection,
}

/// What there is to decide about the jobs of a workload.
pub fn traits_of(workload: &Workload) -> Traits {
    let any = |holds: fn(&Job) -> bool| workload.jobs.iter().any(|one| holds(&one.job));
    Traits {
        elastic: any(|job| !job.want.is_rigid()),
        deadlines: any(|job| job.deadline().is_some()),
    }
}

/// Those that `--policies` names, or one of each family that has something to decide.
pub fn entrants(
    policies: &[String],
    stages: &StageArgs,
    (semantics, jobs): (Semantics, Traits),
) -> Result<Vec<Entrant>, Failure> {
    let mut names: Vec<String> = policies.iter().flat_map(|list| split_choices(list)).collect();
    if policies.is_empty() {
        names = representatives(jobs).iter().map(|entry| entry.name.to_owned()).collect();
    } else if names.iter().any(|name| name == "all") {
        names = POLICIES.iter().map(|entry| entry.name.to_owned()).collect();
    }
    if names.is_empty() {
        return Err(Failure::flag("--policies", "", "names of policies, such as fifo,srtf"));
    }
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) {
            return Err(Failure::flag("--policies", name, "every policy once"));
        }
    }
    let flag = "--policies";
    let mut entrants = Vec::with_capacity(names.len());
    for name in &names {
        entrants.push(entrant((flag, name), stages)?);
    }
    apply_sets(&mut entrants, &stages.sets)?;
    for one in &mut entrants {
        one.selection.wish(semantics.wishes().iter().copied());
    }
    Ok(entrants)
}

/// The one that `--policy` names.
pub fn entrant_alone(
    policy: &str,
    stages: &StageArgs,
    semantics: Semantics,
) -> Result<Entrant, Failure> {
    let mut alone = vec![entrant(("--policy", policy), stages)?];
    apply_sets(&mut alone, &stages.sets)?;
    let mut alone = alone.remove(0);
    alone.selection.wish(semantics.wishes().iter().copied());
    Ok(alone)
}

/// All settings that hold for an entrant, defaults included, as `owner.key` and value.
pub fn settings(entrant: &Entrant) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let Selection { policy, place, admit, tune } = &entrant.selection;
    add_settings(&mut all, entrant.entry.defaults, policy);
    if let Some(choice) = place {
        add_named(&mut all, "placer", choice);
        add_settings(&mut all, defaults_of(PLACERS, choice), choice);
    }
    for choice in admit {
        add_named(&mut all, "admission control", choice);
        add_settings(&mut all, defaults_of(ADMISSION_CONTROLS, choice), choice);
    }
    for choice in tune {
        add_named(&mut all, "tuner", choice);
        add_settings(&mut all, defaults_of(TUNERS, choice), choice);
    }
    all
}

/// Splits at commas that stand in no bracket.
pub fn split_list(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0u32, 0);
    for (index, c) in text.char_indices() {
        match c {
            '[' | '{' | '(' => depth += 1,
            ']' | '}' | ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// Splits a list of choices; `key=value` without a name goes on with the choice before it.
pub fn split_choices(text: &str) -> Vec<String> {
    let mut choices: Vec<String> = Vec::new();
    for part in split_list(text) {
        let names_none = part.contains('=') && !part.split('=').next().unwrap_or("").contains(':');
        match choices.last_mut() {
            Some(last) if names_none => *last = format!("{last},{part}"),
            _ => choices.push(part.to_owned()),
        }
    }
    choices
}

fn entrant((flag, text): (&str, &str), stages: &StageArgs) -> Result<Entrant, Failure> {
    let policy = read_choice(flag, "policy", POLICIES, text)?;
    let entry = find("policy", POLICIES, &policy.name).map_err(|e| Failure::config(flag, e))?;
    let place = match &stages.place {
        Some(text) => Some(read_choice("--place", "placer", PLACERS, text)?),
        None => None,
    };
    let control = |text| read_choice("--admit", "admission control", ADMISSION_CONTROLS, text);
    let admit = stages.admit.iter().map(|text| control(text)).collect::<Result<Vec<_>, _>>()?;
    let mut tune = Vec::new();
    for text in &stages.tune {
        tune.push(read_choice("--tune", "tuner", TUNERS, text)?);
    }
    let selection = Selection { policy, place, admit, tune };
    Ok(Entrant { label: text.trim().to_owned(), entry, selection })
}

/// Reads `NAME`, `NAME:key=value,...` or `NAME=VALUE`, where the value is for the first setting.
fn read_choice<B>(
    flag: &str,
    kind: &'static str,
    table: &'static [&'static Entry<B>],
    text: &str,
) -> Result<Choice, Failure> {
    let refused = |error: ConfigError| Failure::config(flag, error);
    let end = text.find([':', '=']).unwrap_or(text.len());
    let entry = find(kind, table, text[..end].trim()).map_err(refused)?;
    let rest = &text[end..];
    let settings = match (rest.strip_prefix(':'), rest.strip_prefix('=')) {
        (Some(pairs), _) => RawSettings::parse(split_list(pairs)).map_err(refused)?,
        (None, Some(value)) => match entry.settings.first() {
            Some((key, _)) => {
                RawSettings::parse([format!("{key}={value}").as_str()]).map_err(refused)?
            }
            None => {
                let expected = format!("`{}` alone, for it has no settings", entry.name);
                return Err(Failure::flag(flag, text, expected));
            }
        },
        (None, None) => RawSettings::default(),
    };
    Ok(Choice { name: entry.name.to_owned(), settings })
}

/// Gives every `OWNER.KEY=VALUE` to the owners of that name.
fn apply_sets(entrants: &mut [Entrant], sets: &[String]) -> Result<(), Failure> {
    for text in sets {
        let (path, value) = text.split_once('=').unwrap_or((text, ""));
        let Some((owner, key)) = path.split_once('.') else {
            return Err(Failure::flag("--set", text, "OWNER.KEY=VALUE, such as las.quantum=10m"));
        };
        let owner = owner.trim();
        let mut found = false;
        for choice in entrants.iter_mut().flat_map(choices_of).filter(|one| one.name == owner) {
            let pair = format!("{key}={value}");
            choice.settings.add(&pair).map_err(|error| Failure::config("--set", error))?;
            found = true;
        }
        if !found {
            return Err(no_owner(entrants, owner));
        }
    }
    Ok(())
}

fn no_owner(entrants: &mut [Entrant], owner: &str) -> Failure {
    let known = POLICIES.iter().map(|entry| entry.name);
    let known = known.chain(PLACERS.iter().map(|entry| entry.name));
    let known = known.chain(ADMISSION_CONTROLS.iter().map(|entry| entry.name));
    let known: Vec<&str> = known.chain(TUNERS.iter().map(|entry| entry.name)).collect();
    if !known.contains(&owner) {
        let nearest = nearest(owner, known);
        let kind = "policy, placer, admission control or tuner";
        let error = ConfigError::UnknownName {
            kind,
            name: owner.to_owned(),
            nearest: nearest.map(str::to_owned),
        };
        return Failure::config("--set", error);
    }
    let mut present: Vec<&str> =
        entrants.iter_mut().flat_map(choices_of).map(|choice| choice.name.as_str()).collect();
    present.sort_unstable();
    present.dedup();
    let expected = format!("one that takes part in this run: {}", present.join(", "));
    Failure::flag("--set", owner, expected)
}

fn choices_of(entrant: &mut Entrant) -> Vec<&mut Choice> {
    let Selection { policy, place, admit, tune } = &mut entrant.selection;
    let mut all = vec![policy];
    all.extend(place.as_mut());
    all.extend(admit.iter_mut());
    all.extend(tune.iter_mut());
    all
}

fn add_settings(all: &mut Vec<(String, String)>, defaults: fn() -> toml::Table, choice: &Choice) {
    for (key, default) in defaults() {
        let value = choice.settings.0.get(&key).unwrap_or(&default);
        all.push((format!("{}.{key}", choice.name), plain(value)));
    }
}

fn add_named(all: &mut Vec<(String, String)>, kind: &str, choice: &Choice) {
    all.push((kind.to_owned(), choice.name.clone()));
}

fn defaults_of<B>(table: &[&'static Entry<B>], choice: &Choice) -> fn() -> toml::Table {
    let entry = table.iter().find(|entry| entry.name == choice.name);
    entry.map_or(toml::Table::new, |entry| entry.defaults)
}

/// A value as a user writes it: without quotes.
pub fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(items) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            format!("[{}]", items.join(","))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_split_outside_brackets_only() {
        assert_eq!(split_list("a, b=[1h,10h],c"), ["a", "b=[1h,10h]", "c"]);
        assert_eq!(
            split_choices("fifo,las:thresholds=[1h,2h],quantum=5m,srtf"),
            ["fifo", "las:thresholds=[1h,2h],quantum=5m", "srtf"]
        );
    }
}
