//! Projects of Conduit: their credentials, their programs, and what is left to do.

use serde_json::Value;

use crate::process::Workspace;

/// Credentials in every place where a pipeline file can have one. Each contains `Hunter`.
const CREDENTIALS: &str = r#"# Before the move: postgres://u:Hunter-comment@db/shop
version: 2.2
pipelines:
  - id: p
    status: running
    description: "reads postgres://u:Hunter-text@db/shop"
    connectors:
      - id: pinned
        type: source
        plugin: builtin:postgres@v0.11.0
        settings: { url: "postgres://u:Hunter-pinned@db/shop", tables: orders }
      - id: own
        type: destination
        plugin: standalone:x
        settings:
          url: https://hooks.example/Hunter-path
          dsn: u:Hunter-dsn@tcp(db)/shop
          connectionString: Server=db;Password=Hunter-pairs
          headers: "Authorization: Bearer Hunter-headers"
          headers.Authorization: Bearer Hunter-header
          apiKey: Hunter-key
          auth.privateKey: &secret Hunter-anchor
          partly: postgres://u:Hunter-partly@${HOST}/x
          options: user=u,pwd=Hunter-nested
          block: |
            user: u
            password: Hunter-block
          folded: >-
            token=Hunter-folded
            and=more
          quoted: "https://u:Hunter-quoted@x/\
            more"
          again.token: *secret
          batch.size: 500
      - id: web
        type: destination
        plugin: builtin:http
        settings: { url: "http://u:Hunter-web@x/?api_key=Hunter-web", headers: "Authorization: Bearer Hunter-web" }
    processors:
      - id: hook
        plugin: webhook.http
        settings:
          request.url: "http://u:Hunter-url@x/?api_key=Hunter-query"
          headers.Authorization: Bearer Hunter-hook
          request.headers.X-Auth-Token: Hunter-token
          nonsense: "Authorization: Bearer Hunter-nonsense"
      - id: kept
        plugin: webhook.http
        settings: { request.url: "http://x/{{ .Key }}?token=${TOKEN}", headers.Authorization: "Bearer ${TOKEN}" }
    dead-letter-queue:
      plugin: builtin:postgres@v0.11.0
      settings: { url: "postgres://u:Hunter-letters@db/shop" }
"#;

/// A file that is not valid, with credentials in the places of its errors.
const BROKEN: &str = r#"version: 2.2
pipelines:
  - id: broken
    status: "postgres://u:Hunter-status@db"
    connectors:
      - id: in
        type: "Bearer Hunter-type"
        plugin: builtin:postgres
        url: "postgres://u:Hunter-place@db"
        settings: { url: { password: [Hunter-list] } }
"#;

fn report(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The lines of the report on a file of the project.
fn lines<'r>(report: &'r Value, file: &str) -> &'r [Value] {
    let sources = report["result"]["sources"].as_array().unwrap();
    let source = sources.iter().find(|source| source["name"] == file).unwrap();
    source["settings"].as_array().unwrap()
}

#[test]
#[cfg(all(feature = "kafka", feature = "postgres"))]
fn no_credential_of_a_project_is_in_a_file_or_an_output() {
    let workspace = Workspace::new();
    workspace.write("old/pipelines/p.yaml", CREDENTIALS);
    let mut shown = String::new();
    for flags in [&["--dry-run"][..], &["--dry-run", "--json"], &["--json"]] {
        let output = workspace.run(&[&["migrate", "conduit", "old", "--to", "new"][..], flags].concat());
        shown.push_str(&output.expect_code(0).both());
    }
    let file = workspace.read("new/pipelines/p.yaml");
    for text in [&shown, &file] {
        let near = text.find("Hunter").map(|at| &text[at.saturating_sub(100)..(at + 30).min(text.len())]);
        assert_eq!(near, None);
    }
    for kept in [
        "postgres://u:***@db/shop",
        "tables: orders",
        "batch.size: 500",
        "request.url: \"http://x/{{ .Key }}?token=${TOKEN}\"",
        "headers.Authorization: \"Bearer ${TOKEN}\"",
        "url: \"${P_PINNED_URL}\"",
        "again.token: ",
    ] {
        assert!(file.contains(kept), "{kept} is not in {file}");
    }
    // Every variable of the file is in the report.
    for name in file.split("${").skip(1).filter_map(|rest| rest.split('}').next()) {
        assert!(["TOKEN", "HOST"].contains(&name) || shown.contains(&format!("\"{name}\"")), "{name}");
    }
}

#[test]
fn no_credential_of_a_project_is_in_an_error() {
    let workspace = Workspace::new();
    workspace.write("old/pipelines/broken.yaml", BROKEN);
    workspace
        .write("old/conduit.yaml", "log:\n  level: 'postgres://u:Hunter-level@db'\nodd: {url: 'x://u:Hunter-odd@y'}\n");
    for flags in [&["--dry-run"][..], &["--dry-run", "--json"], &[]] {
        let output = workspace.run(&[&["migrate", "conduit", "old", "--to", "new"][..], flags].concat());
        let output = output.expect_code(2);
        assert!(!output.both().contains("Hunter"), "{}", output.both());
    }
    assert!(!workspace.read("new/anabranch.yaml").contains("Hunter"));
}

#[test]
fn a_migration_starts_no_program_and_no_module() {
    let workspace = Workspace::new();
    let mark = workspace.path("EXECUTED");
    let script = format!("#!/bin/sh\ntouch '{}'\n", mark.display());
    for place in ["old/connectors/notes.txt", "old/processors/notes.txt", "connectors/notes.txt"] {
        workspace.write(place, "not a program");
    }
    for place in ["old/connectors/own", "old/processors/own", "connectors/own"] {
        workspace.write_program(place, &script);
    }
    workspace.write(
        "old/pipelines/p.yaml",
        "version: 2.2\npipelines:\n  - id: p\n    connectors:\n      - {id: in, type: source, plugin: standalone:own}\n      \
         - {id: out, type: destination, plugin: own}\n    processors:\n      - {id: change, plugin: standalone:own}\n",
    );
    workspace.run(&["migrate", "conduit", "old", "--to", "new", "--dry-run"]).expect_code(0);
    let output = workspace.run(&["migrate", "conduit", "old", "--to", "new", "--json"]).expect_code(0);
    assert!(!mark.exists(), "{}", output.both());
    let report = report(&output.stdout);
    for place in ["p.in", "p.out", "p.change"] {
        let line = lines(&report, "p.yaml").iter().find(|line| line["setting"] == place).unwrap();
        assert!(line["note"].as_str().unwrap().contains("does not start"), "{line}");
    }
    assert_eq!(workspace.read("new/connectors/own"), script);
}

#[test]
#[cfg(all(feature = "kafka", feature = "postgres"))]
fn a_pipeline_with_something_left_to_do_is_stopped() {
    let workspace = Workspace::new();
    let connectors = |settings: &str| {
        format!(
            "[{{id: in, type: source, plugin: file, settings: {{path: a{settings}}}}}, \
             {{id: out, type: destination, plugin: 'builtin:log@v0.1.0-old'}}]"
        )
    };
    let file = format!(
        "version: 2.2\npipelines:\n  - id: good\n    status: running\n    connectors: {good}\n  \
         - id: odd\n    status: running # for now\n    connectors: {odd}\n  \
         - {{id: flow, connectors: {odd}}}\n  \
         - connectors: {good}\n    id: old\n    processors:\n      - {{id: a, plugin: insertfieldpayload}}\n      \
         - {{id: b, plugin: 'builtin:parsejsonkey'}}\n  \
         - id: missing\n    connectors: [{{id: in, type: source, plugin: file, settings: {{path: a}}}}, \
         {{id: out, type: destination, plugin: 'standalone:mysql'}}]\n",
        good = connectors(""),
        odd = connectors(", nonsense: a-value"),
    );
    workspace.write("old/pipelines/p.yaml", file);
    let output = workspace.run(&["migrate", "conduit", "old", "--to", "new", "--json"]).expect_code(0);
    let text = workspace.read("new/pipelines/p.yaml");
    for expected in [
        "- id: good\n    status: running\n",
        "- id: odd\n    status: stopped # for now\n",
        "- {status: stopped, id: flow, ",
        "- status: stopped\n    connectors: ",
        "- status: stopped\n    id: missing\n",
        "# The pipeline odd is stopped. Before you set `status: running`:",
        "odd.in.nonsense",
        "plugin: 'builtin:log'",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    assert!(!text.contains("pipeline good"), "{text}");
    // A value that is not recognized as a credential is not quoted in a finding.
    assert!(!output.both().contains("a-value"), "{}", output.both());
    let report = report(&output.stdout);
    let note = |setting: &str| {
        let line = lines(&report, "p.yaml").iter().find(|line| line["setting"] == setting).unwrap();
        assert_eq!(line["blocks"], true, "{line}");
        line["note"].as_str().unwrap().to_owned()
    };
    for (setting, expected) in [
        ("old.a", "`field.set`"),
        ("old.b", "`json.decode`"),
        ("missing.out", "mysql"),
        ("odd.in.nonsense", "remove it"),
    ] {
        assert!(note(setting).contains(expected), "{}", note(setting));
        assert!(!note(setting).contains("copy the program or module"), "{}", note(setting));
    }
    // The new file is valid but for its plugins and their settings.
    let checked = workspace.run(&["pipelines", "validate", "new/pipelines"]);
    assert!(!checked.both().contains("config."), "{}", checked.both());
}
