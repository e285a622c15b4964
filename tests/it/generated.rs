//! Files that the binary writes for its user.

use crate::process::Workspace;

#[test]
fn init_writes_every_key_and_overwrites_nothing() {
    let workspace = Workspace::new();
    let first = workspace.run(&["init"]).expect_code(0);
    assert!(!first.stdout.is_empty(), "a confirmation is printed");
    let file = workspace.read("anabranch.yaml");
    for key in [
        "db.type",
        "db.path",
        "log.level",
        "log.format",
        "pipelines.path",
        "pipelines.exit-on-degraded",
        "error-recovery",
        "engine.replay-rows",
        "engine.held-bytes",
        "engine.queue-bytes",
        "shutdown.timeout",
        "api.http.address",
        "preview.pipeline-arch-v2",
        "connectors.path",
        "processors.path",
        "schema-registry.type",
    ] {
        let last = key.rsplit('.').next().unwrap();
        assert!(file.contains(key) || file.contains(&format!("{last}:")), "{key} is not in\n{file}");
    }
    workspace.write("anabranch.yaml", "log.level: warn\n");
    workspace.run(&["init"]);
    assert_eq!(workspace.read("anabranch.yaml"), "log.level: warn\n");
}

#[test]
fn settings_come_from_flag_then_variable_then_file() {
    let mut workspace = Workspace::new();
    let value = |workspace: &Workspace, args: &[&str]| {
        let output = workspace.run(&[&["config", "--json"][..], args].concat()).expect_code(0).stdout;
        let report: serde_json::Value = serde_json::from_str(&output).unwrap();
        report.to_string()
    };
    assert!(value(&workspace, &[]).contains("\"info\""));
    workspace.write("anabranch.yaml", "log:\n  level: warn\n");
    assert!(value(&workspace, &[]).contains("\"warn\""));
    workspace.env("ANABRANCH_LOG_LEVEL", "error");
    assert!(value(&workspace, &[]).contains("\"error\""));
    assert!(value(&workspace, &["--log.level", "debug"]).contains("\"debug\""));
    let output = workspace.run(&["config", "--log.level", "loud"]);
    assert_eq!(output.code(), Some(2), "{}", output.both());
}

#[test]
fn pipelines_init_lists_every_parameter() {
    let workspace = Workspace::new();
    workspace.run(&["pipelines", "init", "mine", "--source", "generator", "--destination", "file"]).expect_code(0);
    let file = workspace.read("pipelines/mine.yaml");
    for part in [
        "id: mine",
        "name: mine",
        "plugin: generator",
        "plugin: file",
        "recordCount",
        "format.type",
        "sdk.batch.size",
        "sdk.rate.perSecond",
        "durability",
    ] {
        assert!(file.contains(part), "{part} is not in\n{file}");
    }
    assert!(
        file.lines().any(|l| l.trim_start().starts_with("path:")),
        "required parameters are not commented out:\n{file}"
    );
    let refused = workspace.run(&["pipelines", "init", "mine", "--source", "generator", "--destination", "log"]);
    assert_eq!(refused.code(), Some(2), "{}", refused.both());
    assert!(refused.both().contains("--force"), "{}", refused.both());
    assert_eq!(workspace.read("pipelines/mine.yaml"), file);
    workspace.run(&["pipelines", "init", "mine", "--source", "file", "--destination", "log", "--force"]).expect_code(0);
    assert_ne!(workspace.read("pipelines/mine.yaml"), file);
    workspace.run(&["pipelines", "init", "--source", "generator", "--destination", "drop"]).expect_code(0);
    assert!(workspace.path("pipelines/generator-to-drop.yaml").is_file());
    let unknown = workspace.run(&["pipelines", "init", "x", "--source", "generatr", "--destination", "log"]);
    assert_eq!(unknown.code(), Some(2));
    assert!(unknown.both().contains("generator"), "{}", unknown.both());
    let help = workspace.run(&["pipelines", "init", "--help"]).expect_code(0).stdout;
    assert!(help.contains("--source") && help.contains("--destination"), "{help}");
}

#[test]
fn a_generated_pipeline_runs_or_says_what_it_lacks() {
    let workspace = Workspace::new();
    let complete =
        workspace.run(&["pipelines", "init", "null", "--source", "generator", "--destination", "log"]).expect_code(0);
    assert!(complete.stdout.contains("`anabranch run` starts it"), "{}", complete.stdout);
    workspace.run(&["pipelines", "validate"]).expect_code(0);
    let lacking = workspace.run(&["pipelines", "init", "--source", "file"]).expect_code(0);
    assert!(lacking.stdout.contains("required"), "{}", lacking.stdout);
    workspace.run(&["pipelines", "validate"]).expect_code(2);
}

#[test]
fn a_wrong_command_line_is_one_object_too() {
    let workspace = Workspace::new();
    for args in [&["nonsense", "--json"][..], &["--json", "run", "--nonsense"], &["pipelines", "--json"]] {
        let output = workspace.run(args).expect_code(2);
        let report: serde_json::Value =
            serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}"));
        assert_eq!((&report["ok"], &report["error"]["code"]), (&false.into(), &"cli.usage".into()), "{args:?}");
        assert_eq!(output.stderr, "");
    }
}

#[test]
fn the_demo_pipeline_is_the_specified_one() {
    let workspace = Workspace::new();
    workspace.run(&["pipelines", "init"]).expect_code(0);
    let file = workspace.read("pipelines/demo-pipeline.yaml");
    for part in [
        "version: \"2.2\"",
        "status: running",
        "plugin: generator",
        "format.type: structured",
        "format.options.airline: string",
        "format.options.scheduledDeparture: time",
        "rate: 1",
        "plugin: log",
    ] {
        assert!(file.contains(part) || file.contains(&part.replace(": ", ": \"")), "{part} is not in\n{file}");
    }
    workspace.run(&["pipelines", "validate"]).expect_code(0);
}

#[test]
fn versions_and_completions() {
    let workspace = Workspace::new();
    let version = workspace.run(&["version"]).expect_code(0).stdout;
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    for shell in ["bash", "zsh", "fish"] {
        assert!(workspace.run(&["completions", shell]).expect_code(0).stdout.contains("anabranch"), "{shell}");
    }
    let unknown = workspace.run(&["pipelnes", "list"]);
    assert_eq!(unknown.code(), Some(2), "{}", unknown.both());
}
