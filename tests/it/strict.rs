//! `--strict` and `pipelines.strict`: a pipeline that has warnings is refused.

use serde_json::json;

use crate::api::ask;
use crate::api_lifecycle::Service;
use crate::process::{Workspace, file_to_file, numbered_lines};

/// A pipeline with a field that no processor has, and one without findings.
fn workspace() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("pipelines/good.yaml", file_to_file("good", ""));
    workspace.write("pipelines/odd.yaml", odd("odd.ndjson"));
    workspace
}

fn odd(path: &str) -> String {
    let processors = "      - { id: f, plugin: field.set, unknown: 1, settings: { field: .Metadata.a, value: b } }\n";
    file_to_file("odd", processors).replace("out.ndjson", path)
}

#[test]
fn run_refuses_the_pipeline_that_has_a_warning_and_runs_the_others() {
    let workspace = workspace();
    let text = workspace.run(&["run", "--once", "--strict"]).expect_code(2).both();
    assert!(text.contains("error[config.field_unknown]") && text.contains("odd.yaml:"), "{text}");
    assert_eq!((workspace.lines("good.ndjson").len(), workspace.lines("out.ndjson").len()), (0, 3), "{text}");
    assert!(!workspace.path("odd.ndjson").exists(), "{text}");
    let lax = workspace.run(&["run", "--once"]).expect_code(0).both();
    assert!(lax.contains("warning[config.field_unknown]"), "{lax}");
    assert_eq!(workspace.lines("odd.ndjson").len(), 3);
}

#[test]
fn warnings_of_every_stage_count() {
    for (pipeline, code) in [
        // The file as such, outside of its pipelines.
        (format!("{}notes: none\n", file_to_file("p", "")), "config.field_unknown"),
        // The compiler.
        (
            file_to_file(
                "p",
                "      - { id: f, plugin: filter, condition: '{{ eq (index .Metadata \"conduit.x\") \"a\" }}' }\n",
            ),
            "",
        ),
        // The place that a destination writes to.
        (file_to_file("p", "").replace("out.ndjson", "missing/out.ndjson"), ""),
    ] {
        let workspace = Workspace::new();
        workspace.write("in.txt", numbered_lines(3));
        workspace.write("pipelines/p.yaml", &pipeline);
        let lax = workspace.run(&["pipelines", "validate"]).expect_code(0).both();
        assert!(lax.contains(&format!("warning[{code}")), "{lax}");
        let mut strict = Workspace::new();
        strict.write("in.txt", numbered_lines(3));
        strict.write("pipelines/p.yaml", &pipeline);
        strict.env("ANABRANCH_PIPELINES_STRICT", "true");
        for words in [&["run", "--once"][..], &["pipelines", "validate"], &["pipelines", "plan"]] {
            strict.run(words).expect_code(2);
        }
        assert!(!strict.path("out.ndjson").exists(), "{pipeline}");
    }
}

#[test]
fn apply_is_strict_if_it_or_the_service_says_so() {
    let mut workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    let service = Service::start(&workspace);
    workspace.env("ANABRANCH_API_HTTP_ADDRESS", &service.address.to_string());
    workspace.write("odd.yaml", odd("odd.ndjson"));
    let apply = |more: &[&str], code| {
        workspace.run(&[&["pipelines", "apply", "odd.yaml", "--yes"], more].concat()).expect_code(code).both()
    };
    let text = apply(&["--strict"], 2);
    assert!(text.contains("error[config.field_unknown]") && text.contains("odd.yaml:"), "{text}");
    assert_eq!(service.get("/v1/pipelines"), json!([]), "nothing was applied");
    apply(&[], 0);
    assert_eq!(service.get("/v1/pipelines")[0]["id"], "odd");
    service.end();

    let mut workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    workspace.env("ANABRANCH_PIPELINES_STRICT", "true");
    let service = Service::start(&workspace);
    let asked = json!({ "yaml": odd("odd.ndjson"), "hash": "any" }).to_string();
    for path in ["/v1/pipelines/plan", "/v1/pipelines/apply"] {
        let refused = ask(service.address, "POST", path, "", &asked);
        assert_eq!((refused.status, refused.reason().as_str()), (400, "config.field_unknown"), "{}", refused.body);
    }
    service.end();
}
