use super::*;
use proptest::prelude::*;

#[path = "../../../../record/src/tests/arbitrary.rs"]
mod arbitrary;

fn encode(record: &Record) -> Result<serde_json::Value, String> {
    let mut out = b"x".to_vec();
    match Envelope::default().encode(record, &mut out) {
        Ok(()) => Ok(serde_json::from_slice(&out[1..]).unwrap()),
        Err(fault) => {
            assert_eq!(out, b"x", "{fault}");
            assert_eq!(fault.class(), anabranch_record::fault::FaultClass::Record);
            Err(fault.message())
        }
    }
}

fn after(json: &str) -> Record {
    Record::from_json(format!(r#"{{"operation":"create","payload":{{"after":{json}}}}}"#).as_bytes()).unwrap()
}

/// The schema of `.Payload.After`: `name:type`, structs in braces, lists in brackets.
fn types(schema: &serde_json::Value) -> String {
    assert!(schema["optional"].is_boolean());
    match schema["type"].as_str().unwrap() {
        "struct" => {
            let fields = schema["fields"].as_array().unwrap().iter();
            let fields: Vec<_> = fields.map(|f| format!("{}:{}", f["field"].as_str().unwrap(), types(f))).collect();
            format!("{{{}}}", fields.join(","))
        }
        "array" => format!("[{}]", types(&schema["items"])),
        other => other.to_owned(),
    }
}

fn side(envelope: &serde_json::Value, name: &str) -> String {
    let fields = envelope["schema"]["fields"].as_array().unwrap();
    types(fields.iter().find(|field| field["field"] == name).unwrap())
}

#[test]
fn a_record_has_this_envelope() {
    let record = Record::from_json(
        br#"{"position":"Nw==","operation":"update","metadata":{"recfmt.readAt":"1674061777225877000","a":"b"},"key":"aw==","payload":{"before":"eyJpZCI6IDF9","after":{"id":1234567890123456789}}}"#,
    )
    .unwrap();
    let mut out = Vec::new();
    Envelope { schema_name: "users".into(), ..Envelope::default() }.encode(&record, &mut out).unwrap();
    let data = |name| {
        format!(
            r#"{{"type":"struct","fields":[{{"type":"int64","optional":true,"field":"id"}}],"optional":true,"field":"{name}"}}"#
        )
    };
    let text = |optional, name| format!(r#"{{"type":"string","optional":{optional},"field":"{name}"}}"#);
    let number = |optional, name| format!(r#"{{"type":"int64","optional":{optional},"field":"{name}"}}"#);
    let source = format!(
        r#"{{"type":"struct","fields":[{},{}],"optional":false,"field":"source"}}"#,
        text(true, "a"),
        text(true, "recfmt.readAt")
    );
    let transaction = format!(
        r#"{{"type":"struct","fields":[{},{},{}],"optional":true,"field":"transaction"}}"#,
        text(false, "id"),
        number(false, "total_order"),
        number(false, "data_collection_order")
    );
    let schema =
        [data("before"), data("after"), source, text(false, "op"), number(true, "ts_ms"), transaction].join(",");
    let payload = r#"{"before":{"id":1},"after":{"id":1234567890123456789},"source":{"a":"b","recfmt.readAt":"1674061777225877000"},"op":"u","ts_ms":1674061777225,"transaction":null}"#;
    assert_eq!(
        String::from_utf8(out).unwrap(),
        format!(
            r#"{{"schema":{{"type":"struct","fields":[{schema}],"optional":false,"name":"users"}},"payload":{payload}}}"#
        )
    );
}

#[test]
fn operations_have_letters() {
    for (operation, letter) in Operation::ALL.into_iter().zip(["c", "u", "d", "r"]) {
        let mut record = Record::default();
        record.operation = operation;
        let envelope = encode(&record).unwrap();
        assert_eq!(envelope["payload"]["op"], letter);
        assert_eq!(envelope["payload"]["ts_ms"], 0);
        assert!(envelope["payload"]["before"].is_null() && envelope["payload"]["after"].is_null());
    }
}

#[test]
fn raw_data_are_parsed_or_put_in_a_field() {
    for (raw, written) in [
        (r#" {"a":[1]}"#, r#"{"a":[1]}"#),
        ("[1]", r#"{"recfmt.rawData":"WzFd"}"#),
        ("{broken", r#"{"recfmt.rawData":"e2Jyb2tlbg=="}"#),
        ("", r#"{"recfmt.rawData":""}"#),
    ] {
        let mut record = Record::default();
        record.payload.after = Data::text(raw);
        let envelope = encode(&record).unwrap();
        assert_eq!(envelope["payload"]["after"], serde_json::from_str::<serde_json::Value>(written).unwrap());
        if raw != r#" {"a":[1]}"# {
            assert_eq!(side(&envelope, "after"), "{recfmt.rawData:bytes}");
        }
    }
}

#[test]
fn values_have_types() {
    for (json, expected) in [
        (r#"{"b":true,"f":1.5,"i":1,"n":null,"t":"x"}"#, "{b:boolean,f:double,i:int64,n:string,t:string}"),
        (r#"{"l":[],"m":{}}"#, "{l:[string],m:{}}"),
        (r#"{"l":[1,null,2.5]}"#, "{l:[double]}"),
        (r#"{"l":[{"a":1},{"b":"x","a":null}]}"#, "{l:[{a:int64,b:string}]}"),
        (r#"{"l":[[],[["x"]]]}"#, "{l:[[[string]]]}"),
    ] {
        assert_eq!(side(&encode(&after(json)).unwrap(), "after"), expected);
    }
    let mut record = Record::default();
    let time = Value::Time("2026-11-21T06:00:00.5Z".parse().unwrap());
    record.payload.after = Data::from([("at", time)].into_iter().collect::<Object>());
    let envelope = encode(&record).unwrap();
    assert_eq!(envelope["payload"]["after"]["at"], "2026-11-21T06:00:00.500Z");
    assert_eq!(envelope["schema"]["fields"][1]["fields"][0]["name"], "io.debezium.time.ZonedTimestamp");
}

#[test]
fn both_sides_share_a_schema_where_they_can() {
    let schemas = |before: &str, after: &str| {
        let record = format!(r#"{{"operation":"update","payload":{{"before":{before},"after":{after}}}}}"#);
        let envelope = encode(&Record::from_json(record.as_bytes()).unwrap()).unwrap();
        (side(&envelope, "before"), side(&envelope, "after"))
    };
    let same = |types: &str| (types.to_owned(), types.to_owned());
    assert_eq!(schemas("null", r#"{"a":1}"#), same("{a:int64}"));
    assert_eq!(schemas(r#"{"a":null,"b":1}"#, r#"{"a":"x"}"#), same("{a:string,b:int64}"));
    assert_eq!(schemas(r#"{"a":1}"#, r#"{"a":"x"}"#), ("{a:int64}".to_owned(), "{a:string}".to_owned()));
}

#[test]
fn what_has_no_type_fails_the_record() {
    for (json, message) in [
        (r#"{"a":{"l":[1,"x"]}}"#, "debezium/json: .Payload.After.a.l is a list that mixes int64 and string"),
        (
            r#"{"l":[{"x y":1},{"x y":[]}]}"#,
            "debezium/json: .Payload.After.l[\"x y\"] is a list that mixes int64 and array",
        ),
        (r#"{"u":18446744073709551615}"#, "debezium/json: .Payload.After.u is an integer that does not fit into int64"),
    ] {
        assert_eq!(encode(&after(json)), Err(message.to_owned()));
    }
    let mut record = Record::default();
    record.payload.before = Data::from([("a", f64::NAN)].into_iter().collect::<Object>());
    assert_eq!(encode(&record), Err("JSON cannot represent the number NaN at .a".to_owned()));
    let mut record = Record::default();
    record.metadata.insert("recfmt.readAt", "now");
    assert_eq!(
        encode(&record),
        Err("debezium/json: the metadata \"recfmt.readAt\" is not a number of nanoseconds".to_owned())
    );
}

/// Returns `true` if a value is what its schema says.
fn fits(value: &serde_json::Value, schema: &serde_json::Value) -> bool {
    if value.is_null() {
        return schema["optional"] == true;
    }
    match schema["type"].as_str().unwrap() {
        "boolean" => value.is_boolean(),
        "int64" => value.is_i64(),
        "double" => value.is_number(),
        "string" | "bytes" => value.is_string(),
        "array" => value.as_array().unwrap().iter().all(|item| fits(item, &schema["items"])),
        "struct" => {
            let fields = schema["fields"].as_array().unwrap();
            value.as_object().unwrap().iter().all(|(key, value)| {
                fields.iter().find(|field| field["field"] == key.as_str()).is_some_and(|field| fits(value, field))
            })
        }
        _ => false,
    }
}

proptest! {
    #[test]
    fn every_payload_fits_its_schema(record in arbitrary::record_of(arbitrary::value().boxed())) {
        if let Ok(envelope) = encode(&record) {
            prop_assert!(fits(&envelope["payload"], &envelope["schema"]), "{envelope}");
        }
    }
}
