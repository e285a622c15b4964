//! The JSON Schema of test files, for editors.

use serde_json::{Value, json};

/// Returns the schema (draft 2020-12). Everything that it rejects, `pipelines test` rejects too. It does not check the
/// ids of a pipeline and the patterns in expectations.
pub fn json_schema() -> Value {
    let object = |properties: Value, required: Value| {
        json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false
        })
    };
    let reference = |name: &str| json!({ "$ref": format!("#/$defs/{name}") });
    let list = |of: Value| json!({ "type": "array", "items": of });
    // A value for the only connector, or a map by id.
    let per = |of: Value| json!({ "anyOf": [of, { "type": "object", "additionalProperties": of }] });
    let duration = json!({ "type": "string", "description": "A duration, for example 500ms, 10s, 1m." });
    let shared = [
        (
            "env",
            json!({ "type": "object", "description": "Values of ${NAME} in the pipeline; `file:PATH` for ${file:PATH}. \
                                                      Variables of the process are not visible." }),
        ),
        (
            "now",
            json!({ "type": "string", "format": "date-time", "description": "The time of day for templates, scripts and the engine." }),
        ),
        ("timeout", duration.clone()),
        ("match", json!({ "enum": ["fields", "data", "exact"], "description": "How strictly records are compared." })),
    ];
    let with_shared = |mut properties: Value| {
        for (name, schema) in &shared {
            properties[*name] = schema.clone();
        }
        properties
    };
    let records = |of: &str| {
        json!({ "anyOf": [
        list(reference(of)),
        { "type": "integer", "minimum": 0 },
        object(json!({
            "records": list(reference(of)),
            "count": { "type": "integer", "minimum": 0 },
            "unordered": { "type": "boolean" },
            "repeats": { "type": "boolean", "description": "Whether duplicates count once." },
            "match": shared[3].1,
        }), json!([]))
    ] })
    };
    let request = json!({
        "method": {}, "url": { "description": "A complete URL, a path that starts with /, or a pattern." },
        "headers": { "type": "object" }, "body": { "description": "A text, or JSON of which only the named fields are \
                                                                   compared." }
    });
    let sides = json!({
        "operation": {}, "metadata": { "type": "object" }, "key": {}, "before": {}, "after": {},
        "payload": object(json!({ "before": {}, "after": {} }), json!([]))
    });
    let mut given = sides.clone();
    given["operation"] = json!({ "enum": ["create", "update", "delete", "snapshot"] });
    given["position"] = json!({ "type": "string" });
    let from_file = object(json!({ "file": { "type": "string" } }), json!(["file"]));
    let scalar = json!({ "type": ["string", "number", "boolean"] });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tests of an Anabranch pipeline",
        "type": "object",
        "properties": with_shared(json!({
            "pipeline": { "type": "string", "description": "The pipeline file, relative to this file. Default: the \
                                                            file with the same name." },
            "id": { "type": "string", "description": "Id of the pipeline, if the file has several." },
            "tests": { "type": "array", "items": reference("test"), "minItems": 1 },
        })),
        "required": ["tests"],
        "additionalProperties": false,
        "$defs": {
            "test": object(with_shared(json!({
                "name": { "type": "string" },
                "description": {},
                "input": per(list(json!({ "anyOf": [reference("input"), list(reference("input"))] }))),
                "expect": reference("expect"),
                "http": list(reference("stub")),
                "faults": list(reference("fault")),
            })), json!(["name", "input", "expect"])),
            "input": { "anyOf": [
                scalar, from_file,
                object(json!({ "lines": { "type": "string" } }), json!(["lines"])),
                object(given, json!([])),
            ] },
            "record": { "anyOf": [scalar, from_file, object(sides, json!([]))] },
            "letter": object(json!({
                "step": {}, "error": {}, "code": {}, "source": {},
                "record": { "description": "The number of the record in its source, or the record itself." }
            }), json!([])),
            "request": object(request.clone(), json!([])),
            "expect": object(json!({
                "records": per(records("record")),
                "dead-letters": records("letter"),
                "acks": per(json!({ "anyOf": [
                    { "enum": ["all", "none"] }, { "type": "integer" }, list(json!({ "type": "integer", "minimum": 1 }))
                ] })),
                "status": { "enum": ["finished", "degraded", "recovering"] },
                "error": {},
                "requests": records("request"),
            }), json!([])),
            "stub": object(json!({
                "match": object(request, json!([])),
                "reply": reference("reply"),
                "replies": list(reference("reply")),
                "times": { "type": "integer", "minimum": 0 },
            }), json!([])),
            "reply": object(json!({
                "status": { "type": "integer", "minimum": 200, "maximum": 599 },
                "headers": { "type": "object" }, "body": {}, "delay": duration, "close": { "type": "boolean" }
            }), json!([])),
            "fault": object(json!({
                "at": { "type": "string", "description": "Id of a source, destination or processor." },
                "source": { "type": "string" },
                "record": { "type": "integer" }, "records": list(json!({ "type": "integer" })),
                "fail": { "enum": ["record", "transient", "fatal"] }, "message": { "type": "string" },
                "delay": duration, "down": duration,
                "hang": { "type": "boolean" }, "panic": { "type": "boolean" }, "crash": { "type": "boolean" },
                "partial-write": { "type": "integer", "minimum": 0 },
                "times": { "anyOf": [{ "const": "always" }, { "type": "integer", "minimum": 0 }] },
            }), json!(["at"])),
        },
    })
}
