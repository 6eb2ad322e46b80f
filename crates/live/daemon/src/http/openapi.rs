//! The document of the API, made from the table of routes and the schemas of the types.

use super::input::kind_schema;
use super::route::{Route, routes};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::sync::OnceLock;
use trainyard_api::endpoint::{Gives, Shape};
use trainyard_api::{Problem, SCHEMA_VERSION};

/// OpenAPI 3.1, as text.
pub fn document() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let text = serde_json::to_string_pretty(&build());
        text.expect("a tree of JSON values can be written") + "\n"
    })
}

fn build() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = SchemaGenerator::new(settings);
    let problem = generator.subschema_for::<Problem>();
    let mut paths = Map::new();
    for route in routes() {
        let path = paths.entry(route.endpoint.path).or_insert_with(|| json!({}));
        path[route.endpoint.verb.name().to_lowercase()] = operation(route, &mut generator);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Trainyard",
            "version": SCHEMA_VERSION.to_string(),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
            "description": "The daemon's HTTP API. Every answer that is not a success is a Problem. \
                Fields are added, never renamed or removed, within one version.",
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "responses": { "Problem": {
                "description": "What went wrong, where, and what to do.",
                "content": { "application/json": { "schema": problem } },
            } },
            "securitySchemes": { "token": {
                "type": "http",
                "scheme": "bearer",
                "description": "A token that begins with `ty_`. On the Unix socket none is needed: \
                    the kernel names the user.",
            } },
        },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let needs = route.endpoint.least.map_or("Needs no token.".to_owned(), |role| {
        format!("Needs the role {} at least.", role.name())
    });
    let mut operation = json!({
        "operationId": route.endpoint.name,
        "summary": route.endpoint.about(),
        "description": needs,
        "responses": responses(route, generator),
    });
    if route.endpoint.least.is_none() {
        operation["security"] = json!([]);
    }
    let parameters = parameters(route);
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    if let Some(body) = route.endpoint.body {
        let schema = body(generator);
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    operation
}

fn parameters(route: &Route) -> Vec<Value> {
    let parts =
        route.endpoint.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = parts.map(|name| {
        let schema = match name {
            "id" => json!({ "type": "integer", "minimum": 0 }),
            _ => json!({ "type": "string" }),
        };
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    });
    let in_query = route.params.iter().map(|param| {
        json!({
            "name": param.name,
            "in": "query",
            "required": false,
            "description": param.about,
            "schema": kind_schema(param.kind),
        })
    });
    let key = (route.endpoint.name == "submit").then(|| {
        json!({
            "name": "Idempotency-Key",
            "in": "header",
            "required": false,
            "description": "The client's own key: the same key gives the same answer, however often it is sent.",
            "schema": { "type": "string", "minLength": 1, "maxLength": super::input::KEY_BYTES_MAX },
        })
    });
    in_path.chain(in_query).chain(key).collect()
}

fn responses(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let json_of = |schema: Value| {
        json!({
            "description": "Done.",
            "content": { "application/json": { "schema": schema } },
        })
    };
    let (status, good) = match route.endpoint.gives {
        Gives::One(shape) => ("200", json_of(value_of(shape, generator))),
        Gives::List(name, shape) => ("200", json_of(list_of(name, value_of(shape, generator)))),
        Gives::Text(kind) => {
            let content = json!({ kind: { "schema": { "type": "string" } } });
            ("200", json!({ "description": "Done.", "content": content }))
        }
        Gives::Nothing => ("204", json!({ "description": "Done." })),
    };
    let mut all = Map::new();
    all.insert(status.to_owned(), good);
    let problem = json!({ "$ref": "#/components/responses/Problem" });
    let mut refusals = vec!["429", "default"];
    if route.endpoint.least.is_some() {
        refusals.extend(["401", "403"]);
    }
    if route.endpoint.path.contains('{') {
        refusals.push("404");
    }
    if route.endpoint.body.is_some() {
        refusals.extend(["413", "422"]);
    }
    if !route.params.is_empty() {
        refusals.push("422");
    }
    for status in refusals {
        all.insert(status.to_owned(), problem.clone());
    }
    Value::Object(all)
}

fn value_of(shape: Shape, generator: &mut SchemaGenerator) -> Value {
    shape(generator).to_value()
}

fn list_of(name: &str, row: Value) -> Value {
    json!({
        "type": "object",
        "properties": {
            "schema_version": { "const": SCHEMA_VERSION },
            name: { "type": "array", "items": row },
        },
        "required": ["schema_version", name],
    })
}
