//! Pipelines are started and stopped over HTTP, and their status says what they do.

use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;

use crate::api::{Answer, ask, get};
use crate::process::{Process, Workspace, file_to_file, numbered_lines, raw_after};

/// A service of a test that answers.
pub struct Service {
    pub process: Process,
    pub address: SocketAddr,
}

impl Service {
    #[track_caller]
    pub fn start(workspace: &Workspace) -> Service {
        let mut process = workspace.start(&["run"]);
        let address = process.address();
        process.wait_until("readiness", || get(address, "/readyz").status == 200);
        Service { process, address }
    }

    #[track_caller]
    pub fn send(&self, method: &str, path: &str, body: &Value) -> Answer {
        ask(self.address, method, path, "Content-Type: application/json\r\n", &body.to_string())
    }

    /// Sends, and expects that it is done.
    #[track_caller]
    pub fn done(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.send(method, path, body);
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.body);
        answer.json()
    }

    /// Sends, and expects that it is refused for this reason.
    #[track_caller]
    pub fn refused(&self, method: &str, path: &str, body: &Value, reason: &str) -> Value {
        let answer = self.send(method, path, body);
        assert_eq!(answer.reason(), reason, "{method} {path}: {}", answer.body);
        assert!((400..500).contains(&answer.status), "{}", answer.status);
        answer.json()
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        let answer = get(self.address, path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    }

    /// How a pipeline is.
    #[track_caller]
    pub fn status(&self, id: &str) -> Value {
        self.get(&format!("/v1/pipelines/{id}"))["status"].clone()
    }

    /// Waits until a pipeline is so, and gives the status that says it: the next one may say something else.
    #[track_caller]
    pub fn wait_for(&mut self, id: &str, word: &str) -> Value {
        let address = self.address;
        let path = format!("/v1/pipelines/{id}");
        let mut status = Value::Null;
        self.process.wait_until(&format!("{id} to be {word}"), || {
            let answer = get(address, &path);
            status = if answer.status == 200 { answer.json()["status"].clone() } else { Value::Null };
            is(&status, word)
        });
        status
    }

    #[track_caller]
    pub fn end(self) {
        self.process.signal("TERM");
        self.process.finish().expect_code(0);
    }
}

/// Returns `true` if a status says that a pipeline is so. One that runs is called idle after five seconds without a
/// record.
pub fn is(status: &Value, word: &str) -> bool {
    status["word"] == word || word == "running" && status["word"] == "idle"
}

fn nothing() -> Value {
    serde_json::json!({})
}

#[test]
fn a_pipeline_is_started_and_stopped_while_others_run() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("pipelines/p.yaml", file_to_file("p", "").replace("status: running", "status: stopped"));
    workspace.write("pipelines/q.yaml", file_to_file("q", "").replace("out.ndjson", "other.ndjson"));
    let mut service = Service::start(&workspace);
    assert_eq!(service.status("p")["word"], "stopped");
    service.refused("POST", "/v1/pipelines/p/stop", &nothing(), "pipeline.not_running");
    service.refused("POST", "/v1/pipelines/x/start", &nothing(), "pipeline.not_found");
    let odd =
        service.refused("POST", "/v1/pipelines/p/stop", &serde_json::json!({"fors": true}), "api.malformed_request");
    assert!(odd["message"].as_str().unwrap().contains("fors"), "{odd}");

    assert_eq!(service.done("POST", "/v1/pipelines/p/start", &nothing()), nothing());
    service.refused("POST", "/v1/pipelines/p/start", &nothing(), "pipeline.running");
    service.wait_for("p", "running");
    service.process.wait_until("the lines", || workspace.lines("out.ndjson").len() == 3);
    let pipeline = service.get("/v1/pipelines/p");
    assert_eq!(pipeline["state"]["status"], "STATUS_RUNNING");
    assert_eq!(pipeline["status"]["run"], 1);
    assert!(pipeline["status"]["since"].as_str().unwrap().ends_with('Z'), "{pipeline}");

    service.done("POST", "/v1/pipelines/p/stop", &nothing());
    service.wait_for("p", "stopped");
    assert_eq!(service.get("/v1/pipelines/p")["state"]["stoppedReason"], "STOPPED_REASON_USER");
    service.wait_for("q", "running");
    service.done("POST", "/v1/pipelines/p/start", &nothing());
    service.wait_for("p", "running");
    assert_eq!(service.status("p")["run"], 2);
    service.end();
    assert_eq!(workspace.lines("out.ndjson").len(), 3, "a second run repeats nothing");
}

#[test]
fn what_has_errors_says_so_and_cannot_be_started() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(1));
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    workspace.write("pipelines/bad.yaml", file_to_file("bad", "").replace("plugin: file", "plugin: fiel"));
    let service = Service::start(&workspace);
    let status = service.status("bad");
    assert_eq!(status["word"], "invalid");
    assert!(status["error"].as_str().unwrap().contains("bad.yaml:"), "{status}");
    let refused = service.refused("POST", "/v1/pipelines/bad/start", &nothing(), "pipeline.invalid");
    assert!(refused["message"].as_str().unwrap().contains("fiel"), "{refused}");
    service.end();
}

const LINES: usize = 40;

fn long_line(i: usize) -> String {
    format!("{i:02}").repeat(50_000)
}

/// A destination that nobody reads: it cannot be opened, and what is written to it goes nowhere.
fn piped() -> Workspace {
    let workspace = Workspace::new();
    // No pipe holds one of its lines.
    workspace.write("in.txt", (0..LINES).map(|i| long_line(i) + "\n").collect::<String>());
    assert!(Command::new("mkfifo").arg(workspace.path("pipe")).status().unwrap().success());
    workspace.write("pipelines/p.yaml", file_to_file("p", "").replace("out.ndjson", "pipe"));
    workspace
}

#[test]
fn a_pipeline_that_opens_can_be_stopped() {
    let workspace = piped();
    let mut service = Service::start(&workspace);
    service.wait_for("p", "starting");
    service.done("POST", "/v1/pipelines/p/stop", &nothing());
    service.wait_for("p", "stopped");
    service.done("POST", "/v1/pipelines/p/start", &nothing());
    service.wait_for("p", "starting");
    service.done("POST", "/v1/pipelines/p/stop", &serde_json::json!({"force": true}));
    service.wait_for("p", "stopped");
    service.end();
}

#[test]
fn a_stop_that_takes_long_can_be_forced_and_nothing_is_lost() {
    let workspace = piped();
    let mut service = Service::start(&workspace);
    // It opens the pipe, reads a little and holds it open.
    let reader = Process::spawn(
        Command::new("sh")
            .args(["-c", "exec 3<pipe; head -c 1 <&3 >/dev/null; exec sleep 600"])
            .current_dir(workspace.root()),
    );
    service.wait_for("p", "running");
    // Records that are not read need no delivery.
    let address = service.address;
    service.process.wait_until("the first line to be read", || {
        let live = crate::api::get(address, "/v1/pipelines/p/live").json();
        live["totals"]["read"].as_u64().is_some_and(|read| read > 0)
    });
    service.done("POST", "/v1/pipelines/p/stop", &nothing());
    service.refused("POST", "/v1/pipelines/p/stop", &nothing(), "pipeline.stopping");
    service.refused("POST", "/v1/pipelines/p/start", &nothing(), "pipeline.stopping");
    service.done("POST", "/v1/pipelines/p/stop", &serde_json::json!({"force": true}));
    service.wait_for("p", "stopped");
    drop(reader);
    // A response that is being written ends with its reader. It would continue if the next reader came before that.
    while service.process.has_open(&workspace.path("pipe")) {
        assert!(service.process.is_running());
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let mut reader =
        Process::spawn(Command::new("sh").args(["-c", "cat pipe > copy.ndjson"]).current_dir(workspace.root()));
    service.done("POST", "/v1/pipelines/p/start", &nothing());
    let whole = || workspace.lines("copy.ndjson").iter().filter(|line| line.ends_with('}')).count();
    service.process.wait_until("all lines", || whole() >= LINES);
    service.end();
    reader.wait_for_end();
    let mut lines: Vec<String> = workspace.lines("copy.ndjson").iter().map(|line| raw_after(line)).collect();
    lines.sort();
    lines.dedup();
    assert_eq!(lines, (0..LINES).map(long_line).collect::<Vec<_>>());
}

/// A destination where nobody listens.
#[cfg(feature = "postgres")]
const UNREACHABLE: &str = r#"
version: "2.2"
pipelines:
  - id: p
    connectors:
      - id: in
        type: source
        plugin: generator
        settings: { format.type: structured, format.options.n: int, recordCount: 1 }
      - id: out
        type: destination
        plugin: postgres
        settings: { url: "postgres://u:p-of-the-test@127.0.0.1:1/db", table: t }
    processors:
      - { id: keyless, plugin: field.exclude, settings: { fields: .Key } }
"#;

#[cfg(feature = "postgres")]
#[test]
fn a_pipeline_that_recovers_says_when_it_tries_again_and_can_be_stopped() {
    let mut workspace = Workspace::new();
    workspace.write("pipelines/p.yaml", UNREACHABLE);
    workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MIN_DELAY", "1h");
    workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MAX_DELAY", "2h");
    let mut service = Service::start(&workspace);
    let status = service.wait_for("p", "recovering");
    assert_eq!((&status["attempt"], &status["where"]), (&1.into(), &"out".into()), "{status}");
    assert!(status["nextTry"].as_str().unwrap() > status["since"].as_str().unwrap(), "{status}");
    assert!(!status["error"].as_str().unwrap().contains("of-the-test"), "{status}");
    assert_eq!(service.get("/v1/pipelines/p")["state"]["status"], "STATUS_RECOVERING");
    service.done("POST", "/v1/pipelines/p/stop", &nothing());
    service.wait_for("p", "stopped");
    assert!(service.status("p")["nextTry"].is_null());
    // Trying again at once is a start.
    service.done("POST", "/v1/pipelines/p/start", &nothing());
    service.wait_for("p", "recovering");
    assert_eq!(service.status("p")["run"], 2);
    service.end();
}

#[test]
fn two_hundred_pipelines_are_started_and_stopped_at_once() {
    const PIPELINES: usize = 200;
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(2));
    for i in 0..PIPELINES {
        let file = file_to_file(&format!("p{i}"), "").replace("out.ndjson", &format!("out/{i}.ndjson"));
        workspace.write(&format!("pipelines/{i}.yaml"), file.replace("status: running", "status: stopped"));
    }
    std::fs::create_dir(workspace.path("out")).unwrap();
    let mut service = Service::start(&workspace);
    let all = |service: &Service, order: &str| {
        std::thread::scope(|scope| {
            for part in 0..8 {
                scope.spawn(move || {
                    for i in (part..PIPELINES).step_by(8) {
                        service.done("POST", &format!("/v1/pipelines/p{i}/{order}"), &nothing());
                    }
                });
            }
        });
    };
    let words = |address: SocketAddr, word: &str| {
        let pipelines = get(address, "/v1/pipelines").json();
        pipelines.as_array().unwrap().iter().filter(|it| is(&it["status"], word)).count()
    };
    let address = service.address;
    for _ in 0..2 {
        all(&service, "start");
        service.process.wait_until("all to run", || words(address, "running") == PIPELINES);
        all(&service, "stop");
        service.process.wait_until("all to stand", || words(address, "stopped") == PIPELINES);
    }
    for i in 0..PIPELINES {
        assert!(workspace.lines(&format!("out/{i}.ndjson")).len() <= 2, "nothing is doubled");
    }
    service.end();
}
