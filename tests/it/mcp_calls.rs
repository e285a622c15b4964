//! `anabranch mcp` on standard input while calls run that take long: it hears, and what it starts ends.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::{PATIENCE, Workspace, file_to_file};

/// A server with its streams.
struct Spoken {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Spoken {
    fn start(workspace: &Workspace) -> Self {
        let mut child = workspace
            .command(["mcp"])
            .env("TMPDIR", workspace.path("tmp"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        Spoken { child, input, lines: BufReader::new(output).lines() }
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    /// A dry run that never ends by itself.
    fn call(&mut self, id: u32, config: &str, seconds: u32) {
        let arguments = json!({ "config": config, "timeoutSeconds": seconds });
        let parameters = json!({ "name": "dry_run", "arguments": arguments });
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": parameters }));
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }

    /// Waits until all of its descendants that run scripts are as many as wanted.
    fn wait_for_scripts(&self, wanted: usize) {
        wait(&format!("{wanted} scripts"), || descendants(self.child.id()).len() == wanted);
    }
}

impl Drop for Spoken {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The workers for scripts below a process, which run for longer than a moment.
fn descendants(of: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut parents = vec![of];
    let all: Vec<(u32, u32, String)> = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let id: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let (_, rest) = stat.rsplit_once(')')?;
            let mut fields = rest.split_whitespace();
            let state = fields.next()?.to_owned();
            Some((id, fields.next()?.parse().ok()?, state))
        })
        .collect();
    while let Some(parent) = parents.pop() {
        for (id, _, state) in all.iter().filter(|(_, of, _)| *of == parent) {
            parents.push(*id);
            let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            if state != "Z" && line.windows(10).any(|part| part == b"run-script") {
                found.push(*id);
            }
        }
    }
    found
}

fn is_alive(id: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{id}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}

fn endless(workspace: &Workspace) -> String {
    workspace.write("in.txt", "a\n");
    std::fs::create_dir(workspace.path("tmp")).unwrap();
    let script = "      - id: js\n        plugin: custom.javascript\n        settings:\n          timeout: 600s\n          \
                  script: 'function process(rec) { while (true) {} }'\n";
    file_to_file("p", script)
}

#[test]
fn a_client_is_heard_while_calls_run() {
    let workspace = Workspace::new();
    let config = endless(&workspace);
    let mut server = Spoken::start(&workspace);
    for id in 0..6 {
        server.call(id, &config, 20);
    }
    server.wait_for_scripts(4);
    server.say(&json!({ "jsonrpc": "2.0", "id": 99, "method": "ping" }));
    assert_eq!(server.next()["id"], 99, "it is answered before any of the calls");
    // A call that is cancelled ends with all it started, and is not answered; those that wait are never begun.
    for id in 0..6 {
        let cancelled = json!({ "requestId": id, "reason": "not needed" });
        server.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled }));
    }
    server.wait_for_scripts(0);
    server.say(&json!({ "jsonrpc": "2.0", "id": 100, "method": "ping" }));
    assert_eq!(server.next()["id"], 100);
    server.input = None;
    assert!(server.child.wait().unwrap().success());
    assert!(server.lines.next().is_none(), "a cancelled call was answered");
}

#[test]
fn what_calls_started_ends_with_the_server() {
    for end in ["input", "TERM", "KILL"] {
        let workspace = Workspace::new();
        let config = endless(&workspace);
        let mut server = Spoken::start(&workspace);
        server.call(1, &config, 20);
        server.call(2, &config, 20);
        server.wait_for_scripts(2);
        let scripts = descendants(server.child.id());
        // The text of a pipeline may hold credentials: it is in no file that others could read, or that stays behind.
        let left = std::fs::read_dir(workspace.path("tmp")).unwrap().flatten().map(|entry| entry.path());
        assert_eq!(left.collect::<Vec<_>>(), Vec::<std::path::PathBuf>::new());
        match end {
            "input" => {
                server.input = None;
                assert!(server.child.wait().unwrap().success());
            }
            signal => {
                let signal =
                    if signal == "TERM" { rustix::process::Signal::TERM } else { rustix::process::Signal::KILL };
                let id = rustix::process::Pid::from_raw(server.child.id().cast_signed()).unwrap();
                rustix::process::kill_process(id, signal).unwrap();
                server.child.wait().unwrap();
            }
        }
        wait(&format!("the scripts to end after {end}"), || !scripts.iter().any(|id| is_alive(*id)));
    }
}

#[test]
fn a_dry_run_that_times_out_leaves_no_script_behind() {
    let workspace = Workspace::new();
    let config = endless(&workspace);
    let mut server = Spoken::start(&workspace);
    server.call(1, &config, 1);
    let answer = server.next();
    let told = &answer["result"]["structuredContent"];
    // On a busy machine not even the record is read in time.
    let code = told["error"]["code"].as_str().unwrap_or_default();
    assert!(["dry_run.timed_out", "dry_run.nothing_read"].contains(&code), "{answer}");
    server.wait_for_scripts(0);
}

#[test]
fn messages_that_are_not_answered_are_told_why() {
    let workspace = Workspace::new();
    let _ = endless(&workspace);
    let mut server = Spoken::start(&workspace);
    let long = "x".repeat(5 << 20);
    server.say(&json!({ "id": 7, "jsonrpc": "2.0", "method": "ping", "params": { "a": long } }));
    let answer = server.next();
    assert_eq!(answer["id"], 7, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("longer than 4 MiB"), "{answer}");
    // Revision 2025-03-26 has batches; the notification among them is not answered.
    let ping = |id: u32| json!({ "jsonrpc": "2.0", "id": id, "method": "ping" });
    server.say(&json!([ping(1), { "jsonrpc": "2.0", "method": "notifications/initialized" }, ping(2)]));
    let answers = server.next();
    let ids: Vec<&Value> = answers.as_array().unwrap().iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [1, 2], "{answers}");
}
