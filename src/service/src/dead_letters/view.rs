//! Representation of dead letters for programs and people: the same over HTTP and on the command line.

use anabranch_plugin::letter::Letter;
use anabranch_plugin::state::StoreError;
use anabranch_process::runtime::EXPRESSIONS;
use anabranch_record::code::Code;
use anabranch_record::json::write_record;
use anabranch_record::text::Str;
use anabranch_record::value::{Timestamp, Value};
use anabranch_record::{Data, Record};
use anabranch_store::letters::{LetterTotals, StoredLetter, nanos};
use anabranch_store::{Store, form};
use anabranch_template::condition::Budget;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::SecondsFormat;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use utoipa::ToSchema;

use super::filter::{BUDGET, Filter, NonMatches, TooCostly};
use crate::codes;

/// Maximum characters of a record in a list.
const SHORT: usize = 160;
/// Number of dead letters that are read together.
const PAGE: usize = 256;

/// A dead letter in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LetterView {
    /// Its number in the pipeline; newer dead letters have higher numbers.
    pub number: u64,
    /// Time of the last failure.
    pub at: String,
    /// Time of the first failure.
    pub first_at: String,
    /// Id of the processor or destination where it failed; empty if unknown.
    #[schema(value_type = String)]
    pub node: Str,
    /// Id of its source connector.
    #[schema(value_type = String)]
    pub connector: Str,
    /// Partition of its source; empty if there is only one.
    #[schema(value_type = String)]
    pub partition: Str,
    /// Reason why it failed.
    pub error: LetterError,
    /// Number of failures.
    pub attempts: u32,
    /// Stored bytes.
    pub bytes: u64,
    /// Id of the trace of the last failure, if the record was traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The record: in a list, the beginning of its content as text; for a single dead letter, its JSON form.
    pub record: serde_json::Value,
}

/// Reason why a record failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LetterError {
    /// Stable code.
    #[schema(value_type = String)]
    pub code: Str,
    /// Description.
    #[schema(value_type = String)]
    pub message: Str,
}

/// Dead letters of a pipeline, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LetterPage {
    /// The dead letters of the page.
    pub letters: Vec<LetterView>,
    /// Number of all dead letters of the pipeline.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Dead letters that were evicted because of the limits of the queue, since the pipeline was created.
    pub evicted: u64,
    /// When the oldest dead letter first failed.
    pub oldest: Option<String>,
    /// Dead letters of the search for which the condition failed; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unjudged: Option<UncheckedLetters>,
    /// Nodes where dead letters failed. Only on the first page of a search for a node where no dead letter failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub nodes: Option<Vec<Str>>,
}

/// Dead letters for which a condition failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UncheckedLetters {
    /// Number of dead letters.
    pub count: u64,
    /// The error of the condition on the newest of them.
    pub error: LetterError,
}

/// Reason why dead letters cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The condition used up its budget.
    #[error(
        "the condition is too costly: after {looked_at} dead letters, it had used {} steps or {} s",
        BUDGET.steps, BUDGET.time.as_secs()
    )]
    TooCostly {
        /// Number of dead letters searched before.
        looked_at: u64,
    },
}

impl PageError {
    /// Returns the stable code of the error.
    pub fn code(&self) -> Code {
        match self {
            PageError::Store(_) => codes::STORE_UNAVAILABLE,
            PageError::TooCostly { .. } => codes::DLQ_CONDITION_TOO_COSTLY,
        }
    }

    /// Returns the remedy, if there is one.
    pub fn suggestion(&self) -> Option<&'static str> {
        match self {
            PageError::Store(_) => None,
            PageError::TooCostly { .. } => Some(
                "write a condition that needs fewer steps, or search fewer dead letters: filter by node or by time",
            ),
        }
    }
}

/// A page under construction.
struct Search {
    filter: Filter,
    limit: usize,
    budget: Budget,
    passed: NonMatches,
    letters: Vec<LetterView>,
    looked_at: u64,
}

impl Search {
    /// Searches dead letters. Returns `true` if the search should continue. O(dead letters), plus the cost of the
    /// condition.
    fn look_through(&mut self, found: &[(u64, StoredLetter)]) -> Result<bool, PageError> {
        for (number, stored) in found {
            let letter = form::decode(&stored.content)?;
            let taken = self.filter.takes(&letter, &mut self.passed, &mut self.budget);
            if taken.map_err(|TooCostly| PageError::TooCostly { looked_at: self.looked_at })? {
                self.letters.push(LetterView::short(*number, stored, &letter));
            }
            self.looked_at += 1;
            if self.letters.len() >= self.limit {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the newest dead letters below a number that match the filter, at most `limit`. O(dead letters searched). The
/// condition runs on threads for expressions, within [`BUDGET`].
///
/// # Errors
/// The store cannot be read, or the condition used up the budget.
pub async fn page(
    store: &Store,
    pipeline: &Str,
    filter: &Filter,
    before: Option<u64>,
    limit: usize,
) -> Result<LetterPage, PageError> {
    let mut search = Search {
        filter: filter.clone(),
        limit,
        budget: BUDGET,
        passed: NonMatches::default(),
        letters: Vec::new(),
        looked_at: 0,
    };
    let mut below = before.unwrap_or(u64::MAX);
    let mut goes_on = limit > 0;
    while goes_on {
        let found = store.letters_below(pipeline, below, PAGE).await?;
        let Some((last, _)) = found.last() else { break };
        below = *last;
        let looked = EXPRESSIONS.run(move || {
            let goes_on = search.look_through(&found);
            (search, goes_on)
        });
        let interrupted = || StoreError::Unavailable("the search through the dead letters was interrupted".into());
        let (after, more) = looked.await.ok_or_else(interrupted)?;
        search = after;
        goes_on = more?;
    }
    let Search { letters, passed: NonMatches { nodes, is_of_node, unjudged, fault }, .. } = search;
    let unjudged = fault.map(|fault| UncheckedLetters {
        count: unjudged,
        error: LetterError { code: Str::from_static(fault.code().name()), message: fault.message().into() },
    });
    // A partial search may have missed dead letters of the node.
    let is_whole = before.is_none() && limit > 0;
    let nodes = (filter.node.is_some() && is_whole && !is_of_node).then(|| nodes.into_iter().collect());
    let LetterTotals { count, bytes, evicted, oldest } = store.letter_totals(pipeline).await?;
    Ok(LetterPage { letters, count, bytes, evicted, oldest: oldest.map(shown_nanos), unjudged, nodes })
}

/// Returns the numbers of all dead letters, newest first. O(dead letters).
///
/// # Errors
/// The store cannot be read.
pub async fn numbers(store: &Store, pipeline: &Str) -> Result<Vec<u64>, StoreError> {
    let mut numbers = Vec::new();
    loop {
        let below = numbers.last().copied().unwrap_or(u64::MAX);
        let found = store.letters_below(pipeline, below, PAGE).await?;
        if found.is_empty() {
            return Ok(numbers);
        }
        numbers.extend(found.iter().map(|(number, _)| *number));
    }
}

/// Returns one dead letter with its whole record.
///
/// # Errors
/// The store cannot be read.
pub async fn one(store: &Store, pipeline: &Str, number: u64) -> Result<Option<LetterView>, StoreError> {
    let mut found = store.letters_numbered(pipeline, vec![number]).await?;
    let Some((number, stored)) = found.pop() else { return Ok(None) };
    // A record may be large.
    let shown = spawn_blocking(move || {
        let letter = form::decode(&stored.content)?;
        let record = whole(&letter.record);
        Ok(Some(LetterView { record, ..LetterView::short(number, &stored, &letter) }))
    });
    shown.await.unwrap_or_else(|error| Err(StoreError::Unavailable(Box::new(error))))
}

impl LetterView {
    fn short(number: u64, stored: &StoredLetter, letter: &Letter) -> LetterView {
        LetterView {
            number,
            at: shown_nanos(nanos(letter.at)),
            first_at: shown_nanos(stored.first),
            node: letter.node.clone(),
            connector: letter.lane.connector.clone(),
            partition: letter.lane.partition.0.clone(),
            error: LetterError { code: letter.code.clone(), message: letter.message.clone() },
            attempts: stored.attempts,
            bytes: stored.content.len() as u64,
            trace: letter.trace.map(|context| context.trace.to_string()),
            record: short(&letter.record).into(),
        }
    }
}

/// Returns the JSON form of a record, or a text with the reason why it has none.
fn whole(record: &Record) -> serde_json::Value {
    let mut text = Vec::new();
    match write_record(record, &mut text) {
        Ok(()) => serde_json::from_slice(&text).unwrap_or_default(),
        Err(fault) => format!("the record cannot be shown as JSON: {}", fault.message()).into(),
    }
}

/// Returns the beginning of the content of a record.
fn short(record: &Record) -> String {
    let data = if record.payload.after == Data::Absent { &record.payload.before } else { &record.payload.after };
    let data = if *data == Data::Absent { &record.key } else { data };
    let text = match data {
        Data::Absent => String::new(),
        Data::Raw(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.chars().take(SHORT + 1).collect(),
            Err(_) => STANDARD.encode(&bytes[..bytes.len().min(SHORT)]),
        },
        Data::Structured(fields) => {
            let mut text = Vec::new();
            match anabranch_record::json::write_value(&Value::Map(fields.clone()), &mut text) {
                Ok(()) => String::from_utf8_lossy(&text).into_owned(),
                Err(fault) => fault.message(),
            }
        }
    };
    match text.char_indices().nth(SHORT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Formats nanoseconds since 1970 as RFC 3339 with milliseconds.
pub fn shown_nanos(nanos: u64) -> String {
    let seconds = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX);
    let time = Timestamp::from_timestamp(seconds, (nanos % 1_000_000_000) as u32).unwrap_or_default();
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests {
    use anabranch_record::Position;

    use super::*;

    #[test]
    fn a_list_shows_the_beginning_of_a_record() {
        let record = |data| Record::create(Position::copy_from(b"1"), Data::Absent, data);
        assert_eq!(short(&record(Data::text("a line"))), "a line");
        assert_eq!(short(&record(Data::text("ü".repeat(SHORT + 5)))), format!("{}…", "ü".repeat(SHORT)));
        assert_eq!(short(&record(Data::Raw(bytes::Bytes::from_static(b"\xff")))), "/w==");
        assert_eq!(shown_nanos(1_234_567_890_123), "1970-01-01T00:20:34.567Z");
    }
}
