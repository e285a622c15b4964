//! Regular expressions.

use super::FunctionEntry;

pub(super) static ENTRIES: &[FunctionEntry] = &[
    FunctionEntry::new(
        &["regexMatch"],
        "pattern text",
        "Tests whether a pattern matches a part of a text; an invalid pattern never matches.",
        r#"{{ regexMatch "^[a-z]+@" .Payload.After.customer.email }}"#,
    ),
    FunctionEntry::new(
        &["mustRegexMatch"],
        "pattern text",
        "Tests as `regexMatch` does, and fails the record if the pattern is invalid.",
        r#"{{ mustRegexMatch "^[0-9]+$" .Payload.After.status }}"#,
    ),
    FunctionEntry::new(
        &["regexFind", "mustRegexFind"],
        "pattern text",
        "Returns the first match, or an empty text.",
        r#"{{ regexFind "[0-9]+" "order 12, item 3" }}"#,
    ),
    FunctionEntry::new(
        &["regexFindAll", "mustRegexFindAll"],
        "pattern text limit",
        "Returns a list of the first matches; a limit of -1 means all.",
        r#"{{ regexFindAll "[0-9]+" "order 12, item 3" -1 }}"#,
    ),
    FunctionEntry::new(
        &["regexReplaceAll", "mustRegexReplaceAll"],
        "pattern text replacement",
        "Replaces every match; `${1}` in the replacement is the first group.",
        r#"{{ regexReplaceAll "(\\w+)@(\\w+)" .Payload.After.customer.email "${1} at ${2}" }}"#,
    ),
    FunctionEntry::new(
        &["regexReplaceAllLiteral", "mustRegexReplaceAllLiteral"],
        "pattern text replacement",
        "Replaces every match with a text in which `$` has no meaning.",
        r#"{{ regexReplaceAllLiteral "[0-9]" "a1b2" "$" }}"#,
    ),
    FunctionEntry::new(
        &["regexSplit", "mustRegexSplit"],
        "pattern text limit",
        "Splits a text at each match into a list of at most `limit` pieces; -1 means all.",
        r#"{{ regexSplit "[,;] *" "a, b;c" -1 }}"#,
    ),
    FunctionEntry::new(
        &["regexQuoteMeta"],
        "text",
        "Escapes a text so that a pattern matches it literally.",
        r#"{{ regexQuoteMeta "1.5*x" }}"#,
    ),
];
