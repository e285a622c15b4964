use anabranch_plugin::flow::{Field, Fields, Flow, Keys, Kinds, Operations, RecordShape, Shape, Type, Uses};
use anabranch_plugin::operator::{Configured, Decision, Fan};
use anabranch_plugin::testing::configured::{Opened, processor};
use anabranch_plugin::testing::host;
use anabranch_plugin::testing::json::{record, text};
use anabranch_record::access::Access;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Operation, Position, Record};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

mod fields;
mod memory;
mod random;
mod unfit;

fn with(settings: &[(&str, &str)]) -> Configured {
    processor(&kind(), settings).unwrap()
}

fn of(program: &str) -> Configured {
    with(&[("program", program)])
}

fn refused(program: &str) -> Vec<String> {
    processor(&kind(), &[("program", program)]).err().expect("the program compiles")
}

fn run(configured: &Configured, record: &Record) -> (Record, Decision) {
    let mut records = vec![record.clone()];
    let mut decisions = Opened::new(configured, host()).unwrap().process(&mut records, None);
    (records.remove(0), decisions.pop().map_or(Decision::Keep, |(_, decision)| decision))
}

/// Returns the JSON text of the payload after the program, or the code and message of the fault.
fn payload(configured: &Configured, after: impl Into<Data>) -> Result<String, String> {
    let before = Record::new(after);
    match run(configured, &before) {
        (after, Decision::Keep) => Ok(json(&after.payload.after)),
        (after, Decision::Fail(fault)) => {
            assert_eq!(format!("{after:?}"), format!("{before:?}"), "a failed record changed");
            Err(format!("{}: {}", fault.code(), fault.message()))
        }
        (_, other) => panic!("{other:?}"),
    }
}

fn json(data: &Data) -> String {
    let mut out = Vec::new();
    anabranch_record::json::write_data(data, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn fields(json: &str) -> Data {
    record(&format!(r#"{{"operation":"create","payload":{{"after":{json}}}}}"#)).payload.after
}

/// A shape of records with exactly these fields.
fn shape(fields: &[(&'static str, Kinds)]) -> RecordShape {
    let field = |(name, kinds): &(&'static str, Kinds)| (Str::from_static(name), Field::present(Type::of(*kinds)));
    RecordShape::create(Shape::ABSENT, Shape::structured(Fields::closed(fields.iter().map(field))))
}

/// Returns the flow of a program, and its findings: `!` before those for which every record fails.
fn flow(configured: &Configured, shape: RecordShape) -> (RecordShape, Vec<String>) {
    let mut flow = Flow::new(shape);
    configured.flow(&mut flow);
    let fails = flow.fails();
    let (record, remarks) = flow.into_parts();
    let said = remarks.into_iter().map(|remark| {
        let sign = if remark.severity == anabranch_plugin::diagnostic::Severity::Error { "!" } else { "" };
        format!("{sign}{}", remark.message)
    });
    let said: Vec<String> = said.collect();
    assert_eq!(fails, said.iter().any(|said| said.starts_with('!')));
    (record, said)
}

fn field(record: &RecordShape, name: &str) -> Option<(Kinds, bool)> {
    let field = record.after.structured.as_ref()?.get(name)?;
    Some((field.ty.kinds, field.optional))
}

#[test]
fn fields_are_set_changed_and_removed() {
    let program =
        of(".level = upcase(string!(.level))\n.total = int!(.price) * int!(.count)\ndel(.password)\n.in.new = true");
    let after =
        payload(&program, fields(r#"{"level":"info","price":3,"count":4,"password":"x","in":{"old":1},"z":null}"#));
    let expected = r#"{"count":4,"in":{"new":true,"old":1},"level":"INFO","price":3,"total":12,"z":null}"#;
    assert_eq!(after.as_deref(), Ok(expected));
}

#[test]
fn the_rest_of_the_record_is_behind_the_percent_sign() {
    let program = of(concat!(
        "%metadata.from = %operation\n%metadata.\"a.b\" = 7\n%metadata.old = null\n%operation = \"update\"\n",
        ".position = %position\n.name = %key.name\n%key.name = \"new\"\n.was = %before.name\n.meta = %metadata.kept",
    ));
    let before = record(
        r#"{"position":"Nw==","operation":"create","metadata":{"kept":"k","old":"o"},"key":{"id":1,"name":"n"},"payload":{"before":{"name":"b"},"after":{}}}"#,
    );
    let (after, decision) = run(&program, &before);
    assert!(matches!(decision, Decision::Keep), "{decision:?}");
    assert_eq!(
        text(&after),
        r#"{"position":"Nw==","operation":"update","metadata":{"a.b":"7","from":"create","kept":"k"},"key":{"id":1,"name":"new"},"payload":{"before":{"name":"b"},"after":{"meta":"k","name":"n","position":"7","was":"b"}}}"#
    );
    let (after, _) = run(&of("%metadata = {\"a\": true, \"b\": null}"), &before);
    assert_eq!(
        after.metadata.iter().map(|(key, text)| (key.as_str(), text.as_str())).collect::<Vec<_>>(),
        [("a", "true")]
    );
    let (_, Decision::Fail(fault)) = run(&of("%operation = \"upsert\""), &before) else { panic!("kept") };
    assert_eq!(fault.code().name(), "vrl_result");
    assert!(refused("%position = \"x\"")[0].contains("read-only"));
    assert!(refused("% = {}")[0].contains("read-only"));
    assert_eq!(refused(".a = %metdata.x"), ["program:1:6: % has no field \"metdata\""]);
    assert_eq!(refused("%metadata.a.b = 1"), ["program:1:1: an entry of the metadata is a text, without fields"]);
}

#[test]
fn raw_data_is_a_string() {
    let program = of(". = parse_json!(.)");
    assert_eq!(payload(&program, "{\"a\": [1]}").as_deref(), Ok("{\"a\":[1]}"));
    let said = payload(&program, "{").unwrap_err();
    assert!(said.starts_with("vrl_failed: parse_json: unable to parse json"), "{said}");
    assert_eq!(payload(&program, fields("{}")).unwrap_err(), "vrl_failed: parse_json: expected string, got object");
    let said = payload(&of(". |= {\"a\": 1}"), "text").unwrap_err();
    assert!(said.starts_with("vrl_unfit: the program does not compile for a payload that is raw data"), "{said}");
    assert_eq!(payload(&of(". = encode_json(.)"), fields("{\"a\":1}")), Ok(json(&Data::text("{\"a\":1}"))));
    assert_eq!(payload(&of(". = null"), "text").as_deref(), Ok("null"));
    // Raw data passes by reference.
    let bytes = bytes::Bytes::from_static(b"\xff\x00text");
    let (after, _) = run(&of("%metadata.x = \"1\"\n. = ."), &Record::new(bytes.clone()));
    assert_eq!(after.payload.after.raw().unwrap().as_ptr(), bytes.as_ptr());
}

#[test]
fn a_field_of_raw_data_is_never_set() {
    let said = payload(&of(".a = 1"), "text").unwrap_err();
    assert_eq!(
        said,
        "vrl_not_structured: the program sets .a, but the data that would have this field is not structured"
    );
    assert!(payload(&of(".a = 1"), Data::Absent).unwrap_err().starts_with("vrl_not_structured"));
    assert!(payload(&of("%key.a = 1"), fields("{}")).unwrap_err().starts_with("vrl_not_structured"));
    assert_eq!(payload(&of(". = {}\n.a = 1"), "text").as_deref(), Ok("{\"a\":1}"));
    assert_eq!(payload(&of("del(.a)"), "text"), Ok(json(&Data::text("text"))));
}

#[test]
fn abort_drops_fails_or_keeps_the_record() {
    let with = |on_abort| with(&[("program", ".a = 1\nif .b == 2 { abort \"it is two\" }"), ("onAbort", on_abort)]);
    let two = Record::new(fields("{\"b\":2}"));
    assert!(matches!(run(&with("drop"), &two).1, Decision::Filter));
    let (after, decision) = run(&with("keep"), &two);
    assert!(matches!(decision, Decision::Keep));
    assert_eq!(after, two);
    let (after, Decision::Fail(fault)) = run(&with("fail"), &two) else { panic!("kept") };
    assert_eq!((fault.code().name(), fault.message().as_str()), ("vrl_aborted", "it is two"));
    assert_eq!((fault.in_text().unwrap().line, fault.in_text().unwrap().column), (2, 14));
    assert_eq!(after, two);
    assert_eq!(payload(&with("drop"), fields("{\"b\":3}")).as_deref(), Ok("{\"a\":1,\"b\":3}"));
}

#[test]
fn an_array_becomes_several_records() {
    let pieces = |program: &str, after: &str| {
        let before = Record::create(Position::copy_from(b"7"), Data::text("k"), fields(after));
        match run(&of(program), &before).1 {
            decision @ (Decision::Split(_) | Decision::Pieces(_)) => {
                let records = decision.into_records();
                assert!(records.iter().all(|piece| piece.position() == before.position() && piece.key == before.key));
                Ok(records.iter().map(|piece| json(&piece.payload.after)).collect::<Vec<_>>())
            }
            Decision::Filter => Ok(Vec::new()),
            Decision::Fail(fault) => Err(format!("{}: {}", fault.code(), fault.message())),
            Decision::Keep => panic!("kept"),
        }
    };
    let unnest = ". = unnest!(.items)";
    assert_eq!(
        pieces(unnest, r#"{"id":1,"items":[{"n":1},2]}"#),
        Ok(vec![r#"{"id":1,"items":{"n":1}}"#.to_owned(), r#"{"id":1,"items":2}"#.to_owned()])
    );
    assert_eq!(pieces(unnest, r#"{"items":[]}"#), Ok(vec![]));
    assert_eq!(pieces(unnest, &format!(r#"{{"items":[{}0]}}"#, "0,".repeat(99))).unwrap().len(), 100);
    assert!(pieces(". = [1]", "{}").unwrap_err().starts_with("vrl_result: .Payload.After becomes integer"));
    let shared = Record::new(fields(r#"{"items":["a"],"b":"text"}"#));
    let (_, Decision::Split(split)) = run(&of(unnest), &shared) else { panic!("one") };
    let pointer = |record: &Record| record.payload.after.fields().unwrap().get("b").unwrap().as_str().unwrap().as_ptr();
    assert_eq!(pointer(&split[0]), pointer(&shared), "what stays is shared");
}

#[test]
fn fields_that_a_program_does_not_name_keep_their_types() {
    let object = Object::from_iter([
        ("binary", Value::Bytes(b"plain"[..].into())),
        ("large", Value::UInt(u64::MAX)),
        ("nan", Value::Float(f64::NAN)),
        ("score", Value::Int(i64::MAX)),
    ]);
    let (after, decision) = run(&of(".new = int!(.score) - 1"), &Record::new(object.clone()));
    assert!(matches!(decision, Decision::Keep), "{decision:?}");
    let after = after.payload.after.fields().unwrap().clone();
    assert_eq!(after.get("new"), Some(&Value::Int(i64::MAX - 1)));
    assert_eq!(after.get("large"), Some(&Value::UInt(u64::MAX)));
    assert_eq!(after.get("binary"), Some(&Value::Bytes(b"plain"[..].into())));
    assert!(matches!(after.get("nan"), Some(Value::Float(nan)) if nan.is_nan()));
    // A program that reads them cannot: it would change them without a word.
    let said = payload(&of(".x = .large"), Data::from(object.clone())).unwrap_err();
    assert_eq!(
        said,
        "vrl_value: the program reads a value that it cannot hold: the integer 18446744073709551615 is above 2^63 - 1"
    );
    assert!(matches!(run(&of(".x = ."), &Record::new(object)).1, Decision::Fail(_)));
}

#[test]
fn a_list_changes_as_a_whole() {
    assert_eq!(
        payload(&of(".l[1] = \"b\""), fields(r#"{"l":["x","y","z"]}"#)).as_deref(),
        Ok(r#"{"l":["x","b","z"]}"#)
    );
    assert_eq!(payload(&of("del(.l[0])"), fields(r#"{"l":["x","y"]}"#)).as_deref(), Ok(r#"{"l":["y"]}"#));
    assert_eq!(payload(&of("del(.a.b, compact: true)"), fields(r#"{"a":{"b":1},"c":2}"#)).as_deref(), Ok(r#"{"c":2}"#));
    let kept = payload(&of("del(.a.b, compact: true)"), fields(r#"{"a":{"b":1,"d":3}}"#));
    assert_eq!(kept.as_deref(), Ok(r#"{"a":{"d":3}}"#));
    assert_eq!(payload(&of(". |= {\"b\": 2}"), fields(r#"{"a":1}"#)).as_deref(), Ok(r#"{"a":1,"b":2}"#));
    assert_eq!(payload(&of(".a.b.c = 1"), fields(r#"{"a":"text"}"#)).as_deref(), Ok(r#"{"a":{"b":{"c":1}}}"#));
    assert_eq!(
        payload(&of("x = {\"y\": .a}\ndel(x.y)\n.b = x"), fields(r#"{"a":1}"#)).as_deref(),
        Ok(r#"{"a":1,"b":{}}"#)
    );
}

#[test]
fn the_zone_is_that_of_the_setting() {
    let program = ".t = parse_timestamp!(.t, \"%Y-%m-%d %H:%M\")";
    let at =
        |zone: &str| payload(&with(&[("program", program), ("zone", zone)]), fields(r#"{"t":"2026-07-01 12:00"}"#));
    assert_eq!(at("UTC").as_deref(), Ok(r#"{"t":"2026-07-01T12:00:00Z"}"#));
    assert_eq!(at("Europe/Berlin").as_deref(), Ok(r#"{"t":"2026-07-01T10:00:00Z"}"#));
    let said = processor(&kind(), &[("program", "."), ("zone", "Europe/Berln")]).err().unwrap();
    assert_eq!(said, ["zone: there is no time zone \"Europe/Berln\""]);
}

#[test]
fn functions_that_leave_the_process_do_not_exist() {
    for call in [
        "dns_lookup!(\"a\")",
        "reverse_dns!(\"127.0.0.1\")",
        "http_request!(\"http://a\")",
        "get_env_var!(\"HOME\")",
        "get_hostname!()",
        "get_timezone_name!()",
        "parse_etld!(\"a\")",
        "parse_proto!(\"a\", \"b\", \"c\")",
        "encode_proto!({}, \"b\", \"c\")",
        "validate_json_schema!(\"a\", \"b\")",
        "get_secret(\"a\")",
        "get_enrichment_table_record!(\"a\", {})",
    ] {
        let said = refused(&format!(".x = {call}"));
        assert!(said[0].contains("undefined function (E105)"), "{call}: {said:?}");
    }
    let said = refused(".x = parse_groks!(\"a\", patterns: [\"%{A}\"], alias_sources: [\"/etc/passwd\"])");
    assert!(said[0].contains("alias_sources is disabled"), "{said:?}");
}

#[test]
fn a_grok_pattern_that_steps_back_without_end_is_stopped() {
    let started = std::time::Instant::now();
    let line = Data::from([("a", "a".repeat(4000))]);
    // Each position costs steps in proportion to the square of the rest: below any limit for one position.
    for program in [
        ".x = parse_grok!(.a, \"(a+)+(a+)+b%{WORD:w}\")",
        ".x = parse_grok!(.a, \"a*a*b%{WORD:w}\")",
        ".x = parse_groks!(.a, patterns: [\"(a+)+(a+)+b%{word:w}\"])",
    ] {
        let said = payload(&of(program), line.clone()).unwrap_err();
        assert!(said.starts_with("vrl_failed: parse_grok"), "{said}");
    }
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
    let parsed = payload(&of(". = parse_grok!(.a, \"%{IP:ip} %{WORD:w}\")"), Data::from([("a", "127.0.0.1 x")]));
    assert_eq!(parsed.as_deref(), Ok(r#"{"ip":"127.0.0.1","w":"x"}"#));
}

#[test]
fn a_program_that_takes_too_long_is_stopped() {
    let program = "n = 0\nl = range(0, 1000) ?? []\nfor_each(l) -> |_i, _v| { for_each(l) -> |_j, _w| { for_each(l) -> |_k, _x| { n = n + 1 } } }\n.n = n";
    let said = payload(&with(&[("program", program), ("timeout", "50ms")]), fields("{}")).unwrap_err();
    assert_eq!(said, "vrl_timeout: the program took longer than 50ms");
}

#[test]
fn programs_that_are_nested_without_end_are_refused() {
    for program in [
        format!(".a = {}1{}", "(".repeat(500), ")".repeat(500)),
        format!(".a = {}1{}", "(".repeat(5_000), ")".repeat(5_000)),
        format!(".a = {}1", "1 + ".repeat(5_000)),
        format!(".a = {}true", "!".repeat(10_000)),
        format!(".a = {}{}", "[".repeat(5_000), "]".repeat(5_000)),
    ] {
        let said = refused(&program);
        assert!(said[0].contains("nested"), "{}: {said:?}", &program[..20]);
    }
    // One at the limit is compiled, checked and run on a thread with the usual stack.
    for program in [
        format!(".a = {}1{}", "(".repeat(120), ")".repeat(120)),
        format!(".a = 1{}", " + 1".repeat(120)),
        format!(".a = {}1{}", "[".repeat(60), "]".repeat(60)),
        format!("{}.a = 1{}", "if true { ".repeat(60), " }".repeat(60)),
    ] {
        let configured = of(&program);
        flow(&configured, shape(&[("name", Kinds::TEXT)]));
        assert!(payload(&configured, fields("{}")).is_ok(), "{}", &program[..20]);
    }
    assert!(refused(&".a = 1\n".repeat(50_000))[0].contains("at most 262144 are allowed"));
    assert_eq!(refused(" \n"), ["vrl needs a program"]);
}

#[test]
fn errors_of_compilation_have_their_place() {
    let said = refused(".a = 1\n.b = upcase(.c)\n.d = nothing()");
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("program:2:6: unhandled fallible assignment (E103)"), "{said:?}");
    assert!(said[1].starts_with("program:3:6: call to undefined function (E105)"), "{said:?}");
    let said = refused(".a = (1");
    assert!(said[0].starts_with("program:1:8: syntax error"), "{said:?}");
    let said = refused(". = parse_key_value!(.)\n%metadata.a = \"1\"");
    assert!(said[0].starts_with("program:2:11: the language's compiler refuses to set a field of % here"), "{said:?}");
    let both = processor(&kind(), &[("program", "."), ("program.path", "a.vrl")]).err().unwrap();
    assert_eq!(both, ["both program and program.path are set"]);
    assert_eq!(processor(&kind(), &[]).err().unwrap(), ["vrl needs a program"]);
}

#[test]
fn an_error_at_run_time_names_its_place() {
    let program = of(".a = 1\n.b = upcase!(.c)");
    let (_, Decision::Fail(fault)) = run(&program, &Record::new(fields("{\"c\":1}"))) else { panic!("kept") };
    let place = fault.in_text().unwrap();
    assert_eq!((place.setting, place.line, place.column), ("program", 2, 6));
    let nested = of(".a = 1\n.b = upcase(downcase(string!(.c)))");
    let (_, Decision::Fail(fault)) = run(&nested, &Record::new(fields("{\"c\":1}"))) else { panic!("kept") };
    let place_of_string = fault.in_text().unwrap();
    assert_eq!((place_of_string.line, place_of_string.column), (2, 22));
    assert_eq!(place_of_string.message, "upcase: downcase: string: expected string, got integer");
    assert!(place.message.contains("expected string, got integer"), "{}", place.message);
}

#[test]
fn a_program_that_cannot_succeed_on_the_input_is_refused() {
    let known = || shape(&[("name", Kinds::TEXT), ("size", Kinds::INT)]);
    let said = |program: &str| flow(&of(program), known()).1;
    let wrong = said(".x = upcase!(.size)");
    assert!(wrong[0].starts_with("!program:1:14: invalid argument type (E110)"), "{wrong:?}");
    let missing = said(".x = upcase!(.nam)");
    assert!(missing.iter().any(|said| said.contains("this is null: .Payload.After has no \"nam\"")), "{missing:?}");
    assert!(missing.iter().any(|said| said.starts_with("!program:1:14")), "{missing:?}");
    // Those that handle the error, or may not come so far.
    for program in [
        ".x = upcase(.size) ?? \"none\"",
        ".x, err = upcase(.size)",
        "if .name == \"a\" { .x = upcase!(.size) }",
        "if .name == \"a\" { abort }\n.x = upcase!(.size)",
    ] {
        assert!(!said(program).iter().any(|said| said.starts_with('!')), "{program}: {:?}", said(program));
    }
    // Error handling that these types do not need is no mistake: others may need it.
    for program in [".x = upcase!(.name)", ".x = to_string(.size) ?? \"\"", ".x = (.size + 1) ?? 0"] {
        assert_eq!(said(program), Vec::<String>::new(), "{program}");
    }
    let raw = || RecordShape::create(Shape::ABSENT, Shape::RAW);
    let (_, found) = flow(&of(".x = 1"), raw());
    assert!(found[0].starts_with("!program:1:1: every record fails here: the payload is raw data"), "{found:?}");
    let (_, found) = flow(&of("if .x == 1 { abort }"), raw());
    assert_eq!(found, ["program:1:4: this is null: the payload is raw data, so it has no field .x"]);
    let (_, found) = flow(&of(". |= {\"a\": 1}"), raw());
    assert!(found[0].contains("the payload is raw data, for which the program does not compile"), "{found:?}");
    let (_, found) = flow(&of(". = parse_json!(.)"), known());
    assert!(found[0].starts_with('!'), "{found:?}");
    assert_eq!(flow(&of(". = parse_json!(.)\n.x = .y"), raw()).1, Vec::<String>::new());
    let (_, found) = flow(&of(". = 7"), known());
    assert!(found[0].starts_with("!program:1:1: .Payload.After becomes a value of type integer"), "{found:?}");
}

#[test]
fn the_types_of_a_program_continue_in_the_pipeline() {
    let program = ".n = length!(.name)\n.list = [1]\ndel(.size)\nif .name == \"a\" { .maybe = 1.5 }\n.in.x = now()";
    let (after, said) = flow(&of(program), shape(&[("name", Kinds::TEXT), ("size", Kinds::INT)]));
    assert_eq!(said, Vec::<String>::new());
    assert_eq!(field(&after, "n"), Some((Kinds::INT, false)));
    assert_eq!(field(&after, "name"), Some((Kinds::TEXT, false)), "a field that is not set keeps its type");
    assert_eq!(field(&after, "size"), None);
    assert_eq!(field(&after, "maybe"), Some((Kinds::FLOAT, true)));
    assert_eq!(field(&after, "in"), Some((Kinds::MAP, false)));
    let program = "parsed = parse_key_value!(.)\n%metadata.a = \"1\"\n. = parsed";
    let (after, _) = flow(&of(program), RecordShape::create(Shape::ABSENT, Shape::RAW));
    assert!(after.after.structured.is_some() && !after.after.raw);
    assert!(after.metadata.has("a"));
    let (after, said) = flow(&of(". = map_keys(.) -> |name| { \"p_\" + name }"), shape(&[("name", Kinds::TEXT)]));
    assert_eq!((field(&after, "p_name"), said), (Some((Kinds::ANY, true)), vec![]), "the names are not known");
    let (after, said) = flow(&of("del(%key)"), RecordShape::create(Shape::RAW, Shape::RAW));
    assert_eq!((after.key, said), (Shape::ABSENT, vec![]));
    // The library does not follow closures.
    let (after, _) = flow(&of("for_each([1]) -> |_i, _v| { .name = 1 }"), shape(&[("name", Kinds::TEXT)]));
    assert_eq!(field(&after, "name"), Some((Kinds::ANY, true)));
}

#[test]
fn the_compiler_knows_the_reads_and_writes() {
    let signature = of(".a.b = .c\ndel(.d)\n%metadata.m = %key.k").signature();
    let path = |names: &[&str]| Access::These(vec![names.iter().map(|name| Str::from(*name)).collect()]);
    let after = |name| path(&["Payload", "After", name]);
    for (part, reads, writes) in [
        (after("a"), false, true),
        (after("c"), true, false),
        (after("d"), true, true),
        (after("e"), false, false),
        (path(&["Metadata", "m"]), false, true),
        (path(&["Metadata", "n"]), false, false),
        (path(&["Key", "k"]), true, false),
        (path(&["Payload", "Before"]), false, false),
    ] {
        assert_eq!((signature.reads.overlaps(&part), signature.writes.overlaps(&part)), (reads, writes), "{part:?}");
    }
    assert_eq!(signature.fan, Fan::One);
    assert_eq!(of("abort").signature().fan, Fan::AtMostOne);
    assert_eq!(with(&[("program", "abort"), ("onAbort", "keep")]).signature().fan, Fan::One);
    assert_eq!(of(". = [.]").signature().fan, Fan::Many);
    assert_eq!(of(". = {\"a\": .}").signature().fan, Fan::One);
    assert!(of(". = unnest!(.items)").signature().reads.overlaps(&after("other")));
}

#[test]
fn a_program_that_always_makes_several_records_is_known_before_the_first_one() {
    for (program, several) in [
        (". = [{\"a\": 1}, {\"a\": 2}]", true),
        ("if exists(.a) { abort }\n. = [., .]", true),
        (". = [.]", false),
        (". = []", false),
        ("if exists(.a) { . = [., .] }", false),
        (". = unnest!(.items)", false),
        (". = [., .]\n. = {}", false),
        ("for_each([1]) -> |_i, _v| { . = [., .] }", false),
    ] {
        assert_eq!(of(program).signature().needs_arch_v2, several, "{program}");
    }
}

/// Programs for properties.
const PROGRAMS: [&str; 19] = [
    ".a = 1",
    ".a.b = .c",
    "del(.a)",
    ".a = string!(.a)",
    ". = {\"a\": .a}",
    ". = parse_json!(string!(.))",
    "%metadata.x = .a",
    "%key = .a",
    "%before = .",
    "if exists(.a) { .b = 1 } else { abort }",
    "for_each(object(.) ?? {}) -> |k, v| { if k == \"a\" { .b = v } }",
    "if is_null(.b) { return null }\n.c = 1",
    "del(.)",
    ". = {}\n.a = .b",
    "%operation = .a",
    "del(%key.a)\n%key.b = 1",
    "del(.a.b, compact: true)",
    "if is_object(.) { del(.a) } else { . = {\"raw\": .} }",
    ".x, .err = to_int(.a)",
];

#[test]
fn failed_records_are_unchanged_and_keep_their_positions() {
    for program in PROGRAMS {
        let configured = of(program);
        TestRunner::new(ProptestConfig::with_cases(24))
            .run(&records(), |record| {
                let (after, decision) = run(&configured, &record);
                match decision {
                    Decision::Fail(_) => prop_assert_eq!(format!("{after:?}"), format!("{record:?}")),
                    Decision::Split(pieces) => {
                        prop_assert!(pieces.iter().all(|piece| piece.position() == record.position()));
                    }
                    Decision::Keep | Decision::Filter | Decision::Pieces(_) => {
                        prop_assert_eq!(after.position(), record.position());
                    }
                }
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn the_inferred_shapes_allow_every_record() {
    for program in PROGRAMS {
        let configured = of(program);
        TestRunner::new(ProptestConfig::with_cases(24))
            .run(&(records(), records()), |(one, other)| {
                let mut flow = Flow::new(exact(&one).join(&exact(&other)));
                configured.flow(&mut flow);
                flow.record.forget_contents();
                flow.record.uses = Uses::default();
                for record in [one, other] {
                    if let (after, Decision::Keep) = run(&configured, &record) {
                        prop_assert!(!flow.fails(), "{program}: {:?}", record);
                        let both = flow.record.join(&exact(&after));
                        prop_assert_eq!(&both, &flow.record, "{}: {:?} became {:?}", program, record, after);
                    }
                }
                Ok(())
            })
            .unwrap();
    }
}

/// Returns the exact shape of one record.
fn exact(record: &Record) -> RecordShape {
    let data = |data: &Data| match data {
        Data::Absent => Shape::ABSENT,
        Data::Raw(_) => Shape::RAW,
        Data::Structured(object) => Shape::structured(Type::of_value(&Value::Map(object.clone())).fields),
    };
    RecordShape {
        operations: Operations::only(record.operation),
        metadata: Keys::of(record.metadata.iter().map(|(key, _)| key.clone())),
        key: data(&record.key),
        before: data(&record.payload.before),
        after: data(&record.payload.after),
        pieces: None,
        uses: Uses::default(),
    }
}

fn records() -> impl Strategy<Value = Record> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c{}\"]{0,4}".prop_map(Value::from),
        vec(any::<u8>(), 0..4).prop_map(|bytes| Value::Bytes(bytes.into())),
    ];
    let value = leaf.prop_recursive(2, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map("[a-c]", inner, 0..3).prop_map(|map| Value::from(Object::from_iter(map))),
        ]
    });
    let data = prop_oneof![
        Just(Data::Absent),
        prop_oneof![Just("{\"a\":1}".to_owned()), "[a-c]{0,3}"].prop_map(Data::text),
        btree_map("[a-c]", value, 0..4).prop_map(|map| Data::from(Object::from_iter(map))),
    ];
    let operation = prop_oneof![Just(Operation::Create), Just(Operation::Delete)];
    (operation, data.clone(), data.clone(), data).prop_map(|(operation, key, before, after)| {
        let mut record = Record::create(Position::copy_from(b"at"), key, after);
        record.payload.before = before;
        record.operation = operation;
        record.metadata.insert("m", "1");
        record
    })
}
