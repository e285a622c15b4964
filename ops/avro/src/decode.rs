//! `avro.decode`: decodes a field from Avro in the Confluent wire format.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Content, Flow, Kinds, Shape, Type};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{
    BuiltInline, ConfiguredOperator, Decision, Operator, OperatorContext, OperatorKind, Rows, Signature,
};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::schema::SchemaId;
use anabranch_plugin::specification::Specification;
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_record::json::write_value;
use anabranch_record::reference::{Part, Reference, Side, Target};
use anabranch_record::text::Str;
use anabranch_record::value::Value;
use anabranch_record::{Data, Record};
use bytes::Bytes;

use crate::cache::SchemaCache;
use crate::codes;
use crate::part::SchemaPart;
use crate::wire;

/// Returns the `avro.decode` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    let specification =
        Specification::builtin("avro.decode", "Decodes a field from Avro in the Confluent wire format.")
            .describe(
                "Reads the schema id before the data, fetches the schema from the schema registry and replaces \
                 the field with the decoded value. Absent and null fields stay unchanged. Schemas must be Avro: JSON \
                 Schema and Protobuf fail the record.\n\n\
                 If the field is the key or a side of the payload, and its schema is not a record or a map, the text \
                 of its value becomes raw data. The metadata `avro.key.schema.id` or `avro.payload.schema.id` keeps the \
                 id of the schema, so that a destination can encode the data with it again.\n\n\
                 Decimals become text with all digits of their scale, dates and timestamps become times, enums \
                 and uuids text, `bytes` and `fixed` bytes.",
            )
            .with_all(shared::processor());
    kind::operator(specification, configure)
}

#[derive(Parameters)]
struct Settings {
    /// The field to decode: .Key, .Payload.After, or a field within them.
    #[parameter(default = ".Payload.After", within = [".Key", ".Payload"])]
    field: Argument<Reference>,
}

fn configure(Settings { field }: Settings) -> Result<DecodeOperator, Diagnostics> {
    Ok(DecodeOperator { field: field.one_side()? })
}

struct DecodeOperator {
    field: Reference,
}

impl ConfiguredOperator for DecodeOperator {
    type Built = BuiltInline;

    fn signature(&self) -> Signature {
        let mut writes = self.field.access();
        if let (Access::These(writes), Some(part)) = (&mut writes, self.part()) {
            writes.push(vec![Str::from_static("Metadata"), part.decoded_with()]);
        }
        Signature::new().reads(self.field.access()).writes(writes)
    }

    fn flow(&self, flow: &mut Flow) {
        flow.may_fail();
        if let Some(part) = self.part() {
            flow.record.metadata.allow(part.decoded_with());
        }
        let texts = Kinds::TEXT | Kinds::BYTES;
        flow.need_other(codes::FLOW_NOT_ENCODED, "field", &self.field, &[Content::Base64], "Avro data");
        flow.need(codes::FLOW_NOT_A_TEXT, "field", &self.field, (texts, "Avro data"), true);
        match self.field.target() {
            Target::Data(side) if !flow.record.side(*side).is_absent() => flow.set_side(*side, Shape::unknown()),
            Target::Data(_) => {}
            _ => flow.replace("field", &self.field, Type::any()),
        }
    }

    fn build(&self, context: &OperatorContext) -> Result<BuiltInline, Fault> {
        let cache = SchemaCache::new(context.host.schemas.clone());
        let part = self.part();
        Ok(Box::new(Decode { field: self.field.clone(), part, cache, last: None }))
    }
}

impl DecodeOperator {
    /// Returns the part of a record that the field is as a whole.
    fn part(&self) -> Option<SchemaPart> {
        match self.field.target() {
            Target::Data(Side::Key) => Some(SchemaPart::Key),
            Target::Data(Side::Before | Side::After) => Some(SchemaPart::Payload),
            _ => None,
        }
    }
}

struct Decode {
    field: Reference,
    part: Option<SchemaPart>,
    cache: SchemaCache,
    /// The last id, and its text.
    last: Option<(SchemaId, Str)>,
}

/// A decoded field.
enum Decoded {
    /// A side of the record, and the id of its schema.
    Side(SchemaPart, Data, SchemaId),
    Field(Value),
}

impl Operator for Decode {
    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            match self.decode(record)? {
                None => {}
                Some(Decoded::Field(value)) => self.field.set(record, value)?,
                Some(Decoded::Side(part, data, id)) => {
                    self.field.set_data(record, data)?;
                    let text = match &self.last {
                        Some((last, text)) if *last == id => text.clone(),
                        _ => self.last.insert((id, id.to_string().into())).1.clone(),
                    };
                    record.metadata.insert(part.decoded_with(), text);
                }
            }
            Ok(Decision::Keep)
        });
    }
}

impl Decode {
    /// Returns the new value of the field, or `None` if it stays unchanged.
    fn decode(&mut self, record: &Record) -> Result<Option<Decoded>, Fault> {
        let field = &self.field;
        let invalid = |what: &str| Fault::record(codes::AVRO_INVALID, format!("cannot decode {field}: {what}"));
        let bytes = match field.get(record)? {
            None | Some(Part::Data(Data::Absent) | Part::Value(Value::Null)) => return Ok(None),
            Some(Part::Data(Data::Raw(bytes))) => bytes.as_ref(),
            Some(Part::Value(Value::Bytes(bytes))) => bytes.as_ref(),
            Some(Part::Value(Value::Text(text))) => text.as_bytes(),
            Some(other) => {
                let what = format!("cannot decode {field}: unexpected data type {}", other.type_name());
                return Err(Fault::record(codes::AVRO_UNEXPECTED_TYPE, what));
            }
        };
        let (id, data) = wire::split(bytes).map_err(invalid)?;
        let codec = self.cache.id(id)?;
        let value = codec.decode(data).map_err(|error| invalid(&format!("schema id {id}: {error}")))?;
        Ok(Some(match self.part {
            Some(part) => Decoded::Side(part, data_of(value)?, id),
            None => Decoded::Field(value),
        }))
    }
}

/// Returns a value as the data of a side of a record, which is text or bytes if it is not a map.
fn data_of(value: Value) -> Result<Data, Fault> {
    Ok(match value {
        Value::Null => Data::Absent,
        Value::Map(fields) => Data::Structured(fields),
        Value::Text(text) => Data::text(text.as_str()),
        Value::Bytes(bytes) => Data::Raw(Bytes::copy_from_slice(&bytes)),
        other => {
            let mut text = Vec::new();
            write_value(&other, &mut text)?;
            Data::Raw(text.into())
        }
    })
}
