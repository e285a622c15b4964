//! `anabranch mcp`: by the book, over HTTP, and with a client that others wrote.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::api::{Answer, ask, get};
use crate::api_lifecycle::Service;
use crate::process::{Process, Workspace, file_to_file, numbered_lines, raw_after, skip};

const META: &str = "io.modelcontextprotocol";

/// Asks one thing after the other over standard input, and gives the results.
#[track_caller]
pub fn asked(workspace: &Workspace, flags: &[&str], requests: &[(&str, Value)]) -> Vec<Value> {
    let mut child = workspace
        .command([&["mcp"], flags].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut lines = BufReader::new(output).lines();
    let mut results = Vec::new();
    for (id, (method, parameters)) in requests.iter().enumerate() {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": parameters });
        writeln!(input, "{message}").unwrap();
        let answer: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(answer["id"], id, "{answer}");
        results.push(answer);
    }
    // The end of the input is the end.
    drop(input);
    assert!(child.wait().unwrap().success());
    results
}

pub fn call(name: &str, arguments: &Value) -> (&'static str, Value) {
    ("tools/call", json!({ "name": name, "arguments": arguments }))
}

fn told(answer: &Value) -> &Value {
    &answer["result"]["structuredContent"]
}

#[test]
fn pipelines_are_checked_and_tried() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\ntwo\n");
    let good =
        file_to_file("p", "      - { id: tag, plugin: field.set, settings: { field: .Metadata.a, value: b } }\n");
    let bad = good.replace("field.set", "field.sett");
    let requests = [
        ("initialize", json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {} })),
        ("tools/list", json!({})),
        call("validate", &json!({ "config": good })),
        call("validate", &json!({ "config": bad })),
        call("plan", &json!({ "config": good })),
        call("dry_run", &json!({ "config": good, "records": 2 })),
        call("processors", &json!({ "name": "split" })),
        call("explain_error", &json!({ "code": "plan.unknown_plugin" })),
        call("validate", &json!({ "path": "/etc/passwd" })),
        call("plan", &json!({ "id": "../in.txt" })),
        call("connectors", &json!({ "name": "--help" })),
        call("start", &json!({ "id": "p" })),
        call("pipelines_describe", &json!({ "id": "p" })),
    ];
    let answers = asked(&workspace, &[], &requests);
    let [hello, tools, valid, invalid, plan, run, split, explained, path, outside, flag, start, _] = answers.as_slice()
    else {
        panic!("{answers:?}")
    };
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
    let tools = tools["result"]["tools"].as_array().unwrap();
    for tool in tools {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{tool}");
        assert!(jsonschema::validator_for(&tool["inputSchema"]).is_ok(), "{tool}");
    }
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    for name in ["validate", "lint", "plan", "dry_run", "test", "inspect", "doctor", "dead_letters_list"] {
        assert!(names.contains(&name), "{names:?}");
    }
    for name in ["apply", "start", "stop", "backfill", "dead_letters_replay", "dead_letters_purge", "positions_reset"] {
        assert!(!names.contains(&name), "{names:?}");
    }
    assert_eq!((&told(valid)["ok"], &valid["result"]["isError"]), (&json!(true), &json!(false)), "{valid}");
    assert_eq!((&told(invalid)["ok"], &invalid["result"]["isError"]), (&json!(false), &json!(true)), "{invalid}");
    let finding = &told(invalid)["result"]["files"][0]["findings"][0];
    assert_eq!((&finding["code"], &finding["file"]), (&json!("plan.unknown_plugin"), &json!("pipeline.yaml")));
    assert!(told(plan)["result"]["plans"][0].is_object(), "{plan}");
    assert_eq!(told(run)["ok"], true, "{run}");
    assert!(!workspace.path("out.ndjson").exists());
    assert_eq!(told(split)["result"]["name"], "split");
    assert!(told(explained)["result"]["advice"].is_string(), "{explained}");
    assert_eq!(told(path)["error"]["code"], "mcp.invalid_arguments");
    assert_eq!(told(outside)["error"]["code"], "mcp.invalid_arguments");
    assert_eq!(told(flag)["error"]["code"], "plugins.unknown", "{flag}");
    assert_eq!(start["error"]["code"], -32602, "{start}");
}

#[test]
fn a_newer_client_needs_no_handshake() {
    let workspace = Workspace::new();
    let meta = json!({ "_meta": {
        format!("{META}/protocolVersion"): "2026-07-28", format!("{META}/clientCapabilities"): {},
    } });
    let answers = asked(&workspace, &["--allow-mutations"], &[("server/discover", meta.clone()), ("tools/list", meta)]);
    assert_eq!(answers[0]["result"]["resultType"], "complete");
    assert!(answers[0]["result"]["supportedVersions"].as_array().unwrap().contains(&json!("2026-07-28")));
    let tools = answers[1]["result"]["tools"].as_array().unwrap();
    let effect = |name: &str, hint: &str| {
        tools.iter().find(|tool| tool["name"] == name).map(|tool| tool["annotations"][hint].clone()).unwrap()
    };
    assert_eq!(effect("plan", "readOnlyHint"), true);
    assert_eq!(effect("start", "readOnlyHint"), false);
    assert_eq!(effect("dead_letters_purge", "destructiveHint"), true);
}

/// A server at an address.
fn listening(workspace: &Workspace) -> (Process, SocketAddr) {
    let mut process = Process::spawn(
        workspace.command(["mcp", "--http", "127.0.0.1:0"]).env("ANABRANCH_MCP_TOKEN", "secret-of-the-test"),
    );
    let address = process.address_after("MCP is served at http://");
    (process, address)
}

fn post(address: SocketAddr, headers: &str, message: &Value) -> Answer {
    ask(address, "POST", "/mcp", &format!("Content-Type: application/json\r\n{headers}"), &message.to_string())
}

#[test]
fn over_http_a_token_is_needed() {
    let workspace = Workspace::new();
    let refused = workspace.run(&["mcp", "--http", "127.0.0.1:0"]).expect_code(2);
    assert!(refused.stderr.contains("--token-file"), "{}", refused.stderr);
    let (process, address) = listening(&workspace);
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    const TOKEN: &str = "Authorization: Bearer secret-of-the-test\r\n";
    assert_eq!(post(address, "", &list).status, 401);
    assert_eq!(post(address, "Authorization: Bearer other\r\n", &list).status, 401);
    assert_eq!(post(address, &format!("{TOKEN}Origin: https://evil.example\r\n"), &list).status, 403);
    let answer = post(address, TOKEN, &list);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.json()["result"]["tools"].as_array().unwrap().len() > 10);
    assert_eq!(ask(address, "GET", "/mcp", TOKEN, "").status, 405);
    let told = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(post(address, TOKEN, &told).status, 202);
    let mut modern = list;
    modern["params"] = json!({ "_meta": {
        format!("{META}/protocolVersion"): "2026-07-28", format!("{META}/clientCapabilities"): {},
    } });
    let mismatch = post(address, TOKEN, &modern);
    assert_eq!((mismatch.status, &mismatch.json()["error"]["code"]), (400, &json!(-32020)));
    let headers = format!("{TOKEN}MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n");
    assert_eq!(post(address, &headers, &modern).json()["result"]["resultType"], "complete");
    let large = ask(address, "POST", "/mcp", TOKEN, &" ".repeat((4 << 20) + 1));
    assert_eq!(large.status, 413);
    process.signal("INT");
    process.finish().expect_code(0);
}

/// A script for the Python SDK; `None` = it is not there.
fn script(name: &str) -> Option<Command> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("target/mcp/bin/python");
    if !python.exists() {
        skip("the Python SDK of the Model Context Protocol is not installed; .ci/setup installs it");
        return None;
    }
    let mut command = Command::new(python);
    command.arg(root.join("tests/consumers").join(name)).arg(env!("CARGO_BIN_EXE_anabranch"));
    Some(command)
}

#[test]
fn a_client_that_others_wrote_gets_along() {
    let Some(mut command) = script("mcp_client.py") else { return };
    let workspace = Workspace::new();
    workspace.write("pipeline.txt", file_to_file("p", ""));
    command.arg("pipeline.txt").current_dir(workspace.root());
    command.env("ANABRANCH_API_HTTP_ADDRESS", "127.0.0.1:1");
    let output = Process::spawn(&mut command).finish().expect_code(0);
    assert!(output.stdout.contains("validated"), "{}", output.both());
}

#[test]
fn a_running_service_is_watched_and_changed() {
    const TOKEN: &str = "secret-of-the-test";
    let orders = r#"      - { id: tag, plugin: field.set, settings: { field: .Metadata.seen, value: "yes" } }
      - id: refuse
        plugin: error
        condition: '{{ hasSuffix "7" (printf "%s" .Payload.After) }}'
        settings: { message: 'refused {{ printf "%s" .Payload.After }}' }
    dead-letter-queue: { plugin: store, window-size: 0 }
"#;
    for over_http in [false, true] {
        let mut workspace = Workspace::new();
        workspace.write("in.txt", numbered_lines(30));
        workspace.write("pipelines/orders.yaml", file_to_file("orders", orders));
        let mut service = Service::start(&workspace);
        let address = service.address;
        let letters = || get(address, "/v1/pipelines/orders/dead-letters").json()["count"] == 3;
        service.process.wait_until("the lines", || workspace.lines("out.ndjson").len() == 27 && letters());
        workspace.env("ANABRANCH_API_HTTP_ADDRESS", &address.to_string());
        workspace.env("ANABRANCH_MCP_TOKEN", TOKEN);
        for (what, flags, done) in [("look", &[][..], "looked"), ("mutations", &["--allow-mutations"], "changed")] {
            let Some(mut command) = script("mcp_service.py") else { return };
            command.current_dir(workspace.root()).env("ANABRANCH_API_HTTP_ADDRESS", address.to_string());
            let mut server = None;
            if over_http {
                let arguments = [&["mcp", "--http", "127.0.0.1:0"], flags].concat();
                let server = server.insert(workspace.start(&arguments));
                let at = server.address_after("MCP is served at http://");
                command.arg(format!("http://{at}/mcp")).env("ANABRANCH_MCP_TOKEN", TOKEN);
            } else {
                command.arg("stdio");
            }
            let output = Process::spawn(command.arg(what)).finish().expect_code(0);
            assert!(output.stdout.contains(done), "{}", output.both());
            if let Some(server) = server {
                // As systemd ends it.
                server.signal("TERM");
                let printed = server.finish().expect_code(0).both();
                assert!(!printed.contains(TOKEN), "{printed}");
            }
        }
        // Everything was read again. Of the three that were refused two came by replay, and what was purged not at all.
        let times = |wanted: &str| {
            let arrived = workspace.lines("out.ndjson");
            arrived.iter().filter(|line| raw_after(line) == wanted).count()
        };
        service.process.wait_until("the lines again", || times("line 29") == 2);
        service.end();
        assert_eq!(["line 7", "line 17", "line 27", "line 8"].map(times), [1, 1, 0, 2]);
    }
}

/// No call keeps the tools to itself, whatever its arguments are.
#[test]
fn tests_end_in_time_and_read_no_file() {
    let workspace = Workspace::new();
    workspace.write("secret.txt", "hunter2\n");
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let config = file_to_file("p", "");
    let hangs =
        "tests: [{ name: a, input: [x], expect: { records: 1 }, timeout: 1000h, faults: [{ at: out, hang: true }] }]";
    let reads = "tests: [{ name: a, input: [{ lines: secret.txt }], expect: { records: [] } }]";
    let passes = "tests: [{ name: a, input: [x], expect: { records: 1 } }]";
    let answers = asked(
        &workspace,
        &[],
        &[
            call("test", &json!({ "config": config, "tests": hangs })),
            call("test", &json!({ "config": config, "tests": reads })),
            call("test", &json!({ "config": config, "tests": passes })),
            call("plan", &json!({ "id": "secret.txt" })),
            call("plan", &json!({ "id": "pipelines" })),
        ],
    );
    let [hung, read, passed, file, directory] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!(told(hung)["error"]["code"], "test.not_run", "{hung}");
    assert_eq!(told(read)["ok"], false, "{read}");
    assert!(!read.to_string().contains("hunter2"), "{read}");
    assert_eq!((&told(passed)["ok"], &told(passed)["summary"]["passed"]), (&json!(true), &json!(1)), "{passed}");
    for answer in [file, directory] {
        assert_eq!(told(answer)["error"]["code"], "mcp.invalid_arguments", "{answer}");
    }
}

#[test]
fn warnings_are_errors_where_it_is_asked() {
    let workspace = Workspace::new();
    let config = file_to_file("p", "").replace("status: running", "status: running\n    colour: blue");
    for (tool, done) in [("validate", true), ("lint", true), ("plan", true)] {
        let answers = asked(
            &workspace,
            &[],
            &[call(tool, &json!({ "config": config })), call(tool, &json!({ "config": config, "strict": true }))],
        );
        assert_eq!((&told(&answers[0])["ok"], &told(&answers[1])["ok"]), (&json!(done), &json!(false)), "{answers:?}");
    }
}
