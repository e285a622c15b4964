//! JavaScript text is UTF-16 and may hold half a character; text of records is UTF-8.

use std::borrow::Cow;

use boa_engine::property::PropertyKey;
use boa_engine::string::JsStrVariant;
use boa_engine::{JsStr, JsString};

/// The text as UTF-8; `None` where a surrogate stands alone. Borrows what is ASCII.
pub(crate) fn utf8<'a>(text: JsStr<'a>) -> Option<Cow<'a, str>> {
    match text.variant() {
        JsStrVariant::Latin1(bytes) => Some(match std::str::from_utf8(bytes) {
            Ok(ascii) if ascii.is_ascii() => Cow::Borrowed(ascii),
            _ => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
        }),
        JsStrVariant::Utf16(units) => String::from_utf16(units).ok().map(Cow::Owned),
    }
}

/// The name of a property as UTF-8; `None` for symbols and names with half a character.
pub(crate) fn name(key: &PropertyKey) -> Option<Cow<'_, str>> {
    match key {
        PropertyKey::String(text) => utf8(text.as_str()),
        PropertyKey::Index(index) => Some(Cow::Owned(index.get().to_string())),
        PropertyKey::Symbol(_) => None,
    }
}

/// The key of a property.
pub(crate) fn key(name: &str) -> PropertyKey {
    PropertyKey::from(JsString::from(name))
}
