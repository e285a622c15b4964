//! Commands that ask a running service: list, describe, positions, start, stop.

use serde_json::Value;

use crate::process::{Process, Workspace, file_to_file};

/// A service with a pipeline that follows a file, and the flag that names it.
fn service() -> (Workspace, Process, String) {
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\ntwo\n");
    let processors =
        "      - { id: tag, plugin: field.set, condition: '{{ true }}', settings: { field: .Metadata.a, value: b } }\n";
    workspace.write("pipelines/p.yaml", file_to_file("p", processors));
    let mut service = workspace.start(&["run"]);
    let flag = format!("--api.http.address={}", service.address());
    service.wait_until("records", || workspace.lines("out.ndjson").len() == 2);
    (workspace, service, flag)
}

#[track_caller]
fn asked(workspace: &Workspace, arguments: &[&str], flag: &str) -> Value {
    let output = workspace.run(&[arguments, &["--json", flag]].concat()).expect_code(0);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    report["result"].clone()
}

#[track_caller]
fn end(service: Process) {
    service.signal("TERM");
    service.finish().expect_code(0);
}

#[test]
fn pipelines_are_listed_and_described_as_they_run() {
    let (workspace, service, flag) = service();
    let listed = asked(&workspace, &["pipelines", "list"], &flag);
    let pipeline = &listed["pipelines"][0];
    assert_eq!(pipeline["id"], "p");
    assert!(["running", "idle"].contains(&pipeline["state"].as_str().unwrap()), "{listed}");
    let text = workspace.run(&["pipelines", "list", &flag]).expect_code(0).stdout;
    assert!(text.contains("ID") && text.contains("p ") && !text.contains('\x1b'), "{text}");

    let described = asked(&workspace, &["pipelines", "describe", "p"], &flag);
    assert_eq!(described["connectors"][0]["settings"]["path"], "in.txt");
    assert_eq!(
        (&described["connectors"][0]["id"], &described["connectors"][1]["type"]),
        (&"in".into(), &"destination".into())
    );
    assert_eq!(
        (&described["processors"][0]["id"], &described["processors"][0]["plugin"]),
        (&"tag".into(), &"field.set".into())
    );
    assert_eq!(described["deadLetterQueue"]["plugin"], "builtin:log");
    let text = workspace.run(&["pipelines", "describe", "p", &flag]).expect_code(0).stdout;
    for part in ["Connectors", "in (source file)", "if {{ true }}", "Next", "when a record fails"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let unknown = workspace.run(&["pipelines", "describe", "x", &flag]).expect_code(2).stderr;
    assert!(unknown.contains("there is no pipeline"), "{unknown}");
    end(service);

    // Without a service, what the store knows.
    let described = asked(&workspace, &["pipelines", "describe", "p"], &flag);
    assert_eq!((&described["service"], &described["state"]), (&Value::Null, &"stopped".into()));
    assert_eq!(described["positions"][0]["records"], 2);
    let unknown = workspace.run(&["pipelines", "describe", "pp", &flag]).expect_code(2).stderr;
    assert!(unknown.contains("did you mean p?"), "{unknown}");
}

#[test]
fn without_a_service_it_is_said_where_one_was_looked_for() {
    let workspace = Workspace::new();
    // Nobody listens on a port that was just given back.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let flag = format!("--api.http.address={free}");
    for arguments in
        [&["pipelines", "start", "p"][..], &["pipelines", "stop", "p"], &["pipelines", "delete", "p", "--yes"]]
    {
        let text = workspace.run(&[arguments, &[flag.as_str()]].concat()).expect_code(3).stderr;
        assert!(text.contains(&format!("http://{free}")) && text.contains("anabranch run"), "{text}");
    }
    let output = workspace.run(&["pipelines", "stop", "p", "--json", &flag]).expect_code(3).stdout;
    let report: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(report["error"]["code"], "service.unreachable");
}

#[test]
fn the_token_is_the_one_of_the_settings() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\n");
    workspace.write("token", "secret-of-the-test\n");
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let mut service = workspace.start(&["run", "--api.http.token-file=token"]);
    let flag = format!("--api.http.address={}", service.address());
    let text = workspace.run(&["pipelines", "list", &flag]).expect_code(3).stderr;
    assert!(text.contains("token") && text.contains("--api.http.token-file"), "{text}");
    let listed = workspace.run(&["pipelines", "list", &flag, "--api.http.token-file=token", "--json"]).expect_code(0);
    assert!(listed.stdout.contains("\"id\":\"p\"") && !listed.both().contains("secret-of"), "{}", listed.both());
    end(service);
}

#[test]
fn a_pipeline_is_stopped_and_started() {
    let (workspace, mut service, flag) = service();
    let stopped = asked(&workspace, &["pipelines", "stop", "p", "--wait"], &flag);
    assert_eq!(stopped["state"], "stopped");
    let again = workspace.run(&["pipelines", "stop", "p", &flag]).expect_code(2).stderr;
    assert!(again.contains("does not run"), "{again}");
    workspace.append("in.txt", "three\n");
    let started = workspace.run(&["pipelines", "start", "p", "--wait", &flag]).expect_code(0).stdout;
    assert!(started.contains("p is running") || started.contains("p is idle"), "{started}");
    service.wait_until("the third record", || workspace.lines("out.ndjson").len() == 3);
    workspace.run(&["pipelines", "start", "p", &flag]).expect_code(2);
    workspace.run(&["pipelines", "start", "x", &flag]).expect_code(2);
    workspace.run(&["pipelines", "stop", "p", "--force", "--wait", "--timeout", "1m", &flag]).expect_code(0);
    let described = workspace.run(&["pipelines", "describe", "p", &flag]).expect_code(0).stdout;
    assert!(described.contains("anabranch pipelines start p"), "{described}");
    end(service);
}

#[test]
fn nothing_is_deleted_without_a_word() {
    let (workspace, service, flag) = service();
    let text = workspace.run(&["pipelines", "delete", "p", &flag]).expect_code(2).stderr;
    assert!(text.contains("--yes does it"), "{text}");
    assert_eq!(asked(&workspace, &["pipelines", "list"], &flag)["pipelines"][0]["id"], "p");
    end(service);
}
