//! The rules of the house, enforced.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trainyard_policies::registry::{ADMISSION_CONTROLS, PLACERS, POLICIES, TUNERS};
use trainyard_testkit::places::root;

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

/// Which crates each crate may depend on, tests aside.
const DIRECTIONS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("profile", &["types"]),
    ("workload", &["types", "profile"]),
    ("framework", &["types", "profile"]),
    ("solver", &[]),
    ("policies", &["types", "profile", "framework", "solver"]),
    ("engine", &["types", "framework"]),
    ("sim", &["types", "profile", "framework", "engine", "workload"]),
    ("report", &["types", "profile", "framework", "engine", "sim", "workload"]),
    ("api", &["types"]),
    ("jobfile", &["types", "profile", "api"]),
    ("store", &[]),
    ("backend", &["types", "api"]),
    ("slurm", &["types", "api", "backend"]),
    ("forecast", &["types", "profile", "framework", "engine", "sim", "workload", "report"]),
    ("web", &[]),
    ("daemon", &["types", "profile", "framework", "engine", "api", "store", "backend", "web"]),
];

/// Crates at the top, which may depend on any other.
const TOP: &[&str] = &["cli", "bench", "testkit"];

/// Below the rim nothing reads a clock, a file, a socket or the environment.
const RIM: &[&str] = &["cli", "bench", "testkit", "store", "backend", "slurm", "daemon"];
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

#[test]
fn crates_depend_only_downwards() {
    for entry in std::fs::read_dir(root().join("crates")).expect("a folder").flatten() {
        let name = entry.file_name().into_string().expect("a plain name");
        let listed = TOP.contains(&name.as_str()) || DIRECTIONS.iter().any(|(one, _)| *one == name);
        assert!(listed, "crate {name} has no row that says what it may depend on");
    }
    for (name, allowed) in DIRECTIONS {
        let path = root().join("crates").join(name).join("Cargo.toml");
        let manifest: toml::Table = read(&path).parse().expect("a manifest is TOML");
        let dependencies = manifest["dependencies"].as_table().expect("a table");
        for dependency in dependencies.keys() {
            if let Some(other) = dependency.strip_prefix("trainyard-") {
                assert!(allowed.contains(&other), "crate {name} must not depend on {other}");
            }
        }
    }
}

#[test]
fn the_code_map_is_what_the_manifests_say() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let map = text.split("```text\ntypes\n").nth(1).and_then(|rest| rest.split("```").next());
    let map = format!("types\n{}", map.expect("the code map begins with types"));
    let mut told: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in map.lines().filter(|line| !line.contains(" join them")) {
        let mut words = line.split_whitespace();
        let name = words.next().expect("no empty line");
        let mut others: Vec<&str> = words.collect();
        others.sort_unstable();
        assert!(told.insert(name, others).is_none(), "ARCHITECTURE.md names {name} twice");
    }
    for (name, _) in DIRECTIONS {
        let manifest: toml::Table = read(&root().join(format!("crates/{name}/Cargo.toml")))
            .parse()
            .expect("a manifest is TOML");
        let dependencies = manifest["dependencies"].as_table().expect("a table");
        let mut real: Vec<&str> =
            dependencies.keys().filter_map(|name| name.strip_prefix("trainyard-")).collect();
        real.sort_unstable();
        assert_eq!(told.remove(name), Some(real), "ARCHITECTURE.md on crate {name}");
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
        let is_rim = RIM.iter().any(|rim| name.starts_with(&format!("crates/{rim}/")));
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

#[test]
fn nothing_outside_the_policies_branches_on_a_policys_name() {
    let names: Vec<String> = POLICIES.iter().map(|entry| format!("\"{}\"", entry.name)).collect();
    let mut wrong = Vec::new();
    for file in sources() {
        let name = short(&file);
        let policy_or_test = ["crates/policies/", "crates/testkit/", "crates/bench/"];
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
    texts.extend(sources().into_iter().filter(|file| short(file).starts_with("crates/cli/src")));
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

fn defines(line: &str, kind: &str, name: &str) -> bool {
    line.split_once(kind).is_some_and(|(_, rest)| {
        rest.strip_prefix(name)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

#[test]
fn every_test_that_the_security_page_names_exists() {
    let page = read(&root().join("docs/guide/security.md"));
    // A name of a test is a sentence: at least four words in a code span.
    let named = page.split('`').skip(1).step_by(2).filter(|span| {
        let small = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        span.chars().all(small) && span.matches('_').count() >= 3
    });
    let named: Vec<&str> = named.collect();
    assert!(named.len() > 50, "the page names {} tests", named.len());
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
    let wrong: Vec<&str> = named.into_iter().filter(|name| !is_test(name)).collect();
    assert!(wrong.is_empty(), "no test is called {}", wrong.join(", "));
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
