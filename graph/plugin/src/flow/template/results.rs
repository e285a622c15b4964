//! The classes of function results.

use super::classes::Classes;
use super::expression::ValueProperties;

/// Functions that always return true or false.
const BOOLS: &[&str] = &[
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "not",
    "hasPrefix",
    "hasSuffix",
    "contains",
    "empty",
    "has",
    "hasKey",
    "regexMatch",
    "mustRegexMatch",
    "kindIs",
    "typeIs",
    "typeIsLike",
    "deepEqual",
    "isAbs",
    "all",
    "any",
    "semverCompare",
];

/// Functions that always return a text.
const TEXTS: &[&str] = &[
    "print",
    "printf",
    "println",
    "upper",
    "lower",
    "trim",
    "toString",
    "toJson",
    "toPrettyJson",
    "toRawJson",
    "title",
    "untitle",
    "substr",
    "trunc",
    "trimAll",
    "trimPrefix",
    "trimSuffix",
    "nospace",
    "initials",
    "snakecase",
    "camelcase",
    "kebabcase",
    "swapcase",
    "replace",
    "repeat",
    "cat",
    "indent",
    "nindent",
    "quote",
    "squote",
    "plural",
    "abbrev",
    "abbrevboth",
    "wrap",
    "wrapWith",
    "b64enc",
    "b64dec",
    "b32enc",
    "b32dec",
    "sha1sum",
    "sha256sum",
    "sha512sum",
    "adler32sum",
    "uuidv4",
    "join",
    "base",
    "dir",
    "ext",
    "clean",
    "typeOf",
    "kindOf",
    "regexReplaceAll",
    "regexReplaceAllLiteral",
    "regexFind",
    "regexQuoteMeta",
    "date",
    "dateInZone",
    "date_in_zone",
    "htmlDate",
    "htmlDateInZone",
    "unixEpoch",
    "ago",
    "duration",
    "durationRound",
    "html",
    "js",
    "urlquery",
    "urlJoin",
    "seq",
];

/// Functions that always return a float.
const FLOATS: &[&str] = &["float64", "add1f", "addf", "subf", "mulf", "divf", "maxf", "minf", "round", "ceil", "floor"];

/// Functions that always return a 64-bit integer.
const LONGS: &[&str] = &["int64", "add", "add1", "sub", "mul", "div", "mod", "max", "biggest", "min", "toDecimal"];

/// Functions that always return a list.
const LISTS: &[&str] =
    &["list", "tuple", "splitList", "keys", "values", "toStrings", "until", "untilStep", "regexFindAll", "regexSplit"];

/// Returns the class of a function's results; `None` if it depends on the arguments.
pub(super) fn classes(function: &str) -> Option<Classes> {
    let among = |names: &[&str]| names.contains(&function);
    Some(match function {
        _ if among(BOOLS) => Classes::BOOL,
        _ if among(TEXTS) => Classes::TEXT,
        _ if among(FLOATS) => Classes::FLOAT,
        _ if among(LONGS) => Classes::LONG,
        _ if among(LISTS) => Classes::LIST,
        "len" | "int" | "atoi" => Classes::INT,
        "now" | "toDate" | "mustToDate" => Classes::TIME,
        "dict" | "split" | "pick" | "omit" => Classes::MAP,
        _ => return None,
    })
}

/// Returns the known properties of a function's result.
pub(super) fn result(function: &'static str) -> ValueProperties {
    if classes(function).is_some() { ValueProperties::Made(function) } else { ValueProperties::Anything }
}

#[cfg(test)]
mod tests {
    use anabranch_record::Record;
    use anabranch_template::{MissingKey, Template};

    use super::*;

    #[test]
    fn every_answer_of_the_reference_is_of_the_class_that_is_known() {
        const ANSWERS: &str = include_str!("../../../../template/src/template/functions/answers/go.jsonl");
        let mut checked = std::collections::BTreeSet::new();
        for line in ANSWERS.lines() {
            let case: serde_json::Value = serde_json::from_str(line).unwrap();
            let template = case["template"].as_str().unwrap();
            let Some(call) = template.strip_prefix("{{ ").and_then(|rest| rest.strip_suffix(" }}")) else { continue };
            let name = call.split(' ').next().unwrap();
            let Some(known) = classes(name) else { continue };
            // The last function of a pipeline gives the result.
            if call.contains('|') || call.contains("}}") || call.starts_with('$') {
                continue;
            }
            let text = format!("{{{{ kindOf ({call}) }}}}");
            let Ok(template) = Template::parse(&text, MissingKey::NoValue) else { continue };
            let mut kind = String::new();
            if template.render(&Record::default(), &mut kind).is_err() {
                continue;
            }
            let expected = match known {
                Classes::BOOL => "bool",
                Classes::TEXT => "string",
                Classes::FLOAT => "float64",
                Classes::LONG => "int64",
                Classes::INT => "int",
                Classes::LIST => "slice",
                Classes::MAP => "map",
                Classes::TIME => "struct",
                other => panic!("{other:?}"),
            };
            assert_eq!(kind, expected, "{text}");
            checked.insert(name.to_owned());
        }
        assert!(checked.len() > 60, "{}: {checked:?}", checked.len());
    }
}
