//! The code of processors: which modules are compiled, when, and by which compiler.

use std::fs;
use std::path::PathBuf;

use super::{Guest, delivered, pipeline, workspace};
use crate::process::Workspace;

/// A used processor and another one, with an empty cache.
fn fresh() -> Workspace {
    let unused = Guest { name: "unused", ..Guest::default() };
    let mut workspace = workspace(&[("used.wasm", Guest::default()), ("unused.wasm", unused)]);
    workspace.write("in.txt", "a\n");
    workspace.write("pipelines/p.yaml", pipeline("{ id: guest, plugin: test.guest }"));
    let cache = workspace.path("cache");
    workspace.env("XDG_CACHE_HOME", cache.to_str().unwrap());
    workspace
}

/// The entries of the cache.
fn entries(workspace: &Workspace) -> Vec<PathBuf> {
    let entries = fs::read_dir(workspace.path("cache/anabranch/processors")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// The number of entries with baseline code, with optimised code, and with specifications.
fn counts(workspace: &Workspace) -> [usize; 3] {
    let names: Vec<String> = entries(workspace).iter().map(|path| path.display().to_string()).collect();
    ["-baseline-", "-optimised-", ".specification"].map(|part| names.iter().filter(|name| name.contains(part)).count())
}

fn remove_code(workspace: &Workspace) {
    for path in entries(workspace).iter().filter(|path| path.extension().is_some_and(|extension| extension == "cwasm"))
    {
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn only_processors_of_pipelines_are_compiled_and_optimised_code_is_used_from_the_next_start_on() {
    let workspace = fresh();
    // Only an instance knows its specification.
    workspace.run(&["pipelines", "validate"]).expect_code(0);
    assert_eq!(counts(&workspace), [2, 0, 2]);
    remove_code(&workspace);
    let list = workspace.run(&["processors", "list"]).expect_code(0).stdout;
    assert!(list.contains("test.guest") && list.contains("unused"), "{list}");
    workspace.run(&["pipelines", "validate"]).expect_code(0);
    assert_eq!(counts(&workspace), [0, 0, 2]);

    let flags = ["run", "--log.level", "debug"];
    let mut process = workspace.start(&flags);
    process.wait_until("the record is delivered", || delivered(&workspace) == ["a"]);
    let printed = process.printed();
    process.wait_until("there is optimised code", || printed().contains("when it is started again"));
    assert_eq!(counts(&workspace), [0, 1, 2]);
    process.signal("TERM");
    let text = process.finish().expect_code(0).both();
    assert_eq!(text.matches("starts with baseline code").count(), 1, "{text}");
    assert!(!text.contains("starts with optimised code"), "the code of a running processor stays: {text}");
    let compiled: Vec<&str> = text.lines().filter(|line| line.contains("compiled ")).collect();
    assert_eq!(compiled.len(), 2, "baseline and optimised code: {text}");
    assert!(compiled.iter().all(|line| line.contains("/used.wasm")), "{text}");

    workspace.write("in.txt", "a\nb\n");
    let text = workspace.run(&[&flags[..], &["--once"]].concat()).expect_code(0).both();
    assert!(text.contains("starts with optimised code") && !text.contains("compiling"), "{text}");
    assert_eq!(delivered(&workspace), ["a", "b"]);
    assert_eq!(counts(&workspace), [0, 1, 2]);
}

#[test]
fn processes_share_a_cache_with_damaged_entries() {
    let first = fresh();
    first.run(&["processors", "list"]).expect_code(0);
    for entry in entries(&first) {
        let mut bytes = fs::read(&entry).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xff;
        fs::write(&entry, bytes).unwrap();
    }
    let mut second = fresh();
    second.env("XDG_CACHE_HOME", first.path("cache").to_str().unwrap());
    let mut processes = [&first, &second].map(|workspace| (workspace, workspace.start(&["run"])));
    for (workspace, process) in &mut processes {
        process.wait_until("the record is delivered", || delivered(workspace) == ["a"]);
        process.wait_until("there is optimised code", || counts(&first)[1] == 1);
    }
    for (_, process) in processes {
        process.signal("TERM");
        process.finish().expect_code(0);
    }
    for workspace in [&first, &second] {
        workspace.write("in.txt", "a\nb\n");
        workspace.run(&["run", "--once"]).expect_code(0);
        assert_eq!(delivered(workspace), ["a", "b"]);
    }
}
