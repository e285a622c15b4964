//! URLs, paths, versions, types, random values.

use super::FunctionEntry;

pub(super) static PLACES: &[FunctionEntry] = &[
    FunctionEntry::new(
        &["urlParse"],
        "url",
        "Splits a URL into a map: `scheme`, `host`, `hostname`, `path`, `query`, `fragment`, `userinfo`, `opaque`.",
        r#"{{ (urlParse "https://host:8080/orders?id=7").host }}"#,
    ),
    FunctionEntry::new(
        &["urlJoin"],
        "parts",
        "Builds a URL from a map as `urlParse` returns it.",
        r#"{{ urlJoin (dict "scheme" "https" "host" "host" "path" "/orders" "query" "id=7") }}"#,
    ),
    FunctionEntry::new(
        &["base", "osBase"],
        "path",
        "Returns the last part of a path.",
        r#"{{ base "in/2026/orders.csv" }}"#,
    ),
    FunctionEntry::new(
        &["dir", "osDir"],
        "path",
        "Returns a path without its last part.",
        r#"{{ dir "in/2026/orders.csv" }}"#,
    ),
    FunctionEntry::new(
        &["ext", "osExt"],
        "path",
        "Returns the extension of a file name, with its dot.",
        r#"{{ ext "in/2026/orders.csv" }}"#,
    ),
    FunctionEntry::new(
        &["clean", "osClean"],
        "path",
        "Removes `.`, `..` and double slashes from a path where possible.",
        r#"{{ clean "in/./2026//../orders.csv" }}"#,
    ),
    FunctionEntry::new(
        &["isAbs", "osIsAbs"],
        "path",
        "Tests whether a path begins with a slash.",
        r#"{{ isAbs "in/orders.csv" }}"#,
    ),
];

pub(super) static VERSIONS: &[FunctionEntry] = &[
    FunctionEntry::new(
        &["semver"],
        "text",
        "Reads a semantic version, and fails the record if the text is not one.",
        r#"{{ (semver "1.4.2-beta").Minor }}"#,
    ),
    FunctionEntry::new(
        &["semverCompare"],
        "range version",
        "Tests whether a semantic version is in a range.",
        r#"{{ semverCompare ">=1.2.0, <2.0.0" "1.4.2" }}"#,
    ),
];

pub(super) static TYPES: &[FunctionEntry] = &[
    FunctionEntry::new(
        &["kindOf"],
        "value",
        "Returns the kind of a value: `string`, `int`, `int64`, `uint64`, `float64`, `bool`, `map`, `slice`, `invalid` and others.",
        r#"{{ kindOf .Payload.After.amount }}"#,
    ),
    FunctionEntry::new(
        &["kindIs"],
        "kind value",
        "Tests whether a value is of a kind.",
        r#"{{ kindIs "map" .Payload.After.customer }}"#,
    ),
    FunctionEntry::new(&["typeOf"], "value", "Returns the Go type of a value.", r#"{{ typeOf .Payload.After.tags }}"#),
    FunctionEntry::new(
        &["typeIs"],
        "type value",
        "Tests whether a value is of a Go type.",
        r#"{{ typeIs "string" .Payload.After.status }}"#,
    ),
    FunctionEntry::new(
        &["typeIsLike"],
        "type value",
        "Tests whether a value is of a Go type or a pointer to it.",
        r#"{{ typeIsLike "semver.Version" (semver "1.4.2") }}"#,
    ),
];

pub(super) static RANDOM: &[FunctionEntry] = &[
    FunctionEntry::new(&["uuidv4"], "", "Returns a random UUID.", r#"{{ uuidv4 }}"#)
        .giving("f2a1c7de-58b3-4a0c-9c1e-7d6f0b3e5a24"),
    FunctionEntry::new(
        &["randInt"],
        "least below",
        "Returns a random whole number from `least` up to, but not including, `below`.",
        r#"{{ randInt 0 100 }}"#,
    )
    .giving("42"),
    FunctionEntry::new(&["randAlpha"], "count", "Returns random letters.", r#"{{ randAlpha 8 }}"#).giving("kQzWbTfe"),
    FunctionEntry::new(&["randAlphaNum"], "count", "Returns random letters and digits.", r#"{{ randAlphaNum 8 }}"#)
        .giving("k7zW0Tf3"),
    FunctionEntry::new(&["randNumeric"], "count", "Returns random digits.", r#"{{ randNumeric 8 }}"#)
        .giving("30581746"),
    FunctionEntry::new(&["randAscii"], "count", "Returns random printable ASCII characters.", r#"{{ randAscii 8 }}"#)
        .giving("k7(W0~f3"),
    FunctionEntry::new(&["randBytes"], "count", "Returns random bytes in base64.", r#"{{ randBytes 8 }}"#)
        .giving("9fQ2b1xYc0E="),
    FunctionEntry::new(&["shuffle"], "text", "Shuffles the characters of a text.", r#"{{ shuffle "abcd" }}"#)
        .giving("cadb"),
];

pub(super) static REST: &[FunctionEntry] = &[
    FunctionEntry::new(&["hello"], "", "Returns a greeting.", r#"{{ hello }}"#),
    FunctionEntry::new(
        &["call"],
        "function argument...",
        "Fails the record: Go calls a value that is a function, and no value of a record is one.",
        r#"{{ call .Payload.After.status }}"#,
    ),
];
