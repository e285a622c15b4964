//! Reads the texts of pipeline files as pipelines, with all findings.

use std::collections::HashMap;

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, FileId, Files, Severity, SourceFile, Span};
use anabranch_plugin::written::{Content, Written};
use anabranch_record::text::Str;

use super::PipelineConfig;
use super::field::{FieldReader, Path};
use super::interpolate::{Dialect, Resolver};
use super::item::{Item, items};
use super::pipeline::{self, PartialPipeline};
use super::quote::quoted;
use super::unknown::MapKind;
use super::version::Version;
use super::yaml::{self, Node, Value};
use crate::codes;

/// Maximum size of a pipeline file in bytes; larger files are rejected without parsing. Callers need not read more than
/// one byte beyond it.
pub const MAX_FILE_BYTES: usize = 8 << 20;

/// Maximum number of displayed findings per file.
const MAX_FINDINGS: usize = 1000;

/// Maximum number of displayed places of a duplicate id.
const MAX_PLACES: usize = 8;

/// Source of the values of `${...}`.
pub trait Variables {
    /// Returns the value of `${NAME}`; `None` if it is not set.
    fn variable(&self, name: &str) -> Option<String>;

    /// Returns the content for `${file:PATH}`; one final line break is not part of the value. Called once per path.
    ///
    /// # Errors
    /// A phrase with the reason, such as `permission denied`.
    fn file(&self, path: &str) -> Result<String, String>;

    /// Returns the script at `script.path`, as given in the named pipeline file. The default implementation returns an
    /// error.
    fn script(&self, path: &str, pipeline_file: &str) -> Content {
        let _ = pipeline_file;
        Content { path: path.into(), text: Err("files are not read here".into()), hint: None }
    }
}

/// Returns the value of a setting from its text in the file; `None` if a variable in it has no value.
pub fn value_of(written: &Str, variables: &dyn Variables) -> Option<Written> {
    let resolved = Resolver::new(variables).interpolate(written, Span::default(), None, Dialect::Value);
    resolved.ok().map(|resolved| resolved.text)
}

/// Result of loading pipeline files.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Pipelines without errors, in the order of files, documents and lists.
    pub pipelines: Vec<PipelineConfig>,
    /// Pipelines with errors, in the same order.
    pub invalid: Vec<InvalidPipeline>,
    /// Files whose pipelines are not completely known: a document did not parse, or a pipeline has no id. The stored
    /// state of pipelines from these files must not be changed.
    pub broken: Vec<FileId>,
    /// All findings, in the order of files and lines.
    pub diagnostics: Diagnostics,
}

/// A pipeline with errors that is distinguishable from other pipelines.
#[derive(Clone, Debug, PartialEq)]
pub struct InvalidPipeline {
    /// Id, if it is known.
    pub id: Option<Str>,
    /// Place of its list item.
    pub span: Span,
    /// The valid connectors and processors, so that their plugins and settings can be checked in the same pass. It must
    /// not be run: other parts are missing, possibly every source or destination.
    pub sound_parts: Option<Box<PipelineConfig>>,
}

/// Reads pipeline files, replaces variables and validates. Reports all problems in all files.
///
/// Linear in the size of the files and of variable values; [`MAX_FILE_BYTES`] and limits on nesting and aliases prevent
/// expansion attacks. Ids, names and plugins are displayed with variables replaced, so credentials belong in settings.
pub fn load(files: &Files, variables: &dyn Variables) -> Loaded {
    let mut loaded = Loaded::default();
    let mut drafts = Vec::new();
    let mut items = Vec::new();
    let mut reader = FieldReader::new(FileId::default(), "", "", Resolver::new(variables));
    for (id, file) in files.iter() {
        reader.turn_to(id, &file.name, &file.text);
        let read = match refuse(id, file) {
            Some(finding) => {
                reader.report(finding);
                false
            }
            None => read_file(&mut reader, &mut drafts, &mut items),
        };
        if !read {
            loaded.broken.push(id);
        }
    }
    let mut findings = reader.findings;
    refuse_duplicate_ids(&mut drafts, &mut findings);
    refuse_duplicate_names(&mut drafts, &mut findings);
    refuse_beside_blocks(&mut drafts, &items, &findings);
    for draft in drafts {
        if draft.sound {
            loaded.pipelines.push(draft.config);
        } else {
            loaded.invalid.push(InvalidPipeline {
                id: draft.id.map(|id| id.value().clone()),
                span: draft.config.span,
                sound_parts: Some(Box::new(draft.config)),
            });
        }
    }
    findings.0.sort_by_key(|finding| (finding.label.as_ref().map(|label| label.span), finding.code));
    // The content of an anchor is read again for each alias.
    findings.0.dedup_by(|a, b| a.code == b.code && a.label == b.label && a.message == b.message);
    loaded.diagnostics = Diagnostics(findings.0.chunk_by(in_same_file).flat_map(first_of_file).collect());
    loaded
}

fn in_same_file(a: &Diagnostic, b: &Diagnostic) -> bool {
    let file = |finding: &Diagnostic| finding.label.as_ref().map(|label| label.span.file);
    file(a) == file(b)
}

/// Returns the first findings of a file, with a note on the number left out.
fn first_of_file(findings: &[Diagnostic]) -> Vec<Diagnostic> {
    let (shown, rest) = findings.split_at(findings.len().min(MAX_FINDINGS));
    let mut shown = shown.to_vec();
    if let Some(first) = rest.first() {
        let message = format!("{} more findings in this file are not shown", rest.len());
        let severity = rest.iter().map(|finding| finding.severity).min().unwrap_or(first.severity);
        shown.push(Diagnostic {
            severity,
            label: first.label.clone(),
            ..Diagnostic::error(codes::CONFIG_TOO_MANY, message)
        });
    }
    shown
}

/// Returns the reason why a file cannot be parsed.
fn refuse(id: FileId, file: &SourceFile) -> Option<Diagnostic> {
    let at = |byte: usize| Span { file: id, start: byte as u32, end: byte as u32 };
    if file.text.len() > MAX_FILE_BYTES {
        let message = format!("the file is too large: at most {} MiB are read", MAX_FILE_BYTES >> 20);
        return Some(Diagnostic::error(codes::CONFIG_FILE_TOO_LARGE, message).with_span(at(0)));
    }
    let garbage = match file.not_utf8 {
        Some(byte) => Some((byte as usize, "the file is not UTF-8 text")),
        None => file.text.find('\0').map(|byte| (byte, "the file is not text: it contains a zero byte")),
    };
    garbage.map(|(byte, message)| {
        Diagnostic::error(codes::CONFIG_PARSE_ERROR, message).with_span(at(byte)).with_hint("save it as UTF-8")
    })
}

/// Reads a file. Returns `true` if all pipelines that it declares are known.
fn read_file(reader: &mut FieldReader<'_>, drafts: &mut Vec<PartialPipeline>, items: &mut Vec<Span>) -> bool {
    let mut findings = Diagnostics::new();
    let documents = yaml::parse(reader.file, reader.source, &mut findings);
    reader.findings.extend(findings);
    let mut complete = true;
    for document in documents {
        let (errors, first) = (reader.errors(), drafts.len());
        let read = document.root.as_ref().map(|root| read_document(root, reader, drafts, items)).unwrap_or_default();
        // The error is in a part that cannot be attributed to a pipeline.
        let hidden = document.flawed && reader.errors() == errors;
        complete &= read.complete && !hidden;
        if hidden || read.errors > 0 {
            drafts[first..].iter_mut().for_each(|draft| draft.sound = false);
        }
    }
    complete
}

/// Result of reading a document.
#[derive(Default)]
struct ReadDocument {
    /// True if the reader found all pipelines of the document.
    complete: bool,
    /// Number of errors outside of pipelines. They prevent all pipelines of the document from running.
    errors: usize,
}

fn read_document(
    root: &Node,
    reader: &mut FieldReader<'_>,
    drafts: &mut Vec<PartialPipeline>,
    spans: &mut Vec<Span>,
) -> ReadDocument {
    let errors = reader.errors();
    let mut inside = 0;
    let complete = read_pipelines(root, reader, |item, index, version, reader| {
        spans.push(item.span);
        let before = reader.errors();
        let draft = pipeline::read(item, index, version, reader);
        inside += reader.errors() - before;
        let is_known = draft.as_ref().is_some_and(|draft| draft.id.is_some());
        drafts.extend(draft);
        is_known
    });
    ReadDocument { complete, errors: reader.errors() - errors - inside }
}

/// Calls `read` for each pipeline of a document; it returns `true` if the id is known. Returns `true` if all pipelines
/// that the document declares are known.
fn read_pipelines<'a>(
    root: &Node,
    reader: &mut FieldReader<'a>,
    mut read: impl FnMut(&Item<'_>, usize, Version, &mut FieldReader<'a>) -> bool,
) -> bool {
    if matches!(root.value, Value::Null) {
        return true;
    }
    let errors = reader.errors();
    let path = Path::root();
    let Ok(mut document) = reader.object(root, first_line(root.span, reader.source), "a document", path) else {
        return false;
    };
    let version = Version::read(&mut document, reader);
    let pipelines = document.take("pipelines");
    for entry in document.entries() {
        // Fields for anchors.
        if entry.key.starts_with("x-") {
            document.take(&entry.key);
        }
    }
    reader.report_unknown(&document, MapKind::Document, path);
    let (Ok(version), Some(pipelines)) = (version, pipelines) else { return reader.errors() == errors };
    let Ok(items) = items(pipelines, version, path.name("pipelines"), reader) else { return false };
    let mut complete = reader.errors() == errors;
    for (index, item) in items.iter().enumerate() {
        complete &= read(item, index, version, reader);
    }
    complete
}

/// Returns the part of a span on its first line.
fn first_line(span: Span, source: &str) -> Span {
    let text = source.get(span.start as usize..span.end as usize).unwrap_or_default();
    Span { end: span.start + text.lines().next().map_or(0, str::len) as u32, ..span }
}

/// Marks all pipelines of a file as invalid if a misplaced or misspelt block is outside of them. The block may decide
/// where their records go, and document separators may divide the file around it. `items` are the places of the list
/// items of pipelines.
fn refuse_beside_blocks(drafts: &mut [PartialPipeline], items: &[Span], findings: &Diagnostics) {
    let is_block = |finding: &&Diagnostic| {
        finding.severity == Severity::Error
            && [codes::CONFIG_FIELD_MISPLACED, codes::CONFIG_FIELD_MISSPELT].contains(&finding.code)
    };
    for place in findings.iter().filter(is_block).filter_map(|block| Some(block.label.as_ref()?.span)) {
        let holds = |item: &Span| item.file == place.file && (item.start..=item.end).contains(&place.start);
        if !items.iter().any(holds) {
            drafts
                .iter_mut()
                .filter(|draft| draft.config.span.file == place.file)
                .for_each(|draft| draft.sound = false);
        }
    }
}

/// Marks all pipelines with a duplicate id as invalid, since it is unknown which one is meant.
fn refuse_duplicate_ids(drafts: &mut [PartialPipeline], findings: &mut Diagnostics) {
    let mut by_id: HashMap<Str, Vec<usize>> = HashMap::new();
    for (index, draft) in drafts.iter().enumerate() {
        if let Some(id) = &draft.id {
            by_id.entry(id.value().clone()).or_default().push(index);
        }
    }
    let mut duplicates: Vec<Vec<usize>> = by_id.into_values().filter(|indices| indices.len() > 1).collect();
    duplicates.sort_unstable();
    for indices in duplicates {
        let ids: Vec<Written> = indices.iter().filter_map(|index| drafts[*index].id.clone()).collect();
        let [first, second, rest @ ..] = ids.as_slice() else { continue };
        let mut finding = Diagnostic::error(
            codes::PROVISIONING_PIPELINE_ID_DUPLICATE,
            format!("{} pipelines have the id {}; none of them is used", ids.len(), quoted(first.written())),
        )
        .with_label(second.span(), "used again")
        .with_related(first.span(), "first used here")
        .with_hint("give each pipeline a different id")
        .with_path("/id");
        for id in rest.iter().take(MAX_PLACES - 2) {
            finding = finding.with_related(id.span(), "and here");
        }
        findings.push(finding);
        for index in indices {
            drafts[index].sound = false;
        }
    }
}

/// Rejects duplicate names, since names identify pipelines in metrics. The first pipeline keeps its name.
fn refuse_duplicate_names(drafts: &mut [PartialPipeline], findings: &mut Diagnostics) {
    let mut by_name: HashMap<Str, usize> = HashMap::new();
    for index in 0..drafts.len() {
        let Some(name) = drafts[index].name.clone() else { continue };
        let Some(first) = by_name.get(name.value()).map(|first| &drafts[*first]) else {
            by_name.insert(name.value().clone(), index);
            continue;
        };
        let same_id = first.id.as_ref().map(Written::value) == drafts[index].id.as_ref().map(Written::value);
        let Some(first) = first.name.clone().filter(|_| !same_id) else { continue };
        findings.push(
            Diagnostic::error(
                codes::CONFIG_NAME_DUPLICATE,
                format!("the name {} is already used", quoted(name.written())),
            )
            .with_label(name.span(), "used again")
            .with_related(first.span(), "first used here")
            .with_hint("give each pipeline a different `name`; the default name is the id")
            .with_path("/name"),
        );
        drafts[index].sound = false;
    }
}
