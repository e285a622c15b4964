//! What Go answered, and what we answer; and that no arguments whatever do harm.

use std::collections::BTreeMap;

use crate::record::Record;
use crate::template::{MissingKey, Template};

/// Where we mean to differ from Go: the template and why.
const DELIBERATE: &[(&str, &str)] = &[
    (r#"{{ empty 3i }}"#, COMPLEX),
    (r#"{{ empty 0i }}"#, COMPLEX),
    (r#"{{ toJson 3i }}"#, COMPLEX),
    (r#"{{ typeOf 3i }}"#, COMPLEX),
    (r#"{{ typeOf (fromJson "1") }}"#, "integers stay integers"),
    (r#"{{ dateInZone "2006-01-02 15:04 MST -07:00" 0 "+03:00" }}"#, "fixed offsets are zones"),
    (
        r#"{{ dateInZone "2006-01-02 15:04 MST -07:00" 0 "Europe/Prague" }}"#,
        "zones with rules are refused, rather than taken for UTC",
    ),
    (r#"{{ durationRound ((toDate "2006" "2017").Sub (toDate "2006" "2015")) }}"#, "a duration is a length too"),
    (r#"{{ printf "%q" (mustRegexFindAll "." "a\xffb" -1) }}"#, BROKEN),
    (r#"{{ regexReplaceAll "b" "a\xffb" "c" | printf "%q" }}"#, BROKEN),
    (r#"{{ snakecase "AbCd\xffEf" | printf "%q" }}"#, BROKEN),
    (r#"{{ mustRegexMatch "(a{100}){100}" "a" }}"#, WIDER),
    (r#"{{ mustRegexMatch "\\p{White_Space}" " " }}"#, WIDER),
    (r#"{{ mustRegexMatch "\\p{Alphabetic}" "A" }}"#, WIDER),
];
const COMPLEX: &str = "records have no complex numbers";
const BROKEN: &str = "what is no character is U+FFFD where functions work on characters";
const WIDER: &str = "such patterns are taken, though Go does not know them";

#[derive(serde::Deserialize)]
struct Answer {
    template: String,
    output: Option<String>,
}

fn ours(template: &str) -> Result<String, String> {
    let template = Template::parse(template, MissingKey::NoValue).map_err(|error| error.to_string())?;
    let mut out = String::new();
    template.render(&Record::default(), &mut out).map_err(|error| error.to_string())?;
    Ok(out)
}

#[test]
fn functions_answer_as_in_go() {
    let reasons: BTreeMap<&str, &str> = DELIBERATE.iter().copied().collect();
    let mut differences = Vec::new();
    for line in include_str!("answers/go.jsonl").lines() {
        let Answer { template, output } = serde_json::from_str(line).unwrap();
        let answer = ours(&template);
        let same = answer.as_ref().ok() == output.as_ref();
        if same == reasons.contains_key(template.as_str()) {
            differences.push(format!("{template}\n    Go   {output:?}\n    ours {answer:?}"));
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}
