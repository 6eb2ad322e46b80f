//! Programs and arbiters that do not do what they should.

use crate::device::{Device, Finds, Running, library, quick};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::Duration;
use trainyard_sharing::{Limits, OnOverdue, ServerOptions};
use trainyard_token::{FRAME, FromProgram, LOST_VARIABLE, NO_CAP, SOCKET_VARIABLE, ToProgram};
use trainyard_types::Span;

fn two(options: ServerOptions) -> Option<Device> {
    let device = Device::new(options)?;
    device.job(0, (500, 1000), 100 << 20);
    device.job(1, (500, 1000), NO_CAP);
    Some(device)
}

/// The second job does its work, whatever the first one did.
fn neighbour_goes_on(device: &Device) {
    let before = device.executed(1);
    let lines = device.run(1, Finds::ByDlsym, &["launch:1000", "work:1000:200"]);
    assert!(lines[1].starts_with("worked 0 "), "{lines:?}");
    assert!(device.executed(1).minus(before) >= Span(30_000));
}

#[test]
fn a_program_that_keeps_its_turn_is_stopped_and_the_neighbour_goes_on() {
    let Some(device) = two(quick()) else { return };
    let stuck = device.start(0, Finds::Linked, &["launch:5000", "hang"]);
    device.wait_for("a turn", |device| device.stats(0).counters.grants == 1);
    neighbour_goes_on(&device);
    let output = stuck.output();
    assert_eq!(output.status.signal(), Some(9), "{output:?}");
    let first = device.stats(0);
    assert_eq!(first.counters.revocations, 1);
    assert!(first.counters.overrun >= Span(600_000), "{first:?}");
    let waited = device.stats(1).counters.throttled_by[&first.client];
    assert!(waited >= Span(400_000), "{waited:?}");
}

#[test]
fn a_program_that_keeps_its_turn_can_be_left_alive_and_pays() {
    let limits = Limits { on_overdue: OnOverdue::Charge, ..Limits::default() };
    let Some(device) = two(ServerOptions { limits, ..quick() }) else { return };
    // By hand: a process that is stopped within a kernel would keep the simulated device itself.
    let (mut stream, token) = turn_by_hand(&device);
    neighbour_goes_on(&device);
    assert_eq!(device.stats(0).counters.revocations, 1);
    let renew = FromProgram::Renew { token, drain_us: 0 };
    stream.write_all(&renew.encode()).unwrap();
    assert!(granted(&mut stream) > token, "late, but it is given back");
    assert!(device.stats(0).counters.overrun >= Span(700_000));
    assert_eq!(device.stats(0).faults, 0);
}

/// The first job's turn, held by this process.
fn turn_by_hand(device: &Device) -> (UnixStream, u64) {
    let mut stream = UnixStream::connect(device.socket(0)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(&[FromProgram::Hello.encode(), FromProgram::Want.encode()].concat()).unwrap();
    stream.read_exact(&mut [0; FRAME]).unwrap();
    let token = granted(&mut stream);
    (stream, token)
}

fn granted(stream: &mut UnixStream) -> u64 {
    let mut answer = [0; FRAME];
    stream.read_exact(&mut answer).unwrap();
    match ToProgram::decode(&answer) {
        Ok(ToProgram::Granted { token, .. }) => token,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_program_that_crashes_frees_its_turn_and_its_memory() {
    let Some(device) = two(quick()) else { return };
    let output = device.start(0, Finds::ByProcAddress, &["alloc:1000", "launch:300000", "crash"]);
    let output = output.output();
    assert_eq!(output.status.signal(), Some(11), "{output:?}");
    device.wait_for("its end", |device| {
        device.server().stats().holder.is_none() && device.stats(0).memory_used == 0
    });
    assert_eq!(device.stats(0).counters.revocations, 0);
    neighbour_goes_on(&device);
}

#[test]
fn a_child_has_a_connection_of_its_own_and_the_jobs_cap() {
    let Some(device) = two(quick()) else { return };
    let words = [
        "alloc:62914560",
        "launch:1000",
        "fork:41943041",
        "fork:41943040",
        "launch:1000",
        "alloc:41943040",
    ];
    let lines = device.run(0, Finds::ByDlsym, &words);
    let expected = [
        "alloc 0",
        "launch 0",
        "child 0 2",
        "fork 0",
        "child 0 0",
        "fork 0",
        "launch 0",
        "alloc 0",
    ];
    assert_eq!(lines, expected);
    assert_eq!(device.stats(0).hellos, 6, "two connections for each of three processes");
    assert_eq!(device.stats(0).faults, 0);
}

#[test]
fn a_program_that_brings_its_own_driver_never_says_hello() {
    let Some(device) = two(quick()) else { return };
    let lines = device.run(0, Finds::Static, &["alloc:209715200", "launch:1000", "sync"]);
    assert_eq!(lines, ["alloc 0", "launch 0", "sync 0"], "nothing holds it");
    assert!(device.stats(0).never_said_hello());
    assert_eq!(device.stats(0).unhooked(&[77]).collect::<Vec<_>>(), [77]);
    let hooked = device.start(0, Finds::Linked, &["launch:1000", "sleep:20000"]);
    device.wait_for("hello", |device| !device.stats(0).never_said_hello());
    let own = hooked.0.id() as i32;
    assert_eq!(device.stats(0).unhooked(&[own, 77]).collect::<Vec<_>>(), [77]);
}

#[test]
fn without_its_arbiter_a_program_goes_on_within_its_cap() {
    let Some(mut device) = two(quick()) else { return };
    let words =
        ["alloc:1000", "work:1000:1500", "alloc:104857600", "alloc:104856600", "launch:1000"];
    let program = device.start(0, Finds::ByDlsym, &words);
    device.wait_for("work", |device| device.executed(0) > Span(50_000));
    device.end_server();
    let output = program.output();
    let text = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("worked 0 "), "{text} {told}");
    assert!(text.ends_with("alloc 2\nalloc 0\nlaunch 0\nend\n"), "{text} {told}");
    assert_eq!(told.matches("going on without turns").count(), 1, "{told}");
}

#[test]
fn without_its_arbiter_a_program_stops_where_that_is_wanted() {
    let Some(mut device) = two(quick()) else { return };
    let mut command = device.command(0, Finds::ByDlsym, &["work:1000:20000", "alloc:1000"]);
    let program = Running(command.env(LOST_VARIABLE, "stop").spawn().unwrap());
    device.wait_for("work", |device| device.executed(0) > Span(50_000));
    device.end_server();
    let output = program.output();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("worked 800 ") && text.ends_with("alloc 800\nend\n"), "{text}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("refusing further work"));
}

#[test]
fn an_arbiter_that_never_was_is_one_that_is_gone() {
    let Some(device) = two(quick()) else { return };
    for (setting, expected) in
        [("go-on", "alloc 0\nlaunch 0\nend\n"), ("stop", "alloc 800\nlaunch 800\nend\n")]
    {
        let mut command = device.command(0, Finds::Linked, &["alloc:1000", "launch:1000"]);
        command.env(SOCKET_VARIABLE, "/nonexistent/socket").env(LOST_VARIABLE, setting);
        let output = Running(command.spawn().unwrap()).output();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("/nonexistent/socket"));
    }
}

#[test]
fn a_program_that_closes_our_connections_loses_them_and_nothing_else() {
    let Some(device) = two(quick()) else { return };
    let words = ["alloc:1000", "launch:1000", "closeall", "launch:1000", "alloc:1000", "sync"];
    let output = device.start(0, Finds::ByDlsym, &words).output();
    let text = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text, "alloc 0\nlaunch 0\ncloseall 0\nlaunch 0\nalloc 0\nsync 0\nend\n", "{told}");
    assert!(told.contains("the program closed the connection"), "{told}");
    assert_eq!(device.stats(0).memory_used, 0);
    neighbour_goes_on(&device);
}

/// A connection by hand, and what came back until it was ended.
fn said(device: &Device, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(device.socket(0)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // It may be ended before all of it is said.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer);
    assert!(end.is_ok() || end.is_err_and(|error| error.raw_os_error() == Some(104)));
    answer
}

#[test]
fn messages_that_make_no_sense_end_their_connection_and_nothing_else() {
    let Some(device) = two(quick()) else { return };
    let hello = FromProgram::Hello.encode();
    let messages: [Vec<u8>; 7] = [
        vec![0; FRAME],
        vec![0xff; 100_000],
        FromProgram::Want.encode().to_vec(),
        [hello, hello].concat(),
        [hello, FromProgram::Return { token: 0, drain_us: 0 }.encode()].concat(),
        [hello, FromProgram::Release { bytes: 1 }.encode()].concat(),
        [hello, FromProgram::Want.encode(), FromProgram::Want.encode()].concat(),
    ];
    let welcome = ToProgram::Welcome { memory_cap: 100 << 20 }.encode();
    for (number, message) in messages.iter().enumerate() {
        let answer = said(&device, message);
        let greeted = message.starts_with(&hello);
        assert_eq!(answer.starts_with(&welcome), greeted, "{number}: {answer:?}");
        assert_eq!(device.stats(0).faults, number as u64 + 1, "{number}");
    }
    // A message that is cut off is an end like any other.
    let mut stream = UnixStream::connect(device.socket(0)).unwrap();
    stream.write_all(&hello[..7]).unwrap();
    drop(stream);
    neighbour_goes_on(&device);
    assert_eq!(device.stats(0).faults, 7);
    assert!(device.server().stats().holder.is_none());
}

#[test]
fn a_holder_that_gives_back_another_turn_loses_its_own() {
    let Some(device) = two(quick()) else { return };
    let (mut stream, token) = turn_by_hand(&device);
    stream.write_all(&FromProgram::Return { token: token + 1, drain_us: 0 }.encode()).unwrap();
    assert_eq!(stream.read(&mut [0; FRAME]).unwrap(), 0, "the connection is ended");
    neighbour_goes_on(&device);
}

#[test]
fn connections_beyond_the_bound_and_silent_ones_are_ended() {
    let limits = Limits { peers_max: 3, hello_within: Span(100_000), ..Limits::default() };
    let Some(device) = two(ServerOptions { limits, ..quick() }) else { return };
    let streams: Vec<UnixStream> =
        (0..5).map(|_| UnixStream::connect(device.socket(0)).unwrap()).collect();
    device.wait_for("all are ended", |device| device.stats(0).faults == 5);
    for mut stream in streams {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    }
    neighbour_goes_on(&device);
}

#[test]
fn a_socket_is_for_its_user_alone() {
    let Some(device) = two(quick()) else { return };
    let mode = std::fs::metadata(device.socket(0)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Only root can be another user; what it runs is copied to where that one can read it.
    let folder = device.socket(0).parent().unwrap().to_owned();
    for file in [device.built().join("program2"), device.built().join("libcuda.so.1"), library()] {
        std::fs::copy(&file, folder.join(file.file_name().unwrap())).unwrap();
    }
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(device.socket(0), std::fs::Permissions::from_mode(0o666)).unwrap();
    let mut command = Command::new(folder.join("program2"));
    command.arg("launch:1").env("LD_LIBRARY_PATH", &folder).uid(65_534);
    command.env("LD_PRELOAD", folder.join("libtrainyard_preload.so"));
    command.env(SOCKET_VARIABLE, device.socket(0));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(child) = command.spawn() else {
        trainyard_testkit::skip!("root", "only root can be another user");
        return;
    };
    let output = Running(child).output();
    assert!(String::from_utf8_lossy(&output.stderr).contains("no arbiter"), "{output:?}");
    assert_eq!(device.stats(0).strangers, 1);
    assert!(device.stats(0).never_said_hello());
}
