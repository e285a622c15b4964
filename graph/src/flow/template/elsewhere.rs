//! Texts that other tools fill in, in the place of a template.

use crate::reference::Reference;

/// What is meant by a text: a reference without braces, in single ones, or behind `$`, and `%{name}`.
pub(super) fn meant(text: &str) -> Option<String> {
    if let Some(reference) = reference(text.strip_prefix('$').unwrap_or(text)) {
        return Some(format!("{{{{ {reference} }}}}"));
    }
    if let Some(name) = text.strip_prefix("%{").and_then(|rest| rest.strip_suffix('}')) {
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
        return is_name.then(|| format!("{{{{ .Payload.After.{name} }}}}"));
    }
    in_single_braces(text)
}

/// The text with two braces around each reference, where one has only one.
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

/// A reference to a part of the record, written in full.
fn reference(text: &str) -> Option<&str> {
    let starts = [".Payload.", ".Metadata", ".Key"].iter().any(|start| text.starts_with(start));
    (starts && Reference::parse(text).is_ok()).then_some(text)
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
            ("{ .Payload.After.name }", "{{ .Payload.After.name }}"),
            ("Dear ${.Payload.After.name} and {.Key}!", "Dear {{ .Payload.After.name }} and {{ .Key }}!"),
        ] {
            assert_eq!(meant(text).as_deref(), Some(becomes), "{text}");
        }
        for text in ["", "name", "{name}", "{\"a\": 1}", "100 %", "%{}", "a { b", "$5.00", "{{ .Key }} { .Key }"] {
            assert_eq!(meant(text), None, "{text}");
        }
    }
}
