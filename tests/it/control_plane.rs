//! Attacks on the control plane: nothing that a client sends keeps probes and signals from being answered.

#[cfg(feature = "postgres")]
mod loading;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde_json::Value;

use crate::api::{Answer, ask, get};
use crate::api_lifecycle::is;
use crate::process::{PATIENCE, Process, Workspace, file_to_file, numbered_lines};

/// A condition that calls itself: it would take weeks.
const COSTLY: &str = r#"{{define "f"}}{{if lt (len .) 60}}{{template "f" (print . "x")}}{{template "f" (print . "x")}}{{end}}{{end}}{{template "f" ""}}true"#;
const LETTERS: &str = "/v1/pipelines/p/dead-letters";

/// Every line fails and is kept.
fn failing(lines: usize) -> Workspace {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(lines));
    let pipeline = r#"
version: "2.2"
pipelines:
  - id: p
    connectors:
      - { id: in, type: source, plugin: file, settings: { path: in.txt } }
      - { id: out, type: destination, plugin: file, settings: { path: out.ndjson } }
    processors:
      - { id: fail, plugin: error, settings: { message: "no" } }
    dead-letter-queue: { plugin: store, window-size: 0 }
"#;
    workspace.write("pipelines/p.yaml", pipeline);
    workspace
}

fn started(workspace: &Workspace, letters: usize) -> (Process, SocketAddr) {
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    process.wait_until("the letters", || {
        let answer = get(address, &format!("{LETTERS}?limit=1"));
        answer.status == 200 && answer.json()["count"] == letters
    });
    (process, address)
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// A request whose answer takes its time.
struct Asking {
    answered: Arc<AtomicBool>,
    asking: JoinHandle<Answer>,
}

impl Asking {
    fn get(address: SocketAddr, path: String) -> Self {
        let answered = Arc::new(AtomicBool::new(false));
        let done = answered.clone();
        let asking = std::thread::spawn(move || {
            let answer = get(address, &path);
            done.store(true, Ordering::SeqCst);
            answer
        });
        Asking { answered, asking }
    }

    fn is_answered(&self) -> bool {
        self.answered.load(Ordering::SeqCst)
    }
}

#[test]
fn a_costly_condition_is_refused_and_holds_up_nothing() {
    let workspace = failing(300);
    let (process, address) = started(&workspace, 300);
    let path = format!("{LETTERS}?where={}", escaped(COSTLY));
    // Probes would have their turn once at most if evaluation held them up. On a busy machine they may be slow.
    let probed = |_| {
        let asking: Vec<_> = (0..3).map(|_| Asking::get(address, path.clone())).collect();
        let mut probes = 0;
        while !asking.iter().any(Asking::is_answered) {
            assert_eq!(get(address, "/healthz").status, 200);
            assert_eq!(get(address, "/readyz").status, 200);
            assert_eq!(get(address, "/v1/pipelines/p").status, 200);
            probes += 1;
        }
        for asking in asking {
            let answer = asking.asking.join().unwrap();
            assert_eq!((answer.status, answer.reason().as_str()), (400, "dlq.condition_too_costly"), "{}", answer.body);
            assert!(answer.json()["details"][0]["metadata"]["suggestion"].is_string(), "{}", answer.body);
        }
        probes
    };
    assert!((0..20).map(probed).any(|probes| probes >= 3), "probes wait for conditions that are evaluated");
    // The command asks the service, and says the same.
    let list = ["dlq", "list", "p", "--where", COSTLY, &format!("--api.http.address={address}"), "--json"];
    let report: Value = serde_json::from_str(&workspace.run(&list).stdout).unwrap();
    assert_eq!(report["error"]["code"], "dlq.condition_too_costly", "{report}");

    // A signal is heard while one is evaluated.
    let asking = Asking::get(address, path);
    process.signal("TERM");
    process.finish().expect_code(0);
    drop(asking);
    // So does the command that has the store for itself.
    let report: Value = serde_json::from_str(&workspace.run(&list[..5]).expect_code(2).stdout).unwrap_or_default();
    assert_eq!(report, Value::Null, "without --json it is a text");
    let report = workspace.run(&[&list[..5], &["--json"]].concat()).expect_code(2).stdout;
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["error"]["code"], "dlq.condition_too_costly", "{report}");
}

const TOKEN: &str = "--api.http.token=secret-of-the-test";
const BEARER: &str = "Authorization: Bearer secret-of-the-test\r\n";
/// More than a service serves at a time.
const FLOOD: usize = 400;

/// A service that follows a file, and needs a token.
fn guarded() -> (Workspace, Process, SocketAddr) {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let mut process = workspace.start(&["run", TOKEN]);
    let address = process.address();
    process.wait_until("readiness", || get(address, "/readyz").status == 200);
    (workspace, process, address)
}

/// Clients that send this and then nothing, and read nothing.
fn flood(address: SocketAddr, sends: &[u8]) -> Vec<TcpStream> {
    let client = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nonblocking(true).unwrap();
        // Bytes beyond the buffers of the system need not be sent, nor bytes after the service closed.
        let mut left = sends;
        while let Ok(sent @ 1..) = stream.write(left) {
            left = &left[sent..];
        }
        stream
    };
    (0..FLOOD).map(client).collect()
}

/// Probes and authenticated callers are answered, and an inspection goes on.
#[track_caller]
fn expect_service(workspace: &Workspace, process: &mut Process, address: SocketAddr, sends: &[u8]) {
    let service = format!("--api.http.address={address}");
    let mut inspecting = workspace.start(&["pipelines", "inspect", "p", "--limit=2", TOKEN, &service]);
    let seen = inspecting.printed();
    process.wait_until("a record to be seen", || {
        workspace.append("in.txt", "before\n");
        !seen().is_empty()
    });
    // They come faster than the service can look at them.
    process.signal("STOP");
    let clients = flood(address, sends);
    process.signal("CONT");
    for _ in 0..10 {
        assert_eq!(get(address, "/healthz").status, 200);
        assert_eq!(ask(address, "GET", "/v1/pipelines/p", BEARER, "").status, 200);
    }
    // More clients come, and those that were there before stay as they are.
    let more = flood(address, sends);
    assert_eq!(get(address, "/healthz").status, 200);
    process.wait_until("another record to be seen", || {
        workspace.append("in.txt", "meanwhile\n");
        !inspecting.is_running()
    });
    assert_eq!(inspecting.finish().expect_code(0).stdout.lines().count(), 2);
    drop((clients, more));
    assert_eq!(get(address, "/readyz").status, 200);
}

#[test]
fn clients_that_never_finish_a_request_do_not_take_the_api_away() {
    let (workspace, mut process, address) = guarded();
    let begun = std::time::Instant::now();
    expect_service(&workspace, &mut process, address, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Half");
    process.signal("TERM");
    let log = process.finish().expect_code(0).stdout;
    let told: Vec<&str> = log.lines().filter(|line| line.contains("too many clients")).collect();
    let minutes = 1 + begun.elapsed().as_secs() as usize / 60;
    assert!((1..=minutes).contains(&told.len()), "one line a minute, {minutes} at most: {told:?}");
    assert!(told.iter().all(|line| line.contains("127.0.0.1")), "{told:?}");
}

#[test]
fn clients_that_never_finish_a_body_do_not_take_the_api_away() {
    let (workspace, mut process, address) = guarded();
    let half = |headers: &str| {
        let head = format!("POST /v1/pipelines/plan HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: 4000000");
        [head.as_bytes(), b"\r\n\r\n", &[b'x'; 1000]].concat()
    };
    expect_service(&workspace, &mut process, address, &half(""));
    let (workspace, mut known, address) = guarded();
    expect_service(&workspace, &mut known, address, &half(BEARER));
    for process in [process, known] {
        process.signal("TERM");
        process.finish().expect_code(0);
    }
}

#[test]
fn clients_that_never_read_do_not_take_the_api_away() {
    let (workspace, mut process, address) = guarded();
    let large = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(200);
    let whole = get(address, "/openapi.json");
    assert!(whole.status == 200 && whole.body.len() > 10_000, "{}", whole.status);
    expect_service(&workspace, &mut process, address, &large);
    process.signal("TERM");
    process.finish().expect_code(0);
}

#[test]
fn a_client_that_makes_progress_may_be_slow() {
    let (_workspace, process, address) = guarded();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("GET /openapi.json HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    for piece in head.as_bytes().chunks(20) {
        stream.write_all(piece).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut piece) {
        answer.extend_from_slice(&piece[..read]);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let answer = String::from_utf8(answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, get(address, "/openapi.json").body);
    crate::api::end(process);
}

#[test]
fn a_log_that_nobody_reads_holds_up_neither_clients_nor_signals() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let mut command = workspace.command(["run", "--log.level=debug"]);
    let mut service = command.stdout(writer.try_clone().unwrap()).spawn().unwrap();
    drop(command);
    let address = {
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let read = reader.read(&mut piece).unwrap();
            bytes.extend_from_slice(&piece[..read]);
            let text = String::from_utf8_lossy(&bytes);
            let found = text.split_once("HTTP is served at http://").and_then(|(_, rest)| rest.split_once(' '));
            if let Some((address, _)) = found {
                break address.parse::<SocketAddr>().unwrap();
            }
        }
    };
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();

    let deadline = std::time::Instant::now() + PATIENCE;
    let wait = |done: &mut dyn FnMut() -> bool| {
        while !done() {
            assert!(std::time::Instant::now() < deadline, "it took too long");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    wait(&mut || workspace.lines("out.ndjson").len() == 3);
    for _ in 0..3 {
        for (verb, status) in [("stop", "stopped"), ("start", "running")] {
            assert_eq!(ask(address, "POST", &format!("/v1/pipelines/p/{verb}"), "", "{}").status, 200);
            wait(&mut || is(&get(address, "/v1/pipelines/p").json()["status"], status));
            assert_eq!(get(address, "/healthz").status, 200);
        }
    }
    assert!(std::process::Command::new("kill").arg(service.id().to_string()).status().unwrap().success());
    let mut ended = None;
    wait(&mut || {
        ended = service.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(0));
}
