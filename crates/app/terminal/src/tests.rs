//! Frames as text, keys as keys.

use super::draw::{self, Palette};
use super::fetch::Errand;
use super::keys::{Outcome, press};
use super::picture::{Inside, Picture};
use super::state::{Screen, View};
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use trainyard_api::answer::{EventRow, FairRow, Holding, JobDetail, JobRow, NodeRow, QueueState};
use trainyard_api::forecast::{EtaAnswer, Expected};
use trainyard_api::request::Act;

const NOW: f64 = 1_700_000_000.0;

fn job(id: u32, state: QueueState, gpus: u32) -> JobRow {
    JobRow {
        id,
        name: format!("job{id}"),
        user: if id.is_multiple_of(2) { "ada" } else { "bob" }.to_owned(),
        tenant: "vision".to_owned(),
        state,
        since: NOW - f64::from(id),
        gpus,
        holds: Vec::new(),
        attempt: 1,
        submitted: NOW - 1000.0,
        started: None,
        ended: None,
        ran_seconds: 0.0,
        progress: None,
        restarts: 0,
        preemptions: 0,
        priority: 0,
        why: String::new(),
        hung: None,
    }
}

fn node(name: &str, gpus: &[&[u32]]) -> NodeRow {
    NodeRow {
        claimed: Vec::new(),
        name: name.to_owned(),
        gpu_type: "h100".to_owned(),
        gpus: gpus.iter().map(|jobs| jobs.to_vec()).collect(),
        state: "up".to_owned(),
        free: gpus.iter().filter(|jobs| jobs.is_empty()).count() as u32,
        cpus: 64,
        memory_mib: 524_288,
        reason: None,
        ill: Vec::new(),
    }
}

fn tenant(name: &str, parent: Option<&str>, (entitled, used): (f64, f64)) -> FairRow {
    FairRow {
        tenant: name.to_owned(),
        parent: parent.map(str::to_owned),
        weight: 1.0,
        entitled,
        used,
        gpus: 4.0,
        ceiling: Some(8),
        waiting: 1,
        running: 2,
    }
}

/// Three nodes, one of them drained; a job of four GPUs, two that share one, and one that waits.
fn small() -> Picture {
    let mut running = job(4, QueueState::Running, 4);
    running.holds = vec![Holding { node: "n0".to_owned(), gpus: vec![0, 1, 2, 3] }];
    running.progress = Some(0.25);
    let mut first = job(5, QueueState::Running, 1);
    first.holds = vec![Holding { node: "n1".to_owned(), gpus: vec![0] }];
    let second = JobRow { id: 6, name: "job6".to_owned(), ..first.clone() };
    let mut waiting = job(7, QueueState::Waiting, 8);
    waiting.why = "needs 8 GPUs, and 3 that it could use are free".to_owned();
    let mut drained = node("n2", &[&[], &[], &[], &[]]);
    (drained.state, drained.reason) = ("drained".to_owned(), Some("new driver".to_owned()));
    let event = |seq: u64, kind: &str, job: u32| EventRow {
        seq,
        at: NOW,
        kind: kind.to_owned(),
        job: Some(job),
        text: format!("job {job} is {kind}"),
        data: Value::Null,
    };
    Picture {
        at: NOW,
        status: serde_json::from_value(json!({
            "version": "0.1.0", "schema_version": 1, "policy": "las", "policy_trouble": null,
            "jobs": { "running": 3, "waiting": 1 }, "gpus": 12, "gpus_used": 5, "gpus_lost": 4, "epoch": 3,
            "since": NOW - 60.0, "role": "user", "user": "ada", "runs_as_users": false,
            "warnings": [], "stats": { "decisions": 12 },
        }))
        .expect("a status"),
        jobs: vec![waiting, second, first, running],
        more: false,
        nodes: vec![
            node("n0", &[&[4], &[4], &[4], &[4]]),
            node("n1", &[&[5, 6], &[], &[], &[]]),
            drained,
        ],
        tenants: vec![
            tenant("lab", None, (1.0, 1.0)),
            tenant("vision", Some("lab"), (0.5, 0.25)),
            tenant("audio", Some("lab"), (0.5, 0.75)),
        ],
        events: vec![event(1, "submitted", 7), event(2, "failed", 3)],
        etas: None,
    }
}

fn screen(picture: Picture, view: View) -> Screen {
    let mut screen = Screen::new(view, 1.0);
    screen.now = NOW;
    screen.take(picture);
    screen
}

fn frame(screen: &mut Screen, width: u16, height: u16) -> String {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    draw::draw(screen, Palette { coloured: false }, buffer.area, &mut buffer);
    draw::text(&buffer)
}

fn key(screen: &mut Screen, code: KeyCode) -> Outcome {
    press(screen, KeyEvent::new(code, KeyModifiers::NONE))
}

fn letters(screen: &mut Screen, text: &str) {
    for letter in text.chars() {
        key(screen, KeyCode::Char(letter));
    }
}

fn shows(frame: &str, expected: &str) {
    let wanted: Vec<&str> = expected.trim_start_matches('\n').lines().collect();
    let got: Vec<&str> = frame.lines().collect();
    assert_eq!(got, wanted, "\n{frame}");
}

#[test]
fn the_map_shows_jobs_shares_free_and_lost_gpus_and_the_queue_below() {
    let mut screen = screen(small(), View::Cluster);
    shows(
        &frame(&mut screen, 80, 16),
        "
 trainyard  las  █████░░░░░ 5/12 GPUs, 4 lost  3 running, 1 waiting  ada (user)
 1 cluster  2 jobs  3 tenants  4 events  5 daemon
 h100 5/12 (1 shared)   letter: a job, digit: jobs that share, ·: free, x: out
 n0 eeee  n1 2···  n2 xxxx
────────────────────────────────────────────────────────────────────────────────
 n0  up  h100  0 of 4 GPUs free  64 CPUs  512 GiB
 e 4 ada job4 [0,1,2,3]

      id name         user     state         for GPUs  done where, or why it wai
e      4 job4         ada      running        4s    4  25 % n0[0-3]
f      5 job5         bob      running        5s    1       n1[0]
g      6 job6         bob      running        5s    1       n1[0]
       7 job7         bob      waiting        7s    8       needs 8 GPUs, and 3


 ? keys  q quit  enter open  / filter  s sort: name  tab next view
",
    );
    key(&mut screen, KeyCode::Right);
    let shared = frame(&mut screen, 80, 16);
    assert!(shared.contains(" f 5 bob job5 [0]   g 6 bob job6 [0]"), "{shared}");
    key(&mut screen, KeyCode::Right);
    assert!(frame(&mut screen, 80, 16).contains("n2  drained (new driver)"));
    key(&mut screen, KeyCode::Enter);
    assert_eq!((screen.view, screen.list().filter.as_str()), (View::Jobs, "node:n2"));
    assert!(frame(&mut screen, 80, 16).contains("nothing with these words"));
}

#[test]
fn colours_tell_jobs_apart_and_are_left_out_on_request() {
    let mut screen = screen(small(), View::Cluster);
    let cell = |screen: &mut Screen, coloured: bool, x: u16| {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 16));
        draw::draw(screen, Palette { coloured }, buffer.area, &mut buffer);
        buffer[(x, 3)].clone()
    };
    let (job, free) = (cell(&mut screen, true, 4), cell(&mut screen, true, 15));
    assert_eq!((job.symbol(), free.symbol()), ("e", "·"));
    assert_ne!(job.bg, free.bg);
    let shared = cell(&mut screen, true, 13);
    assert_eq!(shared.symbol(), "2");
    assert_ne!(shared.fg, shared.bg, "both jobs are seen");
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 16));
    draw::draw(&mut screen, Palette { coloured: false }, buffer.area, &mut buffer);
    let reset = ratatui::style::Color::Reset;
    assert!(buffer.content.iter().all(|cell| cell.fg == reset && cell.bg == reset));
}

#[test]
fn a_wide_screen_has_what_runs_beside_the_map() {
    let mut screen = screen(small(), View::Cluster);
    let text = frame(&mut screen, 160, 40);
    assert!(text.contains("on these GPUs, the newest first"), "{text}");
    assert!(text.contains("1 wait: 2 says why"), "{text}");
    let jobs = {
        key(&mut screen, KeyCode::Char('2'));
        frame(&mut screen, 160, 40)
    };
    assert!(jobs.contains("tenant") && jobs.contains("again"), "{jobs}");
}

#[test]
fn what_is_expected_is_shown_where_the_daemon_tells_it() {
    let mut picture = small();
    let moment = |likely: f64| Expected { low: likely - 10.0, likely, high: likely + 20.0 };
    let eta = |job: u32, state, starts: f64| EtaAnswer {
        job,
        state,
        starts: Some(moment(starts)),
        ends: Some(moment(NOW + 3600.0)),
        confidence: 0.8,
        basis: "las, 40 estimates".to_owned(),
    };
    let etas = [eta(7, QueueState::Waiting, NOW + 120.0), eta(4, QueueState::Running, NOW - 50.0)];
    picture.etas = Some(etas.into_iter().map(|eta| (eta.job, eta)).collect());
    let mut screen = screen(picture, View::Jobs);
    let text = frame(&mut screen, 120, 24);
    assert!(text.contains("start 2m") && text.contains("end 1h"), "{text}");
}

#[test]
fn shares_are_a_tree_with_bars() {
    let mut screen = screen(small(), View::Tenants);
    shows(
        &frame(&mut screen, 90, 8),
        "
 trainyard  las  █████░░░░░ 5/12 GPUs, 4 lost  3 running, 1 waiting            ada (user)
 1 cluster  2 jobs  3 tenants  4 events  5 daemon
tenant             entitled    used ratio   GPUs   max  runs waits used █, entitled |
lab                 100.0 % 100.0 %  1.00      4     8     2     1 ███████████████████|
  audio              50.0 %  75.0 %  1.50      4     8     2     1 █████████|█████·····
  vision             50.0 %  25.0 %  0.50      4     8     2     1 █████····|··········

 ? keys  q quit  enter open  / filter  s sort: tree  tab next view
",
    );
    key(&mut screen, KeyCode::Char('s'));
    let text = frame(&mut screen, 90, 8);
    assert!(text.lines().nth(3).is_some_and(|line| line.starts_with("  vision")), "{text}");
    key(&mut screen, KeyCode::Enter);
    assert_eq!(screen.list().filter, "tenant:lab", "the row stays meant when the order changes");
}

#[test]
fn a_filter_takes_words_and_fields() {
    let mut screen = screen(small(), View::Jobs);
    let mut ids = |filter: &str| {
        key(&mut screen, KeyCode::Esc);
        key(&mut screen, KeyCode::Char('/'));
        letters(&mut screen, filter);
        key(&mut screen, KeyCode::Enter);
        let picture = screen.picture.as_ref().expect("a picture");
        let order = &screen.lists[View::Jobs as usize].order;
        order.iter().map(|row| picture.jobs[*row as usize].id).collect::<Vec<u32>>()
    };
    assert_eq!(ids(""), [4, 5, 6, 7]);
    assert_eq!(ids("ADA"), [4]);
    assert_eq!(ids("user:bob is:running"), [5, 6]);
    assert_eq!(ids("node:n1"), [5, 6]);
    assert_eq!(ids("needs 8"), [7]);
    assert_eq!(ids("nobody"), Vec::<u32>::new());
    key(&mut screen, KeyCode::Enter);
    assert!(screen.open.is_none(), "nothing is meant, so nothing opens");
}

#[test]
fn the_job_that_is_meant_stays_so_when_others_come_and_go() {
    let mut screen = screen(small(), View::Jobs);
    letters(&mut screen, "jjj");
    assert_eq!(screen.job(), Some(7));
    let mut next = small();
    next.jobs.retain(|job| job.id != 5);
    screen.take(next);
    assert_eq!(screen.job(), Some(7));
    let mut without = small();
    without.jobs.retain(|job| job.id < 7);
    screen.take(without);
    assert_eq!(screen.job(), Some(6), "the nearest one, where it is gone");
}

#[test]
fn a_job_is_acted_on_once_it_was_asked_and_only_by_who_may() {
    let mut screen = screen(small(), View::Jobs);
    assert_eq!(key(&mut screen, KeyCode::Char('c')), Outcome::Stay);
    assert!(frame(&mut screen, 80, 24).contains("cancel job 4 (job4)? y does it"));
    assert_eq!(key(&mut screen, KeyCode::Char('n')), Outcome::Stay);
    key(&mut screen, KeyCode::Char('h'));
    let sent = key(&mut screen, KeyCode::Char('y'));
    assert_eq!(sent, Outcome::Send(Errand::Act(4, Act::Hold)));
    key(&mut screen, KeyCode::Down);
    key(&mut screen, KeyCode::Char('c'));
    assert_eq!(key(&mut screen, KeyCode::Char('y')), Outcome::Stay, "job 5 is of another user");
    key(&mut screen, KeyCode::Char('c'));
    let text = frame(&mut screen, 110, 24);
    assert!(text.contains("has the role user, and this needs operator"), "{text}");
}

#[test]
fn one_job_shows_speed_launches_and_the_end_of_its_log() {
    let mut screen = screen(small(), View::Jobs);
    assert_eq!(key(&mut screen, KeyCode::Enter), Outcome::Send(Errand::Open(4)));
    assert!(frame(&mut screen, 80, 24).contains("looking into job 4"));
    let row = screen.row(4).expect("it runs").clone();
    let attempts = json!([{
        "attempt": 1, "holds": [{ "node": "n0", "gpus": [0] }], "launched": NOW - 90.0, "started": NOW - 89.0,
        "ended": NOW - 30.0, "exit_code": 1, "signal": null, "outcome": "it failed",
    }]);
    let inside = |rate: f64| Inside {
        detail: JobDetail {
            pace: Vec::new(),
            row: JobRow { restarts: 1, ..row.clone() },
            spec: serde_json::from_value(json!({ "argv": ["python", "train.py"] }))
                .expect("a spec"),
            attempts: serde_json::from_value(attempts.clone()).expect("launches"),
            report: None,
            measured: serde_json::from_value(json!({ "rate": rate })).expect("figures"),
        },
        why: None,
        log: Ok((0..100).map(|step| format!("step {step}\n")).collect()),
    };
    screen.take_inside(9, Ok(Box::new(inside(1.0))));
    assert!(frame(&mut screen, 80, 24).contains("looking into"), "that was of another job");
    for rate in [1.0, 2.0, 4.0] {
        screen.take_inside(4, Ok(Box::new(inside(rate))));
    }
    let text = frame(&mut screen, 80, 30);
    for part in [
        "python train.py",
        "restarts   1",
        "4.000 steps/s",
        "▂▄█",
        "on n0 for 1m: it failed",
        "step 99",
    ] {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
    key(&mut screen, KeyCode::Char('g'));
    assert!(frame(&mut screen, 80, 30).contains("step 0\n"), "the log scrolls to its beginning");
    assert_eq!(key(&mut screen, KeyCode::Esc), Outcome::Send(Errand::Close));
}

#[test]
fn a_daemon_that_is_gone_is_said_and_what_was_known_stays() {
    let mut screen = Screen::new(View::Jobs, 1.0);
    assert!(frame(&mut screen, 80, 24).contains("waiting for the daemon"));
    screen.take(small());
    screen.now = NOW + 30.0;
    assert!(frame(&mut screen, 80, 24).contains("as of 30s ago: the daemon takes long"));
    screen.missed = Some("connection refused".to_owned());
    let text = frame(&mut screen, 80, 24);
    assert!(text.contains("as of 30s ago: connection refused") && text.contains("job7"), "{text}");
    let mut back = small();
    back.status.policy_trouble = Some("it was slow".to_owned());
    back.at = screen.now;
    screen.take(back);
    assert!(frame(&mut screen, 80, 24).contains("! the policy is in trouble: it was slow"));
}

#[test]
fn no_size_and_no_key_breaks_a_frame() {
    let codes = [
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Left,
        KeyCode::Right,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Tab,
        KeyCode::BackTab,
        KeyCode::Char('s'),
        KeyCode::Char('?'),
        KeyCode::Char('a'),
        KeyCode::Char('/'),
        KeyCode::Char('x'),
        KeyCode::Backspace,
        KeyCode::Char('c'),
        KeyCode::Char('1'),
        KeyCode::Char('4'),
        KeyCode::F(5),
    ];
    let mut empty = small();
    (empty.jobs, empty.nodes, empty.tenants, empty.events) = Default::default();
    for picture in [small(), empty] {
        for (width, height) in [(0, 0), (5, 3), (20, 6), (40, 8), (80, 24), (133, 50), (300, 7)] {
            for view in View::ALL {
                let mut screen = screen(picture.clone(), view);
                for code in codes {
                    frame(&mut screen, width, height);
                    key(&mut screen, code);
                }
            }
        }
    }
}

/// A thousand nodes of eight GPUs and ten thousand jobs.
fn large() -> Picture {
    let mut picture = small();
    picture.nodes.clear();
    picture.jobs.clear();
    for index in 0..1000u32 {
        let gpus: Vec<Vec<u32>> = (0..8).map(|gpu| vec![index * 2 + gpu / 4]).collect();
        let gpus: Vec<&[u32]> = gpus.iter().map(Vec::as_slice).collect();
        picture.nodes.push(node(&format!("node{index:04}"), &gpus));
    }
    for id in (0..10_000).rev() {
        let mut row = job(id, if id < 2000 { QueueState::Running } else { QueueState::Waiting }, 4);
        row.why = "needs 4 GPUs, and none that it could use is free".to_owned();
        if id < 2000 {
            let half = (id % 2 * 4) as u8;
            let gpus = (half..half + 4).collect();
            row.holds = vec![Holding { node: format!("node{:04}", id / 2), gpus }];
        }
        picture.jobs.push(row);
    }
    picture
}

/// The fastest of several, so that a busy machine does not count.
fn fastest(mut what: impl FnMut()) -> Duration {
    let once = |_| {
        let begun = Instant::now();
        what();
        begun.elapsed()
    };
    (0..7).map(once).min().expect("some")
}

#[test]
fn a_large_cluster_stays_smooth() {
    let limit = Duration::from_millis(50);
    let mut screen = screen(large(), View::Cluster);
    for view in View::ALL {
        screen.view = view;
        let took = fastest(|| {
            key(&mut screen, KeyCode::PageDown);
            frame(&mut screen, 200, 60);
        });
        println!("a key and a frame of {}: {took:?}", view.name());
        assert!(took < limit, "a frame of {} took {took:?}", view.name());
    }
    screen.view = View::Jobs;
    let took = fastest(|| {
        for code in [KeyCode::Char('/'), KeyCode::Char('a'), KeyCode::Char('d'), KeyCode::Esc] {
            key(&mut screen, code);
        }
    });
    println!("a filter of two letters, set and dropped: {took:?}");
    assert!(took < limit * 3, "three filters took {took:?}");
    let picture = large();
    let took = fastest(|| screen.take(picture.clone()));
    println!("a new picture: {took:?}");
    assert!(took < limit * 2, "a new picture took {took:?}");
}
