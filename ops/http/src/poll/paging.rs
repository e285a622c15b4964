//! Pages of an answer.

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::parameters::{Argument, Choice, Parameters};
use anabranch_record::text::Str;
use anabranch_record::value::Value;
use reqwest::Url;
use reqwest::header::{HeaderMap, LINK};

use super::position::PageRequest;
use crate::codes;
use crate::pointer::JsonPointer;

/// Parameters of paging.
#[derive(Parameters)]
pub(super) struct Settings {
    /// How the next page is found: none, link, url, cursor, offset or page.
    #[parameter(default = "none")]
    kind: Argument<PagingKind>,
    /// JSON pointer to the URL or the cursor of the next page in an answer, such as `/meta/next`.
    next: Argument<Option<Str>>,
    /// Query parameter for the cursor, offset or page. Default: cursor, offset or page, as kind.
    parameter: Argument<Option<Str>>,
    /// Number of records of a page, which is sent in sizeParameter.
    #[parameter(default = 100, greater_than = 0, only_with = "paging.sizeParameter")]
    size: u64,
    /// Query parameter for the size, such as limit. Without it, no size is sent.
    size_parameter: Argument<Option<Str>>,
    /// Number of the first page.
    #[parameter(default = 1, greater_than = -1)]
    first_page: Argument<u64>,
    /// Maximum number of pages of a poll.
    #[parameter(default = 10000, greater_than = 0)]
    limit: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PagingKind {
    None,
    Link,
    Url,
    Cursor,
    Offset,
    Page,
}

impl Choice for PagingKind {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("none", PagingKind::None),
        ("link", PagingKind::Link),
        ("url", PagingKind::Url),
        ("cursor", PagingKind::Cursor),
        ("offset", PagingKind::Offset),
        ("page", PagingKind::Page),
    ];
}

/// How pages are requested.
#[derive(Clone, Debug)]
pub(super) struct Paging {
    next: NextPage,
    size: Option<(Str, u64)>,
    /// Maximum number of pages.
    pub(super) limit: u64,
}

#[derive(Clone, Debug)]
enum NextPage {
    None,
    Link,
    Url(JsonPointer),
    Cursor(JsonPointer, Str),
    Offset { parameter: Str },
    Number { parameter: Str, first: u64 },
}

/// Reason why there is no valid next page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidPage {
    /// The next page is the current one.
    #[error("the next page is the same page again: correct the settings paging.*")]
    Loop,
    /// The URL is not one.
    #[error("the URL of the next page is not a URL")]
    NoUrl,
    /// The URL leads to another server, which must not get the credentials.
    #[error("the next page is on another server, {0}: only pages of the server of request.url are read")]
    Foreign(String),
    /// The cursor is neither a text nor a number.
    #[error("the value at paging.next is neither a text nor a number, but {0}")]
    Kind(&'static str),
}

impl Settings {
    /// Returns the paging; adds errors to `findings`.
    pub(super) fn paging(&self, findings: &mut Diagnostics) -> Paging {
        let pointer = JsonPointer::of(&self.next, findings);
        let is_needed = matches!(*self.kind, PagingKind::Url | PagingKind::Cursor);
        if is_needed && self.next.as_ref().is_none() {
            let text = "paging.next is required if paging.kind is url or cursor";
            findings.push(self.next.finding(codes::SETTINGS_REQUIRED, text));
        }
        let kind = *self.kind;
        let mut unused = |is_unused: bool, finding: Diagnostic| {
            if is_unused {
                findings.push(finding.with_hint("set paging.kind, or remove the setting"));
            }
        };
        let text = "paging.next is used only if paging.kind is url or cursor";
        unused(self.next.is_given() && !is_needed, self.next.finding(codes::SETTINGS_UNUSED, text));
        let has_parameter = matches!(kind, PagingKind::Cursor | PagingKind::Offset | PagingKind::Page);
        let text = "paging.parameter is used only if paging.kind is cursor, offset or page";
        unused(self.parameter.is_given() && !has_parameter, self.parameter.finding(codes::SETTINGS_UNUSED, text));
        let text = "paging.firstPage is used only if paging.kind is page";
        let is_unused = self.first_page.is_given() && kind != PagingKind::Page;
        unused(is_unused, self.first_page.finding(codes::SETTINGS_UNUSED, text));
        let pointer = pointer.unwrap_or_default();
        let named = |usual| self.parameter.as_ref().map_or(Str::from_static(usual), |name| name.trim().into());
        let next = match *self.kind {
            PagingKind::None => NextPage::None,
            PagingKind::Link => NextPage::Link,
            PagingKind::Url => NextPage::Url(pointer),
            PagingKind::Cursor => NextPage::Cursor(pointer, named("cursor")),
            PagingKind::Offset => NextPage::Offset { parameter: named("offset") },
            PagingKind::Page => NextPage::Number { parameter: named("page"), first: *self.first_page },
        };
        let size = self.size_parameter.as_ref().map(|name| (Str::from(name.trim()), self.size));
        let paging = Paging { next, size, limit: self.limit };
        if let (Some(parameter), Some((size, _))) = (paging.parameter(), &paging.size)
            && parameter == size
        {
            findings
                .push(self.size_parameter.invalid(format_args!("{parameter} is the parameter of the page as well")));
        }
        paging
    }
}

impl Paging {
    /// Returns the query parameter of the page, if there is one.
    pub(super) fn parameter(&self) -> Option<&Str> {
        match &self.next {
            NextPage::None | NextPage::Link | NextPage::Url(_) => None,
            NextPage::Cursor(_, parameter) | NextPage::Offset { parameter } | NextPage::Number { parameter, .. } => {
                Some(parameter)
            }
        }
    }

    /// Returns `true` if a page has as many records as were requested: then the server honours the size.
    pub(super) fn is_full(&self, records: usize) -> bool {
        self.size.as_ref().is_some_and(|(_, size)| *size == records as u64)
    }

    /// Returns `true` if the pages are counted, so that only a page without records, or no page, shows the end.
    pub(super) fn is_counted(&self) -> bool {
        matches!(self.next, NextPage::Offset { .. } | NextPage::Number { .. })
    }

    /// Returns the URL of a page. `since` is a parameter for what is new.
    ///
    /// # Errors
    /// The URL in a position is not one, or of another server.
    pub(super) fn url(&self, base: &Url, page: &PageRequest, since: Option<(&str, &str)>) -> Result<Url, InvalidPage> {
        if let PageRequest::Url(text) = page {
            return same_server(base, text);
        }
        let mut added: Vec<(&str, String)> = since.map(|(name, value)| (name, value.to_owned())).into_iter().collect();
        added.extend(self.size.as_ref().map(|(name, size)| (name.as_str(), size.to_string())));
        match (&self.next, page) {
            (NextPage::Cursor(_, name), PageRequest::Cursor(cursor)) => added.push((name, cursor.clone())),
            (NextPage::Offset { parameter }, PageRequest::Offset(offset)) => {
                added.push((parameter, offset.to_string()));
            }
            (NextPage::Offset { parameter }, _) => added.push((parameter, "0".to_owned())),
            (NextPage::Number { parameter, .. }, PageRequest::Number(number)) => {
                added.push((parameter, number.to_string()));
            }
            (NextPage::Number { parameter, first, .. }, _) => added.push((parameter, first.to_string())),
            _ => {}
        }
        if added.is_empty() {
            return Ok(base.clone());
        }
        let is_kept = |name: &str| added.iter().all(|(other, _)| *other != name);
        let kept: Vec<_> = base
            .query_pairs()
            .filter(|(name, _)| is_kept(name))
            .map(|(a, b)| (a.into_owned(), b.into_owned()))
            .collect();
        let mut url = base.clone();
        url.query_pairs_mut().clear().extend_pairs(kept).extend_pairs(added);
        Ok(url)
    }

    /// Returns the page after one with this answer and number of records; `None` after the last.
    ///
    /// Pages that are counted end with one that has no records. A page that is only shorter than others may be followed by
    /// another one, because servers have limits of their own, and some filter pages. If `is_honoured`, an earlier page had
    /// the size that was requested, and a shorter page is the last.
    ///
    /// # Errors
    /// The answer names no valid page.
    pub(super) fn after(
        &self,
        page: &PageRequest,
        url: &Url,
        headers: &HeaderMap,
        body: &Value,
        records: usize,
        is_honoured: bool,
    ) -> Result<Option<PageRequest>, InvalidPage> {
        let is_last = records == 0 || is_honoured && !self.is_full(records);
        let text_at = |pointer: &JsonPointer| match pointer.find(body) {
            None | Some(Value::Null | Value::Bool(false)) => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text.as_str().to_owned()).filter(|text| !text.is_empty())),
            Some(Value::Int(number)) => Ok(Some(number.to_string())),
            Some(Value::UInt(number)) => Ok(Some(number.to_string())),
            Some(other) => Err(InvalidPage::Kind(other.type_name())),
        };
        let at_url = |text: Option<String>| {
            let next = text.map(|text| same_server(url, &text)).transpose()?;
            if next.as_ref() == Some(url) {
                return Err(InvalidPage::Loop);
            }
            Ok(next.map(|next| PageRequest::Url(next.into())))
        };
        let records = records as u64;
        match &self.next {
            NextPage::None => Ok(None),
            NextPage::Link => at_url(next_link(headers)),
            NextPage::Url(pointer) => at_url(text_at(pointer)?),
            NextPage::Cursor(pointer, _) => {
                let next = text_at(pointer)?.map(PageRequest::Cursor);
                if next.as_ref() == Some(page) { Err(InvalidPage::Loop) } else { Ok(next) }
            }
            NextPage::Offset { .. } => {
                let offset = if let PageRequest::Offset(offset) = page { *offset } else { 0 };
                Ok((!is_last).then(|| PageRequest::Offset(offset.saturating_add(records))))
            }
            NextPage::Number { first, .. } => {
                let number = if let PageRequest::Number(number) = page { *number } else { *first };
                Ok((!is_last).then(|| PageRequest::Number(number.saturating_add(1))))
            }
        }
    }
}

/// Returns a URL relative to another one, if both are of the same server.
fn same_server(base: &Url, text: &str) -> Result<Url, InvalidPage> {
    let url = base.join(text).map_err(|_| InvalidPage::NoUrl)?;
    if url.origin() == base.origin() { Ok(url) } else { Err(InvalidPage::Foreign(url.origin().ascii_serialization())) }
}

/// Returns the target of the link with `rel="next"` (RFC 8288).
fn next_link(headers: &HeaderMap) -> Option<String> {
    let texts = headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(links).find(|(_, parameters)| is_next(parameters)).map(|(target, _)| target.to_owned())
}

/// Returns the links of a header, each with its parameters.
fn links(text: &str) -> Vec<(&str, &str)> {
    let mut links = Vec::new();
    let mut rest = text;
    while let Some((target, after)) = rest.split_once('<').and_then(|(_, after)| after.split_once('>')) {
        // The next link begins after a comma, which is not a part of a quoted text.
        let mut is_quoted = false;
        let end = after.find(|c: char| {
            is_quoted ^= c == '"';
            c == ',' && !is_quoted
        });
        let (parameters, next) = after.split_at(end.unwrap_or(after.len()));
        links.push((target, parameters));
        rest = next;
    }
    links
}

fn is_next(parameters: &str) -> bool {
    parameters.split(';').filter_map(|parameter| parameter.split_once('=')).any(|(name, value)| {
        let relations = value.trim().trim_matches('"').split_ascii_whitespace();
        name.trim().eq_ignore_ascii_case("rel") && relations.into_iter().any(|rel| rel.eq_ignore_ascii_case("next"))
    })
}

#[cfg(test)]
mod tests;
