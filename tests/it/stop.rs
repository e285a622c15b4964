//! Graceful stop, a second signal, and a stop that cannot finish.

use std::process::Command;

use crate::process::{Workspace, file_to_file, numbered_lines, raw_after};

#[test]
fn an_interrupt_drains_and_the_next_start_continues() {
    const LINES: usize = 300_000;
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(LINES));
    workspace.write("pipelines/p.yaml", file_to_file("stop", ""));
    for signal in ["INT", "TERM"] {
        let before = std::fs::metadata(workspace.path("out.ndjson")).map_or(0, |m| m.len());
        let mut process = workspace.start(&["run"]);
        let out = workspace.path("out.ndjson");
        process.wait_until("some output", || std::fs::metadata(&out).is_ok_and(|m| m.len() > before));
        process.signal(signal);
        process.finish().expect_code(0);
    }
    workspace.once();
    let out = workspace.lines("out.ndjson");
    assert_eq!(out.len(), LINES, "a clean stop doubles nothing");
    for (i, line) in out.iter().enumerate().step_by(1009) {
        assert_eq!(raw_after(line), format!("line {i}"));
    }
}

/// A destination that nobody reads: a pipe without a reader at its other end blocks the writer.
fn stuck() -> Workspace {
    let mut workspace = Workspace::new();
    workspace.env("ANABRANCH_SHUTDOWN_TIMEOUT", "1s");
    workspace.write("in.txt", numbered_lines(100_000));
    assert!(Command::new("mkfifo").arg(workspace.path("pipe")).status().unwrap().success());
    workspace.write("pipelines/p.yaml", file_to_file("stuck", "").replace("out.ndjson", "pipe"));
    workspace
}

#[test]
fn what_cannot_be_drained_is_named_and_replayed() {
    let workspace = stuck();
    // Opens the pipe and reads nothing.
    let mut reader = Command::new("sh")
        .arg("-c")
        .arg("exec 3<pipe; echo ready; read never")
        .current_dir(workspace.root())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut process = workspace.start(&["run", "--log.format=json"]);
    let mut ready = [0; 6];
    std::io::Read::read_exact(reader.stdout.as_mut().unwrap(), &mut ready).unwrap();
    // The pipeline is running once its store exists and claims; it cannot end by itself.
    let store = workspace.path("anabranch.db");
    process.wait_until("the store", || store.exists());
    std::thread::sleep(std::time::Duration::from_millis(300));
    process.signal("INT");
    let output = process.finish().expect_code(3);
    assert!(output.both().contains("stuck"), "names the pipeline: {}", output.both());
    let _ = reader.kill();
    let _ = reader.wait();
    // A reader that reads gets everything.
    let reader =
        Command::new("sh").arg("-c").arg("cat pipe > copy.ndjson").current_dir(workspace.root()).spawn().unwrap();
    workspace.once();
    let _ = { reader }.wait();
    let mut lines: Vec<String> = workspace.lines("copy.ndjson").iter().map(|l| raw_after(l)).collect();
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 100_000);
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut workspace = stuck();
    workspace.env("ANABRANCH_SHUTDOWN_TIMEOUT", "0");
    let mut reader = Command::new("sh")
        .arg("-c")
        .arg("exec 3<pipe; read never")
        .current_dir(workspace.root())
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let mut process = workspace.start(&["run"]);
        let store = workspace.path("anabranch.db");
        process.wait_until("the store", || store.exists());
        std::thread::sleep(std::time::Duration::from_millis(300));
        process.signal(signal);
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(process.is_running(), "waits for ever for what cannot be drained");
        process.signal(signal);
        process.finish().expect_code(code);
    }
    let _ = reader.kill();
    let _ = reader.wait();
}
