//! From the texts of pipeline files to pipelines, with all that is wrong with them.

use std::collections::HashMap;

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, FileId, Files, Severity, SourceFile, Span};
use anabranch_plugin::written::{Content, Written};
use anabranch_record::text::Str;

use super::PipelineConfig;
use super::field::{Path, Reader, quoted};
use super::interpolate::{Dialect, Resolver};
use super::item::{Item, items};
use super::pipeline::{self, Draft};
use super::unknown::Part;
use super::version::Version;
use super::yaml::{self, Node, Value};

/// Longest text of a pipeline file, in bytes; a longer one is refused unread. Who reads files need not read more
/// than one byte beyond it.
pub const MAX_FILE_BYTES: usize = 8 << 20;

/// Most findings shown of one file.
const MAX_FINDINGS: usize = 1000;

/// Most places shown for one id that several pipelines have.
const MAX_PLACES: usize = 8;

/// Where the values behind `${...}` come from.
pub trait Variables {
    /// The value of `${NAME}`; `None` where it is not set.
    fn variable(&self, name: &str) -> Option<String>;

    /// The content behind `${file:PATH}`; one line break at its end is not part of the value. Asked once per path.
    ///
    /// # Errors
    /// Why there is none, as a phrase: `permission denied`.
    fn file(&self, path: &str) -> Result<String, String>;

    /// The script behind `script.path`, named in the pipeline file of this name. Who reads no files refuses.
    fn script(&self, path: &str, pipeline_file: &str) -> Content {
        let _ = pipeline_file;
        Content { path: path.into(), text: Err("files are not read here".into()), hint: None }
    }
}

/// The value of a setting as it is written in a file; `None` where a variable in it has no value now.
pub fn value_of(written: &Str, variables: &dyn Variables) -> Option<Written> {
    let resolved = Resolver::new(variables).interpolate(written, Span::default(), None, Dialect::Value);
    resolved.ok().map(|resolved| resolved.text)
}

/// What the pipeline files say.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Pipelines without errors, in the order of files, documents and lists.
    pub pipelines: Vec<PipelineConfig>,
    /// Pipelines with errors, in the same order.
    pub invalid: Vec<InvalidPipeline>,
    /// Files of which it is not known which pipelines they declare: a document did not parse, or a pipeline has no
    /// id. The stored state of pipelines that came from them must be left alone.
    pub broken: Vec<FileId>,
    /// All findings in all files, in the order of files and lines.
    pub diagnostics: Diagnostics,
}

/// A pipeline that could be told apart from the others, but has errors.
#[derive(Clone, Debug, PartialEq)]
pub struct InvalidPipeline {
    /// Its id, where it has one.
    pub id: Option<Str>,
    /// Its list item.
    pub span: Span,
    /// The connectors and processors that are without errors, so that their plugins and settings can be checked in the
    /// same go. It is no pipeline to be run: other parts are missing, perhaps every source or destination.
    pub sound_parts: Option<Box<PipelineConfig>>,
}

/// Reads pipeline files, replaces variables and validates. All problems of all files are found in one pass.
///
/// Takes time linear in the size of the files and of what variables hold, with [`MAX_FILE_BYTES`] and limits on
/// nesting and aliases against texts that grow. Ids, names and plugins are shown with their variables replaced;
/// credentials belong into settings.
pub fn load(files: &Files, variables: &dyn Variables) -> Loaded {
    let mut loaded = Loaded::default();
    let mut drafts = Vec::new();
    let mut items = Vec::new();
    let mut reader = Reader::new(FileId::default(), "", "", Resolver::new(variables));
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
    // What an anchor holds is read again with each of its aliases.
    findings.0.dedup_by(|a, b| a.code == b.code && a.label == b.label && a.message == b.message);
    loaded.diagnostics = Diagnostics(findings.0.chunk_by(in_same_file).flat_map(first_of_file).collect());
    loaded
}

fn in_same_file(a: &Diagnostic, b: &Diagnostic) -> bool {
    let file = |finding: &Diagnostic| finding.label.as_ref().map(|label| label.span.file);
    file(a) == file(b)
}

/// The findings of one file, cut where nobody reads on.
fn first_of_file(findings: &[Diagnostic]) -> Vec<Diagnostic> {
    let (shown, rest) = findings.split_at(findings.len().min(MAX_FINDINGS));
    let mut shown = shown.to_vec();
    if let Some(first) = rest.first() {
        let message = format!("{} more findings in this file are not shown", rest.len());
        let severity = rest.iter().map(|finding| finding.severity).min().unwrap_or(first.severity);
        shown.push(Diagnostic {
            severity,
            label: first.label.clone(),
            ..Diagnostic::error("config.too_many", message)
        });
    }
    shown
}

/// Why a text is not to be parsed.
fn refuse(id: FileId, file: &SourceFile) -> Option<Diagnostic> {
    let at = |byte: usize| Span { file: id, start: byte as u32, end: byte as u32 };
    if file.text.len() > MAX_FILE_BYTES {
        let message = format!("the file is too large: at most {} MiB are read", MAX_FILE_BYTES >> 20);
        return Some(Diagnostic::error("config.file_too_large", message).with_span(at(0)));
    }
    let garbage = match file.not_utf8 {
        Some(byte) => Some((byte as usize, "the file is not UTF-8 text")),
        None => file.text.find('\0').map(|byte| (byte, "the file is not text, it holds a zero byte")),
    };
    garbage.map(|(byte, message)| {
        Diagnostic::error("config.parse_error", message).with_span(at(byte)).with_hint("save it as UTF-8")
    })
}

/// Whether it is known which pipelines the file declares.
fn read_file(reader: &mut Reader<'_>, drafts: &mut Vec<Draft>, items: &mut Vec<Span>) -> bool {
    let mut findings = Diagnostics::new();
    let documents = yaml::parse(reader.file, reader.source, &mut findings);
    reader.findings.extend(findings);
    let mut complete = true;
    for document in documents {
        let (errors, first) = (reader.errors(), drafts.len());
        let read = document.root.as_ref().map(|root| read_document(root, reader, drafts, items)).unwrap_or_default();
        // A mistake in a part that belongs to no pipeline, as far as can be seen.
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
    /// Whether it is known which pipelines it declares.
    complete: bool,
    /// Errors in it that are in no pipeline: they keep all of its pipelines from running.
    errors: usize,
}

fn read_document(root: &Node, reader: &mut Reader<'_>, drafts: &mut Vec<Draft>, spans: &mut Vec<Span>) -> ReadDocument {
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

/// Gives each pipeline of a document to `read`, which says whether its id is known. Whether it is known which pipelines
/// the document declares.
fn read_pipelines<'a>(
    root: &Node,
    reader: &mut Reader<'a>,
    mut read: impl FnMut(&Item<'_>, usize, Version, &mut Reader<'a>) -> bool,
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
        // Room for anchors.
        if entry.key.starts_with("x-") {
            document.take(&entry.key);
        }
    }
    reader.report_unknown(&document, Part::Document, path);
    let (Ok(version), Some(pipelines)) = (version, pipelines) else { return reader.errors() == errors };
    let Ok(items) = items(pipelines, version, path.name("pipelines"), reader) else { return false };
    let mut complete = reader.errors() == errors;
    for (index, item) in items.iter().enumerate() {
        complete &= read(item, index, version, reader);
    }
    complete
}

/// The part of a span on its first line.
fn first_line(span: Span, source: &str) -> Span {
    let text = source.get(span.start as usize..span.end as usize).unwrap_or_default();
    Span { end: span.start + text.lines().next().map_or(0, str::len) as u32, ..span }
}

/// A misplaced or misspelt block beside the pipelines of a file keeps all of them from running: it may decide where their
/// records go, and a file may be cut into documents around it. `items`: the items of the lists of pipelines.
fn refuse_beside_blocks(drafts: &mut [Draft], items: &[Span], findings: &Diagnostics) {
    let is_block = |finding: &&Diagnostic| {
        finding.severity == Severity::Error
            && ["config.field_misplaced", "config.field_misspelt"].contains(&finding.code)
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

/// Which of several pipelines with one id is meant cannot be known, so none of them is used.
fn refuse_duplicate_ids(drafts: &mut [Draft], findings: &mut Diagnostics) {
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
            "provisioning.pipeline_id_duplicate",
            format!("{} pipelines have the id {}; none of them is used", ids.len(), quoted(first.written())),
        )
        .with_label(second.span(), "used again")
        .with_related(first.span(), "first used here")
        .with_hint("give each pipeline an id of its own")
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

/// Names tell pipelines apart in metrics; the first one keeps its name.
fn refuse_duplicate_names(drafts: &mut [Draft], findings: &mut Diagnostics) {
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
            Diagnostic::error("config.name_duplicate", format!("the name {} is taken", quoted(name.written())))
                .with_label(name.span(), "used again")
                .with_related(first.span(), "first used here")
                .with_hint("give each pipeline a `name` of its own; without one its id is its name")
                .with_path("/name"),
        );
        drafts[index].sound = false;
    }
}
