//! `anabranch connectors discover`.

use std::fmt::Write as _;

use anabranch_graph::plan::stage::StageKind;
use anabranch_plugin::source::{OfferedStream, Source};
use anabranch_process::files::system;
use anabranch_process::log::{Log, Output};
use anabranch_process::runtime;
use anabranch_record::text::Str;
use anabranch_service::pipelines::Pipeline;
use anabranch_settings::SettingFlags;
use serde_json::{Value, json};
use tokio::runtime::Builder;

use crate::cli::pipelines::{ChosenPipelines, NoRunnablePipeline};
use crate::cli::plugins::listing;
use crate::cli::{Context, Exit, Report, completions};
use crate::codes;

/// Show the streams that the sources of pipelines can read.
///
/// Asks the external systems of sources that name their streams, such as `singer`. For each stream, shows whether the
/// settings select it, its key, and how it is read. Reads no record and changes nothing.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// A pipeline file, or the id of a pipeline in `pipelines.path`. Default: all pipelines.
    #[arg(value_name = "FILE|ID", add = completions::files_or_pipelines())]
    which: Option<String>,
    /// Ask only the sources with this id. Can be repeated.
    #[arg(long = "connector", value_name = "ID")]
    connectors: Vec<String>,
    #[command(flatten)]
    settings: SettingFlags<false>,
}

const COMMAND: &str = "connectors.discover";

const REFUSAL: NoRunnablePipeline =
    NoRunnablePipeline { command: COMMAND, invalid: "the sources of a pipeline that has errors cannot be asked" };

pub(super) fn discover(arguments: &Arguments, context: &Context) -> Report {
    let settings = match context.settings(COMMAND, &arguments.settings) {
        Ok(settings) => settings,
        Err(report) => return *report,
    };
    let chosen = ChosenPipelines::load(arguments.which.as_deref(), &settings);
    let good = match chosen.good(&REFUSAL, context) {
        Ok(good) => good,
        Err(report) => return *report,
    };
    let failed =
        |error: &std::io::Error| Report::new(COMMAND).fail(Exit::Environment, codes::CLI_SYSTEM, system(error));
    let log = match Output::standard_error() {
        Ok(output) => Log::new(settings.log, output),
        Err(error) => return failed(&error),
    };
    let _installed = log.install();
    log.mask(good.iter().flat_map(|pipeline| pipeline.compiled.secrets.iter().cloned()));
    let runtime = match runtime::start(&mut Builder::new_current_thread()) {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let (mut text, mut result) = (String::new(), Vec::new());
    for (id, source) in good.iter().flat_map(|pipeline| sources(pipeline, &arguments.connectors)) {
        match runtime.block_on(source.discover()) {
            Ok(None) => {}
            Ok(Some(streams)) => {
                let _ = write!(text, "{}{id}\n{}\n", if text.is_empty() { "" } else { "\n" }, table(&streams, context));
                result.push(
                    json!({ "connector": id.as_str(), "streams": streams.iter().map(shown).collect::<Vec<_>>() }),
                );
            }
            Err(fault) => {
                let message = log.masked(&format!("{id}: {}", fault.message()));
                let report = Report::new(COMMAND).fail(Exit::Environment, fault.code(), message);
                return report.suggest(fault.code().remedy());
            }
        }
    }
    if result.is_empty() {
        let message = "no source that was asked names its streams";
        let report = Report::new(COMMAND).fail(Exit::Invalid, codes::CONNECTORS_NOTHING_TO_DISCOVER, message);
        return report.suggest(codes::CONNECTORS_NOTHING_TO_DISCOVER.remedy());
    }
    let count = result.len();
    Report::new(COMMAND).text(text).summary(json!({ "sources": count })).result(json!({ "sources": result }))
}

/// Returns the sources of a pipeline with their ids, as `pipeline:connector`.
fn sources<'p>(
    pipeline: &'p Pipeline,
    wanted: &'p [String],
) -> impl Iterator<Item = (Str, std::sync::Arc<dyn Source>)> + use<'p> {
    let plan = &pipeline.compiled.stages;
    plan.stages.iter().filter_map(move |stage| match &stage.kind {
        StageKind::Read(read) if wanted.is_empty() || wanted.iter().any(|id| read.connector == **id) => {
            Some((format!("{}:{}", plan.pipeline, read.connector).into(), read.source.clone()))
        }
        _ => None,
    })
}

fn table(streams: &[OfferedStream], context: &Context) -> String {
    let mut table = listing(context);
    table.set_header(["STREAM", "NAME", "SELECTED", "KEY", "METHOD", "REPLICATION KEY"]);
    for stream in streams {
        let of = |text: &Option<Str>| text.as_deref().unwrap_or("-").to_owned();
        let key = if stream.key.is_empty() { "-".to_owned() } else { stream.key.join(", ") };
        let selected = if stream.is_selected { "yes" } else { "no" };
        table.add_row([
            stream.id.as_str(),
            &stream.name,
            selected,
            &key,
            &of(&stream.replication_method),
            &of(&stream.replication_key),
        ]);
    }
    table.trim_fmt()
}

fn shown(stream: &OfferedStream) -> Value {
    let texts = |texts: &[Str]| json!(texts.iter().map(Str::as_str).collect::<Vec<_>>());
    json!({
        "id": stream.id.as_str(),
        "name": stream.name.as_str(),
        "selected": stream.is_selected,
        "key": texts(&stream.key),
        "replicationMethod": stream.replication_method.as_deref(),
        "replicationKey": stream.replication_key.as_deref(),
        "replicationKeys": texts(&stream.replication_keys),
        "properties": texts(&stream.properties),
    })
}
