//! `unwrap.kafkaconnect`: extracts the payload from a Kafka Connect envelope.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Fields, Flow, Operations, Shape};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;
use anabranch_record::reference::Reference;
use anabranch_record::{Change, Data, Operation, Record};

use super::{envelope, key_in_envelope, parts, take_map, with_key};

/// Returns the `unwrap.kafkaconnect` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Unwrap>()
}

#[derive(Parameters)]
struct Settings {
    /// The field with the envelope.
    #[parameter(default = ".Payload.After", within = [".Payload"])]
    field: Argument<Reference>,
}

#[derive(Clone)]
struct Unwrap {
    field: Reference,
}

impl InlineOperator for Unwrap {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("unwrap.kafkaconnect", "Extracts the payload from a Kafka Connect envelope.")
            .describe(
                "Reads an envelope `{\"schema\": …, \"payload\": {…}}` in a field, as JSON text or as structured \
                 data. Its payload becomes `.Payload.After` of the record, and the operation `create`. A key with \
                 such an envelope becomes its payload; any other key, and the metadata, stay unchanged.",
            )
            .with_all(shared::processor())
    }

    fn configure(settings: Settings) -> Result<Self, Diagnostics> {
        Ok(Unwrap { field: settings.field.one_side()? })
    }

    fn signature(&self) -> Signature {
        let writes = parts(&["Operation", "Key", "Payload"]);
        Signature::new().reads(with_key(&self.field)).writes(writes)
    }

    fn flow(&self, flow: &mut Flow) {
        super::flow(flow, &self.field, &["payload"]);
        flow.record.operations = Operations::only(Operation::Create);
        flow.record.key = Shape::unknown();
        flow.record.before = Shape::ABSENT;
        flow.record.after = Shape::structured(Fields::any());
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| self.unwrap(record).map(|()| Decision::Keep));
    }
}

impl Unwrap {
    fn unwrap(&self, record: &mut Record) -> Result<(), Fault> {
        let mut envelope = Arc::unwrap_or_clone(envelope(&self.field, record)?);
        let payload = take_map(&self.field, &mut envelope, "payload")?;
        if let Some(key) = key_in_envelope(&record.key)? {
            record.key = key;
        }
        record.operation = Operation::Create;
        record.payload = Change { before: Data::Absent, after: Data::from(payload) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, findings, process, record};

    fn unwrap(key: Data, after: Data) -> Result<(Data, Data), String> {
        let mut sample = record(r#"{"position":"Nw==","operation":"snapshot","metadata":{"a":"b"}}"#);
        sample.key = key;
        sample.payload.after = after;
        match process(&kind(), &[], &sample) {
            (mut after, Decision::Keep) => {
                assert_eq!(after.operation, Operation::Create);
                let (key, payload) = (std::mem::take(&mut after.key), std::mem::take(&mut after.payload));
                assert_eq!(after.metadata, sample.metadata);
                assert_eq!((after.position(), payload.before), (sample.position(), Data::Absent));
                Ok((key, payload.after))
            }
            (after, Decision::Fail(fault)) => {
                assert_eq!(after, sample);
                Err(fault.message())
            }
            (_, other) => panic!("{other:?}"),
        }
    }

    fn object(json: &str) -> Data {
        record(&format!(r#"{{"operation":"create","key":{json}}}"#)).key
    }

    #[test]
    fn the_payload_becomes_the_data() {
        let json = r#"{"schema":{"type":"struct"},"payload":{"id":1234567890123456789,"n":null}}"#;
        let payload = object(r#"{"id":1234567890123456789,"n":null}"#);
        for envelope in [Data::text(json), object(json)] {
            assert_eq!(unwrap(Data::Absent, envelope), Ok((Data::Absent, payload.clone())));
        }
    }

    #[test]
    fn keys_with_an_envelope_lose_it() {
        let key = |key| unwrap(key, Data::text(r#"{"payload":{}}"#)).unwrap().0;
        for (before, after) in [
            (Data::text(r#" {"payload":{"id":1}}"#), object(r#"{"id":1}"#)),
            (object(r#"{"schema":{},"payload":{"id":1}}"#), object(r#"{"id":1}"#)),
            (Data::text(r#"{"payload":27}"#), Data::text("27")),
            (Data::text(r#"{"payload":"k"}"#), Data::text("k")),
            (Data::text(r#"{"payload":[1,"x"]}"#), Data::text(r#"[1,"x"]"#)),
            (Data::text(r#"{"payload":null}"#), Data::Absent),
        ] {
            assert_eq!(key(before), after);
        }
        for stays in [
            Data::text("27"),
            Data::text("{\"payload\""),
            Data::text(r#"{"id":1}"#),
            object(r#"{"id":1}"#),
            Data::text(""),
        ] {
            assert_eq!(key(stays.clone()), stays);
        }
    }

    #[test]
    fn what_is_no_envelope_fails() {
        for (envelope, message) in [
            (Data::Absent, "the record has no such data"),
            (Data::text("{"), "invalid JSON at byte 1: EOF while parsing an object"),
            (Data::text("{}"), "no payload"),
            (Data::text(r#"{"payload":null}"#), "payload is null, not an object"),
            (object(r#"{"payload":"x"}"#), "payload is text, not an object"),
        ] {
            let failed = unwrap(Data::text(r#"{"payload":1}"#), envelope);
            assert_eq!(failed, Err(format!("cannot unwrap .Payload.After: {message}")));
        }
        assert_eq!(findings(&kind(), &[("field", ".Key")]), ["field: \".Key\" must refer to .Payload"]);
        assert_eq!(findings(&kind(), &[("field", ".Payload")]), ["field: .Payload has two sides, Before and After"]);
    }

    #[test]
    fn failed_rows_stay_and_shapes_are_large_enough() {
        for field in [".Payload.After", ".Payload.Before.a.b"] {
            testing::failed_rows_stay(&kind(), &[("field", field)]);
            testing::shapes_are_large_enough(&kind(), &[("field", field)]);
        }
    }
}
