//! The program with its plugins, as a user runs it.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs the program in a directory. Returns its exit code and everything that it prints.
fn run(directory: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_my-anabranch"));
    let output = command.args(arguments).arg("--no-color").current_dir(directory).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// Returns a directory with the pipeline `cards` and three files for it.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("pipelines")).unwrap();
    fs::write(path("pipelines/cards.yaml"), include_str!("../pipelines/cards.yaml")).unwrap();
    fs::create_dir(path("inbox")).unwrap();
    fs::write(path("inbox/1.json"), r#"{"card":"4111111111111234"}"#).unwrap();
    fs::write(path("inbox/2.json"), r#"{"card":5}"#).unwrap();
    fs::write(path("inbox/3.json"), r#"{"card":"5500000000005678"}"#).unwrap();
    directory
}

#[test]
fn the_pipeline_is_checked_and_run() {
    let directory = directory();
    let path = |name: &str| directory.path().join(name);

    let (code, text) = run(directory.path(), &["pipelines", "validate"]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = run(directory.path(), &["pipelines", "plan", "cards"]);
    assert!(code == Some(0) && text.contains("inbox") && text.contains("mask") && text.contains("outbox"), "{text}");
    let (code, text) = run(directory.path(), &["run", "--once"]);
    assert_eq!(code, Some(0), "{text}");

    assert_eq!(fs::read_to_string(path("outbox/1.json")).unwrap(), r#"{"card":"************1234"}"#);
    assert_eq!(fs::read_to_string(path("outbox/3.json")).unwrap(), r#"{"card":"************5678"}"#);
    assert!(!path("outbox/2.json").exists(), "a number is not masked");
    assert!(fs::read_to_string(path("failed.ndjson")).unwrap().contains("expected a text, found integer"));
    assert_eq!(fs::read_dir(path("inbox")).unwrap().count(), 0, "delivered files are deleted");

    fs::write(path("inbox/4.json"), r#"{"card":"340000000009999"}"#).unwrap();
    let (code, text) = run(directory.path(), &["run", "--once"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(fs::read_to_string(path("outbox/4.json")).unwrap(), r#"{"card":"***********9999"}"#);
}

#[test]
fn commands_know_the_plugins() {
    let directory = directory();
    for (command, plugins) in
        [("connectors", &["inbox", "outbox", "file"][..]), ("processors", &["mask", "json.decode"])]
    {
        let (code, text) = run(directory.path(), &[command, "list"]);
        assert_eq!(code, Some(0), "{text}");
        assert!(plugins.iter().all(|plugin| text.contains(plugin)), "{text}");
    }
    let (_, text) = run(directory.path(), &["processors", "describe", "mask"]);
    assert!(text.contains("Number of characters at the end that stay readable."), "{text}");
}

#[test]
fn mistakes_in_a_pipeline_are_reported() {
    let directory = directory();
    let pipeline =
        include_str!("../pipelines/cards.yaml").replace("path: inbox", "pth: inbox").replace("mask,", "maks,");
    fs::write(directory.path().join("pipelines/cards.yaml"), pipeline).unwrap();
    let (code, text) = run(directory.path(), &["pipelines", "validate"]);
    assert_eq!(code, Some(2), "{text}");
    for message in ["inbox has no parameter \"pth\"", "did you mean \"path\"?", "did you mean \"mask\"?"] {
        assert!(text.contains(message), "{message}: {text}");
    }
}
