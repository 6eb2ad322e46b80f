//! A disk without room.

use crate::place::{Place, add_job};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use trainyard_store::StoreError;

/// A file system of two megabytes, which goes away.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` where this process may not mount one.
    fn mount(at: &Path) -> Option<SmallDisk> {
        fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"])
            .arg(at)
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then(|| SmallDisk(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_loses_nothing_and_is_over_when_there_is_room_again() {
    let outer = Place::new();
    let Some(disk) = SmallDisk::mount(&outer.path("disk")) else {
        trainyard_testkit::skip!(
            "mount",
            "a_full_disk_loses_nothing_and_is_over_when_there_is_room_again: mounting is not allowed here"
        );
        return;
    };
    let place = Place::below(&disk.0);
    let ballast = place.path("ballast");
    fs::write(&ballast, vec![1; 1 << 20]).unwrap();
    let mut store = place.open();
    let mut kept = 0;
    let refused = loop {
        match store.commit(&[add_job(2 * kept), add_job(2 * kept + 1)]) {
            Ok(_) => kept += 1,
            Err(error) => break error,
        }
        assert!(kept < 10_000, "the disk never filled");
    };
    assert!(matches!(refused, StoreError::Full { .. }), "{refused:?}");
    assert!(refused.to_string().contains("free some space"), "{refused}");
    // Whatever is tried meanwhile is refused or kept, whole.
    assert_eq!(store.load().unwrap().jobs.len() as u32, 2 * kept);
    for _ in 0..3 {
        let again = store.commit(&[add_job(2 * kept), add_job(2 * kept + 1)]);
        assert!(matches!(again, Err(StoreError::Full { .. })), "{again:?}");
    }
    // A daemon that is started on a full disk finds all of it.
    drop(store);
    let mut store = place.open();
    assert_eq!(store.load().unwrap().jobs.len() as u32, 2 * kept);
    fs::remove_file(&ballast).unwrap();
    store.commit(&[add_job(2 * kept), add_job(2 * kept + 1)]).unwrap();
    assert_eq!(store.load().unwrap().jobs.len() as u32, 2 * kept + 2);
    assert_eq!(store.reader().unwrap().check().unwrap(), Vec::<String>::new());
    println!("{kept} lists before the disk was full");
}
