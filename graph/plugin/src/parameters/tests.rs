use std::time::Duration;

use anabranch_record::reference::Reference;

use super::*;
use crate::specification::Specification;

const MODES: [&str; 2] = ["fast", "slow"];
const LARGEST: f64 = 10.0;
const PLACE: &str = ".Key";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Durability {
    Process,
    Disk,
}

impl Choice for Durability {
    const CHOICES: &'static [(&'static str, Self)] = &[("process", Durability::Process), ("disk", Durability::Disk)];
}

#[derive(Debug, Parameters)]
struct Retry {
    /// Pause before the first retry,
    /// in whole or in part.
    ///
    /// * one
    ///   item
    /// * another
    #[parameter(default = "100ms", only_with = "retry.count")]
    delay: Duration,
    #[parameter(default = 3, greater_than = -1, less_than = LARGEST + 1.0)]
    count: u32,
}

#[derive(Debug, Parameters)]
struct Limits {
    #[parameter(default = "1KiB")]
    body: ByteSize,
}

#[derive(Debug, Parameters)]
struct Collection {
    operations: Vec<Str>,
    options: BTreeMap<Str, Argument<Str>>,
}

/// Everything that can be declared.
#[derive(Debug, Parameters)]
struct Everything {
    #[parameter(default = PLACE, within = [".Key", ".Payload"])]
    field: Argument<Reference>,
    #[parameter(regex = "^a")]
    name: Str,
    #[parameter(one_of = MODES, example = "fast")]
    mode: Option<Argument<Str>>,
    #[parameter(default = "disk")]
    durability: Durability,
    safety: Vec<Durability>,
    #[parameter(secret, aliases = ["api_key", "key"], none_of = ["secret"])]
    api_key: Argument<Option<Str>>,
    #[parameter(required, may_be_blank)]
    text: Option<Str>,
    #[parameter(nested)]
    retry: Retry,
    #[parameter(flatten)]
    limits: Limits,
    #[parameter(nested)]
    collections: BTreeMap<Str, Collection>,
}

fn specification() -> Specification {
    Specification { parameters: declared::<Everything>(), ..Specification::builtin("demo", "For tests.") }
}

fn read(pairs: &[(&str, &str)]) -> Result<Everything, Vec<String>> {
    let settings = crate::settings::Settings::from_pairs(pairs.iter().copied());
    Arguments::parse(&specification(), &settings)
        .and_then(|arguments| arguments.read())
        .map_err(|findings| findings.into_iter().map(|finding| finding.message).collect())
}

#[test]
fn fields_are_parameters() {
    let parameter = |name, kind, description| Parameter::new(name, kind, description);
    let delay = "Pause before the first retry, in whole or in part.\n\n* one item\n* another";
    let expected = [
        parameter("field", ParameterKind::Reference, "").default_value(".Key").within(&[".Key", ".Payload"]),
        parameter("name", ParameterKind::Text, "").required().regex("^a"),
        parameter("mode", ParameterKind::Text, "").one_of(&["fast", "slow"]).example("fast"),
        parameter("durability", ParameterKind::Text, "").default_value("disk").one_of(&["process", "disk"]),
        parameter("safety", ParameterKind::List, "").one_of(&["process", "disk"]),
        parameter("apiKey", ParameterKind::Text, "").secret().aliases(&["api_key", "key"]).none_of(&["secret"]),
        parameter("text", ParameterKind::Text, "").required().may_be_blank(),
        parameter("retry.delay", ParameterKind::Duration, delay).default_value("100ms").only_with("retry.count"),
        parameter("retry.count", ParameterKind::Int, "").default_value("3").greater_than(-1.0).less_than(11.0),
        parameter("body", ParameterKind::Bytes, "").default_value("1KiB"),
        parameter("collections.*.operations", ParameterKind::List, ""),
        parameter("collections.*.options.*", ParameterKind::Text, ""),
    ];
    assert_eq!(specification().parameters, expected);
}

#[test]
fn values_have_types_and_defaults() {
    let read = read(&[
        ("name", "abc"),
        ("text", "x"),
        ("retry.count", "0"),
        ("safety", "disk, process"),
        ("collections.b.operations", "create"),
        ("collections.a.options.id", "int"),
        ("collections.a.options.x.y", "string"),
        ("body", " "),
    ])
    .unwrap();
    assert_eq!((read.field.as_str(), read.name.as_str(), read.durability), (".Key", "abc", Durability::Disk));
    assert_eq!((read.mode.is_some(), read.text.as_deref()), (false, Some("x")));
    assert_eq!((read.retry.delay, read.retry.count, read.limits.body.0), (Duration::from_millis(100), 0, 1024));
    assert_eq!(read.safety, [Durability::Disk, Durability::Process]);
    assert_eq!(read.collections.keys().map(Str::as_str).collect::<Vec<_>>(), ["a", "b"]);
    let options = &read.collections["a"].options;
    let options: Vec<_> = options.iter().map(|(key, option)| (key.as_str(), option.name().as_str())).collect();
    assert_eq!(options, [("id", "collections.a.options.id"), ("x.y", "collections.a.options.x.y")]);
    assert_eq!(read.collections["b"].operations, ["create"]);
}

#[test]
fn all_problems_are_reported_at_once() {
    let found = read(&[("name", "b"), ("durability", "both"), ("retry.count", "11")]).unwrap_err();
    let expected = [
        "name: \"b\" does not match ^a",
        "durability: \"both\" is not one of process, disk",
        "retry.count: \"11\" must be at most 10",
        "\"text\" is required by demo",
    ];
    assert_eq!(found, expected);
}

#[test]
fn arguments_know_their_origin() {
    let read = read(&[("name", "a"), ("text", "t"), ("key", "hunter22"), ("mode", " ")]).unwrap();
    assert!(!read.field.is_given() && read.field.is_constant());
    assert_eq!(read.api_key.secrets().collect::<Vec<_>>(), ["hunter22"]);
    assert!(!format!("{read:?}").contains("hunter22"));
    assert_eq!(read.api_key.name(), "apiKey");
    let finding = read.field.invalid("cannot be set");
    assert_eq!((finding.code.name(), finding.message.as_str()), ("settings.invalid", "field: cannot be set"));
    assert_eq!(finding.path.as_deref(), Some("/field"));
}

#[derive(Debug, Parameters)]
struct Numbers {
    small: u32,
    natural: Option<usize>,
}

#[test]
fn a_number_that_the_type_does_not_have_is_invalid() {
    let specification = Specification { parameters: declared::<Numbers>(), ..Specification::builtin("n", "Numbers.") };
    let read = |pairs: [(&str, &str); 2]| {
        let arguments = Arguments::parse(&specification, &crate::settings::Settings::from_pairs(pairs));
        arguments.unwrap().read::<Numbers>().map(|numbers| (numbers.small, numbers.natural))
    };
    assert_eq!(read([("small", "4294967295"), ("natural", "0")]).unwrap(), (u32::MAX, Some(0)));
    let found = read([("small", "4294967296"), ("natural", "-1")]).unwrap_err();
    let found: Vec<_> = found.into_iter().map(|finding| (finding.message, finding.path)).collect();
    let expected = [
        ("small: the value must be at most 4294967295", "/small"),
        ("natural: the value must be at least 0", "/natural"),
    ];
    assert_eq!(found, expected.map(|(message, path)| (message.to_owned(), Some(path.to_owned()))));
}

/// As of executors, which read the parameters that they share from any plugin.
#[test]
fn what_the_specification_lacks_has_its_default_or_is_missing() {
    let none = Arguments::default();
    let retry: Retry = none.read().unwrap();
    assert_eq!((retry.count, retry.delay), (3, Duration::from_millis(100)));
    let missing: Vec<_> = none.read::<Numbers>().unwrap_err().into_iter().map(|d| d.message).collect();
    assert_eq!(missing, ["\"small\" is required"]);
}

/// A program may declare a parameter of the executor as a text, which it reads itself.
#[test]
fn a_parameter_of_another_kind_is_as_absent() {
    let parameters = ["count", "small", "natural", "items"].map(|name| Parameter::new(name, ParameterKind::Text, ""));
    let specification = Specification { parameters: parameters.into(), ..Specification::builtin("n", "Numbers.") };
    let pairs = [("count", "7"), ("small", "7"), ("natural", "7"), ("items", "a,b")];
    let arguments = Arguments::parse(&specification, &crate::settings::Settings::from_pairs(pairs)).unwrap();
    assert_eq!(arguments.read::<Retry>().unwrap().count, 3);
    assert_eq!(arguments.read::<Optional>().unwrap(), Optional { natural: None, items: Vec::new() });
    let missing: Vec<_> = arguments.read::<Numbers>().unwrap_err().into_iter().map(|d| d.message).collect();
    assert_eq!(missing, ["\"small\" is required"]);
}

#[derive(Debug, PartialEq, Parameters)]
struct Optional {
    natural: Option<usize>,
    items: Vec<Str>,
}
