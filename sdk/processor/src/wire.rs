//! Commands of the host and their responses in protobuf, written and read without intermediate structures: records in them
//! are read and written in place.

use std::collections::BTreeMap;

use anabranch_record::Record;
use anabranch_record::protobuf::specification::write_specification;
use anabranch_record::protobuf::write::{bytes_unless_empty as bytes, message, number_unless_zero as number};
use anabranch_record::protobuf::{DecodeError, Reader, decode_into, encode_record};
use anabranch_record::specification::Specification;

use crate::error::Error;
use crate::processor::Output;

/// A command of the host.
#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    Specify,
    Configure(BTreeMap<String, String>),
    Open,
    Process(Vec<Record>),
    Teardown,
    /// A command of a later version of the protocol.
    Unknown,
}

/// A response of the guest.
#[derive(Debug)]
pub(crate) enum Response {
    Error(Error),
    Specify(Specification),
    Configure,
    Open,
    Process(Vec<Result<Output, Error>>),
    Teardown,
}

impl Command {
    /// Reads a command; its records reuse the memory of those in `spare`.
    pub(crate) fn read(mut from: Reader<'_>, spare: Vec<Record>) -> Result<Self, DecodeError> {
        let mut command = Command::Unknown;
        let mut spare = Some(spare);
        while let Some((number, field)) = from.next()? {
            command = match number {
                1 => Command::Specify,
                2 => {
                    let (mut entries, mut settings) = (field.message()?, BTreeMap::new());
                    while let Some((number, field)) = entries.next()? {
                        if number == 1 {
                            let (key, value) = entry(field.message()?)?;
                            settings.insert(key.to_owned(), value.to_owned());
                        }
                    }
                    Command::Configure(settings)
                }
                3 => Command::Open,
                4 => {
                    let mut elements = field.message()?;
                    let (mut records, mut count) = (spare.take().unwrap_or_default(), 0);
                    while let Some((number, field)) = elements.next()? {
                        if number == 1 {
                            if count == records.len() {
                                records.push(Record::default());
                            }
                            decode_into(&mut records[count], field.message()?)?;
                            count += 1;
                        }
                    }
                    // Free the memory that this smaller command does not need, because a larger one may never come.
                    records.truncate(count);
                    Command::Process(records)
                }
                5 => Command::Teardown,
                _ => continue,
            };
        }
        Ok(command)
    }
}

/// Reads an entry of a map of texts.
fn entry(mut from: Reader<'_>) -> Result<(&str, &str), DecodeError> {
    let (mut key, mut value) = ("", "");
    while let Some((number, field)) = from.next()? {
        match number {
            1 => key = field.text()?,
            2 => value = field.text()?,
            _ => {}
        }
    }
    Ok((key, value))
}

impl Response {
    /// Writes the response to `to`, replacing its content. `size` is an estimate of its length in bytes.
    pub(crate) fn write(&self, to: &mut Vec<u8>, size: usize) {
        to.clear();
        match self {
            Response::Error(error) => message(to, 1, error.message.len(), |to| write_error(error, to)),
            Response::Specify(specification) => {
                message(to, 2, SPECIFICATION, |to| write_specification(specification, to));
            }
            Response::Configure => message(to, 3, 0, |_| {}),
            Response::Open => message(to, 4, 0, |_| {}),
            Response::Process(outputs) => message(to, 5, size, |to| {
                let size = size / outputs.len().max(1);
                for output in outputs {
                    message(to, 1, size, |to| write_output(output, to, size));
                }
            }),
            Response::Teardown => message(to, 6, 0, |_| {}),
        }
    }
}

/// Estimate of the length of a specification in bytes.
const SPECIFICATION: usize = 1024;

fn write_output(output: &Result<Output, Error>, to: &mut Vec<u8>, size: usize) {
    match output {
        Ok(Output::Single(record)) => message(to, 1, size, |to| encode_record(record, to)),
        Ok(Output::Filtered) => message(to, 2, 0, |_| {}),
        Err(error) => {
            let size = error.message.len();
            message(to, 3, size, |to| message(to, 1, size, |to| write_error(error, to)));
        }
        Ok(Output::Many(records)) => message(to, 4, size * records.len(), |to| write_records(records, to, size)),
    }
}

/// Writes records of about `size` bytes each.
fn write_records(records: &[Record], to: &mut Vec<u8>, size: usize) {
    for record in records {
        message(to, 1, size, |to| encode_record(record, to));
    }
}

fn write_error(error: &Error, to: &mut Vec<u8>) {
    number(to, 1, u64::from(error.code));
    bytes(to, 2, error.message.as_bytes());
}

/// The other side, for the host's replacement in tests.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod host_side {
    use bytes::Bytes;

    use super::*;

    impl Command {
        pub(crate) fn write(&self) -> Bytes {
            let mut to = Vec::new();
            match self {
                Command::Specify => message(&mut to, 1, 0, |_| {}),
                Command::Configure(settings) => message(&mut to, 2, 0, |to| {
                    for (key, value) in settings {
                        message(to, 1, key.len() + value.len(), |to| {
                            bytes(to, 1, key.as_bytes());
                            bytes(to, 2, value.as_bytes());
                        });
                    }
                }),
                Command::Open => message(&mut to, 3, 0, |_| {}),
                Command::Process(records) => message(&mut to, 4, 0, |to| write_records(records, to, 0)),
                Command::Teardown => message(&mut to, 5, 0, |_| {}),
                Command::Unknown => message(&mut to, 99, 0, |_| {}),
            }
            to.into()
        }
    }

    /// Returns the number of a response's kind, and its content.
    pub(crate) fn response(bytes: &Bytes) -> Result<(u32, Reader<'_>), DecodeError> {
        let (number, field) = Reader::new(bytes).next()?.ok_or(DecodeError::Truncated)?;
        Ok((number, field.message()?))
    }

    pub(crate) fn error(mut from: Reader<'_>) -> Result<Error, DecodeError> {
        let mut error = Error::new("");
        while let Some((number, field)) = from.next()? {
            match number {
                1 => error.code = u32::try_from(field.varint()?).unwrap_or(u32::MAX),
                2 => error.message = field.text()?.to_owned(),
                _ => {}
            }
        }
        Ok(error)
    }

    fn record(from: Reader<'_>) -> Result<Record, DecodeError> {
        let mut record = Record::default();
        decode_into(&mut record, from)?;
        Ok(record)
    }

    /// Returns the results in the content of a response to `process`.
    pub(crate) fn outputs(mut elements: Reader<'_>) -> Result<Vec<Result<Output, Error>>, DecodeError> {
        let mut outputs = Vec::new();
        while let Some((_, field)) = elements.next()? {
            let (number, field) = field.message()?.next()?.ok_or(DecodeError::Truncated)?;
            let mut content = field.message()?;
            outputs.push(match number {
                1 => Ok(Output::Single(record(content)?)),
                2 => Ok(Output::Filtered),
                3 => Err(error(content.next()?.ok_or(DecodeError::Truncated)?.1.message()?)?),
                4 => {
                    let mut records = Vec::new();
                    while let Some((_, field)) = content.next()? {
                        records.push(record(field.message()?)?);
                    }
                    Ok(Output::Many(records))
                }
                _ => return Err(DecodeError::Malformed("an unknown result")),
            });
        }
        Ok(outputs)
    }
}

#[cfg(test)]
mod tests;
