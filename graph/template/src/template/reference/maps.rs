//! Maps.

use super::FunctionEntry;

pub(super) static ENTRIES: &[FunctionEntry] = &[
    FunctionEntry::new(
        &["dict"],
        "pairs...",
        "Creates a map; the arguments are keys and values in turn.",
        r#"{{ dict "id" 7 "region" .Metadata.region | toJson }}"#,
    ),
    FunctionEntry::new(
        &["get"],
        "map key",
        "Returns an entry of a map, or an empty text if it is missing.",
        r#"{{ get .Payload.After "status" }}"#,
    ),
    FunctionEntry::new(
        &["hasKey"],
        "map key",
        "Tests whether a map has an entry, even a null.",
        r#"{{ hasKey .Payload.After "coupon" }}"#,
    ),
    FunctionEntry::new(
        &["dig"],
        "path...",
        "Follows keys through nested maps; the last two arguments are the default, for a key that is missing, and the map.",
        r#"{{ dig "customer" "phone" "none" .Payload.After }}"#,
    ),
    FunctionEntry::new(
        &["keys"],
        "map...",
        "Returns the keys of maps as a list.",
        r#"{{ keys .Payload.After.customer | sortAlpha }}"#,
    ),
    FunctionEntry::new(
        &["values"],
        "map",
        "Returns the values of a map as a list.",
        r#"{{ values .Payload.After.customer }}"#,
    ),
    FunctionEntry::new(
        &["pick"],
        "map key...",
        "Returns a map with the given entries only.",
        r#"{{ pick .Payload.After "id" "status" | toJson }}"#,
    ),
    FunctionEntry::new(
        &["omit"],
        "map key...",
        "Returns a map without the given entries.",
        r#"{{ omit .Payload.After.customer "email" | toJson }}"#,
    ),
    FunctionEntry::new(
        &["pluck"],
        "key map...",
        "Returns a list of the entries with this key, one for each map that has it.",
        r#"{{ pluck "status" .Payload.Before .Payload.After }}"#,
    ),
    FunctionEntry::new(
        &["set"],
        "map key value",
        "Sets an entry and returns the map; a map of the record is copied first.",
        r#"{{ set (dict "id" 7) "status" "paid" | toJson }}"#,
    ),
    FunctionEntry::new(
        &["unset"],
        "map key",
        "Removes an entry and returns the map; a map of the record is copied first.",
        r#"{{ unset .Payload.After.customer "email" | toJson }}"#,
    ),
    FunctionEntry::new(
        &["merge", "mustMerge"],
        "map other...",
        "Adds entries that are missing or empty in the first map.",
        r#"{{ merge (dict "a" 1) (dict "a" 2 "b" 3) | toJson }}"#,
    ),
    FunctionEntry::new(
        &["mergeOverwrite", "mustMergeOverwrite"],
        "map other...",
        "Adds entries to the first map and replaces those that it has.",
        r#"{{ mergeOverwrite (dict "a" 1) (dict "a" 2 "b" 3) | toJson }}"#,
    ),
    FunctionEntry::new(
        &["deepCopy", "mustDeepCopy"],
        "value",
        "Copies a value with all lists and maps in it.",
        r#"{{ deepCopy .Payload.After.customer | toJson }}"#,
    ),
];
