//! The transformation TimestampConverter.

use super::Transform;
use super::fields::is_kind;
use crate::connect::draft::Draft;
use crate::connect::shape::Shape;
use crate::expression::and;

pub(super) fn convert(transform: &mut Transform, draft: &mut Draft<'_>, shape: &Shape) {
    let name = transform.take("field").unwrap_or_default();
    let target = transform.take("target.type").unwrap_or_default();
    let format = transform.take("format");
    let precision = transform.take("unix.precision");
    if name.is_empty() {
        transform.blocked(draft, "field", "processors convert fields, not whole keys and values");
        return;
    }
    let number = match precision.as_deref().unwrap_or("milliseconds") {
        "seconds" => "unix",
        "milliseconds" => "unix_ms",
        "microseconds" => "unix_us",
        "nanoseconds" => "unix_ns",
        _ => {
            transform.blocked(
                draft,
                "unix.precision",
                "it is neither seconds, milliseconds, microseconds nor nanoseconds",
            );
            return;
        }
    };
    let layout = match format.as_deref().map(strftime) {
        None => None,
        Some(Some(layout)) => Some(layout),
        Some(None) => {
            transform.blocked(
                draft,
                "format",
                "the format has letters that layouts of strptime do not have: write `time.parse` and `time.format` by hand",
            );
            return;
        }
    };
    let write = match (target.as_str(), &layout) {
        ("string", Some(layout)) => Some(layout.as_str()),
        ("unix", _) => Some(number),
        ("Timestamp", _) => None,
        ("string", None) => {
            transform.blocked(draft, "format", "a text needs a format");
            return;
        }
        ("Date" | "Time", _) => {
            transform.blocked(
                draft,
                "target.type",
                "there is no type for a date or a time of day alone: choose Timestamp, or a text",
            );
            return;
        }
        _ => {
            transform.blocked(draft, "target.type", "it is neither string, unix, Date, Time nor Timestamp");
            return;
        }
    };
    if transform.has_fields(draft, shape) {
        let field = transform.field(&name);
        let reference = transform.reference(&name);
        let parse =
            |layout: &str| transform.part("time.parse").with("field", reference.as_str()).with("layout", layout);
        // Kafka Connect decides by the type of each value, too.
        let when = |kinds: &[&str]| {
            let tests: Vec<String> = kinds.iter().map(|kind| is_kind(kind, &field)).collect();
            let is_of_kind = match &tests[..] {
                [test] => test.clone(),
                tests => format!("or ({})", tests.join(") (")),
            };
            and(Some(&transform.of_field(shape, &name)), &is_of_kind)
        };
        draft.add(parse(number).when(Some(&when(&["int64", "uint64"]))));
        if let Some(layout) = &layout
            && target != "string"
        {
            draft.add(parse(layout).when(Some(&when(&["string"]))));
        }
        if let Some(layout) = write {
            let part = transform.part("time.format").with("field", reference.as_str()).with("layout", layout);
            transform.add(draft, part);
        }
    }
    transform.carried(draft, "field");
    transform.carried(draft, "target.type");
    if format.is_some() {
        transform.carried(draft, "format");
    }
    if precision.is_some() {
        transform.carried(draft, "unix.precision");
    }
    if target == "string" {
        transform.changed(draft, "target.type", "a text must be a time as RFC 3339; numbers and times become texts");
    }
}

/// Returns a layout of strftime for a format of Java; `None` if it has letters without a counterpart.
pub(in crate::connect) fn strftime(java: &str) -> Option<String> {
    let mut layout = String::new();
    for part in java_parts(java)? {
        match part {
            JavaPart::Text(text) => layout.push_str(&text.replace('%', "%%")),
            JavaPart::Letters(letter, count) => layout.push_str(match (letter, count) {
                ('y', 4) | ('u', 4) => "%Y",
                ('y', 2) => "%y",
                ('M', 1) => "%-m",
                ('M', 2) => "%m",
                ('M', 3) => "%b",
                ('M', 4) => "%B",
                ('d', 1) => "%-d",
                ('d', 2) => "%d",
                ('D', 3) => "%j",
                ('H', 1) => "%-H",
                ('H', 2) => "%H",
                ('h', 1) => "%-I",
                ('h', 2) => "%I",
                ('m', 2) => "%M",
                ('s', 2) => "%S",
                ('S', 3) => "%3f",
                ('a', 1) => "%p",
                ('E', 1..=3) => "%a",
                ('E', 4) => "%A",
                ('Z', 1..=3) => "%z",
                ('X', 3) => "%:z",
                _ => return None,
            }),
        }
    }
    Some(layout)
}

/// A part of a format of Java.
pub(in crate::connect) enum JavaPart {
    /// Text that stands for itself.
    Text(String),
    /// A letter, and how many times it stands there.
    Letters(char, usize),
}

/// Returns the parts of a format of Java; `None` if a quote is not closed.
pub(in crate::connect) fn java_parts(java: &str) -> Option<Vec<JavaPart>> {
    let mut parts = Vec::new();
    let mut characters = java.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\'' if characters.peek() == Some(&'\'') => {
                characters.next();
                parts.push(JavaPart::Text("'".to_owned()));
            }
            '\'' => {
                let mut text = String::new();
                loop {
                    match characters.next()? {
                        '\'' if characters.peek() == Some(&'\'') => {
                            characters.next();
                            text.push('\'');
                        }
                        '\'' => break,
                        c => text.push(c),
                    }
                }
                parts.push(JavaPart::Text(text));
            }
            c if c.is_ascii_alphabetic() => {
                let mut count = 1;
                while characters.next_if_eq(&c).is_some() {
                    count += 1;
                }
                parts.push(JavaPart::Letters(c, count));
            }
            c => parts.push(JavaPart::Text(c.to_string())),
        }
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_of_java_become_layouts() {
        assert_eq!(strftime("yyyy-MM-dd'T'HH:mm:ss.SSSXXX").as_deref(), Some("%Y-%m-%dT%H:%M:%S.%3f%:z"));
        assert_eq!(strftime("dd/MMM/yyyy h 'o''clock' a").as_deref(), Some("%d/%b/%Y %-I o'clock %p"));
        assert_eq!(strftime("100%").as_deref(), Some("100%%"));
        for odd in ["YYYY", "w", "'open", "G", "SS"] {
            assert_eq!(strftime(odd), None, "{odd}");
        }
    }
}
