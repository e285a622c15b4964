//! `examples/documents-to-vectors` as its reader runs it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Workspace, skip};
use crate::servers::postgres::Server;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/documents-to-vectors")
}

/// Without the programs that `.ci/setup` installs there is nothing to run: `run.sh` would fetch what is missing.
fn runs() -> bool {
    let Some(_) = Server::start(&[]) else { return false };
    let moto = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/moto/bin/python");
    let has = |python: &Path| {
        let output = Command::new(python).args(["-c", "import moto.server"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !has(&moto) && !has(Path::new("python3")) {
        skip("moto is missing: pip install 'moto[server]'");
        return false;
    }
    true
}

fn script() -> Command {
    let mut command = Command::new(directory().join("run.sh"));
    command.env("ANABRANCH", env!("CARGO_BIN_EXE_anabranch")).current_dir("/");
    command
}

#[test]
fn the_script_runs_and_checks() {
    if !runs() {
        return;
    }
    let output = script().arg("--check").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("files: 3 rows; file_items: 9 rows"), "{text}");

    // Other documents and other words than those the check expects: it says so.
    let workspace = Workspace::new();
    workspace.write("documents/one.txt", "first\n\nsecond\n");
    let wrapped = workspace.write_program("checked.sh", "#!/bin/sh\nexit 0\n");
    let mut command = script();
    command.env("DOCUMENTS", workspace.path("documents")).env("ANABRANCH", &wrapped).arg("--check");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("papers/one.pdf has no row") && text.contains("missing"), "{text}");
}

#[test]
fn the_picture_is_of_this_pipeline() {
    let mut workspace = Workspace::new();
    for line in std::fs::read_to_string(directory().join("env.sh")).unwrap().lines() {
        // export NAME="${NAME:-value}"
        let Some((name, value)) = line.strip_prefix("export ").and_then(|rest| rest.split_once("=")) else { continue };
        let value = value.trim_matches('"').strip_prefix(&format!("${{{name}:-")).unwrap().strip_suffix('}').unwrap();
        workspace.env(name, value);
    }
    workspace.write("pipeline.yaml", std::fs::read(directory().join("pipeline.yaml")).unwrap());
    let arguments = ["pipelines", "plan", "pipeline.yaml", "--preview.pipeline-arch-v2", "--format", "svg"];
    let picture = workspace.run(&arguments).expect_code(0).stdout;
    let shown = std::fs::read_to_string(directory().join("plan.svg")).unwrap();
    if picture != shown {
        let new = std::env::temp_dir().join("documents-to-vectors-plan.svg");
        std::fs::write(&new, picture).unwrap();
        panic!("examples/documents-to-vectors/plan.svg is of another plan; the new one is {}", new.display());
    }
}
