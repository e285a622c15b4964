//! Printing and escaping.

use super::Entry;

pub(super) static PRINTING: &[Entry] = &[
    Entry::new(
        &["printf"],
        "format value...",
        "Formats values as a format describes: `%s` text, `%d` whole number, `%.2f` fraction, `%v` any, `%q` in quotes, `%T` type.",
        r#"{{ printf "%s-%05d" .Key .Payload.After.id }}"#,
    ),
    Entry::new(
        &["print"],
        "value...",
        "Joins values, with a space between two values that are both not texts.",
        r#"{{ print "order " .Payload.After.id }}"#,
    ),
    Entry::new(
        &["println"],
        "value...",
        "Joins values with spaces and adds a line end.",
        r#"{{ println "a" 1 | printf "%q" }}"#,
    ),
    Entry::new(&["toString"], "value", "Converts a value to text; raw data does not change.", r#"{{ toString .Key }}"#),
    Entry::new(
        &["quote"],
        "value...",
        "Puts each value in double quotes, escapes quotes in it, and leaves out nulls.",
        r#"{{ quote .Payload.After.status 7 }}"#,
    ),
    Entry::new(
        &["squote"],
        "value...",
        "Puts each value in single quotes and leaves out nulls.",
        r#"{{ squote .Payload.After.status }}"#,
    ),
    Entry::new(
        &["cat"],
        "value...",
        "Joins values with spaces and leaves out nulls.",
        r#"{{ cat "order" .Payload.After.id .Payload.After.status }}"#,
    ),
];

pub(super) static ESCAPING: &[Entry] = &[
    Entry::new(&["html"], "value...", "Escapes text for HTML.", r#"{{ html "<b>1 & 2</b>" }}"#),
    Entry::new(&["js"], "value...", "Escapes text for a string in JavaScript.", r#"{{ js "it's" }}"#),
    Entry::new(
        &["urlquery"],
        "value...",
        "Escapes text for the query of a URL.",
        r#"{{ urlquery .Payload.After.customer.name }}"#,
    ),
];
