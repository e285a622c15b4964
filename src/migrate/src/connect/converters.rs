//! Converters: how keys and values of messages are encoded.

use super::draft::Draft;
use super::shape::{Form, IS_NOT_DELETION, Shape, WrittenAsJson, json_of};
use crate::document::Part;

/// A converter of Kafka Connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Converter {
    /// JSON; with `schemas`, in an envelope with its schema.
    Json { schemas: bool },
    /// Avro with the schema registry.
    Avro,
    /// A text, or bytes.
    Raw,
    /// Neither the connector nor the worker says it.
    Unknown,
    /// One without a counterpart.
    Other,
}

/// The key or the value of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Key,
    Value,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::Key => "key",
            Side::Value => "value",
        }
    }

    fn reference(self) -> &'static str {
        match self {
            Side::Key => ".Key",
            Side::Value => ".Payload.After",
        }
    }
}

/// Returns the class of a converter, as the connector or the worker sets it; empty if neither does.
fn class(draft: &Draft<'_>, side: Side) -> String {
    let name = format!("{}.converter", side.name());
    draft.peek(&name).map(str::to_owned).or_else(|| draft.of_worker(&name)).unwrap_or_default()
}

fn is_json(class: &str) -> bool {
    class.starts_with("org.apache.kafka.") && class.ends_with(".JsonConverter")
}

/// Returns what the converters of a source connector write as JSON, before they are taken.
pub(super) fn written_as_json(draft: &Draft<'_>) -> WrittenAsJson {
    WrittenAsJson { key: is_json(&class(draft, Side::Key)), value: is_json(&class(draft, Side::Value)) }
}

/// Takes a converter with its settings. `to` is its place in the pipeline.
fn take(draft: &mut Draft<'_>, side: Side, to: &str) -> Converter {
    let name = format!("{}.converter", side.name());
    let prefix = format!("{name}.");
    let class = class(draft, side);
    let own = draft.take(&name);
    let mut settings = draft.take_prefixed(&prefix);
    let schemas_setting = format!("{prefix}schemas.enable");
    let schemas = settings.remove("schemas.enable");
    let has_schemas = schemas.is_some();
    let schemas = match own {
        Some(_) => schemas,
        None => schemas.or_else(|| draft.of_worker(&schemas_setting)),
    };
    let converter = match class.rsplit('.').next().unwrap_or_default() {
        "" => Converter::Unknown,
        "JsonConverter" if is_json(&class) => {
            Converter::Json { schemas: schemas.is_none_or(|schemas| !schemas.trim().eq_ignore_ascii_case("false")) }
        }
        "AvroConverter" => Converter::Avro,
        "StringConverter" | "ByteArrayConverter" => Converter::Raw,
        _ => Converter::Other,
    };
    if own.is_some() && converter != Converter::Other {
        draft.carried(&name, to);
    }
    if has_schemas {
        draft.carried(&schemas_setting, to);
    }
    for rest in settings.into_keys() {
        let note = match rest.as_str() {
            "schema.registry.url" => {
                "in anabranch.yaml, set schema-registry.type to confluent and \
                 schema-registry.confluent.connection-string to this URL"
            }
            rest if rest.starts_with("basic.auth.") || rest.starts_with("bearer.auth.") => {
                "in anabranch.yaml, set schema-registry.confluent.auth.*"
            }
            _ => "this setting of the converter has no counterpart",
        };
        draft.left_out(&format!("{prefix}{rest}"), note);
    }
    if converter == Converter::Other {
        draft.blocked(
            &name,
            "this converter has no counterpart: the pipeline reads and writes JSON, Avro in the wire format of Confluent, \
             and raw data",
        );
    }
    converter
}

/// Adds the processors that decode the messages of a sink connector, and returns the form of the records after them.
pub(super) fn decode(draft: &mut Draft<'_>, mut shape: Shape) -> Shape {
    shape.key = match take(draft, Side::Key, "decode-key") {
        Converter::Json { schemas } => {
            decode_json(draft, Side::Key);
            if schemas {
                // The key of a record without a value has an envelope, too.
                let has_envelope = "and (kindIs \"map\" .Key) (hasKey .Key \"payload\")";
                draft.add(
                    Part::new("unwrap-key", "field.set")
                        .when(Some(has_envelope))
                        .with("field", ".Key")
                        .with("value", "{{ toJson .Key.payload }}"),
                );
                decode_json(draft, Side::Key);
            }
            Form::Fields
        }
        Converter::Avro => {
            draft.add(Part::new("decode-key", "avro.decode").with("field", ".Key"));
            Form::Fields
        }
        Converter::Raw | Converter::Other => Form::Raw,
        Converter::Unknown => {
            unknown(draft, Side::Key, "the pipeline leaves keys as they are");
            Form::Raw
        }
    };
    shape.value = match take(draft, Side::Value, "decode") {
        Converter::Json { schemas: false } => {
            decode_json(draft, Side::Value);
            Form::Fields
        }
        Converter::Json { schemas: true } => {
            shape.has_schema = true;
            draft.add(Part::new("decode", "unwrap.kafkaconnect").when(Some(IS_NOT_DELETION)));
            Form::Fields
        }
        Converter::Avro => {
            shape.has_schema = true;
            draft.add(Part::new("decode", "avro.decode").with("field", ".Payload.After"));
            Form::Fields
        }
        Converter::Raw | Converter::Other => Form::Raw,
        Converter::Unknown => {
            unknown(draft, Side::Value, "the pipeline reads values as JSON without schemas");
            decode_json(draft, Side::Value);
            Form::Fields
        }
    };
    shape
}

fn decode_json(draft: &mut Draft<'_>, side: Side) {
    // A key may also be a number, whose JSON is its text.
    let is_decodable = "or (hasPrefix \"{\" (printf \"%s\" .Key)) (hasPrefix \"\\\"\" (printf \"%s\" .Key))";
    let (id, condition) = match side {
        Side::Key => ("decode-key", Some(is_decodable)),
        Side::Value => ("decode", None),
    };
    draft.add(Part::new(id, "json.decode").with("field", side.reference()).when(condition));
}

fn unknown(draft: &mut Draft<'_>, side: Side, assumed: &str) {
    let setting = format!("{}.converter", side.name());
    let note = match draft.has_worker() {
        true => "neither the connector nor the worker sets it",
        false => "the worker sets it: give its properties file with --worker",
    };
    draft.unsure(&setting, "", &format!("{note}; {assumed}, until you know better"));
}

/// Sets the format of the messages of a source connector.
pub(super) fn encode(draft: &mut Draft<'_>, shape: &Shape, destination: &mut Part) {
    encode_key(draft, shape, destination);
    let converter = take(draft, Side::Value, "topic.sdk.record.format");
    match (shape.value, converter) {
        (Form::Envelope, Converter::Json { schemas }) => {
            destination.set("sdk.record.format", "debezium/json");
            let note = match schemas {
                true => {
                    "the envelope has no schemas for numbers and times of SQL; `source` has the metadata of the record"
                }
                false => "the change is in the field `payload` of an envelope, which has the field `schema` as well",
            };
            draft.changed("value.converter", "topic.sdk.record.format", note);
        }
        (Form::Envelope, Converter::Unknown) => {
            unknown(draft, Side::Value, "the pipeline writes Debezium's envelope as JSON");
            destination.set("sdk.record.format", "debezium/json");
        }
        (Form::Envelope, Converter::Avro) => {
            draft.blocked(
                "value.converter",
                "the envelope of Debezium cannot be written as Avro: write the row alone (encode.payload: avro), or the \
                 envelope as JSON (sdk.record.format: debezium/json)",
            );
            destination.set("sdk.record.format", "debezium/json");
        }
        (Form::Raw, Converter::Json { schemas }) => {
            let text = format!("{{{{ {} }}}}", json_of(Form::Raw, ".Payload.After"));
            let options = match schemas {
                true => format!("{{\"schema\":{{\"type\":\"string\",\"optional\":false}},\"payload\":{text}}}"),
                false => text,
            };
            destination.set("sdk.record.format", "template");
            destination.set("sdk.record.format.options", options);
        }
        (_, Converter::Avro) => {
            destination.set("encode.payload", "avro");
            draft.changed(
                "value.converter",
                "topic.encode.payload",
                "the schema is that of the source, not of the connector",
            );
        }
        (Form::Fields | Form::Json, Converter::Json { schemas: true }) => {
            destination.set("sdk.record.format", "recfmt/raw");
            draft.changed(
                "value.converter",
                "topic.sdk.record.format",
                "the value is plain JSON, without the envelope {schema, payload}: consumers must read it with \
                 schemas.enable=false",
            );
        }
        (_, Converter::Unknown) => {
            unknown(draft, Side::Value, "the pipeline writes the payload: raw data as they are, fields as JSON");
            destination.set("sdk.record.format", "recfmt/raw");
        }
        (_, Converter::Json { .. } | Converter::Raw | Converter::Other) => {
            destination.set("sdk.record.format", "recfmt/raw");
        }
    }
}

fn encode_key(draft: &mut Draft<'_>, shape: &Shape, destination: &mut Part) {
    let converter = take(draft, Side::Key, "topic.key");
    match (shape.key, converter) {
        (Form::Absent, _) => {}
        (Form::Raw, Converter::Json { schemas }) => {
            let text = format!("{{{{ {} }}}}", json_of(Form::Raw, ".Key"));
            destination.set("key", text);
            if schemas {
                draft.changed(
                    "key.converter",
                    "topic.key",
                    "the key is plain JSON, without the envelope {schema, payload}",
                );
            }
        }
        (_, Converter::Json { schemas: true }) => {
            draft.changed(
                "key.converter",
                "topic.key",
                "the key is plain JSON, without the envelope {schema, payload}",
            );
        }
        (_, Converter::Avro) => destination.set("encode.key", "avro"),
        (_, Converter::Unknown) => {
            unknown(draft, Side::Key, "the pipeline writes raw keys as they are, and fields as JSON");
        }
        (_, Converter::Json { schemas: false } | Converter::Raw | Converter::Other) => {}
    }
}
