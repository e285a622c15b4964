//! Conversion of JavaScript text, which is UTF-16 with possible lone surrogates, to UTF-8.

use std::borrow::Cow;

use boa_engine::property::PropertyKey;
use boa_engine::string::JsStrVariant;
use boa_engine::{JsStr, JsString};

/// Returns the text as UTF-8, or `None` if it has a lone surrogate. ASCII text is borrowed.
pub(crate) fn utf8<'a>(text: JsStr<'a>) -> Option<Cow<'a, str>> {
    match text.variant() {
        JsStrVariant::Latin1(bytes) => Some(match std::str::from_utf8(bytes) {
            Ok(ascii) if ascii.is_ascii() => Cow::Borrowed(ascii),
            _ => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
        }),
        JsStrVariant::Utf16(units) => String::from_utf16(units).ok().map(Cow::Owned),
    }
}

/// Returns a property name as UTF-8, or `None` for symbols and names with lone surrogates.
pub(crate) fn name(key: &PropertyKey) -> Option<Cow<'_, str>> {
    match key {
        PropertyKey::String(text) => utf8(text.as_str()),
        PropertyKey::Index(index) => Some(Cow::Owned(index.get().to_string())),
        PropertyKey::Symbol(_) => None,
    }
}

/// Returns the property key for a name.
pub(crate) fn key(name: &str) -> PropertyKey {
    PropertyKey::from(JsString::from(name))
}
