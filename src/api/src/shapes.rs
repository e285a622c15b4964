//! The JSON forms of pipelines, connectors and processors. 64-bit numbers are strings, as in the JSON encoding of gRPC,
//! which clients of this API expect.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::status::StatusNow;

/// Settings of a plugin by name, as written in the file; credentials are shown as `***`.
pub(super) type Settings = BTreeMap<String, String>;

/// A pipeline with its status.
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
    /// Processors of the pipeline itself; connectors list their own.
    pub(super) processor_ids: Vec<String>,
    /// True if no file declares it; its stored state is kept.
    pub(super) detached: bool,
    /// Where it is declared: `file`, or `api` if it was created through the API.
    pub(super) origin: &'static str,
    /// When it was first stored; absent if an earlier version stored it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) created_at: Option<String>,
    /// When its configuration last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) updated_at: Option<String>,
}

/// The state of a pipeline.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PipelineState {
    pub(super) status: PipelineStatus,
    /// The error; empty if there is none.
    pub(super) error: String,
    pub(super) stopped_reason: StoppedReason,
    /// The status as a word, which is more specific than `status`.
    pub(super) word: &'static str,
}

/// The values that clients of this API know.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(clippy::enum_variant_names, reason = "as it is written")]
pub(super) enum PipelineStatus {
    StatusRunning,
    StatusStopped,
    StatusDegraded,
    StatusRecovering,
}

/// Origin of a stop.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(clippy::enum_variant_names, reason = "as it is written")]
pub(super) enum StoppedReason {
    StoppedReasonUnspecified,
    /// Its file or a user: it stays stopped.
    StoppedReasonUser,
    /// The service ended: it starts with the service.
    StoppedReasonSystem,
}

/// Name, description and routing of a pipeline.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PipelineConfig {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: String,
    /// What becomes of records that fulfil the condition of no destination: `drop` (default), `dead-letter`, `fail`, or
    /// the id of a destination. In a request, absent means that it stays, and an empty text removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unmatched: Option<String>,
    /// Which nodes of a cluster may run the pipeline: those with this label, or `shared`. In a request, absent means that it
    /// stays, and an empty text removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) placement: Option<String>,
}

/// The dead-letter queue of a pipeline.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({
    "plugin": "builtin:log", "settings": { "level": "warn" }, "windowSize": "1", "windowNackThreshold": "0",
}))]
pub(super) struct DeadLetterQueue {
    /// The destination plugin.
    pub(super) plugin: String,
    pub(super) settings: BTreeMap<String, String>,
    /// Number of records over which failures are counted; 0 turns the count off.
    pub(super) window_size: String,
    /// Number of failures within the window that the pipeline tolerates.
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
    /// Only for a source with delivered records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source_state: Option<SourceState>,
    /// Only for a destination with delivered records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) destination_state: Option<DestinationState>,
}

/// The position of a source.
#[derive(Serialize, ToSchema)]
pub(super) struct SourceState {
    /// The position after which it resumes, in base64. For a source with several partitions this is the first one;
    /// `/v1/pipelines/{id}/positions` has all.
    pub(super) position: String,
}

/// The delivered positions.
#[derive(Serialize, ToSchema)]
pub(super) struct DestinationState {
    /// Position of the last delivered record per source, in base64.
    pub(super) positions: BTreeMap<String, String>,
}

/// The role of a connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum ConnectorType {
    TypeSource,
    TypeDestination,
}

/// The configuration of a connector.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ConnectorConfig {
    #[serde(default)]
    pub(super) name: String,
    /// Condition on the records that the destination receives. In a request, absent means that it stays, and an empty
    /// text removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) condition: Option<String>,
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
    /// Condition on records; empty: all records.
    pub(super) condition: String,
    pub(super) parent: ProcessorParent,
    pub(super) config: ProcessorConfig,
}

/// The parent of a processor.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessorParent {
    #[serde(rename = "type")]
    pub(super) kind: ParentType,
    pub(super) id: String,
}

/// The kind of a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum ParentType {
    TypePipeline,
    TypeConnector,
}

/// The configuration of a processor.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessorConfig {
    #[serde(default)]
    pub(super) settings: BTreeMap<String, String>,
    /// Number of parallel workers.
    #[serde(default)]
    pub(super) workers: String,
}
