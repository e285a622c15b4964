//! Findings about settings.

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::Diagnostic;

/// Returns a finding about a setting.
pub(crate) fn finding(arguments: &Arguments, name: &str, what: impl Into<String>) -> Diagnostic {
    Diagnostic::error("settings.invalid", what).with_span(arguments.span(name)).with_path(format!("/{name}"))
}
