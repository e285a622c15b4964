//! Pipeline files of Conduit.

use std::collections::BTreeSet;

use anabranch_config::{ConnectorConfig, PipelineConfig, ProcessorConfig, Variables as Values, bare_name, load};
use anabranch_plugin::diagnostic::{Files, Severity, Span};
use anabranch_plugin::registry::{Registry, Role};
use anabranch_plugin::settings::Setting;
use anabranch_record::specification::{Specification, names_a_credential};

use super::line;
use crate::report::{Line, Outcome};
use crate::variables::Variables;

/// A file after its migration.
pub(super) struct MigratedFile {
    /// The text; `None` if the file is not valid.
    pub(super) text: Option<String>,
    pub(super) lines: Vec<Line>,
}

/// Gives every variable a value: only the form of the files matters.
struct AnyValue;

impl Values for AnyValue {
    fn variable(&self, _: &str) -> Option<String> {
        Some("value".to_owned())
    }

    fn file(&self, _: &str) -> Result<String, String> {
        Ok("value".to_owned())
    }
}

pub(super) fn migrate(name: &str, text: &str, registry: &Registry, variables: &mut Variables) -> MigratedFile {
    let mut files = Files::new();
    files.add(name, text);
    let loaded = load(&files, &AnyValue);
    let mut migration = FileMigration { text, lines: Vec::new(), edits: BTreeSet::new(), registry, variables };
    for finding in &loaded.diagnostics.0 {
        let place = finding.label.as_ref().and_then(|label| files.locate(label.span));
        let place = place.map_or_else(|| name.to_owned(), |place| format!("line {}", place.line));
        if finding.severity == Severity::Error {
            migration
                .lines
                .push(Line { blocks: true, ..line(&place, Outcome::NotCarried, "", finding.message.as_str()) });
        } else if let Some(range) = finding.fix.as_ref().and_then(|fix| fix.range(text)) {
            let becomes = finding.fix.as_ref().map(|fix| fix.becomes.clone()).unwrap_or_default();
            migration.edits.insert((range.start, range.end, becomes));
            migration.lines.push(line(&place, Outcome::Changed, "", finding.message.as_str()));
        } else {
            migration.lines.push(line(&place, Outcome::Changed, "", format!("check it: {}", finding.message)));
        }
    }
    for pipeline in &loaded.pipelines {
        migration.pipeline(pipeline);
    }
    let text = (loaded.broken.is_empty() && loaded.invalid.is_empty()).then(|| migration.edited());
    MigratedFile { text, lines: migration.lines }
}

struct FileMigration<'a> {
    text: &'a str,
    lines: Vec<Line>,
    /// Ranges of bytes, and the texts that replace them.
    edits: BTreeSet<(usize, usize, String)>,
    registry: &'a Registry,
    variables: &'a mut Variables,
}

impl FileMigration<'_> {
    fn pipeline(&mut self, pipeline: &PipelineConfig) {
        let id = &pipeline.id.value;
        for connector in &pipeline.connectors {
            self.connector(id, connector);
            for processor in &connector.processors {
                self.processor(&format!("{id}:{}", connector.id.value), processor);
            }
        }
        for processor in &pipeline.processors {
            self.processor(id, processor);
        }
        let letters = &pipeline.dead_letter_queue;
        let kind = self.registry.destination(&letters.plugin.value).ok().map(|kind| kind.specification().clone());
        self.credentials(&format!("{id}.dead-letter-queue"), kind.as_ref(), &letters.settings.entries);
    }

    fn connector(&mut self, pipeline: &str, connector: &ConnectorConfig) {
        let place = format!("{pipeline}.{}", connector.id.value);
        let reference = &connector.plugin.value;
        let (found, position) = match connector.role.value {
            Role::Source => (self.registry.source(reference).map(|kind| kind.specification().clone()), true),
            Role::Destination => (self.registry.destination(reference).map(|kind| kind.specification().clone()), false),
        };
        let specification = self.plugin(&place, reference, found.map_err(|error| error.to_string()));
        if position {
            let note = match bare_name(reference) {
                "postgres" => {
                    "the position is not carried over: the source begins with a snapshot. Drop the slot of Conduit, or \
                     choose another logrepl.slotName. To continue where Conduit stopped, set logrepl.adoptSlot: true and \
                     snapshotMode: never"
                }
                "kafka" => "the position is not carried over: the source begins at the committed offsets of its group",
                _ => "the position is not carried over: the source begins as at its first start",
            };
            self.lines.push(line(&place, Outcome::NotCarried, "", note));
        }
        self.credentials(&place, specification.as_ref(), &connector.settings.entries);
    }

    fn processor(&mut self, parent: &str, processor: &ProcessorConfig) {
        let place = format!("{parent}.{}", processor.id.value);
        let found = self.registry.operator(&processor.plugin.value).map(|kind| kind.specification().clone());
        let specification = self.plugin(&place, &processor.plugin.value, found.map_err(|error| error.to_string()));
        self.credentials(&place, specification.as_ref(), &processor.settings.entries);
    }

    /// Reports the plugin, and the settings that it does not have.
    fn plugin(&mut self, place: &str, reference: &str, found: Result<Specification, String>) -> Option<Specification> {
        match found {
            Ok(specification) => {
                self.lines.push(line(place, Outcome::Carried, &specification.name, ""));
                Some(specification)
            }
            Err(error) => {
                let name = bare_name(reference);
                let note = format!(
                    "{error}: copy the program or module of {name} to the directory of connectors or processors, or choose \
                     another plugin"
                );
                self.lines.push(Line { blocks: true, ..line(place, Outcome::NotCarried, "", note) });
                None
            }
        }
    }

    /// Replaces the credentials of a plugin with variables, and reports settings that the plugin does not have.
    fn credentials(&mut self, place: &str, specification: Option<&Specification>, settings: &[Setting]) {
        for setting in settings {
            let name = &setting.name.value;
            let parameter = specification.map(|specification| specification.parameter(name));
            if matches!(parameter, Some(None)) && !name.starts_with("sdk.") {
                let note = "the plugin does not have this setting: remove it, or look for its counterpart";
                self.lines
                    .push(Line { blocks: true, ..line(&format!("{place}.{name}"), Outcome::NotCarried, "", note) });
            }
            let is_secret = match parameter.flatten() {
                Some(parameter) => parameter.is_secret(name),
                None => names_a_credential(name),
            };
            if !is_secret || setting.value.is_substituted() || setting.value.value().trim().is_empty() {
                continue;
            }
            let full = format!("{place}.{name}");
            match self.scalar(setting.value.span(), setting.value.value()) {
                Some((start, end)) => {
                    let meaning = format!("the value of {full} in the project of Conduit");
                    let variable = self.variables.name(&format!("conduit {full}"), &full, meaning);
                    self.edits.retain(|(other_start, other_end, _)| *other_end <= start || *other_start >= end);
                    self.edits.insert((start, end, format!("\"${{{variable}}}\"")));
                    self.lines.push(line(&full, Outcome::Carried, &format!("the variable {variable}"), ""));
                }
                None => {
                    let note = "the credential is in the file: replace it with a variable, as ${NAME}";
                    self.lines.push(Line { blocks: true, ..line(&full, Outcome::NotCarried, "", note) });
                }
            }
        }
    }

    /// Returns the range of a scalar on one line, with its quotes; `None` for a block or a scalar with an anchor.
    fn scalar(&self, span: Span, value: &str) -> Option<(usize, usize)> {
        let (start, end) = (span.start as usize, span.end as usize);
        let written = self.text.get(start..end)?;
        let is_quoted = |quote: char| written.len() >= 2 && written.starts_with(quote) && written.ends_with(quote);
        let is_scalar = written == value || ((is_quoted('"') || is_quoted('\'')) && !written.contains('\n'));
        (is_scalar && !written.is_empty()).then_some((start, end))
    }

    /// Returns the text with the edits.
    fn edited(&self) -> String {
        let (mut text, mut kept) = (String::with_capacity(self.text.len()), 0);
        for (start, end, becomes) in &self.edits {
            // Edits of an anchor are found once for each alias; others do not overlap.
            let Some(unchanged) = self.text.get(kept..*start) else { continue };
            text.push_str(unchanged);
            text.push_str(becomes);
            kept = *end;
        }
        text.push_str(self.text.get(kept..).unwrap_or_default());
        text
    }
}
