//! The arbiter as a program of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use trainyard_token::{FRAME, FromProgram};

const PROGRAM: &str = env!("CARGO_BIN_EXE_trainyard-share");

#[test]
fn it_serves_until_its_input_ends_and_says_who_got_what() {
    let folder = std::env::temp_dir().join(format!("trainyard-share-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (first, second) = (folder.join("a"), folder.join("b"));
    let mut child = Command::new(PROGRAM)
        .args(["--window", "1s", "--quota", "10ms:20ms:20ms", "--grace", "2s"])
        .arg(format!("{}=300:1000:5", first.display()))
        .arg(format!("{}=700:700", second.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let mut stream = UnixStream::connect(&first).unwrap();
    let words = [FromProgram::Hello, FromProgram::Reserve { bytes: 3 << 20 }, FromProgram::Want];
    stream.write_all(&words.map(FromProgram::encode).concat()).unwrap();
    stream.read_exact(&mut [0; 3 * FRAME]).unwrap();
    drop(child.stdin.take());
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    let lines: Vec<&str> = rest.lines().collect();
    assert!(lines[0].contains("in 1 turns") && lines[0].contains("memory peak 3 MiB"), "{rest}");
    assert!(lines[1].contains("NEVER SAID HELLO") && !lines[0].contains("NEVER"), "{rest}");
    assert!(!first.exists() && !second.exists(), "its sockets are gone");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_makes_no_sense_is_said() {
    let cases: [(&[&str], &str); 6] = [
        (&[], "expected at least one SOCKET=REQUEST:LIMIT"),
        (&["--window"], "--window needs a value"),
        (&["--windows", "1s"], "unknown option `--windows`"),
        (&["/nowhere/x=a:b"], "found `/nowhere/x=a:b`"),
        (&["/nowhere/x=800:500"], "not 800 of 500"),
        (&["/nowhere/x=500:500"], "/nowhere/x: No such file or directory"),
    ];
    for (words, expected) in cases {
        let output = Command::new(PROGRAM).args(words).stdin(Stdio::null()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains(expected), "{words:?}: {told}");
        assert_eq!(output.status.code(), Some(2));
    }
}
