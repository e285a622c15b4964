//! Which processor a name means, and what is said of files that are none.

use super::{Guest, delivered, parameter, pipeline, workspace};

fn named<'a>(name: &'a str, version: &'a str) -> Guest<'a> {
    Guest { name, version, ..Guest::default() }
}

#[test]
fn two_files_with_one_name_and_version_are_both_refused() {
    let workspace = workspace(&[
        ("one.wasm", named("twice", "v1.0.0")),
        ("two.wasm", Guest { process: "call $keep", ..named("twice", "v1.0.0") }),
        ("other.wasm", named("other", "v1.0.0")),
        ("three.wasm", named("twice", "v1.1.0")),
    ]);
    workspace.write("in.txt", "a\n");
    workspace.write("pipelines/p.yaml", pipeline("{ id: guest, plugin: \"standalone:twice@v1.0.0\" }"));
    let text = workspace.run(&["run", "--once"]).expect_code(2).both();
    for part in ["one.wasm", "two.wasm", "twice@1.0.0 is in several files", "v1.1.0"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let list = workspace.run(&["processors", "list"]).expect_code(0).stdout;
    let versions: Vec<&str> =
        list.lines().filter(|l| l.contains("twice")).filter_map(|l| l.split_whitespace().nth(1)).collect();
    assert_eq!(versions, ["v1.1.0"], "{list}");
    assert!(list.contains("other"), "{list}");
    workspace.write("pipelines/p.yaml", pipeline("{ id: guest, plugin: twice }"));
    workspace.run(&["run", "--once"]).expect_code(0);
    assert_eq!(delivered(&workspace), ["a"]);
}

#[test]
fn the_greatest_version_is_meant_where_none_is_named() {
    let marked = |process| Guest { process, ..named("mark", "v0.9.0") };
    let drop = super::result(0x12);
    let workspace = workspace(&[
        ("old.wasm", Guest { version: "v0.9.0", ..marked(&drop) }),
        ("new.wasm", Guest { version: "v0.10.0", ..marked("call $all_kept") }),
        ("odd.wasm", Guest { version: "nightly", ..marked(&drop) }),
    ]);
    workspace.write("in.txt", "a\n");
    workspace.write("pipelines/p.yaml", pipeline("{ id: guest, plugin: mark }"));
    workspace.run(&["run", "--once"]).expect_code(0);
    assert_eq!(delivered(&workspace), ["a"]);
    for (version, kept) in [("0.9.0", 0), ("v0.10.0", 1), ("nightly", 0), ("latest", 1)] {
        let workspace = {
            workspace.write("pipelines/p.yaml", pipeline(&format!("{{ id: guest, plugin: \"any:mark@{version}\" }}")));
            let _ = std::fs::remove_file(workspace.path("out.ndjson"));
            let _ = std::fs::remove_file(workspace.path("anabranch.db"));
            &workspace
        };
        workspace.run(&["run", "--once"]).expect_code(0);
        assert_eq!(delivered(workspace).len(), kept, "{version}");
    }
}

#[test]
fn a_built_in_processor_goes_before_one_of_its_name() {
    let workspace = workspace(&[("set.wasm", named("filter", "v9.0.0")), ("other.wasm", named("other", "v1.0.0"))]);
    workspace.write("in.txt", "a\n");
    workspace.write("pipelines/p.yaml", pipeline("{ id: guest, plugin: filter }"));
    workspace.run(&["run", "--once"]).expect_code(0);
    assert!(delivered(&workspace).is_empty(), "the built-in one filters");
    workspace.write("pipelines/p.yaml", pipeline("{ id: guest, plugin: \"standalone:filter\" }"));
    workspace.write("in.txt", "a\nb\n");
    let text = workspace.run(&["run", "--once"]).expect_code(0).both();
    assert_eq!(delivered(&workspace), ["b"]);
    assert!(text.contains("\"filter\" means the built-in processor"), "{text}");
}

#[test]
fn a_file_that_is_no_processor_is_named_and_left_out() {
    let workspace = workspace(&[("good.wasm", named("good", "v1.0.0")), ("nameless.wasm", named("", "v1.0.0"))]);
    workspace.write("processors/broken.wasm", b"\0asm\x01\0\0\0what is this");
    workspace.write("processors/empty.wasm", b"");
    workspace.write("processors/readme.txt", b"not looked at");
    let needs = r#"(module (import "conduit" "not_yet_invented" (func)) (memory (export "memory") 1) (func (export "_start")))"#;
    workspace.write("processors/newer.wasm", wat::parse_str(needs).unwrap());
    let silent = r#"(module (memory (export "memory") 1) (func (export "_start")))"#;
    workspace.write("processors/silent.wasm", wat::parse_str(silent).unwrap());
    let output = workspace.run(&["processors", "list"]).expect_code(0);
    assert!(output.stdout.contains("good"), "{}", output.stdout);
    let warnings: Vec<&str> = output.stderr.lines().filter(|line| line.starts_with("warning: ")).collect();
    assert_eq!(warnings.len(), 5, "{}", output.stderr);
    for part in ["nameless.wasm", "it has no name", "broken.wasm", "empty.wasm", "not_yet_invented", "exit code 0"] {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
}

#[test]
fn settings_are_checked_before_anything_starts() {
    let parameters = [
        parameter("path", "", 1, Some((1, ""))),
        parameter("count", "3", 2, Some((2, "0"))),
        parameter("mode", "fast", 1, Some((4, "fast,slow"))),
        parameter("tables.*.key", "", 1, None),
        parameter("headers.*", "", 1, None),
    ];
    let workspace = workspace(&[("strict.wasm", Guest { parameters: &parameters, ..named("strict", "v1.0.0") })]);
    workspace.write("in.txt", "a\n");
    let with = |settings: &str| {
        workspace.write(
            "pipelines/p.yaml",
            pipeline(&format!("{{ id: guest, plugin: strict, settings: {{ {settings} }} }}")),
        );
        workspace.run(&["pipelines", "validate"])
    };
    with("path: x, count: 5, mode: slow, tables.users.key: id, headers.a.b.c: d").expect_code(0);
    for (settings, error) in [
        ("count: 5", "\"path\" is required by strict"),
        ("path: x, count: many", "is not an integer"),
        ("path: x, count: 0", "must be at least 1"),
        ("path: x, mode: fas", "did you mean \"fast\""),
        ("path: x, pat: y", "has no parameter \"pat\""),
        ("path: x, tables.a.b.key: y", "has no parameter"),
    ] {
        let text = with(settings).expect_code(2).both();
        assert!(text.contains(error) && text.contains("p.yaml:8"), "{settings}: {text}");
    }
    let described = workspace.run(&["processors", "describe", "standalone:strict"]).expect_code(0).stdout;
    for part in ["strict v1.0.0", "count", "> 0", "one of fast, slow", "What it is."] {
        assert!(described.contains(part), "{part}: {described}");
    }
}

#[test]
fn the_directory_is_a_setting_and_its_absence_no_error() {
    let workspace = workspace(&[]);
    workspace.write("elsewhere/guest.wasm", Guest::default().wasm());
    workspace.write("in.txt", "a\n");
    workspace.write("pipelines/p.yaml", pipeline("{ id: guest, plugin: \"standalone:test.guest\" }"));
    let text = workspace.run(&["run", "--once"]).expect_code(2).both();
    assert!(text.contains("no standalone plugin \"test.guest\" is installed"), "{text}");
    workspace.run(&["run", "--once", "--processors.path", "elsewhere"]).expect_code(0);
    assert_eq!(delivered(&workspace), ["a"]);
}

/// Pipelines that name no standalone processor do not wait for any.
#[test]
fn nothing_is_loaded_that_nobody_names() {
    let workspace = workspace(&[]);
    workspace.write("processors/broken.wasm", b"would be warned about");
    workspace.write("in.txt", "a\n");
    workspace
        .write("pipelines/p.yaml", pipeline("{ id: guest, plugin: field.set, settings: { field: .Key, value: k } }"));
    let text = workspace.run(&["run", "--once"]).expect_code(0).both();
    assert!(!text.contains("broken.wasm"), "{text}");
}

/// Pipelines start while the processors of others are loaded; those are started, or found invalid, after it.
#[test]
fn who_needs_no_processor_of_a_file_does_not_wait_for_it() {
    let workspace = workspace(&[("guest.wasm", Guest::default())]);
    workspace.write("in.txt", "a\n");
    let named = |id: &str, processor: &str| {
        pipeline(processor).replace("id: guests", &format!("id: {id}")).replace("out.ndjson", &format!("{id}.ndjson"))
    };
    workspace
        .write("pipelines/a.yaml", named("first", "{ id: x, plugin: field.set, settings: { field: .Key, value: k } }"));
    workspace.write("pipelines/b.yaml", named("second", "{ id: x, plugin: test.guest }"));
    workspace.write("pipelines/c.yaml", named("third", "{ id: x, plugin: test.missing }"));
    let mut process = workspace.start(&["run"]);
    process.wait_until("both deliver", || {
        ["first.ndjson", "second.ndjson"].iter().all(|file| workspace.lines(file).len() == 1)
    });
    // The third is found to be invalid on another way than the second is started.
    let printed = process.printed();
    process.wait_until("the finding", || printed().contains("unknown processor \"test.missing\""));
    process.signal("TERM");
    let text = process.finish().expect_code(0).both();
    assert!(text.contains("unknown processor \"test.missing\"") && text.contains("c.yaml:8"), "{text}");
    let list = workspace.run(&["pipelines", "list"]).both();
    assert!(list.contains("third"), "{list}");
}
