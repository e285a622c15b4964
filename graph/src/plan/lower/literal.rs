//! Settings that are taken as they are written, though they look like something that is filled in, and the other way
//! round.

use crate::config::{Settings, Written};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::format::OPTIONS;
use crate::operator::Access;
use crate::specification::{ParameterKind, Specification};
use crate::template::{MissingKey, Template};

/// Warns of templates and variables where there are none. What plugins from elsewhere make of their settings is not
/// known.
pub(super) fn find(specification: &Specification, settings: &Settings) -> Diagnostics {
    let mut findings = Diagnostics::new();
    if specification.author != *"Anabranch" {
        return findings;
    }
    for setting in &settings.entries {
        let name = setting.name.value.trim();
        let Some(parameter) = specification.parameter(name).filter(|parameter| !parameter.secret) else { continue };
        if parameter.kind == ParameterKind::Template || name == OPTIONS {
            findings.0.extend(out_of_a_variable(name, &setting.value));
        }
        let is_file = parameter.kind == ParameterKind::File;
        if !is_file && parameter.kind != ParameterKind::Text || matches!(name, OPTIONS | "script") {
            continue;
        }
        if is_template(&setting.value) {
            findings.push(
                Diagnostic::warning(
                    "settings.not_a_template",
                    format!("{name} is not a template: the braces are taken as they are written"),
                )
                .with_span(setting.value.span())
                .with_hint("write the text itself; templates are values as that of field.set, and conditions"),
            );
        } else if let Some(variable) = variable(&setting.value).filter(|_| is_file) {
            findings.push(
                Diagnostic::warning(
                    "settings.not_a_variable",
                    format!("{name}: ${variable} is taken as it is written: variables have braces"),
                )
                .with_span(setting.value.span())
                .with_hint(format!("write ${{{variable}}}"))
                .with_fix(setting.value.span(), format!("${variable}"), format!("${{{variable}}}")),
            );
        }
    }
    findings
}

/// Warns of a variable whose value holds a template: it is evaluated, whoever set the variable. The value is not shown.
pub(super) fn out_of_a_variable(name: &str, written: &Written) -> Option<Diagnostic> {
    written.substituted().any(|value| value.contains("{{")).then(|| {
        let message =
            format!("the value of a variable in {name} holds a template, which is evaluated for every record");
        Diagnostic::warning("settings.template_in_variable", message)
            .with_span(written.span())
            .with_hint("write the template in the file; for the two braces themselves, {{ \"{{\" }}")
    })
}

/// Whether a text has an action that reads something of the record.
fn is_template(written: &Written) -> bool {
    let text = written.written();
    text.contains("{{")
        && Template::parse(text, MissingKey::NoValue)
            .is_ok_and(|template| template.literal().is_none() && template.reads() != Access::NOTHING)
}

/// The name behind a `$` without braces: capitals, as those of variables are.
fn variable(written: &Written) -> Option<&str> {
    let text = written.written();
    let name = &text[text.find('$')? + 1..];
    let len = name.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')).unwrap_or(name.len());
    let name = &name[..len];
    (name.len() > 1 && name.starts_with(|c: char| c.is_ascii_uppercase())).then_some(name)
}
