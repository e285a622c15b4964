//! The socket of the stream of changes, in a task of its own: the server hears of this source while the pipeline is full.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anabranch_record::fault::Fault;
use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::acknowledged::Acknowledged;
use super::database::Database;
use super::fault::WireError;
use super::lsn::Lsn;
use super::slot::{missing, unusable};
use super::wire::{Messages, Wire, literal};
use crate::name::Quoted;

/// Pieces of the stream that wait to be decoded, each of at most the bytes of a read, or one message.
const WAITING: usize = 8;
/// Longest time between two reports to the server.
const REPORT: Duration = Duration::from_secs(10);
/// Time between two attempts to read a slot that another program reads.
const AGAIN: Duration = Duration::from_millis(200);
/// Number of reports without an answer after which the server counts as gone.
const UNANSWERED: u32 = 6;
/// Time for which a slot that another program reads is retried: the server may not have noticed the end of an earlier run.
const TAKEN: Duration = Duration::from_secs(20);
/// Microseconds from 1970-01-01 to 2000-01-01, where the times of the protocol begin.
const EPOCH: u64 = 946_684_800_000_000;

/// A stream of changes.
pub(super) struct Stream {
    /// Messages, as the server sent them.
    pub(super) chunks: mpsc::Receiver<Bytes>,
    task: JoinSet<Result<(), WireError>>,
}

/// A part of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A message of the output plugin.
    Change(Bytes),
    /// The server has sent all transactions that were committed before this place.
    Sent(Lsn),
    /// The server ends the stream.
    End,
}

/// Reads the parts of a chunk. `None` stands for a message that is not one of a stream.
pub(super) fn parts(chunk: Bytes) -> impl Iterator<Item = Result<Part, WireError>> {
    Messages(chunk).filter_map(|message| match (message.tag, message.body.first()) {
        (b'd', Some(b'w')) if message.body.len() >= 25 => Some(Ok(Part::Change(message.body.slice(25..)))),
        (b'd', Some(b'k')) => match place(&message.body, 1) {
            Some(sent) => Some(Ok(Part::Sent(sent))),
            None => Some(Err(WireError::Protocol("a keepalive is cut"))),
        },
        (b'N' | b'S' | b'A' | b'C', _) => None,
        (b'E', _) => Some(Err(WireError::Server(super::fault::ServerError::parse(&message.body)))),
        (b'c' | b'Z', _) => Some(Ok(Part::End)),
        _ => Some(Err(WireError::Protocol("an unexpected message is in the stream"))),
    })
}

fn place(body: &[u8], at: usize) -> Option<Lsn> {
    Some(Lsn(u64::from_be_bytes(body.get(at..at + 8)?.try_into().ok()?)))
}

impl Stream {
    /// Starts the stream of a slot from a place on.
    ///
    /// # Errors
    /// The server refuses it. If another program reads the slot, the source waits for a while first.
    pub(super) async fn start(
        mut replication: Database,
        slot: &str,
        publication: &str,
        from: Lsn,
        acknowledged: &Arc<Acknowledged>,
    ) -> Result<Stream, Fault> {
        let what = format!("reading the slot {slot}");
        let timeout = replication
            .value("reading a setting", "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'")
            .await?;
        let timeout = timeout.and_then(|text| text.parse().ok()).map_or(REPORT * 3, Duration::from_millis);
        let every = if timeout.is_zero() { REPORT } else { (timeout / 3).min(REPORT) };
        let names = literal(&Quoted(publication).to_string());
        let sql = format!(
            "START_REPLICATION SLOT {} LOGICAL {from} (proto_version '1', publication_names {names}, messages 'true')",
            Quoted(slot)
        );
        let began = Instant::now();
        loop {
            match replication.wire.copy(&sql).await {
                Ok(()) => break,
                Err(error) if error.state() == Some("55006") && began.elapsed() < TAKEN => {
                    tracing::debug!(slot, %error, "the slot is in use");
                    sleep(AGAIN).await;
                }
                Err(error) if error.state() == Some("42704") => return Err(missing(slot, from)),
                Err(error) if error.state() == Some("55000") => return Err(unusable(slot, from, &error)),
                Err(error) => return Err(replication.fault(&what, error)),
            }
        }
        let (sender, chunks) = mpsc::channel(WAITING);
        let mut task = JoinSet::new();
        task.spawn(pump(replication.wire, sender, acknowledged.clone(), every));
        Ok(Stream { chunks, task })
    }

    /// Waits for the end of the task, and returns why it ended.
    pub(super) async fn ended(&mut self) -> WireError {
        self.chunks.close();
        match self.task.join_next().await {
            Some(Ok(Ok(()))) | None => WireError::Closed,
            Some(Ok(Err(error))) => error,
            Some(Err(error)) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => WireError::Closed,
            },
        }
    }

    /// Returns an estimate of the messages that wait to be decoded.
    pub(super) fn is_drained(&self) -> bool {
        self.chunks.is_empty()
    }
}

/// Receives messages, and reports to the server what is confirmed.
async fn pump(
    mut wire: Wire,
    chunks: mpsc::Sender<Bytes>,
    acknowledged: Arc<Acknowledged>,
    every: Duration,
) -> Result<(), WireError> {
    let mut closing = acknowledged.watch_closing();
    let mut confirmed = acknowledged.watch_confirmed();
    let mut reports = interval(every);
    reports.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut held: Option<Bytes> = None;
    // True if nobody reads any more. The last reports are still to be sent.
    let mut is_abandoned = false;
    // Reports that ask for an answer, since the last message.
    let mut unanswered = 0;
    loop {
        tokio::select! {
            biased;
            () = closed(&mut closing) => {
                report(&mut wire, acknowledged.confirmed(), false).await?;
                return wire.finish_copy().await;
            }
            _ = reports.tick() => {
                // A server whose messages wait here is alive.
                unanswered = if held.is_none() && !is_abandoned { unanswered + 1 } else { 0 };
                if unanswered > UNANSWERED {
                    return Err(WireError::Silent(every.as_secs() * u64::from(UNANSWERED)));
                }
                report(&mut wire, acknowledged.confirmed(), true).await?;
            }
            Ok(()) = confirmed.changed() => {
                report(&mut wire, acknowledged.confirmed(), false).await?;
            }
            permit = chunks.reserve(), if held.is_some() => match (permit, held.take()) {
                (Ok(permit), Some(chunk)) => permit.send(chunk),
                _ => is_abandoned = true,
            },
            chunk = wire.chunk(), if held.is_none() && !is_abandoned => {
                let chunk = chunk?;
                unanswered = 0;
                if note(&chunk, &acknowledged) {
                    report(&mut wire, acknowledged.confirmed(), false).await?;
                }
                held = Some(chunk);
            }
        }
    }
}

/// Waits until the source is being closed.
async fn closed(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|is_closing| *is_closing).await;
}

/// Notes the end of the server's log. Returns `true` if the server asks for a report.
fn note(chunk: &Bytes, acknowledged: &Acknowledged) -> bool {
    let mut asks = false;
    let mut end = Lsn::ZERO;
    for message in Messages(chunk.clone()).filter(|message| message.tag == b'd') {
        match message.body.first() {
            Some(b'w') => end = end.max(place(&message.body, 9).unwrap_or_default()),
            Some(b'k') => {
                end = end.max(place(&message.body, 1).unwrap_or_default());
                asks |= message.body.get(17) == Some(&1);
            }
            _ => {}
        }
    }
    acknowledged.note_server_end(end);
    asks
}

/// Reports to the server that everything before `confirmed` is stored.
async fn report(wire: &mut Wire, confirmed: Lsn, asks: bool) -> Result<(), WireError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let mut body = BytesMut::with_capacity(34);
    body.put_u8(b'r');
    // Written, flushed and applied.
    for _ in 0..3 {
        body.put_u64(confirmed.0);
    }
    body.put_u64(u64::try_from(now).unwrap_or_default().saturating_sub(EPOCH));
    body.put_u8(u8::from(asks));
    wire.send_copy(&body).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![b'd'];
        bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn a_chunk_has_changes_and_places() {
        let change = [b"w".as_slice(), &7u64.to_be_bytes(), &9u64.to_be_bytes(), &[0; 8], b"Bxy"].concat();
        let alive = [b"k".as_slice(), &8u64.to_be_bytes(), &[0; 8], b"\x01"].concat();
        let chunk = Bytes::from([message(&change), message(&alive)].concat());
        let found: Vec<_> = parts(chunk.clone()).map(Result::unwrap).collect();
        assert_eq!(found, [Part::Change(Bytes::from_static(b"Bxy")), Part::Sent(Lsn(8))]);
        let acknowledged = Acknowledged::new(Lsn(2));
        assert!(note(&chunk, &acknowledged));
        assert_eq!(acknowledged.bytes_left(), 7);
        assert!(!note(&Bytes::from(message(&change)), &acknowledged));
    }
}
