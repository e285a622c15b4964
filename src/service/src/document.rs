//! Conversion of stored pipelines to configuration texts, and of texts to pipelines.

use anabranch_graph::plan::CompileOptions;
use anabranch_plugin::diagnostic::{Diagnostic, Severity};
use anabranch_process::runtime::TEXTS;
use anabranch_record::code::Code;
use anabranch_store::{StoredConnector, StoredPipeline, StoredProcessor, StoredSetting};
use serde_json::{Map, Value, json};

use crate::codes;
use crate::control::{ControlError, Shared};
use crate::pipeline::Pipeline;
use crate::pipeline_table::NextStart;
use crate::pipelines::Pipelines;

/// Codes of findings that a pipeline may have while a client creates it resource by resource.
const INCOMPLETE: &[Code] = &[codes::CONFIG_NO_SOURCE, codes::CONFIG_NO_DESTINATION];

/// A text that was read and compiled.
pub(super) struct Read {
    pub(super) pipelines: Pipelines,
}

impl Read {
    /// Reads and compiles a text on another thread, because loading plugins may take long.
    pub(super) async fn text(
        shared: &Shared,
        options: CompileOptions,
        name: &str,
        text: String,
    ) -> Result<Read, ControlError> {
        let (name, registry) = (name.to_owned(), shared.registry.clone());
        let read = TEXTS.run(move || Pipelines::of_text(&name, text, &registry, &options)).await;
        let pipelines = read.ok_or(ControlError::ServiceStopping)?;
        Ok(Read { pipelines })
    }

    /// Reads and compiles the stored pipeline.
    pub(super) async fn stored(shared: &Shared, pipeline: &StoredPipeline) -> Result<Read, ControlError> {
        Read::text(shared, shared.compile, &pipeline.id, text_of(pipeline)).await
    }

    /// Returns the errors of the resources that exist. An incomplete pipeline does not count as an error.
    pub(super) fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.pipelines
            .findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error && !INCOMPLETE.contains(&finding.code))
    }

    /// Returns the plan of the only pipeline in the text.
    pub(super) fn into_plan(mut self) -> NextStart {
        if let Some(pipeline) = self.pipelines.good.pop() {
            return NextStart::Good(pipeline.into());
        }
        let is_wrong = self.errors().next().is_some();
        let found = self
            .pipelines
            .findings
            .iter()
            .find(|finding| finding.severity == Severity::Error && is_wrong != INCOMPLETE.contains(&finding.code));
        let what = found.map_or("its configuration has errors", |finding| finding.message.as_str()).into();
        if is_wrong { NextStart::Invalid(what) } else { NextStart::Incomplete(what) }
    }

    /// Returns the only pipeline in the text, if it has no errors.
    pub(super) fn into_pipeline(mut self) -> Option<Pipeline> {
        self.pipelines.good.pop()
    }
}

/// Returns the text of a pipeline file. It is JSON, which is valid YAML.
pub fn text_of(pipeline: &StoredPipeline) -> String {
    let queue = &pipeline.dead_letter;
    let mut shown = json!({
        "id": literal(&pipeline.id),
        "name": literal(&pipeline.name),
        "description": literal(&pipeline.description),
        "status": if pipeline.autostart { "running" } else { "stopped" },
        "dead-letter-queue": {
            "plugin": literal(&queue.plugin),
            "settings": settings(&queue.settings),
            "window-size": queue.window_size,
            "window-nack-threshold": queue.window_nack_threshold,
        },
        "connectors": pipeline.connectors.iter().map(connector).collect::<Vec<_>>(),
        "processors": pipeline.processors.iter().map(processor).collect::<Vec<_>>(),
    });
    if let (Some(unmatched), Some(fields)) = (&pipeline.unmatched, shown.as_object_mut()) {
        fields.insert("unmatched".to_owned(), unmatched.as_str().into());
    }
    if let (Some(placement), Some(fields)) = (&pipeline.placement, shown.as_object_mut()) {
        fields.insert("placement".to_owned(), placement.as_str().into());
    }
    json!({ "version": "2.2", "pipelines": [shown] }).to_string()
}

fn connector(connector: &StoredConnector) -> Value {
    let mut shown = json!({
        "id": literal(&connector.id),
        "type": &*connector.role,
        "plugin": literal(&connector.plugin),
        "name": literal(&connector.name),
        "settings": settings(&connector.settings),
        "processors": connector.processors.iter().map(processor).collect::<Vec<_>>(),
    });
    if let (Some(condition), Some(fields)) = (&connector.condition, shown.as_object_mut()) {
        fields.insert("condition".to_owned(), condition.as_str().into());
    }
    shown
}

fn processor(processor: &StoredProcessor) -> Value {
    let mut shown = json!({
        "id": literal(&processor.id),
        "plugin": literal(&processor.plugin),
        "settings": settings(&processor.settings),
        "workers": processor.workers,
    });
    if let (Some(condition), Some(fields)) = (&processor.condition, shown.as_object_mut()) {
        fields.insert("condition".to_owned(), condition.as_str().into());
    }
    shown
}

/// Returns settings as they were written, with `${NAME}`.
fn settings(settings: &[StoredSetting]) -> Map<String, Value> {
    settings.iter().map(|setting| (setting.name.to_string(), Value::from(setting.written.as_str()))).collect()
}

/// Escapes a text whose value is stored, so that no part of it is substituted again.
fn literal(text: &str) -> String {
    text.replace("${", "$${")
}
