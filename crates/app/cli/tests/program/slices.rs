//! MIG slices through the real daemon, with a stand-in for the library of the NVIDIA driver.

use super::daemon::{Daemon, fresh_folder};
use super::fake_nvml::FakeNvml;
use std::fs;

#[test]
fn slices_are_typed_devices_that_jobs_get_by_their_names_and_fall_ill_with_their_gpu() {
    let libraries = fresh_folder("lib-slices");
    let Some(fake) = FakeNvml::new(&libraries, 2) else { return };
    for fact in ["0 mig 1", "0 slice 1 16384 18", "0 slice 1 16384 18"] {
        fake.tell(fact);
    }
    let daemon = Daemon::start_on("slices", &["--policy", "fifo"], Some(&libraries));
    let submit = |name: &str, more: &str| {
        let file = format!("{name}.toml");
        let command = "command = [\"sh\", \"-c\", \"echo on $CUDA_VISIBLE_DEVICES; sleep 60\"]";
        fs::write(daemon.folder.join(&file), format!("name = \"{name}\"\n{command}\n{more}\n"))
            .expect("a file");
        daemon.ask(&["submit", &file, "--json"])
    };
    let id = |out: &str| {
        let answer: serde_json::Value = serde_json::from_str(out).expect("JSON");
        answer["jobs"][0].as_u64().expect("an id").to_string()
    };
    let mut devices = Vec::new();
    for name in ["one", "two"] {
        let job =
            id(&submit(name, "gpus = 1\ngpu_type = \"h200-1g.18gb\"\ngpu_memory = \"16GiB\"").out);
        daemon.wait_to_hear(&["logs", &job], "on MIG-fake-0-");
        devices.push(daemon.said(&["logs", &job]).trim().to_owned());
    }
    devices.sort();
    assert_eq!(devices, ["on MIG-fake-0-0", "on MIG-fake-0-1"], "a slice each");
    // What needs more memory than a slice has goes to the whole GPU.
    let large = id(&submit("large", "gpus = 1\ngpu_memory = \"40GiB\"").out);
    daemon.wait_to_hear(&["logs", &large], "on GPU-fake-1");
    let refused = submit("pair", "gpus = 2\ngpu_type = \"h200-1g.18gb\"");
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("only MIG slices"), "{}", refused.err);
    let nodes = daemon.said(&["nodes"]);
    assert!(nodes.contains("h200-1g.18gb"), "{nodes}");
    fake.tell("0 xid 79");
    daemon.wait_to_hear(&["events"], "GPU 1 of");
    daemon.wait_to_hear(&["events"], "fallen off the bus");
    let ill = daemon.said(&["events"]).matches("is in quarantine: Xid 79").count();
    assert_eq!(ill, 2, "both slices, and not the other GPU: {}", daemon.said(&["events"]));
    let _ = fs::remove_dir_all(&libraries);
}
