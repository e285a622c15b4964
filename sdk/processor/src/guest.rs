//! The guest's side of the protocol: receives a command and sends its response, until there are no more commands.

use std::collections::BTreeMap;

use anabranch_record::protobuf::Reader;
use anabranch_record::specification::Specification;
use anabranch_record::{Data, Position, Record};
use bytes::Bytes;

use crate::error::{Error, HostError};
use crate::host;
use crate::parameters::{Declarations, Parameters, Settings};
use crate::processor::{Output, Processor};
use crate::schema::Codec;
use crate::wire::{Command, Response};

/// Stages of a processor's life; one implementation per kind of processor.
pub(crate) trait Stages {
    fn specification(&self) -> Specification;
    fn declare(&self, declarations: &mut Declarations);
    fn configure(&mut self, settings: Settings) -> Result<(), Error>;
    fn open(&mut self) -> Result<(), Error>;
    fn process(&mut self, records: Vec<Record>) -> Vec<Result<Output, Error>>;
    fn teardown(&mut self) -> Result<(), Error>;
}

/// A processor; `None` before it is configured.
#[derive(Debug)]
pub(crate) struct Configured<P>(Option<P>);

impl<P> Default for Configured<P> {
    fn default() -> Self {
        Configured(None)
    }
}

impl<P> Configured<P> {
    pub(crate) fn get(&mut self) -> Result<&mut P, Error> {
        self.0.as_mut().ok_or_else(|| Error::new("the processor is not configured"))
    }
}

impl<P: Processor> Stages for Configured<P> {
    fn specification(&self) -> Specification {
        P::specification()
    }

    fn declare(&self, declarations: &mut Declarations) {
        P::Parameters::declare("", declarations);
    }

    fn configure(&mut self, settings: Settings) -> Result<(), Error> {
        self.0 = Some(P::configure(settings.all()?)?);
        Ok(())
    }

    fn open(&mut self) -> Result<(), Error> {
        self.get()?.open()
    }

    fn process(&mut self, records: Vec<Record>) -> Vec<Result<Output, Error>> {
        match self.get() {
            Ok(processor) => processor.process_batch(records),
            Err(error) => records.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn teardown(&mut self) -> Result<(), Error> {
        // The teardown may come before `configure` succeeded.
        self.0.as_mut().map_or(Ok(()), P::teardown)
    }
}

/// A function as a processor.
pub(crate) struct Function<F> {
    pub(crate) specification: Specification,
    pub(crate) function: F,
}

impl<F, O> Stages for Function<F>
where
    F: FnMut(Record) -> Result<O, Error>,
    O: Into<Output>,
{
    fn specification(&self) -> Specification {
        self.specification.clone()
    }

    fn declare(&self, _: &mut Declarations) {}

    fn configure(&mut self, settings: Settings) -> Result<(), Error> {
        settings.all()
    }

    fn open(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn process(&mut self, records: Vec<Record>) -> Vec<Result<Output, Error>> {
        records.into_iter().map(|record| (self.function)(record).map(Into::into)).collect()
    }

    fn teardown(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// Answers commands.
pub(crate) struct Guest<'s> {
    stages: &'s mut dyn Stages,
    pub(crate) codec: Codec,
    /// Records of the last response; the next command reuses their memory.
    pub(crate) spare: Vec<Record>,
}

impl<'s> Guest<'s> {
    pub(crate) fn new(stages: &'s mut dyn Stages) -> Self {
        Guest { stages, codec: Codec::default(), spare: Vec::new() }
    }

    /// Serves the host until it has no more commands.
    pub(crate) fn serve(&mut self) -> Result<(), HostError> {
        let (mut request, mut response) = (vec![0; 4096], Vec::new());
        loop {
            let size = match host::next_command(&mut request) {
                Ok(size) => size,
                Err(HostError::NO_MORE_COMMANDS) => return Ok(()),
                Err(error) => return Err(error),
            };
            // Raw data are slices of the command.
            let command = Bytes::from(request);
            let answer = self.answer_message(Reader::first(&command, size));
            answer.write(&mut response, size);
            self.keep(answer);
            // A record that the processor has stored still uses the memory of the command.
            request = if command.is_unique() { command.into() } else { vec![0; command.len()] };
            host::respond(&mut response)?;
        }
    }

    pub(crate) fn answer_message(&mut self, message: Reader<'_>) -> Response {
        match Command::read(message, std::mem::take(&mut self.spare)) {
            Ok(command) => self.answer(command).unwrap_or_else(Response::Error),
            Err(malformed) => Response::Error(Error::from(malformed).context("malformed message of the host")),
        }
    }

    /// Keeps the records of a written response, to reuse their memory. Frees what is a slice of the command.
    pub(crate) fn keep(&mut self, response: Response) {
        if let Response::Process(outputs) = response {
            let single = |output| match output {
                Ok(Output::Single(record)) => {
                    let mut record = Record::with_position(record, Position::default());
                    let Record { key, payload, .. } = &mut record;
                    for data in [key, &mut payload.before, &mut payload.after] {
                        if let Data::Raw(_) = data {
                            *data = Data::Absent;
                        }
                    }
                    Some(record)
                }
                _ => None,
            };
            self.spare = outputs.into_iter().filter_map(single).collect();
        }
    }

    fn answer(&mut self, command: Command) -> Result<Response, Error> {
        Ok(match command {
            Command::Specify => Response::Specify(self.specification()),
            Command::Configure(settings) => {
                self.configure(settings)?;
                Response::Configure
            }
            Command::Open => {
                self.stages.open()?;
                Response::Open
            }
            Command::Process(records) => Response::Process(self.process(records)),
            Command::Teardown => {
                self.stages.teardown()?;
                Response::Teardown
            }
            Command::Unknown => return Err(HostError::UNKNOWN_COMMAND_REQUEST.into()),
        })
    }

    fn specification(&self) -> Specification {
        let mut declarations = Declarations::default();
        self.stages.declare(&mut declarations);
        Codec::declare(&mut declarations);
        self.stages.specification().with_all(declarations.parameters)
    }

    fn configure(&mut self, settings: BTreeMap<String, String>) -> Result<(), Error> {
        let mut settings = Settings::new(settings);
        let codec = Codec::configure(&mut settings);
        self.stages.configure(settings)?;
        self.codec = codec.unwrap_or_default();
        Ok(())
    }

    fn process(&mut self, mut records: Vec<Record>) -> Vec<Result<Output, Error>> {
        let codec = &mut self.codec;
        if codec.is_off() {
            return self.stages.process(records);
        }
        // Records that cannot be decoded keep their places, and the processor does not see them.
        let mut before = Vec::with_capacity(records.len());
        records.retain_mut(|record| {
            before.push(codec.decode(record));
            matches!(before.last(), Some(Ok(_)))
        });
        codec.decoded_all();
        let mut outputs = if records.is_empty() { Vec::new() } else { self.stages.process(records) };
        for (result, attached) in outputs.iter_mut().zip(before.iter().flatten()) {
            if let Ok(output) = result
                && let Err(error) =
                    output.records_mut().iter_mut().try_for_each(|record| codec.encode(record, attached))
            {
                *result = Err(error);
            }
        }
        if before.iter().all(Result::is_ok) {
            return outputs;
        }
        let mut outputs = outputs.into_iter();
        let mut results = Vec::with_capacity(before.len());
        for before in before {
            match before.map(|_| outputs.next()) {
                Err(error) => results.push(Err(error)),
                Ok(Some(result)) => results.push(result),
                // If one record has no result, later ones have none either.
                Ok(None) => return results,
            }
        }
        // There are more results than records: pass them on, so that the host reports it.
        results.extend(outputs);
        results
    }
}

#[cfg(test)]
mod tests;
