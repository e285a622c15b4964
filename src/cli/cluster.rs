//! `anabranch cluster`.

mod apply;

use std::collections::BTreeMap;

use anabranch_process::terminal::age;
use anabranch_settings::ServiceFlags;
use clap::Subcommand;
use comfy_table::{Table, presets};
use serde::{Deserialize, Serialize};
use serde_json::json;

use self::apply::Apply;
use super::remote::Remote;
use super::{Context, Report};

/// Show the nodes of the cluster and where each pipeline runs.
///
/// Uses the running service, which must be a node of a cluster (`cluster.url`). Any node answers for all.
///
/// Exit codes: 0 the nodes are shown, 1 the service is not a node or its store does not answer, 3 no service answers.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    settings: ServiceFlags,
}

#[derive(Debug, Subcommand)]
enum Command {
    Apply(Apply),
}

const COMMAND: &str = "cluster";

/// Path of the nodes and units.
pub(super) const NODES: &str = "/v1/cluster";

/// The nodes and the units.
#[derive(Debug, Deserialize)]
pub(super) struct ClusterAnswer {
    pub(super) nodes: Vec<NodeAnswer>,
    pub(super) units: Vec<UnitAnswer>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeAnswer {
    pub(super) name: String,
    id: String,
    pub(super) url: String,
    pub(super) version: String,
    #[serde(default)]
    labels: Vec<String>,
    is_this: bool,
    is_leaving: bool,
    units: usize,
    age_seconds: f64,
    pub(super) silence_seconds: f64,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UnitAnswer {
    pub(super) pipeline: String,
    slot: u32,
    #[serde(default)]
    pub(super) node: Option<String>,
    #[serde(default)]
    moves_to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(default)]
    is_ending: bool,
}

impl UnitAnswer {
    pub(super) fn detail(&self) -> String {
        match (self.is_ending, &self.moves_to, &self.node) {
            (true, ..) => "is being stopped".to_owned(),
            (false, Some(heir), _) => format!("moves to {heir}"),
            (false, None, None) => match &self.label {
                Some(label) => format!("waits for a node with the label {label}"),
                None => "waits for a node".to_owned(),
            },
            (false, None, Some(_)) => {
                self.label.iter().map(|label| format!("only on nodes with the label {label}")).collect()
            }
        }
    }
}

pub(super) fn cluster(arguments: &Arguments, context: &Context) -> Report {
    match &arguments.command {
        Some(Command::Apply(arguments)) => apply::apply(arguments, context),
        None => shown(arguments, context).unwrap_or_else(|report| *report),
    }
}

fn shown(arguments: &Arguments, context: &Context) -> Result<Report, Box<Report>> {
    let settings = context.settings(COMMAND, &arguments.settings.0)?;
    let remote = Remote::of(COMMAND, &settings)?;
    let ClusterAnswer { nodes, units } = remote.get(NODES)?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["NODE", "UNITS", "JOINED", "RENEWED", "VERSION", "URL", "DETAIL"]);
    for node in &nodes {
        let detail = match (node.is_leaving, node.is_this) {
            (true, _) => "gives its units away",
            (false, true) => "answers this command",
            (false, false) => "",
        };
        table.add_row([
            node.name.as_str(),
            node.units.to_string().as_str(),
            format!("{} ago", age(node.age_seconds)).as_str(),
            format!("{:.1} s ago", node.silence_seconds).as_str(),
            node.version.as_str(),
            if node.url.is_empty() { "-" } else { node.url.as_str() },
            detail,
        ]);
    }
    let mut text = format!("{}\n", table.trim_fmt());
    if !units.is_empty() {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(["PIPELINE", "NODE", "SLOTS", "DETAIL"]);
        let mut places: BTreeMap<(&str, Option<&str>, String), Vec<String>> = BTreeMap::new();
        for unit in &units {
            let place = (unit.pipeline.as_str(), unit.node.as_deref(), unit.detail());
            places.entry(place).or_default().push(unit.slot.to_string());
        }
        for ((pipeline, node, detail), slots) in places {
            table.add_row([pipeline, node.unwrap_or("-"), &slots.join(" "), &detail]);
        }
        text.push_str(&format!("\n{}\n", table.trim_fmt()));
    }
    Ok(Report::new(COMMAND)
        .text(text)
        .summary(json!({ "nodes": nodes.len(), "units": units.len() }))
        .result(json!({ "nodes": nodes, "units": units, "service": remote.url() })))
}
