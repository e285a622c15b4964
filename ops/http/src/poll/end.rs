//! The end of a poll whose pages are counted: whether a failed or repeated page is one.

use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::value::Value;

use super::answer::PageAnswer;
use super::reader::{Poll, PollReader, hash, hash_of_all, refused};
use crate::client::AuthorizedError;
use crate::codes;

impl PollReader {
    /// Checks that the page of a poll does not exist, after the server has said so once: a server that is restarted may
    /// say so of every page, and one of several servers of the same page. Returns the page if it exists.
    ///
    /// # Errors
    /// The page before cannot be read either, so that the answer means nothing.
    pub(super) async fn confirm_end(&self, poll: &Poll) -> Result<Option<PageAnswer>, Fault> {
        if let Some(previous) = &poll.previous {
            let before = poll.at(previous.clone(), poll.number - 1);
            if let Err(error) = self.fetch(&before).await {
                return Err(match error {
                    // The page was there before.
                    AuthorizedError::Request(error) if self.is_after_the_last(poll, error.status()) => {
                        Fault::from(error).with_class(FaultClass::Transient)
                    }
                    error => refused(error),
                });
            }
        }
        match self.fetch(poll).await {
            Ok(page) => Ok(page),
            Err(AuthorizedError::Request(error)) if self.is_after_the_last(poll, error.status()) => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    /// Returns `true` if the page after one with the records of the page before has these records, too: the server ignores
    /// the number of the page, or answers the last page again, and would be asked without end. A page that only happens
    /// to have the records of the page before is followed by another one.
    ///
    /// # Errors
    /// The page after it cannot be read.
    pub(super) async fn is_repeated_again(
        &self,
        poll: &Poll,
        page: &PageAnswer,
        records: usize,
    ) -> Result<bool, Fault> {
        let invalid = |why| Fault::fatal(codes::HTTP_PAGE, why);
        let Some(next) = self.next(poll, page, records).map_err(invalid)? else { return Ok(false) };
        let after = poll.at(next, poll.number + 1);
        match self.fetch(&after).await {
            Ok(Some(page)) => Ok(self.content(&page).is_some_and(|content| poll.before == Some(content))),
            Ok(None) => Ok(false),
            Err(AuthorizedError::Request(error)) if self.is_after_the_last(&after, error.status()) => Ok(false),
            Err(error) => Err(refused(error)),
        }
    }

    /// Returns the hash of the records of a page; `None` if it has none.
    fn content(&self, page: &PageAnswer) -> Option<u64> {
        let body = page.body.as_ref()?;
        let found = match &self.rules.records {
            None => Some(body),
            Some(pointer) => pointer.find(body),
        };
        let hashes: Vec<u64> = match found? {
            Value::List(list) => list.iter().map(hash).collect(),
            value @ Value::Map(_) => vec![hash(value)],
            _ => return None,
        };
        (!hashes.is_empty()).then(|| hash_of_all(&hashes))
    }

    /// Logs once that a poll ends with a page that the server repeats.
    pub(super) fn tell_of_repetition(&mut self, poll: &Poll) {
        if !std::mem::replace(&mut self.has_told_of_repetition, true) {
            tracing::warn!(
                pages = poll.number - 1,
                "the server answers the records of page {} for each page after it: the poll ends there. If the server has \
                 more, correct the setting paging.parameter",
                poll.number - 1
            );
        }
    }
}
