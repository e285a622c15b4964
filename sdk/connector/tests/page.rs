//! The commands of `docs/write-a-connector.md`, in order, in an empty directory.

use std::fs;
use std::process::Command;

/// The blocks of a page after their fences, such as "sh", with their lines.
fn blocks<'a>(page: &'a str, fence: &str) -> Vec<&'a str> {
    let start = format!("\n```{fence}\n");
    page.split(&start).skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect()
}

#[test]
fn the_commands_of_the_page_print_what_it_shows() {
    let page = include_str!("../../../docs/write-a-connector.md");
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("pipelines")).unwrap();
    let yaml = blocks(page, "yaml");
    fs::write(path("pipelines/cards.yaml"), yaml[0]).unwrap();

    let others = ["cargo new --lib my-anabranch\ncp anabranch/Cargo.lock my-anabranch/", "cargo test"];
    let commands: Vec<&str> = blocks(page, "sh").into_iter().filter(|block| !others.contains(block)).collect();
    assert_eq!(commands.concat().matches("cargo run -- ").count(), 4, "{commands:?}");
    let script = format!(
        "set -e\ncargo() {{ shift 2; '{}' --no-color \"$@\"; }}\n{}",
        env!("CARGO_BIN_EXE_my-anabranch"),
        commands.join("\n")
    );
    let output = Command::new("sh").args(["-c", &script]).current_dir(directory.path()).output().unwrap();
    let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{stdout}\n{stderr}");

    let shown = blocks(page, "text");
    assert!(stdout.ends_with(shown[0]), "{stdout}");
    assert_eq!(fs::read_dir(path("inbox")).unwrap().count(), 0);
    let letters = fs::read_to_string(path("failed.ndjson")).unwrap();
    assert!(letters.contains("cannot mask .Payload.After.card: expected a text, found integer"), "{letters}");

    // The page shows the message for a wrong name of a setting.
    fs::write(path("pipelines/cards.yaml"), yaml[0].replace("{ path: inbox }", "{ pth: inbox }")).unwrap();
    let mut validate = Command::new(env!("CARGO_BIN_EXE_my-anabranch"));
    let output = validate.args(["pipelines", "validate"]).current_dir(directory.path()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(shown[1]), "{stderr}\n{}", shown[1]);
}

#[test]
fn completions_are_for_the_name_of_the_program() {
    let mut completions = Command::new(env!("CARGO_BIN_EXE_my-anabranch"));
    let script = String::from_utf8(completions.args(["completions", "bash"]).output().unwrap().stdout).unwrap();
    assert!(script.trim_end().ends_with(" my-anabranch\nfi"), "{script}");

    let mut completions = Command::new(env!("CARGO_BIN_EXE_my-anabranch"));
    completions.env("ANABRANCH_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "3");
    let output = completions.args(["--", "my-anabranch", "connectors", "describe", "inb"]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "inbox");
}
