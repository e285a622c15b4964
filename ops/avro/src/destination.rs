//! Decoded data for native destinations: raw data whose schema the metadata name become fields before they are
//! written, as `sdk.schema.extract.*` says. Records without such data cost a look at them.

use std::sync::Arc;

use anabranch_graph::arguments::Arguments;
use anabranch_graph::destination::{Destination, DestinationKind, Verdicts, WritePolicy, Writer};
use anabranch_graph::diagnostic::Diagnostics;
use anabranch_graph::fault::{Fault, FaultClass};
use anabranch_graph::flow::Flow;
use anabranch_graph::metadata::Metadata;
use anabranch_graph::operator::Host;
use anabranch_graph::record::{Data, Record};
use anabranch_graph::source::Mark;
use anabranch_graph::specification::Specification;
use anabranch_graph::state::LaneId;
use async_trait::async_trait;

use crate::desk::Desk;
use crate::record::{Part, decode};

/// The destination with decoding before it.
pub fn around(kind: Arc<dyn DestinationKind>) -> Arc<dyn DestinationKind> {
    Arc::new(Kind(kind))
}

struct Kind(Arc<dyn DestinationKind>);

impl DestinationKind for Kind {
    fn specification(&self) -> &Specification {
        self.0.specification()
    }

    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn Destination>, Diagnostics> {
        let inner = self.0.configure(arguments)?;
        let on = |part: &Part| arguments.bool(&format!("sdk.schema.extract.{}.enabled", part.as_str())) == Some(true);
        let parts: Vec<Part> = Part::ALL.into_iter().filter(on).collect();
        Ok(if parts.is_empty() { inner } else { Arc::new(Decoding { inner, parts }) })
    }

    fn takes_only_letters(&self) -> bool {
        self.0.takes_only_letters()
    }
}

struct Decoding {
    inner: Arc<dyn Destination>,
    parts: Vec<Part>,
}

#[async_trait]
impl Destination for Decoding {
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        let inner = self.inner.open(host).await?;
        Ok(Box::new(DecodingWriter { inner, desk: Desk::new(host.schemas.clone()), parts: self.parts.clone() }))
    }

    fn flow(&self, flow: &mut Flow) {
        self.inner.flow(flow);
    }

    fn policy(&self) -> WritePolicy {
        self.inner.policy()
    }
}

struct DecodingWriter {
    inner: Box<dyn Writer>,
    desk: Desk,
    parts: Vec<Part>,
}

impl DecodingWriter {
    fn has_encoded(&self, rows: &[Record]) -> bool {
        // Records mostly share their metadata: of those without a schema one is looked at.
        let mut without: Option<&Metadata> = None;
        rows.iter().any(|record| {
            if !self.parts.iter().any(|part| part.any(record, |data| matches!(data, Data::Raw(_))))
                || without.is_some_and(|metadata| metadata.shares(&record.metadata))
            {
                return false;
            }
            without = Some(&record.metadata);
            self.parts.iter().any(|part| record.metadata.get(&part.names().0).is_some())
        })
    }
}

#[async_trait]
impl Writer for DecodingWriter {
    async fn marks(&mut self) -> Result<Vec<(LaneId, Mark)>, Fault> {
        self.inner.marks().await
    }

    /// Where data of some rows cannot be decoded, nothing is written and those are refused.
    async fn write(&mut self, rows: &[Record], marks: &[(LaneId, Mark)]) -> Result<Verdicts, Fault> {
        if !self.has_encoded(rows) {
            return self.inner.write(rows, marks).await;
        }
        let mut decoded = rows.to_vec();
        let mut refused = Vec::new();
        for (row, record) in decoded.iter_mut().enumerate() {
            for part in &self.parts {
                match decode(&mut self.desk, *part, record) {
                    Ok(_) => {}
                    Err(fault) if fault.class() == FaultClass::Record => {
                        refused.push((row, fault));
                        break;
                    }
                    Err(fault) => return Err(fault),
                }
            }
        }
        if refused.is_empty() { self.inner.write(&decoded, marks).await } else { Ok(Verdicts::Refused(refused)) }
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        self.inner.flush().await
    }

    async fn close(&mut self) -> Result<(), Fault> {
        self.inner.close().await
    }
}

#[cfg(test)]
mod tests;
