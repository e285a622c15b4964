//! A power failure: what the system was told to keep, in which order. A trace of the system calls shows what a disk has
//! at any moment at which the power goes.

use std::fs;
use std::process::Command;

use crate::process::{Process, Workspace, base64_decode, numbered_lines, skip};

const CALLS: &str = "trace=openat,write,writev,pwrite64,pwritev,ftruncate,fsync,fdatasync,sync_file_range";

/// A call that ended, or began and ended.
struct Call {
    /// Lines of the trace: where it began, where it ended.
    began: usize,
    ended: usize,
    name: String,
    /// The path of its first argument, and the rest.
    path: String,
    rest: String,
    result: i64,
}

/// The calls of a trace with `-f -y`, in the order of their ends.
fn calls(trace: &str) -> Vec<Call> {
    let mut open: Vec<(&str, usize, &str)> = Vec::new();
    let mut calls = Vec::new();
    for (at, line) in trace.lines().enumerate() {
        let Some((pid, text)) = line.split_once(char::is_whitespace) else { continue };
        let text = text.trim_start();
        if let Some(begun) = text.strip_suffix("<unfinished ...>") {
            open.push((pid, at, begun));
            continue;
        }
        let (began, call, tail) = match text.strip_prefix("<... ") {
            Some(resumed) => {
                let Some(place) = open.iter().position(|(of, ..)| *of == pid) else { continue };
                let (_, began, begun) = open.remove(place);
                (began, begun, resumed)
            }
            None => (at, text, text),
        };
        let Some((name, arguments)) = call.split_once('(') else { continue };
        let Some(result) = tail.rsplit_once(" = ").and_then(|(_, result)| {
            result.split_whitespace().next().and_then(|number| number.split('<').next()?.parse().ok())
        }) else {
            continue;
        };
        let path = arguments.split_once('<').and_then(|(_, path)| path.split_once('>')).map_or("", |(path, _)| path);
        calls.push(Call {
            began,
            ended: at,
            name: name.to_owned(),
            path: path.to_owned(),
            rest: arguments.to_owned(),
            result,
        });
    }
    calls
}

/// Runs lines to a file, and returns what was traced with the bytes of the stored position.
fn traced(durability: &str) -> Option<(Workspace, Vec<Call>, Vec<u8>)> {
    let may_trace = Command::new("strace").args(["-f", "-e", "trace=write", "true"]).output();
    if !may_trace.is_ok_and(|output| output.status.success()) {
        skip("strace is not installed, or may not trace");
        return None;
    }
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(300));
    let pipeline = crate::process::file_to_file("p", "")
        .replace("path: out.ndjson", &format!("path: out.ndjson\n          durability: {durability}"));
    workspace.write("pipelines/p.yaml", pipeline);
    let service = workspace.command(["run", "--once"]);
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-xx", "-s", "65536", "-e", CALLS, "-o", "trace"]);
    command.arg(service.get_program()).args(service.get_args()).current_dir(workspace.root()).env_clear();
    command.envs(service.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Process::spawn(&mut command).finish().expect_code(0);
    let shown = workspace.run(&["positions", "show", "--json"]).expect_code(0).stdout;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let position = find(&shown, "position").expect("a position").to_owned();
    let bytes = match position.strip_prefix("base64:") {
        Some(encoded) => base64_decode(encoded),
        None => position.into_bytes(),
    };
    let trace = fs::read_to_string(workspace.path("trace")).unwrap();
    Some((workspace, calls(&trace), bytes))
}

/// The text of a member of this name, wherever it is.
fn find<'a>(value: &'a serde_json::Value, name: &str) -> Option<&'a str> {
    match value {
        serde_json::Value::Object(fields) => match fields.get(name) {
            Some(serde_json::Value::String(text)) => Some(text),
            _ => fields.values().find_map(|value| find(value, name)),
        },
        serde_json::Value::Array(items) => items.iter().find_map(|value| find(value, name)),
        _ => None,
    }
}

/// Bytes as `strace -xx` writes them.
fn shown(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect()
}

/// The output that a power failure leaves at the moment at which the store begins to write the last position: the
/// bytes that were written, and those of them that were synced.
fn at_the_position(workspace: &Workspace, calls: &[Call], position: &[u8]) -> (i64, i64) {
    let out = shown(workspace.path("out.ndjson").canonicalize().unwrap().as_os_str().as_encoded_bytes());
    let is_out = |call: &&Call| call.path == out || call.path.ends_with("/out.ndjson");
    let stored = calls
        .iter()
        .filter(|call| call.name.contains("write") && !is_out(call) && call.rest.contains(&shown(position)))
        .map(|call| call.began)
        .min()
        .expect("the position is stored");
    let written = |before: usize| -> i64 {
        calls
            .iter()
            .filter(is_out)
            .filter(|call| call.name.contains("write") && call.ended < before)
            .map(|c| c.result)
            .sum()
    };
    let syncs = calls.iter().filter(is_out).filter(|call| call.name.ends_with("sync") && call.result == 0);
    // A sync keeps what was written before it began, and has done so when it ends.
    let synced = syncs.filter(|call| call.ended < stored).map(|call| written(call.began)).max().unwrap_or(0);
    (written(stored), synced)
}

#[test]
fn what_is_acknowledged_survives_a_power_failure() {
    let Some((workspace, calls, position)) = traced("disk") else { return };
    let whole = workspace.read("out.ndjson").len() as i64;
    assert_eq!(
        at_the_position(&workspace, &calls, &position),
        (whole, whole),
        "written and synced before the position"
    );
    // The name of the file as well.
    let directory = workspace.root().canonicalize().unwrap();
    let directory = directory.to_str().unwrap();
    let names = [directory.to_owned(), shown(directory.as_bytes())];
    let synced = |call: &&Call| call.name == "fsync" && names.contains(&call.path) && call.result == 0;
    assert!(calls.iter().any(|call| synced(&call)), "the directory of the new file is synced");
}

/// The default does not promise it, and the trace shows that it is not so: the check above could fail.
#[test]
fn without_durability_on_disk_it_may_not() {
    let Some((workspace, calls, position)) = traced("process") else { return };
    let whole = workspace.read("out.ndjson").len() as i64;
    assert_eq!(at_the_position(&workspace, &calls, &position), (whole, 0));
}
