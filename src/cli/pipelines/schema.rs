//! `anabranch pipelines schema`.

use anabranch_graph::config::json_schema;

use crate::cli::{Report, registry};

/// Print the JSON Schema of pipeline files, for editors.
///
/// With it an editor completes names of fields, plugins and settings, shows what they mean, and marks mistakes
/// while they are typed. It describes the plugins of this program. Save it beside the pipelines and name it in the
/// first line of a file: `# yaml-language-server: $schema=pipelines.schema.json`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  anabranch pipelines schema > pipelines.schema.json")]
pub(in crate::cli) struct Arguments {}

pub(super) fn schema(_: &Arguments) -> Report {
    let schema = json_schema(&registry());
    Report::new("pipelines.schema").text(format!("{schema:#}\n")).result(schema)
}
