//! An error in a pipeline file keeps what it concerns from running, by whatever command.

use crate::process::{Workspace, file_to_file, numbered_lines};

/// A pipeline whose processors stand at the top of the file.
fn misplaced() -> String {
    let processors =
        "processors:\n  - { id: hide, plugin: field.exclude, settings: { fields: .Payload.After.secret } }\n";
    format!("{}{processors}", file_to_file("p", ""))
}

#[test]
fn a_pipeline_does_not_run_without_processors_that_are_misplaced() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    for beside in [
        &*misplaced(),
        &format!("{}dead-letter-queue: {{ plugin: store }}\n", file_to_file("p", "")),
        &format!("{}status: stopped\n", file_to_file("p", "")),
        &format!("{}procesors: []\n", file_to_file("p", "")),
    ] {
        workspace.write("pipelines/p.yaml", beside);
        for command in
            [&["pipelines", "validate"][..], &["run", "--once"], &["pipelines", "plan"], &["pipelines", "dry-run"]]
        {
            workspace.run(command).expect_code(2);
        }
        assert!(!workspace.path("out.ndjson").exists(), "{beside}");
    }
}

#[test]
fn a_service_runs_the_pipelines_of_other_files_only() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("pipelines/p.yaml", misplaced());
    workspace.write("pipelines/q.yaml", file_to_file("q", "").replace("out.ndjson", "q.ndjson"));
    let mut service = workspace.start(&["run"]);
    let flag = format!("--api.http.address={}", service.address());
    service.wait_until("the records of q", || workspace.lines("q.ndjson").len() == 3);
    let listed = workspace.run(&["pipelines", "list", &flag]).expect_code(0).stdout;
    let row = listed.lines().find(|line| line.trim_start().starts_with("p ")).unwrap_or_default();
    assert!(row.contains("invalid") && row.contains("processors"), "{listed}");
    workspace.run(&["pipelines", "apply", "pipelines/p.yaml", "--yes", &flag]).expect_code(2);
    workspace.run(&["pipelines", "start", "p", &flag]).expect_code(2);
    assert!(!workspace.path("out.ndjson").exists());
    service.signal("INT");
    service.finish().expect_code(0);
    assert!(!workspace.path("out.ndjson").exists());
}

#[test]
fn a_file_that_is_saved_with_a_misplaced_block_changes_nothing() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let mut service = workspace.start(&["run", "--pipelines.watch"]);
    service.wait_until("the records", || workspace.lines("out.ndjson").len() == 3);
    // Files saved before the first look count as their first content.
    let printed = service.printed();
    service.wait_until("it to watch", || printed().contains("watching 1 file"));
    workspace.write("pipelines/p.yaml", misplaced().replace("out.ndjson", "leak.ndjson"));
    service.wait_until("the refusal", || printed().contains("is not valid"));
    workspace.append("in.txt", "line 3\n");
    service.wait_until("the record", || workspace.lines("out.ndjson").len() == 4);
    service.signal("INT");
    service.finish().expect_code(0);
    assert!(!workspace.path("leak.ndjson").exists());
}

#[test]
fn checking_nothing_is_not_a_success() {
    let workspace = Workspace::new();
    std::fs::create_dir_all(workspace.path("empty/below")).unwrap();
    workspace.write("empty/below/p.yaml", file_to_file("p", ""));
    workspace.write("empty/load.test.yaml", "tests: []\n");
    for command in ["validate", "lint"] {
        let text = workspace.run(&["pipelines", command, "empty"]).expect_code(2).both();
        assert!(text.contains("nothing was checked") && text.contains("empty"), "{text}");
    }
    workspace.write("empty/p.yaml", "# later\n");
    let text = workspace.run(&["pipelines", "validate", "empty"]).expect_code(0).both();
    assert!(text.contains("config.no_pipelines") && text.contains("1 warning"), "{text}");
    workspace.run(&["pipelines", "validate", "--strict", "empty"]).expect_code(2);
}

#[test]
fn a_dry_run_of_nothing_is_not_a_success() {
    let workspace = Workspace::new();
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let text = workspace.run(&["pipelines", "dry-run", "--timeout", "1s"]).expect_code(1).both();
    assert!(text.contains("no record was read"), "{text}");
}

#[test]
fn a_stop_between_two_attempts_says_what_is_left() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("pipelines/p.yaml", file_to_file("p", "").replace("out.ndjson", "/dev/full"));
    let recovery = "--pipelines.error-recovery.min-delay=10m";
    let mut service = workspace.start(&["run", recovery]);
    let flag = format!("--api.http.address={}", service.address());
    let printed = service.printed();
    service.wait_until("the pause", || printed().contains("restarts in"));
    let doctor = workspace.run(&["doctor", "--check", "pipelines", &flag]).expect_code(0).stdout;
    assert!(doctor.contains("warn") && doctor.contains("recovering") && doctor.contains("No space left"), "{doctor}");
    service.signal("INT");
    let output = service.finish().expect_code(3).both();
    assert!(output.contains("stopped before all records were delivered"), "{output}");
    assert!(!output.contains("all records that were read are delivered"), "{output}");
}
