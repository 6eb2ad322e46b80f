//! Real training scripts with the Python package.

use crate::running::python_is_here;
use crate::yard::{WAIT, Yard, script, within};
use std::path::PathBuf;
use std::process::Command;
use trainyard_api::wire::FromJob;
use trainyard_backend::{LaunchOrder, Report};
use trainyard_types::Attempt;

fn package() -> PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../python").canonicalize().unwrap()
}

#[test]
fn the_python_package_passes_its_own_tests() {
    if !python_is_here() {
        return;
    }
    let output = Command::new("python3")
        .args(["-m", "unittest"])
        .current_dir(package())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    // Those for frameworks that python3 does not have.
    if let Some(line) = told.lines().find(|line| line.contains("skipped=")) {
        trainyard_testkit::skip!("python-packages", "of the tests in python/: {line}");
    }
}

/// A Python with PyTorch, if there is one.
fn python_with_torch() -> Option<&'static str> {
    ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let output = Command::new(python).args(["-c", "import torch"]).output();
        output.is_ok_and(|output| output.status.success())
    })
}

fn training(python: &str, example: &str, steps: &str) -> LaunchOrder {
    let mut order = script(1, "");
    let file = package().join("examples").join(example).display().to_string();
    order.argv = [python, "-u", &file, "--steps", steps].map(str::to_owned).to_vec();
    order.env.insert("PYTHONPATH".to_owned(), package().display().to_string());
    order.env.insert("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned());
    order
}

/// Runs an example to its end, stopping it in the middle or not; its last line.
fn final_loss(
    name: &str,
    python: &str,
    example: &str,
    (steps, extra): (&str, &[&str]),
    stop: bool,
) -> String {
    let mut yard = Yard::new(name);
    let mut order = training(python, example, steps);
    order.argv.extend(extra.iter().map(|word| (*word).to_owned()));
    if stop {
        yard.launch(order.clone());
        loop {
            if let Report::Said { message: FromJob::Progress { done, .. }, .. } = yard.next()
                && done >= Some(1.0)
            {
                break;
            }
        }
        yard.stop(1, 60.0);
        let exit = yard.until_ended();
        assert_eq!(
            (exit.code, exit.asked_to_stop, exit.killed),
            (Some(85), true, false),
            "{exit:?}"
        );
        let saved = exit.saved.expect("it told what it saved");
        assert!(saved >= 1.0 && saved < steps.parse().unwrap(), "{exit:?}");
        assert!(exit.start_seconds.is_some() && exit.save_seconds.is_some(), "{exit:?}");
        order.attempt = Attempt(2);
        order.resumes_from = saved;
    }
    let exit = yard.run(order.clone());
    assert!(exit.code == Some(0) && exit.finished, "{exit:?}");
    assert_eq!(exit.restore_seconds.is_some(), stop, "{exit:?}");
    let key = (order.job, order.attempt);
    let last = || {
        let part = trainyard_backend::read_log(&yard.run_dir, key, 0, 0, 1 << 20).unwrap();
        let text = String::from_utf8(part.bytes).unwrap();
        assert_eq!(text.contains("resumed at step"), stop, "{text}");
        text.lines().last().unwrap_or_default().to_owned()
    };
    within(WAIT, "the final loss is printed", || last().starts_with("final loss"));
    last()
}

#[test]
fn plain_training_that_is_stopped_and_resumed_ends_with_the_same_loss() {
    if !python_is_here() {
        return;
    }
    let size = ("60", &["--step-seconds", "0.02"][..]);
    let unbroken = final_loss("plain", "python3", "sgd.py", size, false);
    assert_eq!(final_loss("plain-stopped", "python3", "sgd.py", size, true), unbroken);
}

#[test]
fn pytorch_training_that_is_stopped_and_resumed_ends_with_the_same_loss() {
    let Some(python) = python_with_torch() else {
        return trainyard_testkit::skip!("torch", "PyTorch is not here");
    };
    let size = ("1500", &[][..]);
    let unbroken = final_loss("torch", python, "torch_sgd.py", size, false);
    assert_eq!(final_loss("torch-stopped", python, "torch_sgd.py", size, true), unbroken);
}
