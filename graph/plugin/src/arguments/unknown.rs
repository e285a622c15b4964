//! Settings that are no parameters of the plugin.

use std::collections::BTreeSet;

use anabranch_record::near::did_you_mean;

use crate::codes;
use crate::diagnostic::{Diagnostic, Span};
use crate::settings::Settings;
use crate::specification::Specification;
use crate::written::Written;

/// Reports a single text instead of a map of settings. It stands for the only required parameter, if there is exactly
/// one.
pub(super) fn unnamed<'a>(specification: &'a Specification, written: &Written) -> (Diagnostic, Option<&'a str>) {
    let finding = Diagnostic::error(codes::CONFIG_TYPE, "\"settings\" must be a map of fields, not a single value")
        .with_span(written.span());
    let mut required = specification.parameters.iter().filter(|parameter| parameter.is_required());
    let parameter = match (required.next(), required.next()) {
        (Some(parameter), None) => parameter,
        _ => {
            let first = specification.parameters.first().map_or("name", |parameter| parameter.name.as_str());
            return (
                finding.with_hint(format!(
                    "write settings as names with values, for example `settings: {{ {first}: … }}`"
                )),
                None,
            );
        }
    };
    let becomes = format!("{{ {}: {} }}", parameter.name, written.written());
    let plain = !written.written().contains(['{', '}', '[', ']', ',', '#', '\'', '"', '\n']);
    let finding = finding.with_hint(format!("write `settings: {becomes}`"));
    let finding = match plain {
        true => finding.with_fix(written.span(), written.written().as_str(), becomes),
        false => finding,
    };
    (finding, Some(parameter.name.as_str()))
}

/// Fields of processors and dead-letter queues that look like settings of their plugins.
const BESIDE_THE_PLUGIN: [&str; 5] = ["workers", "condition", "processors", "window-size", "window-nack-threshold"];

pub(super) fn unknown(specification: &Specification, name: &str, span: Span) -> Diagnostic {
    let names = || specification.parameters.iter().map(|p| p.name.as_str());
    let finding =
        Diagnostic::error(codes::SETTINGS_UNKNOWN, format!("{} has no parameter {name:?}", specification.name))
            .with_span(span);
    if let Some(above) = BESIDE_THE_PLUGIN.iter().find(|above| **above == name) {
        return finding.with_hint(format!("write {above:?} next to \"plugin\", not in \"settings\""));
    }
    match did_you_mean(name, names()) {
        Some(near) => finding.with_hint(format!("did you mean {near:?}?")),
        None if specification.parameters.is_empty() => {
            finding.with_hint(format!("{} has no parameters", specification.name))
        }
        None => finding.with_hint(format!("its parameters: {}", names().collect::<Vec<_>>().join(", "))),
    }
}

/// Returns the parameters that are not set, as candidates for the intended name of an unknown setting.
pub(super) fn not_given<'a>(specification: &'a Specification, settings: &Settings) -> Vec<&'a str> {
    let given: BTreeSet<&str> = settings.entries.iter().map(|setting| setting.name.value.trim()).collect();
    let names = specification.parameters.iter().map(|parameter| parameter.name.as_str());
    names.filter(|name| !name.contains('*') && !given.contains(name)).collect()
}
