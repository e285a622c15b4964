//! `unwrap.debezium`: extracts a change from a Debezium envelope.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::Flow;
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;
use anabranch_record::json::write_value;
use anabranch_record::metadata::{Metadata, key};
use anabranch_record::reference::Reference;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Change, Data, Operation, Record};
use bytes::Bytes;

use super::{envelope, invalid, key_in_envelope, parts, take_map, take_text, with_key};
use crate::codes;
use crate::scalar::push_scalar;

/// Returns the `unwrap.debezium` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Unwrap>()
}

#[derive(Parameters)]
struct Settings {
    /// The field with the envelope.
    #[parameter(default = ".Payload.After", within = [".Payload"])]
    field: Argument<Reference>,
}

/// Error for an envelope that has the payload's fields at its top level.
const WITHOUT_SCHEMA: &str = "no payload: the envelope is written without its schema. Set schemas.enable=true in the \
                              converter, or put a processor before this one that wraps the envelope in an object, as \
                              its field payload";

/// Returns the error for an operation that is not about a row.
fn of_no_row(op: &str) -> Option<&'static str> {
    match op {
        "t" => Some(
            "op t truncates a table and has no row. Set skipped.operations=t in the connector, or drop the record \
             earlier with json.decode and a filter on .payload.op",
        ),
        "m" => Some(
            "op m is a message and has no row. Drop the record earlier with json.decode and a filter on .payload.op",
        ),
        _ => None,
    }
}

#[derive(Clone)]
struct Unwrap {
    field: Reference,
}

impl InlineOperator for Unwrap {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("unwrap.debezium", "Extracts a change from a Debezium envelope.")
            .describe(
                "Reads a Debezium envelope `{\"schema\": …, \"payload\": {\"op\": …, \"before\": …, \"after\": …, \
                 \"source\": …}}` in a field, as JSON text or as structured data. `op` becomes the operation (`c` \
                 create, `u` and `$unset` update, `d` delete, `r` snapshot); `before` and `after` become the payload. \
                 Existing metadata stays. The fields of `source` are added to it under their names, with dots for \
                 nested maps; `ts_ms` as `recfmt.readAt`; and all other fields with the prefix `debezium.`. Names in \
                 `source` that start with `opencdc.` and `conduit.` become `recfmt.` and `svc.`. A key with an \
                 envelope becomes its payload; any other key stays unchanged.",
            )
            .with_all(shared::processor())
    }

    fn configure(settings: Settings) -> Result<Self, Diagnostics> {
        Ok(Unwrap { field: settings.field.one_side()? })
    }

    fn signature(&self) -> Signature {
        let writes = parts(&["Operation", "Metadata", "Key", "Payload"]);
        Signature::new().reads(with_key(&self.field)).writes(writes)
    }

    fn flow(&self, flow: &mut Flow) {
        super::flow(flow, &self.field, &["payload"]);
        // A key that is a word or a number has no envelope and stays unchanged.
        let key = flow.record.key.clone();
        flow.forget();
        if key.is_raw() && key.plain {
            flow.record.key = key;
        }
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| self.unwrap(record).map(|()| Decision::Keep));
    }
}

impl Unwrap {
    fn unwrap(&self, record: &mut Record) -> Result<(), Fault> {
        let mut envelope = Arc::unwrap_or_clone(envelope(&self.field, record)?);
        if envelope.get("payload").is_none() && envelope.get("op").is_some() {
            return Err(invalid(&self.field, WITHOUT_SCHEMA));
        }
        let mut change = take_map(&self.field, &mut envelope, "payload")?;
        if change.get("after").is_none() {
            let op = change.get("op").and_then(|op| if let Value::Text(op) = op { Some(op.as_str()) } else { None });
            return Err(invalid(&self.field, of_no_row(op.unwrap_or_default()).unwrap_or("no payload.after")));
        }
        let source = take_map(&self.field, &mut change, "source")?;
        let operation = self.operation(&take_text(&self.field, &mut change, "op")?)?;
        let before = self.data(change.remove("before"), "before")?;
        let after = self.data(change.remove("after"), "after")?;
        let key = key_in_envelope(&record.key)?;
        let metadata = self.metadata(record, change, source)?;
        record.operation = operation;
        record.metadata = metadata;
        record.payload = Change { before, after };
        if let Some(key) = key {
            record.key = key;
        }
        Ok(())
    }

    fn operation(&self, op: &str) -> Result<Operation, Fault> {
        match op {
            "c" => Ok(Operation::Create),
            "u" | "$unset" => Ok(Operation::Update),
            "d" => Ok(Operation::Delete),
            "r" => Ok(Operation::Snapshot),
            other if let Some(what) = of_no_row(other) => Err(invalid(&self.field, what)),
            other => Err(invalid(&self.field, &format!("unknown op {other:?}, expected one of c, u, d, r, $unset"))),
        }
    }

    fn data(&self, value: Option<Value>, name: &str) -> Result<Data, Fault> {
        match value {
            None | Some(Value::Null) => Ok(Data::Absent),
            Some(Value::Map(map)) => Ok(Data::Structured(map)),
            Some(Value::Text(text)) => Ok(Data::Raw(Bytes::copy_from_slice(text.as_bytes()))),
            Some(other) => {
                let what = format!("{name} is {}, not an object, a text or null", other.type_name());
                Err(invalid(&self.field, &what))
            }
        }
    }

    /// Returns the metadata of the record merged with that of the envelope. Entries added later here win.
    fn metadata(&self, record: &Record, mut change: Object, source: Object) -> Result<Metadata, Fault> {
        let mut metadata = record.metadata.clone();
        match change.remove("ts_ms") {
            None | Some(Value::Null) => {}
            Some(millis) => {
                let nanos = match millis {
                    Value::Int(millis) => millis.checked_mul(1_000_000),
                    // Floats beyond 2^53 cannot represent every millisecond.
                    Value::Float(millis) if millis.abs() < 9e15 => (millis.trunc() as i64).checked_mul(1_000_000),
                    _ => None,
                };
                let nanos = nanos.ok_or_else(|| invalid(&self.field, "ts_ms is not a number of milliseconds"))?;
                metadata.insert(key::READ_AT, itoa::Buffer::new().format(nanos));
            }
        }
        let mut name = String::from("debezium");
        flatten(change, &mut name, &mut |name, text| {
            metadata.insert(name, text);
        })?;
        let mut of_source = Metadata::with_capacity(source.len());
        flatten(source, &mut String::new(), &mut |name, text| of_source.insert_translated(&name.into(), text))?;
        for (name, text) in of_source.iter() {
            metadata.insert(name.clone(), text.clone());
        }
        Ok(metadata)
    }
}

/// Visits the values in an object, with dotted names for nested ones. Skips nulls.
fn flatten(object: Object, name: &mut String, visit: &mut impl FnMut(&str, Str)) -> Result<(), Fault> {
    let outer = name.len();
    for (key, value) in object {
        if outer > 0 {
            name.push('.');
        }
        name.push_str(&key);
        match value {
            Value::Null => {}
            Value::Text(text) => visit(name, text),
            Value::Map(map) => flatten(Arc::unwrap_or_clone(map), name, visit)?,
            value => {
                let mut text = String::new();
                if !push_scalar(&value, &mut text) {
                    let mut json = Vec::new();
                    write_value(&value, &mut json)?;
                    text = String::from_utf8(json).map_err(|e| Fault::record(codes::JSON_INVALID, e))?;
                }
                visit(name, text.into());
            }
        }
        name.truncate(outer);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, findings, process, record, text};

    fn unwrap(key: &str, after: Data) -> Result<String, String> {
        let mut sample = record(&format!(
            r#"{{"position":"Nw==","operation":"create","metadata":{{"a":"b","db":"old"}},"key":{key}}}"#
        ));
        sample.payload.after = after;
        match process(&kind(), &[], &sample) {
            (after, Decision::Keep) => Ok(text(&after)),
            (after, Decision::Fail(fault)) => {
                assert_eq!(after, sample);
                Err(format!("{}: {}", fault.code(), fault.message()))
            }
            (_, other) => panic!("{other:?}"),
        }
    }

    fn object(json: &str) -> Data {
        record(&format!(r#"{{"operation":"create","key":{json}}}"#)).key
    }

    #[test]
    fn an_envelope_becomes_a_change() {
        let json = r#"{
            "schema": {"type": "struct"},
            "payload": {
                "op": "u", "ts_ms": 1674061777225, "ts_us": 1674061777225877, "before": null,
                "after": {"id": 1234567890123456789, "b": null},
                "source": {"db": "test", "opencdc.readAt": "5", "conduit.x": "theirs", "svc.x": "ours", "lsn": 27, "snapshot": false, "seq": [1, "2"], "none": null, "in": {"deep": 1.5}},
                "transaction": {"id": "t1", "total_order": 1}, "note": null
            }
        }"#;
        let expected = concat!(
            r#"{"position":"Nw==","operation":"update","metadata":{"a":"b","db":"test","debezium.transaction.id":"t1","#,
            r#""debezium.transaction.total_order":"1","debezium.ts_us":"1674061777225877","in.deep":"1.5","lsn":"27","#,
            r#""recfmt.readAt":"5","seq":"[1,\"2\"]","snapshot":"false","svc.x":"ours"},"key":{"id":27},"#,
            r#""payload":{"before":null,"after":{"b":null,"id":1234567890123456789}}}"#
        );
        for envelope in [Data::text(json), object(json)] {
            assert_eq!(unwrap(r#"{"schema":{},"payload":{"id":27}}"#, envelope), Ok(expected.to_owned()));
        }
    }

    #[test]
    fn operations_and_data_are_translated() {
        for (op, operation) in
            [("c", "create"), ("u", "update"), ("d", "delete"), ("r", "snapshot"), ("$unset", "update")]
        {
            let json = format!(
                r#"{{"payload":{{"op":"{op}","ts_ms":1674061777225.0,"before":{{"a":1}},"after":"text","source":{{}}}}}}"#
            );
            assert_eq!(
                unwrap("\"aw==\"", Data::text(json)),
                Ok(format!(
                    r#"{{"position":"Nw==","operation":"{operation}","metadata":{{"a":"b","db":"old","recfmt.readAt":"1674061777225000000"}},"key":"aw==","payload":{{"before":{{"a":1}},"after":"dGV4dA=="}}}}"#
                ))
            );
        }
    }

    #[test]
    fn what_is_no_envelope_fails() {
        for (json, message) in [
            ("", "invalid JSON at byte 0: EOF while parsing a value"),
            (r#"{"after":{},"source":{}}"#, "no payload"),
            (r#"{"op":"c","after":{},"source":{}}"#, WITHOUT_SCHEMA),
            (r#"{"payload":{"op":"t","source":{}}}"#, of_no_row("t").unwrap()),
            (r#"{"payload":{"op":"m","source":{},"message":{}}}"#, of_no_row("m").unwrap()),
            (r#"{"payload":{"op":"c","source":{}}}"#, "no payload.after"),
            (r#"{"payload":{"op":"c","after":{}}}"#, "no source"),
            (r#"{"payload":{"source":{},"after":{}}}"#, "no op"),
            (r#"{"payload":{"op":7,"source":{},"after":{}}}"#, "op is integer, not a text"),
            (
                r#"{"payload":{"op":"x","source":{},"after":{}}}"#,
                "unknown op \"x\", expected one of c, u, d, r, $unset",
            ),
            (r#"{"payload":{"op":"c","source":null,"after":{}}}"#, "source is null, not an object"),
            (r#"{"payload":{"op":"c","source":{},"after":[]}}"#, "after is list, not an object, a text or null"),
            (
                r#"{"payload":{"op":"c","source":{},"after":{},"before":1}}"#,
                "before is integer, not an object, a text or null",
            ),
            (r#"{"payload":{"op":"c","source":{},"after":{},"ts_ms":"x"}}"#, "ts_ms is not a number of milliseconds"),
            (
                r#"{"payload":{"op":"c","source":{},"after":{},"ts_ms":9223372036854775807}}"#,
                "ts_ms is not a number of milliseconds",
            ),
        ] {
            let expected = Err(format!("unwrap_failed: cannot unwrap .Payload.After: {message}"));
            assert_eq!(unwrap("{\"payload\":{}}", Data::text(json)), expected, "{json}");
        }
        assert_eq!(
            unwrap("null", Data::Absent),
            Err("unwrap_failed: cannot unwrap .Payload.After: the record has no such data".to_owned())
        );
        assert_eq!(findings(&kind(), &[("field", ".Key")]), ["field: \".Key\" must refer to .Payload"]);
    }

    #[test]
    fn failed_rows_stay_and_shapes_are_large_enough() {
        for field in [".Payload.After", ".Payload.Before.a.b"] {
            testing::failed_rows_stay(&kind(), &[("field", field)]);
            testing::shapes_are_large_enough(&kind(), &[("field", field)]);
        }
    }
}
