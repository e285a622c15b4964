//! Names of functions, operators and parts of records in other languages.

/// Words and signs between two values that look for one in the other, and the function that does so here.
pub(super) const SEARCHES: &[(&str, &str)] = &[
    ("contains", "contains"),
    ("includes", "contains"),
    ("startsWith", "hasPrefix"),
    ("endsWith", "hasSuffix"),
    ("matches", "regexMatch"),
    ("=~", "regexMatch"),
    ("in", "has"),
];

/// Names that a record has where scripts and other templates are given one.
const RECORDS: [&str; 11] =
    ["rec", "record", "Record", "r", "msg", "message", "event", "this", "self", "it", "$record"];

const ROOTS: [&str; 5] = ["Payload", "Metadata", "Key", "Operation", "Position"];

/// How the arguments of a function stand here, from the order that they have elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Same,
    Reversed,
    /// The first becomes the last.
    Rotated,
    /// It compares its one argument with `nil`.
    Nil,
}

impl Shape {
    /// The call; `None` where the function does not take so many arguments.
    pub(super) fn call(self, function: &str, mut arguments: Vec<String>) -> Option<String> {
        match self {
            Shape::Same => {}
            Shape::Reversed => arguments.reverse(),
            Shape::Rotated if arguments.len() > 1 => arguments.rotate_left(1),
            Shape::Rotated => {}
            Shape::Nil => {
                (arguments.len() == 1).then_some(())?;
                arguments.push("nil".to_owned());
            }
        }
        Some(std::iter::once(function.to_owned()).chain(arguments).collect::<Vec<_>>().join(" "))
    }
}

/// The function that has this name in other languages.
pub(super) fn elsewhere(name: &str) -> Option<(&'static str, Shape)> {
    use Shape::{Nil, Reversed, Rotated, Same};
    const NAMES: &[(&str, Shape, &[&str])] = &[
        ("ge", Same, &["gte", "geq", "greaterOrEqual"]),
        ("le", Same, &["lte", "leq", "lessOrEqual"]),
        ("ne", Same, &["neq", "notEqual", "notEquals"]),
        ("eq", Same, &["equal", "equals"]),
        ("gt", Same, &["greater", "greaterThan"]),
        ("lt", Same, &["less", "lessThan"]),
        ("not", Same, &["NOT"]),
        ("len", Same, &["length", "size", "count", "strlen"]),
        ("hasPrefix", Reversed, &["startsWith", "startswith", "starts_with"]),
        ("hasSuffix", Reversed, &["endsWith", "endswith", "ends_with"]),
        ("contains", Reversed, &["includes"]),
        ("regexMatch", Reversed, &["matches", "match", "regex", "regexp", "rlike"]),
        ("lower", Same, &["toLower", "toLowerCase", "lowercase", "tolower", "lcase"]),
        ("upper", Same, &["toUpper", "toUpperCase", "uppercase", "toupper", "ucase"]),
        ("trim", Same, &["strip", "trimSpace"]),
        ("empty", Same, &["isEmpty", "isempty", "is_empty"]),
        ("ne", Nil, &["isset", "exists", "defined", "isDefined", "notNull", "isNotNull", "notNil", "present"]),
        ("eq", Nil, &["isnull", "isNull", "is_null", "isNil", "isNone"]),
        ("default", Reversed, &["ifnull", "ifNull", "nvl", "orElse"]),
        ("ternary", Rotated, &["iif", "iff"]),
        ("int", Same, &["toInt", "parseInt"]),
        ("float64", Same, &["toFloat", "parseFloat", "float"]),
        ("toString", Same, &["str", "string", "String", "toText"]),
        ("toJson", Same, &["json", "toJSON", "tojson", "to_json", "stringify", "jsonEncode"]),
        ("fromJson", Same, &["parseJson", "parseJSON", "fromJSON", "from_json", "jsonDecode"]),
        ("printf", Same, &["format", "sprintf"]),
        ("substr", Rotated, &["substring"]),
        ("replace", Rotated, &["replaceAll", "gsub"]),
        ("sha1sum", Same, &["sha1", "SHA1"]),
        ("sha256sum", Same, &["sha256", "SHA256"]),
        ("sha512sum", Same, &["sha512", "SHA512"]),
        ("b64enc", Same, &["base64", "base64Encode", "base64encode", "b64encode", "toBase64"]),
        ("b64dec", Same, &["base64Decode", "base64decode", "b64decode", "fromBase64"]),
        ("urlquery", Same, &["urlEncode", "urlencode", "encodeURIComponent"]),
    ];
    let (function, shape, _) = NAMES.iter().find(|(_, _, others)| others.contains(&name))?;
    Some((function, *shape))
}

/// What is said of a name that stands for one of several functions here, or for none.
pub(super) fn unsure(name: &str) -> Option<&'static str> {
    Some(match name {
        "in" => "`contains \"a\" .text` looks into a text, `has \"a\" .list` into a list",
        "md5" | "md5sum" => "checksums are sha256sum, sha1sum, sha512sum and adler32sum",
        "uuid" | "uuid4" | "newUuid" => "write uuidv4",
        "timestamp" | "currentTime" | "today" => "write now, or `date \"2006-01-02\" now` for the day",
        _ => return None,
    })
}

/// The path of a name that begins with a part of a record, as `rec.Payload.After.id`, `payload.after.id`.
pub(super) fn own_path(name: &str) -> Option<String> {
    let mut parts: Vec<&str> = name.trim_start_matches('.').split('.').collect();
    let root = |part: &str| ROOTS.into_iter().find(|root| root.eq_ignore_ascii_case(part));
    if RECORDS.contains(&parts[0]) && parts.get(1).is_some_and(|part| root(part).is_some()) {
        parts.remove(0);
    }
    let mut own = vec![root(parts[0])?];
    let rest = match (own[0], parts.get(1)) {
        ("Payload", Some(side)) => {
            own.push(["Before", "After"].into_iter().find(|name| name.eq_ignore_ascii_case(side)).unwrap_or(side));
            &parts[2..]
        }
        _ => &parts[1..],
    };
    own.extend(rest);
    Some(format!(".{}", own.join(".")))
}
