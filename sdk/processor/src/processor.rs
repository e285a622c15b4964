//! The trait of processors.

use anabranch_record::Record;
use anabranch_record::specification::Specification;

use crate::error::Error;
use crate::parameters::Parameters;

/// A processor.
///
/// The host calls, in this order: [`configure`](Processor::configure), [`open`](Processor::open),
/// [`process_batch`](Processor::process_batch) any number of times, [`teardown`](Processor::teardown).
pub trait Processor: Sized {
    /// Parameters of the processor; `()` for none.
    type Parameters: Parameters;

    /// Returns the description of the processor; the parameters are added to it.
    fn specification() -> Specification;

    /// Creates the processor from its parameters, with defaults filled in and validations passed. Must not open
    /// resources: that is for [`open`](Processor::open).
    ///
    /// # Errors
    /// Fails if the combination of parameters is invalid.
    fn configure(parameters: Self::Parameters) -> Result<Self, Error>;

    /// Prepares for records, for example by opening resources.
    ///
    /// # Errors
    /// Fails if the processor cannot start.
    fn open(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Processes a record. Must be idempotent: after a restart, the same records may be processed again.
    ///
    /// # Errors
    /// Fails if the record cannot be processed; other records of the batch are not affected.
    fn process(&mut self, record: Record) -> Result<Output, Error>;

    /// Processes the records of a batch, for processors that benefit from it. Returns the results in the order of the
    /// records; records without a result are sent again.
    fn process_batch(&mut self, records: Vec<Record>) -> Vec<Result<Output, Error>> {
        records.into_iter().map(|record| self.process(record)).collect()
    }

    /// Closes open resources.
    ///
    /// # Errors
    /// Fails if a resource cannot be closed.
    fn teardown(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// Outcome of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// The record continues in the pipeline.
    Single(Record),
    /// These records replace the record; for the host, an empty list filters it.
    Many(Vec<Record>),
    /// The record is filtered: it is acknowledged and not delivered.
    Filtered,
}

impl Output {
    /// Returns the records that continue.
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
    /// `None` filters the record.
    fn from(record: Option<Record>) -> Self {
        record.map_or(Output::Filtered, Output::Single)
    }
}
