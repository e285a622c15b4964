use anabranch_plugin::schema::{MemoryRegistry, SchemaKind, SchemaRegistry};

use super::*;
use crate::confluent::{ConfluentRegistry, Login};
use crate::testing::{after, configured, confluent, fields, host, opened, process};

const AUTO: &[(&str, &str)] = &[("schema.strategy", "autoRegister"), ("schema.autoRegister.subject", "s")];
const REGISTERED: &[(&str, &str)] = &[
    ("schema.strategy", "preRegistered"),
    ("schema.preRegistered.subject", "s"),
    ("schema.preRegistered.version", "1"),
];

fn raw(record: &Record) -> &[u8] {
    match &record.payload.after {
        Data::Raw(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// On the multi-thread runtime that executes pipelines, on a current-thread one, and on none.
#[test]
fn records_come_back_through_a_remote_registry() {
    let server = confluent();
    let round = || {
        let schemas: Arc<dyn SchemaRegistry> = Arc::new(ConfluentRegistry::new(&server.url(), &Login::None).unwrap());
        let host = host(schemas);
        let mut encode = opened(&kind(), AUTO, &host);
        let mut decode = opened(&crate::decode::kind(), &[], &host);
        for json in [r#"{"id":1,"tags":["a",null]}"#, r#"{"id":2,"tags":["b",null]}"#, r#"{"id":"x"}"#] {
            let before = after(fields(json));
            let encoded = process(&mut encode, before.clone()).unwrap();
            assert_eq!(raw(&encoded)[..5], [0, 0, 0, 0, if json.contains('x') { 2 } else { 1 }]);
            let decoded = process(&mut decode, encoded).unwrap();
            let id = if json.contains('x') { "2" } else { "1" };
            assert_eq!(decoded.metadata.get("avro.payload.schema.id").map(Str::as_str), Some(id));
            assert_eq!(decoded.payload, before.payload);
        }
    };
    round();
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async { round() });
    let workers = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    workers.block_on(async { tokio::task::unconstrained(async { round() }).await });
    let registered = server.received().into_iter().filter(|r| r.path == "/subjects/s/versions").count();
    assert_eq!(registered, 2, "two shapes, each once");
}

#[tokio::test]
async fn a_registered_schema_is_obeyed() {
    let registry = Arc::new(MemoryRegistry::new());
    let host = host(registry.clone());
    let mut encode = opened(&kind(), REGISTERED, &host);
    let before = after(fields(r#"{"id":1,"price":"9.50"}"#));
    assert_eq!(
        process(&mut encode, before.clone()),
        Err("schema_subject_not_found: schema subject \"s\" not found".to_owned())
    );
    let schema = r#"{"type":"record","name":"r","fields":[{"name":"id","type":"int"},
        {"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":5,"scale":2}}]}"#;
    registry.create(&"s".into(), SchemaKind::Avro, &schema.into()).await.unwrap();
    let encoded = process(&mut encode, before.clone()).unwrap();
    assert_eq!(raw(&encoded), [0, 0, 0, 0, 1, 2, 4, 0x03, 0xb6]);
    let text = after(Data::text(r#"{"id":1.0,"price":9.5}"#));
    assert_eq!(raw(&process(&mut encode, text).unwrap()), raw(&encoded));
    for (json, message) in [
        (
            r#"{"id":1,"price":"9.505"}"#,
            "price: \"9.505\" is not a number with at most 5 digits, 2 of them after the decimal point",
        ),
        (r#"{"id":1}"#, "price: missing, and the schema has no default"),
        (r#"{"id":1,"price":"1","more":1}"#, "more: the schema has no such field"),
    ] {
        let expected = format!("avro_misfit: cannot encode .Payload.After: {message}");
        assert_eq!(process(&mut encode, after(fields(json))), Err(expected));
    }
    assert_eq!(process(&mut encode, after(Data::Absent)), Ok(after(Data::Absent)));
    let error = process(&mut encode, after(Data::text("[1]"))).unwrap_err();
    assert_eq!(error, "avro_unexpected_type: cannot encode .Payload.After: its JSON text is a list, not an object");
}

#[test]
fn fields_are_encoded_in_their_place() {
    let host = host(Arc::new(MemoryRegistry::new()));
    let settings = [AUTO, &[("field", ".Payload.After.a")]].concat();
    let mut encode = opened(&kind(), &settings, &host);
    let mut decode = opened(&crate::decode::kind(), &[("field", ".Payload.After.a")], &host);
    let before = after(fields(r#"{"a":{"b":{"c":1.5}},"n":1}"#));
    let encoded = process(&mut encode, before.clone()).unwrap();
    let found = encoded.payload.after.fields().and_then(|fields| fields.get("a"));
    assert!(matches!(found, Some(Value::Bytes(_))), "{found:?}");
    assert_eq!(process(&mut decode, encoded).unwrap(), before);
}

#[test]
fn bad_frames_fail_the_record() {
    let host = host(Arc::new(MemoryRegistry::new()));
    let mut decode = opened(&crate::decode::kind(), &[], &host);
    for (data, message) in [
        (Data::text("{}"), "avro_invalid: cannot decode .Payload.After: it does not start with the zero byte"),
        (Data::text("\0\0\0"), "avro_invalid: cannot decode .Payload.After: it is shorter than the five bytes"),
        (Data::text("\0\0\0\0\0"), "avro_invalid: cannot decode .Payload.After: its schema id is not above zero"),
        (Data::text("\0\0\0\0\x07"), "schema_not_found: schema not found: id 7"),
        (fields("{}"), "avro_unexpected_type: cannot decode .Payload.After: unexpected data type structured data"),
    ] {
        let error = process(&mut decode, after(data)).unwrap_err();
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn a_strategy_needs_its_settings() {
    let findings = |settings: &[(&str, &str)]| -> Vec<String> {
        configured(&kind(), settings).err().into_iter().flatten().map(|d| d.message).collect()
    };
    assert_eq!(
        findings(&[("schema.strategy", "preRegistered")]),
        [
            "\"schema.preRegistered.subject\" is required by schema.strategy: preRegistered",
            "\"schema.preRegistered.version\" is required by schema.strategy: preRegistered"
        ]
    );
    assert_eq!(
        findings(&[("schema.strategy", "autoRegister"), ("schema.preRegistered.version", "0")]).len(),
        1,
        "zero is no version"
    );
    assert_eq!(findings(&[]), ["\"schema.strategy\" is required by avro.encode"]);
}

/// Keys are often texts or numbers.
#[test]
fn a_side_without_fields_becomes_text() {
    let registry = Arc::new(MemoryRegistry::new());
    let host = host(registry.clone());
    let mut decode = opened(&crate::decode::kind(), &[("field", ".Key")], &host);
    let schemas = [
        (r#""string""#, &b"\x06ada"[..], Data::text("ada")),
        (r#""long""#, b"\x54", Data::text("42")),
        (r#""bytes""#, b"\x04\x00\xff", Data::Raw(b"\x00\xff"[..].into())),
        (r#"["null","string"]"#, b"\x00", Data::Absent),
        (r#"{"type":"array","items":"int"}"#, b"\x04\x02\x04\x00", Data::text("[1,2]")),
    ];
    for (text, bytes, expected) in schemas {
        let id = crate::testing::block_on(registry.create(&"k".into(), SchemaKind::Avro, &text.into())).unwrap().id;
        let mut frame = Vec::new();
        wire::begin(id, &mut frame);
        frame.extend_from_slice(bytes);
        let mut record = after(fields("{}"));
        record.key = Data::Raw(frame.into());
        let decoded = process(&mut decode, record).unwrap();
        assert_eq!(decoded.key, expected, "{text}");
        assert_eq!(decoded.metadata.get("avro.key.schema.id").map(Str::as_str), Some(id.to_string().as_str()));
    }
}

#[test]
fn messages_with_other_kinds_of_schemas_are_named() {
    let server = anabranch_ops_http::testing::Server::start(|request| {
        let kind = if request.path.ends_with('1') { "JSON" } else { "PROTOBUF" };
        anabranch_ops_http::testing::Reply::ok(format!(r#"{{"schema":"…","schemaType":"{kind}"}}"#))
    });
    let schemas: Arc<dyn SchemaRegistry> = Arc::new(ConfluentRegistry::new(&server.url(), &Login::None).unwrap());
    let mut decode = opened(&crate::decode::kind(), &[], &host(schemas));
    for (id, kind) in [(1, "a JSON Schema"), (2, "a Protobuf schema")] {
        let failed = process(&mut decode, after(Data::Raw(vec![0, 0, 0, 0, id, 0].into()))).unwrap_err();
        let what = format!("the schema with the id {id} is {kind}; only Avro schemas are supported");
        assert!(failed.contains(&what), "{failed}");
    }
}
