//! Metadata keys under the names of other services.

use anabranch_plugin::diagnostic::Diagnostic;
use anabranch_plugin::written::Written;
use anabranch_record::code::Code;
use anabranch_record::metadata::FOREIGN_PREFIXES;

use super::field::{FieldReader, Path};
use crate::codes;

const CODE: Code = codes::CONFIG_METADATA_RENAMED;

/// A quoted text that may be a metadata key under the name of another service.
struct MetadataKeyCandidate<'t> {
    /// Offset in the text.
    at: usize,
    name: &'t str,
    own: String,
    /// True if the text is certainly a key. Otherwise it may be ordinary text.
    is_key: bool,
}

impl MetadataKeyCandidate<'_> {
    fn message(&self) -> String {
        let MetadataKeyCandidate { name, own, .. } = self;
        match self.is_key {
            true => format!("\"{name}\" is read as \"{own}\", the name of this metadata key here"),
            false => format!(
                "\"{name}\" is read as \"{own}\" if it is used as a key of metadata; otherwise it does not change"
            ),
        }
    }

    fn hint(&self) -> String {
        match self.is_key {
            true => format!("write \"{}\"", self.own),
            false => format!("write \"{}\" if it is a key of metadata", self.own),
        }
    }
}

/// Finds such keys in a condition, a template, a reference or a script.
fn foreign_keys(text: &str) -> impl Iterator<Item = MetadataKeyCandidate<'_>> {
    FOREIGN_PREFIXES.into_iter().flat_map(move |(foreign, own)| {
        text.match_indices(foreign).filter_map(move |(at, _)| {
            let (before, rest) = text.split_at(at);
            let quote = before.chars().next_back().filter(|before| matches!(before, '"' | '\'' | '`'))?;
            let name = &rest[..rest.find(quote)?];
            let odd = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '\\' | '$' | '{' | '}');
            if name.len() == foreign.len() || name.contains(odd) {
                return None;
            }
            let holder = before[..before.len() - quote.len_utf8()].trim_end();
            let holder = holder.strip_suffix('[').map_or(holder, str::trim_end);
            let holder = holder.strip_suffix("?.").map_or(holder, str::trim_end);
            let is_key = holder.ends_with("Metadata") || holder.ends_with("metadata");
            Some(MetadataKeyCandidate { at, name, own: format!("{own}{}", &name[foreign.len()..]), is_key })
        })
    })
}

/// Warns about metadata keys under the names of other services in a condition, a template, a reference or a script.
/// They are read as our own keys.
pub(super) fn warn_foreign_keys(text: &Written, path: Path<'_>, reader: &mut FieldReader<'_>) {
    for found in foreign_keys(text.value()) {
        let span = text.place(found.at, found.name.len());
        let place = reader.source.get(span.start as usize..span.end as usize).unwrap_or_default();
        if !place.contains(found.name) {
            // The name comes from a variable, whose value must not be displayed.
            continue;
        }
        let mut finding = Diagnostic::warning(CODE, found.message())
            .with_span(span)
            .with_hint(found.hint())
            .with_path(path.to_string());
        if found.is_key {
            finding = finding.with_fix(span, found.name, &*found.own);
        }
        reader.report(finding);
    }
}

/// Like [`warn_foreign_keys`], for the script file that a setting refers to.
pub(super) fn warn_foreign_keys_of_file(setting: &Written, path: Path<'_>, reader: &mut FieldReader<'_>) {
    let Some(content) = setting.content() else { return };
    let Ok(text) = &content.text else { return };
    for found in foreign_keys(text) {
        let before = &text[..found.at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let message = format!("{}:{line}:{column}: {}", setting.written().trim(), found.message());
        let finding = Diagnostic::warning(CODE, message).with_span(setting.span()).with_hint(found.hint());
        reader.report(finding.with_path(path.to_string()));
    }
}
