//! `anabranch pipelines schema`.

use anabranch_config::json_schema;
use anabranch_settings::SettingFlags;

use crate::cli::{Context, Report, registry_with};

/// Print the JSON Schema of pipeline files, for editors.
///
/// With the schema, an editor completes names of fields, plugins and settings, shows their meaning, and marks mistakes
/// while you type. The schema covers the plugins of this program, and those in the directories of connectors and
/// processors. Save it next to the pipelines and name it in the first line of a file:
/// `# yaml-language-server: $schema=pipelines.schema.json`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  anabranch pipelines schema > pipelines.schema.json")]
pub(in crate::cli) struct Arguments {
    #[command(flatten)]
    settings: SettingFlags<false>,
}

const COMMAND: &str = "pipelines.schema";

pub(super) fn schema(arguments: &Arguments, context: &Context) -> Report {
    let settings = match context.settings(COMMAND, &arguments.settings) {
        Ok(settings) => settings,
        Err(report) => return *report,
    };
    let schema = json_schema(&registry_with(&settings));
    Report::new(COMMAND).text(format!("{schema:#}\n")).result(schema)
}
