//! What a job runs in: an image, a virtual environment, a copy of its code.

use trainyard_api::{Code, JobSpec, Problem, Processes};

/// An image has no longer name.
const IMAGE_MAX: usize = 512;

/// Whether what a job asks for can be had. `by_another` says that another scheduler starts its processes.
pub(super) fn check(spec: &JobSpec, by_another: bool) -> Result<(), Problem> {
    if spec.snapshot {
        let detail = "the copy is made by `trainyard submit` and `trainyard run`: another client makes its own and \
                      names it as `cwd`";
        return Err(bad("snapshot", detail));
    }
    let asked = [
        ("image", spec.image.is_some()),
        ("venv", spec.venv.is_some()),
        ("idle_seconds", spec.idle_seconds.is_some()),
        ("resizes_in_place", spec.resizes_in_place),
    ];
    if let Some((field, _)) = asked.into_iter().find(|(_, asked)| *asked && by_another) {
        let detail = format!(
            "`{field}` has no effect here, where Slurm starts the processes: do it in the command"
        );
        return Err(Problem::field(Code::Infeasible, field, detail));
    }
    if spec.resizes_in_place && spec.processes != Processes::PerJob {
        let detail = "its own process starts those that come: expected `processes` to be `per-job`";
        return Err(bad("resizes_in_place", detail));
    }
    if spec.resizes_in_place && spec.image.is_some() {
        let detail = "an image sees the GPUs of its start and no other: leave out one of the two";
        return Err(bad("resizes_in_place", detail));
    }
    if let Some(image) = &spec.image {
        let plain = image.chars().all(|c| c.is_ascii_graphic());
        if image.is_empty() || image.starts_with('-') || !plain || image.len() > IMAGE_MAX {
            return Err(bad("image", &format!("`{image}` is no name of an image")));
        }
        if spec.venv.is_some() {
            return Err(bad("venv", "an image has its own Python: give one of `image` and `venv`"));
        }
    }
    if spec.image.is_none() && !spec.mounts.is_empty() {
        return Err(bad("mounts", "directories are mounted into an image: `image` beside it"));
    }
    for mount in &spec.mounts {
        let path = mount.strip_suffix(":ro").unwrap_or(mount);
        if !is_path(path) {
            return Err(bad("mounts", &format!("`{mount}`: expected PATH or PATH:ro, absolute")));
        }
    }
    match &spec.venv {
        Some(venv) if !is_path(venv) => {
            Err(bad("venv", &format!("`{venv}`: expected the absolute path of its folder")))
        }
        _ => Ok(()),
    }
}

/// An absolute path that is one thing to every program that reads it.
fn is_path(path: &str) -> bool {
    path.starts_with('/') && path.len() > 1 && !path.contains([':', ',', '\n', '\0'])
}

fn bad(field: &str, detail: &str) -> Problem {
    Problem::field(Code::BadInput, field, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(spec: &JobSpec, by_another: bool) -> Option<String> {
        check(spec, by_another).err().and_then(|problem| problem.field)
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn what_cannot_be_had_is_refused_by_its_field() {
        let image = |name: &str| JobSpec { image: Some(name.to_owned()), ..JobSpec::default() };
        let mounted = |mount: &str| JobSpec { mounts: texts(&[mount]), ..image("torch:2") };
        let venv = |path: &str| JobSpec { venv: Some(path.to_owned()), ..JobSpec::default() };
        for spec in [image("docker.io/a/b:2"), mounted("/data:ro"), mounted("/data"), venv("/e")] {
            assert_eq!(field(&spec, false), None, "{spec:?}");
            assert!(field(&spec, true).is_some(), "Slurm starts it: {spec:?}");
        }
        for (spec, expected) in [
            (image("--privileged"), "image"),
            (image("a b"), "image"),
            (image(""), "image"),
            (mounted("data"), "mounts"),
            (mounted("/:ro"), "mounts"),
            (mounted("/a:/b"), "mounts"),
            (JobSpec { mounts: texts(&["/data"]), ..JobSpec::default() }, "mounts"),
            (venv("envs/a"), "venv"),
            (venv("/a:/b"), "venv"),
            (JobSpec { venv: Some("/e".to_owned()), ..image("a") }, "venv"),
            (JobSpec { snapshot: true, ..JobSpec::default() }, "snapshot"),
        ] {
            assert_eq!(field(&spec, false).as_deref(), Some(expected), "{spec:?}");
        }
        assert_eq!(field(&JobSpec::default(), true), None);
    }
}
