//! Settings without effect because the setting that they depend on is not given.

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::settings::Settings;
use anabranch_plugin::specification::Specification;

use crate::codes;

/// Warns about these settings. A setting that equals its default or is off is not reported.
pub(super) fn find(specification: &Specification, settings: &Settings, arguments: &Arguments) -> Diagnostics {
    let mut findings = Diagnostics::new();
    for setting in &settings.entries {
        let name = setting.name.value.trim();
        let Some(parameter) = specification.parameter(name) else { continue };
        let Some(needed) = &parameter.only_with else { continue };
        let value = setting.value.value().trim();
        let is_default = parameter.default.as_ref().is_some_and(|default| **default == *value);
        if is_default || !arguments.is_on(&parameter.name) || arguments.is_on(needed) {
            continue;
        }
        let state = match arguments.has(needed) {
            true => format!("{needed} is {}", arguments.shown(needed).unwrap_or_default()),
            false => format!("{needed} is not set"),
        };
        findings.push(
            Diagnostic::warning(codes::SETTINGS_UNUSED, format!("{name} has no effect: {state}"))
                .with_span(setting.name.span)
                .with_hint(format!("set {needed}, or remove {name}")),
        );
    }
    findings
}
