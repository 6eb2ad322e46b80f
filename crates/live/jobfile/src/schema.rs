//! The published JSON Schema of job files.

use crate::field::{Field, JOB, Kind};
use schemars::schema_for;
use serde_json::{Map, Value, json};
use trainyard_api::{Checkpoint, JobSpec, SCHEMA_VERSION};

/// The schema of TOML, YAML and JSON job files, version 1.
///
/// Keys come from the table that the reader uses, their meaning from the fields of [`JobSpec`].
pub fn schema() -> Value {
    let job = object(JOB, &fields_of(schema_for!(JobSpec).to_value()));
    let says_what = ["command", "argv", "script"].map(|key| json!({ "required": [key] }));
    let version = json!({ "description": "The version of this form.", "const": SCHEMA_VERSION });
    let link = json!({ "description": "Where this schema lies, for editors.", "type": "string" });
    let list = json!({ "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/job" } });
    let file = |key: &str| {
        json!({
            "type": "object",
            "additionalProperties": false,
            "required": [key],
            "properties": {
                "$schema": link,
                "schema_version": version,
                "defaults": { "description": "What every job says that does not say otherwise.", "$ref": "#/$defs/job" },
                key: list,
            },
        })
    };
    let mut alone = job.clone();
    alone["anyOf"] = json!(says_what);
    alone["properties"]["$schema"] = link.clone();
    alone["properties"]["schema_version"] = version.clone();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Trainyard job file, version 1",
        "description": "One job, or a list of jobs with defaults.",
        "anyOf": [alone, file("job"), file("jobs"), list],
        "$defs": { "job": job },
    })
}

/// A table of keys as an object.
fn object(fields: &[Field], known: &Map<String, Value>) -> Value {
    let mut properties = Map::new();
    for field in fields {
        let mut value = value(field);
        let native = known.get(field.target);
        let about = match field.about {
            "" => native.and_then(|native| native.get("description")).cloned(),
            about => Some(about.into()),
        };
        if let Some(about) = about {
            value["description"] = about;
        }
        let default = native.and_then(|native| native.get("default"));
        let is_native = field.name == field.target;
        if let Some(default) = default.filter(|default| is_native && is_telling(default)) {
            value["default"] = default.clone();
        }
        properties.insert(field.name.to_owned(), value);
    }
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

/// Empty defaults tell a reader nothing; tables state their own.
fn is_telling(default: &Value) -> bool {
    match default {
        Value::Null | Value::Object(_) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

fn value(field: &Field) -> Value {
    let text = json!({ "type": "string", "minLength": 1 });
    let span = json!({ "type": "string", "examples": ["90s", "1h30m", "2d"] });
    let seconds = json!({ "type": "number", "minimum": 0 });
    match field.kind {
        Kind::Text => text,
        Kind::Texts => json!({ "anyOf": [text, { "type": "array", "items": text }] }),
        Kind::Argv => json!({
            "type": "array",
            "minItems": 1,
            "items": { "type": ["string", "integer"] },
            "examples": [["python", "train.py", "--epochs", "3"]],
        }),
        Kind::Env => json!({
            "type": "object",
            "propertyNames": { "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" },
            "additionalProperties": { "type": ["string", "integer"] },
        }),
        Kind::Whole(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Kind::Real(least, most) => json!({ "type": "number", "minimum": least, "maximum": most }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Span => json!({ "anyOf": [span, seconds] }),
        Kind::Size => json!({ "type": "string", "examples": ["16GiB", "512MiB"] }),
        Kind::Share => json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1 }),
        Kind::Label => json!({ "type": "string", "pattern": "^[A-Za-z0-9._-]{1,63}$" }),
        Kind::Moment => json!({
            "anyOf": [{ "type": "string", "examples": ["2026-05-01T12:00", "now+2h"] }, seconds],
        }),
        Kind::Until => json!({
            "anyOf": [{ "type": "string", "examples": ["6h", "2026-05-01T12:00"] }, seconds],
        }),
        Kind::Ids => {
            let id = json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX });
            json!({ "anyOf": [id, { "type": "array", "items": id }] })
        }
        Kind::Array => json!({ "type": ["string", "integer"], "examples": ["0-9%4", "1,3,5"] }),
        Kind::Choice(names) => json!({ "enum": names }),
        Kind::Table(fields) => object(fields, &fields_of(schema_for!(Checkpoint).to_value())),
    }
}

fn fields_of(schema: Value) -> Map<String, Value> {
    schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default()
}
