//! Help and version: text of the program itself on standard output.

use std::fs::OpenOptions;
use std::process::Stdio;

use crate::process::Workspace;

#[test]
fn help_that_cannot_be_written_is_an_error() {
    let workspace = Workspace::new();
    for line in [
        &["--help"][..],
        &["-h"],
        &["--version"],
        &["help"],
        &["help", "pipelines"],
        &["pipelines", "--help"],
        &["pipelines", "validate", "--help"],
        &["version"],
        &["completions", "bash"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = workspace.command(line).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{line:?}: {text}");
        assert!(text.contains("cannot write to standard output"), "{line:?}: {text}");
    }
    let output = workspace.run(&["--help"]).expect_code(0);
    assert!(output.stdout.contains("Usage: anabranch"), "{}", output.stdout);
}

#[test]
fn help_for_a_reader_that_is_gone_is_no_error() {
    let workspace = Workspace::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = workspace.command(["--help"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}
