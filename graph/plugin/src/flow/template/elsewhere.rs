//! Placeholders of other tools in the place of a template.

use anabranch_record::access::Access;
use anabranch_record::reference::{Reference, Target};
use anabranch_template::{MissingKey, Template, functions};

/// Returns the intended template of a text with a reference or a call without braces, in single braces, or after `$`,
/// or with `%{name}`.
pub(super) fn meant(text: &str) -> Option<String> {
    if let Some(reference) = reference(text.strip_prefix('$').unwrap_or(text)) {
        return Some(format!("{{{{ {reference} }}}}"));
    }
    if let Some(name) = text.strip_prefix("%{").and_then(|rest| rest.strip_suffix('}')) {
        // Logstash has brackets around each name.
        let name = match name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(names) => names.replace("][", "."),
            None => name.to_owned(),
        };
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
        return is_name.then(|| format!("{{{{ .Payload.After.{name} }}}}"));
    }
    in_single_braces(text)
        .or_else(|| action(text))
        .or_else(|| in_json(text))
        .or_else(|| in_path(text))
        .or_else(|| calculated(text))
        .or_else(|| called(text))
}

/// Corrects an arithmetic expression: `.Payload.After.id + 1`.
fn calculated(text: &str) -> Option<String> {
    let [left, operator, right] = text.split_whitespace().collect::<Vec<_>>()[..] else { return None };
    let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit()) && text.parse::<f64>().is_ok();
    let both = [left, right];
    let of_record = both.iter().any(|text| reference_to_value(text).is_some());
    if !of_record || !both.iter().all(|text| is_number(text) || reference_to_value(text).is_some()) {
        return None;
    }
    let function = match operator {
        "+" => "add",
        "-" => "sub",
        "*" => "mul",
        "/" => "div",
        "%" => return Some(format!("{{{{ mod {left} {right} }}}}")),
        _ => return None,
    };
    let point = if both.iter().any(|text| is_number(text) && text.contains('.')) { "f" } else { "" };
    Some(format!("{{{{ {function}{point} {left} {right} }}}}"))
}

/// Corrects a call with parentheses and commas: `COALESCE(.Payload.After.x, 0)`.
fn called(text: &str) -> Option<String> {
    let (name, arguments) = text.strip_suffix(')')?.split_once('(')?;
    let is_word = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
    if !is_word || arguments.contains(['(', ')', '{', '"']) {
        return None;
    }
    let arguments: Vec<String> = arguments.split(',').map(|argument| argument.trim().replace('\'', "\"")).collect();
    if !arguments.iter().any(|argument| reference_to_value(argument).is_some()) {
        return None;
    }
    let meant = match (name.to_ascii_lowercase().as_str(), &arguments[..]) {
        ("coalesce" | "ifnull" | "nvl" | "isnull", [value, otherwise]) => {
            format!("{{{{ default {otherwise} {value} }}}}")
        }
        (name, arguments) => format!("{{{{ {name} {} }}}}", arguments.join(" ")),
    };
    let template = Template::parse(&meant, MissingKey::NoValue).ok()?;
    (template.reads() != Access::NOTHING).then_some(meant)
}

/// Corrects a call or a pipeline without braces: `upper .Payload.After.name`.
fn action(text: &str) -> Option<String> {
    let is_delimiter = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | '|');
    let mut words = text.split(is_delimiter).filter(|word| !word.is_empty());
    let first = words.next()?;
    let begins = match functions::find(first) {
        Some(_) => words.any(|word| reference(word).is_some()),
        None => reference(first).is_some() && text.contains('|'),
    };
    if text.contains("{{") || !begins {
        return None;
    }
    let meant = format!("{{{{ {text} }}}}");
    let template = Template::parse(&meant, MissingKey::NoValue).ok()?;
    (template.reads() != Access::NOTHING).then_some(meant)
}

/// Corrects JSON with a reference in the place of a value: `{"id": .Payload.After.id}`, with or without quotes.
fn in_json(text: &str) -> Option<String> {
    if !text.starts_with(['{', '[']) || text.contains("{{") {
        return None;
    }
    let mut meant = String::new();
    let mut copied = 0;
    let mut found = false;
    for (start, _) in text.match_indices(['.', '"']) {
        let before = text[..start].trim_end();
        if start < copied || !before.ends_with([':', '[', ',']) {
            continue;
        }
        let rest = &text[start..];
        let (value, len) = match rest.strip_prefix('"') {
            Some(inner) => match inner.split_once('"') {
                Some((inner, _)) => (inner, inner.len() + 2),
                None => continue,
            },
            None => {
                let len = rest.find([',', '}', ']', ' ', '\n', '"']).unwrap_or(rest.len());
                (&rest[..len], len)
            }
        };
        // The name of a field is not a value.
        if rest[len..].trim_start().starts_with(':') {
            continue;
        }
        if let Some(reference) = reference_to_value(value) {
            meant.push_str(&text[copied..start]);
            meant.push_str(&format!("{{{{ toJson {reference} }}}}"));
            copied = start + len;
            found = true;
        }
    }
    meant.push_str(&text[copied..]);
    found.then_some(meant)
}

/// Corrects a path, URL or form with a reference in the place of a part.
fn in_path(text: &str) -> Option<String> {
    const BETWEEN: [char; 4] = ['/', '?', '&', '='];
    if text.contains("{{") || text.contains(char::is_whitespace) || !text.contains(BETWEEN) {
        return None;
    }
    let mut found = false;
    let parts = text.split_inclusive(BETWEEN).map(|part| {
        let name = part.trim_end_matches(BETWEEN);
        match reference_to_value(name) {
            Some(reference) => {
                found = true;
                format!("{{{{ {reference} }}}}{}", &part[name.len()..])
            }
            None => part.to_owned(),
        }
    });
    let meant: String = parts.collect();
    found.then_some(meant)
}

/// Corrects references in single braces; `None` if there are none.
fn in_single_braces(text: &str) -> Option<String> {
    if text.contains("{{") {
        return None;
    }
    let mut meant = String::new();
    let mut rest = text;
    let mut found = false;
    while let Some((before, behind)) = rest.split_once('{') {
        match behind.split_once('}').and_then(|(inner, after)| Some((reference(inner.trim())?, after))) {
            Some((reference, after)) => {
                meant.push_str(before.strip_suffix(['$', '%', '#']).unwrap_or(before));
                meant.push_str(&format!("{{{{ {reference} }}}}"));
                found = true;
                rest = after;
            }
            None => {
                meant.push_str(before);
                meant.push('{');
                rest = behind;
            }
        }
    }
    meant.push_str(rest);
    found.then_some(meant)
}

/// Returns the text if it is a complete reference to a part of the record.
fn reference(text: &str) -> Option<&str> {
    let starts = [".Payload.", ".Metadata", ".Key"].iter().any(|start| text.starts_with(start));
    (starts && Reference::parse(text).is_ok()).then_some(text)
}

/// Returns the text if it is a reference to a field or a metadata entry.
pub(super) fn reference_to_value(text: &str) -> Option<&str> {
    let reference = reference(text)?;
    let target = Reference::parse(reference).ok()?;
    matches!(target.target(), Target::Field(..) | Target::Entry(_)).then_some(reference)
}

#[cfg(test)]
mod tests {
    use super::meant;

    #[test]
    fn notations_of_other_tools_become_templates() {
        for (text, becomes) in [
            (".Payload.After.name", "{{ .Payload.After.name }}"),
            ("$.Payload.After.name", "{{ .Payload.After.name }}"),
            ("%{name}", "{{ .Payload.After.name }}"),
            ("%{[name]}", "{{ .Payload.After.name }}"),
            ("%{[address][city]}", "{{ .Payload.After.address.city }}"),
            (".Payload.After.id + 1", "{{ add .Payload.After.id 1 }}"),
            (".Payload.After.price * 1.5", "{{ mulf .Payload.After.price 1.5 }}"),
            ("COALESCE(.Payload.After.x, 0)", "{{ default 0 .Payload.After.x }}"),
            ("NVL(.Payload.After.x, 'none')", "{{ default \"none\" .Payload.After.x }}"),
            ("UPPER(.Payload.After.x)", "{{ upper .Payload.After.x }}"),
            ("{ .Payload.After.name }", "{{ .Payload.After.name }}"),
            ("upper .Payload.After.name", "{{ upper .Payload.After.name }}"),
            ("toJson .Payload.After", "{{ toJson .Payload.After }}"),
            ("(sha256sum .Payload.After.card)", "{{ (sha256sum .Payload.After.card) }}"),
            (".Payload.After.name | upper", "{{ .Payload.After.name | upper }}"),
            ("default \"?\" (get .Payload.After \"x\")", "{{ default \"?\" (get .Payload.After \"x\") }}"),
            ("{\"order\": .Payload.After.order}", "{\"order\": {{ toJson .Payload.After.order }}}"),
            (
                "{\"a\":\".Payload.After.a\",\"b\":[1, .Key.id]}",
                "{\"a\":{{ toJson .Payload.After.a }},\"b\":[1, {{ toJson .Key.id }}]}",
            ),
            ("http://h/z/.Payload.After.order", "http://h/z/{{ .Payload.After.order }}"),
            ("http://h/z/{ .Payload.After.order }", "http://h/z/{{ .Payload.After.order }}"),
            ("http://h/z?a=.Metadata.a&b=1", "http://h/z?a={{ .Metadata.a }}&b=1"),
            ("a=.Payload.After.a", "a={{ .Payload.After.a }}"),
            ("Dear ${.Payload.After.name} and {.Key}!", "Dear {{ .Payload.After.name }} and {{ .Key }}!"),
        ] {
            assert_eq!(meant(text).as_deref(), Some(becomes), "{text}");
        }
        for text in [
            "",
            "name",
            "{name}",
            "{\"a\": 1}",
            "100 %",
            "%{}",
            "a { b",
            "$5.00",
            "{{ .Key }} { .Key }",
            "title of .Payload.After.name",
            "upper",
            "now or .Payload.After.x later",
            "see .Payload.After.name",
            "{\".Payload.After.a\": 1}",
            "{\"a\": \"about .Payload.After.a\"}",
            "http://h/a.Payload.After.x",
            "a/b.Key",
            "x/.Key",
            "http://h/#.Payload.After.x",
            "{\"a\": .5}",
            "[.Payload]",
            "upper | lower",
            "1 + 1",
            "about .Payload.After.x + more",
            ".Payload.After.x + more",
            "f(x)",
            "see (.Payload.After.x)",
            "%{[]}",
        ] {
            assert_eq!(meant(text), None, "{text}");
        }
    }
}
