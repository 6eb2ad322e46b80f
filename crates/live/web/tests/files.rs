//! The files of the page fit together and ask for nothing else.

use std::collections::BTreeSet;
use trainyard_policies::registry::POLICIES;
use trainyard_web::{file, files};

fn text(path: &str) -> &'static str {
    let file = file(path).unwrap_or_else(|| panic!("{path} is no file of the page"));
    std::str::from_utf8(file.bytes).unwrap()
}

/// What stands between a mark and the next quote, wherever the mark is.
fn after<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(mark).skip(1).map(|rest| rest.split('"').next().unwrap())
}

#[test]
fn everything_that_is_asked_for_is_there() {
    let page = text("/");
    let named: BTreeSet<&str> = after(page, "href=\"").chain(after(page, "src=\"")).collect();
    let named: BTreeSet<&str> =
        named.into_iter().filter(|path| path.starts_with("/assets/")).collect();
    for path in &named {
        text(path);
    }
    for file in files().iter().filter(|file| file.path.ends_with(".js")) {
        for module in after(text(file.path), "from \"./") {
            text(&format!("/assets/{module}"));
        }
        assert!(named.contains(file.path), "{} is not loaded early", file.path);
    }
}

#[test]
fn nothing_leaves_the_host_and_nothing_runs_from_markup() {
    for file in files().iter().filter(|file| file.kind.starts_with("text/")) {
        let text = text(file.path);
        for mark in ["https://", "//cdn", "innerHTML", "outerHTML", "insertAdjacentHTML", "eval("] {
            assert!(!text.contains(mark), "{} has {mark}", file.path);
        }
        assert!(!text.contains("http://"), "{} names another host", file.path);
    }
    let page = text("/");
    for mark in [" onclick", " onload", " style=", "<style", "<script>"] {
        assert!(!page.contains(mark), "the policy of the page forbids {mark}");
    }
}

#[test]
fn tags_tell_files_apart_and_files_fit_in_a_head() {
    let tags: BTreeSet<&str> = files().iter().map(|file| file.tag.as_str()).collect();
    assert_eq!(tags.len(), files().len());
    for file in files().iter().filter(|file| file.kind.starts_with("text/")) {
        let lines = text(file.path).lines().count();
        assert!(lines <= 400, "{} has {lines} lines", file.path);
    }
}

#[test]
fn every_policy_that_is_offered_exists() {
    let script = text("/assets/policy.js");
    let list = script.split("const OFFERED = [").nth(1).unwrap().split(']').next().unwrap();
    let offered: Vec<&str> = list.split(',').map(|name| name.trim().trim_matches('"')).collect();
    assert!(offered.len() >= 4);
    for name in offered {
        assert!(POLICIES.iter().any(|entry| entry.name == name), "no policy is called {name}");
    }
}
