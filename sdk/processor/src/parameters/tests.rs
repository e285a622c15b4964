use std::path::PathBuf;
use std::time::Duration;

use anabranch_record::reference::Reference;

use super::*;

fn settings(pairs: &[(&str, &str)]) -> Settings {
    Settings::new(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
}

fn one<T: Setting>(field: &Field, text: &str) -> Result<T, Vec<String>> {
    let mut settings = settings(&[(field.name, text)]);
    settings.read("", field).ok_or(settings.problems)
}

/// Reads a parameter with rules.
fn ruled<T: Setting>(
    rules: impl FnOnce(Parameter) -> Parameter,
    default: Option<&'static str>,
    text: &str,
) -> Option<T> {
    let mut settings = settings(&[("x", text)]);
    settings.declarations.add::<T>("", rules(Parameter::new("x", T::KIND, "")));
    settings.declarations.match_expressions();
    settings.read("", &Field { name: "x", default })
}

const PLAIN: Field = Field { name: "x", default: None };

#[test]
fn values_are_of_their_types() {
    assert_eq!(one(&PLAIN, "text"), Ok("text".to_owned()));
    assert_eq!(one(&PLAIN, "-3"), Ok(-3_i64));
    assert_eq!(one(&PLAIN, "2.5"), Ok(2.5_f64));
    assert_eq!(one(&PLAIN, "T"), Ok(true));
    assert_eq!(one(&PLAIN, "/a/b"), Ok(PathBuf::from("/a/b")));
    assert_eq!(one(&PLAIN, "1h1m1.5s"), Ok(Duration::from_millis(3_661_500)));
    assert_eq!(one(&PLAIN, "a, b,,c"), Ok(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]));
    assert_eq!(one(&PLAIN, ""), Ok(None::<i32>));
    assert_eq!(one(&PLAIN, "7"), Ok(Some(7_u8)));
    assert!(one::<Reference>(&PLAIN, ".Key.a").is_ok());
}

/// As the service gives them to built-in plugins.
#[test]
fn white_space_is_part_of_text_and_of_nothing_else() {
    assert_eq!(one(&PLAIN, " a text "), Ok(" a text ".to_owned()));
    assert_eq!(one(&PLAIN, " a text "), Ok(Some(" a text ".to_owned())));
    assert_eq!(one(&PLAIN, " 3 "), Ok(3));
    assert_eq!(one(&PLAIN, "\ttrue\n"), Ok(true));
    assert_eq!(one(&PLAIN, " 1s "), Ok(Duration::from_secs(1)));
    assert_eq!(one::<Reference>(&PLAIN, " .Key.a ").unwrap().to_string(), ".Key.a");
    assert_eq!(one(&PLAIN, " \t"), Ok(None::<String>));
    const DEFAULT: Field = Field { default: Some(" - "), ..PLAIN };
    assert_eq!(one(&DEFAULT, "  "), Ok(" - ".to_owned()));
    let mut map = settings(&[(" x.a ", " b ")]);
    assert_eq!(map.read("", &PLAIN), Some(BTreeMap::from([("a".to_owned(), " b ".to_owned())])));
}

#[test]
fn values_of_other_types_are_refused_by_name_and_value() {
    let problem = |problems: Result<_, Vec<String>>| problems.unwrap_err().join("; ");
    assert_eq!(problem(one::<u8>(&PLAIN, "256").map(drop)), "x: \"256\" is not a whole number that fits into u8");
    assert_eq!(problem(one::<bool>(&PLAIN, "yes").map(drop)), "x: \"yes\" is neither true nor false");
    assert_eq!(problem(one::<String>(&PLAIN, "").map(drop)), "x: a value is required");
    for text in ["1", "s", "1x", "-1s", "1.2.3s", "300000h3000000h"] {
        assert!(one::<Duration>(&PLAIN, text).is_err(), "{text}");
    }
}

#[test]
fn bounds_are_strict_and_what_is_no_number_is_out_of_them() {
    for (text, fits) in [("0", false), ("0.1", true), ("9.9", true), ("10", false), ("NaN", false), ("", true)] {
        assert_eq!(ruled::<f64>(|x| x.greater_than(0.0).less_than(10.0), Some("1"), text).is_some(), fits, "{text:?}");
    }
}

#[test]
fn texts_are_validated() {
    let choice = |text: &str| ruled::<String>(|x| x.one_of(&["a", "b"]), None, text).is_some();
    assert!(choice("b") && !choice("c"));
    let other = |text: &str| ruled::<String>(|x| x.none_of(&["a"]), None, text).is_some();
    assert!(other("b") && !other("a"));
    let small = |text: &str| ruled::<String>(|x| x.regex("^[a-z]+$"), None, text).is_some();
    assert!(small("b") && !small("B"));
}

#[test]
fn a_map_takes_all_settings_below_its_name() {
    let mut given = settings(&[("x.a.b", "1"), ("x.c", "2"), ("xy", "3")]);
    let map: BTreeMap<String, i32> = given.read("", &PLAIN).unwrap();
    assert_eq!(map, BTreeMap::from([("a.b".to_owned(), 1), ("c".to_owned(), 2)]));
    assert_eq!(given.left.len(), 1);
    let mut wrong = settings(&[("x.a", "one"), ("x.b", "two")]);
    assert_eq!(wrong.read::<BTreeMap<String, i32>>("", &PLAIN), None);
    assert_eq!(wrong.problems.len(), 2, "{:?}", wrong.problems);
}

#[test]
fn what_nobody_declared_is_refused() {
    let error = settings(&[("feild", "x")]).all::<()>().unwrap_err();
    assert_eq!(error.message(), "invalid settings: feild: unknown parameter; the processor has no parameters");
}
