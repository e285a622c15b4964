//! The source `http`: what its answers promise, and which requests it refuses.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_ops_http::testing::{Received, Reply, Server};
use serde_json::{Value, json};

use super::client::{Answer, exchange, exchange_over_tls, post, request};
use crate::api::get;
use crate::fault_plan::{choices, say, wait};
use crate::process::{PATIENCE, Process, Workspace};
use crate::servers::Port;
use crate::servers::certificates::Certificates;

/// A pipeline `p` from the source, with these settings, to a destination in one line.
fn pipeline(settings: &str, destination: &str) -> String {
    format!(
        r#"version: "2.2"
pipelines:
  - id: p
    connectors:
      - id: in
        type: source
        plugin: http
        settings:
{settings}
      - {destination}
"#
    )
}

const TO_FILE: &str = "{ id: out, type: destination, plugin: file, settings: { path: out.ndjson } }";
const ANY_PORT: &str = "          address: 127.0.0.1:0";

fn start(workspace: &Workspace, settings: &str, destination: &str) -> (Process, SocketAddr) {
    workspace.write("pipelines/p.yaml", pipeline(settings, destination));
    let mut process = workspace.start(&["run"]);
    let scheme = if settings.contains("tls.") { "https" } else { "http" };
    let address = process.address_after(&format!("records are received at {scheme}://"));
    (process, address)
}

fn records(workspace: &Workspace) -> Vec<Value> {
    workspace.lines("out.ndjson").iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn afters(workspace: &Workspace) -> Vec<Value> {
    records(workspace).into_iter().map(|mut record| record["payload"]["after"].take()).collect()
}

#[track_caller]
fn expect(answer: std::io::Result<Answer>, status: u16) -> Answer {
    let answer = answer.unwrap();
    assert_eq!(answer.status, status, "{answer:?}");
    answer
}

#[test]
fn a_request_is_answered_when_its_records_are_in_the_destination() {
    let workspace = Workspace::new();
    let settings = "          address: 127.0.0.1:0\n          format: ndjson\n          paths: /a, /hooks/*\n          \
                    headers: X-Event, x-absent";
    let (_process, address) = start(&workspace, settings, TO_FILE);
    let body = "{\"n\":1}\n\n{\"n\":2}\n";
    let headers = [("X-Event", "push"), ("X-Other", "no"), ("Authorization", "Bearer hush")];
    let answer = expect(exchange(address, &request("POST", "/hooks/x?token=hush", &headers, body.as_bytes())), 200);
    assert_eq!(serde_json::from_str::<Value>(&answer.body).unwrap(), json!({ "records": 2 }));
    // Not a moment later: the answer promises it.
    assert_eq!(afters(&workspace), [json!({ "n": 1 }), json!({ "n": 2 })]);
    let metadata = &records(&workspace)[0]["metadata"];
    assert_eq!(metadata["http.method"], "POST");
    assert_eq!(metadata["http.path"], "/hooks/x");
    assert_eq!(metadata["http.header.x-event"], "push");
    assert!(!workspace.read("out.ndjson").contains("hush"));
    // An answer without records.
    let answer = expect(exchange(address, &request("POST", "/a", &[], b"\n")), 200);
    assert_eq!(answer.body.trim(), r#"{"records":0}"#);

    // One invalid line refuses the request as a whole.
    let answer = expect(exchange(address, &request("POST", "/a", &[], b"{\"n\":3}\n{\n")), 400);
    assert!(answer.body.contains("line 2 of the body is not valid JSON"), "{answer:?}");
    expect(exchange(address, &request("POST", "/", &[], b"{}")), 404);
    let answer = expect(exchange(address, &request("GET", "/a", &[], b"")), 405);
    assert_eq!(answer.header("allow"), Some("POST"));
    assert_eq!(afters(&workspace).len(), 2);
}

#[test]
fn bodies_have_a_limit_before_and_after_they_are_decompressed() {
    let workspace = Workspace::new();
    let settings = "          address: 127.0.0.1:0\n          format: array\n          limits.bodyBytes: 64KiB\n          \
                    limits.records: 3\n          readTimeout: 300ms";
    let (_process, address) = start(&workspace, settings, TO_FILE);
    expect(post(address, &[], format!("[{}]", "1".repeat(70_000))), 413);
    let chunked =
        format!("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n11170\r\n{}", "1".repeat(70_000));
    expect(exchange(address, chunked.as_bytes()), 413);
    expect(post(address, &[], "[1,2,3,4]"), 413);
    expect(post(address, &[("Content-Encoding", "br")], "[1]"), 415);
    expect(post(address, &[("Content-Encoding", "gzip")], "[1]"), 400);
    // 10 MiB of white space in 10 KiB.
    expect(post(address, &[("Content-Encoding", "gzip")], gzip(&[b' '; 10 << 20])), 413);
    // A body that does not come.
    let mut silent = request("POST", "/", &[], b"[1]");
    silent.truncate(silent.len() - 1);
    expect(exchange(address, &silent), 408);
    expect(post(address, &[("Content-Encoding", "gzip")], gzip(b"[1,{\"a\":2}]")), 200);
    assert_eq!(afters(&workspace), [json!("MQ=="), json!({ "a": 2 })]);
}

fn gzip(body: &[u8]) -> Vec<u8> {
    use std::process::{Command, Stdio};
    let mut gzip = Command::new("gzip").arg("-9").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, body) = (gzip.stdin.take().unwrap(), body.to_owned());
    let writing = thread::spawn(move || input.write_all(&body).unwrap());
    let output = gzip.wait_with_output().unwrap();
    writing.join().unwrap();
    output.stdout
}

#[test]
fn only_signed_requests_are_accepted() {
    let mut workspace = Workspace::new();
    workspace.env("HOOK_SECRET", "It's a Secret to Everybody");
    let settings = "          address: 127.0.0.1:0\n          format: raw\n          auth.github: ${HOOK_SECRET}";
    let (mut process, address) = start(&workspace, settings, TO_FILE);
    let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    expect(post(address, &[("X-Hub-Signature-256", signature)], "Hello, World!"), 200);
    expect(post(address, &[("X-Hub-Signature-256", signature)], "Hello, World"), 401);
    expect(post(address, &[("X-Hub-Signature-256", "sha256=00")], "Hello, World!"), 401);
    expect(post(address, &[], "Hello, World!"), 401);
    assert_eq!(records(&workspace).len(), 1);
    let printed = process.printed();
    process.wait_until("the refusals in the log", || printed().contains("requests are refused"));
    assert!(printed().contains("the signature in the header x-hub-signature-256 does not match the body"));
    assert!(!printed().contains("Secret to Everybody"));
}

#[test]
fn tokens_are_compared_and_requests_may_use_tls() {
    let mut workspace = Workspace::new();
    let Some(certificates) = Certificates::create(workspace.root()) else { return };
    certificates.sign("server", "server", "DNS:localhost");
    workspace.env("TOKENS", "old-token-of-a-client,new-token-of-a-client");
    let settings = "          address: 127.0.0.1:0\n          auth.bearer: ${TOKENS}\n          tls.certificate: \
                    server.crt\n          tls.key: server.key";
    let (process, address) = start(&workspace, settings, TO_FILE);
    let ask = |headers: &[(&str, &str)]| {
        exchange_over_tls(address, &certificates.certificate("ca"), &request("POST", "/", headers, b"{\"n\":1}"))
    };
    for token in ["Bearer old-token-of-a-client", "Bearer new-token-of-a-client"] {
        expect(ask(&[("Authorization", token)]), 200);
    }
    let answer = expect(ask(&[("Authorization", "Bearer other-token")]), 401);
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    expect(ask(&[]), 401);
    assert_eq!(afters(&workspace), [json!({ "n": 1 }), json!({ "n": 1 })]);
    // Plain text is not a handshake: no answer.
    assert!(post(address, &[("Authorization", "Bearer old-token-of-a-client")], "{}").is_err());
    assert!(!process.printed()().contains("token-of-a-client"));
}

/// A server that answers when it is told to.
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    fn pass(&self) {
        let waited = self.1.wait_timeout_while(self.0.lock().unwrap(), PATIENCE, |is_open| !*is_open);
        drop(waited.unwrap());
    }
}

fn to_server(url: &str) -> String {
    format!("{{ id: out, type: destination, plugin: http, settings: {{ request.url: \"{url}\" }} }}")
}

#[test]
fn a_full_pipeline_tells_clients_to_repeat_their_requests() {
    static GATE: Gate = Gate(Mutex::new(false), Condvar::new());
    let server = Server::start(|_| {
        GATE.pass();
        Reply::ok("")
    });
    let workspace = Workspace::new();
    let settings = "          address: 127.0.0.1:0\n          timeout: 500ms\n          retryAfter: 3s\n          \
                    limits.requests: 2";
    let (mut process, address) = start(&workspace, settings, &to_server(&server.url()));
    // Both are with the destination, and count although their clients do not wait any more.
    for n in 1..=2 {
        let answer = expect(post(address, &[], format!("{{\"n\":{n}}}")), 503);
        assert_eq!(answer.header("retry-after"), Some("3"));
        assert!(answer.body.contains("repeat the request"), "{answer:?}");
    }
    let answer = expect(post(address, &[], "{\"n\":3}"), 429);
    assert_eq!(answer.header("retry-after"), Some("3"));
    GATE.open();
    let mut last = 0;
    process.wait_until("room for a request", || {
        last = post(address, &[], "{\"n\":4}").unwrap().status;
        last != 429
    });
    // What was answered with 503 was delivered later: a repetition may deliver it twice.
    process.wait_until("the records", || server.received().len() >= 3);
    let bodies: BTreeSet<String> = server.received().iter().map(anabranch_ops_http::testing::Received::text).collect();
    assert!(
        bodies.contains("{\"n\":1}") && bodies.contains("{\"n\":2}") && !bodies.contains("{\"n\":3}"),
        "{bodies:?}"
    );
}

#[test]
fn a_service_that_stops_answers_the_requests_in_flight() {
    static GATE: Gate = Gate(Mutex::new(false), Condvar::new());
    let server = Server::start(|_| {
        GATE.pass();
        Reply::ok("")
    });
    let workspace = Workspace::new();
    let (mut process, address) = start(&workspace, ANY_PORT, &to_server(&server.url()));
    let asking = thread::spawn(move || post(address, &[], "{\"n\":1}"));
    process.wait_until("a request at the destination", || server.received().len() == 1);
    process.signal("TERM");
    let printed = process.printed();
    process.wait_until("the stop", || printed().contains("stopping"));
    GATE.open();
    expect(asking.join().unwrap(), 200);
    process.finish().expect_code(0);
    assert_eq!(server.received().len(), 1);
}

#[test]
fn two_sources_cannot_share_an_address() {
    let port = Port::hold();
    let settings = format!("          address: 127.0.0.1:{}", port.number());
    let workspace = Workspace::new();
    workspace.write("pipelines/p.yaml", pipeline(&settings, TO_FILE));
    let second = pipeline(&settings, "{ id: out, type: destination, plugin: drop }").replace("id: p\n", "id: second\n");
    // The service starts one of them; a user starts the other.
    workspace.write("pipelines/second.yaml", second.replace("id: second\n", "id: second\n    status: stopped\n"));
    let mut process = workspace.start(&["run"]);
    let (flag, printed) = (format!("--api.http.address={}", process.address()), process.printed());
    process.wait_until("the first source", || printed().contains("records are received at"));
    // The command may still see the pipeline run, or how it ended.
    workspace.run(&["pipelines", "start", "second", &flag]);
    process.wait_until("the refusal", || printed().contains("of this service already does"));
    assert!(printed().contains(&format!("cannot listen on 127.0.0.1:{}: the connector p:in", port.number())));
}

#[test]
fn plan_says_that_the_end_of_the_service_may_lose_what_is_only_accepted() {
    let workspace = Workspace::new();
    let plan = |more: &str| {
        let settings = format!("{ANY_PORT}{more}");
        workspace.write("pipelines/p.yaml", pipeline(&settings, TO_FILE));
        workspace.run(&["pipelines", "plan", "pipelines/p.yaml"]).expect_code(0).stdout
    };
    let delivered = plan("");
    assert!(!delivered.contains("may lose"));
    assert!(
        delivered.contains("a crash repeats no record, but senders repeat those that were not confirmed"),
        "{delivered}"
    );
    let accepted = plan("\n          respond: accepted");
    assert!(accepted.contains("a crash or a stop may lose records"), "{accepted}");
    assert!(!accepted.contains("repeats at most"), "{accepted}");

    let (_process, address) = start(&workspace, &format!("{ANY_PORT}\n          respond: accepted"), TO_FILE);
    expect(post(address, &[], "{\"n\":1}"), 202);
}

const ACCEPTED: &str = "          address: 127.0.0.1:0\n          respond: accepted";

#[test]
fn accepted_records_outlive_a_failure_of_the_pipeline() {
    static HAS_ALL: AtomicBool = AtomicBool::new(false);
    static GATE: Gate = Gate(Mutex::new(false), Condvar::new());
    static TAKEN: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());
    let identified = |request: &Received| (request.text(), request.header("idempotency-key").unwrap().to_owned());
    // The server refuses the credentials until all records are accepted.
    let server = Server::start(move |request| match HAS_ALL.load(Ordering::SeqCst) {
        true => {
            TAKEN.lock().unwrap().push(identified(request));
            Reply::ok("")
        }
        false => {
            GATE.pass();
            Reply::status(401, "not yet")
        }
    });
    let workspace = Workspace::new();
    let (mut process, address) = start(&workspace, ACCEPTED, &to_server(&server.url()));
    for n in 1..=3 {
        expect(post(address, &[], format!("{{\"n\":{n}}}")), 202);
    }
    GATE.open();
    let printed = process.printed();
    process.wait_until("the failure", || printed().contains("restarts in"));
    HAS_ALL.store(true, Ordering::SeqCst);
    let taken = || TAKEN.lock().unwrap().iter().cloned().collect::<BTreeSet<_>>();
    process.wait_until("the records", || taken().len() >= 3);
    let bodies: Vec<String> = taken().into_iter().map(|(body, _)| body).collect();
    assert_eq!(bodies, ["{\"n\":1}", "{\"n\":2}", "{\"n\":3}"]);
    // A repetition has the key of the first attempt.
    assert!(taken().contains(&identified(&server.received()[0])));
}

#[test]
fn a_stop_counts_the_accepted_records_that_are_lost() {
    let server = Server::start(|_| Reply::status(503, "busy"));
    let workspace = Workspace::new();
    let (mut process, address) = start(&workspace, ACCEPTED, &to_server(&server.url()));
    for n in 1..=2 {
        expect(post(address, &[], format!("{{\"n\":{n}}}")), 202);
    }
    process.wait_until("a request at the destination", || !server.received().is_empty());
    let printed = process.printed();
    process.wait_until("the failure", || printed().contains("restarts in"));
    process.signal("TERM");
    let output = process.finish();
    assert!(output.both().contains("2 confirmed records lost: the service ends"), "{}", output.both());
    assert!(!output.both().contains("the next start reads the remaining ones again"), "{}", output.both());
    assert_ne!(output.code(), Some(0));
}

#[test]
fn a_stop_says_that_senders_repeat_what_was_not_confirmed() {
    let server = Server::start(|_| Reply::status(503, "busy"));
    let workspace = Workspace::new();
    let (mut process, address) = start(&workspace, ANY_PORT, &to_server(&server.url()));
    expect(post(address, &[], "{\"n\":1}"), 503);
    let printed = process.printed();
    process.wait_until("the failure", || printed().contains("restarts in"));
    process.signal("TERM");
    let output = process.finish();
    let said = "the senders of the remaining ones got no confirmation, and repeat them";
    assert!(output.both().contains(said), "{}", output.both());
}

#[test]
fn silent_clients_do_not_keep_others_out() {
    let workspace = Workspace::new();
    let settings = "          address: 127.0.0.1:0\n          limits.connections: 3\n          readTimeout: 1h";
    let (_process, address) = start(&workspace, settings, TO_FILE);
    let mut silent: Vec<_> = (0..6).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    // Some have begun a request.
    for stream in &mut silent[..2] {
        stream.write_all(b"POST / HTTP/1.1\r\nHost:").unwrap();
    }
    for n in 0..4 {
        expect(post(address, &[], format!("{{\"n\":{n}}}")), 200);
    }
    assert_eq!(afters(&workspace).len(), 4);
}

#[test]
fn a_client_without_a_request_is_disconnected_after_a_time() {
    let workspace = Workspace::new();
    let (_process, address) = start(&workspace, &format!("{ANY_PORT}\n          readTimeout: 200ms"), TO_FILE);
    let mut silent = std::net::TcpStream::connect(address).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    std::io::Read::read_to_end(&mut silent, &mut answer).unwrap();
}

/// Time between two kills, in milliseconds.
const LIFE: std::ops::Range<u64> = 5..400;
const KILLS: usize = 8;
const CLIENTS: u64 = 4;

#[test]
fn what_was_answered_with_200_is_never_lost() {
    let (kills, mut random) = choices(KILLS);
    let port = Port::hold();
    let address = SocketAddr::from(([127, 0, 0, 1], port.number()));
    let workspace = Workspace::new();
    let settings = format!("          address: {address}\n          format: array");
    workspace.write("pipelines/p.yaml", pipeline(&settings, TO_FILE));
    let (is_over, numbers) = (AtomicBool::new(false), AtomicU64::new(0));
    // Clients that repeat a request until it is confirmed, and the numbers of their confirmed records.
    let client = || {
        let mut confirmed = Vec::new();
        while !is_over.load(Ordering::SeqCst) {
            let first = numbers.fetch_add(2, Ordering::SeqCst);
            let body = format!("[{{\"n\":{first}}},{{\"n\":{}}}]", first + 1);
            while !is_over.load(Ordering::SeqCst) {
                match post(address, &[], &body) {
                    Ok(Answer { status: 200, .. }) => {
                        confirmed.extend([first, first + 1]);
                        break;
                    }
                    // Nobody listens while the service starts.
                    _ => thread::sleep(Duration::from_millis(2)),
                }
            }
        }
        confirmed
    };
    let confirmed: Vec<u64> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        for _ in 0..kills {
            let process = workspace.start(&["run"]);
            let started = Instant::now();
            while std::net::TcpStream::connect(address).is_err() && started.elapsed() < PATIENCE {
                thread::sleep(Duration::from_millis(2));
            }
            wait(&mut random, LIFE);
            process.signal("KILL");
            let output = process.finish();
            assert_eq!(output.code(), None, "it ended before it was killed: {}", output.both());
        }
        is_over.store(true, Ordering::SeqCst);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let delivered: BTreeSet<u64> = afters(&workspace).iter().map(|after| after["n"].as_u64().unwrap()).collect();
    let lost: Vec<&u64> = confirmed.iter().filter(|number| !delivered.contains(number)).collect();
    assert!(lost.is_empty(), "confirmed and lost: {lost:?}");
    assert!(!confirmed.is_empty());
    say(&format!("killed {kills} times: none of {} confirmed records lost", confirmed.len()));
}

#[test]
fn refused_requests_are_counted_by_their_reason() {
    let mut workspace = Workspace::new();
    workspace.env("TOKEN", "hush");
    let settings = "          address: 127.0.0.1:0\n          auth.bearer: ${TOKEN}\n          limits.bodyBytes: 1KiB";
    workspace.write("pipelines/p.yaml", pipeline(settings, TO_FILE));
    let mut process = workspace.start(&["run", "--api.http.address", "127.0.0.1:0"]);
    let address = process.address_after("records are received at http://");
    let token = ("Authorization", "Bearer hush");
    expect(post(address, &[], "{}"), 401);
    expect(post(address, &[("Authorization", "Bearer other")], "{}"), 401);
    expect(post(address, &[token], "x".repeat(2000)), 413);
    expect(exchange(address, &request("POST", "/other", &[token], b"{}")), 404);
    expect(post(address, &[token], "{}"), 200);
    let metric = "anabranch_source_requests_refused_total{pipeline=\"p\",connector=\"in\",reason=";
    let api = process.address();
    process.wait_until("the counts", || {
        let text = get(api, "/metrics").body;
        let number = |reason: &str| text.lines().any(|line| line == format!("{metric}{reason}"));
        ["\"authentication\"} 2", "\"size\"} 1", "\"path\"} 1", "\"back-pressure\"} 0"].into_iter().all(number)
    });
}

#[test]
fn two_sources_at_one_address_are_found_before_they_start() {
    let workspace = Workspace::new();
    let at = |id: &str, address: &str| {
        pipeline(&format!("          address: {address}"), "{ id: out, type: destination, plugin: drop }")
            .replace("id: p\n", &format!("id: {id}\n"))
    };
    workspace.write("pipelines/a.yaml", at("a", "127.0.0.1:18080"));
    for (address, code) in [("127.0.0.1:18081", 0), ("127.0.0.1:0", 0), ("127.0.0.1:18080", 2), ("'0.0.0.0:18080'", 2)]
    {
        workspace.write("pipelines/b.yaml", at("b", address));
        let output = workspace.run(&["pipelines", "validate"]).expect_code(code).both();
        assert_eq!(output.contains("plan.input_taken"), code == 2, "{address}: {output}");
    }
    // Of two pipelines of which one is stopped, the service starts one.
    let stopped = at("b", "127.0.0.1:18080").replace("id: b\n", "id: b\n    status: stopped\n");
    workspace.write("pipelines/b.yaml", stopped);
    let output = workspace.run(&["pipelines", "validate"]).expect_code(0).both();
    assert!(output.contains("warning[plan.input_taken]"), "{output}");
}
