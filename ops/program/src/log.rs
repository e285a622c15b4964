//! Lines of programs in the log of the service.

use anabranch_plugin::host::{Host, LogLevel};
use anabranch_record::text::Str;

/// A line of a program with its level.
#[derive(Debug, PartialEq, Eq)]
pub struct ParsedLine {
    /// The level.
    pub level: LogLevel,
    /// The text.
    pub text: String,
}

/// Returns the level that a word names, in any case.
pub fn level(word: &str) -> Option<LogLevel> {
    Some(match word.to_ascii_lowercase().as_str() {
        "trace" => LogLevel::Trace,
        "debug" => LogLevel::Debug,
        "info" => LogLevel::Info,
        "warn" | "warning" => LogLevel::Warn,
        "error" | "fatal" | "panic" | "critical" => LogLevel::Error,
        _ => return None,
    })
}

/// The user of a program: a connector, or a task of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramOwner {
    pipeline: Option<Str>,
    /// Id of the connector, or name of the task.
    name: Str,
}

impl ProgramOwner {
    /// Returns the connector that `host` serves.
    pub fn of(host: &Host) -> Self {
        ProgramOwner::connector(&host.pipeline, &host.node)
    }

    /// Returns the connector of a pipeline.
    pub fn connector(pipeline: &Str, connector: &Str) -> Self {
        ProgramOwner { pipeline: Some(pipeline.clone()), name: connector.clone() }
    }

    /// Returns a task of the service outside of all pipelines.
    pub fn task(name: &'static str) -> Self {
        ProgramOwner { pipeline: None, name: Str::from_static(name) }
    }

    /// Returns the ids of the pipeline and the connector, joined with `:`, or the name of the task.
    pub fn id(&self) -> Str {
        match &self.pipeline {
            Some(pipeline) => format!("{pipeline}:{}", self.name).into(),
            None => self.name.clone(),
        }
    }
}

/// Writes a line of a program to the service log.
pub fn write(heard: &ParsedLine, owner: &ProgramOwner, plugin: &str) {
    let ParsedLine { level, text } = heard;
    let (pipeline, connector) = (owner.pipeline.as_ref().map(Str::as_str), owner.name.as_str());
    match level {
        LogLevel::Trace => tracing::trace!(pipeline, connector, plugin, "{text}"),
        LogLevel::Debug => tracing::debug!(pipeline, connector, plugin, "{text}"),
        LogLevel::Info => tracing::info!(pipeline, connector, plugin, "{text}"),
        LogLevel::Warn => tracing::warn!(pipeline, connector, plugin, "{text}"),
        LogLevel::Error => tracing::error!(pipeline, connector, plugin, "{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_the_ids_of_pipeline_and_connector_although_they_contain_colons() {
        let owner = ProgramOwner::connector(&"shop:eu".into(), &"orders:in".into());
        assert_eq!((owner.pipeline.as_deref(), owner.name.as_str()), (Some("shop:eu"), "orders:in"));
        assert_eq!(owner.id(), "shop:eu:orders:in");
        assert_eq!(ProgramOwner::task("discover").id(), "discover");
    }
}
