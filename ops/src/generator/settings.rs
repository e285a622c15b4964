//! Parameters of the generator, and checks across them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification, Validation, shared};
use anabranch_record::Operation;
use anabranch_record::text::Str;

use super::field::{Field, FieldKind};

const OPERATIONS: [&str; 4] = ["create", "update", "delete", "snapshot"];
const FORMATS: [&str; 3] = ["structured", "raw", "file"];

/// Returns the specification of the source.
pub(super) fn specification() -> Specification {
    let field_type = |name| {
        Parameter::new(
            name,
            ParameterKind::Text,
            "Type of the field with this name: int (0 to 2^63-1), string (a word), time (now), bool, duration \
             (nanoseconds, 0 to 999 s), float, name, email, city, country, uuid or sentence.",
        )
    };
    let format_type = |name| {
        Parameter::new(
            name,
            ParameterKind::Text,
            "Payload: structured (fields), raw (the same fields as JSON text) or file (the content of a file).",
        )
        .one_of(&FORMATS)
    };
    Specification::builtin("generator", "Generates records with random data, at a given rate or as fast as possible.")
        .describe(
            "Generates records with random data, for demos, tests and benchmarks. It needs `format.type`, or one or \
             more collections. With several collections, each record belongs to a random one. The key is a word. \
             `create` and `snapshot` fill the payload after the change, `delete` the one before, `update` both. The \
             numbers of records continue after a restart, so positions are unique.",
        )
        .with(
            Parameter::new(
                "rate",
                ParameterKind::Float,
                "Maximum number of records per second, evenly spaced; 0 = unlimited.",
            )
            .default_value("0"),
        )
        .with(Parameter::new("readTime", ParameterKind::Duration, "Deprecated, use `rate`: time between two records."))
        .with(
            Parameter::new(
                "recordCount",
                ParameterKind::Int,
                "Total number of records, counted across restarts; 0 = unlimited.",
            )
            .default_value("0")
            .validate(Validation::GreaterThan(-1.0)),
        )
        .with(
            Parameter::new("burst.sleepTime", ParameterKind::Duration, "Pause between bursts; 0 = no bursts.")
                .default_value("0s"),
        )
        .with(
            Parameter::new(
                "burst.generateTime",
                ParameterKind::Duration,
                "Length of a burst; has no effect without `burst.sleepTime`.",
            )
            .default_value("1s")
            .validate(Validation::GreaterThan(0.0))
            .only_with("burst.sleepTime"),
        )
        .with(
            Parameter::new("operations", ParameterKind::List, "Operations, of which each record gets a random one.")
                .default_value("create")
                .one_of(&OPERATIONS),
        )
        .with(format_type("format.type").example("structured"))
        .with(Parameter::new(
            "format.options.path",
            ParameterKind::Text,
            "With `format.type: file`, the file with the payload, at most 64 MiB; otherwise the type of a field named \
             \"path\".",
        ))
        .with(field_type("format.options.*").one_of(&FieldKind::NAMES).example("string"))
        .with(
            Parameter::new(
                "collections.*.operations",
                ParameterKind::List,
                "Operations of this collection; the default is `operations`.",
            )
            .one_of(&OPERATIONS),
        )
        .with(format_type("collections.*.format.type"))
        .with(Parameter::new(
            "collections.*.format.options.path",
            ParameterKind::Text,
            "With type `file`, the file with the payload; otherwise the type of a field named \"path\".",
        ))
        .with(field_type("collections.*.format.options.*").one_of(&FieldKind::NAMES))
        .with(Parameter::new(
            "seed",
            ParameterKind::Int,
            "Seed of the random numbers. The same seed generates the same records (except for times), even after \
             restarts of the pipeline. The default is random.",
        ))
        .with_all(shared::structured_source())
}

/// Validated settings.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    /// Records per second; 0 = no limit.
    pub(super) rate: f64,
    /// True if the deprecated setting for the read time is used.
    pub(super) read_time: bool,
    /// Total number of records; `None` = unlimited.
    pub(super) count: Option<u64>,
    /// Time to generate and time to sleep, in turns.
    pub(super) burst: Option<(Duration, Duration)>,
    /// Seed of the random numbers.
    pub(super) seed: Option<u64>,
    /// Collections, at least one; the default collection comes first.
    pub(super) collections: Vec<Collection>,
}

/// Settings of one collection.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Collection {
    /// Name of the collection; `None` for the default collection.
    pub(super) name: Option<Str>,
    /// Operations to choose from, at least one.
    pub(super) operations: Vec<Operation>,
    /// Format of the payload.
    pub(super) format: Format,
}

/// Format of a payload.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Format {
    /// Fields, in name order.
    Structured(Vec<Field>),
    /// The same fields, as JSON text.
    Raw(Vec<Field>),
    /// The content of a file.
    File(PathBuf),
}

impl Settings {
    /// Builds the settings and checks rules across several parameters.
    pub(super) fn new(arguments: &Arguments) -> Result<Settings, Diagnostics> {
        let mut findings = Diagnostics::new();
        let mut invalid = |name: &str, what: String| {
            findings.push(Diagnostic::error("settings.invalid", what).with_span(arguments.span(name)));
        };
        let mut rate = arguments.float("rate").unwrap_or_default();
        if rate < 0.0 {
            invalid("rate", format!("rate: {rate} must not be below 0"));
        }
        let read_time = arguments.duration("readTime").filter(|time| !time.is_zero());
        if let Some(time) = read_time {
            if rate != 0.0 {
                invalid(
                    "readTime",
                    "\"readTime\" and \"rate\" exclude each other; \"readTime\" is deprecated".to_owned(),
                );
            }
            rate = 1.0 / time.as_secs_f64();
        }
        let mut names: BTreeSet<Option<&str>> = BTreeSet::new();
        if arguments.has("format.type") || arguments.matching("format.options.*").next().is_some() {
            names.insert(None);
        }
        for pattern in ["collections.*.operations", "collections.*.format.type", "collections.*.format.options.*"] {
            names.extend(arguments.matching(pattern).map(|setting| setting.split('.').nth(1)));
        }
        let collections: Vec<Collection> =
            names.into_iter().filter_map(|name| collection(arguments, name, &mut findings)).collect();
        if collections.is_empty() && !findings.has_errors() {
            findings.push(
                Diagnostic::error("settings.required", "\"format.type\" is required by generator")
                    .with_span(arguments.span(""))
                    .with_hint("set format.type, or collections.<name>.format.type for one or more collections"),
            );
        }
        if findings.has_errors() {
            return Err(findings);
        }
        let sleep = arguments.duration("burst.sleepTime").filter(|time| !time.is_zero());
        let generate = arguments.duration("burst.generateTime").unwrap_or(Duration::from_secs(1));
        Ok(Settings {
            rate,
            read_time: read_time.is_some(),
            count: arguments.int("recordCount").and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0),
            burst: sleep.map(|sleep| (generate, sleep)),
            seed: arguments.int("seed").map(i64::cast_unsigned),
            collections,
        })
    }
}

/// Builds one collection, or adds findings and returns `None`.
fn collection(arguments: &Arguments, name: Option<&str>, findings: &mut Diagnostics) -> Option<Collection> {
    let prefix = name.map(|name| format!("collections.{name}.")).unwrap_or_default();
    let (type_name, option_prefix) = (format!("{prefix}format.type"), format!("{prefix}format.options."));
    let mut options: BTreeMap<&str, &Str> = BTreeMap::new();
    let pattern = format!("{option_prefix}*");
    for setting in arguments.matching(&pattern) {
        if let (Some(option), Some(value)) = (setting.strip_prefix(option_prefix.as_str()), arguments.text(setting)) {
            options.insert(option, value);
        }
    }
    let Some(format) = arguments.text(&type_name) else {
        let place = match options.keys().next() {
            Some(option) => format!("{option_prefix}{option}"),
            None => format!("{prefix}operations"),
        };
        findings.push(
            Diagnostic::error("settings.required", format!("\"{type_name}\" is required by generator"))
                .with_span(arguments.span(&place))
                .with_hint(format!("one of {}", FORMATS.join(", "))),
        );
        return None;
    };
    let format = if format.as_str() == "file" {
        for option in options.keys().filter(|option| **option != "path") {
            findings.push(
                Diagnostic::error("settings.invalid", format!("{option_prefix}{option}: a file has no fields"))
                    .with_span(arguments.span(&format!("{option_prefix}{option}"))),
            );
        }
        match options.get("path") {
            Some(path) => Format::File(PathBuf::from(path.as_str())),
            None => {
                findings.push(
                    Diagnostic::error("settings.required", format!("\"{option_prefix}path\" is required by generator"))
                        .with_span(arguments.span(&type_name))
                        .with_hint("type \"file\" sends the content of a file: set the path of the file"),
                );
                return None;
            }
        }
    } else {
        let mut fields = Vec::with_capacity(options.len());
        for (option, kind) in &options {
            match kind.trim().parse() {
                Ok(kind) => fields.push(Field { name: Str::from(*option), kind }),
                Err(()) => findings.push(
                    Diagnostic::error(
                        "settings.invalid",
                        format!("{option_prefix}{option}: {kind:?} is not one of {}", FieldKind::NAMES.join(", ")),
                    )
                    .with_span(arguments.span(&format!("{option_prefix}{option}")))
                    .with_hint("a path is accepted only with type \"file\""),
                ),
            }
        }
        if options.is_empty() {
            findings.push(
                Diagnostic::error("settings.required", format!("\"{option_prefix}<field>\" is required by generator"))
                    .with_span(arguments.span(&type_name))
                    .with_hint(format!("name at least one field, for example {option_prefix}id: int")),
            );
        }
        if format.as_str() == "raw" { Format::Raw(fields) } else { Format::Structured(fields) }
    };
    let own = format!("{prefix}operations");
    let texts = arguments.list(if arguments.has(&own) { &own } else { "operations" });
    let operations = texts.iter().filter_map(|text| text.parse().ok()).collect();
    Some(Collection { name: name.map(Str::from), operations, format })
}
