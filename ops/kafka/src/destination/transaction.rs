//! Writing rows and marks in one transaction.
//!
//! Each run initialises the transactional ids of its slots: the coordinator ends the transactions that earlier runs left, and
//! fences their producers. After that, the marks in the topic are final. A transaction with an unknown outcome is resolved in
//! the same way. A transaction has rows and marks of one slot.

use std::collections::HashMap;
use std::sync::Arc;

use anabranch_plugin::destination::{Delivered, Verdicts, Write, Writer};
use anabranch_plugin::host::Host;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::text::Str;
use async_trait::async_trait;

use super::marks::MarksTopic;
use super::message::Layout;
use super::producer::{Failures, TransactionalPublisher};
use super::publish::{Messages, ambiguous};
use crate::codes;

/// Returns the transactional id of a pipeline that is not split, and a destination.
pub(super) fn default_id(host: &Host) -> Str {
    format!("anabranch/{}/{}", host.pipeline, host.node).into()
}

/// A writer of transactions.
pub(super) struct TransactionWriter<P> {
    publisher: P,
    layout: Arc<Layout>,
    id: Str,
    /// The messages that store marks.
    marks: MarksTopic,
    /// Maximum size of a batch.
    limit: usize,
    /// The marks that are certainly stored.
    stored: HashMap<LaneId, Mark>,
}

impl<P: TransactionalPublisher> TransactionWriter<P> {
    pub(super) fn new(publisher: P, layout: Arc<Layout>, id: Str, marks: MarksTopic, limit: usize) -> Self {
        TransactionWriter { publisher, layout, id, marks, limit, stored: HashMap::new() }
    }

    /// Writes messages in one transaction, like [`TransactionWriter::commit`]. If the coordinator refuses the producer as
    /// fenced, the fault says why.
    async fn transact(
        &mut self,
        messages: Vec<krafka::Record>,
        rows: &[usize],
        limit: usize,
    ) -> Result<Failures, Fault> {
        match self.commit(messages, rows, limit).await {
            Err(fault) if fault.code() == codes::FENCED => Err(self.publisher.fenced().await),
            outcome => outcome,
        }
    }

    /// Writes messages in one transaction. `rows` has the rows of the first messages. Returns the rows that the brokers
    /// refuse; then nothing is written.
    async fn commit(&mut self, messages: Vec<krafka::Record>, rows: &[usize], limit: usize) -> Result<Failures, Fault> {
        let failed = self.publisher.send(messages, limit).await?;
        if let Some(fault) = ambiguous(&failed) {
            let fault = fault.clone();
            self.publisher.abort().await?;
            return Err(fault);
        }
        let (mut refusals, mut failure) = (Failures::new(), None);
        for (place, fault) in failed {
            match (rows.get(place), fault.class()) {
                (Some(row), FaultClass::Record) => refusals.push((*row, fault)),
                _ => failure = failure.or(Some(fault)),
            }
        }
        if refusals.is_empty() && failure.is_none() {
            self.publisher.commit().await?;
            return Ok(refusals);
        }
        // A failed record fails those behind it too; only the refusals say why.
        match (refusals.is_empty(), failure, self.publisher.abort().await) {
            (false, _, Ok(())) | (true, None, Ok(())) => Ok(refusals),
            (true, Some(fault), Ok(())) => Err(fault),
            // Only the coordinator knows that a later run has taken over.
            (_, _, Err(fault)) if fault.code() == codes::FENCED => Err(fault),
            (_, failure, Err(fault)) => Err(failure.unwrap_or(fault)),
        }
    }
}

#[async_trait]
impl<P: TransactionalPublisher> Writer for TransactionWriter<P> {
    async fn marks(&mut self) -> Result<Vec<(LaneId, Mark)>, Fault> {
        let marks = self.publisher.initialise().await?;
        let went_back = |(lane, stored): (&LaneId, &Mark)| {
            let found = marks.get(lane).map(|mark| (mark.generation, mark.seq));
            found < Some((stored.generation, stored.seq))
        };
        if self.stored.iter().any(went_back) {
            let text = format!(
                "the topic of the positions lacks positions that the brokers had confirmed to the transactional id {}",
                self.id
            );
            return Err(Fault::transient(codes::MARKS_MOVED, text));
        }
        self.stored.clone_from(&marks);
        Ok(marks.into_iter().collect())
    }

    async fn write(&mut self, Write { rows, marks, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        let built = Messages::new(&self.layout, &mut self.publisher, rows).await?;
        if !built.failures.is_empty() {
            return Ok(Verdicts::Refused(built.failures));
        }
        let mut messages = built.messages;
        for (lane, mark) in marks {
            messages.push(self.marks.store(lane, mark)?);
        }
        let refusals = self.transact(messages, &built.rows, built.limit).await?;
        if !refusals.is_empty() {
            return Ok(Verdicts::Refused(refusals));
        }
        self.stored.extend(marks.iter().cloned());
        Ok(Verdicts::All(Delivered::Durable))
    }

    async fn forget(&mut self, lanes: &[LaneId]) -> Result<bool, Fault> {
        let messages = lanes.iter().map(|lane| self.marks.remove(lane)).collect();
        self.transact(messages, &[], self.limit).await?;
        self.stored.retain(|lane, _| !lanes.contains(lane));
        Ok(true)
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Fault> {
        self.publisher.close().await
    }
}
