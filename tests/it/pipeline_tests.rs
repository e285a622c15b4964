//! `pipelines test`: what passes, what fails and how it is shown, and that nothing leaves the test.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;

use crate::api::{ask, end};
use crate::process::{Output, Workspace, file_to_file};
use crate::schema::{files, is_test, yaml_files};

const PIPELINE: &str = r#"version: "2.2"
pipelines:
  - id: p
    connectors:
      - { id: in, type: source, plugin: file, settings: { path: ./in.txt } }
      - { id: out, type: destination, plugin: file, settings: { path: ./out.txt } }
    processors:
PROCESSORS
    dead-letter-queue: { plugin: drop, window-size: 0 }
"#;

/// A directory with a pipeline of these processors, indented by six, and its tests.
fn workspace(processors: &str, tests: &str) -> Workspace {
    let workspace = Workspace::new();
    let pipeline = match processors {
        "" => PIPELINE.replace("    processors:\nPROCESSORS\n", ""),
        processors => PIPELINE.replace("PROCESSORS", processors.trim_end()),
    };
    workspace.write("pipelines/p.yaml", pipeline);
    workspace.write("pipelines/p.test.yaml", patient(tests));
    workspace
}

/// With a time that is enough on a machine whose cores are taken; no line has another number for it.
fn patient(tests: &str) -> String {
    if tests.contains("timeout:") { tests.to_owned() } else { format!("{}\ntimeout: 120s\n", tests.trim_end()) }
}

#[track_caller]
fn run(processors: &str, tests: &str, code: i32) -> Output {
    workspace(processors, tests).run(&["pipelines", "test", "--no-color"]).expect_code(code)
}

#[track_caller]
fn passes(processors: &str, tests: &str) {
    run(processors, tests, 0);
}

/// All of `expected` is said.
#[track_caller]
fn fails(processors: &str, tests: &str, code: i32, expected: &[&str]) {
    let said = run(processors, tests, code).both();
    for part in expected {
        assert!(said.contains(part), "{part:?} is not in:\n{said}");
    }
}

const DECODE: &str = "      - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }\n";

#[test]
fn every_example_has_tests_that_pass() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for file in files("examples") {
        assert!(file.with_extension("test.yaml").exists(), "{} has no tests", file.display());
    }
    if cfg!(all(feature = "http", feature = "js", feature = "postgres", feature = "s3")) {
        let examples = examples.to_str().unwrap();
        let output = Workspace::new()
            .run(&["pipelines", "test", examples, "--preview.pipeline-arch-v2", "--coverage", "--min-coverage", "100"])
            .expect_code(0);
        assert!(output.stdout.contains("coverage of documents-to-vectors: 100 %"), "{}", output.stdout);
    }
}

#[test]
fn the_examples_of_the_documentation_pass() {
    let text = include_str!("../../docs/testing-pipelines.md");
    let workspace = Workspace::new();
    let mut written = 0;
    for block in text.split("```yaml\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let name = block.lines().next().unwrap().strip_prefix("# ").expect("its file");
        workspace.write(name, block);
        written += 1;
    }
    assert!(written >= 4);
    if cfg!(feature = "http") {
        workspace.run(&["pipelines", "test", "."]).expect_code(0);
    }
}

#[test]
fn a_field_that_differs_is_named_with_its_place() {
    let tests = "tests:
  - name: amounts
    input: ['{\"amount\": 6, \"sku\": \"a\"}']
    expect:
      records:
        - after:
            amount: 5
            sku: a
";
    fails(
        DECODE,
        tests,
        1,
        &[
            "records of out (pipelines/p.test.yaml:7:21)",
            "record 1: after.amount is 6, expected 5",
            "-      \"amount\": 5,",
            "+      \"amount\": 6,",
            "1 failed",
        ],
    );
}

#[test]
fn what_is_missing_or_too_much_is_named() {
    let tests = "tests:
  - name: three
    input: [a, b, c]
    expect: { records: [a, c, d] }
";
    fails("", tests, 1, &["record 2 was not expected: {\"after\":\"b\"}", "record 3 is missing"]);
}

#[test]
fn a_dead_letter_that_nobody_expects_fails_the_test() {
    let tests = "tests:
  - name: letters
    input: [no JSON]
    expect: { status: finished }
";
    fails(DECODE, tests, 1, &["dead letters", "record 1 of in failed at decode"]);
}

#[test]
fn mistakes_in_a_test_are_found_at_their_places() {
    let tests = "tests:
  - name: a
    imput: []
    expect:
      records: { aut: [] }
  - name: a
    expect: { records: 0 }
    faults: [{ at: out, fail: sometimes }]
";
    fails(
        "",
        tests,
        2,
        &["p.test.yaml:3:5", "did you mean \"input\"?", "two tests have the name \"a\"", "`fail` must be record"],
    );
    let tests = "tests:
  - name: a
    expect:
      records: { aut: [] }
    faults:
      - { at: decode, crash: true }
      - { at: decode, delay: 1s }
";
    fails(
        DECODE,
        tests,
        2,
        &["p.test.yaml:4:18", "did you mean out?", "this fault is not possible at decode", "1 not valid"],
    );
    fails(
        "      - { id: x, plugin: fild.set }\n",
        "tests: [{ name: a, input: [], expect: { records: 0 } }]",
        2,
        &["p.yaml:8:26", "field.set"],
    );
}

#[test]
fn patterns_match() {
    let tests = "tests:
  - name: patterns
    input:
      - key: k
        metadata: { a: 1, b: two }
        after: { id: 01234567-89ab-cdef-0123-456789abcdef, n: 3, list: [1, 2], more: { x: 1, y: 2 } }
    expect:
      records:
        - key: { $regex: '^k$' }
          metadata: { a: 1, c: $absent }
          after: { id: $uuid, n: { $min: 3 }, list: { $unordered: [2, 1] }, more: { $fields: { x: $number } } }
";
    passes("", tests);
    let exact = "match: exact
tests:
  - name: exact
    input: [{ after: x, metadata: { a: b } }]
    expect: { records: [{ after: x }] }
";
    fails("", exact, 1, &["metadata.a is \"b\", expected nothing"]);
}

#[test]
fn variables_come_from_the_test_alone() {
    let processors = "      - { id: s, plugin: field.set, settings: { field: .Metadata.who, value: '${WHO}' } }\n";
    let mut workspace = workspace(processors, "tests: [{ name: a, input: [x], expect: { records: 1 } }]");
    workspace.env("WHO", "the process");
    let output = workspace.run(&["pipelines", "test"]).expect_code(2);
    assert!(output.both().contains("set its value in `env`"), "{}", output.both());
    let tests = "env: { WHO: file }
tests:
  - { name: a, input: [x], expect: { records: [{ metadata: { who: file } }] } }
  - { name: b, env: { WHO: test }, input: [x], expect: { records: [{ metadata: { who: test } }] } }
";
    passes(processors, tests);
}

#[test]
fn the_time_of_day_stands_still() {
    let processors = "      - { id: t, plugin: field.set, settings: { field: .Metadata.t, value: '{{ now | date \"2006-01-02\" }}' } }\n";
    let tests = "now: 1999-12-31T12:00:00Z
timeout: 60s
tests:
  - name: templates and the engine
    input: [x]
    expect:
      records: [{ metadata: { t: 1999-12-31, recfmt.readAt: 946641600000000000 } }]
";
    passes(processors, tests);
    if cfg!(feature = "js") {
        let script = "      - id: s\n        plugin: custom.javascript\n        settings:\n          script: |\n            function process(rec) { rec.Metadata.t = new Date().toISOString(); return rec; }\n";
        let tests = tests.replace("t: 1999-12-31,", "t: 1999-12-31T12:00:00.000Z,");
        passes(script, &tests);
    }
}

#[test]
fn an_outage_of_an_hour_takes_no_time() {
    let tests = "tests:
  - name: an hour
    input: [a, b]
    faults: [{ at: out, down: 1h }]
    expect: { records: [a, b], acks: all }
";
    let begin = Instant::now();
    let workspace = workspace("", tests);
    let output = workspace.run(&["--json", "pipelines", "test"]).expect_code(0);
    assert!(begin.elapsed().as_secs() < 600);
    let said: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(said["result"]["tests"][0]["virtualTime"], true);
}

#[test]
fn faults_strike_where_they_are_put() {
    let tests = "tests:
  - name: a step
    input: ['{}', '{}', '{}']
    faults: [{ at: decode, record: 2, fail: record, message: not today }]
    expect: { records: 2, dead-letters: [{ record: 2, step: decode, error: not today, code: injected }], acks: [1, 2, 3] }
  - name: a destination takes a part
    input: ['{\"a\": 1}', '{\"a\": 2}', '{\"a\": 3}']
    faults: [{ at: out, partial-write: 2 }]
    expect: { records: { out: { repeats: true, records: [{ after: { a: 1 } }, { after: { a: 2 } }, { after: { a: 3 } }] } }, acks: all }
  - name: the process dies at a destination
    input: [['{\"a\": 1}'], ['{\"a\": 2}'], ['{\"a\": 3}']]
    faults: [{ at: out, record: 2, crash: true }]
    expect: { records: { out: { repeats: true, records: [{ after: { a: 1 } }, { after: { a: 2 } }, { after: { a: 3 } }] } }, acks: all }
  - name: the process dies before the source is told
    input: [['{\"a\": 1}'], ['{\"a\": 2}']]
    faults: [{ at: in, record: 1, crash: true }]
    expect: { records: { out: { repeats: true, count: 2 } } }
  - name: a source that fails once
    input: ['{\"a\": 1}', '{\"a\": 2}']
    faults: [{ at: in, record: 2, fail: transient }]
    expect: { records: { out: { repeats: true, count: 2 } }, acks: all }
  - name: a destination that fails for good
    input: ['{}']
    faults: [{ at: out, fail: fatal, message: gone }]
    expect: { error: gone, records: 0, acks: none }
  - name: a destination that never comes back
    input: ['{}']
    faults: [{ at: out, fail: transient, times: always, message: no route }]
    expect: { status: recovering, error: no route, acks: none }
  - name: a step that panics
    input: ['{}']
    faults: [{ at: decode, panic: true }]
    expect: { dead-letters: [{ record: 1, step: decode, error: panicked }] }
";
    let output = workspace(DECODE, tests).run(&["pipelines", "test", "--no-color"]);
    assert_eq!(output.code(), Some(0), "{}", output.both());
}

#[test]
fn a_test_that_hangs_ends() {
    let tests = "timeout: 300ms
tests:
  - name: hangs
    input: [a]
    expect: { records: 1 }
    faults: [{ at: out, hang: true }]
";
    fails("", tests, 1, &["the time limit of 300ms expired"]);
}

#[test]
fn results_are_for_programs_too() {
    let tests = "tests:
  - { name: good, input: [a], expect: { records: [a] } }
  - { name: 'bad & <worse>', input: [a], expect: { records: [b] } }
";
    let workspace = workspace("", tests);
    let output = workspace.run(&["--json", "pipelines", "test", "--junit", "report.xml"]).expect_code(1);
    let said: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(said["ok"], false);
    assert_eq!((&said["summary"]["passed"], &said["summary"]["failed"]), (&1.into(), &1.into()));
    let failure = &said["result"]["tests"][1]["failures"][0];
    assert_eq!((&failure["line"], &failure["got"][0]["after"]), (&3.into(), &"a".into()));
    let xml = workspace.read("report.xml");
    let document = roxmltree::Document::parse(&xml).unwrap();
    let case = document.descendants().find(|n| n.attribute("name") == Some("bad & <worse>")).unwrap();
    assert!(case.children().any(|n| n.has_tag_name("failure")));
    let suite = document.descendants().find(|n| n.has_tag_name("testsuite")).unwrap();
    assert_eq!((suite.attribute("tests"), suite.attribute("failures")), (Some("2"), Some("1")));

    // A report is replaced by the next one; nothing else is.
    workspace.run(&["pipelines", "test", "--junit", "report.xml"]).expect_code(1);
    workspace.write("precious", "precious\n");
    for name in ["precious", "pipelines/p.yaml", "pipelines"] {
        let before = std::fs::read(workspace.path(name)).ok();
        let output = workspace.run(&["--json", "pipelines", "test", "--junit", name]).expect_code(2);
        assert!(output.stdout.contains("cli.output_taken"), "{name}: {}", output.both());
        assert!(std::fs::read(workspace.path(name)).ok() == before, "{name}");
    }
}

#[test]
fn expectations_are_written_and_comments_kept() {
    let tests = "# Why these tests are here.
tests:
  - name: values # the first
    input: [{ after: { a: 1, b: x } }]
    expect:
      records:
        # This one matters.
        - after: { a: 2, b: $text }
  - name: lists
    input: [{ key: k, after: { a: 1 } }, z]
    expect:
      records: []
  - name: a comment would be lost
    input: [x, y]
    expect:
      records:
        - x # first
";
    let workspace = workspace("", tests);
    let output = workspace.run(&["pipelines", "test", "--update"]).expect_code(1);
    assert!(output.stdout.contains("p.test.yaml: 2 expectations written"), "{}", output.stdout);
    assert!(output.stdout.contains("not changed: comments in the list would be lost"), "{}", output.stdout);
    let written = workspace.read("pipelines/p.test.yaml");
    let expected = patient(tests).replace("a: 2, b: $text", "a: 1, b: $text").replace(
        "      records: []\n",
        "      records:\n        - key: k\n          after: { a: 1 }\n        - after: z\n",
    );
    assert_eq!(written, expected);
    workspace.run(&["pipelines", "test", "--filter", "lists"]).expect_code(0);
    workspace.run(&["pipelines", "test", "--filter", "values"]).expect_code(0);
}

#[test]
fn expectations_in_braces_stay_in_braces() {
    let tests = "tests:\n  - name: x\n    input: [{ after: { a: 1 } }]\n    expect: { records: [] }\n  - { name: y, input: [z], expect: {\n      records: [\n      ] } }\n";
    let workspace = workspace("", tests);
    let before = workspace.read("pipelines/p.test.yaml");
    let output = workspace.run(&["pipelines", "test", "--update"]).expect_code(1);
    assert!(
        output.stdout.contains("not changed: the layout of the list does not allow the change"),
        "{}",
        output.stdout
    );
    assert_eq!(workspace.read("pipelines/p.test.yaml"), before);
    let tests = "tests:\n  - name: x\n    input: [{ after: { a: 1 } }]\n    expect: { records: [] }\n";
    workspace.write("pipelines/p.test.yaml", tests);
    let output = workspace.run(&["pipelines", "test", "--update"]).expect_code(0);
    assert!(output.stdout.contains("1 expectation written"), "{}", output.stdout);
    assert_eq!(workspace.read("pipelines/p.test.yaml"), tests.replace("[] }", "[{ after: { a: 1 } }] }"));
    workspace.run(&["pipelines", "test"]).expect_code(0);
}

#[test]
fn coverage_counts_both_sides_of_conditions() {
    let processors = "      - { id: small, plugin: filter, condition: '{{ eq .Metadata.size \"small\" }}' }\n";
    let one = "tests:\n  - { name: a, input: [{ after: x, metadata: { size: small } }], expect: { records: [] } }\n";
    let workspace = workspace(processors, one);
    let output = workspace.run(&["pipelines", "test", "--coverage", "--min-coverage", "90"]).expect_code(1);
    let said = output.both();
    assert!(said.contains("coverage of p: 50 % (2 of 4)"), "{said}");
    assert!(said.contains("NOT COVERED  small (filter), otherwise"), "{said}");
    assert!(said.contains("the tests cover 50 % of p, less than 90 %"), "{said}");
    let more = format!(
        "{one}  - {{ name: b, input: [{{ after: y, metadata: {{ size: large }} }}], expect: {{ records: [y] }} }}\n"
    );
    workspace.write("pipelines/p.test.yaml", patient(&more));
    workspace.run(&["pipelines", "test", "--coverage", "svg", "--min-coverage", "100"]).expect_code(0);
    let svg = workspace.read("p.coverage.svg");
    assert!(roxmltree::Document::parse(&svg).is_ok() && svg.contains("small"), "{svg}");
}

#[test]
fn the_schema_describes_what_is_read() {
    let output = Workspace::new().run(&["pipelines", "test", "--schema"]).expect_code(0);
    let schema = jsonschema::validator_for(&serde_json::from_str(&output.stdout).unwrap()).unwrap();
    let read = |text: &str| crate::schema::yaml(text);
    let tests: Vec<PathBuf> = yaml_files("examples").into_iter().filter(|path| is_test(path)).collect();
    for file in &tests {
        let errors: Vec<String> =
            schema.iter_errors(&read(&std::fs::read_to_string(file).unwrap())).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", file.display());
    }
    assert!(tests.len() >= 8);
    for bad in ["tests: []", "tests: [{ name: a, imput: [] }]", "tests: [{ name: a, faults: [{ fail: x }] }]"] {
        assert!(!schema.is_valid(&read(bad)), "{bad}");
        fails("", bad, 2, &[]);
    }
}

#[test]
fn test_files_are_no_pipelines() {
    let workspace = workspace("", "tests: [{ name: a, input: [x], expect: { records: [x] } }]");
    workspace.write("in.txt", "x\n");
    workspace.run(&["pipelines", "validate"]).expect_code(0);
    workspace.once();
    assert_eq!(workspace.lines("out.txt").len(), 1);
    let output = Workspace::new().run(&["pipelines", "test"]).expect_code(2);
    assert!(output.stderr.contains("there are no tests in"), "{}", output.stderr);
}

#[test]
fn tests_can_be_sent_to_a_service() {
    let workspace = workspace("", "tests: [{ name: a }]");
    workspace.write("in.txt", "");
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    let send = |test: &str| {
        let body =
            serde_json::json!({ "pipeline": PIPELINE.replace("    processors:\nPROCESSORS\n", ""), "test": test });
        ask(address, "POST", "/v1/pipelines/test", "Content-Type: application/json\r\n", &body.to_string())
    };
    let good = send("tests: [{ name: a, input: [x], expect: { records: [x] } }]");
    assert_eq!((good.status, &good.json()["ok"]), (200, &true.into()), "{}", good.body);
    let bad = send("tests: [{ name: a, input: [x], expect: { records: [y] } }]");
    assert_eq!(bad.json()["ok"], false);
    assert_eq!(bad.json()["result"]["tests"][0]["failures"][0]["got"][0]["after"], "x", "{}", bad.body);
    // A client names no files of this machine.
    let file = send("tests: [{ name: a, input: [{ lines: /etc/hostname }], expect: { records: 0 } }]");
    assert_eq!(file.json()["result"]["findings"][0]["message"], "files are not allowed here", "{}", file.body);
    let malformed = ask(address, "POST", "/v1/pipelines/test", "", "{\"pipeline\": 1}");
    assert_eq!((malformed.status, malformed.reason().as_str()), (400, "api.malformed_request"));
    end(process);
}

#[cfg(feature = "http")]
mod http {
    use super::*;

    fn webhook(url: &str) -> String {
        format!(
            "      - id: ask\n        plugin: webhook.http\n        settings:\n          request.url: {url}\n          request.method: POST\n          request.body: '{{{{ printf \"%s\" .Payload.After }}}}'\n          response.body: .Payload.After\n          backoffRetry.count: '2'\n          backoffRetry.min: 1ms\n"
        )
    }

    #[test]
    fn services_are_answered_for_whatever_their_url_says() {
        let tests = "timeout: 60s
tests:
  - name: in turn
    input: [one, two]
    http:
      - match: { method: POST, url: URL, body: one }
        replies: [{ status: 503 }, { close: true }, { body: first }]
        times: 3
      - match: { body: { $regex: ^t } }
        reply: { body: second, delay: 5ms }
    expect:
      records: [first, second]
      requests: { count: 4 }
";
        for url in ["http://service.example:1234/a?b=c", "https://service.example/a"] {
            passes(&webhook(url), &tests.replace("URL", url));
        }
    }

    #[test]
    fn a_request_that_nobody_answers_fails_the_test_by_name() {
        let tests = "timeout: 60s
tests:
  - name: unanswered
    input: [one]
    http: [{ match: { body: other }, reply: {} }]
    expect: { dead-letters: 1 }
";
        let expected =
            ["no stub matches POST http://nowhere.example/x", "the nearest stub expects body to be \"other\""];
        fails(&webhook("http://nowhere.example/x"), tests, 1, &expected);
        // Without any stub, too: nothing is asked for real.
        let tests = tests.replace("    http: [{ match: { body: other }, reply: {} }]\n", "");
        fails(&webhook("http://127.0.0.1:9/x"), &tests, 1, &expected[..0]);
        fails(&webhook("http://127.0.0.1:9/x"), &tests, 1, &["no stub matches POST http://127.0.0.1:9/x"]);
    }
}

/// A record that a pipeline forgets when it is read again is lost by a crash: the check for that finds it.
#[test]
#[cfg(feature = "http")]
fn a_record_that_a_crash_loses_is_found() {
    let tests = |second: &str| {
        format!(
            r#"tests:
  - name: nothing is lost
    input: [one, two]
    http:
      - match: {{ url: http://seen.example/ }}
        # What was asked for before the crash is asked for again after it.
        replies: [ {{ body: new }}, {{ body: new }}, {{ body: {second} }} ]
    expect: {{ status: finished }}
    faults:
      - {{ at: out, record: 1, crash: true }}
"#
        )
    };
    let pipeline = file_to_file(
        "p",
        r#"      - id: ask
        plugin: webhook.http
        settings: { request.url: "http://seen.example/", request.method: POST, response.body: .Metadata.verdict }
      - { id: twice, plugin: filter, condition: '{{ eq .Metadata.verdict "seen" }}' }
"#,
    );
    let workspace = Workspace::new();
    workspace.write("pipelines/p.yaml", pipeline);
    workspace.write("pipelines/p.test.yaml", patient(&tests("new")));
    workspace.run(&["pipelines", "test", "pipelines/p.test.yaml"]).expect_code(0);
    workspace.write("pipelines/p.test.yaml", patient(&tests("seen")));
    let output = workspace.run(&["pipelines", "test", "pipelines/p.test.yaml"]).expect_code(1);
    assert!(output.stdout.contains("after a crash") && output.stdout.contains("lost: "), "{}", output.stdout);
}

#[test]
fn a_test_that_compares_nothing_or_reads_nothing_is_refused() {
    let nothing = "a test needs `expect`: without it, nothing is compared";
    for (tests, said) in [
        ("tests:\n  - name: a\n    input: [x]\n", [nothing, "p.test.yaml:2:5"]),
        ("tests:\n  - name: a\n    input: [x]\n    expect: {}\n", [nothing, "p.test.yaml:4:5"]),
        (
            "tests:\n  - name: a\n    expect: { records: 0 }\n",
            ["a test needs `input`: without it, no record is read", "p.test.yaml:2:11"],
        ),
    ] {
        fails("", tests, 2, &said);
    }
    passes("", "tests:\n  - name: a\n    input: []\n    expect: { status: finished }\n");
}

#[test]
fn a_fault_that_never_happens_fails_the_test() {
    let tests = |fault: &str| {
        format!("tests:\n  - name: a\n    input: [x, y]\n    expect: {{ records: 2 }}\n    faults:\n      - {fault}\n")
    };
    for (fault, said) in [
        ("{ at: out, record: 7, fail: transient }", "record 7 does not reach out"),
        ("{ at: out, records: [3, 4], crash: true }", "none of the records 3, 4 reaches out"),
        ("{ at: in, record: 3, delay: 1s }", "record 3 does not reach in"),
    ] {
        fails("", &tests(fault), 1, &["the fault never occurs", said, "p.test.yaml:6:11"]);
    }
    let none = "tests:\n  - name: a\n    input: []\n    expect: { records: 0 }\n    faults: [{ at: out, down: 1s }]\n";
    fails("", none, 1, &["the fault never occurs: no record reaches out"]);
    for fault in
        ["{ at: out, record: 2, fail: transient }", "{ at: out, down: 1s }", "{ at: in, record: 2, delay: 1s }"]
    {
        passes("", &tests(fault));
    }
}
