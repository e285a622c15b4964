//! Texts of templates and references.

use anabranch_record::reference::push_part;

/// Returns the reference of a field: `.Payload.After.name`, or `.Payload.After["a name"]`.
pub(crate) fn reference(base: &str, names: &[&str]) -> String {
    let mut text = base.to_owned();
    for name in names {
        push_part(name, &mut text);
    }
    text
}

/// Returns the expression that reads a field in a template.
pub(crate) fn field(base: &str, names: &[&str]) -> String {
    let mut text = base.to_owned();
    let mut plain = true;
    for name in names {
        if plain && is_identifier(name) {
            text = format!("{text}.{name}");
        } else {
            plain = false;
            text = format!("(index {text} {})", quoted(name));
        }
    }
    text
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns the expression that reads an entry of the metadata.
pub(crate) fn metadata(key: &str) -> String {
    format!("(index .Metadata {})", quoted(key))
}

/// Returns a text as a string of a template.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns a template whose output is exactly this text.
pub(crate) fn constant(text: &str) -> String {
    text.replace("{{", "{{ \"{{\" }}")
}

/// Returns a template with only this expression.
pub(crate) fn action(expression: &str) -> String {
    let inner = expression.strip_prefix('(').and_then(|inner| inner.strip_suffix(')'));
    // The parentheses around the whole expression are not needed; `(a) (b)` has others.
    let whole = inner.filter(|inner| !inner.contains(['(', ')']));
    format!("{{{{ {} }}}}", whole.unwrap_or(expression))
}

/// Returns an expression that is true if both are.
pub(crate) fn and(first: Option<&str>, second: &str) -> String {
    match first {
        Some(first) => format!("and ({first}) ({second})"),
        None => second.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_by_name_or_by_index() {
        assert_eq!(field(".Payload.After", &["a", "b"]), ".Payload.After.a.b");
        assert_eq!(field(".Key", &["a-b", "c"]), "(index (index .Key \"a-b\") \"c\")");
        assert_eq!(reference(".Key", &["a-b"]), ".Key[\"a-b\"]");
        assert_eq!(action("(index .Key \"x\")"), "{{ index .Key \"x\" }}");
        assert_eq!(action("(a) (b)"), "{{ (a) (b) }}");
        assert_eq!(quoted("a\"\\\u{1}"), "\"a\\\"\\\\\\u0001\"");
    }
}
