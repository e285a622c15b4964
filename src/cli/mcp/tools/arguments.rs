//! What assistants give to tools. The types are also the schemas of that.

use serde::Deserialize;
use utoipa::ToSchema;

/// A pipeline that is given as text.
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
    /// Id of a pipeline of the service's directory. Give this or `config`.
    pub(super) id: Option<String>,
    /// `lowered` is what the file says, `rewritten` is after all rewrites, `fused` (which is meant if nothing is said) are
    /// the stages that run.
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
    /// Id of a pipeline of the service's directory. Give this or `config`.
    pub(super) id: Option<String>,
    /// Most records of each source; 5 if nothing is said.
    #[schema(minimum = 1, maximum = 100)]
    pub(super) records: Option<u32>,
    /// How long to wait for them; 5 if nothing is said.
    #[schema(minimum = 1, maximum = 20)]
    pub(super) timeout_seconds: Option<u32>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Trial {
    /// The text of a pipeline file, in YAML.
    pub(super) config: String,
    /// The text of a file of tests, in YAML.
    pub(super) tests: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Plugin {
    /// The plugin, as pipelines name it; without it, all are listed.
    pub(super) name: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Code {
    /// The code of an error, as `pipeline.not_found`.
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
    /// Id of the connector or processor to look at; without it, what the sources read.
    pub(super) at: Option<String>,
    /// `before` or `after` that node.
    #[schema(pattern = "^(before|after)$")]
    pub(super) side: Option<String>,
    /// Only records that this condition holds for: `{{ gt .Payload.After.amount 10 }}`.
    pub(super) r#where: Option<String>,
    /// How many records; 10 if nothing is said.
    #[schema(minimum = 1, maximum = 100)]
    pub(super) records: Option<u32>,
    /// How long to wait for them; 5 if nothing is said.
    #[schema(minimum = 1, maximum = 20)]
    pub(super) timeout_seconds: Option<u32>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Letters {
    /// Id of the pipeline.
    pub(super) id: String,
    /// How many, the newest first; 20 if nothing is said.
    #[schema(minimum = 1, maximum = 100)]
    pub(super) limit: Option<u32>,
    /// Only those with a smaller number.
    pub(super) before: Option<u64>,
    /// Only those that this condition holds for.
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
    /// The hash that apply_preview gave: what is applied is what was shown.
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
    /// Drop what is on its way instead of delivering it; it is read again at the next start.
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
    /// Replay all of them.
    #[serde(default)]
    pub(super) all: bool,
    /// `step` (which is meant if nothing is said) is where it failed, `start` is the beginning of the pipeline.
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
    /// Remove all of them.
    #[serde(default)]
    pub(super) all: bool,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Reset {
    /// Id of the pipeline.
    pub(super) id: String,
    /// Only this source.
    pub(super) connector: Option<String>,
    /// Do it; otherwise it is only said what would be done.
    #[serde(default)]
    pub(super) yes: bool,
}
