//! Every command of the README and of the tutorial, run as it stands there.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::{Workspace, skip};

/// The `sh` blocks of a page, in order.
fn blocks(page: &str) -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Runs them one after the other in an empty directory, and gives what each printed.
fn run(blocks: &[String], workspace: &Workspace) -> Vec<String> {
    std::fs::remove_dir(workspace.path("pipelines")).unwrap();
    let bin = tempfile::tempdir().unwrap();
    let script = |name: &str, text: String| {
        let path = bin.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    // Commands that run until Ctrl+C get one after four seconds, as from a person.
    let real = env!("CARGO_BIN_EXE_anabranch");
    script(
        "anabranch",
        format!(
            "#!/bin/bash\nif [ \"$*\" = run ] || [ \"$*\" = quickstart ]; then exec timeout --foreground --preserve-status -s INT 4 {real} \"$@\"; fi\nexec {real} \"$@\"\n"
        ),
    );
    // The release build is the reader's; here it is this build. `cargo test` is what runs this test.
    script(
        "cargo",
        "#!/bin/bash\ncase \"$1\" in\n  run) while [ \"$1\" != -- ]; do shift; done; shift; exec anabranch \"$@\" ;;\n  test) exit 0 ;;\n  *) exit 9 ;;\nesac\n".to_owned(),
    );
    let mut outputs = Vec::new();
    for block in blocks {
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", block])
            .current_dir(workspace.root())
            // A service of this machine may have the usual port.
            .env("ANABRANCH_API_HTTP_ADDRESS", "127.0.0.1:0")
            .env("PATH", format!("{}:{}", bin.path().display(), std::env::var("PATH").unwrap()))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{block}\n{}\n{stdout}\n{stderr}", output.status);
        outputs.push(stdout.into_owned());
    }
    outputs
}

fn timeout_is_missing() -> bool {
    let missing = Command::new("timeout").arg("--version").output().is_err();
    if missing {
        skip("`timeout` is not installed: commands of the documentation were not run");
    }
    missing
}

#[test]
fn every_command_works() {
    if timeout_is_missing() {
        return;
    }
    let blocks = blocks("README.md");
    assert_eq!(blocks.iter().filter(|b| b.starts_with("cargo ")).count(), 2, "two set-up commands");
    assert!(blocks.len() >= 4);
    let workspace = Workspace::new();
    let outputs = run(&blocks, &workspace);
    assert!(outputs[0].contains("scheduledDeparture"), "the demo shows records: {}", outputs[0]);
    let items = outputs.last().unwrap();
    assert_eq!(items.lines().filter(|l| l.contains("\"cheap\":\"yes\"")).count(), 2, "{items}");
    assert_eq!(workspace.lines("items.ndjson").len(), 3);
}

#[test]
fn every_command_of_the_tutorial_works() {
    if timeout_is_missing() {
        return;
    }
    let blocks = blocks("docs/tutorial.md");
    assert!(blocks.len() >= 8);
    let workspace = Workspace::new();
    let outputs = run(&blocks, &workspace);
    assert!(outputs[0].contains("scheduledDeparture"), "the demo shows records: {}", outputs[0]);
    let items = workspace.lines("items.ndjson");
    assert_eq!(items.len(), 4, "each item once, over all runs: {items:?}");
    assert_eq!(items.iter().filter(|line| line.contains("\"cheap\":\"yes\"")).count(), 2, "{items:?}");
    let letters = workspace.lines("failed.ndjson");
    assert_eq!(letters.len(), 1, "{letters:?}");
}
