//! Lists.

use super::Entry;

pub(super) static ENTRIES: &[Entry] = &[
    Entry::new(&["list", "tuple"], "value...", "Makes a list.", r#"{{ list 1 "a" true }}"#),
    Entry::new(
        &["len"],
        "value",
        "Returns the number of elements of a list, of entries of a map, or of bytes of a text.",
        r#"{{ len .Payload.After.tags }}"#,
    ),
    Entry::new(
        &["index"],
        "value key...",
        "Returns an entry of a map or an element of a list, counted from 0; further keys go deeper.",
        r#"{{ index .Payload.After.tags 1 }}"#,
    ),
    Entry::new(&["first", "mustFirst"], "list", "Returns the first element.", r#"{{ first .Payload.After.tags }}"#),
    Entry::new(&["last", "mustLast"], "list", "Returns the last element.", r#"{{ last (list 1 2 3) }}"#),
    Entry::new(&["rest", "mustRest"], "list", "Returns all elements but the first.", r#"{{ rest (list 1 2 3) }}"#),
    Entry::new(
        &["initial", "mustInitial"],
        "list",
        "Returns all elements but the last.",
        r#"{{ initial (list 1 2 3) }}"#,
    ),
    Entry::new(
        &["slice", "mustSlice"],
        "list bound...",
        "Returns the elements from the first bound up to, but not including, the second.",
        r#"{{ slice (list 1 2 3 4) 1 3 }}"#,
    ),
    Entry::new(
        &["append", "mustAppend", "push", "mustPush"],
        "list value",
        "Returns a list with a value added at the end.",
        r#"{{ append .Payload.After.tags "big" }}"#,
    ),
    Entry::new(
        &["prepend", "mustPrepend"],
        "list value",
        "Returns a list with a value added at the beginning.",
        r#"{{ prepend .Payload.After.tags "big" }}"#,
    ),
    Entry::new(&["concat"], "list...", "Joins lists into one.", r#"{{ concat (list 1 2) (list 3) }}"#),
    Entry::new(
        &["has", "mustHas"],
        "value list",
        "Tests whether a list has an element.",
        r#"{{ has "gift" .Payload.After.tags }}"#,
    ),
    Entry::new(
        &["without", "mustWithout"],
        "list value...",
        "Removes the given values from a list.",
        r#"{{ without .Payload.After.tags "new" }}"#,
    ),
    Entry::new(
        &["uniq", "mustUniq"],
        "list",
        "Removes elements that occur earlier in the list.",
        r#"{{ uniq .Payload.After.tags }}"#,
    ),
    Entry::new(&["compact", "mustCompact"], "list", "Removes empty elements.", r#"{{ compact (list 1 0 "" "a") }}"#),
    Entry::new(&["reverse", "mustReverse"], "list", "Reverses a list.", r#"{{ reverse (list 1 2 3) }}"#),
    Entry::new(
        &["chunk", "mustChunk"],
        "size list",
        "Splits a list into lists of at most `size` elements.",
        r#"{{ chunk 2 (list 1 2 3) }}"#,
    ),
];
