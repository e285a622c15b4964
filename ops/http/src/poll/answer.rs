//! The answer of a server to the request of a page.

use std::marker::PhantomData;

use anabranch_record::fault::Fault;
use anabranch_record::json::{parse, parse_value};
use anabranch_record::value::Value;
use bytes::Bytes;
use reqwest::header::HeaderMap;
use reqwest::{StatusCode, Url};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::client::{Answer, HiddenError};
use crate::codes;
use crate::pointer::JsonPointer;

/// An answer with records.
pub(super) struct PageAnswer {
    pub(super) url: Url,
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The body; `None` if it is empty.
    pub(super) body: Option<Value>,
    text: Bytes,
}

impl PageAnswer {
    /// Reads the answer to the request of a URL.
    ///
    /// # Errors
    /// `http_page` if the body has a value that records cannot have.
    pub(super) fn read(url: Url, Answer { status, headers, body: text }: Answer) -> Result<PageAnswer, Fault> {
        let body = match json_text(&text) {
            b"" => None,
            text => Some(
                parse_value(text)
                    .map_err(|error| Fault::fatal(codes::HTTP_PAGE, format!("the answer cannot be read: {error}")))?,
            ),
        };
        Ok(PageAnswer { url, status, headers, body, text })
    }

    /// Returns the texts of the records, which are at this place.
    pub(super) fn element_texts(&self, records: Option<&JsonPointer>) -> Vec<&str> {
        let text = std::str::from_utf8(json_text(&self.text)).ok();
        let text = match records {
            None => text,
            Some(pointer) => text.and_then(|text| pointer.find_text(text)),
        };
        let Some(text) = text else { return Vec::new() };
        match serde_json::from_str::<Vec<&RawValue>>(text) {
            Ok(list) => list.into_iter().map(RawValue::get).collect(),
            Err(_) => vec![text],
        }
    }
}

/// Returns the text of a body in JSON: without a byte order mark and white space around it.
fn json_text(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii()
}

/// Finds out that a body is not JSON, such as the page of a proxy or an answer that was cut off. The next attempt may succeed.
pub(super) fn invalid_body(body: &[u8]) -> Option<HiddenError> {
    let text = json_text(body);
    if text.is_empty() {
        return None;
    }
    let error = parse(text, PhantomData::<IgnoredAny>).err()?;
    Some(HiddenError { said: format!("the body is not valid JSON: {error}"), transient: true })
}
