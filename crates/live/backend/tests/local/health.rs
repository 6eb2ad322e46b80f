//! The health of GPUs, read from a stand-in for the driver's library that is loaded as the real one is.

use crate::fake_nvml::FakeNvml;
use crate::yard::{PROGRAM, Yard, script};
use std::path::PathBuf;
use std::time::Duration;
use trainyard_backend::health::{Rules, look};
use trainyard_backend::{GpuSeen, HealthOptions, HealthVerdict, LocalOptions, Report};

struct Watched {
    yard: Yard,
    fake: FakeNvml,
    folder: PathBuf,
}

impl Watched {
    fn new(name: &str, every: Duration) -> Option<Watched> {
        let folder = std::env::temp_dir().join(format!("ty-nvml-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let fake = FakeNvml::new(&folder.join("lib"), 2)?;
        let rules = Rules::default();
        let health = Some(HealthOptions {
            library: Some(fake.library()),
            every,
            rules,
            ..HealthOptions::default()
        });
        let options = LocalOptions::new(folder.join("run"), PROGRAM);
        let yard = Yard::with(LocalOptions { health, cgroups: false, ..options });
        let watched = Watched { yard, fake, folder };
        // The first look tells of both.
        assert_eq!(watched.next_gpu().stands, []);
        assert_eq!(watched.next_gpu().stands, []);
        Some(watched)
    }

    fn next_gpu(&self) -> GpuSeen {
        loop {
            if let Report::Gpu(seen) = self.yard.next() {
                return seen;
            }
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.folder.join("lib"));
    }
}

#[test]
fn each_sort_of_illness_is_seen_through_the_drivers_library() {
    let Some(watched) = Watched::new("signs", Duration::from_millis(50)) else { return };
    let happened = [
        ("1 xid 79", "xid-79", HealthVerdict::Quarantine),
        ("0 xid 31", "xid-31", HealthVerdict::Application),
        ("1 ecc 2", "ecc-uncorrected", HealthVerdict::Quarantine),
        ("0 link 1 7", "nvlink-errors", HealthVerdict::Tell),
    ];
    for (fact, code, verdict) in happened {
        watched.fake.tell(fact);
        let seen = watched.next_gpu();
        let found = seen.happened.first().expect(fact);
        assert_eq!((found.code.as_str(), found.verdict), (code, verdict), "{fact}");
        assert_eq!(seen.uuid, format!("GPU-fake-{}", &fact[..1]), "{fact}");
    }
    let stands = [
        ("0 pending 1", "0 pending 0", "row-remap-pending", HealthVerdict::Retire),
        ("0 failure 1", "0 failure 0", "row-remap-failure", HealthVerdict::Quarantine),
        ("1 temperature 96", "1 temperature 50", "too-hot", HealthVerdict::Quarantine),
        ("1 slowed 1", "1 slowed 0", "hot", HealthVerdict::Tell),
        ("0 link 0 7", "0 link 1 7", "nvlink-down", HealthVerdict::Tell),
        ("1 lost 1", "1 lost 0", "gpu-lost", HealthVerdict::Quarantine),
    ];
    for (fact, over, code, verdict) in stands {
        watched.fake.tell(fact);
        let seen = watched.next_gpu();
        let found = seen.stands.first().expect(fact);
        assert_eq!((found.code.as_str(), found.verdict), (code, verdict), "{fact}");
        watched.fake.tell(over);
        assert_eq!(watched.next_gpu().stands, [], "{over}");
    }
}

#[test]
fn who_hears_of_a_failed_attempt_has_heard_of_its_gpu_before() {
    // No look is due by itself in this time: the end of the attempt is what makes the watch look.
    let Some(mut watched) = Watched::new("order", Duration::from_secs(3600)) else { return };
    let text = watched.folder.join("lib/nvml.txt");
    // The job's own last act makes the GPU ill, and then it fails.
    watched.yard.launch(script(1, &format!("echo '0 ecc 5' >> {}; exit 1", text.display())));
    let mut ill = false;
    loop {
        match watched.yard.next() {
            Report::Gpu(seen) => {
                ill |= seen.happened.iter().any(|found| found.verdict == HealthVerdict::Quarantine);
            }
            Report::Ended { exit, .. } => {
                assert_eq!(exit.code, Some(1));
                assert!(ill, "the end came first");
                return;
            }
            _ => {}
        }
    }
}

#[test]
fn a_look_without_a_daemon_tells_what_nvml_says() {
    let Some(watched) = Watched::new("look", Duration::from_secs(3600)) else { return };
    watched.fake.tell("1 ecc 3");
    let readings = look(Some(&watched.fake.library())).unwrap();
    assert_eq!(readings.len(), 2);
    let told = &readings[1];
    assert_eq!(
        (told.ecc_uncorrected, told.temperature, told.shutdown_at),
        (Some(3), Some(40), Some(95))
    );
    assert_eq!((told.remap_pending, told.links.len()), (Some(false), 1));
    assert!(look(Some(&watched.folder.join("missing.so"))).is_err(), "there is no such library");
}
