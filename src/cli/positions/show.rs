//! `anabranch positions show`.

use anabranch_record::text::Str;
use anabranch_settings::{ServiceFlags, Settings};

use comfy_table::{Table, presets};
use serde_json::json;

use super::{LanePosition, OpenStore, named, of_service, unreadable};
use crate::cli::completions;
use crate::cli::remote::Remote;
use crate::cli::{Context, Report};

/// Show the positions of sources.
///
/// Shows for every source, and each of its partitions, how many records are delivered and acknowledged, and the
/// position of the last of them in the form of its source (bytes that are not text as base64). A generation begins when
/// the position is reset or rewound. Uses the running service; if none answers, and neither a flag nor a variable gives
/// an address, the command reads the store.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// Id of a pipeline. Default: all
    #[arg(add = completions::pipelines())]
    pipeline: Option<String>,
    #[command(flatten)]
    settings: ServiceFlags,
}

pub(super) fn show(arguments: &Arguments, context: &Context) -> Report {
    match try_show(arguments, context) {
        Ok(report) => report,
        Err(report) => *report,
    }
}

fn try_show(arguments: &Arguments, context: &Context) -> Result<Report, Box<Report>> {
    const COMMAND: &str = "positions.show";
    let settings = context.settings(COMMAND, &arguments.settings.0)?;
    let asked = arguments.pipeline.as_deref();
    let lanes = match Remote::find(COMMAND, &settings)? {
        Some(remote) => of_service(&remote, asked)?,
        None => of_store(COMMAND, &settings, asked)?,
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
    for lane in &lanes {
        table.add_row([
            lane.pipeline.as_str(),
            &lane.connector,
            if lane.partition.is_empty() { "-" } else { &lane.partition },
            &lane.generation.to_string(),
            &lane.records.to_string(),
            &lane.position,
        ]);
    }
    let text = if lanes.is_empty() {
        "No position is stored yet: every source starts from its beginning.\n".to_owned()
    } else {
        format!("{}\n", table.trim_fmt())
    };
    Ok(Report::new(COMMAND)
        .text(text)
        .summary(json!({ "positions": lanes.len() }))
        .result(json!({ "positions": lanes.iter().map(LanePosition::shown).collect::<Vec<_>>() })))
}

pub(super) fn of_store(
    command: &'static str,
    settings: &Settings,
    asked: Option<&str>,
) -> Result<Vec<LanePosition>, Box<Report>> {
    let opened = OpenStore::open(command, &settings.database)?;
    let failed = |error| Box::new(unreadable(command, &error));
    let pipelines = opened.pipelines().map_err(failed)?;
    let chosen = match asked {
        Some(id) => vec![Str::from(id)],
        None => pipelines.iter().map(|pipeline| pipeline.id.clone()).collect(),
    };
    let mut lanes = Vec::new();
    for id in &chosen {
        let found = opened.positions(id).map_err(failed)?;
        lanes.extend(found.iter().map(|(lane, mark)| LanePosition::new(id, lane, mark)));
    }
    // Positions can exist before their pipeline if they were imported or copied.
    if let (Some(id), true) = (asked, lanes.is_empty()) {
        named(command, &pipelines, id)?;
    }
    Ok(lanes)
}
