//! Compares the results of functions with those of Go, and checks that no argument causes a panic.

use std::collections::BTreeMap;
use std::rc::Rc;

use anabranch_record::Record;
use proptest::prelude::*;

use super::{Allowance, CallError, Context, Function, Param, TABLES, methods};
use crate::template::val::{Dict, Elements, List, Map, Time, Val};
use crate::template::{MissingKey, Template};

/// Intended differences from Go: the template and the reason.
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
    (
        r#"{{ merge (dict "a" (split "," "a")) (dict "a" (dict "b" 1)) }}"#,
        "a map of text that is merged into becomes a map of anything",
    ),
    (r#"{{ chunk -1 (list 1 2) }}"#, "a negative size makes no sense, whatever the list"),
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

/// The value of an argument, independent of the type that it must have.
#[derive(Clone, Debug)]
struct Seed {
    text: Vec<u8>,
    int: i64,
    float: f64,
    shape: u8,
}

impl Seed {
    fn value(&self, param: Param) -> Val {
        let map = || {
            let entries = ["a", "b", "host", "path", "userinfo"].into_iter().take(usize::from(self.shape % 6));
            let entry = |key: &str| (key.into(), Seed { shape: self.shape / 6, ..self.clone() }.any());
            Map::Dict(Dict::from_entries(entries.map(entry)))
        };
        match param {
            Param::Any | Param::Reflect => self.any(),
            Param::Text => Val::text(self.text.clone()),
            Param::Bool => Val::Bool(self.int % 2 == 0),
            Param::Int => Val::Int(self.int),
            Param::Float => Val::Float(self.float),
            Param::Map if self.shape == 0 => Val::Map(Map::Nil),
            Param::Map => Val::Map(map()),
            Param::Time => Val::Time(Rc::new(Time::utc(chrono::DateTime::from_timestamp_nanos(self.int)))),
        }
    }

    fn list(&self) -> List {
        List::new((0..self.shape % 4).map(|n| Seed { shape: self.shape / 4 + n, ..self.clone() }.any()).collect())
    }

    fn any(&self) -> Val {
        match self.shape % 16 {
            0 => Val::Nil,
            1 => self.value(Param::Bool),
            2 => Val::Int(self.int),
            3 => Val::Int64(self.int),
            4 => Val::Uint64(self.int.cast_unsigned()),
            5 => Val::Float(self.float),
            6 => Val::Raw(self.text.clone().into()),
            7 => Val::Duration(self.int),
            8 => self.value(Param::Time),
            9 => List::nil(Elements::Text).into(),
            10 | 11 => self.list().into(),
            12 | 13 => self.value(Param::Map),
            _ => self.value(Param::Text),
        }
    }
}

fn seeds() -> impl Strategy<Value = Seed> {
    let text = prop_oneof![
        "[a-c0-9 ,.:/?#%=_$@\\[\\](){}*+|^\\\\-]{0,12}".prop_map(String::into_bytes),
        "\\PC{0,8}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..8),
        prop_oneof!["2006-01-02T15:04:05.999Z07:00 MST", "[0-9]{4}-[0-9]{2}-[0-9]{2}", "-?[0-9]{1,20}[hmsu.]{0,3}"]
            .prop_map(String::into_bytes),
        r#"[\[\]{}:,"a0-9.eE+\\unl-]{0,12}"#.prop_map(String::into_bytes),
    ];
    let int = prop_oneof![-4..12i64, any::<i64>(), Just(i64::MIN), Just(i64::MAX)];
    (text, int, prop_oneof![any::<f64>(), -3.0..3.0f64], any::<u8>()).prop_map(|(text, int, float, shape)| Seed {
        text,
        int,
        float,
        shape,
    })
}

fn functions() -> Vec<&'static Function> {
    TABLES
        .iter()
        .chain([&methods::TIME, &methods::DURATION, &methods::VERSION])
        .flat_map(|table| table.iter())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_arguments_do_harm(at in any::<proptest::sample::Index>(), seeds in proptest::collection::vec(seeds(), 0..7)) {
        let all = functions();
        let function = all[at.index(all.len())];
        let mut given = seeds.iter().cycle();
        let mut args = Vec::new();
        for param in function.params {
            let Some(seed) = given.next() else { return Ok(()) };
            args.push(seed.value(*param));
        }
        if let Some(param) = function.rest {
            args.extend(seeds.iter().skip(args.len()).map(|seed| seed.value(param)));
        }
        let mut cx = Context::within(Allowance { bytes: 1 << 16, steps: 1 << 12 });
        // Whatever it gives can be written, or says why not.
        if let Ok(result) = (function.call)(&mut cx, &args) {
            let _ = crate::template::format::to_text(&result);
        }
    }
}

#[test]
fn what_would_fill_the_memory_is_refused() {
    for template in [
        r#"{{ repeat 9223372036854775807 "ab" }}"#,
        r#"{{ indent 9223372036854775807 "a\nb" }}"#,
        r#"{{ nindent 4000000000 "a" }}"#,
        r#"{{ until 9223372036854775807 }}"#,
        r#"{{ untilStep 0 9223372036854775807 1 }}"#,
        r#"{{ seq 9223372036854775807 }}"#,
        r#"{{ randAlpha 9223372036854775807 }}"#,
        r#"{{ randBytes 9223372036854775807 }}"#,
        r#"{{ $a := repeat 100000 "a" }}{{ replace "a" $a $a }}"#,
        r#"{{ $a := repeat 100000 "a" }}{{ wrapWith 1 $a $a }}"#,
        r#"{{ $a := repeat 100000 "a" }}{{ regexReplaceAll "a" $a $a }}"#,
    ] {
        let error = ours(template).expect_err(template);
        assert!(error.contains("more than") || error.contains("too deep"), "{template}: {error}");
    }
}

#[test]
fn what_would_take_forever_is_refused() {
    // 2^60 elements, and yet no more than sixty lists.
    let deep = (0..60).fold(List::new(vec![Val::Int(1)]), |list, _| List::new(vec![list.clone().into(), list.into()]));
    let deep = Val::from(deep);
    let other = List::new(deep.as_list().map(|list| list.iter().collect()).unwrap_or_default()).into();
    let long = Val::from(List::new((0..1_000).map(Val::Int).collect()));
    for (name, args) in [
        ("toJson", vec![deep.clone()]),
        ("toPrettyJson", vec![deep.clone()]),
        ("deepCopy", vec![deep.clone()]),
        ("deepEqual", vec![deep, other]),
        ("uniq", vec![long.clone()]),
        ("concat", vec![long; 10]),
        ("fromJson", vec![Val::from("[".to_owned() + &"0,".repeat(10_000) + "0]")]),
    ] {
        let function = super::find(name).unwrap();
        let error =
            (function.call)(&mut Context::within(Allowance { bytes: 1 << 16, steps: 1 << 12 }), &args).expect_err(name);
        assert!(error.to_string().contains("more than"), "{name}: {error}");
    }
}

#[test]
fn a_refused_call_tells_why() {
    let error = CallError::from("reason");
    assert_eq!(error.to_string(), "reason");
    for (template, wanted) in [
        (r#"{{ regexFind "(a" "" }}"#, "is not a regular expression"),
        (r#"{{ mustToDate "2006" "x" }}"#, "is not a date in the layout"),
        (r#"{{ dateInZone "2006" 0 "Europe/Prague" }}"#, "use UTC or a fixed offset"),
        (r#"{{ mustFromJson "[1,]" }}"#, "byte 3"),
        (r#"{{ semver "x" }}"#, "is not a semantic version"),
        (r#"{{ urlParse ":x" }}"#, "the scheme is missing"),
        (r#"{{ div 1 0 }}"#, "division by zero"),
        (r#"{{ fail "boom" }}"#, "boom"),
    ] {
        let error = ours(template).expect_err(template);
        assert!(error.contains(wanted), "{template}: {error}");
    }
}
