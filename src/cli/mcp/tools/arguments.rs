//! Arguments of the tools. Their schemas are generated from these types.

use serde::Deserialize;
use utoipa::ToSchema;

/// A pipeline as text.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Text {
    /// The text of a pipeline file, in YAML.
    pub(super) config: String,
    /// Treat warnings as errors.
    #[serde(default)]
    pub(super) strict: bool,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Plan {
    /// The text of a pipeline file, in YAML. Give this or `id`.
    pub(super) config: Option<String>,
    /// Id of a pipeline in the service's directory. Give this or `config`.
    pub(super) id: Option<String>,
    /// `lowered` is the pipeline as written, `rewritten` is after all rewrites, `fused` (the default) shows the stages
    /// that run.
    #[schema(pattern = "^(lowered|rewritten|fused)$")]
    pub(super) stage: Option<String>,
    /// Treat warnings as errors.
    #[serde(default)]
    pub(super) strict: bool,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct DryRun {
    /// The text of a pipeline file, in YAML. Give this or `id`.
    pub(super) config: Option<String>,
    /// Id of a pipeline in the service's directory. Give this or `config`.
    pub(super) id: Option<String>,
    /// Maximum number of records of each source. Default: 5.
    #[schema(minimum = 1, maximum = 100)]
    pub(super) records: Option<u32>,
    /// How long to wait for records. Default: 5.
    #[schema(minimum = 1, maximum = 20)]
    pub(super) timeout_seconds: Option<u32>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Trial {
    /// The text of a pipeline file, in YAML.
    pub(super) config: String,
    /// The text of a test file, in YAML.
    pub(super) tests: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Plugin {
    /// Name of the plugin, as pipelines write it. Default: list all.
    pub(super) name: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Code {
    /// An error code, for example `pipeline.not_found`.
    pub(super) code: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Id {
    /// Id of the pipeline.
    pub(super) id: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Inspect {
    /// Id of the pipeline.
    pub(super) id: String,
    /// Id of the connector or processor to inspect. Default: the records that the sources read.
    pub(super) at: Option<String>,
    /// `before` or `after` that node.
    #[schema(pattern = "^(before|after)$")]
    pub(super) side: Option<String>,
    /// Only records for which this condition holds: `{{ gt .Payload.After.amount 10 }}`.
    pub(super) r#where: Option<String>,
    /// Number of records. Default: 10.
    #[schema(minimum = 1, maximum = 100)]
    pub(super) records: Option<u32>,
    /// How long to wait for records. Default: 5.
    #[schema(minimum = 1, maximum = 20)]
    pub(super) timeout_seconds: Option<u32>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Letters {
    /// Id of the pipeline.
    pub(super) id: String,
    /// Maximum number of dead letters, newest first. Default: 20.
    #[schema(minimum = 1, maximum = 100)]
    pub(super) limit: Option<u32>,
    /// Only dead letters with a smaller number.
    pub(super) before: Option<u64>,
    /// Only records for which this condition holds.
    pub(super) r#where: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Letter {
    /// Id of the pipeline.
    pub(super) id: String,
    /// Number of the dead letter.
    pub(super) number: u64,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Apply {
    /// The text of a pipeline file, in YAML.
    pub(super) config: String,
    /// The hash that apply_preview returned. It makes sure that the pipeline is applied as shown.
    pub(super) hash: String,
    /// Treat warnings as errors.
    #[serde(default)]
    pub(super) strict: bool,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Stop {
    /// Id of the pipeline.
    pub(super) id: String,
    /// Drop records in flight instead of delivering them. They are read again at the next start.
    #[serde(default)]
    pub(super) force: bool,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Replay {
    /// Id of the pipeline.
    pub(super) id: String,
    /// Numbers of dead letters. Give this or `all`.
    pub(super) numbers: Option<Vec<u64>>,
    /// Replay all dead letters.
    #[serde(default)]
    pub(super) all: bool,
    /// Where records enter the pipeline: `step` (the default) where they failed, `start` at its beginning.
    #[schema(pattern = "^(step|start)$")]
    pub(super) from: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Purge {
    /// Id of the pipeline.
    pub(super) id: String,
    /// Numbers of dead letters. Give this or `all`.
    pub(super) numbers: Option<Vec<u64>>,
    /// Purge all dead letters.
    #[serde(default)]
    pub(super) all: bool,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Backfill {
    /// Id of the pipeline.
    pub(super) id: String,
    /// Id of the source.
    pub(super) connector: String,
    /// The table, as table or schema.table.
    pub(super) table: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Reset {
    /// Id of the pipeline.
    pub(super) id: String,
    /// Only this source.
    pub(super) connector: Option<String>,
    /// Reset the positions. Without it, the answer only says what would change.
    #[serde(default)]
    pub(super) yes: bool,
}
