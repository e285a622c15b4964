//! Which connectors there are, and how pipelines name them.

use super::plugin::{empty_workspace, pipeline, program, started, workspace};
use crate::process::Workspace;

/// Installs the plugin with variables.
fn install(workspace: &Workspace, name: &str, variables: &str) {
    let script = format!("#!/bin/sh\n{variables} exec '{}'\n", program().display());
    workspace.write_program(&format!("connectors/{name}"), &script);
}

fn names(workspace: &Workspace) -> Vec<String> {
    let output = workspace.run(&["connectors", "list", "--json"]).expect_code(0);
    let listed: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    let connectors = listed["result"]["connectors"].as_array().unwrap();
    let told = |connector: &serde_json::Value| {
        let roles: Vec<&str> = connector["types"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
        let text = |name: &str| connector[name].as_str().unwrap().to_owned();
        format!("{} {} {}", text("name"), text("version"), roles.join("+"))
    };
    connectors.iter().map(told).filter(|told| told.starts_with("my-")).collect()
}

#[test]
fn versions_are_ordered_and_equal_ones_refuse_each_other() {
    let workspace = empty_workspace();
    install(&workspace, "a", "HELPER_NAME=my-a HELPER_VERSION=v1.9.0");
    install(&workspace, "b", "HELPER_NAME=my-a HELPER_VERSION=v1.10.0 HELPER_PROTOCOL=1");
    install(&workspace, "c", "HELPER_NAME=my-a HELPER_VERSION=nightly");
    install(&workspace, "d", "HELPER_NAME=my-b HELPER_ROLES=destination");
    install(&workspace, "e", "HELPER_NAME=my-twin HELPER_VERSION=v1.0.0");
    install(&workspace, "f", "HELPER_NAME=my-twin HELPER_VERSION=1.0.0");
    install(&workspace, "g", "HELPER_NAME=my-nothing HELPER_ROLES=none");
    let expected = [
        "my-a nightly source+destination",
        "my-a v1.9.0 source+destination",
        "my-a v1.10.0 source+destination",
        "my-b v1.2.3 destination",
    ];
    assert_eq!(names(&workspace), expected);
    let warnings = workspace.run(&["connectors", "list"]).expect_code(0).stderr;
    for (file, reason) in [("e", "connectors/f: neither is used"), ("f", "connectors/e: neither is used")] {
        let line = warnings.lines().find(|line| line.contains(&format!("connectors/{file} is not used"))).unwrap();
        assert!(line.contains("my-twin 1.0.0 is also in") && line.ends_with(reason), "{line}");
    }
    assert!(warnings.contains("connectors/g is not used: it is neither a source nor a destination"), "{warnings}");

    let check = |source: &str, destination: &str| {
        pipeline(&workspace, "count: 1", "");
        let text = workspace.read("pipelines/p.yaml");
        let text = text.replacen("plugin: helper", &format!("plugin: {source}"), 1);
        workspace.write("pipelines/p.yaml", text.replacen("plugin: helper", &format!("plugin: {destination}"), 1));
        workspace.run(&["pipelines", "validate"])
    };
    check("my-a", "standalone:my-b").expect_code(0);
    check("standalone:my-a@1.9.0", "my-a@nightly").expect_code(0);
    let wrong = check("my-b", "my-a@v3").expect_code(2).both();
    assert!(wrong.contains("plugin \"my-b\" cannot be used as a source, only as a destination"), "{wrong}");
    assert!(wrong.contains("plugin \"my-a\" has version nightly, v1.9.0, v1.10.0, not v3"), "{wrong}");
    let twin = check("standalone:my-twin", "my-b").expect_code(2).both();
    assert!(twin.contains("no standalone plugin \"my-twin\" is installed"), "{twin}");
}

#[test]
fn settings_are_checked_before_anything_starts() {
    let workspace = workspace();
    pipeline(&workspace, "cuont: 1, batch: many", "keys: 7");
    let output = workspace.run(&["pipelines", "validate"]).expect_code(2).both();
    for what in
        ["helper has no parameter \"cuont\"", "batch: \"many\" is not an integer", "keys: \"7\" is not a boolean"]
    {
        assert!(output.contains(what), "{output}");
    }
    assert_eq!(started(&workspace), [] as [u32; 0]);
    let missing = workspace.run(&["run", "--once"]).expect_code(2).both();
    assert!(missing.contains("cuont"), "{missing}");
    pipeline(&workspace, "count: 1", "");
    let once = workspace.run(&["run", "--once"]).expect_code(2).both();
    assert!(once.contains("source \"helper\" cannot detect the end of its data"), "{once}");
}

#[test]
fn a_built_in_connector_comes_first_and_a_file_of_its_name_is_told_of() {
    let workspace = empty_workspace();
    install(&workspace, "file", "HELPER_NAME=file");
    install(&workspace, "drop", "HELPER_NAME=drop");
    let described = workspace.run(&["connectors", "describe", "file"]).expect_code(0);
    assert!(described.stdout.starts_with("file v0."), "{}", described.stdout);
    let described = workspace.run(&["connectors", "describe", "standalone:file"]).expect_code(0);
    assert!(described.stdout.starts_with("file v1.2.3, by Nobody"), "{}", described.stdout);
    assert!(described.stderr.contains("`standalone:file` means the installed one"), "{}", described.stderr);
    // The built-in one is no source.
    pipeline(&workspace, "count: 1", "");
    let text = workspace.read("pipelines/p.yaml").replacen("plugin: helper", "plugin: drop", 1);
    workspace.write("pipelines/p.yaml", text.replacen("plugin: helper", "plugin: standalone:file", 1));
    workspace.run(&["pipelines", "validate"]).expect_code(0);
}

#[test]
fn files_that_are_no_connectors_are_named_with_the_reason() {
    let mut workspace = empty_workspace();
    workspace.env("ANABRANCH_CONNECTORS_TIMEOUT", "60s");
    install(&workspace, "exit", "HELPER_START=exit");
    install(&workspace, "talks", "HELPER_START=talks");
    install(&workspace, "garbage", "HELPER_START=garbage");
    install(&workspace, "nameless", "HELPER_NAME=");
    install(&workspace, "good", "HELPER_NAME=my-good");
    workspace.write_program("connectors/nonsense", "\x7fELF and then nothing");
    workspace.write("connectors/forgotten", "#!/bin/sh\nexit 0\n");
    workspace.write("connectors/README.md", "Connectors go here.");
    workspace.write("connectors/.gitkeep", "");
    assert_eq!(names(&workspace), ["my-good v1.2.3 source+destination"]);
    let warnings = workspace.run(&["connectors", "list"]).expect_code(0).stderr;
    for (file, reason) in [
        ("exit", "it ended (exit code 3) before it reported its address; its last output: no licence found"),
        ("talks", "it cannot be used: its first line is"),
        ("garbage", "it does not return its specification: "),
        ("nameless", "it has no name"),
        ("nonsense", "it ended (exit code 127)"),
        ("forgotten", "it is not executable: run chmod +x on it"),
    ] {
        let line = warnings.lines().find(|line| line.contains(&format!("connectors/{file} is not used")));
        assert!(line.is_some_and(|line| line.contains(reason)), "{file}: {warnings}");
    }
    assert!(!warnings.contains("README") && !warnings.contains("gitkeep"), "{warnings}");
}

/// By itself: beside it others would have to say who they are within the same time.
#[test]
fn a_file_that_says_nothing_is_named_after_a_while() {
    let mut workspace = empty_workspace();
    workspace.env("ANABRANCH_CONNECTORS_TIMEOUT", "2s");
    install(&workspace, "silent", "HELPER_START=silent");
    let output = workspace.run(&["connectors", "list"]).expect_code(0);
    let line = output.stderr.lines().find(|line| line.contains("connectors/silent is not used"));
    let reason = "it did not report its address within 2.0 s";
    assert!(line.is_some_and(|line| line.contains(reason)), "{}", output.both());
    assert_eq!(names(&workspace), [""; 0]);
}

#[test]
fn a_file_is_asked_once_who_it_is() {
    let workspace = workspace();
    let asked = || workspace.lines("starts").len();
    for _ in 0..3 {
        assert!(workspace.run(&["connectors", "describe", "helper"]).expect_code(0).stdout.contains("v1.2.3"));
        assert_eq!(asked(), 1);
    }
    // A damaged cache entry counts as absent.
    let kept = std::fs::read_dir(workspace.path("cache/anabranch/connectors")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(kept, [0xff; 9]).unwrap();
    workspace.run(&["connectors", "describe", "helper"]).expect_code(0);
    assert_eq!(asked(), 2);
    // Built-in plugins need no program.
    workspace.run(&["connectors", "describe", "file"]).expect_code(0);
    workspace.run(&["connectors", "describe", "generator"]).expect_code(0);
    assert_eq!(asked(), 2);
}

#[test]
fn files_for_pipelines_are_written_and_checked_with_installed_connectors() {
    let workspace = empty_workspace();
    install(&workspace, "a", "HELPER_NAME=my-own");
    install(&workspace, "b", "HELPER_NAME=file");
    workspace.run(&["pipelines", "init", "x", "--source", "my-own", "--destination", "standalone:file"]).expect_code(0);
    assert_eq!(workspace.lines("starts").len(), 2, "each was asked once who it is");
    let text = workspace.read("pipelines/x.yaml");
    for part in
        ["plugin: my-own", "plugin: standalone:file", "# For tests.", "# greeting: hello", "\n          path: \"\""]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let unknown = workspace.run(&["pipelines", "init", "y", "--source", "other"]).expect_code(2).both();
    assert!(unknown.contains("generator") && unknown.contains("standalone:file, my-own"), "{unknown}");

    let schema = workspace.run(&["pipelines", "schema"]).expect_code(0).stdout;
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    let schema = jsonschema::draft202012::new(&schema).unwrap();
    let fits = |source: &str, settings: &str| {
        let text = format!(
            "version: '2.2'\npipelines: [{{ id: p, connectors: [{{ id: in, type: source, plugin: '{source}', settings: \
             {{ {settings} }} }}, {{ id: out, type: destination, plugin: log }}] }}]"
        );
        let is_valid = schema.is_valid(&crate::schema::yaml(&text));
        workspace.write("one.yaml", text);
        let code = workspace.run(&["pipelines", "validate", "one.yaml"]).code();
        assert_eq!(code == Some(0), is_valid, "{source} {settings}: the schema and the check do not agree");
        is_valid
    };
    assert!(fits("my-own", "count: 3"));
    assert!(!fits("my-own", "count: many") && !fits("my-own", "cuont: 3"));
    assert!(fits("standalone:file", "options.a: b") && !fits("standalone:file", "path: x"));
    assert!(fits("file", "path: x") && !fits("file", "count: 3") && !fits("my-owm", "count: 3"));
}

#[test]
fn installed_connectors_are_listed_over_http() {
    let workspace = empty_workspace();
    install(&workspace, "a", "HELPER_NAME=my-own");
    let service = crate::api_lifecycle::Service::start(&workspace);
    let listed = service.get("/v1/connectors/plugins?name=standalone:.*");
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed[0]["name"], "standalone:my-own@v1.2.3");
    assert_eq!(listed[0]["destinationParams"]["path"]["validations"][0]["type"], "TYPE_REQUIRED");
    assert_eq!(listed[0]["sourceParams"]["greeting"]["default"], "hello");
    service.end();
}
