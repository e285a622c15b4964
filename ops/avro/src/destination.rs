//! Decodes data for native destinations and encodes it for standalone ones, according to `sdk.schema.extract.*`.
//!
//! For a native destination, raw data with a schema in the metadata is decoded before it is written. A standalone one
//! decodes itself, and its protocol loses the types of structured data: integers beyond 2⁵³, bytes. So its data is
//! encoded. Records without such data cost only a check.

use std::sync::Arc;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::destination::{Destination, DestinationKind, Verdicts, WritePolicy, Writer};
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::Flow;
use anabranch_plugin::host::{Host, LogLevel};
use anabranch_plugin::letter::{LetterBounds, LetterForm};
use anabranch_plugin::parameters::shared::Decoding;
use anabranch_plugin::specification::Specification;
use anabranch_record::extent::Extent;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::metadata::Metadata;
use anabranch_record::text::Str;
use anabranch_record::{Data, Record};
use async_trait::async_trait;

use crate::desk::Desk;
use crate::record::{Part, decode, encode};

/// Wraps a destination with decoding.
pub fn around(kind: Arc<dyn DestinationKind>) -> Arc<dyn DestinationKind> {
    Arc::new(Kind { inner: kind, step: Step::Decode })
}

/// Wraps a destination that decodes itself with encoding. Destinations without a setting for it are unchanged.
pub fn encoded(kind: Arc<dyn DestinationKind>) -> Arc<dyn DestinationKind> {
    Arc::new(Kind { inner: kind, step: Step::Encode })
}

/// Conversion of data with a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Decode,
    Encode,
}

struct Kind {
    inner: Arc<dyn DestinationKind>,
    step: Step,
}

impl DestinationKind for Kind {
    fn specification(&self) -> &Specification {
        self.inner.specification()
    }

    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn Destination>, Diagnostics> {
        let inner = self.inner.configure(arguments)?;
        let decoding: Decoding = arguments.read()?;
        let on = |part: &Part| match part {
            Part::Key => decoding.key == Some(true),
            Part::Payload => decoding.payload == Some(true),
        };
        let parts: Vec<Part> = Part::ALL.into_iter().filter(on).collect();
        Ok(if parts.is_empty() { inner } else { Arc::new(Coding { inner, step: self.step, parts }) })
    }

    fn takes_only_letters(&self) -> bool {
        self.inner.takes_only_letters()
    }
}

struct Coding {
    inner: Arc<dyn Destination>,
    step: Step,
    parts: Vec<Part>,
}

#[async_trait]
impl Destination for Coding {
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        let inner = self.inner.open(host).await?;
        let desk = Desk::new(host.schemas.clone());
        Ok(Box::new(CodingWriter { inner, desk, step: self.step, parts: self.parts.clone() }))
    }

    fn flow(&self, flow: &mut Flow) {
        self.inner.flow(flow);
    }

    fn file(&self) -> Option<&str> {
        self.inner.file()
    }

    fn writes(&self) -> Vec<Extent> {
        self.inner.writes()
    }

    fn letter_form(&self) -> LetterForm {
        self.inner.letter_form()
    }

    fn policy(&self) -> WritePolicy {
        self.inner.policy()
    }

    fn keeps_letters(&self) -> Option<LetterBounds> {
        self.inner.keeps_letters()
    }

    /// Returns `None` for a record whose data would be converted first, because that needs the registry.
    fn written(&self, record: &Record) -> Option<Result<Vec<u8>, Fault>> {
        if concerns(self.step, &self.parts, std::slice::from_ref(record)) { None } else { self.inner.written(record) }
    }

    fn logs(&self) -> Option<(LogLevel, Str)> {
        self.inner.logs()
    }
}

struct CodingWriter {
    inner: Box<dyn Writer>,
    desk: Desk,
    step: Step,
    parts: Vec<Part>,
}

/// Returns `true` if data of some rows must be decoded or encoded.
fn concerns(step: Step, parts: &[Part], rows: &[Record]) -> bool {
    // Records mostly share their metadata: of those without a schema, check only one.
    let mut without: Option<&Metadata> = None;
    let concerned = |data: &Data| match step {
        Step::Decode => matches!(data, Data::Raw(_)),
        Step::Encode => matches!(data, Data::Structured(_)),
    };
    rows.iter().any(|record| {
        if !parts.iter().any(|part| part.any(record, concerned))
            || without.is_some_and(|metadata| metadata.shares(&record.metadata))
        {
            return false;
        }
        without = Some(&record.metadata);
        parts.iter().any(|part| record.metadata.get(&part.names().0).is_some())
    })
}

#[async_trait]
impl Writer for CodingWriter {
    async fn marks(&mut self) -> Result<Vec<(LaneId, Mark)>, Fault> {
        self.inner.marks().await
    }

    /// If data of some rows cannot be decoded, writes nothing and rejects those rows. Data that cannot be encoded is
    /// written unchanged.
    async fn write(&mut self, rows: &[Record], marks: &[(LaneId, Mark)]) -> Result<Verdicts, Fault> {
        if !concerns(self.step, &self.parts, rows) {
            return self.inner.write(rows, marks).await;
        }
        let mut coded = rows.to_vec();
        let (desk, parts, step) = (&mut self.desk, &self.parts, self.step);
        let refused = desk.attend(|desk| code(desk, step, parts, &mut coded)).await?;
        if refused.is_empty() { self.inner.write(&coded, marks).await } else { Ok(Verdicts::Refused(refused)) }
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        self.inner.flush().await
    }

    async fn close(&mut self) -> Result<(), Fault> {
        self.inner.close().await
    }
}

/// Decodes or encodes rows. Returns those that cannot be decoded, with the reason.
fn code(desk: &mut Desk, step: Step, parts: &[Part], rows: &mut [Record]) -> Result<Vec<(usize, Fault)>, Fault> {
    let mut refused = Vec::new();
    for (row, record) in rows.iter_mut().enumerate() {
        for part in parts {
            let done = match step {
                Step::Decode => decode(desk, *part, record),
                Step::Encode => encode(desk, *part, record),
            };
            match done {
                Ok(_) => {}
                Err(fault) if fault.class() != FaultClass::Record => return Err(fault),
                Err(fault) if step == Step::Encode => tracing::debug!(error = %fault, "sent as fields, not encoded"),
                Err(fault) => {
                    refused.push((row, fault));
                    break;
                }
            }
        }
    }
    Ok(refused)
}

#[cfg(test)]
mod tests;
