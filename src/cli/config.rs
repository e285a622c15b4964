//! `anabranch config`.

use anabranch_settings::SettingFlags;
use comfy_table::{Table, presets};
use serde_json::{Map, json};

use super::{Context, Report};

/// Print every setting with its value and its origin.
///
/// Prints every setting with its value and the layer that the value comes from: a flag, an `ANABRANCH_*` variable,
/// anabranch.yaml, or the default. Credentials are masked.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    settings: SettingFlags<true>,
}

pub(super) fn config(arguments: &Arguments, context: &Context) -> Report {
    let settings = match context.settings("config", &arguments.settings) {
        Ok(settings) => settings,
        Err(report) => return *report,
    };
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["SETTING", "VALUE", "FROM"]);
    let mut values = Map::new();
    for entry in &settings.resolved {
        let source = json!(entry.source);
        table.add_row([entry.key.name, entry.shown().unwrap_or("-"), source.as_str().unwrap_or_default()]);
        values.insert(entry.key.name.to_owned(), json!({ "value": entry.shown(), "source": source }));
    }
    Report::new("config").text(format!("{}\n", table.trim_fmt())).result(json!({ "settings": values }))
}
