//! Writing at least once.

use std::sync::Arc;

use anabranch_plugin::destination::{Delivered, Verdicts, Write, Writer};
use anabranch_record::fault::{Fault, FaultClass};
use async_trait::async_trait;

use super::message::Layout;
use super::producer::{Failures, Publisher, WrittenTopics};
use super::topics::Demands;
use crate::codes;

/// A writer that sends the rows of each call, and waits until all are confirmed.
pub(super) struct PublishingWriter<P> {
    publisher: P,
    layout: Arc<Layout>,
}

impl<P: Publisher> PublishingWriter<P> {
    pub(super) fn new(publisher: P, layout: Arc<Layout>) -> Self {
        PublishingWriter { publisher, layout }
    }
}

/// The messages of a write, and the rows that cannot become one.
pub(super) struct Messages {
    pub(super) messages: Vec<krafka::Record>,
    /// The row of each message.
    pub(super) rows: Vec<usize>,
    pub(super) failures: Failures,
    /// Maximum size of a batch that all topics accept.
    pub(super) limit: usize,
}

impl Messages {
    /// Builds the messages of rows, and makes sure that their topics exist.
    pub(super) async fn new(
        layout: &Layout,
        topics: &mut dyn WrittenTopics,
        rows: &[anabranch_record::Record],
    ) -> Result<Messages, Fault> {
        let is_fixed = layout.topic.literal().is_some();
        let mut built = Messages {
            messages: Vec::with_capacity(rows.len()),
            rows: Vec::with_capacity(rows.len()),
            failures: Vec::new(),
            limit: layout.largest,
        };
        let mut demands = Demands { largest: usize::MAX, keys: false };
        for (row, record) in rows.iter().enumerate() {
            let message = match layout.message(record) {
                Ok(message) => message,
                Err(fault) => {
                    built.failures.push((row, fault));
                    continue;
                }
            };
            if built.messages.last().is_none_or(|last| last.topic != message.topic) {
                demands = match topics.ensure(&message.topic).await {
                    Ok(demands) => demands,
                    // Another record may have another topic.
                    Err(fault) if !is_fixed && fault.class() == FaultClass::Fatal => {
                        built.failures.push((row, fault.with_class(FaultClass::Record)));
                        continue;
                    }
                    Err(fault) => return Err(fault),
                };
            }
            let size = message.estimated_size();
            if size > demands.largest {
                let text = format!(
                    "the record has {size} bytes in Kafka, and max.message.bytes of the topic {} is {}",
                    message.topic, demands.largest
                );
                built.failures.push((row, Fault::record(codes::RECORD_TOO_LARGE, text)));
                continue;
            }
            if demands.keys && message.key.is_none() {
                let text = format!(
                    "the record has no key, and the topic {} is compacted: it keeps the last record of each key; set key, \
                     or give the record a key with a processor",
                    message.topic
                );
                built.failures.push((row, Fault::record(codes::RECORD_INVALID, text)));
                continue;
            }
            built.limit = built.limit.min(demands.largest);
            built.messages.push(message);
            built.rows.push(row);
        }
        Ok(built)
    }
}

/// Returns the fault of records of which some are invalid: a broker rejects a batch as a whole, so the good ones in it have
/// the same fault. The executor then writes fewer at a time.
pub(super) fn ambiguous(failures: &Failures) -> Option<&Fault> {
    let mut invalid = failures.iter().map(|(_, fault)| fault).filter(|fault| fault.code() == codes::BATCH_REJECTED);
    let first = invalid.next()?;
    invalid.next().and(Some(first))
}

#[async_trait]
impl<P: Publisher> Writer for PublishingWriter<P> {
    async fn write(&mut self, Write { rows, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        let built = Messages::new(&self.layout, &mut self.publisher, rows).await?;
        let mut failures = built.failures;
        let is_fixed = self.layout.topic.literal().is_some();
        let failed = match built.messages.is_empty() {
            true => Failures::new(),
            false => self.publisher.publish(built.messages, built.limit).await?,
        };
        if let Some(fault) = ambiguous(&failed) {
            self.publisher.start_over();
            return Err(fault.clone());
        }
        let mut undone = None;
        for (place, fault) in failed {
            let row = built.rows[place];
            match fault.class() {
                FaultClass::Record => failures.push((row, fault)),
                FaultClass::Fatal if !is_fixed && fault.code() != codes::CREDENTIALS_REFUSED => {
                    failures.push((row, fault.with_class(FaultClass::Record)));
                }
                _ => undone = undone.or(Some(fault)),
            }
        }
        if let Some(fault) = undone {
            // The executor writes all rows again, in order: a key is never left with an older value.
            self.publisher.start_over();
            return Err(match fault.code() == codes::TOPIC_MISSING {
                // It existed: it was deleted a moment ago, and may be created again.
                true => fault.with_class(FaultClass::Transient),
                false => fault,
            });
        }
        if failures.is_empty() {
            return Ok(Verdicts::All(Delivered::Durable));
        }
        let mut verdicts: Vec<Result<Delivered, Fault>> = rows.iter().map(|_| Ok(Delivered::Durable)).collect();
        for (row, fault) in failures {
            verdicts[row] = Err(fault);
        }
        Ok(Verdicts::Each(verdicts))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Fault> {
        self.publisher.close().await
    }
}
