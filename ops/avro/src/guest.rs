//! Encodes data for standalone processors, which decode and encode themselves. Their protocol loses types of structured
//! data, and they would register a schema of the rest. Their output is decoded again, so that conditions can read
//! fields. Bytes that do not match the schema, but still name it, are new raw data: their schema is removed.

use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::flow::Flow;
use anabranch_plugin::operator::{
    BuiltIsolate, Configured, ConfiguredOperator, Operator, OperatorContext, OperatorKind, Rows, Signature,
};
use anabranch_record::Record;
use anabranch_record::fault::{Fault, FaultClass};

use crate::cache::SchemaCache;
use crate::input::InputRows;
use crate::part::SchemaPart;
use crate::record::{decode, decode_matching, encode, has_schema};
use crate::strip::PreparedRows;
use crate::wrapped::wrapped;

/// Wraps a processor with encoding before and decoding after it. Processors without settings for it are unchanged.
pub fn encoded(kind: Arc<dyn OperatorKind>) -> Arc<dyn OperatorKind> {
    wrapped(kind, |inner, recoding| {
        let on = |part: &SchemaPart| match part {
            SchemaPart::Key => (recoding.decodes_key, recoding.encodes_key) == (Some(true), Some(true)),
            SchemaPart::Payload => (recoding.decodes_payload, recoding.encodes_payload) == (Some(true), Some(true)),
        };
        let parts: Vec<SchemaPart> = SchemaPart::ALL.into_iter().filter(on).collect();
        match inner {
            Configured::Isolate(inner) if !parts.is_empty() => EncodedOperator { inner, parts }.into(),
            other => other,
        }
    })
}

struct EncodedOperator {
    inner: Arc<dyn ConfiguredOperator<Built = BuiltIsolate>>,
    parts: Vec<SchemaPart>,
}

impl ConfiguredOperator for EncodedOperator {
    type Built = BuiltIsolate;

    fn signature(&self) -> Signature {
        self.inner.signature()
    }

    fn flow(&self, flow: &mut Flow) {
        self.inner.flow(flow);
    }

    fn patience(&self) -> Option<Duration> {
        self.inner.patience()
    }

    fn build(&self, context: &OperatorContext) -> Result<BuiltIsolate, Fault> {
        Ok(Box::new(EncodedWorker {
            inner: self.inner.build(context)?,
            cache: SchemaCache::new(context.host.schemas.clone()),
            parts: self.parts.clone(),
            strip: PreparedRows::new(),
            input: InputRows::new(true),
        }))
    }
}

struct EncodedWorker {
    inner: BuiltIsolate,
    cache: SchemaCache,
    parts: Vec<SchemaPart>,
    strip: PreparedRows,
    input: InputRows,
}

/// Encodes data with a schema; returns whether there was any. Data that does not fit its schema stays unchanged.
fn encode_all(cache: &mut SchemaCache, parts: &[SchemaPart], record: &mut Record) -> Result<bool, Fault> {
    let mut any = false;
    for part in parts {
        match encode(cache, *part, record) {
            Ok(done) => any |= done,
            Err(fault) if fault.class() == FaultClass::Record => {
                tracing::debug!(error = %fault, "the processor receives the data as fields");
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(any)
}

impl Operator for EncodedWorker {
    fn process(&mut self, rows: &mut Rows<'_>, context: &OperatorContext) {
        let EncodedWorker { inner, cache, parts, strip, input } = self;
        let concerns = |record: &Record| parts.iter().any(|part| has_schema(*part, record));
        let encode = |record: &mut Record| encode_all(cache, parts, record);
        input.clear();
        strip.process((&mut **inner, context), rows, concerns, encode, |row, record| input.note(row, record));
        strip.finish(rows, |row, changed, record| {
            for part in parts.iter().filter(|_| changed) {
                let Err(fault) = decode(cache, *part, record) else { continue };
                tracing::debug!(error = %fault, "the data stays as the processor returned it");
                if fault.class() == FaultClass::Record && input.names_the_same(row, *part, record) {
                    decode_matching(cache, *part, record)?;
                    cache.remove_schema(*part, &mut record.metadata);
                }
            }
            Ok(())
        });
        input.clear();
    }

    fn close(&mut self) -> Result<(), Fault> {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use anabranch_plugin::arguments::Arguments;
    use anabranch_plugin::diagnostic::Diagnostics;
    use anabranch_plugin::operator::{Configured, Decision, OperatorContext};
    use anabranch_plugin::parameters::shared;
    use anabranch_plugin::schema::{MemoryRegistry, SchemaKind, SchemaRegistry as _};
    use anabranch_plugin::settings::Settings;
    use anabranch_plugin::specification::Specification;
    use anabranch_plugin::testing::configured::Opened;
    use anabranch_record::Data;
    use anabranch_record::metadata::key;
    use bytes::Bytes;

    use super::*;
    use crate::testing::{after, block_on, fields, host};

    /// Collects its input. Fails the number 3, replaces 4 with 2, splits 5 into two records, and replaces 6 with text.
    #[derive(Clone)]
    struct Noting(Specification, Arc<Mutex<Vec<Data>>>);

    impl OperatorKind for Noting {
        fn specification(&self) -> &Specification {
            &self.0
        }
        fn configure(&self, _: &Arguments) -> Result<Configured, Diagnostics> {
            Ok(self.clone().into())
        }
    }

    impl ConfiguredOperator for Noting {
        type Built = BuiltIsolate;
        fn signature(&self) -> Signature {
            Signature::new()
        }
        fn build(&self, _: &OperatorContext) -> Result<BuiltIsolate, Fault> {
            Ok(Box::new(self.clone()))
        }
    }

    impl Operator for Noting {
        fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
            rows.for_each(|record| {
                let data = record.payload.after.clone();
                self.1.lock().unwrap_or_else(PoisonError::into_inner).push(data.clone());
                match data {
                    Data::Raw(bytes) if bytes[..] == *b"\x06" => {
                        Err(Fault::record(anabranch_plugin::testing::codes::ASKED, "asked to fail"))
                    }
                    Data::Raw(bytes) if bytes[..] == *b"\x08" => {
                        record.payload.after = Data::Raw(Bytes::from_static(b"\x04"));
                        Ok(Decision::Keep)
                    }
                    Data::Raw(bytes) if bytes[..] == *b"\x0a" => Ok(Decision::Split(vec![record.clone(); 2])),
                    Data::Raw(bytes) if bytes[..] == *b"\x0c" => {
                        record.payload.after = Data::text("text");
                        Ok(Decision::Keep)
                    }
                    _ => Ok(Decision::Keep),
                }
            });
        }
    }

    fn named(text: &str) -> Record {
        let mut record = after(fields(text));
        record.metadata.insert(key::PAYLOAD_SCHEMA_SUBJECT, "s");
        record.metadata.insert(key::PAYLOAD_SCHEMA_VERSION, "1");
        record
    }

    /// The rows that the processor received, their results, and its decisions.
    fn processed(settings: &[(&str, &str)], rows: &[Record]) -> (Vec<Data>, Vec<Record>, Vec<(usize, Decision)>) {
        let registry = Arc::new(MemoryRegistry::new());
        let text = r#"{"name":"record","type":"record","fields":[{"name":"a","type":"long"}]}"#;
        block_on(registry.create(&"s".into(), SchemaKind::Avro, &text.into())).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let specification = Specification::builtin("noting", "Notes.").with_all(shared::processor());
        let kind = encoded(Arc::new(Noting(specification, seen.clone())));
        let settings = Settings::from_pairs(settings.iter().copied());
        let arguments = Arguments::parse(kind.specification(), &settings).unwrap();
        let mut opened = Opened::new(&kind.configure(&arguments).unwrap(), host(registry)).unwrap();
        let mut records = rows.to_vec();
        let decisions = opened.process(&mut records, None);
        let seen = seen.lock().unwrap().clone();
        (seen, records, decisions)
    }

    #[test]
    fn fields_with_a_schema_keep_their_types() {
        let big = named(r#"{"a":9007199254740993}"#);
        let plain = after(fields(r#"{"a":1}"#));
        let rows = [named(r#"{"a":1}"#), big.clone(), plain.clone(), named(r#"{"a":3}"#), named(r#"{"a":4}"#)];
        let (seen, after, decisions) = processed(&[], &rows);
        let raw = |bytes: &'static [u8]| Data::Raw(Bytes::from_static(bytes));
        let whole = raw(b"\x82\x80\x80\x80\x80\x80\x80\x20");
        assert_eq!(seen, [raw(b"\x02"), whole, plain.payload.after.clone(), raw(b"\x06"), raw(b"\x08")]);
        assert!(matches!(&decisions[..], [(3, Decision::Fail(_))]), "{decisions:?}");
        assert_eq!(after, [rows[0].clone(), big, plain, rows[3].clone(), named(r#"{"a":2}"#)]);
    }

    #[test]
    fn records_made_of_one_are_decoded_too() {
        let row = named(r#"{"a":5}"#);
        let (_, _, mut decisions) = processed(&[], std::slice::from_ref(&row));
        let Some((0, Decision::Split(copies))) = decisions.pop() else { panic!("{decisions:?}") };
        assert_eq!(copies, [row.clone(), row]);
    }

    #[test]
    fn what_the_schema_did_not_write_has_none_any_more() {
        let mut row = named(r#"{"a":6}"#);
        row.payload.before = fields(r#"{"a":1}"#);
        let (_, after, decisions) = processed(&[], std::slice::from_ref(&row));
        assert!(decisions.is_empty(), "{decisions:?}");
        assert_eq!((&after[0].payload.before, &after[0].payload.after), (&row.payload.before, &Data::text("text")));
        assert!(after[0].metadata.is_empty(), "{:?}", after[0].metadata);
    }

    #[test]
    fn what_the_processor_leaves_alone_is_left_alone() {
        let row = named(r#"{"a":1}"#);
        for step in ["decode", "encode"] {
            let name = format!("sdk.schema.{step}.payload.enabled");
            let (seen, after, _) = processed(&[(name.as_str(), "false")], std::slice::from_ref(&row));
            assert_eq!((seen, after), (vec![row.payload.after.clone()], vec![row.clone()]));
        }
    }
}
