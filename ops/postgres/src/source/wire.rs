//! A connection that speaks the protocol of PostgreSQL itself, because the client library has no replication.
//!
//! Source: "Frontend/Backend Protocol" and "Streaming Replication Protocol" of the PostgreSQL manual. All values are
//! text, in UTF-8.

mod gather;
mod login;

use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use super::fault::{ServerError, WireError};
use crate::address::Address;
use crate::connection::CONNECT_TIMEOUT;

/// Bytes that are read at a time.
const READ: usize = 128 << 10;
/// Time without a byte after which a server that owes an answer counts as gone. The slowest answers are those that wait
/// for other transactions, such as the creation of a slot.
const SILENCE: Duration = Duration::from_secs(600);

/// Settings of each session: texts do not depend on the server's configuration, no time limit ends a long read, and a
/// policy of a table that hides rows is an error.
const OPTIONS: &str = "-c DateStyle=ISO -c IntervalStyle=iso_8601 -c TimeZone=UTC -c extra_float_digits=3 \
     -c bytea_output=hex -c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 \
     -c idle_session_timeout=0 \
     -c row_security=off -c search_path=pg_catalog";

/// The byte stream of a connection.
trait Duplex: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Duplex for T {}

/// A connection.
pub(super) struct Wire {
    stream: Box<dyn Duplex>,
    input: BytesMut,
    output: BytesMut,
}

/// A message of the server.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) tag: u8,
    pub(super) body: Bytes,
}

/// The purpose of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Session {
    /// SQL.
    Queries,
    /// SQL and the commands of logical replication.
    Replication,
}

/// A row of a result: texts, or `None` for null.
pub(super) type Row = Vec<Option<String>>;

impl Wire {
    /// Connects to the first host that answers.
    ///
    /// # Errors
    /// No host answers, or the login is refused.
    pub(super) async fn connect(address: &Address, session: Session) -> Result<Wire, WireError> {
        let limit = address.config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
        let mut last = WireError::Closed;
        for (host, port) in login::hosts(address) {
            let silent = |_| WireError::Silent(limit.as_secs());
            match timeout(limit, login::open(address, &host, port, session))
                .await
                .map_err(silent)
                .and_then(|opened| opened)
            {
                Ok((stream, binding)) => {
                    let mut wire = Wire { stream, input: BytesMut::with_capacity(READ), output: BytesMut::new() };
                    timeout(limit, wire.log_in(address, session, binding)).await.map_err(silent)??;
                    return Ok(wire);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Runs one or several statements, and returns the rows of the last one that has any.
    ///
    /// # Errors
    /// The server refuses a statement. Then the connection is still usable, unless it is lost.
    pub(super) async fn query(&mut self, sql: &str) -> Result<Vec<Row>, WireError> {
        frontend::query(sql, &mut self.output)?;
        self.flush().await?;
        let mut rows = Vec::new();
        let mut refused = None;
        loop {
            let Message { tag, body } = self.answer().await?;
            match tag {
                b'T' => rows.clear(),
                b'D' => rows.push(row(&body).ok_or(WireError::Protocol("a row is cut"))?),
                b'E' => refused = Some(WireError::Server(ServerError::parse(&body))),
                b'Z' => return refused.map_or(Ok(rows), Err),
                b'C' | b'I' => {}
                _ => return Err(WireError::Protocol("an unexpected message answers a query")),
            }
        }
    }

    /// Starts a copy from the server: `COPY … TO STDOUT`, or `START_REPLICATION`.
    ///
    /// # Errors
    /// The server refuses it. Then the connection is still usable, unless it is lost.
    pub(super) async fn copy(&mut self, sql: &str) -> Result<(), WireError> {
        frontend::query(sql, &mut self.output)?;
        self.flush().await?;
        let mut refused = None;
        loop {
            let Message { tag, body } = self.answer().await?;
            match tag {
                b'H' | b'W' => return Ok(()),
                b'E' => refused = Some(WireError::Server(ServerError::parse(&body))),
                b'Z' => return Err(refused.unwrap_or(WireError::Protocol("the copy ended before it began"))),
                _ => return Err(WireError::Protocol("an unexpected message answers a copy")),
            }
        }
    }

    /// Returns all complete messages that were received, at least one, in one piece; see [`Messages`]. Cancel-safe.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) async fn chunk(&mut self) -> Result<Bytes, WireError> {
        loop {
            let complete = complete(&self.input)?;
            if complete > 0 {
                return Ok(self.input.split_to(complete).freeze());
            }
            self.fill().await?;
        }
    }

    /// Sends data of a copy in both directions.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) async fn send_copy(&mut self, data: &[u8]) -> Result<(), WireError> {
        frontend::CopyData::new(data)?.write(&mut self.output);
        self.flush().await
    }

    /// Ends a copy in both directions, and the connection.
    pub(super) async fn finish_copy(mut self) -> Result<(), WireError> {
        frontend::copy_done(&mut self.output);
        self.flush().await?;
        // The server confirms the end of the copy after the data that it has sent.
        loop {
            let Message { tag, .. } = self.answer().await?;
            if tag == b'Z' || tag == b'E' {
                break;
            }
        }
        frontend::terminate(&mut self.output);
        self.flush().await
    }

    /// Sends what is in the output.
    async fn flush(&mut self) -> Result<(), WireError> {
        while self.output.has_remaining() {
            if self.stream.write_buf(&mut self.output).await? == 0 {
                return Err(WireError::Closed);
            }
        }
        Ok(self.stream.flush().await?)
    }

    /// Receives more bytes.
    async fn fill(&mut self) -> Result<(), WireError> {
        self.input.reserve(READ);
        match self.stream.read_buf(&mut self.input).await? {
            0 => Err(WireError::Closed),
            _ => Ok(()),
        }
    }

    /// Returns the next message that is not a notice.
    async fn answer(&mut self) -> Result<Message, WireError> {
        loop {
            while let Some(message) = take(&mut self.input)? {
                if !matches!(message.tag, b'N' | b'S' | b'A') {
                    return Ok(message);
                }
            }
            match timeout(SILENCE, self.fill()).await {
                Ok(filled) => filled?,
                Err(_) => return Err(WireError::Silent(SILENCE.as_secs())),
            }
        }
    }
}

/// Length of the message at the beginning of `input`, with its tag; `None` if the length is not received yet.
fn length(input: &[u8]) -> Result<Option<usize>, WireError> {
    let Some(header) = input.get(1..5).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()) else { return Ok(None) };
    let length = usize::try_from(u32::from_be_bytes(header)).unwrap_or(usize::MAX);
    if !(4..1 << 31).contains(&length) {
        return Err(WireError::Protocol("the length of a message is invalid"));
    }
    Ok(Some(length + 1))
}

/// Returns the length of the complete messages at the beginning of `input`.
fn complete(input: &[u8]) -> Result<usize, WireError> {
    let mut end = 0;
    while let Some(length) = length(&input[end..])?
        && end + length <= input.len()
    {
        end += length;
    }
    Ok(end)
}

/// Takes the first message, if it is complete.
fn take(input: &mut BytesMut) -> Result<Option<Message>, WireError> {
    let Some(length) = length(input)?.filter(|length| *length <= input.len()) else { return Ok(None) };
    let tag = input[0];
    let mut body = input.split_to(length).freeze();
    body.advance(5);
    Ok(Some(Message { tag, body }))
}

/// The messages in a piece that [`Wire::chunk`] returned.
#[derive(Clone, Debug, Default)]
pub(super) struct Messages(pub(super) Bytes);

impl Iterator for Messages {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        let length = length(&self.0).ok()??;
        if length > self.0.len() {
            return None;
        }
        let tag = self.0[0];
        let mut body = self.0.split_to(length);
        body.advance(5);
        Some(Message { tag, body })
    }
}

/// Reads a `DataRow`: the number of columns, then each with its length, -1 for null.
fn row(body: &[u8]) -> Option<Row> {
    let (count, mut rest) = body.split_first_chunk()?;
    let mut row = Vec::with_capacity(usize::from(u16::from_be_bytes(*count)));
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk()?;
        let value = match usize::try_from(i32::from_be_bytes(*length)) {
            Ok(length) => {
                let (value, after) = after.split_at_checked(length)?;
                rest = after;
                Some(String::from_utf8_lossy(value).into_owned())
            }
            Err(_) => {
                rest = after;
                None
            }
        };
        row.push(value);
    }
    Some(row)
}

/// Writes a text as an SQL literal.
pub(super) fn literal(text: &str) -> String {
    // The quotes work whatever the setting of standard_conforming_strings is.
    match text.contains('\\') {
        true => format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''")),
        false => format!("'{}'", text.replace('\'', "''")),
    }
}

impl From<WireError> for io::Error {
    fn from(error: WireError) -> io::Error {
        io::Error::other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn messages_are_cut_at_their_lengths() {
        let mut input = BytesMut::new();
        input.extend_from_slice(&message(b'd', b"one"));
        input.extend_from_slice(&message(b'Z', b""));
        let whole = input.len();
        input.extend_from_slice(&message(b'd', b"cut")[..6]);
        assert_eq!(complete(&input).unwrap(), whole);
        let chunk = input.split_to(whole).freeze();
        let found: Vec<_> = Messages(chunk).map(|message| (message.tag, message.body)).collect();
        assert_eq!(found, [(b'd', Bytes::from_static(b"one")), (b'Z', Bytes::new())]);
        assert!(take(&mut input).unwrap().is_none());
        assert_eq!(input.len(), 6);
        assert!(complete(&[b'd', 0, 0, 0, 3]).is_err());
        assert!(complete(&[b'd', 255, 0, 0, 3]).is_err());
    }

    #[test]
    fn a_row_has_texts_and_nulls() {
        let body = b"\0\x03\0\0\0\x01a\xff\xff\xff\xff\0\0\0\0";
        assert_eq!(row(body), Some(vec![Some("a".to_owned()), None, Some(String::new())]));
        assert_eq!(row(&body[..body.len() - 1]), None);
    }

    #[test]
    fn literals_are_quoted() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal(r"a\'b"), r"E'a\\''b'");
    }
}
