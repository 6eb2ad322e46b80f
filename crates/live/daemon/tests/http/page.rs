//! The files of the page, and the feed it lives on.

use crate::client::Running;
use trainyard_daemon::access::Role;

#[tokio::test]
async fn the_page_needs_no_token_and_lets_nothing_foreign_in() {
    let rim = Running::plain().await;
    let mut client = rim.remote(None).await;
    let page = client.get("/").await;
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    let policy = page.header("content-security-policy");
    for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    for (index, _) in page.text.match_indices("/assets/") {
        let path = page.text[index..].split('"').next().unwrap();
        let file = client.get(path).await;
        assert_eq!(file.status, 200, "{path}");
        assert!(!file.header("content-security-policy").is_empty(), "{path}");
    }
}

#[tokio::test]
async fn a_file_that_a_browser_has_is_not_sent_again() {
    let rim = Running::plain().await;
    let mut client = rim.remote(None).await;
    let first = client.get("/assets/app.js").await;
    let tag = first.header("etag").to_owned();
    let again = client.ask("GET", "/assets/app.js", &[("if-none-match", &tag)], "").await;
    assert_eq!((again.status, again.text.as_str(), again.header("etag")), (304, "", tag.as_str()));
    let other = client.ask("GET", "/assets/app.js", &[("if-none-match", "\"0\"")], "").await;
    assert_eq!(other.status, 200);
}

#[tokio::test]
async fn others_may_link_to_the_page_but_not_pose_as_this_host() {
    let rim = Running::plain().await;
    let mut client = rim.remote(None).await;
    let linked = client.ask("GET", "/", &[("sec-fetch-site", "cross-site")], "").await;
    assert_eq!(linked.status, 200);
    let rebound = client.ask("GET", "/", &[("host", "evil.example")], "").await;
    assert_eq!(rebound.status, 403);
    for path in ["/assets/nothing.js", "/assets/..%2fCargo.toml", "/assets/"] {
        assert_eq!(client.get(path).await.status, 404, "{path}");
    }
    assert_eq!(client.post("/", "").await.status, 404);
}

#[tokio::test]
async fn the_feed_is_packed_for_those_who_can_unpack_it() {
    let rim = Running::plain().await;
    for _ in 0..200 {
        rim.service.add_job("ann");
    }
    let token = rim.service.token("ann", Role::Viewer, 60.0);
    let mut client = rim.remote(Some(&token)).await;
    let plain = client.get("/v1/board").await;
    assert_eq!(plain.header("content-encoding"), "");
    let board = plain.json();
    assert_eq!(
        (board["whole"].as_bool(), board["jobs"].as_array().unwrap().len()),
        (Some(true), 200)
    );
    assert_eq!(board["status"]["role"], "viewer");
    let since = board["cursor"].as_u64().unwrap();
    let nothing = client.get(&format!("/v1/board?since={since}&wait=0.05")).await.json();
    assert_eq!(
        (nothing["whole"].as_bool(), nothing["jobs"].as_array().unwrap().len()),
        (Some(false), 0)
    );
    assert_eq!(client.get("/v1/board?wait=61").await.status, 422);
    for coding in ["gzip;q=0, br", "identity"] {
        let got = client.ask("GET", "/v1/board", &[("accept-encoding", coding)], "").await;
        assert_eq!(got.header("content-encoding"), "", "{coding}");
    }
}

#[tokio::test]
async fn a_browser_is_told_where_the_page_is() {
    let rim = Running::plain().await;
    let said = rim.local().await.get("/v1/page").await.json();
    assert_eq!(said["url"], format!("http://{}/", rim.address));
}
