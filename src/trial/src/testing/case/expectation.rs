//! Reads the expectations of a test.

use std::rc::Rc;

use anabranch_config::yaml::{Entry, Node, Value};
use anabranch_plugin::diagnostic::{Span, Spanned};
use anabranch_record::Record;
use anabranch_record::text::Str;
use serde_json::Value as Json;

use super::service::REQUEST;
use super::{Acks, Expectations, ExpectedRecords, Match, PerConnector, Reader, Status};
use crate::testing::fields::{Fields, boolean, invalid, items, map, number, text, wrong};
use crate::testing::input::{self, scalar_text};
use crate::testing::pattern::Expected;
use crate::testing::view;

const EXPECT: &[&str] = &["records", "dead-letters", "acks", "status", "error", "requests"];
const RECORDS: &[&str] = &["records", "count", "unordered", "repeats", "match"];
const RECORD: &[&str] = &["operation", "metadata", "key", "before", "after", "payload"];
const LETTER: &[&str] = &["step", "error", "code", "source", "record"];

/// Returns `true` if a word is a field of the expectations for one connector.
pub(in crate::testing) fn is_of_list(word: &str) -> bool {
    RECORDS.contains(&word)
}

impl Reader<'_> {
    pub(super) fn expect(&mut self, entry: &Entry, how: Match) -> Option<Expectations> {
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
                "recovering" => Status::Recovering,
                _ => {
                    self.findings.push(invalid(word.span, "`status` must be finished, degraded or recovering"));
                    return None;
                }
            };
            Some(Spanned::new(status, word.span))
        });
        let error = fields.take("error").and_then(|entry| self.part_of_text(&entry.value));
        let requests = fields
            .take("requests")
            .and_then(|entry| self.records(&entry.value, entry.value_span(), how, Self::request));
        let before = self.findings.0.len();
        fields.finish(EXPECT, self.findings);
        let says_nothing = records.entries.is_empty() && acks.entries.is_empty() && letters.is_none();
        if says_nothing && status.is_none() && error.is_none() && requests.is_none() && self.findings.0.len() == before
        {
            self.nothing_expected(span);
        }
        Some(Expectations { span, records, letters, acks, status, error, requests })
    }

    /// Reads a list, a number, or a map with a list and options.
    fn records(
        &mut self,
        node: &Node,
        span: Span,
        how: Match,
        mut read: impl FnMut(&mut Self, &Node, Match) -> Option<Vec<Expected>>,
    ) -> Option<ExpectedRecords> {
        let mut expected =
            ExpectedRecords { span, items: None, list: None, count: None, unordered: false, repeats: false };
        let mut list = |reader: &mut Self, items: &[Rc<Node>], how| {
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

    /// Reads a record, or the records of a file.
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
                match Record::from_json(line.as_bytes()) {
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
            for (name, value) in [("operation", "create".into()), ("key", Json::Null)]
                .into_iter()
                .chain(["before", "after"].map(|side| (side, Json::Null)))
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
                // Metadata is text: `priority: 5` means the text 5.
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
                    // Raw data is text: `after: 17` means the text 17.
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

    /// Reads an expectation in which a text stands for any text that contains it.
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
}

/// Builds an expectation of metadata. Keys that the engine adds to every record are ignored unless named.
fn metadata(mut keys: Vec<(Str, Expected)>, how: Match, span: Span) -> Expected {
    for stamp in view::STAMPS {
        if !keys.iter().any(|(key, _)| *key == stamp) {
            keys.push((stamp, Expected::whatever(span)));
        }
    }
    Expected::fields(keys, how != Match::Exact, span)
}

/// Builds an expectation of a record from a file: everything must match, but other metadata may be present.
fn open_metadata(shown: &Json, span: Span) -> Expected {
    let parts = shown.as_object().into_iter().flatten().map(|(name, part)| {
        let expected = match (name.as_str(), part.as_object()) {
            ("metadata", Some(keys)) => {
                let key = |(key, value): (&String, &Json)| (Str::from(key.as_str()), Expected::exactly(value, span));
                Expected::fields(keys.iter().map(key).collect(), true, span)
            }
            _ => Expected::exactly(part, span),
        };
        (Str::from(name.as_str()), expected)
    });
    Expected::fields(parts.collect(), true, span)
}
