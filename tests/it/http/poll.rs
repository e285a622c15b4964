//! The source `http.poll`: pages, cursors, tokens, and what a kill leaves.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anabranch_ops_http::testing::{Received, Reply, Server};
use serde_json::{Value, json};

use crate::fault_plan::{choices, say, wait};
use crate::process::Workspace;
use crate::servers::certificates::Certificates;

fn pipeline(url: &str, settings: &str) -> String {
    format!(
        r#"version: "2.2"
pipelines:
  - id: p
    connectors:
      - id: in
        type: source
        plugin: http.poll
        settings:
          request.url: {url}
          backoffRetry.min: 1ms
{settings}
      - {{ id: out, type: destination, plugin: file, settings: {{ path: out.ndjson }} }}
"#
    )
}

fn workspace(url: &str, settings: &str) -> Workspace {
    let workspace = Workspace::new();
    workspace.write("pipelines/p.yaml", pipeline(url, settings));
    workspace
}

/// The field `n` of the records that were delivered.
fn delivered(workspace: &Workspace) -> Vec<u64> {
    let number =
        |line: &String| serde_json::from_str::<Value>(line).unwrap()["payload"]["after"]["n"].as_u64().unwrap();
    workspace.lines("out.ndjson").iter().map(number).collect()
}

/// A parameter of the query of a request.
fn parameter(request: &Received, name: &str) -> Option<String> {
    let query = request.path.split_once('?')?.1;
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
}

fn items(numbers: impl IntoIterator<Item = u64>) -> Vec<Value> {
    numbers.into_iter().map(|n| json!({ "n": n })).collect()
}

/// A server, the settings to read it, and the number of requests that this takes.
type PagingCase = (fn(&Received) -> Reply, &'static str, usize);

#[test]
fn all_pages_are_read_in_each_kind_of_paging() {
    /// Answers the page of a request: 3 pages of 2 records.
    fn link(request: &Received) -> Reply {
        let page: u64 = parameter(request, "p").map_or(0, |text| text.parse().unwrap());
        let reply = Reply::ok(Value::from(items([2 * page, 2 * page + 1])).to_string());
        if page < 2 { reply.with("Link", &format!("</items?p={}>; rel=\"next\"", page + 1)) } else { reply }
    }
    fn url(request: &Received) -> Reply {
        let page: u64 = parameter(request, "p").map_or(0, |text| text.parse().unwrap());
        let next = (page < 2).then(|| format!("/items?p={}", page + 1));
        Reply::ok(json!({ "data": { "items": items([2 * page, 2 * page + 1]) }, "next": next }).to_string())
    }
    fn cursor(request: &Received) -> Reply {
        let page: u64 = parameter(request, "token").map_or(0, |text| text.parse().unwrap());
        let next = if page < 2 { json!(page + 1) } else { json!("") };
        Reply::ok(json!({ "data": { "items": items([2 * page, 2 * page + 1]) }, "next": next }).to_string())
    }
    fn offset(request: &Received) -> Reply {
        let offset: u64 = parameter(request, "offset").unwrap().parse().unwrap();
        assert_eq!(parameter(request, "limit").as_deref(), Some("4"));
        Reply::ok(Value::from(items(offset..(offset + 4).min(6))).to_string())
    }
    fn page(request: &Received) -> Reply {
        let page: u64 = parameter(request, "page").unwrap().parse().unwrap();
        Reply::ok(Value::from(items(2 * page - 2..(2 * page).min(6))).to_string())
    }
    let kinds: [PagingCase; 5] = [
        (link, "paging.kind: link", 3),
        (url, "paging.kind: url\n          paging.next: /next\n          records: /data/items", 3),
        (
            cursor,
            "paging.kind: cursor\n          paging.next: /next\n          paging.parameter: token\n          records: \
             /data/items",
            3,
        ),
        (offset, "paging.kind: offset\n          paging.size: 4\n          paging.sizeParameter: limit", 2),
        (page, "paging.kind: page", 4),
    ];
    for (answer, settings, requests) in kinds {
        let server = Server::start(answer);
        let workspace = workspace(&format!("{}/items", server.url()), &format!("          {settings}"));
        workspace.once();
        assert_eq!(delivered(&workspace), [0, 1, 2, 3, 4, 5], "{settings}");
        assert_eq!(server.received().len(), requests, "{settings}");
    }
}

#[test]
fn each_poll_asks_for_what_is_new() {
    let numbers = Arc::new(Mutex::new(vec![1_u64, 3, 2]));
    let stored = numbers.clone();
    let server = Server::start(move |request| {
        let since: u64 = parameter(request, "since").map_or(0, |text| text.parse().unwrap());
        let found = stored.lock().unwrap().iter().copied().filter(|n| *n > since).collect::<Vec<_>>();
        Reply::ok(Value::from(items(found)).to_string())
    });
    let settings = "          cursor.field: /n\n          cursor.parameter: since\n          key: /n";
    let workspace = workspace(&server.url(), settings);
    workspace.once();
    assert_eq!(delivered(&workspace), [1, 3, 2]);
    numbers.lock().unwrap().extend([4, 10, 9]);
    workspace.once();
    assert_eq!(delivered(&workspace), [1, 3, 2, 4, 10, 9]);
    workspace.once();
    assert_eq!(delivered(&workspace).len(), 6);
    let asked: Vec<_> = server.received().iter().map(|request| parameter(request, "since")).collect();
    assert_eq!(asked, [None, Some("3".to_owned()), Some("10".to_owned())]);
}

#[test]
fn an_unchanged_answer_is_not_delivered_again() {
    let server = Server::start(|request| match request.header("if-none-match") {
        Some("\"v1\"") => Reply::status(304, ""),
        _ => Reply::ok(r#"[{"n":1}]"#).with("ETag", "\"v1\""),
    });
    let workspace = workspace(&server.url(), "");
    for _ in 0..3 {
        workspace.once();
    }
    assert_eq!(delivered(&workspace), [1]);
    assert_eq!(server.received().len(), 3);
}

#[test]
fn polls_follow_their_schedule_and_the_wishes_of_the_server() {
    let server = Server::start(|request| match request.number {
        1 => Reply::status(503, "later").with("Retry-After", "1"),
        number => Reply::ok(json!([{ "n": number }]).to_string()),
    });
    let workspace = workspace(&server.url(), "          schedule.cron: '* * * * * *'");
    let mut process = workspace.start(&["run"]);
    process.wait_until("three polls", || delivered(&workspace).len() >= 3);
    assert_eq!(delivered(&workspace)[..3], [0, 2, 3]);
}

#[test]
fn a_token_is_kept_and_renewed_over_tls() {
    let mut workspace = Workspace::new();
    let Some(certificates) = Certificates::create(workspace.root()) else { return };
    certificates.sign("server", "server", "DNS:localhost");
    // The API accepts the second token only: the first has ended early.
    let tokens = Arc::new(AtomicUsize::new(0));
    let given = tokens.clone();
    let login = Server::start(move |request| {
        assert_eq!(request.header("content-type"), Some("application/x-www-form-urlencoded"));
        assert_eq!(
            request.text(),
            "grant_type=client_credentials&client_id=me&client_secret=hush%2Bsecret&scope=read+write"
        );
        let number = given.fetch_add(1, Ordering::SeqCst);
        Reply::ok(json!({ "access_token": format!("token-{number}"), "expires_in": 3600 }).to_string())
    });
    let api = Server::start(|request| match request.header("authorization") {
        Some("Bearer token-1") => Reply::ok(r#"[{"n":1}]"#),
        _ => Reply::status(401, ""),
    });
    let proxy = super::client::TlsProxy::start(&certificates, "server", api.address());
    workspace.env("CLIENT_SECRET", "hush+secret");
    let settings = format!(
        "          auth.oauth2.tokenURL: {}\n          auth.oauth2.clientID: me\n          \
         auth.oauth2.clientSecret: ${{CLIENT_SECRET}}\n          auth.oauth2.scope: read write\n          \
         schedule.interval: 1ms\n          tls.ca: ca.crt",
        login.url()
    );
    workspace.write("pipelines/p.yaml", pipeline(&format!("https://localhost:{}", proxy.port()), &settings));
    let mut process = workspace.start(&["run"]);
    process.wait_until("some polls", || delivered(&workspace).len() >= 3);
    assert_eq!(tokens.load(Ordering::SeqCst), 2);
    assert!(!process.printed()().contains("hush"));
}

#[test]
fn a_wrong_pipeline_is_refused_before_the_first_request() {
    let refused = |settings: &str| {
        let workspace = workspace("http://127.0.0.1:1", settings);
        workspace.run(&["pipelines", "validate", "pipelines/p.yaml"]).expect_code(2).both()
    };
    assert!(refused("          schedule.cron: '61 * * * *'").contains("this is not a cron expression"));
    assert!(refused("          schedule.cron: '1 * * * *'\n          schedule.timezone: Mars").contains("time zone"));
    assert!(refused("          paging.kind: cursor").contains("paging.next is required"));
    assert!(refused("          cursor.field: /n").contains("cursor.parameter is required"));
    assert!(refused("          headers.X: '{{ .Key }}'").contains("cannot have templates"));
    assert!(refused("          records: items").contains("this is not a JSON pointer"));
}

const KILLS: usize = 6;
/// Records of a page, and pages.
const SIZE: u64 = 40;
const PAGES: u64 = 25;

#[test]
fn a_kill_between_pages_loses_nothing() {
    let (kills, mut random) = choices(KILLS);
    let server = Server::start(|request| {
        let since: u64 = parameter(request, "since").map_or(0, |text| text.parse().unwrap());
        let first: u64 = parameter(request, "cursor").map_or(since + 1, |text| text.parse().unwrap());
        let end = (first + SIZE).min(PAGES * SIZE + 1);
        // A slow server, so that kills find polls between their pages.
        std::thread::sleep(std::time::Duration::from_millis(5));
        let next = (end <= PAGES * SIZE).then_some(end);
        Reply::ok(json!({ "items": items(first..end), "next": next }).to_string())
    });
    let settings = "          records: /items\n          paging.kind: cursor\n          paging.next: /next\n          \
                    cursor.field: /n\n          cursor.parameter: since\n          schedule.interval: 10ms";
    let mut workspace = workspace(&server.url(), settings);
    workspace.env("ANABRANCH_ENGINE_REPLAY_ROWS", "64");
    for _ in 0..kills {
        let asked = server.received().len();
        let mut process = workspace.start(&["run"]);
        process.wait_until("a request", || server.received().len() > asked);
        wait(&mut random, 0..150);
        process.signal("KILL");
        process.finish();
    }
    workspace.once();
    let all = delivered(&workspace);
    let distinct: BTreeSet<u64> = all.iter().copied().collect();
    assert_eq!(distinct.len() as u64, PAGES * SIZE, "records lost");
    say(&format!("killed {kills} times: no record lost, {} came again", all.len() - distinct.len()));
}
