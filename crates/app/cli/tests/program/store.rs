//! `store backup`, `restore`, `check`, `repair` and `compact`.

use crate::place::{Place, words};
use serde_json::Value;
use std::fs;
use trainyard_store::{Store, Write};

/// A store with ended jobs 0 to 99 and the open job 100, all of long ago.
fn fill(place: &Place) {
    let mut store = Store::open(&place.path("store.db")).expect("a store");
    let add = |job| Write::AddJob {
        job,
        user: "ada".to_owned(),
        tenant: "vision".to_owned(),
        spec: format!("{{\"name\":\"{}-{job}\"}}", "long".repeat(50)),
        state: "{}".to_owned(),
        wall: 1,
    };
    let end = |job| {
        let end = Some("{}".to_owned());
        Write::SetState { job, state: "{}".to_owned(), end }
    };
    let writes: Vec<Write> = (0..=100).map(add).chain((0..100).map(end)).collect();
    store.commit(&writes).expect("room");
    store.close().expect("closed");
}

#[test]
fn a_backup_is_restored_and_the_old_store_is_kept() {
    let place = Place::new("store-backup");
    fill(&place);
    let run = place.run(&words("store backup store.db copy.db"));
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.starts_with("copy.db: 101 jobs, "), "{}", run.out);
    let again = place.run(&words("store backup store.db copy.db"));
    assert_eq!(again.code, 3);
    assert!(again.err.contains("copy.db: the file exists"), "{}", again.err);
    let refused = place.run(&words("store restore copy.db store.db"));
    assert_eq!(refused.code, 3);
    assert!(refused.err.contains("--replace"), "{}", refused.err);
    let run = place.run(&words("store restore copy.db store.db --replace --json"));
    assert_eq!(run.code, 0, "{}", run.err);
    let value: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(value["set_aside"], "store.db.before-restore");
    assert_eq!(place.run(&words("store check store.db")).out, "store.db: sound\n");
}

#[test]
fn a_damaged_store_is_named_repaired_and_sound_again() {
    let place = Place::new("store-repair");
    fill(&place);
    let mut bytes = fs::read(place.path("store.db")).expect("a file");
    let page = (0..bytes.len() / 4096)
        .find(|page| {
            let page = &bytes[page * 4096..][..4096];
            page[0] == 0x0d && page.windows(8).any(|window| window == b"long-50\"")
        })
        .expect("a page of jobs");
    bytes[page * 4096..][..4096].fill(0xff);
    fs::write(place.path("store.db"), &bytes).expect("written");
    let check = place.run(&words("store check store.db"));
    assert_eq!(check.code, 3, "{}", check.out);
    assert!(check.err.contains("trainyard store repair --dry-run store.db"), "{}", check.err);
    let dry = place.run(&words("store repair --dry-run store.db"));
    assert_eq!(dry.code, 0, "{}", dry.err);
    assert!(dry.out.contains("nothing was changed") && dry.out.contains("jobs"), "{}", dry.out);
    assert_eq!(fs::read(place.path("store.db")).expect("a file"), bytes);
    let run = place.run(&words("store repair store.db --json"));
    let value: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(value["tables"][0]["gaps"].as_array().map(Vec::len), Some(1), "{value}");
    assert_eq!(value["set_aside"], "store.db.damaged");
    assert_eq!(place.run(&words("store check store.db")).code, 0);
    let again = place.run(&words("store repair store.db"));
    assert!(again.out.contains("nothing to repair"), "{}", again.out);
}

#[test]
fn what_is_old_is_dropped() {
    let place = Place::new("store-compact");
    fill(&place);
    let run = place.run(&words("store compact store.db --ended-jobs 1d --json"));
    assert_eq!(run.code, 0, "{}", run.err);
    let value: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(value["dropped"]["jobs"], 100, "{value}");
    let wrong = place.run(&words("store compact store.db --keys soon"));
    assert_eq!(wrong.code, 3);
    assert!(wrong.err.contains("--keys"), "{}", wrong.err);
}

#[test]
fn a_store_that_is_missing_in_use_or_not_ours_is_named() {
    let place = Place::new("store-refused");
    for line in ["check", "compact", "repair"] {
        let run = place.run(&words(&format!("store {line} none.db")));
        assert_eq!(run.code, 3, "{line}: {}", run.err);
        assert!(run.err.contains("none.db: "), "{line}: {}", run.err);
    }
    assert_eq!(place.files(), Vec::<String>::new(), "nothing is made");
    fill(&place);
    let held = Store::open(&place.path("store.db")).expect("a store");
    let run = place.run(&words("store repair store.db"));
    assert_eq!(run.code, 1);
    let holder = format!("in use by process {}", std::process::id());
    assert!(run.err.contains(&holder), "{}", run.err);
    drop(held);
    place.write(
        "text.db",
        "no database at all, but long enough to have a header of some sort ".repeat(9),
    );
    let run = place.run(&words("store check text.db"));
    assert_eq!(run.code, 3, "{}", run.err);
}
