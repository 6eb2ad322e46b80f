//! The document of the API is the one that was reviewed.

use crate::client::Running;
use serde_json::Value;
use std::path::Path;
use trainyard_daemon::http::openapi::document;

#[test]
fn the_document_is_the_one_in_the_repository() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/schema/openapi-v1.json");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, document()).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == document(),
        "{} is out of date: look at the change, then run with UPDATE_EXPECT=1",
        path.display()
    );
}

#[test]
fn every_reference_in_the_document_points_somewhere() {
    let whole: Value = serde_json::from_str(document()).unwrap();
    let (mut stack, mut count) = (vec![&whole], 0);
    while let Some(value) = stack.pop() {
        if let Some(Value::String(target)) = value.get("$ref") {
            let pointer = target.strip_prefix('#').unwrap();
            assert!(whole.pointer(pointer).is_some(), "{target}");
            count += 1;
        }
        match value {
            Value::Array(items) => stack.extend(items),
            Value::Object(fields) => stack.extend(fields.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    assert!(count > 50, "{count} references");
}

#[tokio::test]
async fn the_document_is_served() {
    let rim = Running::plain().await;
    assert_eq!(rim.remote(None).await.get("/openapi.json").await.text, document());
}
