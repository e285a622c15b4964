//! Bytes, base64, UTF-8 and random numbers.

use base64::alphabet;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};
use boa_engine::builtins::array_buffer::ArrayBuffer;
use boa_engine::object::builtins::{JsArrayBuffer, JsUint8Array};
use boa_engine::string::JsStrVariant;
use boa_engine::{Context, JsArgs, JsNativeError, JsResult, JsStr, JsString, JsValue};

use crate::isolate::conversion::enter;
use crate::isolate::conversion::path::described;

/// Decoder that behaves as in browsers: padding, and bits after the last byte, are optional.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// `RawData(data)`: returns the bytes of a text, an array or other bytes; without an argument, no bytes.
pub(crate) fn raw(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let value = args.get_or_undefined(0);
    if value.is_null_or_undefined() {
        return enter::bytes(&[], context);
    }
    if let Some(text) = value.as_string() {
        return enter::bytes(text.to_std_string_lossy().as_bytes(), context);
    }
    if let Some(bytes) = bytes_of(value, context)? {
        return enter::bytes(&bytes, context);
    }
    let Some(items) = value.as_object().filter(boa_engine::JsObject::is_array) else {
        let message = format!("RawData accepts a string or bytes, not {}", described(value));
        return Err(JsNativeError::typ().with_message(message).into());
    };
    let length = items.get(JsString::from("length"), context)?.to_length(context)?;
    let mut bytes = Vec::new();
    for index in 0..length {
        bytes.push(items.get(index, context)?.to_uint8(context)?);
    }
    enter::bytes(&bytes, context)
}

fn bytes_of(value: &JsValue, context: &mut Context) -> JsResult<Option<Vec<u8>>> {
    let Some(object) = value.as_object() else { return Ok(None) };
    if object.is::<ArrayBuffer>() {
        return Ok(JsArrayBuffer::from_object(object)?.to_vec());
    }
    match JsUint8Array::from_object(object) {
        Ok(array) => array.to_vec(context).map(Some),
        Err(_) => Ok(None),
    }
}

/// `btoa(text)`: returns the base64 of a text whose characters are single bytes.
pub(crate) fn btoa(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let text = args.get_or_undefined(0).to_string(context)?;
    let bytes: Option<Vec<u8>> = match text.as_str().variant() {
        JsStrVariant::Latin1(bytes) => Some(bytes.to_vec()),
        JsStrVariant::Utf16(units) => units.iter().map(|unit| u8::try_from(*unit).ok()).collect(),
    };
    let Some(bytes) = bytes else {
        let message = "btoa accepts only characters of one byte: encode the text first, for example with \
                       btoa(String.fromCharCode(...new TextEncoder().encode(text)))";
        return Err(JsNativeError::range().with_message(message).into());
    };
    Ok(JsString::from(BASE64.encode(bytes)).into())
}

/// `atob(base64)`: returns a text whose characters are single bytes.
pub(crate) fn atob(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let text = args.get_or_undefined(0).to_string(context)?.to_std_string_lossy();
    let text: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    match BASE64.decode(text) {
        Ok(bytes) => Ok(JsString::from(JsStr::latin1(&bytes)).into()),
        Err(error) => Err(JsNativeError::syntax().with_message(format!("atob: not base64: {error}")).into()),
    }
}

/// Returns the UTF-8 bytes of a text; lone surrogates become U+FFFD.
pub(crate) fn encode(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let text = args.get_or_undefined(0).to_string(context)?.to_std_string_lossy();
    enter::bytes(text.as_bytes(), context)
}

/// Decodes UTF-8 bytes to text. If the second argument is true, invalid bytes are an error.
pub(crate) fn decode(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let value = args.get_or_undefined(0);
    let bytes = match bytes_of(value, context)? {
        Some(bytes) => bytes,
        None if value.is_undefined() => Vec::new(),
        None => {
            let message = format!("TextDecoder decodes bytes, not {}", described(value));
            return Err(JsNativeError::typ().with_message(message).into());
        }
    };
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    if args.get_or_undefined(1).to_boolean()
        && let Err(error) = std::str::from_utf8(bytes)
    {
        return Err(JsNativeError::typ().with_message(format!("TextDecoder: {error}")).into());
    }
    Ok(JsString::from(String::from_utf8_lossy(bytes).as_ref()).into())
}

fn fill(bytes: &mut [u8]) -> JsResult<()> {
    getrandom::fill(bytes)
        .map_err(|error| JsNativeError::error().with_message(format!("cannot get random numbers: {error}")).into())
}

/// Returns a random UUID (version 4).
pub(crate) fn uuid(_: &JsValue, _: &[JsValue], _: &mut Context) -> JsResult<JsValue> {
    let mut bytes = [0; 16];
    fill(&mut bytes)?;
    let v4 = u128::from_be_bytes(bytes) & !(0xf << 76) & !(0b11 << 62) | 4 << 76 | 0b10 << 62;
    let hex = format!("{v4:032x}");
    let text = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
    Ok(JsString::from(text).into())
}

/// Returns the given number of random bytes.
pub(crate) fn random(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let count = args.get_or_undefined(0).to_u32(context)?;
    let mut bytes = vec![0; count.min(65536) as usize];
    fill(&mut bytes)?;
    enter::bytes(&bytes, context)
}
