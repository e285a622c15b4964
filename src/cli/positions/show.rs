//! `anabranch positions show`.

use comfy_table::{Table, presets};
use serde_json::json;

use super::{Opened, named, shown, unreadable};
use crate::cli::{Context, Report};
use crate::settings::SettingFlags;

/// Show where the sources of pipelines go on.
///
/// Shows for every source, and every partition of it, how many records are delivered and acknowledged, and the
/// position of the last of them in the form of its source (bytes that are no text as base64). A generation begins when
/// the position is reset or rewound. The store is used by one process: while the service runs, this is refused.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// Id of a pipeline. Default: all
    pipeline: Option<String>,
    #[command(flatten)]
    settings: SettingFlags<false>,
}

pub(super) fn show(arguments: &Arguments, context: &Context) -> Report {
    match try_show(arguments, context) {
        Ok(report) => report,
        Err(report) => *report,
    }
}

fn try_show(arguments: &Arguments, context: &Context) -> Result<Report, Box<Report>> {
    const COMMAND: &str = "positions.show";
    let settings = context.settings(COMMAND, &arguments.settings)?;
    let opened = Opened::open(COMMAND, &settings.database)?;
    let failed = |error| Box::new(unreadable(COMMAND, &error));
    let pipelines = opened.pipelines().map_err(failed)?;
    let chosen = match &arguments.pipeline {
        Some(id) => std::slice::from_ref(named(COMMAND, &pipelines, id)?),
        None => &pipelines[..],
    };
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "PIPELINE",
        "SOURCE",
        "PARTITION",
        "GENERATION",
        "RECORDS",
        "POSITION",
    ]);
    let mut lanes = Vec::new();
    for pipeline in chosen {
        for (lane, mark) in opened.positions(&pipeline.id).map_err(failed)? {
            let partition = lane.partition.0.as_str();
            let position = shown(&mark.position);
            table.add_row([
                pipeline.id.as_str(),
                lane.connector.as_str(),
                if partition.is_empty() { "-" } else { partition },
                &mark.generation.to_string(),
                &mark.seq.to_string(),
                &position,
            ]);
            lanes.push(json!({
                "pipeline": pipeline.id.as_str(), "connector": lane.connector.as_str(), "partition": partition,
                "generation": mark.generation, "records": mark.seq, "position": position,
            }));
        }
    }
    let text = if lanes.is_empty() {
        "No position is stored yet: every source starts at its beginning.\n".to_owned()
    } else {
        format!("{}\n", table.trim_fmt())
    };
    Ok(Report::new(COMMAND)
        .text(text)
        .summary(json!({ "positions": lanes.len() }))
        .result(json!({ "positions": lanes })))
}
