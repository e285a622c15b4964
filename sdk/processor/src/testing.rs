//! Tests processors without WebAssembly.
//!
//! Everything works as in a pipeline: settings are validated, and records are encoded, decoded and encoded again.
//! Schemas are in memory; each test thread has its own registry.
//!
//! ```
//! use anabranch_processor::{Error, Output, Processor, Record, Specification, testing};
//!
//! struct Shout;
//!
//! impl Processor for Shout {
//!     type Parameters = ();
//!
//!     fn specification() -> Specification {
//!         Specification::new("shout", "v0.1.0", "Makes raw data upper case.")
//!     }
//!
//!     fn configure((): ()) -> Result<Self, Error> {
//!         Ok(Shout)
//!     }
//!
//!     fn process(&mut self, mut record: Record) -> Result<Output, Error> {
//!         let text = record.payload.after.raw().ok_or_else(|| Error::new("no raw data"))?;
//!         record.payload.after = text.to_ascii_uppercase().into();
//!         Ok(record.into())
//!     }
//! }
//!
//! let mut shout = testing::start::<Shout>(&[]).unwrap();
//! assert_eq!(shout.process_one(Record::new("hi")), Ok(Record::new("HI").into()));
//! ```

pub(crate) mod host;

use std::collections::BTreeMap;

use anabranch_record::Record;
use anabranch_record::protobuf::Reader;
use anabranch_record::specification::Specification;
use bytes::Bytes;

use crate::error::{Error, HostError};
use crate::guest::{Configured, Guest};
use crate::http;
use crate::parameters::{Declarations, Parameters, REQUIRED, Settings};
use crate::processor::{Output, Processor};
use crate::schema::Codec;
use crate::wire::{Command, Response, host_side};

/// Function that answers the HTTP requests of a test.
pub type Respond = dyn FnMut(&http::Request) -> Result<http::Response, HostError>;

/// A processor that runs in a test.
pub struct Running<P: Processor> {
    stages: Configured<P>,
    codec: Option<Codec>,
    spare: Vec<Record>,
}

/// Configures and opens a processor with these settings.
///
/// # Errors
/// Fails if the settings are invalid, or the processor cannot be opened.
pub fn start<P: Processor>(settings: &[(&str, &str)]) -> Result<Running<P>, Error> {
    let mut running = Running { stages: Configured::default(), codec: None, spare: Vec::new() };
    let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    running.command(&Command::Configure(settings))?;
    running.command(&Command::Open)?;
    Ok(running)
}

/// Returns the description of a processor as hosts see it, including its parameters.
///
/// # Errors
/// Fails if the name is empty, the version is not a semantic version, or a default violates its own validations.
pub fn specification<P: Processor>() -> Result<Specification, Error> {
    let mut declarations = Declarations::default();
    P::Parameters::declare("", &mut declarations);
    let declared = declarations.clone();
    Codec::declare(&mut declarations);
    let specification = P::specification().with_all(declarations.parameters);
    if specification.name.is_empty() {
        return Err(Error::new("a processor needs a name"));
    }
    if !is_semantic(&specification.version) {
        return Err(Error::new(format!("{:?} is not a semantic version (for example v1.2.3)", specification.version)));
    }
    // Missing required parameters are not errors here: only the defaults of the others are checked.
    let mut settings = Settings::new(BTreeMap::new());
    settings.declarations = declared;
    let _ = P::Parameters::read("", &mut settings);
    let wrong = settings.problems().iter().find(|problem| !problem.ends_with(REQUIRED));
    match wrong {
        Some(problem) => Err(Error::new(format!("a default is not valid: {problem}"))),
        None => Ok(specification),
    }
}

/// Answers the HTTP requests of this test thread. Without it, requests are rejected.
pub fn respond(respond: impl FnMut(&http::Request) -> Result<http::Response, HostError> + 'static) {
    host::respond_with(Box::new(respond));
}

/// Forgets the schemas and the HTTP answers of this test thread.
pub fn reset() {
    host::forget();
}

impl<P: Processor> Running<P> {
    /// Processes these records as one batch.
    pub fn process(&mut self, records: Vec<Record>) -> Vec<Result<Output, Error>> {
        let response = self.command(&Command::Process(records));
        let outputs = response.and_then(|bytes| Ok(host_side::outputs(host_side::response(&bytes)?.1)?));
        outputs.unwrap_or_else(|error| vec![Err(error)])
    }

    /// Processes one record.
    ///
    /// # Errors
    /// Fails if the record cannot be processed, or if there is not exactly one result.
    pub fn process_one(&mut self, record: Record) -> Result<Output, Error> {
        let mut outputs = self.process(vec![record]);
        match outputs.len() {
            1 => outputs.remove(0),
            n => Err(Error::new(format!("{n} results for one record"))),
        }
    }

    /// Returns the processor.
    ///
    /// # Errors
    /// Never fails after the processor was started.
    pub fn processor(&mut self) -> Result<&mut P, Error> {
        self.stages.get()
    }

    /// Tears the processor down.
    ///
    /// # Errors
    /// Fails if the processor cannot close a resource.
    pub fn teardown(mut self) -> Result<(), Error> {
        self.command(&Command::Teardown).map(drop)
    }

    /// Returns the bytes of the response, unless it is an error.
    fn command(&mut self, command: &Command) -> Result<Bytes, Error> {
        let mut guest = Guest::new(&mut self.stages);
        guest.codec = self.codec.take().unwrap_or_default();
        guest.spare = std::mem::take(&mut self.spare);
        let command = command.write();
        let response = guest.answer_message(Reader::new(&command));
        let mut bytes = Vec::new();
        response.write(&mut bytes, command.len());
        let ended = match &response {
            Response::Error(error) => Err(error.clone()),
            _ => Ok(bytes.into()),
        };
        guest.keep(response);
        self.spare = guest.spare;
        self.codec = Some(guest.codec);
        ended
    }
}

/// Checks for a semantic version, with an optional leading `v`.
fn is_semantic(version: &str) -> bool {
    let version = version.strip_prefix('v').unwrap_or(version);
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<&str> = core.split('.').collect();
    let is_number = |text: &&str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'))
    };
    numbers.len() == 3 && numbers.iter().all(is_number)
}

#[cfg(test)]
mod tests;
