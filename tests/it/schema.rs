//! `pipelines schema`, checked by a validator: what is right fits, what is wrong is refused at its place.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::process::{Workspace, file_to_file};

fn schema() -> jsonschema::Validator {
    let output = Workspace::new().run(&["pipelines", "schema"]).expect_code(0);
    let schema: Value = serde_json::from_str(&output.stdout).unwrap();
    assert!(jsonschema::meta::is_valid(&schema), "the schema is no schema");
    jsonschema::draft202012::new(&schema).unwrap()
}

pub(crate) fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn errors(schema: &jsonschema::Validator, document: &Value) -> Vec<(String, String)> {
    schema.iter_errors(document).map(|error| (error.instance_path().to_string(), error.to_string())).collect()
}

/// Returns the YAML files in a directory of the project and in its subdirectories, in the order of their names. An example
/// with files of its own has a subdirectory.
pub fn yaml_files(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let inside = |directory: &Path| std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files = Vec::new();
    for path in inside(&directory) {
        if path.is_dir() { files.extend(inside(&path)) } else { files.push(path) }
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

pub fn is_test(path: &Path) -> bool {
    path.to_string_lossy().ends_with(".test.yaml")
}

/// Returns the pipeline files among [`yaml_files`].
pub fn files(directory: &str) -> Vec<PathBuf> {
    yaml_files(directory).into_iter().filter(|path| !is_test(path)).collect()
}

#[test]
fn every_example_fits_and_is_valid() {
    let schema = schema();
    let examples = files("examples");
    assert!(examples.len() >= 8);
    for path in examples.iter().chain(&files("bench/workloads")) {
        let found = errors(&schema, &yaml(&std::fs::read_to_string(path).unwrap()));
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    Workspace::new()
        .run(&["pipelines", "lint", "--strict", "--preview.pipeline-arch-v2", examples.to_str().unwrap()])
        .expect_code(0);
}

#[test]
fn files_that_are_written_for_users_fit() {
    let schema = schema();
    let workspace = Workspace::new();
    workspace.run(&["pipelines", "init"]).expect_code(0);
    for (name, source, destination) in
        [("a", "generator", "log"), ("b", "file", "file"), ("c", "generator", "file"), ("d", "file", "drop")]
    {
        workspace.run(&["pipelines", "init", name, "--source", source, "--destination", destination]).expect_code(0);
    }
    for entry in std::fs::read_dir(workspace.path("pipelines")).unwrap() {
        let path = entry.unwrap().path();
        let document = yaml(&std::fs::read_to_string(&path).unwrap());
        // The values that the user must fill in are missing.
        let found: Vec<_> = errors(&schema, &document)
            .into_iter()
            .filter(|(_, error)| !error.contains("required") && !error.contains("\"\" does not match"))
            .collect();
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
}

/// A valid file with a list of processors.
fn with_processors(processors: &str) -> String {
    file_to_file("p", processors)
}

#[test]
fn unusual_forms_fit() {
    let schema = schema();
    let good = [
        with_processors("      - { id: 1, plugin: 'any:field.set@v0.1.0', settings: { field: .Key, value: 5 } }\n"),
        with_processors("      - { id: a, plugin: filter, workers: '${N}', condition: true }\n"),
        with_processors("      - { id: a, plugin: '${PLUGIN}', settings: { anything: 1 } }\n"),
        with_processors("      - { id: a, plugin: standalone:mine, settings: { anything: 1 } }\n"),
        with_processors("      - { id: a, type: filter, settings: }\n"),
        with_processors("      - { id: a, plugin: field.set, settings: { field: '${F}', value: ~ , value: x } }\n")
            .replace("value: ~ , ", ""),
        with_processors("      - { id: a, plugin: filter, sdk.schema.decode.key.enabled: false }\n"),
        with_processors("").replace("path: out.ndjson", "path: out.ndjson\n          sdk.batch.delay: 0"),
        with_processors("").replace("path: out.ndjson", "path: out.ndjson\n          sdk.batch.delay: 1h2m3.5s"),
        with_processors("").replace("path: in.txt", "path: in.txt\n          maxLineBytes: 8MiB"),
        with_processors("").replace("status: running", "status: ${STATUS:-running}"),
        with_processors("").replace("version: \"2.2\"", "version: 2.2\nx-anchors: { a: [1] }"),
        "version: 1.0\npipelines:\n  p:\n    connectors:\n      a: { type: source, plugin: generator, settings: \
         { format.type: file, format.options.path: ./x.json } }\n      b: { type: destination, plugin: log }\n"
            .to_owned(),
    ];
    for text in good {
        let found = errors(&schema, &yaml(&text));
        assert!(found.is_empty(), "{found:?}\n{text}");
    }
}

/// Each file with the place where the schema must refuse it, and only there.
fn wrong() -> Vec<(String, &'static str)> {
    let base = with_processors("");
    let set = |settings: &str| {
        with_processors(&format!("      - {{ id: s, plugin: field.set, settings: {{ {settings} }} }}\n"))
    };
    let in_setting = |line: &str| base.replace("path: in.txt", &format!("path: in.txt\n          {line}"));
    let out_setting = |line: &str| base.replace("path: out.ndjson", &format!("path: out.ndjson\n          {line}"));
    let generator = |line: &str| {
        base.replace("plugin: file", "plugin: generator").replacen("path: in.txt", line, 1).replacen(
            "plugin: generator\n        settings:\n          path: out",
            "plugin: file\n        settings:\n          path: out",
            1,
        )
    };
    let queue = |lines: &str| format!("{base}    dead-letter-queue:\n{lines}");
    const FIRST: &str = "/pipelines/0/processors/0";
    const SETTINGS: &str = "/pipelines/0/processors/0/settings";
    const SOURCE: &str = "/pipelines/0/connectors/0";
    const DESTINATION: &str = "/pipelines/0/connectors/1";
    let at = |path: &'static str| path;
    vec![
        (base.replace("version: \"2.2\"", "version: \"3\""), at("/version")),
        (base.replace("pipelines:", "pipeline:"), ""),
        (base.replace("id: p\n", "id: \"a b\"\n"), "/pipelines/0/id"),
        (base.replace("- id: p\n    status", "- status"), "/pipelines/0"),
        (base.replace("status: running", "status: runing"), "/pipelines/0/status"),
        (base.replace("status: running", "stauts: running"), "/pipelines/0"),
        (base.replace("type: source", "type: sink"), "/pipelines/0/connectors/0/type"),
        (
            base.replace(
                "plugin: file\n        settings:\n          path: in",
                "plugin: fil\n        settings:\n          path: in",
            ),
            "/pipelines/0/connectors/0/plugin",
        ),
        (base.replacen("plugin: file", "plugin: log", 1), "/pipelines/0/connectors/0/plugin"),
        (base.replace("type: destination", "type: source"), "/pipelines/0/connectors"),
        (base.replacen("        plugin: file\n", "", 1), SOURCE),
        (base.replacen("        settings:\n          path: in.txt\n", "", 1), SOURCE),
        (base.replace("path: in.txt", "pth: in.txt"), "/pipelines/0/connectors/0/settings"),
        (in_setting("maxLineBytes: many"), "/pipelines/0/connectors/0/settings/maxLineBytes"),
        (in_setting("maxLineBytes: 0"), "/pipelines/0/connectors/0/settings/maxLineBytes"),
        (in_setting("sdk.batch.size: -1"), "/pipelines/0/connectors/0/settings/sdk.batch.size"),
        (in_setting("sdk.batch.size: 1.5"), "/pipelines/0/connectors/0/settings/sdk.batch.size"),
        (in_setting("sdk.batch.delay: 5"), "/pipelines/0/connectors/0/settings/sdk.batch.delay"),
        (in_setting("sdk.rate.perSecond: 5"), "/pipelines/0/connectors/0/settings"),
        (out_setting("durability: dsk"), "/pipelines/0/connectors/1/settings/durability"),
        (out_setting("sdk.rate.perSecond: fast"), "/pipelines/0/connectors/1/settings/sdk.rate.perSecond"),
        (out_setting("sdk.record.format: { a: x }"), "/pipelines/0/connectors/1/settings/sdk.record.format"),
        (base.replace("- id: out\n", "- name: out\n"), DESTINATION),
        (
            generator("operations: create,upsert\n          format.type: raw\n          format.options.a: int"),
            "/pipelines/0/connectors/0/settings/operations",
        ),
        (
            generator("format.type: raw\n          format.options.a: integer"),
            "/pipelines/0/connectors/0/settings/format.options.a",
        ),
        (generator("collections.a.format.type: yaml"), "/pipelines/0/connectors/0/settings/collections.a.format.type"),
        (set("value: x"), SETTINGS),
        (set("field: .Payload.name, value: x"), "/pipelines/0/processors/0/settings/field"),
        (set("field: Payload.After.x, value: x"), "/pipelines/0/processors/0/settings/field"),
        (set("field: .Position, value: x"), "/pipelines/0/processors/0/settings/field"),
        (set("field: .Key, value: [x]"), "/pipelines/0/processors/0/settings/value"),
        (set("field: .Key, value: null"), "/pipelines/0/processors/0/settings/value"),
        (
            set("field: .Key, value: x, sdk.schema.decode.key.enabled: 'yes'"),
            "/pipelines/0/processors/0/settings/sdk.schema.decode.key.enabled",
        ),
        (
            with_processors("      - { id: s, plugin: file, settings: { path: x } }\n"),
            "/pipelines/0/processors/0/plugin",
        ),
        (with_processors("      - { id: s, plugin: filter, workers: 0.5 }\n"), "/pipelines/0/processors/0/workers"),
        (with_processors("      - { id: s, plugin: filter, workers: \"4\" }\n"), "/pipelines/0/processors/0/workers"),
        (with_processors("      - { id: s, plugin: filter, workers: 2000 }\n"), "/pipelines/0/processors/0/workers"),
        (with_processors("      - { id: s, plugin: filter, condtion: x }\n"), FIRST),
        (with_processors("      - { id: s, condition: x }\n"), FIRST),
        (
            with_processors("      - { id: s, plugin: filter, condition: { a: b } }\n"),
            "/pipelines/0/processors/0/condition",
        ),
        (
            with_processors("      - { id: s, plugin: clone, settings: { count: 0 } }\n"),
            "/pipelines/0/processors/0/settings/count",
        ),
        (with_processors("      - { id: s, plugin: clone }\n"), FIRST),
        (with_processors("      - { id: s, plugin: filter, settings: { x: 1 } }\n"), SETTINGS),
        (queue("      plugin: generator\n"), "/pipelines/0/dead-letter-queue/plugin"),
        (queue("      window-size: many\n"), "/pipelines/0/dead-letter-queue/window-size"),
        (queue("      window: 1\n"), "/pipelines/0/dead-letter-queue"),
        (queue("      plugin: file\n"), "/pipelines/0/dead-letter-queue"),
        (
            queue("      plugin: file\n      settings: { path: x, durability: 1 }\n"),
            "/pipelines/0/dead-letter-queue/settings/durability",
        ),
        ("version: 1.1\npipelines: [ { id: p } ]\n".to_owned(), "/pipelines"),
    ]
}

#[test]
fn what_is_wrong_is_refused_at_its_place() {
    let schema = schema();
    let mut failed = Vec::new();
    for (text, place) in wrong() {
        let found = errors(&schema, &yaml(&text));
        if found.is_empty() || found.iter().any(|(path, _)| path != place) {
            failed.push(format!("expected at {place:?}, found {found:?}\n{text}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The schema must never be stricter than the service: what it marks, the service refuses or warns of.
#[test]
fn what_the_schema_refuses_is_not_fine_with_the_service() {
    let workspace = Workspace::new();
    let wrong = wrong();
    for (number, (text, _)) in wrong.iter().enumerate() {
        workspace.write(&format!("wrong/{number:02}.yaml"), text.replace("id: p\n", &format!("id: p{number}\n")));
    }
    let output = workspace.run(&["pipelines", "lint", "--strict", "--preview.pipeline-arch-v2", "--json", "wrong"]);
    let output: Value = serde_json::from_str(&output.expect_code(2).stdout).unwrap();
    let files = output["result"]["files"].as_array().unwrap();
    assert_eq!(files.len(), wrong.len());
    for file in files {
        assert!(!file["findings"].as_array().unwrap().is_empty(), "{} is fine", file["path"]);
    }
}

#[test]
fn descriptions_and_defaults_are_there_for_editors() {
    let output = Workspace::new().run(&["pipelines", "schema", "--json"]).expect_code(0);
    let envelope: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((&envelope["command"], &envelope["ok"]), (&"pipelines.schema".into(), &true.into()));
    let settings = &envelope["result"]["$defs"]["destination.file"];
    assert_eq!(settings["properties"]["durability"]["default"], "process");
    assert_eq!(settings["properties"]["durability"]["anyOf"][0]["enum"], serde_json::json!(["process", "disk"]));
    assert_eq!(settings["required"], serde_json::json!(["path"]));
    let plugins = envelope["result"]["$defs"]["processor.plugin"]["anyOf"].as_array().unwrap();
    let split = plugins.iter().find(|plugin| plugin["const"] == "split").unwrap();
    assert_eq!(split["description"], "Splits a list into one record per element.");
}
