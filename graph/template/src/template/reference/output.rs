//! Printing and escaping.

use super::FunctionEntry;

pub(super) static PRINTING: &[FunctionEntry] = &[
    FunctionEntry::new(
        &["printf"],
        "format value...",
        "Formats values as a format describes: `%s` text, `%d` whole number, `%.2f` fraction, `%v` any, `%q` in quotes, `%T` type.",
        r#"{{ printf "%s-%05d" .Key .Payload.After.id }}"#,
    ),
    FunctionEntry::new(
        &["print"],
        "value...",
        "Joins values, with a space between two values that are both not texts.",
        r#"{{ print "order " .Payload.After.id }}"#,
    ),
    FunctionEntry::new(
        &["println"],
        "value...",
        "Joins values with spaces and adds a line end.",
        r#"{{ println "a" 1 | printf "%q" }}"#,
    ),
    FunctionEntry::new(
        &["toString"],
        "value",
        "Converts a value to text; raw data does not change.",
        r#"{{ toString .Key }}"#,
    ),
    FunctionEntry::new(
        &["quote"],
        "value...",
        "Puts each value in double quotes, escapes quotes in it, and leaves out nulls.",
        r#"{{ quote .Payload.After.status 7 }}"#,
    ),
    FunctionEntry::new(
        &["squote"],
        "value...",
        "Puts each value in single quotes and leaves out nulls.",
        r#"{{ squote .Payload.After.status }}"#,
    ),
    FunctionEntry::new(
        &["cat"],
        "value...",
        "Joins values with spaces and leaves out nulls.",
        r#"{{ cat "order" .Payload.After.id .Payload.After.status }}"#,
    ),
];

pub(super) static ESCAPING: &[FunctionEntry] = &[
    FunctionEntry::new(&["html"], "value...", "Escapes text for HTML.", r#"{{ html "<b>1 & 2</b>" }}"#),
    FunctionEntry::new(&["js"], "value...", "Escapes text for a string in JavaScript.", r#"{{ js "it's" }}"#),
    FunctionEntry::new(
        &["urlquery"],
        "value...",
        "Escapes text for the query of a URL.",
        r#"{{ urlquery .Payload.After.customer.name }}"#,
    ),
];
