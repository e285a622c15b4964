//! Files as they are: patterns, compression, framing, standard input and output, and a file for each record.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_ops_http::testing::{Received, Reply, Server};
use serde_json::Value;

use crate::process::{Output, Process, Workspace, raw_after};

/// A pipeline `p` from a file source to a file destination with these settings, and processors indented by six.
fn pipeline(source: &str, destination: &str, processors: &str) -> String {
    let processors = if processors.is_empty() { String::new() } else { format!("    processors:\n{processors}") };
    format!(
        "version: \"2.2\"\npipelines:\n  - id: p\n    connectors:\n      - id: in\n        type: source\n        plugin: \
         file\n        settings: {{ {source} }}\n      - id: out\n        type: destination\n        plugin: file\n        \
         settings: {{ {destination} }}\n{processors}"
    )
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn gunzip(bytes: &[u8]) -> String {
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(bytes).read_to_string(&mut text).unwrap();
    text
}

/// The file and the payload of each record in the output.
fn delivered(workspace: &Workspace) -> Vec<(String, String)> {
    let of = |line: &String| {
        let record: Value = serde_json::from_str(line).unwrap();
        (record["metadata"]["file.path"].as_str().unwrap().to_owned(), raw_after(line))
    };
    workspace.lines("out.ndjson").iter().map(of).collect()
}

#[test]
fn a_pattern_of_compressed_files_loses_nothing_when_the_service_is_killed() {
    const FILES: usize = 9;
    const LINES: usize = 6_000;
    let workspace = Workspace::new();
    for file in 0..FILES {
        let text: Vec<String> = (0..LINES).map(|line| format!("{file} {line}\n")).collect();
        let (start, end) = (text[..LINES / 3].concat(), text[LINES / 3..].concat());
        match file % 3 {
            0 => workspace.write(&format!("in/{file}.log"), start + &end),
            1 => workspace.write(&format!("in/{file}.log.gz"), [gzip(start.as_bytes()), gzip(end.as_bytes())].concat()),
            _ => {
                let members = [start, end].map(|text| zstd::bulk::compress(text.as_bytes(), 1).unwrap());
                workspace.write(&format!("in/{file}.log.zst"), members.concat())
            }
        };
    }
    let rate = "sdk.rate.perSecond: 60000, sdk.batch.size: 50";
    workspace.write("pipelines/p.yaml", pipeline("path: \"in/*.log*\"", &format!("path: out.ndjson, {rate}"), ""));
    let mut random = fastrand::Rng::with_seed(7);
    let length = || fs::metadata(workspace.path("out.ndjson")).map_or(0, |file| file.len());
    let mut kills = 0;
    while kills < 6 {
        let until = length() + random.u64(1..1_000_000);
        let mut service = workspace.start(&["run"]);
        let all = (FILES * LINES) as u64;
        service.wait_until("more records", || length() >= until || workspace.lines("out.ndjson").len() as u64 >= all);
        service.signal("KILL");
        service.wait_for_end();
        kills += 1;
    }
    workspace.once();
    let mut seen: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (path, text) in delivered(&workspace) {
        let (file, line) = text.split_once(' ').unwrap();
        assert!(path.starts_with(&format!("in/{file}.log")), "{path}: {text}");
        seen.entry(path).or_default().push(line.parse().unwrap());
    }
    assert_eq!(seen.len(), FILES);
    let mut repeated = 0;
    for (path, lines) in seen {
        let distinct: BTreeSet<usize> = lines.iter().copied().collect();
        assert_eq!(distinct.len(), LINES, "{path} has all its lines");
        repeated += lines.len() - LINES;
        // A kill goes back in the file, and never leaves a line out.
        let mut most = 0;
        for line in lines {
            assert!(line <= most + 1, "{path}: line {line} after line {most}");
            most = most.max(line);
        }
    }
    println!("{repeated} of {} records came again after {kills} kills", FILES * LINES);
}

#[test]
fn standard_input_is_read_once_and_standard_output_has_only_records() {
    let workspace = Workspace::new();
    let raw = "path: \"-\", sdk.record.format: recfmt/raw";
    workspace.write("pipelines/p.yaml", pipeline("path: \"-\"", raw, ""));
    let read = |input: &[u8]| {
        let mut command = workspace.command(["run", "--once"]);
        let mut process = Process::spawn(command.stdin(Stdio::piped()));
        process.stdin().write_all(input).unwrap();
        process.finish().expect_code(0)
    };
    let output = read(b"one\ntwo\nthree");
    assert_eq!(output.stdout, "one\ntwo\nthree\n");
    assert!(output.stderr.contains("delivered"), "the log is on standard error: {}", output.stderr);
    // Each run reads its own input, compressed or not.
    assert_eq!(read(&gzip(b"four\nfive\n")).stdout, "four\nfive\n");
    assert_eq!(read(b"").stdout, "");

    let plan = workspace.run(&["pipelines", "plan"]).expect_code(0).both();
    assert!(plan.contains("a crash or a stop may lose records"), "{plan}");
    // A service cannot read it.
    let mut service = workspace.start(&["run", "--pipelines.exit-on-degraded"]);
    let printed = service.printed();
    service.wait_for_end();
    assert!(printed().contains("read it with `anabranch run --once`"), "{}", printed());
}

#[test]
fn a_csv_file_with_a_header_and_values_of_many_lines_is_decoded_row_by_row() {
    let workspace = Workspace::new();
    workspace.write("in/a.csv", "id,text\r\n1,\"two\r\nlines, \"\"quoted\"\"\"\r\n\r\n2,plain\r\n");
    workspace.write("in/b.csv.gz", gzip(b"id,text\n3,\"x\ny\"\n"));
    let decode =
        "      - { id: rows, plugin: csv.decode, settings: { field: .Payload.After, columns: \"id:int,text\" } }\n";
    let settings = "path: out.ndjson, sdk.record.format: recfmt/raw";
    workspace.write("pipelines/p.yaml", pipeline("path: in/, framing: csv", settings, decode));
    workspace.once();
    let expected =
        [r#"{"id":1,"text":"two\r\nlines, \"quoted\""}"#, r#"{"id":2,"text":"plain"}"#, r#"{"id":3,"text":"x\ny"}"#];
    assert_eq!(workspace.lines("out.ndjson"), expected);
    // Rows that are added later are read by the next run, with the header of the file.
    workspace.append("in/a.csv", "4,\"a\nb\"\n");
    workspace.once();
    assert_eq!(workspace.lines("out.ndjson")[3..], [r#"{"id":4,"text":"a\nb"}"#]);
}

#[test]
fn json_values_and_records_of_many_lines_are_read_as_they_are() {
    let workspace = Workspace::new();
    workspace.write("in.json", "[\n {\"n\": 1,\n  \"t\": \"]\"},\n {\"n\": 2}\n]\n");
    let decode = "      - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }\n";
    let raw = "path: out.ndjson, sdk.record.format: recfmt/raw";
    workspace.write("pipelines/p.yaml", pipeline("path: in.json, framing: json", raw, decode));
    workspace.once();
    assert_eq!(workspace.lines("out.ndjson"), [r#"{"n":1,"t":"]"}"#, r#"{"n":2}"#]);

    let workspace = Workspace::new();
    workspace.write("app.log", "2026-01-01 fails\n  at a\n  at b\n2026-01-02 works\n");
    let source = r#"path: app.log, framing: multiline, multiline.startPattern: '^\d{4}-'"#;
    workspace.write("pipelines/p.yaml", pipeline(source, "path: out.ndjson", ""));
    workspace.once();
    let texts: Vec<String> = delivered(&workspace).into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["2026-01-01 fails\n  at a\n  at b", "2026-01-02 works"]);
}

#[test]
fn bytes_pass_unchanged_from_a_whole_file_to_a_file() {
    let workspace = Workspace::new();
    let bytes: Vec<u8> = (0..=255u8).cycle().take(300_000).collect();
    workspace.write("in/a.bin", &bytes);
    let settings = "path: out.bin, sdk.record.format: recfmt/raw, delimiter: \"\"";
    workspace.write("pipelines/p.yaml", pipeline("path: in/, framing: whole", settings, ""));
    workspace.once();
    assert!(fs::read(workspace.path("out.bin")).unwrap() == bytes);
    workspace.once();
    assert_eq!(fs::metadata(workspace.path("out.bin")).unwrap().len(), 300_000, "it is read once");
}

#[test]
fn a_damaged_file_is_named_and_the_others_are_read() {
    let workspace = Workspace::new();
    let mut damaged = gzip(&b"good\n".repeat(3));
    damaged.extend_from_slice(b"garbage");
    workspace.write("in/a.gz", damaged);
    workspace.write("in/b.gz", &gzip(b"cut\n".repeat(1000).as_slice())[..40]);
    workspace.write("in/c.gz", gzip(b"fine\n"));
    workspace.write("pipelines/p.yaml", pipeline("path: \"in/*.gz\"", "path: out.ndjson", ""));
    let output = workspace.run(&["run", "--once"]).expect_code(7).both();
    assert!(output.contains("in/a.gz: the gzip data is damaged before byte"), "{output}");
    assert!(output.contains("in/b.gz ends in the middle of a compressed member"), "{output}");
    let count = |wanted: &str| delivered(&workspace).iter().filter(|(_, text)| text == wanted).count();
    assert_eq!((count("good"), count("fine")), (3, 1));
    // The damage is no record that could be replayed.
    let letters = workspace.run(&["dlq", "list", "p"]).both();
    assert!(!letters.contains("a.gz"), "{letters}");
    // The rest comes, the damaged file is repaired in place, and both are read.
    workspace.write("in/b.gz", gzip(b"cut\n".repeat(1000).as_slice()));
    workspace.write("in/a.gz", [gzip(&b"good\n".repeat(3)), gzip(b"better\n")].concat());
    workspace.once();
    assert_eq!((count("cut"), count("good"), count("better")), (1000, 3, 1));
}

#[test]
fn a_destination_that_writes_files_where_the_source_reads_is_warned_about() {
    let workspace = Workspace::new();
    let path = "path: 'w/{{ index .Metadata \"file.path\" }}.out'";
    for (source, warns) in [("w/*", true), ("w/", true), ("v/*", false), ("w/*.in", false)] {
        workspace.write("pipelines/p.yaml", pipeline(&format!("path: \"{source}\""), path, ""));
        let found = workspace.run(&["pipelines", "lint"]).both();
        assert_eq!(found.contains("plan.feedback"), warns, "{source}: {found}");
        assert_eq!(found.contains("writes files into w"), warns, "{source}: {found}");
    }
}

/// The files below a directory, with their text; compressed ones decompressed.
fn files(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            let below = files(&entry.path()).into_iter().map(|(path, text)| (format!("{name}/{path}"), text));
            found.extend(below);
        } else {
            let bytes = fs::read(entry.path()).unwrap();
            let text = if name.contains(".gz") { gunzip(&bytes) } else { String::from_utf8(bytes).unwrap() };
            found.insert(name, text);
        }
    }
    found
}

#[test]
fn each_record_goes_to_its_file_and_none_leaves_the_directory() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "a/x 1\nb 2\na/x 3\n../../escaped 4\nb 5\n");
    let split = "      - { id: parse, plugin: regex.parse, settings: { field: .Payload.After, pattern: '^(?<to>\\S+) (?<n>.*)$' } }\n";
    let destination = "path: 'out/{{ .Payload.After.to }}.txt', maxOpenFiles: 1, sdk.record.format: template, \
                       sdk.record.format.options: '{{ .Payload.After.n }}'";
    let queue = "    dead-letter-queue: { plugin: file, window-size: 0, settings: { path: letters.ndjson } }\n";
    workspace.write("pipelines/p.yaml", pipeline("path: in.txt", destination, split) + queue);
    workspace.once();
    let expected = [("a/x.txt", "1\n3\n"), ("b.txt", "2\n5\n")].map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(files(&workspace.path("out")), BTreeMap::from(expected));
    let letters = workspace.lines("letters.ndjson");
    assert!(letters.len() == 1 && letters[0].contains("path_refused"), "{letters:?}");
    assert!(!workspace.path("escaped.txt").exists());
    // Before the first record, a template without a directory is refused.
    let nowhere = pipeline("path: in.txt", "path: '{{ .Operation }}.txt'", "");
    workspace.write("pipelines/p.yaml", nowhere);
    let refused = workspace.run(&["pipelines", "validate"]).expect_code(2).both();
    assert!(
        !refused.contains("literal text") && refused.contains("the template does not begin with a directory"),
        "{refused}"
    );
}

#[test]
fn compressed_files_are_readable_after_a_kill_and_hold_each_record() {
    const LINES: usize = 30_000;
    let workspace = Workspace::new();
    workspace.write("in.txt", (0..LINES).map(|line| format!("{line}\n")).collect::<String>());
    let destination = "path: out/log.ndjson.gz, compression: gzip, rotate.bytes: 20KiB, sdk.batch.size: 500, \
                       sdk.rate.perSecond: 30000, sdk.record.format: recfmt/raw";
    fs::create_dir(workspace.path("out")).unwrap();
    workspace.write("pipelines/p.yaml", pipeline("path: in.txt", destination, ""));
    let size = || {
        let files =
            fs::read_dir(workspace.path("out")).unwrap().map(|file| file.unwrap().metadata().map_or(0, |it| it.len()));
        files.sum::<u64>()
    };
    for kill in 1..=3 {
        let mut service = workspace.start(&["run"]);
        service.wait_until("some output", || size() >= kill * 9_000);
        service.signal("KILL");
        service.wait_for_end();
        // `gunzip` panics on a file that is not complete, unless it is the last write that the next start cuts.
    }
    workspace.once();
    let files = files(&workspace.path("out"));
    assert!(files.len() > 2, "it was rotated: {:?}", files.keys());
    let lines: Vec<usize> = files.values().flat_map(|text| text.lines().map(|line| line.parse().unwrap())).collect();
    let distinct: BTreeSet<usize> = lines.iter().copied().collect();
    assert_eq!(distinct.len(), LINES);
    println!("{} of {LINES} records came again after 3 kills", lines.len() - LINES);

    // Another pipeline reads what this one wrote.
    let back = Workspace::new();
    let source = format!("path: \"{}/*.gz\"", workspace.path("out").display());
    back.write("pipelines/p.yaml", pipeline(&source, "path: out.ndjson", ""));
    back.once();
    let read: BTreeSet<usize> = delivered(&back).iter().map(|(_, text)| text.parse().unwrap()).collect();
    assert_eq!(read, distinct);
}

#[test]
fn a_destination_that_writes_a_file_of_the_pattern_is_refused() {
    let workspace = Workspace::new();
    workspace.write("in/a.log", "one\n");
    workspace.write("pipelines/p.yaml", pipeline("path: \"in/*.log\"", "path: in/out.log", ""));
    let refused = workspace.run(&["pipelines", "validate"]).both();
    assert!(refused.contains("plan.feedback"), "{refused}");
    workspace.write("pipelines/p.yaml", pipeline("path: in", "path: out.ndjson", ""));
    let refused = workspace.run(&["pipelines", "validate"]).expect_code(2).both();
    assert!(refused.contains("is a directory") && refused.contains("write in/ for the files in it"), "{refused}");
}

#[test]
fn the_log_names_the_file_of_a_record_that_failed() {
    let workspace = Workspace::new();
    workspace.write("in/a.log", "{}\n{}\n");
    workspace.write("in/b.log", "{}\nnot JSON\n");
    let decode = "      - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }\n";
    workspace.write("pipelines/p.yaml", pipeline("path: \"in/*.log\"", "path: out.ndjson", decode));
    let text = workspace.run(&["run", "--once"]).expect_code(1).both();
    let file = workspace.path("in/b.log");
    let (own, whole) = ("position=\"in/b.log, record 2\"", format!("position=\"{}, record 2\"", file.display()));
    assert!(text.contains(own) || text.contains(&whole), "{text}");
}

#[test]
fn standard_output_that_is_a_file_is_not_written_over() {
    let workspace = Workspace::new();
    workspace.write("pipelines/p.yaml", pipeline("path: in.txt", "path: \"-\", sdk.record.format: recfmt/raw", ""));
    workspace.write("in.txt", "one\ntwo\n");
    let path = workspace.write("out.txt", "before\n");
    // As in `(echo before; anabranch run --once; echo after) > out.txt`: the offset is shared, and the mode is not append.
    let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.seek(SeekFrom::End(0)).unwrap();
    let mut command = workspace.command(["run", "--once"]);
    let status = command.stdout(file.try_clone().unwrap()).stderr(Stdio::null()).status().unwrap();
    assert!(status.success(), "{status}");
    file.write_all(b"after\n").unwrap();
    assert_eq!(workspace.read("out.txt"), "before\none\ntwo\nafter\n");
}

/// Runs the pipelines of a workspace once with this input.
fn once_with(workspace: &Workspace, input: &[u8]) -> Output {
    let mut command = workspace.command(["run", "--once"]);
    let mut process = Process::spawn(command.stdin(Stdio::piped()));
    process.stdin().write_all(input).unwrap();
    process.finish()
}

#[test]
fn the_records_before_damage_of_standard_input_are_delivered() {
    let raw = "path: \"-\", sdk.record.format: recfmt/raw";
    let long = [b"one\ntwo\n", &[b'x'; 2000][..], b"\nthree\n"].concat();
    let garbage = [gzip(b"one\ntwo\n"), b"garbage".to_vec()].concat();
    let cut = [gzip(b"one\ntwo\n"), gzip(b"three\n")[..12].to_vec()].concat();
    for (input, why) in
        [(long, "is longer than 1000 bytes"), (garbage, "data is damaged"), (cut, "the rest is missing")]
    {
        // Also if records wait for others before they are written.
        for batch in ["", ", sdk.batch.size: 100, sdk.batch.delay: 1s"] {
            let workspace = Workspace::new();
            let source = format!("path: \"-\", maxLineBytes: 1000{batch}");
            workspace.write("pipelines/p.yaml", pipeline(&source, &format!("{raw}{batch}"), ""));
            let output = once_with(&workspace, &input).expect_code(1);
            assert_eq!(output.stdout, "one\ntwo\n", "{why}{batch}: {}", output.stderr);
            assert!(output.stderr.contains(why), "{why}{batch}: {}", output.stderr);
        }
    }
}

#[test]
fn standard_input_is_kept_while_its_destination_is_away() {
    static IS_BACK: AtomicBool = AtomicBool::new(false);
    let server = Server::start(|_| if IS_BACK.load(Ordering::SeqCst) { Reply::ok("") } else { Reply::status(503, "") });
    let mut workspace = Workspace::new();
    workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MIN_DELAY", "10ms");
    let text = pipeline("path: \"-\"", "path: out.txt", "");
    let to_server =
        format!("plugin: http\n        settings: {{ request.url: \"{}\", backoffRetry.count: 1 }}", server.url());
    workspace.write("pipelines/p.yaml", text.replace("plugin: file\n        settings: { path: out.txt }", &to_server));
    let mut process = Process::spawn(workspace.command(["run", "--once"]).stdin(Stdio::piped()));
    process.stdin().write_all(b"one\ntwo\nthree\n").unwrap();
    let printed = process.printed();
    process.wait_until("a failure of the pipeline", || printed().contains("restarts in"));
    let tried = server.received().len();
    IS_BACK.store(true, Ordering::SeqCst);
    process.finish().expect_code(0);
    let received: String = server.received().iter().skip(tried).map(Received::text).collect();
    for line in ["one", "two", "three"] {
        assert!(received.contains(line), "{received}");
    }
}

#[test]
fn the_records_of_a_file_before_one_that_is_too_long_are_delivered_once() {
    let raw = "path: out.txt, sdk.record.format: recfmt/raw";
    for (name, framing) in [("lines.txt", "lines"), ("rows.csv", "csv, csv.header: false")] {
        let workspace = Workspace::new();
        let long = ["one\ntwo\n", &"x".repeat(2000), "\nthree\n"].concat();
        workspace.write(name, &long);
        let source = format!("path: {name}, framing: {framing}, maxLineBytes: 1000");
        workspace.write("pipelines/p.yaml", pipeline(&source, raw, ""));
        for _ in 0..2 {
            let failed = workspace.run(&["run", "--once"]).expect_code(1).both();
            assert!(failed.contains("is longer than 1000 bytes"), "{failed}");
            assert_eq!(workspace.read("out.txt"), "one\ntwo\n", "{name}");
        }
        workspace.write("pipelines/p.yaml", pipeline(&source.replace("1000", "4000"), raw, ""));
        workspace.once();
        assert_eq!(workspace.read("out.txt"), long, "{name}");
    }
}

#[test]
fn standard_input_has_one_source_and_no_position() {
    let workspace = Workspace::new();
    workspace.write("pipelines/p.yaml", pipeline("path: \"-\"", "path: out.txt, sdk.record.format: recfmt/raw", ""));
    for input in ["one\n", "two\n"] {
        let output = once_with(&workspace, input.as_bytes()).expect_code(0).both();
        assert!(!output.contains("stored position") && !output.contains("WARN"), "{output}");
    }
    assert_eq!(workspace.read("out.txt"), "one\ntwo\n");
    let second = pipeline("path: \"-\"", "path: other.txt", "").replace("id: p\n", "id: q\n");
    workspace.write("pipelines/q.yaml", second);
    let refused = workspace.run(&["pipelines", "validate"]).expect_code(2).both();
    assert!(refused.contains("plan.input_taken") && refused.contains("both read standard input"), "{refused}");
    // The first one has the input.
    let refused = once_with(&workspace, b"three\n").expect_code(2).both();
    assert!(refused.contains("both read standard input"), "{refused}");
    assert_eq!(workspace.read("out.txt"), "one\ntwo\nthree\n");
    assert!(!workspace.path("other.txt").exists());
}

#[test]
fn text_after_a_quoted_value_of_a_row_fails_its_record() {
    let workspace = Workspace::new();
    workspace.write("in.csv", "\"1\",a\n\"2\"x,b\n3,c\n");
    let decode =
        "      - { id: rows, plugin: csv.decode, settings: { field: .Payload.After, columns: \"id:int,text\" } }\n";
    let queue = "    dead-letter-queue: { plugin: file, window-size: 0, settings: { path: letters.ndjson } }\n";
    let source = "path: in.csv, framing: csv, csv.header: false";
    let settings = "path: out.ndjson, sdk.record.format: recfmt/raw";
    workspace.write("pipelines/p.yaml", pipeline(source, settings, decode) + queue);
    workspace.once();
    assert_eq!(workspace.lines("out.ndjson"), [r#"{"id":1,"text":"a"}"#, r#"{"id":3,"text":"c"}"#]);
    let letters = workspace.read("letters.ndjson");
    assert!(letters.contains("text follows the closing quote of the value 1, at byte 4"), "{letters}");
}
