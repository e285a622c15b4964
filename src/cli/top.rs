//! `anabranch top`.

mod draw;
mod graph;
mod rates;
mod screen;
mod state;

use std::thread;
use std::time::{Duration, Instant};

use anabranch_process::terminal::short;
use anabranch_service::backlog;
use anabranch_settings::ServiceFlags;
use chrono::Utc;
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use super::answers::{LIVE, LiveAnswer, PartsAnswer, SourceAnswer, live_path};
use super::completions;
use super::remote::Remote;
use super::{Context, Report};
use graph::{Outline, outline_path, percent};
use rates::{PartRates, Rates};

/// Watch the pipelines of a running service.
///
/// Shows pipelines with their rates, records in flight, backlog, failures and status. Enter shows the graph of a
/// pipeline: the activity of every node, how often conditions hold, how full queues are, and the last error of the
/// selected node; s starts or stops the pipeline. Without a terminal, one table is printed.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Show the graph of this pipeline.
    #[arg(add = completions::pipelines())]
    pipeline: Option<String>,
    /// Print one table and exit.
    #[arg(long)]
    once: bool,
    /// Time between two updates.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    #[command(flatten)]
    settings: ServiceFlags,
}

const COMMAND: &str = "top";

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds between 0.1 and 3600".to_owned()),
    }
}

pub(super) fn top(arguments: &Arguments, context: &Context) -> Report {
    watch(arguments, context).unwrap_or_else(|report| *report)
}

fn watch(arguments: &Arguments, context: &Context) -> Result<Report, Box<Report>> {
    let settings = context.settings(COMMAND, &arguments.settings.0)?;
    let remote = Remote::of(COMMAND, &settings)?;
    if let (true, Some(id)) = (context.json, &arguments.pipeline) {
        let shown: Value = remote.get(&live_path(id))?;
        let nodes = shown["nodes"].as_array().map_or(0, Vec::len);
        return Ok(Report::new(COMMAND).summary(json!({ "nodes": nodes })).result(shown));
    }
    if context.json {
        let shown: Value = remote.get(LIVE)?;
        let pipelines = shown["pipelines"].as_array().map_or(0, Vec::len);
        return Ok(Report::new(COMMAND).summary(json!({ "pipelines": pipelines })).result(shown));
    }
    let interval = Duration::from_secs_f64(arguments.interval);
    // If the service does not answer, the command fails here with a message, before the screen changes.
    let first: LiveAnswer = remote.get(LIVE)?;
    let parts = arguments.pipeline.as_ref().map(|id| remote.get::<PartsAnswer>(&live_path(id))).transpose()?;
    if !arguments.once && context.terminal {
        return screen::run(&remote, first, arguments.pipeline.clone(), interval, context.color);
    }
    if let Some(first) = parts {
        let outline: Outline = remote.get(&outline_path(&first.id))?;
        let mut rates = PartRates::default();
        rates.look(&first, Instant::now());
        thread::sleep(interval);
        let second: PartsAnswer = remote.get(&live_path(&first.id))?;
        rates.look(&second, Instant::now());
        let text = drawing(&outline, &second, &rates);
        return Ok(Report::new(COMMAND).text(if context.terminal { text } else { graph::ascii(&text) }));
    }
    let mut rates = Rates::default();
    rates.look(&first, Instant::now());
    thread::sleep(interval);
    let second: LiveAnswer = remote.get(LIVE)?;
    rates.look(&second, Instant::now());
    Ok(Report::new(COMMAND).text(table(&second, &rates)))
}

/// Renders the graph of a pipeline, followed by the last error of each node.
fn drawing(outline: &Outline, parts: &PartsAnswer, rates: &PartRates) -> String {
    let lines = graph::lines(outline, parts, rates);
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(draw::GRAPH);
    let column = graph::width_of_ids(&lines) + 2;
    for line in &lines {
        let gap = if line.kind.is_empty() { 0 } else { column.saturating_sub(line.width()) };
        let rate = |rate: Option<f64>| rate.map(short).unwrap_or_default();
        let count = |count: Option<u64>| count.map(|count| count.to_string()).unwrap_or_default();
        table.add_row([
            format!("{}{}{}{}", line.lead, line.text, " ".repeat(gap), line.kind),
            rate(line.rows_in),
            rate(line.rows_out),
            count(line.failed),
            count(line.held),
            line.busy.map(percent).unwrap_or_default(),
            line.queue.map(|queue| queue.shown(draw::BAR, true)).unwrap_or_default(),
        ]);
    }
    let mut text = format!("{}: {}\n\n{}\n", parts.id, parts.status.sentence(), table.trim_fmt());
    text.extend(parts.status.cause().map(|cause| format!("\n{cause}\n")));
    text.extend(parts.backlogs.iter().filter_map(SourceAnswer::kept).map(|kept| format!("\nkept for {kept}\n")));
    let failed = parts.nodes.iter().filter(|node| node.last_error.is_some());
    text.extend(failed.map(|node| format!("\n{}\n", graph::about(node, Utc::now())[0])));
    text
}

fn table(live: &LiveAnswer, rates: &Rates) -> String {
    if live.pipelines.is_empty() {
        return "There are no pipelines.\n".to_owned();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(draw::COLUMNS);
    for pipeline in &live.pipelines {
        let (read, delivered) = rates.of(&pipeline.id);
        table.add_row([
            pipeline.id.clone(),
            pipeline.status.sentence(),
            short(read),
            short(delivered),
            rates::in_flight(pipeline),
            backlog::shown(pipeline.backlog.as_ref()),
            pipeline.failed.to_string(),
            pipeline.dead_lettered.to_string(),
        ]);
    }
    format!("{}\n", table.trim_fmt())
}
