//! A processor that a C compiler made: its start-up code, its library's memory and its buffered output are not ours.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{delivered, failures, pipeline};
use crate::process::{Output, Workspace, skip};

/// The compiled processor, or `None` where there is no compiler for it.
fn guest() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("target/zig/bin/python");
    if !python.exists() {
        skip("there is no C compiler for WebAssembly: `.ci/setup` installs one");
        return None;
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c-guest");
    std::fs::create_dir_all(&directory).unwrap();
    // Tests run beside each other: each has a file of its own, and the compiler keeps what it made.
    let to = tempfile::Builder::new().suffix(".wasm").tempfile_in(&directory).unwrap().into_temp_path();
    let to = to.keep().unwrap();
    let cache = directory.join("cache");
    let output = Command::new(python)
        .args(["-m", "ziglang", "cc", "--target=wasm32-wasi", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&to)
        .arg(root.join("tests/guests/guest.c"))
        .env("ZIG_GLOBAL_CACHE_DIR", &cache)
        .env("ZIG_LOCAL_CACHE_DIR", &cache)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(to)
}

/// Runs lines through the guest.
fn run(guest: &Path, processor: &str, lines: &[&str]) -> (Workspace, Output) {
    let mut workspace = Workspace::new();
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wasm");
    workspace.env("XDG_CACHE_HOME", cache.to_str().unwrap());
    workspace.write("processors/c.wasm", std::fs::read(guest).unwrap());
    workspace.write("in.txt", lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    workspace.write("pipelines/p.yaml", pipeline(processor));
    let output = workspace.run(&["run", "--once", "--preview.pipeline-arch-v2", "--log.format", "json"]);
    (workspace, output)
}

/// The mark that the guest gave each delivered record.
fn marks(workspace: &Workspace) -> Vec<String> {
    let lines = workspace.lines("out.ndjson");
    let mark = |line: &String| {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        record["metadata"]["c.mark"].as_str().unwrap_or_default().to_owned()
    };
    lines.iter().map(mark).collect()
}

#[test]
fn a_guest_in_c_marks_filters_refuses_and_multiplies() {
    let Some(guest) = guest() else { return };
    let long = "x".repeat(3_000_000);
    let lines = ["plain", "drop me", "bad one", "twice", &long, "last"];
    let (workspace, output) = run(&guest, "{ id: c, plugin: test.c }", &lines);
    let output = output.expect_code(0);
    assert_eq!(delivered(&workspace), ["plain", "twice", "twice", &long, "last"]);
    assert_eq!(marks(&workspace), ["yes", "first", "second", "yes", "yes"]);
    let failures = failures(&workspace);
    assert_eq!(failures.len(), 1);
    assert!(failures[0].contains("the guest in C refuses this"), "{failures:?}");
    let said = output.stdout.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let opened = said.filter(|line| line["message"].as_str().is_some_and(|message| message.starts_with("opened")));
    let levels: Vec<serde_json::Value> = opened.map(|line| line["level"].clone()).collect();
    assert_eq!(levels, ["warn"], "{}", output.stdout);

    let (workspace, output) = run(&guest, "{ id: c, plugin: test.c, settings: { mark: mine } }", &["a"]);
    output.expect_code(0);
    assert_eq!(marks(&workspace), ["mine"]);
    let (_, output) = run(&guest, "{ id: c, plugin: \"standalone:test.c@v1.2.3\", settings: { marc: x } }", &["a"]);
    assert!(output.expect_code(2).both().contains("mark"), "the setting that was meant is named");
    std::fs::remove_file(guest).unwrap();
}

#[test]
fn a_guest_in_c_that_exits_is_begun_anew() {
    let Some(guest) = guest() else { return };
    let (workspace, output) = run(&guest, "{ id: c, plugin: test.c }", &["a", "crash", "b"]);
    output.expect_code(0);
    assert_eq!(delivered(&workspace), ["a", "b"]);
    let failures = failures(&workspace);
    assert_eq!(failures.len(), 1);
    assert!(failures[0].contains('7'), "the exit code is named: {failures:?}");
    std::fs::remove_file(guest).unwrap();
}
