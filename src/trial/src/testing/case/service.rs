//! Reads the stubbed HTTP services of a test.

use std::time::Duration;

use anabranch_config::yaml::{Node, Value};
use anabranch_plugin::diagnostic::Diagnostic;
use anabranch_record::text::Str;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};

use super::Reader;
use crate::codes;
use crate::testing::fields::{Fields, boolean, duration, invalid, json, map, number, wrong};
use crate::testing::input::scalar_text;
use crate::testing::pattern::Expected;
use crate::testing::stub::{Reply, Stub};

pub(super) const REQUEST: &[&str] = &["method", "url", "headers", "body"];
const STUB: &[&str] = &["match", "reply", "replies", "times"];
const REPLY: &[&str] = &["status", "headers", "body", "delay", "close"];

impl Reader<'_> {
    pub(super) fn request_parts(&mut self, fields: &mut Fields<'_>) -> Option<Vec<(Str, Expected)>> {
        let mut parts = Vec::new();
        for name in ["method", "url"] {
            if let Some(entry) = fields.take(name) {
                let expected = Expected::read(&entry.value, false, self.findings)?;
                // A path matches the path of the URL.
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

    pub(super) fn stub(&mut self, node: &Node) -> Option<Stub> {
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
                self.findings.push(invalid(head, "a stub can have `reply` or `replies`, not both"));
                return None;
            }
            (Some(reply), None) => vec![reply?],
            (None, Some(replies)) if !replies.is_empty() => replies,
            (None, _) => {
                self.findings
                    .push(Diagnostic::error(codes::TEST_FIELD_REQUIRED, "a stub needs a `reply`").with_span(head));
                return None;
            }
        };
        Some(Stub { span: head, request, replies, times })
    }

    pub(super) fn reply(&mut self, node: &Node) -> Option<Reply> {
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
                None => self.findings.push(invalid(entry.value_span(), "`status` must be a number from 200 to 599")),
            }
        }
        if let Some(entry) = fields.take("headers") {
            let Some(map) = map(&entry.value) else {
                self.findings.push(wrong(&entry.value, "`headers`", "a map of texts"));
                return None;
            };
            for entry in &map.entries {
                let header = HeaderName::from_bytes(entry.key.as_bytes()).ok();
                let value = scalar_text(&entry.value).and_then(|text| HeaderValue::from_str(&text).ok());
                match header.zip(value) {
                    Some(header) => reply.headers.push(header),
                    None => self.findings.push(invalid(entry.key_span, "this is not a valid header")),
                }
            }
        }
        if let Some(entry) = fields.take("body") {
            reply.body = match &entry.value.value {
                Value::Scalar(scalar) => scalar.text.as_bytes().to_vec(),
                _ => {
                    let kind = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
                    if !reply.headers.iter().any(|(name, _)| *name == CONTENT_TYPE) {
                        reply.headers.push(kind);
                    }
                    json(&entry.value).to_string().into_bytes()
                }
            };
        }
        reply.delay = fields.take("delay").and_then(|entry| duration(entry, self.findings)).unwrap_or_default();
        reply.close = fields.take("close").and_then(|entry| boolean(entry, self.findings)).unwrap_or(false);
        fields.finish(REPLY, self.findings);
        Some(reply)
    }
}
