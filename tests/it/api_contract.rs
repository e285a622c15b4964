//! The description of the API, and whether the service does what it says.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::api::{ask, end, get};
use crate::process::{Workspace, file_to_file};

const METHODS: [&str; 4] = ["get", "put", "post", "delete"];

/// Each operation: its path, its method and what is said of it.
fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().iter();
        methods.map(move |(method, operation)| {
            assert!(METHODS.contains(&method.as_str()), "{path}: {method}");
            (path.as_str(), method.as_str(), operation)
        })
    })
}

/// The names in a path.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// What `$ref` names, anywhere below.
fn references<'v>(value: &'v Value, found: &mut BTreeSet<&'v str>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn the_description_is_whole() {
    let document = serde_json::to_value(anabranch::api::openapi::document()).unwrap();
    let tags: Vec<&Value> = document["tags"].as_array().unwrap().iter().map(|tag| &tag["name"]).collect();
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let at = format!("{method} {path}");
        assert!(operation["summary"].is_string(), "{at} has no summary");
        let tag = &operation["tags"][0];
        assert!(tags.contains(&tag), "{at} has no known tag: {tag}");
        assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{at}: its id is not its own");
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let declared: BTreeSet<&str> = parameters.filter_map(|it| it["name"].as_str()).collect();
        for name in names(path) {
            assert!(declared.contains(name), "{at} does not declare {name}");
        }
    }
    assert!(ids.len() > 30, "{ids:?}");

    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.contains("#/components/schemas/Error"));
    for reference in found {
        assert!(document.pointer(&reference[1..]).is_some(), "{reference} leads nowhere");
    }
}

/// A path that is put into a router by hand would be in no description.
#[test]
fn all_paths_are_declared() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut left = vec![root.join("api"), root.join("api.rs")];
    let mut read = 0;
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        read += 1;
        // Pages for people are no part of what programs ask.
        if path.ends_with("api/ui.rs") || path.ends_with("api/viewer.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for by_hand in [".route(", ".nest(", "route_service("] {
            assert!(!text.contains(by_hand), "{} has a path that is not declared", path.display());
        }
    }
    assert!(read > 5);
}

#[test]
fn what_is_described_is_served() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\n");
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let serve: &[&str] = if cfg!(feature = "avro") { &["--schema-registry.serve"] } else { &[] };
    let mut process = workspace.start(&[&["run"], serve].concat());
    let address = process.address();
    process.wait_until("readiness", || get(address, "/readyz").status == 200);
    let answer = get(address, "/openapi.json");
    assert_eq!(answer.status, 200);
    let document = answer.json();
    for (path, method, _) in operations(&document) {
        let asked = names(path).fold(path.to_owned(), |path, name| path.replace(&format!("{{{name}}}"), "no-such"));
        let answer = ask(address, &method.to_uppercase(), &asked, "", "");
        for wrong in ["api.no_such_path", "api.no_such_method"] {
            assert!(!answer.body.contains(wrong), "{method} {asked}: {}", answer.body);
        }
        assert_ne!(answer.status, 405, "{method} {asked}: {}", answer.body);
    }
    for file in ["", "viewer.js", "viewer.css"] {
        let answer = get(address, &format!("/openapi/{file}"));
        assert_eq!(answer.status, 200, "{file}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert!(!answer.body.contains("https:") && !answer.body.contains("http:"), "{file} asks elsewhere");
    }
    assert_eq!(get(address, "/openapi").header("location"), Some("/openapi/"));
    end(process);
}
