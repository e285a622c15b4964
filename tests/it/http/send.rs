//! The destination `http`: bodies, retries, idempotency keys, and results of single records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anabranch_ops_http::testing::{Received, Reply, Server};
use serde_json::Value;

use super::client::TlsProxy;
use crate::process::{Workspace, numbered_lines};
use crate::servers::certificates::Certificates;

/// A pipeline that sends each line of `in.txt` as `{"n": "LINE"}`, with these settings.
fn sending(url: &str, settings: &str) -> String {
    format!(
        r#"version: "2.2"
pipelines:
  - id: p
    connectors:
      - {{ id: in, type: source, plugin: file, settings: {{ path: in.txt }} }}
      - id: out
        type: destination
        plugin: http
        settings:
          request.url: {url}
          sdk.record.format: template
          sdk.record.format.options: '{{"n":{{{{ toJson (printf "%s" .Payload.After) }}}}}}'
{settings}
    dead-letter-queue:
      plugin: file
      settings: {{ path: dead.ndjson }}
      window-size: 0
"#
    )
}

fn workspace(lines: usize, url: &str, settings: &str) -> Workspace {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(lines));
    workspace.write("pipelines/p.yaml", sending(url, settings));
    workspace
}

fn numbers(body: &str) -> Vec<usize> {
    let number = |value: &Value| value["n"].as_str().unwrap().strip_prefix("line ").unwrap().parse().unwrap();
    match serde_json::from_str(body) {
        Ok(Value::Array(list)) => list.iter().map(number).collect(),
        _ => body.lines().map(|line| number(&serde_json::from_str(line).unwrap())).collect(),
    }
}

fn received(server: &Server) -> Vec<usize> {
    server.received().iter().flat_map(|request| numbers(&request.text())).collect()
}

#[test]
fn records_are_sent_in_order_and_retried() {
    let server = Server::start(|request| match request.number {
        3 => Reply::status(503, "busy"),
        5 => Reply::Close,
        7 => Reply::status(429, "slow down").with("Retry-After", "1"),
        _ => Reply::status(201, ""),
    });
    let settings = "          backoffRetry.min: 1ms\n          headers.X-Line: '{{ printf \"%s\" .Payload.After }}'";
    let workspace = workspace(10, &format!("{}/items", server.url()), settings);
    workspace.once();
    let requests = server.received();
    assert_eq!(requests.len(), 13);
    let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for request in &requests {
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/items"));
        assert_eq!(request.header("content-type"), Some("application/json"));
        let key = request.header("idempotency-key").unwrap().to_owned();
        keys.entry(key).or_default().insert(request.text());
        let line = format!("line {}", numbers(&request.text())[0]);
        assert_eq!(request.header("x-line"), Some(line.as_str()));
    }
    // A repetition has the key of the first attempt, and no two records share one.
    assert_eq!(keys.len(), 10);
    assert!(keys.values().all(|bodies| bodies.len() == 1));
    let mut order = received(&server);
    order.dedup();
    assert_eq!(order, (0..10).collect::<Vec<_>>());
}

#[test]
fn batches_are_arrays_or_lines() {
    for (batch, media) in [("array", "application/json"), ("ndjson", "application/x-ndjson")] {
        let server = Server::start(|_| Reply::ok(""));
        let settings = format!("          batch: {batch}\n          sdk.batch.size: 4");
        workspace(10, &server.url(), &settings).once();
        let requests = server.received();
        assert_eq!(requests.len(), 3, "{batch}");
        assert!(requests.iter().all(|request| request.header("content-type") == Some(media)));
        assert_eq!(received(&server), (0..10).collect::<Vec<_>>());
        assert_eq!(requests[0].text().starts_with('['), batch == "array");
    }
}

#[test]
fn a_batch_has_one_url() {
    let server = Server::start(|_| Reply::ok(""));
    let url = format!("'{}/{{{{ trimPrefix \"line \" (printf \"%s\" .Payload.After) | trunc 1 }}}}'", server.url());
    let workspace = workspace(12, &url, "          batch: array\n          sdk.batch.size: 12");
    workspace.once();
    let paths: Vec<(String, usize)> =
        server.received().iter().map(|request| (request.path.clone(), numbers(&request.text()).len())).collect();
    // 0 to 9 have a path each; 10 and 11 share that of 1.
    assert_eq!(paths.len(), 11, "{paths:?}");
    assert_eq!(paths.last().unwrap(), &("/1".to_owned(), 2));
}

#[test]
fn only_the_records_that_the_server_refuses_fail() {
    // Results of single records.
    let attempts = AtomicUsize::new(0);
    let server = Server::start(move |request| {
        let result = |number: &usize| match number {
            2 => r#"{"status":400,"error":"too odd"}"#.to_owned(),
            5 if attempts.fetch_add(1, Ordering::SeqCst) == 0 => r#"{"status":429}"#.to_owned(),
            _ => r#"{"status":201}"#.to_owned(),
        };
        let results: Vec<String> = numbers(&request.text()).iter().map(result).collect();
        Reply::ok(format!(r#"{{"items":[{}]}}"#, results.join(",")))
    });
    let settings = "          batch: ndjson\n          results.pointer: /items\n          backoffRetry.min: 1ms";
    let first = workspace(8, &server.url(), settings);
    first.once();
    let dead = first.read("dead.ndjson");
    assert_eq!(dead.lines().count(), 1, "{dead}");
    assert!(dead.contains("the server refuses the record with status 400: too odd"), "{dead}");
    assert_eq!(received(&server), [0, 1, 2, 3, 4, 5, 6, 7, 5]);

    // A status for the whole batch: the halves are sent, until the record is alone.
    let accepted = std::sync::Arc::new(Mutex::new(Vec::new()));
    let noted = accepted.clone();
    let server = Server::start(move |request| {
        let numbers = numbers(&request.text());
        if numbers.contains(&3) {
            return Reply::status(422, "3 is odd");
        }
        noted.lock().unwrap().extend(numbers);
        Reply::ok("")
    });
    let second = workspace(8, &server.url(), "          batch: array");
    second.once();
    assert_eq!(*accepted.lock().unwrap(), [0, 1, 2, 4, 5, 6, 7]);
    let dead = second.read("dead.ndjson");
    assert_eq!(dead.lines().count(), 1, "{dead}");
    assert!(dead.contains("3 is odd"), "{dead}");
}

#[test]
fn records_wait_for_a_server_that_is_away() {
    let server = Server::start(|request| if request.number < 9 { Reply::status(500, "") } else { Reply::ok("") });
    let settings = "          backoffRetry.count: 1\n          backoffRetry.min: 1ms";
    let workspace = workspace(3, &server.url(), settings);
    workspace.once();
    assert_eq!(workspace.read("dead.ndjson"), "");
    let mut delivered = received(&server).split_off(9);
    delivered.dedup();
    assert_eq!(delivered, [0, 1, 2]);
}

#[test]
fn records_are_sent_over_tls_only_to_a_server_that_the_authority_vouches_for() {
    let server = Server::start(|_| Reply::ok(""));
    let mut workspace = Workspace::new();
    let Some(certificates) = Certificates::create(workspace.root()) else { return };
    certificates.sign("server", "server", "DNS:localhost");
    certificates.self_signed("other", "another authority", "DNS:localhost");
    let proxy = TlsProxy::start(&certificates, "server", server.address());
    workspace.write("in.txt", numbered_lines(3));
    workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MAX_RETRIES", "0");
    let url = |host: &str| format!("https://{host}:{}/items", proxy.port());
    let retries = "          backoffRetry.count: 0";
    for (host, authority) in [
        // An authority that did not sign the certificate, none but those of the system, and another host.
        ("localhost", "\n          tls.ca: other.crt"),
        ("localhost", ""),
        ("127.0.0.1", "\n          tls.ca: ca.crt"),
    ] {
        workspace.write("pipelines/p.yaml", sending(&url(host), &format!("{retries}{authority}")));
        let refused = workspace.run(&["run", "--once"]).expect_code(1).both();
        assert!(refused.contains("the certificate "), "{host}{authority}: {refused}");
        assert!(server.received().is_empty(), "{host}{authority}");
    }
    workspace.write("pipelines/p.yaml", sending(&url("localhost"), &format!("{retries}\n          tls.ca: ca.crt")));
    workspace.once();
    assert_eq!(received(&server), [0, 1, 2]);
    assert_eq!(workspace.read("dead.ndjson"), "");
}

#[test]
fn a_restart_repeats_keys_and_not_records() {
    let mut keys: BTreeMap<String, String> = BTreeMap::new();
    let mut note = |requests: Vec<Received>| {
        for request in requests {
            let key = request.header("idempotency-key").unwrap().to_owned();
            let body = keys.entry(key).or_insert_with(|| request.text());
            assert_eq!(*body, request.text());
        }
        keys.len()
    };
    let server = Server::start(|request| if request.number < 20 { Reply::ok("") } else { Reply::Hang });
    let workspace = workspace(40, &server.url(), "");
    let mut process = workspace.start(&["run"]);
    process.wait_until("a request without answer", || server.received().len() > 20);
    process.signal("KILL");
    process.finish();
    assert_eq!(note(server.received()), 21);
    drop(server);
    let server = Server::start(|_| Reply::ok(""));
    workspace.write("pipelines/p.yaml", sending(&server.url(), ""));
    workspace.once();
    assert_eq!(note(server.received()), 40, "the repeated records have the keys of the first time");
}

#[test]
fn requests_of_one_key_keep_their_order() {
    let server = Server::start(|_| {
        std::thread::yield_now();
        Reply::ok("")
    });
    let settings = "          order: key\n          request.concurrency: 4";
    let workspace = workspace(60, &server.url(), settings);
    let keyed = sending(&server.url(), settings).replace(
        "    dead-letter-queue:",
        "    processors:\n      - { id: key, plugin: field.set, settings: { field: .Key, value: '{{ printf \"%s\" \
         .Payload.After | trunc 6 }}' } }\n    dead-letter-queue:",
    );
    workspace.write("pipelines/p.yaml", keyed);
    workspace.once();
    let mut of_key: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for number in received(&server) {
        of_key.entry(number.to_string()[..1].to_owned()).or_default().push(number);
    }
    assert_eq!(of_key.values().map(Vec::len).sum::<usize>(), 60);
    assert!(of_key.values().all(|numbers| numbers.is_sorted()), "{of_key:?}");
}

#[test]
fn a_wrong_pipeline_is_refused_before_the_first_record() {
    let refused = |settings: &str| {
        let workspace = workspace(1, "http://127.0.0.1:1", settings);
        workspace.run(&["pipelines", "validate", "pipelines/p.yaml"]).expect_code(2).both()
    };
    assert!(refused("          headers.Idempotency-Key: x").contains("another setting sets this header"));
    assert!(refused("          results.pointer: items").contains("this is not a JSON pointer"));
    assert!(refused("          auth.bearer: a\n          auth.username: b").contains("exclude each other"));
    assert!(refused("          headers.X: '{{ .Payload.After.id }}'").contains("headers.X"));
}
