//! Commands of the host, and their responses.

use std::collections::BTreeMap;

use super::read::{Field, Malformed, Reader, text};
use super::write::Writer;
use crate::error::Error;
use crate::processor::Output;
use crate::record::Record;
use crate::specification::Specification;

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
    pub(crate) fn read(bytes: &[u8], spare: Vec<Record>) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        let mut command = Command::Unknown;
        let mut spare = Some(spare);
        while let Some((number, field)) = from.next()? {
            command = match number {
                1 => Command::Specify,
                2 => {
                    let (mut entries, mut settings) = (field.message()?, BTreeMap::new());
                    while let Some((number, field)) = entries.next()? {
                        if number == 1 {
                            let (key, value) = field.message()?.entry()?;
                            settings.insert(text(key)?.to_owned(), value.map_or(Ok(""), Field::text)?.to_owned());
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
                            records[count].read(field.message()?)?;
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

impl Response {
    /// Writes the response to `buffer`, replacing its content.
    pub(crate) fn write(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
        let mut to = Writer(std::mem::take(buffer));
        match self {
            Response::Error(error) => to.message(1, |to| write_error(error, to)),
            Response::Specify(specification) => to.message(2, |to| specification.write(to)),
            Response::Configure => to.message(3, |_| {}),
            Response::Open => to.message(4, |_| {}),
            Response::Process(outputs) => to.message(5, |to| {
                for output in outputs {
                    to.message(1, |to| write_output(output, to));
                }
            }),
            Response::Teardown => to.message(6, |_| {}),
        }
        *buffer = to.0;
    }
}

fn write_output(output: &Result<Output, Error>, to: &mut Writer) {
    match output {
        Ok(Output::Single(record)) => to.message(1, |to| record.write(to)),
        Ok(Output::Filtered) => to.message(2, |_| {}),
        Err(error) => to.message(3, |to| to.message(1, |to| write_error(error, to))),
        Ok(Output::Many(records)) => to.message(4, |to| {
            for record in records {
                to.message(1, |to| record.write(to));
            }
        }),
    }
}

fn write_error(error: &Error, to: &mut Writer) {
    to.number(1, u64::from(error.code));
    to.bytes(2, error.message.as_bytes());
}

impl Specification {
    fn write(&self, to: &mut Writer) {
        to.bytes(1, self.name.as_bytes());
        to.bytes(2, self.summary.as_bytes());
        to.bytes(3, self.description.as_bytes());
        to.bytes(4, self.version.as_bytes());
        to.bytes(5, self.author.as_bytes());
        for (name, parameter) in &self.parameters {
            to.message(6, |to| {
                to.bytes(1, name.as_bytes());
                to.message(2, |to| {
                    to.bytes(1, parameter.default.as_bytes());
                    to.bytes(2, parameter.description.as_bytes());
                    to.number(3, parameter.kind.number());
                    for validation in &parameter.validations {
                        to.message(4, |to| {
                            let (number, value) = validation.on_wire();
                            to.number(1, number);
                            to.bytes(2, value.as_bytes());
                        });
                    }
                });
            });
        }
    }
}

/// The other side, for the host's replacement in tests.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod host_side {
    use super::*;

    impl Command {
        pub(crate) fn write(&self) -> Vec<u8> {
            let mut to = Writer::default();
            match self {
                Command::Specify => to.message(1, |_| {}),
                Command::Configure(settings) => to.message(2, |to| {
                    for (key, value) in settings {
                        to.message(1, |to| {
                            to.bytes(1, key.as_bytes());
                            to.bytes(2, value.as_bytes());
                        });
                    }
                }),
                Command::Open => to.message(3, |_| {}),
                Command::Process(records) => to.message(4, |to| {
                    for record in records {
                        to.message(1, |to| record.write(to));
                    }
                }),
                Command::Teardown => to.message(5, |_| {}),
                Command::Unknown => to.message(99, |_| {}),
            }
            to.0
        }
    }

    /// Returns the number of a response's kind, and its content.
    pub(crate) fn response(bytes: &[u8]) -> Result<(u64, &[u8]), Malformed> {
        let field = Reader(bytes).next()?.ok_or(Malformed::Truncated)?;
        Ok((field.0, field.1.bytes()?))
    }

    pub(crate) fn error(mut from: Reader<'_>) -> Result<Error, Malformed> {
        let mut error = Error::new("");
        while let Some((number, field)) = from.next()? {
            match number {
                1 => error.code = u32::try_from(field.varint()?).map_err(|_| Malformed::Type)?,
                2 => error.message = field.text()?.to_owned(),
                _ => {}
            }
        }
        Ok(error)
    }

    fn record(from: Reader<'_>) -> Result<Record, Malformed> {
        let mut record = Record::default();
        record.read(from)?;
        Ok(record)
    }

    /// Returns the results of a response to `process`.
    pub(crate) fn outputs(bytes: &[u8]) -> Result<Vec<Result<Output, Error>>, Malformed> {
        let (mut elements, mut outputs) = (Reader(bytes), Vec::new());
        while let Some((_, field)) = elements.next()? {
            let (number, field) = field.message()?.next()?.ok_or(Malformed::Truncated)?;
            let mut content = field.message()?;
            outputs.push(match number {
                1 => Ok(Output::Single(record(content)?)),
                2 => Ok(Output::Filtered),
                3 => Err(error(content.next()?.ok_or(Malformed::Truncated)?.1.message()?)?),
                4 => {
                    let mut records = Vec::new();
                    while let Some((_, field)) = content.next()? {
                        records.push(record(field.message()?)?);
                    }
                    Ok(Output::Many(records))
                }
                _ => return Err(Malformed::Type),
            });
        }
        Ok(outputs)
    }
}
