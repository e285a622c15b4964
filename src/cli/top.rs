//! `anabranch top`.

mod draw;
mod numbers;
mod screen;
mod state;

use std::thread;
use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use serde_json::{Value, json};

use super::remote::Remote;
use super::{Context, Report};
use crate::settings::ServiceFlags;
use crate::terminal::short;
use numbers::{Live, Rates};

/// Watch the pipelines of a running service.
///
/// Shows pipelines with their rates, lag, failures and status. Enter shows the graph of one with the numbers of every
/// node and how full its queues are; s starts or stops it. Without a terminal, one table is printed.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Print one table and end.
    #[arg(long)]
    once: bool,
    /// Time between two looks.
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
    if context.json {
        let shown: Value = remote.get(numbers::LIVE)?;
        let pipelines = shown["pipelines"].as_array().map_or(0, Vec::len);
        return Ok(Report::new(COMMAND).summary(json!({ "pipelines": pipelines })).result(shown));
    }
    let interval = Duration::from_secs_f64(arguments.interval);
    // The first look is also how it shows that nobody is there: as a message, not on a screen that vanishes.
    let first: Live = remote.get(numbers::LIVE)?;
    if !arguments.once && context.terminal {
        return screen::run(&remote, first, interval, context.color);
    }
    let mut rates = Rates::default();
    rates.look(&first, Instant::now());
    thread::sleep(interval);
    let second: Live = remote.get(numbers::LIVE)?;
    rates.look(&second, Instant::now());
    Ok(Report::new(COMMAND).text(table(&second, &rates)))
}

fn table(live: &Live, rates: &Rates) -> String {
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
            pipeline.in_flight.to_string(),
            numbers::lag(pipeline),
            pipeline.failed.to_string(),
            pipeline.dead_lettered.to_string(),
        ]);
    }
    format!("{}\n", table.trim_fmt())
}
