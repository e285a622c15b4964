//! Messages between the service and a script's worker process: frames, and the records in them.
//!
//! A frame is the length of the rest (4 bytes, little-endian), a byte for its kind, and its content. Numbers are
//! encoded in groups of seven bits, the lowest first; texts and bytes are prefixed with their length.

mod made;
pub(crate) mod orders;
mod read;
mod wants;
mod write;

use std::io::{self, Read, Write};

use bytes::Bytes;

pub(crate) use made::{Changes, LastMetadata, write_made};
pub(crate) use read::{NameCache, Reader};
pub(crate) use wants::{Want, Wants};
pub(crate) use write::{TooDeep, write_bytes, write_number, write_record};

/// Maximum nesting of lists and maps in a message.
pub(crate) const MOST_DEPTH: usize = 256;

/// Kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameKind {
    /// To the worker, once: the script and its limits.
    Open = 1,
    /// To the worker: records.
    Process,
    /// From the worker: the script is ready; contains the parts of records that it needs.
    Opened,
    /// From the worker: the script is rejected, with the reason.
    Refused,
    /// From the worker: the outcomes of the next records.
    Made,
    /// From the worker: a log line.
    Line,
    /// From the worker: the parts of records that it needs from now on. The service sends the rest of the current order
    /// again.
    Wants,
}

impl FrameKind {
    const ALL: [FrameKind; 7] = [
        FrameKind::Open,
        FrameKind::Process,
        FrameKind::Opened,
        FrameKind::Refused,
        FrameKind::Made,
        FrameKind::Line,
        FrameKind::Wants,
    ];
}

/// A malformed message.
#[derive(Debug, thiserror::Error)]
#[error("an invalid message")]
pub(crate) struct Malformed;

impl From<Malformed> for io::Error {
    fn from(malformed: Malformed) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, malformed)
    }
}

/// Begins a frame in a buffer.
pub(crate) fn begin(frame: &mut Vec<u8>, kind: FrameKind) {
    frame.clear();
    frame.extend([0, 0, 0, 0, kind as u8]);
}

/// Sends the frame begun by [`begin`].
pub(crate) fn send(frame: &mut [u8], to: &mut impl Write) -> io::Result<()> {
    let length = frame.len().checked_sub(4).and_then(|length| u32::try_from(length).ok());
    let Some(length) = length else { return Err(io::Error::from(io::ErrorKind::InvalidInput)) };
    frame[..4].copy_from_slice(&length.to_le_bytes());
    to.write_all(frame)
}

/// Receives the next frame; `None` if the other side closed the connection.
pub(crate) fn receive(from: &mut impl Read) -> io::Result<Option<(FrameKind, Bytes)>> {
    let mut head = [0; 5];
    loop {
        match from.read(&mut head[..1]) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    from.read_exact(&mut head[1..])?;
    let [length @ .., kind] = head;
    let length = u32::from_le_bytes(length).checked_sub(1).ok_or(Malformed)?;
    let kind = *FrameKind::ALL.iter().find(|known| **known as u8 == kind).ok_or(Malformed)?;
    // The buffer grows with the received bytes, so a wrong length does not allocate memory.
    let mut content = Vec::with_capacity((length as usize).min(1 << 20));
    from.take(length.into()).read_to_end(&mut content)?;
    if content.len() != length as usize {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
    }
    Ok(Some((kind, Bytes::from(content))))
}

#[cfg(test)]
mod tests;
