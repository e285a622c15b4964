//! `avro.encode`: encodes a field as Avro in the Confluent wire format.

use std::borrow::Cow;
use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Content, Flow, Kinds, Type};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{
    BuiltInline, ConfiguredOperator, Decision, Operator, OperatorContext, OperatorKind, Rows, Signature,
};
use anabranch_plugin::parameters::{Argument, Choice, Parameters, shared};
use anabranch_plugin::schema::SchemaVersion;
use anabranch_plugin::specification::Specification;
use anabranch_record::avro::infer;
use anabranch_record::fault::Fault;
use anabranch_record::json::parse_value;
use anabranch_record::phrase::with_article;
use anabranch_record::reference::{Part, Reference, Target};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};
use bytes::Bytes;

use crate::cache::SchemaCache;
use crate::codes;
use crate::wire;

/// Returns the `avro.encode` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    let specification = Specification::builtin("avro.encode", "Encodes a field as Avro in the Confluent wire format.")
        .describe(
            "Replaces the field with its encoded data: a zero byte, the id of the schema in four bytes, and the \
             data. The field must be structured data or a map, or the JSON text of an object. Absent and null \
             fields stay unchanged.\n\n\
             With `preRegistered`, the schema comes from the registry. A record that does not fit it completely \
             fails; no field is left out. With `autoRegister`, the schema is inferred from each record and \
             registered under the subject. Records with the same shape have the same schema.",
        )
        .with_all(shared::processor());
    kind::operator(specification, |settings: Settings| configure(&settings))
}

#[derive(Parameters)]
struct Settings {
    /// The field to encode: .Key, .Payload.After, or a field within them.
    #[parameter(default = ".Payload.After", within = [".Key", ".Payload"])]
    field: Argument<Reference>,
    /// Source of the schema.
    #[parameter(name = "schema.strategy")]
    strategy: Argument<SchemaSource>,
    /// Subject of the schema; for preRegistered.
    #[parameter(name = "schema.preRegistered.subject")]
    subject: Argument<Option<Str>>,
    /// Version of the schema; for preRegistered.
    #[parameter(name = "schema.preRegistered.version", greater_than = 0)]
    version: Argument<Option<i64>>,
    /// Subject under which inferred schemas are registered; for autoRegister.
    #[parameter(name = "schema.autoRegister.subject")]
    auto_subject: Argument<Option<Str>>,
}

#[derive(Clone, Copy)]
enum SchemaSource {
    PreRegistered,
    AutoRegister,
}

impl Choice for SchemaSource {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("preRegistered", SchemaSource::PreRegistered), ("autoRegister", SchemaSource::AutoRegister)];
}

fn configure(settings: &Settings) -> Result<EncodeOperator, Diagnostics> {
    let field = settings.field.one_side()?;
    let strategy = match *settings.strategy {
        SchemaSource::PreRegistered => {
            let version = settings.required(&settings.version).and_then(|number| {
                u32::try_from(number)
                    .ok()
                    .and_then(SchemaVersion::new)
                    .ok_or_else(|| settings.version.invalid(format_args!("{number} is larger than 2147483647")).into())
            });
            match (settings.required(&settings.subject), version) {
                (Ok(subject), Ok(version)) => Strategy::Registered(subject, version),
                (subject, version) => {
                    let mut findings = Diagnostics::default();
                    subject.err().into_iter().chain(version.err()).for_each(|more| findings.extend(more));
                    return Err(findings);
                }
            }
        }
        SchemaSource::AutoRegister => Strategy::Inferred(settings.required(&settings.auto_subject)?),
    };
    Ok(EncodeOperator { field, strategy })
}

impl Settings {
    /// Returns the value of a setting that the strategy needs.
    fn required<T: Clone>(&self, setting: &Argument<Option<T>>) -> Result<T, Diagnostics> {
        let missing = || {
            let (name, strategy) = (setting.name(), &self.strategy);
            let what = format!("{name:?} is required by {}: {}", strategy.name(), strategy.text());
            Diagnostics::from(setting.finding(codes::SETTINGS_MISSING, what).with_span(strategy.span()))
        };
        (**setting).clone().ok_or_else(missing)
    }
}

#[derive(Clone)]
enum Strategy {
    Registered(Str, SchemaVersion),
    Inferred(Str),
}

struct EncodeOperator {
    field: Reference,
    strategy: Strategy,
}

impl ConfiguredOperator for EncodeOperator {
    type Built = BuiltInline;

    fn signature(&self) -> Signature {
        Signature::new().reads(self.field.access()).writes(self.field.access())
    }

    fn flow(&self, flow: &mut Flow) {
        flow.may_fail();
        let refused = [Content::Avro, Content::Base64];
        flow.need_other(
            codes::FLOW_NOT_ENCODED,
            "field",
            &self.field,
            &refused,
            "structured data or the JSON text of an object",
        );
        if let Target::Data(side) = self.field.target() {
            let shape = flow.record.side(*side);
            if shape.is_raw() && shape.plain && shape.content.is_none() {
                let message =
                    format!("every record fails here: {} is raw data, not the JSON text of an object", side.as_str());
                let since = (shape.since, "raw data since here".to_owned());
                let hint = "encode structured data, or name the field that contains it".to_owned();
                flow.fail(codes::FLOW_NOT_ENCODED, "field", message, Some(since), Some(hint));
            }
        }
        let content = Some(Content::Avro);
        flow.replace("field", &self.field, Type { content, ..Type::of(Kinds::BYTES) });
    }

    fn build(&self, context: &OperatorContext) -> Result<BuiltInline, Fault> {
        Ok(Box::new(Encode {
            field: self.field.clone(),
            strategy: self.strategy.clone(),
            cache: SchemaCache::new(context.host.schemas.clone()),
            text: String::new(),
            buffer: Vec::new(),
        }))
    }
}

struct Encode {
    field: Reference,
    strategy: Strategy,
    cache: SchemaCache,
    /// Buffer for the schema text, reused between records.
    text: String,
    buffer: Vec<u8>,
}

impl Operator for Encode {
    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            self.encode(record)?;
            Ok(Decision::Keep)
        });
        // A single huge record must not keep its memory allocated.
        if self.buffer.capacity() > 1 << 20 {
            self.buffer = Vec::new();
        }
    }
}

impl Encode {
    fn encode(&mut self, record: &mut Record) -> Result<(), Fault> {
        let Some(fields) = fields(&self.field, record)? else { return Ok(()) };
        let field = &self.field;
        let failed =
            |code, error: &dyn std::fmt::Display| Fault::record(code, format!("cannot encode {field}: {error}"));
        let known = match &self.strategy {
            Strategy::Registered(subject, version) => self.cache.version(subject, *version)?,
            Strategy::Inferred(subject) => {
                self.text.clear();
                infer(&fields, &mut self.text).map_err(|error| failed(codes::AVRO_NO_SCHEMA, &error))?;
                self.cache.register(subject, &self.text)?
            }
        };
        self.buffer.clear();
        wire::begin(known.schema.id, &mut self.buffer);
        let encoded = known.codec.encode_fields(&fields, &mut self.buffer);
        encoded.map_err(|error| failed(codes::AVRO_MISFIT, &error))?;
        match field.target() {
            Target::Data(_) => field.set_data(record, Data::Raw(Bytes::copy_from_slice(&self.buffer))),
            _ => field.set(record, Value::Bytes(self.buffer.as_slice().into())),
        }
    }
}

/// Returns the fields to encode, or `None` if there are none.
fn fields<'r>(field: &Reference, record: &'r Record) -> Result<Option<Cow<'r, Object>>, Fault> {
    let text = match field.get(record)? {
        None | Some(Part::Data(Data::Absent) | Part::Value(Value::Null)) => return Ok(None),
        Some(Part::Data(Data::Structured(fields)) | Part::Value(Value::Map(fields))) => {
            return Ok(Some(Cow::Borrowed(&**fields)));
        }
        Some(Part::Data(Data::Raw(bytes))) => bytes.as_ref(),
        Some(Part::Value(Value::Text(text))) => text.as_bytes(),
        Some(Part::Value(Value::Bytes(bytes))) => bytes.as_ref(),
        Some(other) => {
            let what = format!("cannot encode {field}: unexpected data type {}", other.type_name());
            return Err(Fault::record(codes::AVRO_UNEXPECTED_TYPE, what));
        }
    };
    match parse_value(text) {
        Ok(Value::Map(map)) => Ok(Some(Cow::Owned(Arc::unwrap_or_clone(map)))),
        Ok(other) => {
            let what =
                format!("cannot encode {field}: its JSON text is {}, not an object", with_article(other.type_name()));
            Err(Fault::record(codes::AVRO_UNEXPECTED_TYPE, what))
        }
        Err(error) => {
            let what = format!("cannot encode {field}: it is neither structured data nor JSON: {error}");
            Err(Fault::record(codes::AVRO_UNEXPECTED_TYPE, what))
        }
    }
}

#[cfg(test)]
mod tests;
