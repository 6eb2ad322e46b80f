//! MIG slices: what is found on a machine whose GPUs are cut, and what is seen of their health.

use crate::fake_nvml::FakeNvml;
use std::path::PathBuf;
use trainyard_backend::discover_by;
use trainyard_backend::health::look;

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("ty-slices-{}-{name}", std::process::id()))
}

/// Two GPUs, of which the first is cut into three.
fn cut(name: &str) -> Option<FakeNvml> {
    let fake = FakeNvml::new(&folder(name), 2)?;
    for fact in ["0 mig 1", "0 slice 1 16384 18", "0 slice 3 71424 71", "0 slice 1 16384 18"] {
        fake.tell(fact);
    }
    Some(fake)
}

fn told(fake: &FakeNvml) -> Vec<String> {
    let found = discover_by(Some(&fake.library()));
    let one = |gpu: &trainyard_backend::GpuFound| {
        format!("{} {} {} {}", gpu.index, gpu.uuid, gpu.kind, gpu.memory_mib)
    };
    found.gpus.iter().map(one).chain(found.unused).collect()
}

#[test]
fn a_gpu_that_is_cut_is_not_offered_and_its_slices_are_typed_devices() {
    let Some(fake) = cut("typed") else { return };
    let expected = [
        "1 GPU-fake-1 h200 144384",
        "2 MIG-fake-0-0 h200-1g.18gb 16384",
        "3 MIG-fake-0-1 h200-3g.71gb 71424",
        "4 MIG-fake-0-2 h200-1g.18gb 16384",
    ];
    assert_eq!(told(&fake), expected);
    fake.tell("0 unnamed 1");
    assert_eq!(told(&fake), expected, "by what they have, where the driver does not name them");
    let _ = std::fs::remove_dir_all(folder("typed"));
}

#[test]
fn a_gpu_in_mig_mode_without_slices_is_said_and_not_offered() {
    let Some(fake) = FakeNvml::new(&folder("empty"), 1) else { return };
    fake.tell("0 mig 1");
    let told = told(&fake);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("is in MIG mode and has no slices"), "{told:?}");
    let _ = std::fs::remove_dir_all(folder("empty"));
}

#[test]
fn the_health_of_a_slice_is_that_of_its_gpu_and_its_memory_its_own() {
    let Some(fake) = cut("health") else { return };
    for fact in ["0 ecc 3", "0 temperature 77"] {
        fake.tell(fact);
    }
    let readings = look(Some(&fake.library())).unwrap();
    let seen: Vec<_> = readings
        .iter()
        .map(|one| (one.uuid.as_str(), one.ecc_uncorrected, one.temperature, one.memory_mib))
        .collect();
    let slice = |uuid, mib| (uuid, Some(3), Some(77), Some(mib));
    assert_eq!(
        seen,
        [
            ("GPU-fake-1", Some(0), Some(40), Some(144_384)),
            slice("MIG-fake-0-0", 16_384),
            slice("MIG-fake-0-1", 71_424),
            slice("MIG-fake-0-2", 16_384),
        ]
    );
    assert_eq!(readings[1].busy_percent, None, "drivers do not tell it of a slice");
    fake.tell("0 lost 1");
    let readings = look(Some(&fake.library())).unwrap();
    let lost: Vec<_> = readings.iter().filter(|one| one.lost).map(|one| one.index).collect();
    assert_eq!(lost, [0], "and the other is well");
    let _ = std::fs::remove_dir_all(folder("health"));
}
