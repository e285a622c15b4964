//! A plugin as a destination.

use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::destination::{
    Delivered, Destination, DestinationKind, Retry, Verdicts, Write, WritePolicy, Writer,
};
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::host::Host;
use anabranch_plugin::specification::Specification;
use anabranch_plugin::written::Written;
use anabranch_record::code::Code;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::metadata::key;
use anabranch_record::protobuf::encode_record;
use anabranch_record::text::Str;
use anabranch_record::{Data, Record};
use async_trait::async_trait;
use bytes::Bytes;
use prost::Message as _;
use tokio::time::timeout;

use crate::call::CallError;
use crate::codes;
use crate::protocol::{Ack, Pieces, Role};
use crate::refusals::{Refusals, alike};
use crate::session::{Plugin, Session, SessionStream};
use crate::specification::{DisabledDefaults, given};
use crate::wire;

/// Maximum number of records per write.
const ROWS: usize = 1024;
/// Maximum size in bytes of a message with several records. Every plugin accepts it, whatever its configured limit.
const MESSAGE: usize = 3 << 20;

/// The destination kind of a plugin, for the registry.
pub(crate) struct ConnectorDestination {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) specification: Specification,
    pub(crate) silenced: DisabledDefaults,
}

impl DestinationKind for ConnectorDestination {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn Destination>, Diagnostics> {
        Ok(Arc::new(GrpcDestination {
            plugin: self.plugin.clone(),
            given: given(arguments, &self.silenced),
            refusals: Arc::new(Refusals::new(self.plugin.settings.equal_refusals)),
        }))
    }
}

struct GrpcDestination {
    plugin: Arc<Plugin>,
    given: Vec<(Str, Written)>,
    refusals: Arc<Refusals>,
}

#[async_trait]
impl Destination for GrpcDestination {
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        let session = Session::start(self.plugin.clone(), Role::Destination, host).await?;
        session.configure(&self.given, host).await?;
        session.open(Vec::new()).await?;
        let run = session.run();
        let (limit, patience) = (self.plugin.settings.record_limit, self.plugin.settings.patience);
        let refusals = self.refusals.clone();
        Ok(Box::new(Rows { session, run, limit, patience, refusals, last: Bytes::new(), encoded: Vec::new() }))
    }

    fn written(&self, record: &Record) -> Option<Result<Vec<u8>, Fault>> {
        let mut encoded = Vec::new();
        encode(record, &mut encoded);
        too_large(encoded.len(), self.plugin.settings.record_limit).map(Err)
    }

    fn policy(&self) -> WritePolicy {
        // Only a plugin that is started again knows the outcome of records without an acknowledgement.
        WritePolicy { rows: ROWS, bytes: MESSAGE, linger: Duration::ZERO, retry: Retry::AtMostOnce }
    }
}

struct Rows {
    session: Session,
    run: SessionStream,
    limit: usize,
    patience: Duration,
    refusals: Arc<Refusals>,
    /// Position of the last record that was sent.
    last: Bytes,
    encoded: Vec<u8>,
}

/// Maximum overhead of a message around a record.
const FRAME: usize = 16;

impl Rows {
    /// Encodes the messages for the rows from `first` on, with the row of each expected acknowledgement. Rows that are
    /// too large get a verdict.
    fn messages(
        &mut self,
        rows: &[Record],
        first: usize,
        verdicts: &mut [Option<Result<Delivered, Fault>>],
    ) -> (Vec<Bytes>, Vec<usize>) {
        let mut pieces = Pieces::new(self.session.protocol(), MESSAGE.min(self.limit.saturating_sub(FRAME)));
        let mut due = Vec::with_capacity(rows.len());
        for (index, row) in rows.iter().enumerate().skip(first) {
            self.encoded.clear();
            encode(row, &mut self.encoded);
            if let Some(fault) = too_large(self.encoded.len(), self.limit) {
                verdicts[index] = Some(Err(fault));
                continue;
            }
            pieces.add(&self.encoded);
            due.push(index);
        }
        (pieces.finish(), due)
    }

    /// Sends messages and waits for the acknowledgements of their rows.
    async fn exchange(
        &mut self,
        rows: &[Record],
        messages: Vec<Bytes>,
        due: &[usize],
        verdicts: &mut [Option<Result<Delivered, Fault>>],
    ) -> Result<(), Fault> {
        let Rows { session, run, patience, .. } = self;
        let SessionStream { outbox, inbox, .. } = run;
        let lost = || CallError::Lost("it closed its stream".to_owned());
        let send = async {
            for message in messages {
                // The reader of a closed stream gets the reason.
                if outbox.send(message).await.is_err() {
                    break;
                }
            }
        };
        let receive = async {
            let mut due = due.iter().copied();
            while due.len() > 0 {
                let message = match timeout(*patience, inbox.recv()).await {
                    Ok(Some(Ok(message))) => message,
                    Ok(Some(Err(error))) => return Err(failed(session, &error).await),
                    Ok(None) => return Err(failed(session, &lost()).await),
                    Err(_) => return Err(failed(session, &CallError::Late(*patience)).await),
                };
                let acks = match session.protocol().read_acks(message) {
                    Ok(acks) => acks,
                    Err(error) => return Err(wrong(session, codes::PLUGIN_GARBAGE, error.to_string()).await),
                };
                for Ack { position, error } in acks {
                    let Some(row) = due.next() else {
                        return Err(wrong(session, CODE, "for a record that it did not receive".to_owned()).await);
                    };
                    if rows[row].position().0 != position {
                        return Err(wrong(session, CODE, "for a record other than the next one".to_owned()).await);
                    }
                    verdicts[row] = Some(match error.as_str() {
                        "" => Ok(Delivered::Durable),
                        reason => Err(Fault::record(codes::PLUGIN_REFUSED_RECORD, reason.to_owned())),
                    });
                }
            }
            Ok(())
        };
        let ((), received) = tokio::join!(send, receive);
        received
    }
}

/// Appends a row as plugins receive it.
fn encode(row: &Record, out: &mut Vec<u8>) {
    match whole(row) {
        Some(row) => encode_record(&row, out),
        None => encode_record(row, out),
    }
}

/// Returns the fault of a record of this size if it is too large.
fn too_large(bytes: usize, limit: usize) -> Option<Fault> {
    (bytes + FRAME > limit).then(|| {
        let what = format!(
            "the record has {bytes} bytes, and connectors accept at most {limit}: raise \
             connectors.max-receive-record-size"
        );
        Fault::record(codes::RECORD_TOO_LARGE, what)
    })
}

/// Returns the plugin's error message if it rejected the row.
fn refusal(verdict: Option<&Result<Delivered, Fault>>) -> Option<String> {
    verdict.and_then(|verdict| verdict.as_ref().err()).map(Fault::message)
}

const CODE: Code = codes::PLUGIN_ACKNOWLEDGED_WRONG;

async fn failed(session: &Session, error: &CallError) -> Fault {
    let (code, what) = match error {
        CallError::Late(_) => (codes::PLUGIN_LATE, "does not acknowledge its records"),
        CallError::Lost(_) => (codes::PLUGIN_LOST, "cannot be written to"),
        CallError::Refused(_) | CallError::Unimplemented => (codes::PLUGIN_WRITE_FAILED, "cannot be written to"),
    };
    session.fault(FaultClass::Transient, code, what, error).await
}

async fn wrong(session: &Session, code: Code, reason: String) -> Fault {
    let error = CallError::Refused(reason);
    session.fault(FaultClass::Fatal, code, "sent a wrong acknowledgement", &error).await
}

/// Replaces absent data with empty data, because plugins call methods of keys and payloads without checking for
/// absence. Keeps absent data with a schema, from which a plugin would build a record of nulls.
fn whole(row: &Record) -> Option<Record> {
    let is_plain = |data: &Data, subject: &Str| matches!(data, Data::Absent) && row.metadata.get(subject).is_none();
    let key_is_empty = is_plain(&row.key, &key::KEY_SCHEMA_SUBJECT);
    let before_is_empty = is_plain(&row.payload.before, &key::PAYLOAD_SCHEMA_SUBJECT);
    let after_is_empty = is_plain(&row.payload.after, &key::PAYLOAD_SCHEMA_SUBJECT);
    if !key_is_empty && !before_is_empty && !after_is_empty {
        return None;
    }
    let mut whole = row.clone();
    let Record { key, payload, .. } = &mut whole;
    for (is_empty, data) in
        [(key_is_empty, key), (before_is_empty, &mut payload.before), (after_is_empty, &mut payload.after)]
    {
        if is_empty {
            *data = Data::Raw(Bytes::new());
        }
    }
    Some(whole)
}

#[async_trait]
impl Writer for Rows {
    async fn write(&mut self, Write { rows, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        let mut verdicts: Vec<Option<Result<Delivered, Fault>>> = Vec::new();
        verdicts.resize_with(rows.len(), || None);
        let mut first = 0;
        loop {
            let (messages, due) = self.messages(rows, first, &mut verdicts);
            let Some(last) = due.last() else { break };
            self.last = rows[*last].position().0.clone();
            self.exchange(rows, messages, &due, &mut verdicts).await?;
            let mut refused: Vec<Option<String>> = due.iter().map(|row| refusal(verdicts[*row].as_ref())).collect();
            // Among the last rows with the same error, the plugin may have tried only the first.
            let again = alike(refused.iter().map(Option::as_deref)).saturating_sub(1);
            let tried = due.len() - again;
            refused.truncate(tried);
            self.refusals.note(refused.iter().map(Option::as_deref))?;
            match due.get(tried) {
                Some(next) => first = *next,
                None => break,
            }
        }
        if verdicts.iter().all(|verdict| matches!(verdict, Some(Ok(Delivered::Durable)))) {
            return Ok(Verdicts::All(Delivered::Durable));
        }
        let missing = || Err(Fault::fatal(codes::VERDICT_COUNT, "the connector did not acknowledge a record"));
        Ok(Verdicts::Each(verdicts.into_iter().map(|verdict| verdict.unwrap_or_else(missing)).collect()))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Fault> {
        let Rows { session, run, last, .. } = self;
        let message = wire::PositionMessage { position: last.clone() }.encode_to_vec();
        // Everything is acknowledged, so later errors lose nothing.
        if let Err(error) = session.stop(message).await {
            session.warn("does not stop properly", &error);
        }
        // Dropping the sender closes this half of the stream.
        run.outbox = tokio::sync::mpsc::channel(1).0;
        session.closed(&mut run.ended).await;
        session.end().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use anabranch_record::Position;

    use super::*;

    #[test]
    fn what_is_absent_is_empty_unless_a_schema_would_be_read_into_it() {
        let mut row = Record::create(Position::copy_from(b"1"), Data::Absent, Data::text("a"));
        let empty = Data::Raw(Bytes::new());
        let plain = whole(&row).unwrap();
        assert_eq!(
            (plain.key, plain.payload.before, plain.payload.after),
            (empty.clone(), empty.clone(), Data::text("a"))
        );
        row.metadata.insert(key::PAYLOAD_SCHEMA_SUBJECT, "s");
        let with_schema = whole(&row).unwrap();
        assert_eq!((with_schema.key, with_schema.payload.before), (empty, Data::Absent));
        row.key = Data::text("k");
        assert!(whole(&row).is_none());
    }
}
