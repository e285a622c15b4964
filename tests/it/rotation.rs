//! Credentials that are replaced while a service runs: what comes out of files is read again.

use std::net::SocketAddr;

use anabranch_ops_http::testing::{Reply, Server as HttpServer};
use serde_json::json;

use crate::api::{Answer, ask, end, get};
use crate::api_lifecycle::Service;
use crate::process::{Process, Workspace, file_to_file, numbered_lines};
use crate::servers::certificates::Certificates;
use crate::servers::postgres::Server;

/// The destination is a file whose name stands in another one, as a password does.
fn pipeline() -> String {
    file_to_file("p", "").replace("path: out.ndjson", "path: ${file:target}")
}

#[test]
fn values_of_files_are_read_again_by_a_start_an_apply_and_a_hangup() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(1));
    workspace.write("target", "first.ndjson\n");
    workspace.write("pipelines/p.yaml", pipeline());
    let mut service = Service::start(&workspace);
    service.process.wait_until("the line", || workspace.lines("first.ndjson").len() == 1);

    workspace.write("target", "second.ndjson\n");
    service.done("POST", "/v1/pipelines/p/stop", &json!({}));
    service.wait_for("p", "stopped");
    service.done("POST", "/v1/pipelines/p/start", &json!({}));
    workspace.append("in.txt", "started\n");
    service.process.wait_until("a line after the start", || workspace.lines("second.ndjson").len() == 1);

    workspace.write("target", "third.ndjson\n");
    let planned = service.done("POST", "/v1/pipelines/plan", &json!({ "yaml": pipeline() }));
    assert_eq!(planned["changes"][0]["configPaths"], json!(["/connectors/1/settings/path"]), "{planned}");
    assert_eq!(planned["restart"], true);
    assert!(!planned.to_string().contains("third"), "no value is told: {planned}");
    let body = json!({ "yaml": pipeline(), "hash": planned["hash"] });
    service.done("POST", "/v1/pipelines/apply", &body);
    workspace.append("in.txt", "applied\n");
    service.process.wait_until("a line after the apply", || workspace.lines("third.ndjson").len() == 1);
    let again = service.done("POST", "/v1/pipelines/plan", &json!({ "yaml": pipeline() }));
    assert_eq!((&again["changes"], &again["restart"]), (&json!([]), &json!(false)), "{again}");

    // A hangup restarts what has other values, and nothing else.
    let run = service.status("p")["run"].clone();
    service.process.signal("HUP");
    let log = service.process.printed();
    service.process.wait_until("the log", || log().contains("the service reads its credentials"));
    workspace.write("target", "fourth.ndjson\n");
    service.process.signal("HUP");
    service.process.wait_until("another run", || service_run(service.address) == run.as_u64().map(|run| run + 1));
    workspace.append("in.txt", "hung up\n");
    service.process.wait_until("a line after the hangup", || workspace.lines("fourth.ndjson").len() == 1);
    service.end();
    for file in ["first", "second", "third", "fourth"] {
        assert_eq!(workspace.lines(&format!("{file}.ndjson")).len(), 1, "{file}: each line once");
    }
}

fn service_run(address: SocketAddr) -> Option<u64> {
    get(address, "/v1/pipelines/p").json()["status"]["run"].as_u64()
}

#[test]
fn a_pipeline_whose_file_is_away_waits_for_it() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(1));
    workspace.write("target", "first.ndjson\n");
    workspace.write("pipelines/p.yaml", pipeline());
    let mut service = Service::start(&workspace);
    service.wait_for("p", "running");
    service.done("POST", "/v1/pipelines/p/stop", &json!({}));
    service.wait_for("p", "stopped");
    std::fs::remove_file(workspace.path("target")).unwrap();
    service.done("POST", "/v1/pipelines/p/start", &json!({}));
    let error = service.wait_for("p", "recovering")["error"].as_str().unwrap().to_owned();
    assert!(error.contains("${file:target}"), "{error}");
    workspace.replace("target", "second.ndjson\n");
    service.wait_for("p", "running");
    workspace.append("in.txt", "more\n");
    service.process.wait_until("the line", || workspace.lines("second.ndjson").len() == 1);
    service.end();
}

#[test]
fn a_login_that_is_refused_is_tried_again() {
    let Some(server) = Server::start(&[]) else { return };
    let server = std::sync::Arc::new(server);
    let database = server.database();
    let workspace = Workspace::new();
    workspace.write("in.txt", "{\"n\":1}\n{\"n\":2}\n");
    let url = |role: &str| database.url().replace("postgres@", &format!("{role}@"));
    workspace.write("url", url("late"));
    assert_ne!(url("late"), database.url());
    let to_postgres = |text: String| {
        text.replace(
            "plugin: file\n        settings:\n          path: out.ndjson",
            "plugin: postgres\n        settings: { url: \"${file:url}\", table: lines }",
        )
    };
    database.query("create table lines (n bigint)");
    let rows = "      - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }\n      \
                - { id: key, plugin: field.set, settings: { field: .Key, value: \"{}\" } }\n";
    workspace.write("pipelines/p.yaml", to_postgres(file_to_file("p", rows)));
    let mut process = workspace.start(&["run", "--pipelines.error-recovery.max-delay=1s"]);
    let address = process.address();
    let status = || {
        let answer = get(address, "/v1/pipelines/p");
        if answer.status == 200 { answer.json()["status"]["word"].as_str().unwrap().to_owned() } else { String::new() }
    };
    process.wait_until("a refused login", || status() == "recovering");
    let log = process.printed();
    process.wait_until("another attempt", || log().matches("restarts in").count() >= 2);
    database.query("create role late login superuser");
    process.wait_until("the rows", || database.query("select count(*) from lines") == ["2"]);
    end(process);

    // With no patience it has failed for good.
    workspace.write("url", url("never"));
    let mut process = workspace.start(&["run", "--pipelines.error-recovery.login-patience=0s"]);
    let address = process.address();
    process.wait_until("it to give up", || get(address, "/v1/pipelines/p").json()["status"]["word"] == "degraded");
    end(process);
}

/// The token of a service that records are sent to: no record is lost while it is replaced, although all failures would
/// go to the dead letters.
#[test]
fn a_token_of_requests_is_replaced_and_no_record_pays_for_it() {
    let server = HttpServer::start(|request| match request.header("authorization") {
        Some("Bearer second") => Reply::ok(request.body.clone()),
        _ => Reply::status(401, "who?"),
    });
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("token", "first\n");
    let hook = format!(
        "      - id: hook\n        plugin: webhook.http\n        settings:\n          request.url: {}\n          \
         request.body: '{{{{ printf \"%s\" .Payload.After }}}}'\n          \
         headers.Authorization: Bearer ${{file:token}}\n",
        server.url()
    );
    let letters = "    dead-letter-queue: { window-size: 0, plugin: store }\n";
    workspace.write("pipelines/p.yaml", file_to_file("p", &hook) + letters);
    let mut service = Service::start(&workspace);
    let error = service.wait_for("p", "recovering")["error"].as_str().unwrap().to_owned();
    assert!(error.contains("401") && !error.contains("first"), "{error}");
    workspace.replace("token", "second\n");
    service.process.wait_until("the lines", || workspace.lines("out.ndjson").len() == 3);
    service.wait_for("p", "running");
    assert!(get(service.address, "/v1/pipelines/p/dead-letters").json()["letters"] == json!([]));
    service.end();
}

/// The schema registry belongs to the service: it is not opened again with a pipeline.
#[test]
fn a_token_of_the_schema_registry_is_replaced() {
    let schema = r#"{"type":"record","name":"r","fields":[{"name":"id","type":"long"}]}"#;
    let server = HttpServer::start(move |request| match request.header("authorization") {
        Some("Bearer second") => Reply::ok(json!({ "schema": schema }).to_string()),
        _ => Reply::status(401, json!({ "error_code": 401, "message": "Unauthorized" }).to_string()),
    });
    let workspace = Workspace::new();
    workspace.write("in.txt", "AAAAAAEC\n");
    workspace.write("token", "first\n");
    workspace.write(
        "anabranch.yaml",
        format!(
            "schema-registry:\n  type: confluent\n  confluent:\n    connection-string: {}\n    auth: {{ type: bearer, \
             bearer: {{ token: \"${{file:token}}\" }} }}\n",
            server.url()
        ),
    );
    let steps = "      - { id: bytes, plugin: base64.decode, settings: { field: .Payload.After } }\n      \
                 - { id: decode, plugin: avro.decode, settings: { field: .Payload.After } }\n";
    workspace.write("pipelines/p.yaml", file_to_file("p", steps));
    let mut service = Service::start(&workspace);
    service.wait_for("p", "recovering");
    workspace.replace("token", "second\n");
    service.process.wait_until("the line", || workspace.lines("out.ndjson").len() == 1);
    service.end();
}

/// The sessions of the state store are cut when its role may not log in any more.
#[test]
fn the_login_of_the_state_store_is_replaced() {
    let Some(server) = Server::start(&[]) else { return };
    let server = std::sync::Arc::new(server);
    let database = server.database();
    let url = |role: &str| database.url().replace("postgres@", &format!("{role}@"));
    database.query("create role one login superuser");
    database.query("create role two login superuser");
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(1));
    workspace.write("url", url("one"));
    workspace.write("anabranch.yaml", "db: { type: postgres, postgres: { connection-string: \"${file:url}\" } }\n");
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let mut service = Service::start(&workspace);
    service.process.wait_until("the line", || workspace.lines("out.ndjson").len() == 1);
    let ready = || get(service.address, "/readyz").status == 200;
    database.query("alter role one nologin");
    workspace.replace("url", url("two"));
    database.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'one'");
    workspace.append("in.txt", "more\n");
    service.process.wait_until("the other line", || workspace.lines("out.ndjson").len() >= 2);
    let by_two = "select count(*) > 0 from pg_stat_activity where usename = 'two'";
    service.process.wait_until("the other login", || database.query(by_two) == ["t"]);
    service.process.wait_until("a store that is ready", ready);
    service.wait_for("p", "running");
    service.end();
}

fn with_token(address: SocketAddr, token: &str) -> Answer {
    ask(address, "GET", "/v1/pipelines", &format!("Authorization: Bearer {token}\r\n"), "")
}

#[test]
fn the_token_of_the_listener_is_read_again() {
    let workspace = Workspace::new();
    workspace.write("token", "first-token\n");
    let mut process = workspace.start(&["run", "--api.http.token-file=token"]);
    let address = process.address();
    assert_eq!((with_token(address, "first-token").status, with_token(address, "second-token").status), (200, 401));
    // When it is asked to.
    workspace.write("token", "second-token\n");
    process.signal("HUP");
    process.wait_until("the new token", || with_token(address, "second-token").status == 200);
    assert_eq!(with_token(address, "first-token").status, 401);
    // An unusable file changes nothing, and the service follows the file by itself.
    workspace.write("token", "");
    let log = process.printed();
    process.wait_until("a word about it", || log().contains("the service keeps the previous token"));
    workspace.write("token", "two\nlines");
    process.wait_until("the reason", || log().contains("which clients cannot send"));
    assert_eq!(with_token(address, "second-token").status, 200);
    workspace.write("token", "third-token\n");
    process.wait_until("the third token", || with_token(address, "third-token").status == 200);
    assert!(!log().contains("third-token") && !log().contains("second-token"), "{}", log());
    end(process);
}

#[test]
fn the_certificate_of_the_listener_is_read_again() {
    let workspace = Workspace::new();
    let Some(certificates) = Certificates::create(workspace.root()) else { return };
    certificates.self_signed("own", "old", "IP:127.0.0.1");
    certificates.self_signed("new", "new", "IP:127.0.0.1");
    let mut process = workspace.start(&["run", "--api.http.tls.cert=own.crt", "--api.http.tls.key=own.key"]);
    let address = process.address_after("HTTP is served at https://");
    let address = format!("--api.http.address=https://{address}");
    let code = |authority: &str| workspace.run(&["pipelines", "list", &address, authority]).code();
    std::fs::copy(workspace.path("own.crt"), workspace.path("old.crt")).unwrap();
    assert_eq!((code("--api.http.tls.ca=old.crt"), code("--api.http.tls.ca=new.crt")), (Some(0), Some(3)));
    std::fs::copy(workspace.path("new.key"), workspace.path("own.key")).unwrap();
    std::fs::copy(workspace.path("new.crt"), workspace.path("own.crt")).unwrap();
    process.wait_until("the new certificate", || code("--api.http.tls.ca=new.crt") == Some(0));
    assert_eq!(code("--api.http.tls.ca=old.crt"), Some(3));
    end(process);
}

/// A terminal that is closed ends the service as it always did, and not only that: it drains.
#[cfg(target_os = "linux")]
#[test]
fn a_service_on_a_terminal_ends_with_it() {
    if std::process::Command::new("script").arg("--version").output().is_err() {
        return crate::process::skip("script is not installed");
    }
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let mut command = workspace.command(["run", "--api.enabled=false"]);
    let program = command.get_program().to_owned();
    let line = format!("echo $$ > id; exec {} run --api.enabled=false", program.to_str().unwrap());
    let environment: Vec<_> =
        command.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
    command = std::process::Command::new("script");
    command.args(["-qec", &line, "typescript"]).current_dir(workspace.root()).envs(environment);
    let mut process = Process::spawn(command.stdin(std::process::Stdio::null()));
    process.wait_until("the lines", || workspace.lines("out.ndjson").len() == 3);
    let id = workspace.read("id");
    assert!(std::process::Command::new("kill").args(["-s", "HUP", id.trim()]).status().unwrap().success());
    process.finish().expect_code(0);
}
