//! The configuration of a pipeline that has only a source and a destination.

use anabranch_config::{ConnectorConfig, DeadLetterConfig, DesiredStatus, PipelineConfig};
use anabranch_plugin::diagnostic::{Span, Spanned};
use anabranch_plugin::registry::Role;
use anabranch_plugin::settings::Settings;

/// Id of the source.
pub(crate) const SOURCE: &str = "s0";

/// Returns a pipeline of a source and a destination of a plugin. The plugins have no settings.
pub(crate) fn two_ends(plugin: &'static str, letters: &'static str) -> PipelineConfig {
    fn at<T>(value: T) -> Spanned<T> {
        Spanned::new(value, Span::default())
    }
    let none = || Settings::from_pairs([]);
    let connector = |id: &str, role| ConnectorConfig {
        id: at(id.into()),
        role: at(role),
        plugin: at(plugin.into()),
        name: at(id.into()),
        condition: None,
        settings: none(),
        processors: Vec::new(),
        span: Span::default(),
    };
    PipelineConfig {
        id: at("p".into()),
        name: at("p".into()),
        description: Default::default(),
        status: DesiredStatus::Running,
        connectors: vec![connector(SOURCE, Role::Source), connector("d0", Role::Destination)],
        processors: Vec::new(),
        unmatched: None,
        placement: None,
        dead_letter_queue: DeadLetterConfig {
            plugin: at(letters.into()),
            settings: none(),
            window_size: at(1),
            window_nack_threshold: at(0),
            span: Span::default(),
        },
        span: Span::default(),
    }
}
