//! Records on their way: websockets, and the command that reads them.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::{IntoClientRequest as _, client_with_config};
use tokio_tungstenite::tungstenite::error::Error;
use tokio_tungstenite::tungstenite::handshake::HandshakeError;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, WebSocket};

use crate::api::{ask, get};
use crate::api_lifecycle::is;
use crate::process::{NOBODY, PATIENCE, Process, Workspace, base64_decode, file_to_file};

/// A websocket of an inspection.
struct Watch(WebSocket<TcpStream>);

impl Watch {
    #[track_caller]
    fn open(address: SocketAddr, path: &str) -> Watch {
        Watch::try_open(address, path, &[]).unwrap_or_else(|status| panic!("{path}: {status}"))
    }

    /// Opens one, or says with which status that was refused.
    fn try_open(address: SocketAddr, path: &str, headers: &[(&'static str, &'static str)]) -> Result<Watch, u16> {
        let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_static(value));
        }
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let unbounded = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        match client_with_config(request, stream, Some(unbounded)) {
            Ok((socket, _)) => Ok(Watch(socket)),
            Err(HandshakeError::Failure(Error::Http(answer))) => Err(answer.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// The next frame; `None` when the service closed it.
    #[track_caller]
    fn frame(&mut self) -> Option<Value> {
        loop {
            match self.0.read() {
                Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(_)) | Err(Error::ConnectionClosed) => return None,
                Ok(_) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The next frame of a kind.
    #[track_caller]
    fn next(&mut self, kind: &str) -> Value {
        loop {
            let frame = self.frame().unwrap_or_else(|| panic!("closed before a frame with {kind:?}"));
            assert!(kind == "error" || frame["error"].is_null(), "{frame}");
            if !frame[kind].is_null() {
                return frame;
            }
        }
    }

    /// The raw payloads of the next records.
    #[track_caller]
    fn lines(&mut self, n: usize) -> Vec<String> {
        (0..n).map(|_| payload(&self.next("result")["result"])).collect()
    }

    /// Waits until the pipeline is in a state, which it says first of all.
    #[track_caller]
    fn until(mut self, word: &str) -> Watch {
        while !is(&self.next("status")["status"], word) {}
        self
    }

    /// The reason for which it was ended.
    #[track_caller]
    fn refusal(mut self) -> (String, String) {
        let error = self.next("error")["error"].clone();
        assert_eq!(self.frame(), None, "nothing comes after an error");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&error["details"][0]["reason"]), text(&error["message"]))
    }

    fn close(mut self) {
        let _ = self.0.close(None);
        while self.0.read().is_ok() {}
    }
}

fn payload(record: &Value) -> String {
    let text = record["payload"]["after"].as_str().unwrap_or_else(|| panic!("not raw: {record}"));
    String::from_utf8(base64_decode(text)).unwrap()
}

const MARK: &str = r"      - id: mark
        plugin: field.set
        settings:
          field: .Metadata.mark
          value: made
      - id: some
        plugin: filter
        condition: '{{ eq (printf `%s` .Payload.After) `drop` }}'
";

fn workspace() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("in.txt", "");
    workspace.write("pipelines/p.yaml", file_to_file("p", MARK));
    workspace
}

fn append(workspace: &Workspace, text: &str) {
    let mut file = OpenOptions::new().append(true).open(workspace.path("in.txt")).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[track_caller]
fn started(workspace: &Workspace) -> (Process, SocketAddr) {
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    process.wait_until("readiness", || get(address, "/readyz").status == 200);
    (process, address)
}

/// Has the pipeline started or stopped.
#[track_caller]
fn order(address: SocketAddr, what: &str) {
    let answer = ask(address, "POST", &format!("/v1/pipelines/p/{what}"), "", "{}");
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[track_caller]
fn end(process: Process) {
    process.signal("TERM");
    process.finish().expect_code(0);
}

#[test]
fn every_place_of_a_pipeline_can_be_looked_at() {
    let workspace = workspace();
    let (process, address) = started(&workspace);
    let at = |query: &str| Watch::open(address, &format!("/v1/pipelines/p/inspect{query}")).until("running");
    let mut read = at("");
    let mut before = at("?at=mark&side=before");
    let mut after = at("?at=p:mark");
    let mut kept = at("?at=some&side=after");
    let mut written = at("?at=out");
    let mut only = at("?at=out&where=%7B%7B%20eq%20(printf%20%22%25s%22%20.Payload.After)%20%22b%22%20%7D%7D");
    append(&workspace, "a\ndrop\nb\n");
    let first = read.next("result");
    assert_eq!(first["at"], json!({ "node": "in", "side": "after" }));
    assert_eq!(payload(&first["result"]), "a");
    assert_eq!(read.lines(2), ["drop", "b"]);
    let unmarked = before.next("result");
    assert_eq!(unmarked["at"], json!({ "node": "mark", "side": "before" }));
    assert_eq!((payload(&unmarked["result"]).as_str(), &unmarked["result"]["metadata"]["mark"]), ("a", &Value::Null));
    let marked = after.next("result");
    assert_eq!(marked["at"], json!({ "node": "mark", "side": "after" }));
    assert_eq!(marked["result"]["metadata"]["mark"], "made");
    assert_eq!(kept.lines(2), ["a", "b"]);
    assert_eq!(written.lines(2), ["a", "b"]);
    assert_eq!(only.lines(1), ["b"]);

    // As clients of this kind of service know it.
    let mut read = Watch::open(address, "/v1/connectors/p:in/inspect");
    let mut written = Watch::open(address, "/v1/connectors/p:out/inspect");
    let mut into = Watch::open(address, "/v1/processors/p:mark/inspect-in");
    let mut out = Watch::open(address, "/v1/processors/p:mark/inspect-out");
    // They say nothing before there is something: a record that is seen by all shows that all are there.
    let all = [&mut read, &mut written, &mut into, &mut out].map(|watch| {
        watch.0.get_ref().set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let begin = Instant::now();
        loop {
            append(&workspace, "c\n");
            match watch.0.read() {
                Ok(Message::Text(text)) => break serde_json::from_str::<Value>(&text).unwrap(),
                Ok(_) => {}
                Err(Error::Io(_)) => assert!(begin.elapsed() < PATIENCE, "nothing is shown"),
                Err(error) => panic!("{error}"),
            }
        }
    });
    for frame in &all {
        let record = &frame["result"];
        assert_eq!(record["operation"], "OPERATION_CREATE");
        assert_eq!(record["payload"]["after"], json!({ "rawData": "Yw==" }));
        assert_eq!(record["payload"]["before"], Value::Null);
        assert_eq!(frame.as_object().unwrap().len(), 1);
    }
    assert_eq!(all.map(|frame| frame["result"]["metadata"]["mark"].is_null()), [true, false, true, false]);
    end(process);
}

#[test]
fn the_destinations_of_a_route_show_what_their_conditions_let_through() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "");
    let routed = r#"
version: "2.2"
pipelines:
  - id: p
    unmatched: rest
    connectors:
      - { id: in, type: source, plugin: file, settings: { path: in.txt } }
      - { id: bs, type: destination, plugin: drop, condition: '{{ hasPrefix "b" (printf "%s" .Payload.After) }}' }
      - { id: rest, type: destination, plugin: drop, condition: "false" }
"#;
    workspace.write("pipelines/p.yaml", routed);
    let (process, address) = started(&workspace);
    let at = |query: &str| Watch::open(address, &format!("/v1/pipelines/p/inspect{query}")).until("running");
    let (mut bs, mut rest) = (at("?at=bs"), at("?at=rest"));
    append(&workspace, "a\nb\nc\nbb\n");
    assert_eq!(
        (bs.lines(2), rest.lines(2)),
        (["b", "bb"].map(str::to_owned).to_vec(), ["a", "c"].map(str::to_owned).to_vec())
    );
    end(process);
}

#[test]
fn an_inspection_is_there_before_the_pipeline_runs_and_survives_its_stops() {
    let workspace = workspace();
    let stopped = file_to_file("p", MARK).replace("status: running", "status: stopped");
    workspace.write("pipelines/p.yaml", stopped);
    workspace.write("in.txt", "a\n");
    let (process, address) = started(&workspace);
    let mut watch = Watch::open(address, "/v1/pipelines/p/inspect?at=out").until("stopped");
    order(address, "start");
    assert_eq!(watch.lines(1), ["a"]);
    order(address, "stop");
    watch = watch.until("stopped");
    append(&workspace, "b\n");
    order(address, "start");
    assert_eq!(watch.lines(1), ["b"]);
    process.signal("TERM");
    // The service says good-bye.
    let mut last = None;
    while let Ok(message) = watch.0.read() {
        last = Some(message);
    }
    let Some(Message::Close(Some(CloseFrame { code, .. }))) = last else { panic!("{last:?}") };
    assert_eq!(u16::from(code), 1001);
    process.finish().expect_code(0);
}

#[test]
fn what_cannot_be_shown_is_refused_with_a_reason() {
    let workspace = workspace();
    let never = MARK.replace("condition: '{{ eq (printf `%s` .Payload.After) `drop` }}'", "condition: '{{ false }}'");
    workspace.write("pipelines/p.yaml", file_to_file("p", &never));
    let (mut process, address) = started(&workspace);
    let refused = |path: &str| Watch::open(address, path).refusal();
    let of = |query: &str| refused(&format!("/v1/pipelines/p/inspect?{query}"));
    assert_eq!(refused("/v1/pipelines/x/inspect").0, "pipeline.not_found");
    assert_eq!(refused("/v1/connectors/p:mark/inspect").0, "connector.not_found");
    assert_eq!(refused("/v1/processors/p:in/inspect-in").0, "processor.not_found");
    let (reason, message) = of("at=nothing");
    assert_eq!(reason, "inspect.node_unknown");
    assert!(message.ends_with("its nodes are in, mark, out, dead-letter-queue"), "{message}");
    assert_eq!(of("at=some").0, "inspect.node_unreached");
    assert_eq!(
        of("at=in&side=before"),
        ("inspect.side_unknown".into(), "in is a source: there is nothing before it".into())
    );
    assert_eq!(of("at=out&side=after").0, "inspect.side_unknown");
    assert_eq!(of("side=before").0, "inspect.side_unknown");
    let (reason, message) = of("where=%7B%7B%20eq%20");
    assert_eq!(reason, "inspect.where_invalid", "{message}");
    let (reason, message) = of("where=%7B%7B%20eq%20.Nix%201%20%7D%7D");
    assert_eq!(reason, "inspect.where_invalid", "{message}");
    assert!(message.contains("a record has no \"Nix\""), "{message}");
    assert_eq!(of("sample=0").0, "inspect.sample_invalid");
    assert_eq!(get(address, "/v1/pipelines/p/inspect?sample=x").status, 400);
    // No websocket at all.
    let plain = get(address, "/v1/pipelines/p/inspect");
    assert!((400..=426).contains(&plain.status), "{}", plain.status);
    assert_eq!(plain.reason(), "api.malformed_request");

    // Of those that were refused, one may keep its place until the service has seen it go.
    let mut open = Vec::new();
    process.wait_until("64 places", || {
        let mut watch = Watch::open(address, "/v1/pipelines/p/inspect");
        if watch.frame().is_some_and(|frame| frame["error"].is_null()) {
            open.push(watch);
        }
        open.len() == 64
    });
    assert_eq!(of("").0, "inspect.too_many");
    open.pop().unwrap().close();
    // It is gone when its connection is, a moment later.
    process.wait_until("a place", || {
        let mut watch = Watch::open(address, "/v1/pipelines/p/inspect");
        watch.frame().is_some_and(|frame| frame["error"].is_null())
    });
    drop(open);
    end(process);
}

#[test]
fn a_condition_that_fails_says_so() {
    let workspace = workspace();
    let (process, address) = started(&workspace);
    let path = "/v1/pipelines/p/inspect?where=%7B%7B%20.Payload.After.x.y%20%7D%7D";
    let mut watch = Watch::open(address, path).until("running");
    append(&workspace, "a\n");
    let told = watch.next("failed");
    assert_eq!(told["failed"], 1);
    assert!(told["message"].as_str().unwrap().contains("condition"), "{told}");
    end(process);
}

#[test]
fn a_websocket_needs_the_token_and_a_page_that_may_ask() {
    let mut workspace = workspace();
    workspace.env("ANABRANCH_API_HTTP_TOKEN", "s e+cret&");
    let (process, address) = started(&workspace);
    let path = "/v1/pipelines/p/inspect";
    let open = |path: &str, headers: &[(&'static str, &'static str)]| Watch::try_open(address, path, headers).err();
    assert_eq!(open(path, &[]), Some(401));
    assert_eq!(open(path, &[("authorization", "Bearer wrong")]), Some(401));
    assert_eq!(open("/v1/pipelines/p/inspect?token=wrong", &[]), Some(401));
    assert_eq!(open("/v1/pipelines/p/inspect?token=", &[]), Some(401));
    assert_eq!(open(path, &[("authorization", "Bearer s e+cret&")]), None);
    let with = "/v1/pipelines/p/inspect?at=out&token=s%20e+cret%26";
    assert_eq!(open(with, &[]), None);
    assert_eq!(open(with, &[("origin", "http://evil.example")]), Some(403));
    // In an address it is good for websockets only.
    assert_eq!(get(address, "/v1/pipelines?token=s%20e+cret%26").status, 401);
    end(process);
}

/// Ten megabytes on one line.
fn large() -> String {
    "0123456789abcdef".repeat(10 * 65536)
}

#[test]
fn a_record_may_be_large() {
    let workspace = workspace();
    let (process, address) = started(&workspace);
    let mut watch = Watch::open(address, "/v1/pipelines/p/inspect?at=out").until("running");
    append(&workspace, &format!("{}\n", large()));
    assert!(watch.lines(1)[0] == large());
    end(process);
}

/// The command, against a service.
fn inspect(workspace: &Workspace, address: impl Display, arguments: &[&str]) -> Process {
    let flag = format!("--api.http.address={address}");
    let mut all = vec!["pipelines", "inspect", "p", &flag];
    all.extend(arguments);
    workspace.start(&all)
}

/// Appends lines until the command has ended; what it printed.
#[track_caller]
fn fed(workspace: &Workspace, mut command: Process, line: &str) -> crate::process::Output {
    let begin = Instant::now();
    while command.is_running() {
        assert!(begin.elapsed() < PATIENCE, "it does not end");
        append(workspace, line);
        std::thread::sleep(Duration::from_millis(20));
    }
    command.finish()
}

#[test]
fn the_command_prints_a_record_a_line_in_a_pipe() {
    let workspace = workspace();
    let (process, address) = started(&workspace);
    let command = inspect(&workspace, address, &["--at", "mark", "--before", "--limit", "2"]);
    let output = fed(&workspace, command, "a\n").expect_code(0);
    let lines: Vec<Value> = output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{}", output.both());
    assert!(lines.iter().all(|record| payload(record) == "a" && record["metadata"]["mark"].is_null()));

    let where_b = "{{ eq (printf \"%s\" .Payload.After) \"b\" }}";
    let command = inspect(&workspace, address, &["--json", "--limit", "1", "--where", where_b]);
    let output = fed(&workspace, command, "a\nb\n").expect_code(0);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((&report["command"], &report["ok"]), (&"pipelines inspect".into(), &true.into()));
    let record = &report["result"]["records"][0];
    assert_eq!((payload(record).as_str(), &record["at"]["node"]), ("b", &"in".into()));
    assert_eq!(report["summary"]["shown"], 1);

    let unknown = inspect(&workspace, address, &["--at", "nothing"]).finish().expect_code(2);
    assert!(unknown.stderr.contains("its nodes are in, mark, some, out, dead-letter-queue"), "{}", unknown.stderr);
    let unlimited = inspect(&workspace, address, &["--json"]).finish().expect_code(2);
    assert!(unlimited.stdout.contains("--limit"), "{}", unlimited.stdout);

    // Ctrl+C is how it usually ends.
    let mut command = inspect(&workspace, address, &["--at", "out"]);
    let printed = command.printed();
    command.wait_until("a record", || {
        append(&workspace, "a\n");
        printed().contains("position")
    });
    command.signal("INT");
    command.finish().expect_code(0);
    end(process);
    let nobody = inspect(&workspace, NOBODY, &[]).finish().expect_code(3);
    assert!(nobody.stderr.contains(&format!("no service answers at http://{NOBODY}")), "{}", nobody.stderr);
}

#[test]
fn the_command_says_why_nothing_comes() {
    let workspace = workspace();
    workspace.write("pipelines/p.yaml", file_to_file("p", MARK).replace("status: running", "status: stopped"));
    let (process, address) = started(&workspace);
    let mut command = inspect(&workspace, address, &[]);
    let printed = command.printed();
    let reason = "pipeline p is stopped: records appear after it is started";
    command.wait_until("the reason", || printed().contains(reason));
    // The end of the service is the end of it.
    end(process);
    let output = command.finish().expect_code(3);
    assert!(output.stderr.contains("is stopping"), "{}", output.stderr);
}

#[test]
fn many_look_and_nothing_is_lost() {
    const RECORDS: usize = 20_000;
    let workspace = Workspace::new();
    let pipeline = format!(
        r#"version: "2.2"
pipelines:
  - id: p
    status: stopped
    connectors:
      - id: in
        type: source
        plugin: generator
        settings:
          format.type: structured
          format.options.id: int
          recordCount: "{RECORDS}"
          rate: 5000
      - id: out
        type: destination
        plugin: file
        settings:
          path: out.ndjson
    processors:
      - id: mark
        plugin: field.set
        workers: 2
        settings:
          field: .Payload.After.mark
          value: "{{{{ .Payload.After.id }}}}"
"#
    );
    workspace.write("pipelines/p.yaml", pipeline);
    let (mut process, address) = started(&workspace);
    let mut first = Watch::open(address, "/v1/pipelines/p/inspect").until("stopped");
    order(address, "start");
    first.next("result");
    let over = AtomicBool::new(false);
    let begin = Instant::now();
    let queries = ["", "?at=mark&side=before&sample=1000", "?at=mark&where=%7B%7B%20false%20%7D%7D", "?at=out"];
    std::thread::scope(|scope| {
        let watchers: Vec<_> = (0..50)
            .map(|number| {
                let over = &over;
                let path = format!("/v1/pipelines/p/inspect{}", queries[number % queries.len()]);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) && begin.elapsed() < PATIENCE {
                        let mut watch = Watch::open(address, &path);
                        // Of those that went, some may still count.
                        let begun = watch.frame().is_some_and(|frame| !frame["status"].is_null());
                        // Some fetch what they are shown, and some do not.
                        for _ in 0..if begun { (number % 5) * 10 } else { 0 } {
                            watch.0.get_ref().set_read_timeout(Some(Duration::from_millis(50))).unwrap();
                            if watch.0.read().is_err() {
                                break;
                            }
                        }
                        match number % 2 {
                            0 => watch.close(),
                            _ => drop(watch),
                        }
                    }
                })
            })
            .collect();
        process.wait_until("all records", || workspace.lines("out.ndjson").len() >= RECORDS);
        over.store(true, Ordering::Relaxed);
        watchers.into_iter().for_each(|watcher| watcher.join().unwrap());
    });
    end(process);
    let position = |line: &String| -> u64 {
        let record: Value = serde_json::from_str(line).unwrap();
        let after = &record["payload"]["after"];
        assert_eq!(after["mark"].as_str().unwrap(), after["id"].to_string());
        String::from_utf8(base64_decode(record["position"].as_str().unwrap())).unwrap().parse().unwrap()
    };
    let positions: Vec<u64> = workspace.lines("out.ndjson").iter().map(position).collect();
    assert!(positions.is_sorted_by(|a, b| a < b), "each once and in order");
    assert_eq!(positions.len(), RECORDS);
}
