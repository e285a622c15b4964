//! Every command of the README, run as it stands there.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::process::{Workspace, skip};

/// The `sh` blocks of the README, in order.
fn blocks() -> Vec<String> {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    readme.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn every_command_works() {
    if Command::new("timeout").arg("--version").output().is_err() {
        return skip("`timeout` is not installed: the commands of the README were not run");
    }
    let workspace = Workspace::new();
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
    let blocks = blocks();
    assert_eq!(blocks.iter().filter(|b| b.starts_with("cargo ")).count(), 2, "two set-up commands");
    assert!(blocks.len() >= 4);
    let mut outputs = Vec::new();
    for block in &blocks {
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
    assert!(outputs[0].contains("scheduledDeparture"), "the demo shows records: {}", outputs[0]);
    let items = outputs.last().unwrap();
    assert_eq!(items.lines().filter(|l| l.contains("\"cheap\":\"yes\"")).count(), 2, "{items}");
    assert_eq!(workspace.lines("items.ndjson").len(), 3);
}
