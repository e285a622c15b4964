//! Transformations of topics, headers and of the stream: RegexRouter, InsertHeader, DropHeaders, Filter.

use anabranch_plugin::secret::names_a_credential;

use super::{Transform, list};
use crate::connect::draft::Draft;
use crate::connect::kafka::is_rust_pattern;
use crate::connect::shape::{Shape, TOPIC_REFERENCE};
use crate::document::Part;
use crate::expression::{action, constant, quoted, reference};

pub(super) fn regex_router(transform: &mut Transform, draft: &mut Draft<'_>, shape: &mut Shape) {
    let pattern = transform.take("regex").unwrap_or_default();
    let replacement = transform.take("replacement").unwrap_or_default();
    let Some(replacement) = groups(&replacement) else {
        transform.blocked(draft, "replacement", "it names groups in a way of Java that is not supported");
        return;
    };
    if !is_rust_pattern(&pattern) {
        transform.blocked(draft, "regex", "the pattern uses syntax of Java that is not supported: rewrite it");
        return;
    }
    let topic = shape.topic(draft);
    // Kafka Connect replaces only topics that match as a whole.
    let call = format!("mustRegexReplaceAll {} {topic} {}", quoted(&format!("^(?:{pattern})$")), quoted(&replacement));
    let part = transform.part("field.set").with("field", TOPIC_REFERENCE).with("value", action(&call));
    transform.add(draft, part);
    transform.carried(draft, "regex");
    transform.carried(draft, "replacement");
}

/// Returns a replacement of Java, such as `$1-x`, with its groups as `${1}`; `None` if it cannot be expressed.
fn groups(java: &str) -> Option<String> {
    let mut text = String::new();
    let mut characters = java.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\\' => match characters.next()? {
                '$' => text.push_str("$$"),
                other => text.push(other),
            },
            '$' => match characters.next()? {
                digit @ '0'..='9' => {
                    // A second digit belongs to the group only if there are so many groups, which the pattern decides.
                    if characters.peek().is_some_and(char::is_ascii_digit) {
                        return None;
                    }
                    text.push_str(&format!("${{{digit}}}"));
                }
                '{' => {
                    let name: String = characters.by_ref().take_while(|c| *c != '}').collect();
                    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                        return None;
                    }
                    text.push_str(&format!("${{{name}}}"));
                }
                _ => return None,
            },
            c => text.push(c),
        }
    }
    Some(text)
}

pub(super) fn filter(transform: &Transform, draft: &mut Draft<'_>) {
    transform.add(draft, transform.part("filter"));
}

fn header(name: &str) -> String {
    reference(".Metadata", &[&format!("kafka.header.{name}")])
}

pub(super) fn insert_header(transform: &mut Transform, draft: &mut Draft<'_>) {
    let name = transform.take("header").unwrap_or_default();
    let raw = transform.take("value.literal").unwrap_or_default();
    let setting = transform.setting("value.literal");
    let value = match names_a_credential(&name) && !raw.is_empty() {
        true => draft.secret(&setting, &raw, "the value of the header"),
        false => draft.text(&setting, &raw),
    };
    let mut part: Part = transform.part("field.set").with("field", header(&name));
    part.set("value", if value.is_variable() { value } else { constant(&raw).into() });
    transform.add(draft, part);
    transform.carried(draft, "header");
    transform.changed(draft, "value.literal", "the header replaces one of the same name, and is a text");
}

pub(super) fn drop_headers(transform: &mut Transform, draft: &mut Draft<'_>) {
    let names = list(&transform.take("headers").unwrap_or_default());
    let fields: Vec<String> = names.iter().filter(|name| !name.contains(':')).map(|name| header(name)).collect();
    if !fields.is_empty() {
        transform.add(draft, transform.part("field.exclude").with("fields", fields.join(",")));
    }
    transform.carried(draft, "headers");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_java_are_those_of_templates() {
        let written = |java| groups(java);
        assert_eq!(written("a-$1").as_deref(), Some("a-${1}"));
        assert_eq!(written("$1_x${name}").as_deref(), Some("${1}_x${name}"));
        assert_eq!(written("\\$5").as_deref(), Some("$$5"));
        for odd in ["$", "$x", "$12", "${", "${a-b}", "\\"] {
            assert_eq!(written(odd), None, "{odd}");
        }
    }
}
