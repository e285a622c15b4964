//! Graceful stop, a second signal, and a stop that cannot finish.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::process::{Workspace, file_to_file, numbered_lines, raw_after};

#[test]
fn an_interrupt_drains_and_the_next_start_continues() {
    const LINES: usize = 150_000;
    let workspace = Workspace::new();
    workspace.write("in.txt", "");
    workspace.write("pipelines/p.yaml", file_to_file("stop", ""));
    for signal in ["INT", "TERM"] {
        // Whatever the run before came to, there is something to read.
        workspace.append("in.txt", &numbered_lines(LINES));
        let before = std::fs::metadata(workspace.path("out.ndjson")).map_or(0, |m| m.len());
        let mut process = workspace.start(&["run"]);
        let out = workspace.path("out.ndjson");
        process.wait_until("some output", || std::fs::metadata(&out).is_ok_and(|m| m.len() > before));
        process.signal(signal);
        process.finish().expect_code(0);
    }
    workspace.once();
    let out = workspace.lines("out.ndjson");
    assert_eq!(out.len(), 2 * LINES, "a clean stop doubles nothing");
    for (i, line) in out.iter().enumerate().step_by(1009) {
        assert_eq!(raw_after(line), format!("line {}", i % LINES));
    }
}

const LINES: usize = 40;

/// A line that no pipe holds.
fn long_line(i: usize) -> String {
    format!("{i:02}").repeat(50_000)
}

/// A destination that is stuck: a pipe whose reader takes one byte and then nothing more.
fn stuck() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("in.txt", (0..LINES).map(|i| long_line(i) + "\n").collect::<String>());
    assert!(Command::new("mkfifo").arg(workspace.path("pipe")).status().unwrap().success());
    workspace.write("pipelines/p.yaml", file_to_file("stuck", "").replace("out.ndjson", "pipe"));
    workspace
}

/// Reads one byte of the pipe; returns when the writer is in the middle of a record that the pipe cannot hold.
fn read_a_byte(workspace: &Workspace) -> Child {
    let mut reader = Command::new("sh")
        .args(["-c", "exec 3<pipe; head -c 1 <&3 >/dev/null; echo stuck; read never"])
        .current_dir(workspace.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    reader.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    reader
}

#[test]
fn what_cannot_be_drained_is_named_and_replayed() {
    let mut workspace = stuck();
    workspace.env("ANABRANCH_SHUTDOWN_TIMEOUT", "1s");
    let process = workspace.start(&["run"]);
    let mut reader = read_a_byte(&workspace);
    process.signal("INT");
    let output = process.finish().expect_code(3);
    assert!(output.both().contains("stuck"), "names the pipeline: {}", output.both());
    let _ = reader.kill();
    let _ = reader.wait();
    // A reader that reads gets everything.
    let mut reader =
        Command::new("sh").args(["-c", "cat pipe > copy.ndjson"]).current_dir(workspace.root()).spawn().unwrap();
    workspace.once();
    assert!(reader.wait().unwrap().success());
    let mut lines: Vec<String> = workspace.lines("copy.ndjson").iter().map(|l| raw_after(l)).collect();
    lines.sort();
    lines.dedup();
    assert_eq!(lines, (0..LINES).map(long_line).collect::<Vec<_>>());
}

#[test]
fn a_stop_that_takes_long_names_what_it_waits_for() {
    let mut workspace = stuck();
    workspace.env("ANABRANCH_SHUTDOWN_TIMEOUT", "1h");
    let mut process = workspace.start(&["run"]);
    let mut reader = read_a_byte(&workspace);
    process.signal("INT");
    let log = process.printed();
    process.wait_until("the name", || log().contains("still stopping; waiting for pipeline stuck ("));
    process.signal("INT");
    process.wait_for_end();
    let _ = reader.kill();
    let _ = reader.wait();
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut workspace = stuck();
    workspace.env("ANABRANCH_SHUTDOWN_TIMEOUT", "0");
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let mut process = workspace.start(&["run"]);
        let mut reader = read_a_byte(&workspace);
        process.signal(signal);
        std::thread::sleep(Duration::from_millis(300));
        assert!(process.is_running(), "waits for ever for what cannot be drained");
        // The first one may still be on its way, and two at once count as one: a person presses again.
        while process.is_running() {
            process.signal(signal);
            std::thread::sleep(Duration::from_millis(300));
        }
        process.finish().expect_code(code);
        let _ = reader.kill();
        let _ = reader.wait();
    }
}

/// `anabranch run | head`: the reader goes away, and nothing more is logged.
#[test]
fn a_service_whose_reader_goes_away_ends_although_it_has_nothing_to_say() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("pipelines/p.yaml", file_to_file("quiet", ""));
    let mut command = workspace.command(["run"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let reader = child.stdout.take().unwrap();
    let deadline = std::time::Instant::now() + crate::process::PATIENCE;
    while workspace.lines("out.ndjson").len() < 3 {
        assert!(std::time::Instant::now() < deadline, "nothing was copied");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(reader);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if std::time::Instant::now() > deadline {
            let _ = child.kill();
            panic!("it goes on without a reader");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(0));
}
