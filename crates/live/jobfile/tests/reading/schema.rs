//! The published schema.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use trainyard_api::JobSpec;

#[test]
fn the_published_schema_is_the_one_in_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/schema/job-v1.json");
    let ours = format!("{:#}\n", trainyard_jobfile::schema());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &ours).expect("a file");
    }
    let published = std::fs::read_to_string(&path).expect("docs/schema/job-v1.json");
    let hint = "run with UPDATE_EXPECT=1; within version 1 keys may come, none may go";
    assert!(published == ours, "docs/schema/job-v1.json is not what the program prints: {hint}");
}

#[test]
fn every_field_of_a_job_is_a_key_with_a_meaning() {
    let schema = trainyard_jobfile::schema();
    let properties = schema["$defs"]["job"]["properties"].as_object().expect("keys");
    for (key, value) in properties {
        assert!(value["description"].is_string(), "{key} has no meaning");
    }
    let keys: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
    let job = JobSpec { script: Some(String::new()), ..JobSpec::default() };
    let Value::Object(fields) = serde_json::to_value(job).expect("JSON") else { panic!() };
    for field in fields.keys() {
        assert!(keys.contains(field.as_str()), "{field} cannot be set in a job file");
    }
}
