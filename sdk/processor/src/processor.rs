//! What a processor is.

use crate::error::Error;
use crate::parameters::Parameters;
use crate::record::Record;
use crate::specification::Specification;

/// A processor.
///
/// The host calls, in this order: [`configure`](Processor::configure), [`open`](Processor::open),
/// [`process_batch`](Processor::process_batch) any number of times, [`teardown`](Processor::teardown).
pub trait Processor: Sized {
    /// Its parameters; `()` for none.
    type Parameters: Parameters;

    /// What it says about itself. The parameters are added to it.
    fn specification() -> Specification;

    /// Makes it of its parameters, whose defaults are filled in and whose validations have passed. Opens nothing:
    /// that is for [`open`](Processor::open).
    ///
    /// # Errors
    /// What is wrong with the parameters together.
    fn configure(parameters: Self::Parameters) -> Result<Self, Error>;

    /// Prepares for records.
    ///
    /// # Errors
    /// Why it cannot.
    fn open(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Processes a record. Has to be idempotent: after a restart the same records may come again.
    ///
    /// # Errors
    /// Why the record cannot be processed; the other records of its batch are not concerned.
    fn process(&mut self, record: Record) -> Result<Output, Error>;

    /// Processes the records that came together, for processors that gain by that. The results are those of the
    /// records in the same places; records without a result come again.
    fn process_batch(&mut self, records: Vec<Record>) -> Vec<Result<Output, Error>> {
        records.into_iter().map(|record| self.process(record)).collect()
    }

    /// Closes what was opened.
    ///
    /// # Errors
    /// What could not be closed.
    fn teardown(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// What became of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// This record goes on.
    Single(Record),
    /// These records go on in place of the one; the host takes none at all as a filtered record.
    Many(Vec<Record>),
    /// Nothing goes on; the record is done with.
    Filtered,
}

impl Output {
    /// The records that go on.
    pub fn into_records(self) -> Vec<Record> {
        match self {
            Output::Single(record) => vec![record],
            Output::Many(records) => records,
            Output::Filtered => Vec::new(),
        }
    }

    pub(crate) fn records_mut(&mut self) -> &mut [Record] {
        match self {
            Output::Single(record) => std::slice::from_mut(record),
            Output::Many(records) => records,
            Output::Filtered => &mut [],
        }
    }
}

impl From<Record> for Output {
    fn from(record: Record) -> Self {
        Output::Single(record)
    }
}

impl From<Vec<Record>> for Output {
    fn from(records: Vec<Record>) -> Self {
        Output::Many(records)
    }
}

impl From<Option<Record>> for Output {
    /// `None` is filtered.
    fn from(record: Option<Record>) -> Self {
        record.map_or(Output::Filtered, Output::Single)
    }
}
