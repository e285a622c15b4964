//! The reader: polls, their pages and their records.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anabranch_plugin::source::{Read, Reader, Room};
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::json::write_value;
use anabranch_record::mark::Partition;
use anabranch_record::value::Value;
use anabranch_record::{Data, Position, Record};
use async_trait::async_trait;
use reqwest::header::{
    ACCEPT, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};
use reqwest::{StatusCode, Url};
use sha2::{Digest as _, Sha256};

use super::PollRules;
use super::answer::PageAnswer;
use super::paging::InvalidPage;
use super::position::{CursorValue, PagePlace, PageRequest, PollPosition, Validators};
use super::schedule::wait_until;
use crate::client::{AuthorizedClient, AuthorizedError};
use crate::codes;

/// Maximum time that a server may ask to wait.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// Reads records page by page.
pub(super) struct PollReader {
    pub(super) rules: Arc<PollRules>,
    client: AuthorizedClient,
    /// URL of the settings.
    base: Url,
    /// Largest value of the cursor field before the current poll, or before the next one.
    since: Option<CursorValue>,
    /// Validators of the last poll.
    validators: Validators,
    phase: Phase,
    /// Records that are not read yet, and the position after the last one, if a poll ends with it.
    pending: VecDeque<Record>,
    end: Option<Position>,
    /// The fault after these records.
    failure: Option<Fault>,
    /// True if the engine knows that nothing more is there.
    is_caught_up: bool,
    /// True if an answer had records at the place of the settings, in this run or before it.
    has_found: bool,
    /// True if the log says that an answer has no array of records.
    has_told: bool,
    /// True if the log says that the server repeats a page.
    pub(super) has_told_of_repetition: bool,
}

enum Phase {
    /// The next poll begins at this time.
    Waiting(SystemTime),
    /// A page is to be requested.
    Page(Box<Poll>),
}

/// A poll before one of its pages.
#[derive(Clone)]
pub(super) struct Poll {
    began: SystemTime,
    page: PageRequest,
    /// Number of the page, from 1.
    pub(super) number: u64,
    /// True if an earlier page had as many records as were requested.
    is_honoured: bool,
    /// The page before, if this run has read it.
    pub(super) previous: Option<PageRequest>,
    /// Hash of its records.
    pub(super) before: Option<u64>,
    /// Largest value of the cursor field on earlier pages.
    max: Option<CursorValue>,
    /// The last settled record of the page, if the page was read before.
    after: Option<PagePlace>,
    /// Time before which the server wants no request.
    not_before: Option<SystemTime>,
}

impl Poll {
    /// Returns the poll at another of its pages, for a look at it.
    pub(super) fn at(&self, page: PageRequest, number: u64) -> Poll {
        Poll { page, number, after: None, ..self.clone() }
    }
}

impl PollReader {
    /// Creates a reader that resumes after a position.
    ///
    /// # Errors
    /// The URL of the settings cannot be used.
    pub(super) fn new(
        rules: Arc<PollRules>,
        client: AuthorizedClient,
        position: Option<PollPosition>,
    ) -> Result<PollReader, Fault> {
        let base = rules.message.request(&Record::default(), client.client())?.url().clone();
        let now = SystemTime::now();
        let initial = rules.cursor.as_ref().and_then(|cursor| cursor.initial.clone());
        let has_found = position.is_some();
        let (phase, since, validators) = match position {
            None => (Phase::Waiting(now), initial, Validators::default()),
            Some(PollPosition { since, polled, place: Some(place), .. }) => {
                let began =
                    u64::try_from(polled).map_or(UNIX_EPOCH, |seconds| UNIX_EPOCH + Duration::from_secs(seconds));
                let poll = Poll {
                    began,
                    page: place.page.clone(),
                    number: place.number,
                    is_honoured: false,
                    previous: None,
                    before: None,
                    max: place.max.clone(),
                    after: Some(place),
                    not_before: None,
                };
                (Phase::Page(Box::new(poll)), since.or(initial), Validators::default())
            }
            Some(PollPosition { since, polled, validators, place: None }) => {
                (Phase::Waiting(rules.schedule.first(Some(polled), now)), since.or(initial), validators)
            }
        };
        Ok(PollReader {
            rules,
            client,
            base,
            since,
            validators,
            phase,
            pending: VecDeque::new(),
            end: None,
            failure: None,
            is_caught_up: false,
            has_found,
            has_told: false,
            has_told_of_repetition: false,
        })
    }

    /// Requests a page. `None` if nothing has changed since the last poll.
    pub(super) async fn fetch(&self, poll: &Poll) -> Result<Option<PageAnswer>, AuthorizedError> {
        let since = self.rules.cursor.as_ref().zip(self.since.as_ref());
        let since = since.map(|(cursor, value)| (cursor.parameter.as_str(), value.text()));
        let since = since.as_ref().map(|(name, value)| (*name, value.as_str()));
        let invalid = |why: InvalidPage| AuthorizedError::Unsent(Fault::fatal(codes::HTTP_PAGE, why));
        let url = self.rules.paging.url(&self.base, &poll.page, since).map_err(invalid)?;
        let request = self.rules.message.request(&Record::default(), self.client.client());
        let mut request = request.map_err(|fault| AuthorizedError::Unsent(fault.with_class(FaultClass::Fatal)))?;
        *request.url_mut() = url.clone();
        let headers = request.headers_mut();
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("application/json"));
        if request.body().is_none() {
            request.headers_mut().remove(CONTENT_TYPE);
        }
        if poll.page == PageRequest::First && poll.after.is_none() {
            let validators = [(IF_NONE_MATCH, &self.validators.etag), (IF_MODIFIED_SINCE, &self.validators.modified)];
            for (name, text) in validators {
                if let Some(value) = text.as_ref().and_then(|text| HeaderValue::from_str(text).ok()) {
                    request.headers_mut().insert(name, value);
                }
            }
        }
        let answer = self.client.send(request).await?;
        if answer.status == StatusCode::NOT_MODIFIED {
            return Ok(None);
        }
        PageAnswer::read(url, answer).map(Some).map_err(AuthorizedError::Unsent)
    }

    /// Puts the records of a page into the queue, and decides on the next page.
    async fn take_page(&mut self, mut poll: Poll, page: &PageAnswer) -> Result<(), Fault> {
        let elements = self.elements(&poll, page)?;
        let hashes: Vec<u64> = elements.iter().map(hash).collect();
        let content = hash_of_all(&hashes);
        let is_repeated = self.rules.paging.is_counted() && !hashes.is_empty() && poll.before == Some(content);
        if is_repeated && self.is_repeated_again(&poll, page, hashes.len()).await? {
            self.tell_of_repetition(&poll);
            return self.complete(poll.began, poll.max, Validators::default());
        }
        let first = poll.after.take().map_or(0, |after| resume(&hashes, &after));
        let mut max = poll.max.clone();
        let mut texts = None;
        let mut records = VecDeque::with_capacity(elements.len() - first.min(elements.len()));
        for (index, value) in elements.iter().enumerate() {
            let found = self.rules.cursor.as_ref().and_then(|cursor| match cursor.field.find(value)? {
                // The text has all digits.
                Value::Float(_) => {
                    let texts = texts.get_or_insert_with(|| page.element_texts(self.rules.records.as_ref()));
                    let number = cursor.field.find_text(texts.get(index)?)?.to_owned();
                    Some(CursorValue::Exact { number })
                }
                other => CursorValue::of(other),
            });
            if let Some(value) = found {
                max = Some(max.map_or(value.clone(), |max| max.max(value)));
            }
            if index < first {
                continue;
            }
            let place = PagePlace {
                page: poll.page.clone(),
                number: poll.number,
                index,
                hash: hashes[index],
                max: max.clone(),
            };
            let position = PollPosition {
                since: self.since.clone(),
                polled: seconds(poll.began),
                validators: Validators::default(),
                place: Some(place),
            };
            records.push_back(self.record(value, position.encode()?)?);
        }
        let invalid = |why| Fault::fatal(codes::HTTP_PAGE, why);
        let next = self.next(&poll, page, elements.len());
        let is_honoured = poll.is_honoured || self.rules.paging.is_full(elements.len());
        self.pending = records;
        match next.map_err(invalid) {
            Err(fault) => self.failure = Some(fault),
            Ok(Some(_)) if poll.number >= self.rules.paging.limit => {
                let text = format!("the poll has more than {} pages (paging.limit)", self.rules.paging.limit);
                self.failure = Some(Fault::fatal(codes::HTTP_PAGE, text));
            }
            Ok(Some(next)) => {
                self.phase = Phase::Page(Box::new(Poll {
                    previous: Some(poll.page),
                    page: next,
                    number: poll.number + 1,
                    is_honoured,
                    before: Some(content),
                    max,
                    ..poll
                }));
            }
            Ok(None) => self.complete(
                poll.began,
                max,
                if poll.number == 1 { validators(&page.headers) } else { Validators::default() },
            )?,
        }
        Ok(())
    }

    /// Ends a poll of which all pages are read. `max` is the largest value of the cursor field. `validators` are those of the
    /// answer if it was the only one.
    fn complete(&mut self, began: SystemTime, max: Option<CursorValue>, validators: Validators) -> Result<(), Fault> {
        let since = match (self.since.clone(), max) {
            (Some(since), Some(max)) => Some(newer(since, max)),
            (since, max) => since.or(max),
        };
        // With another value, the next request has another URL, to which validators do not belong.
        let validators = if since == self.since { validators } else { Validators::default() };
        self.since = since;
        self.finish(began, validators)
    }

    /// Ends a poll.
    fn finish(&mut self, began: SystemTime, validators: Validators) -> Result<(), Fault> {
        self.validators = validators;
        let position = PollPosition {
            since: self.since.clone(),
            polled: seconds(began),
            validators: self.validators.clone(),
            place: None,
        };
        self.end = Some(position.encode()?);
        self.phase = Phase::Waiting(self.rules.schedule.after(began, SystemTime::now()));
        Ok(())
    }

    /// Returns the records in an answer.
    fn elements(&mut self, poll: &Poll, page: &PageAnswer) -> Result<Vec<Value>, Fault> {
        let passing = |text: &str| Err(Fault::transient(codes::HTTP_PAGE, text));
        let Some(body) = &page.body else {
            return match poll.number == 1 || page.status == StatusCode::NO_CONTENT {
                true => Ok(Vec::new()),
                false => passing("the answer with a further page is empty"),
            };
        };
        let found = match &self.rules.records {
            None => Some(body),
            Some(pointer) => pointer.find(body),
        };
        let pointer = self.rules.records.as_ref().map(ToString::to_string).unwrap_or_default();
        let records = match found {
            Some(Value::List(list)) => list.as_ref().clone(),
            Some(Value::Null) => Vec::new(),
            Some(value @ Value::Map(_)) => vec![value.clone()],
            Some(other) => {
                let text =
                    format!("the records of the answer are neither an array nor an object, but {}", other.type_name());
                return Err(Fault::fatal(codes::HTTP_PAGE, text));
            }
            None if poll.number > 1 => {
                return passing(&format!("the answer with a further page has no records at {pointer:?}"));
            }
            // Nothing is lost: the next poll asks for the same records.
            None if self.has_found => {
                if !std::mem::replace(&mut self.has_told, true) {
                    tracing::warn!("the answer has no records at {pointer:?}: it counts as an answer without records");
                }
                return Ok(Vec::new());
            }
            None => {
                let text = format!("the answer has no records at {pointer:?}: correct the setting records");
                return Err(Fault::fatal(codes::HTTP_PAGE, text));
            }
        };
        (self.has_found, self.has_told) = (true, false);
        Ok(records)
    }

    /// Returns the page after one with this answer and number of records.
    pub(super) fn next(
        &self,
        poll: &Poll,
        page: &PageAnswer,
        records: usize,
    ) -> Result<Option<PageRequest>, InvalidPage> {
        let body = page.body.as_ref().unwrap_or(&Value::Null);
        self.rules.paging.after(&poll.page, &page.url, &page.headers, body, records, poll.is_honoured)
    }

    /// Returns `true` if the status of a page may mean that there is none with this number or offset.
    pub(super) fn is_after_the_last(&self, poll: &Poll, status: Option<StatusCode>) -> bool {
        let is_counted = self.rules.paging.is_counted() && poll.number > 1;
        is_counted && status.is_some_and(|status| matches!(status.as_u16(), 404 | 410 | 416))
    }

    fn record(&self, value: &Value, position: Position) -> Result<Record, Fault> {
        let data = |value: &Value| match value {
            Value::Map(fields) => Ok(Data::Structured(fields.clone())),
            value => text(value).map(Data::from),
        };
        let key = match self.rules.key.as_ref().and_then(|key| key.find(value)) {
            None | Some(Value::Null) => Data::Absent,
            Some(Value::Text(key)) => Data::text(key.as_str()),
            Some(other) => Data::from(text(other)?),
        };
        Ok(Record::create(position, key, data(value)?))
    }

    /// Returns the next records of the queue.
    fn take(&mut self, room: Room) -> Vec<Record> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        while let Some(record) = self.pending.pop_front() {
            bytes += record.weight();
            if !records.is_empty() && (records.len() >= room.rows || bytes > room.bytes) {
                self.pending.push_front(record);
                break;
            }
            records.push(record);
        }
        records
    }
}

/// Returns the index of the first record after a settled one. If the record is at another place of the page, the records
/// after it follow; if it is gone, all are read again.
fn resume(hashes: &[u64], after: &PagePlace) -> usize {
    if hashes.get(after.index) == Some(&after.hash) {
        return after.index + 1;
    }
    hashes.iter().position(|hash| *hash == after.hash).map_or(0, |index| index + 1)
}

/// Returns `true` if a status says that a page does not exist any more, such as that of a cursor that has expired.
fn is_gone(page: &PageRequest, status: Option<StatusCode>) -> bool {
    *page != PageRequest::First && status.is_some_and(|status| matches!(status.as_u16(), 400 | 404 | 410 | 422))
}

fn newer(since: CursorValue, max: CursorValue) -> CursorValue {
    // The value of the settings is a text, and the field may be a number.
    match (&since, &max) {
        (CursorValue::Text(_), CursorValue::Text(_)) => since.max(max),
        (CursorValue::Text(_), _) => max,
        _ => since.max(max),
    }
}

fn validators(headers: &HeaderMap) -> Validators {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    Validators { etag: text(ETAG), modified: text(LAST_MODIFIED) }
}

fn text(value: &Value) -> Result<Vec<u8>, Fault> {
    let mut text = Vec::new();
    write_value(value, &mut text)?;
    Ok(text)
}

/// Returns a hash that is the same in all versions of the service.
pub(super) fn hash(value: &Value) -> u64 {
    let sum = Sha256::digest(text(value).unwrap_or_default());
    sum.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

pub(super) fn hash_of_all(hashes: &[u64]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hashes.hash(&mut hasher);
    hasher.finish()
}

fn seconds(time: SystemTime) -> i64 {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// Returns the fault of a failed request: it concerns no record.
pub(super) fn refused(error: AuthorizedError) -> Fault {
    match error {
        AuthorizedError::Unsent(fault) => fault,
        AuthorizedError::Request(error) if error.is_of_login() => error.into_login_fault(),
        AuthorizedError::Request(error) => {
            let class = if error.is_transient() { FaultClass::Transient } else { FaultClass::Fatal };
            Fault::from(error).with_class(class)
        }
    }
}

#[async_trait]
impl Reader for PollReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        loop {
            let records = self.take(room);
            if !records.is_empty() {
                self.is_caught_up = false;
                return Ok(Read::Rows { partition: Partition::ONLY, records });
            }
            if let Some(fault) = &self.failure {
                return Err(fault.clone());
            }
            if let Some(position) = self.end.take() {
                return Ok(Read::Progress(Partition::ONLY, position));
            }
            let poll = match &self.phase {
                Phase::Waiting(until) => {
                    let until = *until;
                    // The first poll begins before the source has caught up.
                    if until > SystemTime::now() {
                        if !std::mem::replace(&mut self.is_caught_up, true) {
                            return Ok(Read::CaughtUp);
                        }
                        wait_until(until).await;
                    }
                    self.is_caught_up = false;
                    let poll = Poll {
                        began: (self.rules.clock)(),
                        page: PageRequest::First,
                        number: 1,
                        is_honoured: false,
                        previous: None,
                        before: None,
                        max: None,
                        after: None,
                        not_before: None,
                    };
                    self.phase = Phase::Page(Box::new(poll));
                    continue;
                }
                Phase::Page(poll) => Poll::clone(poll),
            };
            if let Some(time) = poll.not_before {
                wait_until(time).await;
            }
            // A read that is dropped here requests the page again.
            match self.fetch(&poll).await {
                Ok(Some(page)) => self.take_page(poll, &page).await?,
                Ok(None) => self.finish(poll.began, self.validators.clone())?,
                Err(AuthorizedError::Request(error)) if error.is_transient() && error.retry_after().is_some() => {
                    let wait = error.retry_after().unwrap_or_default().min(LONGEST_WAIT);
                    tracing::warn!(%error, seconds = wait.as_secs(), "the server asks to wait: the poll is delayed");
                    self.phase = Phase::Page(Box::new(Poll { not_before: Some(SystemTime::now() + wait), ..poll }));
                }
                Err(AuthorizedError::Request(error)) if poll.after.is_some() && is_gone(&poll.page, error.status()) => {
                    tracing::warn!(%error, "the page of the position does not exist any more: the poll begins again");
                    let first = Poll {
                        page: PageRequest::First,
                        number: 1,
                        is_honoured: false,
                        previous: None,
                        before: None,
                        max: None,
                        after: None,
                        ..poll
                    };
                    self.phase = Phase::Page(Box::new(first));
                }
                Err(AuthorizedError::Request(error)) if self.is_after_the_last(&poll, error.status()) => {
                    match self.confirm_end(&poll).await? {
                        None => self.complete(poll.began, poll.max, Validators::default())?,
                        Some(page) => self.take_page(poll, &page).await?,
                    }
                }
                // The address was right: a server that is restarted may not find it for some time.
                Err(AuthorizedError::Request(error))
                    if self.has_found && error.status() == Some(StatusCode::NOT_FOUND) =>
                {
                    return Err(Fault::from(error).with_class(FaultClass::Transient));
                }
                Err(error) => return Err(refused(error)),
            }
        }
    }
}
