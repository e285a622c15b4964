//! Findings about the text of a condition, with corrections.

use anabranch_plugin::arguments::not_compiled;
use anabranch_plugin::diagnostic::Diagnostic;
use anabranch_plugin::written::Written;
use anabranch_template::condition::CompiledCondition;
use anabranch_template::{TemplateError, slips};

use crate::codes;

/// Adds the corrected condition to a finding, in the quotes that it has or needs.
pub(super) fn quoted(finding: Diagnostic, written: &Written, meant: &str) -> Diagnostic {
    let (span, value) = (written.span(), written.value());
    let is_plain = (span.end - span.start) as usize == value.len();
    match (is_plain, meant.contains('\'')) {
        (true, false) => finding.with_fix(span, value.as_str(), format!("'{meant}'")),
        (true, true) => finding,
        (false, _) => finding.with_fix(span, value.as_str(), meant),
    }
}

/// Returns the condition quoted as in a YAML file.
pub(super) fn in_quotes(condition: &str) -> String {
    if condition.contains('\'') { condition.to_owned() } else { format!("'{condition}'") }
}

/// Finds a condition in typographic quotes. The quotes are part of its output, which is then never true or false.
pub(super) fn between_curly_quotes(written: &Written) -> Option<Diagnostic> {
    let inner = slips::between_curly_quotes(written.value()).filter(|_| !written.is_substituted())?;
    let meant = match CompiledCondition::compile(inner).is_ok_and(|condition| condition.failure().is_none()) {
        true => inner.to_owned(),
        false => slips::bare(inner).filter(|meant| meant.sure).map_or_else(|| inner.to_owned(), |meant| meant.text),
    };
    let message =
        "the condition fails for every record: its quotes are a part of the text, because YAML has straight quotes";
    let finding = Diagnostic::error(codes::PLAN_INVALID_CONDITION, message).with_span(written.span());
    let finding = finding.with_hint(format!("write {}", in_quotes(&meant)));
    Some(quoted(finding, written, &meant))
}

/// Returns the finding for a condition that does not compile, at the place of the error.
pub(super) fn invalid(written: &Written, error: TemplateError) -> Diagnostic {
    let again = |text: &str| CompiledCondition::compile(text).err();
    not_compiled(codes::PLAN_INVALID_CONDITION, written, error, again, |error| match error {
        Some(message) => format!("the condition does not compile: {message}"),
        None => "the condition does not compile once its variables are replaced".to_owned(),
    })
}
