//! Encodes `hstore` as text: `"key"=>"value", "other"=>NULL`.

use anabranch_record::value::Value;

use super::{Encoded, not_a, parsed, push_quoted, push_text};

pub(super) fn encode(value: &Value, out: &mut Vec<u8>) -> Encoded {
    let map = match value {
        Value::Text(text) => return push_text(value, text, out),
        Value::Map(map) => map,
        _ => return Err(not_a(value, "a map or the text of an hstore")),
    };
    let mut text = String::new();
    for (key, value) in map.iter() {
        if !text.is_empty() {
            text.push(',');
        }
        push_quoted(key, &mut text);
        text.push_str("=>");
        if matches!(value, Value::Null) {
            text.push_str("NULL");
        } else {
            let mut printed = Vec::new();
            parsed(value, None, &mut printed)?;
            push_quoted(&String::from_utf8_lossy(&printed), &mut text);
        }
    }
    push_text(value, &text, out)
}
