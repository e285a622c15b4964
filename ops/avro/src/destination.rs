//! Decodes data for native destinations and encodes it for standalone ones, according to `sdk.schema.extract.*`.
//!
//! For a native destination, raw data with a schema in the metadata is decoded before it is written. A standalone one
//! decodes itself, and its protocol loses the types of structured data: integers beyond 2⁵³, bytes. So its data is
//! encoded. Records without such data cost only a check.

use std::borrow::Cow;
use std::sync::Arc;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::destination::{Destination, DestinationKind, ShareWriter, Verdicts, Write, WritePolicy, Writer};
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::Flow;
use anabranch_plugin::host::{Host, LogLevel};
use anabranch_plugin::letter::{LetterBounds, LetterForm};
use anabranch_plugin::parameters::shared::Decoding;
use anabranch_plugin::specification::Specification;
use anabranch_record::extent::{CollectionSpace, Extent};
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::metadata::Metadata;
use anabranch_record::text::Str;
use anabranch_record::{Data, Record};
use async_trait::async_trait;

use crate::cache::SchemaCache;
use crate::messages;
use crate::part::SchemaPart;
use crate::record::{decode, encode};

/// Wraps a destination with decoding.
pub fn around(kind: Arc<dyn DestinationKind>) -> Arc<dyn DestinationKind> {
    Arc::new(ConvertingKind { inner: kind, conversion: Conversion::Decode })
}

/// Wraps a destination that decodes itself with encoding. Destinations without a setting for it are unchanged.
pub fn encoded(kind: Arc<dyn DestinationKind>) -> Arc<dyn DestinationKind> {
    Arc::new(ConvertingKind { inner: kind, conversion: Conversion::Encode })
}

/// Conversion of data with a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Conversion {
    Decode,
    Encode,
}

struct ConvertingKind {
    inner: Arc<dyn DestinationKind>,
    conversion: Conversion,
}

impl DestinationKind for ConvertingKind {
    fn specification(&self) -> &Specification {
        self.inner.specification()
    }

    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn Destination>, Diagnostics> {
        let mut inner = self.inner.configure(arguments)?;
        if self.conversion == Conversion::Decode {
            inner = messages::around(inner, arguments)?;
        }
        let decoding: Decoding = arguments.read()?;
        let on = |part: &SchemaPart| match part {
            SchemaPart::Key => decoding.key == Some(true),
            SchemaPart::Payload => decoding.payload == Some(true),
        };
        let parts: Vec<SchemaPart> = SchemaPart::ALL.into_iter().filter(on).collect();
        Ok(if parts.is_empty() {
            inner
        } else {
            Arc::new(ConvertingDestination { inner, conversion: self.conversion, parts })
        })
    }

    fn takes_only_letters(&self) -> bool {
        self.inner.takes_only_letters()
    }
}

struct ConvertingDestination {
    inner: Arc<dyn Destination>,
    conversion: Conversion,
    parts: Vec<SchemaPart>,
}

impl ConvertingDestination {
    fn around(&self, inner: Box<dyn Writer>, host: &Host) -> Box<dyn Writer> {
        let cache = SchemaCache::new(host.schemas.clone());
        Box::new(ConvertingWriter { inner, cache, conversion: self.conversion, parts: self.parts.clone() })
    }
}

#[async_trait]
impl Destination for ConvertingDestination {
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(self.around(self.inner.open(host).await?, host))
    }

    async fn open_shares(&self, host: &Host) -> Result<Vec<ShareWriter>, Fault> {
        let shares = self.inner.open_shares(host).await?;
        Ok(shares.into_iter().map(|share| share.around(|writer| self.around(writer, host))).collect())
    }

    fn flow(&self, flow: &mut Flow) {
        self.inner.flow(flow);
    }

    fn file(&self) -> Option<&str> {
        self.inner.file()
    }

    fn directory(&self) -> Option<&str> {
        self.inner.directory()
    }

    fn writes(&self) -> Vec<Extent> {
        self.inner.writes()
    }

    fn collections(&self) -> Option<CollectionSpace> {
        self.inner.collections()
    }

    async fn examine(&self) -> Result<Vec<String>, Fault> {
        self.inner.examine().await
    }

    fn letter_form(&self) -> LetterForm {
        self.inner.letter_form()
    }

    fn topic<'a>(&'a self, record: &Record) -> Option<Cow<'a, str>> {
        self.inner.topic(record)
    }

    fn confirms_early(&self) -> bool {
        self.inner.confirms_early()
    }

    fn takes_shares(&self) -> bool {
        self.inner.takes_shares()
    }

    fn refuses_earlier_runs(&self) -> bool {
        self.inner.refuses_earlier_runs()
    }

    fn policy(&self) -> WritePolicy {
        self.inner.policy()
    }

    fn keeps_letters(&self) -> Option<LetterBounds> {
        self.inner.keeps_letters()
    }

    /// Returns `None` for a record whose data would be converted first, because that needs the registry.
    fn written(&self, record: &Record) -> Option<Result<Vec<u8>, Fault>> {
        if concerns(self.conversion, &self.parts, std::slice::from_ref(record)) {
            None
        } else {
            self.inner.written(record)
        }
    }

    fn logs(&self) -> Option<(LogLevel, Str)> {
        self.inner.logs()
    }
}

struct ConvertingWriter {
    inner: Box<dyn Writer>,
    cache: SchemaCache,
    conversion: Conversion,
    parts: Vec<SchemaPart>,
}

/// Returns `true` if data of some rows must be decoded or encoded.
fn concerns(conversion: Conversion, parts: &[SchemaPart], rows: &[Record]) -> bool {
    // Records mostly share their metadata: of those without a schema, check only one.
    let mut without: Option<&Metadata> = None;
    let concerned = |data: &Data| match conversion {
        Conversion::Decode => matches!(data, Data::Raw(_)),
        Conversion::Encode => matches!(data, Data::Structured(_)),
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
impl Writer for ConvertingWriter {
    async fn marks(&mut self) -> Result<Vec<(LaneId, Mark)>, Fault> {
        self.inner.marks().await
    }

    /// If data of some rows cannot be decoded, writes nothing and rejects those rows. Data that cannot be encoded is
    /// written unchanged.
    async fn write(&mut self, mut write: Write<'_>) -> Result<Verdicts, Fault> {
        if !concerns(self.conversion, &self.parts, write.rows) {
            return self.inner.write(write).await;
        }
        let mut converted = write.rows.to_vec();
        let (cache, parts, conversion) = (&mut self.cache, &self.parts, self.conversion);
        let refused = cache.run(|cache| convert(cache, conversion, parts, &mut converted)).await?;
        if !refused.is_empty() {
            return Ok(Verdicts::Refused(refused));
        }
        write.rows = &converted;
        self.inner.write(write).await
    }

    async fn forget(&mut self, lanes: &[LaneId]) -> Result<bool, Fault> {
        self.inner.forget(lanes).await
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        self.inner.flush().await
    }

    async fn close(&mut self) -> Result<(), Fault> {
        self.inner.close().await
    }
}

/// Decodes or encodes rows. Returns those that cannot be decoded, with the reason.
fn convert(
    cache: &mut SchemaCache,
    conversion: Conversion,
    parts: &[SchemaPart],
    rows: &mut [Record],
) -> Result<Vec<(usize, Fault)>, Fault> {
    let mut refused = Vec::new();
    for (row, record) in rows.iter_mut().enumerate() {
        for part in parts {
            let done = match conversion {
                Conversion::Decode => decode(cache, *part, record),
                Conversion::Encode => encode(cache, *part, record),
            };
            match done {
                Ok(_) => {}
                Err(fault) if fault.class() != FaultClass::Record => return Err(fault),
                Err(fault) if conversion == Conversion::Encode => {
                    tracing::debug!(error = %fault, "sent as fields, not encoded");
                }
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
