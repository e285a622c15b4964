//! `anabranch pipelines list`.

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_service::backlog;
use anabranch_service::pipelines::Pipelines;
use anabranch_settings::{Database, ServiceFlags, Settings};
use anabranch_store::{Status, StopReason, Store, StoredPipeline};
use chrono::Utc;
use comfy_table::{Table, presets};
use serde_json::json;

use crate::cli::answers::{LIVE, LiveAnswer, PipelineAnswer, short};
use crate::cli::remote::Remote;
use crate::cli::{Context, Exit, Report, compile_options, registry_with};
use crate::codes;

/// List pipelines with their status.
///
/// Uses the running service. If none answers, and neither a flag nor a variable gives an address, the command lists the
/// pipelines of the files and of the store, with their status when the service last ran. A pipeline that is not in any
/// file any more is `detached`: its position is kept.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    #[command(flatten)]
    settings: ServiceFlags,
}

const COMMAND: &str = "pipelines.list";

pub(super) fn list(arguments: &Arguments, context: &Context) -> Report {
    listed(arguments, context).unwrap_or_else(|report| *report)
}

fn listed(arguments: &Arguments, context: &Context) -> Result<Report, Box<Report>> {
    let settings = context.settings(COMMAND, &arguments.settings.0)?;
    match Remote::find(COMMAND, &settings)? {
        Some(remote) => running(&remote, context),
        None => at_rest(&settings),
    }
}

/// Period over which rates are measured.
const SAMPLE: Duration = Duration::from_millis(500);

/// Lists the pipelines of a running service.
fn running(remote: &Remote, context: &Context) -> Result<Report, Box<Report>> {
    // If its store fails, the service still has the counters of its pipelines.
    let (pipelines, store_error): (Vec<PipelineAnswer>, _) = match remote.get_of_store("/v1/pipelines")? {
        Ok(pipelines) => (pipelines, None),
        Err(why) => {
            let live: LiveAnswer = remote.get(LIVE)?;
            (live.pipelines.iter().map(PipelineAnswer::of_live).collect(), Some(why))
        }
    };
    // Measuring a rate takes time. Programs that read the JSON can compute rates themselves.
    let before = if context.json { None } else { remote.get_if_known::<LiveAnswer>(LIVE)? };
    if before.is_some() && pipelines.iter().any(|pipeline| pipeline.status.is_live()) {
        std::thread::sleep(SAMPLE);
    }
    let live = remote.get_if_known::<LiveAnswer>(LIVE)?;
    let now = Utc::now();

    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "ID",
        "STATE",
        "FOR",
        "RECORDS/S",
        "IN FLIGHT",
        "BACKLOG",
        "DETAIL",
    ]);
    let mut result = Vec::new();
    for pipeline in &pipelines {
        // Only the counters show whether the pipeline is stalled or idle.
        let counters = live.as_ref().and_then(|live| live.of(&pipeline.id));
        let status = counters.map_or(&pipeline.status, |counters| &counters.status);
        let state = if pipeline.detached { "detached".to_owned() } else { status.shown() };
        let detail = match pipeline.detached {
            true => "not in the files; its positions stay stored".to_owned(),
            false => status.detail(now),
        };
        let since = status.since.map_or_else(|| "-".to_owned(), |since| short(now - since.0));
        let rate = before.as_ref().zip(live.as_ref()).and_then(|(before, live)| rate(before, live, &pipeline.id));
        let live_counters = counters.filter(|_| status.is_live());
        let open = live_counters.map(|counters| counters.unacknowledged);
        let left = live_counters.and_then(|counters| counters.backlog);
        let or_dash = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
        table.add_row([
            &pipeline.id,
            &state,
            &since,
            &or_dash(rate.map(|rate| format!("{rate:.0}"))),
            &or_dash(open.map(|open| open.to_string())),
            &backlog::shown(left.as_ref()),
            &detail,
        ]);
        result.push(json!({
            "id": pipeline.id, "name": pipeline.config.name, "state": status.word, "stalled": status.stalled.is_some(),
            "since": status.since, "detail": detail, "detached": pipeline.detached,
            "createdAt": pipeline.created_at, "updatedAt": pipeline.updated_at,
            "unacknowledged": open,
            "oldestUnacknowledgedSeconds": live_counters.map(|counters| counters.oldest_unacknowledged_seconds),
            "backlog": left,
            "read": counters.map(|counters| counters.read), "delivered": counters.map(|counters| counters.delivered),
        }));
    }
    let text = if pipelines.is_empty() && store_error.is_none() {
        format!("The service at {} has no pipelines; `anabranch pipelines init` writes one.\n", remote.url())
    } else {
        format!("{}\n", table.trim_fmt())
    };
    let report = Report::new(COMMAND)
        .text(text)
        .summary(json!({ "pipelines": pipelines.len() }))
        .result(json!({ "pipelines": result, "service": remote.url(), "storeError": store_error }));
    Ok(match store_error {
        Some(why) => report
            .notes(format!("{why}\nWithout its store, the service lists only the pipelines that it has loaded.\n")),
        None => report,
    })
}

/// Returns the records per second that a pipeline delivered between two samples.
fn rate(before: &LiveAnswer, after: &LiveAnswer, id: &str) -> Option<f64> {
    let (old, new) = (before.of(id)?, after.of(id)?);
    let seconds = (after.at?.0 - before.at?.0).as_seconds_f64();
    let is_one_run = old.status.run == new.status.run && seconds > 0.0 && new.status.is_live();
    is_one_run.then(|| new.delivered.saturating_sub(old.delivered) as f64 / seconds)
}

/// Lists the pipelines of the files and of the store while no service runs.
fn at_rest(settings: &Settings) -> Result<Report, Box<Report>> {
    let stored = stored(&settings.database).map_err(|message| {
        let report = Report::new(COMMAND).fail(Exit::Environment, codes::STORE_UNAVAILABLE, message);
        Box::new(report.suggest("if a service uses the store, set --api.http.address to the address of the service"))
    })?;
    let pipelines =
        Pipelines::load(&[&settings.pipelines.path], &registry_with(settings), &compile_options(settings, false));
    let mut rows: BTreeMap<String, StoredState> =
        stored.iter().map(|pipeline| (pipeline.id.to_string(), row(pipeline))).collect();
    for pipeline in &pipelines.good {
        rows.entry(pipeline.config.id.value.to_string())
            .or_insert_with(|| StoredState { state: "new".into(), detail: "never started".into() });
    }
    for id in pipelines.invalid.iter().filter_map(|p| p.id.as_ref()) {
        let detail = "`anabranch pipelines validate` shows its errors".into();
        rows.insert(id.to_string(), StoredState { state: "invalid".into(), detail });
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["ID", "STATE", "DETAIL"]);
    for (id, row) in &rows {
        table.add_row([id, &row.state, &row.detail]);
    }
    let text = if rows.is_empty() {
        "There are no pipelines; `anabranch pipelines init` writes one.\n".to_owned()
    } else {
        format!("{}\n", table.trim_fmt())
    };
    let result: Vec<_> =
        rows.iter().map(|(id, row)| json!({ "id": id, "state": row.state, "detail": row.detail })).collect();
    Ok(Report::new(COMMAND)
        .text(text)
        .summary(json!({ "pipelines": rows.len() }))
        .result(json!({ "pipelines": result, "service": null })))
}

/// Status of a pipeline when the service last ran.
struct StoredState {
    state: String,
    detail: String,
}

fn row(pipeline: &StoredPipeline) -> StoredState {
    if pipeline.detached {
        return StoredState { state: "detached".into(), detail: "not in the files; its positions stay stored".into() };
    }
    // The store is not locked, so the service that ran the pipeline has ended.
    let (state, mut detail) = match &pipeline.status {
        status if status.is_live() => {
            ("stopped", "the service did not end cleanly; the next start resumes it".to_owned())
        }
        status => (status.word(), reason(status)),
    };
    for connector in &pipeline.detached_connectors {
        let separator = if detail.is_empty() { "" } else { "; " };
        detail.push_str(&format!("{separator}connector {} ({}) detached", connector.id, connector.role));
    }
    StoredState { state: state.to_owned(), detail }
}

fn reason(status: &Status) -> String {
    match status {
        Status::Stopped { reason: StopReason::User } => "stopped by its file".to_owned(),
        Status::Stopped { reason: StopReason::System } => "stopped with the service".to_owned(),
        other => other.error().unwrap_or_default().to_owned(),
    }
}

fn stored(database: &Database) -> Result<Vec<StoredPipeline>, String> {
    let Some(store) = Store::open_existing(database).map_err(|e| e.to_string())? else { return Ok(Vec::new()) };
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|e| e.to_string())?;
    runtime.block_on(store.pipelines()).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_one_of_a_run() {
        let look = |second: u32, run: u64, delivered: u64| -> LiveAnswer {
            serde_json::from_value(json!({
                "at": format!("2026-01-31T12:00:0{second}.000Z"),
                "pipelines": [{ "id": "p", "status": { "word": "running", "run": run }, "delivered": delivered }],
            }))
            .unwrap()
        };
        assert_eq!(rate(&look(0, 1, 10), &look(2, 1, 30), "p"), Some(10.0));
        assert_eq!(rate(&look(0, 1, 10), &look(2, 2, 30), "p"), None, "counters began anew");
    }
}
