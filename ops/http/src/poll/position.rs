//! Positions: how far a poll is read, and where the next one begins.

use std::cmp::Ordering;

use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::value::{Value, timestamp_text};
use serde::{Deserialize, Serialize};

use super::decimal;
use crate::codes;

/// A value of the cursor field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum CursorValue {
    Integer(i64),
    Unsigned(u64),
    Float(f64),
    Text(String),
    /// A number with all its digits: one that is not an integer of 64 bits.
    Exact {
        number: String,
    },
}

impl CursorValue {
    /// Returns the value of a field; `None` for a value without an order, such as null or a list. A float may differ from the
    /// number in the text.
    pub(super) fn of(value: &Value) -> Option<CursorValue> {
        match value {
            Value::Int(number) => Some(CursorValue::Integer(*number)),
            Value::UInt(number) => Some(CursorValue::Unsigned(*number)),
            Value::Float(number) if number.is_finite() => Some(CursorValue::Float(*number)),
            Value::Text(text) => Some(CursorValue::Text(text.as_str().to_owned())),
            Value::Time(time) => Some(CursorValue::Text(timestamp_text(time))),
            _ => None,
        }
    }

    /// Returns the text of the value in a query.
    pub(super) fn text(&self) -> String {
        match self {
            CursorValue::Integer(number) => number.to_string(),
            CursorValue::Unsigned(number) => number.to_string(),
            CursorValue::Float(number) => number.to_string(),
            CursorValue::Text(text) => text.clone(),
            CursorValue::Exact { number } => number.clone(),
        }
    }

    /// Returns the larger of two values. A text is larger than a number.
    pub(super) fn max(self, other: CursorValue) -> CursorValue {
        if self.compare(&other) == Ordering::Less { other } else { self }
    }

    fn compare(&self, other: &CursorValue) -> Ordering {
        let integer = |value: &CursorValue| match value {
            CursorValue::Integer(number) => Some(i128::from(*number)),
            CursorValue::Unsigned(number) => Some(i128::from(*number)),
            CursorValue::Float(_) | CursorValue::Text(_) | CursorValue::Exact { .. } => None,
        };
        match (self, other) {
            (CursorValue::Text(a), CursorValue::Text(b)) => a.cmp(b),
            (CursorValue::Text(_), _) => Ordering::Greater,
            (_, CursorValue::Text(_)) => Ordering::Less,
            (a, b) => match (integer(a), integer(b)) {
                (Some(a), Some(b)) => a.cmp(&b),
                _ => decimal::compare(&a.text(), &b.text()),
            },
        }
    }
}

/// The request of a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum PageRequest {
    /// The first page.
    First,
    /// The page at a URL.
    Url(String),
    /// The page of a cursor.
    Cursor(String),
    /// The page that begins with this record.
    Offset(u64),
    /// The page with this number.
    Number(u64),
}

/// Conditions for another answer than 304.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Validators {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) etag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) modified: Option<String>,
}

impl Validators {
    pub(super) fn is_empty(&self) -> bool {
        *self == Validators::default()
    }
}

/// A record in a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PagePlace {
    pub(super) page: PageRequest,
    /// Number of the page in its poll, from 1.
    pub(super) number: u64,
    /// Index of the record in the page.
    pub(super) index: usize,
    /// Hash of the record.
    pub(super) hash: u64,
    /// Largest value of the cursor field in the poll, up to this record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) max: Option<CursorValue>,
}

/// Position of the source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PollPosition {
    /// Largest value of the cursor field before the poll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<CursorValue>,
    /// Start of the poll, in seconds since 1970.
    pub(super) polled: i64,
    /// Validators of the poll, if it is complete and had a single page.
    #[serde(default, skip_serializing_if = "Validators::is_empty")]
    pub(super) validators: Validators,
    /// The record that the position belongs to; `None` if the poll is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) place: Option<PagePlace>,
}

impl PollPosition {
    /// Returns the position as text in JSON.
    ///
    /// # Errors
    /// The position cannot be written.
    pub(super) fn encode(&self) -> Result<Position, Fault> {
        let text = serde_json::to_vec(self).map_err(|error| Fault::fatal(codes::POSITION_UNKNOWN, error))?;
        Ok(Position(text.into()))
    }

    /// Reads a position.
    ///
    /// # Errors
    /// `position_unknown` if it is not one of this source.
    pub(super) fn decode(position: &Position) -> Result<PollPosition, Fault> {
        serde_json::from_slice(&position.0).map_err(|_| {
            let text = "the position is not that of a source http.poll; run `anabranch positions reset` to start from the \
                        beginning";
            Fault::fatal(codes::POSITION_UNKNOWN, text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_value_is_kept_exactly() {
        use CursorValue::{Exact, Float, Integer, Text, Unsigned};
        let text = |text: &str| Text(text.to_owned());
        assert_eq!(Integer(9).max(Integer(10)), Integer(10));
        assert_eq!(Integer(i64::MAX).max(Unsigned(1 << 63)), Unsigned(1 << 63));
        assert_eq!(Integer(9_007_199_254_740_993).max(Integer(9_007_199_254_740_992)), Integer(9_007_199_254_740_993));
        assert_eq!(Float(1.5).max(Integer(1)), Float(1.5));
        assert_eq!(text("2026-01-02").max(text("2026-01-10")), text("2026-01-10"));
        assert_eq!(Integer(1).max(text("0")), text("0"));
        assert_eq!(Unsigned(u64::MAX).text(), "18446744073709551615");
        let exact = |number: &str| Exact { number: number.to_owned() };
        assert_eq!(exact("12345678901234567890123").max(Unsigned(u64::MAX)), exact("12345678901234567890123"));
        assert_eq!(exact("12345678901234567890123").text(), "12345678901234567890123");
    }

    #[test]
    fn positions_are_read_as_they_were_written() {
        let complete = PollPosition {
            since: Some(CursorValue::Integer(7)),
            polled: 5,
            validators: Validators { etag: Some("\"x\"".to_owned()), modified: None },
            place: None,
        };
        let within = PollPosition {
            place: Some(PagePlace {
                page: PageRequest::Cursor("a b".to_owned()),
                number: 2,
                index: 3,
                hash: u64::MAX,
                max: Some(CursorValue::Text("z".to_owned())),
            }),
            ..PollPosition::default()
        };
        let exact = CursorValue::Exact { number: "12345678901234567890123".to_owned() };
        let large = PollPosition { since: Some(exact), ..PollPosition::default() };
        for position in [complete, within, large, PollPosition::default()] {
            assert_eq!(PollPosition::decode(&position.encode().unwrap()).unwrap(), position);
        }
        for other in ["", "7", "{}", "x"] {
            assert!(PollPosition::decode(&Position::copy_from(other.as_bytes())).is_err(), "{other}");
        }
    }
}
