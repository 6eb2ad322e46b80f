//! How many requests a second the rim itself can take, printed; the service here costs nothing.

use crate::client::Running;
use std::time::{Duration, Instant};
use trainyard_daemon::access::Role;

const CONNECTIONS: usize = 64;
const PERIOD: Duration = Duration::from_secs(1);
const BATCH: usize = 100;

async fn pace(rim: &Running, token: Option<&str>, body: &str) -> f64 {
    let began = Instant::now();
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = match token {
            Some(token) => rim.remote(Some(token)).await,
            None => rim.local().await,
        };
        let body = body.to_owned();
        clients.push(tokio::spawn(async move {
            let mut count = 0_u64;
            while began.elapsed() < PERIOD {
                assert_eq!(client.post("/v1/jobs", &body).await.status, 200);
                count += 1;
            }
            count
        }));
    }
    let mut count = 0;
    for client in clients {
        count += client.await.unwrap();
    }
    count as f64 / began.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submissions_from_64_connections() {
    let rim = Running::start(|options, _| {
        options.limits.requests_per_second = 1e9;
        options.limits.requests_burst = 1e9;
    })
    .await;
    let token = rim.service.token("ann", Role::User, 600.0);
    let job =
        r#"{"name":"train","argv":["python","train.py","--lr","0.1"],"gpus":4,"env":{"A":"b"}}"#;
    let single = format!(r#"{{"jobs":[{job}]}}"#);
    let batch = format!(r#"{{"jobs":[{}]}}"#, vec![job; BATCH].join(","));
    let unix = pace(&rim, None, &single).await;
    let tcp = pace(&rim, Some(&token), &single).await;
    let batched = BATCH as f64 * pace(&rim, None, &batch).await;
    println!(
        "{CONNECTIONS} connections, clients in the same process, a service that costs nothing:"
    );
    println!("  single submissions/s: {unix:.0} Unix socket, {tcp:.0} TCP with token");
    println!("  jobs/s, {BATCH} a request: {batched:.0} Unix socket");
    // Far below what any machine does; the figures themselves are in the docs.
    assert!(unix > 200.0 && tcp > 200.0 && batched > 2000.0);
}
