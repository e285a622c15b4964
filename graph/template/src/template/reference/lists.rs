//! Lists.

use super::FunctionEntry;

pub(super) static ENTRIES: &[FunctionEntry] = &[
    FunctionEntry::new(&["list", "tuple"], "value...", "Makes a list.", r#"{{ list 1 "a" true }}"#),
    FunctionEntry::new(
        &["len"],
        "value",
        "Returns the number of elements of a list, of entries of a map, or of bytes of a text.",
        r#"{{ len .Payload.After.tags }}"#,
    ),
    FunctionEntry::new(
        &["index"],
        "value key...",
        "Returns an entry of a map or an element of a list, counted from 0; further keys go deeper.",
        r#"{{ index .Payload.After.tags 1 }}"#,
    ),
    FunctionEntry::new(
        &["first", "mustFirst"],
        "list",
        "Returns the first element.",
        r#"{{ first .Payload.After.tags }}"#,
    ),
    FunctionEntry::new(&["last", "mustLast"], "list", "Returns the last element.", r#"{{ last (list 1 2 3) }}"#),
    FunctionEntry::new(
        &["rest", "mustRest"],
        "list",
        "Returns all elements but the first.",
        r#"{{ rest (list 1 2 3) }}"#,
    ),
    FunctionEntry::new(
        &["initial", "mustInitial"],
        "list",
        "Returns all elements but the last.",
        r#"{{ initial (list 1 2 3) }}"#,
    ),
    FunctionEntry::new(
        &["slice", "mustSlice"],
        "list bound...",
        "Returns the elements from the first bound up to, but not including, the second.",
        r#"{{ slice (list 1 2 3 4) 1 3 }}"#,
    ),
    FunctionEntry::new(
        &["append", "mustAppend", "push", "mustPush"],
        "list value",
        "Returns a list with a value added at the end.",
        r#"{{ append .Payload.After.tags "big" }}"#,
    ),
    FunctionEntry::new(
        &["prepend", "mustPrepend"],
        "list value",
        "Returns a list with a value added at the beginning.",
        r#"{{ prepend .Payload.After.tags "big" }}"#,
    ),
    FunctionEntry::new(&["concat"], "list...", "Joins lists into one.", r#"{{ concat (list 1 2) (list 3) }}"#),
    FunctionEntry::new(
        &["has", "mustHas"],
        "value list",
        "Tests whether a list has an element.",
        r#"{{ has "gift" .Payload.After.tags }}"#,
    ),
    FunctionEntry::new(
        &["without", "mustWithout"],
        "list value...",
        "Removes the given values from a list.",
        r#"{{ without .Payload.After.tags "new" }}"#,
    ),
    FunctionEntry::new(
        &["uniq", "mustUniq"],
        "list",
        "Removes elements that occur earlier in the list.",
        r#"{{ uniq .Payload.After.tags }}"#,
    ),
    FunctionEntry::new(
        &["compact", "mustCompact"],
        "list",
        "Removes empty elements.",
        r#"{{ compact (list 1 0 "" "a") }}"#,
    ),
    FunctionEntry::new(&["reverse", "mustReverse"], "list", "Reverses a list.", r#"{{ reverse (list 1 2 3) }}"#),
    FunctionEntry::new(
        &["chunk", "mustChunk"],
        "size list",
        "Splits a list into lists of at most `size` elements.",
        r#"{{ chunk 2 (list 1 2 3) }}"#,
    ),
];
