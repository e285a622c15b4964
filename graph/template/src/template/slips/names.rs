//! Names of functions, operators and parts of records in other languages.

use crate::template::functions;

/// Infix search operators of other languages, with the corresponding template function.
pub(super) const SEARCHES: &[(&str, &str)] = &[
    ("contains", "contains"),
    ("includes", "contains"),
    ("startsWith", "hasPrefix"),
    ("endsWith", "hasSuffix"),
    ("matches", "regexMatch"),
    ("=~", "regexMatch"),
    ("in", "has"),
];

/// Names of the record in scripts and other template languages.
const RECORDS: [&str; 11] =
    ["rec", "record", "Record", "r", "msg", "message", "event", "this", "self", "it", "$record"];

const ROOTS: [&str; 5] = ["Payload", "Metadata", "Key", "Operation", "Position"];

/// Order of the arguments of a function, relative to the order in other languages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentOrder {
    Same,
    Reversed,
    /// The first argument becomes the last.
    Rotated,
    /// Compares its only argument with `nil`.
    Nil,
}

impl ArgumentOrder {
    /// Returns the call with its arguments in order; `None` if the function does not take so many.
    pub(super) fn call(self, function: &str, mut arguments: Vec<String>) -> Option<String> {
        if self == ArgumentOrder::Nil {
            (arguments.len() == 1).then_some(())?;
            arguments.push("nil".to_owned());
        }
        Some(std::iter::once(function.to_owned()).chain(arguments).collect::<Vec<_>>().join(" "))
    }
}

/// Functions whose subject is the last argument, but the first one in other languages.
const SUBJECT_LAST: [&str; 22] = [
    "contains",
    "hasPrefix",
    "hasSuffix",
    "trimPrefix",
    "trimSuffix",
    "trimAll",
    "regexMatch",
    "regexFind",
    "replace",
    "split",
    "splitList",
    "join",
    "default",
    "has",
    "repeat",
    "trunc",
    "substr",
    "date",
    "toDate",
    "ternary",
    "indent",
    "abbrev",
];

/// Returns the number of fixed arguments of a function, including its subject.
pub(super) fn arity(function: &str) -> usize {
    match function {
        // The subject is optional.
        "default" => 2,
        _ => functions::find(function).map_or(0, |function| function.params.len()),
    }
}

/// Remark on a calculation for which the right function depends on the numbers.
pub(super) const CALCULATES: &str = "which works with whole numbers; use addf, subf, mulf and divf for other numbers";

/// Reorders the arguments of a call that follows the order of other languages. Returns a remark if the intended order
/// is ambiguous.
pub(super) fn ordered(function: &str, shape: ArgumentOrder, arguments: &mut [String], wanted: usize) -> Option<String> {
    const FIRST: &str = "which needs its data as the last argument";
    let is_literal = |text: &String| {
        text.starts_with(['"', '`']) || text.parse::<f64>().is_ok() || matches!(text.as_str(), "true" | "false" | "nil")
    };
    let elsewhere = matches!(shape, ArgumentOrder::Reversed | ArgumentOrder::Rotated);
    // If there are fewer, the last one comes from a pipe.
    if arguments.len() != wanted || wanted < 2 || !(elsewhere || SUBJECT_LAST.contains(&function)) {
        // The order is unknown if the subject is in the middle, or if there are more arguments than in other languages.
        let is_unknown = function.starts_with("regexReplace") || elsewhere && arguments.len() > wanted;
        return is_unknown.then(|| "if the arguments are in this order".to_owned());
    }
    let (first, last) = (is_literal(&arguments[0]), is_literal(&arguments[wanted - 1]));
    let others = arguments[1..].iter().all(is_literal);
    match (first, last) {
        // Already in the right order; with a foreign name, the other order may be intended.
        (true, false) => elsewhere.then(|| FIRST.to_owned()),
        _ => {
            arguments.rotate_left(1);
            // The second number of `substr` is a length in other languages, and an end here.
            let is_sure = !first && (elsewhere || others && function != "substr");
            (!is_sure).then(|| FIRST.to_owned())
        }
    }
}

/// Returns the function for a text method of other languages; its subject is the first argument.
pub(super) fn method(name: &str) -> Option<(&'static str, ArgumentOrder)> {
    const OWN: [&str; 5] = ["contains", "hasPrefix", "hasSuffix", "trim", "lower"];
    const OTHERS: [&str; 12] = [
        "startsWith",
        "startswith",
        "endsWith",
        "endswith",
        "includes",
        "matches",
        "toLowerCase",
        "toUpperCase",
        "strip",
        "equals",
        "isEmpty",
        "replaceAll",
    ];
    let own = OWN.into_iter().find(|own| *own == name).map(|own| (own, ArgumentOrder::Reversed));
    own.or_else(|| OTHERS.contains(&name).then(|| elsewhere(name)).flatten())
}

/// Returns the function with this name in other languages.
pub(super) fn elsewhere(name: &str) -> Option<(&'static str, ArgumentOrder)> {
    use ArgumentOrder::{Nil, Reversed, Rotated, Same};
    const NAMES: &[(&str, ArgumentOrder, &[&str])] = &[
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

/// Returns a hint for a name that matches several functions or none.
pub(super) fn unsure(name: &str) -> Option<&'static str> {
    Some(match name {
        "in" => "`contains \"a\" .text` searches a text, `has \"a\" .list` a list",
        "md5" | "md5sum" => "checksums are sha256sum, sha1sum, sha512sum and adler32sum",
        _ if UUIDS.contains(&name) => "write uuidv4",
        "between" => "write and (ge .a 1) (le .a 10)",
        "include" => "to call a template that is defined in the text, write {{ template \"name\" . }}",
        "type" | "typeof" | "instanceof" => "kindOf returns the kind of a value, for example \"string\" or \"float64\"",
        "timestamp" | "currentTime" | "today" => "write now, or `date \"2006-01-02\" now` for the day",
        _ => return None,
    })
}

/// Names of functions of other languages that create a random id.
const UUIDS: [&str; 9] =
    ["uuid", "uuid4", "uuidV4", "uuid_v4", "newUuid", "newUUID", "randomUUID", "generateUUID", "guid"];

/// Returns a remark for a name that may also stand for a function without arguments.
pub(super) fn alone(name: &str) -> Option<&'static str> {
    Some(match name {
        _ if UUIDS.contains(&name) => "or uuidv4 for a random id",
        "timestamp" | "currentTime" | "today" => "or now for the current time",
        _ => return None,
    })
}

/// Returns the path for a name that begins with a part of a record, such as `rec.Payload.After.id`, `payload.after.id`.
pub(super) fn own_path(name: &str) -> Option<String> {
    let mut parts: Vec<&str> = name.trim_start_matches('.').split('.').collect();
    let root = |part: &str| ROOTS.into_iter().find(|root| root.eq_ignore_ascii_case(part));
    if RECORDS.contains(&parts[0]) && parts.get(1).is_some_and(|part| root(part).is_some()) {
        parts.remove(0);
    }
    // A script's name for the record, followed by the name of a field.
    if matches!(parts[0], "this" | "self" | "it" | "$record" | "record" | "Record" | "rec") && parts.len() > 1 {
        return Some(format!(".Payload.After.{}", parts[1..].join(".")));
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
