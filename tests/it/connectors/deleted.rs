//! What plugins are told when connectors of theirs are deleted.

use serde_json::json;

use super::plugin::{no_plugin_is_left, pipeline, run_to, wait_for, workspace};
use crate::api::get;
use crate::api_lifecycle::Service;
use crate::process::{Output, Workspace};

/// The lines of a plugin that say that it was told.
fn told(workspace: &Workspace, log: &str) -> Vec<String> {
    workspace.lines(log).into_iter().filter(|line| line.starts_with("deleted ")).collect()
}

fn delete(workspace: &Workspace, service: &Service) -> Output {
    let url = format!("--api.http.address={}", service.address);
    workspace.run(&["pipelines", "delete", "p", "--yes", &url])
}

/// A service whose pipeline `p` has run to its end, and is in no file any more.
fn after_the_file(workspace: &Workspace, source: &str, destination: &str) -> Service {
    pipeline(workspace, source, destination);
    run_to(workspace, 10).expect_code(0);
    workspace.write("pipelines/p.yaml", "version: \"2.2\"\npipelines: []\n");
    Service::start(workspace)
}

#[test]
fn both_ends_of_a_deleted_pipeline_are_told_with_their_last_settings() {
    for version in ["1", "2"] {
        let mut workspace = workspace();
        workspace.env("HELPER_PROTOCOL", version);
        workspace.env("SECRET", "hunter2222");
        let service = after_the_file(&workspace, "count: 10, greeting: '${SECRET}'", "options.a: b");
        assert_eq!(told(&workspace, "source.log"), [""; 0], "a file that is gone may come back");
        delete(&workspace, &service).expect_code(0);
        assert_eq!(told(&workspace, "source.log"), ["deleted [count=10 greeting=hunter2222]"]);
        assert_eq!(told(&workspace, "destination.log"), ["deleted [options.a=b]"]);
        // In a process of its own that was not configured, and was ended in order.
        let calls = workspace.lines("source.log");
        let end: Vec<&str> = calls.iter().rev().take(3).map(String::as_str).collect();
        assert!(end[0].starts_with("teardown") && end[1].starts_with("deleted") && end[2].starts_with("teardown"));
        service.end();
        no_plugin_is_left(&workspace);
    }
}

#[test]
fn a_plugin_that_cannot_be_told_keeps_nobody_from_deleting() {
    let mut workspace = workspace();
    workspace.env("SECRET", "hunter2222");
    let service = after_the_file(&workspace, "count: 10, fault: deleted-error, greeting: '${SECRET}'", "");
    let output = delete(&workspace, &service).expect_code(0);
    let line = output.stderr.lines().find(|line| line.contains("p:in was not notified")).unwrap_or_default();
    assert!(line.starts_with("warning: ") && line.contains("slot \"***\" is in use"), "{}", output.both());
    assert_eq!(told(&workspace, "destination.log").len(), 1);
    assert_eq!(get(service.address, "/v1/pipelines/p").status, 404);
    service.end();
}

#[test]
fn a_plugin_that_is_gone_keeps_nobody_from_deleting() {
    let workspace = workspace();
    let service = after_the_file(&workspace, "count: 10", "");
    service.end();
    std::fs::remove_file(workspace.path("connectors/helper")).unwrap();
    let service = Service::start(&workspace);
    let output = delete(&workspace, &service).expect_code(0);
    for connector in ["p:in", "p:out"] {
        let line = format!("warning: the plugin of connector {connector} was not notified of the deletion: \"helper\"");
        assert!(output.stderr.contains(&line), "{}", output.both());
    }
    service.end();
}

#[test]
fn a_connector_that_is_no_longer_applied_is_told_and_starts_anew_when_it_is_back() {
    let workspace = workspace();
    pipeline(&workspace, "count: 10", "");
    let both = workspace.read("pipelines/p.yaml");
    let source = both.find("- id: in").unwrap()..both.find("- id: out").unwrap();
    let mut other = both.clone();
    other.replace_range(
        source,
        "- { id: other, type: source, plugin: generator, settings: { recordCount: 1, format.type: raw, \
         format.options.id: int } }\n      ",
    );
    std::fs::remove_file(workspace.path("pipelines/p.yaml")).unwrap();
    let mut service = Service::start(&workspace);
    let apply = |service: &Service, yaml: &str| {
        let hash = service.done("POST", "/v1/pipelines/plan", &json!({ "yaml": yaml }))["hash"].clone();
        service.done("POST", "/v1/pipelines/apply", &json!({ "yaml": yaml, "hash": hash }))
    };
    apply(&service, &both);
    wait_for(&mut service.process, &workspace, 10);
    let applied = apply(&service, &other);
    assert_eq!(applied.get("warnings"), None);
    assert_eq!(told(&workspace, "source.log"), ["deleted [count=10]"]);
    assert_eq!(told(&workspace, "destination.log"), [""; 0], "it stays");
    std::fs::remove_file(workspace.path("source.log")).unwrap();
    apply(&service, &both);
    service.process.wait_until("the source to run", || workspace.read("source.log").contains("run"));
    let calls = workspace.lines("source.log");
    assert_eq!(&calls[1..3], ["created [count=10]", "open \"\""], "{calls:?}");

    // The same of a connector that is deleted by itself.
    service.done("POST", "/v1/pipelines/p/stop", &json!({}));
    service.wait_for("p", "stopped");
    service.done("DELETE", "/v1/connectors/p:out", &json!({}));
    assert_eq!(told(&workspace, "destination.log"), ["deleted []"]);
    assert_eq!(told(&workspace, "source.log"), [""; 0]);
    service.done("DELETE", "/v1/pipelines/p?parts=true&positions=true", &json!({}));
    assert_eq!(told(&workspace, "source.log"), ["deleted [count=10]"]);
    assert_eq!(told(&workspace, "destination.log").len(), 1);
    service.end();
    no_plugin_is_left(&workspace);
}
