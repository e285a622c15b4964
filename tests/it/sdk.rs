//! Processors that users write in Rust: made by `processors new`, compiled, and run in a host that is not ours
//! and in ours.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use serde_json::{Value, json};

use crate::process::{Workspace, file_to_file, raw_after, skip};

/// Where it is kept compiled from one run to the next.
fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("sdk")
}

/// Compiles a crate for WebAssembly, all its binaries, and gives their directory; or says why not.
fn compiled(directory: &Path) -> Option<PathBuf> {
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/cargo-wasm");
    let output = Command::new(build).arg(directory).arg(target()).output().unwrap();
    if output.status.code() == Some(77) {
        skip("there is no Rust compiler for WebAssembly: `.ci/setup` provides one");
        return None;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(target().join("wasm32-wasip1/release"))
}

/// A crate made by the command, with two more processors as further binaries, and where they are compiled.
fn made(workspace: &Workspace) -> Option<PathBuf> {
    workspace.run(&["processors", "new", "my-guest"]).expect_code(0);
    workspace.write("my-guest/src/bin/every-feature.rs", include_str!("../guests/every_feature.rs"));
    workspace.write("my-guest/src/bin/function.rs", include_str!("../guests/function.rs"));
    compiled(&workspace.path("my-guest"))
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
    let modules = made(&workspace);
    let again = workspace.run(&["processors", "new", "my-guest"]).expect_code(2);
    assert!(again.stderr.contains("my-guest already exists"), "{}", again.stderr);
    // Its own tests pass as it is.
    let output = Command::new("cargo")
        .args(["test", "--offline", "--target-dir"])
        .arg(target())
        .current_dir(workspace.path("my-guest"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("3 passed"), "{said}");
    let Some(modules) = modules else { return };
    let module = modules.join("my-guest.wasm");
    if cfg!(feature = "wasm") {
        runs_in_a_pipeline(&workspace, &module);
        every_feature_works(&modules);
        a_function_is_a_processor(&modules);
        #[cfg(feature = "avro")]
        records_with_a_schema_keep_it(&modules);
    }
    if Command::new("node").arg("--version").output().is_err() {
        return skip("node is missing");
    }
    // The size of the module is a promise: it is compiled and kept once per processor.
    let size = std::fs::metadata(&module).unwrap().len();
    assert!(size < 384 * 1024, "{size} bytes");

    let setting = field(1, &[&field(1, &[b"prefix"]), &field(2, &[b"hello "])]);
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
    assert_eq!(responses[4], field(5, &[&field(1, &[&field(1, &[&record("hello world")])])]));
    assert_eq!(responses[5], field(6, &[]));
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
    with("prefix: \"hello \"").expect_code(0);
    let payload = |file: &str| -> Value {
        let line = workspace.lines(file).remove(0);
        serde_json::from_str::<Value>(&line).unwrap()["payload"]["after"].clone()
    };
    assert_eq!(payload("out.ndjson"), json!({ "text": "hello world", "big": 9_007_199_254_740_993_i64 }));
    assert_eq!(workspace.lines("out.ndjson").len(), 1);
    assert_eq!(payload("dlq.ndjson")["payload"]["after"]["text"], 5);
    let error = &workspace.lines("dlq.ndjson")[0];
    assert!(error.contains("not text"), "{error}");
}

/// Lines of JSON through `every-feature`: what was delivered, what failed, and what was logged.
struct Tried {
    delivered: Vec<Value>,
    failed: Vec<String>,
    log: String,
}

fn try_every_feature(modules: &Path, settings: &str, lines: &[&str]) -> Tried {
    let mut workspace = Workspace::new();
    workspace.env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/wasm"));
    workspace.env("ANABRANCH_SECRET_MY_KEY", "abcdefgh");
    workspace.write("processors/x.wasm", std::fs::read(modules.join("every-feature.wasm")).unwrap());
    workspace.write("in.txt", lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    let processors = format!(
        "      - {{ id: json, plugin: json.decode, settings: {{ field: .Payload.After }} }}\n      \
         - {{ id: every, plugin: every-feature, settings: {{ {settings} }} }}\n    \
         dead-letter-queue: {{ plugin: file, settings: {{ path: dlq.ndjson }}, window-size: 0 }}\n"
    );
    workspace.write("pipelines/p.yaml", file_to_file("sdk", &processors));
    let flags = ["run", "--once", "--preview.pipeline-arch-v2", "--processors.egress.enabled", "--log.format", "json"];
    let output = workspace.run(&flags).expect_code(0);
    let json = |line: &String| serde_json::from_str::<Value>(line).unwrap();
    let error = |line: &String| json(line)["metadata"]["svc.dlq.nack.error"].as_str().unwrap().to_owned();
    Tried {
        delivered: workspace.lines("out.ndjson").iter().map(json).collect(),
        failed: workspace.lines("dlq.ndjson").iter().map(error).collect(),
        log: output.stdout,
    }
}

impl Tried {
    /// The line of the log with this message.
    #[track_caller]
    fn logged(&self, message: &str) -> Value {
        let lines = self.log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let line = lines.into_iter().find(|line| line["message"].as_str().is_some_and(|text| text.contains(message)));
        line.unwrap_or_else(|| panic!("no {message:?}: {}", self.log))
    }
}

/// The raw payload of a delivered record.
fn raw(record: &Value) -> String {
    raw_after(&record.to_string())
}

fn every_feature_works(modules: &Path) {
    use anabranch_ops_http::testing::{Reply, Server};

    let server = Server::start(|request| Reply::status(203, format!("got {}", request.text())).with("X-Two", "2"));
    let url = format!("http://{}", server.address());
    let settings = format!("prefix: \" < \", copies: \" 3 \", url: \"{url}/x\", sdk.egress.allow: \"{url}\"");
    let lines = [
        r#"{"do":"text","text":"world"}"#,
        r#"{"text":"none is asked for"}"#,
        r#"{"do":"drop"}"#,
        r#"{"do":"none"}"#,
        r#"{"do":"copies","n":1}"#,
        r#"{"do":"fail"}"#,
        r#"{"do":"unheard of"}"#,
        r#"{"do":"panic"}"#,
        r#"{"do":"log"}"#,
        r#"{"do":"print"}"#,
        r#"{"do":"values","big":9007199254740993}"#,
        r#"{"do":"fields","gone":1,"old":[1,{"a":null}]}"#,
        r#"{"do":"system"}"#,
        r#"{"do":"http"}"#,
        r#"{"do":"schema"}"#,
    ];
    let tried = try_every_feature(modules, &settings, &lines);
    let after: Vec<&Value> = tried.delivered.iter().map(|record| &record["payload"]["after"]).collect();
    assert_eq!(tried.delivered.len(), 12, "{:#?}", tried.delivered);
    assert_eq!(*after[0], json!({ "do": "text", "text": " < world" }));
    assert_eq!(*after[1], json!({ "text": " < none is asked for" }));
    for copy in &after[2..5] {
        assert_eq!(**copy, json!({ "do": "copies", "n": 1 }));
    }
    assert_eq!((after[5], after[6]), (&json!({ "do": "log" }), &json!({ "do": "print" })));
    let values = json!({
        "do": "values", "big": 9_007_199_254_740_993_i64, "null": null, "bool": true, "int": 9_007_199_254_740_991_i64,
        "float": 1.5, "list": [1, "two", null], "map": { "a": 1, "ü": "😀" },
    });
    assert_eq!(*after[7], values);
    let fields = &tried.delivered[8];
    assert_eq!(*after[8], json!({ "do": "fields", "new": [1, { "a": null }] }));
    assert_eq!(fields["payload"]["before"], json!({ "was": "before" }));
    assert_eq!((&fields["operation"], &fields["key"]), (&json!("update"), &json!(STANDARD.encode("a key"))));
    let metadata = |name: &str| fields["metadata"][name].as_str().unwrap_or_default();
    assert_eq!((metadata("recfmt.collection"), metadata("read"), metadata("id")), ("things", "true", "every"));
    assert!(metadata("together").parse::<u32>().unwrap() > 0);
    assert_eq!(raw(&tried.delivered[9]), "true true true false false 0");
    assert_eq!(raw(&tried.delivered[10]), "203 2 got asked true true");
    assert_eq!(raw(&tried.delivered[11]), "1 true true true true");
    let received = server.received();
    assert!(received.iter().all(|r| (r.method.as_str(), r.header("x-one")) == ("POST", Some("1"))), "{received:?}");

    let [fail, unheard, panic] = tried.failed.as_slice() else { panic!("{:?}", tried.failed) };
    assert!(fail.contains("failing: it was asked for"), "{fail}");
    assert!(unheard.contains("nothing is called \"unheard of\""), "{unheard}");
    assert!(panic.contains("panicked at") && panic.contains("it was asked for"), "{panic}");
    let said = tried.logged("said by the log");
    assert_eq!((&said["level"], &said["processor"]), (&json!("warn"), &json!("every")), "{said}");
    assert_eq!(tried.logged("said by printing")["level"], "info");
    for message in ["opened", "closed"] {
        tried.logged(message);
    }

    // Settings of all types.
    let settings = "prefix: p, loud: T, kind: a, user: me, ratio: \"-2.5\", tags: \"x, y\", headers.a.b: \" c \", \
                    pause: 1m, retry.most: \"-7\", action: settings, field: .Key";
    let tried = try_every_feature(modules, settings, &["{}"]);
    let text = raw(&tried.delivered[0]);
    for part in [
        "loud: true",
        "user: Some(\"me\")",
        "ratio: Some(-2.5)",
        "tags: [\"x\", \"y\"]",
        "headers: {\"a.b\": \" c \"}",
        "pause: 60s",
        "retry: Retry { tries: -7 }",
        "copies: 2",
        "url: None",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

fn a_function_is_a_processor(modules: &Path) {
    let mut workspace = Workspace::new();
    workspace.env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/wasm"));
    workspace.write("processors/x.wasm", std::fs::read(modules.join("function.wasm")).unwrap());
    workspace.write("in.txt", "a\n#b\nc\n");
    workspace.write("pipelines/p.yaml", file_to_file("sdk", "      - { id: f, plugin: function }\n"));
    workspace.run(&["run", "--once"]).expect_code(0);
    let delivered: Vec<String> = workspace.lines("out.ndjson").iter().map(|line| raw_after(line)).collect();
    assert_eq!(delivered, ["aa", "cc"]);
}

/// Records with a schema reach the module as Avro, and leave it so.
#[cfg(feature = "avro")]
fn records_with_a_schema_keep_it(modules: &Path) {
    let run = |processors: &str| {
        let mut workspace = Workspace::new();
        workspace.env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/wasm"));
        workspace.write("processors/x.wasm", std::fs::read(modules.join("every-feature.wasm")).unwrap());
        let pipeline = file_to_file("sdk", processors).replace("plugin: file\n        settings:\n          path: in.txt", 
            "plugin: generator\n        settings:\n          format.type: structured\n          format.options.name: string\n          \
             format.options.id: int\n          format.options.active: bool\n          operations: create\n          \
             seed: 1\n          recordCount: 3");
        workspace.write("pipelines/p.yaml", pipeline);
        workspace.run(&["run", "--once"]).expect_code(0);
        let json = |line: &String| serde_json::from_str::<Value>(line).unwrap();
        workspace.lines("out.ndjson").iter().map(json).collect::<Vec<Value>>()
    };
    let plain = run("");
    let given =
        run("      - { id: e, plugin: every-feature, settings: { prefix: \"> \", field: .Payload.After.name } }\n");
    assert_eq!((plain.len(), given.len()), (3, 3));
    for (plain, given) in plain.iter().zip(&given) {
        let mut expected = plain["payload"]["after"].clone();
        expected["name"] = format!("> {}", expected["name"].as_str().unwrap()).into();
        assert_eq!(given["payload"]["after"], expected);
        let subject = "recfmt.payload.schema.subject";
        assert!(plain["metadata"][subject].is_string(), "{plain}");
        assert_eq!(given["metadata"][subject], plain["metadata"][subject]);
    }
}
