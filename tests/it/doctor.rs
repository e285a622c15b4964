//! `doctor`: what keeps a service from running well, beside one that runs and where none does.

use anabranch_ops_http::testing::{Reply, Server};
use serde_json::Value;

use crate::api::workspace;
use crate::process::{Workspace, file_to_file};

/// Status and message of a check.
#[track_caller]
fn check(report: &Value, name: &str) -> (String, String) {
    let checks = report["result"]["checks"].as_array().unwrap_or_else(|| panic!("{report}"));
    let found = checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {report}"));
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), format!("{} {}", text("message"), text("suggestion")))
}

#[track_caller]
fn doctor(workspace: &Workspace, arguments: &[&str], code: i32) -> Value {
    let output = workspace.run(&[&["doctor", "--json"], arguments].concat()).expect_code(code);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(
        (&report["command"], &report["ok"], &report["error"]),
        (&"doctor".into(), &(code == 0).into(), &Value::Null)
    );
    report
}

#[test]
fn a_new_directory_is_well() {
    let workspace = workspace();
    let report = doctor(&workspace, &["--deep"], 0);
    for name in [
        "config.resolve",
        "config.validate",
        "store.reachable",
        "network.http",
        "plugins.builtin",
        "plugins.standalone",
    ] {
        assert_eq!(check(&report, name).0, "ok", "{report}");
    }
    assert_eq!(check(&report, "service.reachable").0, "warn");
    assert_eq!(report["summary"]["failures"], 0);
    assert!(!workspace.path("anabranch.db").exists(), "it makes nothing");
    let text = workspace.run(&["doctor"]).expect_code(0).stdout;
    assert!(text.contains("ok    config.validate") && text.contains("0 failures"), "{text}");
    let quiet = workspace.run(&["doctor", "--quiet", "--check", "config"]).expect_code(0).stdout;
    assert_eq!(quiet, "");
}

#[test]
fn what_is_wrong_is_said_with_what_to_do() {
    let workspace = workspace();
    workspace.write("pipelines/bad.yaml", file_to_file("bad", "      - { id: x, plugin: nothing }\n"));
    let report = doctor(&workspace, &[], 2);
    let (status, text) = check(&report, "config.validate");
    assert!(status == "fail" && text.contains("validate"), "{text}");

    workspace.write("anabranch.db", "not a store");
    let report = doctor(&workspace, &["--check", "store"], 3);
    assert_eq!(report["result"]["checks"].as_array().unwrap().len(), 1);
    assert!(check(&report, "store.reachable").1.contains("not a store of Anabranch"), "{report}");

    workspace.write("anabranch.yaml", "log.level: loud\n");
    let report = doctor(&workspace, &[], 2);
    assert_eq!(report["result"]["checks"].as_array().unwrap().len(), 1, "no other check can run");
    assert!(check(&report, "config.resolve").1.contains("loud"), "{report}");
    let text = workspace.run(&["doctor", "--check", "clok"]).expect_code(2).stderr;
    assert!(text.contains("no check \"clok\""), "{text}");
}

#[test]
fn a_destination_that_cannot_be_written_is_found() {
    let workspace = workspace();
    let report = doctor(&workspace, &["--check", "pipelines.connectors"], 0);
    assert_eq!(check(&report, "pipelines.connectors").0, "ok", "{report}");
    let pipeline = file_to_file("lost", "").replace("out.ndjson", "absent/out.ndjson");
    assert!(pipeline.contains("absent/"), "{pipeline}");
    workspace.write("pipelines/lost.yaml", pipeline);
    let report = doctor(&workspace, &["--check", "pipelines.connectors"], 3);
    let (status, text) = check(&report, "pipelines.connectors");
    assert!(status == "fail" && text.contains("lost:") && text.contains("absent does not exist"), "{text}");
    std::fs::create_dir(workspace.path("absent")).unwrap();
    let report = doctor(&workspace, &["--check", "pipelines.connectors"], 0);
    assert!(check(&report, "pipelines.connectors").1.contains("without problems"), "{report}");
    assert_eq!(std::fs::read_dir(workspace.path("absent")).unwrap().count(), 0, "it writes nothing");
}

#[test]
fn each_problem_of_a_connector_has_its_line_and_its_remedy() {
    let workspace = workspace();
    for lost in ["lost", "gone"] {
        let pipeline = file_to_file(lost, "").replace("out.ndjson", &format!("{lost}/out.ndjson"));
        workspace.write(&format!("pipelines/{lost}.yaml"), pipeline);
    }
    let text = workspace.run(&["doctor", "--check", "pipelines.connectors"]).expect_code(3).stdout;
    let lines: Vec<&str> = text.lines().collect();
    for lost in ["lost", "gone"] {
        let problem =
            lines.iter().position(|line| line.contains(&format!("{lost}:"))).unwrap_or_else(|| panic!("{text}"));
        assert!(
            lines[problem].contains("does not exist") && lines[problem].matches("does not exist").count() == 1,
            "{text}"
        );
        let remedy = lines[problem + 1];
        assert!(remedy.starts_with("          ") && !remedy.contains("does not exist"), "{text}");
    }
    let report = doctor(&workspace, &["--check", "pipelines.connectors"], 3);
    let problems = report["result"]["checks"][0]["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 2, "{report}");
    assert!(problems.iter().all(|problem| problem["suggestion"].is_string()), "{report}");
}

#[test]
fn a_port_that_another_program_has_is_found() {
    let workspace = workspace();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // The listener closes each connection without a response.
    let address = taken.local_addr().unwrap();
    let closing = std::thread::spawn(move || {
        for _ in 0..2 {
            drop(taken.accept());
        }
        taken
    });
    let flag = format!("--api.http.address={address}");
    let report = doctor(&workspace, &[&flag, "--check", "network", "--check", "service"], 3);
    assert_eq!(check(&report, "network.http").0, "fail", "{report}");
    assert_eq!(check(&report, "service.reachable").0, "fail", "{report}");
    // One connection was made for both checks; the other ends the thread.
    let _ = std::net::TcpStream::connect(address);
    drop(closing.join());
}

#[test]
fn beside_a_service_the_store_is_its_own() {
    let workspace = workspace();
    let mut service = workspace.start(&["run"]);
    let address = service.address();
    service.wait_until("readiness", || crate::api::get(address, "/readyz").status == 200);
    let flag = format!("--api.http.address={address}");
    let report = doctor(&workspace, &[&flag], 0);
    assert_eq!(check(&report, "service.reachable").0, "ok", "{report}");
    assert_eq!(check(&report, "network.http").0, "ok", "{report}");
    let (status, text) = check(&report, "store.reachable");
    let holder = format!("process {} anabranch", service.id());
    assert!(status == "ok" && text.contains("in use") && text.contains(&holder), "{text}");
    // Somebody who does not know of the service is told who has the store.
    let report = doctor(&workspace, &["--check", "store"], 3);
    let (status, text) = check(&report, "store.reachable");
    assert!(status == "fail" && text.contains(&holder), "{text}");
    service.signal("TERM");
    service.finish().expect_code(0);
}

/// One that fails again and again runs for moments between its failures.
#[test]
fn a_pipeline_that_failed_a_moment_ago_is_told_while_it_runs() {
    for (seconds, status, said) in
        [(7, "warn", "p is running: failed "), (3600, "ok", "none of them stalled or failed")]
    {
        let at = (chrono::Utc::now() - chrono::TimeDelta::seconds(seconds)).to_rfc3339();
        let failure = serde_json::json!({ "at": at, "error": "the line broke", "attempts": 3 });
        let live = serde_json::json!({ "pipelines": [{
            "id": "p", "status": { "word": "running", "run": 4, "lastFailure": failure },
        }] });
        let service = Server::start(move |request| match request.path.as_str() {
            "/v1/live" => Reply::ok(live.to_string()),
            _ => Reply::ok(r#"{ "status": "ready" }"#),
        });
        let mut workspace = workspace();
        workspace.env("ANABRANCH_API_HTTP_ADDRESS", service.url().trim_start_matches("http://"));
        let (mark, text) = check(&doctor(&workspace, &["--check", "pipelines.progress"], 0), "pipelines.progress");
        assert_eq!(mark, status, "{text}");
        assert!(text.contains(said), "{text}");
        assert_eq!(text.contains("3 attempts to recover): the line broke"), seconds == 7, "{text}");
    }
}
