//! Reads test files.

mod expectation;
mod fault;
mod service;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anabranch_config::MAX_FILE_BYTES;
use anabranch_config::yaml::{self, Entry, Node, Value};
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, FileId, Files, Severity, Span, Spanned};
use anabranch_record::fault::FaultClass;
use anabranch_record::text::Str;

pub(in crate::testing) use expectation::is_of_list;

use super::fields::{Fields, duration, invalid, items, map, text, wrong};
use super::input::{self, Base, Reads, scalar_text};
use super::pattern::Expected;
use super::stub::Stub;
use crate::codes;

/// A file of tests.
#[derive(Debug)]
pub struct TestFile {
    /// Id of the file.
    pub file: FileId,
    /// Path of the file; `None` if the text comes from elsewhere.
    pub path: Option<PathBuf>,
    /// Path of the pipeline file; `None` if the pipeline was passed with the tests.
    pub pipeline: Option<Spanned<PathBuf>>,
    /// Id of the pipeline, if the file has several.
    pub id: Option<Spanned<Str>>,
    /// Its tests, in order.
    pub tests: Vec<Arc<TestCase>>,
}

/// A test.
#[derive(Debug)]
pub struct TestCase {
    /// Name, unique in the file.
    pub name: Spanned<Str>,
    /// Values of `${NAME}` and `${file:PATH}`.
    pub env: BTreeMap<String, String>,
    /// The time of day in the test; `None` = the real time.
    pub now: Option<SystemTime>,
    /// Time limit of the test in real time.
    pub timeout: Duration,
    /// The records of the sources.
    pub input: PerConnector<Reads>,
    /// The expected results.
    pub expect: Expectations,
    /// The responses to HTTP requests.
    pub http: Vec<Stub>,
    /// The injected faults.
    pub faults: Vec<FaultSpec>,
}

/// A value for each connector of a role, by id or for the only connector.
#[derive(Debug)]
pub struct PerConnector<T> {
    /// The entries, without a name if the test gives none.
    pub entries: Vec<(Option<Spanned<Str>>, T)>,
    /// Place in the file.
    pub span: Span,
}

/// The expected results of a test.
#[derive(Debug)]
pub struct Expectations {
    /// Place in the file; the name of the test if it has no `expect`.
    pub span: Span,
    /// The expected records of the destinations.
    pub records: PerConnector<ExpectedRecords>,
    /// The expected dead letters; by default none.
    pub letters: Option<ExpectedRecords>,
    /// The records that must be acknowledged to the sources.
    pub acks: PerConnector<Acks>,
    /// The expected status at the end.
    pub status: Option<Spanned<Status>>,
    /// The expected error of a degraded pipeline.
    pub error: Option<Expected>,
    /// The expected HTTP requests, in order.
    pub requests: Option<ExpectedRecords>,
}

/// An expected list of records, dead letters or requests.
#[derive(Debug)]
pub struct ExpectedRecords {
    /// Place in the file.
    pub span: Span,
    /// The items; `None` if only their number is expected.
    pub items: Option<Vec<Expected>>,
    /// Place of the list, if it is in the test file.
    pub list: Option<Span>,
    /// The expected number.
    pub count: Option<Spanned<usize>>,
    /// `true` if any order is accepted.
    pub unordered: bool,
    /// `true` if duplicates count once, as a replay produces them.
    pub repeats: bool,
}

/// The acknowledged records of a source, numbered from 1.
#[derive(Debug)]
pub enum Acks {
    /// All records.
    All(Span),
    /// No record.
    None(Span),
    /// This number of records.
    Count(Spanned<usize>),
    /// These records, in this order.
    These(Vec<usize>, Span),
}

/// The status of a pipeline at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Everything is read and settled.
    Finished,
    /// The pipeline failed for good.
    Degraded,
    /// The pipeline fails and restarts endlessly.
    Recovering,
}

impl Status {
    /// Returns the name of the status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Finished => "finished",
            Status::Degraded => "degraded",
            Status::Recovering => "recovering",
        }
    }
}

/// An injected fault at a connector or processor.
#[derive(Clone, Debug)]
pub struct FaultSpec {
    /// Place in the file.
    pub span: Span,
    /// Id of the connector or processor.
    pub at: Spanned<Str>,
    /// The source whose records are affected; `None` = all sources.
    pub source: Option<Spanned<Str>>,
    /// The affected records, numbered from 1 in the order of their source; empty = all.
    pub records: Vec<usize>,
    /// The kind of fault.
    pub kind: Spanned<FaultKind>,
    /// Maximum number of occurrences; `None` = no limit.
    pub times: Option<usize>,
}

/// The kind of an injected fault.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// The call fails.
    Fail(FaultClass, String),
    /// The call takes this much longer.
    Delay(Duration),
    /// The call never returns.
    Hang,
    /// The call panics.
    Panic,
    /// A destination fails for this long, starting with its first write.
    Down(Duration),
    /// A destination writes this many records of a batch, and then its result is unknown.
    Partial(usize),
    /// The process crashes: at a destination, after the record is written but before the result is known; at a source,
    /// before the record is acknowledged.
    Crash,
}

/// Settings of a test file that apply to all its tests.
#[derive(Clone)]
struct Shared {
    env: BTreeMap<String, String>,
    now: Option<SystemTime>,
    timeout: Duration,
    how: Match,
}

/// How strictly an expectation is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Match {
    /// Only the named parts; in maps, only the named fields.
    Fields,
    /// Only the named parts, but all fields of keys and payloads; of the metadata, only the named keys.
    Data,
    /// Everything.
    Exact,
}

const FILE: &[&str] = &["pipeline", "id", "env", "now", "timeout", "match", "tests"];
const TEST: &[&str] = &["name", "env", "now", "timeout", "match", "input", "expect", "http", "faults", "description"];

const TIMEOUT: Duration = Duration::from_secs(10);

/// Reads a test file. `path` is its location; the pipeline file is next to it.
pub(super) fn read(files: &Files, file: FileId, path: Option<&Path>, findings: &mut Diagnostics) -> Option<TestFile> {
    let source = files.get(file)?;
    let start = Span { file, start: 0, end: 0 };
    if source.text.len() > MAX_FILE_BYTES || source.not_utf8.is_some() {
        findings.push(
            Diagnostic::error(codes::CONFIG_PARSE_ERROR, "this is not a test file: it is too large, or it is not text")
                .with_span(start),
        );
        return None;
    }
    let before = findings.0.len();
    let documents = yaml::parse(file, &source.text, findings);
    let mut documents = documents.iter();
    let Some(root) = documents.next().and_then(|document| document.root.as_ref()) else {
        if findings.0.len() == before {
            findings.push(invalid(start, "the file is empty"));
        }
        return None;
    };
    if let Some(second) = documents.next().and_then(|document| document.root.as_ref()) {
        findings.push(
            invalid(second.span, "a test file must contain one document").with_hint("put all tests under `tests`"),
        );
    }
    let mut reader = Reader { base: path.map(|path| path.parent().unwrap_or(Path::new(""))), findings };
    let read = reader.file(root, file, path);
    if findings.iter().skip(before).any(|finding| finding.severity == Severity::Error) {
        return None;
    }
    read
}

struct Reader<'a> {
    base: Base<'a>,
    findings: &'a mut Diagnostics,
}

impl Reader<'_> {
    fn file(&mut self, root: &Node, file: FileId, path: Option<&Path>) -> Option<TestFile> {
        let mut fields = Fields::of(root, "a test file", self.findings)?;
        let head = fields.head();
        let pipeline = match (fields.take("pipeline"), path) {
            (Some(entry), Some(path)) => {
                let name = text(entry, self.findings)?;
                let directory = path.parent().unwrap_or(Path::new(""));
                Some(Spanned::new(directory.join(name.value.as_str()), name.span))
            }
            (Some(entry), None) => {
                self.findings.push(invalid(
                    entry.key_span,
                    "`pipeline` is not allowed here: the pipeline is sent with the test",
                ));
                None
            }
            (None, Some(path)) => Some(Spanned::new(beside(path), head)),
            (None, None) => None,
        };
        let id = fields.take("id").and_then(|entry| text(entry, self.findings));
        let shared = Shared { env: BTreeMap::new(), now: None, timeout: TIMEOUT, how: Match::Data };
        let shared = self.shared(&mut fields, shared);
        let tests = fields.take("tests");
        fields.finish(FILE, self.findings);
        let Some(tests) = tests else {
            let finding =
                Diagnostic::error(codes::TEST_FIELD_REQUIRED, "a test file needs a list of `tests`").with_span(head);
            self.findings.push(finding);
            return None;
        };
        let items = items(&tests.value, "`tests`", self.findings)?;
        if items.is_empty() {
            self.findings.push(invalid(tests.key_span, "there are no tests"));
        }
        let tests: Vec<Arc<TestCase>> =
            items.iter().filter_map(|item| self.test(item, &shared)).map(Arc::new).collect();
        for (at, test) in tests.iter().enumerate() {
            if let Some(first) = tests[..at].iter().find(|first| first.name.value == test.name.value) {
                self.findings.push(
                    invalid(test.name.span, format!("two tests have the name {:?}", &*test.name.value))
                        .with_related(first.name.span, "the first"),
                );
            }
        }
        Some(TestFile { file, path: path.map(Path::to_path_buf), pipeline, id, tests })
    }

    fn shared(&mut self, fields: &mut Fields<'_>, mut shared: Shared) -> Shared {
        if let Some(entry) = fields.take("env") {
            match map(&entry.value) {
                Some(map) => {
                    for entry in &map.entries {
                        match (&entry.value.value, scalar_text(&entry.value)) {
                            (Value::Null, _) => drop(shared.env.insert(entry.key.to_string(), String::new())),
                            (_, Some(text)) => drop(shared.env.insert(entry.key.to_string(), text)),
                            (_, None) => self.findings.push(wrong(&entry.value, "a variable", "a text")),
                        }
                    }
                }
                None => self.findings.push(wrong(&entry.value, "`env`", "a map of variables")),
            }
        }
        if let Some(time) = fields.take("now").and_then(|entry| text(entry, self.findings)) {
            match chrono::DateTime::parse_from_rfc3339(&time.value) {
                Ok(parsed) => shared.now = Some(SystemTime::from(parsed)),
                Err(error) => {
                    let message = format!("`now` is not a time (for example 2024-05-01T12:00:00Z): {error}");
                    self.findings.push(invalid(time.span, message));
                }
            }
        }
        if let Some(timeout) = fields.take("timeout").and_then(|entry| duration(entry, self.findings)) {
            shared.timeout = timeout;
        }
        shared.how = self.how(fields, shared.how);
        shared
    }

    fn how(&mut self, fields: &mut Fields<'_>, otherwise: Match) -> Match {
        let Some(word) = fields.take("match").and_then(|entry| text(entry, self.findings)) else { return otherwise };
        match &*word.value {
            "fields" => Match::Fields,
            "data" => Match::Data,
            "exact" => Match::Exact,
            _ => {
                self.findings.push(invalid(word.span, "`match` must be one of fields, data, exact"));
                otherwise
            }
        }
    }

    fn test(&mut self, node: &Node, shared: &Shared) -> Option<TestCase> {
        let mut fields = Fields::of(node, "a test", self.findings)?;
        let head = fields.head();
        let name = fields.take("name").and_then(|entry| text(entry, self.findings));
        let shared = self.shared(&mut fields, shared.clone());
        let _ = fields.take("description");
        let input = match fields.take("input") {
            Some(entry) => {
                let base = self.base;
                self.per(entry, |reader, _, node| input::reads(node, base, reader.findings))
            }
            None => PerConnector { entries: Vec::new(), span: head },
        };
        let expect = match fields.take("expect") {
            Some(entry) => self.expect(entry, shared.how),
            None => {
                self.nothing_expected(head);
                None
            }
        };
        let http = fields.take("http").map(|entry| self.list(entry, Self::stub)).unwrap_or_default();
        let faults = fields.take("faults").map(|entry| self.list(entry, Self::fault)).unwrap_or_default();
        fields.finish(TEST, self.findings);
        let Some(name) = name.filter(|name| !name.value.trim().is_empty()) else {
            self.findings.push(Diagnostic::error(codes::TEST_FIELD_REQUIRED, "a test needs a `name`").with_span(head));
            return None;
        };
        let Shared { env, now, timeout, .. } = shared;
        Some(TestCase { name, env, now, timeout, input, expect: expect?, http, faults })
    }

    /// Reports a test without expectations.
    pub(super) fn nothing_expected(&mut self, at: Span) {
        let finding =
            Diagnostic::error(codes::TEST_FIELD_REQUIRED, "a test needs `expect`: without it, nothing is compared");
        self.findings.push(finding.with_span(at).with_hint(
            "to start, write `expect: { records: [] }` and run with --update; `expect: { status: finished }` requires \
             only that all records pass",
        ));
    }

    fn list<T>(&mut self, entry: &Entry, mut read: impl FnMut(&mut Self, &Node) -> Option<T>) -> Vec<T> {
        let items = items(&entry.value, &format!("`{}`", entry.key), self.findings).unwrap_or_default();
        items.iter().filter_map(|item| read(self, item)).collect()
    }

    /// Reads a value for the only connector, or a map by id.
    fn per<T>(&mut self, entry: &Entry, mut read: impl FnMut(&mut Self, Span, &Node) -> Option<T>) -> PerConnector<T> {
        let span = entry.value_span();
        let entries = match map(&entry.value) {
            Some(map) => map
                .entries
                .iter()
                .filter_map(|entry| {
                    let name = Spanned::new(entry.key.clone(), entry.key_span);
                    let before = self.findings.0.len();
                    let value = read(self, entry.value_span(), &entry.value);
                    if value.is_none() && is_of_list(&name.value) {
                        let name = &*name.value;
                        let message = format!("{name} is in the place of the id of a connector");
                        let hint = format!("write it below the id: `out: {{ {name}: … }}`");
                        self.findings.0.truncate(before);
                        self.findings.push(invalid(entry.key_span, message).with_hint(hint));
                    }
                    Some((Some(name), value?))
                })
                .collect(),
            None => read(self, span, &entry.value).map(|read| (None, read)).into_iter().collect(),
        };
        PerConnector { entries, span }
    }
}

/// Returns the pipeline file of a test file: `orders.yaml` for `orders.test.yaml`.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (stem, extension) = name.rsplit_once('.').unwrap_or((&name, "yaml"));
    let stem = stem.len().checked_sub(".test".len()).map_or(stem, |end| &stem[..end]);
    path.with_file_name(format!("{stem}.{extension}"))
}
