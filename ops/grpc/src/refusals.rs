//! Consecutive rejections with the same error, which are not about the records.
//!
//! The protocol has a single answer for an invalid record and for a failed write: an error with the position of a
//! record. The usual SDK writes a batch. If that fails, it returns the same error for every record from the first
//! unwritten one on, although it tried few of them. So these records are sent again without the first, and only the
//! first counts as rejected.

use std::sync::{Mutex, PoisonError};

use anabranch_record::fault::Fault;
use anabranch_record::phrase::counted;

use crate::codes;

/// Consecutive rejections of a destination over all its runs, so that a recovery does not reset the count.
#[derive(Debug)]
pub(crate) struct Refusals {
    /// Number of consecutive rejections with the same error from which the destination is at fault; 0 = each is the
    /// fault of its record.
    most: usize,
    row: Mutex<RefusalCount>,
}

#[derive(Debug, Default)]
struct RefusalCount {
    error: String,
    length: usize,
}

impl Refusals {
    pub(crate) fn new(most: usize) -> Refusals {
        Refusals { most, row: Mutex::default() }
    }

    /// Counts the outcomes of records, in order; `None` = written.
    ///
    /// # Errors
    /// `plugin_refuses_records` (transient) if too many consecutive records were rejected.
    pub(crate) fn note<'a>(&self, records: impl Iterator<Item = Option<&'a str>>) -> Result<(), Fault> {
        let mut row = self.row.lock().unwrap_or_else(PoisonError::into_inner);
        for refused in records {
            match refused {
                None => *row = RefusalCount::default(),
                Some(error) if error == row.error => row.length += 1,
                Some(error) => *row = RefusalCount { error: error.to_owned(), length: 1 },
            }
            if self.most > 0 && row.length >= self.most {
                let what = format!(
                    "the connector refused {} in a row with the same error, which is treated as a failure of the \
                     connector: {} (if the records cause it, set connectors.equal-refusals)",
                    counted(row.length, "record"),
                    row.error
                );
                return Err(Fault::transient(codes::PLUGIN_REFUSES_RECORDS, what));
            }
        }
        Ok(())
    }
}

/// Returns how many records at the end were rejected with the same error.
pub(crate) fn alike<'a>(records: impl DoubleEndedIterator<Item = Option<&'a str>>) -> usize {
    let mut backwards = records.rev();
    let Some(Some(last)) = backwards.next() else { return 0 };
    1 + backwards.take_while(|refused| *refused == Some(last)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_one_error_without_a_record_in_between() {
        let refusals = Refusals::new(3);
        let note =
            |records: &[Option<&str>]| refusals.note(records.iter().copied()).map_err(|fault| fault.code().name());
        assert_eq!(note(&[Some("a"), Some("a"), None, Some("a"), Some("a"), Some("b")]), Ok(()));
        assert_eq!(note(&[Some("b"), Some("a"), Some("a")]), Ok(()));
        assert_eq!(note(&[Some("a")]), Err("plugin_refuses_records"));
        assert_eq!(note(&[Some("a")]), Err("plugin_refuses_records"), "until one is written");
        assert_eq!(note(&[None, Some("a"), Some("a")]), Ok(()));
        assert!(Refusals::new(0).note(std::iter::repeat_n(Some("a"), 1000)).is_ok());
    }

    #[test]
    fn the_end_of_a_batch_may_have_one_error() {
        let alike = |records: &[Option<&str>]| alike(records.iter().copied());
        assert_eq!(alike(&[]), 0);
        assert_eq!(alike(&[Some("a"), None]), 0);
        assert_eq!(alike(&[None, Some("a")]), 1);
        assert_eq!(alike(&[Some("a"), None, Some("b"), Some("a"), Some("a")]), 2);
        assert_eq!(alike(&[Some("a"), Some("a")]), 2);
    }
}
