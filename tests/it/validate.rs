//! `pipelines validate` finds each mistake at its place, before anything runs.

use crate::process::{Workspace, file_to_file};

/// Checks that a file with a mistake is refused with all of `expected`, and that nothing is started.
#[track_caller]
fn finds(yaml: &str, expected: &[&str]) {
    let workspace = Workspace::new();
    workspace.write("in.txt", "x\n");
    workspace.write("pipelines/p.yaml", yaml);
    let output = workspace.run(&["pipelines", "validate", "--no-color"]).expect_code(2);
    let text = output.both();
    for part in expected {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    workspace.run(&["run", "--once"]).expect_code(2);
    assert!(!workspace.path("out.ndjson").exists(), "something ran");
}

/// The position of the first occurrence of `needle` as `p.yaml:line:column`.
fn place(yaml: &str, needle: &str) -> String {
    let at = yaml.find(needle).unwrap();
    let line = yaml[..at].matches('\n').count() + 1;
    let column = at - yaml[..at].rfind('\n').map_or(0, |i| i + 1) + 1;
    format!("p.yaml:{line}:{column}")
}

#[track_caller]
fn finds_at(processors: &str, needle: &str, expected: &[&str]) {
    let yaml = file_to_file("p", processors);
    let place = place(&yaml, needle);
    finds(&yaml, &[expected, &[place.as_str()]].concat());
}

#[test]
fn broken_yaml() {
    finds("version: \"2.2\"\npipelines:\n  - id: [x\n", &["p.yaml:"]);
}

#[test]
fn an_unclosed_template() {
    finds_at(
        "      - { id: s, plugin: field.set, settings: { field: .Metadata.x, value: '{{ .Key' } }\n",
        "{{ .Key",
        &["is not closed", "end it with `}}`"],
    );
}

#[test]
fn an_unknown_template_function() {
    finds_at(
        "      - { id: s, plugin: field.set, settings: { field: .Metadata.x, value: 'a {{ uper .Key }}' } }\n",
        "uper",
        &["uper", "upper"],
    );
    finds_at(
        "      - { id: s, plugin: field.set, settings: { field: .Metadata.x, value: '{{ env \"HOME\" }}' } }\n",
        "env \"HOME\"",
        &["env"],
    );
}

#[test]
fn an_invalid_reference() {
    finds_at(
        "      - { id: s, plugin: field.set, settings: { field: .Payload.Afterr.x, value: y } }\n",
        ".Payload.Afterr",
        &["After"],
    );
    finds_at(
        "      - { id: s, plugin: json.decode, settings: { field: .Metadata.x } }\n",
        ".Metadata.x",
        &[".Payload"],
    );
}

#[test]
fn a_value_that_does_not_exist() {
    let yaml = file_to_file("p", "").replace(
        "plugin: file\n        settings:\n          path: out.ndjson",
        "plugin: log\n        settings:\n          level: loud",
    );
    finds(&yaml, &["level", "warn", &place(&yaml, "loud")]);
}

#[test]
fn a_wrong_type() {
    finds_at("      - { id: c, plugin: clone, settings: { count: many } }\n", "many", &["count", "integer"]);
    let yaml = file_to_file("p", "      - { id: f, plugin: filter, workers: several }\n");
    finds(&yaml, &["workers", &place(&yaml, "several")]);
}

#[test]
fn a_missing_and_an_unknown_parameter() {
    finds_at(
        "      - { id: s, plugin: field.set, settings: { field: .Metadata.x } }\n",
        "{ field: .Metadata.x }",
        &["value", "required"],
    );
    finds_at(
        "      - { id: s, plugin: field.set, settings: { field: .Metadata.x, value: y, vlaue: z } }\n",
        "vlaue",
        &["did you mean", "value"],
    );
}

#[test]
fn a_bad_value_is_not_called_missing() {
    let workspace = Workspace::new();
    workspace.write(
        "pipelines/p.yaml",
        file_to_file("p", "      - { id: s, plugin: field.set, settings: { field: x, value: '{{' } }\n"),
    );
    let text = workspace.run(&["pipelines", "validate"]).expect_code(2).both();
    assert!(text.contains("2 errors") && !text.contains("required"), "{text}");
}

#[test]
fn an_unknown_plugin_and_processor() {
    let yaml = file_to_file("p", "").replacen("plugin: file", "plugin: fiel", 1);
    finds(&yaml, &["fiel", "did you mean", &place(&yaml, "fiel")]);
    finds_at(
        "      - { id: s, plugin: field.sett, settings: { field: .Key, value: y } }\n",
        "field.sett",
        &["did you mean", "field.set"],
    );
    finds_at("      - { id: s, plugin: generator }\n", "generator", &["processor", "source"]);
}

#[test]
fn a_bad_condition() {
    finds_at("      - { id: s, plugin: filter, condition: '{{ eq .Key }' }\n", "}' }", &["condition"]);
}

#[test]
fn duplicate_ids() {
    let yaml = file_to_file("p", "      - { id: same, plugin: filter }\n      - { id: same, plugin: filter }\n");
    finds(&yaml, &["same", "config.id_duplicate"]);
    let one = file_to_file("twice", "");
    let two = format!("{one}---\n{one}");
    finds(&two, &["twice", "provisioning.pipeline_id_duplicate"]);
}

#[test]
fn an_unset_variable() {
    let yaml = file_to_file("p", "").replace("out.ndjson", "dir/${NO_SUCH_VARIABLE}.ndjson");
    finds(&yaml, &["NO_SUCH_VARIABLE", "$${", &place(&yaml, "${NO_SUCH")]);
}

#[test]
fn all_mistakes_of_all_files_at_once() {
    let workspace = Workspace::new();
    workspace.write(
        "pipelines/a.yaml",
        file_to_file("a", "      - { id: x, plugin: nope }\n").replace("status: running", "status: runing"),
    );
    workspace.write("pipelines/b.yaml", "pipelines: [");
    workspace.write("pipelines/c.yml", file_to_file("c", "      - { id: x, plugin: filter, condition: '{{' }\n"));
    workspace.write("pipelines/ignored.txt", "pipelines: [");
    let output = workspace.run(&["pipelines", "validate", "--json"]).expect_code(2);
    let report: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(report["command"], "pipelines.validate");
    assert_eq!(report["ok"], false);
    let files = report["result"]["files"].as_array().unwrap();
    assert_eq!(files.len(), 3, "{report:#}");
    let findings = |name: &str| -> Vec<String> {
        let file = files.iter().find(|f| f["path"].as_str().unwrap().ends_with(name)).unwrap();
        file["findings"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|f| f["severity"] == "error")
            .map(|f| f["message"].as_str().unwrap().to_owned())
            .collect()
    };
    let a = findings("a.yaml").join("\n");
    assert!(a.contains("runing") && a.contains("nope"), "{a}");
    assert!(!findings("b.yaml").is_empty());
    assert!(!findings("c.yml").is_empty());
}

#[test]
fn good_files_pass_without_a_store() {
    let workspace = Workspace::new();
    workspace.write("pipelines/a.yaml", file_to_file("a", ""));
    let output = workspace.run(&["pipelines", "validate"]).expect_code(0);
    assert!(output.stdout.contains("a.yaml"), "{}", output.both());
    assert!(!workspace.path("anabranch.db").exists());
}

#[test]
fn good_pipelines_run_beside_bad_ones() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "x\n");
    workspace.write("pipelines/a.yaml", file_to_file("good", ""));
    workspace.write(
        "pipelines/b.yaml",
        file_to_file("bad", "      - { id: x, plugin: nope }\n").replace("out.ndjson", "b.ndjson"),
    );
    let mut process = workspace.start(&["run"]);
    let out = workspace.path("out.ndjson");
    process.wait_until("the good pipeline", || out.exists() && std::fs::metadata(&out).is_ok_and(|m| m.len() > 0));
    process.signal("INT");
    let output = process.finish().expect_code(0);
    assert!(output.both().contains("nope"), "{}", output.both());
    assert!(!workspace.path("b.ndjson").exists());
    workspace.run(&["run", "--pipelines.exit-on-degraded"]).expect_code(2);
}

#[test]
fn a_secret_in_a_format_that_does_not_compile_is_not_shown() {
    let mut workspace = Workspace::new();
    workspace.env("TOKEN", "s3cr3t-value");
    let options = "path: out.ndjson\n          sdk.record.format: template\n          sdk.record.format.options: '{{ ${TOKEN} }}'";
    workspace.write("pipelines/p.yaml", file_to_file("p", "").replace("path: out.ndjson", options));
    let output = workspace.run(&["pipelines", "validate"]).expect_code(2);
    assert!(output.both().contains("sdk.record.format.options"), "{}", output.both());
    assert!(!output.both().contains("s3cr3t"), "{}", output.both());
}

#[test]
fn a_secret_is_never_shown() {
    let mut workspace = Workspace::new();
    workspace.env("TOKEN", "s3cr3t-value");
    workspace.write("in.txt", "x\n");
    workspace.write(
        "pipelines/p.yaml",
        file_to_file("p", "      - { id: s, plugin: field.set, settings: { field: .Metadata.x, value: '${TOKEN} {{ fail \"${TOKEN}\" }}' } }\n")
            .replace("path: out.ndjson", "path: out.ndjson\n          durability: ${TOKEN}"),
    );
    for args in [
        &["pipelines", "validate"][..],
        &["pipelines", "validate", "--json"],
        &["pipelines", "plan", "pipelines/p.yaml"],
        &["run", "--once"],
    ] {
        let output = workspace.run(args);
        assert!(!output.both().contains("s3cr3t"), "{args:?}: {}", output.both());
    }
    workspace.write(
        "pipelines/p.yaml",
        workspace.read("pipelines/p.yaml").replace("durability: ${TOKEN}", "durability: process"),
    );
    for args in [
        &["pipelines", "plan", "pipelines/p.yaml"][..],
        &["pipelines", "plan", "pipelines/p.yaml", "--format", "json"],
        &["run", "--once"],
    ] {
        let output = workspace.run(args);
        assert!(!output.both().contains("s3cr3t"), "{args:?}: {}", output.both());
    }
    // A value that is quoted because it is wrong there: the name of the variable is shown.
    workspace.env("QUOTED", "s3cr3t\"quote");
    workspace.write(
        "pipelines/p.yaml",
        file_to_file(
            "p",
            "      - { id: a, plugin: field.set, settings: { field: '${TOKEN}', value: x } }\n\
             \x20     - { id: b, plugin: '${TOKEN}' }\n\
             \x20     - { id: c, plugin: field.set, settings: { field: '${QUOTED}', value: '{{ ${QUOTED} }}' } }\n",
        ),
    );
    for args in [&["pipelines", "validate"][..], &["pipelines", "validate", "--json"], &["run", "--once"]] {
        let text = workspace.run(args).expect_code(2).both();
        assert!(!text.contains("s3cr3t"), "{args:?}: {text}");
        assert!(text.contains("unknown processor \"${TOKEN}\"") || args.contains(&"--json"), "{args:?}: {text}");
    }
    let store = std::fs::read(workspace.path("anabranch.db")).unwrap();
    assert!(!store.windows(6).any(|w| w == b"s3cr3t"), "in the store");
}

#[test]
fn mistakes_in_lists_of_fields() {
    finds_at(
        "      - { id: s, plugin: field.rename, settings: { mapping: '.Key.a:b, .Key.b, .Position:x' } }\n",
        ".Key.b, .Position",
        &["a new name is missing", ".Position cannot be renamed"],
    );
    finds_at(
        "      - { id: s, plugin: field.exclude, settings: { fields: '.Key.a,.Operation,Key' } }\n",
        ".Operation,Key",
        &[".Operation cannot be removed", "did you mean .Key?"],
    );
    finds_at(
        "      - { id: s, plugin: field.convert, settings: { field: .Key.a, type: integer } }\n",
        "integer",
        &["string, int, float, bool, time"],
    );
}

#[test]
fn processors_that_fail_on_every_record() {
    finds_at(
        "      - { id: u, plugin: unwrap.kafkaconnect }\n      - { id: e, plugin: base64.encode, settings: { field: .Payload.After } }\n",
        ".Payload.After } }",
        &["every record fails here: .Payload.After is structured data, not text or bytes"],
    );
    finds_at(
        "      - { id: s, plugin: field.set, settings: { field: .Key, value: x } }\n      - { id: r, plugin: field.rename, settings: { mapping: '.Metadata.a:b,.Key.a:b' } }\n",
        ".Key.a:b",
        &["raw data since here"],
    );
}

#[test]
fn findings_are_printed_for_code_hosts() {
    let workspace = Workspace::new();
    let wrong = file_to_file("p", "").replace(
        "plugin: file\n        settings:\n          path: out",
        "plugin: fiel\n        settings:\n          path: out",
    );
    workspace.write("pipelines/p 1.yaml", &wrong);
    let line = wrong.lines().position(|line| line.contains("fiel")).unwrap() + 1;
    let column = wrong.lines().nth(line - 1).unwrap().find("fiel").unwrap() + 1;
    let github = workspace.run(&["pipelines", "validate", "--format", "github"]).expect_code(2);
    assert_eq!(github.stderr, "");
    let command = github.stdout.lines().find(|line| line.contains("plan.unknown_plugin")).unwrap().to_owned();
    let place = format!("::error file=pipelines/p 1.yaml,line={line},col={column},title=plan.unknown_plugin::");
    assert!(command.starts_with(&place) && command.contains("did you mean"), "{command}");

    let sarif = workspace.run(&["pipelines", "validate", "--format", "sarif"]).expect_code(2);
    let log: serde_json::Value = serde_json::from_str(&sarif.stdout).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let results = run["results"].as_array().unwrap();
    let result = results.iter().find(|result| result["ruleId"] == "plan.unknown_plugin").unwrap();
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "pipelines/p%201.yaml");
    assert_eq!((&place["region"]["startLine"], &place["region"]["startColumn"]), (&line.into(), &column.into()));
    assert_eq!(result["level"], "error");
    assert!(run["tool"]["driver"]["rules"].as_array().unwrap().iter().any(|rule| rule["id"] == "plan.unknown_plugin"));
    // Without findings there is a log too, for a scan that closes earlier alerts.
    workspace.write("pipelines/p 1.yaml", file_to_file("p", ""));
    let sarif = workspace.run(&["pipelines", "lint", "--format", "sarif"]).expect_code(0).stdout;
    let log: serde_json::Value = serde_json::from_str(&sarif).unwrap();
    assert_eq!(log["runs"][0]["results"], serde_json::json!([]));
}
