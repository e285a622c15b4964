//! The description of the API, and whether the service does what it says.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::api::{ask, end, get};
use crate::process::{PATIENCE, Workspace, file_to_file, skip};

const METHODS: [&str; 4] = ["get", "put", "post", "delete"];

/// Each operation: its path, its method and what is said of it.
fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().iter();
        methods.map(move |(method, operation)| {
            assert!(METHODS.contains(&method.as_str()), "{path}: {method}");
            (path.as_str(), method.as_str(), operation)
        })
    })
}

/// The names in a path.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// Collects the targets of all `$ref`.
fn references<'v>(value: &'v Value, found: &mut BTreeSet<&'v str>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn the_description_is_whole() {
    let document = serde_json::to_value(anabranch_api::openapi::document()).unwrap();
    let tags: Vec<&Value> = document["tags"].as_array().unwrap().iter().map(|tag| &tag["name"]).collect();
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let at = format!("{method} {path}");
        assert!(operation["summary"].is_string(), "{at} has no summary");
        let tag = &operation["tags"][0];
        assert!(tags.contains(&tag), "{at} has no known tag: {tag}");
        assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{at}: its id is not its own");
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let declared: BTreeSet<&str> = parameters.filter_map(|it| it["name"].as_str()).collect();
        for name in names(path) {
            assert!(declared.contains(name), "{at} does not declare {name}");
        }
    }
    assert!(ids.len() > 30, "{ids:?}");

    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.contains("#/components/schemas/Error"));
    for reference in found {
        assert!(document.pointer(&reference[1..]).is_some(), "{reference} leads nowhere");
    }
}

/// A path that is put into a router by hand would be in no description.
#[test]
fn all_paths_are_declared() {
    let mut left = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api/src")];
    let mut read = 0;
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        read += 1;
        // Pages for people are no part of what programs ask.
        if path.ends_with("src/ui.rs") || path.ends_with("src/viewer.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for by_hand in [".route(", ".nest(", "route_service("] {
            assert!(!text.contains(by_hand), "{} has a path that is not declared", path.display());
        }
    }
    assert!(read > 5);
}

#[test]
fn what_is_described_is_served() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\n");
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let serve: &[&str] = if cfg!(feature = "avro") { &["--schema-registry.serve"] } else { &[] };
    let mut process = workspace.start(&[&["run"], serve].concat());
    let address = process.address();
    process.wait_until("readiness", || get(address, "/readyz").status == 200);
    let answer = get(address, "/openapi.json");
    assert_eq!(answer.status, 200);
    let document = answer.json();
    for (path, method, _) in operations(&document) {
        let asked = names(path).fold(path.to_owned(), |path, name| path.replace(&format!("{{{name}}}"), "no-such"));
        let answer = ask(address, &method.to_uppercase(), &asked, "", "");
        for wrong in ["api.no_such_path", "api.no_such_method"] {
            assert!(!answer.body.contains(wrong), "{method} {asked}: {}", answer.body);
        }
        assert_ne!(answer.status, 405, "{method} {asked}: {}", answer.body);
    }
    for file in ["", "viewer.js", "viewer.css"] {
        let answer = get(address, &format!("/openapi/{file}"));
        assert_eq!(answer.status, 200, "{file}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert!(!answer.body.contains("https:") && !answer.body.contains("http:"), "{file} asks elsewhere");
    }
    assert_eq!(get(address, "/openapi").header("location"), Some("/openapi/"));
    end(process);
}

#[test]
fn answers_are_numbered_and_indented_for_people() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\n");
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    let answer = ask(address, "GET", "/v1/info", "X-Request-ID: mine\r\n", "");
    assert_eq!(answer.header("x-request-id"), Some("mine"));
    assert!(!answer.body.contains('\n'));
    let (one, other) = (get(address, "/v1/info?pretty"), get(address, "/v1/none"));
    assert_eq!(one.json(), answer.json());
    assert!(one.body.contains("\n  \"os\""), "{}", one.body);
    let ids = [one.header("x-request-id").unwrap(), other.header("x-request-id").unwrap()];
    assert!(ids[0].len() == 32 && ids[0] != ids[1], "{ids:?}");
    end(process);
}

/// Everything that the description allows, and some that it does not: no answer is a 500, and every answer is as
/// described. `ANABRANCH_API_EXAMPLES=N` tries more, with another seed each time.
#[test]
fn every_answer_is_as_described() {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/schemathesis/bin/schemathesis");
    if !program.exists() {
        return skip("schemathesis is not installed; .ci/setup installs it");
    }
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\ntwo\n");
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    workspace
        .write("pipelines/stopped.yaml", file_to_file("stopped", "").replace("status: running", "status: stopped"));
    let failing = "      - { id: fails, plugin: error, settings: { message: no } }\n";
    workspace.write("pipelines/failing.yaml", file_to_file("failing", failing).replace("out.nd", "failing.nd"));
    let serve: &[&str] = if cfg!(feature = "avro") { &["--schema-registry.serve"] } else { &[] };
    let mut process = workspace.start(&[&["run"], serve].concat());
    let address = process.address();
    process.wait_until("readiness", || get(address, "/readyz").status == 200);
    let by_hand = std::env::var("ANABRANCH_API_EXAMPLES").ok();
    let mut command = Command::new(program);
    command.args(["run", &format!("http://{address}/openapi.json"), "--no-color", "--warnings=off"]);
    command.args(["--phases=examples,coverage,fuzzing", "--continue-on-failure", "--request-timeout=40"]);
    // A well-formed request may be rejected for its meaning, and an empty query parameter counts as absent.
    command.arg("--exclude-checks=positive_data_acceptance,negative_data_rejection");
    // These never end.
    command.arg("--exclude-path-regex=inspect");
    match &by_hand {
        Some(examples) => command.arg(format!("--max-examples={examples}")),
        None => command.args(["--max-examples=5", "--max-time=60", "--generation-deterministic"]),
    };
    // It ends by itself, on a busy machine late.
    let output = command.current_dir(workspace.root()).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(get(address, "/healthz").status, 200);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("Tested"), "{said}");
    process.signal("TERM");
    let log = process.finish();
    // The time limit decides in which state the failing pipeline is left.
    assert!(matches!(log.code(), Some(0 | 3)), "{}", log.both());
    assert!(!log.both().contains("panicked"), "{}", log.both());
}

const SECRET: &str = "hunter2-of-the-test";

/// A pipeline with a credential wherever one can stand.
fn full_of_secrets() -> String {
    let ask = "      - id: ask
        plugin: openai.textgen
        condition: '{{ eq .Metadata.none \"z\" }}'
        settings: { api_key: SECRET, developer_message: say, model: m }
";
    let connector = "      - id: database
        type: destination
        plugin: postgres
        settings: { url: 'postgres://me:SECRET@127.0.0.1:1/db', table: t }
";
    let mut text = file_to_file("p", if cfg!(feature = "ai") { ask } else { "" });
    if cfg!(feature = "postgres") {
        text = text.replacen("    processors:", &format!("{connector}    processors:"), 1);
    }
    text.replace("SECRET", SECRET)
}

#[test]
fn secrets_are_in_no_answer() {
    let mut workspace = Workspace::new();
    workspace.env("ANABRANCH_API_HTTP_TOKEN", "token-of-the-test");
    workspace.env("PASSWORD", SECRET);
    workspace.write("in.txt", "one\n");
    workspace.write("pipelines/p.yaml", full_of_secrets());
    workspace.write("pipelines/v.yaml", file_to_file("v", "").replace("path: in.txt", "path: '${PASSWORD}.txt'"));
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    process.wait_until("readiness", || get(address, "/readyz").status == 200);
    let token = "Authorization: Bearer token-of-the-test\r\n";
    let document = get(address, "/openapi.json").json();
    let ids = ["p", "v", "p:in", "p:out", "p:database", "p:ask", "1"];
    let mut seen = 0;
    for (path, method, operation) in operations(&document).filter(|(_, method, _)| *method == "get") {
        // Websockets go on for ever.
        if operation["responses"]["101"].is_object() {
            continue;
        }
        for id in ids {
            let asked = names(path).fold(path.to_owned(), |path, name| path.replace(&format!("{{{name}}}"), id));
            let answer = ask(address, "GET", &asked, token, "");
            assert!(!answer.body.contains(SECRET), "{method} {asked}: {}", answer.body);
            assert!(!answer.body.contains("token-of-the-test"), "{method} {asked}: {}", answer.body);
            seen += usize::from(answer.status == 200);
        }
        // Without the token, nothing but what is for everybody.
        let asked = names(path).fold(path.to_owned(), |path, name| path.replace(&format!("{{{name}}}"), "p"));
        let open = operation["security"].is_null();
        let answer = get(address, &asked);
        assert_eq!(answer.status == 401, !open, "{asked}: {}", answer.body);
        assert!(!answer.body.contains(SECRET), "{asked}: {}", answer.body);
    }
    assert!(seen > 20, "{seen}");
    process.signal("TERM");
    let log = process.finish();
    assert!(!log.both().contains(SECRET) && !log.both().contains("token-of-the-test"), "{}", log.both());
}

/// Whoever may not ask changes nothing, whatever the path looks like; and nothing outside of the API is reached.
#[test]
fn nothing_gets_past_the_door() {
    let mut workspace = Workspace::new();
    workspace.env("ANABRANCH_API_HTTP_TOKEN", "token-of-the-test");
    workspace.write("in.txt", "one\n");
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    process.wait_until("readiness", || get(address, "/readyz").status == 200);
    let document = get(address, "/openapi.json").json();
    let token = "Authorization: Bearer token-of-the-test\r\n";
    let foreign = format!("{token}Origin: https://evil.example\r\n");
    for (path, method, operation) in operations(&document) {
        let asked = names(path).fold(path.to_owned(), |path, name| path.replace(&format!("{{{name}}}"), "p"));
        let method = method.to_uppercase();
        if !operation["security"].is_null() {
            let answer = ask(address, &method, &asked, "", "{}");
            // The schema registry is not served here.
            let absent = operation["tags"][0] == "schema registry";
            assert!(answer.status == 401 || absent, "{method} {asked}: {}", answer.body);
        }
        assert_eq!(ask(address, &method, &asked, &foreign, "{}").reason(), "api.foreign_origin", "{method} {asked}");
        if operation["requestBody"].is_object() && operation["tags"][0] != "schema registry" {
            // A request with all pipeline files of a cluster may be larger.
            let limit = if operation["tags"][0] == "cluster" { 64 << 20 } else { 4 << 20 };
            let large = ask(
                address,
                &method,
                &asked,
                &format!("{token}Content-Type: application/json\r\n"),
                &" ".repeat(limit + 1),
            );
            assert_eq!(large.status, 413, "{method} {asked}: {}", large.body);
        }
    }
    for path in [
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/ui/../../etc/passwd",
        "/ui/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/openapi/../../etc/passwd",
        "/openapi/%2e%2e%2fviewer.js",
        "/v1/pipelines/..%2f..%2fetc%2fpasswd",
        "/v1/pipelines/%00",
        "/v1/pipelines/%ff",
        "//etc/passwd",
    ] {
        let answer = ask(address, "GET", path, token, "");
        assert!([400, 404].contains(&answer.status), "{path}: {} {}", answer.status, answer.body);
        assert!(!answer.body.contains("root:"), "{path}: {}", answer.body);
    }
    assert_eq!(get(address, "/healthz").status, 200);
    end(process);
}

/// Bytes that no client sends are rejected at once by the service and by the server for assistants, and affect nobody
/// else.
#[test]
fn floods_of_headers_are_refused() {
    let mut workspace = Workspace::new();
    workspace.env("ANABRANCH_MCP_TOKEN", "token-of-the-test");
    let mut service = workspace.start(&["run"]);
    let mut assistants = workspace.start(&["mcp", "--http", "127.0.0.1:0"]);
    let mcp = assistants.address_after("MCP is served at http://");
    for (address, path) in [(service.address(), "/v1/pipelines"), (mcp, "/mcp")] {
        let many: String = (0..10_000).map(|i| format!("X-{i}: {i}\r\n")).collect();
        let long = format!("X-Long: {}\r\n", "x".repeat(1 << 20));
        for flood in [many, long] {
            assert!(matches!(refused(address, path, &flood), None | Some(431)), "{path}: {} bytes", flood.len());
        }
        let far = format!("{path}?{}", "x".repeat(1 << 20));
        assert!(matches!(refused(address, &far, ""), None | Some(414 | 431)), "{path}");
        for malformed in ["X Y: z\r\n", "Content-Length: -1\r\n", "Transfer-Encoding: gzip\r\n"] {
            assert!(matches!(refused(address, path, malformed), None | Some(400)), "{path}: {malformed}");
        }
    }
    assert_eq!(get(service.address(), "/healthz").status, 200);
    end(service);
    end(assistants);
}

/// The status of the answer to a head that is sent as far as it is taken; `None` = the connection was closed, which may
/// overtake the answer.
fn refused(address: SocketAddr, path: &str, headers: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{headers}Connection: close\r\n\r\n");
    let writing = std::thread::spawn(move || {
        let _ = writer.write_all(head.as_bytes());
    });
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        answer.extend_from_slice(&buffer[..read]);
    }
    writing.join().unwrap();
    String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
}
