//! `anabranch pipelines describe`.

mod text;

use anabranch_config::bare_name;
use anabranch_record::near::did_you_mean;
use anabranch_service::dead_letters::view::shown_nanos;
use anabranch_settings::{ServiceFlags, Settings};
use anabranch_store::{Status, StopReason, StoredConnector, StoredPipeline, StoredProcessor};

use chrono::Utc;
use serde_json::{Map, Value, json};

use crate::cli::answers::{
    ConfigAnswer, LIVE, LaneAnswer, LiveAnswer, LivePipeline, PartAnswer, PartsAnswer, PipelineAnswer, SourceAnswer,
    StatusAnswer, live_path,
};
use crate::cli::completions;
use crate::cli::positions::LanePosition;
use crate::cli::remote::Remote;
use crate::cli::{Context, Exit, Report, positions};
use crate::client::escaped;
use crate::codes;

/// Show a pipeline: its connectors and processors, its status, and what to do next.
///
/// Uses the running service. If none answers, and neither a flag nor a variable gives an address, the command shows the
/// pipeline as it is in the store, with its status when the service last ran.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// Id of the pipeline.
    #[arg(add = completions::pipelines())]
    id: String,
    #[command(flatten)]
    settings: ServiceFlags,
}

const COMMAND: &str = "pipelines.describe";

/// The setting for the behaviour of a full queue.
const WHEN_FULL: &str = "when-full";

fn drops_oldest(value: &str) -> bool {
    value.trim() == "drop-oldest"
}

/// The contents of the page.
struct Description {
    pipeline: PipelineAnswer,
    connectors: Vec<Component>,
    processors: Vec<Component>,
    dead_letter: DeadLetter,
    /// `None` if the service cannot provide them.
    positions: Option<Vec<LanePosition>>,
    counters: Option<LivePipeline>,
    /// Counters of the partitions that the current run has.
    lanes: Vec<LaneAnswer>,
    /// Backlogs of the sources.
    backlogs: Vec<SourceAnswer>,
    /// URL of the service; `None` if no service runs.
    service: Option<String>,
}

/// A connector or a processor.
struct Component {
    id: String,
    /// `source`, `destination`; empty for processors.
    role: &'static str,
    plugin: String,
    condition: String,
    settings: Map<String, Value>,
    processors: Vec<Component>,
}

impl Description {
    /// Returns the records of a partition that its source has not read yet, if the source knows their number.
    fn backlog_of(&self, lane: &LanePosition) -> Option<u64> {
        let of = |known: &&LaneAnswer| known.connector == lane.connector && known.partition == lane.partition;
        self.lanes.iter().find(of)?.backlog_records
    }
}

/// The dead-letter queue of a pipeline.
#[derive(Default)]
struct DeadLetter {
    plugin: String,
    /// `true` if a full queue removes its oldest dead letters.
    drops_oldest: bool,
    window_size: u64,
    window_nack_threshold: u64,
    /// Number of stored dead letters, if they can be counted, and the time of the oldest.
    kept: Option<(u64, Option<String>)>,
    /// Number of dead letters that the limits of the queue removed.
    evicted: u64,
}

pub(super) fn describe(arguments: &Arguments, context: &Context) -> Report {
    described(arguments, context).unwrap_or_else(|report| *report)
}

fn described(arguments: &Arguments, context: &Context) -> Result<Report, Box<Report>> {
    let settings = context.settings(COMMAND, &arguments.settings.0)?;
    let description = match Remote::find(COMMAND, &settings)? {
        Some(remote) => of_service(&remote, &arguments.id)?,
        None => of_store(&settings, &arguments.id)?,
    };
    let now = Utc::now();
    let next = next_step(&description);
    Ok(Report::new(COMMAND)
        .text(text::page(&description, &next, now, context.color))
        .result(shown(&description, &next)))
}

fn of_service(remote: &Remote, id: &str) -> Result<Description, Box<Report>> {
    let path = format!("/v1/pipelines/{}", escaped(id));
    let mut pipeline: PipelineAnswer = remote.get(&path)?;
    let connectors: Vec<PartAnswer> = remote.get(&format!("/v1/connectors?pipelineId={}", escaped(id)))?;
    let parents = connectors.iter().map(|connector| connector.id.as_str()).chain([id]);
    let parents: Vec<String> = parents.map(|parent| format!("parentIds={}", escaped(parent))).collect();
    let processors: Vec<PartAnswer> = remote.get(&format!("/v1/processors?{}", parents.join("&")))?;
    let own = |ids: &[String]| -> Vec<Component> {
        let found = ids.iter().filter_map(|id| processors.iter().find(|processor| processor.id == *id));
        found.cloned().map(Component::from).collect()
    };
    let queue: Value = remote.get(&format!("{path}/dead-letter-queue"))?;
    let plugin = queue["plugin"].as_str().unwrap_or_default();
    let number = |name: &str| queue[name].as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
    let letters = remote.get_if_known::<Value>(&format!("{path}/dead-letters?limit=1"))?;
    let evicted = letters.as_ref().and_then(|letters| letters["evicted"].as_u64()).unwrap_or_default();
    let kept =
        letters.and_then(|letters| Some((letters["count"].as_u64()?, letters["oldest"].as_str().map(str::to_owned))));
    // Other queues keep no dead letters in the store, but an earlier queue of the pipeline may have.
    let kept = kept.filter(|(count, _)| *count > 0 || bare_name(plugin) == "store");
    let live = remote.get_if_known::<LiveAnswer>(LIVE)?;
    let counters = live.and_then(|live| live.of(id).cloned());
    if let Some(counters) = counters.as_ref().filter(|counters| !counters.status.word.is_empty()) {
        // Only the counters show whether the pipeline is stalled or idle.
        pipeline.status = counters.status.clone();
    }
    let parts = remote.get_if_known::<PartsAnswer>(&live_path(id))?;
    let (lanes, backlogs) = parts.map(|parts| (parts.lanes, parts.backlogs)).unwrap_or_default();
    Ok(Description {
        processors: own(&pipeline.processor_ids),
        connectors: connectors
            .into_iter()
            .map(|connector| Component { processors: own(&connector.processor_ids), ..Component::from(connector) })
            .collect(),
        pipeline,
        dead_letter: DeadLetter {
            plugin: plugin.to_owned(),
            drops_oldest: queue["settings"][WHEN_FULL].as_str().is_some_and(drops_oldest),
            window_size: number("windowSize"),
            window_nack_threshold: number("windowNackThreshold"),
            kept,
            evicted,
        },
        positions: positions::of_service(remote, Some(id)).ok(),
        lanes,
        backlogs,
        counters,
        service: Some(remote.url()),
    })
}

impl From<PartAnswer> for Component {
    fn from(part: PartAnswer) -> Self {
        Component {
            role: match part.kind.as_str() {
                "TYPE_SOURCE" => "source",
                "TYPE_DESTINATION" => "destination",
                _ => "",
            },
            // The id in the file. The ids of the pipeline and the connector come before it.
            id: part.id.rsplit(':').next().unwrap_or_default().to_owned(),
            plugin: part.plugin,
            condition: part.condition,
            settings: part.config.settings,
            processors: Vec::new(),
        }
    }
}

fn of_store(settings: &Settings, id: &str) -> Result<Description, Box<Report>> {
    let opened = positions::OpenStore::open(COMMAND, &settings.database)?;
    let failed = |error| Box::new(positions::unreadable(COMMAND, &error));
    let pipelines = opened.pipelines().map_err(failed)?;
    let Some(pipeline) = pipelines.iter().find(|pipeline| *pipeline.id == *id) else {
        let report = Report::new(COMMAND).fail(
            Exit::Invalid,
            codes::PIPELINE_NOT_FOUND,
            format!("the store has no pipeline {id:?}, and no service runs"),
        );
        return Err(Box::new(match did_you_mean(id, pipelines.iter().map(|pipeline| pipeline.id.as_str())) {
            Some(near) => report.suggest(format!("did you mean {near}?")),
            None => report.suggest("`anabranch run` starts the pipelines of the files"),
        }));
    };
    let positions = opened.positions(&pipeline.id).map_err(failed)?;
    let positions = positions.iter().map(|(lane, mark)| LanePosition::new(&pipeline.id, lane, mark)).collect();
    let totals = opened.letter_totals(&pipeline.id).map_err(failed)?;
    Ok(Description {
        pipeline: PipelineAnswer {
            id: pipeline.id.to_string(),
            config: ConfigAnswer { name: pipeline.name.to_string(), description: pipeline.description.to_string() },
            status: at_rest(pipeline),
            processor_ids: Vec::new(),
            detached: pipeline.detached,
            created_at: None,
            updated_at: None,
        },
        connectors: pipeline.connectors.iter().map(Component::stored_connector).collect(),
        processors: pipeline.processors.iter().map(Component::stored).collect(),
        dead_letter: DeadLetter {
            plugin: pipeline.dead_letter.plugin.to_string(),
            drops_oldest: pipeline
                .dead_letter
                .settings
                .iter()
                .any(|setting| setting.name.trim() == WHEN_FULL && drops_oldest(&setting.written)),
            window_size: pipeline.dead_letter.window_size,
            window_nack_threshold: pipeline.dead_letter.window_nack_threshold,
            kept: (totals.count > 0 || bare_name(&pipeline.dead_letter.plugin) == "store")
                .then(|| (totals.count, totals.oldest.map(shown_nanos))),
            evicted: totals.evicted,
        },
        positions: Some(positions),
        counters: None,
        lanes: Vec::new(),
        backlogs: Vec::new(),
        service: None,
    })
}

/// Returns the status of a pipeline while no service runs.
fn at_rest(pipeline: &StoredPipeline) -> StatusAnswer {
    let word = match &pipeline.status {
        Status::Stopped { reason: StopReason::User | StopReason::System } => "stopped",
        status if status.error().is_none() && !matches!(status, Status::Finished | Status::Invalid) => "stopped",
        status => status.word(),
    };
    StatusAnswer { word: word.to_owned(), error: pipeline.status.error().map(str::to_owned), ..StatusAnswer::default() }
}

impl Component {
    fn stored(processor: &StoredProcessor) -> Self {
        Component {
            id: processor.id.to_string(),
            role: "",
            plugin: processor.plugin.to_string(),
            condition: processor.condition.as_deref().unwrap_or_default().to_owned(),
            settings: Map::new(),
            processors: Vec::new(),
        }
    }

    fn stored_connector(connector: &StoredConnector) -> Self {
        Component {
            id: connector.id.to_string(),
            role: if *connector.role == *"source" { "source" } else { "destination" },
            plugin: connector.plugin.to_string(),
            condition: String::new(),
            settings: Map::new(),
            processors: connector.processors.iter().map(Component::stored).collect(),
        }
    }
}

/// Returns advice for the next step.
fn next_step(description: &Description) -> String {
    let Description { pipeline, service, dead_letter, .. } = description;
    let id = &pipeline.id;
    if pipeline.detached {
        return "restore its file to resume from its positions, or run `anabranch pipelines delete` to remove it from \
                the store"
            .to_owned();
    }
    let running = service.is_some();
    match pipeline.status.word.as_str() {
        "degraded" => {
            let then = if running { format!("`anabranch pipelines start {id}`") } else { "`anabranch run`".to_owned() };
            format!("correct the cause, then run {then}")
        }
        "invalid" => "`anabranch pipelines validate` shows its errors".to_owned(),
        _ if !running => "`anabranch run` starts the service".to_owned(),
        "stopped" | "finished" => format!("`anabranch pipelines start {id}` starts it"),
        "recovering" => "correct the cause; the pipeline restarts automatically".to_owned(),
        _ if pipeline.status.stalled.is_some() => {
            format!("`anabranch pipelines inspect {id}` shows the records that reach each processor")
        }
        _ if dead_letter.kept.as_ref().is_some_and(|(count, _)| *count > 0) => {
            format!("`anabranch dlq list {id}` shows the records that failed")
        }
        _ => format!("`anabranch pipelines inspect {id}` shows its records, `anabranch top` its numbers"),
    }
}

fn shown(description: &Description, next: &str) -> Value {
    let Description { pipeline, connectors, processors, dead_letter, positions, counters, service, .. } = description;
    let position = |lane: &LanePosition| {
        let mut shown = lane.shown();
        shown["backlogRecords"] = description.backlog_of(lane).into();
        shown
    };
    json!({
        "id": pipeline.id,
        "name": pipeline.config.name,
        "description": pipeline.config.description,
        "state": pipeline.status.word,
        "stalled": pipeline.status.stalled.is_some(),
        "since": pipeline.status.since,
        "error": pipeline.status.error,
        "where": pipeline.status.place,
        "detached": pipeline.detached,
        "createdAt": pipeline.created_at,
        "updatedAt": pipeline.updated_at,
        "connectors": connectors.iter().map(Component::shown).collect::<Vec<_>>(),
        "processors": processors.iter().map(Component::shown).collect::<Vec<_>>(),
        "deadLetterQueue": {
            "plugin": dead_letter.plugin,
            "windowSize": dead_letter.window_size,
            "windowNackThreshold": dead_letter.window_nack_threshold,
            "letters": dead_letter.kept.as_ref().map(|(count, _)| count),
            "oldest": dead_letter.kept.as_ref().and_then(|(_, oldest)| oldest.as_ref()),
            "evicted": dead_letter.evicted,
        },
        "positions": positions.as_ref().map(|lanes| lanes.iter().map(position).collect::<Vec<_>>()),
        "counters": counters.as_ref().map(|counters| json!({
            "run": counters.status.run, "read": counters.read, "delivered": counters.delivered,
            "filtered": counters.filtered, "failed": counters.failed, "deadLettered": counters.dead_lettered,
            "inFlight": counters.in_flight, "unacknowledged": counters.unacknowledged,
            "oldestUnacknowledgedSeconds": counters.oldest_unacknowledged_seconds, "backlog": counters.backlog,
        })),
        "retention": description.backlogs.iter().filter_map(SourceAnswer::shown).collect::<Vec<_>>(),
        "service": service,
        "next": next,
    })
}

impl Component {
    fn shown(&self) -> Value {
        let mut shown = json!({ "id": self.id, "plugin": self.plugin });
        if !self.role.is_empty() {
            shown["type"] = self.role.into();
            shown["processors"] = self.processors.iter().map(Component::shown).collect();
        }
        if !self.condition.is_empty() {
            shown["condition"] = self.condition.as_str().into();
        }
        if !self.settings.is_empty() {
            shown["settings"] = Value::Object(self.settings.clone());
        }
        shown
    }
}
