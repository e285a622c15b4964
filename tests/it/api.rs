//! The HTTP listener: where it is, who may ask, and that it ends with the service.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::process::{PATIENCE, Process, Workspace, file_to_file};

/// A response.
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Answer {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
        line.split_once(':').map(|(_, value)| value.trim())
    }

    /// The stable reason of an error.
    #[track_caller]
    pub fn reason(&self) -> String {
        self.json()["details"][0]["reason"].as_str().unwrap_or_else(|| panic!("{}", self.body)).to_owned()
    }
}

/// Asks over a connection of its own. `headers`: further lines of the head.
#[track_caller]
pub fn ask(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let host =
        if headers.to_ascii_lowercase().starts_with("host:") { String::new() } else { format!("Host: {address}\r\n") };
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\n{host}{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    // A server that refuses early may not read it.
    let _ = stream.write_all(body.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

#[track_caller]
pub fn get(address: SocketAddr, path: &str) -> Answer {
    ask(address, "GET", path, "", "")
}

/// A workspace with a pipeline from a file of one line to a file.
pub fn workspace() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\n");
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    workspace
}

#[track_caller]
pub fn end(process: Process) {
    process.signal("TERM");
    process.finish().expect_code(0);
}

#[test]
fn probes_are_told_how_the_service_is() {
    let workspace = workspace();
    workspace.write("pipelines/bad.yaml", file_to_file("bad", "").replace("out.ndjson", "missing/out.ndjson"));
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    assert!(address.ip().is_loopback());
    let health = get(address, "/healthz");
    assert_eq!((health.status, health.json()), (200, serde_json::json!({"status": "SERVING"})));
    assert_eq!(get(address, "/healthz?service=PipelineService").status, 200);
    let unknown = get(address, "/healthz?service=Coffee");
    assert_eq!((unknown.status, unknown.reason().as_str()), (404, "api.no_such_service"));

    let ready = || {
        let answer = get(address, "/readyz");
        (answer.status == 200).then(|| answer.json())
    };
    process.wait_until("one that runs and one that is degraded", || {
        ready().is_some_and(|ready| ready["pipelines"]["degraded"] == 1 && ready["pipelines"]["running"] == 1)
    });
    let ready = ready().unwrap();
    assert_eq!((&ready["status"], &ready["pipelines"]["total"]), (&"ready".into(), &2.into()));
    assert_eq!(ready["pipelines"]["running"], 1);
    let degraded = &ready["pipelines"]["degradedPipelines"][0];
    assert_eq!((&degraded["id"], &degraded["status"]), (&"bad".into(), &"degraded".into()));
    assert!(degraded["error"].as_str().unwrap().contains("missing/out.ndjson"), "{degraded}");
    end(process);
}

#[test]
fn what_is_not_there_is_said_in_the_same_form() {
    let workspace = workspace();
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    let missing = get(address, "/v1/coffee");
    assert_eq!((missing.status, missing.reason().as_str()), (404, "api.no_such_path"));
    let body = missing.json();
    assert_eq!((&body["code"], &body["message"]), (&5.into(), &"the path /v1/coffee does not exist".into()));
    assert_eq!(body["details"][0]["domain"], "anabranch");
    let method = ask(address, "DELETE", "/healthz", "", "");
    assert_eq!(method.status, 405);
    assert_eq!(method.json()["message"], "/healthz does not support DELETE: it supports GET");
    let method = get(address, "/v1/pipelines/p/start");
    assert_eq!((method.status, method.reason().as_str()), (405, "api.no_such_method"));
    assert_eq!(method.json()["message"], "/v1/pipelines/p/start does not support GET: it supports POST");
    // The registry is served only when asked for.
    assert_eq!(get(address, "/subjects").reason(), "api.no_such_path");
    end(process);
}

#[test]
fn a_port_that_is_taken_ends_the_start() {
    let workspace = workspace();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let flag = format!("--api.http.address={address}");
    let text = workspace.run(&["run", &flag]).expect_code(3).both();
    assert!(text.contains(&address) && text.contains("in use") && text.contains("--api.enabled=false"), "{text}");
    assert!(!workspace.path("out.ndjson").exists(), "nothing was started");
    let mut process = workspace.start(&["run", &flag, "--api.enabled=false"]);
    process.wait_until("the line", || workspace.lines("out.ndjson").len() == 1);
    end(process);
}

#[test]
fn a_run_to_the_end_takes_no_port_that_nobody_asked_for() {
    let mut workspace = workspace();
    workspace.env("ANABRANCH_API_HTTP_ADDRESS", "");
    let output = workspace.run(&["run", "--once"]).expect_code(0).both();
    assert!(!output.contains("HTTP is served"), "{output}");
    let output = workspace.run(&["run", "--once", "--api.http.address=127.0.0.1:0"]).expect_code(0).both();
    assert!(output.contains("HTTP is served at http://127.0.0.1:"), "{output}");
}

#[test]
fn other_machines_need_a_token() {
    let mut workspace = workspace();
    let open = "--api.http.address=0.0.0.0:0";
    let text = workspace.run(&["run", open]).expect_code(2).both();
    assert!(text.contains("0.0.0.0:0") && text.contains("api.http.token-file"), "{text}");
    let text = workspace.run(&["run", open, "--api.http.token-file=none"]).expect_code(2).both();
    assert!(text.contains("api.http.token-file: cannot read none: no such file"), "{text}");

    let mut process = workspace.start(&["run", open, "--api.http.allow-unauthenticated"]);
    let address = SocketAddr::from(([127, 0, 0, 1], process.address().port()));
    assert_eq!(get(address, "/nothing").status, 404);
    end(process);

    workspace.env("ANABRANCH_API_HTTP_TOKEN", "of-the-test");
    let mut process = workspace.start(&["run", open]);
    let address = SocketAddr::from(([127, 0, 0, 1], process.address().port()));
    let refused = get(address, "/nothing");
    assert_eq!((refused.status, refused.reason().as_str()), (401, "api.unauthenticated"));
    assert!(refused.header("www-authenticate").is_some());
    assert_eq!(ask(address, "GET", "/nothing", "Authorization: Bearer of-the-tess\r\n", "").status, 401);
    assert_eq!(ask(address, "GET", "/nothing", "Authorization: Bearer of-the-test\r\n", "").status, 404);
    // Probes need none, and are told no more than they need.
    assert_eq!(get(address, "/healthz").status, 200);
    process.wait_until("readiness", || get(address, "/readyz").status == 200);
    assert_eq!(get(address, "/readyz").json(), serde_json::json!({"status": "ready"}));
    process.signal("TERM");
    let output = process.finish().expect_code(0);
    assert!(!output.both().contains("of-the-test"), "{}", output.both());
}

#[test]
fn pages_of_other_sites_may_not_use_the_browser_of_this_machine() {
    let workspace = workspace();
    let mut process = workspace.start(&["run", "--api.http.cors.allowed-origins=https://ok.example"]);
    let address = process.address();
    let asked = |headers: &str| ask(address, "GET", "/healthz", headers, "");
    assert_eq!(asked("Origin: https://evil.example\r\n").reason(), "api.foreign_origin");
    assert_eq!(asked("Host: evil.example\r\n").reason(), "api.foreign_host");
    assert_eq!(asked(&format!("Origin: http://{address}\r\n")).status, 200);
    let allowed = asked("Origin: https://ok.example\r\n");
    assert_eq!((allowed.status, allowed.header("access-control-allow-origin")), (200, Some("https://ok.example")));
    let first = "Origin: https://ok.example\r\nAccess-Control-Request-Method: POST\r\n";
    let preflight = ask(address, "OPTIONS", "/subjects", first, "");
    assert_eq!((preflight.status, preflight.header("access-control-allow-methods").is_some()), (204, true));
    end(process);
}

#[test]
fn an_open_connection_does_not_hold_up_the_end() {
    let workspace = workspace();
    // Whoever waited for these connections would do so for half a minute, each time.
    let soon = (0..5).any(|_| ended_beside_open_connections(&workspace) < Duration::from_secs(20));
    assert!(soon, "the end waits for connections that nothing comes over");
}

/// How long the end of a service takes beside a connection over which nothing came, and half of a request.
#[track_caller]
fn ended_beside_open_connections(workspace: &Workspace) -> Duration {
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    let mut idle = TcpStream::connect(address).unwrap();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc").unwrap();
    assert_eq!(get(address, "/healthz").status, 200);
    let started = std::time::Instant::now();
    end(process);
    let took = started.elapsed();
    idle.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(matches!(idle.read(&mut [0; 1]), Ok(0) | Err(_)), "closed");
    took
}

#[test]
fn a_body_that_is_too_large_is_refused() {
    let workspace = workspace();
    let mut process = workspace.start(&["run", "--schema-registry.serve"]);
    let address = process.address();
    let body = format!("{{\"schema\":\"{}\"}}", " ".repeat(5 << 20));
    let answer = ask(address, "POST", "/subjects/s/versions", "", &body);
    assert_eq!((answer.status, &answer.json()["error_code"]), (413, &413.into()), "{}", answer.body);
    assert_eq!(get(address, "/subjects/%ff/versions").json()["error_code"], 400);
    assert_eq!(get(address, "/subjects").json(), serde_json::json!([]));
    end(process);
}

#[test]
fn what_there_is_can_be_asked() {
    let mut workspace = Workspace::new();
    workspace.env("PASSWORD", "hunter2-of-the-test");
    workspace.write("in.txt", "one\n");
    workspace.write(
        "pipelines/p.yaml",
        r#"
version: "2.2"
pipelines:
  - id: p
    name: first
    description: "one file to another"
    connectors:
      - id: in
        type: source
        plugin: file
        settings: { path: in.txt }
        processors:
          - { id: tag, plugin: field.set, settings: { field: .Metadata.tag, value: x } }
      - { id: out, type: destination, plugin: file, settings: { path: out.ndjson } }
    processors:
      - { id: none, plugin: filter, condition: '{{ eq .Metadata.tag "y" }}' }
      - id: ask
        plugin: openai.textgen
        condition: '{{ eq .Metadata.tag "z" }}'
        settings: { api_key: sk-of-the-test, developer_message: say, model: m }
  - id: other
    status: stopped
    connectors:
      - { id: in, type: source, plugin: file, settings: { path: '${PASSWORD}' } }
      - { id: out, type: destination, plugin: file, settings: { path: out2.ndjson } }
"#,
    );
    let ai = cfg!(feature = "ai");
    if !ai {
        let text = workspace.read("pipelines/p.yaml");
        let (before, rest) = text.split_once("      - id: ask").unwrap();
        let (_, after) = rest.split_once("  - id: other").unwrap();
        workspace.write("pipelines/p.yaml", format!("{before}  - id: other{after}"));
    }
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    process.wait_until("readiness", || get(address, "/readyz").status == 200);
    let found = |path: &str| {
        let answer = get(address, path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        assert!(!answer.body.contains("of-the-test"), "{path}: {}", answer.body);
        answer.json()
    };
    let ids = |path: &str| {
        let all = found(path);
        all.as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids("/v1/pipelines"), ["other", "p"]);
    assert_eq!(ids("/v1/pipelines?name=fir.*"), ["p"]);
    assert_eq!(ids("/v1/pipelines?name=irs"), [] as [&str; 0]);
    process.wait_until("it to run", || get(address, "/v1/pipelines/p").json()["state"]["status"] == "STATUS_RUNNING");
    let pipeline = found("/v1/pipelines/p");
    assert_eq!(pipeline["config"]["name"], "first");
    assert_eq!(pipeline["connectorIds"], serde_json::json!(["p:in", "p:out"]));
    assert_eq!(pipeline["processorIds"][0], "p:none");
    assert_eq!(found("/v1/pipelines/other")["state"]["status"], "STATUS_STOPPED");
    assert_eq!(found("/v1/pipelines/p/dead-letter-queue")["plugin"], "builtin:log");

    assert_eq!(ids("/v1/connectors"), ["other:in", "other:out", "p:in", "p:out"]);
    assert_eq!(ids("/v1/connectors?pipelineId=p"), ["p:in", "p:out"]);
    let source = found("/v1/connectors/other:in");
    assert_eq!(
        (&source["type"], &source["config"]["settings"]["path"]),
        (&"TYPE_SOURCE".into(), &"${PASSWORD}".into())
    );
    assert_eq!(ids("/v1/processors?parentIds=p:in"), ["p:in:tag"]);
    let processor = found("/v1/processors/p:none");
    assert_eq!(processor["condition"], "{{ eq .Metadata.tag \"y\" }}");
    assert_eq!(processor["parent"], serde_json::json!({"type": "TYPE_PIPELINE", "id": "p"}));
    if ai {
        assert_eq!(found("/v1/processors/p:ask")["config"]["settings"]["api_key"], "***");
    }
    for (path, reason) in [
        ("/v1/pipelines/x", "pipeline.not_found"),
        ("/v1/connectors/p:x", "connector.not_found"),
        ("/v1/processors/p:x", "processor.not_found"),
        ("/v1/pipelines?name=(", "api.malformed_request"),
    ] {
        assert_eq!(get(address, path).reason(), reason, "{path}");
    }
    assert_eq!(found("/v1/info")["os"], std::env::consts::OS);
    let plugins = found("/v1/connectors/plugins?name=builtin:file@.*");
    assert_eq!(plugins.as_array().unwrap().len(), 1);
    let path = &plugins[0]["sourceParams"]["path"];
    assert_eq!((&path["type"], &path["validations"][0]["type"]), (&"TYPE_FILE".into(), &"TYPE_REQUIRED".into()));
    assert!(found("/v1/processors/plugins").as_array().unwrap().iter().any(|it| it["parameters"]["field"].is_object()));
    assert_eq!(ask(address, "PATCH", "/v1/pipelines/p", "", "").reason(), "api.no_such_method");
    end(process);
}
