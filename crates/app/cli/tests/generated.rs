//! Parts of the documents that the program itself tells: policies, settings, commands, published results.
//!
//! They stand between `<!-- generated: NAME -->` and `<!-- end -->`.
//! `UPDATE_EXPECT=1` rewrites them, and puts them into pages of policies that do not have them yet.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

const END: &str = "<!-- end -->";

/// One part of one document.
struct Part {
    /// Below the root.
    file: String,
    name: &'static str,
    text: String,
}

fn part(file: &str, name: &'static str, text: String) -> Part {
    Part { file: file.to_owned(), name, text }
}

fn begin(name: &str) -> String {
    format!("<!-- generated: {name} -->")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn parts() -> Vec<Part> {
    let entries = entries();
    let of = |kind: &str| entries.iter().filter(|one| one.kind == kind).collect::<Vec<_>>();
    let (policies, placers, controls) = (of("policy"), of("placer"), of("admission control"));
    let tuners = of("tuner");
    let mut parts = Vec::new();
    for entry in &entries {
        parts.push(part(&entry.page, "card", entry.card()));
        parts.push(part(&entry.page, "settings", entry.settings.clone()));
    }
    for (name, listed) in [
        ("policies", &policies),
        ("placers", &placers),
        ("admission controls", &controls),
        ("tuners", &tuners),
    ] {
        let lines = listed.iter().map(|one| format!("- {}\n", one.link("docs/")));
        parts.push(part("docs/SUMMARY.md", name, lines.collect()));
        let (heading, rows): (&[&str], Vec<Vec<String>>) = match name {
            "policies" => (CLASS, listed.iter().map(|one| one.class.clone()).collect()),
            _ => (&["what it is"], listed.iter().map(|one| vec![one.about.clone()]).collect()),
        };
        let heading: Vec<&str> = ["name"].into_iter().chain(heading.iter().copied()).collect();
        let rows = listed.iter().zip(rows).map(|(one, row)| [vec![one.link("../")], row].concat());
        parts.push(part("docs/guide/taxonomy.md", name, table(&heading, rows)));
    }
    parts.push(part("README.md", "policies", families(&policies, [&placers, &controls, &tuners])));
    parts.extend(disciplines());
    parts.extend(planners());
    parts.push(part("docs/guide/commands.md", "commands", commands()));
    let published = told(&["reproduce", "--json"])["tables"].take();
    let published = published.as_array().expect("tables");
    parts.push(part("docs/guide/reproduce.md", "published", tables_of(published)));
    parts.push(part("README.md", "published", papers_of(published)));
    parts.push(part(GAVEL, "recorded runs", recorded_runs()));
    parts.extend(FIGURES.map(|(id, name)| part(GAVEL, name, figure(id, published))));
    parts
}

/// Disciplines of inference: their pages, and the lists of them.
fn disciplines() -> Vec<Part> {
    let told = told(&["serving", "list", "--json"]);
    let entries = told["entries"].as_array().expect("entries");
    let mut parts = Vec::new();
    let (mut pages, mut rows) = (String::new(), Vec::new());
    for one in entries {
        let (name, page) = (word(&one["name"]), word(&one["page"]));
        let partial = match word(&one["partial"]).as_str() {
            "" => "nothing".to_owned(),
            partial => partial.to_owned(),
        };
        let cells = vec![word(&one["serves"]), word(&one["must_know"]), partial];
        let card = table(&["serves", "must know", "left out"], [cells]);
        parts.push(part(&page, "card", format!("{}\n\n{card}", word(&one["about"]))));
        let setting = |one: &Value| {
            let default = word(&one["default"]);
            let default =
                if default.is_empty() { "empty".to_owned() } else { format!("`{default}`") };
            vec![format!("`{}`", word(&one["key"])), default, word(&one["meaning"])]
        };
        let settings = one["settings"].as_array().expect("settings").iter().map(setting);
        let settings = table(&["name", "default", "meaning"], settings);
        parts.push(part(&page, "settings", settings));
        let below = page.strip_prefix("docs/").expect("pages are documents");
        pages.push_str(&format!("- [{name}]({below})\n"));
        rows.push(vec![format!("[{name}]({page})"), word(&one["serves"]), word(&one["about"])]);
    }
    parts.push(part("docs/SUMMARY.md", "disciplines", pages));
    let counted = format!("{} disciplines of inference.\n\n", rows.len());
    let listed = table(&["name", "serves", "what it is"], rows);
    parts.push(part("README.md", "disciplines", counted + &listed));
    parts
}

/// Planners: a line on each page, and the lists of them.
fn planners() -> Vec<Part> {
    let told = told(&["planners", "--json"]);
    let (mut parts, mut pages, mut rows) = (Vec::new(), String::new(), Vec::new());
    for one in told["entries"].as_array().expect("entries") {
        let (name, page) = (word(&one["name"]), word(&one["page"]));
        let level = word(&one["level"]).replace('-', " ");
        let card = [vec![word(&one["plans"]), level.clone(), word(&one["partial"])]];
        let card = table(&["plans", "level", "left out"], card);
        parts.push(part(&page, "card", format!("{}\n\n{card}", word(&one["about"]))));
        let below = page.strip_prefix("docs/").expect("pages are documents");
        pages.push_str(&format!("- [{name}]({below})\n"));
        rows.push(vec![name, below.to_owned(), level, word(&one["about"])]);
    }
    parts.push(part("docs/SUMMARY.md", "planners", pages));
    for (file, to) in [("docs/guide/taxonomy.md", "../"), ("README.md", "docs/")] {
        let row = |row: &Vec<String>| {
            vec![format!("[{}]({to}{})", row[0], row[1]), row[2].clone(), row[3].clone()]
        };
        let listed = table(&["name", "level", "what it is"], rows.iter().map(row));
        parts.push(part(file, "planners", listed));
    }
    parts
}

/// Tables of Gavel's figures, which take minutes, and what they are called on the page.
///
/// They are made from the last run of each, which is recorded by
/// `trainyard reproduce ID --json > crates/app/experiment/data/recorded/ID.json`.
const FIGURES: [(&str, &str); 4] = [
    ("gavel-fig8-quick", "figure 8"),
    ("gavel-fig9-quick", "figure 9"),
    ("gavel-fig10-quick", "figure 10"),
    (MAKESPAN, "makespan"),
];

/// The one of them that takes seconds.
const MAKESPAN: &str = "gavel-makespan-quick";

/// The recorded run of a table.
fn record(id: &str) -> Value {
    let file = format!("crates/app/experiment/data/recorded/{id}.json");
    let told: Value = serde_json::from_str(&read(&file)).expect("JSON");
    told["tables"][0].clone()
}

/// A table of a figure beside the published values, in hours; ratios have no unit.
fn figure(id: &str, published: &[Value]) -> String {
    let record = record(id);
    let stated = published.iter().find(|one| one["id"] == id).expect("a table that there is");
    for key in ["runs", "title", "tolerance", "compared"] {
        assert_eq!(record[key], stated[key], "the recorded run of {id} is of another table: {key}");
    }
    let row = |one: &Value| {
        let (unit, digits) = match word(&one["measure"]).ends_with("_s") {
            true => (3600.0, 1),
            false => (1.0, 2),
        };
        let cell = |value: &Value| {
            value.as_f64().map_or(String::new(), |value| format!("{:.digits$}", value / unit))
        };
        let is = |value: &Value| value.as_bool().expect("yes or no");
        let verdict = match (is(&one["compared"]), is(&one["within"])) {
            (false, true) => "not compared",
            (false, false) => "not compared, OUTSIDE",
            (true, true) => "within",
            (true, false) => "OUTSIDE",
        };
        vec![
            word(&one["run"]),
            cell(&one["ours"]),
            cell(&one["paper"]),
            format!("{:.3}", one["ratio"].as_f64().expect("a number")),
            verdict.to_owned(),
            cell(&one["control"]["value"]),
        ]
    };
    let rows = record["values"].as_array().expect("values").iter().map(row);
    table(&["curve", "ours", "published", "ratio", "", "`fifo` instead"], rows)
}

#[test]
fn the_recorded_figure_that_takes_seconds_is_what_the_program_gets() {
    let told = told(&["reproduce", MAKESPAN, "--json"]);
    assert_eq!(told["tables"][0], record(MAKESPAN));
}

/// The page of Gavel's recorded runs.
const GAVEL: &str = "docs/guide/gavel-figures.md";

/// Gavel's recorded runs beside ours; as the page has them where the authors' data is absent.
fn recorded_runs() -> String {
    let shared = root().join("../shared");
    if !shared.join("golden/gavel").exists() {
        trainyard_testkit::skip!("data", "{} is absent", shared.display());
        let page = read(GAVEL);
        let part = page.split_once(&begin("recorded runs")).and_then(|(_, it)| it.split_once(END));
        return part.map(|(part, _)| part.trim().to_owned()).unwrap_or_default();
    }
    let data = shared.display().to_string();
    let told = told(&["reproduce", "gavel-20", "gavel-96", "gavel-100", "--data", &data, "--json"]);
    let mut rows = Vec::new();
    for table in told["tables"].as_array().expect("tables") {
        let jobs = word(&table["id"]).trim_start_matches("gavel-").to_owned();
        let values = table["values"].as_array().expect("values");
        for one in values.iter().filter(|one| one["measure"] == "jct_mean_s") {
            let number = |key: &str| one[key].as_f64().expect("a number");
            let policy = word(&one["policy"]).replace("solver=interior,", "");
            let off = match (number("ratio") - 1.0) * 100.0 {
                off if off.abs() < 1e-6 => "0".to_owned(),
                off => format!("{off:+.2} %"),
            };
            rows.push(vec![
                jobs.clone(),
                format!("`{}`", word(&one["run"])),
                format!("`{}`", policy.replace(":solver=interior", "")),
                format!("{:.1}", number("paper")),
                format!("{:.1}", number("ours")),
                off,
                format!("{:.1}", one["control"]["value"].as_f64().expect("a number")),
            ]);
        }
    }
    let heading =
        ["jobs", "authors' policy", "ours", "theirs, s", "ours, s", "off by", "`fifo` instead, s"];
    table(&heading, rows)
}

#[test]
fn generated_parts_of_documents_are_what_the_program_tells() {
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    let mut wrong = Vec::new();
    for Part { file, name, text } in parts() {
        let whole = files.entry(file.clone()).or_insert_with(|| read(&file));
        let new = replaced(whole, name, &text);
        match new.or_else(|| added(whole, name, &text).filter(|_| update)) {
            Some(new) if new == *whole => {}
            Some(new) if update => *whole = new,
            Some(_) => wrong.push(format!("{file}: `{name}` should be\n{text}")),
            None => wrong.push(format!("{file} has no `{}`", begin(name))),
        }
    }
    if update {
        for (file, text) in files {
            std::fs::write(root().join(file), text).expect("a document is writable");
        }
    }
    assert!(wrong.is_empty(), "{}\nUPDATE_EXPECT=1 rewrites them", wrong.join("\n"));
}

#[test]
fn every_part_that_is_called_generated_is() {
    let parts = parts();
    let known: BTreeSet<(&str, &str)> =
        parts.iter().map(|part| (part.file.as_str(), part.name)).collect();
    assert_eq!(known.len(), parts.len(), "each part is made once");
    for file in documents() {
        let text = read(&file);
        for rest in text.split("<!-- generated: ").skip(1) {
            let name = rest.split(" -->").next().unwrap_or_default();
            assert!(known.contains(&(file.as_str(), name)), "{file}: nothing makes `{name}`");
        }
        assert_eq!(text.matches("<!-- generated: ").count(), text.matches(END).count(), "{file}");
    }
}

#[test]
fn the_book_counts_the_models_of_the_zoo() {
    let models = told(&["profile", "list", "--json"])["models"].as_array().map_or(0, Vec::len);
    for file in ["docs/introduction.md", "docs/guide/profiles.md"] {
        assert!(read(file).contains(&format!("{models} models")), "{file}: {models} models");
    }
}

/// Every document that may have such parts, below the root.
fn documents() -> Vec<String> {
    let mut found = vec!["README.md".to_owned(), "docs/SUMMARY.md".to_owned()];
    for folder in ["docs/guide", "docs/policies", "docs/placers", "docs/serving"] {
        let files = std::fs::read_dir(root().join(folder)).expect("a folder").flatten();
        found.extend(files.map(|one| format!("{folder}/{}", one.file_name().to_string_lossy())));
    }
    found
}

/// The document with another text in one part; nothing where it does not have the part.
fn replaced(whole: &str, name: &str, text: &str) -> Option<String> {
    let (before, rest) = whole.split_once(&begin(name))?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{}{after}", framed(name, text)))
}

/// A new page of a policy with a part that it did not have: the card below its title, settings at its end.
fn added(whole: &str, name: &str, text: &str) -> Option<String> {
    let framed = framed(name, text);
    match name {
        "card" => {
            let (title, rest) = whole.split_once("\n\n")?;
            Some(format!("{title}\n\n{framed}\n\n{rest}"))
        }
        "settings" => Some(format!("{}\n\n## Settings\n\n{framed}\n", whole.trim_end())),
        _ => None,
    }
}

fn framed(name: &str, text: &str) -> String {
    format!("{}\n\n{}\n\n{END}", begin(name), text.trim_end())
}

/// What the program prints.
fn printed(arguments: &[&str]) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_trainyard"));
    // A narrow terminal would put what a command does onto a line of its own.
    let output =
        program.args(arguments).env_remove("COLUMNS").output().expect("the program starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn told(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(arguments)).expect("JSON")
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// A table in Markdown.
fn table(heading: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", heading.join(" | "), "---|".repeat(heading.len()));
    for row in rows {
        assert_eq!(row.len(), heading.len(), "{row:?}");
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}

/// Where a policy stands among the others.
const CLASS: &[&str] = &[
    "family",
    "objective",
    "elastic",
    "GPU types distinguished",
    "stops jobs",
    "must know",
    "by a setting",
    "partial",
];

/// A row of the registry.
struct Entry {
    kind: String,
    name: String,
    about: String,
    page: String,
    /// A cell for each of [`CLASS`].
    class: Vec<String>,
    settings: String,
}

fn entries() -> Vec<Entry> {
    let told = told(&["policies", "--json"]);
    told["entries"].as_array().expect("entries").iter().map(Entry::new).collect()
}

impl Entry {
    fn new(value: &Value) -> Entry {
        let class = &value["class"];
        let plain = |key: &str| word(&class[key]).replace('-', " ");
        let yes = |key: &str| if class[key] == true { "yes" } else { "no" }.to_owned();
        let setting = |one: &Value| {
            let default = match word(&one["default"]).as_str() {
                "" => "empty".to_owned(),
                default => format!("`{default}`"),
            };
            vec![format!("`{}`", word(&one["key"])), default, word(&one["meaning"])]
        };
        let settings = value["settings"].as_array().expect("settings");
        Entry {
            kind: word(&value["kind"]),
            name: word(&value["name"]),
            about: word(&value["about"]),
            page: word(&value["page"]),
            class: vec![
                plain("family"),
                plain("objective"),
                yes("elastic"),
                yes("heterogeneous"),
                yes("preemptive"),
                word(&value["must_know"]),
                word(&class["by_setting"]),
                word(&class["partial"]),
            ],
            settings: match settings.is_empty() {
                true => "None.\n".to_owned(),
                false => table(&["name", "default", "meaning"], settings.iter().map(setting)),
            },
        }
    }

    /// What it is and where it stands; an empty cell is left out.
    fn card(&self) -> String {
        // What places or admits jobs has no class beyond what it is for.
        let shown =
            |name: &str| self.kind == "policy" || ["objective", "must know"].contains(&name);
        let cells = CLASS.iter().zip(&self.class);
        let (heading, row): (Vec<&str>, Vec<String>) = cells
            .filter(|(name, cell)| shown(name) && !cell.is_empty())
            .map(|(name, cell)| (*name, cell.clone()))
            .unzip();
        format!("{}\n\n{}", self.about, table(&heading, [row]))
    }

    /// A link to its page from a file that is `up` from the root.
    fn link(&self, up: &str) -> String {
        let below = match up {
            "" => &self.page,
            _ => self.page.strip_prefix("docs/").expect("pages are documents"),
        };
        let up = if up == "docs/" { "" } else { up };
        format!("[{}]({up}{below})", self.name)
    }
}

/// Names by family, and the stages beside them.
fn families(policies: &[&Entry], [placers, controls, tuners]: [&[&Entry]; 3]) -> String {
    let mut rows: Vec<(&str, Vec<String>)> = Vec::new();
    let counts = [policies, placers, controls, tuners].map(<[_]>::len);
    let counts = format!(
        "{} policies, {} placers, {} admission controls, {} tuner{}.",
        counts[0],
        counts[1],
        counts[2],
        counts[3],
        if counts[3] == 1 { "" } else { "s" }
    );
    let policies = policies.iter().map(|one| (one.class[0].as_str(), one));
    let placers = placers.iter().map(|one| ("placers", one));
    let controls = controls.iter().map(|one| ("admission controls", one));
    let tuners = tuners.iter().map(|one| ("tuners", one));
    for (family, entry) in policies.chain(placers).chain(controls).chain(tuners) {
        match rows.iter_mut().find(|row| row.0 == family) {
            Some(row) => row.1.push(entry.link("")),
            None => rows.push((family, vec![entry.link("")])),
        }
    }
    let rows = rows.into_iter().map(|(family, names)| vec![family.to_owned(), names.join(", ")]);
    let table = table(&["family", "names"], rows);
    format!("{counts}\n\n{table}")
}

/// Every command and what is below it.
fn commands() -> String {
    let mut rows = Vec::new();
    for (command, about) in listed(&[]) {
        let below = listed(&[&command]);
        // What is only a name for those below it has no use alone.
        if below.is_empty() || !usage(&[&command]).contains("<COMMAND>") {
            rows.push(vec![usage(&[&command]), about]);
        }
        let below = below.into_iter().map(|(one, about)| vec![usage(&[&command, &one]), about]);
        rows.extend(below);
    }
    table(&["command", "does"], rows)
}

/// The commands that a help lists, with what it says about each.
fn listed(command: &[&str]) -> Vec<(String, String)> {
    let help = printed(&[command, &["--help"]].concat());
    let Some((_, rest)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let end = if command.is_empty() { "\nOptions:\n" } else { "\n\n" };
    let rest = rest.split_once(end).map_or(rest, |(list, _)| list);
    // The whole list is in groups, each with a heading.
    let (indent, is_entry) = match command.is_empty() {
        true => ("    ", (|line: &&str| !line.ends_with(':')) as fn(&&str) -> bool),
        false => ("  ", (|_: &&str| true) as fn(&&str) -> bool),
    };
    let mut found: Vec<(String, String)> = Vec::new();
    for line in rest.lines().filter(|line| !line.is_empty()).filter(is_entry) {
        let entry = line.strip_prefix(indent).expect("commands are indented");
        match (entry.split_once(' '), found.last_mut()) {
            (Some((name, about)), _) if !name.is_empty() => {
                found.push((name.to_owned(), about.trim().to_owned()));
            }
            (_, Some((_, about))) => *about = format!("{about} {}", entry.trim()),
            (_, None) => panic!("{line} is no command"),
        }
    }
    found.retain(|(name, _)| name != "help");
    found
}

/// How a command is typed, flags that may be left out aside.
fn usage(command: &[&str]) -> String {
    let help = printed(&[command, &["--help"]].concat());
    let line = help.lines().find_map(|line| line.strip_prefix("Usage: ")).expect("a usage");
    format!("`{}`", line.replace(" [OPTIONS]", ""))
}

/// What can be redone, one row for each table.
fn tables_of(published: &[Value]) -> String {
    let row = |one: &Value| {
        vec![
            format!("`{}`", word(&one["id"])),
            one["runs"].as_array().map_or(0, Vec::len).to_string(),
            one["compared"].to_string(),
            word(&one["tolerance"]),
            if one["slow"] == true { "slow" } else { "" }.to_owned(),
            word(&one["title"]),
        ]
    };
    let heading = ["name", "runs", "values", "tolerance", "", "what"];
    table(&heading, published.iter().map(row))
}

/// What can be redone, one row for each paper.
fn papers_of(published: &[Value]) -> String {
    let mut papers: Vec<(String, Vec<&Value>)> = Vec::new();
    for one in published {
        let paper = word(&one["paper"]);
        match papers.iter_mut().find(|(name, _)| *name == paper) {
            Some((_, tables)) => tables.push(one),
            None => papers.push((paper, vec![one])),
        }
    }
    let count = |tables: &mut dyn Iterator<Item = &&Value>| {
        tables.map(|one| one["compared"].as_u64().expect("a count")).sum::<u64>()
    };
    let row = |(paper, tables): &(String, Vec<&Value>)| {
        let slow = count(&mut tables.iter().filter(|one| one["slow"] == true));
        let mut tolerances: Vec<String> = Vec::new();
        for one in tables {
            let tolerance = word(&one["tolerance"]);
            let first = tolerance.split(';').next().unwrap_or_default().to_owned();
            if !tolerances.contains(&first) {
                tolerances.push(first);
            }
        }
        let quick = || tables.iter().filter(|one| one["slow"] == false);
        let names: Vec<String> = quick().map(|one| word(&one["id"])).collect();
        let data = if quick().any(|one| one["needs_data"] == true) { " --data DIR" } else { "" };
        vec![
            paper.clone(),
            (count(&mut tables.iter())).to_string(),
            if slow == 0 { String::new() } else { slow.to_string() },
            tolerances.join(", "),
            format!("`trainyard reproduce {}{data}`", names.join(" ")),
        ]
    };
    let all = count(&mut papers.iter().flat_map(|(_, tables)| tables));
    let slow = count(&mut papers.iter().flat_map(|(_, all)| all).filter(|one| one["slow"] == true));
    let heading = ["paper", "values", "of these slow", "tolerance", "all that are not slow"];
    let rows = table(&heading, papers.iter().map(row));
    let (number, quick) = (papers.len(), all - slow);
    format!(
        "{all} values of {number} papers are compared, {quick} of them in tables that are not slow.\n\n{rows}"
    )
}
