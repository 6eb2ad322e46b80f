//! How much is taken, and how long.

use crate::client::Running;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;
use trainyard_daemon::access::Role;

const PATIENCE: Duration = Duration::from_secs(20);

/// All that comes back until the other side closes.
async fn rest(stream: &mut UnixStream) -> String {
    let mut text = String::new();
    let read = timeout(PATIENCE, stream.read_to_string(&mut text)).await;
    let _ = read.expect("the other side closes");
    text
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let rim = Running::start(|options, _| options.limits.body_bytes_max = 1000).await;
    // Large enough that no buffer on the way holds it: it must be read for the answer to be seen.
    let body = format!(r#"{{"jobs":[{{"name":"{}"}}]}}"#, "x".repeat(5_000_000));
    let got = rim.local().await.post("/v1/jobs", &body).await;
    assert_eq!((got.status, got.json()["code"].as_str()), (413, Some("too-large")));
    // The size is announced and nothing is sent; the answer comes all the same.
    let mut stream = UnixStream::connect(&rim.socket).await.unwrap();
    let head = "POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    assert!(rest(&mut stream).await.starts_with("HTTP/1.1 413"));
    // Sent in chunks of unknown number.
    let mut stream = UnixStream::connect(&rim.socket).await.unwrap();
    let head = "POST /v1/jobs HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(format!("{head}7d0\r\n{}\r\n", "x".repeat(2000)).as_bytes()).await.unwrap();
    assert!(rest(&mut stream).await.starts_with("HTTP/1.1 413"));
}

#[tokio::test]
async fn large_bodies_share_a_room_and_small_ones_pass_by() {
    let rim = Running::start(|options, _| {
        options.limits.body_bytes_max = 200 << 10;
        options.limits.bodies_bytes_max = 200 << 10;
        options.limits.answer_time_max = Duration::from_millis(200);
    })
    .await;
    // One large body takes all the room and does not come.
    let mut holder = UnixStream::connect(&rim.socket).await.unwrap();
    let head =
        format!("POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", 200 << 10);
    holder.write_all(head.as_bytes()).await.unwrap();
    let small = r#"{"jobs":[{"argv":["true"]}]}"#;
    let large = format!("{small}{}", " ".repeat(150 << 10));
    let mut client = rim.local().await;
    let deadline = Instant::now() + PATIENCE;
    while client.post("/v1/jobs", &large).await.status != 429 {
        assert!(Instant::now() < deadline, "the holder's head never arrived");
    }
    assert_eq!(client.post("/v1/jobs", small).await.status, 200);
    drop(holder);
    while client.post("/v1/jobs", &large).await.status != 200 {
        assert!(Instant::now() < deadline, "the room was never given back");
    }
}

#[tokio::test]
async fn whoever_does_not_read_its_answer_is_let_go() {
    let rim = Running::start(|options, _| {
        options.limits.write_time_max = Duration::from_millis(200);
        options.limits.connections_per_peer_max = 1;
    })
    .await;
    (0..10_000).for_each(|_| {
        rim.service.add_job("ann");
    });
    let mut deaf = UnixStream::connect(&rim.socket).await.unwrap();
    deaf.write_all(b"GET /v1/jobs?limit=10000 HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        // The one place there is becomes free when the deaf one is let go.
        let mut stream = UnixStream::connect(&rim.socket).await.unwrap();
        let request = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let _ = stream.write_all(request).await;
        let mut text = String::new();
        let _ = timeout(PATIENCE, stream.read_to_string(&mut text)).await.unwrap();
        if text.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(Instant::now() < deadline, "the deaf one still has its place");
    }
    let text = rest(&mut deaf).await;
    assert!(!text.ends_with('}'), "the answer was cut off");
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_given_up() {
    let rim = Running::start(|options, _| options.limits.reply_bytes_max = 2000).await;
    (0..50).for_each(|_| {
        rim.service.add_job("ann");
    });
    let mut client = rim.local().await;
    let got = client.get("/v1/jobs").await;
    assert_eq!(got.status, 413);
    assert!(got.detail().contains("more than 2000 bytes: ask for fewer rows"), "{}", got.text);
    assert_eq!(client.get("/v1/jobs?limit=3").await.status, 200);
}

#[tokio::test]
async fn headers_are_limited_in_number_and_size() {
    let rim = Running::plain().await;
    let many: String = (0..200).map(|i| format!("x-{i}: y\r\n")).collect();
    let long = format!("x: {}\r\n", "y".repeat(100_000));
    for headers in [many, long] {
        let mut stream = UnixStream::connect(&rim.socket).await.unwrap();
        let head = format!("GET /healthz HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
        let _ = stream.write_all(head.as_bytes()).await;
        let text = rest(&mut stream).await;
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 431"), "{text}");
    }
}

#[tokio::test]
async fn whoever_asks_too_often_is_told_when_to_come_back() {
    let rim = Running::start(|options, _| {
        options.limits.requests_per_second = 0.1;
        options.limits.requests_burst = 3.0;
    })
    .await;
    let token = rim.service.token("ann", Role::User, 60.0);
    let mut ann = rim.remote(Some(&token)).await;
    for _ in 0..3 {
        assert_eq!(ann.get("/v1/status").await.status, 200);
    }
    let got = ann.get("/v1/status").await;
    assert_eq!((got.status, got.json()["code"].as_str()), (429, Some("too-many")));
    let seconds: u64 = got.header("retry-after").parse().unwrap();
    assert!((1..=10).contains(&seconds), "{seconds}");
    let other = rim.service.token("bob", Role::User, 60.0);
    assert_eq!(rim.remote(Some(&other)).await.get("/v1/status").await.status, 200);
}

#[tokio::test]
async fn guesses_of_tokens_do_not_fill_the_record() {
    let rim = Running::start(|options, _| options.limits.refusals_per_second = 1.0).await;
    let mut client = rim.remote(Some("ty_guess")).await;
    let mut last = 0;
    for _ in 0..20 {
        last = client.get("/v1/jobs").await.status;
    }
    assert_eq!(last, 429);
    assert!(rim.service.memory.lock().unwrap().refused.len() < 10);
    let token = rim.service.token("ann", Role::User, 60.0);
    let got = rim.remote(Some(&token)).await.get("/v1/jobs").await;
    assert_eq!(got.status, 200, "clients with wrong tokens do not keep out one with a good token");
}

#[tokio::test]
async fn slow_and_idle_connections_are_closed() {
    let rim = Running::start(|options, _| {
        options.limits.head_time_max = Duration::from_millis(200);
        options.limits.body_time_max = Duration::from_millis(200);
    })
    .await;
    let began = Instant::now();
    let mut silent = UnixStream::connect(&rim.socket).await.unwrap();
    let mut slow = UnixStream::connect(&rim.socket).await.unwrap();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost:").await.unwrap();
    let mut late = UnixStream::connect(&rim.socket).await.unwrap();
    late.write_all(b"POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{")
        .await
        .unwrap();
    let mut done = UnixStream::connect(&rim.socket).await.unwrap();
    done.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    rest(&mut silent).await;
    rest(&mut slow).await;
    assert!(rest(&mut late).await.starts_with("HTTP/1.1 408"));
    assert!(rest(&mut done).await.starts_with("HTTP/1.1 200"), "and closed when idle");
    assert!(began.elapsed() < PATIENCE);
}

#[tokio::test]
async fn one_peer_cannot_take_all_connections() {
    let rim = Running::start(|options, _| options.limits.connections_per_peer_max = 2).await;
    let mut one = rim.local().await;
    let mut two = rim.local().await;
    assert_eq!((one.get("/healthz").await.status, two.get("/healthz").await.status), (200, 200));
    let mut three = UnixStream::connect(&rim.socket).await.unwrap();
    assert!(rest(&mut three).await.starts_with("HTTP/1.1 503"), "it is told so");
    assert!(rim.service.metrics.encode().contains("trainyard_http_connections_refused_total 1"));
}

#[tokio::test]
async fn the_end_does_not_wait_for_those_who_wait() {
    let rim = Running::plain().await;
    let mut waiting = rim.local().await;
    let answer = tokio::spawn(async move { waiting.get("/v1/events?wait=60").await.status });
    let mut other = rim.local().await;
    assert_eq!(other.get("/healthz").await.status, 200);
    // Let the waiting request arrive before the end is asked for.
    while !rim.service.metrics.encode().contains("route=\"/healthz\"") {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    rim.end().await;
    assert!(began.elapsed() < Duration::from_secs(4));
    assert_eq!(answer.await.unwrap(), 200, "an empty list, not a broken connection");
}

#[tokio::test]
async fn headers_of_little_more_than_allowed_are_refused_by_their_size() {
    let rim = Running::plain().await;
    for (bytes, status) in
        [(20 << 10, "200"), (31 << 10, "200"), (33 << 10, "431"), (45 << 10, "431")]
    {
        let mut stream = UnixStream::connect(&rim.socket).await.unwrap();
        let long = "y".repeat(bytes);
        let head =
            format!("GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx: {long}\r\n\r\n");
        let _ = stream.write_all(head.as_bytes()).await;
        let text = rest(&mut stream).await;
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{bytes}: {text}");
    }
}

#[tokio::test]
async fn connections_beyond_a_limit_are_told_so_and_when_to_come_back() {
    for (of_all, of_one, whose) in [(2, 100, "the daemon"), (100, 2, "your user or address")] {
        let rim = Running::start(|options, _| {
            options.limits.connections_max = of_all;
            options.limits.connections_per_peer_max = of_one;
        })
        .await;
        let mut held = Vec::new();
        for _ in 0..2 {
            let mut client = rim.local().await;
            assert_eq!(client.get("/healthz").await.status, 200);
            held.push(client);
        }
        for _ in 0..3 {
            let mut stream = UnixStream::connect(&rim.socket).await.unwrap();
            let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
            let text = rest(&mut stream).await;
            assert!(text.starts_with("HTTP/1.1 503"), "{text}");
            assert!(text.contains("retry-after: 1") && text.contains(whose), "{text}");
            assert!(text.ends_with('}') && text.contains("too-many"), "{text}");
        }
        assert_eq!(held[0].get("/healthz").await.status, 200, "those within it are served");
        drop(held);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut stream = UnixStream::connect(&rim.socket).await.unwrap();
            let request = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(request).await;
            if rest(&mut stream).await.starts_with("HTTP/1.1 200") {
                break;
            }
            assert!(Instant::now() < deadline, "the places are never given back");
        }
    }
}
