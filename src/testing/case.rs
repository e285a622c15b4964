//! Test files: what they say, and what is wrong with them.

mod expectation;
mod fault;
mod service;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anabranch_graph::config::MAX_FILE_BYTES;
use anabranch_graph::config::yaml::{self, Entry, Node, Value};
use anabranch_graph::diagnostic::{Diagnostic, Diagnostics, FileId, Files, Severity, Span, Spanned};
use anabranch_graph::fault::FaultClass;
use anabranch_graph::text::Str;

pub(in crate::testing) use expectation::is_of_list;

use super::fields::{Fields, duration, invalid, items, map, text, wrong};
use super::input::{self, Base, Reads, scalar_text};
use super::pattern::Expected;
use super::stub::Stub;

/// A file of tests.
#[derive(Debug)]
pub struct TestFile {
    /// The file, among the files that were read.
    pub file: FileId,
    /// Its path; `None` where it is a text that came from elsewhere.
    pub path: Option<PathBuf>,
    /// The file of the pipeline; `None` where that came with it.
    pub pipeline: Option<Spanned<PathBuf>>,
    /// The pipeline of that file, where it holds several.
    pub id: Option<Spanned<Str>>,
    /// Its tests, in order.
    pub tests: Vec<Arc<TestCase>>,
}

/// A test.
#[derive(Debug)]
pub struct TestCase {
    /// Its name, unique in the file.
    pub name: Spanned<Str>,
    /// Values of `${NAME}` and `${file:PATH}`.
    pub env: BTreeMap<String, String>,
    /// The time of day while it runs; `None` = the real one.
    pub now: Option<SystemTime>,
    /// Longest time it may take, by the clock on the wall.
    pub timeout: Duration,
    /// What the sources give.
    pub input: PerConnector<Reads>,
    /// What must have come of it.
    pub expect: Expectations,
    /// How HTTP requests are answered.
    pub http: Vec<Stub>,
    /// What goes wrong.
    pub faults: Vec<FaultSpec>,
}

/// Something for each connector of a role: by id, or for the only one there is.
#[derive(Debug)]
pub struct PerConnector<T> {
    /// The entries; without a name where the test names none.
    pub entries: Vec<(Option<Spanned<Str>>, T)>,
    /// Where it stands.
    pub span: Span,
}

/// What a test expects.
#[derive(Debug)]
pub struct Expectations {
    /// Where it stands; the name of the test where it says nothing.
    pub span: Span,
    /// What the destinations got.
    pub records: PerConnector<ExpectedRecords>,
    /// The dead letters; none, where the test says nothing.
    pub letters: Option<ExpectedRecords>,
    /// Which records the sources were told to be safe.
    pub acks: PerConnector<Acks>,
    /// How the pipeline ended.
    pub status: Option<Spanned<Status>>,
    /// Why, where it is degraded.
    pub error: Option<Expected>,
    /// The HTTP requests, in order.
    pub requests: Option<ExpectedRecords>,
}

/// A list of records, of letters or of requests, as it is expected.
#[derive(Debug)]
pub struct ExpectedRecords {
    /// Where it stands.
    pub span: Span,
    /// The items; `None` where only their number is asked.
    pub items: Option<Vec<Expected>>,
    /// Where the list stands, if it stands in the test file.
    pub list: Option<Span>,
    /// How many.
    pub count: Option<Spanned<usize>>,
    /// Whether they may come in any order.
    pub unordered: bool,
    /// Whether one that came twice counts once: what a replay doubles.
    pub repeats: bool,
}

/// Which records of a source are acknowledged, counted from 1.
#[derive(Debug)]
pub enum Acks {
    /// Every one.
    All(Span),
    /// None.
    None(Span),
    /// So many.
    Count(Spanned<usize>),
    /// These, in this order.
    These(Vec<usize>, Span),
}

/// How a pipeline ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Everything is read and settled.
    Finished,
    /// It failed for good.
    Degraded,
    /// It fails and is started again, without end.
    Recovering,
}

impl Status {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Finished => "finished",
            Status::Degraded => "degraded",
            Status::Recovering => "recovering",
        }
    }
}

/// Something that goes wrong at a connector or step.
#[derive(Clone, Debug)]
pub struct FaultSpec {
    /// Where it stands.
    pub span: Span,
    /// The connector or step.
    pub at: Spanned<Str>,
    /// The source whose records are meant; without it, those of any.
    pub source: Option<Spanned<Str>>,
    /// The records that are hit, counted from 1 as their source gives them; empty = all.
    pub records: Vec<usize>,
    /// What goes wrong.
    pub kind: Spanned<FaultKind>,
    /// How often; `None` = each time.
    pub times: Option<usize>,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// It fails.
    Fail(FaultClass, String),
    /// It takes so much longer.
    Delay(Duration),
    /// It never answers.
    Hang,
    /// It panics.
    Panic,
    /// A destination fails from its first write on, for so long.
    Down(Duration),
    /// A destination takes so many records of a write, and then nobody knows.
    Partial(usize),
    /// The process dies: at a destination when the record is written and nobody knows it yet, at a source before it is
    /// told that the record is safe.
    Crash,
}

/// What a test file says for all of its tests.
#[derive(Clone)]
struct Shared {
    env: BTreeMap<String, String>,
    now: Option<SystemTime>,
    timeout: Duration,
    how: Match,
}

/// How much of a record an expectation speaks of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Match {
    /// The parts it names, and of maps only the fields that it names.
    Fields,
    /// The parts it names, with all fields of keys and payloads, and the metadata it names.
    Data,
    /// Everything.
    Exact,
}

const FILE: &[&str] = &["pipeline", "id", "env", "now", "timeout", "match", "tests"];
const TEST: &[&str] = &["name", "env", "now", "timeout", "match", "input", "expect", "http", "faults", "description"];

const TIMEOUT: Duration = Duration::from_secs(10);

/// Reads a test file. `path` is where it is: its pipeline lies beside it.
pub(super) fn read(files: &Files, file: FileId, path: Option<&Path>, findings: &mut Diagnostics) -> Option<TestFile> {
    let source = files.get(file)?;
    let start = Span { file, start: 0, end: 0 };
    if source.text.len() > MAX_FILE_BYTES || source.not_utf8.is_some() {
        findings.push(
            Diagnostic::error("config.parse_error", "this is no test file: too large, or no text").with_span(start),
        );
        return None;
    }
    let before = findings.0.len();
    let documents = yaml::parse(file, &source.text, findings);
    let mut documents = documents.iter();
    let Some(root) = documents.next().and_then(|document| document.root.as_ref()) else {
        if findings.0.len() == before {
            findings.push(invalid(start, "there is nothing in the file"));
        }
        return None;
    };
    if let Some(second) = documents.next().and_then(|document| document.root.as_ref()) {
        findings.push(invalid(second.span, "a test file has one document").with_hint("put all tests under `tests`"));
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
                self.findings.push(invalid(entry.key_span, "the pipeline comes with the test: no file can be named"));
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
            let finding = Diagnostic::error("test.field_required", "a test file has a list of `tests`").with_span(head);
            self.findings.push(finding);
            return None;
        };
        let items = items(&tests.value, "`tests`", self.findings)?;
        if items.is_empty() {
            self.findings.push(invalid(tests.key_span, "there is no test"));
        }
        let tests: Vec<Arc<TestCase>> =
            items.iter().filter_map(|item| self.test(item, &shared)).map(Arc::new).collect();
        for (at, test) in tests.iter().enumerate() {
            if let Some(first) = tests[..at].iter().find(|first| first.name.value == test.name.value) {
                self.findings.push(
                    invalid(test.name.span, format!("two tests are called {:?}", &*test.name.value))
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
                    let message = format!("`now` is not a time as 2024-05-01T12:00:00Z: {error}");
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
                self.findings.push(invalid(word.span, "`match` is one of fields, data, exact"));
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
            self.findings.push(Diagnostic::error("test.field_required", "a test has a `name`").with_span(head));
            return None;
        };
        let Shared { env, now, timeout, .. } = shared;
        Some(TestCase { name, env, now, timeout, input, expect: expect?, http, faults })
    }

    /// Reports a test that compares nothing.
    pub(super) fn nothing_expected(&mut self, at: Span) {
        let finding = Diagnostic::error("test.field_required", "a test has `expect`: without it nothing is compared");
        self.findings.push(finding.with_span(at).with_hint(
            "to begin with, write `expect: { records: [] }` and run with --update; `expect: { status: finished }` asks \
             only that all records pass",
        ));
    }

    fn list<T>(&mut self, entry: &Entry, mut read: impl FnMut(&mut Self, &Node) -> Option<T>) -> Vec<T> {
        let items = items(&entry.value, &format!("`{}`", entry.key), self.findings).unwrap_or_default();
        items.iter().filter_map(|item| read(self, item)).collect()
    }

    /// Something for the only connector, or a map by id.
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
                        let message = format!("{name} stands where the id of a connector is expected");
                        let hint = format!("write it below the id, as `out: {{ {name}: … }}`");
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

/// The pipeline file beside a test file: `orders.yaml` beside `orders.test.yaml`.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (stem, extension) = name.rsplit_once('.').unwrap_or((&name, "yaml"));
    let stem = stem.len().checked_sub(".test".len()).map_or(stem, |end| &stem[..end]);
    path.with_file_name(format!("{stem}.{extension}"))
}
