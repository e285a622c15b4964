//! Parameters of the generator, and checks across them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, Span};
use anabranch_plugin::parameters::{Argument, Choice, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Operation;
use anabranch_record::text::Str;

use super::field::{Field, FieldKind};
use crate::codes;

/// Returns the specification of the source, without the parameters of [`Options`].
pub(super) fn specification() -> Specification {
    Specification::builtin("generator", "Generates records with random data, at a given rate or as fast as possible.")
        .describe(
            "Generates records with random data, for demos, tests and benchmarks. It needs `format.type`, or one or \
             more collections. With several collections, each record belongs to a random one. The key is a word. \
             `create` and `snapshot` fill the payload after the change, `delete` the one before, `update` both. The \
             numbers of records continue after a restart, so positions are unique.",
        )
        .with_all(shared::structured_source())
}

/// Settings as they are written.
#[derive(Parameters)]
pub(super) struct Options {
    /// Maximum number of records per second, evenly spaced; 0 = unlimited.
    #[parameter(default = 0)]
    rate: Argument<f64>,
    /// Deprecated, use `rate`: time between two records.
    read_time: Argument<Option<Duration>>,
    /// Total number of records, counted across restarts; 0 = unlimited.
    #[parameter(default = 0, greater_than = -1)]
    record_count: u64,
    /// Number of partitions, over which the records are distributed in turn. The nodes of a cluster can share them.
    #[parameter(default = 1, greater_than = 0, less_than = 1025)]
    partitions: u64,
    #[parameter(nested)]
    burst: Burst,
    /// Operations, of which each record gets a random one.
    #[parameter(default = "create")]
    operations: Vec<Operation>,
    /// Payload: structured (fields), raw (the same fields as JSON text) or file (the content of a file).
    #[parameter(name = "format.type", example = "structured")]
    format: Argument<Option<Payload>>,
    /// With `format.type: file`, the file with the payload, at most 64 MiB; otherwise the type of a field named "path".
    #[parameter(name = "format.options.path")]
    path: Option<Str>,
    /// Type of the field with this name: int (0 to 2^63-1), string (a word), time (now), bool, duration (nanoseconds, 0
    /// to 999 s), float, name, email, city, country, uuid or sentence.
    #[parameter(name = "format.options", one_of = FieldKind::NAMES, example = "string")]
    fields: BTreeMap<Str, Argument<Str>>,
    #[parameter(nested)]
    collections: BTreeMap<Str, CollectionOptions>,
    /// Seed of the random numbers. The same seed generates the same records (except for times), even after restarts of
    /// the pipeline. The default is random.
    seed: Option<i64>,
}

#[derive(Parameters)]
struct Burst {
    /// Pause between bursts; 0 = no bursts.
    #[parameter(default = "0s")]
    sleep_time: Duration,
    /// Length of a burst; has no effect without `burst.sleepTime`.
    #[parameter(default = "1s", greater_than = 0, only_with = "burst.sleepTime")]
    generate_time: Duration,
}

#[derive(Parameters)]
struct CollectionOptions {
    /// Operations of this collection; the default is `operations`.
    operations: Argument<Vec<Operation>>,
    /// Payload: structured (fields), raw (the same fields as JSON text) or file (the content of a file).
    #[parameter(name = "format.type")]
    format: Argument<Option<Payload>>,
    /// With type `file`, the file with the payload; otherwise the type of a field named "path".
    #[parameter(name = "format.options.path")]
    path: Option<Str>,
    /// Type of the field with this name: int (0 to 2^63-1), string (a word), time (now), bool, duration (nanoseconds, 0
    /// to 999 s), float, name, email, city, country, uuid or sentence.
    #[parameter(name = "format.options", one_of = FieldKind::NAMES)]
    fields: BTreeMap<Str, Argument<Str>>,
}

/// Kinds of payloads.
#[derive(Clone, Copy, PartialEq)]
enum Payload {
    Structured,
    Raw,
    File,
}

impl Choice for Payload {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("structured", Payload::Structured), ("raw", Payload::Raw), ("file", Payload::File)];
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
    /// Number of partitions, at least one.
    pub(super) partitions: u64,
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
    pub(super) fn new(options: &Options) -> Result<Settings, Diagnostics> {
        let mut findings = Diagnostics::new();
        let mut rate = *options.rate;
        if rate < 0.0 {
            findings.push(options.rate.invalid(format_args!("{rate} must not be below 0")));
        }
        let read_time = options.read_time.filter(|time| !time.is_zero());
        if let Some(time) = read_time {
            if rate != 0.0 {
                let what = "\"readTime\" and \"rate\" exclude each other; \"readTime\" is deprecated";
                findings.push(options.read_time.finding(codes::SETTINGS_INVALID, what));
            }
            rate = 1.0 / time.as_secs_f64();
        }
        let default = (options.format.is_some() || !options.fields.is_empty()).then_some(Described {
            name: None,
            place: options.format.span(),
            operations: &options.operations,
            format: &options.format,
            path: options.path.as_ref(),
            fields: &options.fields,
        });
        let named = options.collections.iter().map(|(name, own)| Described {
            name: Some(name),
            place: own.operations.span(),
            operations: if own.operations.is_empty() { &options.operations } else { &own.operations },
            format: &own.format,
            path: own.path.as_ref(),
            fields: &own.fields,
        });
        let collections: Vec<Collection> =
            default.into_iter().chain(named).filter_map(|collection| collection.check(&mut findings)).collect();
        if collections.is_empty() && !findings.has_errors() {
            findings.push(
                Diagnostic::error(codes::SETTINGS_REQUIRED, "\"format.type\" is required by generator")
                    .with_span(options.format.span())
                    .with_hint("set format.type, or collections.<name>.format.type for one or more collections"),
            );
        }
        if findings.has_errors() {
            return Err(findings);
        }
        let Burst { sleep_time, generate_time } = options.burst;
        Ok(Settings {
            rate,
            read_time: read_time.is_some(),
            count: Some(options.record_count).filter(|n| *n > 0),
            partitions: options.partitions,
            burst: (!sleep_time.is_zero()).then_some((generate_time, sleep_time)),
            seed: options.seed.map(i64::cast_unsigned),
            collections,
        })
    }
}

/// A collection as it is written.
struct Described<'a> {
    /// `None` for the default collection.
    name: Option<&'a Str>,
    /// Place of a setting.
    place: Span,
    operations: &'a [Operation],
    format: &'a Argument<Option<Payload>>,
    path: Option<&'a Str>,
    /// The types of the fields, and the path.
    fields: &'a BTreeMap<Str, Argument<Str>>,
}

impl Described<'_> {
    /// Builds the collection, or adds findings and returns `None`.
    fn check(self, findings: &mut Diagnostics) -> Option<Collection> {
        let Described { name, place, operations, format, path, fields } = self;
        let type_name = format.name();
        let option_prefix = format!("{}options.", type_name.trim_end_matches("type"));
        let Some(payload) = **format else {
            let finding =
                Diagnostic::error(codes::SETTINGS_REQUIRED, format!("\"{type_name}\" is required by generator"));
            let place = fields.values().next().map_or(place, Argument::span);
            let known: Vec<&str> = Payload::CHOICES.iter().map(|(name, _)| *name).collect();
            findings.push(finding.with_span(place).with_hint(format!("one of {}", known.join(", "))));
            return None;
        };
        let required = |what: &str| {
            Diagnostic::error(codes::SETTINGS_REQUIRED, format!("\"{option_prefix}{what}\" is required by generator"))
                .with_span(format.span())
        };
        let format = match payload {
            Payload::File => {
                for (_, field) in fields.iter().filter(|(option, _)| option.as_str() != "path") {
                    findings.push(field.invalid("a file has no fields"));
                }
                let Some(path) = path else {
                    findings.push(
                        required("path")
                            .with_hint("type \"file\" sends the content of a file: set the path of the file"),
                    );
                    return None;
                };
                Format::File(PathBuf::from(path.as_str()))
            }
            Payload::Structured | Payload::Raw => {
                if fields.is_empty() {
                    let hint = format!("name at least one field, for example {option_prefix}id: int");
                    findings.push(required("<field>").with_hint(hint));
                }
                let fields = typed(fields, findings);
                if payload == Payload::Raw { Format::Raw(fields) } else { Format::Structured(fields) }
            }
        };
        Some(Collection { name: name.cloned(), operations: operations.to_vec(), format })
    }
}

/// Returns the fields whose types are known, and adds findings about the others: a path may be any text.
fn typed(fields: &BTreeMap<Str, Argument<Str>>, findings: &mut Diagnostics) -> Vec<Field> {
    let mut typed = Vec::with_capacity(fields.len());
    for (name, kind) in fields {
        match kind.trim().parse() {
            Ok(kind) => typed.push(Field { name: name.clone(), kind }),
            Err(()) => findings.push(
                kind.invalid(format_args!("{:?} is not one of {}", kind.text(), FieldKind::NAMES.join(", ")))
                    .with_hint("a path is accepted only with type \"file\""),
            ),
        }
    }
    typed
}
