//! Encodes keys and payloads in the Confluent wire format for destinations of messages, according to `encode.*`.
//!
//! The schema is that with which `avro.decode` read the data, or the one that the metadata names, if the data fits it.
//! Otherwise it is inferred. The destination receives raw data.

use std::borrow::Cow;
use std::sync::Arc;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::destination::{Destination, ShareWriter, Verdicts, Write, WritePolicy, Writer};
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::flow::{Content, Flow};
use anabranch_plugin::host::{Host, LogLevel};
use anabranch_plugin::letter::{LetterBounds, LetterForm};
use anabranch_plugin::parameters::Argument;
use anabranch_plugin::parameters::shared::{MessageEncoding, MessageFormat};
use anabranch_record::Record;
use anabranch_record::extent::{CollectionSpace, Extent};
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::reference::Reference;
use anabranch_record::text::Str;
use async_trait::async_trait;

use crate::cache::SchemaCache;
use crate::codes;
use crate::part::SchemaPart;

use self::encoder::{Choices, MessageEncoder};

mod encoder;

/// Wraps a configured destination if its settings encode keys or payloads.
///
/// # Errors
/// The settings have invalid values, or choose a schema for nothing.
pub(crate) fn around(inner: Arc<dyn Destination>, arguments: &Arguments) -> Result<Arc<dyn Destination>, Diagnostics> {
    let MessageEncoding { key, payload, schema, subject } = arguments.read()?;
    let formats = [(SchemaPart::Key, *key), (SchemaPart::Payload, *payload)];
    let encoded = formats.into_iter().filter(|(_, format)| *format == MessageFormat::Avro);
    let parts: Vec<SchemaPart> = encoded.map(|(part, _)| part).collect();
    if parts.is_empty() {
        let findings = Diagnostics(unused(&schema).into_iter().chain(unused(&subject)).collect());
        return if findings.has_errors() { Err(findings) } else { Ok(inner) };
    }
    let choices = Choices { parts, schema: *schema, subject: *subject };
    Ok(Arc::new(EncodingDestination { inner, choices }))
}

/// Returns the finding about a setting that has no effect because nothing is encoded.
fn unused<T>(setting: &Argument<T>) -> Option<Diagnostic> {
    let text = || format!("{} is used only if encode.key or encode.payload is avro", setting.name());
    let finding = || setting.finding(codes::SETTINGS_UNUSED, text());
    setting.is_given().then(|| finding().with_hint("add encode.payload: avro, or remove it"))
}

struct EncodingDestination {
    inner: Arc<dyn Destination>,
    choices: Choices,
}

impl EncodingDestination {
    fn around(&self, inner: Box<dyn Writer>, host: &Host) -> Box<dyn Writer> {
        Box::new(EncodingWriter {
            inner,
            destination: self.inner.clone(),
            cache: SchemaCache::new(host.schemas.clone()),
            encoder: MessageEncoder::new(self.choices.clone()),
        })
    }
}

#[async_trait]
impl Destination for EncodingDestination {
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(self.around(self.inner.open(host).await?, host))
    }

    async fn open_shares(&self, host: &Host) -> Result<Vec<ShareWriter>, Fault> {
        let shares = self.inner.open_shares(host).await?;
        Ok(shares.into_iter().map(|share| share.around(|writer| self.around(writer, host))).collect())
    }

    fn flow(&self, flow: &mut Flow) {
        for part in &self.choices.parts {
            let (setting, field) = match part {
                SchemaPart::Key => ("encode.key", ".Key"),
                SchemaPart::Payload => ("encode.payload", ".Payload.After"),
            };
            if let Ok(field) = Reference::parse(field) {
                let wanted = "data without an encoding";
                flow.need_other(codes::FLOW_NOT_ENCODED, setting, &field, &[Content::Avro, Content::Base64], wanted);
            }
        }
        flow.may_fail();
        self.inner.flow(flow);
    }

    fn file(&self) -> Option<&str> {
        self.inner.file()
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

    /// Returns `None`, because encoding needs the registry.
    fn written(&self, _: &Record) -> Option<Result<Vec<u8>, Fault>> {
        None
    }

    fn logs(&self) -> Option<(LogLevel, Str)> {
        self.inner.logs()
    }
}

struct EncodingWriter {
    inner: Box<dyn Writer>,
    destination: Arc<dyn Destination>,
    cache: SchemaCache,
    encoder: MessageEncoder,
}

#[async_trait]
impl Writer for EncodingWriter {
    async fn marks(&mut self) -> Result<Vec<(LaneId, Mark)>, Fault> {
        self.inner.marks().await
    }

    /// If some rows cannot be encoded, writes nothing and rejects those rows.
    async fn write(&mut self, mut write: Write<'_>) -> Result<Verdicts, Fault> {
        let mut rows = write.rows.to_vec();
        let EncodingWriter { cache, encoder, destination, .. } = self;
        let mut progress = Progress::default();
        cache.run(|cache| progress.encode(cache, encoder, &**destination, &mut rows)).await?;
        if !progress.refused.is_empty() {
            return Ok(Verdicts::Refused(progress.refused));
        }
        write.rows = &rows;
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

/// Rows of one write that are encoded so far.
#[derive(Default)]
struct Progress {
    done: usize,
    refused: Vec<(usize, Fault)>,
}

impl Progress {
    /// Encodes the rows that are left. If a schema is missing, stops there, and continues with the next call.
    fn encode(
        &mut self,
        cache: &mut SchemaCache,
        encoder: &mut MessageEncoder,
        destination: &dyn Destination,
        rows: &mut [Record],
    ) -> Result<(), Fault> {
        while let Some(record) = rows.get_mut(self.done) {
            // Without a topic, the destination fails the record with the reason.
            let encoded = match destination.topic(record) {
                Some(topic) => encoder.encode(cache, &topic, record),
                None => Ok(()),
            };
            match encoded {
                Ok(()) => {}
                Err(fault) if fault.class() == FaultClass::Record => self.refused.push((self.done, fault)),
                Err(fault) => return Err(fault),
            }
            self.done += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
