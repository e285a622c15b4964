//! Versions of the file format, and the fields that each introduced.

use std::fmt;

use anabranch_plugin::diagnostic::Diagnostic;

use super::field::{FieldReader, Object, Path, Reported};
use super::quote::quoted;
use super::yaml::Entry;
use crate::codes;

/// A version of the file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    V1_0,
    V1_1,
    V2_0,
    V2_1,
    V2_2,
}

impl Version {
    /// The newest version.
    const LATEST: Version = Version::V2_2;

    /// Reads the field `version` of a document. Returns a substitute if the version is missing or unknown but close to
    /// a supported one.
    pub(super) fn read(document: &mut Object<'_>, reader: &mut FieldReader<'_>) -> Result<Version, Reported> {
        let path = Path::root();
        let entry = document.take("version");
        let text = match entry {
            Some(entry) => reader.text(entry, path.name("version"))?,
            None => None,
        };
        let latest = Version::LATEST;
        let Some(text) = text.filter(|text| !text.value().trim().is_empty()) else {
            let finding = Diagnostic::warning(
                codes::CONFIG_VERSION_MISSING,
                format!("no version is set; the document is read as version {latest}"),
            )
            .with_span(entry.map_or(document.head(), |entry| entry.key_span))
            .with_hint(format!("write `version: {latest}` at the top of the document"));
            reader.report(match (entry, indentation(reader.source, document.head().start as usize)) {
                (None, Some(indentation)) => {
                    let end = if reader.source.contains("\r\n") { "\r\n" } else { "\n" };
                    finding.with_fix(document.head(), "", format!("version: \"{latest}\"{end}{indentation}"))
                }
                _ => finding,
            });
            return Ok(latest);
        };
        let value = text.value().trim();
        let major = value.split('.').next().unwrap_or_default();
        let stand_in = match (value, major) {
            ("1.0", _) => return Ok(Version::V1_0),
            ("1.1", _) => return Ok(Version::V1_1),
            ("2.0", _) => return Ok(Version::V2_0),
            ("2.1", _) => return Ok(Version::V2_1),
            ("2.2", _) => return Ok(Version::V2_2),
            (_, "1") => Version::V1_1,
            (_, "2") => latest,
            _ => {
                return Err(reader.report(
                    Diagnostic::error(
                        codes::CONFIG_VERSION_UNSUPPORTED,
                        format!("unknown version {}", quoted(text.written())),
                    )
                    .with_span(text.span())
                    .with_hint(format!(
                        "versions 1.0 to {latest} are supported; for the newest, write `version: {latest}`"
                    )),
                ));
            }
        };
        let finding = Diagnostic::warning(
            codes::CONFIG_VERSION_UNKNOWN,
            format!("unknown version {}; the document is read as version {stand_in}", quoted(text.written())),
        )
        .with_span(text.span());
        reader.report(if text.is_substituted() {
            finding
        } else {
            finding.with_fix(text.span(), value, stand_in.to_string())
        });
        Ok(stand_in)
    }

    /// Returns `true` if pipelines, connectors and processors are maps by id instead of lists.
    pub(super) fn has_maps(self) -> bool {
        self < Version::V2_0
    }

    /// Warns about a field that only a later version has. The field is read nevertheless.
    pub(super) fn introduced(self, since: Version, entry: &Entry, path: Path<'_>, reader: &mut FieldReader<'_>) {
        if self < since {
            let key = &entry.key;
            reader.report(
                Diagnostic::warning(
                    codes::CONFIG_FIELD_INTRODUCED,
                    format!("{key:?} was introduced in version {since}, but this document has version {self}"),
                )
                .with_span(entry.key_span)
                .with_hint(format!("write `version: {since}` or newer"))
                .with_path(path.to_string()),
            );
        }
    }

    /// Warns that version 1 does not define the order of processors.
    pub(super) fn ordered(self, processors: &Entry, path: Path<'_>, reader: &mut FieldReader<'_>) {
        if self.has_maps() {
            reader.report(
                Diagnostic::warning(
                    codes::CONFIG_ORDER_UNDEFINED,
                    format!("version {self} does not define the order of processors; the order of the file is used"),
                )
                .with_span(processors.key_span)
                .with_hint(format!("write `version: {}`, where processors are a list", Version::LATEST))
                .with_path(path.to_string()),
            );
        }
    }
}

/// Returns the text before a byte on its line if it consists only of spaces.
fn indentation(source: &str, at: usize) -> Option<&str> {
    let before = source.get(..at)?;
    let line = &before[before.rfind('\n').map_or(0, |newline| newline + 1)..];
    let starts_a_block = !source[at..].starts_with(['{', '?', '&', '*', '!']);
    (starts_a_block && line.bytes().all(|byte| byte == b' ')).then_some(line)
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::V1_0 => "1.0",
            Version::V1_1 => "1.1",
            Version::V2_0 => "2.0",
            Version::V2_1 => "2.1",
            Version::V2_2 => "2.2",
        })
    }
}
