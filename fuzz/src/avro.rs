//! Data with any schema is refused, or decoded to a value that encodes to the same data.

use anabranch_ops_avro::codec::Codec;
use anabranch_record::avro::infer;
use anabranch_record::value::Value;

/// The input is a schema, a zero byte, and data.
pub(crate) fn check(input: &[u8]) {
    let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    let Ok(text) = std::str::from_utf8(&input[..end]) else { return };
    let Ok(codec) = Codec::parse(text) else { return };
    let Ok(value) = codec.decode(input.get(end + 1..).unwrap_or_default()) else { return };
    stays(&codec, &value);
    let Value::Map(fields) = &value else { return };
    let mut inferred = String::new();
    if infer(fields, &mut inferred).is_err() {
        return;
    }
    let codec =
        Codec::parse(&inferred).unwrap_or_else(|error| panic!("an inferred schema is none: {error}: {inferred}"));
    let mut data = Vec::new();
    codec.encode_fields(fields, &mut data).unwrap_or_else(|error| panic!("fields do not fit their schema: {error}"));
    let decoded = codec.decode(&data).unwrap_or_else(|error| panic!("what was encoded is damaged: {error}"));
    stays(&codec, &decoded);
}

/// Checks that encoding and decoding a value changes nothing. Compares bytes, because not every number equals itself.
fn stays(codec: &Codec, value: &Value) {
    let mut data = Vec::new();
    // A default or a member of a union may be ambiguous and is then refused.
    if codec.encode(value, &mut data).is_err() {
        return;
    }
    let again = codec.decode(&data).unwrap_or_else(|error| panic!("what was encoded is damaged: {error}: {value:?}"));
    let mut same = Vec::new();
    codec.encode(&again, &mut same).unwrap_or_else(|error| panic!("what was decoded does not fit: {error}: {again:?}"));
    assert_eq!(data, same, "{value:?} became {again:?}");
}
