//! Pipelines are made, changed and deleted over HTTP, and survive the service.

use serde_json::{Value, json};

use crate::api_lifecycle::Service;
use crate::process::{NOBODY, Workspace, file_to_file, numbered_lines};

fn workspace() -> Workspace {
    let mut workspace = Workspace::new();
    workspace.env("SECRET", "hunter2-of-the-test");
    workspace.write("in.txt", numbered_lines(3));
    workspace
}

fn connector(pipeline: &str, id: &str, role: &str, path: &str) -> Value {
    json!({
        "id": id, "type": format!("TYPE_{role}"), "plugin": "file", "pipelineId": pipeline,
        "config": { "settings": { "path": path } },
    })
}

/// A pipeline `p` that copies a file.
#[track_caller]
fn make(service: &Service) {
    let made = service.done("POST", "/v1/pipelines", &json!({ "id": "p", "config": { "name": "first" } }));
    assert_eq!((&made["status"]["word"], &made["origin"]), (&"stopped".into(), &"api".into()), "{made}");
    service.done("POST", "/v1/connectors", &connector("p", "in", "SOURCE", "in.txt"));
    let unfinished = service.refused("POST", "/v1/pipelines/p/start", &json!({}), "pipeline.invalid");
    assert!(unfinished["message"].as_str().unwrap().contains("destination"), "{unfinished}");
    let made = service.done("POST", "/v1/connectors", &connector("p", "out", "DESTINATION", "out.ndjson"));
    assert_eq!(made["id"], "p:out");
}

#[test]
fn a_pipeline_is_made_part_by_part_and_survives_the_service() {
    let workspace = workspace();
    let mut service = Service::start(&workspace);
    make(&service);
    let processor = json!({
        "id": "tag", "plugin": "field.set", "condition": "{{ true }}", "parent": { "type": "TYPE_PIPELINE", "id": "p" },
        "config": { "settings": { "field": ".Metadata.tag", "value": "${SECRET}" }, "workers": "2" },
    });
    let made = service.done("POST", "/v1/processors", &processor);
    assert_eq!((&made["id"], &made["config"]["workers"]), (&"p:tag".into(), &"2".into()));
    service.done("POST", "/v1/pipelines/p/start", &json!({}));
    service.wait_for("p", "running");
    service.process.wait_until("the lines", || workspace.lines("out.ndjson").len() == 3);
    assert!(workspace.read("out.ndjson").contains("hunter2-of-the-test"), "resolved when it runs");
    let before = service.get("/v1/pipelines/p");
    service.end();

    // It was stopped with the service, so it starts with it; stopped by a user it does not.
    let mut service = Service::start(&workspace);
    service.wait_for("p", "running");
    let after = service.get("/v1/pipelines/p");
    assert_eq!(before["createdAt"], after["createdAt"]);
    assert!(before["createdAt"].is_string(), "{before}");
    service.done("POST", "/v1/pipelines/p/stop", &json!({}));
    service.wait_for("p", "stopped");
    service.end();
    let service = Service::start(&workspace);
    assert_eq!(service.status("p")["word"], "stopped");
    for path in ["/v1/pipelines", "/v1/connectors", "/v1/processors", "/v1/pipelines/p/positions"] {
        assert!(!service.get(path).to_string().contains("of-the-test"), "{path}");
    }
    service.end();
    assert_eq!(workspace.lines("out.ndjson").len(), 3, "nothing is doubled");
}

#[test]
fn a_connector_that_closes_a_circle_is_refused() {
    let workspace = workspace();
    let service = Service::start(&workspace);
    make(&service);
    let feeds_itself = json!({ "config": { "settings": { "path": "in.txt" } } });
    service.refused("PUT", "/v1/connectors/p:out", &feeds_itself, "plan.feedback");
    service.done("POST", "/v1/pipelines", &json!({ "id": "q", "config": { "name": "second" } }));
    service.done("POST", "/v1/connectors", &connector("q", "in", "SOURCE", "out.ndjson"));
    let closes = connector("q", "out", "DESTINATION", "in.txt");
    service.refused("POST", "/v1/connectors", &closes, "plan.feedback");
    service.done("POST", "/v1/connectors", &connector("q", "out", "DESTINATION", "elsewhere.ndjson"));
    service.refused("PUT", "/v1/connectors/q:out", &feeds_itself, "plan.feedback");
    let kept = service.get("/v1/connectors/q:out");
    assert_eq!(kept["config"]["settings"]["path"], "elsewhere.ndjson", "a refusal changes nothing: {kept}");
    service.end();
}

#[test]
fn parts_are_changed_while_the_pipeline_stands_and_deleted_children_first() {
    let workspace = workspace();
    let mut service = Service::start(&workspace);
    make(&service);
    service.refused("POST", "/v1/connectors", &connector("p", "in", "SOURCE", "x"), "connector.exists");
    service.refused("POST", "/v1/pipelines", &json!({ "id": "p", "config": { "name": "x" } }), "pipeline.exists");
    service.refused("POST", "/v1/pipelines", &json!({ "config": { "name": "first" } }), "pipeline.exists");
    let other = service.done("POST", "/v1/pipelines", &json!({ "config": { "name": "second" } }));
    assert_eq!(other["id"].as_str().unwrap().len(), 36);

    // An error has its place, and changes nothing.
    let wrong = json!({
        "type": "TYPE_SOURCE", "plugin": "file", "pipelineId": "p", "config": { "settings": { "pth": "x" } },
    });
    let refused = service.send("POST", "/v1/connectors", &wrong);
    let body = refused.json();
    assert_eq!(refused.status, 400, "{body}");
    let metadata = &body["details"][0]["metadata"];
    assert!(metadata["configPath"].as_str().unwrap().starts_with("/connectors/2/settings"), "{body}");
    let mut to_check = wrong.clone();
    to_check.as_object_mut().unwrap().remove("pipelineId");
    assert_eq!(service.send("POST", "/v1/connectors/validate", &to_check).status, 400);
    to_check["config"]["settings"] = json!({ "path": "x" });
    service.done("POST", "/v1/connectors/validate", &to_check);
    assert_eq!(service.get("/v1/pipelines/p")["connectorIds"], json!(["p:in", "p:out"]));

    let processor = json!({
        "id": "some", "plugin": "filter", "parent": { "type": "TYPE_CONNECTOR", "id": "p:in" },
        "condition": "{{ eq .Metadata.none \"1\" }}",
    });
    service.done("POST", "/v1/processors", &processor);
    let bad = json!({ "condition": "{{ eq ", "config": {} });
    assert_eq!(service.send("PUT", "/v1/processors/p:in:some", &bad).status, 400);
    let changed = json!({ "condition": "{{ ne .Metadata.none \"1\" }}", "config": { "workers": 3 } });
    let changed = service.done("PUT", "/v1/processors/p:in:some", &changed);
    assert_eq!(changed["condition"], "{{ ne .Metadata.none \"1\" }}");
    assert_eq!(changed["config"]["workers"], "3");
    service.done("PUT", "/v1/pipelines/p", &json!({ "config": { "name": "renamed", "description": "d" } }));
    let queue =
        json!({ "plugin": "file", "settings": { "path": "dead.ndjson" }, "windowSize": "5", "windowNackThreshold": 2 });
    let queue = service.done("PUT", "/v1/pipelines/p/dead-letter-queue", &queue);
    assert_eq!((&queue["plugin"], &queue["windowNackThreshold"]), (&"file".into(), &"2".into()));
    service.done("PUT", "/v1/connectors/p:out", &json!({ "config": { "settings": { "path": "elsewhere.ndjson" } } }));

    service.done("POST", "/v1/pipelines/p/start", &json!({}));
    service.wait_for("p", "running");
    for (method, path) in [("DELETE", "/v1/pipelines/p"), ("DELETE", "/v1/processors/p:in:some")] {
        service.refused(method, path, &json!({}), "pipeline.running");
    }
    service.refused("PUT", "/v1/pipelines/p", &json!({ "config": { "name": "x" } }), "pipeline.running");
    service.done("POST", "/v1/pipelines/p/stop", &json!({}));
    service.wait_for("p", "stopped");
    service.refused("DELETE", "/v1/pipelines/p", &json!({}), "pipeline.has_parts");
    service.refused("DELETE", "/v1/connectors/p:in", &json!({}), "connector.has_parts");
    service.refused("DELETE", "/v1/connectors/p:none", &json!({}), "connector.not_found");
    for path in ["/v1/processors/p:in:some", "/v1/connectors/p:in", "/v1/connectors/p:out", "/v1/pipelines/p"] {
        let path = format!("{path}?positions=true");
        service.done("DELETE", &path, &json!({}));
    }
    service.refused("GET", "/v1/pipelines/p", &json!({}), "pipeline.not_found");
    service.end();
}

#[test]
fn positions_are_not_deleted_by_accident() {
    let workspace = workspace();
    let mut service = Service::start(&workspace);
    make(&service);
    service.done("POST", "/v1/pipelines/p/start", &json!({}));
    service.process.wait_until("the lines", || workspace.lines("out.ndjson").len() == 3);
    service.done("POST", "/v1/pipelines/p/stop", &json!({}));
    service.wait_for("p", "stopped");
    service.refused("DELETE", "/v1/pipelines/p?parts=true", &json!({}), "pipeline.has_positions");
    let odd = "/v1/pipelines/p?parts=true&positions=yes";
    let unknown = json!({ "config": { "name": "x", "foo": 1 } });
    let refused = service.refused("POST", "/v1/pipelines", &unknown, "api.malformed_request");
    assert!(refused.to_string().contains("foo"), "{refused:?}");
    let odd = service.refused("DELETE", odd, &json!({}), "api.malformed_request");
    assert_eq!(odd["message"], "positions: \"yes\" is not true or false");
    service.done("DELETE", "/v1/pipelines/p?parts=true&positions=true", &json!({}));
    // Made anew it begins anew.
    make(&service);
    service.done("POST", "/v1/pipelines/p/start", &json!({}));
    service.process.wait_until("the lines again", || workspace.lines("out.ndjson").len() == 6);
    service.end();
}

#[test]
fn what_a_file_declares_is_not_changed_here() {
    let workspace = workspace();
    workspace.write("pipelines/p.yaml", file_to_file("p", "").replace("status: running", "status: stopped"));
    workspace.write("pipelines/gone.yaml", file_to_file("gone", "").replace("out.nd", "gone.nd"));
    let mut service = Service::start(&workspace);
    let refused = [
        ("PUT", "/v1/pipelines/p", json!({ "config": { "name": "x" } })),
        ("DELETE", "/v1/pipelines/p?parts=true&positions=true", json!({})),
        ("DELETE", "/v1/connectors/p:in", json!({})),
        ("POST", "/v1/connectors", connector("p", "x", "SOURCE", "x")),
    ];
    for (method, path, body) in &refused {
        service.refused(method, path, body, "pipeline.declared_in_file");
    }
    service.process.wait_until("a line", || workspace.lines("gone.ndjson").len() == 3);
    service.end();
    std::fs::remove_file(workspace.path("pipelines/gone.yaml")).unwrap();
    let service = Service::start(&workspace);
    assert_eq!(service.get("/v1/pipelines/gone")["detached"], true);
    service.refused("DELETE", "/v1/pipelines/gone", &json!({}), "pipeline.has_positions");
    service.done("DELETE", "/v1/pipelines/gone?positions=true", &json!({}));
    service.refused("GET", "/v1/pipelines/gone", &json!({}), "pipeline.not_found");
    service.end();
}

#[test]
fn secrets_are_in_no_answer_and_stay_when_they_are_given_back_hidden() {
    let mut workspace = workspace();
    workspace.env("TOKEN", "of-the-environment-of-the-test");
    let service = Service::start(&workspace);
    service.done("POST", "/v1/pipelines", &json!({ "id": "p", "config": { "name": "p" } }));
    if !cfg!(feature = "postgres") {
        return;
    }
    let url = &format!("postgres://u:literal-of-the-test@{NOBODY}/db");
    let made = json!({
        "id": "out", "type": "TYPE_DESTINATION", "plugin": "postgres", "pipelineId": "p",
        "config": { "settings": { "url": url, "table": "t" } },
    });
    let made = service.send("POST", "/v1/connectors", &made);
    assert_eq!(made.status, 200, "{}", made.body);
    assert!(!made.body.contains("of-the-test"), "{}", made.body);
    let shown = service.get("/v1/connectors/p:out");
    assert_eq!(shown["config"]["settings"]["url"], "***");
    // A client that changes the table gives back what it was shown.
    let changed = json!({ "config": { "settings": { "url": "***", "table": "u" } } });
    assert_eq!(service.done("PUT", "/v1/connectors/p:out", &changed)["config"]["settings"]["table"], "u");
    let plan = json!({ "config": {
        "id": "p", "connectors": [{ "id": "in", "type": "source", "plugin": "generator",
                "settings": { "format.type": "structured", "format.options.n": "int" } },
            { "id": "out", "type": "destination", "plugin": "postgres", "settings": { "url": url, "table": "u" } }],
        "processors": [{ "id": "keyless", "plugin": "field.exclude", "settings": { "fields": ".Key" } }],
    }});
    let plan = service.done("POST", "/v1/pipelines/plan", &plan);
    assert!(!plan.to_string().contains("of-the-test"), "{plan}");
    let paths: Vec<&str> = plan["changes"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(paths, ["p:keyless", "p:in"], "the kept password is no difference: {plan}");
    service.end();
}

#[test]
fn sources_are_sent_back_while_the_pipeline_runs() {
    let workspace = workspace();
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let mut service = Service::start(&workspace);
    let delivered = |n: usize| workspace.lines("out.ndjson").len() == n;
    service.process.wait_until("the lines", || delivered(3));
    let records = |service: &Service| service.get("/v1/pipelines/p/positions")["positions"][0]["records"].clone();
    let address = service.address;
    service.process.wait_until("the position to be stored", || {
        let answer = crate::api::get(address, "/v1/pipelines/p/positions").json();
        answer["positions"][0]["records"] == 3
    });
    let tried = service.done("POST", "/v1/pipelines/p/positions/reset", &json!({}));
    assert_eq!((&tried["done"], &tried["positions"][0]["records"]), (&false.into(), &3.into()), "{tried}");
    assert_eq!(records(&service), 3);
    let done = service.done("POST", "/v1/pipelines/p/positions/reset", &json!({ "yes": true }));
    assert_eq!(done["positions"][0]["to"], "(the beginning)");
    service.process.wait_until("the lines again", || delivered(6));
    service.process.wait_until("the position to be stored again", || {
        let answer = crate::api::get(address, "/v1/pipelines/p/positions").json();
        answer["positions"][0]["records"] == 3
    });
    let source = service.get("/v1/connectors/p:in");
    assert!(source["sourceState"]["position"].is_string(), "{source}");
    let destination = service.get("/v1/connectors/p:out");
    assert_eq!(destination["destinationState"]["positions"]["p:in"], source["sourceState"]["position"]);
    let one = done["positions"][0]["from"].as_str().unwrap();
    service.done("POST", "/v1/pipelines/p/positions/rewind", &json!({ "to": one, "yes": true }));
    service.wait_for("p", "running");
    service.refused("POST", "/v1/pipelines/p/positions/rewind", &json!({ "yes": true }), "api.malformed_request");
    let other = json!({ "connector": "x", "yes": true });
    service.refused("POST", "/v1/pipelines/p/positions/reset", &other, "positions.none");
    service.end();
    assert!(delivered(6), "after the last line there is nothing more");
}

#[test]
fn an_id_may_be_the_word_of_a_path() {
    let workspace = workspace();
    let service = Service::start(&workspace);
    for id in ["plan", "apply", "test"] {
        let path = format!("/v1/pipelines/{id}");
        service.refused("GET", &path, &json!({}), "pipeline.not_found");
        service.done("POST", "/v1/pipelines", &json!({ "id": id, "config": { "name": format!("the {id}") } }));
        assert_eq!(service.get(&path)["config"]["name"], format!("the {id}"));
        let renamed = service.done("PUT", &path, &json!({ "config": { "name": format!("my {id}") } }));
        assert_eq!(renamed["config"]["name"], format!("my {id}"));
        service.refused("POST", &path, &json!({}), "api.malformed_request");
        service.done("DELETE", &path, &json!({}));
        service.refused("GET", &path, &json!({}), "pipeline.not_found");
    }
    service.refused("PATCH", "/v1/pipelines/plan", &json!({}), "api.no_such_method");
    service.end();
}

#[test]
fn a_service_runs_without_a_valid_file() {
    let workspace = workspace();
    workspace.write("pipelines/bad.yaml", file_to_file("bad", "      - { id: x, plugin: nope }\n"));
    let mut service = Service::start(&workspace);
    assert_eq!(service.status("bad")["word"], "invalid");
    make(&service);
    service.done("POST", "/v1/pipelines/p/start", &json!({}));
    service.process.wait_until("the lines", || workspace.lines("out.ndjson").len() == 3);
    service.end();
    // A pipeline that was created runs although its client does not get the response.
    workspace.write("in.txt", numbered_lines(5));
    let mut process = workspace.start(&["run", "--api.enabled=false"]);
    process.wait_until("more lines", || workspace.lines("out.ndjson").len() == 5);
    process.signal("TERM");
    let printed = process.finish().expect_code(0).both();
    assert!(printed.contains("nope"), "{printed}");
    workspace.run(&["run", "--once"]).expect_code(2);
    std::fs::remove_file(workspace.path("anabranch.db")).unwrap();
    let printed = workspace.run(&["run", "--api.enabled=false"]).expect_code(2).both();
    assert!(printed.contains("no pipeline can be started"), "{printed}");
}
