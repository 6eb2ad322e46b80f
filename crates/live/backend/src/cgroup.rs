//! Control groups, version 2, where this process may write them.

use crate::order::Limits;
use std::io;
use std::path::{Path, PathBuf};

/// What could be had of cgroups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// Where attempts get theirs; nothing where none can be made.
    pub parent: Option<PathBuf>,
    /// What an operator should know.
    pub warnings: Vec<String>,
}

/// The group that the daemon itself moves to where it must.
const LEAF: &str = "trainyard-daemon";
/// Where a run directory keeps the name of its group.
const NAME_FILE: &str = "cgroup-name";
const CONTROLLERS: &[&str] = &["cpu", "memory", "pids"];

/// Makes a group for a run directory below the group of this process, and turns on what limits need.
///
/// Two daemons on one machine have the same names for their attempts, so each directory has a group of its own.
pub fn prepare(run_dir: &Path) -> Cgroups {
    match try_prepare(run_dir) {
        Ok((parent, missing)) if missing.is_empty() => {
            Cgroups { parent: Some(parent), warnings: Vec::new() }
        }
        Ok((parent, missing)) => {
            let warning = format!(
                "cgroup controllers {} are not available in {}: limits of jobs on them are not enforced",
                missing.join(", "),
                parent.display()
            );
            Cgroups { parent: Some(parent), warnings: vec![warning] }
        }
        Err(error) => {
            let warning = format!(
                "no cgroup v2 of its own ({error}): limits on memory and CPUs are not enforced, and a process that \
                 leaves its group is found only while its keeper lives; with systemd, set Delegate=yes"
            );
            Cgroups { parent: None, warnings: vec![warning] }
        }
    }
}

fn try_prepare(run_dir: &Path) -> io::Result<(PathBuf, Vec<String>)> {
    let name = format!("trainyard-{}", name_of(run_dir)?);
    let own = own_group(
        &std::fs::read_to_string("/proc/self/mountinfo")?,
        &std::fs::read_to_string("/proc/self/cgroup")?,
    )
    .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "none is mounted"))?;
    // A daemon that was moved to a leaf, and whatever it starts, finds itself there.
    let above = match own.file_name() {
        Some(last) if last == LEAF => own.parent().unwrap_or(&own).to_path_buf(),
        _ => own,
    };
    let parent = above.join(name);
    match std::fs::create_dir(&parent) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if !turn_on(&above) {
        // Groups with processes of their own share nothing out (cgroups(7), "no internal processes"): this process
        // moves to a leaf. Where that is not possible, killing by group still works.
        let leaf = above.join(LEAF);
        let _ = std::fs::create_dir(&leaf);
        if std::fs::write(leaf.join("cgroup.procs"), "0").is_ok() {
            turn_on(&above);
        }
    }
    turn_on(&parent);
    let on = std::fs::read_to_string(parent.join("cgroup.subtree_control"))?;
    let missing = CONTROLLERS.iter().filter(|name| !on.split_whitespace().any(|on| on == **name));
    Ok((parent, missing.map(|name| (*name).to_owned()).collect()))
}

/// The name of a run directory's group: drawn once, and kept in it for the next daemon. Neither the path nor the inode
/// would do: both are used again when a directory is removed, and what clears up after its last attempts would then
/// kill the first ones of the next directory.
fn name_of(run_dir: &Path) -> io::Result<String> {
    let file = run_dir.join(NAME_FILE);
    let is_name = |text: &String| text.len() == 36 && !text.contains(['/', '.']);
    if let Some(name) = std::fs::read_to_string(&file).ok().filter(is_name) {
        return Ok(name);
    }
    let drawn = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned();
    let fresh = run_dir.join(format!("{NAME_FILE}.new"));
    std::fs::write(&fresh, &drawn)?;
    std::fs::rename(&fresh, &file)?;
    Ok(drawn)
}

/// Turns on the controllers that are there to be turned on; false if one refused.
fn turn_on(group: &Path) -> bool {
    let there = std::fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    let wanted =
        CONTROLLERS.iter().filter(|name| there.split_whitespace().any(|one| one == **name));
    let mut all = true;
    for name in wanted {
        all &= std::fs::write(group.join("cgroup.subtree_control"), format!("+{name}")).is_ok();
    }
    all
}

fn own_group(mounts: &str, groups: &str) -> Option<PathBuf> {
    let mount = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        (right.split(' ').next()? == "cgroup2").then(|| left.split(' ').nth(4))?
    })?;
    let inside = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(mount).join(inside))
}

/// The group of one attempt.
#[derive(Clone, Debug)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Makes it. Limits whose controller is missing are left out: [`prepare`] has warned of them.
    pub fn create(parent: &Path, name: &str, limits: &Limits) -> io::Result<Cgroup> {
        let path = parent.join(name);
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let cgroup = Cgroup { path };
        cgroup.limit(limits)?;
        Ok(cgroup)
    }

    /// Sets its limits, also of what runs in it.
    pub fn limit(&self, limits: &Limits) -> io::Result<()> {
        let set = |file: &str, value: String| -> io::Result<()> {
            let file = self.path.join(file);
            if file.exists() { std::fs::write(file, value) } else { Ok(()) }
        };
        if limits.memory_mib > 0 {
            set("memory.max", (limits.memory_mib << 20).to_string())?;
            set("memory.swap.max", "0".to_owned())?;
            // One process of a gang without memory is as good as none.
            set("memory.oom.group", "1".to_owned())?;
        }
        if limits.cpus > 0 {
            set("cpu.max", format!("{} 100000", u64::from(limits.cpus) * 100_000))?;
        }
        if limits.processes_max > 0 {
            set("pids.max", limits.processes_max.to_string())?;
        }
        Ok(())
    }

    /// A group that was made before.
    pub fn at(path: &Path) -> Cgroup {
        Cgroup { path: path.to_path_buf() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the number of processes is limited by it.
    pub fn limits_processes(&self) -> bool {
        self.path.join("pids.max").exists()
    }

    /// Kills everything in it, at once.
    pub fn kill(&self) {
        let _ = std::fs::write(self.path.join("cgroup.kill"), "1");
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        match std::fs::read_to_string(self.path.join("cgroup.events")) {
            Ok(events) => !events.lines().any(|line| line == "populated 1"),
            Err(_) => true,
        }
    }

    /// Whether the kernel killed something in it for want of memory.
    pub fn ran_out_of_memory(&self) -> bool {
        let events = std::fs::read_to_string(self.path.join("memory.events")).unwrap_or_default();
        let killed = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        killed.is_some_and(|count| count != "0")
    }

    /// Removes it; it must be empty.
    pub fn remove(&self) {
        let _ = std::fs::remove_dir(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_this_process_is_found_beside_those_of_version_one() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      31 30 0:27 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let groups = "4:memory:/x\n0::/system.slice/trainyard.service\n";
        let expected = Path::new("/sys/fs/cgroup/unified/system.slice/trainyard.service");
        assert_eq!(own_group(mounts, groups).as_deref(), Some(expected));
        assert_eq!(own_group("", groups), None);
        assert_eq!(own_group(mounts, "4:memory:/x\n"), None);
    }
    #[test]
    fn a_directory_keeps_its_name_and_the_next_one_in_its_place_has_another() {
        let dir = std::env::temp_dir().join(format!("ty-cgroup-{}", std::process::id()));
        let fresh = || {
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir(&dir).unwrap();
            name_of(&dir).unwrap()
        };
        let first = fresh();
        assert_eq!(name_of(&dir).unwrap(), first);
        let second = fresh();
        assert_ne!(first, second);
        std::fs::write(dir.join(NAME_FILE), "").unwrap();
        assert_ne!(name_of(&dir).unwrap(), second, "a name that the disk lost is drawn again");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
