//! What Go printed, and what we print.

use std::path::Path;

use anabranch_record::metadata::Metadata;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Position, Record};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value as Json;

use crate::template::{MissingKey, Template};

/// Where we mean to differ: template, record and why.
const DELIBERATE: &[(&str, &str, &str)] =
    &[("{{ 3i }}", "*", "no record holds a complex number: one in a template is a slip, found before anything runs")];

fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(b) => Value::Bool(*b),
        Json::Number(n) => Value::Float(n.as_f64().unwrap()),
        Json::String(s) => Value::from(s.as_str()),
        Json::Array(items) => Value::from(items.iter().map(value).collect::<Vec<_>>()),
        Json::Object(_) => Value::Map(std::sync::Arc::new(object(json))),
    }
}

fn object(json: &Json) -> Object {
    json.as_object().unwrap().iter().map(|(k, v)| (k.as_str(), value(v))).collect()
}

fn data(json: &Json) -> Data {
    match json {
        Json::Null => Data::Absent,
        Json::String(base64) => Data::Raw(Bytes::from(STANDARD.decode(base64).unwrap())),
        object => Data::from(self::object(object)),
    }
}

fn record(json: &Json) -> Record {
    let position = json["position"].as_str().map(|p| STANDARD.decode(p).unwrap()).unwrap_or_default();
    let mut record = Record::at(Position::copy_from(&position));
    record.operation = json["operation"].as_str().unwrap().parse().unwrap();
    record.metadata = match &json["metadata"] {
        Json::Object(entries) => entries.iter().map(|(k, v)| (k.as_str(), v.as_str().unwrap())).collect(),
        _ => Metadata::new(),
    };
    record.key = data(&json["key"]);
    record.payload.before = data(&json["payload"]["before"]);
    record.payload.after = data(&json["payload"]["after"]);
    record
}

/// The result that the file of conformance data records.
#[derive(Debug, PartialEq)]
enum Outcome {
    Output(Vec<u8>),
    Failed(&'static str),
}

fn ours(template: &str, record: Option<&Record>) -> (Outcome, String) {
    let template = match Template::parse(template, MissingKey::NoValue) {
        Ok(template) => template,
        Err(error) => return (Outcome::Failed("parse"), error.to_string()),
    };
    let Some(record) = record else { return (Outcome::Output(Vec::new()), String::new()) };
    let mut out = String::from("before");
    match template.render(record, &mut out) {
        Ok(()) => (Outcome::Output(out.as_bytes()["before".len()..].to_vec()), String::new()),
        Err(error) => {
            assert_eq!(out, "before");
            (Outcome::Failed("execute"), error.to_string())
        }
    }
}

#[test]
fn templates_print_what_go_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance/templates.json");
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: {} is not there", path.display());
        return;
    };
    let file: Json = serde_json::from_str(&text).unwrap();
    let mut differences = Vec::new();
    let mut known = 0;
    let cases = file["cases"].as_array().unwrap();
    for case in cases {
        let (template, name) = (case["template"].as_str().unwrap(), case["record"].as_str().unwrap());
        let record = file["records"].get(name).map(record);
        let expected = match case["failed"].as_str() {
            Some("parse") => Outcome::Failed("parse"),
            Some(_) => Outcome::Failed("execute"),
            None => Outcome::Output(STANDARD.decode(case["output_base64"].as_str().unwrap()).unwrap()),
        };
        let (outcome, message) = ours(template, record.as_ref());
        let deliberate = DELIBERATE.iter().any(|(t, r, _)| *t == template && (*r == "*" || *r == name));
        match (outcome == expected, deliberate) {
            (true, false) => {}
            (false, true) => known += 1,
            (true, true) => differences.push(format!("{template} ({name}) is listed as different and is not")),
            (false, false) => {
                let show = |outcome: &Outcome| match outcome {
                    Outcome::Output(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
                    Outcome::Failed(stage) => format!("failed to {stage}"),
                };
                let (go, us) = (show(&expected), show(&outcome));
                differences.push(format!(
                    "{template} ({name})\n    Go   {go} {}\n    ours {us} {message}",
                    case["go_message"]
                ));
            }
        }
    }
    let (agree, all) = (cases.len() - differences.len() - known, cases.len());
    println!("{agree} of {all} agree, {known} differ as listed");
    assert!(differences.is_empty(), "{} of {all} differ:\n{}", differences.len(), differences.join("\n"));
}

/// Answers of Go to templates that read no record: the language, and above all printing.
#[test]
fn the_language_is_go() {
    let mut differences = Vec::new();
    for line in include_str!("go.jsonl").lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let expected = match (case["failed"].as_str(), case["output"].as_str()) {
            (Some("parse"), _) => Outcome::Failed("parse"),
            (Some(_), _) => Outcome::Failed("execute"),
            (None, output) => Outcome::Output(output.unwrap().as_bytes().to_vec()),
        };
        let template = case["template"].as_str().unwrap();
        let (outcome, message) = ours(template, Some(&Record::default()));
        if outcome != expected {
            differences.push(format!("{template}\n    Go   {expected:?}\n    ours {outcome:?} {message}"));
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}
