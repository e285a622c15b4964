//! Pipelines with programs in VRL.

use serde_json::{Value, json};

use crate::process::{Workspace, file_to_file};

fn parsed(workspace: &Workspace, name: &str) -> Vec<Value> {
    workspace.lines(name).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A processor with this program, for `file_to_file`, and a dead-letter queue.
fn with(program: &str) -> String {
    let lines: Vec<String> = program.lines().map(|line| format!("            {line}\n")).collect();
    format!(
        "      - id: map\n        plugin: vrl\n        settings:\n          program: |\n{}    \
         dead-letter-queue: {{ plugin: file, settings: {{ path: dlq.ndjson }}, window-size: 0 }}\n",
        lines.concat()
    )
}

/// The example under this heading of the page.
fn example(heading: &str) -> &'static str {
    example_after(&format!("### {heading}\n"))
}

/// The first example of the page after this text.
fn example_after(text: &str) -> &'static str {
    let (_, section) = include_str!("../../docs/vrl.md").split_once(text).unwrap();
    let (_, program) = section.split_once("```vrl\n").unwrap();
    program.split_once("```").unwrap().0
}

/// Runs an example of the page on lines. Returns the records, and the errors of the dead letters.
fn run(heading: &str, lines: &str) -> (Vec<Value>, Vec<String>) {
    let workspace = Workspace::new();
    workspace.write("in.txt", lines);
    workspace.write("pipelines/p.yaml", file_to_file("map", &with(example(heading))));
    workspace.once();
    let letters = match workspace.path("dlq.ndjson").exists() {
        true => parsed(&workspace, "dlq.ndjson"),
        false => Vec::new(),
    };
    let error = |letter: &Value| letter["metadata"]["svc.dlq.nack.error"].as_str().unwrap().to_owned();
    (parsed(&workspace, "out.ndjson"), letters.iter().map(error).collect())
}

fn payloads(records: &[Value]) -> Vec<&Value> {
    records.iter().map(|record| &record["payload"]["after"]).collect()
}

#[test]
fn a_field_of_the_rest_is_set_before_the_payload() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "level=info a=b\n");
    workspace.write("pipelines/p.yaml", file_to_file("map", &with(example_after("became a value whose fields"))));
    workspace.once();
    let records = parsed(&workspace, "out.ndjson");
    assert_eq!(records[0]["metadata"]["level"], "info");
    assert_eq!(payloads(&records), [&json!({"level": "info", "a": "b"})]);
}

#[test]
fn an_access_log_is_parsed() {
    let (records, errors) = run(
        "An access log of nginx",
        concat!(
            "172.17.0.1 - alice [31/Mar/2026:12:04:07 +0000] \"GET /shop?id=7&q=a%20b HTTP/1.1\" 200 612 \"-\" \"curl/8\"\n",
            "172.17.0.1 - - [31/Mar/2026:12:04:08 +0000] \"GET /no HTTP/1.1\" 404 0 \"-\" \"curl/8\"\n",
            "not a line of a log\n",
        ),
    );
    assert_eq!(records.len(), 1, "{records:?}");
    let after = &records[0]["payload"]["after"];
    assert_eq!(
        (&after["client"], &after["user"], &after["status"]),
        (&json!("172.17.0.1"), &json!("alice"), &json!(200))
    );
    assert_eq!(after["query"], json!({"id": "7", "q": "a b"}));
    assert_eq!(after["timestamp"], "2026-03-31T12:04:07Z");
    assert_eq!(errors, ["parse_nginx_log: failed parsing log line"]);
}

#[test]
fn syslog_is_parsed() {
    let (records, errors) =
        run("Syslog", "<13>1 2026-03-13T20:45:38.119Z host.example app 2426 ID931 - it began\n<13>no syslog\n");
    assert_eq!(records[0]["payload"]["after"]["message"], "it began");
    assert_eq!(records[0]["payload"]["after"]["severity"], "notice");
    assert_eq!(records[0]["key"], "aG9zdC5leGFtcGxl");
    assert_eq!(errors.len() + records.len(), 2, "{errors:?} {records:?}");
}

#[test]
fn keys_and_values_are_parsed() {
    let (records, errors) = run("Keys and values", "level=info took=1.5s msg=\"it began\"\n");
    assert_eq!(payloads(&records), [&json!({"level": "info", "msg": "it began", "took": 1500.0})]);
    assert_eq!(errors, Vec::<String>::new());
}

#[test]
fn csv_is_parsed() {
    let (records, errors) = run("CSV", "7,\"Ada, Countess\",1.5\nseven,x,1\n");
    assert_eq!(payloads(&records), [&json!({"id": 7, "name": "Ada, Countess", "amount": 1.5})]);
    assert!(errors[0].contains("to_int"), "{errors:?}");
}

#[test]
fn text_is_redacted() {
    let (records, _) = run("Redacted text", "the number is 123-45-6789.\n");
    let raw = crate::process::base64_decode(records[0]["payload"]["after"].as_str().unwrap());
    assert_eq!(String::from_utf8(raw).unwrap(), "the number is [REDACTED].");
}

#[test]
fn an_error_of_compilation_is_shown_at_its_place_in_the_file() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "x\n");
    workspace.write("pipelines/p.yaml", file_to_file("map", &with(". = parse_json!(.)\n.b = upcase(.c)")));
    let output = workspace.run(&["pipelines", "validate", "pipelines/p.yaml"]).expect_code(2);
    let said = output.both();
    let line = workspace.read("pipelines/p.yaml").lines().position(|line| line.contains("upcase")).unwrap() + 1;
    assert!(said.contains("vrl.invalid") && said.contains(&format!("pipelines/p.yaml:{line}:18")), "{said}");
    assert!(said.contains("program:2:6: unhandled fallible assignment (E103)"), "{said}");
}

#[test]
fn a_value_that_no_record_can_hold_is_found_at_its_place_in_the_file() {
    for (program, line, column, said) in [
        ("%operation = \"upsert\"", "upsert", 26, "%operation becomes \"upsert\", which is not an operation"),
        (". = parse_json!(.)\n%metadata = null", "%metadata", 13, "%metadata becomes a value of type null"),
    ] {
        let workspace = Workspace::new();
        workspace.write("in.txt", "x\n");
        workspace.write("pipelines/p.yaml", file_to_file("map", &with(program)));
        let output = workspace.run(&["pipelines", "validate"]).expect_code(2).both();
        let line = workspace.read("pipelines/p.yaml").lines().position(|text| text.contains(line)).unwrap() + 1;
        let place = format!("pipelines/p.yaml:{line}:{column}");
        assert!(output.contains("vrl.mistake") && output.contains(&place) && output.contains(said), "{output}");
    }
}

#[test]
fn remedies_of_the_compiler_keep_their_lines() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "x\n");
    workspace.write("pipelines/p.yaml", file_to_file("map", &with(". = parse_json!(.)\n.b = upcase(5)")));
    let output = workspace.run(&["pipelines", "validate", "pipelines/p.yaml"]).expect_code(2).both();
    let lines: Vec<&str> = output.lines().map(str::trim).collect();
    assert!(output.contains("(E110)"), "{output}");
    for remedy in ["5 = string!(5)", "upcase(5)", "5 = to_string(5) ?? \"default\""] {
        assert!(lines.contains(&remedy), "{remedy}: {output}");
    }
}

#[test]
fn every_documented_program_is_valid() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "x\n");
    let decoded = |program: &str| {
        let decode = "      - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }\n";
        file_to_file("map", &format!("{decode}{}", with(program)))
    };
    let blocks: Vec<&str> = include_str!("../../docs/vrl.md").split("```vrl\n").skip(1).collect();
    assert!(blocks.len() >= 6, "{}", blocks.len());
    for (number, block) in blocks.iter().enumerate() {
        let program = block.split("```").next().unwrap();
        workspace.write(&format!("pipelines/{number}.yaml"), file_to_file(&format!("map-{number}"), &with(program)));
        workspace.run(&["pipelines", "validate", "--strict", &format!("pipelines/{number}.yaml")]).expect_code(0);
    }
    // Programs for structured data: a block of YAML, and a string.
    let (_, block) = include_str!("../../docs/vrl.md").split_once("      program: |\n").unwrap();
    let block: String =
        block.lines().map_while(|line| line.strip_prefix("        ")).map(|line| format!("{line}\n")).collect();
    let (_, text) = include_str!("../../docs/plugins/vrl.md").split_once("      program: ").unwrap();
    let text: String = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    for program in [block, text] {
        workspace.write("structured.yaml", decoded(&program));
        workspace.run(&["pipelines", "validate", "--strict", "structured.yaml"]).expect_code(0);
    }
}

#[test]
fn a_program_that_cannot_succeed_is_refused_before_the_first_record() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "x\n");
    workspace.write("pipelines/p.yaml", file_to_file("map", &with(".a = 1")));
    let output = workspace.run(&["run", "--once"]);
    assert_ne!(output.code(), Some(0));
    assert!(output.both().contains("vrl.mistake") && output.both().contains("raw data"), "{}", output.both());
    assert!(!workspace.path("out.ndjson").exists());
}

#[test]
fn an_array_becomes_several_records_and_a_program_can_be_a_file() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "[{\"n\":1},{\"n\":2}]\n");
    workspace.write("pipelines/split.vrl", ". = parse_json!(.)\n");
    let processor = "      - { id: map, plugin: vrl, settings: { program.path: split.vrl } }\n";
    workspace.write("pipelines/p.yaml", file_to_file("map", processor));
    workspace.run(&["run", "--once", "--preview.pipeline-arch-v2"]).expect_code(0);
    assert_eq!(payloads(&parsed(&workspace, "out.ndjson")), [&json!({"n": 1}), &json!({"n": 2})]);
}

#[test]
fn lines_of_a_program_are_in_the_log() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\n");
    let program = "log(\"seen: \" + string!(.), level: \"warn\")";
    workspace.write("pipelines/p.yaml", file_to_file("map", &with(program)));
    let output = workspace.once();
    let line = output.both().lines().find(|line| line.contains("seen: one")).map(str::to_owned);
    assert!(line.as_ref().is_some_and(|line| line.contains("WRN") && line.contains("pipeline=map")), "{line:?}");
}

#[test]
fn a_condition_is_evaluated_again_after_a_program_that_writes_what_it_reads() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "{\"n\":1}\n{\"n\":-1}\n");
    let step = |id: &str, program: &str| {
        format!(
            "      - {{ id: {id}, plugin: vrl, condition: '{{{{ gt .Payload.After.n 0 }}}}', settings: {{ program: \
             {program:?} }} }}\n"
        )
    };
    let steps = [step("other", ".other = true"), step("same", ".n = 0"), step("changed", ".changed = true")];
    let decode = "      - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }\n";
    workspace.write("pipelines/p.yaml", file_to_file("map", &format!("{decode}{}", steps.concat())));
    let plan = workspace.run(&["pipelines", "plan", "--stage", "fused", "--format", "json"]).expect_code(0).stdout;
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let shares = |id: &str| {
        let node = plan["nodes"].as_array().unwrap().iter().find(|node| node["id"] == id);
        node.unwrap()["condition"]["as_before"].as_bool().unwrap()
    };
    assert_eq!(["other", "same", "changed"].map(shares), [false, true, false]);
    workspace.once();
    let records = parsed(&workspace, "out.ndjson");
    assert_eq!(payloads(&records), [&json!({"n": 0, "other": true}), &json!({"n": -1})]);
}
