//! Processors that users write in Rust: made by `processors new`, compiled, and run in a host that is not ours
//! and in ours.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::process::{Workspace, file_to_file};

/// Compiles for WebAssembly, or says why not.
fn compiled(directory: &Path) -> Option<PathBuf> {
    let missing = |what: &str| {
        assert!(std::env::var_os("ANABRANCH_TEST_REQUIRE").is_none(), "{what} is missing");
        eprintln!("skipped: {what} is missing");
    };
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?.stdout;
    let sysroot = PathBuf::from(String::from_utf8(sysroot).unwrap().trim());
    if !sysroot.join("lib/rustlib/wasm32-wasip1/lib").is_dir() {
        missing("the Rust target wasm32-wasip1");
        return None;
    }
    if Command::new("node").arg("--version").output().is_err() {
        missing("node");
        return None;
    }
    // What it depends on stays compiled from one run to the next.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sdk");
    let output = Command::new("cargo")
        .args(["build", "--offline", "--release", "--target", "wasm32-wasip1", "--target-dir"])
        .arg(&target)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(target.join("wasm32-wasip1/release/my-guest.wasm"))
}

/// A field of a protobuf message, of a length below 128.
fn field(number: u8, content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    assert!(content.len() < 128);
    [&[number << 3 | 2, content.len() as u8], content.as_slice()].concat()
}

/// A record with this text, as it is on the wire.
fn record(text: &str) -> Vec<u8> {
    let value = field(2, &[&field(3, &[text.as_bytes()])]);
    let fields = field(2, &[&field(1, &[&field(1, &[b"text"]), &value])]);
    let metadata = field(3, &[&field(1, &[b"opencdc.readAt"]), &field(2, &[b"1"])]);
    [field(1, &[b"p"]), vec![0x10, 1], metadata, field(5, &[&field(2, &[&fields])])].concat()
}

#[test]
fn a_processor_made_by_the_command_runs_as_web_assembly() {
    let mut workspace = Workspace::new();
    workspace.env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/wasm"));
    workspace.run(&["processors", "new", "my-guest"]).expect_code(0);
    let again = workspace.run(&["processors", "new", "my-guest"]).expect_code(2);
    assert!(again.stderr.contains("my-guest exists already"), "{}", again.stderr);
    let Some(module) = compiled(&workspace.path("my-guest")) else { return };
    // The size of the module is a promise: it is compiled and kept once per processor.
    let size = std::fs::metadata(&module).unwrap().len();
    assert!(size < 256 * 1024, "{size} bytes");

    let setting = field(1, &[&field(1, &[b"prefix"]), &field(2, &[b"hello-"])]);
    let commands = [
        field(1, &[]),
        field(2, &[]),
        field(2, &[&setting]),
        field(3, &[]),
        field(4, &[&field(1, &[&record("world")])]),
        field(5, &[]),
    ];
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/sdk/host.mjs");
    let output = Command::new("node")
        .arg("--no-warnings")
        .arg(host)
        .arg(&module)
        .args(commands.map(|command| STANDARD.encode(command)))
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    let responses: Vec<Vec<u8>> = stdout
        .lines()
        .filter_map(|line| line.strip_prefix("response "))
        .map(|text| STANDARD.decode(text).unwrap())
        .collect();
    assert_eq!(responses.len(), 6, "{stdout}{stderr}");
    let says = |i: usize, text: &str| String::from_utf8_lossy(&responses[i]).contains(text);
    assert!(says(0, "my-guest") && says(0, "v0.1.0") && says(0, "sdk.schema.encode.key.enabled"), "{stdout}");
    assert!(says(1, "prefix: a value is required"), "{stdout}");
    assert_eq!(responses[2], field(3, &[]));
    assert_eq!(responses[3], field(4, &[]));
    assert_eq!(responses[4], field(5, &[&field(1, &[&field(1, &[&record("hello-world")])])]));
    assert_eq!(responses[5], field(6, &[]));
    if cfg!(feature = "wasm") {
        runs_in_a_pipeline(&workspace, &module);
    }
}

/// The same module as a processor of ours.
fn runs_in_a_pipeline(workspace: &Workspace, module: &Path) {
    workspace.write("processors/any-name.wasm", std::fs::read(module).unwrap());
    workspace.write("in.txt", "{\"text\":\"world\",\"big\":9007199254740993}\n{\"text\":5}\n");
    let with = |settings: &str| {
        let processors = format!(
            "      - {{ id: json, plugin: json.decode, settings: {{ field: .Payload.After }} }}\n      \
             - {{ id: mine, plugin: \"standalone:my-guest\", settings: {{ {settings} }} }}\n    \
             dead-letter-queue: {{ plugin: file, settings: {{ path: dlq.ndjson }}, window-size: 0 }}\n"
        );
        workspace.write("pipelines/p.yaml", file_to_file("sdk", &processors));
        workspace.run(&["run", "--once"])
    };
    let text = with("").expect_code(2).both();
    assert!(text.contains("\"prefix\" is required by my-guest"), "{text}");
    with("prefix: hello-").expect_code(0);
    let payload = |file: &str| -> serde_json::Value {
        let line = workspace.lines(file).remove(0);
        serde_json::from_str::<serde_json::Value>(&line).unwrap()["payload"]["after"].clone()
    };
    assert_eq!(payload("out.ndjson"), serde_json::json!({ "text": "hello-world", "big": 9_007_199_254_740_993_i64 }));
    assert_eq!(workspace.lines("out.ndjson").len(), 1);
    assert_eq!(payload("dlq.ndjson")["payload"]["after"]["text"], 5);
    let error = &workspace.lines("dlq.ndjson")[0];
    assert!(error.contains("not text"), "{error}");
}
