//! Every `scenarios/*/*.scn` against the `.txt` beside it. `UPDATE_EXPECT=1` rewrites the expected texts.

use std::path::PathBuf;
use trainyard_testkit::{places, scenario};

#[test]
fn every_scenario_shows_what_is_written_beside_it() {
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut wrong = Vec::new();
    let files = scenario_files();
    assert!(files.len() >= 40, "only {} scenarios were found", files.len());
    for file in &files {
        let text = std::fs::read_to_string(file).expect("a scenario is readable");
        let name = file.strip_prefix(places::root()).expect("below the root").display().to_string();
        let shown = match scenario::run(&text) {
            Ok(shown) => shown,
            Err(error) => {
                wrong.push(format!("{name}: {error:#}"));
                continue;
            }
        };
        let expected_file = file.with_extension("txt");
        if update {
            std::fs::write(&expected_file, shown).expect("the expected text is writable");
            continue;
        }
        let expected = std::fs::read_to_string(&expected_file).unwrap_or_default();
        if shown != expected {
            wrong.push(format!("{name}\n--- expected\n{expected}--- shown\n{shown}"));
        }
    }
    assert!(wrong.is_empty(), "{}\nUPDATE_EXPECT=1 rewrites expected texts", wrong.join("\n"));
}

fn scenario_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let folders = std::fs::read_dir(places::root().join("scenarios")).expect("scenarios/ is there");
    for folder in folders.flatten().filter(|entry| entry.path().is_dir()) {
        let inside = std::fs::read_dir(folder.path()).expect("a folder is readable").flatten();
        files.extend(
            inside
                .map(|entry| entry.path())
                .filter(|path| path.extension().is_some_and(|extension| extension == "scn")),
        );
    }
    files.sort();
    files
}
