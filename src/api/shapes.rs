//! Pipelines, connectors and processors as the API writes and reads them. 64-bit numbers are texts here, as clients of
//! this kind of service expect.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::status::StatusNow;

/// Settings of a plugin by name, as they stand in the file; credentials that stand there are shown as `***`.
pub(super) type Settings = BTreeMap<String, String>;

/// A pipeline, and how it is.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({
    "id": "orders",
    "state": {
        "status": "STATUS_RUNNING", "error": "", "stoppedReason": "STOPPED_REASON_UNSPECIFIED", "word": "running",
    },
    "config": { "name": "orders", "description": "" },
    "status": { "word": "running", "since": "2026-01-31T12:00:00.000Z", "run": 1 },
    "connectorIds": ["orders:in", "orders:out"], "processorIds": ["orders:decode"], "detached": false,
    "origin": "file", "createdAt": "2026-01-31T12:00:00.000Z", "updatedAt": "2026-01-31T12:00:00.000Z",
}))]
pub(super) struct Pipeline {
    pub(super) id: String,
    pub(super) state: PipelineState,
    pub(super) status: StatusNow,
    pub(super) config: PipelineConfig,
    pub(super) connector_ids: Vec<String>,
    /// Of the pipeline itself; those of its connectors are listed there.
    pub(super) processor_ids: Vec<String>,
    /// Whether it is no longer in any file; what is stored of it is kept.
    pub(super) detached: bool,
    /// Who declares it: `file`, or `api` where it was made while the service ran.
    pub(super) origin: &'static str,
    /// When the store first knew it; old stores do not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) created_at: Option<String>,
    /// When its configuration last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) updated_at: Option<String>,
}

/// How a pipeline is.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PipelineState {
    pub(super) status: PipelineStatus,
    /// What went wrong; empty where nothing did.
    pub(super) error: String,
    pub(super) stopped_reason: StoppedReason,
    /// The state in a word, which tells more than `status`.
    pub(super) word: &'static str,
}

/// The five that clients of this kind of service know.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(clippy::enum_variant_names, reason = "as it is written")]
pub(super) enum PipelineStatus {
    StatusRunning,
    StatusStopped,
    StatusDegraded,
    StatusRecovering,
}

/// Who stopped it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(clippy::enum_variant_names, reason = "as it is written")]
pub(super) enum StoppedReason {
    StoppedReasonUnspecified,
    /// Its file, or somebody who asked for it: it stays stopped.
    StoppedReasonUser,
    /// The service ended: it starts with the service.
    StoppedReasonSystem,
}

/// What people call a pipeline.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PipelineConfig {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: String,
}

/// Where the records of a pipeline go that failed.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({
    "plugin": "builtin:log", "settings": { "level": "warn" }, "windowSize": "1", "windowNackThreshold": "0",
}))]
pub(super) struct DeadLetterQueue {
    /// The plugin of its destination.
    pub(super) plugin: String,
    pub(super) settings: BTreeMap<String, String>,
    /// Over how many records failures are counted; 0: they are not.
    pub(super) window_size: String,
    /// How many of them may fail until the pipeline does.
    pub(super) window_nack_threshold: String,
}

/// A source or a destination of a pipeline.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({
    "id": "orders:in", "type": "TYPE_SOURCE", "plugin": "file", "pipelineId": "orders", "processorIds": [],
    "config": { "name": "in", "settings": { "path": "orders.txt" } },
}))]
pub(super) struct Connector {
    /// `pipeline:connector`
    pub(super) id: String,
    #[serde(rename = "type")]
    pub(super) role: ConnectorType,
    pub(super) plugin: String,
    pub(super) pipeline_id: String,
    pub(super) processor_ids: Vec<String>,
    pub(super) config: ConnectorConfig,
    /// Of a source from which something was delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source_state: Option<SourceState>,
    /// Of a destination to which something was delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) destination_state: Option<DestinationState>,
}

/// How far a source is.
#[derive(Serialize, ToSchema)]
pub(super) struct SourceState {
    /// Where it goes on after, in base64. Of a source with several partitions that of the first;
    /// `/v1/pipelines/{id}/positions` has them all.
    pub(super) position: String,
}

/// What was delivered.
#[derive(Serialize, ToSchema)]
pub(super) struct DestinationState {
    /// Of each source the position of the last record, in base64.
    pub(super) positions: BTreeMap<String, String>,
}

/// Which end of a pipeline a connector is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum ConnectorType {
    TypeSource,
    TypeDestination,
}

/// What is set of a connector.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ConnectorConfig {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) settings: BTreeMap<String, String>,
}

/// A processor of a pipeline or of a connector.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "id": "orders:decode", "plugin": "json.decode", "condition": "",
    "parent": { "type": "TYPE_PIPELINE", "id": "orders" },
    "config": { "settings": { "field": ".Payload.After" }, "workers": "1" },
}))]
pub(super) struct Processor {
    /// `pipeline:processor`, or `pipeline:connector:processor`
    pub(super) id: String,
    pub(super) plugin: String,
    /// For which records it is; empty: for all.
    pub(super) condition: String,
    pub(super) parent: ProcessorParent,
    pub(super) config: ProcessorConfig,
}

/// Where a processor stands.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessorParent {
    #[serde(rename = "type")]
    pub(super) kind: ParentType,
    pub(super) id: String,
}

/// What a processor stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum ParentType {
    TypePipeline,
    TypeConnector,
}

/// What is set of a processor.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessorConfig {
    #[serde(default)]
    pub(super) settings: BTreeMap<String, String>,
    /// How many run in parallel.
    #[serde(default)]
    pub(super) workers: String,
}
