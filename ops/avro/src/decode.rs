//! `avro.decode`: decodes a field from Avro in the Confluent wire format.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Content, Flow, Kinds, Shape, Type};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{
    BuiltInline, ConfiguredOperator, Decision, Operator, OperatorContext, OperatorKind, Rows, Signature,
};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;
use anabranch_record::reference::{Part, Reference, Target};
use anabranch_record::value::Value;
use anabranch_record::{Data, Record};

use crate::cache::SchemaCache;
use crate::codes;
use crate::wire;

/// Returns the `avro.decode` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    let specification =
        Specification::builtin("avro.decode", "Decodes a field from Avro in the Confluent wire format.")
            .describe(
                "Reads the schema id before the data, fetches the schema from the schema registry and replaces \
                 the field with the decoded value. Absent and null fields stay unchanged.\n\n\
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
        Signature::new().reads(self.field.access()).writes(self.field.access())
    }

    fn flow(&self, flow: &mut Flow) {
        flow.may_fail();
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
        Ok(Box::new(Decode { field: self.field.clone(), cache }))
    }
}

struct Decode {
    field: Reference,
    cache: SchemaCache,
}

impl Operator for Decode {
    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            if let Some(value) = self.decode(record)? {
                self.field.set(record, value)?;
            }
            Ok(Decision::Keep)
        });
    }
}

impl Decode {
    /// Returns the new value of the field, or `None` if it stays unchanged.
    fn decode(&mut self, record: &Record) -> Result<Option<Value>, Fault> {
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
        let named = |error: crate::codec::CodecError| invalid(&format!("schema id {id}: {error}"));
        match field.target() {
            Target::Data(_) => codec.decode_fields(data).map(|fields| Some(Value::from(fields))).map_err(named),
            _ => codec.decode(data).map(Some).map_err(named),
        }
    }
}
