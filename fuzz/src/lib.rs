//! The checks of the fuzz targets and of the test that replays their seeds: one function per target, for any bytes.

#![forbid(unsafe_code)]

use anabranch_config::Variables;

mod avro;
mod config;
mod connector;
mod file_framing;
mod guest_call;
mod guest_line;
mod guest_response;
mod http_request;
mod ledger;
mod parsed_text;
mod plan;
mod plugin_record;
mod postgres_stream;
mod record_json;
mod reference;
mod script;
mod tap_output;
mod template;

/// A target: its name and its check.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("avro", avro::check),
    ("config", config::check),
    ("connector_messages", connector::check_messages),
    ("connector_text", connector::check_text),
    ("file_framing", file_framing::check),
    ("guest_call", guest_call::check),
    ("guest_line", guest_line::check),
    ("guest_response", guest_response::check),
    ("http_request", http_request::check),
    ("ledger", ledger::check),
    ("parsed_text", parsed_text::check),
    ("plan", plan::check),
    ("plugin_record", plugin_record::check),
    ("postgres_stream", postgres_stream::check),
    ("record_json", record_json::check),
    ("reference", reference::check),
    ("script", script::check),
    ("tap_output", tap_output::check),
    ("template", template::check),
];

/// Checks one input of the target `name`.
///
/// # Panics
/// The check fails, or the target does not exist.
pub fn check(name: &str, input: &[u8]) {
    let (_, check) = TARGETS.iter().find(|(target, _)| *target == name).expect("a target of this name");
    check(input);
}

/// Returns the input up to the first byte that is not valid text.
fn text(input: &[u8]) -> &str {
    input.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}

/// Variables of which one is set, and no files.
struct OneVariable;

impl Variables for OneVariable {
    fn variable(&self, name: &str) -> Option<String> {
        (name == "SET").then(|| "value".to_owned())
    }

    fn file(&self, _path: &str) -> Result<String, String> {
        Err("no files here".to_owned())
    }
}
