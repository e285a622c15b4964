//! `pipelines validate --fix`: what can only be meant in one way is corrected, and nothing else is touched.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use serde_json::Value;

use crate::process::{Workspace, file_to_file};

const PROCESSORS: &str = "      - id: tag # keeps its comment\n        type: field.sett\n        condtion: '{{ eq (index .Metadata \"opencdc.collection\") \"x\" }}'\n        workers: \"2\"\n        settings: { feild: Metadata.x,   value: y }\n";
const FIXED: &str = "      - id: tag # keeps its comment\n        plugin: field.set\n        condition: '{{ eq (index .Metadata \"recfmt.collection\") \"x\" }}'\n        workers: 2\n        settings: { field: .Metadata.x,   value: y }\n";

#[test]
fn a_file_is_corrected_in_place() {
    let workspace = Workspace::new();
    let wrong = file_to_file("p", PROCESSORS);
    let path = workspace.write("pipelines/p.yaml", &wrong);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    workspace.run(&["pipelines", "validate"]).expect_code(2);

    let shown = workspace.run(&["pipelines", "validate", "--fix", "--dry-run"]).expect_code(2).stdout;
    assert!(shown.contains("-        type: field.sett\n") && shown.contains("+        plugin: field.set\n"), "{shown}");
    assert_eq!(workspace.read("pipelines/p.yaml"), wrong, "a dry run changes nothing");

    let output = workspace.run(&["pipelines", "validate", "--fix"]).expect_code(0).stdout;
    assert!(output.contains("+        workers: 2\n") && output.contains("corrections made"), "{output}");
    assert_eq!(workspace.read("pipelines/p.yaml"), file_to_file("p", FIXED));
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
    assert_eq!(std::fs::read_dir(workspace.path("pipelines")).unwrap().count(), 1, "no draft is left");

    let again = workspace.run(&["pipelines", "validate", "--fix"]).expect_code(0).stdout;
    assert!(again.contains("0 corrections") && !again.contains("+++"), "{again}");
}

#[test]
fn a_link_stays_a_link() {
    let workspace = Workspace::new();
    workspace.write("elsewhere/p.yaml", file_to_file("p", PROCESSORS));
    std::os::unix::fs::symlink(workspace.path("elsewhere/p.yaml"), workspace.path("pipelines/p.yaml")).unwrap();
    workspace.run(&["pipelines", "validate", "--fix"]).expect_code(0);
    assert!(std::fs::symlink_metadata(workspace.path("pipelines/p.yaml")).unwrap().is_symlink());
    assert_eq!(workspace.read("elsewhere/p.yaml"), file_to_file("p", FIXED));
}

#[test]
fn what_has_no_single_meaning_is_left() {
    let workspace = Workspace::new();
    let wrong = file_to_file("p", "      - { id: tag, plugin: something-else }\n");
    workspace.write("pipelines/p.yaml", &wrong);
    let output = workspace.run(&["pipelines", "validate", "--fix", "--json"]).expect_code(2);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((&report["summary"]["fixes"], &report["summary"]["errors"]), (&0.into(), &1.into()));
    assert_eq!(report["result"]["fixed"], serde_json::json!([]));
    assert_eq!(workspace.read("pipelines/p.yaml"), wrong);
}

#[test]
fn programs_are_told_what_can_be_corrected() {
    let workspace = Workspace::new();
    workspace.write(
        "pipelines/p.yaml",
        file_to_file("p", "      - { id: d, type: json.decode, settings: { field: .Payload.After } }\n"),
    );
    let output = workspace.run(&["pipelines", "validate", "--json"]).expect_code(0);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let finding = &report["result"]["files"][0]["findings"][0];
    assert_eq!(finding["code"], "config.field_renamed");
    assert_eq!((&finding["fix"]["was"], &finding["fix"]["value"]), (&"type".into(), &"plugin".into()));
    assert_eq!(workspace.run(&["pipelines", "validate", "--dry-run"]).code(), Some(2), "only with --fix");
}
