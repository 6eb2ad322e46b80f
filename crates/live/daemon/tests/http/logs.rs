//! Requests are logged without anything that could be a secret.

use crate::client::Running;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use trainyard_daemon::access::Role;

/// Keeps every field of every event as text.
#[derive(Clone, Default)]
struct SavedState(Arc<Mutex<String>>);

impl Visit for SavedState {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0.lock().unwrap(), "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for SavedState {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn neither_tokens_nor_what_follows_the_question_mark_is_logged() {
    let kept = SavedState::default();
    let _here = tracing::subscriber::set_default(kept.clone());
    let rim = Running::plain().await;
    let token = rim.service.token("ann", Role::Admin, 60.0);
    let mut client = rim.remote(Some(&token)).await;
    client.get("/v1/jobs?user=somebody-secret").await;
    client.get("/v1/jobs/somebody-secret").await;
    client.get("/somebody-secret?key=somebody-secret").await;
    let body = r#"{"name":"ci","user":"ann","role":"user"}"#;
    let made = client.post("/v1/tokens", body).await.json()["token"].as_str().unwrap().to_owned();
    let wrong = format!("ty_{}", "f".repeat(64));
    rim.remote(Some(&wrong)).await.get("/v1/jobs").await;
    let text = kept.0.lock().unwrap().clone();
    for line in
        [r#"path="/v1/jobs" status=200"#, r#"path="/v1/jobs/{id}" status=422"#, "status=401"]
    {
        assert!(text.contains(line), "{line} is missing from {text}");
    }
    for secret in [&token, &made, &wrong, "somebody-secret"] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
}
