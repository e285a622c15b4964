//! `anabranch pipelines list`.

use std::collections::BTreeMap;

use comfy_table::{Table, presets};
use serde_json::json;

use crate::cli::{Context, Exit, Report, compile_options, registry_with};
use crate::pipelines::Pipelines;
use crate::settings::{Database, SettingFlags};
use crate::store::{Status, StopReason, Store, StoredPipeline};

/// List pipelines and how they are doing.
///
/// Lists the pipelines of the files and of the store, and how they were doing when the service last ran.
/// A pipeline that is no longer in any file is `detached`: its position is kept. The store is used by one
/// process, so this waits for no running service: it is refused while one holds the store.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    #[command(flatten)]
    settings: SettingFlags<false>,
}

struct Row {
    state: String,
    detail: String,
}

pub(super) fn list(arguments: &Arguments, context: &Context) -> Report {
    const COMMAND: &str = "pipelines.list";
    let settings = match context.settings(COMMAND, &arguments.settings) {
        Ok(settings) => settings,
        Err(report) => return *report,
    };
    let stored = match stored(&settings.database) {
        Ok(stored) => stored,
        Err(message) => return Report::new(COMMAND).fail(Exit::Environment, "store.unavailable", message),
    };
    let pipelines =
        Pipelines::load(&[&settings.pipelines.path], &registry_with(&settings), &compile_options(&settings, false));
    let mut rows: BTreeMap<String, Row> =
        stored.iter().map(|pipeline| (pipeline.id.to_string(), row(pipeline))).collect();
    for pipeline in &pipelines.good {
        rows.entry(pipeline.config.id.value.to_string())
            .or_insert_with(|| Row { state: "new".into(), detail: "never started".into() });
    }
    for id in pipelines.invalid.iter().filter_map(|p| p.id.as_ref()) {
        let detail = "`anabranch pipelines validate` says what is wrong".into();
        rows.insert(id.to_string(), Row { state: "invalid".into(), detail });
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
    Report::new(COMMAND).text(text).summary(json!({ "pipelines": rows.len() })).result(json!({ "pipelines": result }))
}

fn row(pipeline: &StoredPipeline) -> Row {
    if pipeline.detached {
        return Row { state: "detached".into(), detail: "no longer in the files; its position is kept".into() };
    }
    // The store is free, so whatever ran is gone.
    let (state, mut detail) = match &pipeline.status {
        status if status.is_live() => {
            ("stopped", "the service ended without a stop; the next start goes on".to_owned())
        }
        status => (status.word(), reason(status)),
    };
    for connector in &pipeline.detached_connectors {
        let separator = if detail.is_empty() { "" } else { "; " };
        detail.push_str(&format!("{separator}connector {} ({}) detached", connector.id, connector.role));
    }
    Row { state: state.to_owned(), detail }
}

fn reason(status: &Status) -> String {
    match status {
        Status::Stopped { reason: StopReason::User } => "by its file".to_owned(),
        Status::Stopped { reason: StopReason::System } => "with the service".to_owned(),
        other => other.error().unwrap_or_default().to_owned(),
    }
}

fn stored(database: &Database) -> Result<Vec<StoredPipeline>, String> {
    let Some(store) = Store::open_existing(database).map_err(|e| e.to_string())? else { return Ok(Vec::new()) };
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|e| e.to_string())?;
    runtime.block_on(store.pipelines()).map_err(|e| e.to_string())
}
