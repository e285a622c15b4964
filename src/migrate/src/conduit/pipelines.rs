//! Pipeline files of Conduit.

use std::collections::BTreeMap;

use anabranch_config::{ConnectorConfig, PipelineConfig, ProcessorConfig, Variables as Values, bare_name, load};
use anabranch_plugin::diagnostic::{Diagnostic, FileId, Files, Severity, Span, Spanned};
use anabranch_plugin::registry::{Registry, Role};
use anabranch_plugin::secret::{mask, without_passwords};
use anabranch_plugin::settings::Setting;
use anabranch_record::specification::Specification;
use anabranch_record::text::Str;

use super::credentials::{Declared, holds_a_credential};
use super::edits::{Edits, scalar};
use super::plugins::{Found, UsedAs, find};
use super::{Project, line, stopping};
use crate::document::comment;
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

pub(super) fn migrate(
    name: &str,
    text: &str,
    project: &Project,
    registry: &Registry,
    variables: &mut Variables,
) -> MigratedFile {
    let mut files = Files::new();
    let file = files.add(name, text);
    let loaded = load(&files, &AnyValue);
    let mut migration = FileMigration {
        file,
        text,
        project,
        registry,
        variables,
        lines: Vec::new(),
        edits: Edits::default(),
        secrets: Vec::new(),
        to_do: BTreeMap::new(),
        pipeline: None,
    };
    for finding in &loaded.diagnostics.0 {
        migration.finding(&files, name, finding);
    }
    let is_valid = loaded.broken.is_empty() && loaded.invalid.is_empty();
    for pipeline in &loaded.pipelines {
        migration.pipeline(pipeline);
    }
    let text = is_valid.then(|| migration.finish());
    MigratedFile { text, lines: migration.lines }
}

struct FileMigration<'a> {
    file: FileId,
    text: &'a str,
    project: &'a Project,
    registry: &'a Registry,
    variables: &'a mut Variables,
    lines: Vec<Line>,
    edits: Edits,
    /// The credentials that variables replace.
    secrets: Vec<Str>,
    /// What is left to do, by the place of the pipeline, with its id.
    to_do: BTreeMap<u32, (Span, Str, Vec<String>)>,
    /// The pipeline that is being read.
    pipeline: Option<Spanned<Str>>,
}

impl FileMigration<'_> {
    /// Reports a finding about the form of the file.
    fn finding(&mut self, files: &Files, name: &str, finding: &Diagnostic) {
        let span = finding.label.as_ref().map(|label| label.span);
        let place = span.and_then(|span| files.locate(span));
        let place = place.map_or_else(|| name.to_owned(), |place| format!("line {}", place.line));
        let message = self.without_value(&finding.message, span);
        let fix = finding.fix.as_ref().and_then(|fix| Some((fix.range(self.text)?, fix.becomes.clone())));
        match fix {
            _ if finding.severity == Severity::Error => {
                self.lines.push(Line { blocks: true, ..line(&place, Outcome::NotCarried, "", message) });
            }
            Some((range, becomes)) => {
                self.edits.replace((range.start, range.end), becomes);
                self.lines.push(line(&place, Outcome::Changed, "", message));
            }
            None => self.lines.push(line(&place, Outcome::Changed, "", format!("check it: {message}"))),
        }
    }

    /// Returns a message without the value at its place, which may be a credential that stands in the wrong place. Names
    /// of fields and short words stay.
    fn without_value(&self, message: &str, span: Option<Span>) -> String {
        let message = without_passwords(message);
        let value = span.and_then(|span| self.text.get(span.start as usize..span.end as usize)).unwrap_or_default();
        let behind = span.and_then(|span| self.text.get(span.end as usize..)).unwrap_or_default();
        let is_word =
            value.len() <= 16 && value.bytes().all(|c| c.is_ascii_lowercase() || b"._-0123456789".contains(&c));
        let value = value.trim_matches(['"', '\'']);
        match value.is_empty() || is_word || behind.trim_start_matches(' ').starts_with(':') {
            true => message.into_owned(),
            false => mask(&message, &[value.into()]),
        }
    }

    /// Adds a line to the report. A line that blocks stops the pipeline.
    fn push(&mut self, line: Line) {
        if let Some(pipeline) = self.pipeline.as_ref().filter(|_| line.blocks) {
            let entry = self.to_do.entry(pipeline.span.start);
            let (.., notes) = entry.or_insert_with(|| (pipeline.span, pipeline.value.clone(), Vec::new()));
            notes.push(format!("{}: {}", line.setting, line.note));
        }
        self.lines.push(line);
    }

    fn leave_to_do(&mut self, place: &str, note: impl Into<String>) {
        self.push(Line { blocks: true, ..line(place, Outcome::NotCarried, "", note) });
    }

    fn pipeline(&mut self, pipeline: &PipelineConfig) {
        self.pipeline = Some(Spanned::new(pipeline.id.value.clone(), pipeline.span));
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
        let place = format!("{id}.dead-letter-queue");
        let used_as = UsedAs::Connector(Role::Destination);
        // The file need not name the plugin.
        let is_named = self
            .text
            .get(letters.plugin.span.start as usize..letters.plugin.span.end as usize)
            .is_some_and(|text| text.contains(letters.plugin.value.as_str()));
        let specification = match is_named {
            true => self.plugin(&place, used_as, &letters.plugin),
            false => match find(self.registry, used_as, &letters.plugin.value, false) {
                Found::BuiltIn(specification) => Some(specification),
                _ => None,
            },
        };
        self.settings(&place, specification.as_ref(), &letters.settings.entries);
        self.pipeline = None;
    }

    fn connector(&mut self, pipeline: &str, connector: &ConnectorConfig) {
        let place = format!("{pipeline}.{}", connector.id.value);
        let reference = &connector.plugin.value;
        let specification = self.plugin(&place, UsedAs::Connector(connector.role.value), &connector.plugin);
        if connector.role.value == Role::Source {
            let note = match bare_name(reference) {
                "postgres" => {
                    "the position is not carried over: the source begins with a snapshot. Drop the slot of Conduit, or \
                     choose another logrepl.slotName. To continue where Conduit stopped, set logrepl.adoptSlot: true and \
                     snapshotMode: never"
                }
                "kafka" => "the position is not carried over: the source begins at the committed offsets of its group",
                _ => "the position is not carried over: the source begins as at its first start",
            };
            self.push(line(&place, Outcome::NotCarried, "", note));
        }
        self.settings(&place, specification.as_ref(), &connector.settings.entries);
    }

    fn processor(&mut self, parent: &str, processor: &ProcessorConfig) {
        let place = format!("{parent}.{}", processor.id.value);
        let specification = self.plugin(&place, UsedAs::Processor, &processor.plugin);
        self.settings(&place, specification.as_ref(), &processor.settings.entries);
    }

    /// Reports the plugin, and returns its specification if it is part of this build.
    fn plugin(&mut self, place: &str, used_as: UsedAs, plugin: &Spanned<Str>) -> Option<Specification> {
        let has_files = match used_as {
            UsedAs::Connector(_) => self.project.has_connectors,
            UsedAs::Processor => self.project.has_processors,
        };
        let reference = plugin.value.as_str();
        match find(self.registry, used_as, reference, has_files) {
            Found::BuiltIn(specification) => {
                self.push(line(place, Outcome::Carried, &specification.name, ""));
                Some(specification)
            }
            Found::OtherVersion { specification, reference: becomes, version } => {
                let (start, end) = (plugin.span.start as usize, plugin.span.end as usize);
                let written = self.text.get(start..end).unwrap_or_default();
                match written.find(reference) {
                    Some(at) => {
                        self.edits.replace((start + at, start + at + reference.len()), becomes);
                        let note = format!(
                            "{version} is a version of Conduit's plugin, and this service has its own: the name has no version"
                        );
                        self.push(line(place, Outcome::Changed, &specification.name, note));
                    }
                    None => {
                        self.leave_to_do(place, format!("remove the version {version} from the name of the plugin"));
                    }
                }
                Some(specification)
            }
            Found::Standalone => {
                let note = "the migration does not start the programs and modules of the project, so it does not know the \
                            settings of this plugin: check them with `anabranch pipelines validate` in the new project";
                self.push(line(place, Outcome::Changed, bare_name(reference), note));
                None
            }
            Found::Nothing(note) => {
                self.leave_to_do(place, note);
                None
            }
        }
    }

    /// Replaces the credentials of a plugin with variables, and reports settings that the plugin does not have.
    fn settings(&mut self, place: &str, specification: Option<&Specification>, settings: &[Setting]) {
        for setting in settings {
            let name = &setting.name.value;
            let full = format!("{place}.{name}");
            let parameter = specification.map(|specification| specification.parameter(name));
            if matches!(parameter, Some(None)) && !name.starts_with("sdk.") {
                self.leave_to_do(
                    &full,
                    "the plugin does not have this setting: remove it, or look for its counterpart",
                );
            }
            let declared = match parameter.flatten() {
                Some(parameter) if parameter.is_secret(name) => Declared::Secret,
                Some(_) => Declared::Plain,
                None => Declared::Unknown,
            };
            if holds_a_credential(declared, name, setting.value.written()) {
                self.credential(&full, setting);
            }
        }
    }

    /// Replaces the value of a setting with a variable.
    fn credential(&mut self, full: &str, setting: &Setting) {
        self.secrets.push(setting.value.written().clone());
        let Some(range) = scalar(self.text, setting.value.span()) else {
            return self.leave_to_do(full, "the credential is masked: put a variable in its place, as ${NAME}");
        };
        // An anchor is replaced once, whatever its aliases are called.
        let known = self.edits.at(range).and_then(|known| known.strip_prefix("\"${")?.strip_suffix("}\""));
        let variable = match known {
            Some(known) => known.to_owned(),
            None => {
                let meaning = format!("the value of {full} in the project of Conduit");
                let variable = self.variables.name(&format!("conduit {full}"), full, meaning);
                self.edits.replace(range, format!("\"${{{variable}}}\""));
                variable
            }
        };
        self.push(line(full, Outcome::Carried, &format!("the variable {variable}"), ""));
    }

    /// Returns the text of the new file.
    fn finish(&mut self) -> String {
        let stopped: Vec<Span> = self.to_do.values().map(|(span, ..)| *span).collect();
        for (start, end, becomes) in stopping::edits(self.file, self.text, &stopped) {
            self.edits.replace((start, end), becomes);
        }
        let edited = self.edits.apply(self.text, std::mem::take(&mut self.secrets));
        let mut text = String::new();
        for (_, id, notes) in self.to_do.values() {
            comment(&mut text, 0, &format!("The pipeline {id} is stopped. Before you set `status: running`:"));
            notes.iter().for_each(|note| comment(&mut text, 0, &format!("* {note}")));
        }
        let above = text.lines().count();
        for number in edited.masked {
            let note = "a credential in a comment or a description is masked";
            let place = format!("line {} of the new file", above + number);
            self.lines.push(line(&place, Outcome::Changed, "", note));
        }
        for number in edited.broken {
            let note = "a credential is masked: put a variable in its place, as ${NAME}";
            let place = format!("line {} of the new file", above + number);
            self.lines.push(Line { blocks: true, ..line(&place, Outcome::NotCarried, "", note) });
        }
        text.push_str(edited.text.trim_start_matches('\u{feff}'));
        text
    }
}
