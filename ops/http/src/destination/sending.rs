//! The requests of a write.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use anabranch_plugin::destination::{Delivered, Verdicts, Write, Writer};
use anabranch_plugin::host::Host;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::json::write_data;
use anabranch_record::{Data, Record};
use async_trait::async_trait;
use futures::stream::{self, StreamExt as _};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderValue};
use serde::de::IgnoredAny;

use super::identity::{Identities, RecordHash, idempotency_key};
use super::results::ItemResult;
use super::{BatchFormat, SendOrder, SendingRules};
use crate::client::{Answer, AuthorizedClient, AuthorizedError, HttpError};
use crate::codes;

type RowResult = Result<Delivered, Fault>;

/// Writes records as requests.
pub(super) struct RecordSender {
    rules: Arc<SendingRules>,
    client: AuthorizedClient,
    identities: Identities,
    unfinished: Option<UnfinishedWrite>,
}

/// The results of a write that failed as a whole. If the same records are written again, those that the server has are
/// not sent again.
struct UnfinishedWrite {
    records: Vec<RecordHash>,
    results: Vec<Option<RowResult>>,
}

/// A record that is ready to be sent.
struct PreparedRow {
    identity: RecordHash,
    body: Vec<u8>,
    /// URL and headers, if they depend on the record.
    target: Option<(Url, HeaderMap)>,
}

/// The records of one request, by their numbers.
struct RequestRows {
    rows: Vec<usize>,
    bytes: usize,
    /// Number of requests for these records before this one.
    attempts: u32,
}

/// Results of the requests of a lane.
#[derive(Default)]
struct LaneOutcome {
    results: Vec<(usize, RowResult)>,
    /// Reason why the rest was not sent.
    stopped: Option<Fault>,
}

impl RecordSender {
    /// Creates a writer.
    pub(super) fn new(rules: Arc<SendingRules>, client: AuthorizedClient, host: &Host) -> RecordSender {
        RecordSender { rules, client, identities: Identities::new(&host.pipeline, &host.node), unfinished: None }
    }

    fn prepare(&mut self, record: &Record) -> Result<PreparedRow, Fault> {
        let target = match self.rules.message.is_same_for_all() {
            true => None,
            false => {
                let request = self.rules.message.request(record, self.client.client())?;
                Some((request.url().clone(), request.headers().clone()))
            }
        };
        Ok(PreparedRow { identity: self.identities.of(record)?, body: self.rules.body(record)?, target })
    }

    /// Divides rows into requests, and these into lanes. The requests of a lane are sent one after another.
    fn lanes(&self, records: &[Record], prepared: &[Option<PreparedRow>]) -> Vec<Vec<RequestRows>> {
        let rules = &self.rules;
        let mut lanes: Vec<Vec<RequestRows>> = Vec::new();
        let mut of_key: HashMap<u64, usize> = HashMap::new();
        for (row, ready) in prepared.iter().enumerate() {
            let Some(ready) = ready else { continue };
            let lane = match rules.order {
                SendOrder::All | SendOrder::None => 0,
                SendOrder::Key => {
                    let group = group_of(&records[row].key, rules.policy.concurrency);
                    let next = of_key.len();
                    *of_key.entry(group).or_insert(next)
                }
            };
            if lane == lanes.len() {
                lanes.push(Vec::new());
            }
            let requests = &mut lanes[lane];
            let fits = |last: &RequestRows| {
                let first = last.rows.first().and_then(|first| prepared[*first].as_ref());
                rules.batch != BatchFormat::Single
                    && last.bytes + ready.body.len() < rules.body_bytes
                    && first.is_some_and(|first| first.target == ready.target)
            };
            match requests.last_mut().filter(|last| fits(last)) {
                Some(last) => {
                    last.rows.push(row);
                    last.bytes += ready.body.len() + 1;
                }
                None => requests.push(RequestRows { rows: vec![row], bytes: ready.body.len() + 2, attempts: 0 }),
            }
        }
        match rules.order {
            SendOrder::None => lanes.into_iter().flatten().map(|request| vec![request]).collect(),
            SendOrder::All | SendOrder::Key => lanes,
        }
    }

    /// Sends the requests of a lane, until one fails for a reason that does not concern its records.
    async fn send_lane(
        &self,
        records: &[Record],
        prepared: &[Option<PreparedRow>],
        mut requests: Vec<RequestRows>,
    ) -> LaneOutcome {
        let mut outcome = LaneOutcome::default();
        requests.reverse();
        while let Some(request) = requests.pop() {
            let answer = self.send(records, prepared, &request.rows).await;
            let rest = match answer {
                Ok(answer) => self.note_answer(&answer, request, &mut outcome),
                Err(error) => self.note_failure(error, request, &mut outcome),
            };
            if outcome.stopped.is_some() {
                break;
            }
            for request in rest.into_iter().rev() {
                if request.attempts > 0 {
                    tokio::time::sleep(self.rules.policy.retry.delay(request.attempts, None)).await;
                }
                requests.push(request);
            }
        }
        outcome
    }

    async fn send(
        &self,
        records: &[Record],
        prepared: &[Option<PreparedRow>],
        rows: &[usize],
    ) -> Result<Answer, AuthorizedError> {
        let ready = || rows.iter().filter_map(|row| prepared[*row].as_ref());
        let body = self.rules.whole_body(ready().map(|ready| ready.body.as_slice()));
        let first = rows.first().map(|row| &records[*row]);
        let request = first.map(|first| self.rules.message.request_with(first, body, self.client.client()));
        // A lane has no request without records.
        let Some(request) = request else {
            return Err(AuthorizedError::Unsent(Fault::fatal(codes::HTTP_INVALID, "a request has no record")));
        };
        let mut request = request.map_err(AuthorizedError::Unsent)?;
        if let Some(header) = &self.rules.idempotency
            && let Ok(key) = HeaderValue::try_from(idempotency_key(ready().map(|ready| &ready.identity)))
        {
            request.headers_mut().insert(header, key);
        }
        self.client.send(request).await
    }

    /// Notes the results of an answer. Returns the records to send again.
    fn note_answer(&self, answer: &Answer, request: RequestRows, outcome: &mut LaneOutcome) -> Vec<RequestRows> {
        if !self.rules.results.are_in(answer.status.as_u16()) {
            outcome.results.extend(request.rows.into_iter().map(|row| (row, Ok(Delivered::Durable))));
            return Vec::new();
        }
        let results = match self.rules.results.read(&answer.body, request.rows.len()) {
            Ok(results) => results,
            // The server may have taken the records: it is not their fault.
            Err(error) => {
                outcome.stopped = Some(Fault::fatal(codes::HTTP_RESULTS, error));
                return Vec::new();
            }
        };
        let (mut again, mut last) = (Vec::new(), None);
        for (row, result) in request.rows.into_iter().zip(results) {
            match result {
                ItemResult::Stored => outcome.results.push((row, Ok(Delivered::Durable))),
                ItemResult::Refused(why) => {
                    outcome.results.push((row, Err(Fault::record(codes::HTTP_RECORD_REFUSED, why))));
                }
                ItemResult::Again(why) => {
                    again.push(row);
                    last = Some(why);
                }
            }
        }
        let attempts = request.attempts + 1;
        match last {
            None => Vec::new(),
            Some(why) if attempts > self.rules.policy.retry.count => {
                outcome.stopped = Some(Fault::transient(codes::HTTP_RECORD_REFUSED, why));
                Vec::new()
            }
            Some(_) => vec![RequestRows { bytes: request.bytes, rows: again, attempts }],
        }
    }

    /// Notes a failed request. Returns the requests for its records if another division may succeed.
    fn note_failure(
        &self,
        error: AuthorizedError,
        mut request: RequestRows,
        outcome: &mut LaneOutcome,
    ) -> Vec<RequestRows> {
        let error = match error {
            AuthorizedError::Unsent(fault) if fault.class() == FaultClass::Record => {
                outcome.results.extend(request.rows.into_iter().map(|row| (row, Err(fault.clone()))));
                return Vec::new();
            }
            AuthorizedError::Unsent(fault) => {
                outcome.stopped = Some(fault);
                return Vec::new();
            }
            AuthorizedError::Request(error) => error,
        };
        if error.is_of_login() && self.rules.message.is_one_login() {
            outcome.stopped = Some(error.into_login_fault());
        } else if error.is_transient() {
            outcome.stopped = Some(Fault::from(error).with_class(FaultClass::Transient));
        } else if request.rows.len() > 1 && concerns_some_records(&error) {
            let second = request.rows.split_off(request.rows.len() / 2);
            let half = |rows| RequestRows { rows, bytes: request.bytes, attempts: 0 };
            return vec![half(request.rows), half(second)];
        } else {
            let fault = Fault::from(error);
            outcome.results.extend(request.rows.into_iter().map(|row| (row, Err(fault.clone()))));
        }
        Vec::new()
    }
}

/// Returns `true` if the server refused a whole batch because of its content, so that a part of it may be accepted.
fn concerns_some_records(error: &HttpError) -> bool {
    error.status().is_some_and(|status| matches!(status.as_u16(), 400 | 409 | 413 | 422))
}

/// Returns the group of a key. Records with equal keys are in one group.
fn group_of(key: &Data, groups: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    match key {
        Data::Absent => {}
        Data::Raw(bytes) => bytes.hash(&mut hasher),
        Data::Structured(_) => {
            let mut text = Vec::new();
            // A key that has no text in JSON is in the group of the text before the error.
            let _ = write_data(key, &mut text);
            text.hash(&mut hasher);
        }
    }
    hasher.finish() % groups.max(1) as u64
}

impl SendingRules {
    /// Returns the body of a record, or its part of the body of a batch.
    pub(super) fn body(&self, record: &Record) -> Result<Vec<u8>, Fault> {
        let mut body = Vec::new();
        self.format.encode(record, &mut body)?;
        if self.batch == BatchFormat::Single {
            return Ok(body);
        }
        if let Err(error) = serde_json::from_slice::<IgnoredAny>(&body) {
            let text = format!("the record is not JSON, as batches need it: {error}");
            return Err(Fault::record(codes::HTTP_NOT_JSON, text));
        }
        // Texts in JSON contain no line break: this one is white space.
        if self.batch == BatchFormat::Ndjson {
            body.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
        }
        Ok(body)
    }

    /// Returns the body of a request.
    fn whole_body<'b>(&self, parts: impl Iterator<Item = &'b [u8]>) -> Vec<u8> {
        let mut whole = Vec::new();
        match self.batch {
            BatchFormat::Single => parts.for_each(|part| whole.extend_from_slice(part)),
            BatchFormat::Ndjson => {
                for part in parts {
                    whole.extend_from_slice(part);
                    whole.push(b'\n');
                }
            }
            BatchFormat::Array => {
                whole.push(b'[');
                for part in parts {
                    if whole.len() > 1 {
                        whole.push(b',');
                    }
                    whole.extend_from_slice(part);
                }
                whole.push(b']');
            }
        }
        whole
    }
}

#[async_trait]
impl Writer for RecordSender {
    async fn write(&mut self, Write { rows: records, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        let mut results: Vec<Option<RowResult>> = records.iter().map(|_| None).collect();
        let mut prepared = Vec::with_capacity(records.len());
        let mut identities = Vec::with_capacity(records.len());
        for (record, result) in records.iter().zip(&mut results) {
            match self.prepare(record) {
                Ok(ready) => {
                    identities.push(ready.identity);
                    prepared.push(Some(ready));
                }
                Err(fault) => {
                    *result = Some(Err(fault));
                    identities.push(RecordHash::default());
                    prepared.push(None);
                }
            }
        }
        if let Some(earlier) = self.unfinished.take().filter(|earlier| earlier.records == identities) {
            for (row, done) in earlier.results.into_iter().enumerate().filter(|(_, done)| done.is_some()) {
                results[row] = done;
                prepared[row] = None;
            }
        }
        let lanes = self.lanes(records, &prepared);
        let (this, ready) = (&*self, &prepared);
        let lanes = lanes.into_iter().map(|lane| this.send_lane(records, ready, lane));
        let mut outcomes = stream::iter(lanes).buffer_unordered(self.rules.policy.concurrency);
        let mut stopped: Option<Fault> = None;
        while let Some(outcome) = outcomes.next().await {
            for (row, result) in outcome.results {
                results[row] = Some(result);
            }
            stopped = stopped.or(outcome.stopped);
        }
        drop(outcomes);
        if let Some(fault) = stopped {
            self.unfinished = Some(UnfinishedWrite { records: identities, results });
            return Err(fault);
        }
        if results.iter().all(|result| matches!(result, Some(Ok(_)))) {
            return Ok(Verdicts::All(Delivered::Durable));
        }
        let lost = || Err(Fault::fatal(codes::HTTP_RESULTS, "a record was not sent"));
        Ok(Verdicts::Each(results.into_iter().map(|result| result.unwrap_or_else(lost)).collect()))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}
