//! Functions on text.

use super::FunctionEntry;

pub(super) static TEXT: &[FunctionEntry] = &[
    FunctionEntry::new(
        &["contains"],
        "part text",
        "Tests whether a text contains another.",
        r#"{{ contains "@" .Payload.After.customer.email }}"#,
    ),
    FunctionEntry::new(
        &["hasPrefix"],
        "prefix text",
        "Tests whether a text begins with another.",
        r#"{{ hasPrefix "Ada" .Payload.After.customer.name }}"#,
    ),
    FunctionEntry::new(
        &["hasSuffix"],
        "suffix text",
        "Tests whether a text ends with another.",
        r#"{{ hasSuffix ".com" .Payload.After.customer.email }}"#,
    ),
    FunctionEntry::new(
        &["replace"],
        "old new text",
        "Replaces every occurrence of a text.",
        r#"{{ replace " " "_" .Payload.After.customer.name }}"#,
    ),
    FunctionEntry::new(&["trim"], "text", "Removes spaces and line ends at both ends.", r#"{{ trim "  paid " }}"#),
    FunctionEntry::new(
        &["trimAll", "trimall"],
        "characters text",
        "Removes any of the given characters at both ends.",
        r#"{{ trimAll "$." "$12.50." }}"#,
    ),
    FunctionEntry::new(
        &["trimPrefix"],
        "prefix text",
        "Removes a prefix, if it is there.",
        r#"{{ trimPrefix "v" "v1.2" }}"#,
    ),
    FunctionEntry::new(
        &["trimSuffix"],
        "suffix text",
        "Removes a suffix, if it is there.",
        r#"{{ trimSuffix ".csv" "orders.csv" }}"#,
    ),
    FunctionEntry::new(&["nospace"], "text", "Removes all spaces and line ends.", r#"{{ nospace "a b  c" }}"#),
    FunctionEntry::new(
        &["substr"],
        "start end text",
        "Returns the bytes from `start` up to, but not including, `end`; a negative `end` means the end of the text.",
        r#"{{ substr 0 10 .Payload.After.paid_at }}"#,
    ),
    FunctionEntry::new(
        &["trunc"],
        "length text",
        "Returns the first bytes of a text, or its last bytes if the length is negative.",
        r#"{{ trunc 3 .Payload.After.customer.name }}"#,
    ),
    FunctionEntry::new(&["repeat"], "count text", "Repeats a text.", r#"{{ repeat 3 "ab" }}"#),
    FunctionEntry::new(
        &["plural"],
        "one many count",
        "Returns the first text if the count is 1, and the second text otherwise.",
        r#"{{ plural "item" "items" 3 }}"#,
    ),
];

pub(super) static CASE: &[FunctionEntry] = &[
    FunctionEntry::new(&["upper"], "text", "Converts a text to upper case.", r#"{{ upper .Payload.After.status }}"#),
    FunctionEntry::new(&["lower"], "text", "Converts a text to lower case.", r#"{{ lower "PAID" }}"#),
    FunctionEntry::new(
        &["title"],
        "text",
        "Converts the first letter of each word to upper case.",
        r#"{{ title "new order" }}"#,
    ),
    FunctionEntry::new(
        &["untitle"],
        "text",
        "Converts the first letter of each word to lower case.",
        r#"{{ untitle "New Order" }}"#,
    ),
    FunctionEntry::new(&["swapcase"], "text", "Swaps upper and lower case.", r#"{{ swapcase "New Order" }}"#),
    FunctionEntry::new(&["snakecase"], "text", "Converts a name to snake case.", r#"{{ snakecase "orderNumber" }}"#),
    FunctionEntry::new(&["kebabcase"], "text", "Converts a name to kebab case.", r#"{{ kebabcase "orderNumber" }}"#),
    FunctionEntry::new(&["camelcase"], "text", "Converts a name to camel case.", r#"{{ camelcase "order_number" }}"#),
];

pub(super) static SHAPE: &[FunctionEntry] = &[
    FunctionEntry::new(
        &["abbrev"],
        "width text",
        "Shortens a text to a width and ends it with `...`.",
        r#"{{ abbrev 7 .Payload.After.customer.name }}"#,
    ),
    FunctionEntry::new(
        &["abbrevboth"],
        "left right text",
        "Shortens a text on both sides: from byte `left`, to a width of `right`.",
        r#"{{ abbrevboth 5 10 "1234 5678 9123" }}"#,
    ),
    FunctionEntry::new(
        &["initials"],
        "text",
        "Returns the first letter of each word.",
        r#"{{ initials .Payload.After.customer.name }}"#,
    ),
    FunctionEntry::new(
        &["wrap"],
        "width text",
        "Breaks a text into lines of at most the width, between words.",
        r#"{{ wrap 5 "Ada Lovelace" | printf "%q" }}"#,
    ),
    FunctionEntry::new(
        &["wrapWith"],
        "width separator text",
        "Breaks a text as `wrap` does, with a separator instead of the line end, and also breaks long words.",
        r#"{{ wrapWith 5 "/" "Ada Lovelace" }}"#,
    ),
    FunctionEntry::new(
        &["indent"],
        "spaces text",
        "Indents each line of a text.",
        r#"{{ indent 2 "a\nb" | printf "%q" }}"#,
    ),
    FunctionEntry::new(
        &["nindent"],
        "spaces text",
        "Adds a line end before a text and indents each line.",
        r#"{{ nindent 2 "a\nb" | printf "%q" }}"#,
    ),
];

pub(super) static PIECES: &[FunctionEntry] = &[
    FunctionEntry::new(
        &["splitList"],
        "separator text",
        "Splits a text into a list.",
        r#"{{ index (splitList "@" .Payload.After.customer.email) 1 }}"#,
    ),
    FunctionEntry::new(
        &["split"],
        "separator text",
        "Splits a text into a map with the keys `_0`, `_1` and so on.",
        r#"{{ (split "@" .Payload.After.customer.email)._0 }}"#,
    ),
    FunctionEntry::new(
        &["splitn"],
        "separator count text",
        "Splits a text as `split` does, into at most as many pieces.",
        r#"{{ (splitn "-" 2 "a-b-c")._1 }}"#,
    ),
    FunctionEntry::new(
        &["join"],
        "separator list",
        "Joins the elements of a list with a separator.",
        r#"{{ join ", " .Payload.After.tags }}"#,
    ),
    FunctionEntry::new(
        &["sortAlpha"],
        "list",
        "Converts the elements of a list to texts and sorts them.",
        r#"{{ sortAlpha .Payload.After.tags }}"#,
    ),
    FunctionEntry::new(
        &["toStrings"],
        "list",
        "Converts the elements of a list to texts.",
        r#"{{ toStrings (list 1 2.5 true) | printf "%q" }}"#,
    ),
];
