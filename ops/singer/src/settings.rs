//! Settings of the source.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::parameters::shared::{Inference, SourceBatching};
use anabranch_plugin::parameters::{Argument, ByteSize, Parameters, declared};
use anabranch_plugin::secret::forms;
use anabranch_plugin::specification::Specification;
use anabranch_record::Operation;
use anabranch_record::text::Str;

use crate::catalog::{ReplicationMethod, StoredCatalog, StreamSelection};
use crate::config::{ConfigMembers, TapConfig};
use crate::decoder::{OnVersion, RecordRules};
use crate::tap::{CatalogArgument, Tap};

/// Returns the specification of the source.
pub(crate) fn specification() -> Specification {
    Specification::builtin("singer", "Runs a Singer tap, and reads the records that it writes.")
        .describe(include_str!("description.md"))
        .with_all(declared::<SourceBatching>())
}

#[derive(Parameters)]
pub(crate) struct SingerOptions {
    /// Program of the tap: a path, or a name that is looked up in PATH.
    #[parameter(example = "tap-github")]
    command: Argument<Str>,
    /// Arguments of the program before those of the Singer protocol, separated by spaces. Quotes work as in a shell.
    arguments: Argument<Option<Str>>,
    /// Working directory of the tap. By default, that of the service.
    directory: Option<PathBuf>,
    /// Environment variable of the tap, in addition to those of the service. The variables ANABRANCH_* of the service are
    /// not passed on. A variable whose name is that of a credential, such as `environment.API_TOKEN`, is secret.
    environment: BTreeMap<Str, Argument<Str>>,
    /// Configuration of the tap as JSON text.
    #[parameter(secret)]
    config: Argument<Option<Str>>,
    #[parameter(flatten)]
    members: ConfigMembers,
    /// Catalogue of the tap: JSON text, or the path of a file. By default, the tap is asked for it with --discover before
    /// each sync.
    catalog: Argument<Option<Str>>,
    /// How the tap gets the catalogue: catalog (with --catalog), properties (with --properties, for old taps), or none (the
    /// tap has no catalogue).
    #[parameter(name = "catalog.argument", default = "catalog")]
    catalog_argument: CatalogArgument,
    /// Names or ids of the streams to read. A star stands for any text. By default, all streams that the tap discovers, or
    /// the streams that the given catalogue selects.
    #[parameter(example = "*")]
    streams: Argument<Vec<Str>>,
    /// Replication method of a stream, by its name or id: FULL_TABLE, INCREMENTAL or LOG_BASED.
    replication_method: BTreeMap<Str, ReplicationMethod>,
    /// Property by which a stream is read incrementally, by the name or id of the stream.
    replication_key: BTreeMap<Str, Str>,
    /// Time from the end of a sync to the start of the next.
    #[parameter(name = "schedule.interval", default = "5m")]
    interval: Duration,
    /// Time after which a tap that was asked to end is killed.
    #[parameter(default = "10s")]
    stop_timeout: Duration,
    /// Maximum time until the tap has discovered its streams.
    #[parameter(default = "5m", greater_than = 0)]
    discover_timeout: Duration,
    /// Maximum size of a message. A longer record goes to the dead-letter queue without its data.
    #[parameter(default = "16MiB", greater_than = 0)]
    max_message_bytes: ByteSize,
    /// Operation of records: create, update or snapshot. A tap does not say whether a record is new.
    #[parameter(default = "create", none_of = ["delete"])]
    operation: Operation,
    /// Name of a property with the time of a deletion, such as `_sdc_deleted_at`. A record that has it, and a key, gets the
    /// operation delete.
    deleted_at: Option<Str>,
    /// Reaction if the tap says that records of earlier versions of a stream are not valid any more (ACTIVATE_VERSION):
    /// ignore (they stay at the destination) or fail (the pipeline stops).
    #[parameter(default = "ignore")]
    activate_version: OnVersion,
    /// Give records Avro schemas with the types that the tap declares.
    #[parameter(name = "schemas", default = true)]
    has_schemas: bool,
    #[parameter(flatten)]
    inference: Inference,
}

/// The source as it is configured.
pub(crate) struct SingerSettings {
    pub(crate) tap: Tap,
    pub(crate) decoding: RecordRules,
    pub(crate) interval: Duration,
    pub(crate) has_schemas: bool,
    /// Name of the schema context; `None` = the ids of pipeline and connector, blank = there is no context.
    pub(crate) context: Option<Str>,
}

/// Checks the settings. Opens nothing.
pub(crate) fn configure(
    options: SingerOptions,
    supervisor: Option<Arc<[OsString]>>,
) -> Result<SingerSettings, Diagnostics> {
    let mut findings = Diagnostics::new();
    let arguments = options.arguments.as_ref().map_or("", Str::as_str);
    let arguments = shlex::split(arguments).unwrap_or_else(|| {
        findings.push(options.arguments.invalid("a quote is not closed"));
        Vec::new()
    });
    for (name, value) in &options.environment {
        if name.contains(['=', '\0']) {
            findings.push(value.invalid("the name of an environment variable must not contain `=` or NUL"));
        } else if value.text().contains('\0') {
            findings.push(value.invalid("the value of an environment variable must not contain NUL"));
        }
    }
    let of_environment = options.environment.values().flat_map(Argument::secrets);
    let secrets: Vec<Str> = of_environment.chain(options.arguments.secrets()).collect();
    let mut noted = |found: Diagnostics| findings.0.extend(found);
    let config = TapConfig::new(&options.config, &options.members.members).map_err(&mut noted).ok();
    let catalog = match &*options.catalog {
        Some(given) => StoredCatalog::new(given).map_err(|why| noted(options.catalog.invalid(why).into())).ok(),
        None => Some(StoredCatalog::Discovered),
    };
    let selection = StreamSelection {
        streams: options.streams.is_given().then(|| options.streams.to_vec()),
        methods: options.replication_method,
        keys: options.replication_key,
    };
    if options.catalog_argument == CatalogArgument::None && !(selection.is_empty() && options.catalog.is_none()) {
        let why = "the tap has no catalogue (catalog.argument: none), so that nothing in it can be chosen";
        let chosen = options.streams.is_given().then(|| options.streams.invalid(why));
        noted(chosen.unwrap_or_else(|| options.catalog.invalid(why)).into());
    }
    let inference = options.inference;
    let context = match inference.context.as_ref() {
        _ if !inference.has_context => Some(Str::default()),
        Some(name) => Some(name.clone()),
        None if inference.context.is_given() => Some(Str::default()),
        None => None,
    };
    let (Some(config), Some(catalog), false) = (config, catalog, findings.has_errors()) else { return Err(findings) };
    let tap = Tap {
        supervisor,
        program: options.command.into_value(),
        arguments,
        directory: options.directory,
        environment: options.environment.into_iter().map(|(name, value)| (name, value.into_value())).collect(),
        secrets: forms(secrets.into_iter().chain(config.secrets().iter().cloned())),
        config,
        catalog,
        catalog_argument: options.catalog_argument,
        selection,
        stop_timeout: options.stop_timeout,
        discover_timeout: options.discover_timeout,
        message_limit: options.max_message_bytes.to_usize(),
    };
    let decoding = RecordRules {
        operation: options.operation,
        deleted_at: options.deleted_at,
        on_version: options.activate_version,
    };
    Ok(SingerSettings { tap, decoding, interval: options.interval, has_schemas: options.has_schemas, context })
}
