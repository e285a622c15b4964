//! Headers of Kafka as metadata of records, in both directions.
//!
//! A header is the metadata `kafka.header.<key>`, as in the reference service. Metadata are texts with unique keys, and
//! headers are not: they are ordered, keys repeat, and values are bytes or null. If the texts do not represent the
//! headers completely, the metadata `kafka.headers` contains all of them too, as a JSON list of `[key, value]`, in which
//! a value is a text, `null`, or `{"base64": …}` for bytes that are not UTF-8. If a record has both, the list counts, and
//! texts with keys that the list lacks follow it.

use anabranch_record::metadata::Metadata;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

/// Prefix of the metadata with the text of a header.
pub(crate) const HEADER: &str = "kafka.header.";
/// Name of the metadata with all headers.
pub(crate) const HEADERS: &str = "kafka.headers";

const BASE64: &str = "base64";

/// Headers in the form of the client: in order, with repeated keys and null values.
pub(crate) type Headers = Vec<(String, Option<Bytes>)>;

/// The metadata `kafka.headers` is not a list of headers.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "the metadata {HEADERS} is not a JSON list of [key, value], in which a value is a text, null or {{\"base64\": …}}"
)]
pub(crate) struct NotHeaders;

/// Returns the headers that metadata contain.
///
/// # Errors
/// The list of headers is malformed.
pub(crate) fn from_metadata(metadata: &Metadata) -> Result<Headers, NotHeaders> {
    let mut headers = match metadata.get(HEADERS) {
        Some(list) => listed(list)?,
        None => Headers::new(),
    };
    let complete = headers.len();
    for (key, value) in metadata.iter() {
        let Some(name) = key.strip_prefix(HEADER) else { continue };
        if !headers[..complete].iter().any(|(listed, _)| listed == name) {
            headers.push((name.to_owned(), Some(Bytes::copy_from_slice(value.as_bytes()))));
        }
    }
    Ok(headers)
}

fn listed(text: &str) -> Result<Headers, NotHeaders> {
    let list: Vec<(String, Value)> = serde_json::from_str(text).map_err(|_| NotHeaders)?;
    let bytes = |value: Value| match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(Bytes::from(text))),
        Value::Object(fields) => {
            let encoded = fields.get(BASE64).and_then(Value::as_str).filter(|_| fields.len() == 1);
            let decoded = STANDARD.decode(encoded.ok_or(NotHeaders)?).map_err(|_| NotHeaders)?;
            Ok(Some(Bytes::from(decoded)))
        }
        _ => Err(NotHeaders),
    };
    list.into_iter().map(|(key, value)| Ok((key, bytes(value)?))).collect()
}

/// Adds headers to metadata.
pub(crate) fn to_metadata(headers: &[(String, Option<Bytes>)], metadata: &mut Metadata) {
    let text =
        |value: &Option<Bytes>| value.as_ref().and_then(|value| std::str::from_utf8(value).ok().map(str::to_owned));
    let is_repeated = |at: usize| headers[..at].iter().any(|(key, _)| *key == headers[at].0);
    // Metadata are sorted by key, so that the order of several headers is lost.
    let in_order = headers.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let mut complete = in_order;
    for (at, (key, value)) in headers.iter().enumerate() {
        match text(value) {
            Some(text) => {
                complete &= !is_repeated(at);
                metadata.insert(format!("{HEADER}{key}"), text);
            }
            None => complete = false,
        }
    }
    if !complete {
        let list: Vec<Value> = headers
            .iter()
            .map(|(key, value)| match (text(value), value) {
                (Some(text), _) => json!([key, text]),
                (None, Some(bytes)) => json!([key, { BASE64: STANDARD.encode(bytes) }]),
                (None, None) => json!([key, null]),
            })
            .collect();
        metadata.insert(HEADERS, Value::from(list).to_string());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round(headers: &Headers) -> Headers {
        let mut metadata = Metadata::default();
        to_metadata(headers, &mut metadata);
        from_metadata(&metadata).unwrap()
    }

    proptest! {
        #[test]
        fn headers_survive_as_metadata(
            headers in prop::collection::vec(
                ("[a-c]{0,2}", prop::option::of(prop::collection::vec(any::<u8>(), 0..4).prop_map(Bytes::from))),
                0..6,
            )
        ) {
            prop_assert_eq!(round(&headers), headers);
        }
    }

    #[test]
    fn plain_headers_need_no_list() {
        let headers: Headers = vec![("a".into(), Some("1".into())), ("b".into(), Some("".into()))];
        let mut metadata = Metadata::default();
        to_metadata(&headers, &mut metadata);
        assert_eq!(metadata.get("kafka.header.a").map(anabranch_record::text::Str::as_str), Some("1"));
        assert!(metadata.get(HEADERS).is_none());
    }

    #[test]
    fn a_header_that_a_processor_adds_follows_the_list() {
        let mut metadata = Metadata::default();
        to_metadata(&[("a".into(), None)], &mut metadata);
        metadata.insert("kafka.header.new", "x");
        assert_eq!(from_metadata(&metadata).unwrap(), [("a".into(), None), ("new".into(), Some("x".into()))]);
        for wrong in ["", "{}", "[1]", r#"[["a",1]]"#, r#"[["a",{"base64":"?"}]]"#, r#"[["a",{"base64":"","x":1}]]"#] {
            metadata.insert(HEADERS, wrong);
            assert_eq!(from_metadata(&metadata), Err(NotHeaders), "{wrong}");
        }
    }
}
