//! Names of topics, and the resources that they are.

use anabranch_record::text::Str;

/// The kind of resources that topics are.
pub(crate) const TOPICS: &str = "topics";
/// Maximum length of a name.
const LONGEST: usize = 249;

/// Returns the problem with the name of a topic, as a phrase. Source: `org.apache.kafka.common.internals.Topic`.
pub(crate) fn not_a_topic(name: &str) -> Option<&'static str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match name {
        "" => Some("is empty"),
        "." | ".." => Some("must not be . or .."),
        _ if name.len() > LONGEST => Some("has more than 249 characters"),
        _ if !name.bytes().all(allowed) => Some("may contain only letters, digits, dots, underscores and hyphens"),
        _ => None,
    }
}

/// Returns the name of a topic as a resource, in the namespace of its servers.
pub(crate) fn resource(space: &str, topic: &str) -> Str {
    format!("{space}/{topic}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_topics_follow_the_rules_of_the_brokers() {
        for name in ["a", "orders.v1", "A_b-c", &"x".repeat(249)] {
            assert_eq!(not_a_topic(name), None, "{name}");
        }
        for name in ["", ".", "..", "a b", "ä", "a/b", &"x".repeat(250)] {
            assert!(not_a_topic(name).is_some(), "{name}");
        }
    }
}
