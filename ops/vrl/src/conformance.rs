//! The examples that the functions of the language's library carry, through the processor.

use anabranch_plugin::operator::{Configured, Decision};
use anabranch_plugin::registry::Registry;
use anabranch_plugin::testing::configured::{Opened, processor};
use anabranch_plugin::testing::host;
use anabranch_plugin::testing::json::record;
use anabranch_record::{Data, Record};
use serde_json::Value;
use vrl::compiler::function::Example;

/// Examples whose result differs here, each with the reason.
const DIFFERENT: [(&str, &str, &str); 3] = [
    ("chunks", "Chunks do not respect unicode code point boundaries", "bytes that are not UTF-8 are base64 in JSON"),
    ("encode_zstd", "Encode to Zstd", "the frame depends on the version of the compressor"),
    ("parse_groks", "Parse using aliases from file", "reads a file, which no program can do here"),
];

/// Puts the result of a program into the key.
fn keyed(source: &str) -> String {
    format!("result_ = {{\n{source}\n}}\n%key = {{\"result\": result_}}")
}

fn configured(program: &str) -> Result<Configured, Vec<String>> {
    let mut registry = Registry::new();
    crate::register(&mut registry);
    processor(registry.operator("vrl").unwrap(), &[("program", program)])
}

/// Runs an example. Returns its result as JSON, or the message of its error.
fn run(example: &Example) -> Result<Value, String> {
    let input = example.input.unwrap_or("{}");
    let configured = match configured(&keyed(example.source)) {
        // The library does not set fields of `%` after an array in `.`: the records are the result.
        Err(said) if said[0].contains("E642") => configured(example.source),
        other => other,
    };
    let configured = configured.map_err(|said| said.join("; "))?;
    let mut records: Vec<Record> = vec![record(&format!(r#"{{"operation":"create","payload":{{"after":{input}}}}}"#))];
    let mut decisions = Opened::new(&configured, host()).unwrap().process(&mut records, None);
    match decisions.pop().map(|(_, decision)| decision) {
        None | Some(Decision::Keep) => {}
        Some(Decision::Fail(fault)) => return Err(fault.message()),
        Some(decision @ (Decision::Split(_) | Decision::Pieces(_))) => {
            return Ok(decision.into_records().iter().map(|record| json(&record.payload.after)).collect());
        }
        // Without records, there is no key. Only an empty array does that.
        Some(Decision::Filter) => return Ok(Value::Array(Vec::new())),
    }
    Ok(json(&records[0].key)["result"].clone())
}

fn json(data: &Data) -> Value {
    let mut text = Vec::new();
    anabranch_record::json::write_data(data, &mut text).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Returns the expected result as JSON: a text of the example is a JSON value, or a literal of the language.
fn expected(text: &str) -> Value {
    let literal = |sign: &str| text.strip_prefix(sign).and_then(|rest| rest.strip_suffix('\''));
    if let Some(text) = literal("t'").or(literal("s'")) {
        return text.into();
    }
    if let Some(pattern) = literal("r'") {
        return pattern.replace("\\'", "'").into();
    }
    serde_json::from_str(text.trim()).unwrap_or_else(|_| text.into())
}

/// Removes what the processor writes differently: the place of an error, which it reports apart.
fn message(text: &str) -> String {
    let called = text.trim().strip_prefix("function call error for \"").and_then(|rest| {
        let (name, rest) = rest.split_once("\" at (")?;
        Some(format!("{name}: {}", rest.split_once("): ")?.1))
    });
    called.unwrap_or_else(|| text.trim().to_owned())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Numbers are equal by value: 1 and 1.0 are one number in JSON.
fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|other| equal(value, other)))
        }
        _ => one == other,
    }
}

#[test]
fn every_example_of_the_library_has_its_result() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for function in vrl::stdlib::all() {
        for example in function.examples() {
            let name = function.identifier();
            if example.skip || DIFFERENT.iter().any(|(of, title, _)| *of == name && *title == example.title) {
                continue;
            }
            count += 1;
            let found = run(example);
            let is_right = match (&found, example.result) {
                (Ok(found), Ok(wanted)) if example.deterministic => equal(found, &expected(wanted)),
                (Ok(found), Ok(wanted)) => kind(found) == kind(&expected(wanted)),
                (Err(found), Err(wanted)) => {
                    let wanted = message(wanted);
                    *found == wanted || found.contains(wanted.lines().next().unwrap_or_default())
                }
                _ => false,
            };
            if !is_right {
                wrong.push(format!(
                    "{name}: {}\n  {:?}\n  found  {found:?}\n  wanted {:?}",
                    example.title, example.source, example.result
                ));
            }
        }
    }
    println!("{count} examples");
    assert!(count > 400, "{count}");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}
