//! The cap on memory.

use crate::device::{Device, Finds, Running, WAYS, library, quick};

const MIB: u64 = 1 << 20;
const CAP: u64 = 100 * MIB;

fn device() -> Option<Device> {
    let device = Device::new(quick())?;
    device.job(0, (500, 1000), CAP);
    Some(device)
}

#[test]
fn the_cap_is_exact_by_every_way_to_allocate_and_to_find_the_driver() {
    let Some(device) = device() else { return };
    for finds in WAYS {
        for way in ["alloc", "managed", "async", "pool", "create"] {
            let free = match way {
                "create" => "release",
                "async" | "pool" => "freeasync",
                _ => "free",
            };
            let (all, one, byte) =
                (format!("{way}:{CAP}"), format!("{way}:{}", CAP + 1), format!("{way}:1"));
            let words = [&one, &all, &byte, "used", free, "used", &all, free];
            let expected = [
                format!("{way} 2"),
                format!("{way} 0"),
                format!("{way} 2"),
                format!("used {CAP}"),
                format!("{free} 0"),
                "used 0".to_owned(),
                format!("{way} 0"),
                format!("{free} 0"),
            ];
            // The refused allocation has written nothing: what is freed is the one before.
            assert_eq!(device.run(0, finds, &words), expected, "{finds:?}");
        }
        let lines = device.run(0, finds, &["peak"]);
        assert_eq!(lines, [format!("peak {CAP}")], "{finds:?}: never beyond the cap");
    }
    assert_eq!(device.stats(0).memory_used, 0, "what ended programs had is free");
    assert_eq!(device.stats(0).memory_peak, CAP);
}

#[test]
fn rows_that_the_driver_makes_longer_count_as_they_are() {
    let Some(device) = device() else { return };
    // Rows of 1 byte become rows of 512.
    let most = CAP / 512;
    let (fits, beyond) = (format!("pitch:1:{most}"), format!("pitch:1:{}", most + 1));
    let lines = device.run(0, Finds::ByDlsym, &[&beyond, "used", &fits, "used", "alloc:1", "free"]);
    let used = format!("used {CAP}");
    assert_eq!(lines, ["pitch 2", "used 0", "pitch 0", &used, "alloc 2", "free 0"]);
}

#[test]
fn memory_that_is_mapped_counts_after_its_handle_is_gone() {
    let Some(device) = device() else { return };
    let (create, map, unmap) =
        (format!("create:{CAP}"), format!("map:{CAP}"), format!("unmap:{CAP}"));
    let lines = device.run(
        0,
        Finds::ByProcAddress,
        &[&create, &map, "release", "alloc:1", &unmap, "alloc:1"],
    );
    assert_eq!(lines, ["create 0", "map 0", "release 0", "alloc 2", "unmap 0", "alloc 0"]);
}

#[test]
fn memory_of_the_host_does_not_count() {
    let Some(device) = device() else { return };
    let host = format!("host:{}", 10 * CAP);
    let all = format!("alloc:{CAP}");
    assert_eq!(device.run(0, Finds::Linked, &[&host, &all]), ["host 0", "alloc 0"]);
}

#[test]
fn what_goes_with_a_context_is_free_again() {
    let Some(device) = device() else { return };
    let all = format!("alloc:{CAP}");
    let lines = device.run(0, Finds::Linked, &[&all, "alloc:1", "destroy", &all]);
    assert_eq!(lines, ["alloc 0", "alloc 2", "destroy 0", "alloc 0"]);
}

#[test]
fn the_driver_tells_the_cap_for_the_memory_of_the_device() {
    let Some(device) = device() else { return };
    for finds in WAYS {
        let lines =
            device.run(0, finds, &["info", "total", "alloc:1048576", "info", "free", "info"]);
        let (free, less) = (format!("info {CAP} {CAP}"), format!("info {} {CAP}", CAP - MIB));
        let total = format!("total {CAP}");
        assert_eq!(lines, [&free, &total, "alloc 0", &less, "free 0", &free], "{finds:?}");
    }
}

#[test]
fn processes_of_one_job_share_its_cap() {
    let Some(device) = device() else { return };
    let most = format!("alloc:{}", 60 * MIB);
    let first = device.start(0, Finds::ByDlsym, &[&most, "sleep:20000"]);
    device.wait_for("an allocation", |device| device.stats(0).memory_used == 60 * MIB);
    let (rest, more) = (format!("alloc:{}", 40 * MIB), format!("alloc:{}", 40 * MIB + 1));
    assert_eq!(device.run(0, Finds::Linked, &[&more, &rest]), ["alloc 2", "alloc 0"]);
    drop(first);
    device.wait_for("its end", |device| device.stats(0).memory_used == 0);
    let whole = format!("alloc:{CAP}");
    assert_eq!(device.run(0, Finds::Linked, &[&whole]), ["alloc 0"]);
}

#[test]
fn the_drivers_own_answers_are_handed_on_and_cost_nothing() {
    let Some(device) = Device::new(quick()) else { return };
    device.job(0, (500, 1000), 1 << 40);
    // The device has 1 GiB, less than the cap.
    let beyond = format!("alloc:{}", 2u64 << 30);
    let lines = device.run(0, Finds::ByDlsym, &[&beyond, "alloc:0", "free", "total", "alloc:5"]);
    assert_eq!(lines, ["alloc 2", "alloc 1", "free 1", "total 1073741824", "alloc 0"]);
    assert_eq!(device.stats(0).memory_peak, 2 << 30, "reserved before the driver was asked");
    assert_eq!(device.stats(0).memory_refusals, 0);
}

#[test]
fn without_the_variable_nothing_changes() {
    let Some(device) = device() else { return };
    for finds in WAYS {
        let mut command =
            device.command(0, finds, &["total", "alloc:209715200", "launch:1000", "sync"]);
        command.env_remove(trainyard_token::SOCKET_VARIABLE);
        let lines = Running(command.spawn().unwrap()).lines();
        assert_eq!(lines, ["total 1073741824", "alloc 0", "launch 0", "sync 0"], "{finds:?}");
    }
    assert!(device.stats(0).never_said_hello());
}

#[test]
fn a_driver_that_answers_with_our_functions_is_found_all_the_same() {
    let Some(device) = device() else { return };
    for finds in WAYS {
        let mut command =
            device.command(0, finds, &["total", "alloc:1", "free", "launch:1000", "sync"]);
        command.env("LD_LIBRARY_PATH", device.built().join("loose"));
        let lines = Running(command.spawn().unwrap()).lines();
        let total = format!("total {CAP}");
        assert_eq!(lines, [&total, "alloc 0", "free 0", "launch 0", "sync 0"], "{finds:?}");
    }
}

/// The compiler makes `puts` of what the program prints last, and `libnext.so` stands in front of that.
#[test]
fn other_preloaded_libraries_find_what_is_next_after_them() {
    let Some(device) = device() else { return };
    let (next, ours) = (device.built().join("libnext.so"), library());
    for (first, second) in [(&ours, &next), (&next, &ours)] {
        let mut command = device.command(0, Finds::ByDlsym, &["total"]);
        command.env("LD_PRELOAD", format!("{}:{}", first.display(), second.display()));
        let output = Running(command.spawn().unwrap()).output();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text, format!("total {CAP}\nbefore end\n"), "{first:?} first");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}
