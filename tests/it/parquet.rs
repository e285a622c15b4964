//! Parquet files on disk and in a bucket: written, read, and read by pyarrow, which others wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::process::{Workspace, skip};
use crate::s3::{bucket_settings, reaches_bucket};
use crate::servers::s3::{BUCKET, Server};

/// A pipeline `p` from a file source to another plugin, with processors indented by six.
fn pipeline(source: &str, plugin: &str, destination: &str, processors: &str) -> String {
    let processors = if processors.is_empty() { String::new() } else { format!("    processors:\n{processors}") };
    format!(
        "version: \"2.2\"\npipelines:\n  - id: p\n    connectors:\n      - id: in\n        type: source\n        plugin: \
         file\n        settings: {{ {source} }}\n      - id: out\n        type: destination\n        plugin: \
         {plugin}\n        settings:\n{destination}\n{processors}"
    )
}

const DECODE: &str = "      - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }\n";

/// Settings, indented by ten.
fn indented(settings: &str) -> String {
    settings.split(", ").map(|setting| format!("          {setting}\n")).collect()
}

/// A pipeline from lines of JSON to Parquet files.
fn to_parquet(source: &str, destination: &str) -> String {
    pipeline(source, "file", &indented(&format!("format: parquet, {destination}")), DECODE)
}

/// A pipeline from Parquet files to lines of JSON.
fn from_parquet(source: &str) -> String {
    let settings = indented("path: back.ndjson, sdk.record.format: recfmt/raw");
    pipeline(&format!("framing: parquet, {source}"), "file", &settings, "")
}

/// The files of a directory with an ending.
fn files(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    found.sort();
    found
}

/// Runs Python with pyarrow. Returns what it printed, as JSON; `None` if it is not installed.
fn pyarrow(program: &str, arguments: &[&Path]) -> Option<Value> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/pyarrow/bin/python");
    if !python.exists() {
        skip("pyarrow is not installed: run .ci/setup");
        return None;
    }
    let output = Command::new(python).arg("-c").arg(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// Prints types, row groups and rows of a file.
const SHOW: &str = r#"
import json, sys, pyarrow.parquet as pq
file = pq.ParquetFile(sys.argv[1])
schema = file.schema_arrow
print(json.dumps({
    "types": {field.name: str(field.type) for field in schema},
    "groups": [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)],
    "codec": file.metadata.row_group(0).column(0).compression,
    "rows": file.read().to_pylist(),
}, default=lambda it: it.hex() if isinstance(it, bytes) else str(it)))
"#;

#[test]
fn another_implementation_reads_the_same_rows() {
    let workspace = Workspace::new();
    let lines = [
        json!({"id": 1, "name": "a\u{1f600}", "tags": ["x", null], "in": {"deep": [{"n": 0.5}, {"n": 1}]}, "ok": true}),
        json!({"id": -2, "name": null, "tags": [], "in": {"deep": null, "more": "m"}, "big": 18446744073709551615u64}),
        json!({"id": 3}),
    ];
    workspace.write("in.ndjson", lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    let raw = "path: out/orders.parquet, sdk.record.format: recfmt/raw, parquet.rowGroup.rows: 2, parquet.compression: snappy";
    fs::create_dir(workspace.path("out")).unwrap();
    workspace.write("pipelines/p.yaml", to_parquet("path: in.ndjson", raw));
    workspace.once();
    let written = files(&workspace.path("out"), ".parquet");
    assert_eq!(written.len(), 1, "{written:?}");
    assert!(written[0].file_name().unwrap().to_str().unwrap().starts_with("orders."));
    let Some(shown) = pyarrow(SHOW, &[&written[0]]) else { return };
    assert_eq!(
        shown["types"],
        json!({
            "big": "uint64", "id": "int64", "ok": "bool", "name": "string", "tags": "list<element: string>",
            "in": "struct<deep: list<element: struct<n: double>>, more: string>",
        })
    );
    assert_eq!((&shown["groups"], &shown["codec"]), (&json!([2, 1]), &json!("SNAPPY")));
    assert_eq!(
        shown["rows"],
        json!([
            {"big": null, "id": 1, "in": {"deep": [{"n": 0.5}, {"n": 1.0}], "more": null}, "name": "a\u{1f600}", "ok": true, "tags": ["x", null]},
            {"big": 18446744073709551615u64, "id": -2, "in": {"deep": null, "more": "m"}, "name": null, "ok": null, "tags": []},
            {"big": null, "id": 3, "in": null, "name": null, "ok": null, "tags": null},
        ])
    );
}

#[test]
fn files_of_another_implementation_are_read() {
    let workspace = Workspace::new();
    let program = r#"
import datetime, decimal, json, sys, pyarrow as pa, pyarrow.parquet as pq
utc = datetime.timezone.utc
table = pa.table({
    "id": pa.array(range(5000), pa.int32()),
    "price": pa.array([decimal.Decimal("12.50"), None] * 2500, pa.decimal128(10, 2)),
    "day": pa.array([datetime.date(2026, 11, 28)] * 5000),
    "at": pa.array([datetime.datetime(2026, 11, 28, 12, 30, 0, 5, tzinfo=utc)] * 5000, pa.timestamp("us", tz="UTC")),
    "kind": pa.array(["a", "b"] * 2500).dictionary_encode(),
    "map": pa.array([[("k", 1)], []] * 2500, pa.map_(pa.string(), pa.int64())),
    "blob": pa.array([b"\x00\xff"] * 5000),
    "small": pa.array([1.5] * 5000, pa.float32()),
    "list": pa.array([[{"x": [1]}], None] * 2500),
})
pq.write_table(table, sys.argv[1], row_group_size=1500, compression="zstd")
pq.write_table(table.slice(0, 3), sys.argv[2], compression="snappy", data_page_version="2.0")
print("1")
"#;
    fs::create_dir(workspace.path("in")).unwrap();
    let paths = ["in/a.parquet", "in/b.parquet"].map(|path| workspace.path(path));
    if pyarrow(program, &[&paths[0], &paths[1]]).is_none() {
        return;
    }
    workspace.write("pipelines/p.yaml", from_parquet("path: \"in/*.parquet\""));
    workspace.once();
    let rows: Vec<Value> =
        workspace.lines("back.ndjson").iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 5003);
    let row = |id: i64, is_even: bool| {
        json!({
            "id": id, "price": if is_even { json!("12.50") } else { Value::Null }, "day": "2026-11-28T00:00:00Z",
            "at": "2026-11-28T12:30:00.000005Z", "kind": if is_even { "a" } else { "b" },
            "map": if is_even { json!({"k": 1}) } else { json!({}) }, "blob": "AP8=", "small": 1.5,
            "list": if is_even { json!([{"x": [1]}]) } else { Value::Null },
        })
    };
    for id in 0..5000 {
        assert!(rows.contains(&row(id, id % 2 == 0)), "row {id}");
        if id == 20 {
            break;
        }
    }
    let ids: Vec<i64> = rows.iter().map(|row| row["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, (0..5000).chain(0..3).collect::<Vec<_>>(), "in the order of the files and their rows");
    workspace.once();
    assert_eq!(workspace.lines("back.ndjson").len(), 5003, "each is read once");
}

#[test]
fn a_killed_service_leaves_only_complete_files_and_loses_nothing() {
    const LINES: usize = 20_000;
    let workspace = Workspace::new();
    workspace
        .write("in.ndjson", (0..LINES).map(|n| format!("{{\"n\":{n},\"text\":\"text {n}\"}}\n")).collect::<String>());
    let settings = "path: 'out/{{ .Operation }}.parquet', sdk.record.format: recfmt/raw, sdk.batch.size: 100, \
                    sdk.rate.perSecond: 15000";
    workspace.write("pipelines/p.yaml", to_parquet("path: in.ndjson", settings));
    let written = || files(&workspace.path("out"), ".parquet").len();
    for kill in 1..=4 {
        let mut service = workspace.start(&["run"]);
        service.wait_until("more files", || written() >= kill * 20);
        service.signal("KILL");
        service.wait_for_end();
    }
    workspace.once();
    assert_eq!(files(&workspace.path("out"), ".anabranch"), [] as [PathBuf; 0], "unfinished files are removed");

    // Another pipeline reads what this one wrote, and is killed too.
    let back = Workspace::new();
    let path = workspace.path("out");
    let source = format!("path: \"{}/*.parquet\", sdk.batch.size: 100", path.display());
    let slow =
        indented("path: back.ndjson, sdk.record.format: recfmt/raw, sdk.rate.perSecond: 20000, sdk.batch.size: 100");
    back.write("pipelines/p.yaml", pipeline(&format!("framing: parquet, {source}"), "file", &slow, ""));
    for kill in 1..=3 {
        let mut service = back.start(&["run"]);
        service.wait_until("more rows", || back.lines("back.ndjson").len() >= kill * 3000);
        service.signal("KILL");
        service.wait_for_end();
    }
    back.once();
    let read: Vec<u64> = back
        .lines("back.ndjson")
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["n"].as_u64().unwrap())
        .collect();
    assert_eq!(read.iter().collect::<BTreeSet<_>>().len(), LINES);
    println!("{} of {LINES} records came again in {} files after 4 and 3 kills", read.len() - LINES, written());
}

#[test]
fn a_file_that_is_not_complete_is_waited_for_and_a_damaged_one_is_named() {
    let workspace = Workspace::new();
    workspace.write("in.ndjson", (0..3000).map(|n| format!("{{\"n\":{n}}}\n")).collect::<String>());
    fs::create_dir(workspace.path("out")).unwrap();
    let settings = "path: out/x.parquet, sdk.record.format: recfmt/raw, parquet.rowGroup.rows: 1000";
    workspace.write("pipelines/p.yaml", to_parquet("path: in.ndjson", settings));
    workspace.once();
    let bytes = fs::read(&files(&workspace.path("out"), ".parquet")[0]).unwrap();

    let back = Workspace::new();
    let mut damaged = bytes.clone();
    // Within the pages of the second row group.
    let third = bytes.len() / 3;
    damaged[third..third + 200].fill(0xff);
    back.write("in/a.parquet", &bytes[..bytes.len() / 2]);
    back.write("in/b.parquet", damaged);
    back.write("in/c.parquet", b"no table at all, but PAR1");
    back.write("pipelines/p.yaml", from_parquet("path: \"in/*.parquet\""));
    let output = back.run(&["run", "--once"]).expect_code(7).both();
    assert!(output.contains("in/a.parquet is not a complete Parquet file"), "{output}");
    for name in ["in/b.parquet: ", "in/c.parquet: "] {
        assert!(output.contains(name), "{output}");
    }
    let before = back.lines("back.ndjson").len();
    assert!((1..3000).contains(&before), "the rows before the damage are read: {before}");
    // Complete files replace them.
    back.replace("in/a.parquet", &bytes);
    back.replace("in/b.parquet", &bytes);
    fs::remove_file(back.path("in/c.parquet")).unwrap();
    back.once();
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for line in back.lines("back.ndjson") {
        *counts.entry(serde_json::from_str::<Value>(&line).unwrap()["n"].as_u64().unwrap()).or_default() += 1;
    }
    assert!(counts.len() == 3000 && counts.values().all(|count| *count >= 2), "{counts:?}");
}

#[test]
fn the_whole_record_goes_to_a_bucket_and_comes_back() {
    let server = Server::start();
    let mut workspace = Workspace::new();
    reaches_bucket(&mut workspace, &server.endpoint(), "AKIAEXAMPLE");
    workspace.write("in.ndjson", (0..500).map(|n| format!("{{\"n\":{n}}}\n")).collect::<String>());
    let bucket = bucket_settings(BUCKET);
    let settings = format!("{bucket}\n          format: parquet\n          folder: 'of={{{{ .Operation }}}}'");
    workspace.write("pipelines/p.yaml", pipeline("path: in.ndjson", "s3", &settings, DECODE));
    workspace.once();
    workspace.write(
        "pipelines/p.yaml",
        format!(
            "version: \"2.2\"\npipelines:\n  - id: back\n    connectors:\n      - id: objects\n        type: source\n        plugin: \
             s3\n        settings:\n{bucket}\n      - id: out\n        type: destination\n        plugin: file\n        settings: \
             {{ path: back.ndjson, sdk.record.format: recfmt/raw }}\n    processors:\n      - {{ id: rows, plugin: parquet.decode }}\n"
        ),
    );
    workspace.run(&["run", "--once", "--preview.pipeline-arch-v2"]).expect_code(0);
    let lines = workspace.lines("back.ndjson");
    assert_eq!(lines.len(), 500);
    for (n, line) in lines.iter().enumerate() {
        let row: Value = serde_json::from_str(line).unwrap();
        assert_eq!(row["payload"], json!({"before": null, "after": {"n": n}}), "{row}");
        assert_eq!((&row["operation"], &row["metadata"]["file.path"]), (&json!("create"), &json!("in.ndjson")));
        assert!(row["position"].is_string() && row["key"].is_string());
    }
}

#[test]
fn a_pipeline_that_cannot_write_columns_is_refused_before_the_first_record() {
    let workspace = Workspace::new();
    workspace.write("in.ndjson", "{}\n");
    let refused = |text: &str| {
        workspace.write("pipelines/p.yaml", text);
        workspace.run(&["pipelines", "validate"]).expect_code(2).both()
    };
    let raw = indented("format: parquet, path: out.parquet, sdk.record.format: recfmt/raw");
    let text = refused(&pipeline("path: in.ndjson", "file", &raw, ""));
    assert!(text.contains("it is raw data") && text.contains("json.decode"), "{text}");
    for (settings, message) in [
        ("format: parquet, path: out.parquet, sdk.record.format: debezium/json", "do not have this format"),
        ("format: parquet, path: out.parquet, compression: gzip", "set parquet.compression"),
        ("format: parquet, path: out.parquet, delimiter: x", "no delimiter"),
        ("path: out.parquet, parquet.compression: none", "used only with the format parquet"),
    ] {
        let text = refused(&pipeline("path: in.ndjson", "file", &indented(settings), DECODE));
        assert!(text.contains(message), "{settings}: {text}");
    }
    let text = refused(&from_parquet("path: \"-\""));
    assert!(text.contains("cannot be read from standard input"), "{text}");
}
