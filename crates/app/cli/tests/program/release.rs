//! What is shipped: archives, the bill of materials, manual pages, the recipe of an image.

use crate::place::Place;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use trainyard_testkit::places::root;

const PROGRAM: &str = env!("CARGO_BIN_EXE_trainyard");

/// Runs a command and gives back what it printed.
fn told(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Why no release can be made here, if that is so.
fn lacking() -> Option<&'static str> {
    let has = |tool: &str| Command::new(tool).arg("--version").output();
    let tools = ["cargo", "python3", "tar", "gzip", "sha256sum"];
    if let Some(tool) = tools.into_iter().find(|tool| has(tool).is_err()) {
        return Some(tool);
    }
    let tar = has("tar").map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    (!tar.unwrap_or_default().contains("GNU tar")).then_some("GNU tar")
}

/// The library for jobs on shared GPUs, which is built with the tests of this package.
fn library() -> PathBuf {
    let built = Path::new(PROGRAM).parent().expect("a folder").join("deps");
    built.join("libtrainyard_preload.so")
}

/// Packs a program into a folder of the place; the archive's name without its ending.
fn pack(place: &Place, program: &Path, out: &str) -> PathBuf {
    let mut command = Command::new(root().join("scripts/release"));
    command.arg("--program").arg(program).args(["--out", out]).current_dir(place.root());
    command.arg("--library").arg(library());
    command.env("SOURCE_DATE_EPOCH", "1700000000").env("CARGO_NET_OFFLINE", "true");
    // A user's own setting is no part of a release.
    command.env("TRAINYARD_SERVER", "unix:/leaks/into/pages");
    let printed = told(&mut command);
    let archive = printed.lines().find_map(|line| line.strip_suffix(".tar.gz"));
    PathBuf::from(archive.expect("the archive is named"))
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    PathBuf::from(format!("{}{end}", path.display()))
}

/// The program without what only a debugger reads: it is packed several times.
fn small_program(place: &Place) -> PathBuf {
    let path = place.path("program");
    std::fs::copy(PROGRAM, &path).expect("a copy");
    let _ = Command::new("strip").arg(&path).status();
    path
}

#[test]
fn the_same_program_packed_twice_gives_the_same_bytes_and_runs_where_it_is_unpacked() {
    if let Some(tool) = lacking() {
        trainyard_testkit::skip!("python", "there is no {tool}");
    }
    let place = Place::new("release-archive");
    let program = small_program(&place);
    let (first, second) = (pack(&place, &program, "one"), pack(&place, &program, "two"));
    for end in [".tar.gz", ".cdx.json"] {
        let read = |path: &Path| std::fs::read(with_end(path, end)).expect("a file");
        assert!(read(&first) == read(&second), "{end} differs");
    }
    assert_eq!(place.read("one/SHA256SUMS"), place.read("two/SHA256SUMS"));
    let check = |folder: &str| {
        let mut command = Command::new("sha256sum");
        command.args(["--check", "--strict", "SHA256SUMS"]).current_dir(place.path(folder));
        command.output().expect("it runs").status.success()
    };
    assert!(check("one"));
    let mut archive = std::fs::read(with_end(&second, ".tar.gz")).expect("a file");
    archive[100] ^= 1;
    std::fs::write(with_end(&second, ".tar.gz"), archive).expect("written");
    assert!(!check("two"), "a bit more or less is noticed");

    let archive = with_end(&first, ".tar.gz");
    told(Command::new("tar").arg("-xzf").arg(&archive).current_dir(place.root()));
    let listed = told(Command::new("tar").args(["--numeric-owner", "-tvzf"]).arg(&archive));
    assert!(listed.lines().all(|line| line.contains(" 0/0 ")), "all belongs to user 0: {listed}");
    let tree = place.root().join(first.file_name().expect("a name"));
    let version = told(Command::new(tree.join("bin/trainyard")).arg("--version"));
    assert_eq!(version, place.run(&["--version"]).out);
    for file in [
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "LICENSES-THIRD-PARTY",
        "README.md",
        "share/man/man1/trainyard.1",
        "share/man/man1/trainyard-upgrade-check.1",
        "share/bash-completion/completions/trainyard",
        "share/zsh/site-functions/_trainyard",
        "share/fish/vendor_completions.d/trainyard.fish",
        "deploy/systemd/trainyard.service",
        "deploy/grafana/trainyard.json",
        "deploy/container/Containerfile",
        "python/pyproject.toml",
        "python/trainyard/__init__.py",
    ] {
        let text = std::fs::read_to_string(tree.join(file)).expect(file);
        assert!(!text.is_empty() && !text.contains("/leaks/into/pages"), "{file}");
    }
    // Where the program looks for it.
    let packed = std::fs::read(tree.join("lib/trainyard/libtrainyard_preload.so")).expect("packed");
    assert!(packed == std::fs::read(library()).expect("built"));
    let mut doctor = Command::new(tree.join("bin/trainyard"));
    let doctor = doctor.args(["doctor", "--json"]).current_dir(place.root()).output();
    let told = String::from_utf8(doctor.expect("it runs").stdout).expect("UTF-8");
    assert!(told.contains("lib/trainyard/libtrainyard_preload.so is there"), "{told}");
    let licences = std::fs::read_to_string(tree.join("LICENSES-THIRD-PARTY")).expect("a file");
    assert!(
        licences.contains("\nserde_json ") && licences.contains("Permission is hereby granted")
    );
}

/// Names of packages as `name-version` that `cargo tree` says the program links.
fn linked() -> BTreeSet<String> {
    let mut command = Command::new("cargo");
    command.args(["tree", "--offline", "--locked", "-p", "trainyard", "-e", "normal"]);
    command.args(["--prefix", "none", "--format", "{p}"]).current_dir(root());
    let package = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        Some(format!("{name}-{version}"))
    };
    told(&mut command).lines().filter_map(package).collect()
}

/// Packages whose sources the program itself names, in messages of panics.
fn named_in(program: &Path) -> BTreeSet<String> {
    let bytes = std::fs::read(program).expect("a program");
    let mark = b"/registry/src/";
    let places = bytes.windows(mark.len()).enumerate().filter(|(_, window)| window == mark);
    let package = |(at, _): (usize, &[u8])| {
        // The folder of the registry, then that of the package.
        let rest = &bytes[at + mark.len()..bytes.len().min(at + mark.len() + 200)];
        let name = rest.split(|byte| matches!(byte, b'/' | 0)).nth(1)?;
        String::from_utf8(name.to_vec()).ok()
    };
    places.filter_map(package).collect()
}

#[test]
fn the_bill_of_materials_lists_what_the_program_links_and_nothing_else() {
    if let Some(tool) = lacking() {
        trainyard_testkit::skip!("python", "there is no {tool}");
    }
    let place = Place::new("release-bill");
    let target = told(Command::new("rustc").arg("-vV"));
    let target = target.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
    let mut command = Command::new("python3");
    command.arg(root().join("scripts/sbom.py")).args(["--target", target, "--out", "bill.json"]);
    command.current_dir(place.root());
    told(command.env("SOURCE_DATE_EPOCH", "1700000000").env("CARGO_NET_OFFLINE", "true"));
    let bill: Value = serde_json::from_str(&place.read("bill.json")).expect("JSON");
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    assert_eq!(bill["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
    let serial = bill["serialNumber"].as_str().and_then(|text| text.strip_prefix("urn:uuid:"));
    assert_eq!(serial.map(str::len), Some(36));
    let parts = bill["components"].as_array().expect("a list");
    let whole = &bill["metadata"]["component"];
    let mut refs = BTreeSet::new();
    let mut listed = BTreeSet::new();
    for part in parts.iter().chain([whole]) {
        let text = |key: &str| part[key].as_str().unwrap_or_default();
        assert!(refs.insert(text("bom-ref")), "{part} is listed twice");
        assert!(part["licenses"][0].is_object(), "no licence: {part}");
        listed.insert(format!("{}-{}", text("name"), text("version")));
        if text("name").starts_with("trainyard") {
            continue;
        }
        let purl = format!("pkg:cargo/{}@{}", text("name"), text("version"));
        assert_eq!(text("purl"), purl);
        let sum = part["hashes"][0]["content"].as_str().expect("a sum");
        assert!(sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()), "{sum}");
    }
    assert_eq!(listed, linked());
    let named = named_in(Path::new(PROGRAM));
    assert!(named.len() > 50, "the program names its packages: {named:?}");
    // A program with more features than are shipped links more than is listed.
    let is_shipped = !cfg!(any(feature = "png", feature = "parquet", feature = "highs"));
    let unlisted = named.difference(&listed).collect::<Vec<_>>();
    assert!(!is_shipped || unlisted.is_empty(), "{unlisted:?}");
    let edges = bill["dependencies"].as_array().expect("a list");
    assert_eq!(edges.len(), refs.len(), "each package says what it needs");
    for edge in edges {
        let needs = edge["dependsOn"].as_array().expect("a list");
        let mut ends = needs.iter().chain([&edge["ref"]]);
        assert!(ends.all(|end| refs.contains(end.as_str().unwrap_or_default())), "{edge}");
    }
}

#[test]
fn a_program_without_the_library_is_not_packed() {
    if let Some(tool) = lacking() {
        trainyard_testkit::skip!("python", "there is no {tool}");
    }
    let place = Place::new("release-without");
    let program = small_program(&place);
    let mut command = Command::new(root().join("scripts/release"));
    command.arg("--program").arg(&program).args(["--out", "out"]).current_dir(place.root());
    let output = command.output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && errors.contains("name it with --library"), "{errors}");
}

#[test]
fn a_release_that_is_asked_for_wrongly_says_what_was_expected() {
    for (arguments, expected) in
        [(&["--taget", "x"][..], "unknown argument `--taget`"), (&["--out"], "--out needs a value")]
    {
        let mut command = Command::new(root().join("scripts/release"));
        let output = command.args(arguments).output().expect("it starts");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && errors.contains(expected), "{errors}");
    }
}

#[test]
fn every_command_that_help_lists_has_a_manual_page() {
    let place = Place::new("release-man");
    let run = place.run(&["man", "pages/man1"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let pages = place.files_in("pages/man1");
    assert_eq!(run.out, format!("{} pages in pages/man1\n", pages.len()));
    let mut open = vec![Vec::<String>::new()];
    let mut commands = 0;
    while let Some(path) = open.pop() {
        commands += 1;
        let name: Vec<&str> =
            ["trainyard"].into_iter().chain(path.iter().map(|it| &**it)).collect();
        let file = format!("{}.1", name.join("-"));
        assert!(pages.contains(&file), "{file} is missing");
        assert!(place.read(&format!("pages/man1/{file}")).contains(".SH NAME"), "{file}");
        let mut help: Vec<&str> = path.iter().map(|it| &**it).collect();
        help.push("--help");
        let help = place.run(&help).out;
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        // The whole list is in groups, each with a heading.
        let indent = if path.is_empty() { "    " } else { "  " };
        let end = if path.is_empty() { "Options:" } else { "" };
        for line in listed.take_while(|line| *line != end) {
            let is_name = line.strip_prefix(indent).is_some_and(|rest| !rest.starts_with(' '));
            let name = line.split_whitespace().next().filter(|name| is_name && *name != "help");
            open.extend(name.map(|name| [path.clone(), vec![name.to_owned()]].concat()));
        }
    }
    assert_eq!(commands, pages.len(), "and no page is about nothing");
}

/// Instructions of a recipe with what follows them, lines joined.
fn instructions(recipe: &str) -> Vec<(String, String)> {
    let lines = recipe.lines().filter(|line| !line.trim_start().starts_with('#'));
    let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let split = |line: &str| line.trim().split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned()));
    joined.lines().filter_map(split).collect()
}

#[test]
fn the_recipe_of_the_image_names_files_and_flags_that_exist() {
    let recipe = root().join("deploy/container/Containerfile");
    let instructions = instructions(&std::fs::read_to_string(recipe).expect("a recipe"));
    let all = |wanted: &str| -> Vec<String> {
        let found = instructions.iter().filter(|(name, _)| name == wanted);
        found.map(|(_, rest)| rest.clone()).collect()
    };
    for copy in all("COPY") {
        let words: Vec<&str> = copy.split_whitespace().collect();
        let (_, sources) = words.split_last().expect("a destination");
        match sources {
            ["--from=build", source] => {
                let made = ["trainyard", "libtrainyard_preload.so"];
                let file = source.strip_prefix("/source/target/dist/");
                assert!(file.is_some_and(|file| made.contains(&file)), "what the profile makes");
            }
            sources => {
                let missing = sources.iter().find(|source| !root().join(source).exists());
                assert_eq!(missing, None, "COPY {copy}");
            }
        }
    }
    let built = all("RUN").into_iter().find(|line| line.contains("cargo build")).expect("a build");
    for word in ["--locked", "--profile dist", "--package trainyard", "--package trainyard-preload"]
    {
        assert!(built.contains(word), "{built}");
    }
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    assert!(manifest.contains("[profile.dist]"));
    let needed = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \""));
    let needed = needed.expect("a version").trim_end_matches('"');
    assert!(all("FROM").iter().any(|from| from.contains(&format!("rust:{needed}-"))));
    assert_eq!(all("USER"), ["trainyard"], "not as root");
    let words = |text: &str| -> Vec<String> {
        serde_json::from_str(&text[text.find('[').expect("a list")..]).expect("a list of words")
    };
    let health = words(&all("HEALTHCHECK")[0]);
    assert_eq!(all("VOLUME"), [words(&all("CMD")[0])[2].clone()], "state is in the volume");
    let place = Place::new("release-recipe");
    for line in [words(&all("CMD")[0]), health[1..].to_vec()] {
        let help = place.run(&[&line[0], "--help"]);
        assert_eq!(help.code, 0, "{line:?}");
        for flag in line.iter().filter(|word| word.starts_with("--")) {
            assert!(help.out.contains(flag.as_str()), "{flag} of {line:?}");
        }
    }
}
