//! Comparison, logic, defaults.

use super::FunctionEntry;

pub(super) static COMPARISON: &[FunctionEntry] = &[
    FunctionEntry::new(
        &["eq"],
        "value other...",
        "Tests whether a value equals at least one of the others.",
        r#"{{ eq .Payload.After.status "paid" "sent" }}"#,
    ),
    FunctionEntry::new(
        &["ne"],
        "value other",
        "Tests whether two values are different.",
        r#"{{ ne .Payload.Before.status .Payload.After.status }}"#,
    ),
    FunctionEntry::new(
        &["lt"],
        "value other",
        "Tests whether the first value is less.",
        r#"{{ lt .Payload.After.quantity 3 }}"#,
    ),
    FunctionEntry::new(
        &["le"],
        "value other",
        "Tests whether the first value is less than or equal to the second.",
        r#"{{ le .Payload.After.quantity 3 }}"#,
    ),
    FunctionEntry::new(
        &["gt"],
        "value other",
        "Tests whether the first value is greater.",
        r#"{{ gt .Payload.After.amount 10.0 }}"#,
    ),
    FunctionEntry::new(
        &["ge"],
        "value other",
        "Tests whether the first value is greater than or equal to the second.",
        r#"{{ ge .Payload.After.amount 12.5 }}"#,
    ),
    FunctionEntry::new(
        &["and"],
        "value other...",
        "Returns the first value that counts as false, or else the last value.",
        r#"{{ and (eq .Metadata.region "eu") (gt .Payload.After.quantity 1) }}"#,
    ),
    FunctionEntry::new(
        &["or"],
        "value other...",
        "Returns the first value that counts as true, or else the last value.",
        r#"{{ or (eq .Metadata.region "us") (gt .Payload.After.quantity 1) }}"#,
    ),
    FunctionEntry::new(
        &["not"],
        "value",
        "Returns `true` for a value that counts as false, and `false` for any other.",
        r#"{{ not (eq .Metadata.region "us") }}"#,
    ),
    FunctionEntry::new(
        &["all"],
        "value...",
        "Tests whether all values count as true.",
        r#"{{ all .Key .Payload.After.status }}"#,
    ),
    FunctionEntry::new(
        &["any"],
        "value...",
        "Tests whether at least one value counts as true.",
        r#"{{ any .Payload.After.note .Payload.After.status }}"#,
    ),
    FunctionEntry::new(
        &["deepEqual"],
        "value other",
        "Tests whether two values have the same type and content, lists and maps included.",
        r#"{{ deepEqual (list 1 2) (list 1 2) }}"#,
    ),
];

pub(super) static DEFAULTS: &[FunctionEntry] = &[
    FunctionEntry::new(
        &["default"],
        "default [value]",
        "Returns the value, or the default if the value is empty.",
        r#"{{ default "none" .Payload.After.note }}"#,
    ),
    FunctionEntry::new(
        &["empty"],
        "value",
        "Tests whether a value is empty: nothing, `false`, 0, or a text, list or map without content.",
        r#"{{ empty .Payload.After.note }}"#,
    ),
    FunctionEntry::new(
        &["coalesce"],
        "value...",
        "Returns the first value that is not empty.",
        r#"{{ coalesce .Payload.After.note .Payload.After.status "none" }}"#,
    ),
    FunctionEntry::new(
        &["ternary"],
        "yes no condition",
        "Returns the first value if the condition is `true`, and the second value if it is `false`.",
        r#"{{ ternary "many" "few" (gt .Payload.After.quantity 10) }}"#,
    ),
    FunctionEntry::new(
        &["fail"],
        "message",
        "Fails the record with a message.",
        r#"{{ if not .Payload.After.note }}{{ fail "the note is empty" }}{{ end }}"#,
    ),
];
