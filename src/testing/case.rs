//! Test files: what they say, and what is wrong with them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anabranch_graph::config::MAX_FILE_BYTES;
use anabranch_graph::config::yaml::{self, Entry, Node, Value};
use anabranch_graph::diagnostic::{Diagnostic, Diagnostics, FileId, Files, Span, Spanned};
use anabranch_graph::fault::FaultClass;
use anabranch_graph::text::Str;

use super::fields::{Fields, boolean, duration, invalid, items, map, number, text, wrong};
use super::input::{self, Base, Reads, scalar_text};
use super::pattern::Expected;
use super::stub::{Reply, Stub};
use super::view;

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
}

impl Status {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Finished => "finished",
            Status::Degraded => "degraded",
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
const EXPECT: &[&str] = &["records", "dead-letters", "acks", "status", "error", "requests"];
const RECORDS: &[&str] = &["records", "count", "unordered", "repeats", "match"];
const RECORD: &[&str] = &["operation", "metadata", "key", "before", "after", "payload"];
const LETTER: &[&str] = &["step", "error", "code", "source", "record"];
const REQUEST: &[&str] = &["method", "url", "headers", "body"];
const STUB: &[&str] = &["match", "reply", "replies", "times"];
const REPLY: &[&str] = &["status", "headers", "body", "delay", "close"];
const FAULT: &[&str] = &[
    "at",
    "source",
    "record",
    "records",
    "fail",
    "message",
    "delay",
    "hang",
    "panic",
    "down",
    "partial-write",
    "crash",
    "times",
];

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
    let root = documents.next()?.root.as_ref()?;
    if let Some(second) = documents.next().and_then(|document| document.root.as_ref()) {
        findings.push(invalid(second.span, "a test file has one document").with_hint("put all tests under `tests`"));
    }
    let mut reader = Reader { base: path.map(|path| path.parent().unwrap_or(Path::new(""))), findings };
    let read = reader.file(root, file, path);
    if findings.iter().skip(before).any(|finding| finding.severity == anabranch_graph::diagnostic::Severity::Error) {
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
            None => Some(Expectations {
                span: head,
                records: PerConnector { entries: Vec::new(), span: head },
                letters: None,
                acks: PerConnector { entries: Vec::new(), span: head },
                status: None,
                error: None,
                requests: None,
            }),
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
                    Some((Some(name), read(self, entry.value_span(), &entry.value)?))
                })
                .collect(),
            None => read(self, span, &entry.value).map(|read| (None, read)).into_iter().collect(),
        };
        PerConnector { entries, span }
    }

    fn expect(&mut self, entry: &Entry, how: Match) -> Option<Expectations> {
        let span = entry.key_span;
        let mut fields = Fields::of(&entry.value, "`expect`", self.findings)?;
        let nothing = || PerConnector { entries: Vec::new(), span };
        let records = match fields.take("records") {
            Some(entry) => self.per(entry, |reader, span, node| reader.records(node, span, how, Self::record)),
            None => PerConnector { entries: Vec::new(), span },
        };
        let letters = fields
            .take("dead-letters")
            .and_then(|entry| self.records(&entry.value, entry.value_span(), how, Self::letter));
        let acks = match fields.take("acks") {
            Some(entry) => self.per(entry, Self::acks),
            None => nothing(),
        };
        let status = fields.take("status").and_then(|entry| text(entry, self.findings)).and_then(|word| {
            let status = match &*word.value {
                "finished" => Status::Finished,
                "degraded" => Status::Degraded,
                _ => {
                    self.findings.push(invalid(word.span, "`status` is finished or degraded"));
                    return None;
                }
            };
            Some(Spanned::new(status, word.span))
        });
        let error = fields.take("error").and_then(|entry| self.part_of_text(&entry.value));
        let requests = fields
            .take("requests")
            .and_then(|entry| self.records(&entry.value, entry.value_span(), how, Self::request));
        fields.finish(EXPECT, self.findings);
        Some(Expectations { span, records, letters, acks, status, error, requests })
    }

    /// A list, a number, or a map with a list and more.
    fn records(
        &mut self,
        node: &Node,
        span: Span,
        how: Match,
        mut read: impl FnMut(&mut Self, &Node, Match) -> Option<Vec<Expected>>,
    ) -> Option<ExpectedRecords> {
        let mut expected =
            ExpectedRecords { span, items: None, list: None, count: None, unordered: false, repeats: false };
        let mut list = |reader: &mut Self, items: &[std::rc::Rc<Node>], how| {
            let read: Vec<Option<Vec<Expected>>> = items.iter().map(|item| read(reader, item, how)).collect();
            read.into_iter().collect::<Option<Vec<_>>>().map(|items| items.concat())
        };
        match &node.value {
            Value::List(items) => {
                (expected.items, expected.list) = (Some(list(self, items, how)?), Some(span));
            }
            Value::Scalar(_) => expected.count = Some(number(node, "the number of records", self.findings)?),
            _ => {
                let mut fields = Fields::of(node, "an expectation", self.findings)?;
                let how = self.how(&mut fields, how);
                if let Some(entry) = fields.take("records") {
                    let items = items(&entry.value, "`records`", self.findings)?;
                    (expected.items, expected.list) = (Some(list(self, items, how)?), Some(entry.value_span()));
                }
                if let Some(entry) = fields.take("count") {
                    expected.count = number(&entry.value, "`count`", self.findings);
                }
                expected.unordered =
                    fields.take("unordered").and_then(|entry| boolean(entry, self.findings)).unwrap_or(false);
                expected.repeats =
                    fields.take("repeats").and_then(|entry| boolean(entry, self.findings)).unwrap_or(false);
                fields.finish(RECORDS, self.findings);
            }
        }
        Some(expected)
    }

    /// A record, or the records of a file.
    fn record(&mut self, node: &Node, how: Match) -> Option<Vec<Expected>> {
        if let Value::Scalar(_) = &node.value {
            let after = Expected::read(node, false, self.findings)?;
            return Some(vec![Expected::fields(vec![(Str::from_static("after"), after)], true, node.span)]);
        }
        let mut fields = Fields::of(node, "an expected record", self.findings)?;
        if let Some(entry) = fields.take("file") {
            fields.finish(&["file"], self.findings);
            let mut all = Vec::new();
            input::lines(entry, self.base, self.findings, |line, findings, at| {
                match anabranch_graph::record::Record::from_json(line.as_bytes()) {
                    Ok(record) => {
                        let mut shown = view::record(&record);
                        if let Some(metadata) = shown["metadata"].as_object_mut() {
                            view::STAMPS.iter().for_each(|key| drop(metadata.remove(key.as_str())));
                        }
                        all.push(open_metadata(&shown, entry.value_span()));
                    }
                    Err(error) => {
                        findings.push(invalid(entry.value_span(), format!("line {at} is not a record: {error}")));
                    }
                }
            });
            return Some(all);
        }
        let mut parts = Vec::new();
        self.parts(&mut fields, how, &mut parts)?;
        if let Some(entry) = fields.take("payload") {
            let mut sides = Fields::of(&entry.value, "a payload", self.findings)?;
            self.sides(&mut sides, &["before", "after"], how, &mut parts)?;
            sides.finish(&["before", "after"], self.findings);
        }
        fields.finish(RECORD, self.findings);
        if how == Match::Exact {
            for (name, value) in [("operation", "create".into()), ("key", serde_json::Value::Null)]
                .into_iter()
                .chain(["before", "after"].map(|side| (side, serde_json::Value::Null)))
            {
                if !parts.iter().any(|(part, _)| *part == *name) {
                    parts.push((Str::from_static(name), Expected::exactly(&value, node.span)));
                }
            }
            if !parts.iter().any(|(part, _)| &**part == "metadata") {
                parts.push((Str::from_static("metadata"), metadata(Vec::new(), how, node.span)));
            }
        }
        Some(vec![Expected::fields(parts, true, node.span)])
    }

    fn parts(&mut self, fields: &mut Fields<'_>, how: Match, parts: &mut Vec<(Str, Expected)>) -> Option<()> {
        self.sides(fields, &["operation", "key", "before", "after"], how, parts)?;
        if let Some(entry) = fields.take("metadata") {
            let Some(map) = map(&entry.value) else {
                self.findings.push(wrong(&entry.value, "metadata", "a map of texts"));
                return None;
            };
            let mut keys = Vec::new();
            for entry in &map.entries {
                // Metadata is text: `priority: 5` is the text 5.
                let expected = match (&entry.value.value, scalar_text(&entry.value)) {
                    (Value::Scalar(scalar), Some(text)) if !text.starts_with('$') || !scalar.is_plain() => {
                        Expected::exactly(&scalar.text.as_str().into(), entry.value_span())
                    }
                    _ => Expected::read(&entry.value, false, self.findings)?,
                };
                keys.push((entry.key.clone(), expected));
            }
            parts.push((Str::from_static("metadata"), metadata(keys, how, entry.value_span())));
        }
        Some(())
    }

    fn sides(
        &mut self,
        fields: &mut Fields<'_>,
        names: &[&'static str],
        how: Match,
        parts: &mut Vec<(Str, Expected)>,
    ) -> Option<()> {
        for name in names {
            if let Some(entry) = fields.take_null(name) {
                let mut expected = match &entry.value.value {
                    // Raw data is text: `after: 17` is the text 17.
                    Value::Scalar(scalar) if !scalar.text.starts_with('$') || !scalar.is_plain() => {
                        Expected::exactly(&scalar.text.as_str().into(), entry.value.span)
                    }
                    _ => Expected::read(&entry.value, how == Match::Fields, self.findings)?,
                };
                expected.span = entry.value_span();
                parts.push((Str::from_static(name), expected));
            }
        }
        Some(())
    }

    fn letter(&mut self, node: &Node, how: Match) -> Option<Vec<Expected>> {
        let mut fields = Fields::of(node, "an expected dead letter", self.findings)?;
        let mut parts = Vec::new();
        for name in ["step", "code", "source"] {
            if let Some(entry) = fields.take(name) {
                parts.push((Str::from_static(name), Expected::read(&entry.value, false, self.findings)?));
            }
        }
        if let Some(entry) = fields.take("error") {
            parts.push((Str::from_static("error"), self.part_of_text(&entry.value)?));
        }
        if let Some(entry) = fields.take("record") {
            let number = matches!(&entry.value.value, Value::Scalar(_));
            let (name, expected) = match number {
                true => ("number", Expected::read(&entry.value, false, self.findings)?),
                false => ("record", self.record(&entry.value, how)?.pop()?),
            };
            parts.push((Str::from_static(name), expected));
        }
        fields.finish(LETTER, self.findings);
        Some(vec![Expected::fields(parts, true, node.span)])
    }

    /// A text stands for what holds it.
    fn part_of_text(&mut self, node: &Node) -> Option<Expected> {
        let expected = Expected::read(node, false, self.findings)?;
        Some(match expected.as_text() {
            Some(text) => Expected::contains(text, node.span),
            None => expected,
        })
    }

    fn request(&mut self, node: &Node, _: Match) -> Option<Vec<Expected>> {
        let mut fields = Fields::of(node, "an expected request", self.findings)?;
        let parts = self.request_parts(&mut fields)?;
        fields.finish(REQUEST, self.findings);
        Some(vec![Expected::fields(parts, true, node.span)])
    }

    fn request_parts(&mut self, fields: &mut Fields<'_>) -> Option<Vec<(Str, Expected)>> {
        let mut parts = Vec::new();
        for name in ["method", "url"] {
            if let Some(entry) = fields.take(name) {
                let expected = Expected::read(&entry.value, false, self.findings)?;
                // A path stands for the URL's.
                let part = match expected.as_text() {
                    Some(text) if name == "url" && text.starts_with('/') && text.contains('?') => "pathAndQuery",
                    Some(text) if name == "url" && text.starts_with('/') => "path",
                    _ => name,
                };
                parts.push((Str::from_static(part), expected));
            }
        }
        if let Some(entry) = fields.take("headers") {
            let Some(map) = map(&entry.value) else {
                self.findings.push(wrong(&entry.value, "`headers`", "a map of texts"));
                return None;
            };
            let mut headers = Vec::new();
            for entry in &map.entries {
                let name = Str::from(entry.key.to_ascii_lowercase());
                headers.push((name, Expected::read(&entry.value, true, self.findings)?));
            }
            parts.push((Str::from_static("headers"), Expected::fields(headers, true, entry.value_span())));
        }
        if let Some(entry) = fields.take("body") {
            let expected = Expected::read(&entry.value, true, self.findings)?;
            let part = if expected.is_compound() { "json" } else { "body" };
            parts.push((Str::from_static(part), expected));
        }
        Some(parts)
    }

    fn acks(&mut self, span: Span, node: &Node) -> Option<Acks> {
        match &node.value {
            Value::Scalar(scalar) if &*scalar.text == "all" => Some(Acks::All(span)),
            Value::Scalar(scalar) if &*scalar.text == "none" => Some(Acks::None(span)),
            Value::Scalar(_) => match number(node, "`acks`", self.findings) {
                Some(count) => Some(Acks::Count(count)),
                None => {
                    if let Some(finding) = self.findings.0.last_mut() {
                        finding.hint =
                            Some("write all, none, a number, or a list of records counted from 1".to_owned());
                    }
                    None
                }
            },
            _ => {
                let items = items(node, "`acks`", self.findings)?;
                let rows: Vec<_> = items.iter().map(|item| number(item, "a record", self.findings)).collect();
                let rows = rows.into_iter().map(|row| row.map(|row| row.value)).collect::<Option<Vec<_>>>()?;
                Some(Acks::These(rows, span))
            }
        }
    }

    fn stub(&mut self, node: &Node) -> Option<Stub> {
        let mut fields = Fields::of(node, "an HTTP stub", self.findings)?;
        let head = fields.head();
        let request = match fields.take("match") {
            Some(entry) => {
                let mut fields = Fields::of(&entry.value, "`match`", self.findings)?;
                let parts = self.request_parts(&mut fields)?;
                fields.finish(REQUEST, self.findings);
                Expected::fields(parts, true, entry.value_span())
            }
            None => Expected::fields(Vec::new(), true, head),
        };
        let one = fields.take("reply").map(|entry| self.reply(&entry.value));
        let several = fields.take("replies").map(|entry| self.list(entry, Self::reply));
        let times = fields.take("times").and_then(|entry| number(&entry.value, "`times`", self.findings));
        fields.finish(STUB, self.findings);
        let replies = match (one, several) {
            (Some(_), Some(_)) => {
                self.findings.push(invalid(head, "a stub has `reply` or `replies`, not both"));
                return None;
            }
            (Some(reply), None) => vec![reply?],
            (None, Some(replies)) if !replies.is_empty() => replies,
            (None, _) => {
                self.findings.push(Diagnostic::error("test.field_required", "a stub has a `reply`").with_span(head));
                return None;
            }
        };
        Some(Stub { span: head, request, replies, times })
    }

    fn reply(&mut self, node: &Node) -> Option<Reply> {
        let mut fields = Fields::of(node, "a reply", self.findings)?;
        let status = fields.take("status").map(|entry| (entry, number(&entry.value, "`status`", self.findings)));
        let mut reply =
            Reply { status: 200, headers: Vec::new(), body: Vec::new(), delay: Duration::ZERO, close: false };
        if let Some((entry, status)) = status {
            match status
                .and_then(|status| u16::try_from(status.value).ok())
                .filter(|status| (200..=599).contains(status))
            {
                Some(status) => reply.status = status,
                None => self.findings.push(invalid(entry.value_span(), "`status` is a number from 200 to 599")),
            }
        }
        if let Some(entry) = fields.take("headers") {
            let Some(map) = map(&entry.value) else {
                self.findings.push(wrong(&entry.value, "`headers`", "a map of texts"));
                return None;
            };
            for entry in &map.entries {
                let header = hyper::header::HeaderName::from_bytes(entry.key.as_bytes()).ok();
                let value = scalar_text(&entry.value).and_then(|text| hyper::header::HeaderValue::from_str(&text).ok());
                match header.zip(value) {
                    Some(header) => reply.headers.push(header),
                    None => self.findings.push(invalid(entry.key_span, "this cannot be a header")),
                }
            }
        }
        if let Some(entry) = fields.take("body") {
            reply.body = match &entry.value.value {
                Value::Scalar(scalar) => scalar.text.as_bytes().to_vec(),
                _ => {
                    let kind =
                        (hyper::header::CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
                    if !reply.headers.iter().any(|(name, _)| *name == hyper::header::CONTENT_TYPE) {
                        reply.headers.push(kind);
                    }
                    super::fields::json(&entry.value).to_string().into_bytes()
                }
            };
        }
        reply.delay = fields.take("delay").and_then(|entry| duration(entry, self.findings)).unwrap_or_default();
        reply.close = fields.take("close").and_then(|entry| boolean(entry, self.findings)).unwrap_or(false);
        fields.finish(REPLY, self.findings);
        Some(reply)
    }

    fn fault(&mut self, node: &Node) -> Option<FaultSpec> {
        let mut fields = Fields::of(node, "a fault", self.findings)?;
        let head = fields.head();
        let at = fields.take("at").and_then(|entry| text(entry, self.findings));
        let source = fields.take("source").and_then(|entry| text(entry, self.findings));
        let mut records = Vec::new();
        if let Some(entry) = fields.take("record") {
            records.extend(number(&entry.value, "`record`", self.findings).map(|number| number.value));
        }
        if let Some(entry) = fields.take("records") {
            let numbers = self.list(entry, |reader, node| number(node, "a record", reader.findings));
            records.extend(numbers.iter().map(|number| number.value));
        }
        let times = fields.take("times").and_then(|entry| {
            if matches!(scalar_text(&entry.value).as_deref(), Some("always")) {
                return Some(None);
            }
            number(&entry.value, "`times`", self.findings).map(|times| Some(times.value))
        });
        let message = fields.take("message").and_then(|entry| text(entry, self.findings));
        let mut kinds = Vec::new();
        if let Some(word) = fields.take("fail").and_then(|entry| text(entry, self.findings)) {
            let class = match &*word.value {
                "record" => Some(FaultClass::Record),
                "transient" => Some(FaultClass::Transient),
                "fatal" => Some(FaultClass::Fatal),
                _ => {
                    self.findings.push(invalid(word.span, "`fail` is record, transient or fatal"));
                    None
                }
            };
            let said = message.as_ref().map_or("injected by the test", |message| &*message.value).to_owned();
            kinds.extend(class.map(|class| Spanned::new(FaultKind::Fail(class, said), word.span)));
        } else if let Some(message) = &message {
            self.findings.push(invalid(message.span, "`message` stands beside `fail`"));
        }
        for name in ["delay", "down"] {
            if let Some(entry) = fields.take(name)
                && let Some(time) = duration(entry, self.findings)
            {
                let kind = if name == "delay" { FaultKind::Delay(time) } else { FaultKind::Down(time) };
                kinds.push(Spanned::new(kind, entry.key_span));
            }
        }
        for (name, kind) in [("hang", FaultKind::Hang), ("panic", FaultKind::Panic), ("crash", FaultKind::Crash)] {
            if let Some(entry) = fields.take(name)
                && boolean(entry, self.findings)?
            {
                kinds.push(Spanned::new(kind, entry.key_span));
            }
        }
        if let Some(entry) = fields.take("partial-write")
            && let Some(rows) = number(&entry.value, "`partial-write`", self.findings)
        {
            kinds.push(Spanned::new(FaultKind::Partial(rows.value), entry.key_span));
        }
        fields.finish(FAULT, self.findings);
        let Some(at) = at else {
            let finding = Diagnostic::error("test.field_required", "a fault has a place: `at: STEP` or a connector");
            self.findings.push(finding.with_span(head));
            return None;
        };
        let [kind] = kinds.as_slice() else {
            let known = "fail, delay, hang, panic, down, partial-write, crash";
            self.findings.push(invalid(head, format!("a fault is exactly one of {known}")));
            return None;
        };
        let once = matches!(
            kind.value,
            FaultKind::Fail(FaultClass::Transient, _) | FaultKind::Partial(_) | FaultKind::Crash | FaultKind::Panic
        );
        let times = times.unwrap_or(if once { Some(1) } else { None });
        Some(FaultSpec { span: head, at, source, records, kind: kind.clone(), times })
    }
}

/// Metadata with these keys. What the engine adds to every record is nobody's business unless it is named.
fn metadata(mut keys: Vec<(Str, Expected)>, how: Match, span: Span) -> Expected {
    for stamp in view::STAMPS {
        if !keys.iter().any(|(key, _)| *key == stamp) {
            keys.push((stamp, Expected::whatever(span)));
        }
    }
    Expected::fields(keys, how != Match::Exact, span)
}

/// A record of a file: everything of it, and whatever other metadata there is.
fn open_metadata(shown: &serde_json::Value, span: Span) -> Expected {
    let parts = shown.as_object().into_iter().flatten().map(|(name, part)| {
        let expected = match (name.as_str(), part.as_object()) {
            ("metadata", Some(keys)) => {
                let key = |(key, value): (&String, &serde_json::Value)| {
                    (Str::from(key.as_str()), Expected::exactly(value, span))
                };
                Expected::fields(keys.iter().map(key).collect(), true, span)
            }
            _ => Expected::exactly(part, span),
        };
        (Str::from(name.as_str()), expected)
    });
    Expected::fields(parts.collect(), true, span)
}

/// The pipeline file beside a test file: `orders.yaml` beside `orders.test.yaml`.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (stem, extension) = name.rsplit_once('.').unwrap_or((&name, "yaml"));
    let stem = stem.len().checked_sub(".test".len()).map_or(stem, |end| &stem[..end]);
    path.with_file_name(format!("{stem}.{extension}"))
}
