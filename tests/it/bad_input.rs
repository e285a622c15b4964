//! Bad input: a clear error with the place, an exit code, no panic, nothing lost.

use std::process::{Command, Stdio};

use crate::process::{Output, Process, Workspace, file_to_file, numbered_lines, raw_after};

#[track_caller]
fn no_panic(output: &Output) {
    assert!(!output.both().contains("panicked"), "{}", output.both());
    assert!(output.code().is_some_and(|c| (1..=3).contains(&c)), "{:?}\n{}", output.status, output.both());
}

#[test]
fn files_that_are_no_pipelines() {
    let deep = "a: ".to_owned() + &"[".repeat(100_000);
    let bomb = (0..30).fold("a0: &a0 [x]\n".to_owned(), |yaml, i| {
        yaml + &format!("a{}: &a{} [*a{i}, *a{i}, *a{i}, *a{i}, *a{i}, *a{i}, *a{i}, *a{i}]\n", i + 1, i + 1)
    });
    let cases: &[(&str, Vec<u8>)] = &[
        ("broken", b"pipelines: [\n".to_vec()),
        ("binary", (0..=255u8).cycle().take(5_000).collect()),
        ("not utf-8", b"version: \"2.2\"\npipelines:\n  - id: \xff\xfe\n".to_vec()),
        ("recursive", b"pipelines: &a\n  - *a\n".to_vec()),
        ("bomb", bomb.into_bytes()),
        ("deep", deep.into_bytes()),
        ("a list", b"- a\n- b\n".to_vec()),
        ("tabs", b"pipelines:\n\t- id: x\n".to_vec()),
        ("wrong types", b"version: 2.2\npipelines:\n  id: x\n".to_vec()),
        ("nul", b"pipelines:\n  - id: \"a\\0b\"\n".to_vec()),
    ];
    for (what, content) in cases {
        let workspace = Workspace::new();
        workspace.write("pipelines/p.yaml", content);
        for args in [&["pipelines", "validate"][..], &["run", "--once"], &["pipelines", "plan", "pipelines/p.yaml"]] {
            let output = workspace.run(args);
            no_panic(&output);
            assert_eq!(output.code(), Some(2), "{what} {args:?}: {}", output.both());
            assert!(output.both().contains("p.yaml"), "{what} {args:?}: {}", output.both());
        }
    }
}

#[test]
fn a_file_of_a_hundred_megabytes() {
    let workspace = Workspace::new();
    let file = std::fs::File::create(workspace.path("pipelines/p.yaml")).unwrap();
    file.set_len(100 << 20).unwrap();
    let output = workspace.run(&["pipelines", "validate"]).expect_code(2);
    assert!(output.both().contains("p.yaml") && output.both().contains("large"), "{}", output.both());
}

#[test]
fn missing_and_unreadable_places() {
    let workspace = Workspace::new();
    workspace.write("pipelines/p.yaml", file_to_file("p", "").replace("out.ndjson", "no/such/directory/out.ndjson"));
    workspace.write("in.txt", "x\n");
    let output = workspace.run(&["run", "--once"]);
    no_panic(&output);
    assert!(output.both().contains("no/such/directory"), "{}", output.both());

    let output = workspace.run(&["run", "--once", "--pipelines.path", "elsewhere"]);
    assert_eq!(output.code(), Some(2), "{}", output.both());
    assert!(output.both().contains("pipelines.path") && output.both().contains("elsewhere"), "{}", output.both());

    let output = workspace.run(&["run", "--once", "--db.path", "no/such/place/x.db"]);
    no_panic(&output);
    assert!(output.both().contains("no/such/place"), "{}", output.both());

    std::fs::create_dir(workspace.path("pipelines/dir.yaml")).unwrap();
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    workspace.once();
}

#[test]
fn a_full_disk_loses_nothing() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(20_000));
    let good = file_to_file("full", "");
    workspace.write("pipelines/p.yaml", good.replace("out.ndjson", "/dev/full"));
    let output = workspace.run(&["run", "--once", "--pipelines.error-recovery.max-retries=0"]).expect_code(1);
    no_panic(&output);
    assert!(output.both().contains("/dev/full"), "{}", output.both());
    workspace.write("pipelines/p.yaml", &good);
    workspace.once();
    assert_eq!(workspace.lines("out.ndjson").len(), 20_000);
}

#[test]
fn a_limit_on_the_size_of_files_leaves_whole_lines() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(20_000));
    workspace.write("pipelines/p.yaml", file_to_file("limited", ""));
    let mut command = Command::new("bash");
    let run = format!(
        "ulimit -f 2000; exec {} run --once --db.type=embedded --pipelines.error-recovery.max-retries=0",
        env!("CARGO_BIN_EXE_anabranch")
    );
    command.arg("-c").arg(run).current_dir(workspace.root()).stdin(Stdio::null());
    let output = Process::spawn(&mut command).finish();
    let text = output.both();
    assert_eq!(output.code(), Some(1), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    let written = workspace.read("out.ndjson");
    assert!(written.is_empty() || written.ends_with('\n'), "a torn line");
    workspace.once();
    let mut lines: Vec<String> = workspace.lines("out.ndjson").iter().map(|l| raw_after(l)).collect();
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 20_000);
}

#[test]
fn output_to_a_full_or_closed_place_ends_cleanly() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(1_000));
    workspace.write(
        "pipelines/p.yaml",
        file_to_file("p", "").replace("plugin: file\n        settings:\n          path: out.ndjson", "plugin: log"),
    );
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = workspace
        .command(["run", "--once", "--pipelines.error-recovery.max-retries=0"])
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!text.contains("panicked"), "{text}");
    assert_ne!(output.status.code(), Some(0), "the records were not written: {text}");
    workspace.once();

    let status = Command::new("bash")
        .arg("-c")
        .arg(format!("set -o pipefail; {} config | head -n 1 >/dev/null", env!("CARGO_BIN_EXE_anabranch")))
        .current_dir(workspace.root())
        .output()
        .unwrap();
    assert!(!String::from_utf8_lossy(&status.stderr).contains("panicked"));
}

#[test]
fn a_lone_surrogate_fails_its_record_alone() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "{\"a\":\"ok\"}\n{\"a\":\"\\ud800\"}\n{\"a\":1}\nnot json\n{\"a\":\"\\ud83d\\ude80\"}\n");
    workspace.write(
        "pipelines/p.yaml",
        file_to_file("p", "      - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }\n")
            + "    dead-letter-queue: { plugin: file, settings: { path: dlq.ndjson }, window-size: 0 }\n",
    );
    workspace.once();
    let out = workspace.read("out.ndjson");
    assert_eq!(out.lines().count(), 3, "{out}");
    assert!(out.contains('🚀'), "{out}");
    assert_eq!(workspace.lines("dlq.ndjson").len(), 2);
}

#[test]
fn a_record_of_fifty_megabytes_passes() {
    let workspace = Workspace::new();
    let big = "x".repeat(50 << 20);
    workspace.write("in.txt", format!("small\n{{\"big\":\"{big}\"}}\nafter\n"));
    workspace.write(
        "pipelines/p.yaml",
        file_to_file("p", "      - { id: decode, plugin: json.decode, condition: '{{ hasPrefix \"{\" (printf \"%.1s\" .Payload.After) }}', settings: { field: .Payload.After } }\n"),
    );
    workspace.once();
    let out = workspace.lines("out.ndjson");
    assert_eq!(out.len(), 3);
    assert_eq!(raw_after(&out[0]), "small");
    assert!(out[1].len() > 50 << 20 && out[1].contains("\"after\":{\"big\":\"xxx"));
    assert_eq!(raw_after(&out[2]), "after");
}
