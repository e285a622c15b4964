//! `anabranch pipelines backfill`: has a source of a running pipeline read records again.

use anabranch_settings::ServiceFlags;
use serde_json::{Value, json};

use crate::cli::completions;
use crate::cli::remote::Remote;
use crate::cli::{Context, Report};
use crate::client::escaped;

const COMMAND: &str = "pipelines.backfill";

/// Read all rows of a table again while the pipeline runs.
///
/// The source reads the rows beside the changes: no change waits for more than a part of them, and no older value follows a
/// newer one. The command returns when the source has stored the request; the source carries it out even if the service
/// ends meanwhile. `anabranch top` and `pipelines describe` show how many rows are left. Sources of the plugin postgres
/// support this.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// Id of the pipeline.
    #[arg(value_name = "PIPELINE", add = completions::pipelines())]
    id: String,
    /// Id of the source.
    #[arg(value_name = "CONNECTOR")]
    connector: String,
    /// The table, as table (in the schema public) or schema.table.
    #[arg(long, value_name = "TABLE", required = true)]
    table: Vec<String>,
    #[command(flatten)]
    settings: ServiceFlags,
}

pub(super) fn backfill(arguments: &Arguments, context: &Context) -> Report {
    requested(arguments, context).unwrap_or_else(|report| *report)
}

fn requested(arguments: &Arguments, context: &Context) -> Result<Report, Box<Report>> {
    let Arguments { id, connector, table, settings } = arguments;
    let settings = context.settings(COMMAND, &settings.0)?;
    let remote = Remote::of(COMMAND, &settings)?;
    let mut text = String::new();
    for part in table {
        let body = json!({ "connector": connector, "part": part });
        let _: Value = remote
            .post(&format!("/v1/pipelines/{}/backfill", escaped(id)), &body)
            .map_err(|report| Box::new(report.text(std::mem::take(&mut text))))?;
        text += &format!("{connector} of {id} reads the rows of {part} again.\n");
    }
    Ok(Report::new(COMMAND).text(text).result(json!({ "id": id, "connector": connector, "tables": table })))
}
