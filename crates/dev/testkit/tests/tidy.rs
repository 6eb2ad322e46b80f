//! The rules of the house, enforced.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trainyard_policies::registry::{ADMISSION_CONTROLS, PLACERS, POLICIES, TUNERS};
use trainyard_testkit::places::root;

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

/// Folders of crates and the folders their crates may depend on, tests aside.
const FOLDERS: &[(&str, &[&str])] = &[
    ("core", &["core"]),
    ("sim", &["core", "sim"]),
    ("live", &["core", "live"]),
    ("app", &["core", "sim", "live", "app"]),
    ("dev", &["core", "sim", "live", "dev"]),
];

/// Below the rim nothing reads a clock, a file, a socket or the environment.
const RIM: &[&str] = &[
    "app/",
    "dev/",
    "live/client/",
    "live/store/",
    "live/backend/",
    "live/sharing/",
    "live/driver/",
    "live/preload/",
    "live/slurm/",
    "live/daemon/",
];
const BANNED_BELOW_RIM: &[&str] = &[
    "std::fs::",
    "std::net::",
    "std::env::",
    "Instant::now",
    "SystemTime::now",
    "thread_rng",
    "tokio",
];
/// Words that must not appear in any source: a policy owns no clock, and nothing asks who it is.
const BANNED_ANYWHERE: &[&str] =
    &["if simulate", "simulate: bool", "todo!(", "unimplemented!(", "dbg!("];

/// A crate by its folder and name, with the crates of the house that it depends on.
struct Member {
    folder: String,
    name: String,
    others: Vec<String>,
}

fn members() -> Vec<Member> {
    let mut members = Vec::new();
    for (folder, _) in FOLDERS {
        for entry in std::fs::read_dir(root().join("crates").join(folder)).expect("a folder") {
            let path = entry.expect("readable").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("a plain name");
            let manifest: toml::Table = read(&path.join("Cargo.toml")).parse().expect("TOML");
            let keys = manifest["dependencies"].as_table().map(toml::Table::keys);
            let mut others: Vec<String> = (keys.into_iter().flatten())
                .filter_map(|key| key.strip_prefix("trainyard-").map(str::to_string))
                .collect();
            others.sort_unstable();
            members.push(Member { folder: folder.to_string(), name: name.to_string(), others });
        }
    }
    members
}

#[test]
fn crates_depend_only_on_folders_that_theirs_may_know() {
    let members = members();
    let folder = |name: &str| {
        let found = members.iter().find(|member| member.name == name);
        found.map(|member| member.folder.as_str()).expect("a crate of the house has a folder")
    };
    for Member { folder: own, name, others } in &members {
        let (_, allowed) = FOLDERS.iter().find(|(folder, _)| folder == own).expect("listed");
        for other in others {
            assert!(allowed.contains(&folder(other)), "{own}/{name} must not depend on {other}");
        }
    }
}

/// Each crate is named after those it depends on, so that the map reads from the ground up.
#[test]
fn the_code_map_is_what_the_manifests_say() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let map = text.split("```text\n").find(|block| block.starts_with("core/"));
    let map = map.and_then(|rest| rest.split("```").next()).expect("a map that begins with core/");
    let mut told: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in map.lines() {
        let mut words = line.split_whitespace();
        let name = words.next().expect("no empty line");
        let mut others: Vec<&str> = words.collect();
        others.sort_unstable();
        for other in &others {
            let known = told.keys().any(|known| known.rsplit('/').next() == Some(other));
            assert!(known, "ARCHITECTURE.md names {other} beside {name} before it has a line");
        }
        assert!(told.insert(name, others).is_none(), "ARCHITECTURE.md names {name} twice");
    }
    let of_the_house = members();
    for Member { folder, name, others } in of_the_house.iter().filter(|one| one.folder != "dev") {
        let path = format!("{folder}/{name}");
        let real: Vec<&str> = others.iter().map(String::as_str).collect();
        assert_eq!(told.remove(path.as_str()), Some(real), "ARCHITECTURE.md on crate {path}");
    }
    assert!(told.is_empty(), "ARCHITECTURE.md names crates that are not there: {told:?}");
}

#[test]
fn every_dependency_has_its_reason() {
    let manifest: toml::Table = read(&root().join("Cargo.toml")).parse().expect("TOML");
    let reasons = read(&root().join("docs/decisions/0008-dependencies.md"));
    let all = manifest["workspace"]["dependencies"].as_table().expect("a table").keys();
    let others = all.filter(|name| !name.starts_with("trainyard-"));
    let without: Vec<&String> =
        others.filter(|name| !reasons.contains(&format!("`{name}`"))).collect();
    assert!(
        without.is_empty(),
        "docs/decisions/0008-dependencies.md gives no reason for {without:?}"
    );
}

/// Where the record lists crates it lists all that have the dependency, tests aside; `most` and the like are words.
#[test]
fn the_record_of_dependencies_names_the_crates_that_have_them() {
    let of_the_house: Vec<(String, toml::Table)> = (members().iter())
        .map(|one| {
            let path = root().join("crates").join(&one.folder).join(&one.name).join("Cargo.toml");
            (one.name.clone(), read(&path).parse().expect("TOML"))
        })
        .collect();
    let known = |name: &str| of_the_house.iter().any(|(other, _)| other == name);
    let has = |manifest: &toml::Table, dependency: &str| {
        manifest["dependencies"].as_table().is_some_and(|all| all.contains_key(dependency))
    };
    let mut seen = 0;
    for line in read(&root().join("docs/decisions/0008-dependencies.md")).lines() {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [names, told, _] = cells[..] else { continue };
        let told = told.split(", feature").next().unwrap_or_default();
        let mut told: Vec<&str> = told.split(", ").collect();
        if !told.iter().all(|name| known(name)) {
            continue;
        }
        let names: Vec<&str> = names.split('`').skip(1).step_by(2).collect();
        let real = of_the_house.iter().filter(|(_, all)| names.iter().any(|one| has(all, one)));
        let mut real: Vec<&str> = real.map(|(name, _)| name.as_str()).collect();
        told.sort_unstable();
        real.sort_unstable();
        assert_eq!(told, real, "docs/decisions/0008-dependencies.md on {names:?}");
        seen += 1;
    }
    assert!(seen > 30, "only {seen} rows name crates");
}

/// Files that documents name exist, by their whole path or by the end of it.
#[test]
fn files_that_the_architecture_names_exist() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let files: Vec<String> = sources().iter().map(|file| short(file)).collect();
    let spans = text.split('`').skip(1).step_by(2).filter(|span| span.ends_with(".rs"));
    let wrong: Vec<&str> = spans
        .filter(|span| !span.contains(' '))
        .filter(|span| !files.iter().any(|file| file.ends_with(&format!("/{span}"))))
        .collect();
    assert!(wrong.is_empty(), "ARCHITECTURE.md names {wrong:?}, which are not there");
}

#[test]
fn files_and_functions_fit_in_a_head() {
    let mut wrong = Vec::new();
    for file in sources() {
        let text = read(&file);
        let name = short(&file);
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            wrong.push(format!("{name} has {lines} lines, more than {FILE_LINES_MAX}"));
        }
        for (line, length, signature) in functions(&text) {
            if length > FUNCTION_LINES_MAX {
                wrong.push(format!("{name}:{line} is {length} lines long: {signature}"));
            }
        }
        for bad in ["utils", "common", "helpers", "manager"] {
            if file.file_stem().is_some_and(|stem| stem == bad) {
                wrong.push(format!("{name}: find the noun"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_below_the_rim_touches_the_world() {
    let mut wrong = Vec::new();
    for file in sources() {
        let name = short(&file);
        let text = read(&file);
        let code = without_tests(&text);
        let is_rim = RIM.iter().any(|rim| name.starts_with(&format!("crates/{rim}")));
        let in_tests =
            name.contains("/tests/") || name.contains("/examples/") || name.ends_with("/tests.rs");
        if !is_rim && !in_tests {
            for word in BANNED_BELOW_RIM.iter().filter(|word| code.contains(**word)) {
                wrong.push(format!("{name} uses {word}"));
            }
        }
        if !name.ends_with("tidy.rs") {
            for word in BANNED_ANYWHERE.iter().filter(|word| text.contains(**word)) {
                wrong.push(format!("{name} says {word}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The files with unsafe code. Every other crate forbids it by the lints of the workspace.
const UNSAFE: &[&str] = &[
    "crates/core/solver/src/highs/basis.rs",
    "crates/live/driver/src/calls.rs",
    "crates/live/preload/src/captures.rs",
    "crates/live/preload/src/driver.rs",
    "crates/live/preload/src/find.rs",
    "crates/live/preload/src/job.rs",
    "crates/live/preload/src/launches.rs",
    "crates/live/preload/src/lookup.rs",
    "crates/live/preload/src/memory.rs",
    "crates/live/preload/src/system.rs",
];

#[test]
fn only_named_files_are_unsafe() {
    let allows =
        |file: &PathBuf| read(file).lines().any(|line| line.contains("allow(unsafe_code)"));
    let own = |file: &&PathBuf| !file.ends_with("tidy.rs");
    let files: Vec<String> = (sources().iter().filter(own).filter(|file| allows(file)))
        .map(|file| short(file))
        .collect();
    assert_eq!(files, UNSAFE, "files that allow unsafe code");
    for Member { folder, name, .. } in members() {
        let path = root().join("crates").join(&folder).join(&name).join("Cargo.toml");
        let manifest: toml::Table = read(&path).parse().expect("TOML");
        let lints = &manifest["lints"];
        let forbids = lints.get("workspace").and_then(toml::Value::as_bool) == Some(true);
        let denies = lints.get("rust").and_then(|rust| rust.get("unsafe_code"));
        let denies = denies.and_then(toml::Value::as_str) == Some("deny");
        let named = UNSAFE.iter().any(|file| file.starts_with(&format!("crates/{folder}/{name}/")));
        assert!(if named { denies } else { forbids }, "{folder}/{name} on unsafe code");
    }
}

#[test]
fn nothing_outside_the_policies_branches_on_a_policys_name() {
    let names: Vec<String> = POLICIES.iter().map(|entry| format!("\"{}\"", entry.name)).collect();
    let mut wrong = Vec::new();
    for file in sources() {
        let name = short(&file);
        let policy_or_test = ["crates/core/policies/", "crates/dev/testkit/", "crates/dev/bench/"];
        if policy_or_test.iter().any(|folder| name.starts_with(folder)) || name.contains("/tests/")
        {
            continue;
        }
        let text = read(&file);
        let code = without_tests(&text);
        for (number, line) in code.lines().enumerate() {
            let comment = line.trim_start().starts_with("//");
            let (pattern, _) = line.split_once("=>").unwrap_or_default();
            let compared = line.contains("==") || line.contains("starts_with");
            let asks = names.iter().any(|policy| {
                pattern.contains(policy.as_str()) || compared && line.contains(policy.as_str())
            });
            if asks && !comment {
                wrong.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Lists of policies are read from the table as it stands.
#[test]
fn policies_stand_family_by_family() {
    let mut families: Vec<_> = POLICIES.iter().map(|entry| entry.class.family).collect();
    families.dedup();
    let distinct: std::collections::BTreeSet<_> = families.iter().collect();
    assert_eq!(families.len(), distinct.len(), "a family stands in two places: {families:?}");
}

#[test]
fn every_entry_has_a_page_and_two_scenarios() {
    let mut wrong = Vec::new();
    let mut pages: BTreeMap<&str, &str> = BTreeMap::new();
    pages.extend(POLICIES.iter().map(|entry| (entry.name, "policies")));
    pages.extend(PLACERS.iter().map(|entry| (entry.name, "placers")));
    pages.extend(ADMISSION_CONTROLS.iter().map(|entry| (entry.name, "policies")));
    pages.extend(TUNERS.iter().map(|entry| (entry.name, "policies")));
    let summary = read(&root().join("docs/SUMMARY.md"));
    for (name, folder) in pages {
        let page = format!("{folder}/{name}.md");
        if !root().join("docs").join(&page).exists() {
            wrong.push(format!("docs/{page} is missing"));
        }
        if !summary.contains(&page) {
            wrong.push(format!("docs/SUMMARY.md does not list {page}"));
        }
        let folder = root().join("scenarios").join(name);
        let scenarios = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let count =
            scenarios.filter(|file| file.path().extension().is_some_and(|e| e == "scn")).count();
        if count < 2 {
            wrong.push(format!("scenarios/{name} has {count} scenarios, two are needed"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_page_of_the_book_is_listed_and_every_listed_page_exists() {
    let docs = root().join("docs");
    let summary = read(&docs.join("SUMMARY.md"));
    let mut wrong = Vec::new();
    for part in summary.split("](").skip(1) {
        let target = part.split(')').next().unwrap_or_default();
        if !target.is_empty() && !docs.join(target).exists() {
            wrong.push(format!("docs/SUMMARY.md lists {target}, which is missing"));
        }
    }
    for page in walk(&docs, "md") {
        let name = page.strip_prefix(&docs).expect("below docs").display().to_string();
        if name != "SUMMARY.md" && !name.starts_with("book/") && !summary.contains(&name) {
            wrong.push(format!("docs/SUMMARY.md does not list {name}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The rules of a policy stand in the framework's documentation and, at more length, in the book.
#[test]
fn the_contract_has_the_same_rules_and_every_fault_in_the_book() {
    let page = read(&root().join("docs/dev/contract.md"));
    let code = read(&root().join("crates/core/framework/src/lib.rs"));
    let numbered = |lines: Vec<&str>| -> Vec<String> {
        let number = |line: &&str| line.split_once(". ").map(|(number, _)| number.to_owned());
        let is_number = |text: &String| text.chars().all(|c| c.is_ascii_digit());
        lines.iter().filter_map(number).filter(is_number).collect()
    };
    let rules = page.split("## ").find(|part| part.starts_with("The rules of a policy"));
    let in_page = numbered(rules.expect("a section").lines().collect());
    let in_code = numbered(code.lines().filter_map(|line| line.strip_prefix("//! ")).collect());
    assert!(in_page.len() > 10, "{in_page:?}");
    assert_eq!(in_page, in_code, "numbers of rules in docs/dev/contract.md and the framework");
    let types = read(&root().join("crates/core/types/src/decision.rs"));
    let faults = types.split("pub enum Fault {").nth(1).and_then(|rest| rest.split("\n}").next());
    let lines = faults.expect("an enum").lines().map(str::trim);
    let names = lines.filter(|line| line.starts_with(char::is_uppercase));
    let names = names.map(|line| line.trim_end_matches(',').split(['(', ' ']).next().unwrap_or(""));
    let untold: Vec<&str> = names.filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(untold.is_empty(), "docs/dev/contract.md says nothing of {untold:?}");
}

#[test]
fn the_contract_tells_every_question_that_a_view_answers() {
    let page = read(&root().join("docs/dev/contract.md"));
    let code = read(&root().join("crates/core/framework/src/view.rs"));
    let own = code.split("impl<'a> View<'a> {").nth(1).and_then(|rest| rest.split("\n}").next());
    let lines = own.expect("what a view answers").lines();
    let names = lines.filter_map(|line| line.strip_prefix("    pub fn ")?.split(['(', '<']).next());
    let names: Vec<&str> = names.filter(|name| *name != "new").collect();
    assert!(names.len() > 30, "{names:?}");
    let untold: Vec<&&str> =
        names.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(untold.is_empty(), "docs/dev/contract.md says nothing of {untold:?}");
}

/// Words that the field has better ones for: in documents, help texts and the schema of the API.
const RETIRED_PHRASES: &[&str] = &[
    "standing:",
    "--standing",
    "--freedom",
    "as-given",
    "plain order",
    "cannot be told apart",
    "not let in",
    "who is let in",
    "by laws",
    "jobs of this moment on",
    "what a submission would lead to",
    "guard of growth",
    "dial of fairness",
];
/// Words that stand where the subject belongs, or for a word of the field: "a job that ..." and "no user ..." say more.
/// Refused in documents, scenarios, dashboards and the Python package, and in comments and texts of sources.
const RETIRED_WORDS: &[&str] = &[
    "whoever",
    "nobody",
    "somebody",
    "everybody",
    "anybody",
    "everyone",
    "who waits",
    "told apart",
    "let in",
    "as-given",
    "by laws",
];
/// The same for names in the code.
const RETIRED_NAMES: &[&str] = &[
    "Desk",
    "Front",
    "Thinker",
    "Thought",
    "Question",
    "Maker",
    "Foreteller",
    "Oracle",
    "Foresight",
    "Poke",
    "Kin",
    "Tells",
    "Shelf",
    "Asking",
    "Dials",
    "Freedom",
    "Knows",
    "take_stock",
    "left_alone",
    "forgive_policy",
    "GATES",
    "Gated",
];

#[test]
fn retired_words_stay_retired() {
    let mut wrong = Vec::new();
    let mut texts = walk(&root().join("docs"), "md");
    texts.extend(walk(&root().join("docs/schema"), "json"));
    texts.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    texts.extend(sources().into_iter().filter(|file| short(file).starts_with("crates/app")));
    for file in texts.iter().filter(|file| !short(file).contains("docs/book/")) {
        let text = read(file);
        let found = RETIRED_PHRASES.iter().filter(|word| text.contains(**word));
        wrong.extend(found.map(|word| format!("{} says `{word}`", short(file))));
    }
    for file in sources().into_iter().filter(|file| !file.ends_with("tidy.rs")) {
        for (number, line) in read(&file).lines().enumerate() {
            let is_definition = ["struct ", "enum ", "trait ", "type ", "fn ", "const "]
                .iter()
                .any(|kind| RETIRED_NAMES.iter().any(|name| defines(line, kind, name)));
            if is_definition {
                wrong.push(format!("{}:{}: {}", short(&file), number + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "see docs/guide/glossary.md:\n{}", wrong.join("\n"));
}

/// Whether a text has the word, in small or large letters, and not as a part of another one or of a name in code.
fn says(text: &str, word: &str) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(in_word) && !text[at + word.len()..].starts_with(in_word)
    })
}

/// What a line of a source says to people: its comment, and the texts in it.
fn prose(line: &str) -> Vec<&str> {
    match line.trim_start().strip_prefix("//") {
        Some(comment) => vec![comment],
        None => line.split('"').skip(1).step_by(2).collect(),
    }
}

#[test]
fn sentences_name_their_subject() {
    let mut wrong = Vec::new();
    let mut check = |file: &Path, text: &str| {
        let small = text.to_lowercase();
        let found = RETIRED_WORDS.iter().filter(|word| says(&small, word));
        wrong.extend(found.map(|word| format!("{}: `{word}` in {}", short(file), text.trim())));
    };
    let mut documents = walk(&root().join("docs"), "md");
    documents.retain(|file| !short(file).contains("docs/book/"));
    documents.extend(walk(&root().join("scenarios"), "scn"));
    documents.extend(walk(&root().join("deploy"), "json"));
    documents.extend(walk(&root().join("python/trainyard"), "py"));
    let pages = ["README", "ARCHITECTURE", "CONTRIBUTING", "STYLE", "SECURITY", "CHANGELOG"];
    documents.extend(pages.map(|name| root().join(format!("{name}.md"))));
    for file in documents {
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        check(&file, &stem.replace('_', " "));
        for line in read(&file).lines() {
            // What stands in code spans is quoted.
            line.split('`').step_by(2).for_each(|text| check(&file, text));
        }
    }
    for file in sources() {
        let name = short(&file);
        if !name.contains("/src/") || name.ends_with("/tests.rs") || name.contains("/tests/") {
            continue;
        }
        for line in without_tests(&read(&file)).lines() {
            prose(line).into_iter().for_each(|text| check(&file, text));
        }
    }
    assert!(wrong.is_empty(), "see docs/guide/glossary.md:\n{}", wrong.join("\n"));
}

#[test]
fn a_retired_word_is_found_as_a_word_only() {
    assert!(says("it costs nobody anything", "nobody") && says("nobody", "nobody"));
    assert!(!says("user nobody_else", "nobody") && !says("outlet in use", "let in"));
    assert_eq!(prose("    // A comment."), [" A comment."]);
    assert_eq!(prose("let a = said(\"one\", \"two\");"), ["one", "two"]);
}

/// Nouns that had many meanings: a public type of such a name exists once at most.
const ONE_MEANING: &[&str] =
    &["Answer", "Order", "Place", "Placer", "Row", "Seen", "Standing", "Verdict"];

#[test]
fn a_noun_has_one_public_meaning() {
    let mut wrong = Vec::new();
    for noun in ONE_MEANING {
        let mut places = Vec::new();
        for file in sources().into_iter().filter(|file| !short(file).contains("/tests/")) {
            let text = read(&file);
            let public = |line: &&str| line.trim_start().starts_with("pub ");
            let kinds = ["struct ", "enum ", "trait ", "type "];
            let here = text.lines().filter(public);
            let here = here.filter(|line| kinds.iter().any(|kind| defines(line, kind, noun)));
            places.extend(here.map(|_| short(&file)));
        }
        if places.len() > 1 {
            wrong.push(format!("{noun}: {}", places.join(", ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn defines(line: &str, kind: &str, name: &str) -> bool {
    line.split_once(kind).is_some_and(|(_, rest)| {
        rest.strip_prefix(name)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

#[test]
fn every_test_that_the_security_page_names_exists() {
    let page = read(&root().join("docs/guide/security.md"));
    let named = named_tests(&page);
    assert!(named.len() > 50, "the page names {} tests", named.len());
    let wrong = without_a_test(named);
    assert!(wrong.is_empty(), "no test is called {}", wrong.join(", "));
}

#[test]
fn every_cell_of_the_table_of_isolation_has_its_test_or_its_no() {
    let page = read(&root().join("docs/guide/gpu-sharing.md"));
    let (_, section) = page.split_once("\n## What is isolated\n").expect("the page has the table");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let (head, rows) = rows.split_first().expect("the table has a head");
    assert_eq!(head[1..], ["token", "MPS", "MIG", "whole GPUs"]);
    for about in ["memory", "faults", "timing", "side channels"] {
        assert!(rows.iter().any(|row| row[0].starts_with(about)), "no row is about {about}");
    }
    for row in rows {
        assert_eq!(row.len(), head.len(), "{row:?}");
        for (cell, mechanism) in row[1..].iter().zip(&head[1..]) {
            let has_test = cell.starts_with("yes") && !named_tests(cell).is_empty();
            let is_no = cell.starts_with("no");
            assert!(has_test || is_no, "{}, {mechanism}: {cell}", row[0]);
        }
    }
    let wrong = without_a_test(named_tests(section));
    assert!(wrong.is_empty(), "no test is called {}", wrong.join(", "));
}

/// Names of tests in a text. Such a name is a sentence: at least four words in a code span.
fn named_tests(text: &str) -> Vec<&str> {
    let spans = text.split('`').skip(1).step_by(2);
    let is_name = |span: &&str| {
        let small = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        span.chars().all(small) && span.matches('_').count() >= 3
    };
    spans.filter(is_name).collect()
}

/// Those of the names that no test has.
fn without_a_test(named: Vec<&str>) -> Vec<&str> {
    let texts: Vec<String> = sources().iter().map(|file| read(file)).collect();
    let is_test = |name: &str| {
        let signature = format!("fn {name}()");
        texts.iter().any(|text| {
            let before = text.find(&signature).map(|at| &text[..at]);
            // The attribute is one of the lines right above.
            before.is_some_and(|before| {
                before.lines().rev().take(3).any(|line| line.contains("test]"))
            })
        })
    };
    named.into_iter().filter(|name| !is_test(name)).collect()
}

/// Functions with their first line, length and signature, by the indentation of their closing brace.
fn functions(text: &str) -> Vec<(usize, usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let body = line.trim_start();
        let is_fn = ["fn ", "pub fn ", "pub(crate) fn ", "async fn ", "const fn ", "pub const fn "]
            .iter()
            .any(|head| body.starts_with(head));
        if !is_fn || body.ends_with(';') || body.ends_with('}') {
            continue;
        }
        let closing = format!("{}}}", &line[..line.len() - body.len()]);
        let end = lines[start..].iter().position(|line| *line == closing);
        if let Some(length) = end {
            found.push((start + 1, length + 1, body.to_owned()));
        }
    }
    found
}

/// The text without items that exist for tests only, wherever they stand.
fn without_tests(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let ends = |line: &str| {
            let rest = line.strip_prefix(indent).unwrap_or_default();
            let on_one_line = !rest.starts_with([' ', '#']) && rest.ends_with([';', '}']);
            on_one_line || rest.starts_with('}')
        };
        lines.by_ref().find(|line| ends(line));
    }
    kept
}

#[test]
fn only_tests_are_left_out() {
    let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {\n    }\n}\nfn c() {}\n    #[cfg(test)]\n    \
                #[allow(x)]\n    fn d(\n    ) {\n    }\n    fn e() {}\n#[cfg(test)]\nmod f;\nfn g() {}\n";
    assert_eq!(without_tests(text), "fn a() {}\nfn c() {}\n    fn e() {}\nfn g() {}\n");
}

fn sources() -> Vec<PathBuf> {
    walk(&root().join("crates"), "rs")
}

fn walk(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder is readable").flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                files.push(path);
            }
        }
    }
    files.sort();
    assert!(!files.is_empty(), "no .{extension} below {}", folder.display());
    files
}

fn short(path: &Path) -> String {
    path.strip_prefix(root()).expect("below the root").display().to_string()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
