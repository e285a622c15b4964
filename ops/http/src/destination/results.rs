//! Results of single records in the answer to a batch.

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::parameters::{Argument, Parameters};
use anabranch_record::json::{parse_value, write_value};
use anabranch_record::text::Str;
use anabranch_record::value::Value;

use crate::pointer::JsonPointer;

/// Maximum number of characters of a reason.
const SHOWN: usize = 300;

/// Parameters of the results.
#[derive(Parameters)]
pub(super) struct Settings {
    /// JSON pointer to the array with one result per record in the answer, such as `/items`. A 207 without this setting
    /// has the array as its body.
    pointer: Argument<Option<Str>>,
    /// JSON pointer to the status in a result: a status of HTTP, or true or false.
    #[parameter(default = "/status")]
    status: Argument<Option<Str>>,
    /// JSON pointer to the reason in a result. A result with a reason and without a status is a failure.
    #[parameter(default = "/error")]
    error: Argument<Option<Str>>,
}

/// The places of results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResultPlaces {
    list: Option<JsonPointer>,
    status: JsonPointer,
    error: JsonPointer,
}

/// Result of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ItemResult {
    /// The server has the record.
    Stored,
    /// The server asks to send the record again.
    Again(String),
    /// The server refuses the record.
    Refused(String),
}

/// The answer has not one result per record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoResults {
    /// The body is not JSON.
    #[error("the answer is not JSON, so it has no results of records")]
    Json,
    /// The pointer names no array.
    #[error("the answer has no array of results at {0:?}")]
    NoArray(String),
    /// The array has another length.
    #[error("the answer has {results} results for {records} records")]
    Count {
        /// Length of the array.
        results: usize,
        /// Number of records of the request.
        records: usize,
    },
}

impl Settings {
    /// Returns the places; adds errors to `findings`.
    pub(super) fn places(&self, findings: &mut Diagnostics) -> ResultPlaces {
        ResultPlaces {
            list: JsonPointer::of(&self.pointer, findings),
            status: JsonPointer::of(&self.status, findings).unwrap_or_default(),
            error: JsonPointer::of(&self.error, findings).unwrap_or_default(),
        }
    }
}

impl ResultPlaces {
    /// Returns `true` if an answer with this status has results.
    pub(super) fn are_in(&self, status: u16) -> bool {
        self.list.is_some() || status == 207
    }

    /// Returns the results in an answer, in the order of the records.
    ///
    /// # Errors
    /// There is not one result per record: the outcome of each is unknown.
    pub(super) fn read(&self, body: &[u8], records: usize) -> Result<Vec<ItemResult>, NoResults> {
        let value = parse_value(body).map_err(|_| NoResults::Json)?;
        let place = self.list.clone().unwrap_or_default();
        let list = place.find(&value).and_then(Value::as_list).ok_or_else(|| NoResults::NoArray(place.to_string()))?;
        if list.len() != records {
            return Err(NoResults::Count { results: list.len(), records });
        }
        Ok(list.iter().map(|item| self.item(item)).collect())
    }

    fn item(&self, item: &Value) -> ItemResult {
        let error = self.error.find(item).filter(|error| !matches!(error, Value::Null | Value::Bool(false)));
        let said = |status: &str| {
            let reason = error.map_or_else(|| shown(item), shown);
            format!("the server refuses the record{status}: {reason}")
        };
        match self.status.find(item) {
            Some(Value::Bool(true)) => ItemResult::Stored,
            Some(Value::Bool(false)) => ItemResult::Refused(said("")),
            Some(value) => {
                let number = value.as_i64().or_else(|| value.as_str()?.trim().parse().ok());
                match number {
                    Some(200..=299) => ItemResult::Stored,
                    Some(status @ (408 | 429 | 500..=599)) => {
                        ItemResult::Again(said(&format!(" with status {status}")))
                    }
                    Some(status) => ItemResult::Refused(said(&format!(" with status {status}"))),
                    None if error.is_none() => ItemResult::Stored,
                    None => ItemResult::Refused(said("")),
                }
            }
            None if error.is_none() => ItemResult::Stored,
            None => ItemResult::Refused(said("")),
        }
    }
}

/// Returns the beginning of a value: a text as it is, anything else in JSON.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::Text(text) => text.as_str().to_owned(),
        value => {
            let mut text = Vec::new();
            let _ = write_value(value, &mut text);
            String::from_utf8_lossy(&text).into_owned()
        }
    };
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(list: &str) -> ResultPlaces {
        let pointer = |text| JsonPointer::parse(text).unwrap();
        ResultPlaces { list: Some(pointer(list)), status: pointer("/status"), error: pointer("/error") }
    }

    #[test]
    fn each_record_has_its_result() {
        let body = br#"{"items":[{"status":201},{"status":429},{"status":"503","error":"busy"},{"status":400,"error":{"type":"mapping"}},
            {"status":true},{"status":false},{"id":7},{"error":"too long"},{"error":null},{"error":false}]}"#;
        let results = places("/items").read(body, 10).unwrap();
        let again = |text: &str| ItemResult::Again(format!("the server refuses the record {text}"));
        let refused = |text: &str| ItemResult::Refused(format!("the server refuses the record{text}"));
        let wanted = [
            ItemResult::Stored,
            again(r#"with status 429: {"status":429}"#),
            again("with status 503: busy"),
            refused(r#" with status 400: {"type":"mapping"}"#),
            ItemResult::Stored,
            refused(r#": {"status":false}"#),
            ItemResult::Stored,
            refused(": too long"),
            ItemResult::Stored,
            ItemResult::Stored,
        ];
        assert_eq!(results, wanted);
    }

    #[test]
    fn an_answer_without_results_says_nothing_about_a_record() {
        assert_eq!(places("").read(b"[{}]", 1), Ok(vec![ItemResult::Stored]));
        let places = places("/items");
        assert_eq!(places.read(b"ok", 1), Err(NoResults::Json));
        assert_eq!(places.read(b"{}", 1), Err(NoResults::NoArray("/items".to_owned())));
        assert_eq!(places.read(br#"{"items":[{}]}"#, 2), Err(NoResults::Count { results: 1, records: 2 }));
        assert!(places.are_in(200) && ResultPlaces::default().are_in(207) && !ResultPlaces::default().are_in(200));
    }
}
