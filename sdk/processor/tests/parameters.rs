//! The derive, as users see it.

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_processor::specification::ParameterKind;
use anabranch_processor::{Error, Output, Parameters, Processor, Record, Reference, Specification, testing};

#[derive(Debug, PartialEq, Parameters)]
struct Retry {
    /// How long to wait.
    #[parameter(default = "1s")]
    delay: Duration,
    #[parameter(default = 3, greater_than = -1, less_than = 10.5)]
    most_tries: u8,
}

#[derive(Debug, PartialEq, Parameters)]
#[parameter(rename_all = "kebab-case")]
struct Limits {
    /// Most records of a batch,
    /// of any kind.
    #[parameter(default = 10)]
    max_records: u32,
}

/// Everything that can be declared.
#[derive(Debug, PartialEq, Parameters)]
struct Settings {
    /// The place.
    ///
    /// In *every* record.
    #[parameter(default = ".Key")]
    field: Reference,
    #[parameter(name = "request.url", regex = "^https://")]
    url: String,
    #[parameter(one_of = ["a", "b"], default = "a")]
    kind: String,
    #[parameter(none_of = ["root"])]
    user: Option<String>,
    #[parameter(required)]
    tags: Vec<String>,
    headers: BTreeMap<String, String>,
    #[parameter(nested)]
    retry: Retry,
    #[parameter(flatten)]
    limits: Limits,
    #[parameter(default = false)]
    r#type: bool,
}

struct Keep(Settings);

impl Processor for Keep {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::new("keep", "v1.2.3", "s").describe("d").by("a")
    }

    fn configure(settings: Settings) -> Result<Self, Error> {
        Ok(Keep(settings))
    }

    fn process(&mut self, record: Record) -> Result<Output, Error> {
        Ok(record.into())
    }
}

#[test]
fn values_defaults_and_names() {
    let mut keep = testing::start::<Keep>(&[
        ("request.url", "https://x"),
        ("tags", "x,y"),
        ("headers.content-type", "text"),
        ("retry.mostTries", "0"),
        ("type", "true"),
        ("kind", ""),
    ])
    .unwrap();
    let expected = Settings {
        field: ".Key".parse().unwrap(),
        url: "https://x".to_owned(),
        kind: "a".to_owned(),
        user: None,
        tags: vec!["x".to_owned(), "y".to_owned()],
        headers: BTreeMap::from([("content-type".to_owned(), "text".to_owned())]),
        retry: Retry { delay: Duration::from_secs(1), most_tries: 0 },
        limits: Limits { max_records: 10 },
        r#type: true,
    };
    assert_eq!(keep.processor().unwrap().0, expected);
}

#[test]
fn all_problems_are_told_at_once_and_by_name() {
    let error = testing::start::<Keep>(&[
        ("request.url", "ftp://x"),
        ("kind", "c"),
        ("user", "root"),
        ("retry.mostTries", "11"),
        ("retry.dealy", "1s"),
        ("field", "Key"),
    ])
    .map(drop)
    .unwrap_err();
    for part in [
        "request.url: \"ftp://x\" does not match",
        "kind: \"c\" is not one of a, b",
        "user: \"root\" is not allowed",
        "tags: a value is required",
        "retry.mostTries: \"11\" is not less than 10.5",
        "retry.dealy: unknown parameter",
        "field: invalid reference \"Key\": a reference starts with a dot (did you mean .Key?)",
    ] {
        assert!(error.message().contains(part), "{part}: {error}");
    }
}

#[test]
fn hosts_see_the_declarations() {
    let specification = testing::specification::<Keep>().unwrap();
    assert_eq!((specification.summary.as_str(), specification.description.as_str()), ("s", "d"));
    let (own, switches) = specification.parameters.split_at(10);
    let names: Vec<&str> = own.iter().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "field",
            "request.url",
            "kind",
            "user",
            "tags",
            "headers.*",
            "retry.delay",
            "retry.mostTries",
            "max-records",
            "type"
        ]
    );
    assert!(switches.len() == 4 && switches.iter().all(|switch| switch.name.starts_with("sdk.schema.")));
    let parameter = |name: &str| specification.parameter(name).unwrap();
    assert_eq!(parameter("field").description, "The place.\n\nIn *every* record.");
    assert_eq!(
        (parameter("retry.delay").kind, parameter("retry.delay").default.as_deref()),
        (ParameterKind::Duration, Some("1s"))
    );
    assert_eq!(parameter("retry.mostTries").default.as_deref(), Some("3"));
    assert_eq!(parameter("max-records").description, "Most records of a batch, of any kind.");
    let required = own.iter().filter(|parameter| parameter.is_required());
    assert_eq!(required.map(|parameter| parameter.name.as_str()).collect::<Vec<_>>(), ["request.url", "tags"]);
}

/// Names that the derive uses itself.
#[derive(Debug, PartialEq, Parameters)]
struct Names {
    prefix: String,
    settings: Option<String>,
    declarations: Option<String>,
    value_0: Option<i64>,
    #[parameter(nested)]
    retry: Retry,
}

struct Named(Names);

impl Processor for Named {
    type Parameters = Names;

    fn specification() -> Specification {
        Specification::new("named", "v1.2.3", "")
    }

    fn configure(names: Names) -> Result<Self, Error> {
        Ok(Named(names))
    }

    fn process(&mut self, record: Record) -> Result<Output, Error> {
        Ok(record.into())
    }
}

#[test]
fn fields_may_have_any_name() {
    let mut named = testing::start::<Named>(&[("prefix", "p "), ("settings", "s"), ("value0", "7")]).unwrap();
    let retry = Retry { delay: Duration::from_secs(1), most_tries: 3 };
    let expected =
        Names { prefix: "p ".to_owned(), settings: Some("s".to_owned()), declarations: None, value_0: Some(7), retry };
    assert_eq!(named.processor().unwrap().0, expected);
}
