//! What surrounds a job: messages at its end, images, virtual environments, copies of code, terminals.

use super::daemon::{Daemon, PATIENCE, fresh_folder};
use super::fake_nvml::FakeNvml;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// What hears of ends: it answers with each status in turn, with 200 after that.
struct Hook {
    address: String,
    heard: Receiver<(String, Value)>,
}

impl Hook {
    fn listen(statuses: &'static [u16]) -> Hook {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let (sender, heard) = channel();
        thread::spawn(move || {
            let mut statuses = statuses.iter().copied();
            for stream in listener.incoming().flatten() {
                let told = request(&stream);
                let status = statuses.next().unwrap_or(200);
                let answer = format!(
                    "HTTP/1.1 {status} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
                let _ = (&stream).write_all(answer.as_bytes());
                if sender.send(told).is_err() {
                    return;
                }
            }
        });
        Hook { address, heard }
    }

    fn hear(&self) -> (String, Value) {
        self.heard.recv_timeout(PATIENCE).expect("a message")
    }
}

/// The path and the body of a request.
fn request(stream: &TcpStream) -> (String, Value) {
    let mut lines = BufReader::new(stream);
    let mut first = String::new();
    lines.read_line(&mut first).expect("a request");
    let mut length = 0;
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).expect("a header");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    lines.read_exact(&mut body).expect("a body");
    let path = first.split_whitespace().nth(1).unwrap_or_default().to_owned();
    (path, serde_json::from_slice(&body).expect("JSON"))
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).expect("a file");
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("a mode");
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(30));
    }
}

#[test]
fn ends_are_posted_to_the_operators_address_and_to_allowed_ones_and_tried_again() {
    let (all, own) = (Hook::listen(&[]), Hook::listen(&[500]));
    let (every, allow) = (format!("{}/all", all.address), format!("{}/ada/", own.address));
    let options = ["--gpus", "1", "--notify-url", &every, "--notify-allow", &allow];
    let daemon = Daemon::start_with("hook", &options);
    let url = format!("{allow}secret?x=1");
    let ran = daemon.ask(&[
        "run",
        "--name",
        "bad",
        "--retries",
        "0",
        "--notify-url",
        &url,
        "--",
        "sh",
        "-c",
        "exit 4",
    ]);
    assert_eq!(ran.code, 4, "{}", ran.err);
    let (path, told) = all.hear();
    assert_eq!((path.as_str(), told["state"].as_str()), ("/all", Some("failed")));
    assert_eq!((told["name"].as_str(), told["exit_code"].as_i64()), (Some("bad"), Some(4)));
    for _ in 0..2 {
        let (path, again) = own.hear();
        assert_eq!((path.as_str(), &again), ("/ada/secret?x=1", &told), "after a 500 once more");
    }
    // A finish is no failure: the operator hears of it, its user does not.
    let arguments = ["run", "--notify-url", &url, "--notify-on", "failure", "--", "true"];
    assert_eq!(daemon.ask(&arguments).code, 0);
    assert_eq!(all.hear().1["state"], "finished");
    assert!(own.heard.recv_timeout(Duration::from_millis(300)).is_err());
}

#[test]
fn a_job_cannot_have_the_daemon_reach_what_the_operator_did_not_allow() {
    let daemon = Daemon::start("nohook");
    for (flag, address, hint) in [
        ("--notify-url", "http://169.254.169.254/latest", "--notify-allow"),
        ("--notify-mail", "root", "--mail-command"),
    ] {
        let ran = daemon.ask(&["run", flag, address, "--", "true"]);
        assert_ne!(ran.code, 0);
        assert!(ran.err.contains(hint), "{}", ran.err);
    }
    assert_eq!(daemon.json(&["ps", "-a", "--json"])["jobs"].as_array().map(Vec::len), Some(0));
}

#[test]
fn an_end_is_mailed_by_the_operators_command_and_no_name_becomes_a_header() {
    let folder = fresh_folder("mail");
    let (command, mail) = (folder.join("sendmail"), folder.join("mail"));
    let text = format!(
        "#!/bin/sh\n{{ echo \"$@\"; cat; }} > {0}.partial; mv {0}.partial {0}\n",
        mail.display()
    );
    script(&command, &text);
    let flag = format!("{} -i", command.display());
    let daemon = Daemon::start_in(folder, "", &["--gpus", "1", "--mail-command", &flag]);
    let name = "a\nBcc: eve@elsewhere";
    let ran = daemon.ask(&["run", "--name", name, "--notify-mail", "ada", "--", "true"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    until("the mail is sent", || mail.exists());
    let mail = fs::read_to_string(&mail).expect("a mail");
    assert!(mail.starts_with("-i -- ada\nTo: ada\nSubject: [trainyard] job "), "{mail}");
    assert!(mail.contains("\"state\":\"finished\""), "{mail}");
    assert!(!mail.lines().any(|line| line.starts_with("Bcc")), "{mail}");
    let ran = daemon.ask(&["run", "--notify-mail", "eve@elsewhere", "--", "true"]);
    assert!(ran.err.contains("--mail-domain"), "{}", ran.err);
}

/// An engine that notes what it is asked for and runs the command itself. What it started lives on when it is killed, as
/// a container does.
const ENGINE: &str = r#"#!/bin/sh
echo "$@" >> CALLS
[ "$1" = rm ] && exit 0
while [ "$1" != --entrypoint ]; do shift; done
entry=$2; image=$3; shift 3
IMAGE=$image "$entry" "$@"
"#;

#[test]
fn a_job_with_an_image_is_run_by_the_engine_that_is_there_and_its_container_is_removed() {
    let folder = fresh_folder("image");
    let (bin, calls) = (folder.join("bin"), folder.join("calls"));
    fs::create_dir(&bin).expect("a folder");
    script(&bin.join("podman"), &ENGINE.replace("CALLS", &calls.display().to_string()));
    let before = format!("PATH={}:$PATH ", bin.display());
    let daemon = Daemon::start_in(folder.clone(), &before, &["--gpus", "1"]);
    let text = "name = \"boxed\"\ncommand = [\"sh\", \"-c\", \"echo in $IMAGE, seed $SEED, rank $RANK; exit 5\"]\n\
                image = \"torch:2\"\nmounts = [\"/usr/share:ro\"]\nenv = { SEED = \"7\" }\nretries = 0\n";
    fs::write(folder.join("boxed.toml"), text).expect("a file");
    let job = daemon.json(&["submit", "boxed.toml", "--json"])["jobs"][0].to_string();
    daemon.wait_until(&job, "failed");
    assert_eq!(daemon.said(&["logs", &job]).trim(), "in torch:2, seed 7, rank 0");
    let detail = daemon.json(&["job", "show", &job, "--json"]);
    assert_eq!(detail["attempts"][0]["exit_code"], 5, "the code is the command's: {detail}");
    let calls = fs::read_to_string(calls).expect("calls");
    let name = format!("trainyard-{job}-1-0");
    let here = folder.canonicalize().expect("a folder").display().to_string();
    for part in [
        "run --rm --network=host --ipc=host ".to_owned(),
        format!("--name={name} --workdir={here} "),
        format!("--volume={here}:{here} "),
        "--volume=/usr/share:/usr/share:ro ".to_owned(),
        "--env=SEED ".to_owned(),
        "--env=TRAINYARD_SOCKET ".to_owned(),
        format!("rm --force {name}"),
    ] {
        assert!(calls.contains(&part), "{part} in {calls}");
    }
    assert!(!calls.contains("--env=PATH") && !calls.contains("seed 7,"), "{calls}");
    let ran = daemon.ask(&["run", "--image=--privileged", "--", "true"]);
    assert!(ran.err.contains("no name of an image"), "{}", ran.err);
}

#[test]
fn without_an_engine_a_job_with_an_image_fails_and_says_what_is_missing() {
    let folder = fresh_folder("noengine");
    let daemon = Daemon::start_in(folder, "PATH=/nowhere ", &["--gpus", "1"]);
    let ran = daemon.ask(&["run", "--image", "torch:2", "--retries", "0", "--", "true"]);
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains("podman, docker or apptainer"), "{}", ran.err);
}

/// Whether a real podman can run an image of its own making here; its name.
fn real_image() -> Option<&'static str> {
    let made = "set -e; command -v podman; b=$(command -v busybox); d=$(mktemp -d); mkdir $d/bin; cp $b $d/bin/; \
                ln -s busybox $d/bin/sh; ln -s busybox $d/bin/cat; \
                tar -C $d -c . | podman import - localhost/trainyard-test:1; rm -r $d; \
                podman run --rm --network=host localhost/trainyard-test:1 /bin/sh -c true";
    let output = Command::new("sh").args(["-c", made]).output().expect("a shell");
    output.status.success().then_some("localhost/trainyard-test:1")
}

#[test]
fn a_real_podman_runs_a_job_in_an_image_and_is_killed_with_it() {
    let Some(image) = real_image() else {
        trainyard_testkit::skip!("podman", "no podman runs an image of busybox here");
        return;
    };
    let daemon = Daemon::start("podman");
    fs::write(daemon.folder.join("data"), "from outside").expect("a file");
    let inside = "cat data; echo; echo $TRAINYARD_JOB_ID > $TRAINYARD_CHECKPOINT_DIR/mark; ls / 2>&1; exit 6";
    let ran =
        daemon.ask(&["run", "--image", image, "--retries", "0", "--", "/bin/sh", "-c", inside]);
    assert_eq!(ran.code, 6, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("from outside"), "{}", ran.out);

    let sleeps = [
        "run",
        "--detach",
        "--json",
        "--image",
        image,
        "--",
        "/bin/sh",
        "-c",
        "echo up; exec busybox sleep 600",
    ];
    let job = daemon.json(&sleeps)["jobs"][0].to_string();
    daemon.wait_to_hear(&["logs", &job], "up");
    daemon.said(&["cancel", &job]);
    let begun = Instant::now();
    while daemon.state(&job) != "cancelled" {
        assert!(begun.elapsed() < 3 * PATIENCE, "{}", daemon.said(&["logs", &job]));
        sleep(Duration::from_millis(50));
    }
    let left = Command::new("podman").args(["ps", "--all", "--format", "{{.Names}}"]).output();
    let left = String::from_utf8_lossy(&left.expect("podman").stdout).into_owned();
    assert!(!left.contains(&format!("trainyard-{job}-")), "{left}");
}

#[test]
fn a_job_runs_in_its_virtual_environment_and_in_the_code_as_it_was_submitted() {
    let daemon = Daemon::start("venv");
    let made = Command::new("python3")
        .args(["-m", "venv", "--without-pip", "env"])
        .current_dir(&daemon.folder)
        .output();
    assert!(made.is_ok_and(|output| output.status.success()), "python3 makes an environment");
    let code = daemon.folder.join("code");
    fs::create_dir(&code).expect("a folder");
    let write = |text: &str| fs::write(code.join("train.py"), text).expect("a file");
    write("import sys; print('old', sys.prefix)");
    let data = daemon.folder.join("data");
    let long = daemon.submit("long", "exec sleep 60", 2);
    daemon.wait_until(&long, "running");
    let arguments = [
        "run",
        "--detach",
        "--json",
        "--snapshot",
        "--cwd",
        "code",
        "--venv",
        "env",
        "--gpus",
        "2",
        "--",
        "python",
        "train.py",
    ];
    let mut command = super::daemon::program(&daemon.folder, &arguments);
    command.env("TRAINYARD_SERVER", format!("unix:{}", daemon.folder.join("s/api.sock").display()));
    let ran = super::daemon::ran({
        command.env("XDG_DATA_HOME", &data);
        command
    });
    assert_eq!(ran.code, 0, "{}", ran.err);
    let job = serde_json::from_str::<Value>(&ran.out).expect("JSON")["jobs"][0].to_string();
    // It waits, and meanwhile its author goes on.
    write("import sys; print('new', sys.prefix)");
    daemon.said(&["cancel", &long]);
    daemon.wait_until(&job, "finished");
    let prefix = daemon.folder.join("env");
    assert_eq!(daemon.said(&["logs", &job]).trim(), format!("old {}", prefix.display()));

    let gone = daemon.ask(&["run", "--venv", "nowhere", "--retries", "0", "--", "python", "-V"]);
    assert!(gone.err.contains("it has no bin/python"), "{}", gone.err);
}

/// `run --interactive` with what is typed into it.
fn session(daemon: &Daemon, flags: &[&str], command: &[&str]) -> Child {
    let arguments = [&["run", "--interactive"], flags, &["--"], command].concat();
    let mut run = super::daemon::program(&daemon.folder, &arguments);
    run.env("TRAINYARD_SERVER", format!("unix:{}", daemon.folder.join("s/api.sock").display()));
    run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    run.spawn().expect("the program starts")
}

#[test]
fn an_interactive_job_has_a_terminal_and_ends_with_the_code_of_its_command() {
    let daemon = Daemon::start("tty");
    let mut run = session(&daemon, &[], &["sh"]);
    let mut typed = run.stdin.take().expect("its input");
    typed
        .write_all(b"tty; echo job $TRAINYARD_JOB_ID of $TRAINYARD_GPUS; exit 9\n")
        .expect("it reads");
    let output = run.wait_with_output().expect("it ends");
    drop(typed);
    let out = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(9), "{out}{error}");
    assert!(out.contains("/dev/pts/"), "{out}");
    let job = daemon.json(&["ps", "-a", "--json"])["jobs"][0]["id"].to_string();
    assert!(out.contains(&format!("job {job} of 1\r\n")), "{out}");
    assert!(daemon.said(&["logs", &job]).contains("of 1"), "the log has what was shown");
}

#[test]
fn an_interactive_job_ends_when_its_client_goes() {
    let daemon = Daemon::start("hangup");
    let mut run = session(&daemon, &[], &["sh"]);
    let typed = run.stdin.as_mut().expect("its input");
    typed.write_all(b"echo ready\n").expect("it reads");
    let jobs = || daemon.json(&["ps", "-a", "--json"])["jobs"].clone();
    until("it runs", || jobs()[0]["state"] == "running");
    run.kill().expect("it runs");
    run.wait().expect("it ends");
    until("it ends with its client", || {
        !["starting", "running", "saving"]
            .contains(&jobs()[0]["state"].as_str().unwrap_or_default())
    });
    assert_eq!(jobs()[0]["restarts"], 0, "it is not tried again");
}

#[test]
fn a_job_whose_gpus_do_nothing_for_as_long_as_it_says_is_ended_and_a_busy_one_is_not() {
    let libraries = std::env::temp_dir().join(format!("ty-lib-{}-idle", std::process::id()));
    let Some(fake) = FakeNvml::new(&libraries, 1) else { return };
    fake.tell("0 busy 60");
    let daemon = Daemon::start_on("idle", &[], Some(&libraries));
    let arguments = ["run", "--detach", "--json", "--idle", "2s", "--", "sleep", "600"];
    let job = daemon.json(&arguments)["jobs"][0].to_string();
    daemon.wait_until(&job, "running");
    sleep(Duration::from_secs(4));
    assert_eq!(daemon.state(&job), "running", "its GPU works");
    fake.tell("0 busy 0");
    daemon.wait_until(&job, "cancelled");
    let log = daemon.said(&["logs", &job]);
    assert!(log.contains("its GPUs have done nothing for 2 s"), "{log}");
    let events = daemon.said(&["events"]);
    assert!(events.contains("its GPUs had done nothing for 2"), "{events}");
    let detail = daemon.json(&["job", "show", &job, "--json"]);
    assert_eq!(detail["attempts"].as_array().map(Vec::len), Some(1), "{detail}");
    fs::remove_dir_all(libraries).expect("a folder");
}

/// Every command of the guide's page runs as it is typed there, on a machine that has what it names.
#[test]
fn every_command_of_the_page_on_surroundings_runs() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/guide/surroundings.md");
    let page = fs::read_to_string(page).expect("the page");
    let folder = fresh_folder("page");
    let bin = folder.join("bin");
    fs::create_dir(&bin).expect("a folder");
    script(
        &bin.join("podman"),
        &ENGINE.replace("CALLS", &folder.join("calls").display().to_string()),
    );
    script(&bin.join("sendmail"), "#!/bin/sh\ncat > /dev/null\n");
    let made = Command::new("python3")
        .args(["-m", "venv", "--without-pip", "env"])
        .current_dir(&folder)
        .output();
    assert!(made.is_ok_and(|output| output.status.success()), "python3 makes an environment");
    fs::write(folder.join("train.py"), "print('trained')\n").expect("a file");
    let mail = format!("{} -i", bin.join("sendmail").display());
    let before = format!("PATH={}:$PATH ", bin.display());
    let allow = "http://127.0.0.1:9/hooks/";
    let options = ["--gpus", "1", "--notify-allow", allow, "--mail-command", &mail];
    let daemon = Daemon::start_in(folder.clone(), &before, &options);
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut ran = 0;
    for line in blocks.flat_map(str::lines) {
        let mut shell = Command::new("sh");
        let program = env!("CARGO_BIN_EXE_trainyard");
        shell
            .arg("-c")
            .arg(line.replacen("trainyard", program, 1))
            .current_dir(&folder)
            .stdin(Stdio::null());
        shell.env("TRAINYARD_SERVER", format!("unix:{}", folder.join("s/api.sock").display()));
        shell.env("XDG_DATA_HOME", folder.join("data"));
        let output = shell.output().expect("a shell");
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {text}");
        ran += 1;
    }
    assert_eq!(ran, 5, "commands of the page");
    let toml = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    fs::write(folder.join("page.toml"), toml.expect("a job file")).expect("a file");
    daemon.said(&["submit", "page.toml"]);
}
