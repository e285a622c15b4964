//! Metadata keys by the names they have elsewhere.

use super::field::{Path, Reader};
use super::written::Written;
use crate::diagnostic::Diagnostic;
use crate::metadata::FOREIGN_PREFIXES;

/// Notes metadata keys by the names they have elsewhere, in a text that may name some: a condition, a template, a
/// reference, a script. They mean our own.
pub(super) fn warn_foreign_keys(text: &Written, path: Path<'_>, reader: &mut Reader<'_>) {
    for (foreign, own) in FOREIGN_PREFIXES {
        for (at, _) in text.value().match_indices(foreign) {
            let before = &text.value()[..at];
            if !before.ends_with(['"', '\'', '`']) {
                continue;
            }
            // What is assigned is a value, and not the name of an entry.
            let outside = before[..before.len() - 1].trim_end();
            if outside.ends_with(':') || outside.ends_with('=') && !outside.ends_with("==") {
                continue;
            }
            let rest = &text.value()[at + foreign.len()..];
            let name = &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len())];
            if name.is_empty() {
                continue;
            }
            let span = text.place(at, foreign.len() + name.len());
            let place = reader.source.get(span.start as usize..span.end as usize).unwrap_or_default();
            if !place.contains(foreign) {
                // It came out of a variable, and what those hold is not shown.
                continue;
            }
            reader.report(
                Diagnostic::warning(
                    "config.metadata_renamed",
                    format!("\"{foreign}{name}\" stands for \"{own}{name}\", as the metadata are named here"),
                )
                .with_span(span)
                .with_hint(format!("write \"{own}{name}\""))
                .with_fix(span, format!("{foreign}{name}"), format!("{own}{name}"))
                .with_path(path.to_string()),
            );
        }
    }
}
