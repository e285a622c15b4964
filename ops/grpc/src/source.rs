//! A plugin as a source.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::host::Host;
use anabranch_plugin::source::{Acker, OpenedSource, Read, Reader, Room, Source, SourceKind};
use anabranch_plugin::specification::Specification;
use anabranch_plugin::written::Written;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::protobuf::decode_record;
use anabranch_record::text::Str;
use anabranch_record::{Position, Record};
use async_trait::async_trait;
use bytes::Bytes;
use prost::Message as _;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};

use crate::call::CallError;
use crate::codes;
use crate::protocol::Role;
use crate::session::{Plugin, Session, SessionStream};
use crate::specification::{DisabledDefaults, given};
use crate::wire;

/// Time limit for records that were in flight when the plugin stopped.
const LAST_RECORDS: Duration = Duration::from_secs(5);

/// The source kind of a plugin, for the registry.
pub(crate) struct ConnectorSource {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) specification: Specification,
    pub(crate) silenced: DisabledDefaults,
}

impl SourceKind for ConnectorSource {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn Source>, Diagnostics> {
        Ok(Arc::new(GrpcSource { plugin: self.plugin.clone(), given: given(arguments, &self.silenced) }))
    }
}

struct GrpcSource {
    plugin: Arc<Plugin>,
    given: Vec<(Str, Written)>,
}

#[async_trait]
impl Source for GrpcSource {
    fn catches_up(&self) -> bool {
        false
    }

    fn is_partitioned(&self) -> bool {
        false
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, host: &Host) -> Result<OpenedSource, Fault> {
        let session = Arc::new(Session::start(self.plugin.clone(), Role::Source, host).await?);
        session.configure(&self.given, host).await?;
        let position = resume.get(&Partition::ONLY).map(|mark| mark.position.0.clone()).unwrap_or_default();
        session.open(wire::PositionMessage { position }.encode_to_vec()).await?;
        let SessionStream { outbox, inbox, ended } = session.run();
        let limit = self.plugin.settings.record_limit;
        let patience = self.plugin.settings.patience;
        let reader = Records { session: session.clone(), inbox, waiting: VecDeque::new(), last: Position::default() };
        let acker = Acks { session, outbox: Some(outbox), ended, limit, patience, failed: None, is_deaf: false };
        Ok(OpenedSource::new(Box::new(reader), Box::new(acker)))
    }
}

struct Records {
    session: Arc<Session>,
    inbox: mpsc::Receiver<Result<Bytes, CallError>>,
    /// Records of the last message that were not returned yet.
    waiting: VecDeque<Record>,
    /// Position of the last received record.
    last: Position,
}

impl Records {
    /// Decodes a message.
    fn take(&mut self, message: Bytes) -> Result<(), String> {
        let records = self.session.protocol().read_records(message).map_err(|error| error.to_string())?;
        self.waiting.reserve(records.len());
        for record in records {
            self.waiting.push_back(decode_record(&record).map_err(|error| error.to_string())?);
        }
        if let Some(last) = self.waiting.back() {
            self.last = last.position().clone();
        }
        Ok(())
    }

    /// Returns as many records as fit into `room`, at least one.
    fn give(&mut self, room: Room) -> Vec<Record> {
        let mut bytes = 0;
        let fitting = self.waiting.iter().take(room.rows.max(1)).enumerate().take_while(|(row, record)| {
            bytes += record.weight();
            *row == 0 || bytes <= room.bytes
        });
        let rows = fitting.count();
        self.waiting.drain(..rows).collect()
    }

    /// After the request to stop, reads until the record at `position` arrives. These records are discarded:
    /// the source sends unacknowledged records again.
    async fn drain(&mut self, position: &Bytes) {
        self.waiting.clear();
        let until = Instant::now() + LAST_RECORDS;
        while !position.is_empty() && self.last.0 != *position {
            let Ok(Some(Ok(message))) = timeout_at(until, self.inbox.recv()).await else { break };
            if self.take(message).is_err() {
                break;
            }
            self.waiting.clear();
        }
    }
}

#[async_trait]
impl Reader for Records {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        while self.waiting.is_empty() {
            match self.inbox.recv().await {
                Some(Ok(message)) => {
                    if let Err(reason) = self.take(message) {
                        let error = CallError::Refused(reason);
                        let what = "sent a message that does not contain records";
                        return Err(self.session.fault(FaultClass::Fatal, codes::PLUGIN_GARBAGE, what, &error).await);
                    }
                }
                Some(Err(error)) => {
                    let code = match &error {
                        CallError::Lost(_) => codes::PLUGIN_LOST,
                        _ => codes::PLUGIN_READ_FAILED,
                    };
                    return Err(self.session.fault(FaultClass::Transient, code, "cannot be read", &error).await);
                }
                None => {
                    let error = CallError::Lost("it closed its stream".to_owned());
                    let what = "stopped reading without a request to stop";
                    return Err(self.session.fault(FaultClass::Transient, codes::PLUGIN_LOST, what, &error).await);
                }
            }
        }
        Ok(Read::Rows { partition: Partition::ONLY, records: self.give(room) })
    }

    async fn stop(&mut self) -> Result<(), Fault> {
        let session = self.session.clone();
        let stopping = session.stop(Vec::new());
        tokio::pin!(stopping);
        // A plugin that waits for room in the stream cannot stop, so keep reading.
        let stopped = loop {
            self.waiting.clear();
            tokio::select! {
                biased;
                stopped = &mut stopping => break stopped,
                message = self.inbox.recv() => match message {
                    Some(Ok(message)) => drop(self.take(message)),
                    Some(Err(_)) | None => break (&mut stopping).await,
                },
            }
        };
        let at = stopped.and_then(|message| {
            wire::PositionMessage::decode(message).map_err(|error| CallError::Refused(error.to_string()))
        });
        match at {
            Ok(wire::PositionMessage { position }) => self.drain(&position).await,
            Err(error) => self.session.warn("does not stop properly", &error),
        }
        Ok(())
    }
}

struct Acks {
    session: Arc<Session>,
    outbox: Option<mpsc::Sender<Bytes>>,
    ended: watch::Receiver<()>,
    limit: usize,
    patience: Duration,
    /// Failure to send acknowledgements. A part may have arrived, so only a new run can send them again.
    failed: Option<Fault>,
    /// True if the plugin ended while it was being stopped, so that acknowledgements have no receiver.
    is_deaf: bool,
}

#[async_trait]
impl Acker for Acks {
    async fn ack(&mut self, _: &Partition, positions: &[Position]) -> Result<(), Fault> {
        if self.is_deaf {
            return Ok(());
        }
        let (None, Some(outbox)) = (&self.failed, &self.outbox) else {
            let closed = || Fault::transient(codes::PLUGIN_LOST, "the stream is closed");
            return Err(self.failed.clone().unwrap_or_else(closed));
        };
        for message in self.session.protocol().write_positions(positions, self.limit) {
            let error = match timeout(self.patience, outbox.send(message)).await {
                Ok(Ok(())) => continue,
                Ok(Err(_)) => CallError::Lost("it closed its stream".to_owned()),
                Err(_) => CallError::Late(self.patience),
            };
            let what = "does not accept acknowledgements";
            if self.session.is_stopping() {
                // The positions are stored, so the plugin receives them at the next start.
                self.session.warn(what, &error);
                self.is_deaf = true;
                return Ok(());
            }
            let fault = self.session.fault(FaultClass::Transient, codes::PLUGIN_LOST, what, &error).await;
            return Err(self.failed.insert(fault).clone());
        }
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Fault> {
        self.outbox = None;
        self.session.closed(&mut self.ended).await;
        self.session.end().await;
        Ok(())
    }
}
